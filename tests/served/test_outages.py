"""The store is away, in every way there is: nobody waits long, nothing runs unprotected, and it comes back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from flask import render_template_string, request
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_idempotent import current_claim, idempotent
from tests.helpers import (
    FIELD,
    HEADER,
    Ledger,
    assert_never_logged,
    assert_refused,
    assert_repeated,
    events_logged,
    make_app,
    token_of,
    tokens_of,
)
from tests.live import HOST
from tests.proxy import FaultProxy
from tests.servers import RedisServer

BOUND = 3.0  # seconds; the promise is about one, and the machine may be busy
LOUD = (logging.WARNING, logging.ERROR)
PATIENCE = 30.0  # seconds that a test waits for what must happen


class Site:
    """An app with guarded and unguarded routes, and its ledger."""

    def __init__(self, store: Any, **config: Any) -> None:
        self.app, self.ledger = make_app(store, **config), Ledger()
        self.during: Callable[[], Any] = lambda: None

        def work() -> Any:
            self.ledger.add(request.form.get("name", ""))
            self.during()
            if request.form.get("outcome") == "fails":
                raise ValueError("the view fails")
            return {"made": request.form.get("name", "")}, 201

        for name, options in {"work": {}, "once": {"consume": True}, "session": {"binding": "session"}}.items():
            guarded = idempotent(scene=name, **options)(work)
            self.app.add_url_rule(f"/{name}", name, guarded, methods=["POST"])

        @self.app.get("/thirty")
        def thirty() -> str:
            return render_template_string("{% for _ in range(30) %}{{ idempotency_token() }}{% endfor %}")

        @self.app.get("/health")
        def health() -> str:
            return "well"

        @self.app.post("/bare")
        def bare() -> str:
            return "bare"

        self.client = self.app.test_client()

    def warm(self) -> None:
        """Every script is loaded, a connection is open."""
        assert self.send(token_of(self.client), "warm").status_code == 201
        self.ledger = Ledger()

    def send(self, token: str, name: str = "x", path: str = "/work", **form: str) -> Any:
        return self.app.test_client().post(path, data={FIELD: token, "name": name, **form})


@contextmanager
def at_most(seconds: float = BOUND) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def eventually(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """Ask until the answer is good: the breaker tries again after a second or two."""
    end = time.monotonic() + PATIENCE
    while not good(answer := ask()):
        assert time.monotonic() < end, answer
        time.sleep(0.02)
    return answer


class Outage:
    """A store that can be taken away and brought back."""

    def __init__(self, kind: str, server: RedisServer, proxy: FaultProxy) -> None:
        self.kind, self.server, self.proxy = kind, server, proxy

    @property
    def url(self) -> str:
        return self.proxy.url

    def begin(self) -> None:
        if self.kind == "refused":
            self.proxy.refuse()
        elif self.kind == "black hole":
            self.proxy.black_hole = True
        elif self.kind == "frozen":
            self.server.freeze()
        elif self.kind == "stopped":
            self.server.stop()
        else:
            self.server.control.config_set("maxmemory", 1)

    def end(self) -> None:
        if self.kind == "refused":
            self.proxy.accept()
        elif self.kind == "black hole":
            self.proxy.black_hole = False
            self.proxy.reset()
        elif self.kind == "frozen":
            self.server.resume()
        elif self.kind == "stopped":
            self.server.start()
        else:
            self.server.control.config_set("maxmemory", 0)


KINDS = ("refused", "black hole", "frozen", "stopped", "out of memory")


@pytest.fixture(params=KINDS)
def outage(
    request: pytest.FixtureRequest, own_valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]
) -> Iterator[Outage]:
    made = Outage(request.param, own_valkey, fault_proxy(own_valkey.port))
    yield made
    own_valkey.resume()


@pytest.fixture(params=["refused", "black hole"])
def dead_store(request: pytest.FixtureRequest, valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]) -> Outage:
    """Away from the start."""
    made = Outage(request.param, valkey, fault_proxy(valkey.port))
    made.begin()
    return made


# -- while it is away ----------------------------------------------------------------------------------------------


@pytest.mark.case("REDIS-04", "S22")
def test_while_the_store_is_away_only_guarded_requests_are_refused_and_it_comes_back(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(outage.url)
    site.warm()
    token = token_of(site.client)

    outage.begin()
    with at_most():
        refused = site.send(token)
    assert_refused(refused, "store_unavailable", 503)
    assert refused.headers["Retry-After"] == "1"
    for path in ("/once", "/work"):
        with at_most():
            assert_refused(site.send(token, path=path), "store_unavailable", 503)
    with at_most():
        assert (site.client.get("/health").text, site.client.post("/bare").text) == ("well", "bare")
    with at_most():
        page = site.client.get("/form")
    assert page.status_code == 200
    (unrecorded,) = tokens_of(page.text)
    with at_most():
        assert site.client.get("/idempotency/token").status_code == 503
    assert len(site.ledger) == 0
    outage.end()

    answer = eventually(lambda: site.send(token), lambda a: a.status_code != 503 and "in_progress" not in a.text)
    if outage.kind == "stopped":  # and its data with it
        assert_refused(answer, "token_unknown")
        token = token_of(site.client)
        answer = site.send(token)
    assert answer.status_code == 201
    assert_repeated(site.send(token), answer)
    assert_refused(site.send(unrecorded), "token_unknown")
    assert len(site.ledger) == 1
    assert_never_logged([token, unrecorded], caplog.records)


@pytest.mark.case("REDIS-04", "S25")
def test_on_a_dead_store_twenty_at_once_are_answered_in_time(dead_store: Outage) -> None:
    site = Site(dead_store.url)
    barrier = threading.Barrier(20)

    def one(number: int) -> tuple[float, Any]:
        barrier.wait(10)
        started = time.monotonic()
        answer = site.send(f"{number:032x}")
        return time.monotonic() - started, answer

    for _ in range(2):
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(one, range(20)))
        assert max(seconds for seconds, _ in answers) < BOUND
        for _, answer in answers:
            assert_refused(answer, "store_unavailable", 503)
    assert len(site.ledger) == 0


@pytest.mark.case("REDIS-04")
def test_on_a_dead_store_a_page_of_thirty_forms_is_shown_in_time(
    dead_store: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(dead_store.url)

    with at_most():
        page = site.client.get("/thirty")

    assert (page.status_code, len(set(tokens_of(page.text)))) == (200, 30)
    assert events_logged(caplog.records, *LOUD) == ["store_unavailable"]  # once a request
    assert_never_logged(tokens_of(page.text), caplog.records)
    with at_most():
        assert_refused(site.send(tokens_of(page.text)[0]), "store_unavailable", 503)


@pytest.mark.case("REDIS-04")
def test_a_client_that_is_handed_in_costs_its_own_time_once_and_then_nobody_waits(dead_store: Outage) -> None:
    # Its own time-outs are longer than ours; redis-py's defaults would be 5 s, and ten retries.
    client = redis.Redis(
        host=HOST,
        port=dead_store.proxy.port,
        socket_timeout=1.0,
        socket_connect_timeout=1.0,
        retry=Retry(NoBackoff(), 0),
    )
    site = Site(client)

    assert_refused(site.send("0" * 32), "store_unavailable", 503)

    for number in range(10):
        with at_most(0.9 if dead_store.kind == "black hole" else BOUND):
            assert_refused(site.send(f"{number:032x}"), "store_unavailable", 503)
    with at_most():
        assert len(tokens_of(site.client.get("/thirty").text)) == 30
    client.close()


@pytest.mark.case("REDIS-04", "S22")
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize("handler", [None, 503])
def test_the_app_may_word_its_own_page_for_it(dead_store: Outage, accept: str, handler: int | None) -> None:
    site = Site(dead_store.url)
    if handler is not None:
        site.app.register_error_handler(handler, lambda error: (f"sorry: {error.reason}", 503))

    answer = site.client.post("/work", headers={HEADER: "0" * 32, "Accept": accept})

    assert answer.status_code == 503
    if handler is not None:
        assert answer.text == "sorry: store_unavailable"
    else:
        assert (answer.mimetype == "text/html") == (accept == "text/html")
        assert answer.headers["Retry-After"] == "1"


# -- by setting, unprotected ---------------------------------------------------------------------------------------


@pytest.mark.case("REDIS-04")
def test_by_setting_the_view_runs_unguarded_and_each_time_it_is_a_warning(
    dead_store: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(dead_store.url, STORE_DOWN="pass")
    tokens = [f"{number:032x}" for number in range(3)]

    for token in tokens:
        with at_most():
            assert site.send(token).status_code == 201

    assert len(site.ledger) == 3
    unguarded = [r for r in caplog.records if r.getMessage().startswith("unguarded")]
    assert [r.levelno for r in unguarded] == [logging.WARNING] * 3
    assert_never_logged(tokens, caplog.records)
    assert_refused(site.send("x"), "token_invalid", 400)  # what needs no store is checked as ever
    assert_refused(site.send(""), "token_missing", 400)


@pytest.mark.case("REDIS-04")
def test_by_setting_only_what_the_outage_hides_is_let_through(outage: Outage) -> None:
    site = Site(outage.url, STORE_DOWN="pass")
    site.warm()
    token, used = token_of(site.client), token_of(site.client)
    first = site.send(used, "used")

    outage.begin()
    with at_most():
        assert site.send(token, "unguarded").status_code == 201
    outage.end()

    assert site.ledger.entries[-1] == "unguarded"
    if outage.kind == "stopped":  # and its data with it
        assert_refused(eventually(lambda: site.send(used, "used"), lambda a: a.status_code != 201), "token_unknown")
    else:
        again = eventually(lambda: site.send(used, "used"), lambda a: "Idempotent-Replayed" in a.headers)
        assert_repeated(again, first)


# -- away at the start ---------------------------------------------------------------------------------------------


@pytest.mark.case("REDIS-05")
@pytest.mark.parametrize("kind", ["refused", "black hole"])
def test_an_app_starts_quickly_while_its_store_is_away_and_works_once_it_is_there(
    valkey: RedisServer,
    fault_proxy: Callable[[int], FaultProxy],
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    store = Outage(kind, valkey, fault_proxy(valkey.port))
    store.begin()

    with at_most(1.0):
        site = Site(store.url)
    assert events_logged(caplog.records, *LOUD) == []
    assert store.proxy.connections == 0
    with at_most():
        assert_refused(site.send("0" * 32), "store_unavailable", 503)
    store.end()

    eventually(lambda: site.client.get("/idempotency/token"), lambda a: a.status_code == 200)
    token = token_of(site.client)
    first = site.send(token)
    assert first.status_code == 201
    assert_repeated(site.send(token), first)
    assert len(site.ledger) == 1


@pytest.mark.case("REDIS-05")
def test_an_app_connects_to_nothing_before_its_first_use(
    valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]
) -> None:
    proxy = fault_proxy(valkey.port)
    site = Site(proxy.url)

    site.client.get("/health")
    site.client.post("/bare")
    site.client.post("/work")
    site.client.get("/nowhere")
    assert proxy.connections == 0

    token = token_of(site.client)
    assert proxy.connections == 1
    first = site.send(token)
    assert_repeated(site.send(token), first)


# -- it comes back -------------------------------------------------------------------------------------------------


@pytest.mark.case("REDIS-06")
@pytest.mark.parametrize("data", ["lost", "kept"])
def test_under_load_service_is_normal_again_after_an_outage(own_valkey: RedisServer, data: str) -> None:
    site = Site(own_valkey.url)
    site.warm()
    early = [token_of(site.client) for _ in range(5)]
    over = threading.Event()
    seen: list[tuple[int, str]] = []
    back_at: list[float] = []

    def visitor() -> None:
        client = site.app.test_client()
        while not over.is_set():
            (token,) = tokens_of(client.get("/form").text)
            answer = site.send(token)
            seen.append((answer.status_code, (answer.get_json(silent=True) or {}).get("code", "")))
            if back_at and answer.status_code == 201:
                over.set()

    threads = [threading.Thread(target=visitor, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(seen), lambda n: n > 30)
        if data == "lost":
            own_valkey.stop()
        else:
            own_valkey.freeze()
        eventually(lambda: seen[-1][0], lambda status: status == 503)
        if data == "lost":
            own_valkey.start()
        else:
            own_valkey.resume()
        back_at.append(time.monotonic())
        served_again = over.wait(PATIENCE)
    finally:
        over.set()  # or a failure would leave the visitors at it for ever
    for thread in threads:
        thread.join(PATIENCE)

    assert served_again
    documented = {(201, ""), (503, "store_unavailable"), (409, "token_unknown"), (409, "in_progress")}
    assert set(seen) <= documented
    for token in early:
        answer = eventually(lambda t=token: site.send(t), lambda a: a.status_code != 503)  # type: ignore[misc]
        if data == "lost":
            assert_refused(answer, "token_unknown")
        else:
            assert answer.status_code == 201
    assert len(own_valkey.control.client_list()) <= 8 + 2  # a connection a thread, the test's own two


@pytest.mark.case("REDIS-06")
def test_a_server_that_cuts_its_connections_is_no_outage(own_valkey: RedisServer) -> None:
    site = Site(own_valkey.url)
    site.warm()

    for number in range(5):
        token = token_of(site.client)
        own_valkey.control.client_kill_filter(_type="normal", skipme=True)
        first = site.send(token, str(number))
        assert first.status_code == 201
        own_valkey.control.client_kill_filter(_type="normal", skipme=True)
        assert_repeated(site.send(token, str(number)), first)

    assert site.ledger.entries == list("01234")


# -- it goes away in the middle of a request -----------------------------------------------------------------------


@pytest.mark.case("REDIS-04", "S23")
@pytest.mark.parametrize("outcome", ["succeeds", "fails"])
def test_a_store_that_dies_between_claim_and_settle_does_not_change_the_views_answer(
    outage: Outage, caplog: pytest.LogCaptureFixture, outcome: str
) -> None:
    site = Site(outage.url)
    site.warm()
    site.during = outage.begin
    token = token_of(site.client)

    with at_most():
        answer = site.send(token, outcome=outcome)

    assert answer.status_code == (201 if outcome == "succeeds" else 500)
    assert events_logged(caplog.records, logging.ERROR) == ["settle_failed"]
    assert_never_logged([token], caplog.records)
    site.during = lambda: None
    outage.end()
    # The server may have what was sent to it while it stood still; never is the token good again by our doing.
    again = eventually(lambda: site.send(token, outcome=outcome), lambda a: a.status_code != 503)
    if outcome == "succeeds":
        assert again.status_code == 409 or "Idempotent-Replayed" in again.headers
        assert len(site.ledger) == 1


@pytest.mark.case("REDIS-04", "S4")
@pytest.mark.parametrize("path", ["/work", "/once"])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_claim_whose_reply_is_lost_is_sent_again_and_runs_once(
    valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy], lost: int, path: str
) -> None:
    proxy = fault_proxy(valkey.port)
    site = Site(proxy.url)
    site.warm()
    token = token_of(site.client)

    proxy.drop_reply(b"EVALSHA", times=lost)
    first = site.send(token, path=path)

    assert proxy.dropped == lost
    assert first.status_code == 201
    again = site.send(token, path=path)
    if path == "/work":
        assert_repeated(again, first)
    else:
        assert_refused(again, "duplicate")
    assert len(site.ledger) == 1


@pytest.mark.case("REDIS-04", "S4")
@pytest.mark.parametrize("retries", [0, 1, 3, "redis-py's own"])
def test_a_client_that_is_handed_in_may_retry_as_it_likes(
    valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy], retries: int | str
) -> None:
    proxy = fault_proxy(valkey.port)
    options = {} if isinstance(retries, str) else {"retry": Retry(NoBackoff(), retries)}
    client = redis.Redis(host=HOST, port=proxy.port, **options)  # type: ignore[arg-type]
    site = Site(client)
    site.warm()

    for step in ("issue", "claim", "settle"):
        if step == "issue":
            proxy.drop_reply(b"EVALSHA", times=1)
        token = token_of(site.client)
        if step == "claim":
            proxy.drop_reply(b"EVALSHA", times=1)
        site.during = lambda step=step: proxy.drop_reply(b"EVALSHA", times=step == "settle")  # type: ignore[misc]
        before = len(site.ledger)
        first = site.send(token)
        if step == "issue" and first.status_code == 409:  # never sent again: the token was not recorded, or too late
            assert_refused(first, "token_unknown")
            continue
        assert first.status_code == 201
        assert_repeated(site.send(token), first)
        assert len(site.ledger) == before + 1
    client.close()


@pytest.mark.case("REDIS-04", "S4")
def test_a_claim_that_is_lost_for_good_runs_nothing_and_the_token_is_good_again(
    valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy]
) -> None:
    proxy = fault_proxy(valkey.port)
    site = Site(proxy.url)
    site.warm()
    token = token_of(site.client)

    proxy.drop_reply(b"EVALSHA", times=4)
    assert_refused(site.send(token), "store_unavailable", 503)

    assert proxy.dropped == 4
    assert len(site.ledger) == 0
    first = site.send(token)
    assert first.status_code == 201
    assert_repeated(site.send(token), first)
    assert len(site.ledger) == 1


@pytest.mark.case("REDIS-04", "S4")
@pytest.mark.parametrize("outcome", ["succeeds", "fails", "keeps"])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_to_settle_again_is_no_second_owner(
    valkey: RedisServer,
    fault_proxy: Callable[[int], FaultProxy],
    caplog: pytest.LogCaptureFixture,
    lost: int,
    outcome: str,
) -> None:
    proxy = fault_proxy(valkey.port)
    site = Site(proxy.url)
    site.warm()
    token = token_of(site.client)

    def during() -> None:
        proxy.drop_reply(b"EVALSHA", times=lost)
        if outcome == "keeps":
            current_claim.keep()

    site.during = during
    first = site.send(token, outcome=outcome)
    site.during = lambda: None

    assert events_logged(caplog.records, *LOUD) == []
    assert first.status_code == (500 if outcome == "fails" else 201)
    runs = 1
    if outcome == "fails":
        outcome, runs = "succeeds", 2
        first = site.send(token, outcome=outcome)
    assert_repeated(site.send(token, outcome=outcome), first)
    assert len(site.ledger) == runs


@pytest.mark.case("REDIS-04")
@pytest.mark.parametrize("lost", [1, 2])
def test_a_token_whose_reply_is_lost_never_fails_the_page(
    valkey: RedisServer, fault_proxy: Callable[[int], FaultProxy], lost: int
) -> None:
    proxy = fault_proxy(valkey.port)
    site = Site(proxy.url)
    site.warm()

    proxy.drop_reply(b"EVALSHA", times=lost)
    token = token_of(site.client)
    first = site.send(token)

    if lost == 1:  # the driver asked again
        assert first.status_code == 201
        assert_repeated(site.send(token), first)
    else:
        assert_refused(first, "token_unknown")


@pytest.mark.case("REDIS-04", "FAIL-03")
def test_a_claim_that_stood_in_a_frozen_server_does_not_hold_the_token(own_valkey: RedisServer) -> None:
    """The commands of a request that was answered 503 are carried out when the server thaws; then they are undone."""
    site = Site(own_valkey.url)
    site.warm()
    token = token_of(site.client)

    own_valkey.freeze()
    assert_refused(site.send(token), "store_unavailable", 503)
    own_valkey.resume()

    answers = [eventually(lambda: site.send(token), lambda a: a.status_code == 201)]
    assert_repeated(site.send(token), answers[0])
    assert len(site.ledger) == 1
