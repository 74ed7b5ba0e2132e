"""The edits of a Lua file: each condition and each write, one at a time.

It reads tokens, not the grammar: an operand at the outermost level ends with its line, as everywhere in these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.campaigns._mutants import Edit

TOKEN = re.compile(
    r"(?P<skip>--[^\n]*|[ \t]+)|(?P<line>\n)|(?P<string>'(?:\\.|[^'\\\n])*')|(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<symbol>\.\.\.|\.\.|[~=<>]=|[-+*/%#<>=(){}\[\],.;])"
)
COMPARISONS = {
    "==": ["~="],
    "~=": ["=="],
    "<": ["<=", ">="],
    "<=": ["<", ">"],
    ">": [">=", "<="],
    ">=": [">", "<"],
}
INSTEAD = {"+": "-", "-": "+", "*": "/", "/": "*", "true": "false", "false": "true", "max": "min", "ceil": "floor"}
INSTEAD |= {"pcall": "call"}
ENDS = {"if", "elseif", "then", "return", "else", "do", "end", "local", "=", ",", "\n"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int
    depth: int  # of the brackets around it


def edits(text: str) -> Iterator[Edit]:
    """Every edit of the file."""
    file = _File(text)
    for at, token in enumerate(file.tokens):
        for new in COMPARISONS.get(token.text, []):
            yield Edit(token.start, token.end, new)
        if token.text in INSTEAD and not file.is_conversion(at):
            yield Edit(token.start, token.end, INSTEAD[token.text])
        if token.text in ("and", "or"):
            yield from file.without_one(at)
        elif token.text in ("if", "elseif"):
            yield from file.condition(at)
        elif token.text == "not":
            yield Edit(token.start, file.tokens[at + 1].start, "")
        elif token.text in ("{", "max"):
            yield from file.without_items(at if token.text == "{" else at + 1)
        elif token.kind == "number":
            yield from _numbers(token.start, token.text, file.steps(at))
        elif token.kind == "string":
            yield from file.strings(at)
    yield from file.statements()


def _numbers(start: int, digits: str, steps: tuple[int, ...] = (1, -1)) -> Iterator[Edit]:
    for new in (int(digits) + step for step in steps):
        if new >= 0:
            yield Edit(start, start + len(digits), str(new))


class _File:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[_Token] = []
        at = depth = 0
        while at < len(text):
            found = TOKEN.match(text, at)
            assert found, f"not Lua as it is spoken here: {text[at : at + 40]!r}"
            at, kind = found.end(), str(found.lastgroup)
            depth -= found[0] in ")}]"
            if kind != "skip":
                self.tokens.append(_Token(kind, found[0], found.start(), found.end(), depth))
            depth += found[0] in "({["

    def is_conversion(self, at: int) -> bool:
        """``digits + 0`` is a number, and ``digits - 0`` the same one."""
        return self.tokens[at].text in "+-" and self.tokens[at + 1].text == "0"

    def without_one(self, at: int) -> Iterator[Edit]:
        """Drop each operand of an ``and`` or ``or``: put what changes nothing in its place."""
        operator = self.tokens[at]
        neutral = "true" if operator.text == "and" else "false"
        ends = ENDS | ({"and", "or"} if operator.text == "and" else {"or"})
        left, right = at - 1, at + 1
        while not self._is_end(left - 1, operator.depth, ends):
            left -= 1
        while not self._is_end(right + 1, operator.depth, ends):
            right += 1
        while self.tokens[left].kind == "line":
            left += 1
        yield Edit(self.tokens[left].start, self.tokens[at - 1].end, neutral)
        if self.tokens[at + 1].text != "nil":
            yield Edit(self.tokens[at + 1].start, self.tokens[right].end, neutral)

    def _is_end(self, at: int, depth: int, ends: set[str]) -> bool:
        if not 0 <= at < len(self.tokens):
            return True
        token = self.tokens[at]
        if token.depth < depth:
            return True
        return token.depth == depth and token.text in ends and not (token.text == "\n" and depth)

    def condition(self, at: int) -> Iterator[Edit]:
        """A condition that always holds, one that never does."""
        then = next(n for n in range(at, len(self.tokens)) if self.tokens[n].text == "then")
        for always in ("true", "false"):
            yield Edit(self.tokens[at + 1].start, self.tokens[then - 1].end, always)

    def without_items(self, at: int) -> Iterator[Edit]:
        """Drop each item of a table, each operand of max."""
        inner = self.tokens[at].depth + 1
        last = next(n for n in range(at + 1, len(self.tokens)) if self.tokens[n].depth < inner)
        commas = [n for n in range(at + 1, last) if self.tokens[n].depth == inner and self.tokens[n].text == ","]
        edges = [at, *commas, last]
        for left, right in pairwise(edges):
            item = [t for t in self.tokens[left + 1 : right] if t.kind != "line"]
            if item and right != last:
                yield Edit(item[0].start, self.tokens[right].end, "")
            elif item:
                yield Edit(item[0].start if left == at else self.tokens[left].start, item[-1].end, "")

    def steps(self, at: int) -> tuple[int, ...]:
        """By how much a number is moved."""
        before, after = self.tokens[at - 1].text, self.tokens[at + 1 : at + 2]
        if before == "[":
            return (1,)  # the one before would be an index, too: once is enough
        if before == "return" and (not after or after[0].text in ("\n", "end")):
            return (-1,)  # a reply: whatever is not 0 says the same
        return (1, -1)

    def strings(self, at: int) -> Iterator[Edit]:
        token = self.tokens[at]
        if token.text in ("'NX'", "'PXAT'"):
            last = at + 1
            if token.text == "'PXAT'":  # with its moment
                last += 1
                while not (self.tokens[last].depth == token.depth and self.tokens[last].text == ","):
                    last += 1
            yield Edit(self.tokens[at - 1].start, self.tokens[last - 1].end, "")
        elif "%" in token.text:  # a pattern or a format
            for number in re.finditer(r"\d", token.text):
                yield from _numbers(token.start + number.start(), number[0])
            for sign in re.finditer(r"[*+^](?!\))|[*+](?=\))", token.text):
                place = token.start + sign.start()
                yield Edit(place, place + 1, {"*": "+", "+": "*", "^": ""}[sign[0]])

    def statements(self) -> Iterator[Edit]:
        """Drop each write: a call whose answer nobody wants, an assignment, a return in the middle."""
        for line in re.finditer(r"^( *)(.*)$", self.text, re.MULTILINE):
            start, statement = line.start(2), line[2]
            if any(statement.count(a) != statement.count(b) for a, b in ("()", "{}")):
                continue
            if re.match(r"[\w.]+\(.*\)$", statement) or (line[1] and re.match(r"return (?!nil$)", statement)):
                yield Edit(start, line.end(2), "")
            elif assigned := re.match(r"((?:\w+\.\w+(?:, )?)+) = (.*)$", statement):
                yield from self._assignments(start, assigned[1], assigned[2])

    def _assignments(self, start: int, names: str, values: str) -> Iterator[Edit]:
        """Drop one of ``a.x, a.y = 1, 2`` at a time."""
        targets, sources = names.split(", "), re.split(r", (?![^(]*\))", values)
        assert len(targets) == len(sources), values
        end = start + len(f"{names} = {values}")
        for n in range(len(targets)):
            kept = targets[:n] + targets[n + 1 :], sources[:n] + sources[n + 1 :]
            yield Edit(start, end, f"{', '.join(kept[0])} = {', '.join(kept[1])}" if kept[0] else "")
