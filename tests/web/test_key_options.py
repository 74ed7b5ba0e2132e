"""Options of keys that make no sense: an error where they were written, which names the option."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flask_idempotent import idempotent
from tests.apps.till import Till, assert_ran
from tests.helpers import assert_refused, assert_repeated

MISTAKES: list[tuple[dict[str, Any], str]] = [
    *(({"source": wrong}, "source=") for wrong in ("cookie", "Header", "", (), ("header", "header"), ("token", "key"))),
    ({"source": ["header", "query"]}, "source="),
    *(({"name": "X-Request-Id", **without}, "name=") for without in ({}, {"source": "token"}, {"key": "json.no"})),
    ({"source": "header", "name": 7}, "name="),
    *(({"key": wrong}, "key=") for wrong in ("", "  ", "json.", "(json.a", "json.a json.b", 7, ("json.a", "json.b"))),
    *(({"lock": wrong}, "lock=") for wrong in ("", "json.", 7, True)),
    *(({"source": "header", "required": wrong}, "required=") for wrong in ("yes", 1, 0)),
    *(({"wait": wrong}, "wait=") for wrong in (-1, "2", True, float("inf"), timedelta(seconds=-1))),
    *(({"interval": wrong}, "interval=") for wrong in (-1, "2", True, float("nan"), timedelta(0))),
    *(({"source": "header", "ttl": wrong}, "ttl=") for wrong in (0, -1, "60", True)),
    *(({"source": "header", "fingerprint": wrong}, "fingerprint=") for wrong in ("amount", 7)),
    *(({"source": "header", "ignore": wrong}, "ignore=") for wrong in ("sent_at", 7)),
    *(({"source": "header", "principal": wrong}, "principal=") for wrong in ("user", 7)),
    *(({"source": "header", "final": wrong}, "final=") for wrong in ("ok", True)),
    *(({"source": "header", "restore_on_error": wrong}, "restore_on_error=") for wrong in ("no", 0)),
    ({"source": "header", "consume": True, "on_duplicate": "replay"}, "consume=True"),
]


@pytest.mark.parametrize(("options", "named"), MISTAKES, ids=str)
def test_a_mistake_is_a_value_error_that_names_the_option(options: dict[str, Any], named: str):
    with pytest.raises(ValueError, match=f"(^|[ (]){named}"):
        idempotent(**options)(lambda: "never")


@pytest.mark.parametrize("empty", [[], set(), ("token", "header", "param", "token")])
def test_sources_are_one_or_several_of_three_words(empty: Any):
    with pytest.raises(ValueError, match="'token', 'header', 'param'"):
        idempotent(source=empty)


@pytest.mark.case("S8")
@pytest.mark.parametrize(
    "options",
    [
        {"source": ["header"], "wait": 0, "ttl": timedelta(minutes=1), "required": True},
        {"source": ("header", "param"), "name": "no", "fingerprint": True, "ignore": []},
        {"source": "header", "key": "json.no", "wait": timedelta(0), "lock": lambda: "l"},
        {"source": ("header",), "interval": None, "key": None, "lock": None, "name": None, "principal": None},
    ],
    ids=["seconds and a timedelta", "empty and true", "zero and a callable", "none"],
)
def test_what_makes_sense_is_taken(any_store: Any, options: dict[str, Any]):
    till = Till(any_store).add(**options)
    first = till.send("k", json={"no": 1})
    assert_ran(first, 1)
    assert_repeated(till.send("k", json={"no": 1}), first)
    assert_refused(till.send("k", json={"no": 2}), "key_reused", 422)
