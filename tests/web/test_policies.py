"""How a duplicate is answered, and what else a view may say about its own protection."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask, abort, jsonify, redirect, render_template_string, request

from flask_idempotent import Duplicate, Idempotency, InProgress, ResponseUnavailable, State, current_claim, idempotent
from flask_idempotent.testing import FakeClock
from tests.helpers import (
    FIELD,
    REPLAYED,
    Ledger,
    assert_never_logged,
    assert_refused,
    assert_repeated,
    body_of,
    make_app,
    reason_of,
    token_of,
    tokens_of,
)
from tests.servers import RedisServer

Policy = str | Callable[..., Any]


class Shop:
    """An app with one guarded view that makes an order; the view can be made to wait or to fail."""

    def __init__(self, store: Any = None, *, options: Any = None, **config: Any) -> None:
        self.app = make_app(store, **config)
        self.ledger = Ledger()
        self.fails = False
        self.waits = False
        self._entered, self._go_on = threading.Event(), threading.Event()

        @self.app.post("/order")
        @idempotent(**(options or {}))
        def order() -> Any:
            self.ledger.add(request.form.get("item", ""))
            if self.waits:
                self._entered.set()
                assert self._go_on.wait(30)
            if self.fails:
                raise ValueError("no stock")
            return {"order": len(self.ledger)}, 201

        self.client = self.app.test_client()

    def token(self) -> str:
        return token_of(self.client)

    def order(self, token: str, item: str = "tea", **options: Any) -> Any:
        return self.app.test_client().post("/order", data={FIELD: token, "item": item}, **options)

    @contextmanager
    def order_at_work(self, token: str) -> Iterator[None]:
        """While the block runs, the view is at work on ``token``."""
        self.waits = True
        thread = threading.Thread(target=self.order, args=(token,))
        thread.start()
        assert self._entered.wait(10)
        self.waits = False
        try:
            yield
        finally:
            self._go_on.set()
            thread.join()


# -- the three by name ---------------------------------------------------------------------------------------------


@pytest.mark.case("S6", "S7")
def test_the_default_is_to_replay() -> None:
    shop = Shop()
    token = shop.token()

    first = shop.order(token)

    assert_repeated(shop.order(token), first, "replay")
    assert len(shop.ledger) == 1


@pytest.mark.case("S6")
@pytest.mark.parametrize("how", ["option", "setting"])
def test_reject_refuses_what_is_done(any_store: Any, how: str) -> None:
    shop = shop_with("reject", how, any_store)
    token = shop.token()

    assert shop.order(token).status_code == 201
    for _ in range(3):
        refused = shop.order(token)
        assert_refused(refused, "duplicate")
        assert "Retry-After" not in refused.headers

    assert len(shop.ledger) == 1


@pytest.mark.case("S6")
@pytest.mark.parametrize("how", ["option", "setting"])
def test_ignore_answers_a_silent_success_without_a_body(any_store: Any, how: str) -> None:
    shop = shop_with("ignore", how, any_store)
    token = shop.token()

    assert shop.order(token).status_code == 201
    silent = shop.order(token)

    assert (silent.status_code, silent.data) == (204, b"")
    assert len(shop.ledger) == 1


@pytest.mark.case("S6", "S22")
def test_ignore_in_the_envelope_format_is_the_articles_success(any_store: Any) -> None:
    shop = Shop(any_store, ON_DUPLICATE="ignore", ERROR_FORMAT="envelope")
    token = shop.token()

    shop.order(token)
    silent = shop.order(token)

    assert (silent.status_code, silent.get_json()) == (200, {"code": 200, "message": "success", "data": None})
    assert len(shop.ledger) == 1


def shop_with(policy: Policy, how: str, store: Any = None, **config: Any) -> Shop:
    if how == "option":
        return Shop(store, options={"on_duplicate": policy}, ON_DUPLICATE="replay", **config)
    return Shop(store, ON_DUPLICATE=policy, **config)


@pytest.mark.case("S6", "FORM-02")
def test_while_the_first_is_at_work_replay_and_reject_say_so(any_store: Any, policy: str) -> None:
    shop = Shop(any_store, ON_DUPLICATE=policy)
    token = shop.token()

    with shop.order_at_work(token):
        refused = shop.order(token)
        assert_refused(refused, "in_progress")
        assert refused.headers["Retry-After"] == "2"

    assert len(shop.ledger) == 1
    assert_repeated(shop.order(token), json_answer({"order": 1}, 201), policy)


def json_answer(value: Any, status: int) -> Any:
    with Flask("tests").test_request_context():
        response = jsonify(value)
        response.status_code = status
        return response


@pytest.mark.case("S6")
@pytest.mark.parametrize(
    ("form", "status", "body"),
    [("problem", 204, None), ("envelope", 200, {"code": 200, "message": "success", "data": None})],
)
def test_while_the_first_is_at_work_ignore_is_silent(form: str, status: int, body: Any) -> None:
    shop = Shop(ON_DUPLICATE="ignore", ERROR_FORMAT=form)
    token = shop.token()

    with shop.order_at_work(token):
        silent = shop.order(token)

    assert (silent.status_code, silent.get_json(silent=True)) == (status, body)
    assert len(shop.ledger) == 1


@pytest.mark.case("S6", "FORM-02")
@pytest.mark.parametrize(
    ("lease", "passed", "hint"),
    [(300, 0, "2"), (300, 298.5, "2"), (10, 8.5, "2"), (10, 9.2, "1"), (1, 0, "1"), (0.5, 0, "1")],
)
def test_retry_after_is_what_the_lease_has_left_but_no_more_than_two_seconds(
    lease: float, passed: float, hint: str
) -> None:
    clock = FakeClock()
    shop = Shop(LEASE=lease, clock=clock)
    token = shop.token()

    with shop.order_at_work(token):
        clock.advance(passed)
        refused = shop.order(token)
        assert_refused(refused, "in_progress")
        assert refused.headers["Retry-After"] == hint


@pytest.mark.case("S6", "FORM-06")
@pytest.mark.parametrize(
    "policy", ["replay", "reject", "ignore", lambda error: "mine"], ids=["replay", "reject", "ignore", "own"]
)
@pytest.mark.parametrize("when", ["at work", "done"])
def test_other_content_is_refused_under_every_policy(when: str, policy: Policy) -> None:
    shop = Shop(ON_DUPLICATE=policy)
    token = shop.token()

    if when == "at work":
        with shop.order_at_work(token):
            refused = shop.order(token, item="coffee")
    else:
        shop.order(token)
        refused = shop.order(token, item="coffee")

    assert_refused(refused, "token_reused", 422)
    assert shop.ledger.entries == ["tea"]


@pytest.mark.case("S6", "S14")
@pytest.mark.parametrize(
    "policy", ["replay", "reject", "ignore", lambda error: "mine"], ids=["replay", "reject", "ignore", "own"]
)
def test_failed_is_refused_under_every_policy(policy: Policy) -> None:
    shop = Shop(ON_DUPLICATE=policy, RESTORE_ON_ERROR=False)
    token = shop.token()
    shop.fails = True
    shop.order(token)
    shop.fails = False

    assert_refused(shop.order(token), "failed")

    assert len(shop.ledger) == 1


@pytest.mark.case("S6")
@pytest.mark.parametrize("status", [200, 208, 400, 409, 410, 429])
def test_the_status_of_a_refused_duplicate_can_be_set(status: int) -> None:
    shop = Shop(ON_DUPLICATE="reject", DUPLICATE_STATUS=status)
    token = shop.token()

    shop.order(token)
    assert_refused(shop.order(token), "duplicate", status)
    waiting = Shop(ON_DUPLICATE="reject", DUPLICATE_STATUS=status)
    token = waiting.token()
    with waiting.order_at_work(token):
        assert_refused(waiting.order(token), "in_progress")

    assert len(shop.ledger) == len(waiting.ledger) == 1


# -- a callable ----------------------------------------------------------------------------------------------------


@pytest.mark.case("FORM-03", "S6", "S24")
@pytest.mark.parametrize("how", ["option", "setting"])
def test_a_callable_is_told_what_stands_in_the_way(any_store: Any, how: str) -> None:
    seen: list[tuple[type, str, State, bool]] = []

    def policy(error: Any) -> Any:
        kinds = [kind for kind in (InProgress, Duplicate, ResponseUnavailable) if isinstance(error, kind)]
        seen.append((*kinds, error.reason, error.state, 0 < error.seconds_left <= 300))
        return redirect("/done")

    shop = shop_with(policy, how, any_store)
    token = shop.token()

    with shop.order_at_work(token):
        during = shop.order(token)
    after = shop.order(token)

    for answer in (during, after):
        assert (answer.status_code, answer.headers["Location"]) == (302, "/done")
        assert REPLAYED not in answer.headers
    assert seen == [
        (InProgress, "in_progress", State.RUNNING, True),
        (Duplicate, "duplicate", State.DONE, False),
    ]
    assert len(shop.ledger) == 1


@pytest.mark.case("FORM-03", "S6")
def test_a_callable_is_told_when_no_answer_was_kept() -> None:
    seen: list[Any] = []
    app, ledger = make_app(), Ledger()

    def policy(error: Any) -> Any:
        seen.append((type(error).__mro__, error.reason, error.state, error.seconds_left))
        with pytest.raises(ResponseUnavailable):
            error.replay()
        return "no answer", 200

    @app.post("/work")
    @idempotent(on_duplicate=policy)
    def work() -> Any:
        ledger.add()
        return iter(["streamed"])

    client = app.test_client()
    token = token_of(client)
    client.post("/work", data={FIELD: token})

    assert client.post("/work", data={FIELD: token}).text == "no answer"
    ((kinds, *rest),) = seen
    assert ResponseUnavailable in kinds
    assert rest == ["response_unavailable", State.DONE, 0]
    assert len(ledger) == 1


@pytest.mark.case("FORM-03", "S6", "S24")
def test_a_callable_may_replay() -> None:
    def policy(error: Any) -> Any:
        response = error.replay()
        response.headers["X-Shown-By"] = "the app"
        return response

    shop = Shop(ON_DUPLICATE=policy)
    token = shop.token()

    first = shop.order(token)
    again = shop.order(token)

    assert_repeated(again, first)
    assert again.headers["X-Shown-By"] == "the app"
    assert len(shop.ledger) == 1


@pytest.mark.case("FORM-03", "S6")
@pytest.mark.parametrize("when", ["at work", "nothing kept"])
def test_a_callable_that_cannot_replay_and_does_not_mind_gets_a_clean_refusal(when: str) -> None:
    shop = Shop(ON_DUPLICATE=lambda error: error.replay(), MAX_RESULT=0)
    token = shop.token()

    if when == "at work":
        with shop.order_at_work(token):
            refused = shop.order(token)
    else:
        shop.order(token)
        refused = shop.order(token)

    assert_refused(refused, "response_unavailable")
    assert len(shop.ledger) == 1


async def async_policy(error: Any) -> Any:
    return {"async": error.reason}, 208


def raising_policy(error: Any) -> Any:
    raise error


ANSWERS: dict[str, tuple[Callable[[Any], Any], int, bytes]] = {
    "text": (lambda error: "text", 200, b"text"),
    "tuple": (lambda error: ("text", 418, {"X-A": "1"}), 418, b"text"),
    "dict": (lambda error: {"reason": error.reason}, 200, b'{"reason":"duplicate"}\n'),
    "abort": (lambda error: abort(451), 451, b"451"),
    "raise": (raising_policy, 409, b'"code": "duplicate"'),
    "its response": (lambda error: error.get_response(), 409, b'"code": "duplicate"'),
    "itself": (lambda error: error, 409, b'"code": "duplicate"'),
    "async": (async_policy, 208, b'{"async":"duplicate"}'),
    "page": (lambda error: render_template_string("<p>{{ e.reason }}</p>", e=error), 200, b"<p>duplicate</p>"),
}


@pytest.mark.case("FORM-03", "FORM-11", "S6", "S24")
@pytest.mark.parametrize(("policy", "status", "body"), ANSWERS.values(), ids=ANSWERS)
def test_a_callable_may_return_whatever_a_view_may(policy: Any, status: int, body: bytes) -> None:
    shop = Shop(ON_DUPLICATE=policy)
    token = shop.token()

    shop.order(token)
    answer = shop.order(token)

    assert answer.status_code == status
    assert body in body_of(answer)
    assert len(shop.ledger) == 1


@pytest.mark.case("FORM-03")
def test_a_callable_that_breaks_is_the_apps_error_and_runs_nothing() -> None:
    def policy(error: Any) -> Any:
        raise ZeroDivisionError

    shop = Shop(ON_DUPLICATE=policy)
    token = shop.token()

    shop.order(token)

    assert shop.order(token).status_code == 500
    assert len(shop.ledger) == 1


@pytest.mark.case("FORM-03", "S6")
@pytest.mark.parametrize("handler", [Duplicate, 409, Exception])
def test_the_apps_error_handler_gets_a_rejected_duplicate(handler: Any) -> None:
    shop = Shop(ON_DUPLICATE="reject")
    shop.app.register_error_handler(handler, lambda error: (f"handled {error.reason}", 200))
    token = shop.token()

    shop.order(token)

    assert shop.order(token).text == "handled duplicate"
    assert len(shop.ledger) == 1


# -- message=, description=, scene= --------------------------------------------------------------------------------


@pytest.mark.case("S6", "S7")
@pytest.mark.parametrize("how", ["option", "setting", "both"])
@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_the_configured_message_is_what_a_person_reads_of_a_duplicate(how: str, accept: str) -> None:
    settings: dict[str, Any] = {} if how == "option" else {"MESSAGE": "The app's <words>"}
    options = {} if how == "setting" else {"message": "The view's <words>"}
    words = "The app's <words>" if how == "setting" else "The view's <words>"
    headers = {"Accept": accept}
    shop = Shop(ON_DUPLICATE="reject", options=options, **settings)
    token = shop.token()

    with shop.order_at_work(token):
        during = shop.order(token, headers=headers)
    after = shop.order(token, headers=headers)

    for refused in (during, after):
        assert refused.status_code == 409
        if accept == "text/html":
            shown = words.replace("<", "&lt;").replace(">", "&gt;")
            assert shown in refused.text.replace("&#39;", "'")
            assert words not in refused.text
        else:
            assert refused.get_json()["detail"] == words
    assert len(shop.ledger) == 1


@pytest.mark.case("S6", "S22")
def test_the_message_is_the_envelopes_too_and_that_of_an_answer_that_was_not_kept() -> None:
    shop = Shop(MESSAGE="Once is enough", ERROR_FORMAT="envelope", MAX_RESULT=0)
    token = shop.token()

    shop.order(token)
    refused = shop.order(token)

    assert refused.get_json() == {
        "code": 429,
        "message": "Once is enough",
        "data": None,
        "reason": "response_unavailable",
    }


@pytest.mark.case("S6")
def test_the_message_is_not_said_of_other_refusals() -> None:
    shop = Shop(MESSAGE="Once is enough")
    token = shop.token()
    shop.order(token)

    for refused in (shop.order(token, item="coffee"), shop.order("x"), shop.order(""), shop.order("0" * 32)):
        assert reason_of(refused) in ("token_reused", "token_invalid", "token_missing", "token_unknown")
        assert refused.get_json()["detail"] not in ("", "Once is enough")


@pytest.mark.case("S7", "S23")
def test_description_and_scene_are_in_every_log_line_of_the_view(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "flask_idempotent")
    shop = Shop(ON_DUPLICATE="reject", options={"description": "an order of the shop", "scene": "order.create"})
    token = shop.token()

    shop.order(token)
    shop.order(token)
    shop.order(token, item="coffee")

    lines = [r.getMessage() for r in caplog.records][1:]
    assert [line.split()[0] for line in lines] == ["claimed", "completed", "duplicate", "refused"]
    for line in lines:
        assert "order.create" in line
        assert "an order of the shop" in line
    assert [r.levelno for r in caplog.records][-2:] == [logging.INFO, logging.INFO]


@pytest.mark.case("S23", "BODY-08")
@pytest.mark.parametrize(
    "spell", [str, str.upper, lambda token: token.replace("-", "")], ids=["issued", "upper", "bare"]
)
def test_whatever_happens_no_log_line_of_any_logger_holds_a_token(
    valkey: RedisServer, caplog: pytest.LogCaptureFixture, spell: Callable[[str], str]
) -> None:
    caplog.set_level(logging.DEBUG)
    shop = Shop(valkey.url)
    strict = Shop(valkey.url, ON_DUPLICATE="reject", RESTORE_ON_ERROR=False, PREFIX="strict")
    tokens = []

    def token(of: Shop = shop) -> str:
        tokens.append(of.token())
        return spell(tokens[-1])

    done, failed, broken, foreign = token(), token(strict), token(), token()
    shop.order(done)
    shop.order(done)
    shop.order(done, item="coffee")
    strict.fails = True
    strict.order(failed)
    strict.order(failed)
    shop.order(foreign, environ_base={"REMOTE_ADDR": "192.0.2.1"})
    for key in valkey.control.scan_iter():
        valkey.control.set(key, b"broken")
    shop.order(broken)
    shop.order(f"{broken}{broken}")
    with shop.order_at_work(token()):
        shop.order(spell(tokens[-1]))
    valkey.control.flushall()
    shop.order(foreign)

    happened = {record.getMessage().split()[0] for record in caplog.records}
    assert happened >= {"issued", "claimed", "completed", "duplicate", "refused", "kept_failed", "record_invalid"}
    assert_never_logged(tokens, caplog.records)


@pytest.mark.case("S9", "P5", "S2")
def test_a_token_of_a_scene_fits_only_that_scene_and_stays_good(any_store: Any) -> None:
    app, ledger = make_app(any_store), Ledger()

    def view(name: str, **options: Any) -> None:
        @idempotent(**options)
        def work() -> str:
            ledger.add(name)
            return name

        app.add_url_rule(f"/{name}", name, work, methods=["POST"])

    view("create", scene="order.create")
    view("also-create", scene="order.create")
    view("cancel", scene="order.cancel")
    view("plain")

    @app.get("/forms")
    def forms() -> str:
        return render_template_string(
            "{{ idempotency_token('order.create') }}{{ idempotency_token('plain') }}{{ idempotency_token() }}"
        )

    client = app.test_client()

    def post(name: str, token: str) -> Any:
        return client.post(f"/{name}", data={FIELD: token})

    for_create, for_plain, for_any = tokens_of(client.get("/forms").text)

    for name in ("cancel", "plain"):
        assert_refused(post(name, for_create), "token_foreign", 403)
    for name in ("create", "cancel"):
        assert_refused(post(name, for_plain), "token_foreign", 403)
    assert len(ledger) == 0
    assert post("also-create", for_create).text == "also-create"
    assert post("plain", for_plain).text == "plain"
    assert post("cancel", for_any).text == "cancel"
    assert_refused(post("create", for_create), "token_reused", 422)  # another path is other content
    assert ledger.entries == ["also-create", "plain", "cancel"]


# -- consume -------------------------------------------------------------------------------------------------------


@pytest.mark.case("S7", "S4", "S6")
@pytest.mark.parametrize("policy", [None, "reject", "ignore"])
def test_a_consumed_token_is_done_with_the_claim_itself(any_store: Any, policy: str | None) -> None:
    options = {"consume": True, **({"on_duplicate": policy} if policy else {})}
    shop = Shop(any_store, options=options)
    token = shop.token()

    with shop.order_at_work(token):
        during = shop.order(token)
    after = shop.order(token)

    for answer in (during, after):
        if policy == "ignore":
            assert answer.status_code == 204
        else:
            assert_refused(answer, "duplicate")
            assert "Retry-After" not in answer.headers
    assert len(shop.ledger) == 1


@pytest.mark.case("S5", "S7")
def test_a_consumed_token_is_good_again_when_the_view_fails(any_store: Any) -> None:
    shop = Shop(any_store, options={"consume": True})
    token = shop.token()
    shop.fails = True

    assert shop.order(token).status_code == 500
    shop.fails = False

    assert shop.order(token, item="other content").status_code == 201
    assert_refused(shop.order(token, item="other content"), "duplicate")
    assert len(shop.ledger) == 2


@pytest.mark.case("S14", "S7")
def test_a_consumed_token_with_restore_off_stays_failed(any_store: Any) -> None:
    shop = Shop(any_store, options={"consume": True, "restore_on_error": False})
    token = shop.token()
    shop.fails = True

    shop.order(token)

    assert_refused(shop.order(token), "failed")
    assert len(shop.ledger) == 1


@pytest.mark.case("FAIL-04", "S7")
def test_a_consumed_token_that_is_kept_survives_a_failure(any_store: Any) -> None:
    app, ledger = make_app(any_store), Ledger()

    @app.post("/work")
    @idempotent(consume=True)
    def work() -> Any:
        ledger.add()
        current_claim.keep()
        raise ValueError("late")

    client = app.test_client()
    token = token_of(client)

    assert client.post("/work", data={FIELD: token}).status_code == 500
    assert_refused(client.post("/work", data={FIELD: token}), "duplicate")
    assert len(ledger) == 1


@pytest.mark.case("S7", "FAIL-03")
def test_a_consumed_token_is_never_taken_over() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock, options={"consume": True, "lease": 5}, TOKEN_TTL=1000)
    token = shop.token()

    with shop.order_at_work(token):
        clock.advance(900)
        assert_refused(shop.order(token), "duplicate")

    assert len(shop.ledger) == 1


@pytest.mark.case("S7")
def test_consume_under_an_app_that_replays_keeps_no_answer(valkey: RedisServer) -> None:
    shop = Shop(valkey.url, options={"consume": True}, ON_DUPLICATE="replay")
    token = shop.token()

    shop.order(token)

    assert_refused(shop.order(token), "duplicate")
    (key,) = valkey.control.keys()
    assert b"order" not in valkey.control.get(key)


# -- ttl=, lease= and the lives ------------------------------------------------------------------------------------


@pytest.mark.case("S7", "S1")
@pytest.mark.parametrize("ttl", [50, 50.0, timedelta(seconds=50)], ids=str)
def test_ttl_is_the_life_of_the_result_counted_from_completion(policy: str, ttl: Any) -> None:
    clock = FakeClock()
    shop = Shop(clock=clock, options={"ttl": ttl}, TOKEN_TTL=100, ON_DUPLICATE=policy)
    token = shop.token()
    clock.advance(90)
    first = shop.order(token)

    for _ in range(4):  # to be asked for it does not make it live longer
        clock.advance(12)
        assert_repeated(shop.order(token), first, policy)
    clock.advance(2)

    assert_refused(shop.order(token), "token_unknown")
    assert len(shop.ledger) == 1


@pytest.mark.case("S7", "S1")
def test_without_ttl_a_tokens_result_lives_as_long_as_a_token(policy: str) -> None:
    clock = FakeClock()
    shop = Shop(clock=clock, TOKEN_TTL=100, RESULT_TTL=5, ON_DUPLICATE=policy)
    token = shop.token()
    clock.advance(99)
    first = shop.order(token)

    clock.advance(99)
    assert_repeated(shop.order(token), first, policy)
    clock.advance(1)

    assert_refused(shop.order(token), "token_unknown")
    assert len(shop.ledger) == 1


@pytest.mark.case("S7", "FORM-09")
def test_a_shorter_result_than_token_does_not_let_the_token_run_again() -> None:
    clock = FakeClock()
    shop = Shop(clock=clock, options={"ttl": 1}, TOKEN_TTL=1000)
    token = shop.token()
    shop.order(token)

    clock.advance(2)

    assert_refused(shop.order(token), "token_unknown")
    assert len(shop.ledger) == 1


@pytest.mark.case("FORM-09", "S1")
@pytest.mark.parametrize("where", ["setting", "helper"])
def test_a_token_lives_to_its_end_and_not_longer(where: str) -> None:
    clock = FakeClock()
    shop = Shop(clock=clock, TOKEN_TTL=40 if where == "setting" else 4000)

    @shop.app.get("/short")
    def short() -> str:
        return render_template_string(
            "{{ idempotency_token(ttl=40) }}" if where == "helper" else "{{ idempotency_token() }}"
        )

    early, late = token_of(shop.client, "/short"), token_of(shop.client, "/short")
    clock.advance(39.999)
    assert shop.order(early).status_code == 201
    clock.advance(0.001)

    assert_refused(shop.order(late), "token_unknown")
    assert len(shop.ledger) == 1


@pytest.mark.case("S7", "FAIL-03")
@pytest.mark.parametrize("how", ["option", "setting"])
@pytest.mark.parametrize("lease", [7, timedelta(seconds=7)], ids=str)
def test_lease_is_how_long_a_claim_holds(how: str, lease: Any) -> None:
    clock = FakeClock()
    settings: dict[str, Any] = {"LEASE": lease} if how == "setting" else {"LEASE": 1000}
    shop = Shop(clock=clock, options={"lease": lease} if how == "option" else {}, **settings)
    token = shop.token()

    with shop.order_at_work(token):
        clock.advance(6.9)
        assert_refused(shop.order(token), "in_progress")
        clock.advance(0.1)
        assert shop.order(token).status_code == 201
        assert len(shop.ledger) == 2


# -- what makes no sense is said at once ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_duplicate": "explode"}, "on_duplicate="),
        ({"on_duplicate": 3}, "on_duplicate="),
        ({"consume": True, "on_duplicate": "replay"}, "consume=True"),
        ({"consume": True, "on_duplicate": len}, "consume=True"),
        ({"ttl": 0}, "ttl="),
        ({"ttl": -1}, "ttl="),
        ({"ttl": "60"}, "ttl="),
        ({"ttl": timedelta(0)}, "ttl="),
        ({"lease": 0}, "lease="),
        ({"lease": float("inf")}, "lease="),
        ({"lease": float("nan")}, "lease="),
        ({"scene": ""}, "scene="),
        ({"scene": "with blank"}, "scene="),
        ({"scene": "x" * 65}, "scene="),
        ({"binding": "mac"}, "binding="),
    ],
    ids=str,
)
def test_an_option_that_makes_no_sense_is_named_where_it_was_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        idempotent(**options)(lambda: "never")


def test_an_unknown_option_is_a_type_error_that_lists_the_known() -> None:
    with pytest.raises(TypeError, match="on_duplicate"):
        idempotent(on_duplicates="reject")(lambda: "never")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ON_DUPLICATE", "explode"),
        ("ON_DUPLICATE", None),
        ("RESTORE_ON_ERROR", "yes"),
        ("MESSAGE", 7),
        ("TOKEN_TTL", None),
        ("TOKEN_TTL", 0),
        ("LEASE", -3),
        ("LEASE", None),
        ("RESULT_TTL", None),
        ("DUPLICATE_STATUS", 99),
        ("DUPLICATE_STATUS", "409"),
        ("ERROR_FORMAT", "xml"),
        ("STORE_DOWN", "shrug"),
        ("MAX_RESULT", -1),
        ("MAX_BODY", 1.5),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_named_at_start_up(key: str, value: Any) -> None:
    app = Flask("tests")
    app.config[f"IDEMPOTENCY_{key}"] = value

    with pytest.raises(ValueError, match=f"IDEMPOTENCY_{key}"):
        Idempotency(app)
