"""What is sent: requests that are right, nearly right, and nothing of the kind, as hypothesis draws them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

from tests.helpers import FIELD, HEADER

FORMS: dict[str, tuple[str, dict[str, str]]] = {
    "/orders": ("order", {"item": "Espresso", "quantity": "2"}),
    "/payments": ("pay", {"item": "Espresso", "quantity": "1"}),
    "/coffee": ("coffee", {"item": "Flat white"}),
    "/cake": ("cake", {"item": "Green tea"}),
    "/script": ("script", {"item": "Espresso", "quantity": "3"}),
    "/gift": ("gift", {"name": "Ann", "euros": "25"}),
    "/gift-200": ("gift", {"name": "Ben", "euros": "30"}),
    "/tip": ("tip", {"euros": "2"}),
}
"""The paths that take a token, the form that the ledger knows each by, and fields that are right."""
ORDERS, CALLBACK = "/api/orders", "/api/payments/callback"
TOKEN = b"0TOKEN0"
"""Stands for the token, which is only known when the plan is played."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, to be sent ``times`` times.

    :param operation: names the key that it carries, if it is one of ours; "" leaves that to what is sent.
    :param token: ``fresh``, ``used`` (one that was sent before), or ``none`` of those that were issued.
    :param framing: ``length``, ``chunked``, or a length that is ``short`` or ``long`` of the body.
    :param together: whether they are sent at the same moment.
    """

    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    framing: str
    token: str
    operation: str
    times: int
    together: bool

    @property
    def path(self) -> str:
        return self.target.split(b"?")[0].decode("latin-1")


_small = st.integers(0, 400)
_line = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40).map(
    lambda text: text.encode("latin-1")
)
_value = st.one_of(
    st.text(max_size=20), st.integers().map(str), st.sampled_from(["", "0", "-1", "9" * 400, "9" * 5000, "\x00", "ü"])
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_noise = st.binary(max_size=60) | st.integers(0, 9000).map(lambda size: b"x" * size)
_types = st.sampled_from(
    [
        b"application/x-www-form-urlencoded",
        b"application/json",
        b"application/JSON; charset=utf-16",
        b"application/problem+json",
        b"multipart/form-data; boundary=b",
        b"multipart/form-data",
        b"text/plain; charset=nothing",
        b"",
    ]
)
_extra = st.one_of(
    st.tuples(st.sampled_from([b"Accept"]), st.sampled_from([b"text/html", b"*/*", b"application/json;q=x", b",;,"])),
    st.tuples(st.sampled_from([b"Cookie", b"X-Forwarded-For", b"Origin", b"Accept-Language", b"X-Other"]), _line),
    st.tuples(
        st.just(b"Cookie"), st.sampled_from([b"session=eyJhIjoxfQ.x.y", b"session=", b"session=.e.e; session=a"])
    ),
    st.tuples(
        st.just(b"Authorization"),
        _line
        | st.sampled_from([b"Basic YTpi", b"Bearer e30.eyJzdWIiOiJhIn0.x", b"Bearer a.b.c", b"Basic =", b"Bearer "]),
    ),
    st.just((b"HX-Request", b"true")),
)


def _multipart(fields: list[tuple[str, str]]) -> bytes:
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        % (name.encode("utf-8", "replace"), value.encode("utf-8", "replace"))
        for name, value in fields
    ]
    file = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a.txt"\r\n\r\nhello\r\n'
    return b"".join(parts) + file + b"--b--\r\n"


@st.composite
def _mutated(draw: st.DrawFn, body: bytes) -> bytes:
    """A body with a piece of it cut out and something else put in."""
    begin = draw(st.integers(0, len(body)))
    return body[:begin] + draw(st.binary(max_size=6)) + body[draw(st.integers(begin, len(body))) :]


@st.composite
def _form(draw: st.DrawFn, path: str) -> Plan:
    fields = list(FORMS[path][1].items())
    token = draw(st.sampled_from(["fresh"] * 6 + ["used", "none"]))
    wrong = [b"{" + TOKEN + b"}", TOKEN + TOKEN, b"0" * 32, b"", b"\xff"]
    spelled = draw(st.sampled_from([TOKEN] * 15 + wrong))
    where = draw(st.sampled_from(["field"] * 5 + ["header"] * 3 + ["both", "twice", "query"]))
    if draw(st.integers(0, 3)) == 0:
        fields.append((draw(st.sampled_from([name for name, _ in fields] + ["other", ""])), draw(_value)))
    if where in ("field", "both", "twice"):
        fields += (2 if where == "twice" else 1) * [(FIELD, spelled.decode("latin-1"))]
    headers = [(HEADER.encode(), spelled)] * (where in ("header", "both"))
    target = path.encode() + (b"?" + FIELD.encode() + b"=" + quote(spelled).encode() if where == "query" else b"")
    if draw(st.integers(0, 3)) == 0:
        kind, body = b"multipart/form-data; boundary=b", _multipart(fields)
    else:
        kind, body = b"application/x-www-form-urlencoded", urlencode(fields, errors="replace").encode()
    return draw(_dressed(target, headers, kind, body, token, ""))


@st.composite
def _order(draw: st.DrawFn) -> Plan:
    number = draw(_small)
    key = f"order-{number}"
    spelled = draw(st.sampled_from([key, key, f'"{key}"', f'  "{key}";a=1;b=?0', f'"{key}" ']))
    asked: Any = {"item": "Tea", "quantity": draw(st.sampled_from([1] * 9 + [2, 100, 1.5, "1", None]))}
    if draw(st.integers(0, 9)) == 0:
        asked = draw(_json)
    headers = [(b"Idempotency-Key", spelled.encode())]
    operation = f"order {key}"
    if draw(st.integers(0, 6)) == 0:
        headers, operation = draw(st.lists(st.tuples(st.just(b"Idempotency-Key"), _line), max_size=2)), ""
    body = json.dumps(asked).encode()
    return draw(_dressed(ORDERS.encode(), headers, b"application/json", body, "none", operation))


@st.composite
def _callback(draw: st.DrawFn) -> Plan:
    number: Any = f"T-{draw(_small)}"
    told: Any = {"transaction": number, "amount": "5 EUR", "attempt": draw(st.integers(0, 3))}
    operation = f"callback {number}"
    if draw(st.integers(0, 4)) == 0:
        told, operation = {**told, "transaction": draw(_json)}, ""
    elif draw(st.integers(0, 6)) == 0:
        told, operation = draw(_json), ""
    return draw(_dressed(CALLBACK.encode(), [], b"application/json", json.dumps(told).encode(), "none", operation))


@st.composite
def _dressed(
    draw: st.DrawFn,
    target: bytes,
    headers: list[tuple[bytes, bytes]],
    kind: bytes,
    body: bytes,
    token: str,
    operation: str,
) -> Plan:
    """A request in which now and then one more thing is out of order."""
    method, framing = "POST", draw(st.sampled_from(["length"] * 5 + ["chunked"] * 2))
    match draw(st.integers(0, 21)):
        case 0:
            kind = draw(_types)
        case 1:
            body, operation = draw(_noise), ""
        case 2:
            body, operation = draw(_mutated(body)), ""
        case 3:
            framing, operation = draw(st.sampled_from(["short", "long"])), ""
        case 4:
            method = draw(st.sampled_from(["PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "TRACE"]))
        case 5:
            target += draw(st.sampled_from([b"?a=1&a=2", b"?%ff=%", b"/", b"?" + b"q" * 900, b"?" + FIELD.encode()]))
        case 6:
            headers = headers + draw(st.lists(_extra, min_size=1, max_size=3))
        case _:
            headers = headers + draw(st.lists(_extra, max_size=1))
    times = draw(st.sampled_from([1, 2, 2, 3]))
    every = (*headers, *([(b"Content-Type", kind)] if kind else []))
    return Plan(method, target, every, body, framing, token, operation, times, draw(st.booleans()))


@st.composite
def _endpoint(draw: st.DrawFn) -> Plan:
    """The token endpoint, and pages: nothing there is guarded, and nothing may break."""
    scene = draw(st.sampled_from([b"", b"a", b"shop.create_order", b"x" * 65, b"%00", b"%ff&scene=b"]))
    target = draw(
        st.sampled_from([b"/idempotency/token?scene=" + scene, b"/orders", b"/gift?" + scene, b"/orders/" + scene])
    )
    return draw(_dressed(target, [], b"", b"", "none", ""))


def plans() -> st.SearchStrategy[Plan]:
    """Every guarded route, and now and then another one."""
    forms = [_form(path) for path in FORMS]
    return st.one_of(*forms, _order(), _order(), _order(), _callback(), _callback(), _callback(), _endpoint())
