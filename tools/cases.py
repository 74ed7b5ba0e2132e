"""./dev cases: which tests show which row and case, and that they fail when the product is switched off."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from tools import checks

CASES = checks.ROOT / "tests" / "cases.toml"
ALLOWED = checks.ROOT / "tests" / "passes_when_off.toml"
BOUND = 480.0  # seconds for the suite, and as many for the browser; each test comes first with its first parameters
PARTS = (["tests", "--ignore=tests/browser", "-n", "2", "--dist", "loadgroup"], ["tests/browser"])


def run(*, only_list: bool) -> int:
    """The exit code: 1 if a test passes without the product that has no reason to, or showed nothing."""
    marked = _collect()
    _print_table(marked)
    return 0 if only_list else _run_switched_off(set(marked))


def _collect() -> dict[str, list[str]]:
    """Node id → the ids that it is marked with."""
    marked: dict[str, list[str]] = {}
    for targets in PARTS:
        found = _reported(
            [targets[0], *(t for t in targets if t.startswith("--ignore")), "--collect-only", "-qq"], None
        )
        marked.update({node: ids for node, (ids, _) in found.items()})
    return marked


def _reported(arguments: list[str], seconds: float | None) -> dict[str, tuple[list[str], str | None]]:
    """Run marked tests; node id → (its ids, its outcome or None if it did not run)."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "cases.jsonl")
        env = {"IDEMPOTENCY_DEV_TEST": "1", "IDEMPOTENCY_DEV_CASES": str(report)}
        if seconds is not None:
            env["IDEMPOTENCY_TESTS_OFF"] = "1"
        code = checks.pytest(arguments, env, seconds)
        if not report.exists():
            raise click.ClickException(f"pytest ended with {code} before it collected anything")
        lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    found: dict[str, tuple[list[str], str | None]] = {}
    for line in lines:
        node = (
            line["node"] if "ids" in line or line["node"] in found else line["node"].rsplit("@", 1)[0]
        )  # xdist's group
        ids, outcome = found.get(node, ([], None))
        found[node] = (line.get("ids", ids), _worse(outcome, line.get("outcome")))
    return found


def _worse(one: str | None, other: str | None) -> str | None:
    """A test has failed if its call or its teardown did; without its setup it has shown nothing."""
    return next((worse for worse in ("not set up", "failed") if worse in (one, other)), other or one)


def _print_table(marked: Mapping[str, Iterable[str]]) -> None:
    by_id: dict[str, list[str]] = defaultdict(list)
    for node, ids in sorted(marked.items()):
        for name in ids:
            by_id[name].append(node)
    bare = []
    for table in tomllib.loads(CASES.read_text(encoding="utf-8")).values():
        for name, title in table.items():
            nodes = sorted(set(map(_test, by_id[name])))
            click.echo(f"{name}  {title}" + "".join(f"\n    {node}" for node in nodes))
            bare += [] if nodes else [name]
    click.echo(f"\nbare, without a test ({len(bare)}): {' '.join(bare)}\n")


def _run_switched_off(marked: set[str]) -> int:
    allowed: dict[str, str] = tomllib.loads(ALLOWED.read_text(encoding="utf-8"))["tests"]
    outcomes: dict[str, str | None] = {}
    for targets in PARTS:
        click.echo(f"switched off: pytest {' '.join(targets)}")
        # Without the product many a served test waits for what never comes: a short time-out is a failure as good.
        only_marked = [*targets, "-q", "--tb=no", "-rN", "--show-capture=no", "--timeout=15"]
        outcomes.update({node: outcome for node, (_, outcome) in _reported(only_marked, BOUND).items()})
    passed = {node for node, outcome in outcomes.items() if outcome == "passed"}
    unexplained = sorted(node for node in passed if not _reasons(node, allowed))
    unknown = sorted(name for name in allowed if not any(_covers(name, node) for node in marked))
    for node in unexplained:
        click.echo(f"passes without the product: {node}")
    for name in unknown:
        click.echo(f"listed in {ALLOWED.name}, but there is no such marked test: {name}")
    broken = sorted(node for node, outcome in outcomes.items() if outcome == "not set up")
    for node in broken:
        click.echo(f"its setup fails without the product, so that it shows nothing: {node}")
    reached = {_test(node) for node, outcome in outcomes.items() if outcome is not None}
    unshown = sorted({_test(node) for node in outcomes} - reached)
    for name in unshown:
        click.echo(f"not reached in {BOUND:.0f} s with any parameters: {name}")
    _say_counts(outcomes, passed, unexplained)
    return 1 if unexplained or unknown or broken or unshown else 0


def _test(node: str) -> str:
    """The test without its parameters."""
    return node.split("[")[0]


def _covers(name: str, node: str) -> bool:
    """Whether `name` is the test, all its parameters, its class or its file."""
    return node == name or node.startswith((f"{name}[", f"{name}::"))


def _reasons(node: str, allowed: Mapping[str, str]) -> list[str]:
    return [reason for name, reason in allowed.items() if _covers(name, node)]


def _say_counts(outcomes: Mapping[str, str | None], passed: set[str], unexplained: list[str]) -> None:
    failed = sum(outcome == "failed" for outcome in outcomes.values())
    not_run = sum(outcome is None for outcome in outcomes.values())
    click.echo(
        f"switched off: {failed} fail, as they must; {len(passed) - len(unexplained)} pass for a listed reason; "
        f"{len(unexplained)} pass and should not; {not_run} further parameters not reached in time"
    )
