"""The card is being slowed down: too hot, too little power, or a limit that is set low.

What it means
-------------
A card lowers its clocks when it gets too hot or the power supply demands it. Hardware slowdown halves the clocks or
worse. Nothing fails; training takes several times as long. A power limit below the card's default does the same,
less. An idle card runs at low clocks and on a narrow link; that is normal and not reported.

How it is seen
--------------
`nvidia-smi -q -x` at this moment: the active clock event reasons, the temperature, and the power limit beside its
default. Reaching the power limit while computing (SW power cap) is normal and not reported.

What to do
----------
Look at fans, dust, airflow and power cables. Set the power limit back where it is not meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.rules.base import GPU, Result, Rule, RuleContext
from tfdoctor.rules.shared import card_status

if TYPE_CHECKING:
    from tfdoctor.facts import CardHealth, SmiGpu

REASONS = {
    "hw_thermal_slowdown": "it is too hot (hardware thermal slowdown: clocks halved or worse)",
    "hw_power_brake_slowdown": "the power supply throttles it (hardware power brake: clocks halved or worse)",
    "sw_thermal_slowdown": "it is near its highest temperature (software thermal slowdown)",
    "hw_slowdown": "a hardware slowdown is active (heat, power brake or too fast a rise of power)",
}
"""NVML's documentation of clock event reasons. hw_slowdown stands for either of the two before it, too."""
LOW_LIMIT_RATIO = 0.8
"""A limit below this share of the default is worth telling."""


def check(context: RuleContext) -> Result:
    cards = card_status.list_card_conditions(context)
    return [finding for gpu, health in cards for finding in _look(context, gpu, health)]


def _look(context: RuleContext, gpu: SmiGpu, health: CardHealth) -> list[Finding]:
    said = [REASONS[reason] for reason in REASONS if reason in health.slowdowns]
    if len(said) > 1 and said[-1] == REASONS["hw_slowdown"]:
        said = said[:-1]
    name, findings = card_status.smi_gpu_label(gpu), []
    if said:
        hot = f" It is at {health.temperature} °C." if health.temperature is not None else ""
        findings.append(
            RULE.finding(
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                f"{name}: {'; '.join(said)}.{hot} It works, but more slowly than it could.",
                title="The card is being slowed down",
                evidence=[
                    Evidence("nvidia-smi -q -x", f"{name}: {reason}: Active") for reason in health.slowdowns
                ],
                remedies=[
                    Remedy(
                        "Look at fans, dust and airflow, and at the power cables; watch it while it computes.",
                        ("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER", "nvidia-smi dmon -s pucv"),
                    )
                ],
            )
        )
    limit, default = health.power_limit, health.power_default
    if limit and default and limit < default * LOW_LIMIT_RATIO:
        findings.append(_low_limit(context, gpu, limit, default))
    return findings


def _low_limit(context: RuleContext, gpu: SmiGpu, limit: float, default: float) -> Finding:
    name = card_status.smi_gpu_label(gpu)
    return RULE.finding(
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
                (f"{advice.sudo(context.target)}nvidia-smi -i {gpu.index or 0} -pl {default:g}",),
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
    row="slowed down",
    needs=(card_status.require_card_status,),
    area=GPU,
)
