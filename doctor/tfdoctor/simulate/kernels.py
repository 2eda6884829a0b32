"""The GPU code in an installed TensorFlow, read from its fat binaries rather than from a table.

A fat binary has cubins and PTX, each for one architecture. The driver loads a cubin of the same major and the
same or a lower minor as the GPU. Else it compiles PTX for the architecture of the GPU or an older one. PTX
with a letter is an exception: `sm_90a` works only on that very architecture, `sm_100f` only on its major.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfdoctor.records import dataclass
from tfdoctor.system.payloads import run_payload
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.facts import PythonFacts, TensorFlowFacts
    from tfdoctor.system import System

__all__ = ["Binaries", "read_kernels"]

READ_TIMEOUT_S = 120.0
"""Seconds allowed to read all shared objects: up to a gigabyte, possibly from a slow disk."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The fat binaries of a TensorFlow."""

    counts: Mapping[str, int]
    """The number of fat binaries with each combination of code.

    A combination is written as "60,70,89|90a:8.5", cubins before PTX (see compat.fat_binaries).
    """
    why: str = ""
    """The reason why they could not be read; empty if they were."""


def read_kernels(system: System, python: PythonFacts, tensorflow: TensorFlowFacts) -> Binaries:
    """Read the fat binaries in TensorFlow's folder, and in conda's, in a child process of that Python."""
    conda_folders = []
    lib = f"{python.prefix}/lib"
    with contextlib.suppress(OSError):
        conda_folders = [f"{lib}/{name}" for name in system.listdir(lib) if name.startswith("libtensorflow")]
    folders = dict.fromkeys((tensorflow.package_dir, tensorflow.core_dir, *conda_folders))
    answer, result = run_payload(
        system,
        python.executable,
        "fatbins",
        [folder for folder in folders if folder],
        timeout=READ_TIMEOUT_S,
        flags=("-S",),
    )
    counts = _load_counts(answer)
    if counts:
        return Binaries(counts)
    failed = answer.get("failed")
    error = clean_line(str(failed[0])) if isinstance(failed, list) and failed else ""
    if error or not result.ok:
        return Binaries({}, f"its shared objects could not be read: {error or result.describe_end()}")
    return Binaries({}, "there is no GPU code in its shared objects")


def _load_counts(answer: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts in the child's answer, without entries of the wrong shape."""
    raw = answer.get("binaries")
    if not isinstance(raw, dict):
        return {}
    return {
        str(kinds): count
        for kinds, count in raw.items()
        if isinstance(count, int) and not isinstance(count, bool) and count > 0 and "|" in str(kinds)
    }
