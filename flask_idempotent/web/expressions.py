"""A key as an expression: ``key="(json.user_id, json.biz_id)"``, evaluated in Jinja's sandbox.

Three things differ from a template. A member of what the client sent comes before an attribute of the object that holds
it: ``json.items`` is the client's list, never a method. Whatever is missing, null or empty where text is put together
refuses the request by name, instead of leaving a hole that makes two keys one. And nothing in reach gives another value
each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.environment import TemplateExpression
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from ..core.errors import KeyInvalid, KeyMissing
from ..core.keys import key_text

_DATA: Final = (str, int, float, bool, type(None), list, dict)  # what JSON is made of: has members, no attributes
_CLIENTS_FAULT: Final = (
    TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)  # as adding text to a number; the rest, as a database out of reach, is no fault of the client's


def _missing(label: str) -> KeyMissing:
    return KeyMissing(f"This operation needs an idempotency key, and {label} is missing or empty.")


class _Hole(StrictUndefined):
    """Is never made: what is missing is an error where it is missed, not where it is used."""

    __slots__ = ()

    def __init__(self, *_: Any, name: str | None = None, **__: Any) -> None:
        raise UndefinedError(name)


class _Environment(ImmutableSandboxedEnvironment):
    """Looks up members and puts texts together strictly; :class:`_Strict` writes calls of it into an expression."""

    def __init__(self) -> None:
        super().__init__(undefined=_Hole, autoescape=False)
        self.globals.clear()  # lipsum() gives another text each time
        del self.filters["random"]

    def member(self, holder: Any, name: Any, label: str, to_call: bool) -> Any:
        """Return an item of what the client sent, else an attribute of an object of the app's."""
        try:
            return holder[name]
        except (LookupError, TypeError):
            pass
        if isinstance(name, str) and (to_call or type(holder) not in _DATA):
            with suppress(UndefinedError):
                value = self.getattr(holder, name)
                if to_call or not callable(value):
                    return value
        raise _missing(label)

    def added(self, left: Any, left_label: str, right: Any, right_label: str) -> Any:
        """Add numbers, lists or texts, of which none is null or empty."""
        return _filled(left, left_label) + _filled(right, right_label)

    def joined(self, *parts: Any) -> str:
        """Put texts and numbers together; a label follows each, "" that of a constant."""
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return "".join([_joint(part, label) if label else str(part) for part, label in pairs])


def _filled(value: Any, label: str) -> Any:
    if label and (value is None or (isinstance(value, str) and not value.strip())):
        raise _missing(label)
    return value


def _joint(value: Any, label: str) -> str:
    if isinstance(value, list | tuple):
        raise TypeError("a list has no borders inside of a text")
    return key_text(value, label)


class _Strict(NodeTransformer):
    """Rewrites an expression so that each step is strict and knows how it is spelled."""

    def __init__(self, source: str) -> None:
        self.source = source

    def _through(self, method: str, *arguments: object) -> nodes.Call:
        parts = [a if isinstance(a, nodes.Expr) else nodes.Const(a) for a in arguments]
        return nodes.Call(nodes.EnvironmentAttribute(method), parts, [], None, None)

    def _label(self, node: nodes.Expr) -> str:
        return "" if isinstance(node, nodes.Const) else spelling(node) or self.source

    def _member(self, node: nodes.Getattr | nodes.Getitem, to_call: bool) -> nodes.Call:
        label = self._label(node)
        name = nodes.Const(node.attr) if isinstance(node, nodes.Getattr) else self.visit(node.arg)
        return self._through("member", self.visit(node.node), name, label, to_call)

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802 (Jinja's way of naming)
        return self._member(node, to_call=False)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        if isinstance(node.arg, nodes.Slice):
            return self.generic_visit(node)
        return self._member(node, to_call=False)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        if isinstance(node.node, nodes.Getattr):
            node.node = self._member(node.node, to_call=True)
        return self.generic_visit(node)

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        return self._through("added", *self._labelled([node.left, node.right]))

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return self._through("joined", *self._labelled(node.nodes))

    def _labelled(self, parts: list[nodes.Expr]) -> list[object]:
        return [x for part, label in [(p, self._label(p)) for p in parts] for x in (self.visit(part), label)]


def spelling(node: nodes.Node) -> str:
    """Return how a chain of members is written, or "" for anything else."""
    match node:
        case nodes.Name():
            return node.name
        case nodes.Getattr() if inner := spelling(node.node):
            return f"{inner}.{node.attr}"
        case nodes.Getitem(arg=nodes.Const() as index) if inner := spelling(node.node):
            return f"{inner}[{index.value!r}]"
    return ""


_environment: Final = _Environment()


class Expression:
    """An expression that gives a key, compiled once.

    :param option: the option it was written in, for messages, as ``key``.
    :param source: the expression.
    :raises ValueError: it is no expression, or one that cannot give a key; the message names option and mistake.
    """

    def __init__(self, option: str, source: str) -> None:
        self.source = source
        """The expression as it was written."""
        try:
            tree = _parse(source)
            self.names = frozenset(find_undeclared_variables(_template(nodes.Output([tree]))))
            """The top-level names it uses."""
            self.parts = tuple(spelling(n) or f"{source}[{i}]" for i, n in enumerate(_items(tree)))
            """What messages call the parts of a list."""
            self._evaluate = _compile(source, tree)
        except TemplateSyntaxError as error:
            raise ValueError(f"{option}={source!r} is no expression: {error.message}") from None

    def __call__(self, names: Mapping[str, Any]) -> Any:
        """Return the value, which :func:`flask_idempotent.core.keys.key_text` makes a key of.

        :param names: the top-level names; only those that the expression uses are looked up.
        :raises KeyMissing: something it needs is missing; the message names it.
        :raises KeyInvalid: it cannot be evaluated with what the client sent.
        """
        used = {name: names[name] for name in self.names if name in names}
        try:
            return self._evaluate(used)
        except UndefinedError as error:
            raise _missing(error.message or self.source) from error
        except _CLIENTS_FAULT as error:
            raise KeyInvalid(f"No idempotency key can be made of {self.source} with what was sent.") from error

    def key(self, names: Mapping[str, Any]) -> str:
        """Return the key's text.

        :param names: as for calling it.
        :raises KeyMissing: it, or a part of it, is missing, null or empty; the message names it.
        :raises KeyInvalid: it cannot be evaluated, or what it gives can be no key.
        """
        return key_text(self(names), self.source, self.parts)


def known_names(expression: Expression) -> frozenset[str]:
    """Return the top-level names that an expression uses, for a look at their spelling."""
    return expression.names


def _parse(source: str) -> nodes.Expr:
    parser = Parser(_environment, source, state="variable")
    tree = parser.parse_expression()
    if not parser.stream.eos:
        raise TemplateSyntaxError("nothing may follow it; several parts are written (a, b)", 1)
    for node in [tree, *tree.find_all(nodes.Expr)]:
        _refuse(node)
    return tree


def _refuse(node: nodes.Node) -> None:
    match node:
        case nodes.Mul() | nodes.Pow():
            raise TemplateSyntaxError("with * or ** a client could fill the memory", 1)
        case nodes.CondExpr(expr2=None):
            raise TemplateSyntaxError("an if needs an else", 1)
        case nodes.Getattr(attr=str(name)) if name.startswith("__") and name.endswith("__"):
            raise TemplateSyntaxError(f"{name} is out of reach", 1)


def _template(statement: nodes.Stmt) -> nodes.Template:
    tree = nodes.Template([statement], lineno=1)
    tree.set_environment(_environment)
    return tree


def _compile(source: str, tree: nodes.Expr) -> TemplateExpression:
    strict = cast("nodes.Expr", _Strict(source).visit(tree))
    assignment = nodes.Assign(nodes.Name("result", "store"), strict, lineno=1)
    return TemplateExpression(_environment.from_string(_template(assignment)), undefined_to_none=False)


def _items(tree: nodes.Expr) -> list[nodes.Expr]:
    return list(tree.items) if isinstance(tree, nodes.Tuple | nodes.List) else []
