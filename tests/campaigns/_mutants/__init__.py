"""Mutants: one small edit each of a file whose tests are on trial."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `new` where the file has the characters from `start` to `end`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """What one edit makes of a file. Its name holds no line numbers, so that lists of mutants outlive other changes."""

    file: str  # from the root of the project
    line: int  # 0 if that is not known
    was: str
    becomes: str
    nth: int  # of those that read the same
    text: str  # the whole file, edited

    @property
    def name(self) -> tuple[str, str, str, int]:
        return self.file, self.was, self.becomes, self.nth

    def __str__(self) -> str:
        place = f"{Path(self.file).name}:{self.line}" if self.line else Path(self.file).name
        return f"{place}  {self.was}  =>  {self.becomes or '(dropped)'}"


def mutants(file: str, text: str, edits: Iterable[Edit]) -> list[Mutant]:
    """Each edit applied by itself; edits that make the same file are one."""
    found: dict[str, Mutant] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for edit in sorted(edits, key=lambda e: (e.start, e.end, e.new)):
        edited = text[: edit.start] + edit.new + text[edit.end :]
        if edited == text or edited in found:
            continue
        first = text.rfind("\n", 0, edit.start) + 1
        last = text.find("\n", edit.end)
        last = len(text) if last < 0 else last
        was = _one_line(text[first:last])
        becomes = _one_line(text[first : edit.start] + edit.new + text[edit.end : last])
        seen[was, becomes] += 1
        found[edited] = Mutant(file, text.count("\n", 0, edit.start) + 1, was, becomes, seen[was, becomes], edited)
    return list(found.values())


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests made of a mutant; `killer` is None if none of them failed."""

    mutant: Mutant
    killer: str | None
    seconds: float


Reasons = dict[tuple[str, str, str, int], str]


def reasons(path: Path) -> Reasons:
    """The mutants that may survive, each with the reason why no test can tell it from the original."""
    listed = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    return {(m["file"], m["was"], m["becomes"], m.get("nth", 1)): m["why"] for m in listed}


def findings(outcomes: Sequence[Outcome], allowed: Reasons, all_mutants: Sequence[Mutant]) -> list[str]:
    """What is wrong: a survivor without a reason, a reason without a survivor or without a mutant."""
    wrong = []
    for outcome in outcomes:
        is_listed = outcome.mutant.name in allowed
        if outcome.killer is None and not is_listed:
            wrong.append(f"survived: {outcome.mutant}")
        if outcome.killer is not None and is_listed:
            wrong.append(f"listed as equivalent, but killed by {outcome.killer}: {outcome.mutant}")
    names = {mutant.name for mutant in all_mutants}
    wrong += [f"listed as equivalent, but there is no such mutant: {name}" for name in allowed if name not in names]
    return wrong
