"""The one-screen output of `diagnose`: the verdict, the decisive lines, the reason and the remedy.

Everything else is printed with `-v`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.causes.codes import HARMLESS, MISLEADING
from tfdoctor.core.findings import Cause, Severity, Status
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.remedies.undo_hints import describe_root, describe_undo_with_root_note, needs_root
from tfdoctor.render.finding import capitalize_remedy, format_mark
from tfdoctor.render.paragraphs import (
    LABEL_COLUMNS,
    SCREEN_LINES,
    Page,
    Text,
    count_columns,
    print_commands,
    print_hanging,
    print_labelled,
    shorten_text,
    truncate_text,
)
from tfdoctor.render.screen import MIN_WIDE_COLUMNS, format_count, print_more_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Evidence, Remedy
    from tfdoctor.logs.processes import LogProcess
    from tfdoctor.logs.report import LogReport
    from tfdoctor.logs.version_inference import RegisteredDevice

__all__ = [
    "choose_log_status",
    "describe_log",
    "format_device",
    "format_process",
    "print_log_verdict",
    "render_log_screen",
]

MESSAGE_PREFIX = re.compile(r"^.{0,60}?(?:[\w./\\-]{1,200}\.(?:cc|h|cpp|cu|py|mm):\d{1,6}\] )")
"""Matches the time stamp and the source location before a message, up to "dso_loader.cc:64] "."""
NO_SUCH_FILE_SUFFIX = re.compile(
    r"(?<=')(?P<name>[\w.+-]{1,100})'; dlerror: {0,3}(?P=name): cannot open shared object file: No such file or directory"
)
"""Matches the end of a message about a library that was not found, unless the loader misses one that it needs."""
SEARCH_PATH_SUFFIX = re.compile(r"[;,] {0,3}(LD_L\w{1,10}_PATH): {0,3}(.*)$")
"""Matches the name and the value of LD_LIBRARY_PATH at the end of a message about a missing library."""
NOTE_LABELS = {HARMLESS: "Harmless", MISLEADING: "Easily misread"}
"""The label of a note, by the code of its finding."""
MAX_LABELS = 4
"""The largest number of processes of one result that are named."""
MAX_FOLDERS = 3
"""The largest number of folders of a search path that are printed."""


def render_log_screen(
    report: LogReport, *, heading: bool, max_lines: int = SCREEN_LINES, width: int = 80, colour: bool = False
) -> str:
    """Return the report of one log, shortened to fit in `max_lines` lines if possible.

    With `heading`, it begins with the name of the log.
    """
    for level in range(6 if width >= MIN_WIDE_COLUMNS else 3):
        out = Page(width, coloured=colour)
        if heading:
            out.print(Text(f"{clean_line(report.name)}:", style="bold"))
        _print_report(out, report, level)
        if out.height <= max_lines - heading:  # True counts as one line
            break
    return out.text


def _print_report(out: Page, report: LogReport, level: int) -> None:
    """Print the report, shortened to a level.

    Level 0 shortens least. Each higher level leaves out more of the less important text. In tuples with six items, the
    item of the level is the largest number of processes, lines or remedies.
    """
    root = report.root_finding
    print_log_verdict(out, report)
    _print_devices(out, report, 3 - min(level, 2))
    _print_processes(out, report, (6, 5, 4, 2, 2, 2)[level])
    max_remedies = 0
    if root is not None:
        if root.evidence:
            out.print()
            _print_evidence(
                out, root.evidence, (4, 4, 3, 2, 2, 1)[level], screen_lines=(2, 2, 2, 1, 1, 1)[level]
            )
        out.print()
        max_lines = (3, 3, 3, 2, 2, 2)[level] * (1 if out.width >= MIN_WIDE_COLUMNS else 2)
        print_labelled(
            out,
            "Why",
            shorten_text(clean_line(root.explanation, limit=3000), out.width - LABEL_COLUMNS, max_lines),
        )
        out.print()
        main_index = next((index for index, remedy in enumerate(root.remedies) if remedy.commands), 0)
        max_remedies = max((4, 3, 3, 2, 1, 1)[level], main_index + 1)
        for remedy_index, remedy in enumerate(root.remedies[:max_remedies]):
            _print_remedy(out, remedy, "Or" if remedy_index else "Do", is_main=remedy_index == main_index)
    out.print()
    notes = [item for item in report.findings if item is not root]
    for note in notes:
        if level >= 3 and note.code != MISLEADING and note.severity < Severity.ERROR:
            continue
        error_label = f"Also: {clean_line(note.title)}" if note.severity >= Severity.ERROR else note.title
        text = f"{NOTE_LABELS.get(note.code, error_label)}: {clean_line(note.explanation, limit=2000)}"
        print_hanging(out, Text(""), shorten_text(text, out.width, 2 if level == 0 else 1))
        if note.severity >= Severity.ERROR and note.remedies:
            print_commands(out, note.remedies[0].commands[:1], LABEL_COLUMNS)
    _print_footer(out, report, max_remedies)


def print_log_verdict(out: Page, report: LogReport, *, complete: bool = False) -> None:
    """Print whether the GPU was used and, if not, why. With `complete`, the text is not shortened."""
    code = f" [{report.root_finding.code}]" if report.root_finding is not None else ""
    text = clean_line(report.headline, limit=1000)
    text = text if complete else shorten_text(text, out.width - 2, 3 if out.width >= MIN_WIDE_COLUMNS else 6)
    print_hanging(out, format_mark(choose_log_status(report)), f"{text}{code}", style="bold")


def choose_log_status(report: LogReport) -> Status:
    """Return the status of a log: good, bad, or a warning if no error is certain."""
    if report.cause is Cause.HEALTHY:
        return Status.GOOD
    root = report.root_finding
    return Status.WARNING if root is None or root.severity < Severity.ERROR else Status.BAD


def format_device(device: RegisteredDevice) -> str:
    """Return a description such as "0: Tesla T4, compute capability 7.5, 13771 MB taken"."""
    parts = [device.name]
    if device.compute_capability:
        parts.append(f"compute capability {device.compute_capability}")
    if device.memory_mib is not None:
        parts.append(f"{device.memory_mib} MB taken")
    if device.pci_bus_id:
        parts.append(device.pci_bus_id)
    return clean_line(f"{device.index}: {', '.join(parts)}")


def format_process(process: LogProcess) -> tuple[str, str, str]:
    """Return (mark, style of the mark, text) for a process or another framework."""
    mark, style = "✗", "red"
    if process.cause is None or process.cause is Cause.INCONCLUSIVE:
        mark, style = "·", ""
    elif process.cause is Cause.HEALTHY:
        mark, style = "✓", "green"
    label, summary = clean_line(process.label, limit=80), clean_line(process.summary, limit=400)
    return mark, style, summary if summary.startswith(label) else f"{label}: {summary}"


def describe_log(report: LogReport) -> str:
    """Return a sentence with the number of lines and the TensorFlow version of a log."""
    parts = [f"{format_count(report.line_count, 'line')} read"]
    if report.tensorflow_version:
        parts.append(f"TensorFlow {report.tensorflow_version}")
    elif report.era:
        parts.append(f"TensorFlow {report.era} by its messages")
    return f"{'; '.join(parts)}."


def _print_devices(out: Page, report: LogReport, max_devices: int) -> None:
    for device in report.registered_devices[:max_devices]:
        text = f"GPU {format_device(device)}"
        if count_columns(text) > out.width - 2:  # the bus ID is the least important part
            text = text.removesuffix(f", {device.pci_bus_id}")
        print_hanging(out, Text("  "), text)
    if len(report.registered_devices) > max_devices:
        out.print(
            Text(f"  and {format_count(len(report.registered_devices) - max_devices, 'more GPU')} (-v)")
        )


def _print_processes(out: Page, report: LogReport, max_processes: int) -> None:
    """Print a line for each process and each other framework, if the log has several."""
    if not report.processes:
        return
    out.print()
    groups: dict[tuple[Cause | None, str], list[LogProcess]] = {}
    for process in report.processes:
        groups.setdefault((process.cause, process.summary), []).append(process)
    # the processes with the cause of the verdict come first
    ordered_groups = sorted(groups.values(), key=lambda group: group[0].cause is not report.cause)
    for group in ordered_groups[:max_processes]:
        mark, style, text = format_process(
            replace(group[0], label=_join_labels([process.label for process in group]))
        )
        print_hanging(out, Text(f"  {mark} ", style=style), text)
    hidden_process_count = sum(map(len, ordered_groups[max_processes:])) + report.extra_process_count
    if hidden_process_count > 0:
        out.print(
            Text(f"    and {format_count(hidden_process_count, 'more process', 'more processes')} (-v)")
        )


def _join_labels(labels: Sequence[str]) -> str:
    """Return the labels of processes as a list, of which at most MAX_LABELS are named."""
    if len(labels) <= MAX_LABELS:
        return join_words(labels)
    return f"{', '.join(labels[: MAX_LABELS - 1])} and {len(labels) - MAX_LABELS + 1} more"


def _print_evidence(out: Page, evidence: Sequence[Evidence], max_lines: int, *, screen_lines: int) -> None:
    """Print the decisive lines of the log without their time stamps.

    A search path at the end of the lines is printed once, below them. At most `max_lines` lines of the log are
    printed, each on at most `screen_lines` lines of the screen.
    """
    number_width = max(len(str(item.line or "")) for item in evidence)
    variable_by_path: dict[str, str] = {}
    line_count = 0
    for item in evidence:
        text = MESSAGE_PREFIX.sub("", clean_line(item.text, limit=4000))
        match = SEARCH_PATH_SUFFIX.search(text)
        if match is not None:
            variable_by_path.setdefault(match[2], match[1])
            text = text[: match.start()]
        text = NO_SUCH_FILE_SUFFIX.sub(r"\g<name>'; …", text)
        if line_count < max_lines:
            number_label = f"  {item.line or '':>{number_width}} │ "
            columns = max(out.width - len(number_label), 12)
            # Wrapping between words leaves some columns of each line but the last unused.
            print_hanging(
                out, Text(number_label), truncate_text(text, screen_lines * columns - 8 * (screen_lines - 1))
            )
        line_count += 1
    if line_count > max_lines:
        out.print(
            Text(f"  {'':{number_width}} │ and {format_count(line_count - max_lines, 'more line')} (-v)")
        )
    for path, variable in list(variable_by_path.items())[:1]:
        label = Text(f"  {'':{number_width}} │ ")
        folders = [folder for folder in path.strip().split(":") if folder]
        if not folders:
            print_hanging(out, label, f"{variable} was empty")
            continue
        folder_text = join_words(
            [
                *folders[:MAX_FOLDERS],
                *([f"{len(folders) - MAX_FOLDERS} more"] if len(folders) > MAX_FOLDERS else []),
            ]
        )
        print_hanging(
            out,
            label,
            shorten_text(f"searched by {variable}: {folder_text}", max(out.width - len(label), 12), 2),
        )


def _print_remedy(out: Page, remedy: Remedy, label: str, *, is_main: bool) -> None:
    """Print a remedy. `is_main` says whether it is the first remedy with commands, which most users follow."""
    print_labelled(out, label, shorten_text(capitalize_remedy(remedy.text), out.width - LABEL_COLUMNS, 2))
    print_commands(
        out, remedy.commands, LABEL_COLUMNS, style="bold" if is_main else "", with_continuations=True
    )
    if is_main and (undo_text := describe_undo_with_root_note(remedy)):
        print_labelled(out, "", undo_text)
    if is_main and needs_root(remedy):
        print_labelled(out, "No root?", describe_root(remedy))


def _print_footer(out: Page, report: LogReport, max_remedies: int) -> None:
    root = report.root_finding
    hidden_remedy_count = len(root.remedies) - max_remedies if root is not None else 0
    hidden_parts = (
        [format_count(hidden_remedy_count, "other remedy", "other remedies")]
        if hidden_remedy_count > 0
        else []
    )
    out.print(Text(describe_log(report) if report.byte_count else "The log is empty."))
    explain_commands = [(f"tfdoctor explain {root.code}", "")] if root is not None else []
    print_more_commands(
        out, "More", [*explain_commands, ("add -v", join_words([*hidden_parts, "all evidence"]))]
    )
