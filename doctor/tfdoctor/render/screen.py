"""The one-screen output of `check`: the verdict, the reason, the remedy and how to undo it.

If parts do not fit, their number is printed with the command that shows them. `-v` prints everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import __version__
from tfdoctor.core.facts import Absent, value_of
from tfdoctor.core.findings import Cause, Severity, Status
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.remedies.undo_hints import describe_root, describe_undo_with_root_note, needs_root
from tfdoctor.render.finding import (
    STATUS_BY_SEVERITY,
    STATUS_BY_USABLE,
    capitalize_remedy,
    format_mark,
    list_failed_checks,
)
from tfdoctor.render.paragraphs import (
    LABEL_COLUMNS,
    SCREEN_LINES,
    Page,
    Text,
    count_columns,
    count_lines,
    format_commands,
    print_command_after,
    print_commands,
    print_hanging,
    print_labelled,
    select_commands,
    shorten_text,
)
from tfdoctor.render.program_name import adapt_commands

if TYPE_CHECKING:
    from tfdoctor.core.findings import Area, Finding, Observation, Prediction, Report
    from tfdoctor.environments.models import FixOffer

__all__ = [
    "MAX_TEXT_LINES",
    "MIN_WIDE_COLUMNS",
    "NAME_COLUMNS",
    "UNDO_NOTE",
    "describe_python",
    "find_main_offer",
    "format_count",
    "list_observations",
    "print_heading",
    "print_main_remedy",
    "print_more_commands",
    "print_reason",
    "print_verdict",
    "render_screen",
]

NAME_COLUMNS = 13
"""The width of an area's name, in columns."""
UNDO_NOTE = "No root needed. It asks first; --undo reverts everything."
MAX_COMMAND_CHARS = 150
"""The largest length, in characters, of a user's command that hints repeat."""
MIN_WIDE_COLUMNS = 60
"""Below this width in columns, a text may take twice as many lines."""
ALL, SHORT_HEADING, GOOD_AREAS_ON_ONE_LINE, FEW_COMMANDS, SHORT_REASON, NO_EMPTY_LINES = LEVELS = range(6)
"""The levels of shortening. Each level leaves out more than the one before it, so that the text fits on a screen."""
TENSORFLOW_AREAS = ("CUDA", "cuDNN", "Loader")
"""The areas that are examined only if TensorFlow is installed."""
MAX_CODES = 4
"""The largest number of finding codes on one line."""
MAX_TEXT_LINES = 3
"""The largest number of lines of a text. It is also that of commands if not all of them fit."""


def render_screen(
    report: Report, *, offer: FixOffer | None, check_command: str, width: int = 80, colour: bool = False
) -> str:
    """Return the report on one screen.

    `offer` is the offer to fix the environment. `check_command` is the command that made the report. Hints add `-v` to it.
    """
    for level in LEVELS if width >= MIN_WIDE_COLUMNS else LEVELS[:FEW_COMMANDS]:
        out = Page(width, coloured=colour)
        _print_report(out, report, offer, check_command, level)
        if out.height <= SCREEN_LINES:
            break
    return out.text


def _print_report(out: Page, report: Report, fix: FixOffer | None, check_command: str, level: int) -> None:
    """Print the report, shortened to a level."""
    main_finding = report.main_finding
    print_heading(out, report, short=level >= SHORT_HEADING)
    print_verdict(out, report)
    if (
        main_finding is not None
        and main_finding is not report.root_finding
        and report.verdict.gpu_usable is not None
    ):
        status = STATUS_BY_SEVERITY[main_finding.severity]
        print_hanging(out, format_mark(status), f"{clean_line(main_finding.title)} [{main_finding.code}]")
    if main_finding is not None:
        out.print()
        print_reason(
            out,
            main_finding.explanation,
            max_lines=MAX_TEXT_LINES if level < SHORT_REASON else 2,
            is_dense=level >= NO_EMPTY_LINES,
        )
        main_offer = find_main_offer(report, fix)
        print_main_remedy(out, main_finding, main_offer, check_command, is_short=level >= FEW_COMMANDS)
    out.print()
    _print_areas(out, report, one_line=level >= GOOD_AREAS_ON_ONE_LINE)
    _print_failed_checks(out, report)
    _print_observed(out, report)
    out.print()
    _print_footer(out, report, fix, check_command, is_short=level >= NO_EMPTY_LINES)


def find_main_offer(report: Report, offer: FixOffer | None) -> FixOffer | None:
    """Return the offer if it fixes the main finding, else None."""
    if offer is not None and any(finding is report.main_finding for finding in offer.findings):
        return offer
    return None


def describe_python(report: Report) -> str:
    """Return the Python that was examined, with its version if it answered."""
    python, choice = value_of(report.facts.python), report.facts.choice
    if python is not None:
        return f"{python.executable} (Python {python.version})"
    return f"{choice.path} (no answer)" if choice is not None else "no Python answered"


def print_heading(out: Page, report: Report, *, short: bool = False) -> None:
    """Print which Python was examined, and why it was chosen.

    With `short`, the reason is printed only if the choice is unexpected.
    """
    description, choice = describe_python(report), report.facts.choice
    is_unexpected = choice is not None and (choice.on_path or choice.lost)
    if choice is not None and choice.why and (is_unexpected or not short):
        description = f"{description}, {choice.why}"
    if choice is not None and choice.on_path:
        description += f" ({choice.how}), while the shell finds another Python: {choice.on_path}"
    for unusable in choice.lost if choice is not None else ():
        description += f"; {unusable.variable} ({unusable.prefix}) cannot be used"
    text = clean_line(f"tfdoctor {__version__} · {description}")
    out.print(Text(text))
    out.print()


def print_verdict(out: Page, report: Report) -> None:
    """Print whether the GPU is used and, if not, why."""
    status = STATUS_BY_USABLE[report.verdict.gpu_usable]
    headline = clean_line(report.verdict.headline)
    code = f" [{report.root_finding.code}]" if report.root_finding is not None else ""
    if count_lines(headline + code, out.width - 2) > count_lines(headline, out.width - 2):
        code = ""  # it would stand alone on a line; the last line of the screen names it as well
    print_hanging(out, format_mark(status), headline + code, style="bold")


def print_reason(out: Page, text: str, *, max_lines: int = MAX_TEXT_LINES, is_dense: bool = False) -> None:
    """Print the reason, shortened to `max_lines` lines, followed by an empty line unless `is_dense` is set."""
    columns = out.width - LABEL_COLUMNS
    max_lines = max_lines if out.width >= MIN_WIDE_COLUMNS else 2 * max_lines
    print_labelled(out, "Why", shorten_text(clean_line(text, limit=3000), columns, max_lines))
    if not is_dense:
        out.print()


def print_main_remedy(
    out: Page, finding: Finding, offer: FixOffer | None, check_command: str, *, is_short: bool = False
) -> None:
    """Print the remedy, how to undo it, and an alternative for users without root.

    `offer` is the offer to run `tfdoctor fix`, or None if that would not fix the finding. With `is_short`, fewer lines are
    printed.
    """
    if offer is not None:
        label = Text("  Fix it".ljust(LABEL_COLUMNS), style="bold")
        lines = list(format_commands([offer.command], LABEL_COLUMNS, out.width))
        if not lines[0][:LABEL_COLUMNS].strip():
            label = label + Text(lines.pop(0)[LABEL_COLUMNS:], style="bold")
        out.print(label, wrap=False)  # the label has its own line if the command needs the full width
        for line in lines:
            out.print(Text(line, style="bold"), wrap=False)
        fix_remedy = next((item for item in finding.remedies if item.steps), None)
        if fix_remedy is not None and not is_short:
            print_labelled(
                out, "", shorten_text(capitalize_remedy(fix_remedy.text), out.width - LABEL_COLUMNS, 2)
            )
        print_labelled(out, "", UNDO_NOTE)
        if fix_remedy is not None and fix_remedy.by_hand:
            print_labelled(
                out,
                "By hand",
                shorten_text(capitalize_remedy(fix_remedy.by_hand), out.width - LABEL_COLUMNS, 2),
            )
            label = Text(f"{'':{LABEL_COLUMNS}}What to type for that: ")
            print_command_after(out, label, _add_option(check_command, "-v"))
        return
    if not finding.remedies:
        return
    first_remedy = finding.remedies[0]
    commands = [
        item for item in first_remedy.commands if not item.startswith("tfdoctor check")
    ] or first_remedy.commands
    print_labelled(
        out, "Do", shorten_text(capitalize_remedy(first_remedy.full_text), out.width - LABEL_COLUMNS, 2)
    )
    lines_of_commands = list(format_commands(commands, LABEL_COLUMNS, out.width))
    if is_short and len(lines_of_commands) > MAX_TEXT_LINES + 1:
        commands = select_commands(commands, LABEL_COLUMNS, out.width, MAX_TEXT_LINES)
        print_commands(out, commands, LABEL_COLUMNS, style="bold", with_continuations=True)
        print_command_after(out, Text(f"{'':{LABEL_COLUMNS}}The rest: "), _add_option(check_command, "-v"))
    else:
        print_commands(out, commands, LABEL_COLUMNS, style="bold", with_continuations=True)
    if undo_text := describe_undo_with_root_note(first_remedy):
        print_labelled(out, "", undo_text)
    if needs_root(first_remedy):
        _print_alternative(out, finding)


def _print_alternative(out: Page, finding: Finding) -> None:
    """Print the first other remedy that needs no root, or else the advice to ask an administrator."""
    for remedy in finding.remedies[1:]:
        is_alternative = any(
            command.startswith(("export ", "tfdoctor install", "tfdoctor check"))
            for command in remedy.commands
        )
        if is_alternative and not needs_root(remedy):
            text = f"{capitalize_remedy(remedy.full_text).rstrip('.:')} (-v shows how)."
            print_labelled(out, "No root?", shorten_text(text, out.width - LABEL_COLUMNS, 2))
            return
    print_labelled(out, "No root?", describe_root(finding.remedies[0]))


# ---------------------------------------------------------------- areas


def _print_areas(out: Page, report: Report, *, one_line: bool) -> None:
    """Print a line for each area; with `one_line`, good areas share one line."""
    good_areas = [area for area in report.areas if area.status is Status.GOOD]
    unexamined_areas = [
        area for area in report.areas if area.status is Status.UNKNOWN and area.name in TENSORFLOW_AREAS
    ]
    for area in report.areas:
        if area.name == "Loader" and _is_redundant(area, report):
            continue
        if one_line and (area in good_areas or (area in unexamined_areas and len(unexamined_areas) > 1)):
            continue
        _print_area(out, area, report.main_finding)
    is_missing = isinstance(report.facts.tensorflow, Absent) and not any(
        area.name == "TensorFlow" and area.findings and area.findings[0].cause is not Cause.TENSORFLOW_MISSING
        for area in report.areas
    )
    reason = "is not installed" if is_missing else "could not be examined"
    if one_line and len(unexamined_areas) > 1:
        names = ", ".join(area.name for area in unexamined_areas)
        print_hanging(out, format_mark(Status.UNKNOWN), f"{names}: skipped (TensorFlow {reason})")
    if one_line and good_areas:
        names = ", ".join(area.name for area in good_areas if area.name != "Loader")
        print_hanging(out, format_mark(Status.GOOD), names)


def _is_redundant(area: Area, report: Report) -> bool:
    """Return whether the loader's line says nothing new.

    That is the case if its status is good, or if another line reports a missing library already.
    """
    return area.status is Status.GOOD or any(
        other.status is Status.BAD for other in report.areas if other.name in ("CUDA", "cuDNN", "Driver")
    )


def _print_area(out: Page, area: Area, main_finding: Finding | None) -> None:
    """Print the line of an area: the longest of its texts that fits, and the code of its first finding."""
    texts = [clean_line(text) for text in (area.text, *area.short_texts)]
    other_findings = [finding for finding in area.findings if finding is not main_finding]
    code = ""
    if area.findings:
        finding = (other_findings or area.findings)[0]
        code = f" [{finding.code}]"
        reasons = [clean_line(finding.title)] if other_findings else []
        reasons += (
            [finding.short_title]
            if finding.short_title and (other_findings or not area.explains_status)
            else []
        )
        texts = [
            *(f"{text}: {reason}" for reason in reasons if reason not in texts for text in texts),
            *([reasons[-1]] if reasons else texts),
        ]
    columns = max(out.width - NAME_COLUMNS - 2 - len(code), 12)
    text = next((text for text in texts if count_columns(text) <= columns), texts[-1])
    print_hanging(
        out, format_mark(area.status) + Text(area.name.ljust(NAME_COLUMNS), style="bold"), text + code
    )


def _print_failed_checks(out: Page, report: Report) -> None:
    """Print why checks could not be run if the verdict is good, because the verdict could then be wrong."""
    if not report.verdict.gpu_usable:
        return
    max_lines = 2 if out.width >= MIN_WIDE_COLUMNS else 4
    for code, reason in list_failed_checks(report)[:2]:
        text = shorten_text(f"{code} could not run: {reason}", out.width - 2, max_lines)
        print_hanging(out, format_mark(Status.UNKNOWN), text)


def _print_observed(out: Page, report: Report) -> None:
    """Print the differences between the prediction and the behaviour of TensorFlow, if TensorFlow was run."""
    observed = report.observed
    if observed is None:
        return
    out.print()
    differences = [
        f"{name}: predicted {predicted}, was {actual}"
        for name, predicted, actual in list_observations(report.prediction, observed)
        if predicted != actual
    ]
    run_text = f"TensorFlow was run ({observed.seconds:.1f} s)"
    if not differences:
        print_hanging(out, format_mark(Status.GOOD), f"{run_text} and did what was predicted.")
    for text in differences:
        print_hanging(out, format_mark(Status.WARNING), f"{run_text}; {clean_line(text)}")
    for line in observed.computed:
        status = Status.BAD if "failed" in line else Status.GOOD
        print_hanging(
            out, format_mark(status), shorten_text(f"It computed: {clean_line(line)}", out.width - 2, 2)
        )
    if observed.error:
        print_hanging(out, Text("  "), shorten_text(clean_line(observed.error), out.width - 2, 2))


def list_observations(prediction: Prediction, observed: Observation) -> list[tuple[str, str, str]]:
    """Return (name, predicted text, actual text) for everything that TensorFlow's behaviour is compared in."""
    rows = (
        ("imports", prediction.import_ok, observed.import_ok),
        ("registers a GPU", prediction.gpu_registered, observed.gpu_registered),
        ("GPUs", prediction.gpu_count, observed.gpu_count),
        ("missing", ", ".join(prediction.missing_libraries), ", ".join(observed.missing_libraries)),
    )
    return [(name, _format_value(predicted), _format_value(actual)) for name, predicted, actual in rows]


def _format_value(value: object) -> str:
    return (
        {True: "yes", False: "no", None: "not known"}[value]
        if isinstance(value, bool) or value is None
        else str(value) or "nothing"
    )


# ---------------------------------------------------------------- footer


def format_count(count: int, word: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 problem" or "2 problems"."""
    return f"{count} {word if count == 1 else plural or f'{word}s'}"


def _print_footer(
    out: Page, report: Report, fix: FixOffer | None, check_command: str, *, is_short: bool
) -> None:
    """Print the number of findings, and the commands that show more."""
    counts = report.count_outcomes()
    error_count = sum(finding.severity is Severity.ERROR for finding in report.findings)
    warning_count = sum(finding.severity is Severity.WARNING for finding in report.findings)
    not_run_count = counts["could_not_check"] + counts["crashed"]
    parts = (
        [format_count(error_count, "problem") + _format_codes(report, Severity.ERROR)] if error_count else []
    )
    parts += (
        [format_count(warning_count, "warning") + _format_codes(report, Severity.WARNING)]
        if warning_count
        else []
    )
    parts = [join_words(parts)] if parts else []
    parts += [] if error_count else [f"{format_count(counts['clean'], 'check')} passed"]
    parts += [f"{format_count(not_run_count, 'check')} could not run"] if not_run_count else []
    out.print(Text(f"{'; '.join(parts)}."))
    main_finding = report.main_finding
    if main_finding is None:
        if report.observed is None and report.verdict.gpu_usable and "--from " not in check_command:
            print_more_commands(out, "Run a real computation", [(_add_option(check_command, "--deep"), "")])
        elif not report.verdict.gpu_usable:
            print_more_commands(out, "More", [(_add_option(check_command, "-v"), "")])
        return
    is_fixable = find_main_offer(report, fix) is not None
    other_remedy_count = len(main_finding.remedies) - (not is_fixable)
    hidden_parts = (
        [format_count(other_remedy_count, "other remedy", "other remedies")] if other_remedy_count > 0 else []
    )
    hidden_parts += ["all warnings"] if warning_count > 1 else []
    if fix is not None and not is_fixable:
        print_more_commands(
            out,
            f"{join_words([finding.code for finding in fix.findings][:3])} can be fixed",
            [(fix.command, "")],
        )
    verbose_command = (_add_option(check_command, "-v"), join_words(hidden_parts))
    explain_command = (f"tfdoctor explain {main_finding.code}", "")
    print_more_commands(out, "More", [*([] if is_short else [explain_command]), verbose_command])


def _add_option(command: str, option: str) -> str:
    """Return the command with an option. A long command is not repeated, because it stands above the output."""
    return f"{command} {option}" if len(command) <= MAX_COMMAND_CHARS else f"your command with {option}"


def _format_codes(report: Report, severity: Severity) -> str:
    """Return the codes of the findings of a severity in parentheses, such as " (TFD201, TFD203)".

    Return "" if there is only one finding, because the screen shows its code already.
    """
    codes = [finding.code for finding in report.findings if finding.severity is severity]
    if len(codes) < 2:
        return ""
    distinct_codes = list(dict.fromkeys(codes))
    return f" ({', '.join(distinct_codes[:MAX_CODES])}{', …' if len(distinct_codes) > MAX_CODES else ''})"


def print_more_commands(out: Page, label: str, commands: list[tuple[str, str]]) -> None:
    """Print commands that show more, on one line if they fit. `commands` contains (command, description or "")."""
    indent = Text(f"{'':{len(label) + 2}}")
    line, is_begun = Text(f"{label}: "), False
    for command, description in commands:
        command = adapt_commands(command)  # noqa: PLW2901 - its width is that of what is printed
        entry = Text(command) + Text(f" ({description})" if description else "")
        entry = entry if len(indent) + len(entry) <= out.width else Text(command)
        if is_begun and len(line) + len(entry) + 3 > out.width:
            out.print(line, wrap=False)
            line, is_begun = indent, False
        if len(line) + len(entry) > out.width:
            print_command_after(out, line, command)
            line = indent
        else:
            line, is_begun = line + Text(" · " if is_begun else "") + entry, True
    if is_begun:
        out.print(line, wrap=False)
