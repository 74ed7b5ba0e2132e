"""The first requests of a process come at once: they look at the views together, and none slips through unguarded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from flask import Flask

from flask_idempotent import Idempotency, idempotent
from tests.helpers import HEADER

THREADS, VIEWS = 12, 300


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.case("S1", "S13")
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("attempt", range(3))
def test_the_first_requests_of_an_app_are_guarded(attempt: int) -> None:
    app, ran = Flask("fresh"), []
    Idempotency(app)
    for number in range(VIEWS):
        app.add_url_rule(f"/{number}", f"view{number}", idempotent(lambda: ran.append(1) or "done"), methods=["POST"])
    with app.test_request_context("/", environ_base={"REMOTE_ADDR": "127.0.0.1"}):
        token = app.extensions["idempotency"].issue("", 60)  # looks at nothing yet, as a token of another process
    barrier, answers = threading.Barrier(THREADS), []

    def send(number: int) -> None:
        client = app.test_client()
        barrier.wait()
        for _ in range(number * 400):  # they arrive one by one, all along the look
            pass
        answers.append(client.post(f"/{VIEWS - 1}", headers={HEADER: token}).status_code)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ran) == 1
    assert set(answers) <= {200, 409}
    assert len(answers) == THREADS
