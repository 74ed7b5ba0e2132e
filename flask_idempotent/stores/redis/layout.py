"""The packed form of a record; ``record.lua`` describes it and says the same again."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

from ...core.errors import RecordInvalid
from ...core.record import Record, State

LETTERS: Final = {State.ISSUED: b"i", State.RUNNING: b"r", State.DONE: b"d", State.FAILED: b"f"}
_STATES: Final = {letter: state for state, letter in LETTERS.items()}
_HEADER: Final = re.compile(rb"1([irdf])([0-7])((?:[0-9]{16}){1,4})" + rb",([0-9]{1,9})?" * 5 + rb"\n")
_STAYS, _TAKEN, _CONSUMED = 1, 2, 4


def text(value: str) -> bytes:
    """Return the bytes of any str, lone surrogates too."""
    return value.encode("utf-8", "surrogatepass")


def pack(record: Record) -> bytes:
    """Return the packed form."""
    texts = [text(part) for part in (record.owner, record.binding, record.scene, record.fingerprint)]
    flags = (not record.takeover) * _STAYS + record.taken * _TAKEN + record.consumed * _CONSUMED
    moments = [record.expires_at, record.issued_until] if record.issued_until else [record.expires_at]
    if record.state is State.ISSUED:
        moments = [record.fence, record.issued_until] if record.fence else [record.issued_until]
    elif record.state is State.RUNNING:
        moments = [record.fence, record.held_until, *moments]
    else:
        moments = [record.fence, *moments]
    lengths = [b"%d" % len(part) if part else b"" for part in texts]
    lengths.append(b"" if record.result is None else b"%d" % len(record.result))
    head = b"1%b%d%b,%b\n" % (LETTERS[record.state], flags, b"".join(map(_digits, moments)), b",".join(lengths))
    return b"".join([head, *texts, record.result or b""])


def unpack(data: bytes) -> Record:
    """Return the record.

    :raises RecordInvalid: it is damaged, or of an unknown layout.
    """
    match = _HEADER.match(data)
    if match is None:
        raise RecordInvalid
    letter, digit, run, *numbers = match.groups()
    state, flags = _STATES[letter], int(digit)
    fence, held, expires, issued = _moments(state, run)
    owner, binding, scene, fingerprint, result = _texts(data, match.end(), [int(number or 0) for number in numbers])
    record = Record(
        state=state,
        fence=fence,
        held_until=held,
        expires_at=expires,
        issued_until=issued,
        owner=owner,
        binding=binding,
        scene=scene,
        fingerprint=fingerprint,
        result=None if numbers[4] is None else result,
        takeover=not flags & _STAYS,
        taken=bool(flags & _TAKEN),
        consumed=bool(flags & _CONSUMED),
    )
    if not _is_sound(record, flags):
        raise RecordInvalid
    return record


def _moments(state: State, run: bytes) -> tuple[int, int, int, int]:
    """Return the fence, held until, expires and issued until."""
    moments = [int(run[at : at + 16]) for at in range(0, len(run), 16)]
    match state, moments:
        case State.ISSUED, [end]:
            return 0, 0, end, end
        case State.ISSUED, [fence, end]:
            return fence, 0, end, end
        case State.RUNNING, [fence, held, expires, *issued] if len(issued) <= 1:
            return fence, held, expires, sum(issued)
        case ((State.DONE | State.FAILED), [fence, expires, *issued]) if len(issued) <= 1:
            return fence, expires, expires, sum(issued)
    raise RecordInvalid


def _texts(data: bytes, start: int, lengths: list[int]) -> tuple[str, str, str, str, bytes]:
    """Return the four texts and the result."""
    ends = list(accumulate(lengths, initial=start))
    if ends[-1] != len(data):
        raise RecordInvalid
    try:
        owner, binding, scene, fingerprint = (
            data[ends[n] : ends[n + 1]].decode("utf-8", "surrogatepass") for n in range(4)
        )
    except UnicodeDecodeError as error:
        raise RecordInvalid from error
    return owner, binding, scene, fingerprint, data[ends[4] :]


def _is_sound(record: Record, flags: int) -> bool:
    if record.expires_at == 0 or record.held_until > record.expires_at:
        return False
    if record.state is State.ISSUED:
        return not flags and not record.fingerprint and record.result is None
    if record.consumed and (record.state is not State.DONE or record.result is not None):
        return False
    return record.owner != ""


def _digits(moment: int) -> bytes:
    return b"%016d" % moment
