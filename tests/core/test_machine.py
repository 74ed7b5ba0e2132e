"""The rules, row by row, and what must hold in any history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flask_idempotent.core import machine
from flask_idempotent.core.record import Absent, Claim, Holder, Record, State, Verdict

NOW = 1_000_000
TOKEN = Record(State.ISSUED, expires_at=NOW + 500, issued_until=NOW + 500, binding="b", scene="s")
ASKED: dict[str, Any] = {"lease": 100, "ttl": 1000, "binding": "b", "scene": "s", "fingerprint": "f"}
EXTENSION = {"state": State.RUNNING, "hold": 100, "ttl": 1000}
COMPLETION = {"state": State.DONE, "hold": 0, "ttl": 1000}


def claimed(record: Record | None, owner: str = "anna", now: int = NOW, **options: Any) -> Claim:
    answer = machine.claim(record, now, "k", owner=owner, **ASKED | options)
    assert isinstance(answer, Claim), answer
    return answer


def verdict(record: Record | None, owner: str = "ben", now: int = NOW, **options: Any) -> Verdict:
    answer = machine.claim(record, now, "k", owner=owner, **ASKED | options)
    assert isinstance(answer, Holder), answer
    assert answer.record == record
    assert answer.now == now
    return answer.verdict


def settled(record: Record | None, claim: Claim, now: int = NOW, **options: Any) -> tuple[Record | None, bool]:
    return machine.settle(record, now, claim, **COMPLETION | options)


class TestIssue:
    def test_a_token_ends_when_its_life_does(self) -> None:
        record = machine.issue(None, NOW, binding="b", scene="s", ttl=500)
        assert record == TOKEN

    def test_what_is_there_stays(self) -> None:
        running = claimed(TOKEN).record
        assert machine.issue(running, NOW, binding="x", scene="x", ttl=9) == running

    def test_what_has_expired_does_not(self) -> None:
        assert machine.issue(TOKEN, NOW + 500, binding="x", scene="", ttl=9).binding == "x"


class TestClaim:
    def test_a_token_lives_to_its_own_end(self) -> None:
        record = claimed(TOKEN).record
        assert (record.state, record.held_until, record.expires_at) == (State.RUNNING, NOW + 100, NOW + 500)
        assert (record.owner, record.fingerprint, record.fence) == ("anna", "f", NOW)

    def test_a_key_lives_for_its_ttl(self) -> None:
        record = claimed(None).record
        assert (record.expires_at, record.issued_until) == (NOW + 1000, 0)

    def test_both_live_for_two_leases_at_least(self) -> None:
        for before in (None, TOKEN):
            assert claimed(before, lease=5000).record.expires_at == NOW + 10_000

    def test_no_claim_shortens_a_life(self) -> None:
        long = replace(claimed(None).record, expires_at=NOW + 9000)
        assert claimed(long, "ben", NOW + 100).record.expires_at == NOW + 9000

    def test_only_what_exists_if_asked_so(self) -> None:
        for record in (None, TOKEN):
            late = machine.claim(record, NOW + 500, "k", owner="anna", must_exist=True, **ASKED)
            assert late == Absent()

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"binding": "x", "fingerprint": "x"}, Verdict.FOREIGN),
            ({"scene": "x", "fingerprint": "x"}, Verdict.FOREIGN),
            ({"fingerprint": "x"}, Verdict.REUSED),
            ({"fingerprint": ""}, Verdict.RUNNING),
            ({}, Verdict.RUNNING),
        ],
    )
    def test_rules_in_their_order(self, change: dict[str, str], expected: Verdict) -> None:
        assert verdict(claimed(TOKEN).record, **change) is expected

    def test_a_record_without_scene_fits_any(self) -> None:
        assert claimed(replace(TOKEN, scene=""), scene="anything").record.scene == ""

    def test_it_may_be_claimed_from_held_until_on(self) -> None:
        running = claimed(TOKEN).record
        assert verdict(running, now=NOW + 99) is Verdict.RUNNING
        second = claimed(running, "ben", NOW + 100)
        assert (second.taken, second.fence) == (True, NOW + 100)

    def test_other_content_takes_nothing_over(self) -> None:
        assert verdict(claimed(TOKEN).record, now=NOW + 100, fingerprint="x") is Verdict.REUSED

    def test_with_restore_off_nobody_takes_over(self) -> None:
        running = claimed(TOKEN, takeover=False).record
        assert verdict(running, now=NOW + 99) is Verdict.RUNNING
        assert verdict(running, now=NOW + 100) is Verdict.FAILED

    def test_the_fence_grows_when_the_clock_does_not(self) -> None:
        first = claimed(TOKEN)
        restored, _ = settled(first.record, first, state=State.ISSUED)
        assert claimed(restored, "ben").fence == first.fence + 1
        assert claimed(restored, "ben", NOW - 50).fence == first.fence + 1

    def test_an_owner_has_its_claim_again_while_it_runs(self) -> None:
        first = claimed(TOKEN)
        assert claimed(first.record, now=NOW + 400) == first
        consumed = claimed(TOKEN, consume=True)
        assert claimed(consumed.record, now=NOW + 400, consume=True) == consumed

    @pytest.mark.parametrize(
        ("state", "expected"),
        [(State.DONE, Verdict.DONE), (State.FAILED, Verdict.FAILED), (State.ISSUED, Verdict.RUNNING)],
    )
    def test_and_never_once_it_is_settled(self, state: State, expected: Verdict) -> None:
        first = claimed(TOKEN)
        after, _ = settled(first.record, first, state=state)
        assert verdict(after, "anna", fingerprint="f") is expected

    def test_consumed_is_done_to_the_end(self) -> None:
        record = claimed(TOKEN, consume=True).record
        assert (record.state, record.consumed, record.held_until) == (State.DONE, True, record.expires_at)
        assert verdict(record, now=NOW + 499) is Verdict.DONE


class TestSettle:
    def test_done_is_held_to_the_end_of_its_life(self) -> None:
        claim = claimed(TOKEN)
        record, accepted = settled(claim.record, claim, NOW + 50, result=b"r")
        assert accepted
        assert record is not None
        assert (record.state, record.result) == (State.DONE, b"r")
        assert record.held_until == record.expires_at == NOW + 1050

    def test_a_token_is_restored_to_its_own_end(self) -> None:
        claim = claimed(TOKEN, lease=5000, takeover=False)
        record, accepted = settled(claim.record, claim, state=State.ISSUED)
        assert accepted
        assert record == replace(TOKEN, owner="anna", fence=NOW)

    @pytest.mark.parametrize("consume", [False, True])
    def test_what_is_restored_forgets_how_it_was_claimed(self, consume: bool) -> None:
        second = claimed(claimed(TOKEN).record, "ben", NOW + 100, takeover=False, consume=consume)
        assert second.taken
        record, accepted = settled(second.record, second, NOW + 200, state=State.ISSUED)
        assert accepted
        assert record == replace(TOKEN, owner="ben", fence=NOW + 100)

    @pytest.mark.parametrize("before", [None, TOKEN])
    def test_nothing_is_restored_that_has_no_life_left(self, before: Record | None) -> None:
        claim = claimed(before, lease=5000)
        assert settled(claim.record, claim, NOW + 500, state=State.ISSUED) == (None, True)

    def test_extending_holds_on_and_never_shortens(self) -> None:
        claim = claimed(TOKEN)
        record, accepted = settled(claim.record, claim, NOW + 450, **EXTENSION)
        assert accepted
        assert record is not None
        assert (record.held_until, record.expires_at) == (NOW + 550, NOW + 650)
        record, _ = settled(record, claim, NOW + 460, **EXTENSION | {"hold": 1})
        assert record is not None
        assert record.expires_at == NOW + 650

    @pytest.mark.parametrize("state", State)
    def test_who_was_taken_over_can_do_nothing(self, state: State) -> None:
        first = claimed(TOKEN)
        second = claimed(first.record, "ben", NOW + 100)
        assert settled(second.record, first, NOW + 100, state=state) == (second.record, False)

    @pytest.mark.parametrize("state", State)
    def test_whom_nobody_challenged_may_come_late(self, state: State) -> None:
        claim = claimed(TOKEN)
        record, accepted = settled(claim.record, claim, NOW + 300, state=state)
        assert accepted
        assert record is not None
        assert record.state is state

    def test_moves(self) -> None:
        """From each state an owner may go to some only; what is not allowed changes nothing."""
        running = claimed(TOKEN)
        consumed = claimed(TOKEN, consume=True)
        allowed = {
            "running": set(State),
            "consumed": {State.ISSUED, State.FAILED, State.DONE},
            "done": {State.DONE},
            "failed": {State.FAILED},
            "issued": {State.ISSUED},
        }
        starts = {name: settled(running.record, running, state=State(name))[0] for name in ("done", "failed", "issued")}
        starts |= {"running": running.record, "consumed": consumed.record}
        for name, start in starts.items():
            claim = consumed if name == "consumed" else running
            for state in State:
                after, accepted = settled(start, claim, state=state)
                assert accepted is (state in allowed[name]), (name, state)
                if not accepted:
                    assert after == start

    def test_a_result_may_follow_done_but_not_replace_one(self) -> None:
        claim = claimed(TOKEN)
        bare, _ = settled(claim.record, claim)
        full, accepted = settled(bare, claim, NOW + 9, result=b"r")
        assert accepted
        assert full is not None
        assert full.result == b"r"
        assert settled(full, claim, NOW + 20, result=b"r") == (full, True)
        assert settled(full, claim, NOW + 20, result=None) == (full, True)
        assert settled(full, claim, NOW + 20, result=b"") == (full, False)

    def test_consumed_keeps_no_result(self) -> None:
        claim = claimed(TOKEN, consume=True)
        assert settled(claim.record, claim, result=b"r") == (claim.record, False)

    @pytest.mark.parametrize("record", [None, TOKEN])
    def test_an_effect_whose_record_is_gone_is_recorded(self, record: Record | None) -> None:
        claim = claimed(TOKEN, takeover=False)
        for state in (State.DONE, State.FAILED):
            after, accepted = settled(record, claim, NOW + 500, state=state, result=b"r")
            end = NOW + 1500
            assert accepted
            result = b"r" if state is State.DONE else None
            assert after == replace(claim.record, state=state, held_until=end, expires_at=end, result=result)

    def test_to_restore_or_extend_what_is_gone_writes_nothing(self) -> None:
        claim = claimed(TOKEN)
        for state in (State.ISSUED, State.RUNNING):
            assert settled(None, claim, state=state) == (None, True)

    @pytest.mark.parametrize("before", [TOKEN, claimed(TOKEN, "ben").record], ids=["issued", "running"])
    def test_a_store_that_went_back_to_before_the_claim_learns_of_its_effect_only(self, before: Record) -> None:
        claim = claimed(before, now=NOW + 100)
        for state in (State.ISSUED, State.RUNNING):
            assert settled(before, claim, NOW + 110, state=state) == (before, False)
        for state in (State.DONE, State.FAILED):
            after, accepted = settled(before, claim, NOW + 110, state=state)
            assert accepted
            assert after == settled(claim.record, claim, NOW + 110, state=state)[0]
            assert settled(after, claim, NOW + 120, state=state) == (after, True)

    @pytest.mark.parametrize("state", [State.DONE, State.FAILED])
    def test_what_went_back_to_another_owner_that_is_done_stays(self, state: State) -> None:
        ben = claimed(TOKEN, "ben")
        lost = claimed(ben.record, now=NOW + 100)
        consumed = claimed(TOKEN, "ben", consume=True).record
        for before in (consumed, *(settled(ben.record, ben, state=end)[0] for end in (State.DONE, State.FAILED))):
            assert settled(before, lost, NOW + 110, state=state) == (before, False)

    @pytest.mark.parametrize("fence", [0, NOW])
    def test_a_claim_that_is_not_newer_changes_nothing(self, fence: int) -> None:
        """A server whose clock is behind gives the same number twice; a claim that was never confirmed has none."""
        claim = Claim("k", replace(claimed(TOKEN).record, fence=fence))
        other = claimed(TOKEN, "ben").record
        for state in State:
            assert settled(other, claim, NOW + 110, state=state) == (other, False)

    def test_only_what_is_done_keeps_a_result(self) -> None:
        for state in (State.ISSUED, State.RUNNING, State.FAILED):
            claim = claimed(TOKEN)
            record, accepted = settled(claim.record, claim, state=state, result=b"r")
            assert accepted
            assert record is not None
            assert record.result is None
            assert settled(record, claim, state=state, result=b"r") == (record, True)
            assert settled(None, claim, state=State.FAILED, result=b"r")[0] == replace(
                claim.record, state=State.FAILED, held_until=NOW + 1000, expires_at=NOW + 1000
            )


owners = st.sampled_from(["anna", "ben", "carl"])
waits = st.sampled_from([0, 0, 1, 50, 100, 250, 500])
commands = st.one_of(
    st.tuples(st.just("claim"), owners, st.sampled_from(["f", "f", "", "g"]), st.booleans(), st.booleans()),
    st.tuples(st.just("settle"), st.integers(0, 3), st.sampled_from(State), st.sampled_from([None, b"r"]), st.none()),
)
histories = st.lists(st.tuples(waits, commands), max_size=25)


class History:
    """One record and its claims; each command is sent twice, as a driver may do, and what must hold is checked."""

    def __init__(self, record: Record | None) -> None:
        self.now = NOW
        self.record = record
        self.claims: list[Claim] = []

    def play(self, wait: int, command: tuple[Any, ...]) -> None:
        self.now += wait
        before = machine.live(self.record, self.now)
        name, *rest = command
        if name == "claim":
            self.claim(before, *rest)
        elif self.claims:
            self.settle(before, self.claims[-1 - rest[0] % len(self.claims)], rest[1], rest[2])
        after = machine.live(self.record, self.now)
        if after is not None:
            assert after.held_until <= after.expires_at
            assert (after.held_until > self.now) >= (after.state in (State.DONE, State.FAILED))
            if before is not None:
                assert after.fence >= before.fence
                assert after.issued_until == before.issued_until

    def claim(self, before: Record | None, owner: str, fingerprint: str, takeover: bool, consume: bool) -> None:
        asked = ASKED | {"owner": owner, "fingerprint": fingerprint, "takeover": takeover, "consume": consume}
        answer = machine.claim(self.record, self.now, "k", **asked)
        if not isinstance(answer, Claim):
            return
        self.record = answer.record
        assert machine.claim(self.record, self.now, "k", **asked) == answer
        if before is not None and answer.record != before:
            assert before.owner != owner
            assert before.state in (State.ISSUED, State.RUNNING)
            assert before.held_until <= self.now
            assert answer.fence > before.fence
            assert answer.record.expires_at >= before.expires_at
        self.claims.append(answer)

    def settle(self, before: Record | None, claim: Claim, state: State, result: bytes | None) -> None:
        sent = COMPLETION | {"state": state, "hold": 100, "result": result if state is State.DONE else None}
        self.record, accepted = machine.settle(self.record, self.now, claim, **sent)
        if not accepted:
            assert self.record == before
            return
        assert before is None or before.owner == claim.owner
        assert machine.settle(self.record, self.now, claim, **sent) == (self.record, True)
        if self.record is not None and self.record.state is State.ISSUED:
            assert self.record.expires_at == self.record.issued_until


@settings(deadline=None, max_examples=300)
@given(first=st.sampled_from([None, TOKEN]), history=histories)
def test_what_holds_in_any_history(first: Record | None, history: list[Any]) -> None:
    played = History(first)
    for wait, command in history:
        played.play(wait, command)


@settings(deadline=None, max_examples=300)
@given(history=histories)
def test_late_copies_of_a_claim_occupy_nothing_once_it_is_settled(history: list[Any]) -> None:
    played = History(TOKEN)
    for wait, command in history:
        played.play(wait, command)
        record = machine.live(played.record, played.now)
        if record is None or record.state is State.RUNNING or record.consumed:
            continue
        copy = machine.claim(record, played.now, "k", owner=record.owner, **ASKED) if record.owner else None
        assert not isinstance(copy, Claim)
