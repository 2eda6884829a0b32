"""Another process holds the card's memory, or the card itself.

What it means
-------------
At its first operation TensorFlow takes nearly all free memory of every GPU that it sees. If another
process has most of it, too little is left: CUDA_ERROR_OUT_OF_MEMORY, or cuBLAS and cuDNN cannot be
initialised. In the compute mode Exclusive_Process one process at a time can use a GPU; in Prohibited none can.

How it is seen
--------------
NVML, else nvidia-smi, reports how much memory is used and in which mode the GPU is. nvidia-smi lists the processes,
and /proc shows their owners, commands and containers (but not from inside a container, where the process IDs are the
host's). Memory that no listed process holds, as in a container, is attributed to processes that
nvidia-smi does not list. tfdoctor itself uses none.

What to do
----------
End the other process, choose another GPU, or let TensorFlow allocate memory as needed.
"""

from __future__ import annotations

from tfdoctor.core import versions
from tfdoctor.core.facts import NOTEBOOK_COMMAND, Absent, SmiFacts, SmiProcess, value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.records import dataclass
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import GPU, CouldNotCheck, NotApplicable, Result, Rule, RuleContext

MAX_NAMED_PROCESSES = 6
"""The maximum number of processes that a text names."""
LIST_PROCESSES_COMMAND = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv"
"""The command that lists the processes that compute on the GPUs."""
CUDA_CONTEXT_MIB = 500
"""The memory that a CUDA context with cuBLAS and cuDNN takes before the first tensor, roughly."""


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """The memory in MiB, the compute mode and the processes of a GPU. None means that a value is not known."""

    label: str
    pci_bus_id: str | None
    uuid: str | None
    index: int
    total_mib: int | None
    used_mib: int | None
    compute_mode: str
    """The compute mode as nvidia-smi names it; "" if not known."""
    processes: tuple[SmiProcess, ...] = ()
    lists_processes: bool = False
    """True if nvidia-smi lists the processes of this GPU, even if there are none."""

    @property
    def free_mib(self) -> int | None:
        """Free memory in MiB; None if not known."""
        return self.total_mib - self.used_mib if self.total_mib and self.used_mib is not None else None


def check(context: RuleContext) -> Result:
    gpus = _list_gpus(context)
    if gpus is None:
        is_absent = isinstance(context.facts.driver.nvml, Absent) or isinstance(
            context.facts.driver.smi, Absent
        )
        nvml = value_of(context.facts.driver.nvml)
        if is_absent or (nvml is not None and not nvml.loaded):
            return NotApplicable("neither NVML nor nvidia-smi is there to tell")
        driver_result = value_of(context.facts.driver.cuda)
        if driver_result is not None and not driver_result.devices:
            return NotApplicable("the driver shows no card whose memory another process could hold")
        return CouldNotCheck("neither NVML nor nvidia-smi tells how much memory is used")
    visible_gpus = _select_visible_gpus(context, gpus)
    if not visible_gpus:
        return NotApplicable("no card is visible here")
    prohibited_gpus = [gpu for gpu in visible_gpus if gpu.compute_mode.lower() == "prohibited"]
    findings = [_build_prohibited_finding(context, prohibited_gpus, visible_gpus)] if prohibited_gpus else []
    usable_gpus = [gpu for gpu in visible_gpus if gpu not in prohibited_gpus]
    busy_gpus = [gpu for gpu in usable_gpus if _is_busy(gpu)]
    if busy_gpus:
        findings.append(_build_busy_finding(context, busy_gpus, usable_gpus, gpus))
    return findings


def _list_gpus(context: RuleContext) -> list[GpuUsage] | None:
    """Return the GPUs from NVML with the modes from nvidia-smi, else from nvidia-smi alone.

    Return None if neither reports them. GPUs in MIG mode are omitted: their memory is not that of their instances.
    """
    nvml, smi = value_of(context.facts.driver.nvml), value_of(context.facts.driver.smi)
    smi_gpus = smi.gpus if isinstance(smi, SmiFacts) else ()
    smi_gpu_by_address = {gpu.pci_bus_id: gpu for gpu in smi_gpus if gpu.pci_bus_id}
    if nvml is not None and nvml.init == 0 and nvml.devices:
        gpus = []
        for device in nvml.devices:
            gpu = smi_gpu_by_address.get(device.pci_bus_id) if device.pci_bus_id else None
            if gpu is not None and gpu.mig:
                continue
            gpus.append(
                GpuUsage(
                    label=device.name or f"GPU {device.index}",
                    pci_bus_id=device.pci_bus_id,
                    uuid=device.uuid,
                    index=device.index,
                    total_mib=device.memory_total_mib,
                    used_mib=device.memory_used_mib,
                    compute_mode=(gpu.compute_mode if gpu is not None else None) or "",
                    processes=gpu.processes if gpu is not None else (),
                    lists_processes=gpu is not None and gpu.lists_processes,
                )
            )
        return gpus
    if not smi_gpus:
        return None
    return [
        GpuUsage(
            label=gpu.name or f"GPU {gpu.index}",
            pci_bus_id=gpu.pci_bus_id,
            uuid=gpu.uuid,
            index=gpu.index or 0,
            total_mib=gpu.memory_total_mib,
            used_mib=gpu.memory_used_mib,
            compute_mode=gpu.compute_mode or "",
            processes=gpu.processes,
            lists_processes=gpu.lists_processes,
        )
        for gpu in smi_gpus
        if not gpu.mig
    ]


def _select_visible_gpus(context: RuleContext, gpus: list[GpuUsage]) -> list[GpuUsage]:
    """Return the GPUs that TensorFlow will see: those whose PCI addresses the driver shows."""
    driver_result = value_of(context.facts.driver.cuda)
    if driver_result is None or driver_result.init is None:
        return gpus
    addresses = {device.pci_bus_id for device in driver_result.devices}
    if None in addresses:
        return gpus if driver_result.devices else []
    return [gpu for gpu in gpus if gpu.pci_bus_id in addresses]


def _is_busy(gpu: GpuUsage) -> bool:
    """Return whether less than half of the memory, or less than MIN_REPORTED_MIB, is free."""
    free = gpu.free_mib
    return (
        free is not None
        and gpu.total_mib is not None
        and (free < CUDA_CONTEXT_MIB or free * 2 < gpu.total_mib)
    )


def _format_memory(gpu: GpuUsage) -> str:
    """Format the free and total memory of a GPU."""
    address = f" ({gpu.pci_bus_id})" if gpu.pci_bus_id else ""
    return f"{gpu.label}{address}: {gpu.free_mib} of {gpu.total_mib} MiB free"


def _build_busy_finding(
    context: RuleContext, busy_gpus: list[GpuUsage], visible_gpus: list[GpuUsage], gpus: list[GpuUsage]
) -> Finding:
    """Return the finding about memory that other processes use; an error if every visible GPU is full."""
    is_full = all((gpu.free_mib or 0) < CUDA_CONTEXT_MIB for gpu in busy_gpus) and len(busy_gpus) == len(
        visible_gpus
    )
    is_exclusive = any("exclusive" in gpu.compute_mode.lower() for gpu in busy_gpus)
    mode_text = " Its compute mode lets one process at a time use it." if is_exclusive else ""
    consequence = (
        "That is too little for TensorFlow to start." if is_full else _describe_memory_use(context, busy_gpus)
    )
    in_container = bool(context.facts.machine.container)
    clauses = [
        line
        for gpu in busy_gpus
        for line in (
            *map(_describe_process, _sort_processes(gpu)),
            *_describe_unlisted_memory(gpu, in_container=in_container),
        )
    ]
    processes_text = (
        f" On it: {'; '.join(clauses[:MAX_NAMED_PROCESSES])}{' and more' if len(clauses) > MAX_NAMED_PROCESSES else ''}."
        if clauses
        else ""
    )
    return RULE.make_finding(
        Cause.GPU_BUSY_OTHER_PROCESS,
        Severity.ERROR if is_full else Severity.WARNING,
        "Other processes use the card's memory: "
        f"{'; '.join(_format_memory(gpu) for gpu in busy_gpus)}.{processes_text} {consequence}{mode_text}",
        title="Other processes have taken the card's memory"
        if is_full
        else "Other processes use more than half of the card's memory",
        evidence=[
            *(Evidence("NVML", _format_memory(gpu)) for gpu in busy_gpus),
            *(Evidence("nvidia-smi -q -x", line) for line in clauses[:20]),
        ],
        remedies=_build_remedies(context, busy_gpus, gpus, is_full=is_full),
    )


def _describe_memory_use(context: RuleContext, busy_gpus: list[GpuUsage]) -> str:
    """Describe how much of the free memory TensorFlow would take, in MiB if its reserve is known."""
    build = context.build
    driver_result = value_of(context.facts.driver.cuda)
    free = busy_gpus[0].free_mib
    reserve = context.compat.cards.memory_reserve
    if build is None or build.version is None or driver_result is None or not free:
        return "TensorFlow takes nearly all that is left."
    if versions.compare(versions.major_minor(build.version), reserve.since) < 0:
        return "TensorFlow takes nearly all that is left."
    device = next(
        (candidate for candidate in driver_result.devices if candidate.pci_bus_id == busy_gpus[0].pci_bus_id),
        None,
    )
    if device is None or device.compute_capability is None or len(busy_gpus) > 1:
        return "TensorFlow takes nearly all that is left."
    reserved = reserve.compute_reserve(device.compute_capability, free)
    return f"TensorFlow would take nearly all that is left, about {max(free - reserved, 0)} MiB."


def _sort_processes(gpu: GpuUsage) -> list[SmiProcess]:
    """Return the processes on the GPU: the largest first, and those that only draw a screen ("G") last."""
    return sorted(gpu.processes, key=lambda process: (process.kind == "G", -(process.used_mib or 0)))


def _describe_process(process: SmiProcess) -> str:
    """Describe a process: name, command, PID, owner, container, memory and state, as far as known."""
    name = (process.name or "a process").rpartition("/")[2][:60] or "a process"
    command = f" running {process.command}" if process.command else ""
    pid = f" (pid {process.pid})" if process.pid is not None else ""
    owner = " of yours" if process.own else (f" of {process.user}" if process.user else "")
    amount = f", {process.used_mib} MiB" if process.used_mib is not None else ""
    state = {
        "gone": ", which is no longer there",
        "zombie": ", which has ended and which its parent has not collected (a zombie)",
    }.get(process.state or "", "")
    container = f", in the container {process.container}" if process.container else ""
    return f"{name}{command}{pid}{owner}{container}{amount}{state}"


def _describe_unlisted_memory(gpu: GpuUsage, *, in_container: bool) -> list[str]:
    """Return a clause about memory that no listed process holds; an empty list if it is negligible.

    If the memory of a listed process is not known, the clause says only that.
    """
    if gpu.used_mib is None or not gpu.lists_processes:
        return []
    if any(process.used_mib is None for process in gpu.processes):
        return ["nvidia-smi does not say how much each holds"]
    unlisted = gpu.used_mib - sum(process.used_mib or 0 for process in gpu.processes)
    if unlisted < CUDA_CONTEXT_MIB:
        return []
    if in_container:
        return [f"{unlisted} MiB are held by processes that this container cannot see"]
    return [f"{unlisted} MiB are held by processes that nvidia-smi does not list here"]


def _build_end_process_remedies(context: RuleContext, busy_gpus: list[GpuUsage]) -> list[Remedy]:
    """Return the remedies to end the processes that hold the memory."""
    sudo = get_sudo_prefix(context.target)
    processes = [process for gpu in busy_gpus for process in gpu.processes if process.kind != "G"]
    own_processes = [
        process for process in processes if process.own and process.pid is not None and process.state is None
    ]
    other_users = sorted(
        {
            process.user
            for process in processes
            if process.own is False and process.user and process.state is None
        }
    )
    remedies = []
    notebooks = [process for process in own_processes if process.command == NOTEBOOK_COMMAND]
    if notebooks:
        remedies.append(
            Remedy(
                "Earlier notebooks of yours still hold the card: shut their kernels down in Jupyter, or end them.",
                (f"kill {' '.join(str(process.pid) for process in notebooks)}",),
            )
        )
    other_own_processes = [process for process in own_processes if process not in notebooks]
    if other_own_processes:
        remedies.append(
            Remedy(
                "These are your own processes: end those that you no longer need.",
                (f"kill {' '.join(str(process.pid) for process in other_own_processes)}",),
            )
        )
    if other_users:
        text = (
            f"Ask {', '.join(other_users)}, or wait; only they and root can end theirs. What is still there:"
        )
        remedies.append(Remedy(text, (LIST_PROCESSES_COMMAND,)))
    if any(process.state for process in processes):
        remedies.append(
            Remedy(
                "Memory of an ended process is released when its parent ends; see which processes have "
                "the card open.",
                (f"{sudo}fuser -v /dev/nvidia*",),
            )
        )
    if remedies:
        return remedies
    list_commands: tuple[str, ...] = (LIST_PROCESSES_COMMAND,)
    if not processes and not context.facts.machine.container and not context.facts.machine.wsl:
        list_commands = (*list_commands, f"{sudo}fuser -v /dev/nvidia*")
    if not processes and context.facts.machine.container:
        return [Remedy("This container cannot see them. On the host this lists them:", list_commands)]
    return [
        Remedy(
            "See which process uses it; often it is a forgotten Python. End it by its process ID (`kill "
            "PID`).",
            list_commands,
        )
    ]


def _build_remedies(
    context: RuleContext, busy_gpus: list[GpuUsage], gpus: list[GpuUsage], *, is_full: bool
) -> list[Remedy]:
    """Return the remedies: end the processes, use a free GPU, or share the memory."""
    remedies = _build_end_process_remedies(context, busy_gpus)
    free_gpus = [gpu for gpu in gpus if gpu not in busy_gpus and gpu.uuid and not _is_busy(gpu)]
    if free_gpus:
        best = max(free_gpus, key=lambda gpu: gpu.free_mib or 0)
        remedies.append(
            Remedy(
                f"Use the free card ({best.label}).",
                (
                    f"export CUDA_VISIBLE_DEVICES={quote(best.uuid or '')}",
                    format_check_command(context.target),
                ),
            )
        )
    if not is_full:
        remedies.append(
            Remedy(
                "Share it: let TensorFlow allocate memory as needed.",
                ("export TF_FORCE_GPU_ALLOW_GROWTH=true",),
            )
        )
    return remedies


def _build_prohibited_finding(
    context: RuleContext, prohibited_gpus: list[GpuUsage], visible_gpus: list[GpuUsage]
) -> Finding:
    """Return the finding about the compute mode Prohibited; an error if all visible GPUs are in it."""
    sudo = get_sudo_prefix(context.target)
    names = ", ".join(gpu.label for gpu in prohibited_gpus)
    return RULE.make_finding(
        Cause.GPU_BUSY_OTHER_PROCESS,
        Severity.ERROR if len(prohibited_gpus) == len(visible_gpus) else Severity.WARNING,
        f"{names}: the compute mode is Prohibited, in which no process may use the card. TensorFlow lists it "
        "and fails at the first operation.",
        title="The card's compute mode forbids computing",
        short_title="its compute mode forbids computing",
        evidence=[
            Evidence("nvidia-smi -q -x", f"{gpu.label}: compute mode {gpu.compute_mode}")
            for gpu in prohibited_gpus
        ],
        remedies=[
            Remedy(
                "Set it back.",
                tuple(f"{sudo}nvidia-smi -i {gpu.index} -c DEFAULT" for gpu in prohibited_gpus),
                changes_system=True,
            )
        ],
    )


RULE = Rule(
    "TFD603",
    "gpu-busy-other-process",
    "Other processes hold the card",
    (Cause.GPU_BUSY_OTHER_PROCESS,),
    check,
    short_title="held by other processes",
    area=GPU,
)
