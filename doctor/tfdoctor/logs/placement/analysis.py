"""Evaluate the data of a placement log: make the summary sentence and the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.causes.codes import DEVICE_UNUSED, NOT_PRINTED, RAN_ON_CPU
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import join_first, join_words
from tfdoctor.logs.placement.kernels import explain_refusals, find_cpu_operations
from tfdoctor.logs.placement.models import CpuOperations, Placement, PlacementData, get_device_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.kernels import Kernels

__all__ = ["evaluate_placement", "format_operations"]

MAX_SHOWN_ENTRIES = 6
"""The maximum number of refusals or operations in a finding."""
MAX_SENTENCES = 3
"""The maximum number of operations with missing types, or of pairs of devices between which data went, in a finding."""
MIN_REPORTED_CHANGES = 10
"""The minimum number of device changes, or of CPU runs between GPU operations, that is reported."""
COMMON_TYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "bool", "string")
"""The data types that programs use most. They are shown first."""
MAX_NAMES = 8
"""The maximum number of names in a sentence."""
HEAVY_OPERATIONS = (
    "MatMul",
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "_FusedMatMul",
    "Conv2D",
    "Conv3D",
    "_FusedConv2D",
)
"""Operations that should run on a GPU. Small operations next to them may run on the CPU."""
TEXT_BY_REASON = {
    "no-such-device": "TensorFlow has no such device",
    "no-kernel": "it has no kernel for that kind of device",
    "no-kernel-for-type": "it has no kernel for this type of data there",
    "colocation": "it must be placed with another operation that is elsewhere",
    None: "the message does not say why",
}
"""A clause for each value of `Refusal.reason`."""
UNLISTED_KERNEL_TEXT = "it has no kernel there, or none for this type of data"
"""The clause for the reason "no-kernel" if the message lists no kernels."""
SOFT_PLACEMENT_REMEDY = Remedy(
    "Let TensorFlow choose another device where it must: tf.config.set_soft_device_placement(True), or in "
    "TensorFlow 1 ConfigProto(allow_soft_placement=True)."
)
LOGGING_REMEDY = Remedy(
    "Have TensorFlow print where it puts each operation, before anything else runs: "
    "tf.debugging.set_log_device_placement(True), or in TensorFlow 1 ConfigProto(log_device_placement=True)."
)
CHECK_REMEDY = Remedy("See whether TensorFlow can use the GPU at all.", ("tfdoctor check",))


def evaluate_placement(
    data: PlacementData, name: str = "-", *, kernels: Kernels | None = None, release_range: str | None = None
) -> Placement:
    """Return the summary and the findings for the data of a log.

    `name` is the name of the log file. `kernels` is the kernel table. `release_range` is the range of minor releases that can
    have written the log, such as "2.10" or "2.4-2.11". If `kernels` or `release_range` is None, the findings mention only the
    kernels that the log itself lists.
    """
    cpu_operations = None
    if kernels is not None:
        data = explain_refusals(data, kernels, release_range)
        cpu_operations = find_cpu_operations(data, kernels, release_range)
    findings = [
        *_make_refusal_finding(data, name),
        *_make_missing_gpu_finding(data),
        *_make_unused_device_finding(data),
        *_make_interruption_finding(data),
        *_make_kernel_finding(cpu_operations),
        *_make_copy_finding(data),
    ]
    if data.api is None and not data.devices:
        findings.append(
            Finding(
                NOT_PRINTED,
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                "This log does not say where operations ran",
                "TensorFlow prints it only where it is asked to.",
                remedies=(LOGGING_REMEDY,),
            )
        )
    return Placement(
        file_name=name,
        data=data,
        summary=_summarize(data),
        findings=tuple(findings),
        cpu_operations=cpu_operations,
    )


def _summarize(data: PlacementData) -> str:
    """Return one or two sentences about the devices on which the operations ran, and about refusals."""
    totals = data.count_by_device
    if not totals:
        if data.call_counts and not data.refusals:
            total = sum(entry.count for entry in data.call_counts)
            devices = _join_few(sorted({entry.device for entry in data.call_counts}))
            calls_text = f"{total:,} call{'s' if total != 1 else ''} of functions"
            return f"{calls_text} ran on {devices}; what they did is not printed."
        if data.refusals:
            return f"{format_operations(len(data.refusals))} refused; nothing was placed."
        if data.devices:
            return (
                "Nothing of placement is printed; TensorFlow lists "
                f"{_join_few([listed.device for listed in data.devices])}."
            )
        if data.no_known_devices:
            return "TensorFlow knew no GPU (no known devices), and no operation is printed."
        return "This log does not say where operations ran."
    count_by_gpu = {
        device: count for device, count in totals.items() if get_device_kind(device) in ("GPU", "TPU")
    }
    total, on_gpus = sum(totals.values()), sum(count_by_gpu.values())
    verb = "ran" if data.api == "2" else "was placed" if total == 1 else "were placed"
    subject = "The only operation" if total == 1 else f"All {format_operations(total)}"
    if not data.is_complete:
        subject = f"The {format_operations(total)} that were counted"
    if not count_by_gpu:
        devices = _join_few(sorted(totals))
        text = f"{subject} {verb} on {devices}; no GPU got any."
    elif on_gpus == total:
        text = f"{subject} {verb} on {_join_few(sorted(count_by_gpu))}."
    else:
        text = (
            f"{on_gpus:,} of {format_operations(total)} {verb} on {_join_few(sorted(count_by_gpu))}, "
            f"{total - on_gpus:,} elsewhere."
        )
    if data.refusals:  # a refusal ends the program unless the program handles it
        return f"{format_operations(len(data.refusals))} refused. {text}"
    heavy_counts = (
        [] if data.other_op_count else [entry for entry in data.op_counts if entry.op in HEAVY_OPERATIONS]
    )
    if heavy_counts and count_by_gpu and on_gpus != total:
        heavy_on_gpus = sum(entry.count for entry in heavy_counts if entry.device in count_by_gpu)
        heavy_total = sum(entry.count for entry in heavy_counts)
        share = (
            f"all {heavy_total:,}"
            if heavy_on_gpus == heavy_total > 1
            else f"{heavy_on_gpus:,} of {heavy_total:,}"
        )
        text += f" On a GPU are {share} matrix products and convolutions."
    if data.unused_devices:
        text += f" {_join_few(data.unused_devices)} got nothing."
    return text


def _make_refusal_finding(data: PlacementData, log_name: str) -> list[Finding]:
    """Return a finding about the operations that TensorFlow refused to place, if there are any."""
    if not data.refusals:
        return []
    clauses = []
    for refusal in data.refusals[:MAX_SHOWN_ENTRIES]:
        operation = refusal.op or refusal.node_name or "an operation"
        target = f" on {refusal.requested_device}" if refusal.requested_device else ""
        is_reason_vague = (
            refusal.reason == "no-kernel" and not refusal.lists_kernels and not refusal.explanation
        )
        clauses.append(
            f"{operation}{target}: "
            f"{refusal.explanation or (UNLISTED_KERNEL_TEXT if is_reason_vague else TEXT_BY_REASON[refusal.reason])}"
        )
    more = (
        f"; and {len(data.refusals) - MAX_SHOWN_ENTRIES} more"
        if len(data.refusals) > MAX_SHOWN_ENTRIES
        else ""
    )
    return [
        Finding(
            Cause.PLACEMENT_ERROR.data.finding_code,
            Cause.PLACEMENT_ERROR,
            Severity.ERROR,
            f"TensorFlow refused to place {format_operations(len(data.refusals))}",
            f"{'; '.join(clauses)}{more}.",
            evidence=tuple(
                Evidence(log_name, refusal.text, refusal.line)
                for refusal in data.refusals[:MAX_SHOWN_ENTRIES]
            ),
            remedies=(SOFT_PLACEMENT_REMEDY, CHECK_REMEDY)
            if any(refusal.reason == "no-such-device" for refusal in data.refusals)
            else (SOFT_PLACEMENT_REMEDY,),
        )
    ]


def _make_missing_gpu_finding(data: PlacementData) -> list[Finding]:
    """Return a finding if TensorFlow had no GPU, or only an XLA_GPU device."""
    kinds = {device.kind for device in data.devices}
    if "XLA_GPU" in kinds and "GPU" not in kinds:
        cause_data = Cause.XLA_GPU_ONLY.data
        return [
            Finding(
                cause_data.finding_code,
                Cause.XLA_GPU_ONLY,
                Severity.ERROR,
                cause_data.finding_title,
                cause_data.meaning,
                remedies=(CHECK_REMEDY,),
            )
        ]
    if kinds & {"GPU", "TPU"} or any(
        get_device_kind(device) in ("GPU", "TPU")
        for device in (*data.count_by_device, *(cause_data.device for cause_data in data.call_counts))
    ):
        return []
    if not data.no_known_devices:
        return [_make_no_gpu_finding()] if data.count_by_device and data.is_complete else []
    return [
        Finding(
            RAN_ON_CPU,
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            "TensorFlow knew no GPU",
            '"Device mapping: no known devices." names no GPU, so everything runs on the CPU. The placement does not '
            "say why; the lines before it, and `tfdoctor check`, do.",
            remedies=(CHECK_REMEDY,),
        )
    ]


def _make_no_gpu_finding() -> Finding:
    return Finding(
        RAN_ON_CPU,
        Cause.INCONCLUSIVE,
        Severity.WARNING,
        "No operation ran on a GPU, and the log lists none",
        "Where there is a GPU, this TensorFlow does not see it. The placement does not say why.",
        remedies=(CHECK_REMEDY,),
    )


def _make_unused_device_finding(data: PlacementData) -> list[Finding]:
    """Return a finding about GPUs and TPUs that ran nothing, unless operations were refused."""
    if not data.unused_devices or data.api is None or data.refusals:
        return []  # the device may be unused only because operations were refused
    devices = _join_few(data.unused_devices)
    is_plural = len(data.unused_devices) > 1
    return [
        Finding(
            DEVICE_UNUSED,
            Cause.HEALTHY,
            Severity.WARNING,
            f"{devices} {'are' if is_plural else 'is'} there and got nothing",
            "TensorFlow puts operations on the first GPU unless the program says otherwise. It still takes the memory of "
            "every GPU that it sees.",
            remedies=(
                Remedy(
                    "Use all GPUs through tf.distribute.MirroredStrategy, or show the program one: "
                    "CUDA_VISIBLE_DEVICES=0."
                ),
            ),
        )
    ]


def _make_interruption_finding(data: PlacementData) -> list[Finding]:
    """Return a finding about operations that often ran on the CPU between operations on a GPU, or []."""
    frequent = [(op, count) for op, count in data.cpu_ops_between_gpu_ops if count >= MIN_REPORTED_CHANGES]
    if not frequent:
        return []
    operations = _join_few([f"{op} ({count:,} times)" for op, count in frequent[:MAX_SHOWN_ENTRIES]])
    return [
        Finding(
            RAN_ON_CPU,
            Cause.HEALTHY,
            Severity.WARNING,
            f"Between operations on a GPU, the CPU ran {operations}",
            "Each time the data may be copied to the CPU and back. Where this is in the training loop, it costs time.",
            remedies=(
                Remedy(
                    "Look for strings, Python functions and types without a GPU kernel in the training step."
                ),
            ),
        )
    ]


def _make_kernel_finding(cpu_operations: CpuOperations | None) -> list[Finding]:
    """Return a finding about CPU operations without a GPU kernel, or [].

    Its severity is INFO, because many operations have no GPU kernel.
    """
    if cpu_operations is None or not (
        cpu_operations.without_gpu_kernel or cpu_operations.with_fewer_gpu_types
    ):
        return []
    parts = []
    if cpu_operations.without_gpu_kernel:
        names = _join_few([f"{entry.op} ({entry.count:,})" for entry in cpu_operations.without_gpu_kernel])
        parts.append(
            f"{cpu_operations.release_range_text} has no GPU kernel for {names}: no GPU can run them."
        )
    for entry in cpu_operations.with_fewer_gpu_types[:MAX_SENTENCES]:
        missing = _join_few(sorted(entry.cpu_only_types, key=_rank_type)[:MAX_NAMES])
        parts.append(f"{entry.op} ({entry.count:,}) has GPU kernels, but none for {missing}.")
    if cpu_operations.with_fewer_gpu_types:
        more = (
            f" {len(cpu_operations.with_fewer_gpu_types) - MAX_SENTENCES} more are alike."
            if len(cpu_operations.with_fewer_gpu_types) > MAX_SENTENCES
            else ""
        )
        parts[-1] += f"{more} The log does not say which type each one had."
    total = sum(entry.count for entry in cpu_operations.without_gpu_kernel)
    title = (
        f"{format_operations(total)} on the CPU {'have' if total != 1 else 'has'} no GPU kernel in "
        f"{cpu_operations.release_range_text}"
        if cpu_operations.without_gpu_kernel
        else f"Of some operations on the CPU, {cpu_operations.release_range_text} has GPU kernels for some types alone"
    )
    return [Finding(RAN_ON_CPU, Cause.HEALTHY, Severity.INFO, title, " ".join(parts))]


def _rank_type(name: str) -> tuple[int, str]:
    """Return a sort key that puts the types in COMMON_TYPES first."""
    return (COMMON_TYPES.index(name) if name in COMMON_TYPES else len(COMMON_TYPES)), name


def _make_copy_finding(data: PlacementData) -> list[Finding]:
    """Return a finding about the copies that the log names and about frequent changes of the device, or []."""
    parts = []
    if data.copies:
        full_copies = [copy for copy in data.copies if copy.source and copy.target]
        single_ends = [copy for copy in data.copies if not (copy.source and copy.target)]
        pairs = dict.fromkeys((copy.source, copy.target) for copy in full_copies)
        for source, target in list(pairs)[:MAX_SENTENCES]:
            matches = [copy for copy in full_copies if (copy.source, copy.target) == (source, target)]
            total = sum(copy.count for copy in matches)
            frequency = "once" if total == 1 else f"{total:,} times"
            parts.append(
                f"TensorFlow copied from {source} to {target} {frequency}, for {_join_few([copy.op for copy in matches])}."
            )
        if single_ends:
            items = _join_few(
                [f"{copy.op} on {copy.source or copy.target} ({copy.count:,})" for copy in single_ends]
            )
            parts.append(f"The log names these ends of copies: {items}.")
    changes = [change for change in data.device_changes if change.count >= MIN_REPORTED_CHANGES]
    if changes:
        items = _join_few(
            [f"from {change.previous_device} to {change.device} {change.count:,} times" for change in changes]
        )
        parts.append(
            f"Operations that ran one after the other went {items}. Where the second needed what the first one made, "
            "TensorFlow copied it; the log does not say where."
        )
    if not parts:
        return []
    title = (
        "Data went between devices" if data.copies else "The device often changed from operation to operation"
    )
    return [Finding(RAN_ON_CPU, Cause.HEALTHY, Severity.INFO, title, " ".join(parts))]


def format_operations(count: int) -> str:
    """Format a count as "1 operation" or "1,204 operations"."""
    return f"{count:,} operation{'s' if count != 1 else ''}"


def _join_few(names: Sequence[str]) -> str:
    """Join the first `MAX_NAMES` names, and add the number of the others."""
    return join_first(names, MAX_NAMES) if len(names) > MAX_NAMES else join_words(names)
