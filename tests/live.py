"""Processes that belong to the test run: they die with it, and their log is in the failure message."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"
ROOT = Path(__file__).parent.parent

_reserved: list[socket.socket] = []
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    """Runs in the child. The kernel counts the *thread* that forked as the parent: start servers in the main one."""
    if _libc is not None:
        _libc.prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG


def free_port(*, bus: bool = False) -> int:
    """A port from 20000 up that nobody listens on, kept from other test runs (on Linux) as long as this one lives.

    :param bus: the port 10000 above must be free too, for the bus of a cluster node.
    """
    while True:
        port = random.randint(20_000, 22_700 if bus else 30_000)  # and below 32768, where outgoing connections begin
        if all(_reserve(p) for p in (port, *([port + 10_000] if bus else []))):
            return port


def _reserve(port: int) -> bool:
    """Whether the port was free. A bound socket that does not listen keeps it from others who ask here, while Linux
    still lets a server listen there if both sockets have SO_REUSEADDR."""
    guard = socket.socket()
    try:
        guard.bind((HOST, port))
    except OSError:
        guard.close()
        return False
    if sys.platform == "linux":
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(guard)
        if len(_reserved) > 100:  # enough; file descriptors are few
            _reserved.pop(0).close()
    else:
        guard.close()
    return True


def answers(port: int, sent: bytes, expected: bytes, timeout: float = 1.0) -> bool:
    """Whether the server there answers `sent` with something that begins with `expected`, in `timeout` seconds."""
    with socket.create_connection((HOST, port), timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(sent)
        return connection.recv(256).startswith(expected)


class Process:
    """A process with a log, in a session of its own, that can be stopped, killed, frozen and started again."""

    def __init__(self, name: str, argv: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.argv = list(argv)
        self.folder = folder
        self.env = {**os.environ, **(env or {})}
        self.logfile = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._process.poll() if self._process else None

    def spawn(self, cwd: Path | None = None) -> None:
        with self.logfile.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                cwd=cwd or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def wait_ready(self, probe: Callable[[], bool], timeout: float = 30.0) -> None:
        """Ask `probe` until it says yes; it may raise OSError until then.

        :raises RuntimeError: with the log's tail, when the process ended or `timeout` seconds went by.
        """
        end = time.monotonic() + timeout
        while self.alive and time.monotonic() < end:
            with contextlib.suppress(OSError):
                if probe():
                    return
            time.sleep(0.005)
        code = self.returncode
        self.kill()
        raise RuntimeError(f"{self.name} did not become ready (exit code {code}); its log ends:\n{self.log()[-3000:]}")

    def log(self) -> str:
        return self.logfile.read_text(errors="replace") if self.logfile.exists() else ""

    def signal(self, number: int) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def stop(self, timeout: float = 15.0) -> None:
        """End it gently, and by force after `timeout` seconds."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        atexit.unregister(self.kill)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def freeze(self) -> None:
        """It keeps its connections and answers nothing, until :meth:`resume`."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
