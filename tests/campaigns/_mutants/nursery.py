"""Runs the tests of one mutant after the other, each in a fork of a pytest that has collected them.

Started by :mod:`tests.campaigns._mutants.trial` in the copy, with pytest's arguments. For each line that it reads it
loads what was edited, in a fork, runs the tests there, and writes ``[exit code, the test that failed first or null]``.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import hypothesis
import pytest

TIMED_OUT = -1
CANNOT_BE_LOADED = "it cannot be loaded"
FAILURE, LOG = Path("first-failure"), Path("log")


def load_edits() -> None:
    """Load again what may have been edited; the tests look it up in these modules when they run."""
    from flask_idempotent.core import machine
    from flask_idempotent.stores.redis import store

    importlib.reload(machine)
    for name in ("issue", "claim", "settle", "get"):
        setattr(store, f"_{name.upper()}", store._Script.load(name))


class Nursery:
    """A plugin: where pytest would run the collected tests, it runs them in forks, one for each line it reads.

    :param answers: where the outcomes go.
    :param seconds: how long one fork may take.
    """

    def __init__(self, answers: TextIO, seconds: float) -> None:
        self.answers = answers
        self.seconds = seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> object:
        if session.testsfailed:
            return None  # pytest says what is wrong
        gc.freeze()
        for _ in sys.stdin:
            FAILURE.unlink(missing_ok=True)
            pid = os.fork()
            if not pid:
                os.setpgid(0, 0)
                log_to(LOG)
                try:
                    load_edits()
                except Exception:
                    FAILURE.write_text(CANNOT_BE_LOADED, encoding="utf-8")
                    raise
                return None  # to pytest's own loop
            code = bounded(pid, self.seconds)
            killer = FAILURE.read_text(encoding="utf-8") if FAILURE.exists() else None
            print(json.dumps([code, killer]), file=self.answers, flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not FAILURE.exists():
            FAILURE.write_text(report.nodeid, encoding="utf-8")


def log_to(path: Path) -> None:
    """What is printed goes to the file."""
    sys.stdout.flush()
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


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


def main(seconds: float, *arguments: str) -> Any:
    answers = os.fdopen(os.dup(1), "w")
    log_to(LOG)
    # No examples from earlier mutants, and no search for the smallest failure: one is enough.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", database=None, phases=phases, deadline=None)
    # What is loaded already cannot be rewritten, and need not.
    more = ["-s", "--hypothesis-profile=mutants", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*arguments, *more], plugins=[Nursery(answers, seconds)])
    sys.stdout.flush()
    os._exit(int(code))


if __name__ == "__main__":
    main(float(sys.argv[1]), *sys.argv[2:])
