"""The output of `diagnose --placement`: text, JSON (docs/schemas/placement.schema.json) and an SVG chart."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Severity
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.logs.placement.analysis import format_operations
from tfdoctor.logs.placement.models import OTHER_OPERATIONS, get_device_kind
from tfdoctor.render.finding import (
    choose_status,
    format_mark,
    make_finding_json,
    print_log_evidence,
    print_remedy,
)
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import Page, Text, count_columns, print_hanging
from tfdoctor.render.screen import format_count

if TYPE_CHECKING:
    from tfdoctor.logs.placement import Placement, PlacementData, PlacementDevice

__all__ = ["make_placement_json", "make_placement_svg", "render_placement"]

MAX_TABLE_ROWS, MIN_TABLE_ROWS = 10, 3
"""The largest number of operations in the table without -v, and the smallest if the text above it is long."""
MAX_OUTPUT_LINES = 24
"""The largest number of lines that the text should have without -v."""
MAX_LISTED_DEVICES = 8
"""The largest number of devices that are listed without -v."""
CHART_WIDTH, ROW_HEIGHT, LEFT_MARGIN, RIGHT_MARGIN = 760, 22, 230, 90
"""The width of the chart, the height of a row, and the left and right margins, in pixels."""
COLOURS = ("#2f7ed8", "#e07b00", "#2a9d5c", "#b5489b", "#c0392b", "#6b7a8f", "#8a6d00", "#00838f")
"""The colours of the devices. Each has a contrast of at least 3:1 with both white and black."""
MAX_CHART_ROWS = 30
"""The largest number of operations in a chart."""
MAX_LEGEND_DEVICES = 40
"""The largest number of devices in the legend of a chart."""


def render_placement(
    placement: Placement, *, verbose: bool = False, width: int = 80, colour: bool = False
) -> str:
    """Return the summary, the findings, and the operations on each device."""
    out = Page(width, coloured=colour)
    data = placement.data
    print_hanging(out, format_mark(choose_status(placement.findings)), placement.summary)
    for finding in placement.findings:
        out.print()
        style = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(finding.severity, "")
        is_summary = f"{finding.title}." == placement.summary
        if not is_summary and (verbose or finding.severity is not Severity.INFO):
            print_hanging(out, Text("  "), f"{finding.title}.", style=style)
        label = "  Why   " if finding.severity is not Severity.INFO or verbose else "  "
        print_hanging(out, Text(label), clean_line(finding.explanation, limit=3000))
        for number, remedy in enumerate(finding.remedies[: None if verbose else 1]):
            print_remedy(out, remedy, first=number == 0)
        if verbose:
            print_log_evidence(out, finding)
    if data.devices:
        out.print()
        count_by_device = data.count_by_device
        for device in data.devices[: None if verbose else MAX_LISTED_DEVICES]:
            print_hanging(out, Text("  "), _format_device(device, count_by_device.get(device.device, 0)))
        if not verbose and len(data.devices) > MAX_LISTED_DEVICES:
            out.print(Text(f"  and {len(data.devices) - MAX_LISTED_DEVICES} more: -v"))
    _print_table(out, data, verbose=verbose)
    if data.call_counts:
        total_calls = sum(call.count for call in data.call_counts)
        out.print()
        print_hanging(
            out,
            Text("  "),
            f"Not listed: {total_calls:,} function call{'s' if total_calls != 1 else ''}, which contain further operations.",
        )
    out.print()
    out.print(Text(f"{data.line_count:,} line{'s' if data.line_count != 1 else ''} read."))
    for sentence in _describe_omissions(data):
        print_hanging(out, Text(""), sentence)
    if data.has_forgotten_nodes:
        print_hanging(out, Text(""), "There are so many nodes that one printed twice may count twice.")
    return out.text


def _describe_omissions(data: PlacementData) -> list[str]:
    """Return sentences about operations that were only counted together, or not counted at all."""
    sentences = []
    if data.other_op_count:
        sentences.append(
            f"Too many kinds of operations: {format_operations(data.other_op_count)} of further kinds "
            f"are counted as {OTHER_OPERATIONS}."
        )
    if data.omitted_counts:
        omitted_text = join_words([f"{count:,} {name}" for name, count in data.omitted_counts])
        sentences.append(f"There are too many different ones: not counted are {omitted_text}.")
    return sentences


def _format_device(device: PlacementDevice, count: int) -> str:
    details = ", ".join(
        clean_line(part, limit=100)
        for part in (
            device.name,
            device.compute_capability and f"compute capability {device.compute_capability}",
            device.pci_bus_id,
        )
        if part
    )
    return f"{device.device}{f' ({details})' if details else ''}: {format_operations(count)}"


def _print_table(out: Page, data: PlacementData, *, verbose: bool) -> None:
    """Print a table with a row for each operation and a column for each device.

    If the table would be too wide, print a list of devices for each operation instead.
    """
    if not data.op_counts:
        return
    devices, counts = _group_by_operation(data)
    ops = list(counts)
    # Leave space for the lines below the table.
    free_lines = MAX_OUTPUT_LINES - out.text.count("\n") - (8 if data.call_counts else 6)
    shown_ops = ops if verbose else ops[: max(min(MAX_TABLE_ROWS, free_lines), MIN_TABLE_ROWS)]
    headers = [_shorten_device(device) for device in devices]
    column_widths = [max(count_columns(header), 7) for header in headers]
    out.print()
    if 4 + 20 + sum(column_widths) + 2 * len(column_widths) > out.width:  # 20 columns for the operation
        for op in shown_ops:
            device_counts = ", ".join(
                f"{count:,} on {_shorten_device(device)}"
                for device, count in sorted(counts[op].items(), key=lambda pair: -pair[1])[:6]
            )
            print_hanging(out, Text(f"  {op}: "), device_counts)
    else:
        free_columns = out.width - 4 - sum(column_widths) - 2 * len(column_widths)
        name_width = min(free_columns, max(map(count_columns, ("Operation", *shown_ops))))
        header_cells = "".join(
            f"  {header:>{width}}" for header, width in zip(headers, column_widths, strict=True)
        )
        out.print(Text(f"  {'Operation':{name_width}}{header_cells}", style="bold"), wrap=False)
        for op in shown_ops:
            label = op if count_columns(op) <= name_width else f"…{op[1 - name_width :]}"
            numbers = "".join(
                f"  {format(counts[op][device], ',') if device in counts[op] else '·':>{width}}"
                for device, width in zip(devices, column_widths, strict=True)
            )
            out.print(Text(f"  {label:{name_width}}{numbers}"), wrap=False)
    if len(ops) > len(shown_ops):
        out.print(Text(f"  and {format_count(len(ops) - len(shown_ops), 'other type')}: -v"))


def _group_by_operation(data: PlacementData) -> tuple[list[str], dict[str, dict[str, int]]]:
    """Return the devices, with the CPUs last, and the counts by operation and device.

    The most frequent operation comes first.
    """
    counts: dict[str, dict[str, int]] = {}
    for entry in data.op_counts:
        counts.setdefault(clean_line(entry.op, limit=200), {})[entry.device] = entry.count
    devices = sorted(data.count_by_device, key=lambda device: (get_device_kind(device) == "CPU", device))
    return devices, {op: counts[op] for op in sorted(counts, key=lambda op: (-sum(counts[op].values()), op))}


def _shorten_device(device: str) -> str:
    """Return a short form of a device name, such as "worker/task:1/GPU:0"."""
    return device.removeprefix("/job:").replace("/replica:0", "").replace("/device:", "/")


def make_placement_json(placement: Placement) -> dict[str, Any]:
    """Return the document that `diagnose --placement --json` prints."""
    data = placement.data
    return {
        **make_document_head("placement"),
        "file": placement.file_name,
        "api": data.api,
        "summary": placement.summary,
        "devices": [
            {
                "device": item.device,
                "kind": item.kind,
                "task": item.task,
                "name": item.name,
                "compute_capability": item.compute_capability,
                "pci_bus_id": item.pci_bus_id,
            }
            for item in data.devices
        ],
        "ops": [{"op": entry.op, "device": entry.device, "count": entry.count} for entry in data.op_counts],
        "totals": data.count_by_device,
        "unused": list(data.unused_devices),
        "refused": [
            {
                "op": item.op,
                "node": item.node_name,
                "wanted": item.requested_device,
                "reason": item.reason,
                "line": item.line,
            }
            for item in data.refusals
        ],
        "calls": [
            {"function": entry.op, "device": entry.device, "count": entry.count} for entry in data.call_counts
        ],
        "copies": [
            {"op": item.op, "from": item.source, "to": item.target, "count": item.count}
            for item in data.copies
        ],
        "device_changes": [
            {"from": item.previous_device, "to": item.device, "count": item.count}
            for item in data.device_changes
        ],
        "kernels": _make_kernels_json(placement),
        "between_gpu_ops": [{"op": op, "count": count} for op, count in data.cpu_ops_between_gpu_ops],
        "findings": [make_finding_json(finding) for finding in placement.findings],
        "left_out": dict(data.omitted_counts),
        "lines": data.line_count,
        "bytes": data.byte_count,
    }


def _make_kernels_json(placement: Placement) -> dict[str, Any] | None:
    cpu_operations = placement.cpu_operations
    if cpu_operations is None:
        return None
    return {
        "release": cpu_operations.release_range_text,
        "no_gpu_kernel": [
            {"op": kernel.op, "count": kernel.count} for kernel in cpu_operations.without_gpu_kernel
        ],
        "fewer_types": [
            {
                "op": kernel.op,
                "count": kernel.count,
                "attribute": kernel.attribute,
                "gpu": list(kernel.gpu_types),
                "cpu_only": list(kernel.cpu_only_types),
            }
            for kernel in cpu_operations.with_fewer_gpu_types
        ],
    }


# ---------------------------------------------------------------- chart


def make_placement_svg(placement: Placement) -> str:
    """Return a bar chart of the operations on each device, which is readable on light and dark pages.

    All text from the log is escaped.
    """
    data = placement.data
    count_by_device = data.count_by_device
    devices, counts = _group_by_operation(data)
    ops = list(counts)
    shown_ops = ops[:MAX_CHART_ROWS]
    max_count = max((sum(counts[op].values()) for op in shown_ops), default=1)
    colour_by_device = {device: COLOURS[index % len(COLOURS)] for index, device in enumerate(devices)}
    title = clean_line(placement.summary, limit=300)
    elements = []
    top = 56
    # The legend has three columns.
    for index, device in enumerate(devices[:MAX_LEGEND_DEVICES]):
        x, y = 16 + 250 * (index % 3), top + 20 * (index // 3)
        label = f"{clean_line(device, limit=60)}: {count_by_device[device]:,}"
        elements.append(
            f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{colour_by_device[device]}"/>'
        )
        elements.append(f'<text x="{x + 18}" y="{y}">{escape(label)}</text>')
    top += 20 * (-(-min(len(devices), MAX_LEGEND_DEVICES) // 3)) + 16  # division rounded up
    for index, op in enumerate(shown_ops):
        y = top + ROW_HEIGHT * index
        label = op if len(op) <= 32 else f"…{op[-31:]}"
        elements.append(f'<text x="{LEFT_MARGIN - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>')
        bar_left = float(LEFT_MARGIN)
        for device in devices:
            count = counts[op].get(device, 0)
            if count:
                width = (CHART_WIDTH - LEFT_MARGIN - RIGHT_MARGIN) * count / max_count
                tooltip = escape(f"{op} on {clean_line(device, limit=80)}: {count:,}")
                elements.append(
                    f'<rect x="{bar_left:.1f}" y="{y}" width="{max(width, 1):.1f}" height="16" fill="{colour_by_device[device]}">'
                    f"<title>{tooltip}</title></rect>"
                )
                bar_left += max(width, 1)
        elements.append(f'<text x="{bar_left + 6:.1f}" y="{y + 12}">{sum(counts[op].values()):,}</text>')
    height = top + ROW_HEIGHT * len(shown_ops) + 12
    if len(ops) > len(shown_ops):
        hidden_text = format_count(len(ops) - len(shown_ops), "other type")
        elements.append(f'<text x="16" y="{height + 6}">and {hidden_text}</text>')
        height += 18
    for sentence in _describe_omissions(data):
        elements.append(f'<text x="16" y="{height + 6}">{escape(sentence)}</text>')
        height += 18
    style = (
        "text{font:12px sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}.page{fill:#ffffff}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}}"
    )
    heading = title if len(title) <= 105 else f"{title[:104]}…"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {CHART_WIDTH} {height}" width="{CHART_WIDTH}" height="{height}" '
        f'role="img"><title>{escape(title)}</title><style>{style}</style>'
        f'<rect class="page" width="{CHART_WIDTH}" height="{height}"/>'
        f'<text class="title" x="16" y="28">{escape(heading)}</text>{"".join(elements)}</svg>\n'
    )
