"""What the package offers by name."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import types
from importlib.resources import files

import pytest

import flask_idempotent
from flask_idempotent import IdempotencyError
from flask_idempotent.core import errors
from tests.live import ROOT

STATUSES = {
    "token_missing": 400,
    "token_invalid": 400,
    "token_unknown": 409,
    "scene_invalid": 400,
    "token_foreign": 403,
    "key_missing": 400,
    "key_invalid": 400,
    "token_reused": 422,
    "key_reused": 422,
    "in_progress": 409,
    "duplicate": 409,
    "response_unavailable": 409,
    "failed": 409,
    "record_invalid": 409,
    "locked": 409,
    "too_soon": 429,
    "stale_version": 409,
    "exists": 409,
    "store_unavailable": 503,
}


def test_all_is_sorted_without_doubles_and_complete():
    names = flask_idempotent.__all__
    assert names == sorted(set(names))
    public = {
        name
        for name, value in vars(flask_idempotent).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(names) - {"__version__"}


def test_what_users_need_is_there():
    assert {"Idempotency", "idempotent", "current_claim", "IdempotencyError", "idempotency_token"} <= set(
        flask_idempotent.__all__
    )


def test_every_exported_name_has_a_docstring_or_a_text():
    for name in flask_idempotent.__all__:
        value = getattr(flask_idempotent, name)
        if name != "__version__":
            assert inspect.getdoc(value) or getattr(value, "text", None), name


def test_init_does_nothing_but_re_export():
    source = (files("flask_idempotent") / "__init__.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        names = [target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name)]
        assert docstring or isinstance(node, ast.ImportFrom) or names == ["__all__"], ast.unparse(node)


@pytest.mark.parametrize("reason", STATUSES)
def test_each_reason_is_an_exported_class_of_its_name(reason):
    name = reason.title().replace("_", "")
    error = getattr(flask_idempotent, name)
    assert name in flask_idempotent.__all__
    assert issubclass(error, IdempotencyError)
    assert (error.reason, error.status) == (reason, STATUSES[reason])
    made = error()
    assert made.reason == reason
    assert made.message == str(made) == error.text
    assert error.cure


def test_no_other_reason_exists():
    found = {
        value.reason: name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, IdempotencyError) and not name.startswith("_")
    }
    found.pop(IdempotencyError.reason)
    assert set(found) == set(STATUSES)


def test_the_version_is_that_of_the_distribution():
    assert flask_idempotent.__version__ == importlib.metadata.version("flask-idempotency")
    assert re.match(r"\d+\.\d+", flask_idempotent.__version__)


def test_the_package_is_typed_and_carries_its_files():
    package = files("flask_idempotent")
    assert (package / "py.typed").is_file()
    assert (package / "web" / "templates" / "idempotency" / "problem.html").is_file()
    for script in ("issue", "claim", "settle"):
        assert (package / "stores" / "redis" / f"{script}.lua").is_file()


def test_every_module_says_what_it_is():
    package = ROOT / "flask_idempotent"
    for path in sorted(package.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        assert module.__doc__ or path.name == "_version.py", name
