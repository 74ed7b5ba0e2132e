"""Duplicates of a client's key at the same moment, and how the answers to them are told apart."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
from flask import request

from flask_idempotent import InProgress, Locked, idempotent
from flask_idempotent.testing import FakeClock
from tests.apps.desk import Desk, done
from tests.helpers import Ledger, assert_refused, assert_repeated, make_app, reason_of, token_of
from tests.web.test_lock import LosesTheLock

# -- overlaps ------------------------------------------------------------------------------------------------------


@pytest.mark.case("FAIL-06")
def test_however_retries_overlap_a_failure_one_succeeds(valkey: Any) -> None:
    desk, chance, successes = Desk({"work": {}}, valkey.url), random.Random(6), Ledger()

    def step() -> Any:
        name = request.get_json()["name"]
        time.sleep(request.get_json()["seconds"])
        if desk.began(name) == 1:
            raise ValueError("the first fails")
        successes.add(name)
        return done()

    def retry(after: float, sent: dict[str, Any], answers: list[Any]) -> None:
        time.sleep(after)
        answers.append(desk.send("work", sent["name"], **sent))

    for number in range(60):
        sent = {"name": f"k-{number}", "seconds": chance.uniform(0, 0.004)}
        desk.steps[sent["name"]] = step
        answers: list[Any] = []
        threads = [threading.Thread(target=retry, args=(chance.uniform(0, 0.008), sent, answers)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        retry(0, sent, answers)
        assert successes.entries.count(sent["name"]) == 1, [answer.text for answer in answers]
        assert [answer.status_code for answer in answers].count(500) == 1
        seen = {(answer.status_code, reason_of(answer)) for answer in answers}
        assert seen <= {(500, None), (201, None), (409, "in_progress")}


@pytest.mark.case("RACE-05")
def test_at_the_moment_when_its_life_is_over_a_key_runs_once_more() -> None:
    clock = FakeClock()
    desk = Desk({"work": {}}, clock=clock, RESULT_TTL=1)
    for number in range(1, 11):
        barrier, answers = threading.Barrier(8), Ledger()

        def come(barrier: Any = barrier, answers: Ledger = answers) -> None:
            barrier.wait(20)
            answers.add(desk.send("work", "k-1").status_code)

        threads = [threading.Thread(target=come) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert set(answers.entries) <= {"201", "409"}
        assert desk.began("x") == number
        clock.advance(1)


@pytest.mark.case("P3", "S13")
@pytest.mark.parametrize("options", [{"lock": "json.account"}, {}], ids=["with a lock", "without"])
def test_a_second_call_after_the_lock_is_free_still_runs_once(any_store: Any, options: dict[str, Any]) -> None:
    desk = Desk({"work": options}, any_store)
    first = desk.send("work", "k-1", account="a")
    assert_repeated(desk.send("work", "k-1", account="a"), first)
    assert desk.began("x") == 1


@pytest.mark.case("RACE-04")
def test_other_content_is_refused_while_the_first_runs_and_afterwards(any_store: Any, policy: str) -> None:
    desk = Desk({"work": {}}, any_store, ON_DUPLICATE=policy)
    with desk.at_work("work", "k-1", amount=1):
        assert_refused(desk.send("work", "k-1", name="other", amount=2), "key_reused", 422)
    assert_refused(desk.send("work", "k-1", name="other", amount=2), "key_reused", 422)
    assert (desk.began("first"), desk.began("other")) == (1, 0)


# -- RACE-02: how the answers are told apart -----------------------------------------------------------------------


def every_refusal(**config: Any) -> dict[str, Any]:
    """Each answer to somebody who may not run now, provoked."""
    store = LosesTheLock()
    views = {"work": {}, "reject": {"on_duplicate": "reject"}, "lock": {"lock": "json.name"}, "soon": {"interval": 60}}
    desk = Desk(views, store, **config)
    found = {}
    with desk.at_work("work", "k-1"):
        found["in_progress"] = desk.send("work", "k-1", name="first")
        found["key_reused"] = desk.send("work", "k-1", name="other")
    with desk.at_work("lock", "k-2"):
        found["locked"] = desk.send("lock", "k-3", name="first")
    for key in ("k-4", "k-5"):
        found["too_soon"] = desk.send("soon", key)
    for _ in range(2):
        found["duplicate"] = desk.send("reject", "k-6")
    store.lost = 2
    found["store_unavailable"] = desk.send("lock", "k-7")
    found["key_missing"] = desk.send("work")
    found["key_invalid"] = desk.send("work", "two words")
    return found


STATUSES = {
    "in_progress": 409,
    "key_reused": 422,
    "locked": 409,
    "too_soon": 429,
    "duplicate": 409,
    "store_unavailable": 503,
    "key_missing": 400,
    "key_invalid": 400,
}


@pytest.mark.case("RACE-02", "S22")
@pytest.mark.parametrize("error_format", ["problem", "envelope"])
def test_every_refusal_has_a_code_of_its_own_and_says_when_to_come_again(error_format: str) -> None:
    found = every_refusal(ERROR_FORMAT=error_format)
    kind = "application/problem+json" if error_format == "problem" else "application/json"
    for reason, status in STATUSES.items():
        assert_refused(found[reason], reason, status)
        assert found[reason].mimetype == kind
    hints = {reason: answer.headers.get("Retry-After") for reason, answer in found.items()}
    assert {reason for reason, hint in hints.items() if hint is not None} == {
        "in_progress",
        "locked",
        "too_soon",
        "store_unavailable",
    }
    assert hints["in_progress"] == "2"
    assert hints["store_unavailable"] == "1"
    assert 295 <= int(hints["locked"] or 0) <= 300
    assert 55 <= int(hints["too_soon"] or 0) <= 60


@pytest.mark.case("RACE-02", "S22")
def test_the_apps_own_handlers_hear_of_each() -> None:
    app = make_app()
    entered, go_on = threading.Event(), threading.Event()

    @app.errorhandler(409)
    def conflict(error: Any) -> Any:
        return {"mine": error.reason}, 409

    @app.errorhandler(Locked)
    def locked(error: Any) -> Any:
        return {"busy": error.retry_after}, 423

    @app.errorhandler(InProgress)
    def running(error: Any) -> Any:
        return {"running": error.state}, 425

    @app.post("/work")
    @idempotent(source=("header", "token"), lock="json.entity")
    def work() -> Any:
        entered.set()
        assert go_on.wait(20)
        return "done"

    def send(key: str) -> Any:
        headers = {"Idempotency-Key": key}
        return app.test_client().post("/work", json={"entity": "a"}, headers=headers)

    token = token_of(app.test_client())
    thread = threading.Thread(target=send, args=("k-1",))
    thread.start()
    assert entered.wait(20)
    said = [send("k-1"), send("k-2")]
    go_on.set()
    thread.join(20)
    unknown = app.test_client().post("/work", json={"entity": "a"}, headers={"Idempotency-Token": "0" * 32})

    assert [(answer.status_code, answer.get_json()) for answer in said] == [
        (425, {"running": "running"}),
        (423, {"busy": 300}),
    ]
    assert (unknown.status_code, unknown.get_json()) == (409, {"mine": "token_unknown"})
    fresh = app.test_client().post("/work", json={"entity": "a"}, headers={"Idempotency-Token": token})
    assert fresh.status_code == 200
