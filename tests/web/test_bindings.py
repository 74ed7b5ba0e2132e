"""Who may use a token: the client's address and its spellings, proxies, sessions, users, callables."""

from __future__ import annotations

import logging
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from flask import Flask, g, render_template_string, request, session
from flask_login import LoginManager, UserMixin, login_user, logout_user
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_idempotent import TokenForeign, idempotent
from tests.helpers import (
    FIELD,
    HEADER,
    REPLAYED,
    Ledger,
    assert_refused,
    assert_repeated,
    make_app,
    token_of,
    tokens_of,
)

FORM = "<form method=post>{{ idempotency_token() }}<input name=amount value='{{ request.form.amount }}'></form>"
LONG = "9" * 4096


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def shop(store: Any, ledger: Ledger, **config: Any) -> Flask:
    """An app with one guarded view, ``/orders``."""
    app = make_app(store, **config)

    @app.post("/orders")
    @idempotent
    def order() -> tuple[str, int]:
        return f"order {ledger.add(request.form.get('amount', 'effect'))}", 201

    return app


def mint(app: Flask, address: str | None, **options: Any) -> str:
    """Fetch the form as a new visitor from `address`; None: the server says nothing about it."""
    return token_of(app.test_client(), environ_overrides={"REMOTE_ADDR": address}, **options)


def submit(app: Flask, token: str, address: str | None, **options: Any) -> Any:
    """Send the form as a visitor without cookies."""
    data = {FIELD: token, "amount": "1"}
    return app.test_client().post("/orders", data=data, environ_overrides={"REMOTE_ADDR": address}, **options)


def assert_bound(app: Flask, ledger: Ledger, minted: str | None, other: str | None, *, same: bool) -> None:
    """A token of `minted` is accepted from `other`, or refused there and still good where it was minted."""
    token = mint(app, minted)
    answer = submit(app, token, other)
    if same:
        assert answer.status_code == 201, answer.text
    else:
        assert_refused(answer, "token_foreign", 403)
        assert len(ledger) == 0  # all or nothing: the stranger changed nothing
        answer = submit(app, token, minted)
        assert answer.status_code == 201, answer.text
    assert_repeated(submit(app, token, minted), answer)
    assert len(ledger) == 1


# --- proxies -----------------------------------------------------------------------------------------------------


@pytest.mark.case("IP-01", "S1")
def test_without_proxyfix_the_peer_counts_and_no_header(any_store, ledger):
    app = shop(any_store, ledger)
    for number, visitor in enumerate(("198.51.100.1", "198.51.100.2"), start=1):
        token = mint(app, "10.0.0.5", headers={"X-Forwarded-For": visitor})
        other = {"X-Forwarded-For": "203.0.113.77", "X-Real-IP": "203.0.113.78", "Forwarded": "for=203.0.113.79"}
        first = submit(app, token, "10.0.0.5", headers=other)
        assert first.status_code == 201
        assert_repeated(submit(app, token, "10.0.0.5"), first)
        assert len(ledger) == number


@pytest.mark.case("IP-01", "S1")
def test_behind_proxyfix_the_visitor_counts(any_store, ledger):
    app = shop(any_store, ledger)
    app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1)
    token = mint(app, "10.0.0.5", headers={"X-Forwarded-For": "198.51.100.1"})
    stranger = submit(app, token, "10.0.0.5", headers={"X-Forwarded-For": "198.51.100.2"})
    assert_refused(stranger, "token_foreign", 403)
    assert_refused(submit(app, token, "10.0.0.5"), "token_foreign", 403)
    assert len(ledger) == 0
    assert submit(app, token, "10.0.0.5", headers={"X-Forwarded-For": "198.51.100.1"}).status_code == 201
    # A page from another worker of the proxy is the same visitor's.
    other = mint(app, "10.0.0.6", headers={"X-Forwarded-For": "198.51.100.1"})
    assert submit(app, other, "10.0.0.5", headers={"X-Forwarded-For": "198.51.100.1"}).status_code == 201
    assert len(ledger) == 2


@pytest.mark.case("IP-02")
@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP", "CF-Connecting-IP"])
def test_a_forged_header_is_no_identity(any_store, ledger, name):
    app = shop(any_store, ledger)
    token = mint(app, "192.0.2.1")
    # Nor does the address of the one who fetched the form help a thief.
    assert_refused(submit(app, token, "192.0.2.66", headers={name: "192.0.2.1"}), "token_foreign", 403)
    first = submit(app, token, "192.0.2.1", headers={name: "203.0.113.9"})
    assert first.status_code == 201
    assert_repeated(submit(app, token, "192.0.2.1"), first)
    assert len(ledger) == 1


@pytest.mark.case("IP-02")
def test_what_stands_left_of_the_proxys_word_is_not_believed(any_store, ledger):
    app = shop(any_store, ledger)
    app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1)
    token = mint(app, "10.0.0.5", headers={"X-Forwarded-For": "203.0.113.9, 198.51.100.1"})
    thief = {"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}
    assert_refused(submit(app, token, "10.0.0.5", headers=thief), "token_foreign", 403)
    honest = {"X-Forwarded-For": "another lie, 198.51.100.1"}
    assert submit(app, token, "10.0.0.5", headers=honest).status_code == 201
    assert len(ledger) == 1


def _proxy_warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [r for r in caplog.records if r.name.startswith("flask_idempotent") and "ProxyFix" in r.getMessage()]


def test_a_proxy_whose_word_nobody_takes_is_warned_of_once(any_store, ledger, caplog):
    app = shop(any_store, ledger)
    for peer in ("10.0.0.5", "10.0.0.5", "127.0.0.1", ""):
        token = mint(app, peer, headers={"X-Forwarded-For": "198.51.100.1"})
        submit(app, token, peer, headers={"X-Forwarded-For": "198.51.100.1"})
    (warning,) = _proxy_warnings(caplog)
    assert warning.levelno == logging.WARNING
    assert "198.51.100.1" not in warning.getMessage()


def test_each_app_gets_the_warning_for_itself(caplog):
    for number in (1, 2):
        mint(shop(None, Ledger()), "10.0.0.5", headers={"X-Forwarded-For": "198.51.100.1"})
        assert len(_proxy_warnings(caplog)) == number


def test_no_warning_where_nothing_is_wrong(any_store, ledger, caplog):
    forwarded = {"X-Forwarded-For": "198.51.100.1"}
    mint(shop(any_store, ledger), "10.0.0.5")  # no proxy
    mint(shop(any_store, ledger), "93.184.216.34", headers=forwarded)  # no proxy of ours: a client's own lie
    mint(shop(any_store, ledger, BINDING="none"), "10.0.0.5", headers=forwarded)  # addresses do not count
    fixed = shop(any_store, ledger)
    fixed.wsgi_app = ProxyFix(fixed.wsgi_app, x_for=1)
    mint(fixed, "10.0.0.5", headers=forwarded)
    assert _proxy_warnings(caplog) == []


# --- the policy and its switch -----------------------------------------------------------------------------------


@pytest.mark.case("IP-03", "S6")
def test_a_visitor_who_changed_networks_is_told_so_and_may_go_on(any_store, ledger):
    app = shop(any_store, ledger)

    @app.errorhandler(TokenForeign)
    def once_more(error: TokenForeign) -> Any:
        return f"{error.reason}: {error.message} " + render_template_string(FORM), 403

    token = mint(app, "192.0.2.1")
    moved = submit(app, token, "203.0.113.1")
    assert moved.status_code == 403
    assert moved.text.startswith("token_foreign: ")
    assert "value='1'" in moved.text
    assert len(ledger) == 0
    (fresh,) = tokens_of(moved.text)
    first = submit(app, fresh, "203.0.113.1")
    assert first.status_code == 201
    assert_repeated(submit(app, fresh, "203.0.113.1"), first)
    assert len(ledger) == 1


@pytest.mark.case("IP-03", "S1")
@pytest.mark.parametrize("off", ["none", None])
def test_with_the_binding_off_any_address_will_do(any_store, ledger, off):
    assert_bound(shop(any_store, ledger, BINDING=off), ledger, "192.0.2.1", "203.0.113.1", same=True)


@pytest.mark.case("IP-03", "S1")
def test_an_identity_of_the_apps_own(any_store, ledger):
    app = shop(any_store, ledger, BINDING=lambda: request.headers.get("X-Device", "?"))
    token = mint(app, "192.0.2.1", headers={"X-Device": "phone"})
    thief = submit(app, token, "192.0.2.1", headers={"X-Device": "tablet"})
    assert_refused(thief, "token_foreign", 403)
    first = submit(app, token, "203.0.113.1", headers={"X-Device": "phone"})
    assert first.status_code == 201
    assert_repeated(submit(app, token, "203.0.113.9", headers={"X-Device": "phone"}), first)
    assert len(ledger) == 1


@pytest.mark.case("IP-04")
def test_an_office_behind_one_address(gunicorn, redis_url, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    env = {"STORE": redis_url, "LEDGER": str(tmp_path / "ledger")}
    served = gunicorn("tests.apps.forms:create_app()", workers=4, env=env)

    def fetch(_: int) -> str:
        return tokens_of(requests.get(f"{served.url}/form", timeout=20).text)[0]

    def send(token: str) -> requests.Response:
        return requests.post(f"{served.url}/order/replay", data={FIELD: token, "item": token}, timeout=20)

    with ThreadPoolExecutor(20) as pool:
        tokens = list(pool.map(fetch, range(200)))
        answers = list(pool.map(send, random.Random(4).sample(tokens, 200)))
        repeats = list(pool.map(send, tokens[:20]))
    assert [a.status_code for a in answers] == [201] * 200
    assert not any(REPLAYED in a.headers for a in answers)
    assert sorted(ledger.entries) == sorted(tokens)
    assert all(r.headers.get(REPLAYED) == "true" for r in repeats)


# --- spellings of an address -------------------------------------------------------------------------------------

SAME = {
    "IP-05": [
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "::ffff:192.0.2.7"),
        ("::ffff:c000:207", "192.0.2.7"),
        ("::FFFF:C000:0207", "::ffff:192.0.2.7"),
        ("0:0:0:0:0:ffff:192.0.2.7", "192.0.2.7"),
        ("[::ffff:192.0.2.7]:443", "192.0.2.7:80"),
    ],
    "IP-06": [
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"),
        ("2001:db8:0:0:1::1", "2001:db8::1:0:0:1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("fe80::1%eth0", "fe80::1"),
        ("fe80::1%25eth0", "FE80::1%eth0"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:8080", "2001:db8::1"),
        ("[fe80::1%eth0]:8080", "fe80::1%eth0"),
    ],
    "IP-07": [
        ("2001:db8:1:2::a", "2001:db8:1:2::b"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::"),
        ("64:ff9b::808:808", "8.8.8.8"),
        ("64:ff9b::8.8.8.8", "64:ff9b::808:808"),
    ],
    "S1": [("192.0.2.7:1234", "192.0.2.7:5678"), ("192.0.2.7:1234", "192.0.2.7"), ("", ""), (None, None)],
}
OTHER = {
    "IP-05": [
        ("::ffff:192.0.2.7", "192.0.2.8"),
        ("::ffff:c000:207", "::ffff:c000:208"),
        ("::192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "192.0.2.8"),
    ],
    "IP-06": [("2001:db8::1", "2001:db9::1"), ("fe80::1", "fec0::1"), ("::1", "127.0.0.1")],
    "IP-07": [
        ("2001:db8:1:2::a", "2001:db8:1:3::b"),
        ("64:ff9b::808:808", "64:ff9b::909:909"),
        ("64:ff9b::808:808", "64:ff9b:1::808:808"),
    ],
    "S1": [("", "127.0.0.1"), ("192.0.2.7", ""), ("192.0.2.7:80", "192.0.2.8:80")],
}
PAIRS = [
    pytest.param(
        minted, other, same, marks=pytest.mark.case(case), id=f"{case} {minted} {'=' if same else '≠'} {other}"
    )
    for same, table in ((True, SAME), (False, OTHER))
    for case, pairs in table.items()
    for minted, other in pairs
]


@pytest.mark.parametrize(("minted", "other", "same"), PAIRS)
def test_addresses_are_compared_not_their_spellings(ledger, minted, other, same):
    assert_bound(shop(None, ledger), ledger, minted, other, same=same)


@pytest.mark.case("IP-05", "IP-06", "IP-07", "S1")
def test_addresses_are_compared_so_on_a_real_server_too(redis_url):
    app = shop(redis_url, ledger := Ledger())
    first = submit(app, mint(app, "::ffff:c000:207"), "192.0.2.7")
    assert first.status_code == 201
    token = mint(app, "2001:DB8:0:0:0:0:0:1")
    assert_refused(submit(app, token, "2001:db8:0:1::1"), "token_foreign", 403)
    assert submit(app, token, "2001:db8::2").status_code == 201
    assert len(ledger) == 2


@pytest.mark.case("IP-07")
@pytest.mark.parametrize(
    ("config", "minted", "other", "same"),
    [
        ({"IPV6_PREFIX": 128}, "2001:db8:1:2::a", "2001:db8:1:2::b", False),
        ({"IPV6_PREFIX": 128}, "2001:db8:1:2::a", "2001:DB8:1:2:0::a", True),
        ({"IPV6_PREFIX": 56}, "2001:db8:1:2::a", "2001:db8:1:3::b", True),
        ({"IPV6_PREFIX": 48}, "2001:db8:1:2::a", "2001:db8:2:2::a", False),
        ({"IPV6_PREFIX": 0}, "2001:db8::1", "fe80::1", True),
        ({"IPV4_PREFIX": 24}, "192.0.2.7", "192.0.2.200", True),
        ({"IPV4_PREFIX": 24}, "192.0.2.7", "192.0.3.7", False),
        ({"IPV4_PREFIX": 24}, "::ffff:192.0.2.7", "192.0.2.200", True),
        ({"IPV4_PREFIX": 24}, "64:ff9b::c000:207", "192.0.2.200", True),
        ({"IPV4_PREFIX": 0}, "192.0.2.7", "203.0.113.1", True),
        ({"IPV4_PREFIX": 0, "IPV6_PREFIX": 0}, "192.0.2.7", "2001:db8::1", False),
        ({"IPV6_PREFIX": 0}, "2001:db8::1", "64:ff9b::808:808", False),
    ],
)
def test_the_prefix_lengths_say_what_one_client_is(ledger, config, minted, other, same):
    assert_bound(shop(None, ledger, **config), ledger, minted, other, same=same)


NONSENSE = [
    "<script>alert(1)</script>",
    "unknown",
    "a, b",
    "1.2.3.4, 5.6.7.8",
    LONG,
    "x" * 4096,
    "%",
    "%eth0",
    "[",
    "[]:80",
    ":",
    ":80",
    "999.1.1.1",
    "1.2.3.4/24",
    "unix:",
    "/run/app.sock",
    "\x00",
    "ü\u20ac",
    "\udcff",
    "' OR 1=1 --",
    "{{ 7 * 7 }}",
    "1.2.3.4\r\nX: y",
]


@pytest.mark.case("IP-08")
@pytest.mark.parametrize("address", NONSENSE, ids=lambda address: ascii(address[:20]))
def test_nonsense_equals_only_itself(valkey, ledger, address):
    app = shop(valkey.url, ledger)
    client = app.test_client()
    page = client.get("/form", environ_overrides={"REMOTE_ADDR": address})
    (token,) = tokens_of(page.text)
    for other in ("192.0.2.1", "", address + "x", "<script>alert(2)</script>"):
        refused = submit(app, token, other, headers={"Accept": "text/html"})
        assert refused.status_code == 403
        assert "alert(" not in refused.text
    assert "alert(" not in page.text
    first = submit(app, token, address)
    assert first.status_code == 201
    assert_repeated(submit(app, token, address), first)
    assert len(ledger) == 1
    keys = valkey.client().keys("*")
    assert len(keys) == 1
    assert len(keys[0]) < 64
    assert len(valkey.client().get(keys[0])) < 600  # the answer of the view; no address at length


@pytest.mark.case("IP-08")
def test_a_long_address_and_its_neighbour_are_two(ledger):
    assert_bound(shop(None, ledger), ledger, "x" * 4096 + "a", "x" * 4096 + "b", same=False)


# --- session, user -----------------------------------------------------------------------------------------------


@pytest.mark.case("S1")
@pytest.mark.parametrize("by", ["app", "scene"])
def test_the_session_binding_is_a_random_id_that_is_kept_in_the_session(any_store, ledger, by):
    config = {"BINDING": "session"} if by == "app" else {}
    app = make_app(any_store, **config)

    @app.get("/page")
    def page() -> str:
        return render_template_string("{{ idempotency_token('order') }}")

    @app.post("/orders")
    @idempotent(scene="order", **({"binding": "session"} if by == "scene" else {}))
    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    @app.post("/remember")
    def remember() -> str:
        session["language"] = "eo"
        return "kept"

    visitor, other = app.test_client(), app.test_client()
    tokens = [token_of(visitor, "/page") for _ in range(2)]
    with visitor.session_transaction() as held:
        assert len(held) == 1
        (identity,) = held.values()
        assert len(str(identity)) >= 16
        assert not any(token in str(held) for token in tokens)
    token_of(other, "/page")
    assert_refused(other.post("/orders", data={FIELD: tokens[0]}), "token_foreign", 403)
    assert_refused(app.test_client().post("/orders", data={FIELD: tokens[0]}), "token_foreign", 403)
    visitor.post("/remember")
    # Another address is the same session's.
    first = visitor.post("/orders", data={FIELD: tokens[0]}, environ_overrides={"REMOTE_ADDR": "203.0.113.5"})
    assert first.status_code == 201
    assert_repeated(visitor.post("/orders", data={FIELD: tokens[0]}), first)
    assert visitor.post("/orders", data={FIELD: tokens[1]}).status_code == 201
    assert len(ledger) == 2


@pytest.mark.case("S1")
def test_without_cookies_the_session_binding_is_refused_and_says_why_not(any_store, ledger):
    app = shop(any_store, ledger, BINDING="session")
    client = app.test_client(use_cookies=False)
    token = token_of(client)
    assert_refused(client.post("/orders", data={FIELD: token}), "token_foreign", 403)
    assert len(ledger) == 0


class User(UserMixin):
    def __init__(self, name: str) -> None:
        self.id = name


def _with_login(app: Flask) -> Flask:
    LoginManager(app).user_loader(User)

    @app.post("/login/<name>")
    def login(name: str) -> str:
        login_user(User(name))
        return "welcome"

    @app.post("/logout")
    def logout() -> str:
        logout_user()
        return "bye"

    return app


@pytest.mark.case("S1")
def test_the_user_binding_is_whom_flask_login_knows(any_store, ledger):
    app = _with_login(shop(any_store, ledger, BINDING="user"))
    alice, again, bob, nobody = (app.test_client() for _ in range(4))
    for client, name in ((alice, "alice"), (again, "alice"), (bob, "bob")):
        client.post(f"/login/{name}")
    token = token_of(alice)
    assert_refused(bob.post("/orders", data={FIELD: token}), "token_foreign", 403)
    assert_refused(nobody.post("/orders", data={FIELD: token}), "token_foreign", 403)
    # Another browser and another network: the same user.
    first = again.post("/orders", data={FIELD: token}, environ_overrides={"REMOTE_ADDR": "203.0.113.5"})
    assert first.status_code == 201
    assert_repeated(alice.post("/orders", data={FIELD: token}), first)
    open_form = token_of(nobody)
    assert_refused(alice.post("/orders", data={FIELD: open_form}), "token_foreign", 403)
    assert nobody.post("/orders", data={FIELD: open_form}).status_code == 201
    assert len(ledger) == 2


@pytest.mark.case("S1")
@pytest.mark.parametrize("where", ["app", "scene"])
def test_the_user_binding_is_whom_principal_names(any_store, ledger, where):
    def principal() -> str | None:
        return g.get("user")

    config = {"PRINCIPAL": principal, "BINDING": "user"} if where == "app" else {}
    options = {} if where == "app" else {"principal": principal, "binding": "user"}
    app = make_app(any_store, **config)

    @app.before_request  # after ours: the user is not known before
    def load_user() -> None:
        g.user = request.headers.get("X-User")

    @app.get("/page")
    def page() -> str:
        return render_template_string("{{ idempotency_token('order') }}")

    @app.post("/orders")
    @idempotent(scene="order", **options)
    def order() -> tuple[str, int]:
        return f"order {ledger.add()}", 201

    client = app.test_client()
    token = token_of(client, "/page", headers={"X-User": "alice"})
    assert_refused(client.post("/orders", headers={HEADER: token, "X-User": "bob"}), "token_foreign", 403)
    assert_refused(client.post("/orders", headers={HEADER: token}), "token_foreign", 403)
    first = client.post("/orders", headers={HEADER: token, "X-User": "alice"})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", headers={HEADER: token, "X-User": "alice"}), first)
    assert len(ledger) == 1


@pytest.mark.case("S1", "S9")
def test_two_bindings_never_meet_by_their_text(any_store):
    """A callable that returns an address is not the address, nor is a user's name a session's id."""
    ledger = Ledger()
    first = shop(any_store, ledger, BINDING=lambda: "192.0.2.1")
    token = mint(first, "192.0.2.1")
    other = shop(any_store, ledger)
    assert_refused(submit(other, token, "192.0.2.1"), "token_foreign", 403)
    assert submit(first, token, "192.0.2.1").status_code == 201
    assert len(ledger) == 1


@pytest.mark.case("S1")
@pytest.mark.parametrize("binding", ["session", "user", lambda: request.headers.get("X-Device", "")])
def test_who_it_is_is_asked_when_the_app_knows(any_store, ledger, binding):
    """A binding that needs a login is asked after the app's own hooks: one that refuses first leaves the token good."""
    app = _with_login(shop(any_store, ledger, BINDING=binding, SECRET_KEY="x"))
    refuse = [True]

    @app.before_request
    def permissions() -> Any:
        return ("no", 403) if request.path == "/orders" and refuse[0] else None

    client = app.test_client()
    client.post("/login/alice")
    token = token_of(client)
    assert client.post("/orders", data={FIELD: token}).text == "no"
    refuse[0] = False
    first = client.post("/orders", data={FIELD: token})
    assert first.status_code == 201
    assert_repeated(client.post("/orders", data={FIELD: token}), first)
    assert len(ledger) == 1
