"""TFD122, card-slowed."""

from __future__ import annotations

import pytest

from rules.kernel_facts import find_findings, make_report, with_health
from tfdoctor.core.facts import GpuCondition
from tfdoctor.rules import card_slowed


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (GpuCondition(slowdowns=("sw_power_cap",)), None),
        (GpuCondition(slowdowns=("hw_slowdown", "hw_thermal_slowdown"), temperature=97), "97 °C"),
        (GpuCondition(slowdowns=("hw_power_brake_slowdown",)), "power supply"),
        (GpuCondition(power_limit=300.0, power_default=350.0), None),
        (GpuCondition(power_limit=150.0, power_default=350.0), "150 W"),
        (GpuCondition(power_limit=150.0), None),
    ],
)
def test_card_slowed(health: GpuCondition, said: str | None) -> None:
    findings = find_findings(make_report(with_health(health)), card_slowed.RULE.code)
    assert bool(findings) is (said is not None)
    if said is not None:
        assert said in findings[0].explanation
