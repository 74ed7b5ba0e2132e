"""Client-made keys, locks and waiting over several processes: crowds, killed workers, clients that hang up."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests

from tests.apps.desk import overlaps, until
from tests.apps.keyed import LIMIT, SHORT
from tests.campaigns import race
from tests.campaigns.race import Answer, Fleet
from tests.helpers import Ledger, assert_refused, assert_repeated
from tests.live import HOST
from tests.servers import RedisServer
from tests.webservers import WebServer, gunicorn_argv

APP = "tests.apps.keyed:create_app()"
PATIENCE = 20.0  # seconds that a test waits for what must happen
SLACK = 2.0  # seconds; the machine may be busy


class Site:
    """The app of tests/apps/keyed.py behind gunicorn."""

    def __init__(self, store: str, folder: Path, *, workers: int = 2, threads: int = 1, **settings: Any) -> None:
        self.folder, self.ledger = folder, Ledger(folder / "ledger")
        env = {"STORE": store, "LEDGER": str(folder / "ledger"), "SETTINGS": json.dumps(settings)}
        kind = "sync" if threads == 1 else "gthread"
        argv = gunicorn_argv(APP, workers=workers, threads=threads, worker_class=kind, preload=True)
        self.server = WebServer("gunicorn", argv, folder / "gunicorn", env).start(workers)

    def send(self, path: str, key: str, *, headers: Any = None, **form: str) -> requests.Response:
        headers = {"Idempotency-Key": key, **(headers or {})}
        return requests.post(f"{self.server.url}/{path}", {"name": key, **form}, headers=headers, timeout=PATIENCE)

    def marks(self, what: str, name: str) -> list[str]:
        """The process ids of those that began or ended."""
        entries = [entry.split() for entry in self.ledger.entries]
        return [entry[3] for entry in entries if entry[0] == what and entry[2] == name]

    @contextmanager
    def at_work(self, path: str, key: str, *, fails: bool = False, **form: str) -> Iterator[Future[Any]]:
        """The view is at work in the block, or until :meth:`open`."""
        gate = f"gate-{path}-{key}"
        before = len(self.marks("begin", key))
        headers = {"X-Gate": gate, **({"X-Fails": "1"} if fails else {})}
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(self.send, path, key, headers=headers, **form)
            try:
                until(lambda: len(self.marks("begin", key)) > before, self.server.log)
                yield sent
            finally:
                self.open(path, key)

    def open(self, path: str, key: str) -> None:
        (self.folder / f"gate-{path}-{key}").touch()

    def kill_who_works_on(self, path: str, key: str, **form: str) -> None:
        with self.at_work(path, key, **form) as sent:
            os.kill(int(self.marks("begin", key)[-1]), signal.SIGKILL)
            assert isinstance(sent.exception(PATIENCE), requests.ConnectionError)


@pytest.fixture(scope="module")
def site(svc_valkey: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(svc_valkey.url, tmp_path_factory.mktemp("keyed"))
    yield made
    made.server.stop()


@pytest.fixture
def timed(clock_valkey: RedisServer, tmp_path: Path) -> Iterator[Site]:
    """One whose store's clock moves: ``clock_valkey.move_clock``."""
    made = Site(clock_valkey.url, tmp_path, LEASE=30, RESULT_TTL=600)
    yield made
    made.server.stop()


# -- fifty at once -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet(svc_valkey: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    # Whichever process the kernel hands a client to, it has a thread for it: who waits is not waited for by others.
    with Fleet(tmp_path_factory.mktemp("fleet"), svc_valkey.url, APP, threads=race.CLIENTS).running() as running:
        yield running


def rush(fleet: Fleet, path: str, name: str, seconds: float, **form: str) -> tuple[list[Answer], int]:
    """Fifty at the same moment; and how many ran."""
    answers = fleet.rush(f"/{path}", urlencode({"key": name, "name": name, "seconds": seconds, **form}))
    return answers, sum(entry.startswith(f"begin - {name} ") for entry in fleet.ledger.entries)


@pytest.mark.case("RACE-01", "S10", "S25")
@pytest.mark.parametrize("policy", ["replay", "reject"])
def test_of_fifty_with_one_key_over_four_processes_one_runs(fleet: Fleet, policy: str) -> None:
    seen: Counter[int] = Counter()
    for seconds in (0.3, 0.0, 0.03):
        answers, runs = rush(fleet, policy, f"{policy}-{seconds}", seconds)
        assert race.complaints(policy, answers, runs) == []
        seen.update(answer.status for answer in answers)
    assert seen.total() == 150
    assert set(seen) == {201, 409}


@pytest.mark.case("RACE-01", "RACE-06", "S10")
@pytest.mark.parametrize("seconds", [0.3, 0.0])
def test_fifty_that_wait_get_the_same_bytes(fleet: Fleet, seconds: float) -> None:
    answers, runs = rush(fleet, "wait", f"wait-{seconds}", seconds)
    assert runs == 1
    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    assert sum(not answer.replayed for answer in answers) == 1
    assert max(answer.seconds for answer in answers) < seconds + SLACK < LIMIT


@pytest.mark.case("RACE-06")
def test_of_fifty_nobody_waits_beyond_the_limit(fleet: Fleet) -> None:
    answers, runs = rush(fleet, "wait-shortly", "too long", 3 * SHORT)
    assert runs == 1
    (first,) = (answer for answer in answers if answer.status == 201)
    others = [answer for answer in answers if answer is not first]
    assert {(answer.status, answer.reason, answer.retry_after) for answer in others} == {(409, "in_progress", True)}
    assert all(SHORT <= answer.seconds < SHORT + 1.9 for answer in others)


@pytest.mark.case("S13")
def test_over_four_processes_two_of_one_entity_never_overlap(fleet: Fleet) -> None:
    before, chosen = len(fleet.ledger), iter(range(10_000))

    def come(_: int) -> list[int]:
        said = []
        for _ in range(3):
            name = f"own-{next(chosen)}"
            form = {"key": name, "name": name, "entity": "one", "seconds": "0.004"}
            said.append(requests.post(f"{fleet.server.url}/lock-wait", form, timeout=60).status_code)
        return said

    with ThreadPoolExecutor(16) as pool:
        said = [status for statuses in pool.map(come, range(16)) for status in statuses]
    entries = fleet.ledger.entries[before:]

    assert set(said) == {201}
    assert overlaps(entries) == []
    assert len(entries) == 2 * 48
    assert len({entry.split()[-1] for entry in entries}) == race.PROCESSES


@pytest.fixture(scope="module", params=["valkey81", "redis62", "redis82"])
def other_fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    server: RedisServer = request.getfixturevalue(f"svc_{request.param}")
    folder = tmp_path_factory.mktemp("other-fleet")
    with Fleet(folder, server.url, APP, threads=race.CLIENTS).running() as running:
        yield running


@pytest.mark.case("RACE-01", "S10")
def test_so_it_is_on_every_other_server(other_fleet: Fleet) -> None:
    answers, runs = rush(other_fleet, "replay", "replay", 0.3)
    assert race.complaints("replay", answers, runs) == []
    answers, runs = rush(other_fleet, "wait", "wait", 0.3)
    assert runs == 1
    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}


def test_the_judge_sees_an_overlap() -> None:
    assert overlaps(["begin a 1", "begin b 2", "end a 1", "begin a 3", "end b 2", "end a 3"]) == []
    assert overlaps(["begin a 1", "begin a 2", "end a 1", "end a 2"]) == ["begin a 2"]


# -- two sync workers ----------------------------------------------------------------------------------------------


@pytest.mark.case("S10", "S6")
def test_duplicates_hold_no_worker(site: Site) -> None:
    with site.at_work("replay", "slow") as first, ThreadPoolExecutor(10) as pool:
        duplicates = [pool.submit(site.send, "replay", "slow") for _ in range(10)]
        started = time.monotonic()
        assert requests.get(f"{site.server.url}/health", timeout=PATIENCE).text == "well"
        assert time.monotonic() - started < 1
        for duplicate in duplicates:
            assert_refused(duplicate.result(PATIENCE), "in_progress")
        site.open("replay", "slow")
    assert_repeated(site.send("replay", "slow"), first.result())
    assert len(site.marks("begin", "slow")) == 1


@pytest.mark.case("FAIL-05")
@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_client_that_hangs_up_does_not_undo_what_was_done(site: Site, how: str) -> None:
    key, gate = f"hang-{how}", f"gate-replay-hang-{how}"
    body = urlencode({"name": key})
    head = f"POST /replay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\nX-Gate: {gate}\r\n"
    head += "Content-Type: application/x-www-form-urlencoded\r\n"
    with socket.create_connection((HOST, site.server.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        until(lambda: site.marks("begin", key), site.server.log)
        if how == "resets":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    assert_refused(site.send("replay", key), "in_progress")
    site.open("replay", key)
    until(lambda: "in_progress" not in site.send("replay", key).text, site.server.log)
    again = site.send("replay", key)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert len(site.marks("begin", key)) == 1


@pytest.mark.case("FAIL-07")
def test_a_body_that_breaks_off_is_never_replayed_as_if_it_were_whole(site: Site) -> None:
    with pytest.raises(requests.exceptions.ChunkedEncodingError):  # it never ended
        site.send("stream", "breaks-off")
    for _ in range(3):
        assert_refused(site.send("stream", "breaks-off"), "response_unavailable")
    assert len(site.marks("begin", "breaks-off")) == 1


@pytest.mark.case("FAIL-06")
def test_a_retry_while_the_first_is_failing_is_refused_and_the_next_goes_through(site: Site) -> None:
    with site.at_work("replay", "fails", fails=True) as first:
        assert_refused(site.send("replay", "fails"), "in_progress")
    assert first.result().status_code == 500
    second = site.send("replay", "fails")
    assert second.status_code == 201
    assert_repeated(site.send("replay", "fails"), second)
    assert len(site.marks("begin", "fails")) == 2


@pytest.mark.case("RACE-04")
def test_other_content_is_refused_by_every_worker_during_and_after(site: Site) -> None:
    with site.at_work("wait", "content"):
        assert_refused(site.send("wait", "content", entity="other"), "key_reused", 422)
    for _ in range(4):
        assert_refused(site.send("wait", "content", entity="other"), "key_reused", 422)
    assert len(site.marks("begin", "content")) == 1


# -- workers that are killed ---------------------------------------------------------------------------------------


@pytest.mark.case("FAIL-03", "RACE-03", "S10", "S13", "S14")
def test_what_a_killed_worker_held_is_free_after_the_lease_or_failed_for_its_life(
    timed: Site, clock_valkey: RedisServer
) -> None:
    timed.kill_who_works_on("replay", "k-1")
    timed.kill_who_works_on("strict", "k-2")
    timed.kill_who_works_on("lock", "k-3", entity="a")

    for passed in (0, 20):
        clock_valkey.move_clock(passed)
        assert_refused(timed.send("replay", "k-1"), "in_progress")
        assert_refused(timed.send("strict", "k-2"), "in_progress")
        refused = timed.send("lock", "k-4", entity="a")
        assert_refused(refused, "locked")
        assert 1 <= int(refused.headers["Retry-After"]) <= 30 - passed
    clock_valkey.move_clock(11)
    second = timed.send("replay", "k-1")
    assert second.status_code == 201
    assert_repeated(timed.send("replay", "k-1"), second)
    assert timed.send("lock", "k-4", entity="a").status_code == 201
    assert timed.send("lock", "k-3", entity="a").status_code == 201
    for passed in (0, 300, 260):
        clock_valkey.move_clock(passed)
        assert_refused(timed.send("strict", "k-2"), "failed")

    assert [len(timed.marks("begin", f"k-{n}")) for n in (1, 2, 3, 4)] == [2, 1, 2, 1]
    assert timed.server.log().count("taken_over ") == 2  # the two keys; a lock's way is not told


@pytest.mark.case("RACE-03", "RACE-01")
def test_a_post_that_a_proxy_repeats_to_another_server_runs_once(
    svc_valkey: RedisServer, tmp_path: Path, site: Site
) -> None:
    other = Site(svc_valkey.url, tmp_path, workers=1)
    try:
        with site.at_work("replay", "proxied") as first:
            assert_refused(other.send("replay", "proxied"), "in_progress")
        assert_repeated(other.send("replay", "proxied"), first.result())
        assert (len(site.marks("begin", "proxied")), len(other.ledger)) == (1, 0)
    finally:
        other.server.stop()


@pytest.mark.case("S13")
def test_who_waits_for_the_lock_of_a_killed_worker_runs_when_its_lease_ends(
    timed: Site, clock_valkey: RedisServer
) -> None:
    timed.kill_who_works_on("lock", "k-1", entity="a")
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(timed.send, "lock-wait", "k-2", entity="a")
        assert_refused(timed.send("lock", "k-3", entity="a"), "locked")
        assert not waiter.done()
        clock_valkey.move_clock(31)
        assert waiter.result(PATIENCE).status_code == 201
    assert len(timed.marks("begin", "k-2")) == 1
