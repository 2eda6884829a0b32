"""What `placement` says: a screen, JSON (docs/schemas/placement.schema.json) and a picture (SVG)."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tfdoctor.findings import Severity
from tfdoctor.placement.analysis import format_operations
from tfdoctor.placement.models import OTHER, find_kind
from tfdoctor.render.finding import SEVERITY_STATUS, do, finding_json, mark
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import Page, Text, cells, print_hanging
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from tfdoctor.placement import Placement, PlacementData, PlacementDevice

__all__ = ["placement_json", "placement_svg", "render_placement"]

ROWS, FEWEST = 10, 3
"""Operations in the table, fewer where much is above it; with -v all."""
SCREEN = 24
"""Lines of a first screen."""


def render_placement(
    placement: Placement, *, verbose: bool = False, width: int = 80, colour: bool = False
) -> str:
    """Return the answer in a sentence, what is wrong, and the operations on each device."""
    out = Page(width, coloured=colour)
    found = placement.found
    worst = max((finding.severity for finding in placement.findings), default=None)
    sign = mark(SEVERITY_STATUS[worst]) if worst is not None else Text("✓ ", style="green")
    print_hanging(out, sign, placement.summary)
    for finding in placement.findings:
        out.print()
        style = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(finding.severity, "")
        told = f"{finding.title}." == placement.summary
        if not told and (verbose or finding.severity is not Severity.INFO):
            print_hanging(out, Text("  "), f"{finding.title}.", style=style)
        why = "  Why   " if finding.severity is not Severity.INFO or verbose else "  "
        print_hanging(out, Text(why), clean_line(finding.explanation, limit=3000))
        for number, remedy in enumerate(finding.remedies[: None if verbose else 1]):
            do(out, remedy, first=number == 0)
        for evidence in finding.evidence if verbose else ():
            print_hanging(
                out, Text("  Seen  "), f"line {evidence.line}: {clean_line(evidence.text, limit=4000)}"
            )
    if found.devices:
        out.print()
        totals = found.totals
        for device in found.devices[: None if verbose else 8]:
            print_hanging(out, Text("  "), _device_line(device, totals.get(device.device, 0)))
        if not verbose and len(found.devices) > 8:
            out.print(Text(f"  and {len(found.devices) - 8} more: -v"))
    _table(out, found, verbose=verbose)
    if found.calls:
        every = sum(row.count for row in found.calls)
        out.print()
        print_hanging(
            out,
            Text("  "),
            f"Beside these, {every:,} call{'s' if every != 1 else ''} of functions, which hold operations.",
        )
    out.print()
    out.print(Text(f"{found.lines:,} line{'s' if found.lines != 1 else ''} read."))
    for sentence in _describe_left_out(found):
        print_hanging(out, Text(""), sentence)
    if found.forgotten:
        print_hanging(out, Text(""), "There are so many nodes that one printed twice may count twice.")
    return out.text


def _describe_left_out(found: PlacementData) -> list[str]:
    """Say what was not told apart or not kept."""
    told = []
    if found.count_others:
        told.append(
            f"Too many kinds of operations: {format_operations(found.count_others)} of further kinds "
            f"are counted as {OTHER}."
        )
    if found.left_out:
        what = join_words([f"{count:,} {name}" for name, count in found.left_out])
        told.append(f"There are too many different ones: not counted are {what}.")
    return told


def _device_line(device: PlacementDevice, count: int) -> str:
    about = ", ".join(
        clean_line(part, limit=100)
        for part in (
            device.name,
            device.compute_capability and f"compute capability {device.compute_capability}",
            device.pci_bus_id,
        )
        if part
    )
    return f"{device.device}{f' ({about})' if about else ''}: {format_operations(count)}"


def _table(out: Page, found: PlacementData, *, verbose: bool) -> None:
    """A row an operation, a column a device; with many devices a row for each pair."""
    if not found.ops:
        return
    devices, counts = _group_by_operation(found)
    ops = list(counts)
    room = SCREEN - out.text.count("\n") - (8 if found.calls else 6)
    shown = ops if verbose else ops[: max(min(ROWS, room), FEWEST)]
    heads = [_short(one) for one in devices]
    columns = [max(cells(head), 7) for head in heads]
    out.print()
    if 4 + 20 + sum(columns) + 2 * len(columns) > out.width:
        for op in shown:
            where = ", ".join(
                f"{count:,} on {_short(device)}"
                for device, count in sorted(counts[op].items(), key=lambda row: -row[1])[:6]
            )
            print_hanging(out, Text(f"  {op}: "), where)
    else:
        room = out.width - 4 - sum(columns) - 2 * len(columns)
        name = min(room, max(map(cells, ("Operation", *shown))))
        head = "".join(f"  {one:>{size}}" for one, size in zip(heads, columns, strict=True))
        out.print(Text(f"  {'Operation':{name}}{head}", style="bold"), wrap=False)
        for op in shown:
            label = op if cells(op) <= name else f"…{op[1 - name :]}"
            numbers = "".join(
                f"  {format(counts[op][device], ',') if device in counts[op] else '·':>{size}}"
                for device, size in zip(devices, columns, strict=True)
            )
            out.print(Text(f"  {label:{name}}{numbers}"), wrap=False)
    if len(ops) > len(shown):
        out.print(Text(f"  and {len(ops) - len(shown)} other types: -v"))


def _group_by_operation(found: PlacementData) -> tuple[list[str], dict[str, dict[str, int]]]:
    """Return (devices, GPUs first; operation → device → how often, the most frequent operation first)."""
    counts: dict[str, dict[str, int]] = {}
    for row in found.ops:
        counts.setdefault(clean_line(row.op, limit=200), {})[row.device] = row.count
    devices = sorted(found.totals, key=lambda one: (find_kind(one) == "CPU", one))
    return devices, {op: counts[op] for op in sorted(counts, key=lambda op: (-sum(counts[op].values()), op))}


def _short(device: str) -> str:
    """worker/task:1/GPU:0 of another task's device."""
    return device.removeprefix("/job:").replace("/replica:0", "").replace("/device:", "/")


def placement_json(placement: Placement) -> dict[str, Any]:
    """Return the contract's document."""
    found = placement.found
    return {
        "schema_version": SCHEMA_VERSION,
        "file": placement.name,
        "api": found.api,
        "summary": placement.summary,
        "devices": [
            {
                "device": one.device,
                "kind": one.kind,
                "task": one.task,
                "name": one.name,
                "compute_capability": one.compute_capability,
                "pci_bus_id": one.pci_bus_id,
            }
            for one in found.devices
        ],
        "ops": [{"op": row.op, "device": row.device, "count": row.count} for row in found.ops],
        "totals": found.totals,
        "unused": list(found.unused),
        "refused": [
            {"op": one.op, "node": one.node, "wanted": one.wanted, "reason": one.reason, "line": one.line}
            for one in found.refused
        ],
        "calls": [{"function": row.op, "device": row.device, "count": row.count} for row in found.calls],
        "copies": [
            {"op": one.op, "from": one.before, "to": one.device, "count": one.count} for one in found.copies
        ],
        "device_changes": [
            {"from": one.before, "to": one.device, "count": one.count} for one in found.changes
        ],
        "kernels": _kernels_json(placement),
        "between_gpu_ops": [{"op": op, "count": count} for op, count in found.between],
        "findings": [finding_json(finding) for finding in placement.findings],
        "left_out": dict(found.left_out),
        "lines": found.lines,
        "bytes": found.bytes,
    }


def _kernels_json(placement: Placement) -> dict[str, Any] | None:
    cpu = placement.on_cpu
    if cpu is None:
        return None
    return {
        "release": cpu.release,
        "no_gpu_kernel": [{"op": one.op, "count": one.count} for one in cpu.none],
        "fewer_types": [
            {
                "op": one.op,
                "count": one.count,
                "attribute": one.attribute,
                "gpu": list(one.types),
                "cpu_only": list(one.missing),
            }
            for one in cpu.fewer
        ],
    }


# ---------------------------------------------------------------- a picture

WIDE, ROW, LEFT, RIGHT = 760, 22, 230, 90
COLOURS = ("#2f7ed8", "#e07b00", "#2a9d5c", "#b5489b", "#c0392b", "#6b7a8f", "#8a6d00", "#00838f")
"""One a device, in turn; 3:1 or more against white and against black."""
PICTURED = 30
"""Operations in a picture."""


def placement_svg(placement: Placement) -> str:
    """Return bars of operations over devices, for light and dark pages.

    Everything from the log is text, escaped.
    """
    found = placement.found
    totals = found.totals
    devices, counts = _group_by_operation(found)
    ops = list(counts)
    shown = ops[:PICTURED]
    most = max((sum(counts[op].values()) for op in shown), default=1)
    colour = {device: COLOURS[number % len(COLOURS)] for number, device in enumerate(devices)}
    title = clean_line(placement.summary, limit=300)
    parts = []
    top = 56
    for number, device in enumerate(devices[:40]):
        x, y = 16 + 250 * (number % 3), top + 20 * (number // 3)
        label = f"{clean_line(device, limit=60)}: {totals[device]:,}"
        parts.append(f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{colour[device]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y}">{escape(label)}</text>')
    top += 20 * (-(-min(len(devices), 40) // 3)) + 16
    for number, op in enumerate(shown):
        y = top + ROW * number
        label = op if len(op) <= 32 else f"…{op[-31:]}"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>')
        left = float(LEFT)
        for device in devices:
            count = counts[op].get(device, 0)
            if count:
                width = (WIDE - LEFT - RIGHT) * count / most
                tip = escape(f"{op} on {clean_line(device, limit=80)}: {count:,}")
                parts.append(
                    f'<rect x="{left:.1f}" y="{y}" width="{max(width, 1):.1f}" height="16" fill="{colour[device]}">'
                    f"<title>{tip}</title></rect>"
                )
                left += max(width, 1)
        parts.append(f'<text x="{left + 6:.1f}" y="{y + 12}">{sum(counts[op].values()):,}</text>')
    height = top + ROW * len(shown) + 12
    if len(ops) > len(shown):
        parts.append(f'<text x="16" y="{height + 6}">and {len(ops) - len(shown)} other types</text>')
        height += 18
    for sentence in _describe_left_out(found):
        parts.append(f'<text x="16" y="{height + 6}">{escape(sentence)}</text>')
        height += 18
    style = (
        "text{font:12px sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}.page{fill:#ffffff}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}}"
    )
    head = title if len(title) <= 105 else f"{title[:104]}…"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {height}" width="{WIDE}" height="{height}" '
        f'role="img"><title>{escape(title)}</title><style>{style}</style>'
        f'<rect class="page" width="{WIDE}" height="{height}"/>'
        f'<text class="title" x="16" y="28">{escape(head)}</text>{"".join(parts)}</svg>\n'
    )
