"""What tests of the web part share: an app, a token, a ledger, and how an answer is judged."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flask import Flask, render_template_string

from flask_idempotent import Idempotency
from flask_idempotent.config import DEFAULTS
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.apps import off_switch

FIELD = "idempotency_token"
HEADER = "Idempotency-Token"
REPLAYED = "Idempotent-Replayed"
_VALUE = re.compile(r'name="idempotency_token" value="([0-9a-f-]{36})"')


def make_app(store: Any = None, *, clock: FakeClock | None = None, **config: Any) -> Flask:
    """A fresh app with a form at ``/form``. Keys of ``config`` that are ours go without ``IDEMPOTENCY_``.

    :param store: as for init_app; left out, a memory store of its own, by ``clock`` if given.
    """
    app = off_switch(Flask("tests.helpers"))
    app.config.update(TESTING=True, SECRET_KEY="a secret of the tests", PROPAGATE_EXCEPTIONS=False)
    app.config.update({f"IDEMPOTENCY_{key}" if key in DEFAULTS else key: value for key, value in config.items()})
    if store is None and "STORE" not in config:
        store = MemoryStore(clock=clock) if clock is not None else MemoryStore()
    Idempotency(app, store=store)

    @app.get("/form")
    def form() -> str:
        return render_template_string("<form method=post>{{ idempotency_token() }}</form>")

    return app


def tokens_of(page: str) -> list[str]:
    """Every token on a page, in order."""
    return _VALUE.findall(page)


def token_of(client: Any, path: str = "/form", **options: Any) -> str:
    """Fetch a page with ``client`` and return the one token on it."""
    (token,) = tokens_of(client.get(path, **options).text)
    return token


class Ledger:
    """Counts effects outside the product. With a path it is a file, and counts over processes.

    :param path: of the file to append to; made when absent.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = Path(path) if path is not None else None
        self._lock = threading.Lock()
        self._entries: list[str] = []
        if self._path is not None:
            self._path.touch()

    def add(self, entry: object = "effect") -> int:
        """Book one effect; return how many there are now."""
        line = f"{entry}\n".encode()
        with self._lock:
            if self._path is None:
                self._entries.append(str(entry))
            else:
                # One write in append mode: lines of several processes do not mix.
                descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                try:
                    os.write(descriptor, line)
                finally:
                    os.close(descriptor)
            return len(self)

    @property
    def entries(self) -> list[str]:
        return list(self._entries) if self._path is None else self._path.read_text().splitlines()

    def __len__(self) -> int:
        return len(self.entries)


def reason_of(response: Any) -> str | None:
    """The reason that a refusal names in either JSON shape; None for any other answer."""
    body = response.json() if callable(response.json) else response.get_json(silent=True)
    if not isinstance(body, dict):
        return None
    reason = body.get("reason", body.get("code"))
    return reason if isinstance(reason, str) else None


def assert_refused(response: Any, reason: str, status: int = 409) -> None:
    """A clean refusal: the documented status and reason, words for a person, no traceback."""
    assert (response.status_code, reason_of(response)) == (status, reason), response.text
    assert REPLAYED not in response.headers
    assert "Traceback" not in response.text


def assert_repeated(response: Any, first: Any, policy: str = "replay") -> None:
    """What a finished duplicate gets: the first answer, marked; or under ``reject`` its refusal."""
    if policy == "reject":
        assert_refused(response, "duplicate")
        return
    assert response.status_code == first.status_code, response.text
    assert response.headers.get(REPLAYED) == "true"
    assert body_of(response) == body_of(first)
    assert response.headers.get("Content-Type") == first.headers.get("Content-Type")
    assert response.headers.get("Location") == first.headers.get("Location")


def body_of(response: Any) -> bytes:
    """The body of a test client's answer, or of one that came over a socket."""
    data = response.content if hasattr(response, "content") else response.data
    return bytes(data)


def events_logged(records: Iterable[logging.LogRecord], *levels: int) -> list[str]:
    """The names of the events that the product logged at these levels, in order."""
    own = [r for r in records if r.name.startswith("flask_idempotent") and r.levelno in levels]
    return [r.getMessage().split()[0] for r in own]


def assert_never_logged(tokens: Iterable[str], records: Iterable[logging.LogRecord]) -> None:
    """No record names one of the tokens in any spelling, neither in its text nor in what it was made of."""
    for record in records:
        said = f"{record.getMessage()} {record.args!r} {record.exc_text or ''} {record.exc_info!r}"
        plain = said.replace("-", "").lower()
        for token in tokens:
            assert token.replace("-", "").lower() not in plain, record.getMessage()
