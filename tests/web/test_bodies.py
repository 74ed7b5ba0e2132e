"""What a guarded view finds in its request, and what a hostile body or token does."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient
from werkzeug.datastructures import FileStorage
from werkzeug.test import encode_multipart

from flask_idempotent import idempotent
from tests.helpers import FIELD, HEADER, Ledger, assert_refused, assert_repeated, make_app, token_of
from tests.servers import RedisServer

LARGE_TEXT = "x" * 600_000  # above Flask's MAX_FORM_MEMORY_SIZE of 500 000, below MAX_BODY
BEYOND_MAX_BODY = "x" * 1_500_000


def multipart(fields: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Encoded in memory: the client would leave a temporary file open."""
    boundary, body = encode_multipart(fields, boundary="fixed-boundary")
    return {"data": body, "content_type": f"multipart/form-data; boundary={boundary}", **options}


# -- the view finds what was sent ----------------------------------------------------------------------------------


@pytest.fixture
def reading(any_store: Any) -> tuple[Flask, Ledger]:
    app, ledger = make_app(any_store), Ledger()

    @app.post("/raw")
    @idempotent
    def raw() -> str:
        ledger.add()
        return hashlib.sha256(request.stream.read()).hexdigest()

    @app.post("/data")
    @idempotent
    def data() -> str:
        ledger.add()
        return hashlib.sha256(request.get_data()).hexdigest()

    @app.post("/fields")
    @idempotent
    def fields() -> dict[str, Any]:
        ledger.add()
        files = {name: hashlib.sha256(file.read()).hexdigest() for name, file in request.files.items()}
        return {"form": dict(request.form.lists()), "files": files}

    @app.post("/json")
    @idempotent
    def read_json() -> Any:
        ledger.add()
        return {"got": request.get_json()}

    return app, ledger


@pytest.mark.case("BODY-01", "S3")
@pytest.mark.parametrize("path", ["/raw", "/data"])
@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b", "application/octet-stream", "text/plain", ""])
@pytest.mark.parametrize("size", [1, 10, 3_000_000])
def test_a_view_with_its_token_in_the_header_reads_every_byte(
    reading: tuple[Flask, Ledger], path: str, kind: str, size: int
) -> None:
    app, ledger = reading
    client, body = app.test_client(), b"\x00\xff--b\r\n" * (size // 7) + b"q" * (size % 7)
    sent = {"headers": {HEADER: token_of(client)}, "data": body, "content_type": kind}

    first = client.post(path, **sent)

    assert (first.status_code, first.text) == (200, hashlib.sha256(body).hexdigest())
    assert_repeated(client.post(path, **sent), first)
    assert len(ledger) == 1


@pytest.mark.case("BODY-01")
@pytest.mark.parametrize("path", ["/raw", "/data"])
@pytest.mark.parametrize("kind", ["urlencoded", "multipart"])
def test_a_view_with_its_token_in_the_form_may_still_read_the_raw_bytes(
    reading: tuple[Flask, Ledger], path: str, kind: str
) -> None:
    app, ledger = reading
    client = app.test_client()
    token = token_of(client)
    body, kind = {
        "urlencoded": (f"a=1&{FIELD}={token}&b=%FF".encode(), "application/x-www-form-urlencoded"),
        "multipart": (
            f'--b\r\nContent-Disposition: form-data; name="{FIELD}"\r\n\r\n{token}\r\n--b--\r\n'.encode(),
            "multipart/form-data; boundary=b",
        ),
    }[kind]

    first = client.post(path, data=body, content_type=kind)

    assert first.text == hashlib.sha256(body).hexdigest()
    assert_repeated(client.post(path, data=body, content_type=kind), first)
    assert len(ledger) == 1


@pytest.mark.case("BODY-07", "S3")
@pytest.mark.parametrize("order", ["token first", "token last"])
@pytest.mark.parametrize("size", [0, 100, 2_000_000])
def test_a_form_of_one_file_is_accepted_wherever_its_token_stands(
    reading: tuple[Flask, Ledger], order: str, size: int
) -> None:
    app, ledger = reading
    client, content = app.test_client(), b"\r\n--" * (size // 4)

    def sent(token: str) -> dict[str, Any]:
        file = {"upload": FileStorage(io.BytesIO(content), "photo.jpg")}
        return multipart({FIELD: token, **file} if order == "token first" else {**file, FIELD: token})

    token = token_of(client)
    first = client.post("/fields", **sent(token))

    assert first.get_json()["files"] == {"upload": hashlib.sha256(content).hexdigest()}
    assert_repeated(client.post("/fields", **sent(token)), first)
    assert len(ledger) == 1


@pytest.mark.case("BODY-07")
def test_another_file_under_the_same_token_is_other_content(reading: tuple[Flask, Ledger]) -> None:
    app, ledger = reading
    client = app.test_client()
    token = token_of(client)

    def send(content: bytes) -> Any:
        return client.post("/fields", **multipart({"upload": FileStorage(io.BytesIO(content), "a.txt"), FIELD: token}))

    assert send(b"one").status_code == 200
    assert_refused(send(b"two"), "token_reused", 422)
    assert len(ledger) == 1


# -- limits --------------------------------------------------------------------------------------------------------


def limited_app(ledger: Ledger, **config: Any) -> Flask:
    app = make_app(**config)

    @app.errorhandler(413)
    def too_large(error: Exception) -> tuple[str, int]:
        return "the app's own page for too much", 413

    @app.post("/text")
    @idempotent
    def text() -> str:
        length = len(request.form["text"])
        ledger.add()
        return str(length)

    @app.post("/patient")
    @idempotent
    def patient() -> str:
        request.max_form_memory_size = request.max_content_length = 50_000_000
        length = len(request.form["text"])
        ledger.add()
        return str(length)

    @app.post("/bare")
    def bare() -> str:
        return str(len(request.form["text"]))

    return app


@pytest.mark.case("BODY-04")
@pytest.mark.parametrize("where", ["field", "header"])
@pytest.mark.parametrize("text", [LARGE_TEXT, BEYOND_MAX_BODY], ids=["below MAX_BODY", "beyond MAX_BODY"])
def test_a_text_beyond_the_apps_limit_gets_the_apps_413_and_the_token_stays_good(where: str, text: str) -> None:
    ledger = Ledger()
    client = limited_app(ledger).test_client()
    token = token_of(client)
    headers = {HEADER: token} if where == "header" else {}
    fields = {FIELD: token} if where == "field" else {}

    refused = client.post("/text", **multipart({**fields, "text": text}, headers=headers))

    assert (refused.status_code, refused.text) == (413, "the app's own page for too much")
    assert len(ledger) == 0
    first = client.post("/text", **multipart({**fields, "text": "short"}, headers=headers))
    assert first.text == "5"
    assert_repeated(client.post("/text", **multipart({**fields, "text": "short"}, headers=headers)), first)
    assert len(ledger) == 1


@pytest.mark.case("BODY-04")
@pytest.mark.parametrize("text", [LARGE_TEXT, BEYOND_MAX_BODY], ids=["below MAX_BODY", "beyond MAX_BODY"])
def test_urlencoded_text_is_limited_as_the_framework_does_on_its_own(text: str) -> None:
    ledger = Ledger()
    client = limited_app(ledger).test_client()
    alone = client.post("/bare", data={"text": text})
    token = token_of(client)

    guarded = client.post("/text", data={FIELD: token, "text": text})

    assert (guarded.status_code, guarded.text) == (alone.status_code, alone.text)
    if alone.status_code == 200:
        assert_repeated(client.post("/text", data={FIELD: token, "text": text}), guarded)
        assert len(ledger) == 1


@pytest.mark.case("BODY-04")
@pytest.mark.parametrize("text", [LARGE_TEXT, BEYOND_MAX_BODY], ids=["below MAX_BODY", "beyond MAX_BODY"])
def test_a_view_that_raises_its_own_limits_is_not_stopped_before_it_runs(text: str) -> None:
    ledger = Ledger()
    client = limited_app(ledger, MAX_CONTENT_LENGTH=100_000).test_client()
    sent = multipart({"text": text}, headers={HEADER: token_of(client)})

    first = client.post("/patient", **sent)

    assert (first.status_code, first.text) == (200, str(len(text)))
    assert_repeated(client.post("/patient", **sent), first)
    assert len(ledger) == 1


@pytest.mark.case("BODY-04")
def test_a_view_that_raises_its_own_limits_may_have_its_token_in_the_form_up_to_max_body() -> None:
    ledger = Ledger()
    client = limited_app(ledger, MAX_CONTENT_LENGTH=100_000).test_client()
    token = token_of(client)

    first = client.post("/patient", **multipart({"text": LARGE_TEXT, FIELD: token}))

    assert (first.status_code, first.text) == (200, str(len(LARGE_TEXT)))
    assert_repeated(client.post("/patient", **multipart({"text": LARGE_TEXT, FIELD: token})), first)
    assert len(ledger) == 1


# -- what cannot be parsed -----------------------------------------------------------------------------------------


@pytest.mark.case("BODY-05")
@pytest.mark.parametrize(
    "body",
    [b"{", b"[1,", b"nope", b"\xff\xfe", b"", b'{"a": NaN}', b"[" * 100_000, b"1" * 10_000, b'{"a": 1e999999999}'],
    ids=["brace", "array", "word", "no text", "empty", "NaN", "deep", "digits", "exponent"],
)
def test_broken_json_belongs_to_the_view(policy: str, body: bytes) -> None:
    app, ledger = make_app(ON_DUPLICATE=policy), Ledger()

    @app.post("/tolerant")
    @idempotent
    def tolerant() -> dict[str, Any]:
        ledger.add()
        return {"length": len(request.get_data())}

    client = app.test_client()
    sent = {"headers": {HEADER: token_of(client)}, "content_type": "application/json"}

    first = client.post("/tolerant", data=body, **sent)

    assert (first.status_code, first.get_json()["length"]) == (200, len(body))
    assert_repeated(client.post("/tolerant", data=body, **sent), first, policy)
    assert_refused(client.post("/tolerant", data=body + b" }", **sent), "token_reused", 422)
    assert len(ledger) == 1


@pytest.mark.case("BODY-05")
def test_a_view_that_does_not_tolerate_broken_json_gives_the_token_back(reading: tuple[Flask, Ledger]) -> None:
    client = reading[0].test_client()
    sent = {"headers": {HEADER: token_of(client)}, "content_type": "application/json"}

    assert client.post("/json", data=b"{", **sent).status_code == 400

    first = client.post("/json", data=b'{"a": 1}', **sent)
    assert first.get_json() == {"got": {"a": 1}}
    assert_repeated(client.post("/json", data=b'{"a": 1}', **sent), first)


@pytest.mark.case("BODY-06")
@pytest.mark.parametrize(
    "kind", ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=other"]
)
def test_multipart_that_cannot_be_parsed_is_a_missing_token_that_hints_at_it(
    reading: tuple[Flask, Ledger], kind: str
) -> None:
    app, ledger = reading
    client = app.test_client()
    token = token_of(client)
    body = f'--b\r\nContent-Disposition: form-data; name="{FIELD}"\r\n\r\n{token}\r\n--b--\r\n'.encode()

    refused = client.post("/fields", data=body, content_type=kind)

    assert_refused(refused, "token_missing", 400)
    assert "could not be parsed" in refused.get_json()["detail"]
    assert len(ledger) == 0
    assert client.post("/fields", data={FIELD: token}).status_code == 200


@pytest.mark.case("BODY-06")
def test_a_form_without_a_token_is_not_called_unparsable(reading: tuple[Flask, Ledger]) -> None:
    app, ledger = reading
    for sent in ({"data": {"a": "1"}}, multipart({"a": "1"}), {"data": b"", "content_type": "multipart/form-data"}):
        refused = app.test_client().post("/fields", **sent)
        assert_refused(refused, "token_missing", 400)
        assert "parsed" not in refused.get_json()["detail"] or not sent["data"]
    assert len(ledger) == 0


# -- hostile values ------------------------------------------------------------------------------------------------

GOOD = "0123abcd-4567-89ef-0123-456789abcdef"
MALFORMED = {
    "spaces": b"   ",
    "NUL": b"\x00",
    "NUL inside": GOOD.encode()[:-1] + b"\x00",
    "invalid UTF-8": b"\xff\xfe\xfa",
    "10 kB": b"a" * 10_240,
    "10 kB of hyphens": b"-" * 10_240,
    "one digit more": GOOD.encode() + b"0",
    "one digit less": GOOD.encode()[:-1],
    "braces": b"{" + GOOD.encode() + b"}",
    "urn": b"urn:uuid:" + GOOD.encode(),
    "star": b"*",
    "path": b"../x",
    "newline after": GOOD.encode() + b"\n",
    "newline before": b"\n" + GOOD.encode(),
    "blank after": GOOD.encode() + b" ",
    "letter g": GOOD.replace("f", "g").encode(),
    "wide digits": "０１２３４５６７８９０１２３４５６７８９０１２３４５６７８９０１".encode(),
    "script": b"<script>alert(1)</script>",
    "two in one": GOOD.encode() + b"," + GOOD.encode(),
    "format": b"%s%n{0}",
}


def spy_app(store: Any, **config: Any) -> tuple[Flask, Ledger]:
    app, ledger = make_app(store, **config), Ledger()

    @app.post("/spend")
    @idempotent
    def spend() -> str:
        ledger.add()
        return "spent"

    return app, ledger


@pytest.mark.case("BODY-08")
@pytest.mark.parametrize("kind", ["urlencoded", "multipart"])
@pytest.mark.parametrize("value", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_token_is_refused_before_the_store_is_asked_and_never_logged(
    valkey: RedisServer, caplog: pytest.LogCaptureFixture, kind: str, value: bytes
) -> None:
    caplog.set_level(logging.DEBUG)
    app, ledger = spy_app(valkey.url)
    if kind == "urlencoded":
        body = f"{FIELD}=".encode() + b"".join(b"%%%02X" % byte for byte in value)
        sent: dict[str, Any] = {"data": body, "content_type": "application/x-www-form-urlencoded"}
    else:
        head = f'--b\r\nContent-Disposition: form-data; name="{FIELD}"\r\n\r\n'.encode()
        sent = {"data": head + value + b"\r\n--b--\r\n", "content_type": "multipart/form-data; boundary=b"}

    refused = app.test_client().post("/spend", **sent)

    assert_refused(refused, "token_invalid", 400)
    assert valkey.calls("evalsha") == valkey.calls("eval") == 0
    assert len(ledger) == 0
    shown = value.decode("utf-8", "replace").strip()
    assert not shown or shown not in caplog.text
    assert not shown or shown not in refused.text


@pytest.mark.case("BODY-08")
@pytest.mark.parametrize("name", ["10 kB", "braces", "urn", "star", "path", "one digit more", "format", "two in one"])
def test_a_malformed_token_in_the_header_is_refused_the_same(valkey: RedisServer, name: str) -> None:
    app, ledger = spy_app(valkey.url)
    sent = {"headers": {HEADER: MALFORMED[name].decode()}}

    assert_refused(app.test_client().post("/spend", **sent), "token_invalid", 400)

    assert valkey.calls("evalsha") == valkey.calls("eval") == 0
    assert len(ledger) == 0


@pytest.mark.case("BODY-08")
@pytest.mark.parametrize("sent", [{}, {FIELD: ""}], ids=["absent", "empty"])
def test_an_empty_token_counts_as_a_missing_one(valkey: RedisServer, sent: dict[str, str]) -> None:
    app, ledger = spy_app(valkey.url)

    assert_refused(app.test_client().post("/spend", data=sent), "token_missing", 400)
    assert_refused(app.test_client().post("/spend", data=sent, headers={HEADER: ""}), "token_missing", 400)

    assert valkey.calls("evalsha") == valkey.calls("eval") == 0
    assert len(ledger) == 0


SPELLINGS = {
    "as issued": lambda token: token,
    "upper case": str.upper,
    "no hyphens": lambda token: token.replace("-", ""),
    "upper case without hyphens": lambda token: token.replace("-", "").upper(),
    "mixed case": lambda token: "".join(c.upper() if i % 2 else c for i, c in enumerate(token)),
}


@pytest.mark.case("BODY-08", "S1")
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("where", ["field", "header"])
def test_every_documented_spelling_is_the_same_token(any_store: Any, policy: str, where: str, spelling: Any) -> None:
    app, ledger = spy_app(any_store, ON_DUPLICATE=policy)
    client = app.test_client()
    token = token_of(client)

    def send(spelled: str) -> Any:
        if where == "header":
            return client.post("/spend", headers={HEADER: spelled})
        return client.post("/spend", data={FIELD: spelled})

    first = send(spelling(token))

    assert (first.status_code, first.text) == (200, "spent")
    for other in SPELLINGS.values():
        assert_repeated(send(other(token)), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("BODY-08")
def test_a_wellformed_token_that_nobody_issued_is_unknown(any_store: Any) -> None:
    app, ledger = spy_app(any_store)

    assert_refused(app.test_client().post("/spend", data={FIELD: GOOD}), "token_unknown")

    assert len(ledger) == 0


@pytest.mark.case("BODY-08")
def test_a_token_given_twice_in_one_place_is_malformed(any_store: Any) -> None:
    app, ledger = spy_app(any_store)
    client = app.test_client()
    token = token_of(client)

    assert_refused(client.post("/spend", data={FIELD: [token, token]}), "token_invalid", 400)
    assert_refused(client.post("/spend", headers=[(HEADER, token), (HEADER, token)]), "token_invalid", 400)
    assert_refused(client.post("/spend", headers={HEADER: f"{token}, {token}"}), "token_invalid", 400)

    assert len(ledger) == 0
    assert client.post("/spend", data={FIELD: token}).status_code == 200


# -- where a JSON client puts it -----------------------------------------------------------------------------------


@pytest.mark.case("BODY-09", "S3")
def test_by_default_a_token_inside_json_is_not_looked_for(reading: tuple[Flask, Ledger]) -> None:
    app, ledger = reading
    client = app.test_client()
    token = token_of(client)

    assert_refused(client.post("/json", json={FIELD: token}), "token_missing", 400)

    assert len(ledger) == 0
    first = client.post("/json", json={"a": 1}, headers={HEADER: token})
    assert_repeated(client.post("/json", json={"a": 1}, headers={HEADER: token}), first)
    assert len(ledger) == 1


@pytest.mark.case("BODY-09", "S3")
@pytest.mark.parametrize("kind", ["application/json", "application/vnd.api+json"])
def test_by_setting_a_token_inside_json_counts(policy: str, kind: str) -> None:
    app, ledger = make_app(TOKEN_LOCATIONS=("header", "json"), ON_DUPLICATE=policy), Ledger()

    @app.post("/json")
    @idempotent
    def read_json() -> Any:
        ledger.add()
        return {"got": request.get_json()["amount"]}

    client = app.test_client()
    sent = {"data": json.dumps({"amount": 1, FIELD: token_of(client)}), "content_type": kind}

    first = client.post("/json", **sent)

    assert first.get_json() == {"got": 1}
    assert_repeated(client.post("/json", **sent), first, policy)
    assert len(ledger) == 1


@pytest.mark.case("BODY-09")
def test_with_two_different_tokens_the_header_counts_and_one_request_runs_once() -> None:
    app, ledger = make_app(TOKEN_LOCATIONS=("header", "json")), Ledger()

    @app.post("/json")
    @idempotent
    def read_json() -> str:
        ledger.add()
        return "done"

    client = app.test_client()
    in_header, in_body = token_of(client), token_of(client)

    first = client.post("/json", json={FIELD: in_body}, headers={HEADER: in_header})

    assert first.status_code == 200
    assert_repeated(client.post("/json", json={FIELD: in_body}, headers={HEADER: in_header}), first)
    assert_repeated(client.post("/json", json={}, headers={HEADER: in_header}), first)
    assert len(ledger) == 1
    assert client.post("/json", json={FIELD: in_body}).status_code == 200  # unused until now: two tokens, two rights
    assert len(ledger) == 2


@pytest.mark.case("BODY-09")
@pytest.mark.parametrize("inside", [None, 7, True, ["x"], {"x": "y"}, ""], ids=repr)
def test_a_token_member_that_is_no_text_is_no_token(inside: Any) -> None:
    app, ledger = make_app(TOKEN_LOCATIONS=("json",)), Ledger()

    @app.post("/json")
    @idempotent
    def read_json() -> str:
        ledger.add()
        return "done"

    assert_refused(app.test_client().post("/json", json={FIELD: inside}), "token_missing", 400)

    assert len(ledger) == 0


@pytest.mark.case("BODY-09")
@pytest.mark.parametrize("locations", [("query",), ("header", "form", "query"), "query"], ids=str)
def test_by_setting_a_token_in_the_query_counts(locations: Any) -> None:
    app, ledger = make_app(TOKEN_LOCATIONS=locations), Ledger()

    @app.post("/link")
    @idempotent
    def link() -> str:
        ledger.add()
        return "done"

    client: FlaskClient = app.test_client()
    token = token_of(client)

    first = client.post(f"/link?a=1&{FIELD}={token}")

    assert first.status_code == 200
    assert_repeated(client.post(f"/link?{FIELD}={token}&a=1"), first)
    assert_refused(client.post(f"/link?{FIELD}={token}&a=2"), "token_reused", 422)
    assert len(ledger) == 1


@pytest.mark.case("BODY-09", "S3")
def test_with_two_different_tokens_the_header_goes_before_the_form(reading: tuple[Flask, Ledger]) -> None:
    app, ledger = reading
    client = app.test_client()
    in_header, in_form = token_of(client), token_of(client)

    first = client.post("/fields", data={FIELD: in_form}, headers={HEADER: in_header})

    assert first.status_code == 200
    assert_repeated(client.post("/fields", data={FIELD: in_form}, headers={HEADER: in_header}), first)
    assert_refused(client.post("/fields", data={FIELD: in_form}, headers={HEADER: "x"}), "token_invalid", 400)
    assert len(ledger) == 1
    assert client.post("/fields", data={FIELD: in_form}).status_code == 200
    assert len(ledger) == 2


# -- larger than what is copied --------------------------------------------------------------------------------------


def _upload(client: Any, token: str, data: bytes, boundary: str) -> Any:
    lines = []
    for head, body in (
        (f'name="{FIELD}"', token.encode()),
        ('name="file"; filename="photo.bin"\r\nContent-Type: application/octet-stream', data),
    ):
        lines.append(f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + body + b"\r\n")
    body = b"".join(lines) + f"--{boundary}--\r\n".encode()
    return client.post("/work", data=body, content_type=f"multipart/form-data; boundary={boundary}")


@pytest.mark.case("BODY-07", "REPLAY-01", "S3")
def test_a_large_upload_is_the_same_whatever_its_boundary_and_another_file_is_not(any_store: Any) -> None:
    """Browsers make a new boundary each time, and some of another length."""
    app, ledger = make_app(any_store), Ledger()

    @app.post("/work")
    @idempotent
    def work() -> tuple[dict[str, int], int]:
        size = len(request.files["file"].read())
        ledger.add(str(size))
        return {"size": size}, 201

    client = app.test_client()
    token = token_of(client)
    file = b"y" * 3_000_000

    first = _upload(client, token, file, "-" * 27 + "123")
    assert (first.status_code, first.get_json()) == (201, {"size": len(file)})
    assert_repeated(_upload(client, token, file, "-" * 27 + "1234567"), first)
    assert_refused(_upload(client, token, file[:-1] + b"z", "-" * 27 + "123"), "token_reused", 422)
    assert len(ledger) == 1
