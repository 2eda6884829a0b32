"""Parse the plain ``nvidia-smi`` table of drivers 304 (2013) to 616 (2026) on every platform.

The table is read as a sequence of cells, not by columns. Widths, rules and headings changed a dozen times, and
pasted tables lose indentation, pipes, borders and line ends. A cell is identified by its content:

* a GPU starts at ``<index> <name> <persistence or driver model>`` followed by ``<bus id> <display>``;
* its memory is the first ``<used>MiB / <total>MiB`` before the next GPU;
* its MIG mode is on if one of its cells is ``Enabled``;
* a MIG device is a cell of four numbers followed by a memory cell;
* a process is a cell that starts with the GPU's index and a process id.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean, is_placeholder, to_int, to_mib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_VERSION_LINE = re.compile(r"NVIDIA-SMI +(?:version *: *)?(?P<smi>[0-9][0-9.]*|N/A|ERR!)")
# "KMD Version" and "CUDA UMD Version" since 610.
_DRIVER_FIELD = re.compile(r"\b(?:Driver|KMD)\s{0,40}Version:\s{0,40}(?P<value>[^|\n]{1,60})")
_CUDA_FIELD = re.compile(r"\bCUDA\s{0,40}(?:UMD\s{0,40})?Version:\s{0,40}(?P<value>[^|\n]{1,60})")
_VERSION_WORD = re.compile(r"[0-9][0-9.]*")

# The look-behind tries a run of marks only from its start, because trying each mark would take quadratic time.
_RULE = re.compile(r"(?<![+|:`])[+|:`]*(?P<rule>-{3,}|={3,})[-=+|:` ]*")
# A rule within a line, in a paragraph that lost its line ends.
_INLINE_RULE = re.compile(r"[+|](?:-{5,}|={5,})[-=+|]*")
_LINE_BREAK_TAG = re.compile(r"<br {0,3}/?>", re.IGNORECASE)
_CARET_CONTROL = re.compile(r"\^[A-Z\[]")
# A notebook's JSON escapes newlines; a Windows path may contain the same two characters before a letter.
_ESCAPED_NEWLINE = re.compile(r"(?:\\r)?\\n(?=[\s|+\"',\\0-9]|$|[A-Z][a-z][a-z] [A-Z])")
_JSON_LINE = re.compile(r"\s*\"(.*?)(?:\\n)?\",?\s*")

# Up to driver 295 the index is followed by a dot.
_GPU_INDEX = re.compile(r"\s*([0-9]{1,3})(?:\\?\.)?\s+(?=\S)")
_BUS_ID = re.compile(
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]|N/A|ERR!)\s{1,40}(?P<display>On|Off|N/A|ERR!)"
)
_MODES = frozenset({"On", "Off", "N/A", "ERR!", "WDDM", "TCC", "MCDM", "Enabled", "Disabled"})
_MEMORY = re.compile(r"(?P<used>[0-9]{1,12})\s{0,40}Mi?B\s{0,40}/\s{0,40}(?P<total>[0-9]{1,12})\s{0,40}Mi?B")
_MEMORY_USED = re.compile(r"(?P<used>[0-9]{1,12})\s{0,40}Mi?B\s{0,40}/")
_MIG_DEVICE = re.compile(r"\s*([0-9]{1,3})\s+([0-9]{1,3})\s+([0-9]{1,3})\s+([0-9]{1,3})\s*")
_PROCESS = re.compile(
    r"\s*(?P<gpu>[0-9]{1,3})\s+(?:(?P<gi>N/A|[0-9]{1,4})\s+(?P<ci>N/A|[0-9]{1,4})\s+)?(?P<pid>[0-9]{1,10})\s+"
    r"(?P<type>[A-Z](?:\+[A-Z])*)(?=\s|$)"
)
# Before driver 346 there was no Type column.
_UNTYPED_PROCESS = re.compile(r"\s*(?P<gpu>[0-9]{1,3})\s+(?P<pid>[0-9]{1,10})\s+(?=\S)")
_UNSUPPORTED_ROW = re.compile(r"\s*([0-9]{1,3})(?:\\?\.)?\s+(?:ERROR: )?Not Supported\s*")
_PROCESS_MEMORY = re.compile(r"[0-9]{1,12}\s?Mi?B|N/A|ERR!")

# No table is wider than 100 columns, so a much longer line is not a part of a broken row.
_MAX_ROW_CHARS = 200
_QUOTE_CHARS = " \t>│┃\"'`*#"


@dataclass(frozen=True, slots=True)
class TableGpu(Parsed):
    """A GPU row. A value is None if it is not printed or cut off.

    ``name`` is as printed, even if it is shortened with dots. ``mode`` is the persistence mode, or the driver model
    on Windows.
    """

    index: int
    name: str | None
    bus_id: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    mig: bool
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class TableProcess(Parsed):
    """A process row. ``gi`` and ``ci``, the MIG columns, are "N/A" or a number, or None before driver 450."""

    gpu: int
    gi: str | None
    ci: str | None
    pid: int
    type: str | None
    name: str | None
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class TableMigDevice(Parsed):
    """A MIG device row."""

    gpu: int
    gi: int
    ci: int
    mig_dev: int
    memory_used_mib: int | None
    memory_total_mib: int | None


@dataclass(frozen=True, slots=True)
class SmiTable(Parsed):
    """The whole table.

    ``driver_version`` is the version of the kernel driver (KMD), which differs from ``smi_version`` under WSL and in
    some containers. ``cuda_version`` is the newest CUDA that the driver supports, or None for N/A or ERR!. The
    ``*_raw`` fields are the values as printed. ``n_processes`` is None if the number is unknown.

    ``process_table`` is one of:

    * ``complete``: all rows are there;
    * ``none_found``: the table says that there are no processes;
    * ``empty``: the table has a closing rule, but no row;
    * ``absent``: the text has no process table;
    * ``cut``: the text ends before any row;
    * ``rows_then_cut``: the text ends after a row;
    * ``not_supported``: nvidia-smi cannot list the processes of a GPU.
    """

    smi_version: str | None
    driver_version: str | None
    cuda_version: str | None
    gpus: tuple[TableGpu, ...]
    n_processes: int | None
    processes: tuple[TableProcess, ...]
    mig_devices: tuple[TableMigDevice, ...]
    process_table: str
    not_supported_process_rows: tuple[int, ...] = ()
    cuda_version_raw: str | None = None
    driver_version_raw: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Cell:
    """The text between two pipes or line ends. A horizontal rule is the cell ``---`` or ``===``."""

    text: str
    has_closing_pipe: bool = True
    """Whether a pipe ends the cell, and not the end of the line."""

    @property
    def is_rule(self) -> bool:
        return self.text in ("---", "===")


@dataclass(frozen=True, slots=True)
class _Sections:
    """The cells of the GPU, MIG and process tables. ``processes`` is None if there is no process table."""

    gpus: list[_Cell]
    mig: list[_Cell]
    processes: list[_Cell] | None


def parse_smi_table(text: str) -> SmiTable:
    """Parse the first ``nvidia-smi`` table in ``text``. Other text around it is ignored."""
    lines = _join_broken_rows(_split_plain_lines(text))
    lines, header = _find_table(lines)
    version_match = _VERSION_LINE.search(header)
    driver_raw, cuda_raw = _find_field(_DRIVER_FIELD, header), _find_field(_CUDA_FIELD, header)
    sections = _split_sections(list(_iter_cells(lines)))
    gpus = tuple(_parse_gpus(sections.gpus))
    rows = (_parse_process(cell.text) for cell in sections.processes or ())
    processes = tuple(row for row in rows if row is not None)
    unsupported_gpus = tuple(_iter_unsupported_gpus(sections.processes or ()))
    state = _get_process_table_state(sections.processes, processes, unsupported_gpus)
    return SmiTable(
        smi_version=_clean_version(version_match["smi"]) if version_match else None,
        driver_version=_clean_version(driver_raw),
        cuda_version=_clean_version(cuda_raw),
        gpus=gpus,
        n_processes=_count_processes(state, sections.processes, processes),
        processes=processes,
        mig_devices=tuple(_parse_mig_devices(sections.mig)),
        process_table=state,
        not_supported_process_rows=unsupported_gpus,
        cuda_version_raw=cuda_raw,
        driver_version_raw=driver_raw,
        notes=tuple(_iter_notes(version_match is not None, gpus, cuda_raw, driver_raw)),
    )


def looks_like_smi_table(text: str) -> bool:
    """Return whether ``text`` has the table's first line or at least one GPU row."""
    lines = _split_plain_lines(text)
    if any(_VERSION_LINE.search(line) and _DRIVER_FIELD.search(line) for line in lines):
        return True
    return any(_BUS_ID.search(line) and "|" in line for line in lines) and any(
        _MEMORY.search(line) for line in lines
    )


# --- from text to cells


def _split_plain_lines(text: str) -> list[str]:
    """Return the lines without terminal escapes, JSON quoting and control characters in caret notation.

    Vertical box-drawing characters become pipes.
    """
    text = _LINE_BREAK_TAG.sub("\n", _CARET_CONTROL.sub("", clean(text)))
    text = text.replace("│", "|").replace("┃", "|")
    if "\\n" in text:
        text = _ESCAPED_NEWLINE.sub("\n", "\n".join(_unquote_json_line(line) for line in text.split("\n")))
    return [line.rstrip() for line in text.split("\n")]


def _unquote_json_line(line: str) -> str:
    """Return the text of a line in a notebook's ``"text": [...]`` list, or any other line unchanged."""
    stripped = line.strip()
    if len(stripped) > 1 and stripped[0] == '"' and stripped.rstrip(",")[-1:] == '"':
        body = stripped.rstrip(",")[1:-1]
        return body.removesuffix("\\n").replace('\\"', '"').replace("\\\\", "\\")
    return line


def _starts_row(line: str) -> bool:
    core = line.lstrip(_QUOTE_CHARS)
    return core.startswith(("|", "+")) or _RULE.match(core) is not None


def _ends_row(line: str) -> bool:
    return line.rstrip(" \t`\"'").endswith(("|", "+"))


def _join_broken_rows(lines: list[str]) -> list[str]:
    """Return the lines with the rows joined that a narrow terminal or a mail program broke.

    A row is broken if it starts with a pipe but does not end with one, and if one of the next three lines ends it.
    None of these lines may start a row. Shorter pieces are padded to the length of the longest one, because the
    copy lost their trailing spaces. A word that was cut at the margin must be joined without a space.
    """
    row_ends: dict[int, int] = {}
    """The index of the last line of each broken row, by the index of its first line."""
    index = 0
    while index < len(lines):
        end = _find_row_end(lines, index)
        if end > index:
            row_ends[index] = end
        index = end + 1
    broken_lines = [line for start, end in row_ends.items() for line in lines[start:end]]
    width = max(map(len, [*broken_lines, *_iter_broken_rules(lines)]), default=0) if broken_lines else 0
    rows: list[str] = []
    index = 0
    while index < len(lines):
        end = row_ends.get(index, index)
        pieces = [piece.ljust(width) for piece in lines[index:end]]
        rows.append("".join(pieces) + lines[end])
        index = end + 1
    return rows


def _iter_broken_rules(lines: list[str]) -> Iterator[str]:
    """Yield the first halves of broken rules. They show the width even if the rows were broken at spaces."""
    for line, next_line in itertools.pairwise(lines):
        if len(line) <= _MAX_ROW_CHARS and _RULE.fullmatch(line.strip()) and not _ends_row(line):
            next_text = next_line.strip()
            if next_text and not next_text.strip("-=+|") and next_text[0] in "-=" and _ends_row(next_text):
                yield line


def _find_row_end(lines: list[str], start: int) -> int:
    """Return the index of the row's last line, which is ``start`` unless the row is broken."""
    first = lines[start].lstrip(_QUOTE_CHARS)
    if not first.startswith("|") or _ends_row(lines[start]) or len(lines[start]) > _MAX_ROW_CHARS:
        return start
    for end in range(start + 1, min(start + 4, len(lines))):
        line = lines[end]
        if not line.strip() or _starts_row(line) or len(line) > _MAX_ROW_CHARS:
            return start
        if _ends_row(line):
            return end
    return start


def _find_table(lines: list[str]) -> tuple[list[str], str]:
    """Return the lines of the first table, and its version line.

    A broken version line is joined with the next two lines. Without a table, all lines are returned.
    """
    candidates = [index for index, line in enumerate(lines) if _VERSION_LINE.search(line)]
    starts = [
        index for index in candidates if _DRIVER_FIELD.search(" ".join(lines[index : index + 3]))
    ] or candidates
    if starts:
        start = starts[0]
        # a version line that follows at once belongs to the same table
        end = next((index for index in starts[1:] if index > start + 2), len(lines))
        first_line = lines[start]
        header = first_line if _DRIVER_FIELD.search(first_line) else " ".join(lines[start : start + 3])
        return lines[start:end], header
    version_line = next((line for line in lines if _DRIVER_FIELD.search(line) and "|" in line), "")
    return lines, version_line


def _iter_cells(lines: Iterable[str]) -> Iterator[_Cell]:
    for line in lines:
        stripped_line = line.strip()
        # A rule can follow a log prefix or be cut anywhere, so it is searched within the line.
        if ("---" in stripped_line or "===" in stripped_line) and (rule := _match_rule(stripped_line)):
            yield _Cell(rule)
            continue
        start = 0
        for rule_match in _INLINE_RULE.finditer(line):
            yield from _split_cells(line[start : rule_match.start()])
            yield _Cell(rule_match[0][1:4])
            start = rule_match.end()
        yield from _split_cells(line[start:])


def _split_cells(text: str) -> Iterator[_Cell]:
    pieces = text.split("|")
    for piece in pieces[:-1]:
        yield _Cell(piece)
    yield _Cell(pieces[-1], has_closing_pipe=False)


def _match_rule(line: str) -> str | None:
    """Return ``---`` or ``===`` if the line is a rule of the table, perhaps after a prefix, else None."""
    match = _RULE.search(line)
    if not match or match.end() < len(line.rstrip("`\"', ")):
        return None
    # a short run of dashes or equals signs alone is not a rule of the table
    if "+" not in match[0] and "|" not in match[0] and match.start() == 0 and len(match[0]) < 20:
        return None
    return match["rule"][:3]


def _split_sections(cells: list[_Cell]) -> _Sections:
    """Split the cells into the GPU, MIG and process tables."""
    mig_start = process_heading = None
    for index, cell in enumerate(cells):
        text = cell.text.strip()
        if mig_start is None and text.startswith("MIG devices:"):
            mig_start = index
        elif text.startswith(("Processes:", "Compute processes:")):
            process_heading = index
            break
    mig_end = len(cells) if process_heading is None else process_heading
    gpu_end = mig_end if mig_start is None else mig_start
    return _Sections(
        gpus=cells[:gpu_end],
        mig=[] if mig_start is None else cells[mig_start:mig_end],
        processes=None if process_heading is None else cells[process_heading + 1 :],
    )


# --- from cells to values


def _find_field(pattern: re.Pattern[str], header: str) -> str | None:
    """Return the value after a label, up to the next label, pipe or gap, or None if it is missing."""
    match = pattern.search(header)
    if not match:
        return None
    value = re.split(r"\s\s|\t|\bDriver |\bKMD |\bCUDA ", match["value"].strip(), maxsplit=1)[0]
    return value.strip(" `|+") or None


def _clean_version(raw: str | None) -> str | None:
    match = _VERSION_WORD.match(raw) if raw else None
    return match[0] if match else None


def _parse_gpus(cells: list[_Cell]) -> Iterator[TableGpu]:
    starts = [
        (index, gpu) for index in range(len(cells)) if (gpu := _parse_gpu_start(cells, index)) is not None
    ]
    for position, (start, gpu) in enumerate(starts):
        end = starts[position + 1][0] if position + 1 < len(starts) else len(cells)
        row = cells[start:end]
        used_mib, total_mib = _find_memory(row)
        mig = any(cell.text.strip().rstrip("*") == "Enabled" for cell in row[1:])
        yield replace(gpu, memory_used_mib=used_mib, memory_total_mib=total_mib, mig=mig)


def _parse_gpu_start(cells: list[_Cell], cell_index: int) -> TableGpu | None:
    """Return the GPU whose row starts in this cell, or None. The bus ID is usually in the next cell."""
    cell = cells[cell_index]
    index_match = _GPU_INDEX.match(cell.text)
    if not index_match or cell.is_rule:
        return None
    rest = cell.text[index_match.end() :].strip()
    next_text = cells[cell_index + 1].text.strip() if cell_index + 1 < len(cells) else ""
    bus_match = _BUS_ID.match(next_text)
    if bus_match is None and (inline_match := _BUS_ID.search(rest)) and inline_match.start() > 0:
        # The paste has no pipes, so name and bus ID are in one cell.
        bus_match, rest = inline_match, rest[: inline_match.start()].strip()
    name, mode = _split_name_and_mode(rest)
    if bus_match is not None:
        return _make_named_gpu(
            int(index_match[1]), name, None if is_placeholder(bus_match["bus"]) else bus_match["bus"], mode
        )
    if mode is not None and cell.has_closing_pipe and _is_name(name):
        return _make_named_gpu(int(index_match[1]), name, None, mode)
    if _MEMORY.search(rest) and _is_name(rest):
        # The author of the text shortened the row to name and memory, separated by dots or spaces.
        short_name = re.split(r"\s{2,40}|\s\.\.\.\s", rest, maxsplit=1)[0]
        return (
            _make_named_gpu(int(index_match[1]), short_name, None, None)
            if not _MEMORY.search(short_name)
            else None
        )
    return None


def _make_named_gpu(index: int, name: str, bus_id: str | None, mode: str | None) -> TableGpu:
    return TableGpu(
        index=index,
        name=name or None,
        bus_id=bus_id,
        memory_total_mib=None,
        memory_used_mib=None,
        mig=False,
        mode=mode,
    )


def _split_name_and_mode(rest: str) -> tuple[str, str | None]:
    """Split ``GeForce RTX 208... WDDM`` into the name and the mode, which is None if it is missing."""
    parts = rest.rsplit(None, 1)
    if len(parts) == 2 and parts[1].rstrip("*") in _MODES:
        return parts[0].strip(), parts[1]
    return rest, None


def _is_name(text: str) -> bool:
    """Return whether ``text`` can be a product name, which starts with a letter and is not a heading."""
    return text[:1].isalpha() and not text.startswith("Name ")


def _find_memory(row: list[_Cell]) -> tuple[int | None, int | None]:
    """Return the used and total MiB in a row's first memory cell, or None for each that is missing."""
    for cell in row:
        if match := _MEMORY.search(cell.text):
            return int(match["used"]), int(match["total"])
        if match := _MEMORY_USED.search(cell.text):
            return int(match["used"]), None
    return None, None


def _parse_mig_devices(cells: list[_Cell]) -> Iterator[TableMigDevice]:
    starts = [
        (index, match) for index, cell in enumerate(cells) if (match := _MIG_DEVICE.fullmatch(cell.text))
    ]
    for start, match in starts:
        # Only the next cell is searched, because the BAR1 usage on the line below looks the same.
        used_mib, total_mib = _find_memory(cells[start + 1 : start + 2])
        gpu, gi, ci, device = (int(number) for number in match.groups())
        yield TableMigDevice(
            gpu=gpu,
            gi=gi,
            ci=ci,
            mig_dev=device,
            memory_used_mib=used_mib,
            memory_total_mib=total_mib,
        )


def _parse_process(text: str) -> TableProcess | None:
    match = _PROCESS.match(text)
    if match:
        name, memory_mib = _split_name_and_memory(text[match.end() :])
        return TableProcess(
            gpu=int(match["gpu"]),
            gi=match["gi"],
            ci=match["ci"],
            pid=int(match["pid"]),
            type=match["type"],
            name=name,
            memory_mib=memory_mib,
        )
    match = _UNTYPED_PROCESS.match(text)
    if match and _UNSUPPORTED_ROW.fullmatch(text) is None:
        name, memory_mib = _split_name_and_memory(text[match.end() :])
        if name is not None and not name[0].isdigit():
            return TableProcess(
                gpu=int(match["gpu"]),
                gi=None,
                ci=None,
                pid=int(match["pid"]),
                type=None,
                name=name,
                memory_mib=memory_mib,
            )
    return None


def _split_name_and_memory(rest: str) -> tuple[str | None, int | None]:
    """Split ``/usr/bin/python3   644MiB`` into the name and the MiB, or None for each that is missing."""
    rest = rest.strip()
    parts = rest.rsplit(None, 1)
    if not parts:
        return None, None
    if _PROCESS_MEMORY.fullmatch(parts[-1]):
        return (parts[0].strip() if len(parts) == 2 else None), to_mib(parts[-1])
    return rest, None


def _iter_unsupported_gpus(cells: Iterable[_Cell]) -> Iterator[int]:
    """Yield the GPUs whose row says "Not Supported" instead of listing processes."""
    for cell in cells:
        if match := _UNSUPPORTED_ROW.fullmatch(cell.text):
            number = to_int(match[1])
            if number is not None:
                yield number


def _get_process_table_state(
    cells: list[_Cell] | None, processes: tuple[TableProcess, ...], unsupported: tuple[int, ...]
) -> str:
    """Return the state of the process table, a value of ``SmiTable.process_table``."""
    if cells is None:
        return "absent"
    if any("no running" in cell.text.lower() and "processes found" in cell.text.lower() for cell in cells):
        return "none_found"
    is_closed = _is_closed(cells)
    if processes:
        return "complete" if is_closed else "rows_then_cut"
    if unsupported:
        return "not_supported"
    return "empty" if is_closed else "cut"


def _is_closed(cells: list[_Cell]) -> bool:
    """Return whether a closing rule comes after the double rule and the rows."""
    rules = [cell.text for cell in cells if cell.is_rule]
    return "---" in (rules[rules.index("===") :] if "===" in rules else rules)


def _count_processes(
    state: str, cells: list[_Cell] | None, processes: tuple[TableProcess, ...]
) -> int | None:
    """Return the number of processes, or None if unknown, for example if the table ends within a row."""
    if state in ("none_found", "empty"):
        return 0
    if state == "complete":
        return len(processes)
    if state == "rows_then_cut":
        rows = [cell for cell in cells or () if _parse_process(cell.text) is not None]
        is_last_complete = rows[-1].has_closing_pipe or processes[-1].memory_mib is not None
        return len(processes) if is_last_complete else None
    return None


def _iter_notes(
    has_header: bool, gpus: tuple[TableGpu, ...], cuda_raw: str | None, driver_raw: str | None
) -> Iterator[str]:
    if not has_header:
        yield "the version line is not there"
    if not gpus:
        yield "no GPU row"
    for label, raw in (("driver version", driver_raw), ("CUDA version", cuda_raw)):
        if raw is not None and _clean_version(raw) is None:
            yield f"the {label} is printed as {raw!r}"
    for gpu in gpus:
        if gpu.memory_total_mib is None:
            yield f"GPU {gpu.index}: memory is not printed"
