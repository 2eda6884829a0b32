"""The card's device nodes in /dev are missing, or this user may not open them.

What it means
-------------
The driver is reached through /dev/nvidiactl, /dev/nvidia-uvm and one /dev/nvidiaN for each card. Where the
kernel module is loaded and one of these is missing or closed to this user, cuInit fails as if the driver
were broken or no card there.

How it is seen
--------------
The names in /dev, and whether the child process that asks the driver may open them for reading and writing.
Where cuInit has failed, it also tries: a node whose mode lets this user in and that the kernel refuses (EPERM) is
forbidden by a cgroup, as batch systems (Slurm) and container engines do it.

What to do
----------
Have the nodes made by nvidia-modprobe; join the group that owns them; ask the batch system for a GPU.
"""

from __future__ import annotations

from tfdoctor import advice
from tfdoctor.facts import Known, Unknown, value_of
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites

SUBJECT = frozenset({Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN})
"""The causes that missing nodes look like."""


def _require_nodes(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require NVIDIA's kernel module and facts about the nodes that it makes."""
    driver = context.facts.driver
    if context.facts.machine.wsl:
        return NotApplicable("under WSL the card is reached through /dev/dxg")
    if isinstance(driver.kernel_module, Unknown):
        return CouldNotCheck(f"the kernel module: {driver.kernel_module.why}")
    if not isinstance(driver.kernel_module, Known):
        return NotApplicable("NVIDIA's kernel module is not loaded, which makes the nodes")
    if isinstance(driver.nodes, Unknown):
        return CouldNotCheck(f"device nodes: {driver.nodes.why}")
    return None


def check(context: RuleContext) -> Result:
    driver = context.facts.driver
    state = drivers.driver_state(context)
    if state.cause is not None and state.cause not in SUBJECT:
        return NotApplicable("the driver fails for another reason")
    trouble = drivers.list_node_errors(context) if state.cause is not None else []
    if not trouble or state.cause is None:
        return ()
    closed = state.answer.closed_nodes if state.answer is not None else ()
    refused_nodes = state.answer.refused_nodes if state.answer is not None and not closed else ()
    names = value_of(driver.nodes)
    evidence = [Evidence("/dev", line) for line in trouble]
    evidence.append(Evidence("/dev", f"there: {', '.join(names.names) if names is not None else 'none'}"))
    evidence += drivers.module_evidence(context)
    return [
        RULE.finding(
            state.cause,
            Severity.ERROR,
            f"NVIDIA's kernel module is loaded, and {'; '.join(trouble)}. The driver needs these nodes to "
            "reach the card.",
            title=_title(context, closed, refused_nodes),
            evidence=evidence,
            remedies=_cgroup_remedies(context) if refused_nodes else _remedies(context, closed),
        )
    ]


def _title(context: RuleContext, closed: tuple[str, ...], refused: tuple[str, ...]) -> str:
    if closed:
        return "This user may not open the card's device nodes"
    if not refused:
        return "Device nodes of the card are missing"
    if context.facts.environment.scheduler == "slurm":
        return "This job was given no GPU: its cgroup refuses the card"
    return "The kernel refuses the card to this process: a cgroup forbids it"


def _cgroup_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedies if the mode of the nodes is right and a cgroup forbids them."""
    scheduler = context.facts.environment.scheduler
    if scheduler == "slurm":
        return [
            Remedy(
                "Ask Slurm for a GPU when the job is started.",
                ("srun --gres=gpu:1 --pty nvidia-smi", "scontrol show job $SLURM_JOB_ID"),
            )
        ]
    if context.facts.machine.container:
        return [
            Remedy(
                "Start the container again with GPUs (Docker: `--gpus all`; nodes that were mounted alone are "
                "refused by its cgroup)."
            )
        ]
    return [
        Remedy(
            "See which unit or job this process belongs to; its DevicePolicy or DeviceAllow (systemd), or its job's "
            "resources, leave the card out.",
            ("cat /proc/self/cgroup",),
        )
    ]


def _remedies(context: RuleContext, closed: tuple[str, ...]) -> list[Remedy]:
    root = advice.sudo(context.target)
    look = Remedy("See who owns the nodes.", ("ls -l /dev/nvidia*",))
    if context.facts.machine.container:
        return [
            look,
            Remedy(
                "Start the container with GPUs (Docker: `--gpus all`), so that its engine brings the nodes "
                "in, and let it run as a user who may open them."
            ),
        ]
    if closed:
        return [
            look,
            Remedy(
                "Join the group that owns them (mostly `video`), then log in again.",
                (f'{root}usermod -aG video "$USER"',),
                changes_system=True,
            ),
        ]
    return [
        Remedy(
            "Make them; nvidia-modprobe comes with the driver.",
            (f"{root}nvidia-modprobe -c 0 -u", advice.check_again(context.target)),
            changes_system=True,
        ),
        look,
    ]


RULE = Rule(
    "TFD113",
    "device-nodes",
    "The card's device nodes are missing or closed",
    (Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN),
    check,
    row="device nodes are missing or closed",
    needs=(_require_nodes, prerequisites.require_driver),
)
