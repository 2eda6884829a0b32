"""Find the release that wrote a placement log, using only a small part of a large log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.logs.sources import drop_other_eras
from tfdoctor.logs.version_inference import infer_origin

if TYPE_CHECKING:
    from tfdoctor.compat import Compat

__all__ = ["FirstMessages", "infer_release_range"]

BEGINNING_BYTES = 1 << 16
"""The length of the log's beginning that is stored completely, in bytes."""
MAX_LINE_BYTES = 2000
"""The maximum number of bytes before and after a source reference that are stored."""
MAX_SOURCE_LINES = 1000
"""The maximum number of source lines whose first messages are stored."""
_SOURCE_LINE = re.compile(rb"\.cc:(\d{1,5})\]")
"""The end of a message's source reference, such as ".cc:42]". It is short, so that the search is fast."""
_RELEASE_VERSION = re.compile(r"\d{1,3}(?:\.\d{1,3}){1,2}(?:rc\d{1,2})?")
"""A version of a published release or release candidate."""
_VENDOR_BUILD = re.compile(
    rb"(?:[Tt]ensor[Ff]low|NVIDIA Release)[^\n]{0,40}?\d\d?\.\d{1,2}(?:\.\d{1,2}\+|-tf[12])"
)
"""The name of a vendor's build, such as "TensorFlow 2.10.0+nv22.12" or "NVIDIA Release 22.12-tf2"."""


class FirstMessages:
    """A collector of the beginning of a log, and of the first message for each source line number."""

    def __init__(self) -> None:
        self.beginning = b""
        self.lines: list[bytes] = []
        """The first message for each source line number."""
        self._source_line_numbers: set[bytes] = set()
        self._remaining_bytes = BEGINNING_BYTES

    def read_block(self, block: bytes) -> None:
        """Read a block of complete lines."""
        if self._remaining_bytes:
            has_space = len(block) <= self._remaining_bytes
            self.beginning += (
                block if has_space else block[: block.rfind(b"\n", 0, self._remaining_bytes) + 1]
            )
            self._remaining_bytes = self._remaining_bytes - len(block) if has_space else 0
        new_numbers = set(_SOURCE_LINE.findall(block)) - self._source_line_numbers
        for number in sorted(new_numbers)[: MAX_SOURCE_LINES - len(self.lines)]:
            self._source_line_numbers.add(number)
            position = block.find(b".cc:" + number + b"]")
            line = block[
                max(block.rfind(b"\n", 0, position) + 1, position - MAX_LINE_BYTES) : position
                + MAX_LINE_BYTES
            ].partition(b"\n")[0]
            self.lines.append(line + b"\n")

    @property
    def text(self) -> bytes:
        """All bytes that were stored."""
        return self.beginning + b"".join(self.lines)


def infer_release_range(messages: bytes, compat: Compat) -> str | None:
    """Return the minor releases that can have written the log, such as "2.10" or "2.4-2.11".

    Return None if the log does not show them. Also return None if a nightly, a vendor's build or several versions of
    TensorFlow wrote the log, because their kernels are unknown.
    """
    if _VENDOR_BUILD.search(messages):
        return None
    inferred = infer_origin(drop_other_eras(scan([messages], load_signatures()), compat), compat)
    if inferred.sources.unmatched_line is not None or len(inferred.sources.writers) > 1:
        return None
    if inferred.version is not None and not _RELEASE_VERSION.fullmatch(inferred.version):
        return None
    return inferred.era
