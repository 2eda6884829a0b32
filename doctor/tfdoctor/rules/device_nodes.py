"""The card's device nodes in /dev are missing, or this user may not open them.

What it means
-------------
Programs reach the driver through /dev/nvidiactl, /dev/nvidia-uvm and one /dev/nvidiaN for each GPU. If the
kernel module is loaded but one of these is missing or closed to this user, cuInit fails as if the driver
were broken or there were no GPU.

How it is seen
--------------
The check reads the names in /dev, and whether the child process that queries the driver may open them for reading and
writing. If cuInit has failed, the child process also tries to open them: a node that the kernel refuses (EPERM)
although its mode allows access is forbidden by a cgroup, as set up by batch systems (Slurm) and container engines.

What to do
----------
Create the nodes with nvidia-modprobe, join the group that owns them, or request a GPU from the batch system.
"""

from __future__ import annotations

from tfdoctor.core.facts import Known, Unknown, value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites

CAUSES_OF_MISSING_NODES = frozenset({Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN})
"""The causes that cuInit's error can suggest if device nodes are missing or closed."""


def _require_nodes(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require that NVIDIA's kernel module is loaded and that the facts about device nodes are known."""
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
    state = drivers.determine_driver_state(context)
    if state.cause is not None and state.cause not in CAUSES_OF_MISSING_NODES:
        return NotApplicable("the driver fails for another reason")
    errors = drivers.list_node_problems(context) if state.cause is not None else []
    if not errors or state.cause is None:
        return ()
    closed_nodes = state.driver_result.closed_nodes if state.driver_result is not None else ()
    refused_nodes = (
        state.driver_result.refused_nodes if state.driver_result is not None and not closed_nodes else ()
    )
    nodes = value_of(driver.nodes)
    evidence = [Evidence("/dev", error) for error in errors]
    evidence.append(Evidence("/dev", f"there: {', '.join(nodes.names) if nodes is not None else 'none'}"))
    evidence += drivers.list_module_evidence(context)
    return [
        RULE.make_finding(
            state.cause,
            Severity.ERROR,
            f"NVIDIA's kernel module is loaded, and {'; '.join(errors)}. The driver needs these nodes to "
            "reach the card.",
            title=_make_title(context, closed_nodes, refused_nodes),
            evidence=evidence,
            remedies=_build_cgroup_remedies(context)
            if refused_nodes
            else _build_remedies(context, closed_nodes),
        )
    ]


def _make_title(context: RuleContext, closed_nodes: tuple[str, ...], refused_nodes: tuple[str, ...]) -> str:
    """Return the title for nodes that are closed to this user, refused by the kernel, or missing."""
    if closed_nodes:
        return "This user may not open the card's device nodes"
    if not refused_nodes:
        return "Device nodes of the card are missing"
    if context.facts.environment.scheduler == "slurm":
        return "This job was given no GPU: its cgroup refuses the card"
    return "The kernel refuses the card to this process: a cgroup forbids it"


def _build_cgroup_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedies for nodes whose modes allow access but which a cgroup forbids."""
    scheduler = context.facts.environment.scheduler
    if scheduler == "slurm":  # compat/remedies.toml has theirs
        return []
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


def _build_remedies(context: RuleContext, closed_nodes: tuple[str, ...]) -> list[Remedy]:
    """Return the remedies for missing nodes, or for nodes that are closed to this user."""
    sudo = get_sudo_prefix(context.target)
    owner_remedy = Remedy("See who owns the nodes.", ("ls -l /dev/nvidia*",))
    if context.facts.machine.container:
        return [
            owner_remedy,
            Remedy(
                "Start the container with GPUs (Docker: `--gpus all`), so that its engine brings the nodes "
                "in, and let it run as a user who may open them."
            ),
        ]
    if closed_nodes:
        return [
            owner_remedy,
            Remedy(
                "Join the group that owns them (mostly `video`), then log in again.",
                (f'{sudo}usermod -aG video "$USER"',),
                changes_system=True,
            ),
        ]
    return [
        Remedy(
            "Make them; nvidia-modprobe comes with the driver.",
            (f"{sudo}nvidia-modprobe -c 0 -u", format_check_command(context.target)),
            changes_system=True,
        ),
        owner_remedy,
    ]


RULE = Rule(
    "TFD113",
    "device-nodes",
    "The card's device nodes are missing or closed",
    (Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN),
    check,
    short_title="device nodes are missing or closed",
    needs=(_require_nodes, prerequisites.require_driver_result),
)
