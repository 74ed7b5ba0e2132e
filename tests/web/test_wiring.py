"""How the extension sits in an app: several apps, hooks and their order, error handlers, async views, the switch."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, abort, g, redirect, render_template_string, request
from flask.views import MethodView
from flask_cors import CORS
from werkzeug.exceptions import HTTPException

from flask_idempotent import (
    Duplicate,
    Idempotency,
    IdempotencyError,
    TokenForeign,
    TokenInvalid,
    TokenMissing,
    TokenUnknown,
    current_claim,
    idempotent,
)
from flask_idempotent.stores.memory import MemoryStore
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
)
from tests.live import ROOT

FORM = "{{ idempotency_token() }}"


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def with_orders(app: Flask | Blueprint, ledger: Ledger, **options: Any) -> Any:
    @app.post("/orders")
    @idempotent(**options)
    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    return app


def assert_still_good(client: Any, token: str, ledger: Ledger, policy: str = "replay", **options: Any) -> None:
    """Nothing has used the token up; it is good once."""
    before = len(ledger)
    first, second = (client.post("/orders", data={FIELD: token}, **options) for _ in range(2))
    assert first.status_code == 201, first.text
    assert REPLAYED not in first.headers
    assert_repeated(second, first, policy)
    assert len(ledger) == before + 1


# --- several apps ------------------------------------------------------------------------------------------------


@pytest.mark.case("WIRE-01", "S1")
@pytest.mark.parametrize("stores", ["two prefixes in one Valkey", "two memories", "memory and Valkey"])
def test_one_object_serves_two_apps_and_lends_neither_the_others_settings(valkey, stores):
    idempotency, ledgers = Idempotency(), [Ledger(), Ledger()]
    chosen: dict[str, list[Any]] = {
        "two prefixes in one Valkey": [valkey.url, valkey.url],
        "two memories": ["memory://", None],
        "memory and Valkey": [MemoryStore(), valkey.url],
    }
    apps = []
    for number, store in enumerate(chosen[stores]):
        app = Flask(f"app{number}")
        app.config.update(
            IDEMPOTENCY_PREFIX=f"app{number}",
            IDEMPOTENCY_ON_DUPLICATE=("replay", "reject")[number],
            IDEMPOTENCY_TOKEN_FIELD=(FIELD, "other_field")[number],
        )
        idempotency.init_app(app, store=store)
        app.add_url_rule("/form", "form", idempotency.token)
        apps.append(with_orders(app, ledgers[number]))
    one, two = (app.test_client() for app in apps)
    token = one.get("/form").text
    assert_refused(two.post("/orders", data={FIELD: token}), "token_missing", 400)
    assert_refused(two.post("/orders", headers={HEADER: token}), "token_unknown")
    assert_still_good(one, token, ledgers[0])
    header = {HEADER: two.get("/form").text}
    assert two.post("/orders", headers=header).status_code == 201
    assert_refused(two.post("/orders", headers=header), "duplicate")
    assert [len(ledger) for ledger in ledgers] == [1, 1]
    assert vars(idempotency) == {}


@pytest.mark.case("WIRE-01", "S9")
def test_one_blueprint_in_two_apps_follows_the_settings_of_each(valkey, ledger):
    blueprint = with_orders(Blueprint("shop", __name__), ledger)
    apps = [
        make_app(valkey.url, PREFIX="one", TOKEN_HEADER="X-One"),
        make_app(valkey.url, PREFIX="two", ON_DUPLICATE="reject"),
    ]
    for app in apps:
        app.register_blueprint(blueprint)
    one, two = (app.test_client() for app in apps)
    header = {"X-One": token_of(one)}
    assert_refused(two.post("/orders", headers=header), "token_missing", 400)
    assert_refused(two.post("/orders", headers={HEADER: header["X-One"]}), "token_unknown")
    first, second = (one.post("/orders", headers=header) for _ in range(2))
    assert_repeated(second, first)
    header = {HEADER: token_of(two)}
    assert two.post("/orders", headers=header).status_code == 201
    assert_refused(two.post("/orders", headers=header), "duplicate")
    assert len(ledger) == 2


@pytest.mark.parametrize("again", [lambda app, first: first.init_app(app), lambda app, first: Idempotency(app)])
def test_init_app_twice_is_refused(again):
    app = Flask("tests.helpers")
    first = Idempotency(app)
    with pytest.raises(RuntimeError, match="init_app"):
        again(app, first)


def test_without_init_app_the_error_names_the_cure():
    app = Flask("tests.helpers")
    app.add_url_rule("/orders", "orders", idempotent(lambda: "done"), methods=["POST"])
    app.config["PROPAGATE_EXCEPTIONS"] = True
    with pytest.raises(RuntimeError, match="init_app"):
        app.test_client().post("/orders")
    with app.test_request_context(), pytest.raises(RuntimeError, match="init_app"):
        Idempotency().token()


@pytest.mark.case("WIRE-01", "S9")
def test_a_request_inside_a_request_is_its_own(any_store, ledger):
    """A view that calls another app in the same process, as a gateway does."""
    inner = with_orders(make_app(any_store), ledger)
    outer, outer_ledger = make_app(), Ledger()
    inner_token = token_of(inner.test_client())

    @outer.post("/orders")
    @idempotent
    def order() -> tuple[str, int]:
        outer_ledger.add()
        answer = inner.test_client().post("/orders", data={FIELD: inner_token})
        return f"{answer.status_code} {answer.text}", 201

    client = outer.test_client()
    data = {FIELD: token_of(client)}
    first, second = (client.post("/orders", data=data) for _ in range(2))
    assert first.text == "201 order 1"
    assert_repeated(second, first)
    assert (len(ledger), len(outer_ledger)) == (1, 1)


# --- no view ran -------------------------------------------------------------------------------------------------


@pytest.mark.case("WIRE-02", "S4")
def test_what_is_no_guarded_view_costs_no_store_call_and_uses_no_token(valkey, ledger, tmp_path):
    (tmp_path / "style.css").write_text("p {}")
    app = Flask("tests.helpers", static_folder=str(tmp_path), static_url_path="/static")
    Idempotency(app, store=valkey.url)
    with_orders(app, ledger)
    app.add_url_rule("/form", "form", lambda: render_template_string(FORM))
    app.add_url_rule("/plain", "plain", lambda: "plain", methods=["GET", "POST"])
    app.add_url_rule("/slash/", "slash", idempotent(lambda: "slash"), methods=["POST"])
    client = app.test_client()
    token = token_of(client)

    def calls() -> int:
        return sum(valkey.calls(command) for command in ("evalsha", "eval", "get", "set"))

    before = calls()
    for method, url, status in (
        ("POST", "/nowhere", 404),
        ("DELETE", "/nowhere/else", 404),
        ("POST", "/form", 405),
        ("DELETE", "/orders", 405),
        ("POST", "/slash", 308),
        ("GET", "/static/style.css", 200),
        ("HEAD", "/static/style.css", 200),
        ("POST", "/static/style.css", 405),
        ("GET", "/static/nothing.css", 404),
        ("POST", "/plain", 200),
        ("OPTIONS", "/orders", 200),
    ):
        answer = client.open(url, method=method, data={FIELD: token}, headers={HEADER: token})
        assert (answer.status_code, url) == (status, url)
        answer.close()
    assert calls() == before
    assert_still_good(client, token, ledger)


@pytest.mark.case("WIRE-03", "FORM-13")
@pytest.mark.parametrize("own_options", [False, True])
def test_options_and_head_need_no_token_and_use_none(any_store, ledger, own_options):
    app = make_app(any_store)
    methods = ["GET", "POST", *(["OPTIONS"] if own_options else [])]

    @app.route("/orders", methods=methods)
    @idempotent
    def order() -> Any:
        return (f"order {ledger.add()}", 201) if request.method == "POST" else f"the form, by {request.method}"

    client = app.test_client()
    token = token_of(client)
    for headers in ({}, {HEADER: token}, {HEADER: "not a token"}):
        options = client.options("/orders", headers=headers)
        head = client.head("/orders", headers=headers)
        assert (options.status_code, head.status_code) == (200, 200)
        assert "POST" in options.headers["Allow"] if not own_options else options.text == "the form, by OPTIONS"
    assert_still_good(client, token, ledger)


# --- cross-origin ------------------------------------------------------------------------------------------------

ORIGIN = "https://shop.example"


@pytest.mark.case("WIRE-04")
def test_answers_and_refusals_can_be_read_across_origins(any_store, policy, ledger):
    app = make_app(any_store, ON_DUPLICATE=policy)
    exposed = [REPLAYED, "Retry-After"]
    CORS(app, origins=ORIGIN, allow_headers=["Content-Type", HEADER, "Idempotency-Key"], expose_headers=exposed)
    with_orders(app, ledger)
    client = app.test_client()
    asked = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": f"content-type, {HEADER.lower()}, idempotency-key",
    }
    preflight = client.options("/orders", headers=asked)
    assert preflight.status_code == 200
    allowed = preflight.headers["Access-Control-Allow-Headers"].lower()
    assert all(name in allowed for name in ("content-type", "idempotency-token", "idempotency-key"))
    token = client.get("/idempotency/token", headers={"Origin": ORIGIN}).json["token"]

    def send(token: str | None, **options: Any) -> Any:
        headers = {"Origin": ORIGIN, **({HEADER: token} if token is not None else {})}
        answer = client.post("/orders", headers=headers, **options)
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert {name.strip() for name in answer.headers["Access-Control-Expose-Headers"].split(",")} == set(exposed)
        return answer

    first = send(token, json={"n": 1})
    assert first.status_code == 201
    assert_repeated(send(token, json={"n": 1}), first, policy)
    assert_refused(send(None), "token_missing", 400)
    assert_refused(send("malformed"), "token_invalid", 400)
    assert_refused(send("0" * 32), "token_unknown")
    assert_refused(send(token, json={"n": 2}), "token_reused", 422)
    foreign = {"environ_overrides": {"REMOTE_ADDR": "203.0.113.9"}}
    assert_refused(send(token, json={"n": 1}, **foreign), "token_foreign", 403)
    assert len(ledger) == 1


def test_the_docs_list_what_to_allow_and_to_expose():
    example = (ROOT / "docs" / "examples" / "cross_origin.py").read_text(encoding="utf-8")
    allowed, exposed = (re.search(rf"{name}=\[(.*?)\]", example)[1] for name in ("allow_headers", "expose_headers"))
    assert HEADER in allowed
    assert all(name in exposed for name in (REPLAYED, "Retry-After"))


@pytest.mark.case("WIRE-04", "WIRE-05")
def test_refusals_and_replays_pass_the_apps_after_request_hooks(any_store, policy, ledger):
    app = with_orders(make_app(any_store, ON_DUPLICATE=policy), ledger)
    numbers = itertools.count(1)

    @app.after_request
    def number(response: Response) -> Response:
        response.headers["X-Number"] = str(next(numbers))
        return response

    client = app.test_client()
    data = {FIELD: token_of(client)}
    first, second, missing = (client.post("/orders", data=d) for d in (data, data, {}))
    assert [a.headers.getlist("X-Number") for a in (first, second, missing)] == [["2"], ["3"], ["4"]]
    assert_repeated(second, first, policy)
    assert len(ledger) == 1


# --- error handlers ----------------------------------------------------------------------------------------------

FIVE = {
    "token_missing": (TokenMissing, 400),
    "token_invalid": (TokenInvalid, 400),
    "token_unknown": (TokenUnknown, 409),
    "token_foreign": (TokenForeign, 403),
    "duplicate": (Duplicate, 409),
}


def provoke(client: Any) -> dict[str, Any]:
    """The five refusals, by reason; none of them runs the view."""
    token = client.get("/idempotency/token").json["token"]
    client.post("/orders", headers={HEADER: token})
    other = client.get("/idempotency/token", environ_overrides={"REMOTE_ADDR": "203.0.113.9"}).json["token"]
    sent = {
        "token_missing": {},
        "token_invalid": {HEADER: "'; DROP TABLE tokens"},
        "token_unknown": {HEADER: "0" * 32},
        "token_foreign": {HEADER: other},
        "duplicate": {HEADER: token},
    }
    return {reason: client.post("/orders", headers=headers) for reason, headers in sent.items()}


def handler(name: str) -> Callable[[Any], Any]:
    def handle(error: Any) -> tuple[str, int]:
        code = getattr(error, "code", None)
        return f"{name}: {error.reason} {error.status} {code} {bool(error.message)}", 418

    return handle


@pytest.mark.case("WIRE-05", "S22")
@pytest.mark.parametrize(
    "kinds",
    [
        [IdempotencyError],
        [HTTPException],
        [Exception],
        [400, 403, 409],
        list(dict.fromkeys(k for k, _ in FIVE.values())),
    ],
    ids=["root", "HTTPException", "Exception", "status", "class"],
)
@pytest.mark.parametrize("where", ["app", "blueprint", "app, registered before init_app"])
def test_the_app_can_own_every_refusal_and_tell_them_apart(ledger, kinds, where):
    app = Flask("tests.helpers")
    app.config["IDEMPOTENCY_ON_DUPLICATE"] = "reject"
    blueprint = with_orders(Blueprint("shop", __name__), ledger)
    if where != "app, registered before init_app":
        Idempotency(app)
    for kind in kinds:
        (blueprint if where == "blueprint" else app).register_error_handler(kind, handler("own"))
    if where == "app, registered before init_app":
        Idempotency(app)
    app.register_blueprint(blueprint)
    for reason, answer in provoke(app.test_client()).items():
        status = FIVE[reason][1]
        assert (answer.status_code, answer.text) == (418, f"own: {reason} {status} {status} True")
    assert len(ledger) == 1


SPECIFICITY: list[tuple[list[tuple[str, Any]], dict[str, str]]] = [
    (
        [("root", IdempotencyError), ("class", TokenUnknown), ("HTTP", HTTPException), ("any", Exception)],
        {"token_unknown": "class", "duplicate": "root", "token_missing": "root"},
    ),
    (
        [("HTTP", HTTPException), ("conflict", 409), ("any", Exception)],
        {"token_unknown": "conflict", "duplicate": "conflict", "token_missing": "HTTP", "token_foreign": "HTTP"},
    ),
    (
        [("class", Duplicate), ("conflict", 409), ("forbidden", 403)],
        {"duplicate": "class", "token_unknown": "conflict", "token_foreign": "forbidden"},
    ),
    (
        [("root", IdempotencyError), ("any", Exception)],
        dict.fromkeys(FIVE, "root"),
    ),
]


@pytest.mark.case("WIRE-05", "S22")
@pytest.mark.parametrize(("handlers", "expected"), SPECIFICITY)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_most_specific_handler_runs(any_store, ledger, handlers, expected, swapped):
    app = with_orders(make_app(any_store, ON_DUPLICATE="reject"), ledger)
    for name, kind in handlers[::-1] if swapped else handlers:
        app.register_error_handler(kind, handler(name))
    answers = provoke(app.test_client())
    assert {reason: answers[reason].text.partition(":")[0] for reason in expected} == expected


@pytest.mark.case("WIRE-05", "S22")
def test_a_blueprints_handler_goes_before_the_apps_and_only_for_its_own_views(any_store, ledger):
    app = with_orders(make_app(any_store, ON_DUPLICATE="reject"), ledger)
    blueprint = with_orders(Blueprint("shop", __name__, url_prefix="/shop"), ledger)
    blueprint.register_error_handler(IdempotencyError, handler("blueprint"))
    app.register_error_handler(TokenMissing, handler("app"))
    app.register_blueprint(blueprint)
    client = app.test_client()
    assert client.post("/shop/orders").text.startswith("blueprint: token_missing")
    assert client.post("/orders").text.startswith("app: token_missing")
    assert_refused(client.post("/orders", headers={HEADER: "x"}), "token_invalid", 400)


@pytest.mark.case("WIRE-05", "S22")
@pytest.mark.parametrize("policy", ["replay", "reject", "ignore", lambda refusal: ("restyled", 202)])
def test_a_handler_that_turns_every_error_into_json_leaves_answers_alone(any_store, ledger, policy):
    """The pattern of Flask's documentation: refusals are re-worded, replays are no errors."""
    app = with_orders(make_app(any_store, ON_DUPLICATE=policy), ledger)

    @app.errorhandler(HTTPException)
    def as_json(error: Any) -> Any:
        response = error.get_response()
        response.data = json.dumps({"code": error.code, "name": error.name, "description": error.description})
        response.content_type = "application/json"
        return response

    app.register_error_handler(Exception, lambda error: ("the app's 500", 500))
    client = app.test_client()
    missing = client.post("/orders")
    assert (missing.status_code, missing.json["code"]) == (400, 400)
    assert "token_missing" in missing.json["name"]
    assert missing.content_length == len(missing.data)
    data = {FIELD: token_of(client)}
    first, second = (client.post("/orders", data=data) for _ in range(2))
    if policy == "replay":
        assert_repeated(second, first)
    elif policy == "reject":
        assert (second.status_code, "duplicate" in second.json["name"]) == (409, True)
    else:
        assert (second.status_code, second.text) == ((204, "") if policy == "ignore" else (202, "restyled"))
    assert len(ledger) == 1


@pytest.mark.case("S22", "WIRE-05")
def test_the_apps_own_errors_are_not_touched(any_store, ledger):
    app = with_orders(make_app(any_store), ledger)
    seen: list[Any] = []

    class OwnError(Exception):
        pass

    app.register_error_handler(IdempotencyError, lambda error: (seen.append(error), ("ours", 400))[1])
    app.register_error_handler(409, lambda error: ("the app's 409", 409))
    app.register_error_handler(OwnError, lambda error: ("the app's own", 400))

    @app.post("/conflict")
    @idempotent
    def conflict() -> Any:
        ledger.add()
        abort(409)

    @app.post("/own")
    @idempotent
    def own() -> Any:
        ledger.add()
        raise OwnError

    client = app.test_client()
    data = {FIELD: token_of(client)}
    assert [client.post("/conflict", data=data).text for _ in range(2)] == ["the app's 409"] * 2
    data = {FIELD: token_of(client)}
    assert [client.post("/own", data=data).text for _ in range(2)] == ["the app's own"] * 2
    assert client.get("/nowhere").status_code == 404
    assert (seen, len(ledger)) == ([], 4)
    assert client.post("/orders").text == "ours"


# --- asked once --------------------------------------------------------------------------------------------------


@pytest.mark.case("WIRE-06")
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("identity", ["binding", "principal", "binding user", "key of the scene"])
def test_hook_and_decorators_count_once_and_ask_who_it_is_once(any_store, policy, ledger, times, identity):
    asked: list[str] = []

    def who() -> str:
        asked.append(request.method)
        return "alice"

    config: dict[str, Any] = {
        "binding": {"BINDING": who},
        "principal": {"PRINCIPAL": who},
        "binding user": {"PRINCIPAL": who, "BINDING": "user"},
        "key of the scene": {},
    }[identity]
    options: dict[str, Any] = {"scene": "order"}
    if identity == "key of the scene":
        options |= {"principal": who, "binding": "user"}
    app = make_app(any_store, ON_DUPLICATE=policy, **config)

    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    view = functools.reduce(lambda view, _: idempotent(**options)(view), range(times), order)
    app.add_url_rule("/orders", "orders", view, methods=["POST"])
    client = app.test_client()
    header = {HEADER: client.get("/idempotency/token?scene=order").json["token"]}
    asked.clear()
    first = client.post("/orders", headers=header)
    once = [] if identity == "principal" and policy == "reject" else ["POST"]  # no answer is kept: nobody need be known
    assert (first.status_code, asked) == (201, once)
    assert_repeated(client.post("/orders", headers=header), first, policy)
    assert asked == once * 2
    assert len(ledger) == 1


@pytest.mark.case("WIRE-06", "S4")
def test_a_hook_that_runs_twice_in_one_request_does_nothing_the_second_time(any_store, policy, ledger):
    app = with_orders(make_app(any_store, ON_DUPLICATE=policy), ledger)
    ours = app.before_request_funcs[None][0]

    @app.before_request
    def again() -> Any:
        return ours()

    client = app.test_client()
    assert_still_good(client, token_of(client), ledger, policy)


# --- async views -------------------------------------------------------------------------------------------------


@pytest.mark.case("WIRE-07", "S5")
def test_an_async_view_is_awaited_restored_and_replayed(any_store, policy, ledger):
    app = make_app(any_store, ON_DUPLICATE=policy)

    @app.post("/orders")
    @idempotent
    async def order() -> tuple[dict[str, int], int]:
        await asyncio.sleep(0)
        if ledger.add() == 1:
            raise ValueError("the first time it fails")
        return {"order": len(ledger)}, 201

    client = app.test_client()
    data = {FIELD: token_of(client)}
    assert client.post("/orders", data=data).status_code == 500
    first = client.post("/orders", data=data)
    assert (first.status_code, first.json) == (201, {"order": 2})
    assert_repeated(client.post("/orders", data=data), first, policy)
    assert_refused(client.post("/orders"), "token_missing", 400)
    assert len(ledger) == 2


@pytest.mark.case("WIRE-07", "FORM-08")
@pytest.mark.parametrize("how", ["abort", "422", "restore", "redirect"])
def test_an_async_view_judges_its_outcome_like_a_sync_one(any_store, ledger, how):
    app = make_app(any_store)

    @app.post("/orders")
    @idempotent
    async def order() -> Any:
        await asyncio.sleep(0)
        if ledger.add() > 2:
            return "made", 201
        if how == "abort":
            abort(422)
        if how == "restore":
            await asyncio.sleep(0)
            current_claim.restore()
        if how == "redirect":
            abort(redirect("/done"))
        return "shown again", 422 if how == "422" else 200

    client = app.test_client()
    data = {FIELD: token_of(client)}
    first, second = (client.post("/orders", data=data) for _ in range(2))
    assert first.status_code == second.status_code == {"restore": 200, "redirect": 302}.get(how, 422)
    assert (REPLAYED in second.headers) is (how == "redirect")
    assert len(ledger) == (1 if how == "redirect" else 2)
    last = [client.post("/orders", data=data) for _ in range(2)][1]
    assert (last.status_code, last.headers[REPLAYED]) == (302 if how == "redirect" else 201, "true")
    assert len(ledger) == (1 if how == "redirect" else 3)


@pytest.mark.case("WIRE-07")
def test_sync_views_stay_sync_and_async_ones_async(any_store, ledger):
    app = make_app(any_store)

    @idempotent
    def plain() -> str:
        return f"plain {ledger.add()}"

    @idempotent(description="with options")
    async def waiting() -> str:
        return f"waiting {ledger.add()}"

    assert not inspect.iscoroutinefunction(plain)
    assert inspect.iscoroutinefunction(waiting)
    assert (plain.__name__, waiting.__name__) == ("plain", "waiting")

    @app.post("/both")
    async def both() -> str:  # an async view that awaits a guarded one: it passes through
        return f"{await waiting()}, {plain()}"

    app.add_url_rule("/plain", view_func=plain, methods=["POST"])
    app.add_url_rule("/waiting", view_func=waiting, methods=["POST"])
    client = app.test_client()
    assert client.post("/both").text == "waiting 1, plain 2"
    for url in ("/plain", "/waiting"):
        data = {FIELD: token_of(client)}
        first, second = (client.post(url, data=data) for _ in range(2))
        assert_repeated(second, first)
    assert len(ledger) == 4


@pytest.mark.case("WIRE-07", "S6")
def test_an_async_handler_of_duplicates(any_store, ledger):
    async def restyled(refusal: Any) -> tuple[str, int]:
        await asyncio.sleep(0)
        return f"once is enough: {refusal.reason}", 200

    app = with_orders(make_app(any_store, ON_DUPLICATE=restyled), ledger)
    client = app.test_client()
    data = {FIELD: token_of(client)}
    assert [client.post("/orders", data=data).text for _ in range(2)] == ["order 1", "once is enough: duplicate"]
    assert len(ledger) == 1


@pytest.mark.case("WIRE-07")
def test_an_async_decorator_above_and_below(any_store, policy, ledger):
    app = make_app(any_store, ON_DUPLICATE=policy)

    def traced(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        async def tracing(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            if inspect.iscoroutinefunction(view):
                return await view(*args, **kwargs)
            return view(*args, **kwargs)

        return tracing

    @app.post("/orders")
    @traced
    @idempotent
    @traced
    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    client = app.test_client()
    assert_still_good(client, token_of(client), ledger, policy)


# --- the off switch ----------------------------------------------------------------------------------------------


@pytest.mark.case("WIRE-08")
@pytest.mark.parametrize("binding", ["ip", "session", lambda: "x"])
def test_switched_off_after_init_views_run_and_no_store_is_needed(ledger, binding):
    class Gone(MemoryStore):
        def issue(self, *args: Any, **kwargs: Any) -> None:
            raise AssertionError("asked")

        claim = settle = get = issue  # type: ignore[assignment]

    app = with_orders(make_app(Gone(), BINDING=binding), ledger)
    client = app.test_client()
    assert_refused(client.post("/orders"), "token_missing", 400)
    app.config["IDEMPOTENCY_ENABLED"] = False
    assert [client.post("/orders").status_code for _ in range(2)] == [201, 201]
    data = {FIELD: token_of(client)}
    for sent in (data, data, {FIELD: "not a token"}):
        answer = client.post("/orders", data=sent)
        assert (answer.status_code, REPLAYED in answer.headers) == (201, False)
    assert len(ledger) == 5
    app.config["IDEMPOTENCY_ENABLED"] = True
    assert_refused(client.post("/orders"), "token_missing", 400)


@pytest.mark.case("WIRE-08")
def test_switched_off_before_init_nothing_is_looked_at_and_switched_on_it_works(ledger):
    app = Flask("tests.helpers")
    app.config["IDEMPOTENCY_ENABLED"] = False
    Idempotency(app)
    with_orders(app, ledger)
    app.add_url_rule("/form", "form", lambda: render_template_string(FORM))
    client = app.test_client()
    assert client.post("/orders", data={FIELD: token_of(client)}).status_code == 201
    assert client.post("/orders").status_code == 201
    app.config["IDEMPOTENCY_ENABLED"] = True
    assert_still_good(client, token_of(client), ledger)


@pytest.mark.case("WIRE-08")
def test_switched_off_current_claim_does_nothing(any_store, ledger):
    app = make_app(any_store)
    held: list[bool] = []

    @app.post("/orders")
    @idempotent
    def order() -> tuple[str, int]:
        held.append(bool(current_claim))
        current_claim.keep()
        current_claim.restore()
        return f"order {ledger.add()}", 400

    client = app.test_client()
    client.post("/orders", data={FIELD: token_of(client)})
    app.config["IDEMPOTENCY_ENABLED"] = False
    assert client.post("/orders").status_code == 400
    assert held == [True, False]


# --- frameworks that answer errors themselves --------------------------------------------------------------------


class Swallowing(MethodView):
    """As API frameworks do: no exception of a method leaves it."""

    def dispatch_request(self, **kwargs: Any) -> Any:
        try:
            return super().dispatch_request(**kwargs)
        except HTTPException as error:
            if error.response is not None or isinstance(error, IdempotencyError):
                raise
            return {"error": error.description}, error.code
        except Exception as error:
            return {"error": str(error)}, 500


@pytest.mark.case("WIRE-09", "S5")
@pytest.mark.parametrize("where", ["method", "class", "an error handler for Exception"])
@pytest.mark.parametrize("fail", ["raise", "abort"])
def test_a_framework_that_swallows_the_exception_does_not_hide_the_failure(any_store, policy, ledger, where, fail):
    app = make_app(any_store, ON_DUPLICATE=policy)

    def post(self: Any) -> Any:
        if ledger.add() == 1:
            if fail == "abort":
                abort(503)
            raise ValueError("no")
        return {"order": len(ledger)}, 201

    if where == "an error handler for Exception":
        app.register_error_handler(Exception, lambda error: error if isinstance(error, HTTPException) else ("own", 500))
        app.add_url_rule("/orders", "orders", idempotent(functools.partial(post, None)), methods=["POST"])
    else:
        members = {"post": idempotent(post)} if where == "method" else {"post": post, "decorators": (idempotent,)}
        app.add_url_rule("/orders", view_func=type("Orders", (Swallowing,), members).as_view("orders"))
    client = app.test_client()
    data = {FIELD: token_of(client)}
    failed = client.post("/orders", data=data)
    assert failed.status_code == (503 if fail == "abort" else 500)
    first = client.post("/orders", data=data)
    assert (first.status_code, first.json) == (201, {"order": 2})
    assert_repeated(client.post("/orders", data=data), first, policy)
    assert len(ledger) == 2


# --- hooks and decorators that answer first ----------------------------------------------------------------------


def _returns() -> Any:
    return Response("slow down", 429)


def _aborts() -> Any:
    abort(429)


def _raises() -> Any:
    raise ValueError("the hook's own error")


def _answers_well() -> Any:
    return "maintenance, but 200"


@pytest.mark.case("WIRE-10", "S5")
@pytest.mark.parametrize("answer", [_returns, _aborts, _raises, _answers_well])
@pytest.mark.parametrize("where", ["before init_app", "after init_app", "blueprint", "decorator"])
@pytest.mark.parametrize(
    "options", [{}, {"consume": True}, {"restore_on_error": False}], ids=["", "consume", "no restore"]
)
def test_whoever_answers_first_leaves_the_token_good(any_store, ledger, where, answer, options):
    app = Flask("tests.helpers")
    on = [True]

    def first() -> Any:
        return answer() if on[0] and request.method == "POST" else None

    def checked(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def check(*args: Any, **kwargs: Any) -> Any:
            return first() or view(*args, **kwargs)

        return check

    if where == "before init_app":
        app.before_request(first)
    Idempotency(app, store=any_store)
    if where == "after init_app":
        app.before_request(first)
    blueprint = Blueprint("shop", __name__)
    if where == "blueprint":
        blueprint.before_request(first)

    @idempotent(**options)
    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    blueprint.add_url_rule("/orders", "orders", checked(order) if where == "decorator" else order, methods=["POST"])
    app.register_blueprint(blueprint)
    app.add_url_rule("/form", "form", lambda: render_template_string(FORM))
    client = app.test_client()
    token = token_of(client)
    expected = {_raises: 500, _answers_well: 200}.get(answer, 429)
    for _ in range(2):
        early = client.post("/orders", data={FIELD: token})
        assert (early.status_code, reason_of(early)) == (expected, None)
        assert REPLAYED not in early.headers
    assert len(ledger) == 0
    on[0] = False
    assert_still_good(client, token, ledger, "reject" if "consume" in options else "replay")


@pytest.mark.case("WIRE-10", "S5")
@pytest.mark.parametrize("propagate", [False, True])
def test_a_hook_whose_error_is_propagated_leaves_the_token_good(any_store, ledger, propagate):
    """Under PROPAGATE_EXCEPTIONS no after-request hook runs; teardown is the net."""
    app = with_orders(make_app(any_store, PROPAGATE_EXCEPTIONS=propagate), ledger)
    on = [True]

    @app.before_request
    def hook() -> None:
        if on[0] and request.method == "POST":
            raise ValueError("the hook's own error")

    client = app.test_client()
    token = token_of(client)
    if propagate:
        with pytest.raises(ValueError, match="own error"):
            client.post("/orders", data={FIELD: token})
    else:
        assert client.post("/orders", data={FIELD: token}).status_code == 500
    on[0] = False
    assert_still_good(client, token, ledger)


@pytest.mark.case("WIRE-10", "S6")
def test_a_permission_check_goes_before_every_answer_of_ours(any_store, policy, ledger):
    """A login check above the guard: neither a refusal nor a stored answer is told to whom it does not concern."""
    app = make_app(any_store, ON_DUPLICATE=policy)

    def login_required(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def checked(*args: Any, **kwargs: Any) -> Any:
            if "X-User" not in request.headers:
                abort(401)
            return view(*args, **kwargs)

        return checked

    @app.post("/orders")
    @login_required
    @idempotent
    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    client = app.test_client()
    token, user = token_of(client), {"X-User": "alice"}
    for header in ({}, {HEADER: token}, {HEADER: "0" * 32}, {HEADER: "malformed"}):
        assert client.post("/orders", headers=header).status_code == 401
    first = client.post("/orders", headers={HEADER: token, **user})
    assert first.status_code == 201
    assert client.post("/orders", headers={HEADER: token}).status_code == 401
    assert_repeated(client.post("/orders", headers={HEADER: token, **user}), first, policy)
    assert len(ledger) == 1


# --- teardown ----------------------------------------------------------------------------------------------------


@pytest.mark.case("WIRE-11")
@pytest.mark.parametrize("registered", ["before init_app", "after init_app"])
@pytest.mark.parametrize("kind", ["teardown_request", "teardown_appcontext"])
def test_a_teardown_that_raises_leaves_nothing_behind(any_store, policy, ledger, registered, kind):
    app = Flask("tests.helpers")
    app.config["IDEMPOTENCY_ON_DUPLICATE"] = policy
    on = [False]

    def teardown(error: BaseException | None) -> None:
        if on[0]:
            on[0] = False
            raise LookupError("the app's teardown")

    if registered == "before init_app":
        getattr(app, kind)(teardown)
    Idempotency(app, store=any_store)
    if registered == "after init_app":
        getattr(app, kind)(teardown)
    with_orders(app, ledger)
    app.add_url_rule("/form", "form", lambda: render_template_string(FORM))
    client = app.test_client()
    one, two = token_of(client), token_of(client)
    on[0] = True
    with pytest.raises(LookupError):
        client.post("/orders", data={FIELD: one})
    second = app.test_client().post("/orders", data={FIELD: two})
    assert (second.status_code, second.text) == (201, "order 2")
    repeat = app.test_client().post("/orders", data={FIELD: one})
    if policy == "reject":
        assert_refused(repeat, "duplicate")
    else:
        assert (repeat.status_code, repeat.text, repeat.headers[REPLAYED]) == (201, "order 1", "true")
    assert len(ledger) == 2


@pytest.mark.case("WIRE-11", "S9")
def test_requests_under_one_pushed_context_do_not_mix(any_store, policy, ledger):
    app = with_orders(make_app(any_store, ON_DUPLICATE=policy), ledger)
    with app.app_context():
        g.anything = 1  # `g` lives as long as this context does
        client = app.test_client()
        for _ in range(3):
            assert_still_good(client, token_of(client), ledger, policy)
    assert len(ledger) == 3


@pytest.mark.case("WIRE-11", "S5")
def test_a_client_that_preserves_its_context_leaves_nothing_behind(any_store, policy, ledger):
    app = with_orders(make_app(any_store, ON_DUPLICATE=policy), ledger)
    with app.test_client() as client:
        for _ in range(3):
            assert_still_good(client, token_of(client), ledger, policy)
            assert request.method == "POST"
    assert len(ledger) == 3
