"""What first calls took more than the others, and what for. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfdoctor.bench.models import duration
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.bench.models import Timed, TimedDevice
    from tfdoctor.bench.reader import Measured

__all__ = ["NAMES", "describe_first_calls", "split_first_call"]

NAMES = {
    "ptx-jit": "the driver compiling PTX (JIT), or finding it in its cache",
    "ptxas": "ptxas compiling kernels",
    "xla": "XLA compiling",
    "cudnn-autotune": "cuDNN's algorithms being tried",
    "graph": "graphs being optimized, kernels and libraries being loaded",
}
_CAPABILITY = re.compile(r"CUDA kernel binaries compatible with compute capability\s{0,3}(\d{1,2}\.\d)")


def split_first_call(one: Timed, devices: Mapping[str, TimedDevice], measured: Measured) -> Timed:
    """With what its first call did beside the work. What only may have been is not told apart: all of it is named."""
    if one.compiled or one.first is None:
        return dataclasses.replace(one, heard="")
    what = []
    gpus = [name for name in one.devices if name.startswith("GPU")]
    if _compiles_ptx(gpus, devices, measured.log + one.heard):
        what.append("ptx-jit")
    if one.xla or "using XLA" in one.heard:
        what.append("xla")
    if "ptxas" in one.heard and not one.xla:
        what.append("ptxas")
    if gpus and measured.autotuned and not one.xla and (one.workload == "conv" or one.model == "cnn"):
        what.append("cudnn-autotune")
    return dataclasses.replace(one, heard="", compiled=tuple(what or ["graph"]))


def _compiles_ptx(gpus: Sequence[str], devices: Mapping[str, TimedDevice], log: str) -> bool:
    """Return whether the log says so of one of these GPUs; where it names no capability, of all."""
    named_ones = set(_CAPABILITY.findall(log))
    if not named_ones:
        return bool(gpus) and "jit-compiled from PTX" in log
    return any(name in devices and devices[name].capability in named_ones for name in gpus)


def describe_first_calls(runs: Sequence[Timed]) -> str:
    """Return what all first calls took more, the longest first, as a sentence; "" if they took nothing."""
    sums: dict[tuple[str, ...], float] = {}
    for one in runs:
        if one.compiling and one.compiled:
            sums[one.compiled] = sums.get(one.compiled, 0.0) + one.compiling
    total = sum(sums.values())
    if total <= 0:
        return ""
    longest = sorted(sums.items(), key=lambda pair: -pair[1])
    parts = [
        join_words([NAMES.get(word, word) for word in what])
        + (f" {duration(seconds)}" if len(longest) > 1 else "")
        for what, seconds in longest
        if seconds >= 0.01 * total
    ]
    return f"First calls took {duration(total)} more, apart from the times: {'; '.join(parts)}."
