"""The look at all view functions: what was decorated in vain is said, and hidden marks guard all the same."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, request
from flask.views import MethodView, View

from flask_idempotent import Idempotency, idempotent
from flask_idempotent.stores.memory import MemoryStore
from tests.helpers import FIELD, HEADER, Ledger, assert_refused, assert_repeated, make_app, token_of


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def line_of(function: Any) -> str:
    """Where the function is written, as messages name it."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        r.getMessage() for r in caplog.records if r.name.startswith("flask_idempotent") and r.levelno == logging.WARNING
    ]


def assert_guarded(app: Flask, ledger: Ledger, url: str = "/orders", method: str = "POST") -> None:
    """The route runs once for a token, and not without one."""
    client = app.test_client()
    token = token_of(client)
    before = len(ledger)
    assert_refused(client.open(url, method=method), "token_missing", 400)
    first, second = (client.open(url, method=method, data={FIELD: token}) for _ in range(2))
    assert first.status_code == 201, first.text
    assert_repeated(second, first)
    assert len(ledger) == before + 1


def assert_unguarded(app: Flask, ledger: Ledger, url: str, method: str = "POST") -> None:
    before = len(ledger)
    assert [app.test_client().open(url, method=method).status_code for _ in range(2)] == [201, 201]
    assert len(ledger) == before + 2


def view_of(ledger: Ledger) -> Callable[..., Any]:
    def order(*args: Any, **kwargs: Any) -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    return order


# --- decorated above its route -----------------------------------------------------------------------------------


def _function(app: Flask) -> Callable[..., Any]:
    @idempotent
    @app.post("/orders")
    def order() -> str:
        return "unprotected"

    return order


def _with_options(app: Flask) -> Callable[..., Any]:
    @idempotent(scene="order", on_duplicate="reject")
    @app.route("/orders", methods=["GET", "POST"])
    def order() -> str:
        return "unprotected"

    return order


def _between_decorators(app: Flask) -> Callable[..., Any]:
    def login_required(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def checked(*args: Any, **kwargs: Any) -> Any:
            return view(*args, **kwargs)

        return checked

    @login_required
    @idempotent
    @app.post("/orders")
    @login_required
    def order() -> str:
        return "unprotected"

    return order


def _on_a_nested_blueprint(app: Flask) -> Callable[..., Any]:
    parent, child = Blueprint("parent", __name__), Blueprint("child", __name__)

    @idempotent
    @child.post("/orders")
    def order() -> str:
        return "unprotected"

    parent.register_blueprint(child)
    app.register_blueprint(parent)
    return order


def _async(app: Flask) -> Callable[..., Any]:
    @idempotent
    @app.post("/orders")
    async def order() -> str:
        return "unprotected"

    return order


def _by_hand(app: Flask) -> Callable[..., Any]:
    def order() -> str:
        return "unprotected"

    app.add_url_rule("/orders", view_func=order, methods=["POST"])
    return idempotent(order)


@pytest.mark.case("S7")
@pytest.mark.parametrize(
    "decorated", [_function, _with_options, _between_decorators, _on_a_nested_blueprint, _async, _by_hand]
)
def test_a_mark_above_the_route_is_an_error_on_every_request_that_names_file_and_line(decorated):
    app = make_app(PROPAGATE_EXCEPTIONS=True)
    place = line_of(decorated(app))
    client = app.test_client()
    for url, method in (("/orders", "POST"), ("/form", "GET"), ("/orders", "POST"), ("/nowhere", "GET")):
        with pytest.raises(RuntimeError, match=re.escape(place)) as caught:
            client.open(url, method=method)
        assert "below the route" in str(caught.value)


@pytest.mark.case("S7")
def test_every_such_mistake_is_named_at_once():
    app = make_app(PROPAGATE_EXCEPTIONS=True)
    places = []
    for number in range(3):

        def order() -> str:
            return "unprotected"

        app.add_url_rule(f"/orders/{number}", f"order{number}", order, methods=["POST"])
        idempotent(order)
        places.append(line_of(order))
    with pytest.raises(RuntimeError) as caught:
        app.test_client().get("/form")
    assert all(place in str(caught.value) for place in places)


@pytest.mark.case("S7")
def test_in_production_the_error_is_a_500_until_it_is_mended(caplog):
    app = make_app()
    _function(app)
    assert [app.test_client().post("/orders").status_code for _ in range(2)] == [500, 500]
    assert "below the route" in caplog.text


@pytest.mark.case("WIRE-08")
def test_switched_off_nobody_looks():
    app = make_app(PROPAGATE_EXCEPTIONS=True)
    _function(app)
    with pytest.raises(RuntimeError):
        app.test_client().get("/form")
    app.config["IDEMPOTENCY_ENABLED"] = False
    assert app.test_client().post("/orders").text == "unprotected"


@pytest.mark.case("S7")
@pytest.mark.parametrize("decorate", [idempotent, idempotent(), lambda view: idempotent(view, scene="order")])
def test_with_and_without_parentheses(ledger, decorate):
    app = make_app()
    app.add_url_rule("/orders", "orders", decorate(view_of(ledger)), methods=["POST"])
    assert_guarded(app, ledger)


@pytest.mark.case("S7")
def test_the_same_function_may_be_a_view_both_guarded_and_not(ledger):
    app = make_app()
    order = view_of(ledger)
    app.add_url_rule("/import", "import", order, methods=["POST"])
    app.add_url_rule("/orders", "orders", idempotent(order), methods=["POST"])
    assert_guarded(app, ledger)
    assert_unguarded(app, ledger, "/import")


@pytest.mark.case("S7")
def test_a_function_that_is_no_view_of_this_app_is_nobodys_business(ledger):
    app, other = make_app(), make_app()

    @idempotent
    def elsewhere() -> str:
        return "a view of another app, or of none"

    other.add_url_rule("/elsewhere", view_func=elsewhere, methods=["POST"])
    app.add_url_rule("/orders", view_func=idempotent(view_of(ledger)), methods=["POST"])
    assert_guarded(app, ledger)


# --- warnings ----------------------------------------------------------------------------------------------------


@pytest.mark.case("S7")
@pytest.mark.parametrize("methods", [["GET"], ["GET", "HEAD", "OPTIONS"], ["TRACE"], None])
def test_a_view_of_safe_methods_only_is_warned_of_once(ledger, caplog, methods):
    app = make_app()
    seen = idempotent(view_of(ledger))
    app.add_url_rule("/page", "page", seen, methods=methods)
    for _ in range(3):
        app.test_client().open("/page", method=methods[0] if methods else "GET")
    (warning,) = warnings_of(caplog)
    assert line_of(seen) in warning
    assert "methods that are never guarded" in warning
    assert len(ledger) == 3  # a safe method is never guarded


@pytest.mark.case("S7")
def test_the_methods_that_the_app_has_set_decide(ledger, caplog):
    app = make_app(METHODS=("POST",))
    put = idempotent(view_of(ledger))
    app.add_url_rule("/orders", "orders", idempotent(view_of(ledger)), methods=["GET", "POST", "PUT"])
    app.add_url_rule("/put", "put", put, methods=["PUT"])
    assert_guarded(app, ledger)
    assert_unguarded(app, ledger, "/orders", "PUT")
    assert_unguarded(app, ledger, "/put", "PUT")
    (warning,) = warnings_of(caplog)
    assert line_of(put) in warning


class Guarded(MethodView):
    ledger: Ledger

    @idempotent
    def post(self) -> tuple[str, int]:
        return f"order {self.ledger.add()}", 201


class GuardedView(View):
    ledger: Ledger
    methods = ("POST",)

    @idempotent
    def dispatch_request(self) -> tuple[str, int]:
        return f"order {self.ledger.add()}", 201


def lost_override(base: type[View], name: str) -> type[View]:
    def override(self: Any) -> tuple[str, int]:
        return f"order {self.ledger.add()}", 201

    return type("Override", (base,), {name: override})


@pytest.mark.case("S7")
@pytest.mark.parametrize(("base", "name"), [(Guarded, "post"), (GuardedView, "dispatch_request")])
@pytest.mark.parametrize("again", [False, True])
def test_an_override_that_lost_its_mark_is_warned_of(ledger, caplog, base, name, again):
    child = lost_override(base, name)
    if again:
        child = type("Again", (child,), {})
    child.ledger = ledger
    app = make_app()
    app.add_url_rule("/orders", view_func=child.as_view("orders"), methods=["POST"])
    assert_unguarded(app, ledger, "/orders")
    (warning,) = warnings_of(caplog)
    assert line_of(getattr(child, name)) in warning
    assert "overrides" in warning


@pytest.mark.case("S7")
def test_an_override_that_has_a_mark_or_a_guarded_class_is_in_order(ledger, caplog):
    class Marked(Guarded):
        @idempotent
        def post(self) -> tuple[str, int]:
            return f"order {ledger.add()}", 201

    class ByClass(lost_override(Guarded, "post")):  # type: ignore[misc]
        decorators = (idempotent,)

    class Inherits(Guarded):
        def get(self) -> str:
            return "the list"

    app = make_app()
    for cls in (Marked, ByClass, Inherits):
        cls.ledger = ledger
        app.add_url_rule(f"/{cls.__name__}", view_func=cls.as_view(cls.__name__))
        assert cls is not None
    for cls in (Marked, ByClass, Inherits):
        assert_guarded(app, ledger, f"/{cls.__name__}")
    assert warnings_of(caplog) == []


# --- scenes ------------------------------------------------------------------------------------------------------


@pytest.mark.case("S9")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"binding": "session"}, {}),
        ({"binding": "session"}, {"binding": "none"}),
        ({"store": "audit"}, {}),
        ({"store": "audit"}, {"store": "other"}),
        ({"binding": "none"}, {"binding": lambda: "x"}),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_views_of_one_scene_that_differ_in_binding_or_store_are_an_error(ledger, one, other, swapped):
    app = make_app(STORES={"audit": MemoryStore(), "other": MemoryStore()}, PROPAGATE_EXCEPTIONS=True)
    views = []
    for number, options in enumerate((other, one) if swapped else (one, other)):
        views.append(idempotent(scene="order", **options)(view_of(ledger)))
        app.add_url_rule(f"/{number}", f"view{number}", views[-1], methods=["POST"])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="scene 'order'") as caught:
            app.test_client().get("/form")
    assert all(line_of(view) in str(caught.value) for view in views)


@pytest.mark.case("S9")
def test_views_of_one_scene_that_agree_are_in_order(any_store, ledger):
    app = make_app(any_store, STORES={"audit": MemoryStore()})
    for number in range(2):
        options = {"scene": "order", "binding": "none", "store": "audit", "ttl": number + 1}
        app.add_url_rule(f"/{number}", f"v{number}", idempotent(**options)(view_of(ledger)), methods=["POST"])
    client = app.test_client()
    for number in range(2):
        token = client.get("/idempotency/token?scene=order").json["token"]
        first, second = (client.post(f"/{number}", headers={HEADER: token}) for _ in range(2))
        assert first.status_code == 201
        assert_repeated(second, first)
    assert len(ledger) == 2


@pytest.mark.case("S9")
@pytest.mark.parametrize("options", [{"binding": "session"}, {"binding": lambda: "x"}, {"store": "audit"}])
def test_what_acts_when_a_token_is_issued_needs_a_scene(ledger, options):
    app = make_app(STORES={"audit": MemoryStore()}, PROPAGATE_EXCEPTIONS=True)
    view = idempotent(**options)(view_of(ledger))
    app.add_url_rule("/orders", "orders", view, methods=["POST"])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="scene=") as caught:
            app.test_client().get("/form")
    assert line_of(view) in str(caught.value)


@pytest.mark.case("S9")
def test_a_store_that_nobody_configured_is_an_error_that_names_it(ledger):
    app = make_app(PROPAGATE_EXCEPTIONS=True)
    view = idempotent(scene="order", store="audit")(view_of(ledger))
    app.add_url_rule("/orders", "orders", view, methods=["POST"])
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"'audit'.*IDEMPOTENCY_STORES") as caught:
            app.test_client().get("/form")
    assert line_of(view) in str(caught.value)


# --- hidden marks, and where marks may stand ---------------------------------------------------------------------


def no_wraps(view: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return checked


def with_wraps(view: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(view)(no_wraps(view))


class Caller:
    """A decorator that is an object."""

    def __init__(self, view: Callable[..., Any]) -> None:
        self.view = view

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.view(*args, **kwargs)


class Slotted:
    """One that can neither be hashed nor referred to weakly."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("view",)

    def __init__(self, view: Callable[..., Any]) -> None:
        self.view = view

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.view(*args, **kwargs)


LAYERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "plain": lambda view: idempotent(view),
    "with options": lambda view: idempotent(description="an order")(view),
    "wraps above": lambda view: with_wraps(idempotent(view)),
    "wraps below": lambda view: idempotent(with_wraps(view)),
    "wraps twice above": lambda view: with_wraps(with_wraps(idempotent(view))),
    "no wraps above": lambda view: no_wraps(idempotent(view)),
    "no wraps below": lambda view: idempotent(no_wraps(view)),
    "no wraps above wraps": lambda view: no_wraps(with_wraps(idempotent(view))),
    "partial above": lambda view: functools.partial(idempotent(view), "argument"),
    "partial below": lambda view: idempotent(functools.partial(view, "argument")),
    "lambda above": lambda view: lambda: idempotent_of(view)(),
    "object above": lambda view: Caller(idempotent(view)),
    "object below": lambda view: idempotent(Caller(view)),
    "slotted object above": lambda view: Slotted(idempotent(view)),
    "slotted object below": lambda view: idempotent(Slotted(view)),
    "cached above": lambda view: functools.lru_cache(maxsize=0)(idempotent(view)),
    "twice": lambda view: idempotent(idempotent(view)),
    "twice with a layer between": lambda view: idempotent(no_wraps(idempotent(view))),
}
_guarded_once = functools.lru_cache(maxsize=None)(lambda view: idempotent(view))


def idempotent_of(view: Callable[..., Any]) -> Callable[..., Any]:
    """The view's one guarded form; made at the first call, so that no look can see it."""
    return _guarded_once(view)


@pytest.mark.case("S7")
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("where", ["app", "blueprint"])
def test_a_mark_guards_wherever_it_stands_below_the_route(any_store, ledger, layers, where):
    app = make_app(any_store)
    view = LAYERS[layers](view_of(ledger))
    if where == "app":
        app.add_url_rule("/orders", "orders", view, methods=["POST"])
    else:
        blueprint = Blueprint("shop", __name__)
        blueprint.add_url_rule("/orders", "orders", view, methods=["POST"])
        app.register_blueprint(blueprint)
    assert_guarded(app, ledger)


@pytest.mark.case("S7", "S5")
@pytest.mark.parametrize("layers", ["plain", "no wraps above", "wraps above", "object above", "twice"])
def test_a_failure_restores_wherever_the_mark_stands(any_store, ledger, layers):
    app = make_app(any_store)

    def order() -> tuple[str, int]:
        if ledger.add() == 1:
            raise ValueError("the first time it fails")
        return "made", 201

    app.add_url_rule("/orders", "orders", LAYERS[layers](order), methods=["POST"])
    client = app.test_client()
    data = {FIELD: token_of(client)}
    assert [client.post("/orders", data=data).status_code for _ in range(3)] == [500, 201, 201]
    assert len(ledger) == 2


@pytest.mark.case("S7")
@pytest.mark.parametrize("hide", [no_wraps, Caller])
def test_a_hidden_mark_keeps_its_options(ledger, hide):
    app = make_app()
    options = {"on_duplicate": "reject", "message": "Once is enough."}
    app.add_url_rule("/orders", "orders", hide(idempotent(**options)(view_of(ledger))), methods=["POST"])
    client = app.test_client()
    data = {FIELD: token_of(client)}
    assert client.post("/orders", data=data).status_code == 201
    refused = client.post("/orders", data=data)
    assert_refused(refused, "duplicate")
    assert "Once is enough." in refused.text
    assert len(ledger) == 1


@pytest.mark.case("S7")
def test_a_hidden_mark_that_names_no_store_of_the_app_says_so(ledger):
    app = make_app(PROPAGATE_EXCEPTIONS=True)
    view = idempotent(scene="order", store="audit")(view_of(ledger))
    app.add_url_rule("/orders", "orders", no_wraps(view), methods=["POST"])
    client = app.test_client()
    with pytest.raises(RuntimeError, match=r"'audit'.*IDEMPOTENCY_STORES"):
        client.post("/orders", data={FIELD: token_of(client)})
    assert len(ledger) == 0


def _method(ledger: Ledger) -> type[View]:
    class Orders(MethodView):
        def get(self) -> str:
            return "the list"

        @idempotent
        def post(self) -> tuple[str, int]:
            return f"order {ledger.add()}", 201

        def put(self) -> tuple[str, int]:
            return f"order {ledger.add()}", 201

    return Orders


def _class_decorators(ledger: Ledger) -> type[View]:
    class Orders(MethodView):
        decorators = (idempotent, with_wraps)

        def get(self) -> str:
            return "the list"

        def post(self) -> tuple[str, int]:
            return f"order {ledger.add()}", 201

    return Orders


def _class_decorators_that_hide(ledger: Ledger) -> type[View]:
    class Orders(_class_decorators(ledger)):  # type: ignore[misc]
        decorators = (idempotent, no_wraps)

    return Orders


def _method_that_is_hidden(ledger: Ledger) -> type[View]:
    class Orders(MethodView):
        @no_wraps
        @idempotent
        def post(self) -> tuple[str, int]:
            return f"order {ledger.add()}", 201

    return Orders


def _dispatch_request(ledger: Ledger) -> type[View]:
    class Orders(View):
        methods = ("GET", "POST")

        @idempotent
        def dispatch_request(self) -> Any:
            return "the list" if request.method == "GET" else (f"order {ledger.add()}", 201)

    return Orders


def _one_object_for_all_requests(ledger: Ledger) -> type[View]:
    class Orders(_dispatch_request(ledger)):  # type: ignore[misc]
        init_every_request = False

    return Orders


def _inherited(ledger: Ledger) -> type[View]:
    class Orders(_method(ledger)):  # type: ignore[misc]
        def get(self) -> str:
            return "another list"

    return Orders


def _async_method(ledger: Ledger) -> type[View]:
    class Orders(MethodView):
        @idempotent
        async def post(self) -> tuple[str, int]:
            return f"order {ledger.add()}", 201

    return Orders


def _both(ledger: Ledger) -> type[View]:
    class Orders(_method(ledger)):  # type: ignore[misc]
        decorators = (idempotent,)

    return Orders


def _calls_super(ledger: Ledger) -> type[View]:
    class Orders(_method(ledger)):  # type: ignore[misc]
        @idempotent
        def post(self) -> Any:
            return super().post()

    return Orders


def _calls_super_without_a_mark(ledger: Ledger) -> type[View]:
    class Orders(_method(ledger)):  # type: ignore[misc]
        def post(self) -> Any:
            return super().post()

    return Orders


CLASSES = [
    _method,
    _class_decorators,
    _class_decorators_that_hide,
    _method_that_is_hidden,
    _dispatch_request,
    _one_object_for_all_requests,
    _inherited,
    _async_method,
    _both,
    _calls_super,
    _calls_super_without_a_mark,
]


@pytest.mark.case("S7")
@pytest.mark.parametrize("make", CLASSES)
def test_a_class_view_is_guarded(any_store, ledger, make):
    app = make_app(any_store)
    app.add_url_rule("/orders", view_func=make(ledger).as_view("orders"))
    assert_guarded(app, ledger)


@pytest.mark.case("S7")
def test_a_method_without_a_mark_beside_one_that_has_it_is_not_guarded(any_store, ledger):
    app = make_app(any_store)
    app.add_url_rule("/orders", view_func=_method(ledger).as_view("orders"))
    assert_unguarded(app, ledger, "/orders", "PUT")
    assert app.test_client().get("/orders").text == "the list"
    assert_guarded(app, ledger)


@pytest.mark.case("S7", "S9")
def test_two_methods_of_a_class_have_options_of_their_own(any_store, ledger):
    class Orders(MethodView):
        @idempotent(on_duplicate="reject")
        def post(self) -> tuple[str, int]:
            return f"order {ledger.add()}", 201

        @idempotent(on_duplicate="ignore")
        def delete(self) -> tuple[str, int]:
            return f"gone {ledger.add()}", 201

    app = make_app(any_store)
    app.add_url_rule("/orders", view_func=Orders.as_view("orders"))
    client = app.test_client()
    tokens = [token_of(client) for _ in range(2)]
    for method, token, status in (("POST", tokens[0], 409), ("DELETE", tokens[1], 204)):
        statuses = [client.open("/orders", method=method, data={FIELD: token}).status_code for _ in range(2)]
        assert statuses == [201, status]
    assert len(ledger) == 2


@pytest.mark.case("S7")
def test_a_method_of_an_object_is_a_view_too(any_store, ledger):
    class Shop:
        @idempotent
        def order(self) -> tuple[str, int]:
            return f"order {ledger.add()}", 201

    app = make_app(any_store)
    app.add_url_rule("/orders", "orders", Shop().order, methods=["POST"])
    assert_guarded(app, ledger)


@pytest.mark.case("S7", "WIRE-12")
@pytest.mark.parametrize("hide", [None, no_wraps])
def test_nested_blueprints_guard_their_own_views_and_no_others(any_store, ledger, hide):
    """There is no exemption to get wrong: a view is guarded by its own mark, whatever its blueprint."""
    app = make_app(any_store)
    parent, child, grandchild, sibling = (Blueprint(n, __name__, url_prefix=f"/{n}") for n in ("p", "c", "g", "s"))
    for blueprint in (parent, child, grandchild, sibling):
        view = idempotent(view_of(ledger))
        blueprint.add_url_rule("/marked", "marked", hide(view) if hide else view, methods=["POST"])
        blueprint.add_url_rule("/plain", "plain", view_of(ledger), methods=["POST"])
    child.register_blueprint(grandchild)
    parent.register_blueprint(child)
    parent.register_blueprint(sibling)
    app.register_blueprint(parent)
    app.register_blueprint(sibling, name="again", url_prefix="/again")
    for place in ("/p", "/p/c", "/p/c/g", "/p/s", "/again"):
        assert_guarded(app, ledger, f"{place}/marked")
        assert_unguarded(app, ledger, f"{place}/plain")


@pytest.mark.case("S9", "P5", "WIRE-12")
def test_a_dotted_endpoint_is_a_scene_of_its_own(any_store, ledger):
    app = make_app(any_store)
    parent, child = Blueprint("parent", __name__), Blueprint("child", __name__, url_prefix="/child")
    for blueprint in (parent, child):
        blueprint.add_url_rule("/orders", "orders", idempotent(view_of(ledger)), methods=["POST"])
    parent.register_blueprint(child)
    app.register_blueprint(parent)
    client = app.test_client()
    for scene, own, other in (
        ("parent.orders", "/orders", "/child/orders"),
        ("parent.child.orders", "/child/orders", "/orders"),
    ):
        header = {HEADER: client.get("/idempotency/token", query_string={"scene": scene}).json["token"]}
        assert_refused(client.post(other, headers=header), "token_foreign", 403)
        first, second = (client.post(own, headers=header) for _ in range(2))
        assert first.status_code == 201
        assert_repeated(second, first)
    assert len(ledger) == 2


@pytest.mark.case("S7")
def test_one_view_under_two_urls_is_one_view(any_store, ledger):
    app = make_app(any_store)
    view = idempotent(view_of(ledger))
    app.add_url_rule("/orders", "orders", view, methods=["POST"])
    app.add_url_rule("/orders/", "orders", view, methods=["PUT"])
    app.add_url_rule("/v2/<int:shop>/orders", "orders", view, methods=["POST"])
    app.add_url_rule("/host", "hosted", view, methods=["POST"])
    for url, method in (("/orders", "POST"), ("/orders/", "PUT"), ("/v2/7/orders", "POST"), ("/host", "POST")):
        assert_guarded(app, ledger, url, method)


@pytest.mark.case("S7")
def test_views_registered_before_init_app_are_seen_too(ledger):
    app = Flask("tests.helpers")
    app.add_url_rule("/orders", "orders", idempotent(view_of(ledger)), methods=["POST"])
    app.add_url_rule("/form", "form", lambda: Idempotency().token())
    Idempotency(app)
    client = app.test_client()
    data = {FIELD: client.get("/form").text}
    first, second = (client.post("/orders", data=data) for _ in range(2))
    assert_repeated(second, first)
    assert len(ledger) == 1


# --- views that call views ---------------------------------------------------------------------------------------


@pytest.mark.case("S7", "WIRE-06")
@pytest.mark.parametrize("outer", ["guarded", "unguarded", "of its own token"])
def test_a_guarded_view_called_from_another_view_passes_through(any_store, ledger, outer):
    app = make_app(any_store)
    inner = idempotent(view_of(ledger))
    app.add_url_rule("/orders", "orders", inner, methods=["POST"])

    def cart() -> Any:
        return inner(), inner(), inner()[1]

    def basket() -> tuple[str, int]:
        return " ".join(text for text, _ in (inner(), inner())), 201

    app.add_url_rule("/basket", "basket", idempotent(basket) if outer != "unguarded" else basket, methods=["POST"])
    client = app.test_client()
    if outer == "unguarded":
        for number in (1, 3):
            assert client.post("/basket").text == f"order {number} order {number + 1}"
    else:
        data = {FIELD: token_of(client)}
        first, second = (client.post("/basket", data=data) for _ in range(2))
        assert first.text == "order 1 order 2"
        assert_repeated(second, first)
    before = len(ledger)
    assert_guarded(app, ledger)
    assert len(ledger) == before + 1


@pytest.mark.case("S7")
def test_a_view_may_be_called_where_nothing_is_guarded(ledger):
    app = make_app()
    view = idempotent(view_of(ledger))
    app.add_url_rule("/orders", "orders", view, methods=["POST", "GET"])
    assert view() == ("order 1", 201)  # outside of any request, as in a test or a shell
    with app.test_request_context("/orders", method="POST"):
        assert view() == ("order 2", 201)
    assert app.test_client().get("/orders").text == "order 3"
    assert_guarded(app, ledger)


@pytest.mark.case("S5", "WIRE-06")
@pytest.mark.parametrize("hide", [None, no_wraps])
def test_a_decorator_that_tries_again_is_under_the_guard_each_time(any_store, ledger, policy, hide):
    app = make_app(any_store, ON_DUPLICATE=policy)

    def try_again(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def trying(*args: Any, **kwargs: Any) -> Any:
            try:
                return view(*args, **kwargs)
            except ConnectionError:  # as after a deadlock in the database
                return view(*args, **kwargs)

        return trying

    def order() -> tuple[str, int]:
        if ledger.add() == 1:
            raise ConnectionError
        return "made", 201

    view = idempotent(order)
    app.add_url_rule("/orders", "orders", try_again(hide(view) if hide else view), methods=["POST"])
    client = app.test_client()
    data = {FIELD: token_of(client)}
    first = client.post("/orders", data=data)
    assert (first.status_code, len(ledger)) == (201, 2)
    assert_repeated(client.post("/orders", data=data), first, policy)
    assert len(ledger) == 2


# --- what cannot be decorated ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decorate", "error", "says"),
    [
        (lambda: idempotent("order"), TypeError, "view function"),
        (lambda: idempotent(MethodView), TypeError, "methods of the class"),
        (lambda: idempotent(scene="a b"), ValueError, "scene="),
        (lambda: idempotent(scene=""), ValueError, "scene="),
        (lambda: idempotent(ttl=0), ValueError, "ttl="),
        (lambda: idempotent(lease=-1), ValueError, "lease="),
        (lambda: idempotent(on_duplicate="retry"), ValueError, "on_duplicate="),
        (lambda: idempotent(binding="cookie"), ValueError, "binding="),
        (lambda: idempotent(fingerprint="amount"), ValueError, "fingerprint="),
        (lambda: idempotent(ignore="sent_at"), ValueError, "ignore="),
        (lambda: idempotent(consume=True, on_duplicate="replay"), ValueError, "consume=True"),
        (lambda: idempotent(source="cookie"), ValueError, "source="),
        (lambda: idempotent(fingerprint=7), ValueError, "fingerprint="),
        (lambda: idempotent(ignore=False), ValueError, "ignore="),
        (lambda: idempotent(ignore=lambda: ()), ValueError, "ignore="),
        (lambda: idempotent(restore_on_error="no"), ValueError, "restore_on_error="),
        (lambda: idempotent(consume=1), ValueError, "consume="),
        (lambda: idempotent(principal="alice"), ValueError, "principal="),
        (lambda: idempotent(final=404), ValueError, "final="),
        (lambda: idempotent(message=7), ValueError, "message="),
        (lambda: idempotent(description=object()), ValueError, "description="),
        (lambda: idempotent(retries=3), TypeError, "retries"),
    ],
)
def test_a_mistake_in_the_options_is_said_where_it_was_made(decorate, error, says):
    with pytest.raises(error, match=re.escape(says)):
        decorate()
