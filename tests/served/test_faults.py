"""The campaign of faults, 24 seconds of it; and what it finds where the product is broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns import faults
from tests.campaigns._faults import report

pytestmark = [pytest.mark.service("valkey91", "faketime"), pytest.mark.slow]


@pytest.mark.case("S4", "S5", "FAIL-03", "FAIL-05")
@pytest.mark.timeout(200)
def test_whatever_fails_no_promise_is_broken(tmp_path: Path) -> None:
    history, findings = faults.play(tmp_path / "run", 24, seed=1)

    assert findings.complaints == [], "\n".join(report.lines(history, findings))
    assert findings.counts["double effects against the promise"] == 0
    assert findings.counts["effects"] > 30
    assert len({fault.kind for fault in history.faults}) > 15


@pytest.mark.parametrize(
    ("sabotage", "habits", "seconds"), [("claims-what-is-held", "usual", 4), ("no-heartbeat", "slow", 8)]
)
@pytest.mark.timeout(120)
def test_double_effects_of_a_broken_product_are_found(
    tmp_path: Path, sabotage: str, habits: str, seconds: float
) -> None:
    _, findings = faults.play(tmp_path / "run", seconds, seed=1, lanes=(), habits=habits, sabotage=sabotage)

    assert findings.counts["double effects against the promise"] > 0
