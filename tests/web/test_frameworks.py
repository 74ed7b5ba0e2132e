"""Beside other extensions: API frameworks that serialise a view's value, login, CSRF protection."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apiflask
import flask_smorest
import marshmallow
import pytest
from flask import Flask, abort, redirect, render_template_string
from flask.views import MethodView
from flask_login import LoginManager, UserMixin, login_required, login_user
from flask_wtf import CSRFProtect, FlaskForm
from wtforms import StringField
from wtforms.validators import Length

from flask_idempotent import Idempotency, IdempotencyError, StoreUnavailable, idempotent
from flask_idempotent.stores.memory import MemoryStore
from tests.helpers import FIELD, HEADER, REPLAYED, Ledger, assert_refused, assert_repeated, make_app, token_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own imports
    import flask_restful
    import flask_restful.fields

View = Callable[..., Any]
Decorator = Callable[[View], View]


class OrderSchema(marshmallow.Schema):
    """Renames and reorders, so that an answer that skipped it or met it twice would show."""

    id = marshmallow.fields.Integer(attribute="number")
    note = marshmallow.fields.String(dump_default="–")


class SentSchema(marshmallow.Schema):
    id = marshmallow.fields.Integer()
    note = marshmallow.fields.String()


class Bench:
    """One app under one framework, with one guarded view that books in a ledger.

    :param place: whether our decorator is ``below`` or ``above`` the framework's.
    """

    def __init__(self, place: str, options: dict[str, Any]) -> None:
        self.ledger = Ledger()
        self.meanwhile: Callable[[], Any] | None = None
        self.failure: Callable[[], Any] | None = None
        self.place = place
        self.guard: Decorator = idempotent(**options)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        number = self.ledger.add()
        if self.failure is not None:
            self.failure()
        if self.meanwhile is not None:
            self.meanwhile()
        return {"number": number, "note": "ä", "secret": "not in the schema"}

    def wrap(self, theirs: Decorator, view: View) -> View:
        return theirs(self.guard(view)) if self.place == "below" else self.guard(theirs(view))


def set_up(app: Flask, store: Any, config: dict[str, Any]) -> Flask:
    app.config.update(SECRET_KEY="x", PROPAGATE_EXCEPTIONS=False)
    app.config.update({f"IDEMPOTENCY_{key}": value for key, value in config.items()})
    Idempotency(app, store=store)
    return app


def smorest_function(bench: Bench, store: Any, config: dict[str, Any]) -> Flask:
    app = Flask("tests.helpers")
    app.config.update(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.3")
    set_up(app, store, config)
    blueprint = flask_smorest.Blueprint("shop", "shop")

    def order(*args: Any) -> Any:
        return bench.view()

    theirs = blueprint.response(201, OrderSchema)
    blueprint.route("/orders", methods=["POST"])(bench.wrap(theirs, order))
    flask_smorest.Api(app).register_blueprint(blueprint)
    return app


def smorest_class(bench: Bench, store: Any, config: dict[str, Any]) -> Flask:
    app = Flask("tests.helpers")
    app.config.update(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.3")
    set_up(app, store, config)
    blueprint = flask_smorest.Blueprint("shop", "shop")

    def post(self: Any, sent: Any) -> Any:
        return bench.view()

    def theirs(view: View) -> View:
        return blueprint.arguments(SentSchema)(blueprint.response(201, OrderSchema)(view))

    cls = type("Orders", (MethodView,), {"post": bench.wrap(theirs, post)})
    blueprint.route("/orders")(cls)
    flask_smorest.Api(app).register_blueprint(blueprint)
    return app


def smorest_etag(bench: Bench, store: Any, config: dict[str, Any]) -> Flask:
    app = Flask("tests.helpers")
    app.config.update(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.3")
    set_up(app, store, config)
    blueprint = flask_smorest.Blueprint("shop", "shop")

    def order() -> Any:
        blueprint.set_etag({"version": 1})
        return bench.view()

    def theirs(view: View) -> View:
        return blueprint.etag(blueprint.response(201, OrderSchema)(view))

    blueprint.route("/orders", methods=["POST"])(bench.wrap(theirs, order))
    flask_smorest.Api(app).register_blueprint(blueprint)
    return app


FIELDS = {"id": flask_restful.fields.Integer(attribute="number"), "note": flask_restful.fields.String}


def restful_marshal(bench: Bench, store: Any, config: dict[str, Any]) -> Flask:
    def post(self: Any) -> Any:
        return bench.view(), 201, {"X-Made": "here"}

    return _restful({"post": bench.wrap(flask_restful.marshal_with(FIELDS), post)}, store, config)


def restful_decorators(bench: Bench, store: Any, config: dict[str, Any]) -> Flask:
    """``method_decorators`` apply the last one outermost."""

    def post(self: Any) -> Any:
        return bench.view(), 201

    order = [bench.guard, flask_restful.marshal_with(FIELDS)]
    return _restful(
        {"post": post, "method_decorators": order if bench.place == "below" else order[::-1]}, store, config
    )


def restful_api(bench: Bench, store: Any, config: dict[str, Any]) -> Flask:
    """Above everything: around the whole resource, where values have become responses."""

    def post(self: Any) -> Any:
        return bench.view(), 201

    members = {"post": flask_restful.marshal_with(FIELDS)(post)}
    if bench.place == "above":
        return _restful(members, store, config, decorators=[bench.guard])
    return _restful({**members, "decorators": [bench.guard]}, store, config)


def _restful(members: dict[str, Any], store: Any, config: dict[str, Any], **api: Any) -> Flask:
    app = set_up(Flask("tests.helpers"), store, config)
    resource = type("Orders", (flask_restful.Resource,), members)
    flask_restful.Api(app, **api).add_resource(resource, "/orders")
    return app


def apiflask_function(bench: Bench, store: Any, config: dict[str, Any]) -> Flask:
    app = apiflask.APIFlask("tests.helpers")
    set_up(app, store, config)

    def order(**kwargs: Any) -> Any:
        return bench.view()

    def theirs(view: View) -> View:
        return app.input(SentSchema, arg_name="sent")(app.output(OrderSchema, status_code=201)(view))

    app.post("/orders")(bench.wrap(theirs, order))
    return app


def apiflask_class(bench: Bench, store: Any, config: dict[str, Any]) -> Flask:
    app = apiflask.APIFlask("tests.helpers")
    set_up(app, store, config)

    def post(self: Any) -> Any:
        return bench.view()

    method = bench.wrap(app.output(OrderSchema, status_code=201), post)
    app.add_url_rule(
        "/orders", view_func=type("Orders", (apiflask.views.MethodView,), {"post": method}).as_view("orders")
    )
    return app


FRAMEWORKS = [
    smorest_function,
    smorest_class,
    smorest_etag,
    restful_marshal,
    restful_decorators,
    restful_api,
    apiflask_function,
    apiflask_class,
]


@pytest.fixture(params=["below", "above"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param, {})


@pytest.fixture(params=FRAMEWORKS, ids=lambda make: make.__name__)
def framework(request: pytest.FixtureRequest) -> Callable[..., Flask]:
    return request.param


def token_from(client: Any, **options: Any) -> str:
    body = client.get("/idempotency/token", **options).json
    return str(body.get("data", body)["token"])


def order(client: Any, token: str | None = None, note: str = "n", **options: Any) -> Any:
    headers = {HEADER: token} if token else {}
    return client.post("/orders", json={"note": note}, headers={**headers, **options.pop("headers", {})}, **options)


def what_came(answer: Any) -> tuple[Any, ...]:
    """All of an answer but the mark of a replay."""
    return answer.status, answer.data, sorted((n, v) for n, v in answer.headers.items() if n != REPLAYED)


@pytest.mark.case("S7", "S6")
def test_first_answer_and_replay_are_byte_identical(any_store, framework, bench):
    client = framework(bench, any_store, {}).test_client()
    token = token_from(client)
    first = order(client, token)
    assert (first.status_code, first.json) == (201, {"id": 1, "note": "ä"})
    for _ in range(2):
        second = order(client, token)
        assert what_came(second) == what_came(first)
        assert second.headers[REPLAYED] == "true"
    assert order(client, token_from(client)).json["id"] == 2
    assert len(bench.ledger) == 2


@pytest.mark.case("WIRE-09", "S5")
@pytest.mark.parametrize("how", ["an exception", "abort(503)", "abort(422)"])
def test_a_failure_makes_the_token_good_again(any_store, framework, bench, how):
    def fail() -> None:
        if how == "an exception":
            raise ValueError("no")
        abort(int(how[6:9]))

    client = framework(bench, any_store, {}).test_client()
    token = token_from(client)
    bench.failure = fail
    for _ in range(2):
        assert order(client, token).status_code == (500 if how == "an exception" else int(how[6:9]))
    bench.failure = None
    first = order(client, token)
    assert (first.status_code, first.json["id"]) == (201, 3)
    assert what_came(order(client, token)) == what_came(first)
    assert len(bench.ledger) == 3


@pytest.mark.case("S22", "S6")
@pytest.mark.parametrize("error_format", ["problem", "envelope"])
def test_refusals_keep_their_reason_and_status(framework, bench, error_format):
    client = framework(bench, None, {"ON_DUPLICATE": "reject", "ERROR_FORMAT": error_format}).test_client()
    token = token_from(client)
    other = token_from(client, environ_overrides={"REMOTE_ADDR": "203.0.113.9"})
    assert order(client, token).status_code == 201
    for reason, status, answer in (
        ("token_missing", 400, order(client)),
        ("token_invalid", 400, order(client, "malformed")),
        ("token_unknown", 409, order(client, "0" * 32)),
        ("token_foreign", 403, order(client, other)),
        ("token_reused", 422, order(client, token, note="another")),
        ("duplicate", 409, order(client, token)),
    ):
        assert answer.status_code == status
        assert reason in answer.text
        assert answer.is_json or answer.mimetype == "application/problem+json"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Retry-After" not in answer.headers
    assert len(bench.ledger) == 1


@pytest.mark.case("S22", "FORM-02")
def test_a_running_duplicate_keeps_reason_and_retry_after(any_store, framework, bench):
    app = framework(bench, any_store, {})
    seconds: list[Any] = []
    token = token_from(app.test_client())

    def click_again() -> None:
        bench.meanwhile = None
        with ThreadPoolExecutor(1) as pool:
            seconds.append(pool.submit(lambda: order(app.test_client(), token)).result(timeout=10))

    bench.meanwhile = click_again
    assert order(app.test_client(), token).status_code == 201
    (second,) = seconds
    assert second.status_code == 409
    assert "in_progress" in second.text
    assert second.headers.getlist("Retry-After") == ["2"]
    assert len(bench.ledger) == 1


@pytest.mark.case("S22")
def test_without_a_store_reason_and_retry_after_are_kept(framework, bench):
    class Gone(MemoryStore):
        def claim(self, *args: Any, **kwargs: Any) -> Any:
            raise StoreUnavailable("gone")

    client = framework(bench, Gone(), {}).test_client()
    answer = order(client, token_from(client))
    assert answer.status_code == 503
    assert "store_unavailable" in answer.text
    assert answer.headers.getlist("Retry-After") == ["1"]
    assert len(bench.ledger) == 0


@pytest.mark.case("S22", "WIRE-05")
def test_the_cure_in_the_docs_gives_our_body_everywhere(framework, bench):
    app = framework(bench, None, {"ON_DUPLICATE": "reject"})
    app.register_error_handler(IdempotencyError, lambda error: error)
    client = app.test_client()
    token = token_from(client)
    assert order(client, token).status_code == 201
    refused = order(client, token)
    assert_refused(refused, "duplicate")
    assert refused.mimetype == "application/problem+json"
    assert len(bench.ledger) == 1


@pytest.mark.case("S6", "FORM-03")
@pytest.mark.parametrize("policy", ["ignore", "callable"])
@pytest.mark.parametrize("place", ["below", "above"])
def test_other_policies_answer_past_the_framework(framework, place, policy):
    bench = Bench(place, {"on_duplicate": "ignore" if policy == "ignore" else lambda refusal: redirect("/done", 303)})
    client = framework(bench, None, {}).test_client()
    token = token_from(client)
    assert order(client, token).status_code == 201
    second = order(client, token)
    assert (second.status_code, second.location) == ((204, None) if policy == "ignore" else (303, "/done"))
    assert len(bench.ledger) == 1


@pytest.mark.case("WIRE-09")
def test_what_the_framework_refuses_leaves_the_token_good(any_store, bench):
    """Arguments that do not validate, above the guard or below it."""
    for make in (smorest_class, apiflask_function):
        bench.ledger = Ledger()
        client = make(bench, any_store, {}).test_client()
        token = token_from(client)
        bad = client.post("/orders", json={"id": "no number"}, headers={HEADER: token})
        assert bad.status_code == 422
        assert REPLAYED not in bad.headers
        first = order(client, token)
        assert first.status_code == 201
        assert what_came(order(client, token)) == what_came(first)
        assert len(bench.ledger) == 1


@pytest.mark.case("WIRE-09", "S22")
def test_a_restful_app_that_serves_all_404s_itself(any_store):
    """With ``catch_all_404s`` and its own handlers Flask-RESTful takes over the app's error handling."""
    ledger = Ledger()
    app = make_app(any_store, ON_DUPLICATE="reject")

    class Orders(flask_restful.Resource):
        @idempotent
        def post(self) -> Any:
            ledger.add()
            return {"made": True}, 201

    flask_restful.Api(app, catch_all_404s=True, errors={"Duplicate": {"message": "own"}}).add_resource(
        Orders, "/orders"
    )

    @app.post("/plain")
    @idempotent
    def plain() -> Any:
        return f"plain {ledger.add()}", 201

    client = app.test_client()
    for path in ("/orders", "/plain"):
        data = {FIELD: token_of(client)}
        assert client.post(path, data=data).status_code == 201
        assert_refused(client.post(path, data=data), "duplicate")
    assert client.get("/nowhere").status_code == 404
    assert len(ledger) == 2


@pytest.mark.case("S7")
@pytest.mark.parametrize("framework", ["flask-smorest", "APIFlask"])
def test_above_a_frameworks_route_it_is_an_error_too(framework):
    app = apiflask.APIFlask("tests.helpers") if framework == "APIFlask" else Flask("tests.helpers")
    app.config.update(API_TITLE="shop", API_VERSION="1", OPENAPI_VERSION="3.0.3")
    set_up(app, None, {})
    app.config["PROPAGATE_EXCEPTIONS"] = True
    blueprint = flask_smorest.Blueprint("shop", "shop")
    theirs = app if framework == "APIFlask" else blueprint
    output = theirs.output(OrderSchema) if framework == "APIFlask" else theirs.response(200, OrderSchema)

    @idempotent
    @theirs.route("/orders", methods=["POST"])
    @output
    def order() -> dict[str, int]:
        return {"number": 1}

    if framework == "flask-smorest":
        flask_smorest.Api(app).register_blueprint(blueprint)
    with pytest.raises(RuntimeError, match=r"below the route"):
        app.test_client().post("/orders")


# --- Flask-Login -------------------------------------------------------------------------------------------------


class User(UserMixin):
    def __init__(self, name: str) -> None:
        self.id = name


def with_login(app: Flask) -> Flask:
    LoginManager(app).user_loader(User)

    @app.post("/login/<name>")
    def login(name: str) -> str:
        login_user(User(name))
        return "welcome"

    return app


@pytest.mark.case("WIRE-10", "S6")
@pytest.mark.parametrize("place", ["below", "above"])
def test_beside_flask_login(any_store, policy, place):
    ledger = Ledger()
    app = with_login(make_app(any_store, ON_DUPLICATE=policy))

    def order() -> tuple[str, int]:
        return f"order {ledger.add()} of a user", 201

    view = login_required(idempotent(order)) if place == "below" else idempotent(login_required(order))
    app.add_url_rule("/orders", "orders", view, methods=["POST"])
    client, other = app.test_client(), app.test_client()
    token = token_of(client)
    assert client.post("/orders", data={FIELD: token}).status_code == 401
    client.post("/login/alice")
    other.post("/login/bob")
    first = client.post("/orders", data={FIELD: token})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", data={FIELD: token}), first, policy)
    # Another user behind the same address, with a stolen token: no second run, and nothing to see.
    stranger = other.post("/orders", data={FIELD: token})
    assert stranger.status_code in (401, 409)
    assert "of a user" not in stranger.text
    anonymous = app.test_client().post("/orders", data={FIELD: token})
    assert anonymous.status_code == (401 if place == "below" else 409)
    assert "of a user" not in anonymous.text
    assert len(ledger) == 1


# --- Flask-WTF ---------------------------------------------------------------------------------------------------

WTF_PAGE = "<form method=post>{{ idempotency_token() }}<input name={{ name }} value='{{ csrf_token() }}'></form>"


class OrderForm(FlaskForm):
    amount = StringField(validators=[Length(max=3)])


def with_csrf(store: Any, ledger: Ledger, order: str, **config: Any) -> Flask:
    """An app with CSRF protection, initialised before or after ours."""
    app = Flask("tests.helpers")
    app.config.update(SECRET_KEY="a secret of the tests", **config)
    name = app.config.get("WTF_CSRF_FIELD_NAME", "csrf_token")
    for each in (CSRFProtect, lambda app: Idempotency(app, store=store))[:: 1 if order == "before" else -1]:
        each(app)
    app.add_url_rule("/form", "form", lambda: render_template_string(WTF_PAGE, name=name))

    @app.post("/orders")
    @idempotent
    def make_order() -> Any:
        form = OrderForm()
        if not form.validate_on_submit():
            return render_template_string(WTF_PAGE, name=name), 422
        return f"order {ledger.add()}", 201

    return app


def fields_of(page: str, name: str = "csrf_token") -> dict[str, str]:
    token = re.search(rf'name="{FIELD}" value="([^"]+)"', page)[1]
    return {FIELD: token, name: re.search(rf"name={name} value='([^']+)'", page)[1]}


@pytest.mark.case("WIRE-10", "FORM-08", "S5")
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("field", ["csrf_token", "once_more"])
def test_beside_csrf_protection(any_store, policy, order, field, monkeypatch):
    ledger = Ledger()
    config = {"WTF_CSRF_FIELD_NAME": field, "IDEMPOTENCY_ON_DUPLICATE": policy}
    client = with_csrf(any_store, ledger, order, **config).test_client()
    earlier = time.time() - 60
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: earlier)
        fields = fields_of(client.get("/form").text, field)
    # Their refusal comes first, and uses nothing up.
    refused = client.post("/orders", data={FIELD: fields[FIELD], "amount": "1"})
    assert (refused.status_code, "CSRF" in refused.text) == (400, True)
    bad = client.post("/orders", data={**fields, "amount": "12345"})
    assert bad.status_code == 422
    first = client.post("/orders", data={**fields, "amount": "1"})
    assert first.status_code == 201
    # The same form once more, and once more with the CSRF value of a newer page.
    newer = fields_of(client.get("/form").text, field)[field]
    assert newer != fields[field]
    for data in (fields, {**fields, field: newer}):
        assert_repeated(client.post("/orders", data={**data, "amount": "1"}), first, policy)
    assert_refused(client.post("/orders", data={**fields, "amount": "2"}), "token_reused", 422)
    assert client.post("/orders", data={**fields_of(bad.text, field), "amount": "2"}).status_code == 201
    assert len(ledger) == 2


@pytest.mark.case("S2", "WIRE-10")
@pytest.mark.parametrize("order", ["before", "after"])
def test_a_script_beside_csrf_protection(any_store, order):
    ledger = Ledger()
    client = with_csrf(any_store, ledger, order, WTF_CSRF_CHECK_DEFAULT=True).test_client()
    csrf = fields_of(client.get("/form").text)["csrf_token"]
    headers = {HEADER: client.get("/idempotency/token").json["token"]}
    assert client.post("/orders", json={"amount": "1"}, headers=headers).status_code == 400
    headers["X-CSRFToken"] = csrf
    first = client.post("/orders", json={"amount": "1"}, headers=headers)
    assert first.status_code == 201
    assert_repeated(client.post("/orders", json={"amount": "1"}, headers=headers), first)
    assert len(ledger) == 1
