"""The container was started without GPUs.

What it means
-------------
A container has no driver of its own. The engine makes the host's device nodes and driver libraries available in it,
but only if this is requested when the container is started. Here the host has a GPU or NVIDIA's kernel module, but
the container has no device nodes or no libcuda.so.1.

How it is seen
--------------
Inside a container, /proc and /sys show the host's GPU and kernel module; /dev and the library folders are
the container's own.

What to do
----------
Start the container with GPUs; the host needs NVIDIA's container toolkit for that.
"""

from __future__ import annotations

from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.driver import has_gpu_nodes
from tfdoctor.remedies.engine import CAPABILITIES_VARIABLE, excludes_capability, make_capabilities_remedy
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites

VISIBLE_DEVICES_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
"""The variable that says which GPUs NVIDIA's container toolkit gives to a container."""
NO_GPU_VALUES = frozenset({"", "void", "none"})
"""Values of NVIDIA_VISIBLE_DEVICES that give a container no GPU."""
START_COMMANDS = {
    "docker": ("Docker", ("docker run --gpus all IMAGE",)),
    "podman": ("Podman", ("podman run --device nvidia.com/gpu=all IMAGE",)),
    "lxc": ("LXD", ("lxc config device add CONTAINER gpu gpu",)),
}
"""The display name of each kind of container, and the commands that start it with GPUs."""


def _require_container(context: RuleContext) -> NotApplicable | None:
    """Require that tfdoctor runs in a container."""
    return None if context.facts.machine.container else NotApplicable("this is not a container")


def check(context: RuleContext) -> Result:
    container_kind = context.facts.machine.container or ""
    state = drivers.determine_driver_state(context)
    if state.cause is not Cause.CONTAINER_NO_GPU:
        return ()
    variables = context.facts.environment.variables
    visible_devices, capabilities = (
        variables.get(VISIBLE_DEVICES_VARIABLE),
        variables.get(CAPABILITIES_VARIABLE),
    )
    evidence = [Evidence("the loader" if state.resolution else "libcuda.so.1", state.reason)]
    evidence += [
        Evidence(name, repr(variables[name]))
        for name in (VISIBLE_DEVICES_VARIABLE, CAPABILITIES_VARIABLE)
        if name in variables
    ]
    evidence += [*drivers.list_pci_evidence(context), *drivers.list_module_evidence(context)]
    nodes = value_of(context.facts.driver.nodes)
    evidence.append(
        Evidence("/dev", ", ".join(nodes.names) if nodes is not None else "no NVIDIA device node")
    )
    title, reason = "The container was started without GPUs", ""
    if visible_devices is not None and visible_devices.strip() in NO_GPU_VALUES:
        reason = f" {VISIBLE_DEVICES_VARIABLE} is {visible_devices!r}, which asks for none."
    elif (
        capabilities is not None
        and has_gpu_nodes(context.facts)
        and excludes_capability(capabilities, "compute")
    ):
        title = "The container was given the card without CUDA's driver library"
        reason = (
            f" {CAPABILITIES_VARIABLE} is {capabilities!r}: without `compute` libcuda.so.1 stays outside."
        )
    return [
        RULE.make_finding(
            Cause.CONTAINER_NO_GPU,
            Severity.ERROR,
            "The host has an NVIDIA GPU or its kernel module, but this container was not given "
            f"{'libcuda.so.1' if has_gpu_nodes(context.facts) else 'it'}.{reason} You cannot fix this "
            "from inside the container; do not install a driver in it.",
            title=title,
            evidence=evidence,
            remedies=_build_remedies(context, container_kind, capabilities),
        )
    ]


def _build_remedies(context: RuleContext, container_kind: str, capabilities: str | None) -> list[Remedy]:
    """Return the remedies for this kind of container."""
    if capabilities is not None and excludes_capability(capabilities, "compute"):
        return [make_capabilities_remedy(context.target)]
    if container_kind in ("apptainer", "kubernetes"):  # compat/remedies.toml has theirs
        return []
    name, commands = START_COMMANDS.get(container_kind, START_COMMANDS["docker"])
    remedies = [Remedy(f"On the host, start it with GPUs ({name}).", commands)]
    if container_kind != "lxc":
        compose = (
            " In a Compose file: `deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}`."
        )
        remedies.append(
            Remedy(
                "Where the engine refuses, its host lacks NVIDIA's container toolkit (package "
                f"nvidia-container-toolkit).{compose if container_kind == 'docker' else ''}",
            )
        )
    return remedies


RULE = Rule(
    "TFD401",
    "container-no-gpu",
    "The container was started without GPUs",
    (Cause.CONTAINER_NO_GPU,),
    check,
    short_title="started without GPUs",
    needs=(
        _require_container,
        prerequisites.require_driver_result,
    ),
)
