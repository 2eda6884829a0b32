"""``nvidia-smi --query-… --format=csv[,noheader][,nounits]``."""

from __future__ import annotations

import re
from collections import Counter

from tfdoctor.parse._text import Parsed, clean_lines, is_fence
from tfdoctor.records import dataclass

# A property name as in --help-query-gpu, with its unit unless nounits; pdsh adds a host to the first.
_COLUMN = re.compile(r"(?:\S{1,200}:[ \t])?[a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*(?: \[[A-Za-z%/]{1,8}\])?")
_PLAIN_COLUMNS = frozenset({
    "name", "gpu_name", "index", "uuid", "gpu_uuid", "serial", "gpu_serial", "count", "timestamp", "pstate",
    "pid", "process_name", "vbios_version", "driver_version", "kmd_version", "compute_cap", "compute_mode",
})  # fmt: skip
# Values that identify a row without a header; one matching cell is enough.
_VALUE = re.compile(
    r"(?:-?[0-9]{1,15}(?:\.[0-9]{1,9}){0,4}(?: ?(?:MiB|MB|GiB|%|W|MHz|C|us|KB/s))?"
    r"|\[?(?:N/A|Not Supported|Not Found|Unknown Error|Insufficient Permissions|GPU is lost)\]?"
    r"|(?:GPU|MIG)-\S{1,80}|[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]|P[0-9]{1,2}"
    r"|Enabled|Disabled|Active|Not Active|Default|0x[0-9A-Fa-f]{1,16})"
)


@dataclass(frozen=True, slots=True)
class SmiCsv(Parsed):
    """The parsed table; ``header`` is None with ``noheader``; cells are stripped strings, as printed."""

    header: tuple[str, ...] | None
    n_rows: int
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def parse_smi_csv(text: str) -> SmiCsv:
    """Parse CSV output; prompts, fences and prose around it are ignored."""
    lines = [_split_cells(line) for line in clean_lines(text) if _can_be_data(line)]
    header_at = next((number for number, cells in enumerate(lines) if _is_header(cells)), None)
    if header_at is not None:
        header = lines[header_at]
        rows = tuple(
            cells for cells in lines[header_at + 1 :] if len(cells) == len(header) and _is_data(cells, header)
        )
        return SmiCsv(header, len(rows), rows)
    candidates = [cells for cells in lines if _has_value(cells)]
    if not candidates:
        return SmiCsv(None, 0, (), notes=("no rows",))
    # Without a header, rows are the lines with the most frequent number of cells; on a tie the larger one.
    counts = Counter(map(len, candidates))
    width = max(counts, key=lambda size: (counts[size], size))
    rows = tuple(cells for cells in candidates if len(cells) == width)
    return SmiCsv(None, len(rows), rows)


def _can_be_data(line: str) -> bool:
    return bool(line.strip()) and not is_fence(line) and "nvidia-smi" not in line and "--query-" not in line


def _split_cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip(" \t`>").split(","))


def _is_header(cells: tuple[str, ...]) -> bool:
    if not all(_COLUMN.fullmatch(cell) for cell in cells):
        return False
    return any("." in cell or cell.rsplit(": ", 1)[-1] in _PLAIN_COLUMNS for cell in cells)


def _is_data(cells: tuple[str, ...], header: tuple[str, ...]) -> bool:
    """Return whether cells are a data row and not a repeated header (``-l``) or, in one column, a prompt."""
    return cells != header and (len(cells) > 1 or not cells[0].endswith(("$", "#", ">")))


def _has_value(cells: tuple[str, ...]) -> bool:
    return any(_VALUE.fullmatch(cell) for cell in cells)
