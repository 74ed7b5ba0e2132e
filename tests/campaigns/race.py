"""Fifty at once on one token, over four gunicorn processes and a real Valkey: one runs, the rest are told so."""

from __future__ import annotations

import http.client
import json
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.helpers import FIELD, REPLAYED, Ledger, tokens_of
from tests.live import HOST
from tests.servers import RedisServer
from tests.webservers import WebServer, gunicorn_argv

CLIENTS = 50
PROCESSES = 4
THREADS = 16  # for each process: every client is being served at the same time
ROUNDS = 200  # at least, however short the time
POLICIES = ("replay", "reject", "ignore", "consume")
LONGEST_VIEW = 0.3  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """What one client saw, and after how many seconds."""

    status: int
    reason: str | None
    replayed: bool
    retry_after: bool
    body: bytes
    seconds: float


class Fleet:
    """Four server processes on one store, and fifty clients with a connection each."""

    def __init__(
        self, folder: Path, store: str, app: str = "tests.apps.work:create_app()", threads: int = THREADS
    ) -> None:
        self.ledger = Ledger(folder / "ledger")
        argv = gunicorn_argv(app, workers=PROCESSES, threads=threads, worker_class="gthread", preload=True)
        env = {"STORE": store, "LEDGER": str(folder / "ledger")}
        self.server = WebServer("gunicorn", argv, folder / "gunicorn", env)
        self._clients: list[http.client.HTTPConnection] = []

    @contextmanager
    def running(self) -> Iterator[Fleet]:
        self.server.start()
        self._clients = [http.client.HTTPConnection(HOST, self.server.port, timeout=30) for _ in range(CLIENTS)]
        try:
            yield self
        finally:
            for client in self._clients:
                client.close()
            self.server.stop()

    def token(self) -> str:
        client = http.client.HTTPConnection(HOST, self.server.port, timeout=30)
        client.request("GET", "/form")
        (token,) = tokens_of(client.getresponse().read().decode())
        client.close()
        return token

    def rush(self, path: str, body: str) -> list[Answer]:
        """Send one request from every client at the same moment."""
        barrier = threading.Barrier(CLIENTS)
        answers: list[Answer] = []

        def one(client: http.client.HTTPConnection) -> None:
            barrier.wait(30)
            answers.append(_send(client, path, body))

        threads = [threading.Thread(target=one, args=(client,)) for client in self._clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


def _send(client: http.client.HTTPConnection, path: str, body: str) -> Answer:
    started = time.monotonic()
    client.request("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"})
    response = client.getresponse()
    data = response.read()
    reason = json.loads(data).get("code") if response.status >= 400 and data.startswith(b"{") else None
    return Answer(
        response.status,
        reason,
        response.getheader(REPLAYED) == "true",
        response.getheader("Retry-After") is not None,
        data,
        time.monotonic() - started,
    )


def complaints(policy: str, answers: list[Answer], runs: int) -> list[str]:
    """What is wrong with a round: nothing, if one ran and the rest were told so in a documented way."""
    firsts = [answer for answer in answers if answer.status == 201 and not answer.replayed]
    found = [] if runs == 1 else [f"ran {runs} times"]
    if len(answers) != CLIENTS:
        found.append(f"{len(answers)} answers for {CLIENTS} clients")
    if len(firsts) != 1:
        return [*found, f"{len(firsts)} clients were told that theirs was the first"]
    others = [answer for answer in answers if answer is not firsts[0]]
    return found + [f"undocumented: {answer}" for answer in others if not _documented(policy, answer, firsts[0])]


def _documented(policy: str, answer: Answer, first: Answer) -> bool:
    if policy == "ignore":
        return answer.status == 204 and not answer.body
    if policy == "consume":
        return (answer.status, answer.reason) == (409, "duplicate")
    if (answer.status, answer.reason) == (409, "in_progress"):
        return answer.retry_after
    if policy == "reject":
        return (answer.status, answer.reason) == (409, "duplicate")
    return answer.status == 201 and answer.replayed and answer.body == first.body


def play(fleet: Fleet, chance: random.Random, seen: Counter[str], seconds: list[float]) -> list[str]:
    """One round of a policy and a length of the view that ``chance`` chooses; return what is wrong with it."""
    policy = chance.choice(POLICIES)
    view = chance.choice((0.0, 0.0, chance.uniform(0, 0.05), LONGEST_VIEW))
    name = f"{chance.getrandbits(64):016x}"
    body = urlencode({FIELD: fleet.token(), "name": name, "seconds": view})
    answers = fleet.rush(f"/work/{policy}", body)
    runs = sum(entry.startswith(f"start {name} ") for entry in fleet.ledger.entries)
    seen.update(f"{a.status} {a.reason or ('replayed' if a.replayed else '')}".strip() for a in answers)
    seconds.extend(a.seconds for a in answers)
    return [f"{policy}, view of {view:.3f} s: {complaint}" for complaint in complaints(policy, answers, runs)]


def run(minutes: float, seed: int) -> int:
    """Play for so long, and at least 200 rounds; return the number of rounds in which something was wrong."""
    chance, end = random.Random(seed), time.monotonic() + minutes * 60
    seen: Counter[str] = Counter()
    seconds: list[float] = []
    failures = rounds = 0
    with tempfile.TemporaryDirectory() as folder:
        store = RedisServer("valkey91", Path(folder)).start()
        with Fleet(Path(folder), store.url).running() as fleet:
            while rounds < ROUNDS or time.monotonic() < end:
                rounds += 1
                wrong = play(fleet, chance, seen, seconds)
                failures += bool(wrong)
                for complaint in wrong:
                    print(f"round {rounds}: {complaint}")
        store.stop()
    print(f"{rounds} rounds of {CLIENTS} clients; answers: {dict(seen.most_common())}")
    print(_figures(seconds))
    return failures


def _figures(seconds: list[float]) -> str:
    cuts = statistics.quantiles(seconds, n=100)
    return f"seconds for an answer: mean {statistics.fmean(seconds):.3f}, 95th {cuts[94]:.3f}, 99th {cuts[98]:.3f}"
