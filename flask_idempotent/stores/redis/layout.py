"""The packed form of a record; ``record.lua`` describes it and says the same again."""

from __future__ import annotations

import re
from typing import Final

from ...core.errors import RecordInvalid
from ...core.record import Record, State

LETTERS: Final = {State.ISSUED: b"i", State.RUNNING: b"r", State.DONE: b"d", State.FAILED: b"f"}
_STATES: Final = {letter: state for state, letter in LETTERS.items()}
_TIME: Final = rb"([0-9]{16})?"
_LENGTH: Final = rb"([0-9]{1,9})?"
_HEADER: Final = re.compile(
    rb"1([irdf])([0-7])" + rb",".join([_TIME] * 4) + rb"," + rb",".join([_LENGTH] * 5) + rb"\n",
)
_STAYS, _TAKEN, _CONSUMED = 1, 2, 4


def text(value: str) -> bytes:
    """Return the bytes of any str, lone surrogates too."""
    return value.encode("utf-8", "surrogatepass")


def pack(record: Record) -> bytes:
    """Return the packed form."""
    texts = [text(part) for part in (record.owner, record.binding, record.scene, record.fingerprint)]
    flags = (not record.takeover) * _STAYS + record.taken * _TAKEN + record.consumed * _CONSUMED
    fields = [
        _digits(record.fence),
        _digits(record.held_until) if record.state is State.RUNNING else b"",
        b"" if record.expires_at == record.issued_until else _digits(record.expires_at),
        _digits(record.issued_until),
        *(b"%d" % len(part) if part else b"" for part in texts),
        b"" if record.result is None else b"%d" % len(record.result),
    ]
    head = b"1%b%d%b\n" % (LETTERS[record.state], flags, b",".join(fields))
    return b"".join([head, *texts, record.result or b""])


def unpack(data: bytes) -> Record:
    """Return the record.

    :raises RecordInvalid: it is damaged, or of an unknown layout.
    """
    match = _HEADER.match(data)
    if match is None:
        raise RecordInvalid
    letter, digit, *numbers = match.groups()
    fence, held, expires, issued, *lengths = [int(number or 0) for number in numbers]
    state, flags = _STATES[letter], int(digit)
    if numbers[2] is None:
        expires = issued
    if state is not State.RUNNING:
        held = 0 if state is State.ISSUED else expires
    if match.end() + sum(lengths) != len(data):
        raise RecordInvalid
    ends = [match.end()]
    for length in lengths:
        ends.append(ends[-1] + length)
    try:
        texts = [data[ends[i] : ends[i + 1]].decode("utf-8", "surrogatepass") for i in range(4)]
    except UnicodeDecodeError as error:
        raise RecordInvalid from error
    owner, binding, scene, fingerprint = texts
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
        result=None if numbers[8] is None else data[ends[4] :],
        takeover=not flags & _STAYS,
        taken=bool(flags & _TAKEN),
        consumed=bool(flags & _CONSUMED),
    )
    if (numbers[1] is None) is (state is State.RUNNING) or not _is_sound(record, flags):
        raise RecordInvalid
    return record


def _is_sound(record: Record, flags: int) -> bool:
    if record.expires_at == 0 or record.held_until > record.expires_at:
        return False
    if record.state is State.ISSUED:
        bare = not flags and not record.fingerprint and record.result is None
        return bare and record.expires_at == record.issued_until
    if record.consumed and (record.state is not State.DONE or record.result is not None):
        return False
    return record.owner != ""


def _digits(value: int) -> bytes:
    return b"%016d" % value if value else b""
