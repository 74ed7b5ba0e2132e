"""Mutation testing of the core with mutmut: every mutant is killed by the core's own tests, or listed with a reason.

It works on a copy, and installs mutmut in a folder of its own at the first run. The order of the modules is fixed and
nothing is random; when its time is up, the rest counts as not tried. IDEMPOTENCY_MUTMUT names modules: ``hold,keys``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.campaigns import _mutants
from tests.campaigns._mutants import Mutant, Outcome, findings
from tests.campaigns._mutants.trial import copied, environment
from tests.live import ROOT

MUTMUT = "mutmut==3.8.1"
FOLDER = ROOT / ".venv" / "mutmut"
LISTED = Path(__file__).with_name("mutmut_survivors.toml")
TESTED = ("guard", "hold", "breaker", "keys", "fingerprint", "heartbeat")
MODULES = (*TESTED, "refusals")
TESTS = [f"tests/core/test_{name}.py" for name in (*TESTED, "key_syntax", "kinds", "owed", "waiting")]
SETTINGS = """
[tool.mutmut]
source_paths = ["flask_idempotent/"]
only_mutate = {files}
pytest_add_cli_args_test_selection = {tests}
also_copy = ["tools", "pyproject.toml"]
"""
SURVIVED = ("survived", "no tests", "skipped")  # in the words of mutmut


def run(minutes: float, seed: int) -> int:
    """The number of survivors without a reason, and of reasons without a survivor."""
    del seed
    started = time.monotonic()
    modules = os.environ.get("IDEMPOTENCY_MUTMUT", ",".join(MODULES)).split(",")
    _install()
    with copied() as folder:
        with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(SETTINGS.format(files=json.dumps(_files(modules)), tests=json.dumps(TESTS)))
        _run_mutmut(folder, started + minutes * 60)
        tried, rest = _outcomes(folder, modules)
    allowed = {name: why for name, why in _mutants.reasons(LISTED).items() if Path(name[0]).stem in modules}
    survivors = [outcome.mutant for outcome in tried if outcome.killer is None]
    wrong = findings(tried, allowed, [*(outcome.mutant for outcome in tried), *rest])
    for mutant in survivors:
        _say(f"with a reason: {mutant}\n  {allowed[mutant.name]}" if mutant.name in allowed else f"SURVIVED: {mutant}")
    for line in wrong:
        _say(f"wrong: {line}")
    with_reason = sum(mutant.name in allowed for mutant in survivors)
    _say(
        f"{len(tried) + len(rest)} mutants, {len(tried)} tried, {len(tried) - len(survivors)} killed, {len(survivors)} "
        f"survived, {with_reason} of them with a reason, {time.monotonic() - started:.0f} s"
    )
    if rest:
        _say(f"the time was up: {len(rest)} mutants were not tried; give it more minutes")
    return len(wrong)


def _install() -> None:
    """What it needs must not change what the tests run with: it is none of the project's dependencies."""
    stamp = FOLDER / "stamp"
    if stamp.exists() and stamp.read_text() == MUTMUT:
        return
    _say(f"installing {MUTMUT}")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(FOLDER), "--upgrade"]
    subprocess.run([*pip, "-c", str(ROOT / "requirements-dev.txt"), MUTMUT], check=True)
    stamp.write_text(MUTMUT)


def _run_mutmut(folder: Path, until: float) -> None:
    """Until it ends or the time is up; what it has found out by then is in its files."""
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1"]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(PYTHONPATH=str(FOLDER)),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        said = ""
        while process.poll() is None and time.monotonic() < until:
            time.sleep(1)
            last = log.read_text(encoding="utf-8", errors="replace").rstrip().replace("\r", "\n").rpartition("\n")[2]
            progress = last[2:]
            if progress != said and int(time.monotonic()) % 10 == 0:
                _say(progress)
                said = progress
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if process.wait() not in (0, -signal.SIGKILL):
        raise SystemExit(f"mutmut ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}")


def _outcomes(folder: Path, modules: list[str]) -> tuple[list[Outcome], list[Mutant]]:
    """What was tried, and the mutants that were not."""
    tried: list[Outcome] = []
    rest: list[Mutant] = []
    for file in _files(modules):
        command = [sys.executable, "-m", "tests.campaigns._mutants.diffs", file]
        env = environment(PYTHONPATH=str(FOLDER))
        shown = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
        seen: Counter[tuple[str, str]] = Counter()
        for status, was, becomes in json.loads(shown.stdout):
            seen[was, becomes] += 1
            mutant = Mutant(file, 0, was, becomes, seen[was, becomes], "")
            if status == "not checked":
                rest.append(mutant)
            else:
                tried.append(Outcome(mutant, None if status in SURVIVED else status, 0.0))
    return tried, rest


def _files(modules: list[str]) -> list[str]:
    return [f"flask_idempotent/core/{name}.py" for name in modules]


def _say(line: str) -> None:
    print(line, flush=True)
