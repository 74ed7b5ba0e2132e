"""What the suite adds to pytest: services left out visibly, case ids checked, counts handed to ./dev.

``./dev test`` sets IDEMPOTENCY_DEV_TEST=1: then a server that is missing fails its tests. In a plain ``pytest`` a test
is deselected, and counted in the closing lines, when its server does not come with ``pip install -e ".[dev]"``.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.apps import switched_off
from tools.services import SERVICES, Service

CASES_FILE = Path(__file__).with_name("cases.toml")
SECONDS_WHEN_OFF = 20
HEAVY = ("cluster",)  # started once, by one xdist worker
_left_out = pytest.StashKey[Counter[str]]()


def known_ids() -> set[str]:
    tables = tomllib.loads(CASES_FILE.read_text(encoding="utf-8"))
    return set(tables["rows"]) | set(tables["cases"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", default="", metavar="A,B", help="deselect, and count, tests that need these services")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_left_out] = Counter()
    without = _without(config)
    if without and os.environ.get("CI"):
        raise pytest.UsageError("with CI set nothing may be left out: --without is refused")
    if unknown := without - set(SERVICES):
        raise pytest.UsageError(f"--without knows {', '.join(SERVICES)}; not {', '.join(sorted(unknown))}")


def _without(config: pytest.Config) -> set[str]:
    return set(filter(None, config.getoption("--without").split(",")))


def _needs(item: pytest.Item) -> set[str]:
    """The services whose fixtures the test asks for, in any way."""
    fixtures = {name.removeprefix("svc_") for name in getattr(item, "fixturenames", ()) if name.startswith("svc_")}
    callspec = getattr(item, "callspec", None)
    params = set(map(str, callspec.params.values())) if callspec else set()
    marked = {name for marker in item.iter_markers("service") for name in marker.args}
    return fixtures | (params & set(SERVICES)) | marked


def _is_left_out(service: Service, config: pytest.Config, only_browser: bool) -> bool:
    if service.name in _without(config):
        return True
    if os.environ.get("IDEMPOTENCY_DEV_TEST") == "1" or service.comes_as_wheel():
        return False
    # Playwright leaves an event loop behind: asyncio.run() fails in the tests after it, so they run by themselves.
    return service.find() is None or (service.name == "browser" and not only_browser)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _check_case_ids(items)
    needs = {item: _needs(item) for item in items}
    only_browser = all("browser" in services for services in needs.values())
    out = {s.name for s in SERVICES.values() if _is_left_out(s, config, only_browser)}
    dropped = [item for item in items if needs[item] & out]
    for item in items:
        for name in sorted(needs[item]):
            item.add_marker(pytest.mark.service(name))
            if name in HEAVY:
                item.add_marker(pytest.mark.xdist_group(name))
    _report_cases(items)
    if dropped:
        config.stash[_left_out].update(name for item in dropped for name in sorted(needs[item] & out)[:1])
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]


def _check_case_ids(items: list[pytest.Item]) -> None:
    known = known_ids()
    wrong = {f"{item.nodeid}: {name!r}" for item in items for name in _case_ids(item) if name not in known}
    if wrong:
        raise pytest.UsageError("unknown case ids (see tests/cases.toml):\n  " + "\n  ".join(sorted(wrong)))


def _case_ids(item: pytest.Item) -> list[str]:
    return [name for marker in item.iter_markers("case") for name in marker.args]


def _report_cases(items: list[pytest.Item]) -> None:
    """For ./dev cases: say which ids each test is marked with, keep only marked ones, and bound each in time."""
    report = os.environ.get("IDEMPOTENCY_DEV_CASES")
    if report is None:
        return
    Path(report).touch()
    items[:] = [item for item in items if _case_ids(item)]
    for item in items:
        _append(report, {"node": item.nodeid, "ids": _case_ids(item)})
    if switched_off():
        items[:] = _each_test_first(items)
        for item in items:
            item.add_marker(pytest.mark.timeout(SECONDS_WHEN_OFF), append=False)


def _each_test_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Every test once, then every test with its second parameters, and so on: the run is bounded in time."""
    seen: Counter[str] = Counter()
    rounds: dict[pytest.Item, int] = {}
    for item in items:
        name = item.nodeid.split("[")[0]
        rounds[item] = seen[name]
        seen[name] += 1
    return sorted(items, key=rounds.__getitem__)


def _append(report: str, line: dict[str, object]) -> None:
    with Path(report).open("a", encoding="utf-8") as file:  # one write below a page: workers do not mix lines
        file.write(json.dumps(line) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get("IDEMPOTENCY_DEV_CASES")
    if path and "PYTEST_XDIST_WORKER" not in os.environ:  # the process that sees all reports
        if report.when != "setup":
            _append(path, {"node": report.nodeid, "outcome": report.outcome})
        elif not report.passed:  # one that is set up has shown nothing yet: the time may be over before it is called
            _append(path, {"node": report.nodeid, "outcome": "not set up"})
            sys.stderr.write(f"\n{report.nodeid} could not be set up:\n{report.longreprtext}\n")


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # an xdist worker: only it knows what it deselected
        output["left_out"] = dict(session.config.stash[_left_out])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Every worker collects everything, so that any one's count is the count."""
    counted = getattr(node, "workeroutput", {}).get("left_out")
    if counted:
        node.config.stash[_left_out] = Counter(counted)


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    left_out = config.stash[_left_out]
    for name, count in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: {count} tests that need {SERVICES[name].what}; ./dev test runs them")
    if counts := os.environ.get("IDEMPOTENCY_DEV_COUNTS"):
        stats = {name: len(terminalreporter.stats.get(name, ())) for name in ("passed", "failed", "error", "skipped")}
        Path(counts).write_text(json.dumps({**stats, "left_out": dict(left_out)}), encoding="utf-8")
