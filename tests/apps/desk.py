"""An app in the test's own process: views guarded by a client's key, whose work waits for the test; and a ledger of
what began and what ended."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flask import request

from flask_idempotent import idempotent
from tests.apps import switched_off
from tests.helpers import Ledger, make_app

PATIENCE = 0.5 if switched_off() else 20.0  # seconds that a test waits for what must happen

Step = Callable[[], Any]


def done() -> Any:
    return {"run": request.get_json()["name"]}, 201


class Desk:
    """``POST /NAME`` for each view; the JSON member ``name`` says which of ``steps`` is taken, :func:`done` otherwise.

    :param views: options of each; ``source="header"`` unless they say otherwise.
    :param layers: decorators above the guard.
    """

    def __init__(
        self, views: dict[str, dict[str, Any]], store: Any = None, *, layers: Iterable[Any] = (), **config: Any
    ) -> None:
        self.app, self.ledger = make_app(store, **config), Ledger()
        self.steps: dict[str, Step] = {}

        def work(**_: Any) -> Any:
            body = request.get_json()
            whose = f"{body.get('account', '-')} {body['name']}"
            self.ledger.add(f"begin {whose}")
            try:
                return self.steps.get(body["name"], done)()
            finally:
                self.ledger.add(f"end {whose}")

        for name, options in views.items():
            view: Any = idempotent(**{"source": "header", **options})(work)
            for layer in layers:
                view = layer(view)
            self.app.add_url_rule(f"/{name}", name, view, methods=["POST"])
            self.app.add_url_rule(f"/{name}/<place>", f"{name}_at", view, methods=["POST"])

    def send(self, path: str, key: str | None = None, *, name: str = "x", **more: Any) -> Any:
        """``headers`` and ``environ_base`` go to the client, the rest into the JSON body."""
        options = {name: more.pop(name) for name in ("environ_base",) if name in more}
        headers = {**({"Idempotency-Key": key} if key is not None else {}), **more.pop("headers", {})}
        return self.app.test_client().post(f"/{path}", json={"name": name, **more}, headers=headers, **options)

    @contextmanager
    def at_work(self, path: str, key: str | None = None, *, name: str = "first", **more: Any) -> Iterator[Working]:
        """The view is at work in the block, or until :meth:`Working.let_go`."""
        working = Working(self.steps.get(name, done))
        self.steps[name] = working.step
        with self.sent(path, key, name=name, **more) as sent:
            try:
                assert working.entered.wait(PATIENCE)
                yield working
            finally:
                working.let_go()
        working.answer = sent.answer

    @contextmanager
    def sent(self, path: str, key: str | None = None, **more: Any) -> Iterator[Sent]:
        """Sent in a thread, answered at the end of the block."""
        sent = Sent()

        def send() -> None:
            started = time.monotonic()
            sent.answer = self.send(path, key, **more)
            sent.seconds = time.monotonic() - started

        thread = threading.Thread(target=send)
        thread.start()
        sent.thread = thread
        try:
            yield sent
        finally:
            thread.join(PATIENCE)
        assert not thread.is_alive(), "never answered"

    def began(self, name: str) -> int:
        return sum(entry.split()[0] == "begin" and entry.split()[-1] == name for entry in self.ledger.entries)


@dataclass
class Sent:
    """What came of a request, and after how many seconds."""

    answer: Any = None
    seconds: float = 0.0
    thread: threading.Thread | None = None

    @property
    def waits(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


@dataclass
class Working:
    """A view that was entered, and goes on when it is let go."""

    then: Step
    entered: threading.Event = field(default_factory=threading.Event)
    gone_on: threading.Event = field(default_factory=threading.Event)
    answer: Any = None

    def step(self) -> Any:
        self.entered.set()
        assert self.gone_on.wait(PATIENCE)
        return self.then()

    def let_go(self) -> None:
        self.gone_on.set()


def overlaps(entries: Iterable[str]) -> list[str]:
    """The entries at which a second one of an entity began before the first had ended."""
    inside: Counter[str] = Counter()
    found = []
    for entry in entries:
        what, entity, *_ = entry.split()
        inside[entity] += 1 if what == "begin" else -1
        if inside[entity] > 1:
            found.append(entry)
    return found


def until(happened: Callable[[], Any], explain: Callable[[], str] = str) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, explain()
        time.sleep(0.002)
