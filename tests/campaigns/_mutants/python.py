"""The edits of a Python file: each condition and each field of a write, one at a time."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from itertools import accumulate

from tests.campaigns._mutants import Edit

COMPARISONS = {
    "==": ["!="],
    "!=": ["=="],
    "is": ["is not"],
    "is not": ["is"],
    "in": ["not in"],
    "not in": ["in"],
    "<": ["<=", ">="],
    "<=": ["<", ">"],
    ">": [">=", "<="],
    ">=": [">", "<"],
}
SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
}


def edits(text: str) -> Iterator[Edit]:
    """Every edit; the file must be ASCII, where columns are characters."""
    file = _File(text)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Compare():
                yield from file.comparisons(node)
            case ast.BoolOp():
                yield from file.without_one(node)
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                yield from file.between(node.left, node.right, *ARITHMETIC[type(node.op)])
            case ast.UnaryOp(op=ast.Not()):
                yield file.replace(node, f"({file.text_of(node.operand)})")
            case ast.If() | ast.IfExp():
                yield from (file.replace(node.test, always) for always in ("True", "False"))
            case ast.Constant():
                yield from (file.replace(node, str(value)) for value in others(node.value))
            case ast.Call():
                yield from file.calls(node)
            case ast.Tuple() if len(node.elts) > 1 and isinstance(node.ctx, ast.Load):
                yield from file.members(node)


def others(value: object) -> list[object]:
    """Constants to put in the place of one."""
    if isinstance(value, bool):
        return [not value]
    return [value + 1, value - 1] if isinstance(value, int) else []


class _File:
    def __init__(self, text: str) -> None:
        assert text.isascii()
        self.text = text
        self.lines = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]
        read = io.StringIO(text).readline
        tokens = tokenize.generate_tokens(read)
        self.commas = [self.lines[t.start[0] - 1] + t.start[1] for t in tokens if t.string == ","]

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def text_of(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def replace(self, node: ast.expr, new: str) -> Edit:
        return Edit(*self.span(node), new)

    def between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Edit]:
        """Another operator between two operands; brackets around them stay."""
        start, end = self.span(left)[1], self.span(right)[0]
        at = start + self.text[start:end].index(old)
        yield Edit(at, at + len(old), new)

    def comparisons(self, node: ast.Compare) -> Iterator[Edit]:
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            for new in COMPARISONS[SYMBOLS[type(op)]]:
                yield from self.between(left, right, SYMBOLS[type(op)], new)

    def without_one(self, node: ast.BoolOp) -> Iterator[Edit]:
        """Drop each operand of ``a and b and c``: put what changes nothing in its place."""
        for operand in node.values:
            yield self.replace(operand, "True" if isinstance(node.op, ast.And) else "False")

    def calls(self, node: ast.Call) -> Iterator[Edit]:
        """Drop each field of a record, each operand of max; min instead of max."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("max", "min"):
            yield self.replace(node.func, "min" if name == "max" else "max")
            for argument in node.args:
                yield self._drop_item(*self.span(argument))
        if name in ("replace", "Record"):
            for field in node.keywords:
                yield self._drop_item(*self.span(field))

    def members(self, node: ast.Tuple) -> Iterator[Edit]:
        """Drop each member of ``(A, B)`` behind ``in``; elsewhere a tuple is an answer, which other edits change."""
        before = self.text[: self.span(node)[0]].rstrip()
        if before.endswith(" in"):
            for n, item in enumerate(node.elts):
                yield self.replace(item, self.text_of(node.elts[n - 1]))

    def _drop_item(self, start: int, end: int) -> Edit:
        after = self.text[end:].lstrip()
        if after.startswith(","):
            return Edit(start, len(self.text) - len(after) + 1, "")
        return Edit(max(comma for comma in self.commas if comma < start), end, "")
