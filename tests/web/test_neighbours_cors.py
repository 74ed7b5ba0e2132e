"""What a script of another origin can read, with Flask-CORS initialised before and after ours, and without it."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Blueprint, Response, request
from flask_cors import CORS, cross_origin

from tests.apps.neighbours import Neighbourhood, either_door, either_order
from tests.helpers import REPLAYED, assert_repeated

A, B = "https://a.example", "https://b.example"
ALLOWED, EXPOSED = "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"


def origin(name: str) -> dict[str, str]:
    return {"Origin": name}


def readable(response: Any) -> list[str]:
    """The header names that the one line of them shows to a script, in small letters."""
    lines = response.headers.getlist(EXPOSED)
    assert len(lines) <= 1
    return [name.strip().lower() for line in lines for name in line.split(",")]


def access_headers(response: Any) -> list[str]:
    return [name for name, _ in response.headers if name.lower().startswith("access-control-")]


@pytest.mark.case("REPLAY-10", "REPLAY-08", "WIRE-04")
@either_order
@either_door
@pytest.mark.parametrize("own", [[], ["X-Total"], ["X-Total", "idempotent-REPLAYED"], "*"], ids=str)
def test_with_cors_a_script_can_read_that_it_is_a_replay_and_the_apps_own_list_stays(
    order: str, door: str, own: Any
) -> None:
    options = {"origins": [A, B], "supports_credentials": own != "*", "expose_headers": own or None}
    shop = Neighbourhood(order, lambda app: CORS(app, **options))
    send = shop.submission(door)

    first, again, third = send(origin(A)), send(origin(B)), send(origin(A))

    assert_repeated(again, first)
    assert [r.headers.getlist(ALLOWED) for r in (first, again, third)] == [[A], [B], [A]]
    listed = [name.lower() for name in own]
    assert readable(first) == listed
    for replay in (again, third):
        assert readable(replay) == [*listed, *([REPLAYED.lower()] if REPLAYED.lower() not in listed else [])]
        assert sorted(access_headers(replay)) == sorted(set(access_headers(replay)))
        assert replay.headers.getlist("Vary") == first.headers.getlist("Vary") == ["Origin"]
    assert len(shop.ledger) == 1


@pytest.mark.case("REPLAY-10")
@either_order
@either_door
def test_an_origin_that_may_not_read_may_not_read_a_replay_either(order: str, door: str) -> None:
    shop = Neighbourhood(order, lambda app: CORS(app, origins=[A, "https://c.example"]))
    send = shop.submission(door)

    first, again = send(origin(A)), send(origin(B))

    assert_repeated(again, first)
    assert access_headers(again) == []
    assert len(shop.ledger) == 1


@pytest.mark.case("REPLAY-10", "REPLAY-08")
@either_door
@pytest.mark.parametrize("headers", [{}, origin(A), origin("http://localhost"), origin("null")], ids=str)
def test_without_cors_nothing_is_added_that_opens_anything(door: str, headers: dict[str, str]) -> None:
    shop = Neighbourhood("neighbour last", lambda app: None)
    send = shop.submission(door)

    first, again = send(headers), send(headers)

    assert_repeated(again, first)
    assert access_headers(again) == access_headers(first) == []


@pytest.mark.case("REPLAY-10")
@either_order
@either_door
def test_what_cross_origin_said_to_the_first_one_gives_way_to_what_the_hook_says_now(order: str, door: str) -> None:
    options = {"origins": [A, B], "supports_credentials": True}
    shop = Neighbourhood(order, lambda app: CORS(app, **options), cross_origin(**options))
    send = shop.submission(door)

    first, again = send(origin(A)), send(origin(B))

    assert_repeated(again, first)
    for answer, name in ((first, A), (again, B)):
        assert answer.headers.getlist(ALLOWED) == [name]
        assert answer.headers.getlist("Access-Control-Allow-Credentials") == ["true"]
        assert answer.headers.getlist("Vary") == ["Origin"]
    assert readable(again) == [REPLAYED.lower()]
    assert len(shop.ledger) == 1


@pytest.mark.case("REPLAY-10")
@either_door
def test_what_cross_origin_said_is_shown_again_to_the_same_origin_only(door: str) -> None:
    shop = Neighbourhood("neighbour last", lambda app: None, cross_origin(origins=[A, B]))
    send = shop.submission(door)

    first, again, by_another, third = send(origin(A)), send(origin(A)), send(origin(B)), send()

    for response in (again, by_another, third):
        assert_repeated(response, first)
    assert again.headers.getlist(ALLOWED) == [A]
    assert readable(again) == [REPLAYED.lower()]
    assert access_headers(by_another) == access_headers(third) == []


@pytest.mark.case("REPLAY-10")
@either_door
@pytest.mark.parametrize("how", ["hook", "blueprint", "view"])
def test_headers_that_the_app_sets_without_the_extension_are_completed_too(door: str, how: str) -> None:
    shop = Neighbourhood("neighbour last", lambda app: None)

    def allow(response: Response) -> Response:
        response.headers[ALLOWED] = request.headers.get("Origin", "null")
        response.headers[EXPOSED] = "X-Total"
        return response

    path = "/work"
    if how == "hook":
        shop.app.after_request(allow)
    elif how == "view":
        shop.answer = lambda: ("made", 201, {ALLOWED: "*", EXPOSED: "X-Total"})
    else:
        api, path = Blueprint("api", __name__), "/api/work"
        CORS(api, origins=[A, B], expose_headers=["X-Total"])
        api.post("/work")(shop.app.view_functions["work"])
        shop.app.register_blueprint(api, url_prefix="/api")
    send = shop.submission(door)

    first, again = send(origin(A), path=path), send(origin(B), path=path)

    assert_repeated(again, first)
    assert again.headers.getlist(ALLOWED) == ["*" if how == "view" else B]
    assert (readable(first), readable(again)) == (["x-total"], ["x-total", REPLAYED.lower()])
    assert len(shop.ledger) == 1


@pytest.mark.case("REPLAY-10", "FORM-03")
def test_only_an_answer_that_is_a_replay_is_exposed_as_one() -> None:
    shop = Neighbourhood("neighbour first", lambda app: CORS(app, origins=[A]))
    shown: list[Any] = []

    def once_replayed(error: Any) -> Any:
        shown.append(error.replay())
        return shown[-1] if len(shown) == 1 else "an answer of the app's own"

    shop.guard("/own", on_duplicate=once_replayed)
    send = shop.submission("key")

    answers = [send(origin(A), path="/own") for _ in range(3)]

    assert [readable(answer) for answer in answers] == [[], [REPLAYED.lower()], []]
    assert len(shop.ledger) == 1
