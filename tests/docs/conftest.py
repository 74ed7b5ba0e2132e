"""The programs of docs/examples, each loaded afresh."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
Load = Callable[..., ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """``load("quickstart")`` runs the file and returns its module."""

    def run(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"docs_example_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return run


@pytest.fixture(autouse=True)
def _modules_forgotten() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith("docs_example_")]:
        del sys.modules[name]
