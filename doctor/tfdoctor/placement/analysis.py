"""What was read → the answer in a sentence, and findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.causes.codes import DEVICE_UNUSED, NOT_PRINTED, RAN_ON_CPU
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.placement.kernels import find_cpu_operations, with_reasons
from tfdoctor.placement.models import OnCpu, Placement, PlacementData, find_kind
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.kernels import Kernels

__all__ = ["evaluate_placement", "format_operations"]

MAX_SHOWN = 6
MAX_FEWER_TYPES = 3
"""Operations with kernels for fewer types in a sentence."""
MIN_CHANGES = 10
"""Changes of the device that are worth a sentence."""
COMMON = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "bool", "string")
MAX_NAMES = 8
"""Names in a sentence."""
HEAVY = (
    "MatMul",
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "_FusedMatMul",
    "Conv2D",
    "Conv3D",
    "_FusedConv2D",
)
"""Operations that a GPU is bought for; what is next to them may well run on the CPU."""
REASONS = {
    "no-such-device": "TensorFlow has no such device",
    "no-kernel": "it has no kernel for that kind of device",
    "no-kernel-for-type": "it has no kernel for this type of data there",
    "colocation": "it must stand beside another operation that is elsewhere",
    None: "the message does not say why",
}
UNLISTED = "it has no kernel there, or none for this type of data"
SOFT = Remedy(
    "Let TensorFlow choose another device where it must: tf.config.set_soft_device_placement(True), or in "
    "TensorFlow 1 ConfigProto(allow_soft_placement=True)."
)
LOGGING = Remedy(
    "Have TensorFlow print where it puts each operation, before anything else runs: "
    "tf.debugging.set_log_device_placement(True), or in TensorFlow 1 ConfigProto(log_device_placement=True)."
)
CHECK = Remedy("See whether TensorFlow can use the GPU at all.", ("tfdoctor check",))


def evaluate_placement(
    found: PlacementData, name: str = "-", *, kernels: Kernels | None = None, era: str | None = None
) -> Placement:
    """Return the answer. Pure.

    `kernels`, `era`: the table, and the minor releases that can have written the log ("2.10", "2.4-2.11");
    without
    them nothing is said of kernels that the log does not list.
    """
    cpu = None
    if kernels is not None:
        found = with_reasons(found, kernels, era)
        cpu = find_cpu_operations(found, kernels, era)
    findings = [
        *_report_refusals(found, name),
        *_report_missing_gpu(found),
        *_report_unused(found),
        *_report_interruptions(found),
        *_report_missing_kernels(cpu),
        *_report_copies(found),
    ]
    if found.api is None and not found.devices:
        findings.append(
            Finding(
                NOT_PRINTED,
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                "This log does not say where operations ran",
                "TensorFlow prints it only where it is asked to.",
                remedies=(LOGGING,),
            )
        )
    return Placement(name, found, _summary(found), tuple(findings), cpu)


def _summary(found: PlacementData) -> str:
    totals = found.totals
    if not totals:
        if found.calls and not found.refused:
            every = sum(row.count for row in found.calls)
            where = _join_few(sorted({row.device for row in found.calls}))
            what = f"{every:,} call{'s' if every != 1 else ''} of functions"
            return f"{what} ran on {where}; what they did is not printed."
        if found.refused:
            return f"{format_operations(len(found.refused))} refused; nothing was placed."
        if found.devices:
            return (
                "Nothing of placement is printed; TensorFlow lists "
                f"{_join_few([one.device for one in found.devices])}."
            )
        if found.no_known_devices:
            return "TensorFlow knew no GPU (no known devices), and no operation is printed."
        return "This log does not say where operations ran."
    gpus = {device: count for device, count in totals.items() if find_kind(device) in ("GPU", "TPU")}
    every, on_gpus = sum(totals.values()), sum(gpus.values())
    done = "ran" if found.api == "2" else "was placed" if every == 1 else "were placed"
    whole = "The only operation" if every == 1 else f"All {format_operations(every)}"
    if not found.complete:
        whole = f"The {format_operations(every)} that were counted"
    if not gpus:
        where = _join_few(sorted(totals))
        text = f"{whole} {done} on {where}; no GPU got any."
    elif on_gpus == every:
        text = f"{whole} {done} on {_join_few(sorted(gpus))}."
    else:
        text = (
            f"{on_gpus:,} of {format_operations(every)} {done} on {_join_few(sorted(gpus))}, "
            f"{every - on_gpus:,} elsewhere."
        )
    if found.refused:  # which ended the program, unless it expects that
        return f"{format_operations(len(found.refused))} refused. {text}"
    heavy = [] if found.count_others else [row for row in found.ops if row.op in HEAVY]
    if heavy and gpus and on_gpus != every:
        on = sum(row.count for row in heavy if row.device in gpus)
        of = sum(row.count for row in heavy)
        many = f"all {of:,}" if on == of > 1 else f"{on:,} of {of:,}"
        text += f" On a GPU are {many} matrix products and convolutions."
    if found.unused:
        text += f" {_join_few(found.unused)} got nothing."
    return text


def _report_refusals(found: PlacementData, name: str) -> list[Finding]:
    if not found.refused:
        return []
    told = []
    for one in found.refused[:MAX_SHOWN]:
        what = one.op or one.node or "an operation"
        where = f" on {one.wanted}" if one.wanted else ""
        unknown = one.reason == "no-kernel" and not one.listed and not one.told
        told.append(f"{what}{where}: {one.told or (UNLISTED if unknown else REASONS[one.reason])}")
    more = f"; and {len(found.refused) - MAX_SHOWN} more" if len(found.refused) > MAX_SHOWN else ""
    return [
        Finding(
            Cause.PLACEMENT_ERROR.row.code,
            Cause.PLACEMENT_ERROR,
            Severity.ERROR,
            f"TensorFlow refused to place {format_operations(len(found.refused))}",
            f"{'; '.join(told)}{more}.",
            evidence=tuple(Evidence(name, one.text, one.line) for one in found.refused[:MAX_SHOWN]),
            remedies=(SOFT, CHECK)
            if any(one.reason == "no-such-device" for one in found.refused)
            else (SOFT,),
        )
    ]


def _report_missing_gpu(found: PlacementData) -> list[Finding]:
    kinds = {one.kind for one in found.devices}
    if "XLA_GPU" in kinds and "GPU" not in kinds:
        row = Cause.XLA_GPU_ONLY.row
        return [
            Finding(row.code, Cause.XLA_GPU_ONLY, Severity.ERROR, row.title, row.meaning, remedies=(CHECK,))
        ]
    if kinds & {"GPU", "TPU"} or any(
        find_kind(one) in ("GPU", "TPU") for one in (*found.totals, *(row.device for row in found.calls))
    ):
        return []
    if not found.no_known_devices:
        return [_make_no_gpu_finding()] if found.totals and found.complete else []
    return [
        Finding(
            RAN_ON_CPU,
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            "TensorFlow knew no GPU",
            '"Device mapping: no known devices." names no GPU, so everything runs on the CPU. The placement does not '
            "say why; the lines before it, and `tfdoctor check`, do.",
            remedies=(CHECK,),
        )
    ]


def _make_no_gpu_finding() -> Finding:
    return Finding(
        RAN_ON_CPU,
        Cause.INCONCLUSIVE,
        Severity.WARNING,
        "No operation ran on a GPU, and the log lists none",
        "Where there is a GPU, this TensorFlow does not see it. The placement does not say why.",
        remedies=(CHECK,),
    )


def _report_unused(found: PlacementData) -> list[Finding]:
    if not found.unused or found.api is None or found.refused:
        return []  # what was refused was to run there, or after it
    what = _join_few(found.unused)
    many = len(found.unused) > 1
    return [
        Finding(
            DEVICE_UNUSED,
            Cause.HEALTHY,
            Severity.WARNING,
            f"{what} {'are' if many else 'is'} there and got nothing",
            "TensorFlow puts operations on the first GPU unless it is told otherwise. It still takes the memory of "
            "every GPU that it sees.",
            remedies=(
                Remedy(
                    "Use all GPUs through tf.distribute.MirroredStrategy, or show the program one: "
                    "CUDA_VISIBLE_DEVICES=0."
                ),
            ),
        )
    ]


def _report_interruptions(found: PlacementData) -> list[Finding]:
    often = [(op, count) for op, count in found.between if count >= MIN_CHANGES]
    if not often:
        return []
    told = _join_few([f"{op} ({count:,} times)" for op, count in often[:MAX_SHOWN]])
    return [
        Finding(
            RAN_ON_CPU,
            Cause.HEALTHY,
            Severity.WARNING,
            f"Between operations on a GPU, the CPU ran {told}",
            "Each time the data may be copied to the CPU and back. Where this is in the training loop, it costs time.",
            remedies=(
                Remedy(
                    "Look for strings, Python functions and types without a GPU kernel in the training step."
                ),
            ),
        )
    ]


def _report_missing_kernels(cpu: OnCpu | None) -> list[Finding]:
    """Report what the CPU ran because of the release's kernels. Normal for many operations: no warning."""
    if cpu is None or not (cpu.none or cpu.fewer):
        return []
    parts = []
    if cpu.none:
        names = _join_few([f"{one.op} ({one.count:,})" for one in cpu.none])
        parts.append(f"{cpu.release} has no GPU kernel for {names}: no GPU can run them.")
    for one in cpu.fewer[:MAX_FEWER_TYPES]:
        missing = _join_few(sorted(one.missing, key=_rank_type)[:MAX_NAMES])
        parts.append(f"{one.op} ({one.count:,}) has GPU kernels, but none for {missing}.")
    if cpu.fewer:
        more = (
            f" {len(cpu.fewer) - MAX_FEWER_TYPES} more are alike." if len(cpu.fewer) > MAX_FEWER_TYPES else ""
        )
        parts[-1] += f"{more} Which type each of these had, the log does not say."
    every = sum(one.count for one in cpu.none)
    title = (
        f"{format_operations(every)} on the CPU {'have' if every != 1 else 'has'} no GPU kernel in {cpu.release}"
        if cpu.none
        else f"Of some operations on the CPU, {cpu.release} has GPU kernels for some types alone"
    )
    return [Finding(RAN_ON_CPU, Cause.HEALTHY, Severity.INFO, title, " ".join(parts))]


def _rank_type(name: str) -> tuple[int, str]:
    """Return the sort key of a type: those that programs use most come first."""
    return (COMMON.index(name) if name in COMMON else len(COMMON)), name


def _report_copies(found: PlacementData) -> list[Finding]:
    """Report the copies that the log names, and where consecutive operations changed their device."""
    parts = []
    if found.copies:
        whole = [row for row in found.copies if row.before and row.device]
        ends = [row for row in found.copies if not (row.before and row.device)]
        pairs = dict.fromkeys((row.before, row.device) for row in whole)
        for before, device in list(pairs)[:MAX_FEWER_TYPES]:
            rows = [row for row in whole if (row.before, row.device) == (before, device)]
            every = sum(row.count for row in rows)
            times = "once" if every == 1 else f"{every:,} times"
            parts.append(
                f"TensorFlow copied from {before} to {device} {times}, for {_join_few([row.op for row in rows])}."
            )
        if ends:
            told = _join_few([f"{row.op} on {row.before or row.device} ({row.count:,})" for row in ends])
            parts.append(f"The log names these ends of copies: {told}.")
    changes = [one for one in found.changes if one.count >= MIN_CHANGES]
    if changes:
        told = _join_few([f"from {one.before} to {one.device} {one.count:,} times" for one in changes])
        parts.append(
            f"Operations that ran one after the other went {told}. Where the second needed what the first one made, "
            "TensorFlow copied it; the log does not say where."
        )
    if not parts:
        return []
    title = (
        "Data went between devices"
        if found.copies
        else "The device often changed from operation to operation"
    )
    return [Finding(RAN_ON_CPU, Cause.HEALTHY, Severity.INFO, title, " ".join(parts))]


def format_operations(count: int) -> str:
    """Format a count: "1 operation", "1,204 operations"."""
    return f"{count:,} operation{'s' if count != 1 else ''}"


def _join_few(names: Sequence[str]) -> str:
    """Join the first eight, and how many more there are."""
    if len(names) > MAX_NAMES:
        return f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more"
    return join_words(names)
