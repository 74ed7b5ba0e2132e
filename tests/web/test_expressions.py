"""Keys as expressions: the client's members first, nothing missing passes unnamed, nothing unsafe is in reach."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import Headers, ImmutableMultiDict
from werkzeug.exceptions import RequestEntityTooLarge

from flask_idempotent.core.errors import KeyInvalid, KeyMissing
from flask_idempotent.core.keys import key_text
from flask_idempotent.web.expressions import Expression, known_names

METHODS = ["items", "keys", "values", "get", "pop", "copy", "update", "clear", "setdefault"]
JSON: dict[str, Any] = {
    "user_id": 7,
    "biz_id": "b-1",
    "items": [{"sku": "x"}, {"sku": "y"}],
    "order": {"request_id": "r-1", "items": {"count": 2}},
    "null": None,
    "empty": "",
    "blank": "  ",
    "none_at_all": [],
    "amount": 1.0,
    "paid": True,
    "__typename": "Order",
}


@dataclass
class Order:
    request_id: str
    _secret: str = "s"

    def number(self) -> str:
        return f"no-{self.request_id}"

    def delete(self) -> str:
        raise AssertionError("a template's sandbox does not call what says that it alters data")

    delete.alters_data = True  # type: ignore[attr-defined]


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


NAMES: dict[str, Any] = {
    "json": JSON,
    "form": ImmutableMultiDict([("order_no", "1"), ("tag", "a"), ("tag", "b")]),
    "headers": Headers({"X-Request-Id": "h-1"}),
    "order": Order("r-2"),
    "user_id": "u",
    "biz_id": "b",
    "gone": None,
    "deep": _deep(),
}


def key(source: str, **names: Any) -> str:
    return Expression("key", source).key({**NAMES, **names})


def missing(source: str, **names: Any) -> str:
    """Return what the refusal says is missing."""
    with pytest.raises(KeyMissing) as caught:
        key(source, **names)
    before, _, rest = caught.value.message.partition(", and ")
    named, _, after = rest.rpartition(" is ")
    assert before == "This operation needs an idempotency key"
    assert after in {"missing or empty.", "blank."}
    return named


@pytest.mark.case("S8")
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("order.request_id", "r-2"),
        ('user_id + ":" + biz_id', "u:b"),
        ("json.user_id", "7"),
        ("json.order.request_id", "r-1"),
        ("json['order']['request_id']", "r-1"),
        ("json.paid", "true"),
        ("json.amount", "1"),
        ("json.user_id ~ ':' ~ json.biz_id", "7:b-1"),
        ('user_id + " " + biz_id', "u b"),
        ('"" + user_id', "u"),
        ('user_id ~ " " ~ biz_id ~ ""', "u b"),
        ("json.amount ~ '-' ~ json.paid", "1-true"),
        ("json.biz_id|upper", "B-1"),
        ("json.biz_id.upper()", "B-1"),
        ("json.biz_id[:1]", "b"),
        ("json.biz_id[:1].upper() + json.biz_id[2:]", "B1"),
        ("json.get('biz_id')", "b-1"),
        ("order.number()", "no-r-2"),
        ("form.order_no", "1"),
        ("headers['X-Request-Id']", "h-1"),
        ("json.__typename", "Order"),
        ("'paid' if json.paid else 'open'", "paid"),
        ("'%s/%s' % (json.user_id, json.biz_id)", "7/b-1"),
        ("'{}/{}'.format(json.user_id, json.biz_id)", "7/b-1"),
        ("json.user_id + 1", "8"),
        ("'fixed'", "fixed"),
    ],
)
def test_an_expression_gives_the_text_of_its_value(source: str, text: str) -> None:
    assert key(source) == text


@pytest.mark.case("S8")
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("(json.user_id, json.biz_id)", (7, "b-1")),
        ("[json.user_id, json.biz_id]", [7, "b-1"]),
        ("(json.user_id,)", (7,)),
        ("form.getlist('tag')", ["a", "b"]),
        ("(json.user_id, [json.biz_id, user_id])", (7, ["b-1", "u"])),
        ("json.items|map(attribute='sku')|list", ["x", "y"]),
    ],
)
def test_lists_keep_the_borders_of_their_parts(source: str, value: object) -> None:
    assert key(source) == key_text(value, "k")


@pytest.mark.case("S8")
def test_two_parts_never_run_together() -> None:
    pairs = [("1", "23"), ("12", "3"), ("1:2", "3"), ("1", "2:3"), ("123", "1"), ("3", "12")]
    assert len({key("(a, b)", a=a, b=b) for a, b in pairs}) == len(pairs)


@pytest.mark.case("S8")
@pytest.mark.parametrize(
    ("source", "text"), [("json.items[0].sku", "x"), ("json.items.1.sku", "y"), ("json.order.items.count", "2")]
)
def test_a_member_named_as_a_method_is_the_clients_member_at_every_level(source: str, text: str) -> None:
    assert key(source) == text


@pytest.mark.case("S8")
@pytest.mark.parametrize("name", METHODS)
def test_without_such_a_member_it_is_missing_and_no_method(name: str) -> None:
    assert missing(f"json.{name}", json={"a": 1}) == f"json.{name}"
    assert missing(f"json.a.{name}", json={"a": {"b": 1}}) == f"json.a.{name}"
    assert missing(f"form.{name}") == f"form.{name}"
    assert missing(f"(form.order_no, form['{name}'])") == f"form['{name}']"
    assert key(f"json.{name}", json={name: "x"}) == key(f"form.{name}", form=ImmutableMultiDict({name: "x"})) == "x"


@pytest.mark.parametrize(
    "source", ["json.title", "json.real", "json.imag", "json.numerator", "json.denominator", "json.count"]
)
@pytest.mark.parametrize("value", ["text", 5, 1.5, True, None, [1]])
def test_plain_values_have_no_attributes(source: str, value: object) -> None:
    assert missing(source, json=value) == source


@pytest.mark.case("S8")
@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("nope", "nope"),
        ("nope.user_id", "nope"),
        ("json.nope", "json.nope"),
        ("json['nope']", "json['nope']"),
        ("json.order.nope", "json.order.nope"),
        ("json.nope.request_id.more", "json.nope"),
        ("json.null.user_id", "json.null.user_id"),
        ("json.user_id.deep", "json.user_id.deep"),
        ("json.items.sku", "json.items.sku"),
        ("json.items[2]", "json.items[2]"),
        ("json.items[2].sku", "json.items[2]"),
        ("json.items[0].nope", "json.items[0].nope"),
        ("gone.user_id", "gone.user_id"),
        ("order.nope", "order.nope"),
        ("order._secret", "order._secret"),
        ("headers['X-Nope']", "headers['X-Nope']"),
        ("json.null", "json.null"),
        ("json.empty", "json.empty"),
        ("json.blank", "json.blank"),
        ("json.none_at_all", "json.none_at_all"),
        ("gone", "gone"),
        ("(json.user_id, json.nope)", "json.nope"),
        ("(json.user_id, json.null)", "json.null"),
        ("[json.empty, json.user_id]", "json.empty"),
        ("(json.user_id, (json.biz_id, json.nope))", "json.nope"),
        ("(json.user_id, json.items[0].nope)", "json.items[0].nope"),
        ("(json.user_id, json.empty|upper)", "(json.user_id, json.empty|upper)[1]"),
        ('json.nope + ":" + json.biz_id', "json.nope"),
        ('json.biz_id + ":" + json.nope', "json.nope"),
        ('json.biz_id + ":" + json.null', "json.null"),
        ('json.empty + ":" + json.biz_id', "json.empty"),
        ('json.blank + ":" + json.biz_id', "json.blank"),
        ("json.user_id ~ ':' ~ json.nope", "json.nope"),
        ("json.user_id ~ ':' ~ json.null", "json.null"),
        ("json.empty ~ ':' ~ json.user_id", "json.empty"),
        ("json.nope|upper", "json.nope"),
        ("json.nope|default('x')", "json.nope"),
        ("json.nope is defined", "json.nope"),
        ("json.nope or user_id", "json.nope"),
        ("'x' if json.nope else 'y'", "json.nope"),
        ("json[json.nope]", "json.nope"),
        ("json.nope[:3]", "json.nope"),
        ("order.nope()", "order.nope"),
        ("json.nope.lower()", "json.nope"),
        ("order.number(json.nope)", "json.nope"),
        ("json.none_at_all|first", "json.none_at_all|first"),
        ("json.items|map(attribute='nope')|list", "nope"),
        ("json.get('nope')", "json.get('nope')"),
    ],
)
def test_what_is_missing_null_or_empty_is_named(source: str, named: str) -> None:
    assert missing(source) == named


@pytest.mark.case("S8")
@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("user_id + json.user_id", "user_id + json.user_id"),
        ("json.user_id + user_id", "json.user_id + user_id"),
        ("json.items + user_id", "json.items + user_id"),
        ("json.items ~ user_id", "json.items ~ user_id"),
        ("json.order ~ user_id", "json.order"),
        ("1 // (json.user_id - 7)", "1 // (json.user_id - 7)"),
        ("json.biz_id - 1", "json.biz_id - 1"),
        ("json.biz_id < 1", "json.biz_id < 1"),
        ("json.user_id[:2]", "json.user_id[:2]"),
        ("json.user_id|abs + json.biz_id|abs", "json.user_id|abs + json.biz_id|abs"),
        ("json.biz_id()", "json.biz_id()"),
        ("json.items()", "json.items()"),
        ("'%d' % json.biz_id", "'%d' % json.biz_id"),
        ("'{:d}'.format(json.biz_id)", "'{:d}'.format(json.biz_id)"),
        ("'{1}'.format(json.biz_id)", "'{1}'.format(json.biz_id)"),
        ("deep|string", "deep|string"),
        ("order.delete()", "order.delete()"),
        ("json.order", "json.order"),
        ("(json.user_id, json.order)", "json.order"),
        ("json.items", "json.items[0]"),
        ("json", "json"),
        ("form", "form"),
        ("order", "order"),
    ],
)
def test_what_can_be_no_key_is_the_clients_mistake_and_named(source: str, named: str) -> None:
    with pytest.raises(KeyInvalid) as caught:
        key(source)
    assert named in caught.value.message


def test_no_message_quotes_what_was_sent() -> None:
    for source in ("json.a + 1", "json.a - 1", "json.b", "(json.a, json.b)", "json.a.nope", "json[json.a]", "json.c"):
        with pytest.raises((KeyInvalid, KeyMissing)) as caught:
            key(source, json={"a": "SECRET", "b": {"SECRET": "SECRET"}, "c": "SECRET\n"})
        assert "SECRET" not in caught.value.message


@pytest.mark.case("S7")
@pytest.mark.parametrize(
    ("source", "mistake"),
    [
        ("", "end of template"),
        ("json.", "expected name or number"),
        ("(json.a, ", "end of template"),
        ("json.a json.b", "nothing may follow"),
        ("json.a, json.b", r"\(a, b\)"),
        ("json.a }} {{ json.b", "nothing may follow"),
        ("json.a|nosuchfilter", "nosuchfilter"),
        ("json.a is nosuchtest", "nosuchtest"),
        ("'open", "unexpected char"),
        ("json.a * 2", "memory"),
        ("'x' * json.n", "memory"),
        ("(json.a, json.b ** json.c)", "memory"),
        ("json.a if json.b", "needs an else"),
        ("(json.a, json.b if json.c)", "needs an else"),
        ("json.__class__", "__class__ is out of reach"),
        ("(1, json.a.__class__.__mro__)", "out of reach"),
        ("user_id.__len__()", "__len__ is out of reach"),
    ],
)
@pytest.mark.parametrize("option", ["key", "lock"])
def test_a_mistake_is_found_where_it_was_written(source: str, mistake: str, option: str) -> None:
    with pytest.raises(ValueError, match=mistake) as caught:
        Expression(option, source)
    assert str(caught.value).startswith(f"{option}={source!r} is no expression: ")


@pytest.mark.parametrize(
    "source",
    [
        "json['__class__']",
        "json.biz_id|attr('__class__')",
        "order|attr('__init__')",
        "order.number.func_globals",
        "'{0.__class__}'.format(user_id)",
        "'{0.__class__.__mro__}'.format(order)",
        "'{x.__init__.__globals__}'.format_map({'x': order})",
        "[order]|map(attribute='__class__')|list",
        "order._secret",
        "order['_secret']",
        "json.clear()",
        "json.items.append(1)",
        "json.update({'a': 1})",
    ],
)
def test_nothing_unsafe_is_in_reach_and_nothing_is_changed(source: str) -> None:
    names = {**NAMES, "json": copy.deepcopy(JSON)}
    with pytest.raises((KeyMissing, KeyInvalid)):
        Expression("key", source).key(names)
    assert names["json"] == JSON


@pytest.mark.parametrize(
    "name", ["range", "dict", "lipsum", "cycler", "joiner", "namespace", "request", "config", "g", "session"]
)
def test_only_the_given_names_are_known(name: str) -> None:
    assert missing(name) == name


def test_no_filter_gives_another_value_each_time() -> None:
    with pytest.raises(ValueError, match="random"):
        Expression("key", "json.items|random")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("json.user_id", {"json"}),
        ("(json.a, form['b'], [c|upper, d.lower()])", {"json", "form", "c", "d"}),
        ("a if b else c", {"a", "b", "c"}),
        ("a[b]", {"a", "b"}),
        ("range(3)", {"range"}),
        ("a ~ b + c", {"a", "b", "c"}),
        ("'fixed'", set()),
    ],
)
def test_the_names_that_an_expression_uses_are_known_before_any_request(source: str, names: set[str]) -> None:
    assert known_names(Expression("key", source)) == names


class _Watched(Mapping[str, Any]):
    """Names that know which of them were looked up."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> Any:
        self.asked.append(name)
        return NAMES[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    def __contains__(self, name: object) -> bool:
        return name in NAMES


def test_only_the_names_it_uses_are_looked_up() -> None:
    """The body is not parsed for a key that lies elsewhere."""
    names = _Watched()
    assert Expression("key", "user_id + biz_id").key(names) == "ub"
    assert sorted(names.asked) == ["biz_id", "user_id"]


class _TooLarge(Mapping[str, Any]):
    """Names whose reading fails, as a body over the app's limit does."""

    def __getitem__(self, name: str) -> Any:
        raise RequestEntityTooLarge

    def __iter__(self) -> Iterator[str]:
        return iter(("json",))

    def __len__(self) -> int:
        return 1

    def __contains__(self, name: object) -> bool:
        return True


class _Broken:
    @property
    def number(self) -> str:
        raise OSError("the database is gone")


def test_an_error_that_is_not_the_clients_stays_what_it_is() -> None:
    with pytest.raises(RequestEntityTooLarge):
        Expression("key", "json.a").key(_TooLarge())
    with pytest.raises(OSError, match="database is gone"):
        key("broken.number", broken=_Broken())


def test_a_key_is_the_same_in_every_process() -> None:
    program = (
        "from flask_idempotent.web.expressions import Expression\n"
        "print(Expression('key', '(json.items, json.a ~ 1)').key({'json': {'items': [1, 'x'], 'a': True}}))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2")
    ]
    assert {run.stdout for run in runs} == {key_text([[1, "x"], "true1"], "k") + "\n"}


def test_one_expression_serves_many_threads() -> None:
    expression = Expression("key", "(json.n, json.text)")
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda n: expression.key({"json": {"n": n, "text": f"t{n}"}}), range(500)))
    assert keys == [key_text((n, f"t{n}"), "k") for n in range(500)]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*METHODS, "a", "b", "0"]), inner, max_size=4)
    ),
    max_leaves=15,
)
PATHS = st.lists(st.sampled_from([*METHODS, "a", "b"]), min_size=1, max_size=4)


@pytest.mark.case("S8")
@given(ANY_JSON, PATHS)
def test_a_path_finds_the_member_or_names_the_first_that_is_missing(json: Any, path: list[str]) -> None:
    expected, spelled = json, "json"
    expression = Expression("key", ".".join(["json", *path]))
    for name in path:
        spelled = f"{spelled}.{name}"
        if not isinstance(expected, dict) or name not in expected:
            with pytest.raises(KeyMissing) as caught:
                expression({"json": json})
            assert f" {spelled} is " in caught.value.message
            return
        expected = expected[name]
    assert expression({"json": json}) is expected


COMPILED = [
    Expression("key", source)
    for source in (
        "json.a",
        "(json.a, json.b)",
        "json.a + ':' + json.b",
        "json.a ~ ':' ~ json.b",
        "json.a + json.b",
        "json.a - json.b",
        "json.a // json.b",
        "json.a % json.b",
        "json.a < json.b",
        "json.a in json.b",
        "json[json.a]",
        "json.a[json.b]",
        "json.a[:3]",
        "json.a[json.b:]",
        "json.items[0].a",
        "json.items()",
        "json.a.lower()",
        "json.a|upper",
        "json.a|int",
        "json.a|abs",
        "json.a|round",
        "json.a|join(',')",
        "json.a|sort|first",
        "json.a|map(attribute='b')|list",
        "json.a|sum",
        "json.a|length",
        "json.a|tojson",
        "json.a|dictsort",
        "json.a is divisibleby(json.b)",
        "'%s-%d' % (json.a, json.b)",
        "'{}'.format(json.a)",
        "json.a if json.b else json.items",
        "not json.a",
        "-json.a",
        "json.get(json.a)",
    )
]


@pytest.mark.case("S8")
@given(ANY_JSON | st.fixed_dictionaries({"a": ANY_JSON, "b": ANY_JSON, "items": ANY_JSON}))
def test_whatever_a_client_sends_it_is_a_key_or_one_of_two_refusals(json: Any) -> None:
    before = repr(json)
    for expression in COMPILED:
        try:
            text = expression.key({"json": json})
        except (KeyMissing, KeyInvalid):
            continue
        assert text == expression.key({"json": copy.deepcopy(json)})
    assert repr(json) == before


TEXTS = st.text("ab:1", min_size=1, max_size=3)


@pytest.mark.case("S8")
@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
def test_two_pairs_are_one_key_just_when_they_are_equal(one: tuple[str, str], other: tuple[str, str]) -> None:
    expression = Expression("key", "(json.user_id, json.biz_id)")
    keys = [expression.key({"json": {"user_id": user, "biz_id": biz}}) for user, biz in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
