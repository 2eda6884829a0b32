"""Is there code for this card? Read from the fat binaries of the TensorFlow that is there, not from a table.

A fat binary has machine code (cubins) and PTX, each for an architecture. The driver takes a cubin of the card's major
and no higher minor; else it compiles PTX for the card or an older one, but for PTX with a letter (`sm_90a`), which is
for that very card, or with `f` (`sm_100f`), which is for its major.
"""

from __future__ import annotations

import contextlib
import enum
import re
from typing import TYPE_CHECKING, Any

from tfdoctor import versions
from tfdoctor.records import dataclass
from tfdoctor.system.payloads import run_payload
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.facts import PythonFacts, TensorFlowFacts
    from tfdoctor.system import System

__all__ = ["Binaries", "Coverage", "Kernels", "coverage", "read_kernels"]

READING = 120.0
"""Seconds that reading all shared objects may take: a gigabyte, perhaps from a slow disk."""
FEW = 100
"""One in so many fat binaries without code is said, and makes no card useless: each wheel has a kernel or two of its
compiler's own libraries that have machine code alone."""
_ARCHITECTURE = re.compile(r"(\d{1,2})(\d)([af]?)")


class Kernels(enum.Enum):
    """What there is for a card."""

    NATIVE = "machine code"
    PTX = "PTX alone"
    """At least a part of the kernels has to be compiled by the driver."""
    TOO_NEW = "none: the card is too new"
    TOO_OLD = "none: the card is too old"


@dataclass(frozen=True, slots=True)
class Binaries:
    """The fat binaries of a TensorFlow."""

    counts: Mapping[str, int]
    """"60,70,89|90a" → how many have this machine code and this PTX."""
    why: str = ""
    """Why they could not be read; empty where they were."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of them a card can run."""

    capability: str
    native: int
    compiled: int
    """PTX alone."""
    newer: int
    """Only for newer cards: each of them has its own kernels, which this one never asks for."""
    lacking: int
    """Made for older cards, and with nothing that this one can run."""

    @property
    def _every(self) -> int:
        """The fat binaries that concern the card."""
        return self.native + self.compiled + self.lacking

    @property
    def kernels(self) -> Kernels:
        """The answer for the card."""
        if self.lacking * FEW > self._every:
            return Kernels.TOO_NEW
        if not self.native and not self.compiled:
            return Kernels.TOO_OLD
        return Kernels.PTX if self.compiled else Kernels.NATIVE

    @property
    def sentence(self) -> str:
        """What was found, for the reader."""
        card, every = f"compute capability {self.capability}", self._every
        but = f"; {self.lacking} without any for it, and what needs that fails" if self.lacking else ""
        if self.kernels is Kernels.NATIVE:
            some = "all" if self.native == every else f"{self.native} of"
            return f"machine code for {card} in {some} {every} fat binaries that concern it{but}"
        if self.kernels is Kernels.PTX:
            some = "all" if self.compiled == every else f"{self.compiled} of"
            when = "the driver compiles it at the first start"
            return f"PTX alone for {card} in {some} {every} fat binaries: {when}{but}"
        if self.kernels is Kernels.TOO_NEW:
            return f"no code for {card} in {self.lacking} of {every} fat binaries: the card is newer than they are"
        return f"no code for {card}: all {self.newer} fat binaries are for newer cards"


def read_kernels(system: System, python: PythonFacts, tensorflow: TensorFlowFacts) -> Binaries:
    """Read them, in a child of that Python: of TensorFlow's folder, and of what conda puts into the environment's."""
    apart = []
    lib = f"{python.prefix}/lib"
    with contextlib.suppress(OSError):
        apart = [f"{lib}/{name}" for name in system.listdir(lib) if name.startswith("libtensorflow")]
    folders = dict.fromkeys((tensorflow.package_dir, tensorflow.core_dir, *apart))
    answer, result = run_payload(
        system, python.executable, "fatbins", [one for one in folders if one], timeout=READING, flags=("-S",)
    )
    counts = _counts(answer)
    if counts:
        return Binaries(counts)
    failed = answer.get("failed")
    said = clean_line(str(failed[0])) if isinstance(failed, list) and failed else ""
    if said or not result.ok:
        return Binaries({}, f"its shared objects could not be read: {said or result.why()}")
    return Binaries({}, "there is no GPU code in its shared objects")


def _counts(answer: Mapping[str, Any]) -> dict[str, int]:
    """What the child said, as far as it has the right shape."""
    raw = answer.get("binaries")
    if not isinstance(raw, dict):
        return {}
    return {
        str(kinds): count
        for kinds, count in raw.items()
        if isinstance(count, int) and not isinstance(count, bool) and count > 0 and "|" in str(kinds)
    }


def coverage(binaries: Binaries, capability: str) -> Coverage:
    """What of them a card of this compute capability can run."""
    wanted = versions.parse_capability(capability)
    found = {"native": 0, "compiled": 0, "newer": 0, "lacking": 0}
    for kinds, count in binaries.counts.items():
        found[_of_one(kinds, wanted)] += count
    return Coverage(capability, **found)


def _of_one(kinds: str, wanted: tuple[int, int]) -> str:
    code, _, texts = kinds.partition("|")
    cubins = [(int(one[1]), int(one[2])) for one in _ARCHITECTURE.finditer(code)]
    ptx = [((int(one[1]), int(one[2])), one[3]) for one in _ARCHITECTURE.finditer(texts)]
    if any(versions.runs_machine_code(wanted, have) for have in cubins):
        return "native"
    if any(_compiles(have, letter, wanted) for have, letter in ptx):
        return "compiled"
    every = [*cubins, *(have for have, _ in ptx)]
    return "newer" if all(have > wanted for have in every) else "lacking"


def _compiles(have: tuple[int, int], letter: str, wanted: tuple[int, int]) -> bool:
    """Whether the driver compiles PTX of this architecture for the card."""
    if letter == "a":
        return have == wanted
    return have <= wanted and (letter != "f" or have[0] == wanted[0])
