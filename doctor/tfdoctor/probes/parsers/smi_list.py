"""Parse ``nvidia-smi -L``, which prints a line for each GPU and for each of its MIG devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRY = re.compile(
    r"\bGPU (?P<gpu>[0-9]{1,4}):[ \t]|\bMIG +(?P<profile>\S{1,40}) +Device +(?P<device>[0-9]{1,4}):"
)
_UUID_LABEL = "(UUID:"


@dataclass(frozen=True, slots=True)
class ListedMigDevice(Parsed):
    """A MIG device. ``profile`` is for example ``1g.10gb``, and ``index`` is the device number on the GPU."""

    profile: str
    index: int
    uuid: str | None


@dataclass(frozen=True, slots=True)
class ListedGpu(Parsed):
    """A listed GPU. ``uuid`` is as printed, even if it is truncated."""

    index: int
    name: str | None
    uuid: str | None
    mig_devices: tuple[ListedMigDevice, ...]


@dataclass(frozen=True, slots=True)
class SmiList(Parsed):
    """The listed GPUs in order. ``n_mig_lines`` also counts MIG lines without a GPU line before them."""

    gpus: tuple[ListedGpu, ...]
    n_gpu_lines: int
    n_mig_lines: int
    notes: tuple[str, ...] = ()


def parse_smi_list(text: str) -> SmiList:
    """Parse the output of ``nvidia-smi -L``. Prompts, pod prefixes and indentation are ignored."""
    gpu_entries: list[tuple[int, str | None, str | None]] = []
    """(index, name, UUID) of each GPU."""
    mig_lists: list[list[ListedMigDevice]] = []
    orphan_count = 0
    for start, rest in _split_entries(text):
        name, uuid = _split_name_and_uuid(rest)
        if start["gpu"]:
            gpu_entries.append((int(start["gpu"]), name, uuid))
            mig_lists.append([])
        elif mig_lists:
            mig_lists[-1].append(ListedMigDevice(start["profile"], int(start["device"]), uuid))
        else:
            orphan_count += 1
    notes = (f"{orphan_count} MIG lines stand before any GPU line",) if orphan_count else ()
    return SmiList(
        gpus=tuple(
            ListedGpu(index, name, uuid, mig_devices=tuple(mig_devices))
            for (index, name, uuid), mig_devices in zip(gpu_entries, mig_lists, strict=True)
        ),
        n_gpu_lines=len(gpu_entries),
        n_mig_lines=sum(map(len, mig_lists)) + orphan_count,
        notes=notes,
    )


def _split_entries(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield (match of the start of an entry, text after it). Several lines may have been joined into one."""
    for line in clean_lines(text):
        starts = list(_ENTRY.finditer(line))
        ends = [*(match.start() for match in starts[1:]), len(line)]
        for match, end in zip(starts, ends, strict=False):
            yield match, line[match.end() : end]


def _split_name_and_uuid(rest: str) -> tuple[str | None, str | None]:
    """Return the name and the UUID in ``NVIDIA H100 (UUID: GPU-…)``, or None for each that is missing."""
    name, separator, tail = rest.partition(_UUID_LABEL)
    uuid = tail.split(")")[0].strip() if separator else ""
    return name.strip() or None, uuid or None
