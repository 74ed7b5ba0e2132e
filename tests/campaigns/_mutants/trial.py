"""A copy of the project in which mutants are tried: the work tree is never edited."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from tests.campaigns._mutants import Mutant, Outcome
from tests.live import ROOT

COPIED = ("flask_idempotent", "tests", "tools", "pyproject.toml")
LONGEST = 120.0  # seconds for the tests of one mutant; one that hangs is noticed, too
_PASSED, _FAILED, _TIMED_OUT = 0, 1, -1


@contextmanager
def copied() -> Iterator[Path]:
    """A folder with a copy of what the tests need, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            else:
                shutil.copy(source, folder / name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would make pytest a part of another run."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "IDEMPOTENCY_DEV"))} | more


class Trial:
    """The copy, and the process that runs tests in it. A context manager.

    :param arguments: pytest's, the same for every mutant.
    :param seed: of the random tests.
    """

    def __init__(self, arguments: Sequence[str], seed: int) -> None:
        self.arguments = ["-q", "-x", "--no-header", "--hypothesis-seed", str(seed), *arguments]
        self._moment = int(time.time())
        self._end = ExitStack()

    def __enter__(self) -> Trial:
        self.folder = self._end.enter_context(copied())
        command = [sys.executable, "-m", "tests.campaigns._mutants.nursery", str(LONGEST), *self.arguments]
        self._nursery = subprocess.Popen(
            command, cwd=self.folder, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._nursery.kill()
        self._nursery.communicate()
        self._end.close()

    def of_the_original(self) -> float:
        """The tests pass on what is not edited, else nothing that follows would mean anything. Return their seconds."""
        started = time.monotonic()
        code, killer = self._run_tests()
        if code != _PASSED:
            raise SystemExit(f"the tests fail without any edit ({killer}):\n{self.log()[-3000:]}")
        return time.monotonic() - started

    def of(self, mutant: Mutant) -> Outcome:
        """Edit, run the tests, put the original back."""
        path = self.folder / mutant.file
        original = path.read_text(encoding="utf-8")
        started = time.monotonic()
        try:
            self._write(path, mutant.text)
            code, killer = self._run_tests()
        finally:
            self._write(path, original)
        if code not in (_PASSED, _FAILED, _TIMED_OUT) and killer is None:
            raise SystemExit(f"pytest ended with {code} on {mutant}:\n{self.log()[-3000:]}")
        if code == _TIMED_OUT:
            killer = killer or f"no end within {LONGEST:g} s"
        return Outcome(mutant, killer, time.monotonic() - started)

    def _run_tests(self) -> tuple[int, str | None]:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        try:
            self._nursery.stdin.write("run\n")
            self._nursery.stdin.flush()
            code, killer = json.loads(self._nursery.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            raise SystemExit(f"pytest could not collect the tests:\n{self.log()[-3000:]}") from None
        return code, killer

    def _write(self, path: Path, text: str) -> None:
        """Each version has a second of its own: Python tells by it whether its compiled file is stale."""
        path.write_text(text, encoding="utf-8")
        self._moment += 1
        os.utime(path, (self._moment, self._moment))

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")
