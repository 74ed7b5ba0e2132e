"""``flask idempotency check``: what has to be mended, what is probably a mistake, and nothing else."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from flask_idempotent import Idempotency, idempotent
from tests.helpers import make_app
from tests.web.test_policy_command import PUBLISHED, flask


def check(app: Flask, *arguments: str) -> tuple[int, list[str], str]:
    """Exit code, the lines above the last one, and the last one."""
    result = app.test_cli_runner().invoke(args=["idempotency", "check", *arguments])
    *lines, summary = result.output.splitlines()
    return result.exit_code, lines, summary


def app_with(rule: str = "/orders", config: dict[str, Any] | None = None, **options: Any) -> Flask:
    app = make_app(**(config or {}))
    app.add_url_rule(rule, "orders", idempotent(**options)(lambda **_: "x"), methods=["POST"])
    return app


def test_the_real_command_finds_nothing_to_say_of_an_app_in_order():
    found = flask("idempotency", "check", "--strict")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "8 protected routes, 0 errors, 0 warnings\n"


def test_the_real_command_says_each_thing_once_and_strictly_fails_for_it():
    app = f"{PUBLISHED}(store=None, STORE_DOWN='pass')"
    lenient, strict = flask("idempotency", "check", app=app), flask("idempotency", "check", "--strict", app=app)
    assert (lenient.returncode, strict.returncode) == (0, 1)
    assert lenient.stdout == strict.stdout
    assert lenient.stderr == strict.stderr == ""
    *warnings, summary = lenient.stdout.splitlines()
    assert [line.split(maxsplit=1)[0] for line in warnings] == ["warning:", "warning:"]
    assert "IDEMPOTENCY_STORE is set" in warnings[0]
    assert "IDEMPOTENCY_STORE_DOWN" in warnings[1]
    assert summary == "8 protected routes, 0 errors, 2 warnings"


def test_every_error_is_printed_with_what_else_there_is():
    app = app_with(scene="order", store="nowhere", lease=1)
    idempotent(app.post("/vain")(lambda: "unprotected"))
    for _ in range(2):
        code, lines, summary = check(app)
        assert code == 1
        assert [line.split(maxsplit=1)[0] for line in lines] == ["error:", "error:"]
        assert "below the route" in lines[0]
        assert "'nowhere'" in lines[1]
        assert summary == "1 protected route, 2 errors, 0 warnings"


def test_what_the_look_warns_of_is_printed_and_not_logged(caplog):
    app = make_app()
    app.add_url_rule("/page", "page", idempotent(lambda: "x"), methods=["GET"])
    code, (line,), summary = check(app)
    assert (code, summary) == (0, "0 protected routes, 0 errors, 1 warning")
    assert "methods that are never guarded" in line
    assert caplog.records == []
    assert not logging.getLogger("flask_idempotent.appstate").disabled
    assert check(app, "--strict")[0] == 1


def order_key(number: int) -> str:
    return str(number)


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a name in key= that nobody gives": ({"key": "(json.a, user.id)"}, "'user'"),
    "an argument that this rule lacks": ({"key": "number"}, "'number'"),
    "a name in lock=": ({"lock": "body.account"}, "'body'"),
    "key= that wants another argument": ({"key": order_key}, "does not take the view's arguments"),
    "fingerprint= that wants another argument": ({"fingerprint": order_key}, "does not take the view's arguments"),
    "a short lease": ({"lease": 1}, "lease"),
    "a long wait": ({"wait": 60}, "waits up to 60 s"),
}


@pytest.mark.parametrize(("options", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_probable_mistake_is_a_warning_that_names_the_view(options, said):
    code, (line,), summary = check(app_with("/orders/<order_no>", **options))
    assert (code, summary) == (0, "1 protected route, 0 errors, 1 warning")
    assert line.startswith("warning: ")
    assert said in line
    assert "test_check_command.py:" in line


IN_ORDER: dict[str, dict[str, Any]] = {
    "all that expressions may name": {"key": "(json.a, form.b, args.c, headers['D'], order_no)", "lock": "order_no"},
    "a callable that takes anything": {"key": lambda **_: "x", "fingerprint": lambda **_: "x"},
    "a callable that takes the argument": {"key": lambda order_no: order_no},
    "a partial": {"key": functools.partial(lambda extra, order_no: order_no, "x")},
    "a callable written in C": {"key": dict},
    "a short lease that nothing hangs on": {"lease": 1, "consume": True, "on_duplicate": "reject"},
    "a wait": {"wait": 5},
}


@pytest.mark.parametrize("options", IN_ORDER.values(), ids=IN_ORDER)
def test_what_is_in_order_is_not_warned_of(options):
    found = check(app_with("/orders/<order_no>", **options), "--strict")
    assert found == (0, [], "1 protected route, 0 errors, 0 warnings")


def test_a_default_of_the_rule_is_an_argument_too():
    app = make_app()
    view = idempotent(key="kind")(lambda kind: kind)
    app.add_url_rule("/orders", "orders", view, methods=["POST"], defaults={"kind": "order"})
    assert check(app, "--strict")[0] == 0


def test_the_memory_of_one_process_is_warned_of_only_where_it_is_used():
    def app(**options: Any) -> Flask:
        made = Flask("tests.check")
        made.config["IDEMPOTENCY_STORES"] = {"audit": "memory://"}
        Idempotency(made)
        made.add_url_rule("/orders", "orders", idempotent(scene="s", **options)(lambda: "x"), methods=["POST"])
        return made

    assert "IDEMPOTENCY_STORE" in check(app())[1][0]
    assert check(app(store="audit"))[1] == []


def test_an_app_that_is_switched_off_is_warned_of():
    _, (line,), _ = check(app_with(config={"ENABLED": False}))
    assert "IDEMPOTENCY_ENABLED" in line


# --- marks that nobody can see -----------------------------------------------------------------------------------


def hiding(view: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return checked


class Caller:
    def __init__(self, view: Callable[..., Any]) -> None:
        self.view = view

    def __call__(self) -> Any:
        return self.view()


HIDING = {"a closure": hiding, "two closures": lambda view: hiding(hiding(view)), "an attribute": Caller}


@pytest.mark.parametrize("hide", HIDING.values(), ids=HIDING)
def test_a_mark_below_a_decorator_that_hides_it_is_warned_of_and_published_all_the_same(hide):
    app = make_app()
    view = hide(idempotent(source="header", description="hidden")(lambda: "x"))
    app.add_url_rule("/orders", "orders", view, methods=["GET", "POST", "PUT"])
    _, (line,), summary = check(app)
    assert "functools.wraps" in line
    assert "test_check_command.py:" in line
    assert summary == "1 protected route, 0 errors, 1 warning"
    printed = app.test_cli_runner().invoke(args=["idempotency", "policy"])
    assert printed.stderr.count("functools.wraps") == 1
    assert "functools.wraps" not in printed.stdout
    assert "`POST, PUT /orders` | hidden" in printed.stdout
    assert app.test_client().post("/orders").status_code == 400  # guarded, as is printed


def test_a_mistake_in_a_hidden_mark_is_an_error():
    app = make_app()
    app.add_url_rule("/orders", "orders", hiding(idempotent(store="nowhere")(lambda: "x")), methods=["POST"])
    code, lines, _ = check(app)
    assert code == 1
    assert [line for line in lines if line.startswith("error: ") and "'nowhere'" in line]


def test_a_view_that_calls_a_guarded_one_hides_nothing():
    app = make_app()
    order = app.post("/orders")(idempotent(lambda: "x"))
    app.add_url_rule("/again", "again", lambda: order(), methods=["POST"])
    if not app:
        later = None
    app.add_url_rule("/empty", "empty", lambda: later, methods=["POST"])
    assert check(app, "--strict") == (0, [], "1 protected route, 0 errors, 0 warnings")
