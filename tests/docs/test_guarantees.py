"""Every row of docs/guarantees names tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.campaigns.explore import BROKEN_BY_A_FAILOVER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.rst").read_text(encoding="utf-8")
NOTES = dict(re.findall(r"^\.\. \[#([\w-]+)\]((?:.|\n(?=   ))*)", PAGE, re.MULTILINE))
NODE = re.compile(r"``(tests/[\w/]+\.py)::([\w:]+)``")
FAILURES = ("dies", "freezes", "reply is lost", "with its data", "without its data", "failover", "eviction")
FAILURES += ("memory full", "clock jumps", "cut off")


@cache
def named_in(file: str) -> set[str]:
    """The tests of a file, with their class if they have one."""
    found = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        within = [(f"{node.name}::", inner) for inner in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        found |= {prefix + inner.name for prefix, inner in within if isinstance(inner, ast.FunctionDef)}
    return {name for name in found if name.split("::")[-1].startswith("test_")}


def rows() -> list[str]:
    tables = PAGE.split(".. list-table::")[1:]
    return [row for table in tables for row in re.split(r"\n   \* - ", re.split(r"\n(?=\S)", table)[0])[2:]]


def test_each_test_that_is_named_exists() -> None:
    named = [node for note in NOTES.values() for node in NODE.findall(note)]
    assert len(named) > 25
    assert [f"{file}::{test}" for file, test in named if test not in named_in(file)] == []


def test_each_row_points_to_a_note_with_a_test() -> None:
    pointed = [re.findall(r"\[#([\w-]+)\]_", row) for row in rows()]
    assert [row for row, notes in zip(rows(), pointed, strict=True) if not notes] == []
    assert {note for notes in pointed for note in notes} == set(NOTES) - {"search"}
    assert [name for name, note in NOTES.items() if not NODE.search(note)] == []


def test_each_kind_of_failure_has_a_row() -> None:
    heads = " ".join(row.split("[#")[0].lower() for row in rows())
    assert [failure for failure in FAILURES if failure not in " ".join(heads.split())] == []


def test_the_lost_failover_is_said_not_to_keep_the_promise() -> None:
    (row,) = [row for row in rows() if "[#failover]_" in row]
    assert "**and run once more**" in " ".join(row.split())


def test_the_promises_that_a_lost_failover_breaks_are_those_that_the_search_finds() -> None:
    (section,) = re.findall(r"promises then break \[#search\]_:\n\n(.*?)\n\n", PAGE, re.DOTALL)
    said = {
        " ".join(promise.split()).rstrip(":,").lower() for promise in re.findall(r"\*\*(.*?)\*\*", section, re.DOTALL)
    }
    assert said == BROKEN_BY_A_FAILOVER
