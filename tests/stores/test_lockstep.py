"""Random scripts on the machine, the memory store and Redis at once: every answer and every record must be the same.

The scripts of the Redis store run as shipped, but for the clock: it is read from a key, so that all three have one time
to the microsecond. It shows the year 2100, so that the server itself drops nothing meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flask_idempotent.core import machine
from flask_idempotent.core.record import MICROSECONDS, Absent, Claim, Holder, Record, State, microseconds
from flask_idempotent.stores import from_object
from flask_idempotent.stores.memory import MemoryStore
from flask_idempotent.stores.redis import store as module
from tests.servers import RedisServer

START = 4_102_444_800_000_000
CLOCK_KEY = "now"
_numbers = itertools.count()


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """The usual value four times out of five: a claim that differs in everything is refused at the first rule."""
    return st.sampled_from([usual] * 4 * len(others) + list(others))


owners = st.sampled_from(["anna", "ben", "carl"])
keys = mostly("x", "y")
bindings = mostly("b", "", "c")
scenes = mostly("s", "", "t")
fingerprints = mostly("f", "", "g")
leases = mostly(10.0, 30.5)
lives = mostly(25.0, 1.0, 60.0, 60.000_001)

steps = st.one_of(
    st.tuples(st.just("issue"), keys, st.fixed_dictionaries({"binding": bindings, "scene": scenes, "ttl": lives})),
    st.tuples(
        st.just("claim"),
        keys,
        st.fixed_dictionaries(
            {
                "owner": owners,
                "lease": leases,
                "ttl": lives,
                "must_exist": mostly(False, True),
                "binding": bindings,
                "scene": scenes,
                "fingerprint": fingerprints,
                "takeover": mostly(True, False),
                "consume": mostly(False, True),
            }
        ),
    ),
    st.tuples(
        st.just("settle"),
        mostly(0, 1, 2, 3),  # how many claims ago
        st.fixed_dictionaries(
            {
                "state": st.sampled_from(list(State)),
                "hold": leases,
                "ttl": lives,
                "result": st.sampled_from([None, None, b"", b"answer", b"other"]),
            }
        ),
    ),
    st.tuples(
        st.just("wait"), st.sampled_from([1, 999, 9_999_999, 10_000_000, 14_999_999, 15_000_000, 25_000_000]), st.none()
    ),
)

scripts = st.lists(steps, min_size=15, max_size=40)  # without the lower bound most are too short to meet themselves


class Model:
    """The machine with a dict around it."""

    def __init__(self) -> None:
        self.now = START
        self.records: dict[str, Record] = {}

    def issue(self, key: str, *, binding: str, scene: str, ttl: float) -> None:
        record = self.records.get(key)
        self.records[key] = machine.issue(record, self.now, binding=binding, scene=scene, ttl=microseconds(ttl))

    def claim(self, key: str, *, lease: float, ttl: float, **options: Any) -> Claim | Holder | Absent:
        durations = {"lease": microseconds(lease), "ttl": microseconds(ttl)}
        answer = machine.claim(self.records.get(key), self.now, key, **durations, **options)
        if isinstance(answer, Claim):
            self.records[key] = answer.record
        return answer

    def settle(self, claim: Claim, *, hold: float, ttl: float, **options: Any) -> bool:
        durations = {"hold": microseconds(hold), "ttl": microseconds(ttl)}
        record, accepted = machine.settle(self.records.get(claim.key), self.now, claim, **durations, **options)
        self.records.pop(claim.key, None)
        if record is not None:
            self.records[claim.key] = record
        return accepted

    def get(self, key: str) -> Record | None:
        return machine.live(self.records.get(key), self.now)


class Lockstep:
    """One script of steps, played on all three."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.model = Model()
        self.stores: list[Any] = [
            self.model,
            MemoryStore(clock=lambda: self.model.now / MICROSECONDS),
            from_object(client),
        ]
        self.round = next(_numbers)
        self.claims: list[Claim] = []
        self.wait(0)

    def wait(self, micros: int) -> None:
        self.model.now += micros
        self.client.set(CLOCK_KEY, self.model.now)

    def play(self, step: tuple[str, Any, Any]) -> None:
        name, which, options = step
        if name == "wait":
            self.wait(which)
            return
        if name == "settle":
            if not self.claims:
                return
            target: Any = self.claims[-1 - which % len(self.claims)]
            key = target.key
        else:
            target = key = f"{which}{self.round}"
        answers = [getattr(store, name)(target, **options) for store in self.stores]
        assert answers[0] == answers[1] == answers[2]
        records = [store.get(key) for store in self.stores]
        assert records[0] == records[1] == records[2]
        if isinstance(answers[0], Claim):
            self.claims.append(answers[0])


@pytest.fixture(scope="module", autouse=True)
def _scripts_read_the_time_from_a_key() -> Iterator[None]:
    prelude = files(module.__package__ or "").joinpath("record.lua").read_bytes()
    clock = b"local function clock() return tonumber(redis.call('GET', '%b')) end\n" % CLOCK_KEY.encode()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_ISSUE", "_CLAIM", "_SETTLE", "_GET"):
            body = getattr(module, name).body.replace(prelude, prelude + clock)
            assert clock in body
            patch.setattr(module, name, module._Script.of(body))
        yield


@pytest.fixture(scope="module")
def fast_client(svc_valkey91: RedisServer) -> Iterator[Any]:
    client = svc_valkey91.client()
    yield client
    client.close()


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_valkey(script: list[Any], fast_client: Any) -> None:
    lockstep = Lockstep(fast_client)
    for step in script:
        lockstep.play(step)


def _issue(ttl: float = 25.0) -> tuple[str, Any, Any]:
    return ("issue", "x", {"binding": "b", "scene": "s", "ttl": ttl})


def _claim(owner: str, **options: Any) -> tuple[str, Any, Any]:
    usual = {"lease": 10.0, "ttl": 25.0, "binding": "b", "scene": "s", "fingerprint": "f"}
    return ("claim", "x", usual | {"owner": owner} | options)


def _settle(state: State, *, ago: int = 0, result: bytes | None = None) -> tuple[str, Any, Any]:
    return ("settle", ago, {"state": state, "hold": 10.0, "ttl": 25.0, "result": result})


def _wait(micros: int) -> tuple[str, Any, Any]:
    return ("wait", micros, None)


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize(
    ("before", "moment", "after"),
    [
        pytest.param([_claim("anna")], 10_000_000, [_claim("ben")], id="the lease ends"),
        pytest.param([_claim("anna", takeover=False)], 10_000_000, [_claim("ben")], id="with restore off"),
        pytest.param([_claim("anna")], 25_000_000, [_claim("ben")], id="a claim's life ends"),
        pytest.param([_claim("anna", consume=True)], 25_000_000, [_claim("ben")], id="a consumed one's"),
        pytest.param([_issue()], 25_000_000, [_claim("ben", must_exist=True)], id="a token's"),
        pytest.param([_issue()], 25_000_000, [_issue(), _claim("ben")], id="a token's, issued again"),
        pytest.param(
            [_issue(), _claim("anna", lease=20.0)], 25_000_000, [_settle(State.ISSUED), _claim("ben")], id="restored"
        ),
        pytest.param([_claim("anna")], 25_000_000, [_settle(State.DONE), _claim("ben")], id="settled"),
        pytest.param([_claim("anna"), _settle(State.DONE)], 25_000_000, [_claim("ben")], id="done"),
        pytest.param([_claim("anna"), _settle(State.FAILED)], 25_000_000, [_claim("ben")], id="failed"),
        pytest.param([_claim("anna"), _settle(State.RUNNING)], 10_000_000, [_claim("ben")], id="extended"),
    ],
)
def test_to_the_microsecond(before: list[Any], moment: int, after: list[Any], off: int, fast_client: Any) -> None:
    lockstep = Lockstep(fast_client)
    for step in [*before, _wait(moment + off), *after]:
        lockstep.play(step)


@pytest.fixture(scope="module", params=["valkey81", "redis62", "redis82", "fakeredis"])
def other_client(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "fakeredis":
        yield fakeredis.FakeRedis()
        return
    client = request.getfixturevalue(f"svc_{request.param}").client()
    yield client
    client.close()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_the_others(script: list[Any], other_client: Any) -> None:
    lockstep = Lockstep(other_client)
    for step in script:
        lockstep.play(step)
