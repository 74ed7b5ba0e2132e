"""How a refusal looks, and who may handle it."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import Conflict, HTTPException, TooManyRequests

from flask_idempotent.core import errors
from flask_idempotent.core.record import State
from flask_idempotent.web.problems import Answers, as_http, promote_handlers

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
PROBLEM = "application/problem+json"


EVERY_ERROR = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.IdempotencyError) and "reason" in vars(kind)
]
EVERY_ERROR.remove(errors.IdempotencyError)


def app_that_refuses(error: errors.IdempotencyError, answers: Answers | None = None) -> Flask:
    app = Flask(__name__)

    @app.route("/form", methods=["GET", "POST"])
    def form() -> str:
        if request.method == "POST":
            raise as_http(error, answers or Answers())
        return "the form"

    return app


def refused(error: errors.IdempotencyError, answers: Answers | None = None, **headers: str) -> Any:
    return app_that_refuses(error, answers).test_client().post("/form", headers=headers)


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_each_refusal_is_its_own_class_and_that_of_its_status(kind: type[errors.IdempotencyError]) -> None:
    error = as_http(kind(), Answers())
    assert isinstance(error, kind)
    assert isinstance(error, HTTPException)
    assert (type(error).__name__, type(error).__module__) == (kind.__name__, kind.__module__)
    assert error.code == kind.status
    assert type(error) is type(as_http(kind(), Answers()))
    assert f"({kind.reason})" in str(error)
    with pytest.raises(kind):
        raise error


def test_it_is_werkzeugs_class_of_the_status() -> None:
    assert isinstance(as_http(errors.InProgress(), Answers()), Conflict)
    assert isinstance(as_http(errors.TooSoon(), Answers()), TooManyRequests)
    assert isinstance(as_http(errors.Duplicate(), Answers(duplicate_status=429)), TooManyRequests)
    odd = as_http(errors.Duplicate(), Answers(duplicate_status=460))  # of which werkzeug knows nothing
    assert (odd.code, odd.get_response().status_code) == (460, 460)


def test_what_the_error_carries_is_carried_over() -> None:
    error = errors.InProgress("busy", state=State.RUNNING, seconds_left=1.5, replayer=lambda: "first")
    error.retry_after = 2
    carried: Any = as_http(error, Answers())
    assert (carried.reason, carried.message, carried.state, carried.seconds_left) == (
        "in_progress",
        "busy",
        "running",
        1.5,
    )
    assert (carried.retry_after, carried.replay(), carried.args) == (2, "first", ("busy",))
    assert as_http(carried, Answers()) is carried


def test_a_replay_that_is_not_there_is_a_refusal_too() -> None:
    error: Any = as_http(errors.Duplicate(), Answers())
    with pytest.raises(errors.ResponseUnavailable) as caught:
        error.replay()
    assert isinstance(caught.value, HTTPException)


def test_problem_details() -> None:
    error = errors.Duplicate()
    error.retry_after = 3
    response = refused(error, Answers(policy_url="/docs/idempotency"))
    assert (response.status_code, response.content_type) == (409, PROBLEM)
    assert response.json == {
        "type": "urn:flask-idempotency:duplicate",
        "title": "Already done",
        "status": 409,
        "detail": f"{errors.Duplicate.text} {errors.Duplicate.cure}",
        "code": "duplicate",
    }
    assert response.headers["Retry-After"] == "3"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Vary"] == "Accept"
    assert response.headers["Link"] == '</docs/idempotency>; rel="describedby"'


def test_the_envelope() -> None:
    response = refused(errors.KeyReused(), Answers(format="envelope"))
    assert (response.status_code, response.content_type) == (422, "application/json")
    detail = f"{errors.KeyReused.text} {errors.KeyReused.cure}"
    assert response.json == {"code": 429, "message": detail, "data": None, "reason": "key_reused"}
    assert "Retry-After" not in response.headers
    assert "Link" not in response.headers


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_a_message_of_the_apps_own_is_said_of_duplicates_only(kind: type[errors.IdempotencyError]) -> None:
    ours = refused(kind(), Answers(message="请勿重复提交"))
    mine = kind in (errors.Duplicate, errors.InProgress, errors.ResponseUnavailable)
    assert (ours.json["detail"] == "请勿重复提交") is mine
    assert mine or ours.json["detail"] == f"{kind.text} {kind.cure}"
    page = refused(kind(), Answers(message="请勿重复提交"), **HTML).text
    assert ('<p lang="">请勿重复提交</p>' in page) is mine


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, PROBLEM),
        ({"Accept": "*/*"}, PROBLEM),
        ({"Accept": "text/*"}, PROBLEM),
        ({"Accept": "application/json"}, PROBLEM),
        ({"Accept": "application/json, text/html;q=0"}, PROBLEM),
        ({**HTML, "HX-Request": "true"}, PROBLEM),
        ({"Accept": "nonsense;;q=x,"}, PROBLEM),
        (HTML, "text/html; charset=utf-8"),
        ({"Accept": "application/json, text/html;q=0.1"}, "text/html; charset=utf-8"),
        ({"Accept": "Text/HTML;level=1"}, "text/html; charset=utf-8"),
    ],
)
def test_who_gets_a_page(headers: dict[str, str], kind: str) -> None:
    response = refused(errors.TokenReused(), **headers)
    assert (response.status_code, response.content_type) == (422, kind)
    enveloped = refused(errors.TokenReused(), Answers(format="envelope"), **headers)
    assert enveloped.content_type == kind.replace(PROBLEM, "application/json")


def test_head_gets_the_headers_alone() -> None:
    app = Flask(__name__)

    @app.get("/")
    def view() -> str:
        raise as_http(errors.TooSoon(), Answers())

    response = app.test_client().head("/")
    assert (response.status_code, response.data) == (429, b"")
    assert int(response.headers["Content-Length"]) == len(app.test_client().get("/").data)


def test_it_renders_without_any_context() -> None:
    error = as_http(errors.InProgress(), Answers())
    assert json.loads(error.get_response().data)["code"] == "in_progress"
    page = error.get_response({"HTTP_ACCEPT": "text/html"})
    assert page.data.startswith(b"<!doctype html>")
    assert error.get_response(None, {}).status_code == 409


def test_a_handler_may_change_the_response_or_give_another() -> None:
    error = as_http(errors.InProgress(), Answers())
    error.get_response().data = b"changed"
    assert b"changed" not in error.get_response().data
    error.response = Response("another")
    assert error.get_response().data == b"another"


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_each_page_says_what_happened_and_what_to_do(kind: type[errors.IdempotencyError]) -> None:
    page = refused(kind(), **HTML).text.replace("&#39;", "'")
    assert kind.text in page
    assert kind.cure in page
    assert f"{kind.reason}, {kind.status}" in page
    assert page.startswith('<!doctype html>\n<html lang="en">')
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert re.search(r"<title>[^<]+</title>", page)
    assert not re.search(r"<script|https?://|//|url\(|@import", page)
    good_news = kind.reason in ("in_progress", "duplicate", "response_unavailable", "exists")
    assert ('role="status"' in page, 'role="alert"' in page) == (good_news, not good_news)
    if good_news:
        assert not re.search(
            r"error|fail|wrong|invalid|sorry", re.sub(r"(?s)<style>.*</style>", "", page), re.IGNORECASE
        )


def test_nothing_is_echoed_unescaped() -> None:
    page = refused(errors.KeyMissing("<script>alert(1)</script>"), **HTML).text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<b>" not in refused(errors.Duplicate(), Answers(message="<b>"), **HTML).text


def test_the_page_does_not_depend_on_the_apps_delimiters() -> None:
    app = app_that_refuses(errors.Duplicate())
    app.jinja_options = {"variable_start_string": "<<", "variable_end_string": ">>", "autoescape": False}
    assert "Already done</h1>" in app.test_client().post("/form", headers=HTML).text


FORM = 'href="/form"'


@pytest.mark.parametrize(
    ("referrer", "link"),
    [
        ("http://localhost/form", FORM),
        ("http://localhost/form?a=1&b=%3C", 'href="/form?a=1&amp;b=%3C"'),
        ("http://localhost/", None),  # no such page
        ("http://localhost/form/no", None),
        ("http://elsewhere/form", None),
        ("https://localhost/form", None),
        ("http://localhost:81/form", None),
        ("http://user@localhost/form", None),
        ("http://localhost//elsewhere/form", None),
        ("http://localhost//form", None),  # Flask would redirect it; a browser goes to a host named form
        ("http://localhost/\\elsewhere", None),
        ('http://localhost/form?"><script>', None),
        ("javascript:alert(1)", None),
        ("http://[", None),
        ("/form", None),
        ("", None),
    ],
)
def test_a_link_leads_back_to_the_form_if_it_can_be_opened(referrer: str, link: str | None) -> None:
    page = refused(errors.TokenReused(), **HTML, Referer=referrer).text
    assert "href" not in page if link is None else link in page


def test_the_link_knows_where_the_app_is_mounted() -> None:
    client = app_that_refuses(errors.TokenUnknown()).test_client()
    for referrer, found in (("/shop/form", True), ("/form", False)):
        headers = {**HTML, "Referer": f"http://localhost{referrer}"}
        page = client.post("/form", headers=headers, environ_overrides={"SCRIPT_NAME": "/shop"}).text
        assert (f'href="{referrer}"' in page) is found


def test_no_link_where_a_new_form_would_do_harm() -> None:
    for kind in (
        errors.InProgress,
        errors.Duplicate,
        errors.ResponseUnavailable,
        errors.Failed,
        errors.StoreUnavailable,
    ):
        assert "href" not in refused(kind(), **HTML, Referer="http://localhost/form").text


class Handlers:
    """An app with handlers of its own; each answers with its name and the refusal's reason."""

    def __init__(self, duplicate_status: int = 409) -> None:
        self.app = Flask(__name__)
        self.app.config["IDEMPOTENCY_DUPLICATE_STATUS"] = duplicate_status
        self.blueprint = Blueprint("shop", __name__)
        self._answers = Answers(duplicate_status=duplicate_status)
        self.error: errors.IdempotencyError = errors.InProgress()
        self.app.add_url_rule("/app", view_func=self.view)
        self.blueprint.add_url_rule("/shop", view_func=self.view)

    def view(self) -> str:
        raise as_http(copy.copy(self.error), self._answers)

    def on(self, kind: Any, name: str, scope: Any = None) -> None:
        (scope or self.app).register_error_handler(kind, lambda error: (f"{name} {getattr(error, 'reason', '')}", 418))

    def ready(self) -> Handlers:
        self.app.register_blueprint(self.blueprint)
        promote_handlers(self.app)
        promote_handlers(self.app)
        return self

    def answer(self, path: str = "/app", error: errors.IdempotencyError | None = None) -> str:
        self.error = error or errors.InProgress()
        return self.app.test_client().get(path).text


BY_DISTANCE: list[tuple[Any, str]] = [
    (errors.InProgress, "class"),
    (errors.IdempotencyError, "root"),
    (409, "status"),
    (HTTPException, "http"),
    (Exception, "any"),
]


@pytest.mark.parametrize("first", range(len(BY_DISTANCE)))
def test_the_most_specific_handler_wins(first: int) -> None:
    handlers = Handlers()
    for kind, name in reversed(BY_DISTANCE[first:]):
        handlers.on(kind, name)
    assert handlers.ready().answer() == f"{BY_DISTANCE[first][1]} in_progress"
    assert handlers.answer("/shop") == f"{BY_DISTANCE[first][1]} in_progress"


def test_a_class_handles_its_own_reason_only() -> None:
    handlers = Handlers()
    handlers.on(errors.TokenMissing, "missing")
    handlers.on(400, "status")
    handlers.on(errors.IdempotencyError, "root")
    handlers.ready()
    assert handlers.answer(error=errors.TokenMissing()) == "missing token_missing"
    assert handlers.answer(error=errors.TokenInvalid()) == "root token_invalid"
    assert handlers.answer(error=errors.TokenReused()) == "root token_reused"
    assert handlers.app.test_client().get("/none").status_code == 404


@pytest.mark.parametrize("kind", [errors.InProgress, errors.IdempotencyError, 409, HTTPException])
def test_a_blueprints_handler_goes_before_the_apps(kind: Any) -> None:
    handlers = Handlers()
    handlers.on(kind, "app")
    handlers.on(kind, "blueprint", handlers.blueprint)
    assert handlers.ready().answer("/shop") == "blueprint in_progress"
    assert handlers.answer("/app") == "app in_progress"


@pytest.mark.parametrize("kind", [errors.Duplicate, errors.IdempotencyError])
def test_handlers_follow_the_status_of_duplicates(kind: Any) -> None:
    handlers = Handlers(duplicate_status=429)
    handlers.on(kind, "class")
    handlers.on(429, "status")
    assert handlers.ready().answer(error=errors.Duplicate()) == "class duplicate"


def test_a_status_handler_still_gets_what_is_not_ours() -> None:
    handlers = Handlers()
    handlers.on(errors.IdempotencyError, "root")
    handlers.on(409, "status")
    handlers.ready()

    def conflict() -> str:
        raise Conflict

    handlers.app.add_url_rule("/conflict", view_func=conflict)
    assert handlers.answer("/conflict") == "status "
