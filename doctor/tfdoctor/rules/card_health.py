"""The card's memory is damaged, or the driver asks for a reset.

What it means
-------------
Cards with error-correcting memory (ECC) count the errors that could not be corrected, and replace bad rows or pages
by spare ones at the next reset. According to NVIDIA, a pending replacement does not disturb programs. A failed one
means that the spares are used up. The driver also reports if the GPU has to be reset before it can compute again.

How it is seen
--------------
`nvidia-smi -q -x` shows the volatile uncorrected counters, retired pages, remapped rows, and the recovery action.
Cards without ECC have none of these.

What to do
----------
Reset the GPU or restart the machine; if remapping has failed, have the GPU replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import GPU, Result, Rule, RuleContext
from tfdoctor.rules.shared import card_status, drivers

if TYPE_CHECKING:
    from tfdoctor.core.facts import GpuCondition, SmiGpu


def check(context: RuleContext) -> Result:
    findings = []
    for gpu, condition in card_status.list_gpu_conditions(context):
        errors, repairs = _list_errors(condition), _list_pending_repairs(condition)
        if errors or repairs:
            findings.append(_build_finding(context, gpu, errors, repairs))
    return findings


def _list_errors(condition: GpuCondition) -> list[str]:
    """Return the errors that need a reset or a new GPU, one phrase each."""
    errors = []
    if condition.recovery:
        errors.append(f"the driver asks for: {condition.recovery}")
    if condition.uncorrected:
        errors.append(
            f"{condition.uncorrected} memory errors since the driver was loaded could not be corrected"
        )
    if condition.remap_failure:
        errors.append("a bad row of the memory could not be replaced (row remapping has failed)")
    return errors


def _list_pending_repairs(condition: GpuCondition) -> list[str]:
    """Return the repairs that the next reset will make, one phrase each."""
    repairs = []
    if condition.remap_pending:
        repairs.append("a bad row of the memory is to be replaced at the next reset")
    if condition.retirement_pending:
        repairs.append("a bad page of the memory is to be retired when the driver is loaded again")
    return repairs


def _build_finding(context: RuleContext, gpu: SmiGpu, errors: list[str], repairs: list[str]) -> Finding:
    """Return the finding about a GPU: a warning for errors, information for pending repairs alone."""
    sudo, name = get_sudo_prefix(context.target), card_status.format_smi_gpu(gpu)
    problems = [*errors, *repairs]
    remedies = []
    if context.facts.machine.container or context.facts.machine.wsl:
        remedies.append(Remedy("The host's administrator has to reset the card or restart the machine."))
    else:
        remedies.append(
            Remedy(
                "Reset the card; no program may be using it, and a card that drives a display cannot be "
                "reset this way.",
                (f"{sudo}nvidia-smi --gpu-reset -i {gpu.index or 0}",),
                changes_system=True,
            )
        )
        remedies.append(drivers.make_reboot_remedy(context, "Or restart the machine."))
    if errors:
        remedies.append(
            Remedy("If it recurs, or remapping has failed, have the card replaced; these are its counters.",
                   (f"nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i {gpu.index or 0}",))
        )  # fmt: skip
    return RULE.make_finding(
        Cause.INCONCLUSIVE,
        Severity.WARNING if errors else Severity.INFO,
        f"{name}: {'; '.join(problems)}.",
        title="The card's memory has errors, or it needs a reset"
        if errors
        else "The card will fix its memory at the next reset",
        evidence=[Evidence("nvidia-smi -q -x", f"{name}: {line}") for line in problems],
        remedies=remedies,
    )


RULE = Rule(
    "TFD121",
    "card-health",
    "The card's memory has errors, or the driver asks for a reset",
    (Cause.INCONCLUSIVE,),
    check,
    short_title="memory errors, or a reset is due",
    needs=(card_status.require_gpu_conditions,),
    area=GPU,
)
