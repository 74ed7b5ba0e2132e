"""Every state that a few workers, two keys and a bad network can reach, searched for a promise that does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flask_idempotent.core import machine
from flask_idempotent.core.record import Absent, Claim, Holder, Record, State
from tests.campaigns import explore as campaign

from . import lacking, promises
from .asked import ABOVE, BASE, normal
from .explore import Bounds, Broken, Search
from .one_key import Rules

pytestmark = pytest.mark.timeout(300)  # seconds, on a machine that is busy with other things

WITHOUT_RESULT = ("done", "restore", "fail", "extend")
RUNNING = ("running", "running, takeover off", "consumed")


@pytest.mark.case("P3", "S4", "S5")
def test_three_workers_on_a_token_and_a_key_break_no_promise() -> None:
    found = Search(Rules(settles=("done", "restore")), Bounds(workers=3, sent=1, late=1)).run()
    print(found)
    assert found.whole
    assert found.states > 1_000_000
    for step in ("claim granted, heard", "claim taken over", "claim known again", "late claim refused", "late done"):
        assert found.steps[step], step


@pytest.mark.case("P3", "S4", "S5")
@pytest.mark.parametrize(
    ("rules", "bounds", "free"),
    [
        pytest.param(Rules(), Bounds(2, 1, 1, ("token",)), "issued", id="token"),
        pytest.param(Rules(settles=WITHOUT_RESULT), Bounds(2, 1, 2, ("key",)), "gone", id="key"),
    ],
)
def test_what_late_commands_can_do(rules: Rules, bounds: Bounds, free: str) -> None:
    """Of owners that have settled or were replaced. The store knows the last owner of a record that is there, and no
    other: so a late claim does what a new one would do then, for one lease if it can be taken over, and nobody works.
    The next commands of that owner are an owner's again. A late completion writes anew what has reached its end."""
    late = {f"claim: {old} → {new}" for old in (free, "running") for new in RUNNING}
    late |= {"done: gone → done", "fail: gone → failed"}
    if bounds.keys == ("token",):
        late |= {"result: gone → done", "issue: gone → issued"}
    if bounds.late == 2:
        late |= {f"extend of a late claim: {old} → {old}" for old in RUNNING[:2]}
        late |= {f"done of a late claim: {old} → done" for old in RUNNING[:2]}
        late |= {f"fail of a late claim: {old} → failed" for old in RUNNING}
        late |= {f"restore of a late claim: {old} → {free}" for old in RUNNING}
    found = Search(rules, bounds).run()
    print(found)
    assert found.whole
    assert set(found.facts) == late


def test_a_late_completion_ends_a_token_that_a_late_copy_of_its_issue_revived() -> None:
    rules = Rules(kinds=((True, False),), settles=("done", "fail"))
    found = Search(rules, Bounds(1, 1, 2, ("token",))).run()
    assert found.whole
    assert {fact for fact in found.facts if "issued →" in fact and not fact.startswith("claim")} == {
        "done: issued → done",
        "fail: issued → failed",
    }


@pytest.mark.parametrize("key", ["token", "key"])
def test_a_failover_that_loses_the_last_write_breaks_these_promises_and_no_other(key: str) -> None:
    found = Search(
        Rules(settles=WITHOUT_RESULT, late=False, failover=True), Bounds(workers=2, sent=1, late=0, keys=(key,))
    ).run()
    print(found, *found.broken, sep="\n")
    assert found.whole
    assert set(found.broken) == campaign.BROKEN_BY_A_FAILOVER


# -- the search can fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("promise", sorted(promises.ALL))
def test_without_its_rule_a_promise_breaks(promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking.use(monkeypatch, promise)
    with pytest.raises(Broken) as broken:
        Search(Rules(), Bounds(workers=2, sent=2, late=1, keys=("token",))).run()
    assert promise in broken.value.promises, broken.value


@pytest.mark.parametrize(
    ("is_older", "promise"),
    [
        pytest.param(lambda record, claim: False, promises.RECORDED, id="never"),
        pytest.param(lambda record, claim: True, promises.STAYS_SETTLED, id="whatever is there"),
    ],
)
def test_after_a_failover_what_is_older_than_a_claim_gives_way_to_its_effect_and_nothing_else(
    is_older: Callable[[Record, Claim], bool], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_is_older", is_older)
    rules = Rules(settles=WITHOUT_RESULT, late=False, failover=True)
    assert promise in Search(rules, Bounds(workers=2, sent=1, late=0, keys=("key",))).run().broken


# -- what the search leaves out makes no difference ----------------------------------------------------------------


NOW = 5_000
owners = st.sampled_from(["me", "other", ""])


@st.composite
def records(draw: st.DrawFn) -> Record | None:
    """Records of any age, as the machine leaves them: a settled one is held to its end, an issued one is not held."""
    state = draw(st.sampled_from(State))
    consumed = state is State.DONE and draw(st.booleans())
    expires = NOW + draw(st.integers(-2, 4))
    settled = state in (State.DONE, State.FAILED)
    held = NOW + draw(st.integers(-30, 3 if state is State.RUNNING else 0))
    return Record(
        state,
        fence=NOW + draw(st.integers(-30, 1)),
        held_until=expires if settled else held,
        expires_at=expires,
        issued_until=draw(st.sampled_from([0, NOW - 30, NOW - 1, NOW, NOW + 1, NOW + 3])),
        owner=draw(owners),
        result=draw(st.sampled_from([None, b"answer"])) if settled and not consumed else None,
        takeover=draw(st.booleans()),
        taken=draw(st.booleans()),
        consumed=consumed,
    )


def verdict(answer: Claim | Holder | Absent) -> object:
    return answer.verdict if isinstance(answer, Holder) else type(answer)


def after(record: Record | None, answer: Claim | Holder | Absent) -> Record | None:
    return answer.record if isinstance(answer, Claim) else record


@settings(max_examples=1000, deadline=None)
@given(records(), owners.filter(bool), st.booleans(), st.booleans(), st.booleans())
def test_a_claim_is_answered_alike_at_any_time(
    record: Record, owner: str, must_exist: bool, takeover: bool, consume: bool
) -> None:
    ask = partial(
        machine.claim, key="key", owner=owner, lease=1, ttl=2, must_exist=must_exist, takeover=takeover, consume=consume
    )
    seen, reduced = ask(record, NOW), ask(normal(record, NOW), BASE)
    assert verdict(seen) == verdict(reduced)
    assert normal(after(record, seen), NOW) == normal(after(normal(record, NOW), reduced), BASE)


@settings(max_examples=1000, deadline=None)
@given(records(), records(), st.sampled_from(State), st.sampled_from([None, b"answer"]))
def test_a_settle_is_answered_alike_at_any_time_and_whatever_the_claim_was(
    record: Record, claimed: Record, state: State, result: bytes | None
) -> None:
    fence = ABOVE if claimed.fence > record.fence else 0
    claims = Claim("key", replace(claimed, owner="me")), Claim("key", Record(State.RUNNING, fence=fence, owner="me"))
    new, counts = machine.settle(record, NOW, claims[0], state=state, hold=1, ttl=2, result=result)
    shown = normal(record, NOW)
    reduced, also_counts = machine.settle(shown, BASE, claims[1], state=state, hold=1, ttl=2, result=result)
    assert counts == also_counts
    assert normal(new, NOW) == normal(reduced, BASE)


@settings(max_examples=1000, deadline=None)
@given(records())
def test_time_passes_alike(record: Record) -> None:
    assert normal(record, NOW + 1) == normal(normal(record, NOW), BASE + 1)
