"""``flask idempotency policy``: what it prints is what the live app does."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.views import MethodView
from markdown_it import MarkdownIt

from flask_idempotent import idempotent
from flask_idempotent.core.keys import parse_token
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from flask_idempotent.web import policy
from tests.apps.published import create_app
from tests.helpers import HEADER, assert_refused, assert_repeated, make_app, reason_of, token_of
from tests.live import HOST, ROOT

PUBLISHED = "tests.apps.published:create_app"
KEY = "Idempotency-Key"
CALLBACK = {"provider": "p", "number": 7, "account": "a"}


def flask(*arguments: str, app: str = PUBLISHED) -> subprocess.CompletedProcess[str]:
    """Run the real command."""
    command = [sys.executable, "-m", "flask", "--app", app, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=False)


def policy_of(app: Flask) -> dict[str, Any]:
    result = app.test_cli_runner().invoke(args=["idempotency", "policy", "--format", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def page_of(app: Flask) -> str:
    result = app.test_cli_runner().invoke(args=["idempotency", "policy"])
    assert result.exit_code == 0, result.output
    return result.stdout


def routes_of(app: Flask) -> dict[str, dict[str, Any]]:
    return {route["endpoint"]: route for route in policy_of(app)["routes"]}


@pytest.fixture(scope="module")
def routes() -> dict[str, dict[str, Any]]:
    return routes_of(create_app())


@pytest.fixture
def silent_store() -> Iterator[socket.socket]:
    """A server that nobody must connect to."""
    with socket.create_server((HOST, 0)) as server:
        server.setblocking(False)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


# --- the command (draft, row 10) ---------------------------------------------------------------------------------


def test_the_real_command_prints_every_protected_route_and_asks_no_store(silent_store):
    factory = f"{PUBLISHED}(store='redis://{HOST}:{silent_store.getsockname()[1]}/0')"
    printed = flask("idempotency", "policy", "--format", "json", app=factory)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert {(tuple(route["methods"]), route["rule"]) for route in json.loads(printed.stdout)["routes"]} == {
        (("POST",), "/form"),
        (("POST", "PUT"), "/orders"),
        (("POST",), "/either"),
        (("POST",), "/pay/<order_no>"),
        (("POST",), "/callback"),
        (("POST",), "/invoice/<int:number>"),
        (("POST",), "/vote"),
        (("POST",), "/once"),
    }


def test_the_real_command_prints_a_page_whose_tables_hold_together():
    printed = flask("idempotency", "policy")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout == page_of(create_app())
    html = MarkdownIt("commonmark").enable("table").render(printed.stdout)
    overview, *answers = re.findall(r"<table>.*?</table>", html, re.DOTALL)
    rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", overview, re.DOTALL)]
    assert ["<code>POST /form</code>", "Places an order | by hand", "token", "yes", "1 hour"] in [r[:5] for r in rows]
    assert [len(row) for row in rows] == [6] * 9
    assert len(answers) == 8
    for said in ("decided by the application (<code>invoice_key</code>)", "1 MiB", "PUT and DELETE", "30 minutes"):
        assert said in html
    assert "<p>|" not in html  # what is left of a table that is none


def test_an_app_that_protects_nothing_says_so():
    assert "No route is protected." in page_of(make_app())
    assert policy_of(make_app())["routes"] == []


def test_two_apps_have_a_policy_each():
    one, other = create_app(TOKEN_TTL=60), create_app(TOKEN_TTL=120)
    assert [routes_of(app)["form"]["lives"]["token"] for app in (one, other)] == [60, 120]


def test_a_mistake_that_has_to_be_mended_stands_in_its_place():
    app = make_app()
    idempotent(app.post("/orders")(lambda: "unprotected"))
    result = app.test_cli_runner().invoke(args=["idempotency", "policy"])
    assert result.exit_code == 1
    assert "below the route" in result.output
    assert "|" not in result.output


# --- the example shop --------------------------------------------------------------------------------------------


def marked_in(folder: Path) -> set[str]:
    """The names of the functions that are written below ``@idempotent``."""
    found: set[str] = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
                if any(isinstance(d, ast.Name) and d.id == "idempotent" for d in decorators):
                    found.add(node.name)
    return found


def test_every_protected_route_of_the_shop_is_in_its_policy_and_counted():
    printed = flask("idempotency", "policy", "--format", "json", app="example_app:create_app")
    assert printed.returncode == 0, printed.stderr
    routes = json.loads(printed.stdout)["routes"]
    assert {route["endpoint"].rpartition(".")[2] for route in routes} == marked_in(ROOT / "example_app") != set()
    checked = flask("idempotency", "check", app="example_app:create_app")
    assert f"{len(routes)} protected routes, 0 errors" in checked.stdout, checked.stderr


# --- the shape ---------------------------------------------------------------------------------------------------

PARTS = [policy.Policy, policy.Route, policy.Source, policy.Same, policy.Lives, policy.Outcomes, policy.Answer]


def test_the_shape_is_as_documented(routes):
    assert policy_of(create_app())["version"] == 1
    page = (ROOT / "docs" / "command-line.rst").read_text(encoding="utf-8")
    members = [field.name for part in [*PARTS, policy.Choice] for field in dataclasses.fields(part)]
    assert [name for name in members if f"``{name}``" not in page] == []
    route = routes["orders"]
    assert set(route) == {field.name for field in dataclasses.fields(policy.Route)}
    for member, part in (("same", policy.Same), ("lives", policy.Lives), ("outcomes", policy.Outcomes)):
        assert set(route[member]) == {field.name for field in dataclasses.fields(part)}


def test_what_is_read_where(routes):
    def source(endpoint: str, number: int = 0) -> dict[str, Any]:
        found = routes[endpoint]["sources"][number]
        return {name: value for name, value in found.items() if value not in (None, [])}

    token = {"source": "token", "header": HEADER, "name": "idempotency_token", "places": ["header", "form"]}
    header = {"source": "header", "header": KEY, "places": ["header"], "syntax": "header", "length": 255}
    assert source("form") == {**token, "syntax": "token", "length": 64}
    assert source("orders") == header
    assert [source("either", n)["source"] for n in range(2)] == ["token", "header"]
    places = ["form", "query", "json", "path"]
    assert source("pay") == {
        "source": "param", "name": "order_no", "places": places, "syntax": "value", "length": 255,
    }  # fmt: skip
    assert source("callback")["key"] == {"value": "(json.provider, json.number)", "decided_by": None}
    assert source("invoice")["key"] == {"value": None, "decided_by": "invoice_key"}
    assert routes["vote"]["sources"] == []
    required = {endpoint for endpoint, route in routes.items() if route["required"]}
    assert required == {"form", "orders", "either", "pay", "callback", "once"}


def test_lives(routes):
    def lives(endpoint: str) -> dict[str, Any]:
        return {name: value for name, value in routes[endpoint]["lives"].items() if value is not None}

    assert lives("form") == {"token": 3600, "token_result": 3600, "lease": 300}
    assert lives("orders") == {"key_result": 1800, "lease": 300}
    either = {"token": 3600, "token_result": 3600, "key_result": 86400, "lease": 300, "wait": 0.5}
    assert lives("either") == either
    assert lives("vote") == {"interval": 2}
    assert lives("once") == {"token": 3600, "token_result": 3600}


def test_what_counts_as_the_same_request(routes):
    same = {endpoint: route["same"] for endpoint, route in routes.items()}
    assert (same["orders"]["within"], same["orders"]["scene"]) == ("scene", "order.create")
    assert (same["either"]["within"], same["form"]["within"], same["vote"]["within"]) == ("view", None, None)
    assert (same["form"]["binding"]["value"], same["orders"]["binding"]) == ("ip", None)
    assert (same["orders"]["content"]["value"], same["orders"]["ignored"]) == ("all", ["sent_at"])
    assert (same["pay"]["content"]["value"], same["pay"]["fields"]) == ("fields", ["amount", "currency"])
    assert same["callback"]["content"]["value"] == "none"


def test_callables_of_the_app_are_named_and_not_called():
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("called")

    app = make_app(PRINCIPAL=never)
    view = idempotent(
        key=never, fingerprint=never, lock=never, final=never, on_duplicate=never, scene="s", binding=never
    )(never)
    app.add_url_rule("/orders", "orders", view, methods=["POST"])
    route = routes_of(app)["orders"]
    by_app = {"value": None, "decided_by": "never"}
    assert route["sources"][0]["key"] == route["lock"] == route["duplicates"] == by_app
    assert route["same"]["content"] == route["same"]["principal"] == route["outcomes"]["success"] == by_app
    assert "AssertionError" not in page_of(app)


def test_methods_that_are_guarded_in_the_same_way_are_one_route_and_others_are_not():
    class Orders(MethodView):
        @idempotent(source="header", description="replaces")
        def put(self) -> str:
            return "put"

        @idempotent(source="header", description="changes")
        def patch(self) -> str:
            return "patch"

        @idempotent(source="header", description="changes")
        def post(self) -> str:
            return "post"

        def delete(self) -> str:
            return "unguarded"

    app = make_app()
    app.add_url_rule("/orders", view_func=Orders.as_view("orders"))
    found = [(route["description"], route["methods"]) for route in policy_of(app)["routes"]]
    assert found == [("changes", ["PATCH", "POST"]), ("replaces", ["PUT"])]


# --- what it says is what happens (draft, rows 8 to 10) ----------------------------------------------------------


@pytest.mark.case("S7")
def test_a_token_or_key_that_is_required_is_refused_without(routes):
    client = create_app().test_client()
    for path in ("/form", "/orders", "/either", "/callback", "/once"):
        route = routes[path[1:]]
        refusal = client.post(path, json={})
        published = {(answer["reason"], answer["status"]) for answer in route["answers"]}
        assert (reason_of(refusal), refusal.status_code) in published, path
        assert refusal.status_code == 400
    assert client.post("/invoice/1").status_code == 201


@pytest.mark.case("S7")
def test_a_key_of_the_length_that_is_published_is_taken_and_a_longer_one_is_not(routes):
    client = create_app().test_client()
    length = routes["orders"]["sources"][0]["length"]
    first, second = (client.post("/orders", headers={KEY: "k" * length}) for _ in range(2))
    assert_repeated(second, first)
    assert_refused(client.post("/orders", headers={KEY: "k" * (length + 1)}), "key_invalid", 400)


@pytest.mark.case("S7")
def test_a_token_may_have_the_length_that_is_published(routes):
    client = create_app().test_client()
    token = token_of(client, "/form-page").replace("-", "")
    longest = token + "-" * (routes["form"]["sources"][0]["length"] - len(token))
    assert parse_token(longest) == token
    assert_refused(client.post("/form", headers={HEADER: longest + "-"}), "token_invalid", 400)
    assert client.post("/form", headers={HEADER: longest}).status_code == 201


@pytest.mark.case("S7")
def test_a_key_runs_as_new_when_the_life_that_is_published_is_over():
    clock = FakeClock()
    app = create_app(store=MemoryStore(clock=clock))
    life, client = routes_of(app)["orders"]["lives"]["key_result"], app.test_client()
    first = client.post("/orders", headers={KEY: "a"})
    clock.advance(life - 1)
    assert_repeated(client.post("/orders", headers={KEY: "a"}), first)
    clock.advance(2)
    assert client.post("/orders", headers={KEY: "a"}).text == "run 2"


@pytest.mark.case("S7")
def test_failures_are_restored_or_stay_failed_as_is_published(routes):
    client = create_app().test_client()
    assert (routes["orders"]["outcomes"]["failure"], routes["pay"]["outcomes"]["failure"]) == ("restored", "failed")
    assert [client.post("/orders?status=503", headers={KEY: "a"}).text for _ in range(2)] == ["run 1", "run 2"]
    assert client.post("/pay/7?status=503").text == "run 3"
    refusal = client.post("/pay/7?status=503")
    assert (reason_of(refusal), refusal.status_code) in published(routes["pay"])
    assert reason_of(refusal) == "failed"


@pytest.mark.case("S7")
def test_duplicates_are_answered_as_is_published(routes):
    client = create_app().test_client()
    silent = [client.post("/callback", json=CALLBACK).status_code for _ in range(2)]
    assert silent == [201, routes["callback"]["silent_status"]] == [201, 204]
    refused = [client.post("/either", headers={KEY: "a"}) for _ in range(2)][1]
    assert (reason_of(refused), refused.status_code) in published(routes["either"])
    assert_refused(refused, "duplicate")
    too_soon = [client.post("/vote") for _ in range(2)][1]
    assert (reason_of(too_soon), too_soon.status_code) in published(routes["vote"])
    assert too_soon.headers["Retry-After"]
    other = [client.put("/orders", headers={KEY: "b"}, json={"n": n, "sent_at": n}) for n in range(2)][1]
    assert (reason_of(other), other.status_code) in published(routes["orders"])
    assert_refused(other, "key_reused", 422)


def published(route: dict[str, Any]) -> set[tuple[str, int]]:
    return {(answer["reason"], answer["status"]) for answer in route["answers"]}


def test_the_answers_of_each_route(routes):
    def reasons(endpoint: str) -> list[str]:
        return [answer["reason"] for answer in routes[endpoint]["answers"]]

    token = ["token_missing", "token_invalid", "token_unknown", "token_foreign", "token_reused"]
    last = ["record_invalid", "store_unavailable"]
    replay = ["in_progress", "duplicate", "response_unavailable"]
    assert reasons("form") == [*token, *replay, *last]
    assert reasons("orders") == ["key_missing", "key_invalid", "key_reused", *replay, *last]
    assert reasons("either") == [*token, "key_invalid", "key_reused", "in_progress", "duplicate", *last]
    assert reasons("pay") == ["key_missing", "key_invalid", "key_reused", *replay, "failed", *last]
    assert reasons("callback") == [
        "key_missing", "key_invalid", "key_reused", "record_invalid", "locked", "store_unavailable",
    ]  # fmt: skip
    assert reasons("invoice") == ["key_invalid", "key_reused", *replay, *last]
    assert reasons("vote") == ["too_soon", "store_unavailable"]
    assert reasons("once") == [*token, "duplicate", *last]
    later = {a["reason"] for route in routes.values() for a in route["answers"] if a["retry_after"]}
    assert later == {"in_progress", "locked", "too_soon", "store_unavailable"}


def test_the_apps_settings_are_in_it():
    app = create_app(DUPLICATE_STATUS=429, STORE_DOWN="pass", ERROR_FORMAT="envelope", MAX_RESULT=10, BINDING="session")
    found = routes_of(app)
    assert ("duplicate", 429) in published(found["orders"])
    assert all("store_unavailable" not in dict(published(route)) for route in found.values())
    assert found["callback"]["silent_status"] == 200
    assert found["orders"]["outcomes"]["max_result"] == 10
    assert found["form"]["same"]["binding"]["value"] == "session"
    page = page_of(app)
    assert "in the session it was issued in" in page
    assert "at most 10 bytes" in page


# --- the link (draft, row 11) ------------------------------------------------------------------------------------


@pytest.mark.case("S22")
@pytest.mark.parametrize("accept", ["application/json", "text/html", "*/*"])
@pytest.mark.parametrize("error_format", ["problem", "envelope"])
@pytest.mark.parametrize("url", ["/policy", "https://docs.example/idempotency#keys"])
def test_every_refusal_links_to_the_policy_and_no_other_answer_does(accept, error_format, url):
    client = create_app(POLICY_URL=url, ERROR_FORMAT=error_format).test_client()
    link = f'<{url}>; rel="describedby"'
    headers = {"Accept": accept}
    missing, first = client.post("/orders", headers=headers), client.post("/orders", headers={KEY: "a", **headers})
    replayed = client.post("/orders", headers={KEY: "a", **headers})
    reused = client.post("/orders", headers={KEY: "a", **headers}, json={"other": 1})
    client.post("/vote")
    too_soon = client.post("/vote", headers=headers)
    unknown = client.get("/idempotency/token?scene=no%20scene", headers=headers)
    assert [answer.status_code for answer in (missing, reused, too_soon, unknown)] == [400, 422, 429, 400]
    assert [answer.headers.get("Link") for answer in (missing, reused, too_soon, unknown)] == [link] * 4
    assert_repeated(replayed, first)
    assert "Link" not in first.headers
    assert "Link" not in replayed.headers


@pytest.mark.case("S22")
def test_without_a_url_there_is_no_link():
    refusal = create_app().test_client().post("/orders")
    assert_refused(refusal, "key_missing", 400)
    assert "Link" not in refusal.headers
