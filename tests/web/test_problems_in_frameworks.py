"""Frameworks that answer exceptions by themselves: reason and Retry-After get through all of them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from flask import Flask

from flask_idempotent.core.errors import IdempotencyError, InProgress
from flask_idempotent.web.problems import Answers, as_http, promote_handlers


def busy(answers: Answers | None = None) -> Any:
    error = InProgress()
    error.retry_after = 2
    return as_http(error, answers or Answers())


def view() -> Any:
    raise busy()


def under_smorest() -> Flask:
    import flask_smorest

    app = Flask(__name__)
    app.config.update(API_TITLE="t", API_VERSION="1", OPENAPI_VERSION="3.0.3")
    flask_smorest.Api(app)
    app.add_url_rule("/", view_func=view)
    return app


def under_apiflask() -> Flask:
    import apiflask

    app: Flask = apiflask.APIFlask(__name__)
    app.add_url_rule("/", view_func=view)
    return app


def under_restful(errors: dict[str, Any] | None = None) -> Flask:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        import flask_restful

    class Resource(flask_restful.Resource):  # type: ignore[misc]
        def get(self) -> Any:
            view()

    app = Flask(__name__)
    flask_restful.Api(app, errors=errors).add_resource(Resource, "/")
    return app


@pytest.mark.parametrize("make", [under_smorest, under_apiflask, under_restful])
def test_reason_and_retry_after_get_through(make: Any) -> None:
    for headers in ({}, {"Accept": "text/html"}):
        response = make().test_client().get("/", headers=headers)
        assert response.status_code == 409
        assert "in_progress" in response.text
        assert response.headers.getlist("Retry-After") == ["2"]
        assert response.headers["Cache-Control"] == "no-store"
        assert len(response.headers.getlist("Content-Type")) == 1
        assert int(response.headers["Content-Length"]) == len(response.data)


def test_flask_smorest_says_it_in_its_own_shape() -> None:
    response = under_smorest().test_client().get("/")
    assert response.json == {
        "code": 409,
        "status": "Conflict (in_progress)",
        "message": f"{InProgress.text} {InProgress.cure}",
        "errors": {"reason": "in_progress"},
    }


def test_apiflask_says_it_in_its_own_shape() -> None:
    response = under_apiflask().test_client().get("/")
    assert response.json == {"message": "Conflict (in_progress)", "detail": {}}


@pytest.mark.parametrize("errors", [None, {"InProgress": {"message": "own"}}])
def test_flask_restful_passes_our_answer_on(errors: dict[str, Any] | None) -> None:
    response = under_restful(errors).test_client().get("/")
    assert response.content_type == "application/problem+json"
    assert response.json["code"] == "in_progress"


@pytest.mark.parametrize("make", [under_smorest, under_apiflask])
def test_the_apps_handler_for_our_class_goes_before_the_frameworks(make: Any) -> None:
    app = make()
    app.register_error_handler(IdempotencyError, lambda error: error.get_response())
    promote_handlers(app)
    response = app.test_client().get("/")
    assert response.content_type == "application/problem+json"
    assert response.json["code"] == "in_progress"
