"""The output of `check --against`: the differences from a recording, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis.diff import Importance
from tfdoctor.render.paragraphs import Page, Text, print_hanging

if TYPE_CHECKING:
    from tfdoctor.diagnosis.diff import Comparison, Difference

MARKS = {Importance.EXPLAINS: "✗", Importance.MATTERS: "!", Importance.MINOR: "–"}
STYLES = {Importance.EXPLAINS: "bold red", Importance.MATTERS: "yellow", Importance.MINOR: ""}
"""The style of the mark of a difference."""
MAX_DIFFERENCES = 25
"""The largest number of differences without -v."""
MAX_VALUE_CHARS, MAX_VERBOSE_VALUE_CHARS = 240, 2000
"""The largest length of a value in characters, without and with -v."""


def render_comparison(
    comparison: Comparison, name: str, *, verbose: bool = False, width: int = 80, colour: bool = False
) -> str:
    """Return the comparison as text.

    `name` is the recording as the user named it. Without `verbose`, differences that seldom matter and those
    beyond MAX_DIFFERENCES are left out.
    """
    out = Page(width, coloured=colour)
    out.print()
    print_hanging(
        out,
        Text(""),
        f"Compared with {clean_line(name)}: {clean_line(comparison.recorded_summary)}",
        style="bold",
    )
    for text in _list_notes(comparison):
        print_hanging(out, Text("  "), clean_line(text))
    differences = [
        difference
        for difference in comparison.differences
        if verbose or difference.importance is not Importance.MINOR
    ]
    shown_differences = differences if verbose else differences[:MAX_DIFFERENCES]
    for difference in shown_differences:
        _print_difference(out, difference, verbose=verbose)
    if not comparison.differences:
        print_hanging(out, Text("  "), "Nothing that was compared differs.")
    elif not differences:
        print_hanging(out, Text("  "), "Nothing differs that TensorFlow on a GPU depends on.")
    is_explained = any(difference.importance is Importance.EXPLAINS for difference in comparison.differences)
    if comparison.new_codes and not is_explained:
        codes = ", ".join(comparison.new_codes)
        print_hanging(out, Text("  "), f"None of this explains what is found now and was not then ({codes}).")
    hidden_count = len(comparison.differences) - len(shown_differences)
    if hidden_count:
        is_plural = hidden_count > 1
        hint = f"{hidden_count} more difference{'s' * is_plural}, which seldom matter{'s' * (not is_plural)}, with -v."
        out.print(Text(f"  {hint}"))
    return out.text


def _list_notes(comparison: Comparison) -> list[str]:
    """Return sentences about another machine, another environment, and findings that do not occur any more."""
    notes = []
    if comparison.other_machine_reasons:
        notes.append(
            f"That seems to have been another machine: {'; '.join(comparison.other_machine_reasons)}."
        )
    if comparison.environment_prefixes is not None:
        recorded_prefix, current_prefix = comparison.environment_prefixes
        notes.append(f"Another environment was examined then: {recorded_prefix}; now it is {current_prefix}.")
    if comparison.resolved_codes:
        notes.append(f"Found then and not now: {', '.join(comparison.resolved_codes)}.")
    return notes


def _print_difference(out: Page, difference: Difference, *, verbose: bool) -> None:
    mark = Text(f"  {MARKS[difference.importance]} ", style=STYLES[difference.importance])
    max_chars = MAX_VERBOSE_VALUE_CHARS if verbose else MAX_VALUE_CHARS
    old_value, new_value = (
        clean_line(text, limit=max_chars) for text in (difference.old_value, difference.new_value)
    )
    text = f"{old_value} → {new_value}"
    if difference.removed_items or difference.added_items:
        parts = (("without ", difference.removed_items), ("now with ", difference.added_items))
        text = "; ".join(
            f"{label}{clean_line(', '.join(names), limit=max_chars)}" for label, names in parts if names
        )
    explanation = f"  (explains {', '.join(difference.findings)})" if difference.findings else ""
    print_hanging(out, mark, f"{clean_line(difference.name)}: {text}{explanation}")


def make_comparison_json(comparison: Comparison, name: str) -> dict[str, Any]:
    """Return the fields that `check --against --json` adds to the report."""
    return {
        "against": {
            "bundle": name,
            "summary": comparison.recorded_summary,
            "another_machine": list(comparison.other_machine_reasons),
            "environment": dict(zip(("was", "is"), comparison.environment_prefixes, strict=True))
            if comparison.environment_prefixes is not None
            else None,
            "found_then_only": list(comparison.resolved_codes),
            "found_now_only": list(comparison.new_codes),
        },
        "differences": [
            {
                "name": difference.name,
                "area": difference.area,
                "was": difference.old_value,
                "is": difference.new_value,
                "matters": difference.importance.value,
                "explains": list(difference.findings),
            }
            for difference in comparison.differences
        ],
    }
