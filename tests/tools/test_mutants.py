"""The machinery of ./dev campaign lua: what it edits, how it judges, and a sample that must be killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.campaigns import _mutants, lua
from tests.campaigns._mutants import Outcome, findings, mutants
from tests.campaigns._mutants import lua as lua_file
from tests.campaigns._mutants import python as python_file


def edited_lua(text: str) -> set[str]:
    return {mutant.text for mutant in mutants("x.lua", text, lua_file.edits(text))}


def edited_python(text: str) -> set[str]:
    return {mutant.text for mutant in mutants("x.py", text, python_file.edits(text))}


def test_each_condition_of_lua_is_dropped_negated_and_moved_by_one():
    assert edited_lua("if a >= b and not c then return 'x' end") == {
        "if true then return 'x' end",
        "if false then return 'x' end",
        "if true and not c then return 'x' end",
        "if a >= b and true then return 'x' end",
        "if a >= b and c then return 'x' end",
        "if a > b and not c then return 'x' end",
        "if a < b and not c then return 'x' end",
    }


def test_each_write_of_lua_loses_each_of_its_parts():
    assert edited_lua("r.a, r.b = x, f(y, z)") == {"r.b = f(y, z)", "r.a = x"}
    assert edited_lua("write(key, {a = x, b = y})") == {"", "write(key, { b = y})", "write(key, {a = x})"}
    assert edited_lua("redis.call('SET', key, v, 'PXAT', f(1), 'NX')") >= {
        "redis.call('SET', key, v, 'NX')",
        "redis.call('SET', key, v, 'PXAT', f(1))",
    }
    assert edited_lua("local m = math.max(a, b)") == {
        "local m = math.min(a, b)",
        "local m = math.max( b)",
        "local m = math.max(a)",
    }


def test_operands_end_where_the_expression_does():
    assert edited_lua("local a = b and c or nil\nlocal d = (e or f)\n") == {
        "local a = true and c or nil\nlocal d = (e or f)\n",
        "local a = b and true or nil\nlocal d = (e or f)\n",
        "local a = false or nil\nlocal d = (e or f)\n",
        "local a = b and c or nil\nlocal d = (false or f)\n",
        "local a = b and c or nil\nlocal d = (e or false)\n",
    }


def test_comments_are_not_edited():
    assert edited_lua("-- if a == 1 then it's over\n") == set()
    assert edited_python("# if a == 1\n'''if a == 1'''\n") == set()


def test_each_condition_and_field_of_python():
    assert edited_python("if a < b or not c: pass\n") == {
        "if True: pass\n",
        "if False: pass\n",
        "if False or not c: pass\n",
        "if a < b or False: pass\n",
        "if a < b or (c): pass\n",
        "if a <= b or not c: pass\n",
        "if a >= b or not c: pass\n",
    }
    assert edited_python("x = replace(r, a=b, c=max(d, 1))\n") == {
        "x = replace(r,  c=max(d, 1))\n",
        "x = replace(r, a=b)\n",
        "x = replace(r, a=b, c=min(d, 1))\n",
        "x = replace(r, a=b, c=max( 1))\n",
        "x = replace(r, a=b, c=max(d))\n",
        "x = replace(r, a=b, c=max(d, 2))\n",
        "x = replace(r, a=b, c=max(d, 0))\n",
    }
    assert edited_python("x = s in (A, B)\n") == {"x = s not in (A, B)\n", "x = s in (B, B)\n", "x = s in (A, A)\n"}


def test_every_mutant_can_be_loaded():
    """One that cannot would be killed by anything."""
    from lupa import lua51

    load = lua51.LuaRuntime().compile
    for mutant in lua.all_mutants():
        if mutant.file.endswith(".lua"):
            load(mutant.text)
        else:
            compile(mutant.text, mutant.file, "exec")


def test_names_tell_mutants_apart():
    everything = lua.all_mutants()
    assert len({mutant.name for mutant in everything}) == len(everything) > 800
    assert {Path(mutant.file).name for mutant in everything} == {
        *(
            "claim.lua",
            "get.lua",
            "issue.lua",
            "record.lua",
            "settle.lua",
            "unchanged.lua",
            "unclaimed.lua",
            "machine.py",
        )
    }


def test_a_survivor_needs_a_reason_and_a_reason_a_survivor():
    text = "if a == b then return end"
    first, second, third, *rest = mutants("x.lua", text, lua_file.edits(text))
    assert not rest
    outcomes = [Outcome(first, None, 1.0), Outcome(second, "test_x", 1.0), Outcome(third, None, 1.0)]
    allowed = {first.name: "why", second.name: "why", ("x.lua", "gone", "", 1): "why"}
    wrong = findings(outcomes, allowed, [first, second, third])
    assert wrong == [
        f"listed as equivalent, but killed by test_x: {second}",
        f"survived: {third}",
        "listed as equivalent, but there is no such mutant: ('x.lua', 'gone', '', 1)",
    ]
    assert findings(outcomes[:1], {first.name: "why"}, [first, second, third]) == []


def test_every_reason_belongs_to_a_mutant():
    assert findings([], _mutants.reasons(lua.EQUIVALENT), lua.all_mutants()) == []
    assert all(len(why) > 20 for why in _mutants.reasons(lua.EQUIVALENT).values())


SAMPLE = [
    (
        "claim.lua",
        "if now < record.held then return verdict_of(record) end",
        "if false then return verdict_of(record) end",
    ),
    (
        "claim.lua",
        "record.owner, record.fingerprint, record.result = owner, fingerprint, nil",
        "record.fingerprint, record.result = fingerprint, nil",
    ),
    (
        "issue.lua",
        "if not put(key, text, ends, 'NX') and read(fetch(key), now) == nil then",
        "if not put(key, text, ends) and read(fetch(key), now) == nil then",
    ),
    ("settle.lua", "if not record or record.owner ~= owner then", "if not record or false then"),
    ("settle.lua", "redis.call('DEL', key)", ""),
    ("machine.py", "if now < record.held_until:", "if now <= record.held_until:"),
    ("machine.py", "if record is None or record.owner != claim.owner:", "if record is None or False:"),
    ("machine.py", "if now >= record.issued_until:", "if False:"),
]


@pytest.mark.slow
@pytest.mark.service("valkey91")
@pytest.mark.timeout(240)
def test_a_sample_is_killed_and_the_project_itself_is_not_edited():
    everything = lua.all_mutants()
    by_name = {(Path(m.file).name, m.was, m.becomes): m for m in everything}
    chosen = [by_name[name] for name in SAMPLE]
    said: list[str] = []
    outcomes = list(lua.tried(chosen, 1, said.append, time.monotonic() + 200, original=False))
    assert [outcome.mutant for outcome in outcomes] == chosen
    assert [str(outcome.mutant) for outcome in outcomes if outcome.killer is None] == []
    assert all(outcome.killer.startswith("tests/") for outcome in outcomes if outcome.killer)
    assert lua.all_mutants() == everything
