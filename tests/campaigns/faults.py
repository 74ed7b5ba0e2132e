"""Clients against several server processes and a store, with everything that can go wrong; a checker judges each token.

Every attempt, every effect (in a ledger outside the product) and every fault is written down; at the end the checker
says for each token whether its history is possible under what is promised.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns._faults import clients, report
from tests.campaigns._faults.checker import Findings, Promise, check
from tests.campaigns._faults.history import ATTEMPTS, LEDGER, History, load
from tests.campaigns._faults.injector import Injector
from tests.campaigns._faults.pair import Pair
from tests.live import HOST, ROOT, Process, answers
from tests.webservers import WebServer, gunicorn_argv

APP = "tests.apps.ledger_app:create_app()"
SERVERS = (("sync", 3, 1), ("gthread", 2, 4))  # worker class, workers, threads
PROMISE = Promise(lease=1.5, life=900.0)
CLIENTS = (2, 6)  # processes, threads in each
PROGRESS = 10.0  # seconds between two lines


@dataclass(frozen=True, slots=True)
class World:
    """A store pair behind a proxy, server processes on it, and clients."""

    folder: Path
    pair: Pair
    servers: list[WebServer]
    clients: list[Process]

    @classmethod
    @contextmanager
    def running(cls, folder: Path, seed: int, *, sabotage: str = "", habits: str = "usual") -> Iterator[World]:
        pair = Pair(folder).start()
        env = {
            "STORE": pair.proxy.url,
            "LEDGER": str(folder / LEDGER),
            "LEASE": str(PROMISE.lease),
            "LIFE": str(PROMISE.life),
            "SABOTAGE": sabotage,
        }
        world = cls(folder, pair, [_server(folder, env, *which) for which in SERVERS], [])
        try:
            for server, (_, workers, _) in zip(world.servers, SERVERS, strict=True):
                server.start(workers)
            world._start_clients(seed, habits)
            yield world
        finally:
            for process in (*world.clients, *(server.process for server in world.servers)):
                process.kill()
            pair.stop()

    def _start_clients(self, seed: int, habits: str) -> None:
        processes, threads = CLIENTS
        ports = [str(server.port) for server in self.servers]
        for number in range(processes):
            given = [str(self.folder), f"{seed}-{number}", str(threads), str(PROMISE.longest_refusal), habits, *ports]
            argv = [sys.executable, "-m", clients.__name__, *given]
            self.clients.append(Process(f"clients {number}", argv, self.folder / f"clients-{number}"))
            self.clients[-1].spawn(cwd=ROOT)

    def end_clients(self) -> None:
        """Let the clients finish what they began, without faults.

        :raises RuntimeError: one of them broke.
        """
        (self.folder / clients.STOP).touch()
        end = time.monotonic() + PROMISE.longest_refusal + clients.PATIENCE * 20
        for process in self.clients:
            while process.alive and time.monotonic() < end:
                time.sleep(0.05)
            if process.returncode != 0:
                raise RuntimeError(f"{process.name} ended with {process.returncode}:\n{process.log()[-3000:]}")


def _server(folder: Path, env: dict[str, str], worker_class: str, workers: int, threads: int) -> WebServer:
    argv = gunicorn_argv(APP, workers=workers, threads=threads, worker_class=worker_class, preload=True)
    return WebServer(f"gunicorn {worker_class}", argv, folder / worker_class, env)


class Progress:
    """A line every ten seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = self._next = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next += PROGRESS
        attempts, booked = (_size(self._folder / name) for name in (ATTEMPTS, LEDGER))
        print(f"{now - self._began:6.0f} s: {attempts} tokens and attempts, {booked} lines in the ledger", flush=True)


def _size(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def play(
    folder: Path,
    seconds: float,
    seed: int,
    *,
    lanes: Collection[str] = Injector.LANES,
    habits: str = "usual",
    sabotage: str = "",
) -> tuple[History, Findings]:
    """Run the clients with faults for so long, and without until they are done; judge what happened.

    :param lanes: which of the injector's have faults.
    :param habits: of the clients, one of ``HABITS``.
    :param sabotage: how the product is broken on purpose, one of ``SABOTAGES`` of the app.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with World.running(folder, seed, sabotage=sabotage, habits=habits) as world:
        injector = Injector(world.pair, world.servers, random.Random(seed), folder, PROMISE, lanes)
        injector.run(seconds, Progress(folder))
        world.end_clients()
        for server in world.servers:
            if not answers(server.port, b"GET /form/replay HTTP/1.0\r\n\r\n", b"HTTP/1.", timeout=10):
                raise RuntimeError(f"{server.process.name} on {HOST} does not answer any more")
    history = load(folder)
    return history, check(history, PROMISE)


def run(minutes: float, seed: int) -> int:
    """Return the number of broken promises."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    history, findings = play(folder, minutes * 60, seed)
    print(f"seed {seed}, {minutes:g} minutes")
    print("\n".join(report.lines(history, findings)))
    if findings.complaints:
        print(f"everything that was written down is in {folder}")
    else:
        shutil.rmtree(folder)
    return len(findings.complaints)
