"""The IDEMPOTENCY_* keys: defaults, validation that names the key, and that each does what it says."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from typing import Any

import fakeredis
import pytest
import redis
from flask import Flask, request

from flask_idempotent import Idempotency, StoreUnavailable, idempotent, signals
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.testing import FakeClock
from tests.helpers import FIELD, HEADER, Ledger, assert_refused, assert_repeated, make_app, token_of
from tests.live import HOST, ROOT, free_port

DEFAULTS = {
    "ENABLED": True,
    "STORE": None,
    "STORES": {},
    "PREFIX": "idempotency",
    "TOKEN_TTL": 3600,
    "RESULT_TTL": 86400,
    "LEASE": 300,
    "WAIT": 0,
    "TOKEN_HEADER": "Idempotency-Token",
    "TOKEN_FIELD": "idempotency_token",
    "TOKEN_URL": "/idempotency/token",
    "TOKEN_LOCATIONS": ("header", "form"),
    "KEY_HEADER": "Idempotency-Key",
    "METHODS": ("POST", "PUT", "PATCH", "DELETE"),
    "BINDING": "ip",
    "IPV4_PREFIX": 32,
    "IPV6_PREFIX": 64,
    "PRINCIPAL": None,
    "ON_DUPLICATE": "replay",
    "RESTORE_ON_ERROR": True,
    "MESSAGE": None,
    "ERROR_FORMAT": "problem",
    "DUPLICATE_STATUS": 409,
    "POLICY_URL": None,
    "STORE_DOWN": "refuse",
    "MAX_RESULT": 1024 * 1024,
    "MAX_BODY": 1024 * 1024,
}
"""The contract; the product's own table must say the same."""


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def set_up(**config: Any) -> Flask:
    app = Flask("tests.helpers")
    app.config.update({f"IDEMPOTENCY_{key}": value for key, value in config.items()})
    Idempotency(app)
    return app


def shop(ledger: Ledger, store: Any = None, **config: Any) -> Any:
    """A client of an app with one guarded view."""
    app = make_app(store, **config)

    @app.route("/orders", methods=["POST", "PUT", "PATCH", "DELETE"])
    @idempotent
    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    return app.test_client()


def assert_once(client: Any, ledger: Ledger, **sent: Any) -> None:
    before = len(ledger)
    first, second = (client.post("/orders", **sent) for _ in range(2))
    assert first.status_code == 201, first.text
    assert_repeated(second, first)
    assert len(ledger) == before + 1


def name_of(part: Any) -> str:
    """A test id without addresses, the same in every process."""
    return part if isinstance(part, str) else re.sub(r" at 0x\w+", "", repr(part))[:40]


# --- defaults ----------------------------------------------------------------------------------------------------


def test_every_key_and_its_default():
    config = set_up(ENABLED=True).config
    assert {key: value for key, value in config.items() if key.startswith("IDEMPOTENCY_")} == {
        f"IDEMPOTENCY_{key}": value for key, value in DEFAULTS.items()
    }


def test_the_apps_values_stay():
    values = {"TOKEN_TTL": timedelta(minutes=5), "BINDING": None, "TOKEN_LOCATIONS": "header", "METHODS": ["POST"]}
    config = set_up(**values).config
    assert {key: config[f"IDEMPOTENCY_{key}"] for key in values} == values


def test_two_apps_share_no_default():
    one, other = set_up(), set_up()
    one.config["IDEMPOTENCY_STORES"]["audit"] = "memory://"
    assert other.config["IDEMPOTENCY_STORES"] == {}


# --- validation --------------------------------------------------------------------------------------------------

NO_TIME = [None, 0, -1, -0.5, "300", float("nan"), float("inf"), True, timedelta(0), timedelta(seconds=-1), [300]]
WRONG: dict[str, list[Any]] = {
    "ENABLED": [None, "no", "False", 1, 0],
    "STORE": ["somewhere", "ftp://host/0", "", "memory://?max_records=0", "memory://?size=3", 7, object(), MemoryStore],
    "STORES": [None, [], "redis://host/0", {"audit": "ftp://host"}, {"audit": None}, {"audit": 7}],
    "PREFIX": [None, "", 7, "Präfix", "a\n"],
    "TOKEN_TTL": NO_TIME,
    "RESULT_TTL": NO_TIME,
    "LEASE": NO_TIME,
    "WAIT": [None, -1, "0", True, float("nan"), timedelta(seconds=-1)],
    "TOKEN_HEADER": [None, "", "Jeton à usage unique", 7, "X Once", "X-Once:", "X-Once\n"],
    "TOKEN_FIELD": [None, "", 7, "jeton\n"],
    "TOKEN_URL": ["", "token", "https://host/token", 7, True],
    "TOKEN_LOCATIONS": [None, (), [], "cookie", ("header", "cookie"), 7, ("header", None)],
    "KEY_HEADER": [None, "", "ä", 7, "Idempotency Key"],
    "METHODS": [None, (), "GET", ("POST", "HEAD"), ["OPTIONS"], 7, ["TRACE"]],
    "BINDING": ["cookie", "", "IP", 7, True],
    "IPV4_PREFIX": [None, -1, 33, "24", 24.0, True],
    "IPV6_PREFIX": [None, -1, 129, "64", 64.0, False],
    "PRINCIPAL": ["alice", 7, True],
    "ON_DUPLICATE": [None, "", "retry", "REPLAY", 7, True],
    "RESTORE_ON_ERROR": [None, "yes", 1, 0],
    "MESSAGE": [7, True, b"once", ["once"]],
    "ERROR_FORMAT": [None, "", "json", "xml", 7],
    "DUPLICATE_STATUS": [None, "409", 99, 100, 600, 409.0, True],
    "POLICY_URL": ["", "https://", "policy", "ftp://host/p", "/a b", "/a>", "/\u00e4", "/a\r\nX: y", 7, True],
    "STORE_DOWN": [None, "", "fail", True],
    "MAX_RESULT": [None, -1, "1MB", 1.5, True],
    "MAX_BODY": [None, -1, "1MB", 1.5, True],
}
PAIRS = [(key, value) for key, values in WRONG.items() for value in values if (key, value) != ("STORE", "")]


def test_every_key_has_its_wrong_values():
    assert set(WRONG) == set(DEFAULTS)


@pytest.mark.parametrize(("key", "value"), PAIRS, ids=name_of)
def test_a_value_that_makes_no_sense_is_an_error_at_init_that_names_the_key(key, value):
    with pytest.raises((ValueError, TypeError), match=rf"IDEMPOTENCY_{key}\b") as caught:
        set_up(**{key: value})
    assert caught.type in ((ValueError, TypeError) if key.startswith("STORE") else (ValueError,))


GOOD: dict[str, list[Any]] = {
    "TOKEN_TTL": [1, 0.5, timedelta(minutes=5), 10**9],
    "LEASE": [timedelta(seconds=1)],
    "WAIT": [0, 0.0, timedelta(0), 2, timedelta(seconds=1)],
    "TOKEN_URL": [None, "/", "/a/b.json"],
    "TOKEN_LOCATIONS": ["header", ["query"], ("json", "form"), ("header", "form", "query", "json")],
    "METHODS": ["POST", ["post", "Put"], {"DELETE"}, ("PURGE",), frozenset({"POST"})],
    "BINDING": ["ip", "session", "user", "none", None, lambda: "x"],
    "IPV4_PREFIX": [0, 32],
    "IPV6_PREFIX": [0, 128],
    "ON_DUPLICATE": ["replay", "reject", "ignore", lambda refusal: "x"],
    "MESSAGE": [None, "", "Once is enough – ✓"],
    "PRINCIPAL": [None, lambda: None],
    "DUPLICATE_STATUS": [200, 409, 422, 429],
    "POLICY_URL": [None, "/", "/idempotency", "https://docs.example/idempotency?v=1#keys", "//docs.example/keys"],
    "MAX_RESULT": [0, 10**9],
    "STORE": [
        None,
        "memory://",
        "memory://?max_records=1",
        "redis://host/0",
        "rediss://host:1/2",
        "unix:///run/r.sock",
    ],
    "STORES": [{"audit": "memory://", "other": MemoryStore()}],
}


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for key, values in GOOD.items() for value in values],
    ids=name_of,
)
def test_a_value_that_makes_sense_is_taken(key, value):
    assert set_up(**{key: value}).config[f"IDEMPOTENCY_{key}"] == value


@pytest.mark.parametrize("name", ["TOKEN_TLL", "REDIS_URL", "", "token_ttl"])
def test_a_key_that_nobody_knows_is_an_error_that_lists_the_known(name):
    with pytest.raises(ValueError, match=re.escape(f"IDEMPOTENCY_{name}")) as caught:
        set_up(**{name: 300})
    assert "IDEMPOTENCY_TOKEN_TTL" in str(caught.value)


def test_what_is_not_ours_is_not_looked_at():
    app = Flask("tests.helpers")
    app.config.update(IDEMPOTENT_TTL=1, TOKEN_TTL=-1, idempotency_ttl=2)
    Idempotency(app)


def test_a_store_that_needs_what_is_not_installed_names_the_pip_line(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("flask_idempotent.stores.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match=re.escape('pip install "flask-idempotency[redis]"')):
        set_up(STORE="redis://localhost/0")


@pytest.mark.parametrize("url", ["sqlalchemy://", "postgresql://host/db", "sqlite:///x.db"])
def test_a_store_that_is_still_to_come_says_so(url):
    with pytest.raises(ValueError, match=r"IDEMPOTENCY_STORE: .*not in this version"):
        set_up(STORE=url)


def test_nothing_connects_at_import_or_init():
    """In a process of its own, so that whatever else the suite imported does not count."""
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('connected')\n"
        "socket.socket.connect = socket.create_connection = refuse\n"
        "import flask_idempotent\n"
        "assert 'redis' not in sys.modules and 'sqlalchemy' not in sys.modules\n"
        "assert 'flask_login' not in sys.modules and 'asgiref' not in sys.modules\n"
        "from flask import Flask\n"
        "app = Flask('x')\n"
        f"app.config['IDEMPOTENCY_STORE'] = 'redis://{HOST}:{free_port()}/0'\n"
        "flask_idempotent.Idempotency(app)\n"
        "assert 'jinja_env' not in vars(app)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True, timeout=50
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- which store -------------------------------------------------------------------------------------------------


@pytest.mark.case("S24")
@pytest.mark.parametrize("kind", ["url", "client", "decoding client", "RESP3 client", "fake", "store", "config client"])
def test_a_store_may_be_a_url_a_client_or_a_store(valkey, ledger, kind):
    fake = fakeredis.FakeStrictRedis()
    chosen: dict[str, Any] = {
        "url": valkey.url,
        "client": valkey.client(),
        "decoding client": valkey.client(decode_responses=True),
        "RESP3 client": valkey.client(protocol=3),
        "fake": fake,
        "store": MemoryStore(),
        "config client": valkey.client(),
    }
    client = shop(ledger, STORE=chosen[kind]) if kind == "config client" else shop(ledger, chosen[kind])
    assert_once(client, ledger, data={FIELD: token_of(client)})
    kept = valkey.client().dbsize() + fake.dbsize() + len(list(chosen["store"].scan()))
    assert kept == 1
    if isinstance(chosen[kind], redis.Redis):
        assert chosen[kind].ping()  # the app's client is still the app's


@pytest.mark.case("S24", "S1")
def test_the_argument_goes_before_the_key_and_the_key_before_the_default(valkey, ledger):
    store = MemoryStore()
    client = shop(ledger, store, STORE=f"redis://{HOST}:{free_port()}/0")
    assert_once(client, ledger, data={FIELD: token_of(client)})
    assert len(list(store.scan())) == 1
    client = shop(ledger, STORE=valkey.url)
    assert_once(client, ledger, data={FIELD: token_of(client)})
    assert valkey.client().dbsize() == 1
    app = set_up()
    app.add_url_rule("/form", "form", Idempotency().token)
    app.add_url_rule("/orders", "orders", idempotent(lambda: (f"order {ledger.add()}", 201)), methods=["POST"])
    client = app.test_client()
    assert_once(client, ledger, data={FIELD: client.get("/form").text})


MULTIPROCESS = {"environ_overrides": {"wsgi.multiprocess": True}}


def _records(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    return [r for r in caplog.records if r.name.startswith("flask_idempotent") and r.levelno == level]


@pytest.mark.case("MEM-01")
def test_without_a_store_several_processes_are_refused_with_the_cure(ledger):
    app = set_up()
    app.config["PROPAGATE_EXCEPTIONS"] = True
    app.add_url_rule("/form", "form", Idempotency().token)
    app.add_url_rule("/orders", "orders", idempotent(lambda: f"order {ledger.add()}"), methods=["POST"])
    app.add_url_rule("/plain", "plain", lambda: "plain", methods=["GET", "POST"])
    client = app.test_client()
    for method, url in (("GET", "/form"), ("POST", "/orders"), ("GET", "/idempotency/token"), ("POST", "/orders")):
        with pytest.raises(RuntimeError, match="IDEMPOTENCY_STORE"):
            client.open(url, method=method, **MULTIPROCESS)
    assert client.post("/plain", **MULTIPROCESS).text == "plain"
    assert len(ledger) == 0


@pytest.mark.case("MEM-01")
def test_an_explicit_memory_store_is_warned_of_once(ledger, caplog):
    client = shop(ledger, STORE="memory://")
    assert_once(client, ledger, data={FIELD: token_of(client, **MULTIPROCESS)}, **MULTIPROCESS)
    assert_once(client, ledger, data={FIELD: token_of(client, **MULTIPROCESS)}, **MULTIPROCESS)
    (warning,) = _records(caplog, logging.WARNING)
    assert "memory://" in warning.getMessage()


# --- what each key does ------------------------------------------------------------------------------------------


@pytest.mark.case("S1", "S7")
@pytest.mark.parametrize("prefix", ["idempotency", "shop", "shop:staging", "{slot}"])
def test_prefix(valkey, ledger, prefix):
    client = shop(ledger, valkey.url, PREFIX=prefix)
    token = token_of(client)
    assert_once(client, ledger, data={FIELD: token})
    (key,) = valkey.client().keys("*")
    assert key.decode().startswith(f"{prefix}:")
    assert_refused(shop(ledger, valkey.url, PREFIX="other").post("/orders", data={FIELD: token}), "token_unknown")


@pytest.mark.case("S7", "S3")
@pytest.mark.parametrize("header", ["Idempotency-Token", "X-Once", "token"])
def test_token_header(ledger, header):
    client = shop(ledger, TOKEN_HEADER=header)
    assert_once(client, ledger, headers={header: token_of(client)})
    assert_once(client, ledger, headers={header.upper(): token_of(client)})
    if header != HEADER:
        assert_refused(client.post("/orders", headers={HEADER: token_of(client)}), "token_missing", 400)


@pytest.mark.case("S7", "S3")
@pytest.mark.parametrize("field", ["idempotentKey", "form[token]", 'a"<b>&', "with blank"])
def test_token_field(ledger, field):
    client = shop(ledger, TOKEN_FIELD=field)
    page = client.get("/form").text
    assert "<b>" not in page
    assert_once(client, ledger, data={field: re.search(r'value="([^"]+)"', page)[1]})
    assert_refused(client.post("/orders", data={FIELD: token_of_page(page)}), "token_missing", 400)


def token_of_page(page: str) -> str:
    return re.search(r'value="([^"]+)"', page)[1]


PLACES: dict[str, dict[str, Any]] = {
    "header": {"headers": {HEADER: "TOKEN"}},
    "form": {"data": {FIELD: "TOKEN", "amount": "1"}},
    "query": {"query_string": {FIELD: "TOKEN"}},
    "json": {"json": {FIELD: "TOKEN", "amount": 1}},
}


def carrying(token: str, place: str) -> dict[str, Any]:
    return {name: {k: token if v == "TOKEN" else v for k, v in part.items()} for name, part in PLACES[place].items()}


@pytest.mark.case("S3", "BODY-09")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "locations", [None, "header", ("form",), ("query",), ("json",), tuple(PLACES), tuple(PLACES)[::-1]]
)
def test_token_locations(any_store, ledger, locations, place):
    config = {} if locations is None else {"TOKEN_LOCATIONS": locations}
    client = shop(ledger, any_store, **config)
    token = token_of(client)
    allowed = ("header", "form") if locations is None else locations
    if place in allowed:
        assert_once(client, ledger, **carrying(token, place))
    else:
        assert_refused(client.post("/orders", **carrying(token, place)), "token_missing", 400)
        assert len(ledger) == 0


@pytest.mark.case("S3")
@pytest.mark.parametrize("order", [("header", "form", "query", "json"), ("query", "header"), ("form", "header")])
def test_the_first_place_in_the_order_given_counts(any_store, ledger, order):
    client = shop(ledger, any_store, TOKEN_LOCATIONS=order)
    token, other = token_of(client), token_of(client)
    sent = {"headers": {HEADER: other}, "query_string": {FIELD: other}, "data": {FIELD: other}}
    first = {"header": "headers", "query": "query_string", "form": "data"}[order[0]]
    sent[first] = {HEADER if order[0] == "header" else FIELD: token}
    assert_once(client, ledger, **sent)
    assert_once(client, ledger, **carrying(other, order[0]))  # the other token was not used up
    sent[first] = {HEADER if order[0] == "header" else FIELD: "malformed"}
    assert_refused(client.post("/orders", **sent), "token_invalid", 400)
    assert len(ledger) == 2


@pytest.mark.case("FORM-14", "S7")
@pytest.mark.parametrize("methods", [("POST",), "post", ["put", "delete"], ("POST", "PUT", "PATCH", "DELETE")])
def test_methods(any_store, ledger, methods):
    client = shop(ledger, any_store, METHODS=methods)
    guarded = {methods.upper()} if isinstance(methods, str) else {method.upper() for method in methods}
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = client.open("/orders", method=method)
        if method in guarded:
            assert_refused(answer, "token_missing", 400)
        else:
            assert answer.status_code == 201


@pytest.mark.case("S6", "S7", "S22")
@pytest.mark.parametrize("status", [200, 202, 409, 422, 429])
@pytest.mark.parametrize("error_format", ["problem", "envelope"])
def test_duplicate_status_and_message(any_store, ledger, status, error_format):
    config = {"ON_DUPLICATE": "reject", "DUPLICATE_STATUS": status, "MESSAGE": "Bitte nicht zweimal – ✓"}
    client = shop(ledger, any_store, ERROR_FORMAT=error_format, **config)
    data = {FIELD: token_of(client)}
    assert client.post("/orders", data=data).status_code == 201
    refused = client.post("/orders", data=data)
    assert_refused(refused, "duplicate", status)
    if error_format == "envelope":
        assert refused.json == {"code": 429, "message": "Bitte nicht zweimal – ✓", "data": None, "reason": "duplicate"}
    else:
        assert (refused.json["detail"], refused.json["status"]) == ("Bitte nicht zweimal – ✓", status)
    page = client.post("/orders", data=data, headers={"Accept": "text/html"})
    assert (page.status_code, "Bitte nicht zweimal – ✓" in page.text) == (status, True)
    assert_refused(client.post("/orders"), "token_missing", 400)  # the others keep their status and words
    assert len(ledger) == 1


class Gone(MemoryStore):
    def claim(self, *args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("gone")


@pytest.mark.case("REDIS-04", "S7")
def test_store_down_refuse(ledger):
    client = shop(ledger, Gone())
    refused = client.post("/orders", data={FIELD: token_of(client)})
    assert_refused(refused, "store_unavailable", 503)
    assert refused.headers["Retry-After"] == "1"
    assert len(ledger) == 0


@pytest.mark.case("REDIS-04", "S7", "S23")
def test_store_down_pass_runs_the_view_and_warns_each_time(ledger, caplog):
    heard: list[str] = []

    def hear(sender: Any, event: Any) -> None:
        heard.append(event.name)

    signals.ALL["unguarded"].connect(hear)
    client = shop(ledger, Gone(), STORE_DOWN="pass")
    data = {FIELD: token_of(client)}
    for number in (1, 2):
        answer = client.post("/orders", data=data)
        assert (answer.status_code, answer.text) == (201, f"order {number}")
        assert len(_records(caplog, logging.WARNING)) == number
        assert heard == ["unguarded"] * number
    assert_refused(client.post("/orders"), "token_missing", 400)  # what needs no store is still said
    assert len(ledger) == 2


@pytest.mark.case("REPLAY-06", "S7")
@pytest.mark.parametrize(("limit", "kept"), [(0, False), (6, False), (7, True), (8, True)])
def test_max_result(any_store, ledger, limit, kept):
    client = shop(ledger, any_store, MAX_RESULT=limit)
    data = {FIELD: token_of(client)}
    first = client.post("/orders", data=data)
    assert first.text == "order 1"  # 7 bytes
    second = client.post("/orders", data=data)
    if kept:
        assert_repeated(second, first)
    else:
        assert_refused(second, "response_unavailable")
    assert len(ledger) == 1


@pytest.mark.case("BODY-04", "S7")
def test_max_body(any_store, ledger):
    """A body beyond the limit counts by its type and length alone."""
    client = shop(ledger, any_store, MAX_BODY=10)
    header = {HEADER: token_of(client)}
    first = client.post("/orders", headers=header, data=b"x" * 11)
    assert first.status_code == 201
    assert_repeated(client.post("/orders", headers=header, data=b"y" * 11), first)
    assert_refused(client.post("/orders", headers=header, data=b"x" * 12), "token_reused", 422)
    header = {HEADER: token_of(client)}
    assert client.post("/orders", headers=header, data=b"x" * 10).status_code == 201
    assert_refused(client.post("/orders", headers=header, data=b"y" * 10), "token_reused", 422)
    assert len(ledger) == 2


@pytest.mark.case("S7", "FAIL-03")
@pytest.mark.parametrize("lease", [10, timedelta(seconds=10)])
def test_lease(ledger, lease):
    """A worker that died: its claim holds for the lease, and not longer."""
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    client = shop(ledger, store, LEASE=lease)
    token = token_of(client)
    settle, store.settle = store.settle, lambda *args, **kwargs: True  # the process is gone before it settles
    assert client.post("/orders", data={FIELD: token}).status_code == 201
    store.settle = settle
    clock.advance(9)
    refused = client.post("/orders", data={FIELD: token})
    assert_refused(refused, "in_progress")
    assert refused.headers["Retry-After"] == "1"
    clock.advance(1)
    assert_once(client, ledger, data={FIELD: token})
    assert len(ledger) == 2


@pytest.mark.case("S7", "S14")
def test_restore_on_error(any_store, ledger):
    app = make_app(any_store, RESTORE_ON_ERROR=False)

    @app.post("/orders")
    @idempotent
    def order() -> str:
        ledger.add()
        raise ValueError("half done")

    @app.post("/restored")
    @idempotent(restore_on_error=True)
    def restored() -> str:
        ledger.add(request.path)
        raise ValueError("nothing done")

    client = app.test_client()
    data = {FIELD: token_of(client)}
    assert client.post("/orders", data=data).status_code == 500
    assert_refused(client.post("/orders", data=data), "failed")
    data = {FIELD: token_of(client)}
    assert [client.post("/restored", data=data).status_code for _ in range(2)] == [500, 500]
    assert len(ledger) == 3


@pytest.mark.case("S7", "S1")
def test_settings_are_read_once(ledger):
    client = shop(ledger)
    client.application.config.update(IDEMPOTENCY_TOKEN_HEADER="X-Other", IDEMPOTENCY_BINDING="none")
    assert_once(client, ledger, headers={HEADER: token_of(client)})


def test_a_decimal_is_no_number_of_seconds():
    with pytest.raises(ValueError, match="IDEMPOTENCY_LEASE"):
        set_up(LEASE=Decimal(5))
