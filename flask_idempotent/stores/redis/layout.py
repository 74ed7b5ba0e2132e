"""The packed form of a record; ``record.lua`` describes it and says the same again."""

from __future__ import annotations

import re
from typing import Final

from ...core.errors import RecordInvalid
from ...core.record import Claim, Record, State

LETTERS: Final = {State.ISSUED: b"i", State.RUNNING: b"r", State.DONE: b"d", State.FAILED: b"f"}
_STATES: Final = {letter: state for state, letter in LETTERS.items()}
_HEADER: Final = re.compile(rb"1([irdf])([0-7])((?:[0-9]{16}){1,5})" + rb",([0-9]{1,9})?" * 5 + rb"\n")
_STAYS, _TAKEN, _CONSUMED = 1, 2, 4


def text(value: str) -> bytes:
    """Return the bytes of any str, lone surrogates too."""
    return value.encode("utf-8", "surrogatepass")


def digits(moment: int) -> bytes:
    """Return a moment or a span (microseconds) in its fixed width."""
    return b"%016d" % moment


def lengths(binding: int, scene: int, fingerprint: int = 0, owner: int = 0) -> bytes:
    """Return the lengths (bytes) as a record has them after that of the result."""
    sizes = [b"%d" % length if length else b"" for length in (binding, scene, fingerprint, owner)]
    return b",%b,%b,%b,%b\n" % tuple(sizes)


def flags(*, takeover: bool, taken: bool = False, consumed: bool = False) -> bytes:
    """Return the digit that holds them."""
    return b"%d" % ((not takeover) * _STAYS + taken * _TAKEN + consumed * _CONSUMED)


def pack(record: Record) -> bytes:
    """Return the packed form."""
    moments = [record.fence] if record.fence or record.state is not State.ISSUED else []
    if record.state is not State.ISSUED:
        moments += [record.held_until, 0]
    if record.state is State.RUNNING:
        moments.append(record.expires_at)
    if record.issued_until:
        moments.append(record.issued_until)
    texts = [text(part) for part in (record.binding, record.scene, record.fingerprint, record.owner)]
    size = b"" if record.result is None else b"%d" % len(record.result)
    head = b"1%b%b%b,%b%b" % (
        LETTERS[record.state],
        flags(takeover=record.takeover, taken=record.taken, consumed=record.consumed),
        b"".join(map(digits, moments)),
        size,
        lengths(*map(len, texts)),
    )
    return b"".join([head, *texts, record.result or b""])


def packed(claim: Claim) -> bytes:
    """Return the packed form of a claim's record."""
    return claim.packed if isinstance(claim, PackedClaim) else pack(claim.record)


class PackedClaim(Claim):
    """A claim whose record is read when somebody asks for it: who claims and settles does not.

    :param key: the store's key.
    :param owner: who claimed it.
    :param packed: the record as the claim left it.
    """

    __slots__ = ("_owner", "packed")
    _owner: str
    packed: bytes

    def __init__(self, key: str, owner: str, packed: bytes) -> None:
        object.__setattr__(self, "key", key)  # claims are frozen
        object.__setattr__(self, "_owner", owner)
        object.__setattr__(self, "packed", packed)

    @property
    def record(self) -> Record:  # a slot there
        """The record as the claim left it."""
        return unpack(self.packed)

    @property
    def owner(self) -> str:
        """The id of this claim attempt."""
        return self._owner

    @property
    def taken(self) -> bool:
        """Whether an earlier owner, who let its lease pass, lost the key to this claim."""
        return bool(int(self.packed[2:3]) & _TAKEN)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Claim) and (self.key, self.record) == (other.key, other.record)

    def __hash__(self) -> int:
        return hash((self.key, self.record))


def unpack(data: bytes) -> Record:
    """Return the record.

    :raises RecordInvalid: it is damaged, or of an unknown layout.
    """
    match = _HEADER.match(data)
    if match is None:
        raise RecordInvalid
    letter, digit, run, r, b, s, f, o = match.groups()
    state, flags = _STATES[letter], int(digit)
    fence, held, expires, issued = _moments(state, run)
    start = match.end()
    binding = start + int(b or 0)  # where each text ends
    scene = binding + int(s or 0)
    fingerprint = scene + int(f or 0)
    owner = fingerprint + int(o or 0)
    if owner + int(r or 0) != len(data):
        raise RecordInvalid
    try:
        record = Record(
            state,
            fence,
            held,
            expires,
            issued,
            str(data[fingerprint:owner], "utf-8", "surrogatepass"),
            str(data[start:binding], "utf-8", "surrogatepass"),
            str(data[binding:scene], "utf-8", "surrogatepass"),
            str(data[scene:fingerprint], "utf-8", "surrogatepass"),
            None if r is None else data[owner:],
            not flags & _STAYS,
            bool(flags & _TAKEN),
            bool(flags & _CONSUMED),
        )
    except UnicodeDecodeError as error:
        raise RecordInvalid from error
    if not _is_sound(record, flags):
        raise RecordInvalid
    return record


def _moments(state: State, run: bytes) -> tuple[int, int, int, int]:
    """Return the fence, held until, expires and issued until."""
    first, size = int(run[:16]), len(run)
    if state is State.ISSUED:
        if size == 16:
            return 0, 0, first, first
        if size == 32:
            return first, 0, int(run[16:]), int(run[16:])
    elif size >= 48:
        held = int(run[16:32]) + int(run[32:48])
        if state is not State.RUNNING and size <= 64:
            return first, held, held, int(run[48:] or 0)
        if state is State.RUNNING and size >= 64:
            return first, held, int(run[48:64]), int(run[64:] or 0)
    raise RecordInvalid


def _is_sound(record: Record, flags: int) -> bool:
    if record.expires_at == 0 or record.held_until > record.expires_at:
        return False
    if record.state is State.ISSUED:
        return not flags and not record.fingerprint and record.result is None
    if record.consumed and (record.state is not State.DONE or record.result is not None):
        return False
    return record.owner != ""
