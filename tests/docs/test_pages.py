"""What the pages list is what there is, and README shows what runs."""

from __future__ import annotations

import ast
import logging
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import flask_idempotent
from flask_idempotent import config, signals
from flask_idempotent.core import events
from flask_idempotent.core.errors import IdempotencyError
from flask_idempotent.extension import state_of
from flask_idempotent.web.marks import Mark
from tests import helpers

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.rst"), *DOCS.glob("*.md")])


def page(name: str) -> str:
    return (DOCS / f"{name}.rst").read_text(encoding="utf-8")


def rows(name: str, number: int = 0) -> list[list[str]]:
    """The cells of a page's first list-table, or of a later one, without its header."""
    table = page(name).split(".. list-table::")[1 + number].split("\n\n", 1)[1]
    table = re.split(r"\n(?=\S)", table)[0]
    cells = [re.split(r"\n +- ", row.strip().removeprefix("- ")) for row in re.split(r"(?:^|\n) +\* ", table)[1:]]
    return [[" ".join(cell.split()) for cell in row] for row in cells[1:]]


def literal(cell: str) -> str:
    return cell.removeprefix("``").removesuffix("``")


def subclasses(kind: type[IdempotencyError]) -> set[type[IdempotencyError]]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


def test_the_configuration_table_is_the_table_of_defaults() -> None:
    written = {literal(key): ast.literal_eval(literal(default)) for key, default, _ in rows("configuration")}
    assert written == {config.PREFIX + name: default for name, default in config.DEFAULTS.items()}
    assert list(written) == [config.PREFIX + name for name in config.DEFAULTS]


@pytest.mark.case("S7")
def test_the_articles_members_have_the_defaults_that_are_written() -> None:
    """Each row of that table names options of the decorator or settings, and the default is theirs."""
    options = {field.name: field.default for field in fields(Mark)} | {"source": Mark(where="").sources[0]}
    table = rows("configuration", 1)
    written = {there: (here, ast.literal_eval(literal(default))) for there, _, here, default in table}
    for here, default in written.values():
        settings, named = re.findall(r"IDEMPOTENCY_(\w+)", here), re.findall(r"``(\w+)=``", here)
        assert settings or named, here
        assert set(named) <= set(options), here
        if "``name=``" in here and not settings:
            continue
        expected = [config.DEFAULTS[name] for name in settings] or [options[named[0]]]
        assert set(expected) == {default}, here
    rules = state_of(helpers.make_app()).rules_of_hidden(Mark(where=""), "any")
    assert written["parameter name"][1] == rules.key_param


def test_each_refusal_is_listed_with_its_status() -> None:
    written = {literal(name): (int(status), literal(reason)) for _, status, reason, name in rows("_answers")}
    later = page("api").split("For later versions; nothing raises these yet:", 1)[1].split("\n\n")[1]
    named_later = set(re.findall(r"autoexception:: (\w+)", later))
    exported = {kind for kind in subclasses(IdempotencyError) if kind.__name__ in flask_idempotent.__all__}
    exported = {kind for kind in exported if kind.__module__ == IdempotencyError.__module__} - {IdempotencyError}
    assert {kind.__name__ for kind in exported} == set(written) | named_later
    assert not set(written) & named_later
    real = {kind.__name__: (kind.status, kind.reason) for kind in exported if kind.__name__ in written}
    assert written == real


def test_each_event_is_listed_with_its_level() -> None:
    table = page("answers").split("Events, logs and signals", 1)[1]
    written = dict(re.findall(r"\* - ``(\w+)``\n     - (\w+)", table))
    assert written == {name: logging.getLevelName(level) for name, level in events.LEVELS.items()}
    assert set(written) == set(signals.ALL)
    assert {name: getattr(signals, name, None) for name in signals.ALL} == signals.ALL  # "under its name"


def test_the_api_page_has_every_exported_name() -> None:
    text = page("api")
    missing = [name for name in flask_idempotent.__all__ if not re.search(rf"\b{name}\b", text)]
    assert missing == ["__version__"]


def test_each_option_of_the_decorator_is_described() -> None:
    doc: Any = flask_idempotent.idempotent.__doc__
    described = set(re.findall(r":param (\w+):", doc))
    assert described == set(Mark.__dataclass_fields__) - {"where", "sources"} | {"source"}


def test_readme_shows_the_program_that_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = (DOCS / "examples" / "readme.py").read_text(encoding="utf-8")
    assert f"```python\n{program}```\n" in readme


def test_readme_names_commands_that_there_are() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    usage = (ROOT / "dev").read_text(encoding="utf-8")
    commands = set(re.findall(r"\./dev (\w+)", readme))
    assert {"demo", "test"} <= commands
    assert [command for command in commands if f"./dev {command} " not in usage] == []


def test_every_example_is_shown() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in PAGES) + "examples/readme.py"
    assert [path.name for path in (DOCS / "examples").glob("*.py") if f"examples/{path.name}" not in pages] == []


def test_no_default_is_repeated_outside_the_table() -> None:
    """A number that stands in two places is wrong in one of them some day."""
    for path in PAGES:
        if path.stem != "configuration":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\b(?:86400|1048576|300 s(?:econds)?|1 MiB)\b", text), path.name
