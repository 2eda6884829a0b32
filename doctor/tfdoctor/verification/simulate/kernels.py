"""Read which GPU code an installed TensorFlow contains, from its fat binaries and not from a table.

A fat binary contains cubins and PTX, each for one architecture. The driver loads a cubin with the GPU's major version
and the same or a lower minor version. If there is none, it compiles PTX for the GPU's architecture or an older one. PTX
with a letter is an exception: `sm_90a` works only on exactly that architecture, and `sm_100f` only on GPUs with the
same major version.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import clean_line
from tfdoctor.system.payloads import run_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.facts import PythonFacts, TensorFlowFacts
    from tfdoctor.system import System

__all__ = ["GpuCode", "read_gpu_code"]

READ_TIMEOUT_S = 120.0
"""Time limit in seconds for reading all shared objects, which may be a gigabyte on a slow disk."""


@dataclass(frozen=True, slots=True)
class GpuCode:
    """The fat binaries of a TensorFlow installation."""

    binary_counts: Mapping[str, int]
    """The number of fat binaries with each combination of code.

    A combination is a text such as "60,70,89|90a:8.5", with the cubins before the "|" and the PTX after it (see
    compat.fat_binaries).
    """
    failure_reason: str = ""
    """The reason why there are no counts; "" if there are some."""


def read_gpu_code(system: System, python: PythonFacts, tensorflow: TensorFlowFacts) -> GpuCode:
    """Read the fat binaries of a TensorFlow in a child process with its Python.

    They are in the package's folders, and for conda packages also in lib/libtensorflow*.
    """
    conda_folders = []
    library_folder = f"{python.prefix}/lib"
    with contextlib.suppress(OSError):
        names = system.listdir(library_folder)
        conda_folders = [f"{library_folder}/{name}" for name in names if name.startswith("libtensorflow")]
    folders = dict.fromkeys((tensorflow.package_dir, tensorflow.core_dir, *conda_folders))
    output, result = run_payload(
        system,
        python.executable,
        "fatbins",
        [folder for folder in folders if folder],
        timeout=READ_TIMEOUT_S,
        flags=("-S",),
    )
    counts = _load_counts(output)
    if counts:
        return GpuCode(counts)
    failures = output.get("failed")
    error = clean_line(str(failures[0])) if isinstance(failures, list) and failures else ""
    if error or not result.ok:
        return GpuCode({}, f"its shared objects could not be read: {error or result.describe_outcome()}")
    return GpuCode({}, "there is no GPU code in its shared objects")


def _load_counts(output: Mapping[str, Any]) -> dict[str, int]:
    """Return the valid counts in the output of the child process."""
    raw_counts = output.get("binaries")
    if not isinstance(raw_counts, dict):
        return {}
    return {
        str(combination): count
        for combination, count in raw_counts.items()
        if isinstance(count, int) and not isinstance(count, bool) and count > 0 and "|" in str(combination)
    }
