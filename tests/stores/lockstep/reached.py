"""What a step of a script was, in the words of the table in DESIGN.md: transitions, refusals, re-sends, takeovers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from flask_idempotent.core.record import Absent, Claim, Holder, Record, State, Verdict

_WORDS: Final = {State.ISSUED: "restore", State.RUNNING: "extend", State.DONE: "complete", State.FAILED: "fail"}

KINDS: Final = (
    "issue: a new token",
    "issue: a token after the end of another record",
    "issue: a late copy changes nothing",
    "claim: a new key",
    "claim: a key after its end",
    "claim: an issued token",
    "claim: a token given back",
    "claim: consumed at once",
    "takeover: of a key",
    "takeover: of a token",
    "claim refused: absent",
    "claim refused: foreign by its binding",
    "claim refused: foreign by its scene",
    "claim refused: reused while it runs",
    "claim refused: reused, settled",
    "claim refused: running",
    "claim refused: done",
    "claim refused: consumed",
    "claim refused: failed",
    "claim refused: abandoned with restore off",
    "claim refused: to an owner who gave it back",
    "claim refused: to an owner who completed",
    "claim refused: to an owner who failed",
    "claim again: while it runs",
    "claim again: while it is consumed",
    "complete: with an answer",
    "complete: without",
    "complete: kept, then with an answer",
    "fail: a running claim",
    "fail: a consumed one",
    "extend: a running claim",
    "restore: a token",
    "restore: a token past its end",
    "restore: a key",
    "restore: a consumed token",
    "restore: a consumed key",
    "late owner: complete",
    "late owner: extend",
    "late owner: fail",
    "late owner: restore",
    "gone: complete, written anew",
    "gone: fail, written anew",
    "gone: extend, nothing written",
    "gone: restore, nothing written",
    "went back: complete, written anew",
    "went back: fail, written anew",
    "went back: extend, refused",
    "went back: restore, refused",
    "went back: what is done or failed stays",
    "settle again: complete",
    "settle again: complete what is consumed",
    "settle again: fail",
    "settle again: restore",
    "settle refused: another's, complete",
    "settle refused: another's, extend",
    "settle refused: another's, fail",
    "settle refused: another's, restore",
    "settle refused: done, another answer",
    "settle refused: done, extend",
    "settle refused: done, fail",
    "settle refused: done, restore",
    "settle refused: consumed, an answer",
    "settle refused: consumed, extend",
    "settle refused: failed, complete",
    "settle refused: failed, extend",
    "settle refused: failed, restore",
    "settle refused: given back, complete",
    "settle refused: given back, extend",
    "settle refused: given back, fail",
)
"""All there is. Each must be reached."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A step, and what came of it.

    :param stored: the record before, also one whose life was over.
    :param after: the live record afterwards.
    :param target: the key; for settle the claim.
    """

    name: str
    now: int
    stored: Record | None
    after: Record | None
    answer: Any
    target: Any
    options: dict[str, Any]

    @property
    def before(self) -> Record | None:
        """The live record before."""
        return self.stored if self.stored is not None and self.now < self.stored.expires_at else None


def name_of(seen: Seen) -> str:
    """Return the kind of the step; one that is not in :data:`KINDS` is a surprise."""
    match seen.name, seen.answer:
        case "issue", _:
            return f"issue: {_issued(seen)}"
        case "claim", Absent():
            return "claim refused: absent"
        case "claim", Holder(record=Record() as record, verdict=verdict):
            return f"claim refused: {_refused(seen, record, verdict)}"
        case "claim", Claim():
            return _claimed(seen)
    word = _WORDS[seen.options["state"]]
    before = seen.before
    if before is None:
        return f"gone: {word}, {'written anew' if seen.after else 'nothing written'}"
    if before.owner != seen.target.owner:
        if before.fence < seen.target.fence:
            if not seen.answer and word in ("complete", "fail"):
                return "went back: what is done or failed stays"
            return f"went back: {word}, {'written anew' if seen.answer else 'refused'}"
        return f"settle {'accepted' if seen.answer else 'refused'}: another's, {word}"
    return _accepted(seen, before, word) if seen.answer else f"settle refused: {_not_allowed(seen, before, word)}"


def _issued(seen: Seen) -> str:
    if seen.before is not None:
        return "a late copy changes nothing" if seen.after == seen.before else "a late copy changes something"
    return "a new token" if seen.stored is None else "a token after the end of another record"


def _claimed(seen: Seen) -> str:
    before = seen.before
    if before is not None and before.owner == seen.options["owner"] and seen.after == before:
        return f"claim again: while it {'is consumed' if before.consumed else 'runs'}"
    if before is not None and before.state is State.RUNNING:
        return f"takeover: of a {'token' if before.issued_until else 'key'}"
    if seen.options.get("consume"):
        return "claim: consumed at once"
    if before is None:
        return "claim: a new key" if seen.stored is None else "claim: a key after its end"
    return "claim: a token given back" if before.owner else "claim: an issued token"


def _refused(seen: Seen, record: Record, verdict: Verdict) -> str:
    if verdict is Verdict.FOREIGN:
        return f"foreign by its {'binding' if record.binding != seen.options['binding'] else 'scene'}"
    if verdict is Verdict.REUSED:
        return "reused while it runs" if record.state is State.RUNNING else "reused, settled"
    if record.owner == seen.options["owner"]:
        did = {State.ISSUED: "gave it back", State.DONE: "completed", State.FAILED: "failed"}
        return f"to an owner who {did[record.state]}"
    if verdict is Verdict.FAILED and record.state is State.RUNNING:
        return "abandoned with restore off"
    return "consumed" if record.consumed else verdict.value


def _accepted(seen: Seen, before: Record, word: str) -> str:
    if before.state is State.RUNNING:
        return _ended(seen, before, word)
    if before.consumed and word != "complete":
        return "fail: a consumed one" if word == "fail" else f"restore: {_given_back(seen, before)}"
    if before == seen.after:
        return f"settle again: {word}{' what is consumed' if before.consumed else ''}"
    return f"{word}: kept, then with an answer"


def _ended(seen: Seen, before: Record, word: str) -> str:
    """What an owner did to its running claim."""
    if word == "restore" and 0 < before.issued_until <= seen.now:
        return "restore: a token past its end"
    if before.held_until <= seen.now:
        return f"late owner: {word}"
    if word == "complete":
        return f"complete: {'without' if seen.options['result'] is None else 'with an answer'}"
    return f"restore: {_given_back(seen, before)}" if word == "restore" else f"{word}: a running claim"


def _given_back(seen: Seen, before: Record) -> str:
    if 0 < before.issued_until <= seen.now:
        return "a token past its end"
    return f"a {'consumed ' if before.consumed else ''}{'token' if before.issued_until else 'key'}"


def _not_allowed(seen: Seen, before: Record, word: str) -> str:
    if before.state is State.ISSUED:
        return f"given back, {word}"
    if word == "complete" and before.state is State.DONE:
        return "consumed, an answer" if before.consumed else "done, another answer"
    return f"{'consumed' if before.consumed else before.state.value}, {word}"
