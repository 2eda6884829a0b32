"""Explain the additional time that first calls take."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfdoctor.bench.models import format_duration
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.bench.models import MeasuredDevice, Measurement
    from tfdoctor.bench.reader import RawMeasurements

__all__ = ["STEP_NAMES", "add_compilation_steps", "describe_first_calls"]

STEP_NAMES = {
    "ptx-jit": "the driver compiling PTX (JIT), or finding it in its cache",
    "ptxas": "ptxas compiling kernels",
    "xla": "XLA compiling",
    "cudnn-autotune": "cuDNN's algorithms being tried",
    "graph": "graphs being optimized, kernels and libraries being loaded",
}
"""The steps that only a first call needs, with their descriptions in sentences."""
_CAPABILITY = re.compile(r"CUDA kernel binaries compatible with compute capability\s{0,3}(\d{1,2}\.\d)")


def add_compilation_steps(
    timed: Measurement, devices: Mapping[str, MeasuredDevice], measured: RawMeasurements
) -> Measurement:
    """Fill in `compiled`, the additional steps that the first call of a measurement may have done.

    The log lines in `heard` are removed.
    """
    if timed.compiled or timed.first is None:
        return dataclasses.replace(timed, heard="")
    reasons = []
    gpus = [name for name in timed.devices if name.startswith("GPU")]
    if _compiles_ptx(gpus, devices, measured.log + timed.heard):
        reasons.append("ptx-jit")
    if timed.xla or "using XLA" in timed.heard:
        reasons.append("xla")
    if "ptxas" in timed.heard and not timed.xla:
        reasons.append("ptxas")
    if gpus and measured.autotuned and not timed.xla and (timed.workload == "conv" or timed.model == "cnn"):
        reasons.append("cudnn-autotune")
    return dataclasses.replace(timed, heard="", compiled=tuple(reasons or ["graph"]))


def _compiles_ptx(gpus: Sequence[str], devices: Mapping[str, MeasuredDevice], log: str) -> bool:
    """Return whether the log reports PTX compilation for one of these GPUs.

    A report without a compute capability applies to all of them.
    """
    capabilities = set(_CAPABILITY.findall(log))
    if not capabilities:
        return bool(gpus) and "jit-compiled from PTX" in log
    return any(name in devices and devices[name].capability in capabilities for name in gpus)


def describe_first_calls(runs: Sequence[Measurement]) -> str:
    """Return a sentence on the additional time of first calls by reason, or "" if there was none."""
    sums: dict[tuple[str, ...], float] = {}
    for timed in runs:
        if timed.compiling and timed.compiled:
            sums[timed.compiled] = sums.get(timed.compiled, 0.0) + timed.compiling
    total = sum(sums.values())
    if total <= 0:
        return ""
    longest = sorted(sums.items(), key=lambda pair: -pair[1])
    parts = [
        join_words([STEP_NAMES.get(reason, reason) for reason in reasons])
        + (f" {format_duration(seconds)}" if len(longest) > 1 else "")
        for reasons, seconds in longest
        if seconds >= 0.01 * total
    ]
    return f"First calls took {format_duration(total)} more, apart from the times: {'; '.join(parts)}."
