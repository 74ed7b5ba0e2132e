"""./dev test: the checks, the suite, the browser tests, and one closing line for all of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from tools import checks
from tools.services import SERVICES, missing

NOTHING_COLLECTED = 5  # pytest's exit code


def run(without: str, arguments: Sequence[str]) -> int:
    """The exit code: 0 when all passed, 1 when something failed, 2 for a wrong call, 3 when a server is missing."""
    left_out = tuple(filter(None, without.split(",")))
    if left_out and os.environ.get("CI"):
        raise click.UsageError("with CI set nothing may be left out: --without is refused")
    if absent := missing(left_out):
        _say_what_is_missing([service.name for service in absent], left_out)
        return 3
    total = Counter(passed=0, failed=0)
    for check in (*checks.LINT, checks.DOCS):
        total["passed" if check.run() else "failed"] += 1
    for name, targets in _parts(arguments):
        click.echo(f"\n{name}: pytest {' '.join(targets)}")
        total += _pytest([*targets, f"--without={without}"], may_be_empty=bool(arguments))
    _close(total, left_out)
    return 1 if total["failed"] else 0


def _parts(arguments: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The suite in two workers, then the browser by itself: Playwright breaks asyncio for the tests after it."""
    paths = [a for a in arguments if (checks.ROOT / a.split("::")[0]).exists() and not a.startswith("-")]
    browser = [a for a in arguments if a not in paths or a.startswith("tests/browser")]
    others = [a for a in arguments if a not in paths or not a.startswith("tests/browser")]
    parts = []
    if not paths or any(path in others for path in paths):
        targets = [] if paths else ["tests"]
        parts.append(("suite", [*targets, "--ignore=tests/browser", "-n", "2", "--dist", "loadgroup", *others]))
    if not paths or any(path in browser for path in paths):
        parts.append(("browser", [*([] if paths else ["tests/browser"]), *browser]))
    return parts


def _pytest(arguments: Sequence[str], *, may_be_empty: bool) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts.json")
        env = {"IDEMPOTENCY_DEV_TEST": "1", "IDEMPOTENCY_DEV_COUNTS": str(counts)}
        code = checks.pytest(arguments, env)
        found = json.loads(counts.read_text(encoding="utf-8")) if counts.exists() else {}
    failed = sum(found.get(kind, 0) for kind in ("failed", "error", "skipped"))  # a skip is a test that vanished
    empty = code == NOTHING_COLLECTED and (may_be_empty or found.get("left_out"))  # all of it was left out
    if code and not failed and not empty:
        failed = 1
    return Counter({"passed": found.get("passed", 0), "failed": failed, **found.get("left_out", {})})


def _say_what_is_missing(names: Sequence[str], left_out: Sequence[str]) -> None:
    for name in names:
        click.echo(SERVICES[name].hint(), err=True)
    if not os.environ.get("CI"):
        without = ",".join([*left_out, *names])
        click.echo(f"To run everything else:\n  ./dev test --without {without}", err=True)


def _close(total: Counter[str], left_out: Sequence[str]) -> None:
    click.echo()
    for name in left_out:
        click.echo(f"left out by --without: {total[name]} tests that need {SERVICES[name].what}")
    click.echo(f"{total['passed']} passed, {total['failed']} failed")
