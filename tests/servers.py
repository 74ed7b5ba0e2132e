"""Real Redis-like servers, each a child of the test process on a free port of 127.0.0.1."""

from __future__ import annotations

import itertools
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.live import HOST, Process, answers, free_port
from tools.services import SERVICES

_folders = itertools.count()


def binary(service: str) -> str:
    """The path of a service's binary; a missing one fails the test and says what to install."""
    found = SERVICES[service].find()
    if found is None:
        pytest.fail(SERVICES[service].hint(), pytrace=False)
    return found


class RedisServer:
    """A Valkey or Redis without persistence. Stopped and started again it keeps its port, not its data.

    :param service: which one, a name of ``tools.services``.
    :param base: the folder under which it gets its own.
    :param options: more of its command line, as ``"--appendonly", "yes"``.
    :param clock: its time can be moved by :meth:`move_clock`.
    """

    def __init__(self, service: str, base: Path, *options: str, clock: bool = False, bus: bool = False) -> None:
        self.service = service
        self.port = free_port(bus=bus)
        folder = base / f"{service}-{next(_folders)}"
        fixed = ["--port", str(self.port), "--bind", HOST, "--save", "", "--dir", str(folder)]
        self._offset = 0.0
        self._clock_file = folder / "clock"
        env = self._clock_env() if clock else {}
        self.process = Process(service, [binary(service), *fixed, *options], folder, env)
        self._clients: list[redis.Redis] = []
        self._control: redis.Redis | None = None
        self._clock_file.write_text("+0\n")

    def _clock_env(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": binary("faketime"),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock_file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "TZ": "UTC",  # in which a moment is written into that file
        }

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def client(self, **options: Any) -> redis.Redis:
        """A plain client, answers as bytes; closed with the server."""
        client = redis.Redis(host=HOST, port=self.port, **options)
        self._clients.append(client)
        return client

    def start(self) -> RedisServer:
        self.process.spawn()
        self.process.wait_ready(lambda: answers(self.port, b"PING\r\n", b"+PONG"))
        return self

    def stop(self) -> None:
        self.close_clients()
        self.process.stop()

    def kill(self) -> None:
        self.close_clients()
        self.process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        self.process.freeze()

    def resume(self) -> None:
        self.process.resume()

    def log(self) -> str:
        return self.process.log()

    @property
    def control(self) -> redis.Redis:
        """One client for the questions below, made anew after a restart."""
        if self._control is None:
            self._control = self.client()
        return self._control

    def flush(self) -> None:
        """An empty database, an empty script cache and counters at 0."""
        self.control.flushall()
        self.control.script_flush()
        self.control.config_resetstat()

    def version(self) -> str:
        info = self.control.info("server")
        return str(info.get("valkey_version") or info["redis_version"])

    def calls(self, command: str) -> int:
        """How often clients called a command since the last flush, as the server counts: ``calls("evalsha")``."""
        stats = self.control.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))

    def move_clock(self, seconds: float) -> None:
        """Add to the server's time, and return when it has seen it; only where it was made with ``clock=True``."""
        self._offset += seconds
        earliest = time.time() + self._offset - 0.02
        self._write_clock(f"{self._offset:+f}")
        # Commands go by a time that the server keeps for up to a millisecond, so ask until that one has moved.
        while self.process.alive and not earliest <= self._kept_time() <= time.time() + self._offset + 0.02:
            pass

    def stop_clock(self, moment: int) -> None:
        """Let the server's time stand still at a moment, in microseconds; only where it was made with ``clock=True``.
        Valkey 9.1 cannot: by the processor's counter it goes on for a millisecond, then begins that one again."""
        shown = datetime.fromtimestamp(moment // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        self._write_clock(f"{shown}.{moment % 1_000_000:06}5")  # half a microsecond more: libfaketime cuts off

    def _write_clock(self, text: str) -> None:
        beside = self._clock_file.with_suffix(".new")
        beside.write_text(f"{text}\n")
        os.replace(beside, self._clock_file)  # noqa: PTH105 - in one step: the server reads it at every look at the time

    def _kept_time(self) -> float:
        return int(self.control.info("server")["server_time_usec"]) / 1_000_000

    def close_clients(self) -> None:
        self._control = None
        while self._clients:
            self._clients.pop().close()


class RedisCluster:
    """Three masters of one cluster, all slots served."""

    SLOTS = 16_384

    def __init__(self, base: Path, *, nodes: int = 3) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        self.nodes = [RedisServer("valkey91", base, *options, bus=True) for _ in range(nodes)]

    @property
    def port(self) -> int:
        return self.nodes[0].port

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def client(self, **options: Any) -> redis.RedisCluster:
        """A cluster client of its own; the caller closes it."""
        return redis.RedisCluster(host=HOST, port=self.port, **options)

    def start(self) -> RedisCluster:
        for number, node in enumerate(self.nodes):
            first, last = (self.SLOTS * n // len(self.nodes) for n in (number, number + 1))
            control = node.start().control
            control.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            control.execute_command("CLUSTER ADDSLOTSRANGE", first, last - 1)
            control.execute_command("CLUSTER MEET", HOST, self.port)
        end = time.monotonic() + 20
        while not all(self._is_complete(node) for node in self.nodes):
            if time.monotonic() > end:
                raise RuntimeError(
                    f"the cluster did not come together; a node's log ends:\n{self.nodes[0].log()[-2000:]}"
                )
            time.sleep(0.02)
        return self

    def _is_complete(self, node: RedisServer) -> bool:
        info = node.control.cluster("info")
        return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(len(self.nodes))

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    kill = stop

    def freeze(self) -> None:
        for node in self.nodes:
            node.freeze()

    def resume(self) -> None:
        for node in self.nodes:
            node.resume()

    def flush(self) -> None:
        for node in self.nodes:
            node.flush()

    def calls(self, command: str) -> int:
        return sum(node.calls(command) for node in self.nodes)
