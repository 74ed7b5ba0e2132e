"""A store that may not write, forgets, or lets records expire at the worst moment: what runs, and what people see."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import requests
from flask import request

from flask_idempotent import idempotent
from flask_idempotent.core.errors import Duplicate, IdempotencyError, InProgress
from flask_idempotent.core.guard import Guard
from flask_idempotent.core.hold import Terms
from flask_idempotent.core.keys import parse_token, store_key, token_digest
from flask_idempotent.core.record import State
from flask_idempotent.stores.redis import RedisStore
from tests.helpers import (
    FIELD,
    Ledger,
    assert_refused,
    assert_repeated,
    events_logged,
    make_app,
    reason_of,
    token_of,
    tokens_of,
)
from tests.live import HOST
from tests.proxy import FaultProxy
from tests.servers import RedisServer
from tests.webservers import WebServer

PATIENCE = 20.0  # seconds that a test waits for what must happen


def until(happened: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)


def key_of(token: str) -> str:
    return store_key("idempotency", token_digest(parse_token(token) or ""))


class Site:
    """An app with one view, which does what the test wants while it runs."""

    def __init__(self, store: Any, **config: Any) -> None:
        self.app, self.runs = make_app(store, **config), Ledger()
        self.inside: Callable[[], Any] = lambda: None

        @self.app.post("/work")
        @idempotent
        def work() -> tuple[dict[str, int], int]:
            run = self.runs.add(request.form[FIELD])
            self.inside()
            return {"run": run}, 201

        self.client = self.app.test_client()

    def send(self, token: str) -> Any:
        return self.app.test_client().post("/work", data={FIELD: token})

    def warm(self) -> None:
        """Every script is known to the server."""
        self.send(token_of(self.client))
        self.runs = Ledger()


# -- a replica -----------------------------------------------------------------------------------------------------


@pytest.mark.case("REDIS-07", "S4")
@pytest.mark.parametrize("client", ["from a URL", "handed in"])
@pytest.mark.parametrize("of", ["a new primary", "one that is away"])
def test_a_primary_that_became_a_replica_is_an_outage_and_when_it_is_promoted_it_is_none(
    new_server: Callable[..., RedisServer], client: str, of: str
) -> None:
    server, other = (new_server("valkey91", "--repl-diskless-sync-delay", "0") for _ in range(2))
    site = Site(server.url if client == "from a URL" else server.client())
    site.warm()
    waiting, used = token_of(site.client), token_of(site.client)
    first = site.send(used)
    if of == "a new primary":
        other.control.replicaof(HOST, server.port)
        until(lambda: other.control.dbsize() == server.control.dbsize())
        other.control.replicaof("NO", "ONE")
    else:
        server.control.config_set("replica-serve-stale-data", "no")
        other.stop()

    server.control.replicaof(HOST, other.port)
    if of == "a new primary":
        until(lambda: server.control.info("replication")["master_link_status"] == "up")
    assert_refused(site.send(waiting), "store_unavailable", 503)
    if of == "a new primary":
        assert_repeated(site.send(used), first)  # to look is no write
    else:
        assert_refused(site.send(used), "store_unavailable", 503)
    assert site.client.get("/form").status_code == 200
    server.control.replicaof("NO", "ONE")

    accepted = site.send(waiting)  # at once
    assert accepted.status_code == 201
    assert_repeated(site.send(waiting), accepted)
    assert_repeated(site.send(used), first)
    assert len(site.runs) == 2


# -- it may not write ----------------------------------------------------------------------------------------------


class Full:
    """A server that refuses to write for one of three reasons."""

    def __init__(self, server: RedisServer, why: str) -> None:
        self.server, self.why = server, why

    def begin(self) -> None:
        control = self.server.control
        if self.why == "MISCONF":
            blocked = Path(control.config_get("dir")["dir"], "dump.rdb")
            blocked.mkdir(exist_ok=True)  # a snapshot cannot be put in a folder's place
            control.config_set("save", "3600 1")
            control.bgsave()
            until(lambda: control.info("persistence")["rdb_last_bgsave_status"] == "err")
        else:
            control.config_set("maxmemory-policy", self.why)
            control.config_set("maxmemory", 1)

    def end(self) -> None:
        self.server.control.config_set("maxmemory", 0)
        self.server.control.config_set("save", "")


@pytest.fixture(params=["noeviction", "MISCONF"])
def full(request: pytest.FixtureRequest, own_valkey: RedisServer) -> Full:
    return Full(own_valkey, request.param)


@pytest.mark.case("REDIS-08", "S4")
def test_a_store_that_may_not_write_takes_no_claim_and_so_runs_nothing(full: Full) -> None:
    site = Site(full.server.url)
    site.warm()
    waiting, used = token_of(site.client), token_of(site.client)
    first = site.send(used)

    full.begin()
    assert_refused(site.send(waiting), "store_unavailable", 503)
    page = site.client.get("/form")
    assert page.status_code == 200
    (unrecorded,) = tokens_of(page.text)
    assert site.client.get("/idempotency/token").status_code == 503
    full.end()

    assert_repeated(site.send(used), first)
    assert_refused(site.send(unrecorded), "token_unknown")
    accepted = site.send(waiting)
    assert accepted.status_code == 201
    assert_repeated(site.send(waiting), accepted)
    assert len(site.runs) == 2


@pytest.mark.case("REDIS-08", "S4")
def test_a_store_that_may_not_write_the_result_leaves_the_view_its_answer(
    full: Full, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(full.server.url)
    site.warm()
    token = token_of(site.client)
    site.inside = full.begin

    answer = site.send(token)

    assert answer.status_code == 201
    assert events_logged(caplog.records, logging.ERROR) == ["settle_failed"]
    full.end()
    site.inside = lambda: None
    assert_refused(site.send(token), "in_progress")
    assert_refused(site.send(token), "response_unavailable")  # the store has been told, without the answer
    assert len(site.runs) == 1


@pytest.mark.case("REDIS-08", "REDIS-09", "S4")
def test_a_store_that_evicts_runs_no_token_twice_and_answers_everybody(own_valkey: RedisServer) -> None:
    control = own_valkey.control
    site = Site(own_valkey.url)
    site.warm()
    control.config_set("maxmemory-policy", "allkeys-lru")
    control.config_set("maxmemory-samples", "1")
    control.config_set("maxmemory", int(control.info("memory")["used_memory"]) + 150_000)
    site.inside = lambda: control.set(f"other people's {len(site.runs)}", b"x" * 20_000)

    seen: Counter[tuple[int, str | None]] = Counter()
    sent = []
    for _ in range(60):
        sent += [token_of(site.client) for _ in range(3)]
        for token in sent[-12:]:
            answer = site.send(token)
            seen[answer.status_code, reason_of(answer)] += 1

    assert int(control.info("stats")["evicted_keys"]) > 20
    assert set(seen) <= {(201, None), (409, "token_unknown"), (503, "store_unavailable")}
    assert min(seen[201, None], seen[409, "token_unknown"]) > 0
    assert set(Counter(site.runs.entries).values()) == {1}


# -- records vanish ------------------------------------------------------------------------------------------------


@pytest.fixture
def site(valkey: RedisServer) -> Site:
    return Site(valkey.url)


@pytest.mark.case("REDIS-09", "P4", "S4")
@pytest.mark.parametrize("lost", ["before it was used", "after it was used"])
def test_a_token_that_the_store_has_lost_is_unknown_and_does_not_run(
    site: Site, valkey: RedisServer, lost: str
) -> None:
    token = token_of(site.client)
    if lost == "after it was used":
        assert site.send(token).status_code == 201
    before = len(site.runs)

    assert valkey.control.delete(key_of(token)) == 1

    assert_refused(site.send(token), "token_unknown")
    assert len(site.runs) == before


@pytest.mark.case("REDIS-09", "S4")
def test_a_claim_that_is_lost_while_the_view_runs_is_written_anew_at_its_end(site: Site, valkey: RedisServer) -> None:
    token = token_of(site.client)

    def lose() -> None:
        assert valkey.control.delete(key_of(token)) == 1
        assert_refused(site.send(token), "token_unknown")

    site.inside = lose
    first = site.send(token)

    assert first.status_code == 201
    assert_repeated(site.send(token), first)
    assert valkey.control.pttl(key_of(token)) > 0
    assert len(site.runs) == 1


@pytest.mark.case("REDIS-09", "S4")
@pytest.mark.parametrize("newer", ["running", "done"])
@pytest.mark.parametrize("ends", ["complete", "restore", "fail", "extend"])
def test_whoever_claimed_after_a_claim_was_lost_is_not_displaced(
    valkey: RedisServer, caplog: pytest.LogCaptureFixture, newer: str, ends: str
) -> None:
    guard = Guard(RedisStore(valkey.client()))
    terms = Terms("a key", token=False, lease=60, life=600, ttl=600)
    first = guard.claim(terms)
    valkey.control.delete(store_key("idempotency", "a key"))
    second = guard.claim(terms)  # a key need not have been issued: lost, it runs again
    if newer == "done":
        second.complete(b"second")
    before = guard.get("a key")

    assert getattr(first, ends)() in (None, False)

    assert guard.get("a key") == before
    assert events_logged(caplog.records, logging.ERROR) == ["claim_lost"]
    second.complete(b"second")
    record = guard.get("a key")
    assert record is not None
    assert (record.state, record.owner, record.result) == (State.DONE, second.owner, b"second")


@pytest.mark.case("REDIS-09", "REDIS-06", "S4")
def test_a_store_that_was_killed_and_kept_its_data_knows_everything(
    new_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server("valkey91", "--appendonly", "yes", "--appendfsync", "always")
    site = Site(server.url)
    waiting, used, running = (token_of(site.client) for _ in range(3))
    first = site.send(used)

    def kill() -> None:
        server.kill()
        server.start()
        site.inside = lambda: None
        assert_refused(site.send(running), "in_progress")

    site.inside = kill
    at_work = site.send(running)

    assert_repeated(site.send(running), at_work)
    assert_repeated(site.send(used), first)
    assert site.send(waiting).status_code == 201
    assert len(site.runs) == 3
    assert events_logged(caplog.records, logging.ERROR) == []


@pytest.mark.case("REDIS-09", "P4")
def test_after_a_failover_that_loses_the_last_write_a_used_token_runs_once_more(
    new_server: Callable[..., RedisServer], fault_proxy: Callable[[int], FaultProxy]
) -> None:
    """What no store of this kind can promise, as docs/guarantees says."""
    server, replica = (new_server("valkey91", "--repl-diskless-sync-delay", "0") for _ in range(2))
    proxy = fault_proxy(server.port)
    site = Site(proxy.url)
    token, copied = token_of(site.client), token_of(site.client)
    first = site.send(copied)
    replica.control.replicaof(HOST, server.port)
    until(lambda: replica.control.dbsize() == 2)
    replica.control.replicaof("NO", "ONE")  # it hears no more

    assert site.send(token).status_code == 201
    proxy.target = replica.port
    proxy.reset()

    assert site.send(token).status_code == 201
    assert_repeated(site.send(copied), first)
    assert [site.runs.entries.count(one) for one in (token, copied)] == [2, 1]


@pytest.mark.case("FAIL-03", "S4")
def test_a_worker_that_is_cut_off_for_a_lease_loses_its_claim(
    clock_valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy], caplog: pytest.LogCaptureFixture
) -> None:
    proxy = fault_proxy(clock_valkey.port)
    cut_off, other = Site(proxy.url, LEASE=60), Site(clock_valkey.url, LEASE=60)
    cut_off.warm()
    token = token_of(other.client)
    answers = []

    def cut() -> None:
        proxy.refuse()
        assert_refused(other.send(token), "in_progress")
        clock_valkey.move_clock(61)
        answers.append(other.send(token))

    cut_off.inside = cut
    late = cut_off.send(token)

    assert (late.status_code, answers[0].status_code) == (201, 201)
    assert events_logged(caplog.records, logging.WARNING, logging.ERROR) == ["taken_over", "settle_failed"]
    proxy.accept()
    for site in (cut_off, other, cut_off):
        assert_repeated(site.send(token), answers[0])


@pytest.mark.case("S4")
def test_while_the_servers_clock_is_set_back_nothing_runs_twice(clock_valkey: RedisServer) -> None:
    site = Site(clock_valkey.url, LEASE=60, TOKEN_TTL=600)
    early, token = token_of(site.client), token_of(site.client)

    def back() -> None:
        clock_valkey.move_clock(-300)
        assert_refused(site.send(token), "in_progress")

    site.inside = back
    first = site.send(token)
    site.inside = lambda: None
    clock_valkey.move_clock(-300)

    assert_repeated(site.send(token), first)
    assert site.send(early).status_code == 201
    assert len(site.runs) == 2


@pytest.mark.case("MEM-01", "S4")
def test_what_a_process_kept_in_memory_ends_with_it(gunicorn: Callable[..., WebServer], tmp_path: Path) -> None:
    env = {"STORE": "memory://", "LEDGER": str(tmp_path / "ledger")}
    server = gunicorn("tests.apps.workers:create_app()", env=env)

    def send(token: str) -> requests.Response:
        return requests.post(f"{server.url}/work", {FIELD: token, "name": "x"}, timeout=PATIENCE)

    used, waiting = (tokens_of(requests.get(f"{server.url}/form", timeout=PATIENCE).text)[0] for _ in range(2))
    assert send(used).status_code == 201
    (worker,) = server.pids()
    os.kill(worker, signal.SIGKILL)
    until(lambda: server.pids() not in ([worker], [server.process.pid]))

    for token in (used, waiting):
        assert_refused(send(token), "token_unknown")
    assert len(Ledger(tmp_path / "ledger")) == 2  # its start and its end


# -- records end ---------------------------------------------------------------------------------------------------

CROWD, ROUNDS, LIFE = 20, 100, 60.0


@pytest.fixture
def crowd() -> Iterator[Callable[[Callable[[], Any]], list[Any]]]:
    """Do something twenty times at the same moment."""
    with ThreadPoolExecutor(CROWD) as pool:

        def at_once(ask: Callable[[], Any]) -> list[Any]:
            barrier = Barrier(CROWD)

            def one(_: int) -> list[Any]:
                barrier.wait(PATIENCE)
                return [ask() for _ in range(3)]

            return [answer for answers in pool.map(one, range(CROWD)) for answer in answers]

        yield at_once


def move_to_just_before(server: RedisServer, moment: int) -> None:
    """Move the server's clock to 15 ms before a moment of its own, in microseconds."""
    seconds, micros = server.control.time()
    server.move_clock(moment / 1e6 - 0.015 - (seconds + micros / 1e6))


@pytest.mark.case("RACE-05", "S4", "S6")
@pytest.mark.slow
def test_at_the_moment_when_its_result_expires_a_token_does_not_run_again(
    clock_valkey: RedisServer, crowd: Callable[[Callable[[], Any]], list[Any]]
) -> None:
    site = Site(clock_valkey.url, TOKEN_TTL=LIFE)
    store, end = RedisStore(clock_valkey.control), time.monotonic() + 10
    seen: Counter[tuple[int, str | None]] = Counter()
    for _ in range(ROUNDS):
        token = token_of(site.client)
        assert site.send(token).status_code == 201
        record = store.get(key_of(token))
        assert record is not None
        move_to_just_before(clock_valkey, record.expires_at)
        seen.update((answer.status_code, reason_of(answer)) for answer in crowd(lambda t=token: site.send(t)))
        assert site.runs.entries.count(token) == 1
        if time.monotonic() > end:
            break

    assert set(seen) == {(201, None), (409, "token_unknown")}  # before that moment, and after it


@pytest.mark.case("RACE-05", "S4")
@pytest.mark.slow
def test_at_the_moment_when_its_result_expires_a_key_runs_once_more(
    clock_valkey: RedisServer, crowd: Callable[[Callable[[], Any]], list[Any]]
) -> None:
    guard = Guard(RedisStore(clock_valkey.client()))
    terms = Terms("a key", token=False, lease=30, life=LIFE, ttl=LIFE)
    refused: Counter[type] = Counter()

    holds = []

    def claim() -> bool:
        try:
            holds.append(guard.claim(terms))
        except IdempotencyError as error:
            refused[type(error)] += 1
            return False
        return True

    end = time.monotonic() + 5
    assert claim()
    for _ in range(ROUNDS):
        holds[-1].complete(b"done")
        record = guard.get("a key")
        assert record is not None
        move_to_just_before(clock_valkey, record.expires_at)
        won = crowd(claim).count(True)
        while won == 0:  # the machine was quick: all of them came before that moment
            won = crowd(claim).count(True)
        assert won == 1
        if time.monotonic() > end:
            break
    assert set(refused) == {Duplicate, InProgress}
