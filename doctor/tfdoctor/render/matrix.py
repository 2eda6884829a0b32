"""`tfdoctor matrix` on the terminal, as Markdown and as JSON (docs/schemas/matrix.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tfdoctor.fit.matrix import group_rows, is_marked
from tfdoctor.plan.release_sheet import code_of, conditions, pythons
from tfdoctor.render import markdown
from tfdoctor.render.finding import capitalize_remedy
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import SCREEN_LINES, Page, command_lines, few, lines_of, print_hanging
from tfdoctor.render.paragraphs import Text as Line
from tfdoctor.render.screen import format_count, more
from tfdoctor.render.tables import page, text_of
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from tfdoctor.compat import Gpu, Problem
    from tfdoctor.fit.matrix import MatrixGroup, MatrixRow
    from tfdoctor.plan.overview import Overview
    from tfdoctor.plan.release_sheet import Sheet

NARROW = 70
"""Columns below which an entry is a paragraph instead of a line of a table."""
WIDE = 124
"""Columns from which on the table has all columns."""
PROSE = 100
"""Columns beyond which prose is not stretched."""
MARKS = {
    "error": (Text("✗ ", style="bold red"), "✗"),
    "warning": (Text("! ", style="yellow"), "!"),
    "info": (Text("– "), "–"),
}
ORDER = ("error", "warning", "info")
CODES = {
    "native": "machine code",
    "jit": "slow first start",
    "arch-specific": "in part",
    "unknown": "not known",
    "none": "no",
}
"""What a release does on the card that was asked for."""


def matrix_json(rows: Sequence[MatrixRow], as_of: str, sheet: Sheet | None) -> dict[str, Any]:
    """Return `matrix --json`; `install` only where one release was asked for."""
    answer: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "as_of": as_of,
        "rows": [row.as_dict(code_of) for row in rows],
    }
    if sheet is not None:
        answer["install"] = [{"text": step.text, "commands": list(step.commands)} for step in sheet.steps]
    return answer


def gpus_json(gpus: Sequence[Gpu], as_of: str) -> dict[str, Any]:
    """Return `matrix --list-gpus --json`."""
    listed = [
        {"name": gpu.name, "compute_capability": gpu.capability, "pci_ids": list(gpu.pci_ids)} for gpu in gpus
    ]
    return {"schema_version": SCHEMA_VERSION, "as_of": as_of, "rows": [], "gpus": listed}


# ---------------------------------------------------------------- many releases


NEWEST = 13
"""Lines of the table that have room on one screen."""


def render_rows(
    rows: Sequence[MatrixRow],
    *,
    as_of: str,
    note: str = "",
    windows: bool = False,
    newest: bool = False,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return the rows for eyes: like neighbours in one line, newest first.

    `windows`: that system's wheels are meant.

    newest: those that have room on one screen, and how the older ones are shown.
    """
    out = page(width, coloured=colour)
    groups = group_rows(rows)
    with_gpu = [members for members in groups if _has_gpu(members, windows)]
    without = [members for members in groups if not _has_gpu(members, windows)]
    older = with_gpu[NEWEST:] if newest else []
    if older:
        with_gpu, without = with_gpu[:NEWEST], []
    asked = any(row.code is not None for row in rows)
    if note:
        out.print(Text(note))
        out.print()
    if with_gpu:
        if width < NARROW:
            _paragraphs(out, with_gpu, asked=asked, windows=windows)
        else:
            out.print(_grid(with_gpu, asked=asked, windows=windows, wide=width >= WIDE))
    if without:
        if with_gpu:
            out.print()
        where = " on Windows" if windows else ""
        heading = Text(f"Without GPU code{where}: ", style="bold")
        out.print(heading.append_text(Text(_names(without), style="")))
    out.print()
    _legend(out, with_gpu, asked=asked, wide=not NARROW <= width < WIDE)
    counted = f"{len(rows)} release{'s' if len(rows) != 1 else ''}, as of {as_of}."
    out.print(Text(f"{counted} `tfdoctor matrix --tf VERSION` shows one."))
    if older:
        span = f"{older[0].versions[0]} to {older[-1].versions[-1]}"
        out.print(Text(f"The older ones, {span}: `tfdoctor matrix --all`."))
    return text_of(out)


def render_overview(
    minors: Sequence[Overview], *, releases: int, as_of: str, width: int = 80, colour: bool = False
) -> str:
    """Return the minors, newest first, on one screen: each with its cards and the command that gives it."""
    out = Page(width, coloured=colour)
    shown = list(minors)
    while True:
        _minors(out, shown, minors, releases, as_of)
        if out.height <= SCREEN_LINES or len(shown) < 4:
            return out.text
        shown.pop()
        out = Page(width, coloured=colour)


def _minors(
    out: Page, shown: Sequence[Overview], minors: Sequence[Overview], releases: int, as_of: str
) -> None:
    head = ("TensorFlow", "Python", "CUDA", "cuDNN", "driver", "cards", "get it")
    rows = [
        (
            f"{one.span}{' !' if one.marked else ''}",
            one.python,
            one.cuda,
            one.cudnn,
            one.driver,
            f"{one.cards} {one.newer}".rstrip(),
            one.way or "-",
        )
        for one in shown
    ]
    if out.width < NARROW:
        for span, python, cuda, cudnn, driver, cards, way in rows:
            parts = f"Python {python}, CUDA {cuda}, cuDNN {cudnn}, driver {driver}, {cards}: {way}"
            print_hanging(out, Line(f"{span}  ", style="bold"), parts)
    else:
        wide = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        for number, row in enumerate((head, *rows)):
            fields = "  ".join(text.ljust(room) for text, room in zip(row, wide, strict=True))
            out.print(Line(fields, style="" if number else "bold"), wrap=False)
    out.print()
    meant = {"+": "+ compiled at first use", "*": "* fail in part"}
    newer = [told for sign, told in meant.items() if any(one.newer == sign for one in shown)]
    print_hanging(
        out, Line("cards: "), "with machine code" + (f"; newer ones: {', '.join(newer)}" if newer else "")
    )
    if any(one.marked for one in shown):
        print_hanging(
            out, Line("! "), "something is known to be wrong: tfdoctor matrix --tf VERSION tells it"
        )
    print_hanging(
        out, Line("get it: "), "tfdoctor install --tf VERSION, or tfdoctor build --tf VERSION (an image)"
    )
    print_hanging(out, Line("Your card: "), 'tfdoctor matrix --gpu "RTX 3060"')
    last = minors[-1].oldest if minors else ""
    print_hanging(
        out, Line(""), f"All {releases} releases, back to {last} (as of {as_of}): tfdoctor matrix --all"
    )


def render_nothing(reasons: Sequence[str], *, width: int = 80, colour: bool = False) -> str:
    """Return what is said where no release fits."""
    out = Page(width, coloured=colour)
    out.print(Line("No TensorFlow release fits all of this.", style="bold"))
    for reason in reasons:
        print_hanging(out, Line("  "), clean_line(reason, limit=1000))
    return out.text


def render_gpus(gpus: Sequence[Gpu], *, width: int = 80, colour: bool = False) -> str:
    """Return every known GPU name by compute capability."""
    out = page(width, coloured=colour)
    for capability in dict.fromkeys(gpu.capability for gpu in gpus):
        names = dict.fromkeys(gpu.name for gpu in gpus if gpu.capability == capability)
        _entry(out, Text(f"{capability:5}", style="bold"), ", ".join(names))
    return text_of(out)


def _columns(asked: bool, wide: bool) -> list[str]:
    head = ["TensorFlow", "Python", "CUDA", "cuDNN", "driver"]
    if wide or not asked:
        head.append("GPUs")
    if asked:
        head.append("your GPU")
    if wide:
        head[1:1] = ["package"]
        head += ["glibc", "faults"]
    return head


def _has_gpu(members: MatrixGroup, windows: bool) -> bool:
    release = members.first.release
    return bool(release.windows_gpu) if windows else release.gpu


def _system(row: MatrixRow, windows: bool) -> tuple[str, str]:
    """Return (Pythons, driver) of the system that is meant."""
    if windows:
        return pythons(row.release.windows_pythons), row.driver_windows or "?"
    return pythons(row.release.linux_pythons), row.driver_linux or "?"


def _grid(groups: Sequence[MatrixGroup], *, asked: bool, windows: bool, wide: bool) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for name in _columns(asked, wide):
        table.add_column(name, no_wrap=name != "GPUs", header_style="bold")
    table.show_header = True
    for members in groups:
        row = members.first
        release = row.release
        cells = [
            _versions(members, packages=not wide),
            _system(row, windows)[0],
            release.cuda or "?",
            release.cudnn or "?",
            _system(row, windows)[1],
        ]
        if wide or not asked:
            cells.append(_gpus(members) if wide else _gpu_range(members))
        if asked:
            cells.append(CODES[row.code or "unknown"])
        if wide:
            cells[1:1] = [" / ".join(_short(name) for name in members.packages)]
            cells += ["" if windows else release.glibc or "?", _faults(row)]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _paragraphs(out: Console, groups: Sequence[MatrixGroup], *, asked: bool, windows: bool) -> None:
    for members in groups:
        row = members.first
        release = row.release
        out.print(Text(_versions(members, packages=True), style="bold"))
        parts = [
            f"Python {_system(row, windows)[0]}",
            f"CUDA {release.cuda or '?'}",
            f"cuDNN {release.cudnn or '?'}",
            f"driver {_system(row, windows)[1]}",
            f"GPUs {_gpus(members)}",
        ]
        if asked:
            parts.append(f"your GPU: {CODES[row.code or 'unknown']}")
        out.print(Padding(Text(", ".join(parts)), (0, 0, 0, 2)))


def _legend(out: Console, groups: Sequence[MatrixGroup], *, asked: bool, wide: bool) -> None:
    if not groups:
        return
    marks = [_gpus(members) for members in groups if wide or not asked]
    lines = ["GPUs: compute capabilities with machine code"] if marks else []
    if any(mark.endswith("+") for mark in marks):
        lines.append("+ newer cards work too, after compiling PTX on first use")
    if any(mark.endswith("*") for mark in marks):
        lines.append("* newer cards fail in part: some PTX is for one architecture only")
    if any(is_marked(members.first) for members in groups):
        lines.append("! known to be wrong with its libraries, its packaging or some cards")
    if asked:
        lines.append("your GPU: slow first start = compiled at the first use; in part = some kernels fail")
    for line in lines:
        out.print(Text(line))


def _names(groups: Iterable[MatrixGroup]) -> str:
    found: dict[str, dict[str, None]] = {}
    for members in groups:
        for package in members.packages:
            found.setdefault(package, {}).update(dict.fromkeys(members.versions))
    return "; ".join(f"{package} {', '.join(versions)}" for package, versions in found.items())


def _versions(members: MatrixGroup, *, packages: bool) -> str:
    mark = " !" if is_marked(members.first) else ""
    only_gpu = packages and members.packages == ("tensorflow-gpu",)
    return f"{_span(members)}{' -gpu' if only_gpu else ''}{mark}"


def _span(members: MatrixGroup) -> str:
    """Return `2.10.0 - 2.10.1`: the oldest and the newest."""
    names = members.versions
    return names[0] if len(names) == 1 else f"{names[-1]} - {names[0]}"


def _short(package: str) -> str:
    return {"tensorflow": "tensorflow", "tensorflow-gpu": "-gpu"}.get(package, package)


def _gpus(members: MatrixGroup) -> str:
    release = members.first.release
    if not release.cubin:
        return "?"
    end = "*" if release.ptx_arch_specific else "+" if release.ptx else ""
    return " ".join(release.cubin) + end


def _gpu_range(members: MatrixGroup) -> str:
    """Return `6.0 - 9.0+`: the lowest and the highest."""
    words = _gpus(members).split(" ")
    return words[0] if len(words) == 1 else f"{words[0]} - {words[-1]}"


def _faults(row: MatrixRow) -> str:
    count = sum(problem.severity == "error" for problem in row.problems)
    return str(count) if count else ""


# ---------------------------------------------------------------- one release


def render_sheet(sheet: Sheet, *, as_of: str, note: str = "", width: int = 80, colour: bool = False) -> str:
    """Return the sheet of one release, at most `width` columns wide, its commands never wrapped."""
    out = page(min(width, PROSE), coloured=colour)
    release = sheet.row.release
    out.print(Text(f"{release.package} {release.version}", style="bold").append(_describe_sheet(sheet)))
    for other in sheet.others:
        out.print(Text(_describe_other(sheet.row, other)))
    if note:
        out.print(Text(note))
    if sheet.row.code is not None:
        out.print(Text(_code(sheet.row)))
    _print_heading(out, "What it needs")
    widest = max(len(name) for name, _ in sheet.needs)
    for name, text in sheet.needs:
        _entry(out, Text(name.ljust(widest + 2)), text)
    _print_heading(out, "What has gone wrong with it")
    if not sheet.row.problems:
        out.print(Text("Nothing is known."))
    for problem in _sort_problems(sheet.row.problems):
        _entry(out, MARKS[problem.severity][0] + Text(f"{code_of(problem)}  ", style="bold"), problem.title)
        for line in _details(problem):
            _entry(out, Text("          "), line)
    _print_heading(out, "How to install it")
    for number, step in enumerate(sheet.steps):
        if number:
            out.print()
        out.print(Text(step.text))
        for line in lines_of(step.commands, 4):
            out.print(Text(line, style="bold"), no_wrap=True, overflow="ignore", crop=False)
    out.print()
    out.print(Text(f"{_evidence(sheet)} As of {as_of}."))
    return text_of(out)


def render_sheet_screen(
    sheet: Sheet, *, as_of: str, note: str = "", width: int = 80, colour: bool = False
) -> str:
    """Return the sheet on one screen: what it needs, the titles of what is known to be wrong, a way to install it.

    The way is the first one whose commands have room: a part of them is of no use.
    """
    for way in range(max(len(sheet.steps), 1)):
        for shown, lines, names in LEVELS:
            out = Page(width, coloured=colour)
            _sheet_screen(out, sheet, note, way, shown, lines, names)
            out.print()
            rest = len(sheet.row.problems) - min(shown, len(_serious(sheet)))
            others = [format_count(rest, "other problem")] if rest else []
            others += [format_count(len(sheet.steps) - 1, "other way")] if len(sheet.steps) > 1 else []
            told = join_words([*others, "all that it needs"])
            out.print(Line(f"As of {as_of}."))
            more(out, "More", [(f"tfdoctor matrix --tf {sheet.row.release.version} --all", told)])
            if out.height <= SCREEN_LINES:
                return out.text
    return out.text


def _sheet_screen(
    out: Page, sheet: Sheet, note: str, way: int, shown: int, lines: int, names: Sequence[str]
) -> None:
    """way: which one is shown; shown: problems; lines: of what it needs, of which the `names`."""
    release, needs = sheet.row.release, dict(sheet.needs)
    print_hanging(out, Line(f"{release.package} {release.version}", style="bold"), _describe_sheet(sheet))
    for text in (note, _code(sheet.row) if sheet.row.code is not None else ""):
        if text:
            print_hanging(out, Line(""), text)
    out.print()
    for name in names:
        if name in needs:
            beside = f", cuDNN {needs['cuDNN']}" if name == "CUDA" and "cuDNN" in needs else ""
            text = few(needs[name] + beside, out.width - 12, lines)
            print_hanging(out, Line(f"  {name.ljust(10)}", style="bold"), text)
    out.print()
    problems = _serious(sheet)
    out.print(Line("Known problems" if problems else "No problem is known.", style="bold"))
    for problem in problems[:shown]:
        mark, style = MARKS[problem.severity][1], {"error": "bold red", "warning": "yellow"}[problem.severity]
        first = Line(f"  {mark} ", style=style) + Line(f"{code_of(problem)}  ")
        print_hanging(out, first, few(problem.title, out.width - 12, 2))
    if sheet.steps:
        out.print()
        print_hanging(
            out, Line(""), few(capitalize_remedy(sheet.steps[way].text), out.width, 2), style="bold"
        )
        commands = [one for one in sheet.steps[way].commands if not one.startswith("tfdoctor check")]
        command_lines(out, commands, 4, style="bold", broken=True)


def _serious(sheet: Sheet) -> list[Problem]:
    """Return what is shown of its problems, the most serious first.

    Those of the card that was asked for before all.
    """
    found = [one for one in _sort_problems(sheet.row.problems) if one.severity != "info"]
    return sorted(
        found, key=lambda one: sheet.row.code is None or "compute capability" not in conditions(one)
    )


BRIEF = ("Python", "Driver", "CUDA", "GPUs")
"""What a release needs, as a screen has room for it."""
LEVELS = (
    (6, 2, BRIEF),
    (5, 2, BRIEF),
    (4, 1, BRIEF),
    (3, 1, BRIEF),
    (2, 1, BRIEF),
    (1, 1, BRIEF),
    (1, 1, BRIEF[:3]),
)
"""What of a sheet has room: (problems, lines of what it needs, what of that), less with each."""


def _print_heading(out: Console, text: str) -> None:
    out.print()
    out.print(Text(text, style="bold"))


def _entry(out: Console, first: Text, text: str) -> None:
    """A paragraph that hangs beside its first words; below them where the terminal is narrow."""
    if out.width - len(first) < 24:
        head = Text(first.plain.rstrip(), style=first.style)
        if head.plain:
            out.print(head)
        out.print(Padding(Text(text), (0, 0, 0, 2)))
        return
    table = Table.grid()
    table.add_column(width=len(first), no_wrap=True)
    table.add_column(ratio=1)
    table.add_row(first, Text(text))
    out.print(table)


def _describe_sheet(sheet: Sheet) -> str:
    release = sheet.row.release
    words = [f"released {release.released}", "for GPUs" if release.gpu else "without GPU code"]
    if release.yanked:
        words.append("withdrawn from the index")
    return f" · {' · '.join(words)}"


def _describe_other(row: MatrixRow, other: MatrixRow) -> str:
    name = other.release.package
    if not other.release.gpu and row.release.gpu:
        return f"{name} {other.release.version} has no GPU code."
    return f"{name} {other.release.version} is the same."


def _code(row: MatrixRow) -> str:
    meanings = {
        "native": "It has machine code for this card.",
        "jit": "It has no machine code for this card: kernels are compiled from PTX on first use.",
        "arch-specific": "It has no machine code for this card, and some of its PTX cannot be compiled for it.",
        "unknown": "Whether it has code for this card is not known.",
        "none": "It has no code for this card.",
    }
    return meanings[row.code or "unknown"]


def _sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: ORDER.index(problem.severity))


def _details(problem: Problem) -> Iterable[str]:
    when = conditions(problem)
    if when:
        yield f"When: {when}."
    yield problem.text
    yield f"Do: {problem.remedy}"


def _evidence(sheet: Sheet) -> str:
    release = sheet.row.release
    if release.evidence == "measured":
        return "Read from the wheel itself."
    if release.inferred_from:
        return f"Read from the wheel of {release.inferred_from}, its neighbour."
    return "From its maker's documentation."


# ---------------------------------------------------------------- Markdown


def markdown_rows(rows: Sequence[MatrixRow], *, note: str = "") -> str:
    """Return the rows as a Markdown table."""
    head = ("TensorFlow", "package", "Python", "CUDA", "cuDNN", "driver", "GPUs", "PTX", "glibc", "problems")
    lines = markdown.table(head)
    for members in group_rows(rows):
        row = members.first
        release = row.release
        problems = ", ".join(problem.id for problem in row.problems if problem.severity == "error")
        cells = (
            _span(members),
            " / ".join(members.packages),
            pythons(release.linux_pythons),
            (release.cuda or "?") if release.gpu else "none",
            (release.cudnn or "?") if release.gpu else "none",
            (row.driver_linux or "?") if release.gpu else "",
            ", ".join(release.cubin),
            ", ".join((*release.ptx, *release.ptx_arch_specific)),
            release.glibc or "?",
            problems,
        )
        lines.append(markdown.row(cells))
    return (f"{markdown.keep_markdown(note)}\n\n" if note else "") + "\n".join(lines) + "\n"


def markdown_sheet(sheet: Sheet, *, as_of: str, note: str = "") -> str:
    """Return the sheet as Markdown."""
    release = sheet.row.release
    lines = [f"# {release.package} {release.version}", "", _describe_sheet(sheet).removeprefix(" · ") + "."]
    lines += [_describe_other(sheet.row, other) for other in sheet.others]
    if note:
        lines.append(markdown.keep_markdown(note))
    if sheet.row.code is not None:
        lines.append(_code(sheet.row))
    lines += ["", "## What it needs", ""]
    lines += [f"* **{name}**: {markdown.keep_markdown(text)}" for name, text in sheet.needs]
    lines += ["", "## What has gone wrong with it", ""]
    for problem in _sort_problems(sheet.row.problems):
        lines.append(
            f"* **{code_of(problem)} {markdown.keep_markdown(problem.title)}.** "
            f"{markdown.keep_markdown(' '.join(_details(problem)))}"
        )
    if not sheet.row.problems:
        lines.append("Nothing is known.")
    lines += ["", "## How to install it", ""]
    for step in sheet.steps:
        lines += [step.text, "", "```", *step.commands, "```", ""]
    lines.append(f"{_evidence(sheet)} As of {as_of}.")
    return "\n".join(lines) + "\n"
