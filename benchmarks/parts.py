"""Where a protected request's microseconds go: each part by itself, warm, the best of many rounds; and what the server
says that its scripts take. In a request everything is colder: the parts add up to less than what it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from flask import Flask, jsonify

from flask_idempotent.core.record import State
from flask_idempotent.web import principals, snapshot, sources, tokens
from flask_idempotent.web.attempt import Attempt
from flask_idempotent.web.content import Content
from flask_idempotent.web.outcome import outcome_of
from flask_idempotent.web.present import present

ROUNDS, CALLS = 40, 200
Part = tuple[str, Callable[[], Any]]


def parts(app: Flask, environ: Callable[[], dict[str, Any]], client: Any) -> Iterator[tuple[str, float]]:
    """Yield name and microseconds of each part.

    :param environ: returns the WSGI environment of one request with a good token.
    :param client: of the server, to ask what its scripts took.
    """
    with app.request_context(environ()) as context:
        state = app.extensions["idempotency"]
        state.look()
        rules = next(iter(state.rules.values()))
        made = app.make_response((jsonify(id=4711, state="paid", amount=1299), 201))
        for name, call in (*_of_asking(rules, environ), *_of_the_store(rules, made), *_of_answering(rules, made)):
            yield name, _best(call, context)
    yield from _of_the_server(rules.guard.store, client)


def _of_asking(rules: Any, environ: Callable[[], dict[str, Any]]) -> Iterator[Part]:
    request, body = present(), environ()["wsgi.input"].getvalue()

    def content() -> Content:
        request.environ["wsgi.input"] = BytesIO(body)
        return Content(request, rules.max_body)

    yield "the attempt, and its place in the request", lambda: Attempt(rules, request)
    yield "the token: header, spelling", lambda: tokens.find(("header",), request, rules.token_environ, "", content())
    yield "the token: digest", lambda: sources.token_digest("0" * 32)
    yield "the binding: address", lambda: rules.bindings.of("ip", request, lambda: None)
    yield "the fingerprint of the JSON", lambda: content().fingerprint(token_fields=("a", "b"))
    yield "who is asking", lambda: principals.viewer(request, principals.verified_principal(None))


def _of_the_store(rules: Any, made: Any) -> Iterator[Part]:
    store = rules.guard.store
    result = snapshot.pack(snapshot.capture(made, rules.max_result) or snapshot.Snapshot(201))
    numbers = iter(range(10**9))

    def claim() -> Any:
        owner = f"owner-{next(numbers):010d}"
        asked = {"lease": 300, "ttl": 3600, "binding": "b" * 24, "scene": "pay", "fingerprint": "f" * 24}
        return store.claim(f"idempotency:{owner}", owner=owner, **asked)

    yield "the store: claim, with its round trip", claim
    claims = [claim() for _ in range((ROUNDS + 1) * CALLS)]
    yield (
        "the store: complete, with its round trip",
        lambda: store.settle(claims.pop(), state=State.DONE, hold=300, ttl=3600, result=result),
    )


def _of_answering(rules: Any, made: Any) -> Iterator[Part]:
    kept = snapshot.capture(made, rules.max_result) or snapshot.Snapshot(201)
    packed = snapshot.pack(kept)
    yield "the outcome", lambda: outcome_of((made, 201))
    yield "the answer: captured", lambda: snapshot.capture(made, rules.max_result)
    yield "the answer: packed", lambda: snapshot.pack(kept)
    yield "the replay: unpacked", lambda: snapshot.unpack(packed)
    yield "the replay: a response", lambda: snapshot.to_response(kept, type(made))


def _of_the_server(store: Any, client: Any) -> Iterator[tuple[str, float]]:
    for name, take in (("claim", 1), ("claim and complete", 2)):
        client.config_resetstat()
        for number in range(2_000):
            owner = f"{name}-{number}"
            claimed = store.claim(f"idempotency:{owner}", owner=owner, lease=300, ttl=3600, fingerprint="f" * 24)
            if take == 2:
                store.settle(claimed, state=State.DONE, hold=300, ttl=3600, result=b"x" * 200)
        taken = client.info("commandstats")["cmdstat_evalsha"]
        yield f"of it inside the server: {name}", taken["usec"] / 2_000


def _best(call: Callable[[], Any], context: Any) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - started) / CALLS * 1e6)
        context._after_request_functions.clear()  # noqa: SLF001  # each attempt has registered itself there
    return best
