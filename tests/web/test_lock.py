"""``lock=``: one operation on an entity at a time, whatever the keys; and whoever finds it locked may come again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from flask import abort

from flask_idempotent import current_claim
from flask_idempotent.core.errors import StoreUnavailable
from flask_idempotent.core.record import State
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.apps.desk import Desk, done
from tests.helpers import HEADER, assert_refused, assert_repeated, events_logged, token_of
from tests.servers import RedisServer

pytestmark = pytest.mark.case("S13")

LOCK = {"lock": "json.account"}
LOUD = (logging.WARNING, logging.ERROR)


def raises(error: type[BaseException]) -> Any:
    raise error("the view fails")


# -- one at a time -------------------------------------------------------------------------------------------------


def test_of_two_keys_of_one_entity_one_runs_and_the_loser_may_come_again(any_store: Any) -> None:
    desk = Desk({"pay": LOCK}, any_store, LEASE=30)

    with desk.at_work("pay", "k-1", account="a") as first:
        refused = desk.send("pay", "k-2", account="a")
        assert_refused(refused, "locked")
        assert 28 <= int(refused.headers["Retry-After"]) <= 30
        assert desk.send("pay", "k-3", account="b").status_code == 201
        assert_refused(desk.send("pay", "k-1", name="first", account="a"), "in_progress")
    second = desk.send("pay", "k-2", account="a")

    assert (first.answer.status_code, second.status_code) == (201, 201)
    assert_repeated(desk.send("pay", "k-1", name="first", account="a"), first.answer)
    assert_repeated(desk.send("pay", "k-2", account="a"), second)
    assert (desk.began("first"), desk.began("x")) == (1, 2)


def test_who_waits_to_come_again_is_told_how_long_the_lock_is_held() -> None:
    clock = FakeClock()
    desk = Desk({"pay": LOCK}, clock=clock, LEASE=30)
    with desk.at_work("pay", "k-1", account="a"):
        for passed, left in ((0, "30"), (10.5, "20"), (19.4, "1")):
            clock.advance(passed)
            assert desk.send("pay", "k-2", account="a").headers["Retry-After"] == left


def test_views_of_several_scenes_share_a_lock(any_store: Any) -> None:
    desk = Desk({"pay": LOCK, "close": {**LOCK, "scene": "account.close"}, "free": {}}, any_store)
    with desk.at_work("pay", "k-1", account="a"):
        assert_refused(desk.send("close", "k-1", account="a"), "locked")
        assert desk.send("free", "k-1", account="a").status_code == 201
        assert desk.send("close", "k-2", account="b").status_code == 201
    assert desk.send("close", "k-1", account="a").status_code == 201


def test_a_form_is_locked_as_well(any_store: Any) -> None:
    desk = Desk({"pay": {**LOCK, "source": "token"}}, any_store)
    one, two = (token_of(desk.app.test_client()) for _ in range(2))
    with desk.at_work("pay", headers={HEADER: one}, account="a"):
        assert_refused(desk.send("pay", headers={HEADER: two}, account="a"), "locked")
    assert desk.send("pay", headers={HEADER: two}, account="a").status_code == 201


def test_a_lock_goes_without_a_key_where_none_is_required(any_store: Any) -> None:
    desk = Desk({"pay": {**LOCK, "required": False}}, any_store)
    with desk.at_work("pay", account="a"):
        assert_refused(desk.send("pay", account="a"), "locked")
    assert [desk.send("pay", account="a").status_code for _ in range(2)] == [201, 201]


def test_what_is_locked_may_be_computed_from_the_views_arguments(any_store: Any) -> None:
    desk = Desk({"pay": {"lock": lambda place="": place}, "open": {"lock": "place"}}, any_store)
    with desk.at_work("pay/here", "k-1"):
        assert_refused(desk.send("open/here", "k-2"), "locked")
        assert desk.send("open/there", "k-2").status_code == 201
    assert desk.send("open/here", "k-2").status_code == 201


def test_nothing_to_lock_is_refused_and_the_key_stays_usable(any_store: Any) -> None:
    desk = Desk({"pay": LOCK}, any_store)
    for missing in ({}, {"account": None}, {"account": ""}):
        refused = desk.send("pay", "k-1", **missing)
        assert_refused(refused, "key_missing", 400)
        assert "account" in refused.text
    assert desk.send("pay", "k-1", account="a").status_code == 201
    assert len(desk.ledger) == 2


# -- it opens ------------------------------------------------------------------------------------------------------

ENDINGS: dict[str, tuple[Callable[[], Any], int]] = {
    "success": (done, 201),
    "failure": (lambda: ("busy", 503), 503),
    "rejection": (lambda: abort(422), 422),
    "exception": (lambda: raises(ValueError), 500),
    "restored": (lambda: (current_claim.restore(), "again")[1], 200),
    "kept, then fails": (lambda: (current_claim.keep(), raises(ValueError)), 500),
}


@pytest.mark.parametrize("restore", [True, False], ids=["restore on", "restore off"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_lock_is_open_however_the_view_ended(any_store: Any, ending: str, restore: bool) -> None:
    desk = Desk({"pay": LOCK}, any_store, RESTORE_ON_ERROR=restore)
    end, status = ENDINGS[ending]
    desk.steps["ends"] = lambda: (seen.append(desk.send("pay", "k-2", account="a")), end())[1]
    seen: list[Any] = []

    assert desk.send("pay", "k-1", name="ends", account="a").status_code == status
    assert_refused(seen[0], "locked")
    assert desk.send("pay", "k-2", account="a").status_code == 201


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_lock_is_open_after_an_error_that_is_propagated(any_store: Any, error: type[BaseException]) -> None:
    desk = Desk({"pay": LOCK}, any_store, PROPAGATE_EXCEPTIONS=True)
    desk.steps["ends"] = lambda: (seen.append(desk.send("pay", "k-2", account="a")), raises(error))
    seen: list[Any] = []

    with pytest.raises(error):
        desk.send("pay", "k-1", name="ends", account="a")
    assert_refused(seen[0], "locked")
    assert desk.send("pay", "k-2", account="a").status_code == 201


def test_the_lock_is_open_after_a_final_that_breaks(any_store: Any) -> None:
    broken = {**LOCK, "final": lambda outcome: raises(ValueError)}
    desk = Desk({"pay": broken, "close": LOCK}, any_store)
    assert desk.send("pay", "k-1", account="a").status_code == 500
    assert desk.send("close", "k-2", account="a").status_code == 201


def test_the_lock_is_open_after_an_interval_was_refused(any_store: Any) -> None:
    desk = Desk({"pay": {**LOCK, "interval": 60}, "close": LOCK}, any_store)
    assert desk.send("pay", "k-1", account="a").status_code == 201
    assert_refused(desk.send("pay", "k-2", account="a"), "too_soon", 429)
    assert desk.send("close", "k-3", account="a").status_code == 201


@pytest.mark.parametrize("where", ["hook", "decorator", "decorator, afterwards"])
def test_the_lock_is_open_after_something_above_answered(any_store: Any, where: str) -> None:
    shut: list[bool] = []

    def layer(view: Any) -> Any:
        @wraps(view)
        def layered(**kwargs: Any) -> Any:
            value = view(**kwargs) if where != "decorator" or not shut else None
            if shut and where != "hook":
                abort(403)
            return value

        return layered

    desk = Desk({"pay": {**LOCK, "source": "token"}, "close": LOCK}, any_store, layers=[layer])
    desk.app.before_request(lambda: abort(403) if shut and where == "hook" else None)
    headers = {HEADER: token_of(desk.app.test_client())}

    shut.append(True)
    assert desk.send("pay", headers=dict(headers), account="a").status_code == 403
    shut.clear()
    assert desk.send("close", "k-1", account="a").status_code == 201
    if where == "decorator, afterwards":
        assert_refused(desk.send("pay", headers=dict(headers), account="a"), "response_unavailable")
    else:
        first = desk.send("pay", headers=dict(headers), account="a")
        assert_repeated(desk.send("pay", headers=dict(headers), account="a"), first)


def test_the_lock_stays_until_the_decorators_above_are_done(any_store: Any) -> None:
    """They may commit what the view did."""
    seen: list[Any] = []

    def commits(view: Any) -> Any:
        @wraps(view)
        def committed(**kwargs: Any) -> Any:
            value = view(**kwargs)
            if not seen:
                seen.append(None)
                seen[0] = desk.send("pay", "k-2", account="a")
            return value

        return committed

    desk = Desk({"pay": LOCK}, any_store, layers=[commits])
    assert desk.send("pay", "k-1", account="a").status_code == 201
    assert_refused(seen[0], "locked")
    assert desk.send("pay", "k-2", account="a").status_code == 201


# -- a store that is away ------------------------------------------------------------------------------------------


class LosesTheLock(MemoryStore):
    """The replies to so many claims without a fingerprint are lost: those of locks and intervals."""

    lost = 0
    arrives = True
    dead = False

    def claim(self, key: str, **options: Any) -> Any:
        if options["fingerprint"] or not self.lost:
            return super().claim(key, **options)
        self.lost -= 1
        if self.arrives:
            super().claim(key, **options)
        raise StoreUnavailable from ConnectionResetError("cut")

    def settle(self, claim: Any, **options: Any) -> bool:
        if self.dead and options["state"] is State.ISSUED:
            raise StoreUnavailable from ConnectionResetError("cut")
        return super().settle(claim, **options)


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lock_whose_reply_was_lost_does_not_stay(arrives: bool) -> None:
    store = LosesTheLock()
    desk = Desk({"pay": LOCK}, store)
    store.lost, store.arrives = 2, arrives

    assert_refused(desk.send("pay", "k-1", account="a"), "store_unavailable", 503)
    assert desk.send("pay", "k-2", account="a").status_code == 201
    assert desk.send("pay", "k-1", account="a").status_code == 201
    assert len(desk.ledger) == 4


def test_a_lock_whose_reply_was_lost_once_is_asked_for_again() -> None:
    store = LosesTheLock()
    desk = Desk({"pay": LOCK}, store)
    store.lost = 1
    assert [desk.send("pay", f"k-{n}", account="a").status_code for n in range(2)] == [201, 201]
    assert store.lost == 0


@pytest.mark.parametrize("ending", ["success", "exception"])
def test_where_views_run_unguarded_a_lost_lock_does_not_stay_either(ending: str) -> None:
    store = LosesTheLock()
    desk = Desk({"pay": LOCK}, store, STORE_DOWN="pass")
    desk.steps["ends"], status = ENDINGS[ending]
    store.lost = 2

    assert desk.send("pay", "k-1", name="ends", account="a").status_code == status
    assert store.lost == 0
    assert desk.send("pay", "k-2", account="a").status_code == 201


def test_a_lock_that_could_not_be_opened_is_opened_when_the_store_answers(caplog: pytest.LogCaptureFixture) -> None:
    store = LosesTheLock()
    desk = Desk({"pay": LOCK}, store)

    store.dead = True
    assert desk.send("pay", "k-1", account="a").status_code == 201
    assert_refused(desk.send("pay", "k-2", account="a"), "locked")
    store.dead = False
    assert desk.send("pay", "k-3", account="b").status_code == 201
    assert desk.send("pay", "k-2", account="a").status_code == 201
    assert set(events_logged(caplog.records, *LOUD)) == {"settle_failed"}


def test_what_locks_do_all_day_is_not_told(valkey: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "flask_idempotent")
    desk = Desk({"pay": LOCK}, valkey.url)
    with desk.at_work("pay", "k-1", account="a"):
        desk.send("pay", "k-2", account="a")
    told = events_logged(caplog.records, logging.DEBUG, logging.INFO, *LOUD)
    assert told == ["claimed", "claimed", "refused", "restored", "completed"]
