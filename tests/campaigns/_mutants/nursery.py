"""Runs the tests of one mutant after the other, each in a fork of a process that has loaded the libraries.

Started by :mod:`tests.campaigns._mutants.trial` in the copy. It reads lines with pytest's arguments in JSON, and
writes a line for each: ``[exit code, the test that failed first or null]``. It loads nothing of the project before the
fork.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from importlib.metadata import entry_points
from pathlib import Path

import _pytest.pytester
import fakeredis
import flask
import hypothesis
import hypothesis.strategies
import pytest
import redis

TIMED_OUT, CRASHED = -1, 70
_LIBRARIES = (_pytest.pytester, fakeredis, flask, hypothesis.strategies, redis)  # loaded here, for the forks


class FirstFailure:
    """Writes down which test failed first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.path.exists():
            self.path.write_text(report.nodeid, encoding="utf-8")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.path.exists():
            self.path.write_text(report.nodeid or "the start", encoding="utf-8")


def run_tests(arguments: list[str], failure: Path, log: Path) -> int:
    """In the fork: its output goes to the log."""
    os.setpgid(0, 0)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # No examples from earlier mutants, and no search for the smallest failure: one is enough.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", database=None, phases=phases, deadline=None)
    # Plugins that are loaded already cannot be rewritten, and need not.
    more = ["--hypothesis-profile=mutants", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*arguments, *more], plugins=[FirstFailure(failure)]))


def bounded(pid: int, seconds: float) -> int:
    """The exit code of a child; TIMED_OUT if it had to be killed, with all that it started."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return TIMED_OUT


def main(seconds: float) -> None:
    failure, log = Path("first-failure"), Path("log")
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    gc.freeze()
    for line in sys.stdin:
        failure.unlink(missing_ok=True)
        pid = os.fork()
        if not pid:
            code = CRASHED
            try:
                code = run_tests(json.loads(line), failure, log)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = bounded(pid, seconds)
        killer = failure.read_text(encoding="utf-8") if failure.exists() else None
        print(json.dumps([code, killer]), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
