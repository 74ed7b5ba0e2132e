"""Random scripts: what is done, to which key, with which options."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st

from flask_idempotent.core.record import State

Step = tuple[str, Any, Any]
"""A command, its key (for settle: how many claims ago; for wait: microseconds), and its options."""

LEASE, LIFE = 10.0, 25.0
LONGEST = 40  # steps
WAITS = (1, 999, 9_999_999, *[10_000_000] * 4, 14_999_999, *[15_000_000] * 2, 25_000_000)


def issue(ttl: float = LIFE) -> Step:
    """One command by hand; the others below too."""
    return ("issue", "x", {"binding": "b", "scene": "s", "ttl": ttl})


def claim(owner: str, **options: Any) -> Step:
    usual = {"lease": LEASE, "ttl": LIFE, "binding": "b", "scene": "s", "fingerprint": "f"}
    return ("claim", "x", usual | {"owner": owner} | options)


def settle(state: State, *, ago: int = 0, result: bytes | None = None) -> Step:
    return ("settle", ago, {"state": state, "hold": LEASE, "ttl": LIFE, "result": result})


def wait(micros: int) -> Step:
    return ("wait", micros, None)


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """The usual value nine times out of ten: a claim that differs in everything is refused at the first rule."""
    return st.sampled_from([usual] * 9 * len(others) + list(others))


owners = st.sampled_from(["anna", "ben", "carl"])
keys = mostly("x", "y")
bindings = mostly("b", "", "c")
scenes = mostly("s", "", "t")
fingerprints = mostly("f", "", "g")
leases = mostly(LEASE, 30.5)
lives = mostly(LIFE, 1.0, 60.0, 60.000_001)
_lately = mostly(0, 1, 2, 3)
token_lives = st.sampled_from([LIFE, LIFE, 12.0, 12.0, 60.0])


def claims_with(**options: Any) -> st.SearchStrategy[Step]:
    """Claims, all with these options."""
    usual = {
        "owner": owners,
        "lease": leases,
        "ttl": lives,
        "must_exist": mostly(False, True),
        "binding": bindings,
        "scene": scenes,
        "fingerprint": fingerprints,
        "takeover": st.sampled_from([True, True, False]),
        "consume": st.sampled_from([False, False, False, True]),
    }
    return st.tuples(st.just("claim"), keys, st.fixed_dictionaries(usual | options))


def settles_with(ago: st.SearchStrategy[int] = _lately, **options: Any) -> st.SearchStrategy[Step]:
    """Commands of owners, all with these options.

    :param ago: by how many claims before the latest one's.
    """
    usual = {
        "state": st.sampled_from([State.ISSUED] * 4 + [State.RUNNING] * 3 + [State.DONE] * 3 + [State.FAILED] * 2),
        "hold": leases,
        "ttl": lives,
        "result": st.sampled_from([None, None, b"", b"answer", b"other"]),
    }
    return st.tuples(st.just("settle"), ago, st.fixed_dictionaries(usual | options))


issues: st.SearchStrategy[Step] = st.tuples(
    st.just("issue"), keys, st.fixed_dictionaries({"binding": bindings, "scene": scenes, "ttl": token_lives})
)
claims, settles = claims_with(), settles_with()
# What happens to a store: time passes, somebody deletes a record, a failover loses the last writes.
events: st.SearchStrategy[Step] = st.sampled_from(
    [*map(wait, WAITS), ("delete", "x", None), *(("go back", "x", writes) for writes in (1, 1, 2, 2, 3))]
)

_single = {"issue": issues, "claim": claims, "settle": settles, "event": events}
steps: st.SearchStrategy[list[Step]] = (
    st.sampled_from(["issue"] * 2 + ["claim"] * 6 + ["settle"] * 6 + ["event"] * 5)
    .flatmap(_single.__getitem__)
    .map(lambda step: [step])
)
# What single steps come to too seldom: a token's lease ends; an owner that was taken over goes on, or one who gave a
# token back; a store forgets a claim and remembers what was done before it.
_a_lease: st.SearchStrategy[Step] = st.sampled_from([wait(10_000_000), wait(15_000_000)])
lease_ends = st.tuples(issues, claims, _a_lease)
taken_over = st.tuples(claims_with(consume=st.just(False)), _a_lease, claims, settles_with(st.just(1)))
given_back = st.tuples(issues, claims, settles_with(state=st.just(State.ISSUED)), settles)
claim_lost = st.tuples(
    claims_with(consume=st.just(True)),
    settles_with(state=st.just(State.ISSUED)),
    claims,
    st.just(("go back", "x", 2)),
    settles_with(state=st.sampled_from([State.DONE, State.FAILED])),
)
_rare = {0: lease_ends, 1: taken_over, 2: given_back, 3: claim_lost}
parts: st.SearchStrategy[list[Step]] = st.integers(0, 29).flatmap(lambda n: _rare.get(n, steps).map(list))
scripts: st.SearchStrategy[list[Step]] = st.lists(
    parts,
    min_size=15,  # without it most are too short to meet themselves
    max_size=LONGEST,
).map(lambda parts: list(itertools.chain.from_iterable(parts))[:LONGEST])
