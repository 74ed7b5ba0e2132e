"""The same view, bare, guarded by hand, and guarded by us."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import redis
from flask import Flask, Response, jsonify, request

from flask_idempotent import Idempotency, idempotent

# The least that a guard can be: claim unless it is there, then put the answer in its place. No owner, fence or lease.
CLAIM = b"""
local held = redis.call('GET', KEYS[1])
if held then return held end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
"""
SETTLE = b"return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])"
LIFE = 3_600_000  # milliseconds


def pay() -> tuple[Response, int]:
    """Answer with a little JSON, as an API does."""
    return jsonify(id=4711, state="paid", amount=request.get_json()["amount"]), 201


def bare(url: str) -> Flask:
    """No protection: the floor."""
    app = Flask("bare")
    app.add_url_rule("/pay", view_func=pay, methods=["POST"])
    return app


def by_hand(url: str) -> Flask:
    """Two scripts through redis-py, and a digest of key and body: what a careful team writes on an afternoon."""
    app = Flask("by_hand")
    client = redis.Redis.from_url(url)
    claim, settle = (client.script_load(script) for script in (CLAIM, SETTLE))

    def guarded() -> Any:
        key = "hand:" + hashlib.sha256(request.headers["Idempotency-Token"].encode()).hexdigest()
        body = hashlib.sha256(request.get_data()).hexdigest()
        held = client.evalsha(claim, 1, key, b"running" + body.encode(), LIFE)
        if held is not None:
            return Response(held[64:], 201, mimetype="application/json")
        response, status = pay()
        client.evalsha(settle, 1, key, body.encode() + response.get_data(), LIFE)
        return response, status

    app.add_url_rule("/pay", view_func=guarded, methods=["POST"])
    return app


def one_evalsha(url: str) -> Flask:
    """A bare view and one script: the floor for what takes a single round trip."""
    app = Flask("one_evalsha")
    client = redis.Redis.from_url(url)
    claim = client.script_load(CLAIM)

    def guarded() -> Any:
        key = "one:" + hashlib.sha256(request.headers["Idempotency-Token"].encode()).hexdigest()
        body = hashlib.sha256(request.get_data()).hexdigest()
        client.evalsha(claim, 1, key, body, LIFE)
        return pay()

    app.add_url_rule("/pay", view_func=guarded, methods=["POST"])
    return app


def ours(url: str, **options: Any) -> Flask:
    """``@idempotent``."""
    app = Flask("ours")
    app.config["IDEMPOTENCY_STORE"] = url
    Idempotency(app)
    app.add_url_rule("/pay", view_func=idempotent(**options)(pay) if options else idempotent(pay), methods=["POST"])
    return app


def unmarked(url: str) -> Flask:
    """The bare view in an app that has the extension."""
    app = Flask("unmarked")
    app.config["IDEMPOTENCY_STORE"] = url
    Idempotency(app)
    app.add_url_rule("/pay", view_func=pay, methods=["POST"])
    return app


def tokens(app: Flask, count: int) -> list[str]:
    """Issue tokens of an app, or make some up for one that has none."""
    issue: Callable[[], str] | None = None
    state = app.extensions.get("idempotency")
    if state is not None:
        issue = Idempotency().token
    else:
        from flask_idempotent.core.ids import new_token as issue
    with app.test_request_context("/", environ_base={"REMOTE_ADDR": "127.0.0.1"}):
        return [issue() for _ in range(count)]
