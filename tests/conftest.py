"""Real servers as fixtures, the case ids, and the switch that turns the product off.

Which fixture is which: a name that begins with ``svc_`` is one server for the whole process; ``valkey`` is the same
server, emptied; ``own_valkey`` may be stopped, frozen and killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.apps import switched_off
from tests.live import Process
from tests.proxy import FaultProxy
from tests.servers import RedisCluster, RedisServer, binary
from tests.webservers import WebServer, flask_argv, gunicorn_argv, waitress_argv

pytest_plugins = ["tests.plugin", "pytester"]

# A busy machine takes its time; pytest-timeout bounds each test.
hypothesis.settings.register_profile("suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("suite")

REDIS_SERVERS = ("valkey91", "valkey81", "redis62", "redis82")


@pytest.fixture(scope="session", autouse=True)
def _product_off_in_this_process() -> Iterator[None]:
    """With IDEMPOTENCY_TESTS_OFF=1 every app is initialised switched off; served apps see to it by ``off_switch``."""
    if not switched_off():
        yield
        return
    from flask_idempotent.extension import Idempotency

    original = Idempotency.init_app

    def init_app(self: Any, app: Any, *args: Any, **options: Any) -> Any:
        app.config["IDEMPOTENCY_ENABLED"] = False
        return original(self, app, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Idempotency, "init_app", init_app)
        yield


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


def _session_server(service: str) -> Any:
    @pytest.fixture(scope="session")
    def server(server_folder: Path) -> Iterator[RedisServer]:
        started = RedisServer(service, server_folder).start()
        yield started
        started.stop()

    return server


svc_valkey91 = _session_server("valkey91")
svc_valkey81 = _session_server("valkey81")
svc_redis62 = _session_server("redis62")
svc_redis82 = _session_server("redis82")


@pytest.fixture(scope="session")
def svc_valkey(svc_valkey91: RedisServer) -> RedisServer:
    return svc_valkey91


@pytest.fixture(scope="session")
def svc_cluster(server_folder: Path) -> Iterator[RedisCluster]:
    cluster = RedisCluster(server_folder).start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def svc_faketime() -> str:
    return binary("faketime")


@pytest.fixture
def valkey(svc_valkey: RedisServer) -> Iterator[RedisServer]:
    """Valkey 9.1, emptied before the test. Do not stop or freeze it: that is for ``own_valkey``."""
    svc_valkey.flush()
    yield svc_valkey
    svc_valkey.close_clients()


@pytest.fixture
def redis_url(valkey: RedisServer) -> str:
    return valkey.url


@pytest.fixture
def cluster(svc_cluster: RedisCluster) -> RedisCluster:
    """The three masters, emptied before the test."""
    svc_cluster.flush()
    return svc_cluster


@pytest.fixture(params=REDIS_SERVERS)
def redis_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Each Redis-like server in turn, emptied before the test."""
    server: RedisServer = request.getfixturevalue(f"svc_{request.param}")
    server.flush()
    yield server
    server.close_clients()


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """``new_server("redis82", "--maxmemory", "4mb")``: a private server, started; as many as asked for."""
    started: list[RedisServer] = []

    def start(service: str = "valkey91", *options: str, clock: bool = False) -> RedisServer:
        started.append(RedisServer(service, tmp_path, *options, clock=clock))
        return started[-1].start()

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def own_valkey(new_server: Callable[..., RedisServer]) -> RedisServer:
    """A Valkey of the test's own, to be stopped, frozen, killed and started again."""
    return new_server()


@pytest.fixture
def clock_valkey(svc_faketime: str, new_server: Callable[..., RedisServer]) -> RedisServer:
    """A Valkey of the test's own whose time moves: ``clock_valkey.move_clock(3600)``."""
    return new_server(clock=True)


@pytest.fixture
def fault_proxy() -> Iterator[Callable[[int], FaultProxy]]:
    """``fault_proxy(valkey.port)``: a proxy in front of a server, with faults."""
    proxies: list[FaultProxy] = []

    def make(target: int) -> FaultProxy:
        proxies.append(FaultProxy(target))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., WebServer]]:
    """Start any web server by its command line; the others below are made of it."""
    served: list[WebServer] = []

    def start(name: str, argv: list[str], env: dict[str, str] | None = None, workers: int = 1) -> WebServer:
        served.append(WebServer(name, argv, tmp_path / f"{name}-{len(served)}", env))
        return served[-1].start(workers)

    yield start
    for server in served:
        server.stop()


@pytest.fixture
def gunicorn(serve: Callable[..., WebServer]) -> Callable[..., WebServer]:
    """``gunicorn("tests.apps.shop:create_app()", workers=4, env={"REDIS_URL": redis_url})``."""

    def start(
        app: str,
        workers: int = 1,
        threads: int = 1,
        worker_class: str = "sync",
        env: dict[str, str] | None = None,
        preload: bool = False,
    ) -> WebServer:
        argv = gunicorn_argv(app, workers=workers, threads=threads, worker_class=worker_class, preload=preload)
        return serve("gunicorn", argv, env, workers)

    return start


@pytest.fixture
def waitress(serve: Callable[..., WebServer]) -> Callable[..., WebServer]:
    def start(app: str, threads: int = 4, env: dict[str, str] | None = None) -> WebServer:
        return serve("waitress", waitress_argv(app, threads=threads), env)

    return start


@pytest.fixture
def flask_run(serve: Callable[..., WebServer]) -> Callable[..., WebServer]:
    def start(app: str, env: dict[str, str] | None = None) -> WebServer:
        return serve("flask", flask_argv(app), env)

    return start


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start any command; it ends with the test."""
    started: list[Process] = []

    def start(name: str, argv: list[str], env: dict[str, str] | None = None) -> Process:
        started.append(Process(name, argv, tmp_path / f"{name}-{len(started)}", env))
        started[-1].spawn()
        return started[-1]

    yield start
    for one in started:
        one.stop()
