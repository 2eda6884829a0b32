"""`diagnose` on one screen: was the GPU used, which lines say so, why, and what is typed. `-v` has the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.advice.undo_hints import describe_undo_rights, needs_root
from tfdoctor.causes.codes import HARMLESS, MISREAD
from tfdoctor.findings import Cause, Severity
from tfdoctor.render.finding import capitalize_remedy
from tfdoctor.render.paragraphs import (
    LABEL,
    SCREEN_LINES,
    Page,
    Text,
    cells,
    command_lines,
    cut,
    few,
    print_hanging,
    print_labelled,
)
from tfdoctor.render.screen import ASK, NARROW, format_count, more
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.findings import Evidence, Remedy
    from tfdoctor.logs.processes import LogProcess
    from tfdoctor.logs.report import LogReport
    from tfdoctor.logs.version_inference import RegisteredDevice

__all__ = ["describe_log", "device_text", "log_verdict", "process_row", "render_log_screen"]

PREFIX = re.compile(r"^.{0,60}?(?:[\w./\\-]{1,200}\.(?:cc|h|cpp|cu|py|mm):\d{1,6}\] )")
"""The time stamp and the place in TensorFlow's sources, before a message."""
NO_SUCH_FILE = re.compile(
    r"; dlerror: {0,3}[\w.+-]{1,100}: cannot open shared object file: No such file or directory"
)
LABELS = {HARMLESS: "Harmless", MISREAD: "Easily misread"}
"""Code → how the note begins on a screen."""
SEARCHED = re.compile(r"[;,] {0,3}(LD_L\w{1,10}_PATH): {0,3}(.*)$")


def render_log_screen(
    report: LogReport, *, heading: bool, room: int = SCREEN_LINES, width: int = 80, colour: bool = False
) -> str:
    """Return one log's report, on one screen of `room` lines. `heading`: its file is named first."""
    for less in range(6 if width >= NARROW else 3):
        out = Page(width, coloured=colour)
        if heading:
            out.print(Text(f"{clean_line(report.name)}:", style="bold"))
        _print_all(out, report, less)
        if out.height <= room - heading:
            break
    return out.text


def _print_all(out: Page, report: LogReport, less: int) -> None:
    """less: 0, everything; with each step less is shown of what matters least."""
    root = report.root
    log_verdict(out, report)
    _devices(out, report, 3 - min(less, 2))
    _processes(out, report, (6, 5, 4, 2, 2, 1)[less])
    shown = 0
    if root is not None:
        if root.evidence:
            out.print()
            _evidence(out, root.evidence, (4, 4, 3, 2, 2, 1)[less], each=(2, 2, 2, 1, 1, 1)[less])
        out.print()
        lines = (3, 3, 3, 2, 2, 2)[less] * (1 if out.width >= NARROW else 2)
        print_labelled(out, "Why", few(clean_line(root.explanation, limit=3000), out.width - LABEL, lines))
        out.print()
        first = next((number for number, one in enumerate(root.remedies) if one.commands), 0)
        shown = max((4, 3, 3, 2, 1, 1)[less], first + 1)
        for number, remedy in enumerate(root.remedies[:shown]):
            _remedy(out, remedy, "Or" if number else "Do", first=number == first)
    out.print()
    notes = [one for one in report.findings if one is not root]
    for note in notes:
        if less >= 3 and note.code != MISREAD and note.severity < Severity.ERROR:
            continue
        also = f"Also: {clean_line(note.title)}" if note.severity >= Severity.ERROR else note.title
        text = f"{LABELS.get(note.code, also)}: {clean_line(note.explanation, limit=2000)}"
        print_hanging(out, Text(""), few(text, out.width, 2 if less == 0 else 1))
        if note.severity >= Severity.ERROR and note.remedies:
            command_lines(out, note.remedies[0].commands[:1], LABEL)
    _last(out, report, shown)


def log_verdict(out: Page, report: LogReport, *, whole: bool = False) -> None:
    """Whether the GPU was used, and why not; `whole`: however long."""
    mark, style = "✗", "bold red"
    if report.cause is Cause.HEALTHY:
        mark, style = "✓", "green"
    elif report.root is None or report.root.severity < Severity.ERROR:
        mark, style = "!", "yellow"
    code = f" [{report.root.code}]" if report.root is not None else ""
    text = clean_line(report.headline, limit=1000)
    text = text if whole else few(text, out.width - 2, 3 if out.width >= NARROW else 6)
    print_hanging(out, Text(f"{mark} ", style=style), f"{text}{code}", style="bold")


def device_text(device: RegisteredDevice) -> str:
    """Return "0: Tesla T4, compute capability 7.5, …"."""
    parts = [device.name]
    if device.compute_capability:
        parts.append(f"compute capability {device.compute_capability}")
    if device.memory_mib is not None:
        parts.append(f"{device.memory_mib} MB taken")
    if device.pci_bus_id:
        parts.append(device.pci_bus_id)
    return clean_line(f"{device.index}: {', '.join(parts)}")


def process_row(process: LogProcess) -> tuple[str, str, str]:
    """(mark, its style, what one process or other framework did)."""
    mark, style = "✗", "red"
    if process.cause is None or process.cause is Cause.INCONCLUSIVE:
        mark, style = "·", ""
    elif process.cause is Cause.HEALTHY:
        mark, style = "✓", "green"
    return mark, style, f"{clean_line(process.label, limit=80)}: {clean_line(process.summary, limit=400)}"


def describe_log(report: LogReport) -> str:
    """Return how long the log is, and whose."""
    parts = [f"{format_count(report.lines, 'line')} read"]
    if report.tensorflow_version:
        parts.append(f"TensorFlow {report.tensorflow_version}")
    elif report.era:
        parts.append(f"TensorFlow {report.era} by its messages")
    return f"{'; '.join(parts)}."


def _devices(out: Page, report: LogReport, most: int) -> None:
    for device in report.devices[:most]:
        text = f"GPU {device_text(device)}"
        if cells(text) > out.width - 2:  # where it is plugged in matters least
            text = text.removesuffix(f", {device.pci_bus_id}")
        print_hanging(out, Text("  "), text)
    if len(report.devices) > most:
        out.print(Text(f"  and {format_count(len(report.devices) - most, 'more GPU')} (-v)"))


def _processes(out: Page, report: LogReport, most: int) -> None:
    """A line for each process and for each other framework, where the log tells several apart."""
    if not report.processes:
        return
    out.print()
    for process in report.processes[:most]:
        mark, style, text = process_row(process)
        print_hanging(out, Text(f"  {mark} ", style=style), text)
    rest = len(report.processes) - most + report.more_processes
    if rest > 0:
        out.print(Text(f"    and {format_count(rest, 'more process', 'more processes')} (-v)"))


def _evidence(out: Page, evidence: Sequence[Evidence], most: int, *, each: int) -> None:
    """The lines that decide, without what comes before each message; the search path that they share once.

    each: lines of the screen that a long one may take before it is cut.
    """
    wide = max(len(str(one.line or "")) for one in evidence)
    searched: dict[str, str] = {}
    shown = 0
    for one in evidence:
        text = PREFIX.sub("", clean_line(one.text, limit=4000))
        found = SEARCHED.search(text)
        if found is not None:
            searched.setdefault(found[2], found[1])
            text = text[: found.start()]
        text = NO_SUCH_FILE.sub(": no such file", text)
        if shown < most:
            number = f"  {one.line or '':>{wide}} │ "
            room = max(out.width - len(number), 12)
            print_hanging(out, Text(number), cut(text, each * room - 8 * (each - 1)))
        shown += 1
    if shown > most:
        out.print(Text(f"  {'':{wide}} │ and {format_count(shown - most, 'more line')} (-v)"))
    for path, name in list(searched.items())[:1]:
        label, folders = Text(f"  {'':{wide}} │ "), [one for one in path.strip().split(":") if one]
        if not folders:
            print_hanging(out, label, f"{name} was empty")
            continue
        there = join_words([*folders[:3], *([f"{len(folders) - 3} more"] if len(folders) > 3 else [])])
        print_hanging(out, label, few(f"searched by {name}: {there}", max(out.width - len(label), 12), 2))


def _remedy(out: Page, remedy: Remedy, label: str, *, first: bool) -> None:
    """first: the first with anything to type, which is what most people do."""
    print_labelled(out, label, few(capitalize_remedy(remedy.text), out.width - LABEL, 2))
    command_lines(out, remedy.commands, LABEL, style="bold" if first else "", broken=True)
    if first and (told := describe_undo_rights(remedy)):
        print_labelled(out, "", told)
    if first and needs_root(remedy):
        print_labelled(out, "No root?", ASK)


def _last(out: Page, report: LogReport, shown: int) -> None:
    root = report.root
    rest = len(root.remedies) - shown if root is not None else 0
    beside = [format_count(rest, "other way")] if rest > 0 else []
    out.print(Text(describe_log(report) if report.bytes else "The log is empty."))
    explain = [(f"tfdoctor explain {root.code}", "")] if root is not None else []
    more(out, "More", [*explain, ("-v", join_words([*beside, "all evidence"]))])
