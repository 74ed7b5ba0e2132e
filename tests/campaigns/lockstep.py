"""Random scripts on the machine, the memory store and five Redis-like servers: every answer and record is the same.

At least 2,000 of up to 40 steps, each on every server, with its time moved and by its Lua as shipped (see
tests/stores/lockstep). Every kind of step must have been reached at least 50 times on each.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import hypothesis

from tests.stores.lockstep.player import Player
from tests.stores.lockstep.reached import KINDS
from tests.stores.lockstep.scripts import Step, scripts
from tests.stores.lockstep.servers import NAMES, moved

SCRIPTS = 2_000
LEAST = 50
PROGRESS = 30.0  # seconds between two lines


def run(minutes: float, seed: int) -> int:
    """Play 2,000 scripts, and as many again while there is time; return how many differences were found (the first ends
    it) and how many kinds were reached too seldom."""
    started = time.monotonic()
    with contextlib.ExitStack() as servers, tempfile.TemporaryDirectory() as folder:
        players = [Player(name, servers.enter_context(moved(name, Path(folder)))) for name in NAMES]
        for turn in itertools.count():
            difference = first_difference(players, SCRIPTS, seed + turn)
            if difference or time.monotonic() - started >= minutes * 60:
                break
        print(table(players))
        print(f"seed {seed}, {time.monotonic() - started:.0f} seconds")
    if difference:
        print(difference)
        return 1
    return sum(min(player.reached[kind] for player in players) < LEAST for kind in KINDS)


def first_difference(players: Sequence[Player], count: int, seed: int) -> str:
    """Play so many random scripts; return the shortest found on which the three differ, and how; empty if none does."""
    said = time.monotonic()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(script=scripts)
    def play(script: list[Step]) -> None:
        nonlocal said
        for player in players:
            player.play(script)
        if time.monotonic() - said >= PROGRESS:
            said = time.monotonic()
            print(f"  … {players[0].scripts:,} scripts", flush=True)

    try:
        play()
    except AssertionError as error:
        return str(error)
    return ""


def table(players: Sequence[Player]) -> str:
    """How often each kind was reached on each server."""
    width = max(map(len, KINDS))
    lines = [f"{'':{width}}" + "".join(f"{player.name:>10}" for player in players)]
    for kind in KINDS:
        counts = [player.reached[kind] for player in players]
        few = f"  fewer than {LEAST}" if min(counts) < LEAST else ""
        lines.append(f"{kind:{width}}" + "".join(f"{count:>10,}" for count in counts) + few)
    for what, each in (("scripts", [p.scripts for p in players]), ("steps", [p.steps for p in players])):
        lines += [f"{what:{width}}" + "".join(f"{count:>10,}" for count in each)]
    return "\n".join(lines)
