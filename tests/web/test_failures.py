"""What a failure does to the token: good again, unless the view's effect happened or the app wants people to look."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from flask import Flask, Response, abort, redirect, request
from werkzeug.exceptions import BadRequest, HTTPException, ServiceUnavailable

from flask_idempotent import StoreUnavailable, current_claim, idempotent
from flask_idempotent.core.record import Claim, State
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.helpers import (
    FIELD,
    HEADER,
    Ledger,
    assert_never_logged,
    assert_refused,
    assert_repeated,
    events_logged,
    make_app,
    token_of,
)
from tests.servers import RedisServer

Work = Callable[[], Any]


def working(steps: list[Work], store: Any = None, *, options: Any = None, **config: Any) -> tuple[Any, Ledger]:
    """A client of an app whose view does one step after another, the last for ever; and a ledger of its calls."""
    app, ledger = make_app(store, **config), Ledger()

    @app.post("/work")
    @idempotent(**(options or {}))
    def work() -> Any:
        return steps[min(ledger.add(), len(steps)) - 1]()

    return app.test_client(), ledger


def send(client: Any, token: str, amount: int = 1, **options: Any) -> Any:
    return client.post("/work", data={FIELD: token, "amount": amount}, **options)


def done() -> Any:
    return {"done": True}, 201


def raises(error: Callable[[], BaseException]) -> Work:
    def work() -> Any:
        raise error()

    return work


class AppError(Exception):
    pass


FAILURES: dict[str, Work] = {
    "exception": raises(lambda: AppError("boom")),
    "KeyError": raises(lambda: KeyError("x")),
    "aborted 500": lambda: abort(500),
    "raised ServiceUnavailable": raises(ServiceUnavailable),
    "aborted response 502": lambda: abort(Response("bad gateway", 502)),
    "returned (x, 503)": lambda: ("busy", 503),
    "returned Response 500": lambda: Response("broken", 500),
    "returned status line": lambda: ("broken", "500 Oh No"),
}
REJECTIONS: dict[str, Work] = {
    "aborted 422": lambda: abort(422),
    "raised BadRequest": raises(BadRequest),
    "aborted response 400": lambda: abort(Response("bad", 400)),
    "raised HTTPException(response)": raises(lambda: HTTPException(response=Response("bad", 404))),
    "returned (x, 422)": lambda: ("<form>again</form>", 422),
    "returned (x, 409, headers)": lambda: ({"error": "taken"}, 409, {"X-A": "1"}),
    "returned Response 403": lambda: Response("no", 403),
}
SUCCESSES: dict[str, Work] = {
    "200": lambda: "fine",
    "201": done,
    "302": lambda: redirect("/done"),
    "aborted redirect": lambda: abort(redirect("/done", 303)),
    "raised response 200": raises(lambda: HTTPException(response=Response("fine", 200))),
    "399": lambda: ("fine", 399),
    "304": lambda: ("", 304),
}


# -- a failure gives the token back --------------------------------------------------------------------------------


@pytest.mark.case("FAIL-01", "FAIL-02", "S5")
@pytest.mark.parametrize("failure", [*FAILURES.values(), *REJECTIONS.values()], ids=[*FAILURES, *REJECTIONS])
def test_after_a_failure_the_same_token_is_good_once_more(any_store: Any, policy: str, failure: Work) -> None:
    client, ledger = working([failure, done], any_store, ON_DUPLICATE=policy)
    token = token_of(client)

    failed = send(client, token)
    first = send(client, token)

    assert failed.status_code >= 400
    assert (first.status_code, first.get_json()) == (201, {"done": True})
    assert_repeated(send(client, token), first, policy)
    assert len(ledger) == 2


@pytest.mark.case("FAIL-01", "S5")
@pytest.mark.parametrize("settings", [{"DEBUG": True}, {"TESTING": False}, {"DEBUG": True, "TESTING": False}], ids=str)
def test_debug_and_testing_make_no_difference(any_store: Any, settings: dict[str, Any]) -> None:
    client, ledger = working([raises(lambda: AppError("boom")), done], any_store, **settings)
    token = token_of(client)

    assert send(client, token).status_code == 500
    first = send(client, token)

    assert first.status_code == 201
    assert_repeated(send(client, token), first)
    assert len(ledger) == 2


@pytest.mark.case("FAIL-01", "S5")
@pytest.mark.parametrize("error", [AppError, KeyboardInterrupt, SystemExit, GeneratorExit, OSError])
@pytest.mark.parametrize("where", ["hook's binding", "wrapper's binding"])
def test_an_error_that_is_propagated_gives_the_token_back_and_is_not_hidden(
    any_store: Any, where: str, error: type[BaseException]
) -> None:
    options = {"binding": "session"} if where == "wrapper's binding" else {}
    settings = {"BINDING": "session"} if options else {}
    client, ledger = working([raises(error), done], any_store, PROPAGATE_EXCEPTIONS=True, **settings)
    token = token_of(client)

    with pytest.raises(error):
        send(client, token)
    first = send(client, token)

    assert first.status_code == 201
    assert_repeated(send(client, token), first)
    assert len(ledger) == 2


@pytest.mark.case("FAIL-01", "S5")
@pytest.mark.parametrize("handler", [AppError, Exception, 500])
def test_an_apps_own_error_handler_answers_and_the_token_is_good_again(any_store: Any, handler: Any) -> None:
    client, ledger = working([raises(lambda: AppError("boom")), done], any_store)
    client.application.register_error_handler(handler, lambda error: ("the app's own page", 200))
    token = token_of(client)

    assert send(client, token).text == "the app's own page"
    first = send(client, token)

    assert first.status_code == 201
    assert_repeated(send(client, token), first)
    assert len(ledger) == 2


@pytest.mark.case("FAIL-02", "S5")
def test_a_failed_token_may_come_back_with_other_content(any_store: Any) -> None:
    client, ledger = working([lambda: ("amount?", 422), done], any_store)
    token = token_of(client)

    assert send(client, token, amount=1).status_code == 422
    assert send(client, token, amount=2).status_code == 201  # the corrected form
    assert_refused(send(client, token, amount=1), "token_reused", 422)
    assert len(ledger) == 2


@pytest.mark.case("FAIL-01", "S5")
def test_failing_again_and_again_never_lengthens_the_tokens_life() -> None:
    clock = FakeClock()
    client, ledger = working([raises(lambda: AppError("boom"))], clock=clock, TOKEN_TTL=100)
    token = token_of(client)

    for _ in range(9):
        clock.advance(11)
        assert send(client, token).status_code == 500
    clock.advance(2)

    assert_refused(send(client, token), "token_unknown")
    assert len(ledger) == 9


@pytest.mark.case("FAIL-02", "S6")
@pytest.mark.parametrize("success", SUCCESSES.values(), ids=SUCCESSES)
def test_what_counts_as_success_uses_the_token_up(any_store: Any, policy: str, success: Work) -> None:
    client, ledger = working([success], any_store, ON_DUPLICATE=policy)
    token = token_of(client)

    first = send(client, token)

    assert_repeated(send(client, token), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("FAIL-01", "S5")
def test_only_the_digest_of_the_token_is_in_the_log_of_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "flask_idempotent")
    client, _ = working([raises(lambda: AppError("boom")), done], options={"scene": "order", "description": "an order"})
    token = token_of(client)

    send(client, token)
    send(client, token)
    send(client, token)

    lines = [r.getMessage() for r in caplog.records if r.name.startswith("flask_idempotent")]
    assert [line.split()[0] for line in lines] == ["issued", "claimed", "restored", "claimed", "completed", "duplicate"]
    assert all("scene=order" in line and "an order" in line for line in lines[1:])
    assert_never_logged([token], caplog.records)


# -- restore off ---------------------------------------------------------------------------------------------------


@pytest.mark.case("FAIL-02", "S7", "S14")
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("how", ["option", "setting"])
def test_with_restore_off_a_failure_stays_failed(any_store: Any, policy: str, how: str, failure: Work) -> None:
    settings: dict[str, Any] = {"RESTORE_ON_ERROR": False} if how == "setting" else {}
    options = {"restore_on_error": False} if how == "option" else {}
    client, ledger = working([failure, done], any_store, options=options, ON_DUPLICATE=policy, **settings)
    token = token_of(client)

    assert send(client, token).status_code >= 500
    for _ in range(2):
        assert_refused(send(client, token), "failed")

    assert len(ledger) == 1


@pytest.mark.case("S14", "S5")
@pytest.mark.parametrize("rejection", REJECTIONS.values(), ids=REJECTIONS)
def test_with_restore_off_a_rejection_still_gives_the_token_back(any_store: Any, rejection: Work) -> None:
    client, ledger = working([rejection, done], any_store, options={"restore_on_error": False})
    token = token_of(client)

    assert send(client, token).status_code < 500
    first = send(client, token)

    assert first.status_code == 201
    assert_repeated(send(client, token), first)
    assert len(ledger) == 2


@pytest.mark.case("S14", "S7")
def test_an_option_goes_before_the_setting(any_store: Any) -> None:
    client, ledger = working(
        [FAILURES["exception"], done], any_store, options={"restore_on_error": True}, RESTORE_ON_ERROR=False
    )
    token = token_of(client)

    send(client, token)

    assert send(client, token).status_code == 201
    assert send(client, token).status_code == 201
    assert len(ledger) == 2


@pytest.mark.case("S14", "FAIL-03")
def test_with_restore_off_an_abandoned_claim_is_never_taken_over() -> None:
    clock = FakeClock()
    worker = FrozenWorker()
    options = {"restore_on_error": False}
    client, ledger = working([worker.step, done], clock=clock, options=options, LEASE=10, TOKEN_TTL=1000)
    token = token_of(client)

    with worker.at_work_on(token, client):
        assert_refused(send(client, token), "in_progress")
        clock.advance(10)
        assert_refused(send(client, token), "failed")
        clock.advance(980)
        assert_refused(send(client, token), "failed")

    assert len(ledger) == 1


class FrozenWorker:
    """A worker that stands still inside the view, and thaws when the test is over."""

    def __init__(self, before: Work = lambda: None) -> None:
        self._before = before
        self._entered, self._thawed = threading.Event(), threading.Event()

    def step(self) -> Any:
        self._before()
        self._entered.set()
        assert self._thawed.wait(30)
        return done()

    @contextmanager
    def at_work_on(self, token: str, client: Any) -> Iterator[None]:
        thread = threading.Thread(target=send, args=(client.application.test_client(), token))
        thread.start()
        try:
            assert self._entered.wait(10)
            yield
        finally:
            self._thawed.set()
            thread.join()


# -- final= --------------------------------------------------------------------------------------------------------


@pytest.mark.case("S7", "FAIL-02")
@pytest.mark.parametrize("status", [200, 302, 404, 409, 422, 500, 503])
@pytest.mark.parametrize("restore", [True, False])
def test_final_true_keeps_any_answer(any_store: Any, status: int, restore: bool) -> None:
    options = {"final": lambda response: True, "restore_on_error": restore}
    client, ledger = working([lambda: ("said", status, {"Location": "/"}), done], any_store, options=options)
    token = token_of(client)

    first = send(client, token)

    assert first.status_code == status
    assert_repeated(send(client, token), first)
    assert len(ledger) == 1


@pytest.mark.case("S7")
@pytest.mark.parametrize("status", [200, 302, 422])
def test_final_false_gives_the_token_back(any_store: Any, status: int) -> None:
    options = {"final": lambda response: response.headers.get("X-Final") == "yes"}
    client, ledger = working(
        [lambda: ("no", status), lambda: ("yes", 202, {"X-Final": "yes"})], any_store, options=options
    )
    token = token_of(client)

    assert send(client, token).status_code == status
    first = send(client, token)

    assert first.status_code == 202
    assert_repeated(send(client, token), first)
    assert len(ledger) == 2


@pytest.mark.case("S7", "S14")
def test_final_false_with_restore_off_is_failed(any_store: Any) -> None:
    options = {"final": lambda response: False, "restore_on_error": False}
    client, ledger = working([done], any_store, options=options)
    token = token_of(client)

    assert send(client, token).status_code == 201

    assert_refused(send(client, token), "failed")
    assert len(ledger) == 1


@pytest.mark.case("S7", "S5")
@pytest.mark.parametrize("shape", ["str", "tuple", "Response", "abort", "dict"])
def test_final_is_given_status_and_headers_of_every_shape(shape: str) -> None:
    seen: list[tuple[int, str | None]] = []

    def final(response: Any) -> bool:
        seen.append((response.status_code, response.headers.get("X-A")))
        return True

    headers = {"X-A": "1"}
    shapes: dict[str, tuple[Work, int, str | None]] = {
        "str": (lambda: "text", 200, None),
        "dict": (lambda: {"a": 1}, 200, None),
        "tuple": (lambda: ("text", 207, headers), 207, "1"),
        "Response": (lambda: Response("text", 208, headers), 208, "1"),
        "abort": (lambda: abort(Response("text", 410, headers)), 410, "1"),
    }
    work, status, header = shapes[shape]
    client, ledger = working([work], options={"final": final})
    token = token_of(client)

    first = send(client, token)

    assert seen == [(status, header)]
    assert_repeated(send(client, token), first)
    assert len(ledger) == 1


@pytest.mark.case("S7", "S5")
@pytest.mark.parametrize("propagate", [False, True])
def test_a_final_that_breaks_is_the_apps_error_and_nothing_is_run_again(any_store: Any, propagate: bool) -> None:
    def final(response: Any) -> bool:
        return bool(response.json["ok"])  # it is given status_code and headers only

    client, ledger = working([done], any_store, options={"final": final}, PROPAGATE_EXCEPTIONS=propagate)
    token = token_of(client)

    if propagate:
        with pytest.raises(AttributeError):
            send(client, token)
    else:
        assert send(client, token).status_code == 500
    assert_refused(send(client, token), "response_unavailable")

    assert len(ledger) == 1


@pytest.mark.case("S5")
def test_an_exception_is_a_failure_whatever_final_says(any_store: Any) -> None:
    client, ledger = working([FAILURES["exception"], done], any_store, options={"final": lambda response: True})
    token = token_of(client)

    assert send(client, token).status_code == 500
    assert send(client, token).status_code == 201
    assert send(client, token).status_code == 201
    assert len(ledger) == 2


# -- current_claim -------------------------------------------------------------------------------------------------


def restoring_then(work: Work) -> Work:
    def step() -> Any:
        current_claim.restore()
        return work()

    return step


def keeping_then(work: Work) -> Work:
    def step() -> Any:
        current_claim.keep()
        return work()

    return step


@pytest.mark.case("S5", "FORM-08")
@pytest.mark.parametrize("status", [200, 302])
@pytest.mark.parametrize("restore", [True, False])
def test_restore_makes_the_token_of_a_form_that_was_shown_again_good(
    any_store: Any, policy: str, status: int, restore: bool
) -> None:
    shown_again = restoring_then(lambda: ("<form>again</form>", status))
    options = {"restore_on_error": restore}
    client, ledger = working([shown_again, shown_again, done], any_store, options=options, ON_DUPLICATE=policy)
    token = token_of(client)

    assert send(client, token, amount=-1).status_code == status
    assert send(client, token, amount=-2).status_code == status
    first = send(client, token, amount=3)

    assert first.status_code == 201
    assert_repeated(send(client, token, amount=3), first, policy)
    assert len(ledger) == 3


@pytest.mark.case("S5")
def test_restore_counts_only_once_the_view_is_over() -> None:
    store = MemoryStore()
    app, ledger = make_app(store), Ledger()

    @app.post("/work")
    @idempotent
    def work() -> Any:
        current_claim.restore()
        if ledger.add() == 1:
            inner = app.test_client().post("/work", data=request.form.to_dict())
            return f"{inner.status_code}"
        return "second"

    client = app.test_client()
    token = token_of(client)

    assert send(client, token).text == "409"  # still at work
    assert send(client, token).text == "second"
    assert len(ledger) == 2


@pytest.mark.case("FAIL-04", "S5")
@pytest.mark.parametrize("failure", [*FAILURES.values(), *REJECTIONS.values()], ids=[*FAILURES, *REJECTIONS])
@pytest.mark.parametrize("restore", [True, False])
def test_after_keep_a_late_failure_does_not_repeat_the_effect(policy: str, restore: bool, failure: Work) -> None:
    options = {"restore_on_error": restore}
    client, ledger = working([keeping_then(failure), done], options=options, ON_DUPLICATE=policy)
    token = token_of(client)

    assert send(client, token).status_code >= 400
    for _ in range(2):
        assert_refused(send(client, token), "response_unavailable" if policy == "replay" else "duplicate")

    assert len(ledger) == 1


@pytest.mark.case("FAIL-04", "S5")
def test_keep_counts_in_a_real_store(valkey: RedisServer) -> None:
    client, ledger = working([keeping_then(FAILURES["exception"]), done], valkey.url)
    token = token_of(client)

    assert send(client, token).status_code == 500
    assert_refused(send(client, token), "response_unavailable")

    assert len(ledger) == 1


@pytest.mark.case("FAIL-04")
def test_without_keep_a_late_failure_does_repeat_the_effect(any_store: Any) -> None:
    client, ledger = working([FAILURES["exception"], done], any_store)
    token = token_of(client)

    assert [send(client, token).status_code for _ in range(3)] == [500, 201, 201]
    assert len(ledger) == 2


@pytest.mark.case("FAIL-04")
def test_after_keep_a_view_that_succeeds_has_its_answer_replayed(any_store: Any, policy: str) -> None:
    client, ledger = working([keeping_then(done)], any_store, ON_DUPLICATE=policy)
    token = token_of(client)

    first = send(client, token)

    assert first.status_code == 201
    assert_repeated(send(client, token), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("FAIL-04")
def test_after_keep_a_duplicate_is_told_that_it_was_done_while_the_view_still_runs(any_store: Any, policy: str) -> None:
    app, ledger = make_app(any_store, ON_DUPLICATE=policy), Ledger()
    inner: list[Any] = []

    @app.post("/work")
    @idempotent
    def work() -> Any:
        ledger.add()
        current_claim.keep()
        inner.append(send(app.test_client(), request.form[FIELD]))
        return done()

    client = app.test_client()
    first = send(client, token := token_of(client))

    assert first.status_code == 201
    assert_refused(inner[0], "response_unavailable" if policy == "replay" else "duplicate")
    assert_repeated(send(client, token), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("FAIL-04")
def test_keep_survives_a_crash() -> None:
    clock, worker = FakeClock(), FrozenWorker(before=current_claim.keep)
    client, ledger = working([worker.step, done], clock=clock, LEASE=10, TOKEN_TTL=1000)
    token = token_of(client)

    with worker.at_work_on(token, client):
        clock.advance(500)
        assert_refused(send(client, token), "response_unavailable")

    assert len(ledger) == 1


@pytest.mark.case("FAIL-04", "S7")
def test_the_claim_does_nothing_where_nothing_is_guarded() -> None:
    app, ledger = make_app(), Ledger()
    seen: list[tuple[bool, int]] = []

    def touch() -> str:
        seen.append((bool(current_claim), current_claim.fence))
        current_claim.restore()
        current_claim.keep()
        return "touched"

    @app.post("/bare")
    def bare() -> str:
        return touch()

    @app.post("/work")
    @idempotent
    def work() -> str:
        ledger.add()
        return touch()

    client = app.test_client()
    touch()
    assert client.post("/bare").text == "touched"
    send(client, token_of(client))

    assert seen[:2] == [(False, 0), (False, 0)]
    assert seen[2][0]
    assert seen[2][1] > 0
    assert not current_claim


# -- the store fails while the view runs ---------------------------------------------------------------------------


class Dying(MemoryStore):
    """Refuses every command while it is down."""

    down = False

    def settle(self, claim: Claim, *, state: State, hold: float, ttl: float, result: bytes | None = None) -> bool:
        if self.down:
            raise StoreUnavailable("down")
        return super().settle(claim, state=state, hold=hold, ttl=ttl, result=result)


@pytest.mark.case("REDIS-04", "S23")
@pytest.mark.parametrize("restore", [True, False])
def test_when_settling_fails_after_the_view_succeeded_the_client_gets_the_views_answer(
    caplog: pytest.LogCaptureFixture, restore: bool
) -> None:
    clock = FakeClock()
    store = Dying(clock=clock)

    def dies() -> Any:
        store.down = True
        return done()

    client, ledger = working([dies], store, options={"restore_on_error": restore}, LEASE=10)
    token = token_of(client)

    first = send(client, token)
    store.down = False

    assert (first.status_code, first.get_json()) == (201, {"done": True})
    assert events_logged(caplog.records, logging.ERROR) == ["settle_failed"]
    assert_never_logged([token], caplog.records)
    assert_refused(send(client, token), "in_progress")  # nothing was restored
    clock.advance(3600 - 1)  # long after its lease: the store has been told meanwhile that it was done
    assert_refused(send(client, token), "response_unavailable")
    assert len(ledger) == 1


@pytest.mark.case("REDIS-04")
def test_when_settling_fails_for_a_moment_it_is_sent_again(caplog: pytest.LogCaptureFixture, policy: str) -> None:
    class Stumbling(MemoryStore):
        refusals = 2

        def settle(self, claim: Claim, *, state: State, hold: float, ttl: float, result: bytes | None = None) -> bool:
            if self.refusals:
                self.refusals -= 1
                raise StoreUnavailable("a moment")
            return super().settle(claim, state=state, hold=hold, ttl=ttl, result=result)

    client, ledger = working([done], Stumbling(), ON_DUPLICATE=policy)
    token = token_of(client)

    first = send(client, token)

    assert_repeated(send(client, token), first, policy)
    assert len(ledger) == 1
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.case("REDIS-04", "S5")
@pytest.mark.parametrize("failure", ["exception", "returned (x, 503)"])
def test_when_restoring_fails_the_views_own_error_is_not_hidden(caplog: pytest.LogCaptureFixture, failure: str) -> None:
    store = Dying()

    def dies() -> Any:
        store.down = True
        return FAILURES[failure]()

    client, ledger = working([dies, done], store, PROPAGATE_EXCEPTIONS=failure == "exception")
    token = token_of(client)

    if failure == "exception":
        with pytest.raises(AppError, match="boom"):
            send(client, token)
    else:
        assert send(client, token).text == "busy"

    assert events_logged(caplog.records, logging.ERROR) == ["settle_failed"]
    store.down = False
    assert_refused(send(client, token), "in_progress")
    first = send(client, token)  # the store has been told meanwhile that nothing happened
    assert first.status_code == 201
    assert_repeated(send(client, token), first)
    assert len(ledger) == 2


@pytest.mark.case("REDIS-04")
def test_when_keep_fails_the_view_goes_on_and_its_success_is_recorded(caplog: pytest.LogCaptureFixture) -> None:
    store = Dying()

    def dies_for_a_while() -> Any:
        store.down = True
        current_claim.keep()
        store.down = False
        return done()

    client, ledger = working([dies_for_a_while], store)
    token = token_of(client)

    first = send(client, token)

    assert first.status_code == 201
    assert_repeated(send(client, token), first)
    assert len(ledger) == 1
    assert events_logged(caplog.records, logging.ERROR) == ["settle_failed"]


# -- the late owner ------------------------------------------------------------------------------------------------


class LateOwner:
    """A view that lets its lease pass; the same token comes again and takes over; then the first ends in some way.

    :param first: whether the second one has ended before the late one does.
    """

    def __init__(
        self, ending: str, store: Any, let_pass: Callable[[float], Any], *, first: bool = False, **config: Any
    ) -> None:
        app = make_app(store, LEASE=10, TOKEN_TTL=1000, **config)
        self.client, self.ledger = app.test_client(), Ledger()
        self._entered, self._go_on = threading.Event(), threading.Event()
        self._second = threading.Thread(target=self._take_over)

        def work() -> Any:
            number = self.ledger.add()
            if number > 1:
                self._entered.set()
                assert self._go_on.wait(30)
                return {"owner": number}, 201
            let_pass(10)
            self._second.start()
            assert self._entered.wait(10)
            if first:
                self.let_the_second_end()
            return self._end(ending)

        app.add_url_rule("/work", "work", idempotent(work), methods=["POST"])
        self.token = token_of(self.client)

    def _take_over(self) -> None:
        self.second = self.send(self.client.application.test_client())

    def let_the_second_end(self) -> Any:
        self._go_on.set()
        self._second.join()
        return self.second

    def send(self, client: Any = None) -> Any:
        return send(client or self.client, self.token)

    @staticmethod
    def _end(ending: str) -> Any:
        if ending == "raises":
            raise AppError("late")
        if ending == "keeps":
            current_claim.keep()
        if ending == "restores":
            current_claim.restore()
        return {"owner": 1}, 503 if ending == "fails" else 200


LATE = {"succeeds": 200, "raises": 500, "fails": 503, "keeps": 200, "restores": 200}


@pytest.mark.case("FAIL-03", "S4")
@pytest.mark.parametrize("ending", LATE)
@pytest.mark.parametrize("first", [False, True], ids=["second at work", "second done"])
def test_a_late_owner_whose_lease_was_taken_over_can_do_nothing(
    caplog: pytest.LogCaptureFixture, policy: str, first: bool, ending: str
) -> None:
    clock = FakeClock()
    late = LateOwner(ending, MemoryStore(clock=clock), clock.advance, first=first, ON_DUPLICATE=policy)

    answer = late.send()

    assert answer.status_code == LATE[ending]  # its own, unhidden
    if not first:
        assert_refused(late.send(), "in_progress")
    second = late.let_the_second_end()
    assert (second.status_code, second.get_json()) == (201, {"owner": 2})
    assert_repeated(late.send(), second, policy)
    assert len(late.ledger) == 2
    assert events_logged(caplog.records, logging.WARNING) == ["taken_over"]
    assert events_logged(caplog.records, logging.ERROR) == ["claim_lost"]
    assert_never_logged([late.token], caplog.records)


@pytest.mark.case("FAIL-03", "S4")
def test_a_late_owner_can_do_nothing_on_a_real_server_either(clock_valkey: RedisServer) -> None:
    for ending, status in LATE.items():
        late = LateOwner(ending, clock_valkey.url, clock_valkey.move_clock)

        assert late.send().status_code == status
        assert_refused(late.send(), "in_progress")
        second = late.let_the_second_end()
        assert_repeated(late.send(), second)
        assert len(late.ledger) == 2


@pytest.mark.case("FAIL-03")
def test_until_somebody_takes_over_a_late_owner_may_still_settle() -> None:
    clock = FakeClock()

    def slow() -> Any:
        clock.advance(10_000)
        return done()

    client, ledger = working([slow], clock=clock, LEASE=10, TOKEN_TTL=100)
    token = token_of(client)

    first = send(client, token)

    assert_repeated(send(client, token), first)
    assert len(ledger) == 1


@pytest.mark.case("FAIL-03", "S23")
def test_a_claim_holds_to_the_end_of_its_lease_and_not_longer(caplog: pytest.LogCaptureFixture, policy: str) -> None:
    clock, worker = FakeClock(), FrozenWorker()
    client, ledger = working([worker.step, done], clock=clock, LEASE=10, TOKEN_TTL=1000, ON_DUPLICATE=policy)
    token = token_of(client)

    with worker.at_work_on(token, client):
        clock.advance(9.999)
        refused = send(client, token)
        assert_refused(refused, "in_progress")
        assert refused.headers["Retry-After"] == "1"
        clock.advance(0.001)
        first = send(client, token)

        assert first.status_code == 201
        assert_repeated(send(client, token), first, policy)
        assert len(ledger) == 2
        assert events_logged(caplog.records, logging.WARNING) == ["taken_over"]
        assert_never_logged([token], caplog.records)


@pytest.mark.case("FAIL-03", "FORM-06")
def test_a_claim_whose_worker_died_is_not_taken_over_by_other_content() -> None:
    clock, worker = FakeClock(), FrozenWorker()
    client, ledger = working([worker.step, done], clock=clock, LEASE=10, TOKEN_TTL=1000)
    token = token_of(client)

    with worker.at_work_on(token, client):
        clock.advance(11)
        assert_refused(send(client, token, amount=2), "token_reused", 422)
        assert len(ledger) == 1
        assert send(client, token, amount=1).status_code == 201


# -- layers around the view ----------------------------------------------------------------------------------------


@pytest.mark.case("S5", "REPLAY-03")
@pytest.mark.parametrize("restore", [True, False])
def test_a_view_that_returns_what_is_no_answer_has_succeeded(any_store: Any, policy: str, restore: bool) -> None:
    options = {"restore_on_error": restore}
    client, ledger = working([lambda: None], any_store, options=options, ON_DUPLICATE=policy)
    token = token_of(client)

    assert send(client, token).status_code == 500  # Flask's own: the view forgot its return
    assert_refused(send(client, token), "response_unavailable" if policy == "replay" else "duplicate")

    assert len(ledger) == 1


def gated_app(answer: str, store: Any = None, **config: Any) -> tuple[Flask, Ledger]:
    """An app whose view has a gate above it, which answers by itself unless the request is let in."""
    app, ledger = make_app(store, **config), Ledger()

    def gate(view: Any) -> Any:
        def outer() -> Any:
            if request.headers.get("X-Let-In"):
                return view()
            if answer == "raises":
                raise AppError("gate")
            return abort(401) if answer == "aborts" else ("who are you?", 200)

        outer.__wrapped__ = view  # type: ignore[attr-defined]
        return outer

    @app.post("/work")
    @gate
    @idempotent
    def work() -> Any:
        ledger.add()
        return done()

    return app, ledger


def let_in(client: Any, token: str) -> Any:
    return client.post("/work", headers={HEADER: token, "X-Let-In": "yes"})


@pytest.mark.case("S5", "WIRE-10")
@pytest.mark.parametrize("answer", ["returns", "aborts", "raises"])
def test_a_decorator_above_that_answers_by_itself_leaves_the_token_good(
    any_store: Any, policy: str, answer: str
) -> None:
    app, ledger = gated_app(answer, any_store, ON_DUPLICATE=policy)
    client = app.test_client()
    token = token_of(client)

    assert client.post("/work", headers={HEADER: token}).status_code != 201
    first = let_in(client, token)

    assert first.status_code == 201
    assert_repeated(let_in(client, token), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("S5", "WIRE-10", "FAIL-01")
def test_a_decorator_above_that_raises_leaves_the_token_good_though_no_answer_is_made() -> None:
    app, ledger = gated_app("raises", PROPAGATE_EXCEPTIONS=True)
    client = app.test_client()
    token = token_of(client)

    with pytest.raises(AppError):
        client.post("/work", headers={HEADER: token})
    first = let_in(client, token)

    assert first.status_code == 201
    assert_repeated(let_in(client, token), first)
    assert len(ledger) == 1


@pytest.mark.case("S5", "WIRE-10")
@pytest.mark.parametrize("answer", ["returns", "aborts", "raises"])
def test_the_token_is_good_again_once_the_answer_is_made_and_before_the_apps_hooks(answer: str) -> None:
    app, ledger = gated_app(answer)
    inside: list[Any] = []

    @app.after_request
    def look(response: Response) -> Response:
        if HEADER in request.headers and not inside:
            inside.append(None)
            inside[:] = [let_in(app.test_client(), request.headers[HEADER])]
        return response

    client = app.test_client()
    token = token_of(client)
    client.post("/work", headers={HEADER: token})

    assert inside[0].status_code == 201
    assert_repeated(let_in(client, token), inside[0])
    assert len(ledger) == 1


@pytest.mark.case("WIRE-09", "S5")
@pytest.mark.parametrize(
    "more",
    [(object(),), (201, "no headers"), ("neither", object())],
    ids=["object", "status and text", "text and object"],
)
def test_a_value_that_only_the_decorator_above_understands_is_a_success(more: tuple[Any, ...]) -> None:
    app, ledger = make_app(), Ledger()

    def serialised(view: Any) -> Any:
        @functools.wraps(view)
        def above() -> Any:
            return {"made": view()[0]}

        return above

    @app.post("/work")
    @serialised
    @idempotent
    def work() -> Any:
        ledger.add("run")
        return ("order", *more)

    client = app.test_client()
    token = token_of(client)
    first = client.post("/work", data={FIELD: token})
    assert first.get_json() == {"made": "order"}
    assert_repeated(client.post("/work", data={FIELD: token}), first)
    assert len(ledger) == 1
