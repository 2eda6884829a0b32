"""``nvidia-smi --query-… --format=csv[,noheader][,nounits]``."""

from __future__ import annotations

import re
from collections import Counter

from tfdoctor.parse._text import Parsed, clean_lines, is_fence
from tfdoctor.records import dataclass

# A column: a property name as of --help-query-gpu, with its unit unless nounits; a host prefix on the first
# (pdsh).
_COLUMN = re.compile(r"(?:\S{1,200}:[ \t])?[a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*(?: \[[A-Za-z%/]{1,8}\])?")
_PLAIN_COLUMNS = frozenset({
    "name", "gpu_name", "index", "uuid", "gpu_uuid", "serial", "gpu_serial", "count", "timestamp", "pstate",
    "pid", "process_name", "vbios_version", "driver_version", "kmd_version", "compute_cap", "compute_mode",
})  # fmt: skip
# What a cell of a row without a header looks like, at least in one column of it.
_VALUE = re.compile(
    r"(?:-?[0-9]{1,15}(?:\.[0-9]{1,9}){0,4}(?: ?(?:MiB|MB|GiB|%|W|MHz|C|us|KB/s))?"
    r"|\[?(?:N/A|Not Supported|Not Found|Unknown Error|Insufficient Permissions|GPU is lost)\]?"
    r"|(?:GPU|MIG)-\S{1,80}|[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]|P[0-9]{1,2}"
    r"|Enabled|Disabled|Active|Not Active|Default|0x[0-9A-Fa-f]{1,16})"
)


@dataclass(frozen=True, slots=True)
class SmiCsv(Parsed):
    """``header`` is None with ``noheader``; the cells of ``rows`` are stripped strings, as printed."""

    header: tuple[str, ...] | None
    n_rows: int
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def parse_smi_csv(text: str) -> SmiCsv:
    """Read a csv answer; prompts, fences and prose around it are left out."""
    lines = [_cells(line) for line in clean_lines(text) if _can_be_data(line)]
    at = next((number for number, cells in enumerate(lines) if _is_header(cells)), None)
    if at is not None:
        header = lines[at]
        rows = tuple(
            cells for cells in lines[at + 1 :] if len(cells) == len(header) and _is_data(cells, header)
        )
        return SmiCsv(header, len(rows), rows)
    candidates = [cells for cells in lines if _has_value(cells)]
    if not candidates:
        return SmiCsv(None, 0, (), notes=("no rows",))
    # Without a header the usual number of cells tells rows from prose; on a tie the wider ones.
    counts = Counter(map(len, candidates))
    width = max(counts, key=lambda size: (counts[size], size))
    rows = tuple(cells for cells in candidates if len(cells) == width)
    return SmiCsv(None, len(rows), rows)


def _can_be_data(line: str) -> bool:
    return bool(line.strip()) and not is_fence(line) and "nvidia-smi" not in line and "--query-" not in line


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip(" \t`>").split(","))


def _is_header(cells: tuple[str, ...]) -> bool:
    if not all(_COLUMN.fullmatch(cell) for cell in cells):
        return False
    return any("." in cell or cell.rsplit(": ", 1)[-1] in _PLAIN_COLUMNS for cell in cells)


def _is_data(cells: tuple[str, ...], header: tuple[str, ...]) -> bool:
    """Return a repeated header (``-l``) is no row; with one column anything goes that is not a prompt."""
    return cells != header and (len(cells) > 1 or not cells[0].endswith(("$", "#", ">")))


def _has_value(cells: tuple[str, ...]) -> bool:
    return any(_VALUE.fullmatch(cell) for cell in cells)
