"""The store in Redis or Valkey: one script, one key and one round trip for each step."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any, Final, NoReturn, Protocol, cast

from redis import exceptions as driver

from ...core.errors import RecordInvalid, StoreUnavailable
from ...core.record import Absent, Claim, Holder, Record, State, Verdict, microseconds
from . import layout
from .layout import LETTERS, text

_LONGEST: Final = 100 * 365 * 86_400  # seconds; a longer life would leave the numbers that Lua counts exactly
_DRIVERS: Final = (driver.RedisError, driver.RedisClusterException)
_OUTAGES: Final = (
    driver.ConnectionError,
    driver.TimeoutError,
    driver.ReadOnlyError,
    driver.OutOfMemoryError,
    driver.NoPermissionError,
    driver.InvalidResponse,
    driver.ClusterError,
    driver.AskError,
    driver.TryAgainError,
    driver.RedisClusterException,
)
# What the driver has no class for, and what a server wraps into "ERR Error running script ... -OOM ...".
_OUTAGE: Final = re.compile(
    r"\b(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOAUTH|NOPERM|NOREPLICAS|OOM|READONLY|TRYAGAIN|UNKILLABLE|WRONGPASS)\b"
)


class Client(Protocol):
    """What the store needs of a client."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and return its reply."""

    def scan_iter(self, match: str, count: int, **options: Any) -> Iterator[Any]:
        """Yield keys."""


_FIRST_LOOKS: Final = {"claim": ("unclaimed",), "settle": ("unchanged",)}
"""What stands before what the scripts share: the usual case needs nothing of that."""


@dataclass(frozen=True, slots=True)
class _Script:
    body: bytes
    digest: bytes

    @classmethod
    def load(cls, name: str) -> _Script:
        folder = files(__package__)
        parts = [*_FIRST_LOOKS.get(name, ()), "record", name]
        return cls.of(b"".join(folder.joinpath(f"{part}.lua").read_bytes() for part in parts))

    @classmethod
    def of(cls, body: bytes) -> _Script:
        return cls(body, hashlib.sha1(body, usedforsecurity=False).hexdigest().encode())


_VERDICTS: Final = {verdict.value.encode(): verdict for verdict in Verdict}
_CLAIMED: Final = b"1"  # a packed record; words begin with a letter
_WRITTEN_ANEW: Final = (State.DONE, State.FAILED)
"""An effect that happened, or half happened: it is recorded even if the store has lost the claim."""
_ISSUE, _CLAIM, _SETTLE, _GET = (_Script.load(name) for name in ("issue", "claim", "settle", "get"))


class RedisStore:
    """A store for any number of processes and machines.

    The server's clock decides, and it drops by itself what has expired.

    :param client: any synchronous client of redis-py: ``Redis``, ``RedisCluster``, a Sentinel's master, fakeredis; its
        time-outs and retries are its own.
    :param prefix: what the keys of :meth:`scan` begin with, a colon excepted.
    """

    def __init__(self, client: object, prefix: str = "idempotency") -> None:
        self._client = cast("Client", client)
        short: Callable[..., Any] | None = getattr(client, "ask", None)  # our own client has it
        self._ask = short or partial(self._client.execute_command, NEVER_DECODE=True)
        self._prefix = prefix

    def issue(self, key: str, *, binding: str, scene: str, ttl: float) -> None:
        """See :meth:`flask_idempotent.core.store.Store.issue`."""
        bound, where = text(binding), text(scene)
        self._run(_ISSUE, key, _span(ttl), b",%b%b%b" % (layout.lengths(len(bound), len(where)), bound, where))

    def claim(
        self,
        key: str,
        *,
        owner: str,
        lease: float,
        ttl: float,
        must_exist: bool = False,
        binding: str = "",
        scene: str = "",
        fingerprint: str = "",
        takeover: bool = True,
        consume: bool = False,
    ) -> Claim | Holder | Absent:
        """See :meth:`flask_idempotent.core.store.Store.claim`."""
        parts = text(owner), text(binding), text(scene), text(fingerprint)
        terms = _claim_terms(lease, ttl, must_exist, takeover, consume)
        reply: bytes = self._run(_CLAIM, key, *parts, terms, *_lengths(*map(len, parts)))
        if reply.startswith(_CLAIMED):
            return layout.PackedClaim(key, owner, reply)
        word, now, packed = reply.split(b" ", 2)
        if word == b"absent":
            return Absent()
        return _holder(word, int(now), packed)

    def settle(self, claim: Claim, *, state: State, hold: float, ttl: float, result: bytes | None = None) -> bool:
        """See :meth:`flask_idempotent.core.store.Store.settle`."""
        result = result if state is State.DONE else None
        reply = self._run(
            _SETTLE,
            claim.key,
            layout.packed(claim) if state in _WRITTEN_ANEW else b"",
            text(claim.owner),
            _settle_terms(state, hold, ttl),
            b"" if result is None else b"%d" % len(result),
            result or b"",
        )
        return bool(reply)

    def get(self, key: str) -> Record | None:
        """See :meth:`flask_idempotent.core.store.Store.get`."""
        word, packed = self._run(_GET, key)
        return None if word == b"absent" else layout.unpack(packed)

    def scan(self) -> Iterator[str]:
        """Yield the keys that begin with the prefix; one may come twice while the server rebuilds its table."""
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self._prefix) + ":*"
        try:
            for key in self._client.scan_iter(match=pattern, count=1000, NEVER_DECODE=True):
                yield key.decode("utf-8", "surrogatepass")
        except _DRIVERS as error:
            _raise_ours(error)

    def delete(self, key: str) -> bool:
        """Remove a record, a damaged one too; return whether there was one."""
        return bool(self._send("DEL", text(key)))

    def purge(self) -> int:
        """Do nothing and return 0: the server removes what has expired."""
        return 0

    def _run(self, script: _Script, key: str, *arguments: bytes) -> Any:
        name = text(key)
        try:
            return self._ask("EVALSHA", script.digest, 1, name, *arguments)
        except driver.NoScriptError:
            # Restarted, failed over, flushed, or pushed out by other people's scripts. EVAL loads it again.
            return self._send("EVAL", script.body, 1, name, *arguments)
        except _DRIVERS as error:
            _raise_ours(error)

    def _send(self, *command: bytes | int | str) -> Any:
        """Send one command. Its reply is bytes, whatever the client was told about decoding."""
        try:
            return self._ask(*command)
        except _DRIVERS as error:
            _raise_ours(error)


def _holder(word: bytes, now: int, packed: bytes) -> Holder:
    verdict = _VERDICTS[word]
    try:
        record = None if verdict is Verdict.DAMAGED else layout.unpack(packed)
    except RecordInvalid:
        return Holder(None, Verdict.DAMAGED, now)
    return Holder(record, verdict, now)


@lru_cache(maxsize=256)  # an app has a handful of them
def _claim_terms(lease: float, ttl: float, must_exist: bool, takeover: bool, consume: bool) -> bytes:
    life = max(ttl, 2 * lease)
    return b"%b%b%d%b%b%b" % (
        b"d" if consume else b"r",
        layout.flags(takeover=takeover, consumed=consume),
        must_exist,
        _span(lease),
        _span(life),
        _milliseconds(life),
    )


@lru_cache(maxsize=256)
def _settle_terms(state: State, hold: float, ttl: float) -> bytes:
    return b"%b%b%b%b" % (LETTERS[state], _span(ttl), _span(hold), _milliseconds(ttl))


@lru_cache(maxsize=256)
def _lengths(owner: int, binding: int, scene: int, fingerprint: int) -> tuple[bytes, bytes]:
    """Return the lengths of a claim's texts (bytes) without the scene and with it."""
    return layout.lengths(binding, 0, fingerprint, owner), layout.lengths(binding, scene, fingerprint, owner)


def _span(seconds: float) -> bytes:
    """Return microseconds as the layout writes them."""
    return layout.digits(microseconds(min(seconds, _LONGEST)))


def _milliseconds(seconds: float) -> bytes:
    """Return for how long the server keeps what lives for so long: a little longer, as it may count from the whole
    millisecond before."""
    return b"%d" % (microseconds(min(seconds, _LONGEST)) // 1000 + 2)


def _raise_ours(error: Exception) -> NoReturn:
    """Raise what a driver's error means here."""
    if (ours := _translated(error)) is None:
        raise error
    raise ours from error


def _translated(error: Exception) -> Exception | None:
    """Return what to raise instead of a driver's error; None for a mistake of this module, which must not be hidden."""
    if isinstance(error, _OUTAGES) or _OUTAGE.search(str(error)):
        return StoreUnavailable()
    if "unknown command" in str(error).lower():
        return RuntimeError(
            "the store's scripts need EVALSHA and EVAL, and this server has neither; for fakeredis: "
            'pip install "fakeredis[lua]"'
        )
    return None
