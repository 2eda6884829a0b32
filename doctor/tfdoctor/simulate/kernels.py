"""Is there code for this card? Read from the fat binaries of the TensorFlow that is there, not from a table.

A fat binary has machine code (cubins) and PTX, each for an architecture. The driver takes a cubin of the card's major
and no higher minor; else it compiles PTX for the card or an older one, but for PTX with a letter (`sm_90a`), which is
for that very card, or with `f` (`sm_100f`), which is for its major.
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
"""Seconds that reading all shared objects may take: a gigabyte, perhaps from a slow disk."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The fat binaries of a TensorFlow."""

    counts: Mapping[str, int]
    """"60,70,89|90a:8.5" → how many have this machine code and this PTX (see compat.fat_binaries)."""
    why: str = ""
    """Why they could not be read; empty where they were."""


def read_kernels(system: System, python: PythonFacts, tensorflow: TensorFlowFacts) -> Binaries:
    """Read the kernels in a child of that Python: of TensorFlow's folder, and of conda's."""
    apart = []
    lib = f"{python.prefix}/lib"
    with contextlib.suppress(OSError):
        apart = [f"{lib}/{name}" for name in system.listdir(lib) if name.startswith("libtensorflow")]
    folders = dict.fromkeys((tensorflow.package_dir, tensorflow.core_dir, *apart))
    answer, result = run_payload(
        system,
        python.executable,
        "fatbins",
        [one for one in folders if one],
        timeout=READ_TIMEOUT_S,
        flags=("-S",),
    )
    counts = _read_counts(answer)
    if counts:
        return Binaries(counts)
    failed = answer.get("failed")
    said = clean_line(str(failed[0])) if isinstance(failed, list) and failed else ""
    if said or not result.ok:
        return Binaries({}, f"its shared objects could not be read: {said or result.describe_end()}")
    return Binaries({}, "there is no GPU code in its shared objects")


def _read_counts(answer: Mapping[str, Any]) -> dict[str, int]:
    """Return what the child said, as far as it has the right shape."""
    raw = answer.get("binaries")
    if not isinstance(raw, dict):
        return {}
    return {
        str(kinds): count
        for kinds, count in raw.items()
        if isinstance(count, int) and not isinstance(count, bool) and count > 0 and "|" in str(kinds)
    }
