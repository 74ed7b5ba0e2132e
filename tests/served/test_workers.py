"""Forms under every kind of server and worker; forks, small pools, apps that share a database, and crawlers."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import render_template_string, request

from flask_idempotent import idempotent
from flask_idempotent.core.keys import parse_token, store_key, token_digest
from flask_idempotent.stores.redis import RedisStore
from tests.helpers import FIELD, HEADER, Ledger, assert_refused, assert_repeated, make_app, reason_of, tokens_of
from tests.live import HOST
from tests.servers import RedisServer
from tests.webservers import WebServer, flask_argv, gunicorn_argv, waitress_argv

APP = "tests.apps.workers:create_app()"
PATIENCE = 20.0  # seconds that a test waits for what must happen
LEASE = 3.0
BOUND = 3.0  # seconds; the promise is about one, and the machine may be busy
MEGABYTE = 1024 * 1024


def _gunicorn(worker_class: str, workers: int, threads: int, preload: bool) -> list[str]:
    return gunicorn_argv(APP, workers=workers, threads=threads, worker_class=worker_class, preload=preload)


# name: command line, worker processes
SERVERS = {
    "sync": (_gunicorn("sync", 2, 1, False), 2),
    "sync-preload": (_gunicorn("sync", 2, 1, True), 2),
    "gthread": (_gunicorn("gthread", 2, 4, False), 2),
    "gthread-preload": (_gunicorn("gthread", 2, 4, True), 2),
    "gevent": (_gunicorn("gevent", 2, 1, False), 2),
    "gevent-preload": (_gunicorn("gevent", 2, 1, True), 2),
    "waitress": (waitress_argv(APP, threads=4), 1),
    "flask": (flask_argv("tests.apps.workers:create_app()"), 1),
}


class Site:
    """The app of tests/apps/workers.py behind a server."""

    def __init__(self, server: WebServer, folder: Path, store: RedisServer) -> None:
        self.server, self.folder, self.store = server, folder, store
        self.ledger = Ledger(folder / "ledger")

    @classmethod
    def started(cls, kind: str, folder: Path, store: RedisServer, **env: str) -> Site:
        argv, workers = SERVERS[kind]
        given = {"STORE": store.url, "LEDGER": str(folder / "ledger"), "SETTINGS": json.dumps({"LEASE": LEASE}), **env}
        return cls(WebServer(kind, argv, folder, given).start(workers), folder, store)

    def get(self, path: str) -> requests.Response:
        return requests.get(self.server.url + path, timeout=PATIENCE)

    def token(self) -> str:
        (token,) = tokens_of(self.get("/form").text)
        return token

    def send(self, token: str, name: str, gate: str | None = None, **form: str) -> requests.Response:
        headers = {"X-Gate": gate} if gate else {}
        sent = {FIELD: token, "name": name, **form}
        return requests.post(f"{self.server.url}/work", sent, headers=headers, timeout=PATIENCE)

    def count(self, word: str, name: str) -> int:
        return sum(entry.split()[:2] == [word, name] for entry in self.ledger.entries)

    def held_until(self, token: str) -> int:
        with self.store.client() as client:
            record = RedisStore(client).get(store_key("idempotency", token_digest(parse_token(token) or "")))
        return record.held_until if record is not None else 0

    def until(self, happened: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < end, self.server.log()
            time.sleep(0.005)


@pytest.fixture(scope="module", params=SERVERS)
def site(
    request: pytest.FixtureRequest, svc_valkey: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    kind = request.param
    env = {"USED_AT_IMPORT": "1"} if "preload" in kind else {}
    made = Site.started(kind, tmp_path_factory.mktemp(kind), svc_valkey, **env)
    yield made
    made.server.stop()


# -- the same under every server -----------------------------------------------------------------------------------


@pytest.mark.case("S4", "FORM-01", "S5", "S10")
def test_two_clicks_a_replay_and_a_failure_that_is_corrected(site: Site) -> None:
    token = site.token()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.send, token, "clicks", "gate-clicks")
        site.until(lambda: site.count("start", "clicks"))
        refused = site.send(token, "clicks")
        assert_refused(refused, "in_progress")
        assert 1 <= int(refused.headers["Retry-After"]) <= 2
        (site.folder / "gate-clicks").touch()
    assert first.result().status_code == 201
    assert_repeated(site.send(token, "clicks"), first.result())
    assert_refused(site.send(token, "another"), "token_reused", 422)

    token = site.token()
    assert site.send(token, "fails", outcome="raises").status_code == 500
    corrected = site.send(token, "fails", outcome="")
    assert corrected.status_code == 201
    assert_repeated(site.send(token, "fails", outcome=""), corrected)
    assert [site.count("done", name) for name in ("clicks", "another", "fails")] == [1, 0, 1]


@pytest.mark.case("S4", "RACE-01", "FORM-01")
def test_of_sixteen_at_the_same_time_one_runs(site: Site) -> None:
    token, barrier = site.token(), threading.Barrier(16)

    def click(_: int) -> requests.Response:
        barrier.wait(PATIENCE)
        return site.send(token, "crowd")

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(click, range(16)))
    (first,) = [a for a in answers if a.status_code == 201 and "Idempotent-Replayed" not in a.headers]
    for answer in answers:
        if answer is not first:
            assert_repeated(answer, first) if answer.status_code == 201 else assert_refused(answer, "in_progress")
    assert site.count("done", "crowd") == 1


@pytest.mark.case("BODY-01", "S22")
@pytest.mark.parametrize("megabytes", [2, 8, 15])
def test_who_is_refused_before_a_large_body_was_read_gets_to_see_it(site: Site, megabytes: int) -> None:
    body = b"x" * (megabytes * MEGABYTE)
    before = len(site.ledger)
    for headers, status, reason in (
        ({HEADER: "0" * 32}, 409, "token_unknown"),
        ({}, 400, "token_missing"),
        ({HEADER: "x"}, 400, "token_invalid"),
    ):
        connection = http.client.HTTPConnection(HOST, site.server.port, timeout=PATIENCE)
        connection.request("POST", "/unread", body, {"Content-Type": "application/octet-stream", **headers})
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["code"]) == (status, reason)
        connection.request(
            "GET", "/form"
        )  # the same connection goes on, or is opened anew where it was closed in order
        assert connection.getresponse().status == 200
        connection.close()
    assert len(site.ledger) == before


@pytest.mark.case("S10", "REDIS-10")
def test_the_heartbeat_of_a_view_that_takes_long_is_heard(site: Site) -> None:
    token = site.token()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.send, token, "long", "gate-long")
        site.until(lambda: site.count("start", "long"))
        claimed = site.held_until(token)
        site.until(lambda: site.held_until(token) > claimed)
        assert_refused(site.send(token, "long"), "in_progress")
        (site.folder / "gate-long").touch()
    assert first.result().status_code == 201
    assert_repeated(site.send(token, "long"), first.result())


# -- forks ---------------------------------------------------------------------------------------------------------


@pytest.mark.case("REDIS-10", "S10")
@pytest.mark.slow
def test_after_a_use_before_the_fork_every_answer_belongs_to_its_request(valkey: RedisServer, tmp_path: Path) -> None:
    """A page, a submission and its repeat, about 2,000 requests over four workers that were forked off a process whose
    connection was open."""
    env = {"STORE": valkey.url, "LEDGER": str(tmp_path / "ledger"), "USED_AT_IMPORT": "1"}
    server = WebServer("gunicorn", _gunicorn("sync", 4, 1, True), tmp_path, env).start(4)
    site, tokens = Site(server, tmp_path, valkey), []
    assert valkey.calls("evalsha") + valkey.calls("eval") >= 2  # it was used before

    def visit(name: str) -> None:
        token = site.token()
        tokens.append(token)
        first = site.send(token, name)
        assert (first.status_code, first.json()["name"]) == (201, name)
        assert_repeated(site.send(token, name), first)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(visit, map(str, range(667))))

    assert len(set(tokens)) == 667
    done = Counter(entry.split()[1] for entry in site.ledger.entries if entry.startswith("done"))
    assert done == Counter(map(str, range(667)))
    assert len({entry.split()[2] for entry in site.ledger.entries}) == 4
    server.stop()


# -- few connections -----------------------------------------------------------------------------------------------


@pytest.mark.case("REDIS-11", "S25")
@pytest.mark.parametrize("made", ["from a URL", "handed in"])
def test_twenty_threads_on_two_connections(valkey: RedisServer, made: str) -> None:
    """Ours waits a moment for a connection; redis-py's plain pool raises at once, and then the answer is 503."""
    if made == "from a URL":
        client: Any = f"{valkey.url}?max_connections=2"
    else:
        client = valkey.client(max_connections=2)
    app, runs = make_app(client), Ledger()

    @app.post("/work")
    @idempotent
    def work() -> tuple[dict[str, str], int]:
        runs.add(request.form["name"])
        if request.form["outcome"] == "raises":
            raise ValueError("the view's own")
        return {"name": request.form["name"]}, 201

    seen: Counter[tuple[int, str | None]] = Counter()

    def visit(name: int) -> None:
        raises = name % 3 == 0
        visitor = app.test_client()
        (token,) = tokens_of(visitor.get("/form").text)
        sent = {FIELD: token, "name": name, "outcome": "raises" if raises else ""}
        began = time.monotonic()
        answer = visitor.post("/work", data=sent)
        seen[answer.status_code, reason_of(answer)] += 1
        if answer.status_code == 201:
            again = visitor.post("/work", data=sent)
            if again.status_code != 201:  # no connection for it, or for what was to be told about the first
                seen[again.status_code, reason_of(again)] += 1
        ran = runs.entries.count(str(name))
        if answer.status_code in (201, 500):
            assert (answer.status_code, ran) == (500 if raises else 201, 1)
        else:  # the page could not record its token, or nothing could be claimed
            assert ran == 0
        assert time.monotonic() - began < 2 * BOUND

    visit(0)
    before = int(valkey.control.info("clients")["connected_clients"])
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(visit, range(1, 401)))  # about 1,000 requests

    lost = {(503, "store_unavailable"), (409, "token_unknown"), (409, "in_progress"), (409, "response_unavailable")}
    assert set(seen) <= {(201, None), (500, None)} | lost
    assert seen[201, None] > 0
    assert seen[500, None] > 0
    assert int(valkey.control.info("clients")["connected_clients"]) <= before + 1  # the second of the two
    visit(401)
    assert "401" in runs.entries


# -- one database --------------------------------------------------------------------------------------------------


def two_apps(store: str, *prefixes: str) -> Iterator[tuple[Any, Ledger]]:
    for prefix in prefixes:
        app, runs = make_app(store, PREFIX=prefix), Ledger()

        @app.post("/work")
        @idempotent
        def work(runs: Ledger = runs) -> str:
            return f"run {runs.add()}"

        yield app.test_client(), runs


@pytest.mark.case("REDIS-12", "S9")
@pytest.mark.parametrize("prefixes", [("one", "two"), ("one", "one:two"), ("a", "b")])
def test_two_apps_with_their_own_prefixes_share_nothing(redis_url: str, valkey: RedisServer, prefixes: Any) -> None:
    (one, runs), (two, other_runs) = two_apps(redis_url, *prefixes)
    (token,) = tokens_of(one.get("/form").text)

    assert_refused(two.post("/work", data={FIELD: token}), "token_unknown")
    first = one.post("/work", data={FIELD: token})
    assert_refused(two.post("/work", data={FIELD: token}), "token_unknown")
    assert_repeated(one.post("/work", data={FIELD: token}), first)

    assert (len(runs), len(other_runs)) == (1, 0)
    assert [key.rpartition(b":")[0].decode() for key in valkey.control.scan_iter()] == [prefixes[0]]


@pytest.mark.case("REDIS-12")
def test_two_apps_with_one_prefix_share_their_tokens_as_documented(redis_url: str) -> None:
    (one, runs), (two, other_runs) = two_apps(redis_url, "idempotency", "idempotency")
    (token,) = tokens_of(one.get("/form").text)

    first = two.post("/work", data={FIELD: token})

    assert_repeated(one.post("/work", data={FIELD: token}), first)
    assert (len(runs), len(other_runs)) == (0, 1)


# -- crawlers ------------------------------------------------------------------------------------------------------


@pytest.mark.case("REDIS-13", "S1")
@pytest.mark.slow
def test_crawlers_leave_one_small_record_for_each_token_that_ends_by_itself(valkey: RedisServer) -> None:
    app, control, chance = make_app(valkey.url, TOKEN_TTL=900), valkey.control, random.Random(13)

    @app.get("/page")
    def page() -> str:
        return render_template_string("{% set helper = idempotency_token %}no form here")

    visitor, rendered, end = app.test_client(), set(), time.monotonic() + 10
    for _ in range(20_000):
        kind = chance.random()
        if kind < 0.1:
            visitor.head("/form")
        elif kind < 0.2:
            visitor.get("/page")
        else:
            rendered.update(tokens_of(visitor.get("/form").text))
        if time.monotonic() > end and len(rendered) > 500:
            break

    keys = control.keys()
    assert len(keys) == len(rendered)
    with control.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.pttl(key)
            pipeline.memory_usage(key)
        answers = pipeline.execute()
    assert all(0 < life <= 900_000 for life in answers[::2])
    assert max(answers[1::2]) <= 160
