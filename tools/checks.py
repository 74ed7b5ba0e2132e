"""The checks that need no server: lint, format, types, layers, docs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
DOCS_OUT = ROOT / "docs" / "_build" / "html"


@dataclass(frozen=True, slots=True)
class Check:
    """A command that passes or fails, and prints only when it fails."""

    name: str
    argv: tuple[str, ...]

    def run(self) -> bool:
        click.echo(f"{self.name} … ", nl=False)
        began = time.monotonic()
        done = subprocess.run(self.argv, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        click.echo(f"{'ok' if done.returncode == 0 else 'FAILED'} ({time.monotonic() - began:.1f} s)")
        if done.returncode:
            click.echo(done.stdout)
        return done.returncode == 0


def program(name: str) -> str:
    """A command of this virtual environment."""
    return str(Path(sys.executable).with_name(name))


LINT = (
    Check("lint (ruff check)", (program("ruff"), "check", "--output-format", "concise", ".")),
    Check("format (ruff format --check)", (program("ruff"), "format", "--check", ".")),
    Check("types (mypy --strict)", (program("mypy"),)),
    Check("layers (lint-imports)", (program("lint-imports"), "--no-cache")),
)
DOCS = Check(
    "docs (sphinx-build -n -W)",
    (program("sphinx-build"), "-n", "-W", "--keep-going", "-q", "-E", "docs", str(DOCS_OUT)),
)


def failures(checks: Sequence[Check]) -> int:
    """Run them all, also after one failed."""
    return [check.run() for check in checks].count(False)


def pytest(arguments: Sequence[str], env: Mapping[str, str], seconds: float | None = None) -> int:
    """pytest's exit code, or 124 when it was ended after `seconds`."""
    command = [sys.executable, "-m", "pytest", *arguments]
    try:
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        return 124
