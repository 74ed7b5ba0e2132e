"""./dev campaign: long random runs. One is a module of tests/campaigns with ``run(minutes, seed) -> int``."""

from __future__ import annotations

import importlib
import pkgutil
import random

import click

PACKAGE = "tests.campaigns"


def names() -> list[str]:
    package = importlib.import_module(PACKAGE)
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))


def run(name: str | None, minutes: float, seed: int | None) -> int:
    """The exit code: that of the campaign, 0 for nothing wrong; or 2 when there is none of that name."""
    if name is None:
        click.echo("\n".join(f"{n}: {_about(n)}" for n in names()))
        return 0
    if name not in names():
        raise click.UsageError(f"no campaign {name!r}; there are: {', '.join(names())}")
    seed = random.randrange(2**32) if seed is None else seed  # noqa: S311 - chooses what to try, guards nothing
    click.echo(f"campaign {name}, {minutes:g} minutes, --seed {seed}")
    failures = int(importlib.import_module(f"{PACKAGE}.{name}").run(minutes, seed))
    click.echo(f"campaign {name}: {failures} failures" + (f"; repeat with --seed {seed}" if failures else ""))
    return 1 if failures else 0


def _about(name: str) -> str:
    return (importlib.import_module(f"{PACKAGE}.{name}").__doc__ or "").strip().splitlines()[0]
