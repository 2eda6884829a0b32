"""Explain the additional time that first calls take."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfdoctor.core.text import join_words
from tfdoctor.extensions.bench.models import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.extensions.bench.models import MeasuredDevice, Measurement
    from tfdoctor.extensions.bench.reader import RawMeasurements

__all__ = ["STEP_PHRASES", "add_compilation_steps", "describe_first_calls"]

STEP_PHRASES = {
    "ptx-jit": "the driver compiling PTX (JIT), or finding it in its cache",
    "ptxas": "ptxas compiling kernels",
    "xla": "XLA compiling",
    "cudnn-autotune": "cuDNN's algorithms being tried",
    "graph": "graphs being optimized, kernels and libraries being loaded",
}
"""The steps that only a first call needs, with a phrase for each."""
_PTX_CAPABILITY = re.compile(r"CUDA kernel binaries compatible with compute capability\s{0,3}(\d{1,2}\.\d)")
"""TensorFlow's warning that it was built without kernels for this compute capability, so that PTX is compiled."""


def add_compilation_steps(
    measurement: Measurement, devices_by_name: Mapping[str, MeasuredDevice], raw_result: RawMeasurements
) -> Measurement:
    """Return the measurement with `first_call_steps`: the additional steps that its first call may have done.

    The log lines in `compilation_log` are removed.
    """
    if measurement.first_call_steps or measurement.first_call_seconds is None:
        return dataclasses.replace(measurement, compilation_log="")
    steps = []
    gpus = [name for name in measurement.devices if name.startswith("GPU")]
    if _compiles_ptx(gpus, devices_by_name, raw_result.log + measurement.compilation_log):
        steps.append("ptx-jit")
    if measurement.uses_xla or "using XLA" in measurement.compilation_log:
        steps.append("xla")
    if "ptxas" in measurement.compilation_log and not measurement.uses_xla:
        steps.append("ptxas")
    if (
        gpus
        and raw_result.autotunes_cudnn
        and not measurement.uses_xla
        and (measurement.workload == "conv" or measurement.model == "cnn")
    ):
        steps.append("cudnn-autotune")
    return dataclasses.replace(measurement, compilation_log="", first_call_steps=tuple(steps or ["graph"]))


def _compiles_ptx(gpus: Sequence[str], devices_by_name: Mapping[str, MeasuredDevice], log: str) -> bool:
    """Return whether the log reports PTX compilation for one of these GPUs.

    A report without a compute capability applies to all of them.
    """
    capabilities = set(_PTX_CAPABILITY.findall(log))
    if not capabilities:
        return bool(gpus) and "jit-compiled from PTX" in log
    return any(
        name in devices_by_name and devices_by_name[name].compute_capability in capabilities for name in gpus
    )


def describe_first_calls(measurements: Sequence[Measurement]) -> str:
    """Return a sentence on the additional time of first calls by step, or "" if there was none."""
    seconds_by_steps: dict[tuple[str, ...], float] = {}
    for measurement in measurements:
        if measurement.first_call_overhead and measurement.first_call_steps:
            seconds_by_steps[measurement.first_call_steps] = (
                seconds_by_steps.get(measurement.first_call_steps, 0.0) + measurement.first_call_overhead
            )
    total_seconds = sum(seconds_by_steps.values())
    if total_seconds <= 0:
        return ""
    longest_first = sorted(seconds_by_steps.items(), key=lambda pair: -pair[1])
    parts = [
        join_words([STEP_PHRASES.get(step, step) for step in steps])
        + (f" {format_duration(seconds)}" if len(longest_first) > 1 else "")
        for steps, seconds in longest_first
        if seconds >= 0.01 * total_seconds
    ]
    return f"Not included above: {format_duration(total_seconds)} of one-time work in the first calls: {'; '.join(parts)}."
