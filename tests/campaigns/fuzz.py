"""Ten thousand random and mutated requests to every guarded route of the shop: no 5xx, nothing done twice."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.campaigns._fuzz.judge import Judge
from tests.campaigns._fuzz.plans import Plan, plans
from tests.campaigns._fuzz.wire import send, written
from tests.servers import RedisServer
from tests.webservers import WebServer, gunicorn_argv

REQUESTS = 10_000  # at least, however short the time
BATCH = 100  # plans between two looks at the ledger, which is then emptied: every page lists all of it


class Shop:
    """The example on gunicorn and Valkey, with small limits so that small bodies reach them.

    :param enabled: False for the shop without protection, in which the judge has to find something.
    """

    def __init__(self, folder: Path, store: str, *, enabled: bool = True) -> None:
        env = {
            "FLASK_IDEMPOTENCY_STORE": store,
            "FLASK_IDEMPOTENCY_ENABLED": str(enabled).lower(),
            "FLASK_IDEMPOTENCY_MAX_BODY": "4096",
            "FLASK_SHOP_DELAY": "0.01",  # seconds: time for a second one to come in between
        }
        argv = gunicorn_argv("example_app:create_app()", workers=1, threads=4, worker_class="gthread", preload=False)
        self.server = WebServer("shop", argv, folder / "shop", env)
        self.rows: Counter[str] = Counter()

    @property
    def port(self) -> int:
        return self.server.port

    def token(self, session: requests.Session) -> bytes:
        issued = session.get(f"{self.server.url}/idempotency/token", timeout=10)
        return str(issued.json()["token"]).encode()

    def count(self) -> None:
        """Add up what was done, and empty the ledger."""
        page = requests.get(f"{self.server.url}/orders", timeout=10).text
        self.rows.update({form: int(rows) for form, rows in re.findall(r'data-count="(\w+)">(\d+)<', page)})
        requests.post(f"{self.server.url}/reset", timeout=10).raise_for_status()


class Fuzzer:
    """Plays plans on a shop, and has each answer judged."""

    def __init__(self, shop: Shop, chance: random.Random) -> None:
        self.shop = shop
        self.judge = Judge()
        self.sent = 0
        self._chance = chance
        self._tokens = [b"00000000-0000-4000-8000-000000000000"]  # which was never issued
        self._session = requests.Session()
        self._pool = ThreadPoolExecutor(3)

    def batch(self, number: int, size: int) -> None:
        """Draw and play so many plans."""

        @seed(number)
        @settings(
            max_examples=size,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(plans())
        def played(plan: Plan) -> None:
            self.play(plan)

        played()
        self.shop.count()

    def play(self, plan: Plan) -> None:
        token = self._token(plan)
        operation = self.judge.asks(plan, token)
        sent = written(plan, token)
        self.sent += plan.times
        if plan.together:
            answers = list(self._pool.map(lambda _: send(self.shop.port, sent, plan.method), range(plan.times)))
        else:
            answers = [send(self.shop.port, sent, plan.method) for _ in range(plan.times)]
        for answer in answers:
            self.judge.answered(plan, operation, answer)

    def _token(self, plan: Plan) -> bytes:
        if plan.token == "fresh":
            self._tokens.append(self.shop.token(self._session))
            return self._tokens[-1]
        return self._chance.choice(self._tokens) if plan.token == "used" else b""


def play(
    folder: Path, store: str, minutes: float, start: int, least: int, *, batch: int = BATCH, enabled: bool = True
) -> Fuzzer:
    """Send requests for so long, and at least so many."""
    chance, end = random.Random(start), time.monotonic() + minutes * 60
    shop = Shop(folder, store, enabled=enabled)
    fuzzer = Fuzzer(shop, chance)
    shop.server.start()
    try:
        while fuzzer.sent < least or time.monotonic() < end:
            fuzzer.batch(chance.getrandbits(32), batch)
        fuzzer.judge.ledger(shop.rows)
    finally:
        shop.server.stop()
    return fuzzer


def run(minutes: float, seed: int) -> int:
    """Fuzz for so long, and at least 10,000 requests; return the number of complaints."""
    with tempfile.TemporaryDirectory() as folder:
        store = RedisServer("valkey91", Path(folder)).start()
        fuzzer = play(Path(folder), store.url, minutes, seed, REQUESTS)
        store.stop()
    judge = fuzzer.judge
    for complaint in judge.complaints[:50]:
        print(complaint)
    operations = {kind: len(names) for kind, names in sorted(judge.asked.items())}
    print(f"{fuzzer.sent} requests; answers: {dict(judge.seen.most_common())}")
    print(f"distinct operations: {operations}; effects: {dict(fuzzer.shop.rows)}")
    return len(judge.complaints)
