"""The clients: each thread fetches a token and sends it until it is served or refused for good, with double clicks,
hang-ups and late repeats. A process of its own: ``python -m tests.campaigns._faults.clients FOLDER SEED THREADS CALM
HABITS PORT…``; it ends in peace some time after a file STOP appeared in FOLDER."""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flask_idempotent.core.keys import parse_token, token_digest
from tests.campaigns._faults.history import ATTEMPTS, Attempt, Issue
from tests.helpers import FIELD, REPLAYED
from tests.live import HOST

STOP = "STOP"
PATIENCE = 5.0  # seconds that a client waits for a byte
REMEMBERED = 20  # tokens that each thread asks for again at the very end
VIEWS = ("replay", "replay", "reject", "strict", "consume")
FORMS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
QUIET: dict[str, Any] = {"ends": "returns", "before": 0.0, "after": 0.0, "keep": False}


class Diary:
    """One append-only file for all processes of clients."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, kind: str, thing: Issue | Attempt) -> None:
        os.write(self._file, json.dumps({"kind": kind, **asdict(thing)}).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Form:
    """A token and what is sent with it."""

    raw: str
    issue: Issue
    numbers: Callable[[], int] = field(default_factory=lambda: count(1).__next__)


@dataclass(frozen=True, slots=True)
class Habits:
    """How clients and views behave, as weights.

    :param waits: of no wait, a short one, one within a lease, one longer than a lease; before and after the effect.
    :param clicks: of one, two and three requests for one answer.
    """

    waits: tuple[int, ...]
    clicks: tuple[int, ...]

    def plan(self, chance: random.Random, tried: int) -> dict[str, Any]:
        """What the view is to do. Who was refused often behaves, so that each story comes to an end."""
        outcome = chance.choices(
            ("returns", "redirects", "refuses", "raises-early", "raises", "fails", "again"),
            (60, 12, 7, 4, 7, 5, 5) if tried < 5 else (1, 0, 0, 0, 0, 0, 0),
        )[0]
        before, after = self._wait(chance), self._wait(chance)
        return {"ends": outcome, "before": before, "after": after, "keep": chance.random() < 0.12}

    def _wait(self, chance: random.Random) -> float:
        waits = (0.0, chance.uniform(0.01, 0.2), chance.uniform(0.5, 1.2), chance.uniform(1.8, 2.8))
        return chance.choices(waits, self.waits)[0]


HABITS = {"usual": Habits((70, 20, 6, 4), (65, 25, 10)), "slow": Habits((40, 0, 0, 60), (10, 60, 30))}


def ask(port: int, method: str, path: str, body: str, headers: dict[str, str], patience: float) -> Any:
    """Return (response, text), or None if there was no answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=patience)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response, response.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class Client:
    """One thread of clients."""

    def __init__(
        self, diary: Diary, chance: random.Random, habits: Habits, ports: list[int], stopped: Callable[[], bool]
    ) -> None:
        self._diary = diary
        self._habits = habits
        self._chance = chance
        self._ports = ports
        self._stopped = stopped
        self._open: list[Form] = []
        self._served: list[Form] = []
        self._several = ThreadPoolExecutor(3)

    def run(self, calm: float) -> None:
        """Tell stories until stopped; then finish what is open, and ask once more for what was finished."""
        while not self._stopped():
            form = self._fetch()
            if form is None:
                time.sleep(0.2)
            elif self._tell(form):
                self._remember(form)
                self._repeat_late(form)
            else:
                self._open.append(form)
        end = time.monotonic() + calm
        while self._open and time.monotonic() < end:
            self._open = [form for form in self._open if not self._send(form, QUIET).final]
            time.sleep(0.3)
        for form in self._served:
            self._send(form, QUIET)

    def _remember(self, form: Form) -> None:
        if len(self._served) < REMEMBERED:
            self._served.append(form)
        elif self._chance.random() < 0.3:
            self._served[self._chance.randrange(REMEMBERED)] = form

    def _fetch(self) -> Form | None:
        view, start = self._chance.choice(VIEWS), time.monotonic()
        found = ask(self._chance.choice(self._ports), "GET", f"/form/{view}", "", {}, PATIENCE)
        if found is None or found[0].status != 200:
            if found is not None:  # a page never fails, whatever the store does
                page = Issue(f"a page with status {found[0].status}", view, start, time.monotonic(), recorded=False)
                self._diary.write("issue", page)
            return None
        page = json.loads(found[1])
        name = token_digest(parse_token(page["token"]) or "")
        issue = Issue(name, view, start, time.monotonic(), page["recorded"])
        self._diary.write("issue", issue)
        return Form(page["token"], issue)

    def _tell(self, form: Form) -> bool:
        """Send it until the answer is final; return whether it came to that."""
        tried = 0
        while not self._stopped():
            clicks = self._chance.choices((1, 2, 3), self._habits.clicks)[0]
            answers = list(self._several.map(partial(self._click, form, tried), range(clicks)))
            if any(answer.final for answer in answers):
                return True
            tried += 1
            time.sleep(self._chance.choice((0.0, self._chance.uniform(0.05, 0.8))))
        return False

    def _click(self, form: Form, tried: int, number: int) -> Attempt:
        """The first at once, others with it or while a slow view may be at work. Some hang up early, some soon."""
        chance = self._chance
        if number:
            time.sleep(chance.choice((0.0, chance.uniform(0, 0.3), chance.uniform(0.5, 3.0))))
        patience = chance.choices((PATIENCE, chance.uniform(0.8, 2.5), chance.uniform(0.01, 0.6)), (60, 28, 12))[0]
        return self._send(form, self._habits.plan(chance, tried), patience)

    def _repeat_late(self, form: Form) -> None:
        if self._chance.random() < 0.4:
            time.sleep(self._chance.choice((0.0, self._chance.uniform(0, 3))))
            self._send(form, self._habits.plan(self._chance, 0))

    def _send(self, form: Form, plan: dict[str, Any], patience: float = PATIENCE) -> Attempt:
        issue = form.issue
        name = f"{issue.token}-{form.numbers()}"
        content = 1 if plan is not QUIET and self._chance.random() < 0.03 else 0
        body = urlencode({FIELD: form.raw, "content": content})
        headers = {**FORMS, "X-Attempt": name, "X-Plan": json.dumps(plan)}
        start = time.monotonic()
        found = ask(self._chance.choice(self._ports), "POST", f"/work/{issue.view}", body, headers, patience)
        attempt = _attempt(issue.token, name, start, content, found)
        self._diary.write("attempt", attempt)
        return attempt


def _attempt(token: str, name: str, start: float, content: int, found: Any) -> Attempt:
    end = time.monotonic()
    if found is None:
        return Attempt(token, name, start, end, 0, content=content)
    response, text = found
    said = json.loads(text) if text.startswith("{") else {}
    place = response.getheader("Location", "")
    return Attempt(
        token,
        name,
        start,
        end,
        response.status,
        reason=said.get("code"),
        run=place.removeprefix("/done/") or said.get("run"),
        body=f"{text[:200]}{place}",
        replayed=response.getheader(REPLAYED) == "true",
        retry_after=response.getheader("Retry-After") is not None,
        content=content,
    )


def main(folder: Path, seed: str, threads: int, calm: float, habits: Habits, ports: list[int]) -> None:
    diary = Diary(folder / ATTEMPTS)
    stop = folder / STOP
    clients = [Client(diary, random.Random(f"{seed}-{n}"), habits, ports, stop.exists) for n in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(client.run, calm) for client in clients]:
            done.result()


if __name__ == "__main__":
    sys.setswitchinterval(0.001)
    where, seed, threads, calm, habits, *ports = sys.argv[1:]
    main(Path(where), seed, int(threads), float(calm), HABITS[habits], [int(port) for port in ports])
