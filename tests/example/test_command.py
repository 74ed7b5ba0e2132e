"""``python -m example_app``: what it says, what it starts, and that nothing of it stays behind."""

from __future__ import annotations

import importlib.util
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from example_app.valkey import embedded_valkey
from tests.live import HOST, ROOT, Process, free_port

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def run(*arguments: str) -> Process:
        command = [sys.executable, "-m", "example_app", "--no-browser", *arguments]
        started.append(Process("shop", command, tmp_path / f"shop-{len(started)}", {"TMPDIR": str(tmp_path)}))
        started[-1].spawn(cwd=ROOT)
        return started[-1]

    yield run
    for process in started:
        process.stop()


def wait_until(condition: Callable[[], object], what: str, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def opened(shop: Process) -> str:
    """Wait for the welcome and return all of it."""
    wait_until(lambda: "Ctrl-C" in shop.log() or not shop.alive, "the shop does not open")
    assert shop.alive, shop.log()
    return shop.log()


def valkey_port(welcome: str) -> int:
    found = re.search(rf"real Valkey.+redis://{HOST}:(\d+)/0", welcome)
    assert found, welcome
    return int(found[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_to_click_and_leaves_nothing_behind(start: Start, tmp_path: Path, number: int) -> None:
    port = free_port()
    shop = start("--port", str(port))
    welcome = opened(shop)
    for path in ("", "/order", "/pay", "/tip"):
        assert requests.get(f"http://{HOST}:{port}{path}", timeout=10).status_code == 200
        assert re.search(rf"http://{HOST}:{port}{path}\s", welcome)
    valkey = valkey_port(welcome)
    assert is_open(valkey)
    shop.signal(number)
    wait_until(lambda: not shop.alive, "the shop does not close")
    assert shop.returncode == 0
    assert shop.log().rstrip().endswith("The shop is closed.")
    assert "Traceback" not in shop.log()
    assert not is_open(valkey)
    assert list(tmp_path.glob("example-shop-*")) == []


if sys.platform == "linux":  # only there does the kernel end a child with its parent

    def test_a_killed_shop_takes_its_valkey_with_it(start: Start) -> None:
        shop = start("--port", "0")
        valkey = valkey_port(opened(shop))
        shop.kill()
        wait_until(lambda: not is_open(valkey), "the Valkey outlives the shop")


def test_a_store_can_be_named(start: Start) -> None:
    assert "the store you named: memory://" in opened(start("--port", "0", "--store", "memory://"))


def test_a_taken_port_is_said_plainly(start: Start) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        shop = start("--port", str(port))
        wait_until(lambda: not shop.alive, "the shop opens on a taken port")
    assert shop.returncode == 1
    assert f"Port {port} is in use" in shop.log()
    assert "Traceback" not in shop.log()


def test_without_the_wheel_there_is_no_valkey(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with embedded_valkey() as url:
        assert url is None


def test_a_valkey_that_does_not_start_is_said_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "valkey-server"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("example_app.valkey._binary", lambda: broken)
    with pytest.raises(RuntimeError, match="--store memory://"), embedded_valkey():
        pass
