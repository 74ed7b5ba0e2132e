"""The switch of ./dev cases reaches apps in the test's process and apps behind a web server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.live import ROOT


@pytest.mark.parametrize(("off", "enabled"), [("1", "0"), ("0", "1")])
def test_the_product_can_be_switched_off_for_a_whole_run(off, enabled):
    env = {**os.environ, "IDEMPOTENCY_TESTS_OFF": off, "PROBE_ENABLED": enabled}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/tools/probe_off.py"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert "2 passed" in done.stdout, done.stdout
