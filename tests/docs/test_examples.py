"""Every program in docs/examples runs, and does what the page that shows it says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from flask_idempotent import IdempotencyError
from tests.docs.conftest import EXAMPLES, Load
from tests.helpers import FIELD, HEADER, REPLAYED, token_of, tokens_of
from tests.servers import RedisServer


def issued(client: Any, scene: str = "", **options: Any) -> str:
    """A token from the token endpoint."""
    return str(client.get("/idempotency/token", query_string={"scene": scene}, **options).json["token"])


def send_twice(client: Any, path: str, **options: Any) -> list[Any]:
    """The same form twice, one after the other."""
    form = {FIELD: issued(client), **options.pop("data", {})}
    return [client.post(path, data=form, **options) for _ in range(2)]


def test_each_example_has_a_test() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'"{path.stem}' not in text] == []


@pytest.mark.case("S1", "S3")
def test_quickstart_orders_once(load: Load) -> None:
    example = load("quickstart")
    client = example.app.test_client()
    token = token_of(client, "/")
    answers = [client.post("/orders", data={FIELD: token, "item": "tea"}) for _ in range(2)]
    assert [answer.location for answer in answers] == ["/orders", "/orders"]
    assert example.orders == client.get("/orders").json == ["tea"]


@pytest.mark.case("FORM-07")
def test_readme_runs_once(load: Load) -> None:
    client = load("readme").app.test_client()
    form = {FIELD: token_of(client, "/")}
    answers = [client.post("/", data=form) for _ in range(2)]
    assert [(answer.text, REPLAYED in answer.headers) for answer in answers] == [
        ("Ordered, once.", False),
        ("Ordered, once.", True),
    ]


@pytest.mark.case("S6")
def test_policies(load: Load) -> None:
    example = load("policies")
    client = example.app.test_client()
    first, second = send_twice(client, "/order")
    assert first.location == second.location == "/orders/1"
    first, second = send_twice(client, "/vote")
    assert (first.status_code, second.status_code) == (200, 409)
    assert (second.json["code"], second.json["detail"]) == ("duplicate", "You have voted already.")
    first, second = send_twice(client, "/ping")
    assert (first.text, second.status_code, second.data) == ("Noted.", 204, b"")
    first, second = send_twice(client, "/book")
    assert (first.location, second.location) == ("/bookings/1", "/bookings")
    first, second = send_twice(client, "/like")
    assert (first.text, second.status_code, second.json["code"]) == ("Liked.", 409, "duplicate")
    assert example.done == ["/order", "/vote", "/ping", "/book", "/like"]


@pytest.mark.case("FAIL-04")
def test_a_late_failure(load: Load) -> None:
    example = load("late_failure")
    client = example.app.test_client()
    charged = {}
    for path in ("/pay-twice", "/pay", "/pay-by-wire"):
        example.charges.clear()
        first, second = send_twice(client, path)
        assert first.status_code == 500
        charged[path] = (len(example.charges), second.status_code, (second.json or {}).get("code"))
    assert charged == {
        "/pay-twice": (2, 500, None),
        "/pay": (1, 409, "response_unavailable"),
        "/pay-by-wire": (1, 409, "failed"),
    }


@pytest.mark.case("FORM-09", "IP-03")
def test_what_was_typed_is_shown_again(load: Load) -> None:
    example = load("error_pages")
    client = example.app.test_client()
    expired = {FIELD: "0" * 32, "text": "milk & bread"}
    elsewhere = {FIELD: token_of(client, "/note", environ_base={"REMOTE_ADDR": "192.0.2.1"}), "text": "milk & bread"}
    for form, status in ((expired, 409), (elsewhere, 403)):
        example.notes.clear()
        page = client.post("/note", data=form)
        assert page.status_code == status
        assert 'value="milk &amp; bread"' in page.text
        (fresh,) = tokens_of(page.text)
        assert client.post("/note", data={**form, FIELD: fresh}).location == "/notes"
        assert example.notes == ["milk & bread"]


@pytest.mark.case("FORM-03", "FORM-11", "WIRE-05")
def test_the_pages_of_the_app(load: Load) -> None:
    example = load("error_pages")
    client = example.app.test_client()
    assert [answer.location for answer in send_twice(client, "/vote")] == ["/notes", "/notes"]
    missing = client.post("/note")
    assert (missing.status_code, missing.json["code"]) == (400, "token_missing")
    assert missing.content_type == "application/problem+json"
    swapped = client.post("/note", headers={"HX-Request": "true"})
    assert swapped.status_code == 400
    assert swapped.text.startswith("<p role=alert>The form")
    assert example.notes == ["vote"]


@pytest.mark.case("FORM-02")
def test_the_page_while_the_first_runs(load: Load) -> None:
    example = load("error_pages")
    entered, go_on = Event(), Event()

    class Slow(list[str]):
        def append(self, text: str) -> None:
            entered.set()
            assert go_on.wait(10)
            super().append(text)

    example.notes = Slow()
    form = {FIELD: issued(example.app.test_client()), "text": "a"}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: example.app.test_client().post("/note", data=form))
        try:
            assert entered.wait(10)
            second = example.app.test_client().post("/note", data=form)
        finally:
            go_on.set()
        assert (second.status_code, second.text) == (409, "Your note is being saved.")
        assert 1 <= int(second.headers["Retry-After"]) <= 2
        assert first.result().location == "/notes"
    assert example.notes == ["a"]


def test_login_and_csrf_beside_the_token(load: Load) -> None:
    example = load("login")
    client = example.app.test_client()
    page = client.get("/transfer").text
    (token,) = tokens_of(page)
    csrf = page.split('name="csrf_token" value="')[1].split('"')[0]
    form = {FIELD: token, "amount": "5"}
    assert client.post("/transfer", data=form).status_code == 400  # CSRF
    form["csrf_token"] = csrf
    assert client.post("/transfer", data=form).status_code == 401  # login
    assert client.post("/login", data={"name": "anna", "csrf_token": csrf}).status_code == 302
    first, second = (client.post("/transfer", data=form) for _ in range(2))
    assert first.location == second.location == "/transfers"
    assert REPLAYED in second.headers
    assert example.transfers == ["5"]


def test_a_home_made_login_names_its_principal(load: Load) -> None:
    example = load("principal")
    anna, ben = example.app.test_client(), example.app.test_client()
    for client, name in ((anna, "anna"), (ben, "ben")):
        client.post("/login", data={"user_id": name})
    form = {FIELD: issued(anna)}
    assert anna.post("/statement", data=form).text == "The statement of anna"
    assert anna.post("/statement", data=form).text == "The statement of anna"
    strange = ben.post("/statement", data=form)
    assert (strange.status_code, strange.json["code"]) == (409, "duplicate")
    assert "anna" not in strange.text


@pytest.mark.case("IP-01", "IP-02")
def test_behind_a_proxy(load: Load) -> None:
    client = load("proxy").app.test_client()

    def came_from(address: str) -> dict[str, str]:
        return {"X-Forwarded-For": f"203.0.113.9, {address}"}

    token = token_of(client, headers=came_from("198.51.100.1"))
    answers = [client.post("/send", data={FIELD: token}, headers=came_from(f"198.51.100.{n}")) for n in (2, 1)]
    assert [answer.status_code for answer in answers] == [403, 200]


@pytest.mark.case("WIRE-04")
def test_another_origin_may_read_the_answers(load: Load) -> None:
    client = load("cross_origin").app.test_client()
    origin = {"Origin": "https://shop.example"}
    preflight = client.options(
        "/orders", headers={**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": HEADER}
    )
    assert HEADER.lower() in preflight.headers["Access-Control-Allow-Headers"].lower()
    token = {HEADER: issued(client), **origin}
    answers = [
        client.post("/orders", headers=origin),
        *(client.post("/orders", headers=token, json=number) for number in (1, 1, 2)),
    ]
    assert [answer.status_code for answer in answers] == [400, 201, 201, 422]
    for answer in answers:
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"
        assert REPLAYED in answer.headers["Access-Control-Expose-Headers"]


def test_a_streamed_page_sets_its_own_header(load: Load) -> None:
    client = load("streamed").app.test_client()
    page = client.get("/long-form")
    assert page.headers["Cache-Control"] == "private, no-cache"
    (token,) = tokens_of(page.text)
    answers = [client.post("/send", data={FIELD: token}) for _ in range(2)]
    assert [(answer.text, REPLAYED in answer.headers) for answer in answers] == [("Sent.", False), ("Sent.", True)]


@pytest.mark.case("S9")
def test_a_scene_s_token_fits_that_scene_only(load: Load) -> None:
    example = load("scenes")
    client = example.app.test_client()
    order, cancel = tokens_of(client.get("/").text)
    assert client.post("/cancel", data={FIELD: order}).json["code"] == "token_foreign"
    assert client.post("/order", data={FIELD: cancel}).json["code"] == "token_foreign"
    assert client.post("/order", data={FIELD: order}).text == "Ordered."
    assert client.post("/cancel", data={FIELD: cancel}).text == "Cancelled."
    assert client.post("/cancel", data={FIELD: issued(client, "cancel")}).text == "Cancelled."
    assert example.done == ["order", "cancel", "cancel"]


@pytest.mark.parametrize("name", ["redis_url", "redis_client"])
def test_tokens_in_redis(name: str, load: Load, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", valkey.url)
    client = load(name).app.test_client()
    token = token_of(client)
    answers = [client.post("/send", data={FIELD: token}) for _ in range(2)]
    assert [REPLAYED in answer.headers for answer in answers] == [False, True]


def test_a_signal_counts_duplicates(load: Load) -> None:
    example = load("listening")
    send_twice(example.app.test_client(), "/send")
    assert example.duplicates == {"sending a letter": 1}


def test_tests_of_a_user(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(own_tests=(EXAMPLES / "own_tests.py").read_text(encoding="utf-8"))
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "own_tests.py").assert_outcomes(passed=3)


FRAMEWORKS = {
    "with_smorest": lambda body: body["errors"]["reason"],
    "with_restful": lambda body: body["code"],
    "with_apiflask": lambda body: body["code"],  # by the handler that the page advises
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks(name: str, load: Load) -> None:
    example = load(name)
    client = example.app.test_client()
    headers = {HEADER: issued(client)}
    first, second = (client.post("/orders", headers=headers) for _ in range(2))
    assert (first.status_code, first.json) == (second.status_code, second.json) == (201, {"number": 1})
    assert first.data == second.data
    assert REPLAYED in second.headers
    refused = client.post("/orders")
    assert refused.status_code == 400
    assert FRAMEWORKS[name](refused.get_json(force=True)) == "token_missing"
    assert example.made == ["order"]


def test_a_handler_that_hands_the_error_on_goes_before_flask_smorest_s(load: Load) -> None:
    app = load("with_smorest").app
    app.register_error_handler(IdempotencyError, lambda error: error)
    refused = app.test_client().post("/orders")
    assert (refused.content_type, refused.json["code"]) == ("application/problem+json", "token_missing")
