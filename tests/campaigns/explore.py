"""The state machine searched exhaustively, on larger bounds: workers, two keys, a bad network, failovers."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

from tests.core import promises
from tests.core.asked import Times
from tests.core.explore import Bounds, Broken, Found, Search
from tests.core.one_key import Rules

MOST_MEMORY = 4_000_000_000  # bytes of this process; a search that needs more is stopped
PROGRESS = 30.0  # seconds between two lines
LONG = Times(lease=2, ttl=5, token_ttl=7)
KEY, TOKEN = ("key",), ("token",)
BROKEN_BY_A_FAILOVER = {
    promises.ONE_AT_A_TIME,
    promises.DONE_STANDS,
    promises.NEVER_TAKEN,
    promises.TOLD,
    promises.POWERLESS,
    promises.CAN_GO_ON,
    promises.FENCES,
}
"""By one that loses the last write. docs/guarantees says what that means for users."""
SEARCHES = (
    (Rules(), Bounds(3, 1, 2, KEY)),
    (Rules(), Bounds(3, 2, 1, TOKEN)),
    (Rules(failover=True), Bounds(2, 1, 1, KEY)),
    (Rules(failover=True), Bounds(2, 1, 1, TOKEN)),
    (Rules(LONG), Bounds(2, 1, 1, KEY)),
    (Rules(LONG), Bounds(2, 1, 1, TOKEN)),
    (Rules(), Bounds(3, 3, 3, KEY)),
    (Rules(LONG), Bounds(3, 3, 3, TOKEN)),
    (Rules(failover=True), Bounds(3, 2, 2)),
    (Rules(), Bounds(3, 3, 3)),
)


@dataclass
class _Watch:
    """Prints progress, and ends a search when its time is over or it has grown too large."""

    until: float
    peak: int = 0
    said: float = 0.0
    why: str = ""

    def go_on(self, found: Found) -> bool:
        now = time.monotonic()
        self.peak = max(self.peak, psutil.Process().memory_info().rss)
        if now - self.said >= PROGRESS:
            if self.said:
                print(f"  … {found}, {self.peak / 1e6:,.0f} MB", flush=True)
            self.said = now
        self.why = "its time is over" if now >= self.until else "too large" if self.peak >= MOST_MEMORY else ""
        return not self.why


def run(minutes: float, seed: int) -> int:
    """Search within one pair of bounds after the other; each may take its share of the time that is left. There is no
    chance in it, so ``seed`` changes nothing. Return how many searches found what must not be."""
    end, failures = time.monotonic() + minutes * 60, 0
    for number, (rules, bounds) in enumerate(SEARCHES):
        now = time.monotonic()
        if now >= end:
            print(f"no time left for {len(SEARCHES) - number} larger searches")
            break
        failures += _search(rules, bounds, now + (end - now) / (len(SEARCHES) - number))
    return failures


def _search(rules: Rules, bounds: Bounds, until: float) -> bool:
    watch = _Watch(until)
    print(f"{_said(rules, bounds)}", flush=True)
    search = Search(rules, bounds, watch.go_on)
    try:
        search.run()
    except Broken as broken:
        print(broken)
        return True
    found = search.found
    print(f"  {found}{f', stopped: {watch.why}' if watch.why else ', all of them'}; at most {watch.peak / 1e6:,.0f} MB")
    print("  steps: " + ", ".join(f"{name} {count:,}" for name, count in found.steps.most_common()))
    if rules.failover:
        return _is_wrong(found)
    print("  late commands of owners that had settled or were replaced: " + "; ".join(sorted(found.facts)))
    return False


def _is_wrong(found: Found) -> bool:
    for promise, count in found.broken.most_common():
        print(f"  broken {count:,} times: {promise}")
        print("\n".join(found.ways[promise]))
    print("  held: " + "; ".join(sorted(promises.ALL - set(found.broken))))
    unexpected = set(found.broken) - BROKEN_BY_A_FAILOVER
    missing = BROKEN_BY_A_FAILOVER - set(found.broken) if found.whole else set()
    for what, wrong in (("UNEXPECTED", unexpected), ("expected, but held", missing)):
        print("".join(f"  {what}: {promise}\n" for promise in sorted(wrong)), end="")
    return bool(unexpected or missing)


def _said(rules: Rules, bounds: Bounds) -> str:
    times = rules.times
    return (
        f"{bounds.workers} workers on {' and '.join(bounds.keys)}, {bounds.sent} commands and {bounds.late} late "
        f"copies on their way; lease {times.lease}, ttl {times.ttl}, token {times.token_ttl}"
        f"{', failovers' if rules.failover else ''}"
    )
