"""Flask apps behind real web servers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.live import HOST, ROOT, Process, answers, free_port


class WebServer:
    """An app that answers on `url`; its processes end with the test.

    :param argv: the command line, in which ``{port}`` is filled in.
    """

    def __init__(self, name: str, argv: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        line = [part.replace("{port}", str(self.port)) for part in argv]
        self.process = Process(name, line, folder, {"PYTHONUNBUFFERED": "1", **(env or {})})

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self, workers: int = 1) -> WebServer:
        """Wait until a worker has answered a request, whatever its answer, and all workers are there."""
        request = f"GET /-/started HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
        self.process.spawn(cwd=ROOT)
        self.process.wait_ready(
            lambda: len(self.pids()) >= workers and answers(self.port, request, b"HTTP/1.", timeout=10)
        )
        return self

    def log(self) -> str:
        return self.process.log()

    def pids(self) -> list[int]:
        """The workers' process ids, oldest first; without any, that of the server itself."""
        children = psutil.Process(self.process.pid).children()
        return [child.pid for child in sorted(children, key=lambda c: (c.create_time(), c.pid))] or [self.process.pid]

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


def gunicorn_argv(app: str, *, workers: int, threads: int, worker_class: str, preload: bool) -> list[str]:
    line = [sys.executable, "-m", "gunicorn", app, "--bind", f"{HOST}:{{port}}", "--workers", str(workers)]
    line += [
        "--worker-class",
        worker_class,
        "--threads",
        str(threads),
        "--graceful-timeout",
        "2",
        "--no-control-socket",
    ]
    return [*line, "--preload"] if preload else line


def waitress_argv(app: str, *, threads: int) -> list[str]:
    """`app` as gunicorn spells it: ``module:factory()`` or ``module:app``."""
    call = ["--call"] if app.endswith("()") else []
    return [
        sys.executable,
        "-m",
        "waitress",
        f"--listen={HOST}:{{port}}",
        f"--threads={threads}",
        *call,
        app.removesuffix("()"),
    ]


def flask_argv(app: str) -> list[str]:
    """Flask's development server, threaded, without the reloader."""
    run = ["run", "--host", HOST, "--port", "{port}", "--no-reload"]
    return [sys.executable, "-m", "flask", "--app", app, *run]
