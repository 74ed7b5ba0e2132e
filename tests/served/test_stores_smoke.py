"""The whole way of a form on every server and every kind of client that can be handed in."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import fakeredis
import pytest
import redis
from flask import request
from redis._parsers import _HiredisParser, _RESP2Parser, _RESP3Parser

from flask_idempotent import idempotent
from flask_idempotent.stores.memory import MemoryStore
from tests.helpers import FIELD, Ledger, assert_refused, assert_repeated, make_app, token_of
from tests.live import HOST
from tests.servers import RedisCluster, RedisServer

BODY = bytes(range(256))


def go_the_whole_way(store: Any, between: Callable[[], Any] = lambda: None) -> None:
    """Issue, fail, correct, succeed, repeat, change; ``between`` is called before every step."""
    app, ledger = make_app(store), Ledger()

    @app.post("/work")
    @idempotent(scene="work")
    def work() -> Any:
        ledger.add()
        between()
        if request.form["sum"] == "bad":
            raise ValueError("bad")
        return BODY, 201, {"Location": "/made/1", "Content-Type": "image/png"}

    @app.post("/once")
    @idempotent(consume=True)
    def once() -> str:
        ledger.add()
        between()
        return "once"

    client = app.test_client()

    def send(path: str, token: str, value: str, **options: Any) -> Any:
        between()
        return client.post(path, data={FIELD: token, "sum": value}, **options)

    between()
    token, other = token_of(client), token_of(client)
    assert_refused(send("/work", token, "1", environ_base={"REMOTE_ADDR": "192.0.2.1"}), "token_foreign", 403)
    assert send("/work", token, "bad").status_code == 500
    first = send("/work", token, "1")
    assert (first.status_code, first.data) == (201, BODY)
    assert_repeated(send("/work", token, "1"), first)
    assert_repeated(send("/work", token, "1"), first)
    assert_refused(send("/work", token, "2"), "token_reused", 422)
    assert send("/once", other, "1").text == "once"
    assert_refused(send("/once", other, "1"), "duplicate")
    assert_refused(send("/work", "0" * 32, "1"), "token_unknown")
    assert len(ledger) == 3


@pytest.mark.case("REDIS-03", "S4", "S10")
@pytest.mark.parametrize("decode_responses", [False, True], ids=["bytes", "decoded"])
@pytest.mark.parametrize("protocol", [2, 3])
def test_every_server_by_every_protocol(redis_server: RedisServer, protocol: int, decode_responses: bool) -> None:
    go_the_whole_way(redis_server.client(protocol=protocol, decode_responses=decode_responses))


@pytest.mark.case("REDIS-03")
@pytest.mark.parametrize("decode_responses", [False, True], ids=["bytes", "decoded"])
@pytest.mark.parametrize(
    ("protocol", "parser"), [(2, _HiredisParser), (3, _HiredisParser), (2, _RESP2Parser), (3, _RESP3Parser)]
)
def test_with_and_without_hiredis(valkey: RedisServer, protocol: int, parser: Any, decode_responses: bool) -> None:
    pool = redis.ConnectionPool(
        host=HOST, port=valkey.port, protocol=protocol, parser_class=parser, decode_responses=decode_responses
    )
    with redis.Redis(connection_pool=pool) as client:
        go_the_whole_way(client)
    pool.disconnect()


@pytest.mark.case("S4", "S10")
@pytest.mark.parametrize(
    "options", ["", "?decode_responses=true", "?protocol=2", "?protocol=3&health_check_interval=1"]
)
def test_every_server_by_its_url(redis_server: RedisServer, options: str) -> None:
    go_the_whole_way(redis_server.url + options)


@pytest.mark.case("S4")
def test_valkey_urls(valkey: RedisServer) -> None:
    go_the_whole_way(valkey.url.replace("redis://", "valkey://"))


@pytest.mark.case("S4", "REDIS-03")
@pytest.mark.parametrize("decode_responses", [False, True], ids=["bytes", "decoded"])
def test_a_cluster_of_three_nodes(cluster: RedisCluster, decode_responses: bool) -> None:
    client = cluster.client(decode_responses=decode_responses)
    for _ in range(5):  # tokens of several nodes
        go_the_whole_way(client)
    assert sum(node.calls("evalsha") > 0 for node in cluster.nodes) > 1
    client.close()


@pytest.mark.case("S24")
def test_memory() -> None:
    go_the_whole_way(MemoryStore())
    go_the_whole_way("memory://")


@pytest.mark.case("REDIS-14", "S24")
@pytest.mark.parametrize("decode_responses", [False, True], ids=["bytes", "decoded"])
@pytest.mark.parametrize("kind", [fakeredis.FakeRedis, fakeredis.FakeStrictRedis])
def test_the_fake(kind: Any, decode_responses: bool) -> None:
    with kind(server=fakeredis.FakeServer(), decode_responses=decode_responses) as client:
        go_the_whole_way(client)


@pytest.mark.case("REDIS-14")
def test_the_fake_without_its_lua_says_what_to_install() -> None:
    program = """
        import sys
        sys.modules["lupa"] = None  # as where the extra is not installed
        import fakeredis
        from tests.helpers import make_app

        client = make_app(fakeredis.FakeRedis(), PROPAGATE_EXCEPTIONS=True).test_client()
        try:
            client.get("/form")
        except RuntimeError as error:
            print(error)
    """
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )

    assert 'pip install "fakeredis[lua]"' in said.stdout, said.stderr


@pytest.mark.case("REDIS-14")
def test_the_scripts_call_nothing_that_the_fake_or_an_old_server_lacks() -> None:
    folder = files("flask_idempotent.stores.redis")
    scripts = "\n".join(file.read_text() for file in folder.iterdir() if file.name.endswith(".lua"))
    scripts = re.sub(r"--[^\n]*", "", scripts)

    assert set(re.findall(r"\b(?:string|table|math|redis|cjson|cmsgpack|struct|bit)\.\w+", scripts)) <= {
        "redis.call",
        "redis.pcall",
        "redis.error_reply",
        "string.format",
        "string.find",
        "string.match",
        "string.sub",
        "string.len",
        "table.concat",
        "math.ceil",
        "math.max",
        "math.min",
        "math.floor",
    }
    commands = set(
        re.findall(r"redis\.p?call\(\s*'(\w+)'", scripts) + re.findall(r'redis\.p?call\(\s*"(\w+)"', scripts)
    )
    assert commands <= {"GET", "SET", "DEL", "TIME", "GETRANGE", "STRLEN", "PTTL"}


@pytest.mark.case("REDIS-01", "S4")
def test_an_empty_script_cache_before_every_step(redis_server: RedisServer) -> None:
    go_the_whole_way(redis_server.url, between=redis_server.control.script_flush)


@pytest.mark.case("REDIS-01")
def test_an_empty_script_cache_before_every_step_on_a_cluster(cluster: RedisCluster) -> None:
    def flush() -> None:
        for node in cluster.nodes:
            node.control.script_flush()

    with cluster.client() as client:
        go_the_whole_way(client, between=flush)


@pytest.mark.case("REDIS-02")
def test_other_peoples_scripts_push_ours_out(redis_server: RedisServer) -> None:
    numbers: Iterator[int] = iter(range(10**9))
    steps: Iterator[int] = iter(range(10**9))

    def others() -> None:
        if next(steps) % 3 != 1:
            return
        with redis_server.control.pipeline(transaction=False) as pipeline:
            for _ in range(600):
                pipeline.eval(f"return {next(numbers)}", 0)
            pipeline.execute()

    go_the_whole_way(redis_server.url, between=others)
