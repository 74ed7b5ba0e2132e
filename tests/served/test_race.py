"""Fifty at once: one runs. The same code as the campaign, a few rounds of it; and the rules of its judge."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaigns import race
from tests.campaigns.race import Answer
from tests.servers import RedisServer


@pytest.mark.case("RACE-01", "FORM-01", "S4", "S25")
@pytest.mark.slow
def test_of_fifty_requests_over_four_processes_one_runs(valkey: RedisServer, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    chance = random.Random(1)
    with race.Fleet(tmp_path, valkey.url).running() as fleet:
        wrong = [complaint for _ in range(10) for complaint in race.play(fleet, chance, seen, [])]

    assert wrong == []
    assert seen.total() == 500
    assert seen["201"] == 10
    assert not [answer for answer in seen if answer.startswith("5")]


FIRST = Answer(201, None, False, False, b"first", 0.1)
REPLAY = replace(FIRST, replayed=True)
RUNNING = Answer(409, "in_progress", False, True, b"{}", 0.1)
DUPLICATE = replace(RUNNING, reason="duplicate", retry_after=False)
SILENT = Answer(204, None, False, False, b"", 0.1)


def crowd(answer: Answer, first: Answer = FIRST) -> list[Answer]:
    return [first] + [answer] * (race.CLIENTS - 1)


@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        ("replay", REPLAY),
        ("replay", RUNNING),
        ("reject", RUNNING),
        ("reject", DUPLICATE),
        ("ignore", SILENT),
        ("consume", DUPLICATE),
    ],
)
def test_the_judge_accepts_what_is_documented(policy: str, answer: Answer) -> None:
    assert race.complaints(policy, crowd(answer), runs=1) == []


@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        ("replay", DUPLICATE),
        ("replay", replace(REPLAY, body=b"another")),
        ("replay", replace(RUNNING, retry_after=False)),
        ("replay", Answer(500, None, False, False, b"", 0.1)),
        ("replay", Answer(503, "store_unavailable", False, True, b"{}", 0.1)),
        ("reject", REPLAY),
        ("ignore", DUPLICATE),
        ("consume", RUNNING),
    ],
)
def test_the_judge_sees_what_is_not(policy: str, answer: Answer) -> None:
    assert race.complaints(policy, crowd(answer), runs=1)


@pytest.mark.parametrize("runs", [0, 2])
def test_the_judge_counts_runs_and_firsts(runs: int) -> None:
    assert race.complaints("replay", crowd(REPLAY), runs=runs)
    assert race.complaints("replay", crowd(FIRST), runs=1)
    assert race.complaints("replay", crowd(REPLAY, first=REPLAY), runs=1)
    assert race.complaints("replay", crowd(REPLAY)[:-1], runs=1)
