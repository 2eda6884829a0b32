"""Another process holds the card's memory, or the card itself.

What it means
-------------
At its first operation TensorFlow takes nearly all free memory of every card that it sees. If another
process has most of it, too little is left: CUDA_ERROR_OUT_OF_MEMORY, or cuBLAS and cuDNN cannot be
initialised. In the compute mode Exclusive_Process one process at a time can use a card; in Prohibited none can.

How it is seen
--------------
NVML, else nvidia-smi, reports how much memory is used and in which mode the card is. nvidia-smi lists the processes,
and /proc shows who owns them, what they run and in which container (but not from inside a container, where the
process IDs are the host's). Memory that no listed process holds, as in a container, is attributed to processes that
nvidia-smi does not list. tfdoctor itself uses none.

What to do
----------
End the other process, choose another card, or let TensorFlow allocate memory as needed.
"""

from __future__ import annotations

from tfdoctor import advice, versions
from tfdoctor.facts import NOTEBOOK_COMMAND, Absent, SmiFacts, SmiProcess, value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.records import dataclass
from tfdoctor.rules.base import GPU, CouldNotCheck, NotApplicable, Result, Rule, RuleContext

MAX_NAMED_PROCESSES = 6
LIST_PROCESSES_COMMAND = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv"
MIN_REPORTED_MIB = 500
"""About the memory (MiB) that a context with cuBLAS and cuDNN takes before the first tensor."""


@dataclass(frozen=True, slots=True)
class CardMemory:
    """The memory (MiB), compute mode and processes of a GPU."""

    label: str
    pci_bus_id: str | None
    uuid: str | None
    index: int
    total: int | None
    used: int | None
    mode: str
    processes: tuple[SmiProcess, ...] = ()
    lists_processes: bool = False
    """True if nvidia-smi lists the processes of this GPU, even if there are none."""

    @property
    def free(self) -> int | None:
        """Free memory in MiB; None if not known."""
        return self.total - self.used if self.total and self.used is not None else None


def check(context: RuleContext) -> Result:
    cards = _list_cards(context)
    if cards is None:
        absent = isinstance(context.facts.driver.nvml, Absent) or isinstance(context.facts.driver.smi, Absent)
        nvml = value_of(context.facts.driver.nvml)
        if absent or (nvml is not None and not nvml.loaded):
            return NotApplicable("neither NVML nor nvidia-smi is there to tell")
        cuda = value_of(context.facts.driver.cuda)
        if cuda is not None and not cuda.devices:
            return NotApplicable("the driver shows no card whose memory another process could hold")
        return CouldNotCheck("neither NVML nor nvidia-smi tells how much memory is used")
    visible = _select_visible_cards(context, cards)
    if not visible:
        return NotApplicable("no card is visible here")
    prohibited = [card for card in visible if card.mode.lower() == "prohibited"]
    findings = [_build_prohibited_finding(context, prohibited, visible)] if prohibited else []
    open_cards = [card for card in visible if card not in prohibited]
    busy = [card for card in open_cards if _is_busy(card)]
    if busy:
        findings.append(_build_busy_finding(context, busy, open_cards, cards))
    return findings


def _list_cards(context: RuleContext) -> list[CardMemory] | None:
    """List the GPUs from NVML with the modes from nvidia-smi, else from nvidia-smi alone.

    None if neither reports them. GPUs in MIG mode are left out: their memory is not that of their instances.
    """
    nvml, smi = value_of(context.facts.driver.nvml), value_of(context.facts.driver.smi)
    smi_gpus = smi.gpus if isinstance(smi, SmiFacts) else ()
    by_address = {gpu.pci_bus_id: gpu for gpu in smi_gpus if gpu.pci_bus_id}
    if nvml is not None and nvml.init == 0 and nvml.devices:
        cards = []
        for device in nvml.devices:
            gpu = by_address.get(device.pci_bus_id) if device.pci_bus_id else None
            if gpu is not None and gpu.mig:
                continue
            cards.append(
                CardMemory(
                    device.name or f"GPU {device.index}",
                    device.pci_bus_id,
                    device.uuid,
                    device.index,
                    device.memory_total_mib,
                    device.memory_used_mib,
                    (gpu.compute_mode if gpu is not None else None) or "",
                    gpu.processes if gpu is not None else (),
                    gpu is not None and gpu.lists_processes,
                )
            )
        return cards
    if not smi_gpus:
        return None
    return [
        CardMemory(
            gpu.name or f"GPU {gpu.index}",
            gpu.pci_bus_id,
            gpu.uuid,
            gpu.index or 0,
            gpu.memory_total_mib,
            gpu.memory_used_mib,
            gpu.compute_mode or "",
            gpu.processes,
            gpu.lists_processes,
        )
        for gpu in smi_gpus
        if not gpu.mig
    ]


def _select_visible_cards(context: RuleContext, cards: list[CardMemory]) -> list[CardMemory]:
    """Return the GPUs that TensorFlow will see: those that the driver shows, by PCI address."""
    cuda = value_of(context.facts.driver.cuda)
    if cuda is None or cuda.init is None:
        return cards
    addresses = {device.pci_bus_id for device in cuda.devices}
    if None in addresses:
        return cards if cuda.devices else []
    return [card for card in cards if card.pci_bus_id in addresses]


def _is_busy(card: CardMemory) -> bool:
    """Return whether less than half of the memory, or less than MIN_REPORTED_MIB, is free."""
    free = card.free
    return free is not None and card.total is not None and (free < MIN_REPORTED_MIB or free * 2 < card.total)


def _format_card_memory(card: CardMemory) -> str:
    address = f" ({card.pci_bus_id})" if card.pci_bus_id else ""
    return f"{card.label}{address}: {card.free} of {card.total} MiB free"


def _build_busy_finding(
    context: RuleContext, busy: list[CardMemory], visible: list[CardMemory], cards: list[CardMemory]
) -> Finding:
    """Report GPUs whose memory other processes use; an error if every visible GPU is full."""
    full = all((card.free or 0) < MIN_REPORTED_MIB for card in busy) and len(busy) == len(visible)
    exclusive = any("exclusive" in card.mode.lower() for card in busy)
    mode_text = " Its compute mode lets one process at a time use it." if exclusive else ""
    consequence = (
        "That is too little for TensorFlow to start." if full else _describe_memory_use(context, busy)
    )
    in_container = bool(context.facts.machine.container)
    texts = [
        line
        for card in busy
        for line in (*_list_holders(card), *_describe_unlisted_memory(card, in_container=in_container))
    ]
    held_by = (
        f" On it: {'; '.join(texts[:MAX_NAMED_PROCESSES])}{' and more' if len(texts) > MAX_NAMED_PROCESSES else ''}."
        if texts
        else ""
    )
    return RULE.finding(
        Cause.GPU_BUSY_OTHER_PROCESS,
        Severity.ERROR if full else Severity.WARNING,
        "Other processes use the card's memory: "
        f"{'; '.join(_format_card_memory(card) for card in busy)}.{held_by} {consequence}{mode_text}",
        title="Other processes have taken the card's memory"
        if full
        else "Other processes use more than half of the card's memory",
        evidence=[
            *(Evidence("NVML", _format_card_memory(card)) for card in busy),
            *(Evidence("nvidia-smi -q -x", line) for line in texts[:20]),
        ],
        remedies=_remedies(context, busy, cards, full=full),
    )


def _describe_memory_use(context: RuleContext, busy: list[CardMemory]) -> str:
    """Describe what TensorFlow would do with the free memory, in MiB if its rule for the amount is known."""
    build = context.build
    cuda = value_of(context.facts.driver.cuda)
    free = busy[0].free
    reserve = context.compat.cards.reserve
    if build is None or build.version is None or cuda is None or not free:
        return "TensorFlow takes nearly all that is left."
    if versions.compare(versions.major_minor(build.version), reserve.since) < 0:
        return "TensorFlow takes nearly all that is left."
    device = next(
        (candidate for candidate in cuda.devices if candidate.pci_bus_id == busy[0].pci_bus_id), None
    )
    if device is None or device.compute_capability is None or len(busy) > 1:
        return "TensorFlow takes nearly all that is left."
    reserved = reserve.compute_remaining(device.compute_capability, free)
    return f"TensorFlow would take nearly all that is left, about {max(free - reserved, 0)} MiB."


def _list_holders(card: CardMemory) -> list[str]:
    """Describe the processes on the GPU, the largest first and those that only draw a screen last."""
    processes = sorted(card.processes, key=lambda item: (item.kind == "G", -(item.used_mib or 0)))
    return [_describe_process(process) for process in processes]


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


def _describe_unlisted_memory(card: CardMemory, *, in_container: bool) -> list[str]:
    """Report memory that no listed process holds, if it is more than the driver itself needs.

    If the amount of a listed process is not known, report only that.
    """
    if card.used is None or not card.lists_processes:
        return []
    if any(process.used_mib is None for process in card.processes):
        return ["nvidia-smi does not say how much each holds"]
    unlisted = card.used - sum(process.used_mib or 0 for process in card.processes)
    if unlisted < MIN_REPORTED_MIB:
        return []
    if in_container:
        return [f"{unlisted} MiB are held by processes that this container cannot see"]
    return [f"{unlisted} MiB are held by processes that nvidia-smi does not list here"]


def _end_process_remedies(context: RuleContext, busy: list[CardMemory]) -> list[Remedy]:
    """Return the remedies to end the processes that hold the memory."""
    root = advice.sudo_prefix(context.target)
    processes = [process for card in busy for process in card.processes if process.kind != "G"]
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
    other_own = [process for process in own_processes if process not in notebooks]
    if other_own:
        remedies.append(
            Remedy(
                "These are your own processes: end those that you no longer need.",
                (f"kill {' '.join(str(process.pid) for process in other_own)}",),
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
                (f"{root}fuser -v /dev/nvidia*",),
            )
        )
    if remedies:
        return remedies
    list_commands: tuple[str, ...] = (LIST_PROCESSES_COMMAND,)
    if not processes and not context.facts.machine.container and not context.facts.machine.wsl:
        list_commands = (*list_commands, f"{root}fuser -v /dev/nvidia*")
    if not processes and context.facts.machine.container:
        return [Remedy("This container cannot see them. On the host this lists them:", list_commands)]
    return [
        Remedy(
            "See which process uses it; often it is a forgotten Python. End it by its process ID (`kill "
            "PID`).",
            list_commands,
        )
    ]


def _remedies(
    context: RuleContext, busy: list[CardMemory], cards: list[CardMemory], *, full: bool
) -> list[Remedy]:
    """Return the remedies to end the processes, to use a free GPU, or to share the memory."""
    remedies = _end_process_remedies(context, busy)
    free = [card for card in cards if card not in busy and card.uuid and not _is_busy(card)]
    if free:
        best = max(free, key=lambda card: card.free or 0)
        remedies.append(
            Remedy(
                f"Use the free card ({best.label}).",
                (
                    f"export CUDA_VISIBLE_DEVICES={advice.quote(best.uuid or '')}",
                    advice.check_again(context.target),
                ),
            )
        )
    if not full:
        remedies.append(
            Remedy(
                "Share it: let TensorFlow allocate memory as needed.",
                ("export TF_FORCE_GPU_ALLOW_GROWTH=true",),
            )
        )
    return remedies


def _build_prohibited_finding(
    context: RuleContext, prohibited: list[CardMemory], visible: list[CardMemory]
) -> Finding:
    root = advice.sudo_prefix(context.target)
    names = ", ".join(card.label for card in prohibited)
    return RULE.finding(
        Cause.GPU_BUSY_OTHER_PROCESS,
        Severity.ERROR if len(prohibited) == len(visible) else Severity.WARNING,
        f"{names}: the compute mode is Prohibited, in which no process may use the card. TensorFlow lists it "
        "and fails at the first operation.",
        title="The card's compute mode forbids computing",
        row="its compute mode forbids computing",
        evidence=[
            Evidence("nvidia-smi -q -x", f"{card.label}: compute mode {card.mode}") for card in prohibited
        ],
        remedies=[
            Remedy(
                "Set it back.",
                tuple(f"{root}nvidia-smi -i {card.index} -c DEFAULT" for card in prohibited),
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
