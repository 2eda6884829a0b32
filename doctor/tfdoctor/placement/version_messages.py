"""Which release wrote a placement log: what of a log of any size is read for it, and what that says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.logs.sources import drop_other_eras
from tfdoctor.logs.version_inference import origin

if TYPE_CHECKING:
    from tfdoctor.compat import Compat

__all__ = ["FirstMessages", "find_era"]

BEGINNING = 1 << 16
"""Bytes of the beginning that are kept whole."""
MAX_LINE_BYTES = 2000
"""Bytes of a line that are kept."""
MAX_SOURCE_LINES = 1000
"""Lines of the source that are kept apart."""
_SOURCE = re.compile(rb"\.cc:(\d{1,5})\]")
"""Where the message of a line of the source begins; its number alone, to look for many at once."""

_PUBLISHED = re.compile(r"\d{1,3}(?:\.\d{1,3}){1,2}(?:rc\d{1,2})?")
_REBUILT = re.compile(
    rb"(?:[Tt]ensor[Ff]low|NVIDIA Release)[^\n]{0,40}?\d\d?\.\d{1,2}(?:\.\d{1,2}\+|-tf[12])"
)
"""What vendors' builds are called: 2.10.0+nv22.12, and a container's "NVIDIA Release 22.12-tf2"."""


class FirstMessages:
    """The beginning of a log, and of each line of TensorFlow's source the first message that is behind it."""

    def __init__(self) -> None:
        self.beginning = b""
        self.lines: list[bytes] = []
        self._numbers: set[bytes] = set()
        self._room = BEGINNING

    def take(self, block: bytes) -> None:
        """Take one piece of whole lines."""
        if self._room:
            whole = len(block) <= self._room
            self.beginning += block if whole else block[: block.rfind(b"\n", 0, self._room) + 1]
            self._room = self._room - len(block) if whole else 0
        new = set(_SOURCE.findall(block)) - self._numbers
        for number in sorted(new)[: MAX_SOURCE_LINES - len(self.lines)]:
            self._numbers.add(number)
            at = block.find(b".cc:" + number + b"]")
            line = block[
                max(block.rfind(b"\n", 0, at) + 1, at - MAX_LINE_BYTES) : at + MAX_LINE_BYTES
            ].partition(b"\n")[0]
            self.lines.append(line + b"\n")

    @property
    def text(self) -> bytes:
        """Return all of it."""
        return self.beginning + b"".join(self.lines)


def find_era(said: bytes, compat: Compat) -> str | None:
    """Return the minor releases that can have written it: "2.10", or "2.4-2.11".

    None: it does not say; or a nightly, a vendor's build or several TensorFlows wrote it, whose kernels nobody
    knows.
    """
    if _REBUILT.search(said):
        return None
    found = origin(drop_other_eras(scan([said], load_signatures()), compat), compat)
    if found.sources.foreign is not None or len(found.sources.writers) > 1:
        return None
    if found.version is not None and not _PUBLISHED.fullmatch(found.version):
        return None
    return found.era
