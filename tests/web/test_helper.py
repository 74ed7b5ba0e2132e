"""``{{ idempotency_token() }}``: what it renders, where it works, and that it never fails a page."""

from __future__ import annotations

import logging
import pickle
import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from flask import (
    Blueprint,
    Flask,
    Response,
    make_response,
    render_template,
    render_template_string,
    stream_template,
    stream_template_string,
    stream_with_context,
)
from jinja2 import DictLoader
from markupsafe import Markup, escape

from flask_idempotent import Idempotency, StoreUnavailable, idempotency_token, idempotent, signals
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.helpers import FIELD, Ledger, assert_refused, assert_repeated, make_app, token_of, tokens_of
from tests.live import HOST, free_port

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
INPUT = re.compile(f'<input type="hidden" name="idempotency_token" value="{UUID}" autocomplete="off">')


class Broken(MemoryStore):
    """A store that errs at everything, and counts how often it was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error or StoreUnavailable("gone")
        self.asked = 0

    def issue(self, *args: Any, **kwargs: Any) -> None:
        self.asked += 1
        raise self.error

    def claim(self, *args: Any, **kwargs: Any) -> Any:
        raise self.error


def page_app(template: str, store: Any = None, **config: Any) -> Flask:
    """An app that renders `template` at ``/page``, and guards ``/orders``."""
    return with_page(make_app(store, **config), template)


def with_page(app: Flask, template: str, **headers: str) -> Flask:
    @app.get("/page")
    def page() -> Any:
        return render_template_string(template), headers

    return with_orders(app)


def with_orders(app: Flask) -> Flask:
    ledger = Ledger()

    @app.post("/orders")
    @idempotent
    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    return app


def assert_good(client: Any, token: str) -> None:
    """The token was recorded: it is good, once."""
    first = client.post("/orders", data={FIELD: token})
    assert first.status_code == 201, first.text
    assert_repeated(client.post("/orders", data={FIELD: token}), first)


def assert_unrecorded(client: Any, token: str) -> None:
    assert_refused(client.post("/orders", data={FIELD: token}), "token_unknown")


# --- what it renders ---------------------------------------------------------------------------------------------


@pytest.mark.case("S1", "S3")
def test_it_renders_the_whole_hidden_input_as_safe_markup(any_store):
    app = page_app("{{ idempotency_token() }}", any_store)
    client = app.test_client()
    page = client.get("/page")
    assert INPUT.fullmatch(page.text)
    assert " id=" not in page.text
    assert uuid.UUID(tokens_of(page.text)[0]).version == 4
    assert_good(client, tokens_of(page.text)[0])


@pytest.mark.case("S1")
def test_each_call_is_a_new_token(any_store):
    client = page_app(
        "{{ idempotency_token() }}" * 3 + "{% set t = idempotency_token() %}{{ t }}", any_store
    ).test_client()
    tokens = [token for _ in range(2) for token in tokens_of(client.get("/page").text)]
    assert len(set(tokens)) == 8
    for token in tokens:
        assert_good(client, token)


@pytest.mark.case("S1")
def test_value_is_the_bare_token(any_store):
    template = '{% set t = idempotency_token() %}<meta name="token" content="{{ t.value }}">{{ t }}'
    client = page_app(template, any_store).test_client()
    page = client.get("/page").text
    bare = re.search(r'content="([0-9a-f-]{36})"', page)[1]
    assert tokens_of(page) == [bare]
    assert_good(client, bare)


@pytest.mark.case("S1")
def test_python_code_may_issue_too(any_store):
    app = with_orders(make_app(any_store))

    @app.get("/bare")
    def bare() -> str:
        return Idempotency().token()

    @app.get("/whole")
    def whole() -> str:
        made = idempotency_token()
        assert isinstance(made, Markup)
        assert str(escape(made)) == str(made)
        assert pickle.loads(pickle.dumps(made)) == made
        return made

    client = app.test_client()
    assert_good(client, client.get("/bare").text)
    assert_good(client, tokens_of(client.get("/whole").text)[0])


@pytest.mark.case("S1")
@pytest.mark.parametrize(("ttl", "seconds"), [("900", 900), ("0.5", 0.5), ("life", 900)])
def test_a_token_may_have_a_life_of_its_own(ttl, seconds):
    clock = FakeClock()
    app = make_app(clock=clock, TOKEN_TTL=10)
    app.jinja_env.globals["life"] = timedelta(minutes=15)
    with_page(app, f"{{{{ idempotency_token(ttl={ttl}) }}}}{{{{ idempotency_token(none, ttl={ttl}) }}}}")
    client = app.test_client()
    first, second = tokens_of(client.get("/page").text)
    clock.advance(seconds * 0.9)
    assert_good(client, first)
    clock.advance(seconds * 0.2)
    assert_unrecorded(client, second)


@pytest.mark.parametrize("ttl", ["0", "-1", "'900'", "true"])
def test_a_life_that_makes_no_sense_is_said_at_once(ttl):
    app = page_app(f"{{{{ idempotency_token(ttl={ttl}) }}}}", PROPAGATE_EXCEPTIONS=True)
    with pytest.raises(ValueError, match="ttl= must be a positive number of seconds"):
        app.test_client().get("/page")


@pytest.mark.case("S1")
def test_the_field_has_the_name_that_the_app_gave_it(any_store):
    app = page_app("{{ idempotency_token() }}", any_store, TOKEN_FIELD="once")
    client = app.test_client()
    page = client.get("/page").text
    token = re.search(r'name="once" value="([^"]+)"', page)[1]
    assert_refused(client.post("/orders", data={FIELD: token}), "token_missing", 400)
    first = client.post("/orders", data={"once": token})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", data={"once": token}), first)


# --- scenes ------------------------------------------------------------------------------------------------------


@pytest.mark.case("S9", "P5", "S2")
def test_a_token_of_a_scene_fits_only_that_scene(any_store, policy):
    app, ledger = make_app(any_store, ON_DUPLICATE=policy), Ledger()

    @app.get("/page")
    def page() -> str:
        return render_template_string("{{ idempotency_token('order.create') }}{{ idempotency_token() }}")

    def view() -> tuple[str, int]:
        return f"did {ledger.add()}", 201

    app.add_url_rule("/create", "create", idempotent(scene="order.create")(view), methods=["POST"])
    app.add_url_rule("/again", "again", idempotent(scene="order.create")(view), methods=["POST"])
    app.add_url_rule("/refund", "refund", idempotent(scene="order.refund")(view), methods=["POST"])
    app.add_url_rule("/plain", "plain", idempotent(view), methods=["POST"])
    client = app.test_client()
    of_scene, of_none = tokens_of(client.get("/page").text)
    for other in ("/refund", "/plain"):
        assert_refused(client.post(other, data={FIELD: of_scene}), "token_foreign", 403)
    assert len(ledger) == 0
    first = client.post("/again", data={FIELD: of_scene})  # two views may share a scene
    assert first.status_code == 201
    assert_repeated(client.post("/again", data={FIELD: of_scene}), first, policy)
    assert_refused(client.post("/create", data={FIELD: of_scene}), "token_reused", 422)
    plain = client.post("/plain", data={FIELD: of_none})
    assert plain.status_code == 201
    assert_refused(client.post("/refund", data={FIELD: of_none}), "token_reused", 422)
    assert len(ledger) == 2


@pytest.mark.case("S9")
def test_an_endpoints_name_is_its_scene(any_store):
    app = page_app("{{ idempotency_token('order') }}{{ idempotency_token('page') }}", any_store)
    client = app.test_client()
    own, other = tokens_of(client.get("/page").text)
    assert_good(client, own)
    assert_refused(client.post("/orders", data={FIELD: other}), "token_foreign", 403)


@pytest.mark.case("S9", "P5")
@pytest.mark.parametrize("scene", ["a" * 64, "A-Za-z0-9_.:-", "0", "shop.order:create-2"])
def test_every_scene_that_is_well_formed_works(any_store, scene):
    app, ledger = make_app(any_store), Ledger()
    with_page(app, f"{{{{ idempotency_token('{scene}') }}}}{{{{ idempotency_token('{scene[:-1]}x') }}}}")

    @app.post("/scene")
    @idempotent(scene=scene)
    def of_scene() -> tuple[str, int]:
        return f"did {ledger.add()}", 201

    client = app.test_client()
    token, other = tokens_of(client.get("/page").text)
    assert_refused(client.post("/scene", data={FIELD: other}), "token_foreign", 403)
    first = client.post("/scene", data={FIELD: token})
    assert first.status_code == 201
    assert_repeated(client.post("/scene", data={FIELD: token}), first)
    assert len(ledger) == 1


BAD_SCENES = ["a" * 65, "a b", "ä", "a/b", "<b>", "a\\n", "{{ 7*7 }}", "a,b"]


@pytest.mark.case("S2")
@pytest.mark.parametrize("scene", BAD_SCENES)
def test_a_malformed_scene_in_a_template_is_an_unrecorded_token_and_an_error(any_store, caplog, scene):
    app = page_app(f'{{{{ idempotency_token("{scene}") }}}}<p>the page', any_store)
    client = app.test_client()
    page = client.get("/page")
    assert page.status_code == 200
    assert page.text.endswith("<p>the page")
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert record.name.startswith("flask_idempotent")
    assert "scene" in record.getMessage()
    assert len(record.getMessage()) < 300
    assert_unrecorded(client, tokens_of(page.text)[0])


# --- where it works ----------------------------------------------------------------------------------------------

TEMPLATES = {
    "macros.html": "{% macro hidden() %}{{ idempotency_token() }}{% endmacro %}",
    "import.html": "{% import 'macros.html' as forms %}<form>{{ forms.hidden() }}</form>",
    "from.html": "{% from 'macros.html' import hidden %}<form>{{ hidden() }}</form>",
    "with.html": "{% from 'macros.html' import hidden with context %}<form>{{ hidden() }}</form>",
    "part.html": "{{ idempotency_token() }}",
    "include.html": "<form>{% include 'part.html' %}</form>",
    "alone.html": "<form>{% include 'part.html' without context %}</form>",
    "base.html": "<form>{% block form %}{% endblock %}</form>",
    "child.html": "{% extends 'base.html' %}{% block form %}{{ idempotency_token() }}{% endblock %}",
    "call.html": "{% macro form() %}<form>{{ caller() }}</form>{% endmacro %}"
    "{% call form() %}{{ idempotency_token() }}{% endcall %}",
    "loop.html": "{% for n in range(3) if n == 1 %}{{ idempotency_token() }}{% endfor %}",
    "raw.txt": "{{ idempotency_token() }}",
    "unescaped.html": "{% autoescape false %}{{ idempotency_token() }}{% endautoescape %}",
    "filtered.html": "{% filter trim %}{{ idempotency_token() }}{% endfilter %}",
    "safe.html": "{{ idempotency_token()|safe }}",
}


@pytest.mark.case("S1")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", [n for n in TEMPLATES if n not in ("macros.html", "part.html", "base.html")])
def test_it_works_in_every_corner_of_a_template(name, streamed):
    app = make_app()
    app.jinja_loader = DictLoader(TEMPLATES)

    @app.get("/page")
    def page() -> Any:
        return stream_template(name) if streamed else render_template(name)

    client = with_orders(app).test_client()
    page_text = client.get("/page").text
    assert INPUT.search(page_text)
    assert_good(client, tokens_of(page_text)[0])


@pytest.mark.case("S1")
def test_a_streamed_page_issues_as_it_goes_and_has_the_apps_own_cache_rule(any_store):
    app = make_app(any_store)

    @app.get("/streamed")
    def streamed() -> Response:
        text = "{% for n in range(30) %}{{ idempotency_token() }}{% endfor %}"
        return Response(stream_template_string(text), headers={"Cache-Control": "private, no-cache"})

    @app.get("/generated")
    def generated() -> Response:
        def parts() -> Iterator[str]:
            yield "<form>"
            yield idempotency_token()
            yield "</form>"

        return Response(stream_with_context(parts()), headers={"Cache-Control": "private, no-cache"})

    client = with_orders(app).test_client()
    for path, number in (("/streamed", 30), ("/generated", 1)):
        page = client.get(path)
        assert page.headers["Cache-Control"] == "private, no-cache"
        tokens = tokens_of(page.text)
        assert len(set(tokens)) == number
        for token in tokens:
            assert_good(client, token)


DELIMITERS = {
    "variable_start_string": "<<",
    "variable_end_string": ">>",
    "block_start_string": "<%",
    "block_end_string": "%>",
}
ANGLED = "<% if true %><< idempotency_token() >><% endif %>{{ literally }}"


class Angled(Flask):
    """As some apps do whose front end owns the braces."""

    jinja_options = DELIMITERS


def _before(app: Flask) -> None:
    app.jinja_options = {**app.jinja_options, **DELIMITERS}
    Idempotency(app)


def _after(app: Flask) -> None:
    Idempotency(app)
    app.jinja_options = {**app.jinja_options, **DELIMITERS}


def _after_in_place(app: Flask) -> None:
    Idempotency(app)
    app.jinja_options = dict(app.jinja_options)
    app.jinja_options.update(DELIMITERS)


def _environment_built_before(app: Flask) -> None:
    app.jinja_options = {**app.jinja_options, **DELIMITERS}
    assert app.jinja_env.autoescape is not False
    Idempotency(app)


def _environment_built_after(app: Flask) -> None:
    Idempotency(app)
    app.jinja_options = {**app.jinja_options, **DELIMITERS}
    app.jinja_env.filters["twice"] = lambda text: text * 2


def _debug_before(app: Flask) -> None:
    app.jinja_options = {**app.jinja_options, **DELIMITERS}
    app.debug = True  # builds the environment
    assert "jinja_env" in app.__dict__
    Idempotency(app)
    app.debug = False


def _debug_after(app: Flask) -> None:
    Idempotency(app)
    app.jinja_options = {**app.jinja_options, **DELIMITERS}
    app.debug = True
    app.debug = False


def _attributes_of_the_environment(app: Flask) -> None:
    app.jinja_env.variable_start_string, app.jinja_env.variable_end_string = "<<", ">>"
    app.jinja_env.block_start_string, app.jinja_env.block_end_string = "<%", "%>"
    Idempotency(app)


def _templates_auto_reload(app: Flask) -> None:
    app.config["TEMPLATES_AUTO_RELOAD"] = True
    _after(app)


@pytest.mark.case("S1")
@pytest.mark.parametrize(
    ("kind", "set_up"),
    [
        (Angled, Idempotency),
        (Flask, _before),
        (Flask, _after),
        (Flask, _after_in_place),
        (Flask, _environment_built_before),
        (Flask, _environment_built_after),
        (Flask, _debug_before),
        (Flask, _debug_after),
        (Flask, _attributes_of_the_environment),
        (Flask, _templates_auto_reload),
    ],
)
def test_any_delimiters_work_set_before_or_after_init_app(kind, set_up):
    app = kind("tests.helpers")
    set_up(app)
    client = with_page(app, ANGLED).test_client()
    page = client.get("/page").text
    assert re.fullmatch(INPUT.pattern + r"\{\{ literally \}\}", page)
    assert_good(client, tokens_of(page)[0])


@pytest.mark.case("S1", "S6")
def test_a_refusal_is_a_page_whatever_the_apps_delimiters(any_store):
    app = Angled("tests.helpers")
    app.config["IDEMPOTENCY_ON_DUPLICATE"] = "reject"
    Idempotency(app, store=any_store)
    client = with_page(app, ANGLED).test_client()
    data = {FIELD: token_of(client, "/page")}
    assert client.post("/orders", data=data).status_code == 201
    refused = client.post("/orders", data=data, headers={"Accept": "text/html"})
    assert (refused.status_code, refused.mimetype) == (409, "text/html")
    assert "{{" not in refused.text
    assert "{%" not in refused.text


@pytest.mark.case("S1")
def test_an_app_class_that_makes_its_own_environment():
    class Own(Flask):
        def create_jinja_environment(self) -> Any:
            environment = super().create_jinja_environment()
            environment.globals["shop"] = "a shop"
            return environment

    app = Own("tests.helpers")
    Idempotency(app)
    client = with_page(app, "{{ shop }}{{ idempotency_token() }}").test_client()
    page = client.get("/page").text
    assert page.startswith("a shop<input")
    assert_good(client, tokens_of(page)[0])


@pytest.mark.case("S1")
def test_it_works_in_the_templates_of_a_blueprint_and_of_an_overlay(any_store):
    app = make_app(any_store)
    blueprint = Blueprint("shop", __name__, url_prefix="/shop")

    @blueprint.get("/page")
    def page() -> str:
        return render_template_string("{{ idempotency_token() }}")

    @app.get("/overlay")
    def overlay() -> str:
        other = app.jinja_env.overlay(variable_start_string="[[", variable_end_string="]]")
        return other.from_string("[[ idempotency_token() ]]").render()

    app.register_blueprint(blueprint)
    client = with_orders(app).test_client()
    assert_good(client, token_of(client, "/shop/page"))
    assert_good(client, token_of(client, "/overlay"))


def test_outside_a_request_the_helper_renders_a_token_that_was_not_recorded(valkey):
    app = make_app(valkey.url)
    with app.app_context():  # a mail, a page made ahead of time
        assert INPUT.fullmatch(render_template_string("{{ idempotency_token() }}"))
    assert valkey.client().dbsize() == 0


# --- HEAD, a broken store, switched off --------------------------------------------------------------------------


@pytest.mark.case("S1", "FORM-13")
def test_head_records_nothing_and_a_page_one_token_in_one_round_trip(valkey):
    client = page_app("{{ idempotency_token() }}", valkey.url).test_client()
    head = client.head("/page")
    assert (head.status_code, valkey.client().dbsize(), valkey.calls("evalsha")) == (200, 0, 0)
    assert set(head.headers["Cache-Control"].split(", ")) == {"private", "no-cache"}  # as the GET says
    client.get("/page")
    client.get("/page")
    assert valkey.client().dbsize() == 2
    assert valkey.calls("evalsha") == 2
    assert valkey.calls("eval") == 1  # the script was not loaded yet, once


ERRORS = [StoreUnavailable("gone"), ConnectionError("refused"), TimeoutError(), ValueError("odd"), KeyError("x")]


@pytest.mark.case("S1")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_broken_store_never_fails_a_page_and_is_asked_once_a_request(caplog, error):
    store = Broken(error)
    app = page_app("{% for n in range(30) %}{{ idempotency_token() }}{% endfor %}<p>the page", store)
    heard: list[Any] = []

    def hear(sender: Any, event: Any) -> None:
        heard.append((sender, event.name))

    signals.store_unavailable.connect(hear)
    client = app.test_client()
    for times in (1, 2):
        page = client.get("/page")
        assert page.status_code == 200
        assert page.text.endswith("<p>the page")
        assert len(set(tokens_of(page.text))) == 30
        assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == times
        assert heard == [(app, "store_unavailable")] * times
        assert 1 <= store.asked <= times
    assert not any(token in caplog.text for token in tokens_of(page.text))


@pytest.mark.case("S1", "S4")
def test_a_form_that_was_fetched_without_a_store_is_refused_when_it_is_back(any_store):
    store = MemoryStore() if isinstance(any_store, MemoryStore) else None
    app = page_app("{{ idempotency_token() }}", store or f"redis://{HOST}:{free_port()}/0")
    client = app.test_client()
    if store is not None:
        store.issue = Broken().issue  # type: ignore[method-assign]
    token = token_of(client, "/page")
    if store is not None:
        assert_refused(client.post("/orders", data={FIELD: token}), "token_unknown")
    else:
        refused = client.post("/orders", data={FIELD: token})
        assert_refused(refused, "store_unavailable", 503)
        assert int(refused.headers["Retry-After"]) >= 1


@pytest.mark.case("WIRE-08")
def test_switched_off_the_helper_renders_and_asks_no_store():
    store = Broken()
    app = page_app("{{ idempotency_token() }}{{ idempotency_token('not a scene') }}", store)
    client = app.test_client()
    assert client.get("/page").status_code == 200
    asked = store.asked
    assert asked == 1
    app.config["IDEMPOTENCY_ENABLED"] = False
    page = client.get("/page")
    assert INPUT.fullmatch(page.text[: len(page.text) // 2])
    assert len(set(tokens_of(page.text))) == 2
    assert "Cache-Control" not in page.headers
    assert store.asked == asked


# --- shared caches -----------------------------------------------------------------------------------------------

CACHE_RULES = [
    (None, {"private", "no-cache"}),
    ("public", {"private", "no-cache"}),
    ("public, max-age=60", {"private", "no-cache", "max-age=60"}),
    ("max-age=60", {"private", "no-cache", "max-age=60"}),
    ("s-maxage=600, max-age=60", {"private", "no-cache", "max-age=60"}),
    ("public, s-maxage=600, must-revalidate", {"private", "no-cache", "must-revalidate"}),
    ("private, max-age=0", {"private", "no-cache", "max-age=0"}),
    ("no-cache", {"private", "no-cache"}),
    ("no-store", {"no-store"}),
    ("no-store, max-age=0", {"no-store", "max-age=0"}),
]


@pytest.mark.case("FORM-15")
@pytest.mark.parametrize("by", ["view", "hook after", "hook before", "blueprint's hook", "response"])
@pytest.mark.parametrize(("own", "becomes"), CACHE_RULES)
def test_a_page_with_a_token_forbids_shared_caches_and_keeps_what_the_app_set(own, becomes, by):
    app = Flask("tests.helpers")

    def rule(response: Response) -> Response:
        if own is not None:
            response.headers["Cache-Control"] = own
        return response

    if by == "hook before":
        app.after_request(rule)
    Idempotency(app)
    blueprint = Blueprint("pages", __name__)

    def page(template: str) -> Response:
        response = make_response(render_template_string(template))
        return rule(response) if by in ("view", "response") else response

    @blueprint.get("/page")
    def with_token() -> Any:
        return page("{{ idempotency_token() }}")

    @blueprint.get("/plain")
    def without_token() -> Any:
        return page("no form here")

    if by == "hook after":
        app.after_request(rule)
    if by == "blueprint's hook":
        blueprint.after_request(rule)
    app.register_blueprint(blueprint)
    client = with_orders(app).test_client()
    shown = client.get("/page")
    directives = set(shown.headers.get("Cache-Control", "").split(", "))
    assert directives - {"private"} == becomes - {"private"}
    assert "private" in directives or "no-store" in directives
    assert client.get("/plain").headers.get("Cache-Control") == own
    assert_good(client, tokens_of(shown.text)[0])


@pytest.mark.case("FORM-15")
@pytest.mark.parametrize("store", [None, Broken()], ids=["", "broken store"])
def test_an_error_page_with_a_token_is_private_too(store):
    app = make_app(store)
    app.register_error_handler(404, lambda error: (render_template_string("{{ idempotency_token() }}"), 404))
    page = with_orders(app).test_client().get("/nowhere")
    assert (page.status_code, len(tokens_of(page.text))) == (404, 1)
    assert set(page.headers["Cache-Control"].split(", ")) == {"private", "no-cache"}
