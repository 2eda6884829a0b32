"""Another process holds the card's memory, or the card itself.

What it means
-------------
TensorFlow takes nearly all free memory of every card that it sees, at its first operation. Where another
process has most of it, too little is left: CUDA_ERROR_OUT_OF_MEMORY, or cuBLAS and cuDNN that cannot be
initialised. In the compute mode Exclusive_Process a card serves one process at a time; in Prohibited none.

How it is seen
--------------
NVML, else nvidia-smi, tells how much memory is used and in which mode the card is. nvidia-smi lists the processes,
and /proc tells whose they are, what runs in them and in which container (not in a container, where the numbers are
the host's). Memory of processes that it does not list here, as in a container, is said to be held by those. tfdoctor
itself takes none.

What to do
----------
End the other process, choose another card, or let TensorFlow allocate memory as needed.
"""

from __future__ import annotations

from tfdoctor import advice, versions
from tfdoctor.facts import NOTEBOOK, Absent, SmiFacts, SmiProcess, value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.records import dataclass
from tfdoctor.rules.base import GPU, CouldNotCheck, NotApplicable, Result, Rule, RuleContext

MAX_NAMED_PROCESSES = 6
LIST_PROCESSES_COMMAND = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv"
MIN_REPORTED_MIB = 500
"""A context with cuBLAS and cuDNN takes about this much before any tensor."""


@dataclass(frozen=True, slots=True)
class CardMemory:
    """A card's memory and mode, by its PCI address."""

    label: str
    pci_bus_id: str | None
    uuid: str | None
    index: int
    total: int | None
    used: int | None
    mode: str
    processes: tuple[SmiProcess, ...] = ()
    told: bool = False
    """Whether nvidia-smi lists processes for this card, even if none."""

    @property
    def left(self) -> int | None:
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
    closed = [card for card in visible if card.mode.lower() == "prohibited"]
    findings = [_build_prohibited_finding(context, closed, visible)] if closed else []
    open_cards = [card for card in visible if card not in closed]
    busy = [card for card in open_cards if _is_busy(card)]
    if busy:
        findings.append(_busy(context, busy, open_cards, cards))
    return findings


def _list_cards(context: RuleContext) -> list[CardMemory] | None:
    """List the cards from NVML with nvidia-smi's modes, else from nvidia-smi alone.

    None if neither reports them. MIG parents are left out: their memory is not that of their
    instances.
    """
    nvml, smi = value_of(context.facts.driver.nvml), value_of(context.facts.driver.smi)
    told = smi.gpus if isinstance(smi, SmiFacts) else ()
    by_address = {gpu.pci_bus_id: gpu for gpu in told if gpu.pci_bus_id}
    if nvml is not None and nvml.init == 0 and nvml.devices:
        found = []
        for device in nvml.devices:
            gpu = by_address.get(device.pci_bus_id) if device.pci_bus_id else None
            if gpu is not None and gpu.mig:
                continue
            found.append(
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
        return found
    if not told:
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
        for gpu in told
        if not gpu.mig
    ]


def _select_visible_cards(context: RuleContext, cards: list[CardMemory]) -> list[CardMemory]:
    """List the cards that TensorFlow will see: those that the driver shows, by PCI address."""
    answer = value_of(context.facts.driver.cuda)
    if answer is None or answer.init is None:
        return cards
    shown = {device.pci_bus_id for device in answer.devices}
    if None in shown:
        return cards if answer.devices else []
    return [card for card in cards if card.pci_bus_id in shown]


def _is_busy(card: CardMemory) -> bool:
    left = card.left
    return left is not None and card.total is not None and (left < MIN_REPORTED_MIB or left * 2 < card.total)


def _format_card_memory(card: CardMemory) -> str:
    where = f" ({card.pci_bus_id})" if card.pci_bus_id else ""
    return f"{card.label}{where}: {card.left} of {card.total} MiB free"


def _busy(
    context: RuleContext, busy: list[CardMemory], visible: list[CardMemory], cards: list[CardMemory]
) -> Finding:
    full = all((card.left or 0) < MIN_REPORTED_MIB for card in busy) and len(busy) == len(visible)
    exclusive = any("exclusive" in card.mode.lower() for card in busy)
    mode = " Its compute mode lets one process at a time use it." if exclusive else ""
    amount = "That is too little for TensorFlow to start." if full else _describe_memory_use(context, busy)
    inside = bool(context.facts.machine.container)
    held = [
        line
        for card in busy
        for line in (*_list_holders(card), *_describe_unlisted_memory(card, inside=inside))
    ]
    who = (
        f" On it: {'; '.join(held[:MAX_NAMED_PROCESSES])}{' and more' if len(held) > MAX_NAMED_PROCESSES else ''}."
        if held
        else ""
    )
    return RULE.finding(
        Cause.GPU_BUSY_OTHER_PROCESS,
        Severity.ERROR if full else Severity.WARNING,
        "Other processes use the card's memory: "
        f"{'; '.join(_format_card_memory(card) for card in busy)}.{who} {amount}{mode}",
        title="Other processes have taken the card's memory"
        if full
        else "Other processes use more than half of the card's memory",
        evidence=[
            *(Evidence("NVML", _format_card_memory(card)) for card in busy),
            *(Evidence("nvidia-smi -q -x", line) for line in held[:20]),
        ],
        remedies=_remedies(context, busy, cards, full=full),
    )


def _describe_memory_use(context: RuleContext, busy: list[CardMemory]) -> str:
    """Describe what TensorFlow would do with the rest, in numbers if its rule for it is known."""
    build = context.build
    answer = value_of(context.facts.driver.cuda)
    left = busy[0].left
    reserve = context.compat.cards.reserve
    if build is None or build.version is None or answer is None or not left:
        return "TensorFlow takes nearly all that is left."
    if versions.compare(versions.major_minor(build.version), reserve.since) < 0:
        return "TensorFlow takes nearly all that is left."
    device = next((d for d in answer.devices if d.pci_bus_id == busy[0].pci_bus_id), None)
    if device is None or device.compute_capability is None or len(busy) > 1:
        return "TensorFlow takes nearly all that is left."
    spared = reserve.compute_remaining(device.compute_capability, left)
    return f"TensorFlow would take nearly all that is left, about {max(left - spared, 0)} MiB."


def _list_holders(card: CardMemory) -> list[str]:
    """List the processes on the card, the largest first and those that only draw a screen last."""
    ordered = sorted(card.processes, key=lambda p: (p.kind == "G", -(p.used_mib or 0)))
    return [_holder(process) for process in ordered]


def _holder(process: SmiProcess) -> str:
    name = (process.name or "a process").rpartition("/")[2][:60] or "a process"
    what = f" running {process.command}" if process.command else ""
    number = f" (pid {process.pid})" if process.pid is not None else ""
    whose = " of yours" if process.own else (f" of {process.user}" if process.user else "")
    amount = f", {process.used_mib} MiB" if process.used_mib is not None else ""
    state = {
        "gone": ", which is no longer there",
        "zombie": ", which has ended and which its parent has not collected (a zombie)",
    }.get(process.state or "", "")
    where = f", in the container {process.container}" if process.container else ""
    return f"{name}{what}{number}{whose}{where}{amount}{state}"


def _describe_unlisted_memory(card: CardMemory, *, inside: bool) -> list[str]:
    """Report memory that no listed process accounts for, if it is more than a driver keeps for itself.

    Nothing is reported if the amount of a listed process is not known.
    """
    if card.used is None or not card.told:
        return []
    if any(process.used_mib is None for process in card.processes):
        return ["nvidia-smi does not say how much each holds"]
    rest = card.used - sum(process.used_mib or 0 for process in card.processes)
    if rest < MIN_REPORTED_MIB:
        return []
    if inside:
        return [f"{rest} MiB are held by processes that this container cannot see"]
    return [f"{rest} MiB are held by processes that nvidia-smi does not list here"]


def _end_process_remedies(context: RuleContext, busy: list[CardMemory]) -> list[Remedy]:
    """List the remedies that end the processes that hold the memory."""
    root = advice.sudo(context.target)
    listed = [p for card in busy for p in card.processes if p.kind != "G"]
    own = [p for p in listed if p.own and p.pid is not None and p.state is None]
    others = sorted({p.user for p in listed if p.own is False and p.user and p.state is None})
    remedies = []
    notebooks = [p for p in own if p.command == NOTEBOOK]
    if notebooks:
        remedies.append(
            Remedy(
                "Earlier notebooks of yours still hold the card: shut their kernels down in Jupyter, or end them.",
                (f"kill {' '.join(str(p.pid) for p in notebooks)}",),
            )
        )
    rest = [p for p in own if p not in notebooks]
    if rest:
        remedies.append(
            Remedy(
                "These are your own processes: end those that you no longer need.",
                (f"kill {' '.join(str(p.pid) for p in rest)}",),
            )
        )
    if others:
        text = f"Ask {', '.join(others)}, or wait; only they and root can end theirs. What is still there:"
        remedies.append(Remedy(text, (LIST_PROCESSES_COMMAND,)))
    if any(p.state for p in listed):
        remedies.append(
            Remedy(
                "Memory of an ended process is released when its parent ends; see which processes have "
                "the card open.",
                (f"{root}fuser -v /dev/nvidia*",),
            )
        )
    if remedies:
        return remedies
    look: tuple[str, ...] = (LIST_PROCESSES_COMMAND,)
    if not listed and not context.facts.machine.container and not context.facts.machine.wsl:
        look = (*look, f"{root}fuser -v /dev/nvidia*")
    if not listed and context.facts.machine.container:
        return [Remedy("This container cannot see them. On the host this lists them:", look)]
    return [
        Remedy(
            "See which process uses it; often it is a forgotten Python. End it by its process ID (`kill "
            "PID`).",
            look,
        )
    ]


def _remedies(
    context: RuleContext, busy: list[CardMemory], cards: list[CardMemory], *, full: bool
) -> list[Remedy]:
    remedies = _end_process_remedies(context, busy)
    free = [card for card in cards if card not in busy and card.uuid and not _is_busy(card)]
    if free:
        best = max(free, key=lambda card: card.left or 0)
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
    context: RuleContext, closed: list[CardMemory], visible: list[CardMemory]
) -> Finding:
    root = advice.sudo(context.target)
    names = ", ".join(card.label for card in closed)
    return RULE.finding(
        Cause.GPU_BUSY_OTHER_PROCESS,
        Severity.ERROR if len(closed) == len(visible) else Severity.WARNING,
        f"{names}: the compute mode is Prohibited, in which no process may use the card. TensorFlow lists it "
        "and fails at the first operation.",
        title="The card's compute mode forbids computing",
        row="its compute mode forbids computing",
        evidence=[Evidence("nvidia-smi -q -x", f"{card.label}: compute mode {card.mode}") for card in closed],
        remedies=[
            Remedy(
                "Set it back.",
                tuple(f"{root}nvidia-smi -i {card.index} -c DEFAULT" for card in closed),
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
    row="held by other processes",
    area=GPU,
)
