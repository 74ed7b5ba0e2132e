"""What a failure does to a client's key, and how the answers to a duplicate are told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Response, abort, redirect
from werkzeug.exceptions import ServiceUnavailable

from flask_idempotent import current_claim
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.apps.desk import Desk, done
from tests.helpers import REPLAYED, assert_refused, assert_repeated

SUCCESSES: dict[str, Callable[[], Any]] = {
    "200": lambda: "fine",
    "201": done,
    "303": lambda: redirect("/done", 303),
    "aborted redirect": lambda: abort(redirect("/done", 303)),
}


def _raise() -> Any:
    raise ValueError("the view fails")


FAILURES: dict[str, Callable[[], Any]] = {
    "exception": _raise,
    "raised 503": lambda: abort(ServiceUnavailable()),
    "returned (x, 503)": lambda: ("busy", 503),
    "returned Response 500": lambda: Response("broken", 500),
}
REJECTIONS: dict[str, Callable[[], Any]] = {
    "aborted 422": lambda: abort(422),
    "returned (x, 400)": lambda: ({"error": "no"}, 400),
}


class Turns(Desk):
    """``POST /work`` by key: its first call takes ``step``, the later ones succeed."""

    def __init__(self, step: Callable[[], Any], store: Any = None, options: Any = None, **config: Any) -> None:
        super().__init__({"work": options or {}}, store, **config)
        self.steps["x"] = lambda: step() if self.began("x") == 1 else done()

    def pay(self, **more: Any) -> Any:
        return self.send("work", "k-1", **more)


# -- a failure gives the key back ----------------------------------------------------------------------------------


@pytest.mark.case("FAIL-01", "FAIL-02", "S10")
@pytest.mark.parametrize("failure", [*FAILURES.values(), *REJECTIONS.values()], ids=[*FAILURES, *REJECTIONS])
def test_after_a_failure_the_same_key_runs_once_more(any_store: Any, policy: str, failure: Callable[[], Any]) -> None:
    desk = Turns(failure, any_store, ON_DUPLICATE=policy)
    failed, first = desk.pay(), desk.pay()
    assert failed.status_code >= 400
    assert (first.status_code, REPLAYED in first.headers) == (201, False)
    assert_repeated(desk.pay(), first, policy)
    assert desk.began("x") == 2


@pytest.mark.case("FAIL-01")
@pytest.mark.parametrize("settings", [{"DEBUG": True}, {"TESTING": False}, {"PROPAGATE_EXCEPTIONS": True}], ids=str)
def test_debug_testing_and_propagation_make_no_difference(any_store: Any, settings: dict[str, Any]) -> None:
    desk = Turns(_raise, any_store, **settings)
    if "PROPAGATE_EXCEPTIONS" in settings:
        with pytest.raises(ValueError, match="the view fails"):
            desk.pay()
    else:
        assert desk.pay().status_code == 500
    first = desk.pay()
    assert first.status_code == 201
    assert_repeated(desk.pay(), first)
    assert desk.began("x") == 2


@pytest.mark.case("FAIL-01", "S10")
def test_nothing_is_stored_of_a_failure_and_the_key_may_come_back_with_other_content() -> None:
    store = MemoryStore()
    desk = Turns(_raise, store)
    desk.pay()
    assert list(store.scan()) == []
    assert desk.pay(amount=2).status_code == 201
    assert_refused(desk.pay(amount=1), "key_reused", 422)


@pytest.mark.case("FAIL-02", "S10")
@pytest.mark.parametrize("success", SUCCESSES)
def test_what_counts_as_success_is_kept(any_store: Any, success: str) -> None:
    desk = Turns(SUCCESSES[success], any_store)
    first = desk.pay()
    assert_repeated(desk.pay(), first)
    assert desk.began("x") == 1


# -- restore off, final, keep --------------------------------------------------------------------------------------


@pytest.mark.case("S14", "FAIL-02")
@pytest.mark.parametrize("how", ["option", "setting"])
@pytest.mark.parametrize("failure", FAILURES)
def test_with_restore_off_a_failure_stays_failed_for_its_whole_life(failure: str, how: str) -> None:
    clock = FakeClock()
    config: dict[str, Any] = {"RESTORE_ON_ERROR": False} if how == "setting" else {}
    options = {} if config else {"restore_on_error": False}
    desk = Turns(FAILURES[failure], options=options, clock=clock, RESULT_TTL=600, **config)
    assert desk.pay().status_code >= 500
    assert_refused(desk.pay(), "failed")
    clock.advance(599)
    assert_refused(desk.pay(), "failed")
    assert_refused(desk.pay(amount=2), "key_reused", 422)
    assert desk.began("x") == 1
    clock.advance(1)
    assert desk.pay().status_code == 201


@pytest.mark.case("S14")
@pytest.mark.parametrize("rejection", REJECTIONS)
def test_with_restore_off_a_rejection_still_gives_the_key_back(any_store: Any, rejection: str) -> None:
    desk = Turns(REJECTIONS[rejection], any_store, {"restore_on_error": False})
    assert desk.pay().status_code < 500
    first = desk.pay()
    assert first.status_code == 201
    assert_repeated(desk.pay(), first)


@pytest.mark.case("S14", "FAIL-03")
@pytest.mark.parametrize("restore", [True, False], ids=["restore on", "restore off"])
def test_an_abandoned_key_is_taken_over_after_the_lease_or_failed_for_its_whole_life(restore: bool) -> None:
    clock = FakeClock()
    desk = Desk({"work": {"restore_on_error": restore}}, clock=clock, LEASE=10, RESULT_TTL=600)
    with desk.at_work("work", "k-1"):
        clock.advance(9.9)
        assert_refused(desk.send("work", "k-1", name="first"), "in_progress")
        clock.advance(0.1)
        desk.steps.clear()
        if restore:
            second = desk.send("work", "k-1", name="first")
            assert second.status_code == 201
        else:
            for passed in (0, 300, 289.9):
                clock.advance(passed)
                assert_refused(desk.send("work", "k-1", name="first"), "failed")
    assert desk.began("first") == (2 if restore else 1)
    if restore:
        assert_repeated(desk.send("work", "k-1", name="first"), second)


@pytest.mark.case("S7", "FAIL-02")
@pytest.mark.parametrize(
    ("step", "final", "runs"),
    [
        (lambda: ("no", 402), lambda outcome: outcome.status_code in (201, 402), 1),
        (lambda: ("later", 202), lambda outcome: outcome.status_code == 201, 2),
        (lambda: ("busy", 503, {"X-Final": "1"}), lambda outcome: "X-Final" in outcome.headers, 1),
    ],
    ids=["keeps a 402", "does not keep a 202", "by a header"],
)
def test_final_says_what_is_kept(any_store: Any, step: Any, final: Any, runs: int) -> None:
    desk = Turns(step, any_store, {"final": final})
    first, again = desk.pay(), desk.pay()
    assert desk.began("x") == runs
    if runs == 1:
        assert_repeated(again, first)
    else:
        assert (again.status_code, REPLAYED in again.headers) == (201, False)


@pytest.mark.case("FAIL-04")
@pytest.mark.parametrize("restore", [True, False], ids=["restore on", "restore off"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
def test_an_effect_before_a_late_failure_is_repeated_unless_kept(any_store: Any, kept: bool, restore: bool) -> None:
    desk = Turns(lambda: (current_claim.keep() if kept else None, _raise()), any_store, {"restore_on_error": restore})
    assert desk.pay().status_code == 500
    again = desk.pay()
    if kept:
        assert_refused(again, "response_unavailable")
    elif restore:
        assert again.status_code == 201
    else:
        assert_refused(again, "failed")
    assert desk.began("x") == (2 if restore and not kept else 1)


@pytest.mark.case("FAIL-04")
def test_after_keep_a_success_is_replayed(any_store: Any) -> None:
    desk = Turns(lambda: (current_claim.keep(), done())[1], any_store)
    first = desk.pay()
    assert_repeated(desk.pay(), first)


@pytest.mark.case("FAIL-07")
def test_a_body_that_breaks_off_is_never_replayed_as_if_it_were_whole(any_store: Any) -> None:
    def chunks() -> Any:
        yield "one "
        yield "two "
        raise ValueError("the disk is gone")

    desk = Turns(lambda: Response(chunks(), 201), any_store)
    with pytest.raises(ValueError, match="the disk"):
        _ = desk.pay().text
    assert_refused(desk.pay(), "response_unavailable")
    assert desk.began("x") == 1
