"""A view that takes longer than its lease keeps its claim, a frozen worker loses it, and nobody is told twice."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from flask_idempotent import current_claim, idempotent
from tests.helpers import FIELD, Ledger, assert_refused, assert_repeated, make_app, token_of, tokens_of
from tests.servers import RedisServer
from tests.webservers import WebServer, gunicorn_argv

pytestmark = pytest.mark.case("S10")

PATIENCE = 20.0  # seconds that a test waits for what must happen
LEASE = 1.5  # seconds; the machine may stand still for half of it


def until(happened: Callable[[], Any], explain: Callable[[], str] = str) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, explain()
        time.sleep(0.005)


# -- in one process ------------------------------------------------------------------------------------------------


class Site:
    """An app whose view waits for the test."""

    def __init__(self, store: str, lease: float = LEASE) -> None:
        self.app, self.ledger = make_app(store, LEASE=lease), Ledger()
        self.at_work, self.go_on = threading.Event(), threading.Event()
        self.inside: Callable[[], Any] = lambda: None

        @self.app.post("/work")
        @idempotent
        def work() -> tuple[str, int]:
            number = self.ledger.add()
            self.at_work.set()
            self.go_on.wait(PATIENCE)
            self.inside()
            return f"run {number}", 201

        self.client = self.app.test_client()

    def send(self, token: str) -> Any:
        return self.app.test_client().post("/work", data={FIELD: token})


@contextmanager
def working(site: Site, token: str) -> Iterator[list[Any]]:
    """The view is at work in the block; afterwards the list has its answer."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(site.send(token)))
    thread.start()
    try:
        assert site.at_work.wait(PATIENCE)
        yield answers
    finally:
        site.go_on.set()
        thread.join(PATIENCE)


@pytest.mark.parametrize("store", ["memory://", "valkey"])
def test_a_view_that_outlives_three_leases_is_run_by_nobody_else(store: str, request: pytest.FixtureRequest) -> None:
    site = Site(store if store == "memory://" else request.getfixturevalue("valkey").url)
    token = token_of(site.client)
    with working(site, token) as answers:
        end = time.monotonic() + 3 * LEASE
        while time.monotonic() < end:
            assert_refused(site.send(token), "in_progress")
            time.sleep(LEASE / 10)

    assert_repeated(site.send(token), answers[0])
    assert len(site.ledger) == 1


def test_a_view_that_is_done_soon_costs_no_round_trip_more(valkey: RedisServer) -> None:
    site = Site(valkey.url)
    site.go_on.set()
    slow = Site(valkey.url, lease=300)  # the thread is there and watches something
    tokens = [token_of(site.client) for _ in range(30)]
    with working(slow, token_of(slow.client)):
        site.send(token_of(site.client))  # every script is known to the server from here on
        before = valkey.calls("evalsha")
        assert {site.send(token).status_code for token in tokens} == {201}
        assert valkey.calls("evalsha") - before == 2 * len(tokens)


def test_by_hand_the_claim_is_held_for_another_lease(clock_valkey: RedisServer) -> None:
    site = Site(clock_valkey.url, lease=60)
    site.go_on.set()
    said: list[bool] = []

    def inside() -> None:
        for _ in range(3):
            clock_valkey.move_clock(45)
            said.append(current_claim.extend())
            assert_refused(site.send(token), "in_progress")

    site.inside = inside
    token = token_of(site.client)
    first = site.send(token)

    assert first.status_code == 201
    assert_repeated(site.send(token), first)
    assert (said, len(site.ledger)) == ([True] * 3, 1)


def test_by_hand_a_view_hears_that_its_claim_was_lost(
    clock_valkey: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(clock_valkey.url, lease=60)
    site.go_on.set()
    said: list[bool] = []
    others: list[Any] = []

    def inside() -> None:
        if len(site.ledger) == 1:
            clock_valkey.move_clock(61)
            others.append(site.send(token))
            said.append(current_claim.extend())

    site.inside = inside
    token = token_of(site.client)
    late = site.send(token)

    assert (late.text, others[0].text, said) == ("run 1", "run 2", [False])
    assert_repeated(site.send(token), others[0])
    assert caplog.text.count("claim_lost ") == 1


# -- frozen workers ------------------------------------------------------------------------------------------------


class Served:
    """The app of tests/apps/workers.py behind gunicorn."""

    def __init__(self, store: str, folder: Path, **settings: Any) -> None:
        self.folder, self.ledger = folder, Ledger(folder / "ledger")
        env = {"STORE": store, "LEDGER": str(folder / "ledger"), "SETTINGS": json.dumps(settings)}
        app = "tests.apps.workers:create_app()"
        argv = gunicorn_argv(app, workers=2, threads=1, worker_class="sync", preload=False)
        self.server = WebServer("gunicorn", argv, folder, env).start(2)

    def token(self) -> str:
        (token,) = tokens_of(requests.get(f"{self.server.url}/form", timeout=10).text)
        return token

    def send(self, token: str, gate: str | None = None) -> requests.Response:
        form, headers = {FIELD: token, "name": "x"}, {"X-Gate": gate} if gate else {}
        return requests.post(f"{self.server.url}/work", form, headers=headers, timeout=PATIENCE)

    def entries(self, word: str) -> list[str]:
        return [entry.split()[-1] for entry in self.ledger.entries if entry.startswith(word)]

    def logged(self, event: str) -> int:
        return self.server.log().count(f"{event} scene=")

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()


@pytest.mark.case("FAIL-03", "S4")
@pytest.mark.parametrize(
    ("lease", "by_heartbeat"), [(60, False), (1.2, True)], ids=["it hears when it settles", "by its heartbeat"]
)
def test_a_frozen_worker_loses_its_claim_and_its_late_word_changes_nothing(
    clock_valkey: RedisServer, tmp_path: Path, lease: float, by_heartbeat: bool
) -> None:
    site = Served(clock_valkey.url, tmp_path, LEASE=lease, TOKEN_TTL=3600)
    token = site.token()
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(site.send, token, "gate")
        until(lambda: site.entries("start"), site.server.log)
        frozen = int(site.entries("start")[0])
        os.kill(frozen, signal.SIGSTOP)
        clock_valkey.move_clock(lease + 1)
        second = site.send(token)

        assert second.status_code == 201
        assert second.json()["by"] != frozen
        assert (site.logged("taken_over"), site.logged("claim_lost")) == (1, 0)
        os.kill(frozen, signal.SIGCONT)
        if by_heartbeat:
            until(lambda: site.logged("claim_lost"), site.server.log)
        site.open("gate")
        answer = late.result(PATIENCE)

    until(lambda: site.logged("claim_lost"), site.server.log)
    assert (answer.status_code, answer.json()["by"]) == (201, frozen)  # what it did, it did
    assert_repeated(site.send(token), second)
    site.server.stop()
    assert (site.logged("taken_over"), site.logged("claim_lost")) == (1, 1)
    assert len(site.entries("start")) == 2
