"""The virtual GPU has no licence.

What it means
-------------
A virtual GPU (NVIDIA vGPU, formerly GRID) needs a licence from a licence server. According to NVIDIA's
licensing guide, it starts at full speed without one, is slowed down after a while, and CUDA is refused or
its resources are limited.

How it is seen
--------------
`nvidia-smi -q -x` reports "Unlicensed" for the GPU.

What to do
----------
Give the machine its client token and restart the licensing service; check whether it can reach the licence
server.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import GPU, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import card_status


def check(context: RuleContext) -> Result:
    gpu_conditions = card_status.list_gpu_conditions(context)
    virtual_gpus = [(gpu, condition) for gpu, condition in gpu_conditions if condition.licence]
    if not virtual_gpus:
        return NotApplicable("no card here is a virtual GPU that reports a licence")
    unlicensed_gpus = [
        (gpu, condition)
        for gpu, condition in virtual_gpus
        if (condition.licence or "").lower().startswith("unlicensed")
    ]
    if not unlicensed_gpus:
        return ()
    sudo = get_sudo_prefix(context.target)
    names = ", ".join(card_status.format_smi_gpu(gpu) for gpu, _ in unlicensed_gpus)
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            f"{names}: the virtual GPU has no licence. It is slowed down some time after the start, and CUDA programs "
            "may then fail.",
            title="The virtual GPU has no licence",
            evidence=[
                Evidence("nvidia-smi -q -x", f"{card_status.format_smi_gpu(gpu)}: {condition.licence}")
                for gpu, condition in unlicensed_gpus
            ],
            remedies=[
                Remedy(
                    "Put the client token of your licence server into /etc/nvidia/ClientConfigToken, then ask again.",
                    (
                        "ls -l /etc/nvidia/ClientConfigToken /etc/nvidia/gridd.conf",
                        f"{sudo}systemctl restart nvidia-gridd",
                        f"{sudo}journalctl -u nvidia-gridd -n 20 --no-pager",
                    ),
                    changes_system=True,
                )
            ],
        )
    ]


RULE = Rule(
    "TFD123",
    "vgpu-unlicensed",
    "The virtual GPU has no licence",
    (Cause.INCONCLUSIVE,),
    check,
    short_title="no licence",
    needs=(card_status.require_gpu_conditions,),
    area=GPU,
)
