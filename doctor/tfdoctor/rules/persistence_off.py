"""The driver shuts the card down whenever no program uses it (persistence mode is off).

What it means
-------------
On a server without a screen, the driver shuts a GPU down when the last program stops using it, and starts
it again for the next one. Each start of TensorFlow then takes a second or more longer for each GPU, and
settings such as power limits and error counters are lost in between. Nothing fails.

How it is seen
--------------
`nvidia-smi -q -x` reports persistence mode off for a GPU that has no screen and no running program. Only
GPUs with ECC memory, as in servers, are reported.

What to do
----------
Run NVIDIA's persistence daemon.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import card_status


def _require_host(context: RuleContext) -> NotApplicable | None:
    if context.facts.machine.container or context.facts.machine.wsl:
        return NotApplicable("the host decides over its cards' persistence")
    return None


def check(context: RuleContext) -> Result:
    gpu_conditions = card_status.list_gpu_conditions(context)
    affected_gpus = [
        gpu
        for gpu, condition in gpu_conditions
        if condition.persistence is False
        and condition.ecc
        and condition.display is False
        and not gpu.processes
    ]
    if not affected_gpus:
        return ()
    sudo = get_sudo_prefix(context.target)
    names = ", ".join(card_status.format_smi_gpu(gpu) for gpu in affected_gpus)
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.INFO,
            f"{names}: persistence mode is off, so the driver starts the card again for each program. That costs "
            "time at each start and loses the card's settings.",
            title="The driver shuts the card down between programs",
            evidence=[
                Evidence("nvidia-smi -q -x", f"{card_status.format_smi_gpu(gpu)}: persistence_mode Disabled")
                for gpu in affected_gpus
            ],
            remedies=[
                Remedy(
                    "Let the persistence daemon run; it comes with the driver.",
                    (f"{sudo}systemctl enable --now nvidia-persistenced",),
                    changes_system=True,
                )
            ],
        )
    ]


RULE = Rule(
    "TFD124",
    "persistence-off",
    "The driver shuts the card down between programs",
    (Cause.INCONCLUSIVE,),
    check,
    short_title="shuts the card down between programs",
    needs=(
        _require_host,
        card_status.require_gpu_conditions,
    ),
)
