"""Edits each condition and write of the Lua files and of core/machine.py, one at a time: a test must fail for each.

It works on a copy. The order is random (``--seed``); it stops when its time is up, half an hour is enough for all. What
may survive is in ``equivalent_mutants.toml``, with the reason.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

from tests.campaigns import _mutants
from tests.campaigns._mutants import Mutant, Outcome, findings
from tests.campaigns._mutants import lua as lua_file
from tests.campaigns._mutants import python as python_file
from tests.campaigns._mutants.trial import Trial
from tests.live import ROOT

LUA = "flask_idempotent/stores/redis"
MACHINE = "flask_idempotent/core/machine.py"
SIDE_BY_SIDE = 2  # copies in which mutants are tried at once
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")

# The smallest sets of tests that could see it, the quick ones first, and none that leaves it to chance.
ONE_SERVER = "not (valkey81 or redis62 or redis82 or fakeredis or Fake or Cluster or Sentinel or Memory)"
LUA_TESTS = (
    "tests/stores/test_contract.py",
    "tests/stores/test_lockstep.py::test_to_the_microsecond",
    "tests/stores/test_redis_short_way.py",
    "tests/stores/test_redis_records.py",
    "tests/stores/test_redis_damage.py::TestDamage::test_what_cannot_be",
    "tests/stores/test_redis.py",
    "tests/stores/test_redis_damage.py",
    "-k",
    ONE_SERVER,
)
MACHINE_TESTS = (
    "tests/core/test_machine.py",
    "tests/stores/test_contract.py",
    "tests/stores/test_lockstep.py::test_to_the_microsecond",
    "-k",
    "not (Redis or Cluster or Sentinel)",
)
GROUPS = {"*.lua": LUA_TESTS, "machine.py": MACHINE_TESTS}


def all_mutants() -> list[Mutant]:
    """Every mutant of every file, in the order of the files."""
    found: list[Mutant] = []
    for path in [*sorted((ROOT / LUA).glob("*.lua")), ROOT / MACHINE]:
        text = path.read_text(encoding="utf-8")
        edits = lua_file.edits(text) if path.suffix == ".lua" else python_file.edits(text)
        found += _mutants.mutants(str(path.relative_to(ROOT)), text, edits)
    return found


def tried(
    chosen: Sequence[Mutant], seed: int, say: Callable[[str], None], until: float, *, original: bool = True
) -> Iterator[Outcome]:
    """Try mutants as long as the time is not up (``time.monotonic()``); each group has its share of it.

    :param original: whether to begin with the tests of what is not edited.
    """
    left = len(chosen)
    for pattern, tests in GROUPS.items():
        group = [mutant for mutant in chosen if Path(mutant.file).match(pattern)]
        if not group:
            continue
        now = time.monotonic()
        end = now + (until - now) * len(group) / left
        left -= len(group)
        with ExitStack() as open_trials:
            trials = [open_trials.enter_context(Trial(tests, seed)) for _ in range(SIDE_BY_SIDE)]
            if original:
                say(f"{pattern}: the tests pass on the original in {trials[0].of_the_original():.1f} s")
            for outcome in _side_by_side(trials, group, end):
                say(f"{outcome.seconds:5.1f} s  {outcome.mutant}  |  {outcome.killer or 'SURVIVED'}")
                yield outcome


def _side_by_side(trials: Sequence[Trial], group: Sequence[Mutant], end: float) -> Iterator[Outcome]:
    """Try mutants in several copies at once; yield the outcomes in the mutants' order until the time is up."""
    free: SimpleQueue[Trial] = SimpleQueue()
    for trial in trials:
        free.put(trial)

    def outcome_of(mutant: Mutant) -> Outcome | None:
        if time.monotonic() > end:
            return None
        trial = free.get()
        try:
            return trial.of(mutant)
        finally:
            free.put(trial)

    with ThreadPoolExecutor(len(trials)) as pool:
        for outcome in pool.map(outcome_of, group):
            if outcome is None:
                return
            yield outcome


def run(minutes: float, seed: int) -> int:
    """The number of survivors without a reason, and of reasons without a survivor."""
    started = time.monotonic()
    everything = all_mutants()
    allowed = _mutants.reasons(EQUIVALENT)
    chosen = random.Random(seed).sample(everything, len(everything))
    outcomes = list(tried(chosen, seed, _say, started + minutes * 60))
    wrong = findings(outcomes, allowed, everything)
    survivors = [outcome.mutant for outcome in outcomes if outcome.killer is None]
    for mutant in survivors:
        _say(f"equivalent: {mutant}\n  {allowed[mutant.name]}" if mutant.name in allowed else f"SURVIVED: {mutant}")
    for line in wrong:
        _say(f"wrong: {line}")
    with_reason = sum(mutant.name in allowed for mutant in survivors)
    _say(
        f"{len(everything)} mutants, {len(outcomes)} tried, {len(outcomes) - len(survivors)} killed, "
        f"{len(survivors)} survived, {with_reason} of them with a reason, {time.monotonic() - started:.0f} s"
    )
    if len(outcomes) < len(everything):
        _say(f"the time was up: {len(everything) - len(outcomes)} mutants were not tried; give it more minutes")
    return len(wrong)


def _say(line: str) -> None:
    print(line, flush=True)
