"""The output of `diagnose` for one log: text, and JSON (docs/schemas/diagnose.schema.json).

The text is readable without colour, in a pipe and in any locale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.text import clean_line
from tfdoctor.render.finding import make_finding_json, print_log_evidence, print_meaning, print_remedy
from tfdoctor.render.json import make_document_head
from tfdoctor.render.log_screen import (
    describe_log,
    format_device,
    format_process,
    print_log_verdict,
    render_log_screen,
)
from tfdoctor.render.paragraphs import SCREEN_LINES, Page, Text, print_hanging

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding
    from tfdoctor.logs.report import LogReport
    from tfdoctor.logs.version_inference import RegisteredDevice


def render_log(
    report: LogReport,
    *,
    verbose: bool = False,
    quiet: bool = False,
    heading: bool = False,
    max_lines: int = SCREEN_LINES,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return the report of one log as text.

    The text is shortened to `max_lines` lines, but `verbose` prints everything and `quiet` only the verdict. With
    `heading`, it begins with the name of the log.
    """
    if not (verbose or quiet):
        return render_log_screen(report, heading=heading, max_lines=max_lines, width=width, colour=colour)
    out = Page(width, coloured=colour)
    if heading:
        out.print(Text(f"{clean_line(report.name)}:", style="bold"))
    print_log_verdict(out, report, complete=verbose)
    if not quiet:
        _print_devices(out, report)
        _print_processes(out, report)
        if report.root_finding is not None:
            _print_explanation(out, report.root_finding)
        for finding in report.findings:
            if finding is not report.root_finding:
                _print_note(out, finding)
        _print_summary(out, report)
    return out.text


def _print_devices(out: Page, report: LogReport) -> None:
    for device in report.registered_devices:
        print_hanging(out, Text("  GPU   "), format_device(device))


def _print_processes(out: Page, report: LogReport) -> None:
    """Print a line for each process and each other framework, if the log has several."""
    if not report.processes:
        return
    out.print()
    for process in report.processes:
        mark, style, text = format_process(process)
        print_hanging(out, Text(f"      {mark} ", style=style), text)
    if report.extra_process_count:
        print_hanging(out, Text("        "), f"and {report.extra_process_count} more")


def _print_explanation(out: Page, finding: Finding) -> None:
    out.print()
    print_meaning(out, finding)
    if finding.evidence:
        out.print()
    print_log_evidence(out, finding)
    for number, remedy in enumerate(finding.remedies):
        out.print()
        print_remedy(out, remedy, first=number == 0)


def _print_note(out: Page, finding: Finding) -> None:
    """Print a finding that is not the root cause, without its remedies."""
    out.print()
    print_hanging(out, Text(f"{finding.title}: ", style="bold"), clean_line(finding.explanation, limit=2000))
    print_log_evidence(out, finding)


def _print_summary(out: Page, report: LogReport) -> None:
    out.print()
    out.print(Text(describe_log(report)))
    if report.root_finding is not None:
        out.print(Text("Read more: ") + Text(f"tfdoctor explain {report.root_finding.code}"), wrap=False)


# ---------------------------------------------------------------- JSON


def make_log_json(report: LogReport) -> dict[str, Any]:
    """Return the JSON document of one log."""
    return {
        **make_document_head("diagnose"),
        "file": report.name,
        "tensorflow_version": report.tensorflow_version,
        "era": report.era,
        "gpu_registered": report.gpu_registered,
        "devices": [_make_device_json(device) for device in report.registered_devices],
        "cards": [_make_device_json(card) for card in report.cards],
        "missing_libraries": list(report.missing_sonames),
        "benign": list(report.benign_codes),
        "verdict": {
            "cause": report.cause.value,
            "summary": report.summary,
            "undecided": [cause.value for cause in report.other_causes],
        },
        "findings": [make_finding_json(finding) for finding in report.findings],
        "lines": report.line_count,
        "bytes": report.byte_count,
        "processes": [
            {
                "label": process.label,
                "framework": process.framework,
                "line": process.first_line,
                "gpu_registered": process.gpu_registered,
                "cause": process.cause.value if process.cause is not None else None,
                "summary": process.summary,
                "devices": [_make_device_json(device) for device in process.registered_devices],
            }
            for process in report.processes
        ],
        "more_processes": report.extra_process_count,
    }


def _make_device_json(device: RegisteredDevice) -> dict[str, Any]:
    return {
        "index": device.index,
        "name": device.name,
        "compute_capability": device.compute_capability,
        "memory_mib": device.memory_mib,
        "pci_bus_id": device.pci_bus_id,
    }
