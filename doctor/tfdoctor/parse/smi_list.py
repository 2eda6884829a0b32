"""``nvidia-smi -L``: one line a GPU, one more for each MIG device under it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.parse._text import Parsed, clean_lines
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRY = re.compile(
    r"\bGPU (?P<gpu>[0-9]{1,4}):[ \t]|\bMIG +(?P<profile>\S{1,40}) +Device +(?P<device>[0-9]{1,4}):"
)
_UUID = "(UUID:"


@dataclass(frozen=True, slots=True)
class ListedMigDevice(Parsed):
    """``profile`` is the instance profile (``1g.10gb``), ``index`` the MIG device number under its GPU."""

    profile: str
    index: int
    uuid: str | None


@dataclass(frozen=True, slots=True)
class ListedGpu(Parsed):
    """A GPU as listed; ``uuid`` as printed, elided or not."""

    index: int
    name: str | None
    uuid: str | None
    mig_devices: tuple[ListedMigDevice, ...]


@dataclass(frozen=True, slots=True)
class SmiList(Parsed):
    """All listed GPUs, in order; the counts are of lines, also of MIG lines with no GPU line before them."""

    gpus: tuple[ListedGpu, ...]
    n_gpu_lines: int
    n_mig_lines: int
    notes: tuple[str, ...] = ()


def parse_smi_list(text: str) -> SmiList:
    """Read ``nvidia-smi -L``; prompts, pod prefixes and lost indentation do not matter."""
    heads: list[tuple[int, str | None, str | None]] = []
    migs: list[list[ListedMigDevice]] = []
    orphans = 0
    for start, rest in _entries(text):
        name, uuid = _name_and_uuid(rest)
        if start["gpu"]:
            heads.append((int(start["gpu"]), name, uuid))
            migs.append([])
        elif migs:
            migs[-1].append(ListedMigDevice(start["profile"], int(start["device"]), uuid))
        else:
            orphans += 1
    notes = (f"{orphans} MIG lines stand before any GPU line",) if orphans else ()
    return SmiList(
        gpus=tuple(ListedGpu(*head, tuple(devices)) for head, devices in zip(heads, migs, strict=True)),
        n_gpu_lines=len(heads),
        n_mig_lines=sum(map(len, migs)) + orphans,
        notes=notes,
    )


def _entries(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the start of each entry and what follows it; a bug report's form may have joined the lines."""
    for line in clean_lines(text):
        starts = list(_ENTRY.finditer(line))
        ends = [match.start() for match in starts[1:]] + [len(line)] * bool(starts)
        for match, end in zip(starts, ends, strict=True):
            yield match, line[match.end() : end]


def _name_and_uuid(rest: str) -> tuple[str | None, str | None]:
    """Split ``NVIDIA H100 (UUID: GPU-…)``; a cut UUID is kept as far as it goes."""
    name, found, tail = rest.partition(_UUID)
    uuid = tail.split(")")[0].strip() if found else ""
    return name.strip() or None, uuid or None
