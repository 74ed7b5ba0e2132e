"""Forms in a browser's hands: double clicks, tabs, Back, Reload, validation errors, expiry, caches."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import (
    Flask,
    Response,
    abort,
    flash,
    make_response,
    redirect,
    render_template_string,
    request,
    session,
)
from flask_login import LoginManager, UserMixin, login_user
from werkzeug.exceptions import BadRequest

from flask_idempotent import Duplicate, InProgress, TokenUnknown, current_claim, idempotent
from tests.apps.caching_proxy import caching_proxy
from tests.helpers import (
    FIELD,
    HEADER,
    REPLAYED,
    Ledger,
    assert_refused,
    assert_repeated,
    make_app,
    reason_of,
    token_of,
    tokens_of,
)

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
FORM = "<form method=post>{{ idempotency_token() }}<input name=amount value='{{ request.form.amount }}'></form>"


def ordering(app: Flask, ledger: Ledger, path: str = "/orders", **options: Any) -> Flask:
    """Give the app a guarded view that books the amount that was sent."""

    @app.post(path, endpoint=path.strip("/"))
    @idempotent(**options)
    def order() -> tuple[str, int]:
        number = ledger.add(request.form.get("amount", "effect"))
        return f"<p>order {number}", 201

    return app


def elsewhere(call: Callable[[], Any]) -> Any:
    """Call in another thread, as another worker would, and wait for what it returns."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(timeout=10)


# --- two clicks --------------------------------------------------------------------------------------------------


@pytest.mark.case("FORM-01", "S4")
@pytest.mark.parametrize("policy", ["replay", "reject"])
def test_clicks_at_the_same_instant_run_once(gunicorn, redis_url, tmp_path, policy):
    ledger = Ledger(tmp_path / "ledger")
    env = {"STORE": redis_url, "LEDGER": str(tmp_path / "ledger")}
    served = gunicorn("tests.apps.forms:create_app()", workers=4, env=env)
    for clicks in (2, 20):
        (token,) = tokens_of(requests.get(f"{served.url}/form", timeout=10).text)
        answers = _click_together(f"{served.url}/order/{policy}", {FIELD: token, "item": f"x{clicks}"}, clicks)
        assert ledger.entries.count(f"x{clicks}") == 1
        first = [a for a in answers if a.status_code == 201 and REPLAYED not in a.headers]
        assert len(first) == 1
        for answer in answers:
            if answer is first[0]:
                continue
            if answer.status_code == 201:
                assert_repeated(answer, first[0], policy)
            else:
                assert_refused(answer, "in_progress" if policy == "replay" else str(reason_of(answer)))
                assert reason_of(answer) in ("in_progress", "duplicate")


def _click_together(url: str, data: dict[str, str], clicks: int) -> list[requests.Response]:
    """Send identical requests over connections of their own, all at once."""
    barrier = threading.Barrier(clicks)

    def click(_: int) -> requests.Response:
        barrier.wait()
        return requests.post(url, data=data, timeout=20)

    with ThreadPoolExecutor(clicks) as pool:
        return list(pool.map(click, range(clicks)))


@pytest.mark.case("FORM-02")
@pytest.mark.parametrize("server", ["two processes, Valkey", "threads, memory"])
def test_a_click_while_the_first_is_working_is_answered_at_once(request, gunicorn, tmp_path, server):
    ledger, release = Ledger(tmp_path / "ledger"), tmp_path / "release"
    shared = server.endswith("Valkey")
    store = request.getfixturevalue("redis_url") if shared else "memory://"
    env = {"STORE": store, "LEDGER": str(tmp_path / "ledger"), "RELEASE": str(release)}
    workers = {"workers": 2} if shared else {"threads": 4, "worker_class": "gthread"}
    served = gunicorn("tests.apps.forms:create_app()", **workers, env=env)
    for policy in ("replay", "reject", "ignore"):
        release.unlink(missing_ok=True)
        (token,) = tokens_of(requests.get(f"{served.url}/form", timeout=10).text)
        click = _clicker(f"{served.url}/slow/{policy}", {FIELD: token, "item": policy})
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(click, timeout=20)
            try:
                _until(lambda policy=policy: policy in ledger.entries)
                # The view works until it is released: an answer before that did not wait for it.
                seconds = [click(timeout=5), click(timeout=5, headers=BROWSER)]
            finally:
                release.touch()
            done = first.result()
        assert (done.status_code, ledger.entries.count(policy)) == (201, 1)
        if policy == "ignore":
            assert [(s.status_code, s.content) for s in seconds] == [(204, b"")] * 2
        else:
            assert_refused(seconds[0], "in_progress")
            for answer in seconds:
                _assert_does_not_frighten(answer)
        _assert_done(click(timeout=5), done, policy)
    assert len(ledger) == 3


def _clicker(url: str, data: dict[str, str]) -> Callable[..., requests.Response]:
    return lambda **options: requests.post(url, data=data, **options)


def _until(condition: Callable[[], bool]) -> None:
    """Poll for something that another process does; the test's own time-out ends it."""
    while not condition():
        threading.Event().wait(0.005)


def _assert_does_not_frighten(answer: requests.Response) -> None:
    assert answer.status_code == 409
    assert 1 <= int(answer.headers["Retry-After"]) <= 2
    assert "being worked on" in answer.text
    assert not re.search(r"fail|error|went wrong|denied|not saved", answer.text, re.IGNORECASE)


def _assert_done(answer: requests.Response, first: requests.Response, policy: str) -> None:
    if policy == "ignore":
        assert (answer.status_code, answer.content) == (204, b"")
    else:
        assert_repeated(answer, first, policy)


# --- the loser, restyled -----------------------------------------------------------------------------------------


def _by_policy(app: Flask, seen: list[Any], ledger: Ledger) -> None:
    def restyled(refusal: Any) -> Response:
        seen.append((refusal.reason, str(refusal.state)))
        return redirect("/done")

    ordering(app, ledger, on_duplicate=restyled)


def _by_error_handler(app: Flask, seen: list[Any], ledger: Ledger) -> None:
    @app.errorhandler(Duplicate)
    def restyled(refusal: Any) -> Response:
        seen.append((refusal.reason, str(refusal.state)))
        return redirect("/done")

    ordering(app, ledger, on_duplicate="reject")


@pytest.mark.case("FORM-03", "S6")
@pytest.mark.parametrize("register", [_by_policy, _by_error_handler])
def test_the_losing_click_can_be_shown_as_success(any_store, register):
    app, ledger, seen = make_app(any_store), Ledger(), []
    register(app, seen, ledger)
    client = app.test_client()
    data = {FIELD: token_of(client), "amount": "1"}
    assert client.post("/orders", data=data).status_code == 201
    answer = client.post("/orders", data=data)
    assert (answer.status_code, answer.location) == (302, "/done")
    assert seen == [("duplicate", "done")]
    assert len(ledger) == 1


@pytest.mark.case("FORM-03", "FORM-02")
@pytest.mark.parametrize("by", ["policy", "handler"])
def test_a_click_while_it_runs_can_be_shown_as_success_too(any_store, by):
    app, ledger, seen = make_app(any_store), Ledger(), []

    def restyled(refusal: Any) -> Response:
        seen.append((refusal.reason, str(refusal.state), 0 < refusal.seconds_left <= 300))
        return redirect("/underway")

    if by == "handler":
        app.register_error_handler(InProgress, restyled)
    tokens: list[str] = []

    def click() -> Any:
        return app.test_client().post("/slow", data={FIELD: tokens[0]})

    @app.post("/slow")
    @idempotent(on_duplicate=restyled if by == "policy" else None)
    def slow() -> str:
        if ledger.add() > 1:
            return "again"
        second = elsewhere(click)
        return f"{second.status_code} {second.location}"

    tokens.append(token_of(app.test_client()))
    assert click().text == "302 /underway"
    assert seen == [("in_progress", "running", True)]
    assert len(ledger) == 1


# --- tabs and fragments ------------------------------------------------------------------------------------------


@pytest.mark.case("FORM-04", "S1")
@pytest.mark.parametrize("tabs", [2, 30])
def test_every_tab_is_a_right_of_its_own_newest_first(any_store, policy, tabs):
    ledger = Ledger()
    client = ordering(make_app(any_store, ON_DUPLICATE=policy), ledger).test_client()
    tokens = [token_of(client) for _ in range(tabs)]
    assert len(set(tokens)) == tabs
    order = tokens[::-1] if tabs == 2 else random.Random(4).sample(tokens, tabs)
    answers = {token: client.post("/orders", data={FIELD: token, "amount": token}) for token in order}
    assert [answer.status_code for answer in answers.values()] == [201] * tabs
    assert ledger.entries == order
    for token in tokens:
        assert_repeated(client.post("/orders", data={FIELD: token, "amount": token}), answers[token], policy)
    assert len(ledger) == tabs


@pytest.mark.case("FORM-05")
def test_a_fragment_that_was_swapped_in_leaves_the_page_alive(any_store, policy):
    ledger = Ledger()
    app = ordering(make_app(any_store, ON_DUPLICATE=policy), ledger)
    ordering(app, ledger, "/notes")

    @app.get("/page")
    def page() -> str:
        return render_template_string("{{ idempotency_token() }}{{ idempotency_token() }}{{ idempotency_token() }}")

    client = app.test_client()
    others = tokens_of(client.get("/page").text)
    fragment = token_of(client, headers={"HX-Request": "true"})
    assert len({*others, fragment}) == 4
    data = {FIELD: fragment, "amount": "b"}
    note = client.post("/notes", data=data, headers={"HX-Request": "true"})
    assert note.status_code == 201
    for token in others:
        assert client.post("/orders", data={FIELD: token, "amount": "a"}).status_code == 201
    assert_repeated(client.post("/notes", data=data, headers={"HX-Request": "true"}), note, policy)
    assert len(ledger) == 4


# --- Back, edited and sent again ---------------------------------------------------------------------------------

SENT: dict[str, Any] = {"data": {"amount": "1", "note": "n"}}
CHANGED: dict[str, Any] = {
    "a value": {"data": {"amount": "2", "note": "n"}},
    "a blank": {"data": {"amount": "1 ", "note": "n"}},
    "a field more": {"data": {"amount": "1", "note": "n", "gift": "on"}},
    "a field less": {"data": {"amount": "1"}},
    "a value twice": {"data": {"amount": ["1", "1"], "note": "n"}},
    "the query": {"data": {"amount": "1", "note": "n"}, "query_string": {"express": "1"}},
    "the type of the body": {"json": {"amount": "1", "note": "n"}},
    "no body at all": {},
}


@pytest.mark.case("FORM-06")
@pytest.mark.parametrize("policy", ["replay", "reject", "ignore", "callable"])
@pytest.mark.parametrize("change", CHANGED)
def test_a_form_that_was_edited_after_back_is_refused(any_store, policy, change):
    ledger = Ledger()
    app = make_app(any_store, ON_DUPLICATE=(lambda refusal: "restyled") if policy == "callable" else policy)
    client = ordering(app, ledger).test_client()
    header = {HEADER: token_of(client)}
    first = client.post("/orders", headers=header, **SENT)
    assert first.status_code == 201
    second = client.post("/orders", headers=header, **CHANGED[change])
    assert_refused(second, "token_reused", 422)
    assert "not saved" in second.text
    assert first.text not in second.text
    page = client.post("/orders", headers={**header, **BROWSER}, **CHANGED[change])
    assert (page.status_code, page.mimetype) == (422, "text/html")
    assert "Open the form again" in page.text
    assert ledger.entries == ["1"]
    if policy in ("replay", "reject"):  # the edit changed nothing about the first one
        assert_repeated(client.post("/orders", headers=header, **SENT), first, policy)


@pytest.mark.case("FORM-06")
def test_another_file_under_the_same_name_is_an_edit(any_store):
    ledger = Ledger()
    client = ordering(make_app(any_store), ledger).test_client()
    token = token_of(client)

    def send(content: bytes, name: str = "a.txt") -> Any:
        return client.post("/orders", data={FIELD: token, "amount": "1", "file": (BytesIO(content), name)})

    first = send(b"one")
    assert first.status_code == 201
    assert_refused(send(b"two"), "token_reused", 422)
    assert_refused(send(b"one", "b.txt"), "token_reused", 422)
    assert_repeated(send(b"one"), first)
    assert len(ledger) == 1


@pytest.mark.case("FORM-06")
def test_an_edited_form_is_refused_also_while_the_first_is_running(any_store, policy):
    app, ledger = make_app(any_store, ON_DUPLICATE=policy), Ledger()
    tokens: list[str] = []
    seconds: list[Any] = []

    def send(amount: str) -> Any:
        return app.test_client().post("/slow", data={FIELD: tokens[0], "amount": amount})

    @app.post("/slow")
    @idempotent
    def slow() -> str:
        ledger.add(request.form["amount"])
        if len(ledger) == 1:
            seconds.append(elsewhere(lambda: send("2")))
        return "done"

    tokens.append(token_of(app.test_client()))
    assert send("1").text == "done"
    assert_refused(seconds[0], "token_reused", 422)
    assert ledger.entries == ["1"]


@pytest.mark.case("FORM-06", "S1")
@pytest.mark.parametrize(
    "same",
    [
        {"token": str.upper},
        {"token": lambda token: token.replace("-", "")},
        {"csrf_token": "another"},
        {"headers": {"X-Request-Id": "2", "User-Agent": "another", "Referer": "http://localhost/else"}},
    ],
    ids=["token in capitals", "token without hyphens", "fresh CSRF value", "other headers"],
)
def test_what_a_browser_changes_by_itself_is_no_edit(any_store, policy, same):
    ledger = Ledger()
    client = ordering(make_app(any_store, ON_DUPLICATE=policy), ledger).test_client()
    token = token_of(client)
    first = client.post("/orders", data={FIELD: token, "csrf_token": "one", "amount": "1"})
    assert first.status_code == 201
    spelled = same.get("token", str)(token)
    data = {FIELD: spelled, "csrf_token": same.get("csrf_token", "one"), "amount": "1"}
    assert_repeated(client.post("/orders", data=data, headers=same.get("headers")), first, policy)
    assert ledger.entries == ["1"]


@pytest.mark.case("FORM-07")
@pytest.mark.parametrize("options", [{}, {"consume": True}], ids=["", "consume"])
def test_reload_of_a_page_that_answered_a_post(any_store, policy, options):
    app, ledger = make_app(any_store, ON_DUPLICATE=policy), Ledger()

    @app.post("/pay")
    @idempotent(**options)
    def pay() -> str:
        return f"<h1>Paid {request.form['amount']}, number {ledger.add()}</h1>"

    client = app.test_client()
    data = {FIELD: token_of(client), "amount": "9"}
    first = client.post("/pay", data=data, headers=BROWSER)
    assert (first.status_code, first.text) == (200, "<h1>Paid 9, number 1</h1>")
    for _ in range(3):
        assert_repeated(client.post("/pay", data=data), first, "reject" if options else policy)
        page = client.post("/pay", data=data, headers=BROWSER)
        assert page.mimetype == "text/html"
        assert "no need to send it again" in page.text or page.text == first.text
    assert len(ledger) == 1


# --- validation errors -------------------------------------------------------------------------------------------


class NotAnAmountError(Exception):
    """An error of the app's own."""


def _page(*status: Any) -> Any:
    return (render_template_string(FORM), *status) if status else render_template_string(FORM)


def _raise(error: Exception) -> Any:
    raise error


def _shown_again() -> str:
    current_claim.restore()
    return _page()


def _aborted(answer: Any) -> Any:
    abort(answer)


REFUSED_INPUT: dict[str, tuple[Callable[[], Any], int]] = {
    "abort(422)": (lambda: _aborted(422), 422),
    "abort(a response)": (lambda: _aborted(Response("no", 422)), 422),
    "abort(a made page)": (lambda: _aborted(make_response(_page(), 400)), 400),
    "an HTTPException": (lambda: _raise(BadRequest("no")), 400),
    "an exception with a handler": (lambda: _raise(NotAnAmountError()), 400),
    "an exception with a handler that shows the page": (lambda: _raise(LookupError()), 200),
    "an exception without a handler": (lambda: _raise(ValueError("no")), 500),
    "a page with 422": (lambda: _page(422), 422),
    "a page with 400 and headers": (lambda: _page(400, {"X-Errors": "1"}), 400),
    "a status line": (lambda: _page("422 NOT AN AMOUNT"), 422),
    "a response": (lambda: make_response(_page(), 422), 422),
    "JSON with 422": (lambda: ({"amount": "not a number"}, 422), 422),
    "500 returned": (lambda: ("no", 500), 500),
    "the page with 200 and restore()": (_shown_again, 200),
}


@pytest.mark.case("FORM-08", "S5")
@pytest.mark.parametrize("how", REFUSED_INPUT)
def test_input_that_the_view_refuses_leaves_a_way_forward(any_store, policy, how):
    refuse, status = REFUSED_INPUT[how]
    app, ledger = make_app(any_store, ON_DUPLICATE=policy), Ledger()
    app.register_error_handler(NotAnAmountError, lambda error: ("no", 400))
    app.register_error_handler(LookupError, lambda error: _page())

    @app.post("/orders")
    @idempotent
    def order() -> Any:
        if not request.form["amount"].isdigit():
            return refuse()
        return f"order {ledger.add(request.form['amount'])}", 201

    client = app.test_client()
    token = token_of(client)
    for bad in ("a lot", "much"):
        refused = client.post("/orders", data={FIELD: token, "amount": bad})
        assert (refused.status_code, REPLAYED in refused.headers) == (status, False)
    assert len(ledger) == 0
    good = client.post("/orders", data={FIELD: token, "amount": "5"})
    assert good.status_code == 201
    assert_repeated(client.post("/orders", data={FIELD: token, "amount": "5"}), good, policy)
    for fresh in tokens_of(refused.text):  # the page that was shown carries a token of its own
        assert client.post("/orders", data={FIELD: fresh, "amount": "6"}).status_code == 201
    assert len(ledger) == 1 + len(tokens_of(refused.text))


@pytest.mark.case("FORM-08", "S5")
def test_a_redirect_by_abort_is_a_success(any_store, policy):
    app, ledger = make_app(any_store, ON_DUPLICATE=policy), Ledger()

    @app.post("/orders")
    @idempotent
    def order() -> Any:
        ledger.add()
        abort(redirect("/orders/1", 303))

    client = app.test_client()
    data = {FIELD: token_of(client)}
    first = client.post("/orders", data=data)
    assert (first.status_code, first.location) == (303, "/orders/1")
    assert_repeated(client.post("/orders", data=data), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("FORM-08", "S5")
@pytest.mark.parametrize(
    ("refuse", "reason"),
    [(400, None), (404, None), (422, None), (500, "failed"), (503, "failed"), (RuntimeError, "failed")],
)
def test_with_restore_off_bad_input_still_has_a_way_forward_and_a_crash_has_not(any_store, refuse, reason):
    app, ledger = make_app(any_store), Ledger()

    @app.post("/orders")
    @idempotent(restore_on_error=False)
    def order() -> Any:
        if ledger.add() > 1:
            return "made", 201
        if isinstance(refuse, int):
            abort(refuse)
        raise refuse

    client = app.test_client()
    data = {FIELD: token_of(client)}
    assert client.post("/orders", data=data).status_code == (refuse if isinstance(refuse, int) else 500)
    second = client.post("/orders", data=data)
    if reason is None:
        assert (second.status_code, len(ledger)) == (201, 2)
        assert_repeated(client.post("/orders", data=data), second)
    else:
        assert_refused(second, reason)
    assert len(ledger) == (1 if reason else 2)


# --- the page left open ------------------------------------------------------------------------------------------


@pytest.mark.case("FORM-09", "S1")
def test_a_form_left_open_too_long_is_shown_again_with_what_was_typed(timed):
    store, move = timed
    app, ledger = make_app(store, TOKEN_TTL=20), Ledger()
    seen = []

    @app.errorhandler(TokenUnknown)
    def open_again(error: TokenUnknown) -> Any:
        seen.append(error.reason)
        return render_template_string(FORM), 409

    ordering(app, ledger)
    client = app.test_client()
    token = token_of(client)
    move(30)
    late = client.post("/orders", data={FIELD: token, "amount": "17"})
    assert (late.status_code, len(ledger), seen) == (409, 0, ["token_unknown"])
    assert "value='17'" in late.text
    (fresh,) = tokens_of(late.text)
    first = client.post("/orders", data={FIELD: fresh, "amount": "17"})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", data={FIELD: fresh, "amount": "17"}), first)
    assert ledger.entries == ["17"]


@pytest.mark.case("FORM-09", "S6")
def test_expired_is_told_from_missing_from_never_issued_and_from_in_time(timed):
    store, move = timed
    ledger = Ledger()
    client = ordering(make_app(store, TOKEN_TTL=100), ledger).test_client()
    token, second = token_of(client), token_of(client)
    assert_refused(client.post("/orders", data={"amount": "1"}), "token_missing", 400)
    assert_refused(client.post("/orders", data={FIELD: "0" * 32, "amount": "1"}), "token_unknown")
    move(80)
    assert client.post("/orders", data={FIELD: token, "amount": "1"}).status_code == 201
    move(30)
    expired = client.post("/orders", data={FIELD: second, "amount": "1"})
    assert_refused(expired, "token_unknown")
    assert "expired" in expired.text
    assert "Open the form again" in expired.text
    assert len(ledger) == 1


@pytest.mark.case("S5", "FORM-09")
def test_a_failure_never_lengthens_a_tokens_life(timed):
    store, move = timed
    app, ledger = make_app(store, TOKEN_TTL=100), Ledger()

    @app.post("/orders")
    @idempotent
    def order() -> Any:
        ledger.add()
        abort(400)

    client = app.test_client()
    data = {FIELD: token_of(client)}
    for _ in range(3):
        assert client.post("/orders", data=data).status_code == 400
        move(25)
    assert client.post("/orders", data=data).status_code == 400
    move(30)
    assert_refused(client.post("/orders", data=data), "token_unknown")
    assert len(ledger) == 4


# --- sessions, cookies, front ends -------------------------------------------------------------------------------


@pytest.mark.case("FORM-10")
def test_signing_in_between_does_not_spoil_a_form(any_store, policy):
    ledger = Ledger()
    app = ordering(make_app(any_store, ON_DUPLICATE=policy), ledger)

    @app.post("/login")
    def login() -> str:
        session.clear()
        session["user"] = request.form["user"]
        return "welcome"

    client = app.test_client()
    token = token_of(client)
    for user in ("alice", "bob"):
        client.post("/login", data={"user": user})
    first = client.post("/orders", data={FIELD: token, "amount": "1"})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", data={FIELD: token, "amount": "1"}), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("FORM-10")
def test_signing_in_with_flask_login_does_not_spoil_a_form(any_store):
    ledger = Ledger()
    app = ordering(make_app(any_store), ledger)

    class User(UserMixin):
        id = "alice"

    LoginManager(app).user_loader(lambda name: User())

    @app.post("/login")
    def login() -> str:
        login_user(User())
        return "welcome"

    client = app.test_client()
    token = token_of(client)
    client.post("/login")
    first = client.post("/orders", data={FIELD: token, "amount": "1"})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", data={FIELD: token, "amount": "1"}), first)
    assert len(ledger) == 1


def _assert_no_trace_of_a_session(response: Any) -> None:
    assert "Set-Cookie" not in response.headers
    assert "Cookie" not in response.headers.get("Vary", "")  # Flask says so whenever a session was looked at


@pytest.mark.case("FORM-10", "FORM-12")
@pytest.mark.parametrize("use_cookies", [False, True])
def test_a_form_works_without_cookies_and_the_session_is_not_touched(any_store, policy, use_cookies):
    ledger = Ledger()
    client = ordering(make_app(any_store, ON_DUPLICATE=policy), ledger).test_client(use_cookies=use_cookies)
    page = client.get("/form")
    _assert_no_trace_of_a_session(page)
    _assert_no_trace_of_a_session(client.get("/idempotency/token"))
    data = {FIELD: tokens_of(page.text)[0], "amount": "1"}
    first = client.post("/orders", data=data)
    second = client.post("/orders", data=data)
    refused = client.post("/orders", data={"amount": "1"})
    assert first.status_code == 201
    for answer in (first, second, refused):
        _assert_no_trace_of_a_session(answer)
    assert_repeated(second, first, policy)
    assert len(ledger) == 1


@pytest.mark.case("FORM-12")
def test_without_a_secret_key_forms_work_too(any_store):
    ledger = Ledger()
    client = ordering(make_app(any_store, SECRET_KEY=None), ledger).test_client(use_cookies=False)
    data = {FIELD: token_of(client), "amount": "1"}
    first = client.post("/orders", data=data)
    assert first.status_code == 201
    assert_repeated(client.post("/orders", data=data), first)
    assert len(ledger) == 1


@pytest.mark.case("FORM-12")
def test_only_a_message_of_the_views_own_touches_the_session_of_a_replay(any_store):
    app, ledger = make_app(any_store), Ledger()

    @app.post("/orders")
    @idempotent
    def order() -> Any:
        ledger.add()
        flash("Ordered.", "good")
        return redirect("/form")

    client = app.test_client(use_cookies=False)
    data = {FIELD: token_of(client)}
    first, second = client.post("/orders", data=data), client.post("/orders", data=data)
    assert_repeated(second, first)
    assert "Set-Cookie" in first.headers
    assert "Set-Cookie" in second.headers  # the browser dropped the first answer, and its cookie with it
    assert len(ledger) == 1


FRONT_ENDS: dict[str, tuple[dict[str, str], bool]] = {
    "fetch": ({"Accept": "application/json"}, False),
    "fetch without a wish": ({"Accept": "*/*"}, False),
    "no Accept at all": ({}, False),
    "htmx": ({"Accept": "*/*", "HX-Request": "true"}, False),
    "htmx that lists HTML": ({"Accept": "text/html, */*", "HX-Request": "true"}, False),
    "a browser": (BROWSER, True),
}


@pytest.mark.case("FORM-11", "S22")
@pytest.mark.parametrize("error_format", ["problem", "envelope"])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_refusal_has_one_status_and_the_shape_its_caller_reads(front_end, error_format):
    headers, html = FRONT_ENDS[front_end]
    ledger = Ledger()
    app = ordering(make_app(ON_DUPLICATE="reject", ERROR_FORMAT=error_format), ledger)
    client = app.test_client()
    token = token_of(client)
    client.post("/orders", data={FIELD: token, "amount": "1"})
    expected = {
        ("duplicate", 409): {FIELD: token, "amount": "1"},
        ("token_reused", 422): {FIELD: token, "amount": "2"},
        ("token_missing", 400): {},
        ("token_unknown", 409): {FIELD: "0" * 32},
    }
    for (reason, status), data in expected.items():
        answer = client.post("/orders", data=data, headers=headers)
        assert answer.status_code == status
        if html:
            assert answer.mimetype == "text/html"
            assert "<h1" in answer.text
        else:
            wanted = "application/json" if error_format == "envelope" else "application/problem+json"
            assert answer.mimetype == wanted
            assert reason_of(answer) == reason
    assert len(ledger) == 1


@pytest.mark.case("FORM-11")
def test_an_app_can_restyle_a_refusal_for_each_request(any_store):
    ledger = Ledger()
    app = ordering(make_app(any_store, ON_DUPLICATE="reject"), ledger)

    @app.errorhandler(Duplicate)
    def restyled(refusal: Any) -> Any:
        if "HX-Request" in request.headers:
            return f"<p class={refusal.reason}>", 200, {"HX-Retarget": "#messages"}
        return refusal

    client = app.test_client()
    data = {FIELD: token_of(client), "amount": "1"}
    client.post("/orders", data=data)
    fragment = client.post("/orders", data=data, headers={"HX-Request": "true"})
    assert (fragment.status_code, fragment.text, fragment.headers["HX-Retarget"]) == (
        200,
        "<p class=duplicate>",
        "#messages",
    )
    assert_refused(client.post("/orders", data=data), "duplicate")
    assert len(ledger) == 1


@pytest.mark.case("FORM-13")
def test_safe_methods_never_use_a_token_up(any_store, policy):
    ledger = Ledger()
    app = make_app(any_store, ON_DUPLICATE=policy, TOKEN_LOCATIONS=("header", "form", "query", "json"))

    @app.route("/both", methods=["GET", "POST"])
    @idempotent
    def both() -> Any:
        if request.method != "POST":
            return render_template_string(FORM)
        return f"order {ledger.add()}", 201

    client = app.test_client()
    tokens = [token_of(client, "/both") for _ in range(2)] + [token_of(client)]
    assert len(set(tokens)) == 3
    for token in tokens:
        for url in ("/both", "/form"):
            for send in (client.get, client.head, client.options):
                answer = send(url, query_string={FIELD: token}, headers={HEADER: token})
                assert (answer.status_code, REPLAYED in answer.headers) == (200, False)
    for token in tokens:
        first = client.post("/both", data={FIELD: token})
        assert first.status_code == 201
        assert_repeated(client.post("/both", data={FIELD: token}), first, policy)
    assert len(ledger) == 3


class MethodOverride:
    """The middleware of Flask's patterns: the verb is in a header or in the query."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        _, _, query = environ["QUERY_STRING"].partition("_method=")
        if method := environ.get("HTTP_X_HTTP_METHOD_OVERRIDE") or query:
            environ["REQUEST_METHOD"] = method.upper()
        return self.app(environ, start_response)


VERBS: dict[str, dict[str, Any]] = {
    "POST": {"method": "POST"},
    "PUT": {"method": "PUT"},
    "PATCH": {"method": "PATCH"},
    "DELETE": {"method": "DELETE"},
    "PUT by header": {"method": "POST", "headers": {"X-HTTP-Method-Override": "PUT"}},
    "PATCH by query": {"method": "POST", "path": "/things/1?_method=patch"},
    "DELETE by query": {"method": "POST", "path": "/things/1?_method=delete"},
}


@pytest.mark.case("FORM-14", "S3")
@pytest.mark.parametrize("place", ["header", "form"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_unsafe_verb_is_guarded_exactly_once(any_store, policy, verb, place):
    app, ledger = make_app(any_store, ON_DUPLICATE=policy), Ledger()
    app.wsgi_app = MethodOverride(app.wsgi_app)

    @app.route("/things/1", methods=["POST", "PUT", "PATCH", "DELETE"])
    @idempotent
    def change() -> str:
        return f"{request.method} {ledger.add(request.method)}"

    client = app.test_client()
    token = token_of(client)
    options = {"path": "/things/1", **VERBS[verb]}
    headers = {**options.pop("headers", {}), **({HEADER: token} if place == "header" else {})}
    data = {"name": "x", **({FIELD: token} if place == "form" else {})}
    first, second = (client.open(**options, headers=headers, data=data) for _ in range(2))
    assert (first.status_code, first.text) == (200, f"{verb.split()[0]} 1")
    assert_repeated(second, first, policy)
    assert ledger.entries == [verb.split()[0]]


@pytest.mark.case("FORM-14")
def test_a_token_that_was_used_with_one_verb_is_none_for_another(any_store):
    app, ledger = make_app(any_store), Ledger()

    @app.route("/things/1", methods=["PUT", "PATCH", "DELETE"])
    @idempotent
    def change() -> str:
        return f"{request.method} {ledger.add(request.method)}"

    client = app.test_client()
    header = {HEADER: token_of(client)}
    assert client.put("/things/1", headers=header).status_code == 200
    assert_refused(client.delete("/things/1", headers=header), "token_reused", 422)
    assert_refused(client.patch("/things/1", headers=header), "token_reused", 422)
    assert ledger.entries == ["PUT"]


@pytest.mark.case("FORM-15")
def test_a_token_is_not_baked_into_a_shared_cache(waitress, tmp_path):
    ledger_path: Path = tmp_path / "ledger"
    ledger = Ledger(ledger_path)
    env = {"STORE": "memory://", "LEDGER": str(ledger_path)}
    served = waitress("tests.apps.forms:create_app()", env=env)
    with caching_proxy(served.url) as url:
        plain = [requests.get(f"{url}/plain", timeout=10) for _ in range(2)]
        pages = [requests.get(f"{url}/form", timeout=10) for _ in range(2)]
        strict = requests.get(f"{url}/form/strict", timeout=10)
        tokens = [tokens_of(page.text)[0] for page in pages]
        orders = [
            requests.post(f"{url}/order/replay", data={FIELD: t, "item": t}, timeout=10) for t in [*tokens, tokens[0]]
        ]
    assert [p.headers["X-Cache"] for p in plain] == ["miss", "hit"]  # the cache does keep what it may
    assert plain[0].headers["Cache-Control"] == "public, max-age=60"
    assert [set(p.headers["Cache-Control"].split(", ")) for p in pages] == [{"private", "no-cache"}] * 2
    assert "no-store" in strict.headers["Cache-Control"]
    assert len(set(tokens)) == 2
    assert [o.status_code for o in orders] == [201] * 3
    assert ledger.entries[1:] == tokens  # the third order was the first one's answer again
