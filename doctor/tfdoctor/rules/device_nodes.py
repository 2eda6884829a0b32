"""The card's device nodes in /dev are missing, or this user may not open them.

What it means
-------------
The driver is reached through /dev/nvidiactl, /dev/nvidia-uvm and one /dev/nvidiaN for each card. Where the
kernel module is loaded and one of these is missing or closed to this user, cuInit fails as if the driver
were broken or no card there.

How it is seen
--------------
The names in /dev, and whether the child process that asks the driver may open them for reading and writing;
nothing is opened for the look.

What to do
----------
Have the nodes made by nvidia-modprobe; join the group that owns them.
"""

from __future__ import annotations

from tfdoctor.facts import Known, Unknown, value_of
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules import _driver, advice
from tfdoctor.rules.base import Context, CouldNotCheck, NotApplicable, Result, Rule

SUBJECT = frozenset({Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN})
"""The causes that missing nodes look like."""


def check(context: Context) -> Result:
    driver = context.facts.driver
    if context.facts.machine.wsl:
        return NotApplicable("under WSL the card is reached through /dev/dxg")
    if isinstance(driver.kernel_module, Unknown):
        return CouldNotCheck(f"the kernel module: {driver.kernel_module.why}")
    if not isinstance(driver.kernel_module, Known):
        return NotApplicable("NVIDIA's kernel module is not loaded, which makes the nodes")
    if isinstance(driver.nodes, Unknown):
        return CouldNotCheck(f"device nodes: {driver.nodes.why}")
    refused = _driver.unasked(context)
    if refused is not None:
        return refused
    state = _driver.state(context)
    if state.cause is not None and state.cause not in SUBJECT:
        return NotApplicable("the driver fails for another reason")
    trouble = _driver.node_trouble(context) if state.cause is not None else []
    if not trouble or state.cause is None:
        return ()
    closed = state.answer.closed_nodes if state.answer is not None else ()
    names = value_of(driver.nodes)
    evidence = [Evidence("/dev", line) for line in trouble]
    evidence.append(Evidence("/dev", f"there: {', '.join(names.names) if names is not None else 'none'}"))
    evidence += _driver.module_evidence(context)
    return [
        RULE.finding(
            state.cause,
            Severity.ERROR,
            f"NVIDIA's kernel module is loaded, and {'; '.join(trouble)}. The driver needs these nodes to "
            "reach the card.",
            title="This user may not open the card's device nodes"
            if closed
            else "Device nodes of the card are missing",
            evidence=evidence,
            remedies=_remedies(context, closed),
        )
    ]


def _remedies(context: Context, closed: tuple[str, ...]) -> list[Remedy]:
    root = advice.sudo(context)
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
            (f"{root}nvidia-modprobe -c 0 -u", advice.check_again(context)),
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
)
