"""Workers that are killed, clients that hang up, and second clicks that overlap a failure."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from flask import request

from flask_idempotent import idempotent
from tests.helpers import FIELD, Ledger, assert_refused, assert_repeated, make_app, reason_of, token_of, tokens_of
from tests.live import HOST
from tests.servers import RedisServer
from tests.webservers import WebServer, gunicorn_argv

PATIENCE = 20.0  # seconds that a test waits for what must happen


class Site:
    """The app of tests/apps/work.py behind gunicorn."""

    def __init__(self, store: str, folder: Path, **settings: Any) -> None:
        self._ledger = Ledger(folder / "ledger")
        self._seen = 0
        self._release, self._fail = folder / "release", folder / "fail"
        env = {
            "STORE": store,
            "LEDGER": str(folder / "ledger"),
            "RELEASE": str(self._release),
            "FAIL": str(self._fail),
            "SETTINGS": json.dumps(settings),
        }
        app = "tests.apps.work:create_app()"
        argv = gunicorn_argv(app, workers=2, threads=1, worker_class="sync", preload=True)
        self.server = WebServer("gunicorn", argv, folder, env)

    def begin(self) -> None:
        """What was booked and released before counts no more."""
        self._seen = len(self._ledger)
        for file in (self._release, self._fail):
            file.unlink(missing_ok=True)

    def token(self) -> str:
        (token,) = tokens_of(requests.get(f"{self.server.url}/form", timeout=10).text)
        return token

    def send(self, token: str, path: str = "/work", **form: str) -> requests.Response:
        return requests.post(f"{self.server.url}{path}", {FIELD: token, "wait": "1", **form}, timeout=10)

    def send_and_forget(self, token: str, path: str = "/work") -> threading.Thread:
        """Send in a thread that does not mind that nobody answers; return when the view is at work."""
        before = len(self.started)

        def send() -> None:
            try:
                self.answer = self.send(token, path)
            except requests.ConnectionError:
                self.answer = None

        self.answer: requests.Response | None = None
        thread = threading.Thread(target=send)
        thread.start()
        self.until(lambda: len(self.started) > before)
        return thread

    def release(self) -> None:
        self._release.touch()

    def fail_once(self) -> None:
        self._fail.touch()

    @property
    def started(self) -> list[str]:
        return [entry for entry in self._ledger.entries[self._seen :] if entry.startswith("start")]

    @property
    def done(self) -> list[str]:
        return [entry for entry in self._ledger.entries[self._seen :] if entry.startswith("done")]

    def until(self, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < end, self.server.log()
            time.sleep(0.005)


@pytest.fixture(scope="module")
def served(svc_valkey: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(svc_valkey.url, tmp_path_factory.mktemp("crashes"))
    site.server.start()
    yield site
    site.server.stop()


@pytest.fixture
def site(served: Site) -> Site:
    served.begin()
    return served


def kill_the_worker_of(site: Site, token: str, path: str = "/work") -> None:
    thread = site.send_and_forget(token, path)
    os.kill(int(site.started[0].split()[-1]), signal.SIGKILL)
    thread.join(PATIENCE)
    site.release()


@pytest.mark.case("FAIL-03", "S10")
def test_a_killed_worker_holds_its_token_to_the_end_of_the_lease_and_not_longer(
    clock_valkey: RedisServer, tmp_path: Path
) -> None:
    site = Site(clock_valkey.url, tmp_path, LEASE=30, TOKEN_TTL=3600)
    site.server.start()
    for policy in ("replay", "reject"):
        site.begin()
        token, path = site.token(), f"/work/{policy}"
        kill_the_worker_of(site, token, path)

        assert_refused(site.send(token, path), "in_progress")
        clock_valkey.move_clock(25)
        refused = site.send(token, path)
        assert_refused(refused, "in_progress")
        assert refused.headers["Retry-After"] == "2"
        clock_valkey.move_clock(6)
        first = site.send(token, path)

        assert first.status_code == 201
        assert_repeated(site.send(token, path), first, policy)
        assert (len(site.started), len(site.done)) == (2, 1)
    site.server.stop()
    assert site.server.log().count("taken_over ") == 2
    assert token.replace("-", "") not in site.server.log().replace("-", "")


@pytest.mark.case("FAIL-03", "S14")
def test_with_restore_off_the_token_of_a_killed_worker_is_failed_to_its_own_end(
    clock_valkey: RedisServer, tmp_path: Path
) -> None:
    site = Site(clock_valkey.url, tmp_path, LEASE=30, TOKEN_TTL=600, RESTORE_ON_ERROR=False)
    site.server.start()
    token = site.token()
    kill_the_worker_of(site, token)

    assert_refused(site.send(token), "in_progress")
    for _ in range(2):
        clock_valkey.move_clock(295)
        assert_refused(site.send(token), "failed")
    clock_valkey.move_clock(11)
    assert_refused(site.send(token), "token_unknown")

    site.server.stop()
    assert (len(site.started), len(site.done)) == (1, 0)


@pytest.mark.case("FAIL-05")
@pytest.mark.parametrize("policy", ["replay", "reject"])
@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_client_that_hangs_up_does_not_undo_what_was_done(site: Site, policy: str, how: str) -> None:
    token, path = site.token(), f"/work/{policy}"
    body = urlencode({FIELD: token, "wait": "1"})
    with socket.create_connection((HOST, site.server.port)) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        site.until(lambda: bool(site.started))
        if how == "resets":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    assert_refused(site.send(token, path), "in_progress")
    site.release()
    site.until(lambda: bool(site.done))
    site.until(lambda: "in_progress" not in site.send(token, path).text)
    again = site.send(token, path)

    if policy == "replay":
        assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    else:
        assert_refused(again, "duplicate")
    assert (len(site.started), len(site.done)) == (1, 1)


@pytest.mark.case("FAIL-05", "FAIL-03")
def test_a_body_that_breaks_off_runs_nothing_and_uses_nothing_up(site: Site) -> None:
    site.release()
    token = site.token()
    body = urlencode({FIELD: token, "rest": "x" * 1000})
    for where in ("form", "header"):
        header = f"Idempotency-Token: {token}\r\n" if where == "header" else ""
        with socket.create_connection((HOST, site.server.port)) as connection:
            head = f"POST /work HTTP/1.1\r\nHost: x\r\n{header}Content-Type: application/x-www-form-urlencoded\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body[:500]}".encode())
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(4096).decode()
        assert answer.startswith("HTTP/1.1 400 "), answer

    assert site.started == []
    first = site.send(token)
    assert first.status_code == 201
    assert_repeated(site.send(token), first)


@pytest.mark.case("FAIL-06", "FORM-02")
@pytest.mark.parametrize("policy", ["replay", "reject"])
def test_a_second_click_while_the_first_is_failing_is_refused_and_the_third_goes_through(
    site: Site, policy: str
) -> None:
    site.fail_once()
    token, path = site.token(), f"/work/{policy}"
    thread = site.send_and_forget(token, path)

    assert_refused(site.send(token, path), "in_progress")
    site.release()
    thread.join(PATIENCE)
    first = site.send(token, path)

    assert site.answer is not None
    assert site.answer.status_code == 500
    assert first.status_code == 201
    assert_repeated(site.send(token, path), first, policy)
    assert (len(site.started), len(site.done)) == (2, 1)


@pytest.mark.case("FAIL-06", "S5")
@pytest.mark.parametrize("policy", ["replay", "reject"])
def test_however_the_clicks_overlap_a_failure_one_succeeds(valkey: RedisServer, policy: str) -> None:
    app, chance = make_app(valkey.url, ON_DUPLICATE=policy), random.Random(6)
    calls, successes = Ledger(), Ledger()

    @app.post("/work")
    @idempotent
    def work() -> Any:
        token = request.form[FIELD]
        calls.add(token)
        time.sleep(float(request.form["seconds"]))
        if calls.entries.count(token) == 1:
            raise ValueError("the first fails")
        successes.add(token)
        return "made", 201

    def click(after: float, sent: dict[str, Any], answers: list[Any]) -> None:
        time.sleep(after)
        answers.append(app.test_client().post("/work", data=sent))

    for _ in range(100):
        token = token_of(app.test_client())
        sent = {FIELD: token, "seconds": chance.uniform(0, 0.004)}
        answers: list[Any] = []
        offsets = [chance.uniform(0, 0.008) for _ in range(3)]
        threads = [threading.Thread(target=click, args=(offset, sent, answers)) for offset in offsets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        click(0, sent, answers)

        assert successes.entries.count(token) == 1, [answer.text for answer in answers]
        assert [answer.status_code for answer in answers].count(500) == 1
        documented = {(500, None), (201, None), (409, "in_progress")} | (
            {(409, "duplicate")} if policy == "reject" else set()
        )
        assert {(answer.status_code, reason_of(answer)) for answer in answers} <= documented
