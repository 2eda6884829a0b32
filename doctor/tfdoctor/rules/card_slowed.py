"""The card is being slowed down: too hot, too little power, or a limit that is set low.

What it means
-------------
A GPU lowers its clocks if it gets too hot or the power supply demands it. Hardware slowdown halves the clocks or
worse. Nothing fails, but training takes several times as long. A power limit below the GPU's default has a smaller
effect of the same kind. An idle GPU runs at low clocks and on a narrow link; that is normal and not reported.

How it is seen
--------------
`nvidia-smi -q -x` shows the clock event reasons that are active at this moment, the temperature, and the power limit
with its default. Reaching the power limit while computing (SW power cap) is normal and not reported.

What to do
----------
Check fans, dust, airflow and power cables. Reset the power limit if it is not intended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import GPU, Result, Rule, RuleContext
from tfdoctor.rules.shared import card_status

if TYPE_CHECKING:
    from tfdoctor.core.facts import GpuCondition, SmiGpu

SLOWDOWN_TEXTS = {
    "hw_thermal_slowdown": "it is too hot (hardware thermal slowdown: clocks halved or worse)",
    "hw_power_brake_slowdown": "the power supply throttles it (hardware power brake: clocks halved or worse)",
    "sw_thermal_slowdown": "it is near its highest temperature (software thermal slowdown)",
    "hw_slowdown": "a hardware slowdown is active (heat, power brake or too fast a rise of power)",
}
"""Texts for the clock event reasons, from NVML's documentation.

hw_slowdown comes last, because it is also active together with either of the two specific hardware reasons.
"""
MIN_POWER_LIMIT_RATIO = 0.8
"""The rule reports a power limit below this share of the default."""


def check(context: RuleContext) -> Result:
    gpu_conditions = card_status.list_gpu_conditions(context)
    return [
        finding
        for gpu, condition in gpu_conditions
        for finding in _build_card_findings(context, gpu, condition)
    ]


def _build_card_findings(context: RuleContext, gpu: SmiGpu, condition: GpuCondition) -> list[Finding]:
    """Return the findings about one GPU: a slowdown, a low power limit, both or none."""
    reasons = [SLOWDOWN_TEXTS[reason] for reason in SLOWDOWN_TEXTS if reason in condition.slowdowns]
    if len(reasons) > 1 and reasons[-1] == SLOWDOWN_TEXTS["hw_slowdown"]:
        reasons = reasons[:-1]  # the specific reason before it says the same
    name, findings = card_status.format_smi_gpu(gpu), []
    if reasons:
        temperature_text = (
            f" It is at {condition.temperature} °C." if condition.temperature is not None else ""
        )
        findings.append(
            RULE.make_finding(
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                f"{name}: {'; '.join(reasons)}.{temperature_text} It works, but more slowly than it could.",
                title="The card is being slowed down",
                evidence=[
                    Evidence("nvidia-smi -q -x", f"{name}: {reason}: Active")
                    for reason in condition.slowdowns
                ],
                remedies=[
                    Remedy(
                        "Look at fans, dust and airflow, and at the power cables; watch it while it computes.",
                        ("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER", "nvidia-smi dmon -s pucv"),
                    )
                ],
            )
        )
    limit, default = condition.power_limit, condition.power_default
    if limit and default and limit < default * MIN_POWER_LIMIT_RATIO:
        findings.append(_build_low_limit_finding(context, gpu, limit, default))
    return findings


def _build_low_limit_finding(context: RuleContext, gpu: SmiGpu, limit: float, default: float) -> Finding:
    """Return the finding about a power limit (in watts) that is far below the default."""
    name = card_status.format_smi_gpu(gpu)
    return RULE.make_finding(
        Cause.INCONCLUSIVE,
        Severity.INFO,
        f"{name}: the power limit is {limit:g} W, and its default is {default:g} W: it was lowered, so "
        f"the card computes more "
        "slowly.",
        title="The card's power limit is set low",
        evidence=[Evidence("nvidia-smi -q -x", f"{name}: limit {limit:g} W, default {default:g} W")],
        remedies=[
            Remedy(
                "Set it back to the default, unless the lower limit is intended.",
                (f"{get_sudo_prefix(context.target)}nvidia-smi -i {gpu.index or 0} -pl {default:g}",),
                changes_system=True,
            )
        ],
    )


RULE = Rule(
    "TFD122",
    "card-slowed",
    "The card is being slowed down",
    (Cause.INCONCLUSIVE,),
    check,
    short_title="slowed down",
    needs=(card_status.require_gpu_conditions,),
    area=GPU,
)
