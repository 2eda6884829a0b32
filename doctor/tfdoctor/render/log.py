"""What `diagnose` says of a log, in a terminal (readable without colour, in a pipe and in any locale) and as JSON.

The shape of the JSON is docs/schemas/diagnose.schema.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.findings import Cause, Severity
from tfdoctor.render.finding import do, finding_json, why
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.page import Page, Text, hanging
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from tfdoctor.findings import Finding
    from tfdoctor.logs.deduce import Device
    from tfdoctor.logs.report import LogReport

FEW = 4
"""Lines of evidence that are shown without --verbose."""
MANY = 8
"""Processes that are shown without --verbose."""


def render_log(
    report: LogReport,
    *,
    verbose: bool = False,
    quiet: bool = False,
    heading: bool = False,
    width: int = 80,
    colour: bool = False,
) -> str:
    """The report as text. Commands are never wrapped: they are there to be copied."""
    out = Page(width, coloured=colour)
    if heading:
        out.print(Text(f"{clean_line(report.name)}:", style="bold"))
    _verdict(out, report)
    if not quiet:
        _facts(out, report)
        _processes(out, report, verbose=verbose)
        if report.root is not None:
            _explained(out, report.root, verbose=verbose)
        for finding in report.findings:
            if finding is not report.root:
                _note(out, finding, verbose=verbose)
        _last(out, report)
    return out.text


def _verdict(out: Page, report: LogReport) -> None:
    mark, style = "✗", "bold red"
    if report.cause is Cause.HEALTHY:
        mark, style = "✓", "green"
    elif report.root is None or report.root.severity < Severity.ERROR:
        mark, style = "!", "yellow"
    code = f" [{report.root.code}]" if report.root is not None else ""
    hanging(
        out, Text(f"{mark} ", style=style), f"{clean_line(report.summary, limit=1000)}{code}", style="bold"
    )


def _facts(out: Page, report: LogReport) -> None:
    for device in report.devices:
        parts = [device.name]
        if device.compute_capability:
            parts.append(f"compute capability {device.compute_capability}")
        if device.memory_mib is not None:
            parts.append(f"{device.memory_mib} MB taken")
        if device.pci_bus_id:
            parts.append(device.pci_bus_id)
        hanging(out, Text("  GPU   ", style="dim"), f"{device.index}: {clean_line(', '.join(parts))}")


def _processes(out: Page, report: LogReport, *, verbose: bool) -> None:
    """A line for each process and for each other framework, where the log tells several apart."""
    if not report.processes:
        return
    out.print()
    shown = report.processes if verbose else report.processes[:MANY]
    for process in shown:
        mark, style = "✗", "red"
        if process.cause is None or process.cause is Cause.INCONCLUSIVE:
            mark, style = "·", "dim"
        elif process.cause is Cause.HEALTHY:
            mark, style = "✓", "green"
        text = f"{clean_line(process.label, limit=80)}: {clean_line(process.summary, limit=400)}"
        hanging(out, Text(f"      {mark} ", style=style), text)
    rest = len(report.processes) - len(shown) + report.more_processes
    if rest > 0:
        more = " (-v)" if len(shown) < len(report.processes) else ""
        hanging(out, Text("        "), f"and {rest} more processes{more}", style="dim")


def _explained(out: Page, finding: Finding, *, verbose: bool) -> None:
    out.print()
    why(out, finding)
    if finding.evidence:
        out.print()
    shown = finding.evidence if verbose else finding.evidence[:FEW]
    for evidence in shown:
        text = clean_line(evidence.text, limit=400 if verbose else 240)
        hanging(out, Text("  Seen  ", style="dim"), f"line {evidence.line}: {text}")
    if len(shown) < len(finding.evidence):
        hanging(out, Text("        "), f"and {len(finding.evidence) - len(shown)} more (-v)", style="dim")
    for number, remedy in enumerate(finding.remedies):
        out.print()
        do(out, remedy, first=number == 0)


def _note(out: Page, finding: Finding, *, verbose: bool) -> None:
    out.print()
    hanging(out, Text(f"{finding.title}: ", style="bold"), clean_line(finding.explanation, limit=2000))
    if verbose:
        for evidence in finding.evidence:
            hanging(
                out,
                Text("  Seen  ", style="dim"),
                f"line {evidence.line}: {clean_line(evidence.text)}",
                style="dim",
            )


def _last(out: Page, report: LogReport) -> None:
    out.print()
    parts = [f"{report.lines} line{'' if report.lines == 1 else 's'} read"]
    if report.tensorflow_version:
        parts.append(f"TensorFlow {report.tensorflow_version}")
    elif report.era:
        parts.append(f"TensorFlow {report.era} by its messages")
    out.print(Text(f"{'; '.join(parts)}.", style="dim"))
    if report.root is not None:
        out.print(
            Text("Next: ", style="dim") + Text(f"tfdoctor explain {report.cause.value}", style="cyan"),
            wrap=False,
        )


# ---------------------------------------------------------------- JSON


def log_json(report: LogReport) -> dict[str, Any]:
    """One log's report."""
    return {
        "schema_version": SCHEMA_VERSION,
        "file": report.name,
        "tensorflow_version": report.tensorflow_version,
        "era": report.era,
        "gpu_registered": report.gpu_registered,
        "devices": [_device(device) for device in report.devices],
        "missing_libraries": list(report.missing_libraries),
        "benign": list(report.benign),
        "verdict": {
            "cause": report.cause.value,
            "summary": report.summary,
            "undecided": [cause.value for cause in report.undecided],
        },
        "findings": [finding_json(finding) for finding in report.findings],
        "lines": report.lines,
        "bytes": report.bytes,
        "processes": [
            {
                "label": process.label,
                "framework": process.framework,
                "line": process.line,
                "gpu_registered": process.gpu_registered,
                "cause": process.cause.value if process.cause is not None else None,
                "summary": process.summary,
                "devices": [_device(device) for device in process.devices],
            }
            for process in report.processes
        ],
        "more_processes": report.more_processes,
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "index": device.index,
        "name": device.name,
        "compute_capability": device.compute_capability,
        "memory_mib": device.memory_mib,
        "pci_bus_id": device.pci_bus_id,
    }
