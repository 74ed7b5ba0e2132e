"""The field: the same view under each of three libraries, as its own documentation says."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import redis
from flask import Flask, jsonify, request

from .apps import pay

# Behind everything else: Flask and redis-py are the ones that we run with, too.
sys.path.append(os.environ.get("BENCHMARK_PEERS", ""))


def idemkit(url: str) -> Flask:
    """WSGI middleware."""
    from idemkit import HttpConfig, RedisBackend, WSGIIdempotencyMiddleware

    app = Flask("idemkit")
    app.add_url_rule("/pay", view_func=pay, methods=["POST"])
    config = HttpConfig(scope=lambda asked: "anonymous", scope_mode="strict")
    backend = RedisBackend.from_url(url, namespace="ik")
    app.wsgi_app = WSGIIdempotencyMiddleware(app.wsgi_app, backend=backend, config=config)
    return app


def powertools(url: str) -> Flask:
    """A decorated function inside the view."""
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    os.environ.setdefault("POWERTOOLS_TRACE_DISABLED", "1")
    warnings.simplefilter("ignore")
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

    app = Flask("powertools")
    store = CachePersistenceLayer(client=redis.Redis.from_url(url, decode_responses=True))
    config = IdempotencyConfig(event_key_jmespath="[key]", raise_on_no_idempotency_key=True)

    @idempotent_function(data_keyword_argument="asked", persistence_store=store, config=config)
    def once(asked: dict[str, Any]) -> dict[str, Any]:
        return {"id": 4711, "state": "paid", "amount": asked["amount"]}

    def guarded() -> Any:
        return jsonify(once(asked={"key": request.headers["Idempotency-Key"], **request.get_json()})), 201

    app.add_url_rule("/pay", view_func=guarded, methods=["POST"])
    return app


def exactly_once(url: str) -> Flask:
    """A decorated function inside the view."""
    from exactly_once import once
    from exactly_once.stores.redis import RedisStore

    app = Flask("exactly_once")

    @once(RedisStore(url, committed_ttl=3600), key=lambda key, amount: f"pay:{key}")
    def paid(key: str, amount: int) -> dict[str, Any]:
        return {"id": 4711, "state": "paid", "amount": amount}

    def guarded() -> Any:
        return jsonify(paid(request.headers["Idempotency-Key"], request.get_json()["amount"])), 201

    app.add_url_rule("/pay", view_func=guarded, methods=["POST"])
    return app
