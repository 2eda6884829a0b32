"""The output of `tfdoctor matrix`: text, Markdown and JSON (docs/schemas/matrix.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table

from tfdoctor.core.text import clean_line, join_words
from tfdoctor.planning.release_sheet import describe_conditions, format_python_ranges, get_problem_code
from tfdoctor.prediction.fit.matrix import group_rows, has_known_error
from tfdoctor.render import markdown
from tfdoctor.render.finding import capitalize_remedy
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import (
    SCREEN_LINES,
    Page,
    format_commands,
    print_commands,
    print_hanging,
    shorten_text,
)
from tfdoctor.render.paragraphs import Text as Line  # Rich's Text is used for tables
from tfdoctor.render.screen import format_count, print_more_commands
from tfdoctor.render.tables import ProseText, get_text, make_console

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.text import Text as RichText

    from tfdoctor.compat import Gpu, Problem
    from tfdoctor.planning.overview import Overview
    from tfdoctor.planning.release_sheet import ReleaseSheet
    from tfdoctor.prediction.fit.matrix import MatrixGroup, MatrixRow

MIN_TABLE_COLUMNS = 70
"""Below this width in columns, an entry is a paragraph instead of a table row."""
MIN_WIDE_TABLE_COLUMNS = 124
"""From this width in columns on, the table has all columns."""
MAX_PROSE_COLUMNS = 100
"""The largest width of prose, in columns."""
MARKS = {
    "error": (ProseText("✗ ", style="bold red"), "✗"),
    "warning": (ProseText("! ", style="yellow"), "!"),
    "info": (ProseText("– "), "–"),
}
"""(styled mark for Rich, plain mark) for each severity."""
SEVERITY_ORDER = ("error", "warning", "info")
"""The severities, the most serious first."""
CODE_TEXTS = {
    "native": "machine code",
    "jit": "slow first start",
    "arch-specific": "in part",
    "unknown": "not known",
    "none": "no",
}
"""The text for each kind of code for the requested GPU that a release can have."""
MIN_LISTED_MINORS = 3
"""The number of minor releases in the overview that are not left out, even if the text does not fit on one screen."""
MAX_TABLE_ROWS = 13
"""The number of table rows that fit on one screen."""
SCREEN_REQUIREMENTS = ("Python", "Driver", "CUDA", "GPUs")
"""The requirements that the one-screen sheet lists."""
SHORTENING_LEVELS = (
    (6, 2, SCREEN_REQUIREMENTS),
    (5, 2, SCREEN_REQUIREMENTS),
    (4, 1, SCREEN_REQUIREMENTS),
    (3, 1, SCREEN_REQUIREMENTS),
    (2, 1, SCREEN_REQUIREMENTS),
    (1, 1, SCREEN_REQUIREMENTS),
    (1, 1, SCREEN_REQUIREMENTS[:3]),
)
"""The levels of shortening: (largest number of problems, largest number of lines of a requirement, requirements).

Each level leaves out more than the one before it.
"""


def make_matrix_json(rows: Sequence[MatrixRow], as_of: str, sheet: ReleaseSheet | None) -> dict[str, Any]:
    """Return the document that `matrix --json` prints.

    `sheet` is the data sheet if one release was requested, so that its installation is added. It is None if several
    releases were requested.
    """
    document: dict[str, Any] = {
        **make_document_head("matrix"),
        "as_of": as_of,
        "rows": [row.as_dict(get_problem_code) for row in rows],
    }
    if sheet is not None:
        document["install"] = [
            {"text": remedy.text, "commands": list(remedy.commands)} for remedy in sheet.remedies
        ]
    return document


def make_gpus_json(gpus: Sequence[Gpu], as_of: str) -> dict[str, Any]:
    """Return the document that `matrix --list-gpus --json` prints."""
    entries = [
        {"name": gpu.name, "compute_capability": gpu.capability, "pci_ids": list(gpu.pci_ids)} for gpu in gpus
    ]
    return {
        **make_document_head("matrix"),
        "as_of": as_of,
        "rows": [],
        "gpus": entries,
    }


# ---------------------------------------------------------------- many releases


def render_rows(
    rows: Sequence[MatrixRow],
    *,
    as_of: str,
    note: str = "",
    for_windows: bool = False,
    only_newest: bool = False,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return the rows as a table, newest first. Consecutive releases with equal values share a line.

    `for_windows` selects the values for Windows instead of Linux. With `only_newest`, the table contains only the newest rows, as
    many as fit on one screen, followed by the command that lists the older rows.
    """
    out = make_console(width, coloured=colour)
    groups = group_rows(rows)
    gpu_groups = [group for group in groups if _has_gpu(group, for_windows)]
    other_groups = [group for group in groups if not _has_gpu(group, for_windows)]
    older_groups = gpu_groups[MAX_TABLE_ROWS:] if only_newest else []
    if older_groups:
        gpu_groups, other_groups = gpu_groups[:MAX_TABLE_ROWS], []
    gpu_requested = any(row.code_kind is not None for row in rows)
    if note:
        out.print(ProseText(note))
        out.print()
    if gpu_groups:
        if width < MIN_TABLE_COLUMNS:
            _print_paragraphs(out, gpu_groups, gpu_requested=gpu_requested, windows=for_windows)
        else:
            out.print(
                _make_table(
                    gpu_groups,
                    gpu_requested=gpu_requested,
                    windows=for_windows,
                    wide=width >= MIN_WIDE_TABLE_COLUMNS,
                )
            )
    if other_groups:
        if gpu_groups:
            out.print()
        system_text = " on Windows" if for_windows else ""
        heading = ProseText(f"Without GPU code{system_text}: ", style="bold")
        out.print(heading.append_text(ProseText(_format_packages(other_groups), style="")))
    out.print()
    _print_legend(
        out,
        gpu_groups,
        gpu_requested=gpu_requested,
        wide=not MIN_TABLE_COLUMNS <= width < MIN_WIDE_TABLE_COLUMNS,
    )
    count_text = f"{len(rows)} release{'s' if len(rows) != 1 else ''}, as of {as_of}."
    out.print(ProseText(f"{count_text} `tfdoctor matrix --tf VERSION` shows one."))
    if older_groups:
        older_range = f"{older_groups[0].versions[0]} to {older_groups[-1].versions[-1]}"
        out.print(ProseText(f"The older ones, {older_range}: `tfdoctor matrix --all`."))
    return get_text(out)


def render_overview(
    minors: Sequence[Overview], *, release_count: int, as_of: str, width: int = 80, colour: bool = False
) -> str:
    """Return a table of the minor releases on one screen, newest first.

    The oldest are left out until the text fits. `release_count` is the total number of releases.
    """
    out = Page(width, coloured=colour)
    shown_minors = list(minors)
    while True:
        _print_minors(out, shown_minors, minors, release_count, as_of)
        if out.height <= SCREEN_LINES or len(shown_minors) <= MIN_LISTED_MINORS:
            return out.text
        shown_minors.pop()
        out = Page(width, coloured=colour)


def _print_minors(
    out: Page, shown_minors: Sequence[Overview], minors: Sequence[Overview], releases: int, as_of: str
) -> None:
    """Print a line for each of the shown minor releases, followed by the legend."""
    header = ("TensorFlow", "Python", "CUDA", "cuDNN", "driver", "cards", "get it")
    rows = [
        (
            f"{minor.span}{' !' if minor.has_known_problem else ''}",
            minor.python,
            minor.cuda,
            minor.cudnn,
            minor.driver,
            f"{minor.cards} {minor.newer}".rstrip(),
            minor.way or "-",
        )
        for minor in shown_minors
    ]
    if out.width < MIN_TABLE_COLUMNS:
        for span, python, cuda, cudnn, driver, cards, command in rows:
            parts = f"Python {python}, CUDA {cuda}, cuDNN {cudnn}, driver {driver}, {cards}: {command}"
            print_hanging(out, Line(f"{span}  ", style="bold"), parts)
    else:
        widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
        for number, row in enumerate((header, *rows)):
            cells = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            out.print(Line(cells, style="" if number else "bold"), wrap=False)
    out.print()
    legend = {"+": "+ compiled at first use", "*": "* fail in part"}
    used_entries = [
        entry for sign, entry in legend.items() if any(minor.newer == sign for minor in shown_minors)
    ]
    print_hanging(
        out,
        Line("cards: "),
        "with machine code" + (f"; newer ones: {', '.join(used_entries)}" if used_entries else ""),
    )
    if any(minor.has_known_problem for minor in shown_minors):
        print_hanging(out, Line("! "), "known problems: `tfdoctor matrix --tf VERSION` shows them")
    print_hanging(
        out, Line("get it: "), "`tfdoctor install --tf VERSION`, or `tfdoctor build --tf VERSION` (an image)"
    )
    print_hanging(out, Line("Your card: "), 'tfdoctor matrix --gpu "RTX 3060"')
    oldest_minor = minors[-1].oldest_minor if minors else ""
    print_hanging(
        out,
        Line(""),
        f"All {releases} releases, back to {oldest_minor} (as of {as_of}): `tfdoctor matrix --all`",
    )


def render_no_match(reasons: Sequence[str], *, width: int = 80, colour: bool = False) -> str:
    """Return the message for a request that no release satisfies."""
    out = Page(width, coloured=colour)
    out.print(Line("No TensorFlow release fits all of this.", style="bold"))
    for reason in reasons:
        print_hanging(out, Line("  "), clean_line(reason, limit=1000))
    return out.text


def render_gpus(gpus: Sequence[Gpu], *, width: int = 80, colour: bool = False) -> str:
    """Return all known GPU names, grouped by compute capability."""
    out = make_console(width, coloured=colour)
    for capability in dict.fromkeys(gpu.capability for gpu in gpus):
        names = dict.fromkeys(gpu.name for gpu in gpus if gpu.capability == capability)
        _print_entry(out, ProseText(f"{capability:5}", style="bold"), ", ".join(names))
    return get_text(out)


def _list_columns(gpu_requested: bool, wide: bool) -> list[str]:
    """Return the headers of the table. A `wide` table has more columns."""
    columns = ["TensorFlow", "Python", "CUDA", "cuDNN", "driver"]
    if wide or not gpu_requested:
        columns.append("GPUs")
    if gpu_requested:
        columns.append("your GPU")
    if wide:
        columns.insert(1, "package")
        columns += ["glibc", "faults"]
    return columns


def _has_gpu(group: MatrixGroup, windows: bool) -> bool:
    release = group.newest_row.release
    return bool(release.windows_gpu) if windows else release.gpu


def _get_system_values(row: MatrixRow, windows: bool) -> tuple[str, str]:
    """Return the Python versions and the lowest driver for Windows or Linux."""
    if windows:
        return format_python_ranges(row.release.windows_pythons), row.min_windows_driver or "?"
    return format_python_ranges(row.release.linux_pythons), row.min_linux_driver or "?"


def _make_table(groups: Sequence[MatrixGroup], *, gpu_requested: bool, windows: bool, wide: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for name in _list_columns(gpu_requested, wide):
        table.add_column(name, no_wrap=name != "GPUs", header_style="bold")
    table.show_header = True
    for group in groups:
        row = group.newest_row
        release = row.release
        pythons, driver = _get_system_values(row, windows)
        cells = [
            _format_versions(group, with_suffix=not wide),
            pythons,
            release.cuda or "?",
            release.cudnn or "?",
            driver,
        ]
        if wide or not gpu_requested:
            cells.append(_format_gpus(group) if wide else _format_gpu_range(group))
        if gpu_requested:
            cells.append(_format_code(row))
        if wide:
            cells.insert(1, " / ".join(name.replace("tensorflow-gpu", "-gpu") for name in group.packages))
            cells += ["" if windows else release.glibc or "?", _count_errors(row)]
        table.add_row(*(ProseText(cell) for cell in cells))
    return table


def _format_code(row: MatrixRow) -> str:
    """Return the kind of code for the requested GPU."""
    return "mostly PTX" if row.is_mostly_ptx else CODE_TEXTS[row.code_kind or "unknown"]


def _print_paragraphs(
    out: Console, groups: Sequence[MatrixGroup], *, gpu_requested: bool, windows: bool
) -> None:
    for group in groups:
        row = group.newest_row
        release = row.release
        pythons, driver = _get_system_values(row, windows)
        out.print(ProseText(_format_versions(group, with_suffix=True), style="bold"))
        parts = [
            f"Python {pythons}",
            f"CUDA {release.cuda or '?'}",
            f"cuDNN {release.cudnn or '?'}",
            f"driver {driver}",
            f"GPUs {_format_gpus(group)}",
        ]
        if gpu_requested:
            parts.append(f"your GPU: {_format_code(row)}")
        out.print(Padding(ProseText(", ".join(parts)), (0, 0, 0, 2)))


def _print_legend(out: Console, groups: Sequence[MatrixGroup], *, gpu_requested: bool, wide: bool) -> None:
    if not groups:
        return
    marks = [_format_gpus(group) for group in groups if wide or not gpu_requested]
    lines = ["GPUs: compute capabilities with machine code"] if marks else []
    if any(", to " in mark for mark in marks):
        lines.append("to N: up to this one after compiling PTX on first use; newer cards do not work")
    if any(mark.endswith("+") for mark in marks):
        lines.append("+ newer cards work too, after compiling PTX on first use")
    if any(mark.endswith("*") for mark in marks):
        lines.append("* newer cards fail in part: some PTX is for one architecture only")
    if any(has_known_error(group.newest_row) for group in groups):
        lines.append("! known problems with its libraries, its packaging or some cards")
    if gpu_requested:
        lines.append("your GPU: slow first start = compiled at the first use; in part = some kernels fail")
        if any(group.newest_row.is_mostly_ptx for group in groups):
            lines.append("mostly PTX: the driver compiles most kernels at their first use")
    for line in lines:
        out.print(ProseText(line))


def _format_packages(groups: Iterable[MatrixGroup]) -> str:
    versions_by_package: dict[str, dict[str, None]] = {}
    for group in groups:
        for package in group.packages:
            versions_by_package.setdefault(package, {}).update(dict.fromkeys(group.versions))
    return "; ".join(f"{package} {', '.join(versions)}" for package, versions in versions_by_package.items())


def _format_versions(group: MatrixGroup, *, with_suffix: bool) -> str:
    """Return the versions of a group, with "!" if an error is known.

    With `with_suffix`, "-gpu" is added if they exist only as tensorflow-gpu.
    """
    mark = " !" if has_known_error(group.newest_row) else ""
    is_only_gpu = with_suffix and group.packages == ("tensorflow-gpu",)
    return f"{_format_span(group)}{' -gpu' if is_only_gpu else ''}{mark}"


def _format_span(group: MatrixGroup) -> str:
    """Return the range of versions in a group, such as "2.10.0 - 2.10.1"."""
    names = group.versions
    return names[0] if len(names) == 1 else f"{names[-1]} - {names[0]}"


def _format_gpus(group: MatrixGroup) -> str:
    release = group.newest_row.release
    if not release.cubin:
        return "?"
    newest = group.newest_row.newest_capability
    if newest is not None:
        return " ".join(release.cubin) + (f", to {newest}" if newest not in release.cubin else "")
    suffix = "*" if release.ptx_arch_specific else "+" if release.ptx else ""
    return " ".join(release.cubin) + suffix


def _format_gpu_range(group: MatrixGroup) -> str:
    """Return the range of compute capabilities, such as "6.0 - 9.0+"."""
    native, comma, limit = _format_gpus(group).partition(",")
    capabilities = native.split(" ")
    text = capabilities[0] if len(capabilities) == 1 else f"{capabilities[0]} - {capabilities[-1]}"
    return f"{text}{comma}{limit}"


def _count_errors(row: MatrixRow) -> str:
    count = sum(problem.severity == "error" for problem in row.problems)
    return str(count) if count else ""


# ---------------------------------------------------------------- one release


def render_sheet(
    sheet: ReleaseSheet, *, as_of: str, note: str = "", width: int = 80, colour: bool = False
) -> str:
    """Return the complete data sheet of a release, at most `width` columns wide. Commands are not wrapped."""
    out = make_console(min(width, MAX_PROSE_COLUMNS), coloured=colour)
    release = sheet.main_row.release
    out.print(ProseText(f"{release.package} {release.version}", style="bold").append(_describe_sheet(sheet)))
    for other_row in sheet.other_rows:
        out.print(ProseText(_describe_other(sheet.main_row, other_row)))
    if note:
        out.print(ProseText(note))
    if sheet.main_row.code_kind is not None:
        out.print(ProseText(_describe_code(sheet.main_row)))
    _print_heading(out, "What it needs")
    widest = max(len(name) for name, _ in sheet.requirements)
    for name, text in sheet.requirements:
        _print_entry(out, ProseText(name.ljust(widest + 2)), text)
    _print_heading(out, "What has gone wrong with it")
    if not sheet.main_row.problems:
        out.print(ProseText("Nothing is known."))
    for problem in _sort_problems(sheet.main_row.problems):
        styled_mark, _ = MARKS[problem.severity]
        _print_entry(
            out, styled_mark + ProseText(f"{get_problem_code(problem)}  ", style="bold"), problem.title
        )
        for line in _iter_details(problem):
            _print_entry(out, ProseText("          "), line)
    _print_heading(out, "How to install it")
    for number, remedy in enumerate(sheet.remedies):
        if number:
            out.print()
        out.print(ProseText(remedy.text))
        for line in format_commands(remedy.commands, 4):
            out.print(ProseText(line, style="bold"), no_wrap=True, overflow="ignore", crop=False)
    out.print()
    out.print(ProseText(f"{_describe_evidence(sheet)} As of {as_of}."))
    return get_text(out)


def render_sheet_screen(
    sheet: ReleaseSheet, *, as_of: str, note: str = "", width: int = 80, colour: bool = False
) -> str:
    """Return the sheet on one screen: requirements, titles of known problems and one way to install.

    It is the first way whose commands all fit on the screen. If there is none, it is the last way.
    """
    for remedy_index in range(max(len(sheet.remedies), 1)):
        for max_problems, max_lines, names in SHORTENING_LEVELS:
            out = Page(width, coloured=colour)
            _print_sheet(out, sheet, note, remedy_index, max_problems, max_lines, names)
            out.print()
            hidden_problem_count = len(sheet.main_row.problems) - min(
                max_problems, len(_list_main_problems(sheet))
            )
            hidden_parts = (
                [format_count(hidden_problem_count, "other problem")] if hidden_problem_count else []
            )
            hidden_parts += (
                [format_count(len(sheet.remedies) - 1, "other way")] if len(sheet.remedies) > 1 else []
            )
            more_text = join_words([*hidden_parts, "all that it needs"])
            out.print(Line(f"As of {as_of}."))
            print_more_commands(
                out, "More", [(f"tfdoctor matrix --tf {sheet.main_row.release.version} --all", more_text)]
            )
            if out.height <= SCREEN_LINES:
                return out.text
    return out.text


def _print_sheet(
    out: Page,
    sheet: ReleaseSheet,
    note: str,
    remedy_index: int,
    max_problems: int,
    max_lines: int,
    names: Sequence[str],
) -> None:
    """Print the sheet with one way to install the release: the remedy with the index `remedy_index`.

    `names` are the requirements to print, each in at most `max_lines` lines. `max_problems` is the largest number of
    known problems.
    """
    release, requirements = sheet.main_row.release, dict(sheet.requirements)
    print_hanging(out, Line(f"{release.package} {release.version}", style="bold"), _describe_sheet(sheet))
    for text in (note, _describe_code(sheet.main_row) if sheet.main_row.code_kind is not None else ""):
        if text:
            print_hanging(out, Line(""), text)
    out.print()
    for name in names:
        if name in requirements:
            cudnn = f", cuDNN {requirements['cuDNN']}" if name == "CUDA" and "cuDNN" in requirements else ""
            text = shorten_text(requirements[name] + cudnn, out.width - 12, max_lines)
            print_hanging(out, Line(f"  {name.ljust(10)}", style="bold"), text)
    out.print()
    problems = _list_main_problems(sheet)
    out.print(Line("Known problems" if problems else "No problem is known.", style="bold"))
    for problem in problems[:max_problems]:
        _, mark = MARKS[problem.severity]
        style = {"error": "bold red", "warning": "yellow"}[problem.severity]
        label = Line(f"  {mark} ", style=style) + Line(f"{get_problem_code(problem)}  ")
        print_hanging(out, label, shorten_text(problem.title, out.width - 12, 2))
    if sheet.remedies:
        out.print()
        print_hanging(
            out,
            Line(""),
            shorten_text(capitalize_remedy(sheet.remedies[remedy_index].text), out.width, 2),
            style="bold",
        )
        commands = [
            command
            for command in sheet.remedies[remedy_index].commands
            if not command.startswith("tfdoctor check")
        ]
        print_commands(out, commands, 4, style="bold", with_continuations=True)


def _list_main_problems(sheet: ReleaseSheet) -> list[Problem]:
    """Return the errors and warnings, the most serious first.

    If a GPU was requested, problems with conditions on the compute capability come before the others.
    """
    problems = [problem for problem in _sort_problems(sheet.main_row.problems) if problem.severity != "info"]
    return sorted(
        problems,
        key=lambda problem: (
            sheet.main_row.code_kind is None or "compute capability" not in describe_conditions(problem)
        ),
    )


def _print_heading(out: Console, text: str) -> None:
    out.print()
    out.print(ProseText(text, style="bold"))


def _print_entry(out: Console, label: RichText, text: str) -> None:
    """Print a paragraph with a hanging indent after its label.

    On a narrow terminal, the label is on a line of its own.
    """
    if out.width - len(label) < 24:
        heading = ProseText(label.plain.rstrip(), style=label.style)
        if heading.plain:
            out.print(heading)
        out.print(Padding(ProseText(text), (0, 0, 0, 2)))
        return
    table = Table.grid()
    table.add_column(width=len(label), no_wrap=True)
    table.add_column(ratio=1)
    table.add_row(label, ProseText(text))
    out.print(table)


def _describe_sheet(sheet: ReleaseSheet) -> str:
    release = sheet.main_row.release
    parts = [f"released {release.release_date}", "for GPUs" if release.gpu else "without GPU code"]
    if release.is_prerelease:
        parts.insert(0, "pre-release")
    if release.yanked:
        parts.append("withdrawn from the index")
    return f" · {' · '.join(parts)}"


def _describe_other(row: MatrixRow, other_row: MatrixRow) -> str:
    name = other_row.release.package
    if not other_row.release.gpu and row.release.gpu:
        return f"{name} {other_row.release.version} has no GPU code."
    return f"{name} {other_row.release.version} is the same."


def _describe_code(row: MatrixRow) -> str:
    meanings = {
        "native": "It has machine code for this card.",
        "jit": "It has no machine code for this card: kernels are compiled from PTX on first use.",
        "arch-specific": "It has no machine code for this card, and some of its PTX cannot be compiled for it.",
        "unknown": "Whether it has code for this card is not known.",
        "none": "It has no code for this card.",
    }
    if row.is_mostly_ptx:
        return "It has machine code for this card in some kernels; most are compiled from PTX on first use."
    return meanings[row.code_kind or "unknown"]


def _sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: SEVERITY_ORDER.index(problem.severity))


def _iter_details(problem: Problem) -> Iterable[str]:
    conditions = describe_conditions(problem)
    if conditions:
        yield f"When: {conditions}."
    yield problem.text
    yield f"Do: {problem.remedy}"


def _describe_evidence(sheet: ReleaseSheet) -> str:
    release = sheet.main_row.release
    if release.evidence == "measured":
        return "Read from the wheel itself."
    if release.inferred_from:
        return f"Read from the wheel of {release.inferred_from}, its neighbour."
    return "From its maker's documentation."


# ---------------------------------------------------------------- Markdown


def render_markdown_rows(rows: Sequence[MatrixRow], *, note: str = "") -> str:
    """Return the rows as a Markdown table."""
    header = (
        "TensorFlow",
        "package",
        "Python",
        "CUDA",
        "cuDNN",
        "driver",
        "GPUs",
        "PTX",
        "glibc",
        "problems",
    )
    lines = markdown.format_table_header(header)
    for group in group_rows(rows):
        row = group.newest_row
        release = row.release
        problems = ", ".join(problem.id for problem in row.problems if problem.severity == "error")
        cells = (
            _format_span(group),
            " / ".join(group.packages),
            format_python_ranges(release.linux_pythons),
            (release.cuda or "?") if release.gpu else "none",
            (release.cudnn or "?") if release.gpu else "none",
            (row.min_linux_driver or "?") if release.gpu else "",
            ", ".join(release.cubin),
            ", ".join((*release.ptx, *release.ptx_arch_specific)),
            release.glibc or "?",
            problems,
        )
        lines.append(markdown.format_table_row(cells))
    return (f"{markdown.escape_table_cell(note)}\n\n" if note else "") + "\n".join(lines) + "\n"


def render_markdown_sheet(sheet: ReleaseSheet, *, as_of: str, note: str = "") -> str:
    """Return the sheet as Markdown."""
    release = sheet.main_row.release
    lines = [f"# {release.package} {release.version}", "", _describe_sheet(sheet).removeprefix(" · ") + "."]
    lines += [_describe_other(sheet.main_row, other_row) for other_row in sheet.other_rows]
    if note:
        lines.append(markdown.escape_table_cell(note))
    if sheet.main_row.code_kind is not None:
        lines.append(_describe_code(sheet.main_row))
    lines += ["", "## What it needs", ""]
    lines += [f"* **{name}**: {markdown.escape_table_cell(text)}" for name, text in sheet.requirements]
    lines += ["", "## What has gone wrong with it", ""]
    for problem in _sort_problems(sheet.main_row.problems):
        lines.append(
            f"* **{get_problem_code(problem)} {markdown.escape_table_cell(problem.title)}.** "
            f"{markdown.escape_table_cell(' '.join(_iter_details(problem)))}"
        )
    if not sheet.main_row.problems:
        lines.append("Nothing is known.")
    lines += ["", "## How to install it", ""]
    for remedy in sheet.remedies:
        lines += [remedy.text, "", "```", *remedy.commands, "```", ""]
    lines.append(f"{_describe_evidence(sheet)} As of {as_of}.")
    return "\n".join(lines) + "\n"
