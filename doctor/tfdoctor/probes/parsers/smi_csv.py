"""Parse the CSV output of ``nvidia-smi --query-… --format=csv[,noheader][,nounits]``."""

from __future__ import annotations

import re
from collections import Counter

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean_lines, is_fence

# A property name as in --help-query-gpu, with its unit unless nounits is given. pdsh adds a host before the first name.
_COLUMN = re.compile(r"(?:\S{1,200}:[ \t])?[a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*(?: \[[A-Za-z%/]{1,8}\])?")
_PLAIN_COLUMNS = frozenset({
    "name", "gpu_name", "index", "uuid", "gpu_uuid", "serial", "gpu_serial", "count", "timestamp", "pstate",
    "pid", "process_name", "vbios_version", "driver_version", "kmd_version", "compute_cap", "compute_mode",
})  # fmt: skip
# Values that identify a row without a header. One matching cell is enough.
_TYPICAL_VALUE = re.compile(
    r"(?:-?[0-9]{1,15}(?:\.[0-9]{1,9}){0,4}(?: ?(?:MiB|MB|GiB|%|W|MHz|C|us|KB/s))?"
    r"|\[?(?:N/A|Not Supported|Not Found|Unknown Error|Insufficient Permissions|GPU is lost)\]?"
    r"|(?:GPU|MIG)-\S{1,80}|[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]|P[0-9]{1,2}"
    r"|Enabled|Disabled|Active|Not Active|Default|0x[0-9A-Fa-f]{1,16})"
)


@dataclass(frozen=True, slots=True)
class SmiCsv(Parsed):
    """The parsed table. ``header`` is None if there is none. Cells are strings without outer spaces."""

    header: tuple[str, ...] | None
    n_rows: int
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def parse_smi_csv(text: str) -> SmiCsv:
    """Parse CSV output. Prompts, Markdown fences and prose around it are ignored."""
    cell_lines = [_split_cells(line) for line in clean_lines(text) if _can_be_data(line)]
    header_index = next((index for index, cells in enumerate(cell_lines) if _is_header(cells)), None)
    if header_index is not None:
        header = cell_lines[header_index]
        rows = tuple(
            cells
            for cells in cell_lines[header_index + 1 :]
            if len(cells) == len(header) and _is_data(cells, header)
        )
        return SmiCsv(header, n_rows=len(rows), rows=rows)
    candidates = [cells for cells in cell_lines if _has_typical_value(cells)]
    if not candidates:
        return SmiCsv(header=None, n_rows=0, rows=(), notes=("no rows",))
    # Without a header, rows are the lines with the most frequent number of cells, or with the largest such number.
    counts = Counter(map(len, candidates))
    width = max(counts, key=lambda size: (counts[size], size))
    rows = tuple(cells for cells in candidates if len(cells) == width)
    return SmiCsv(header=None, n_rows=len(rows), rows=rows)


def _can_be_data(line: str) -> bool:
    return bool(line.strip()) and not is_fence(line) and "nvidia-smi" not in line and "--query-" not in line


def _split_cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip(" \t`>").split(","))


def _is_header(cells: tuple[str, ...]) -> bool:
    if not all(_COLUMN.fullmatch(cell) for cell in cells):
        return False
    return any("." in cell or cell.rsplit(": ", 1)[-1] in _PLAIN_COLUMNS for cell in cells)


def _is_data(cells: tuple[str, ...], header: tuple[str, ...]) -> bool:
    """Return whether the cells are a data row.

    With ``-l`` the header is repeated, and in a table of one column a prompt looks like a cell.
    """
    return cells != header and (len(cells) > 1 or not cells[0].endswith(("$", "#", ">")))


def _has_typical_value(cells: tuple[str, ...]) -> bool:
    return any(_TYPICAL_VALUE.fullmatch(cell) for cell in cells)
