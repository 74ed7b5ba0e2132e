"""What is installed is what stands in the package's folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile

from tests.live import ROOT

PACKAGE = ROOT / "flask_idempotent"


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("flask_idempotency-*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert held == {str(path.relative_to(ROOT)) for path in files}
    assert {"flask_idempotent/py.typed", "flask_idempotent/stores/redis/claim.lua"} <= held
