"""The memory store under an app: exact within one process, loud about several, and never larger than what lives."""

from __future__ import annotations

import datetime
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import render_template_string

from flask_idempotent import idempotent
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.helpers import FIELD, Ledger, assert_refused, assert_repeated, make_app, token_of, tokens_of
from tests.webservers import WebServer


class Site:
    """The app of tests/apps/work.py behind gunicorn, its store in memory."""

    def __init__(self, gunicorn: Callable[..., WebServer], folder: Path, store: str | None, **options: Any) -> None:
        self.ledger = Ledger(folder / "ledger")
        env = {"LEDGER": str(folder / "ledger"), "SETTINGS": json.dumps({"STORE": store})}
        self.server = gunicorn("tests.apps.work:create_app()", env=env, preload=True, **options)

    def get(self, path: str) -> requests.Response:
        return requests.get(self.server.url + path, timeout=10)

    def token(self) -> str:
        """Of any process that has one: the page fails where the product refuses to work."""
        (token,) = tokens_of(self.get("/form").text) or ["0" * 32]
        return token

    def send(self, token: str, path: str = "/work") -> requests.Response:
        return requests.post(self.server.url + path, {FIELD: token}, timeout=10)

    @property
    def runs(self) -> int:
        return sum(entry.startswith("done") for entry in self.ledger.entries)


@pytest.mark.case("MEM-01")
@pytest.mark.parametrize("workers", [{"workers": 4}, {"workers": 2, "threads": 2, "worker_class": "gthread"}], ids=str)
def test_with_no_store_set_several_processes_are_refused_with_the_cure(
    gunicorn: Callable[..., WebServer], tmp_path: Path, workers: dict[str, Any]
) -> None:
    site = Site(gunicorn, tmp_path, None, **workers)

    assert site.get("/form").status_code == 500
    assert {site.send("0" * 32).status_code for _ in range(10)} == {500}
    assert site.get("/health").text == "well"

    assert site.runs == 0
    assert "No IDEMPOTENCY_STORE is set" in site.server.log()
    assert "redis://" in site.server.log()


@pytest.mark.case("MEM-01")
def test_an_explicit_memory_store_under_several_processes_warns_once_in_each(
    gunicorn: Callable[..., WebServer], tmp_path: Path
) -> None:
    site = Site(gunicorn, tmp_path, "memory://", workers=4)
    token = site.token()

    answers = [site.send(token, "/work/reject") for _ in range(40)]

    # Only the process that issued it knows the token: it is never run twice, though most do not know it.
    assert site.runs <= 1
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert 1 <= site.server.log().count("the server runs several processes") <= 4
    assert token.replace("-", "") not in site.server.log().replace("-", "")


@pytest.mark.case("MEM-01", "MEM-02")
@pytest.mark.parametrize("store", [None, "memory://"])
def test_within_one_process_of_many_threads_it_is_exact_and_silent(
    gunicorn: Callable[..., WebServer], tmp_path: Path, store: str | None
) -> None:
    site = Site(gunicorn, tmp_path, store, workers=1, threads=8, worker_class="gthread")
    token = site.token()
    barrier, answers = threading.Barrier(20), []

    def one() -> None:
        barrier.wait(10)
        answers.append(site.send(token))

    threads = [threading.Thread(target=one) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert site.runs == 1
    firsts = [answer for answer in answers if answer.status_code == 201 and "Idempotent-Replayed" not in answer.headers]
    assert len(firsts) == 1
    for answer in answers:
        if answer is not firsts[0]:
            assert_repeated(answer, firsts[0]) if answer.status_code == 201 else assert_refused(answer, "in_progress")
    assert "several processes" not in site.server.log()


@pytest.fixture
def tiny_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.case("MEM-02", "RACE-01", "S4")
@pytest.mark.parametrize("policy", ["replay", "reject"])
@pytest.mark.usefixtures("tiny_switches")
def test_of_a_hundred_threads_on_one_token_one_runs(policy: str) -> None:
    app, ledger = make_app(ON_DUPLICATE=policy), Ledger()

    @app.post("/work")
    @idempotent
    def work() -> tuple[str, int]:
        return str(ledger.add()), 201

    for runs in range(1, 6):
        token = token_of(app.test_client())
        barrier, answers = threading.Barrier(100), []

        def one(token: str = token, barrier: Any = barrier, answers: list[Any] = answers) -> None:
            client = app.test_client()
            barrier.wait(30)
            answers.append(client.post("/work", data={FIELD: token}))

        threads = [threading.Thread(target=one) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(ledger) == runs
        (first,) = [a for a in answers if a.status_code == 201 and "Idempotent-Replayed" not in a.headers]
        for answer in answers:
            if answer is first:
                continue
            if "in_progress" in answer.text:
                assert_refused(answer, "in_progress")
            else:
                assert_repeated(answer, first, policy)


@pytest.mark.case("MEM-03", "REDIS-13")
@pytest.mark.parametrize("asked_again", [False, True], ids=["nobody asks", "somebody asks"])
def test_tokens_that_nobody_used_go_when_their_life_is_over(asked_again: bool) -> None:
    clock = FakeClock()
    store = MemoryStore(max_records=100_000, clock=clock)
    app = make_app(store, TOKEN_TTL=1)

    @app.get("/many")
    def many() -> str:
        return render_template_string("{% for _ in range(500) %}{{ idempotency_token() }}{% endfor %}")

    client = app.test_client()
    for _ in range(20):
        client.get("/many")
        clock.advance(0.001)
    assert len(store._records) == 10_000
    clock.advance(10)

    end = time.monotonic() + 20
    while len(store._records) > 1:
        if asked_again:
            client.get("/form")
            clock.advance(2)
        assert time.monotonic() < end, len(store._records)
        time.sleep(0.02)


@pytest.mark.case("MEM-03")
def test_a_full_store_refuses_and_forgets_nobody() -> None:
    clock = FakeClock()
    app, ledger = make_app(MemoryStore(max_records=3, clock=clock), TOKEN_TTL=100), Ledger()

    @app.post("/work")
    @idempotent
    def work() -> str:
        ledger.add()
        return "done"

    client = app.test_client()

    def send(token: str) -> Any:
        return client.post("/work", data={FIELD: token})

    used, *others = [token_of(client) for _ in range(3)]
    first = send(used)
    unrecorded = token_of(client)  # the page is shown all the same
    assert client.get("/idempotency/token").status_code == 503
    assert_refused(send(unrecorded), "token_unknown")
    assert_repeated(send(used), first)
    for token in others:
        assert send(token).status_code == 200
    clock.advance(100)

    assert send(token_of(client)).status_code == 200
    assert len(ledger) == 4


@pytest.mark.case("MEM-04")
@pytest.mark.parametrize("policy", ["replay", "reject"])
@pytest.mark.parametrize("jump", [3600, -3600, 86_400 * 365, -86_400 * 365])
def test_a_jump_of_the_wall_clock_changes_no_life(monkeypatch: pytest.MonkeyPatch, policy: str, jump: int) -> None:
    app, ledger = make_app("memory://", TOKEN_TTL=600, LEASE=60, ON_DUPLICATE=policy), Ledger()
    inside: list[Any] = []

    def jump_now() -> None:
        moved = time.time() + jump
        frozen = datetime.datetime.fromtimestamp(moved, datetime.UTC)

        class Moved(datetime.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return frozen.astimezone(tz)

        monkeypatch.setattr(time, "time", lambda: moved)
        monkeypatch.setattr(time, "time_ns", lambda: int(moved * 1e9))
        monkeypatch.setattr(datetime, "datetime", Moved)

    @app.post("/work")
    @idempotent
    def work() -> str:
        ledger.add()
        jump_now()  # between claim and completion
        inside.append(app.test_client().post("/work", data={FIELD: token}))
        return "done"

    client = app.test_client()
    token = token_of(client)
    jump_now()  # between issue and claim
    first = client.post("/work", data={FIELD: token})

    assert first.status_code == 200
    assert_refused(inside[0], "in_progress")
    jump_now()  # between completion and repeat
    assert_repeated(client.post("/work", data={FIELD: token}), first, policy)
    assert len(ledger) == 1
