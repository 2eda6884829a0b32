"""A verification: a line for each stage as it ends, then the answer; as JSON, and as JUnit's XML.

The shape of the JSON is docs/schemas/verify.schema.json; the XML is for the servers of continuous integration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.render.finding import finding_json, print_explanation
from tfdoctor.render.paragraphs import SCREEN_LINES, Page, Text, print_hanging
from tfdoctor.render.screen import MAX_TEXT_LINES, format_count, more, print_reason, todo
from tfdoctor.render.xml import attribute, element
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from tfdoctor.findings import Simulation, Stage, Verification

__all__ = ["junit", "render_end", "render_simulation", "render_stage", "simulation_json", "verification_json"]


_OF_DOCKERFILE = ("USER ", "RUN ", "ENV ", "FROM ")
MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "skipped": ("–", "")}


def render_stage(stage: Stage, *, width: int = 80, colour: bool = False) -> str:
    """Return one stage's line."""
    out = Page(width, coloured=colour)
    mark, style = MARKS[stage.status]
    seconds = f" ({stage.seconds:.1f} s)" if stage.seconds >= 0.05 else ""
    print_hanging(
        out,
        Text(f"{mark} ", style=style) + Text(stage.name.ljust(11), style="bold"),
        clean_line(stage.detail, limit=1000) + seconds,
    )
    return out.text


def render_simulation(title: str, *, width: int = 80, colour: bool = False) -> str:
    """Return the line above all stages of a simulation."""
    out = Page(width, coloured=colour)
    print_hanging(out, Text("Simulated: ", style="bold"), f"{clean_line(title)}. No GPU is used.")
    return out.text


def render_end(
    done: Verification, *, verbose: bool = False, quiet: bool = False, width: int = 80, colour: bool = False
) -> str:
    """Return the verdict, why, and what to do; with the lines of its stages above it one screen."""
    for lines in (MAX_TEXT_LINES, 2, 1):
        out = Page(width, coloured=colour)
        _end(out, done, verbose=verbose, quiet=quiet, lines=lines)
        if out.height + len(done.stages) <= SCREEN_LINES:
            break
    return out.text


def _end(out: Page, done: Verification, *, verbose: bool, quiet: bool, lines: int) -> None:
    """lines: of the reason."""
    status = {True: "passed", False: "failed", None: "skipped"}[done.ok]
    mark, style = MARKS[status]
    cause = f" [{done.cause.value}]" if done.cause is not None and done.ok is False else ""
    if not quiet:
        out.print()
    print_hanging(
        out, Text(f"{mark} ", style=style), clean_line(done.summary, limit=1000) + cause, style="bold"
    )
    if not quiet and done.simulated is not None:
        _simulation(out, done.simulated, verbose=verbose)
    if quiet or not done.findings:
        return
    first, *rest = done.findings
    if verbose:
        print_explanation(out, first)
        for finding in rest:
            print_hanging(out, Text("  Also  "), clean_line(f"{finding.title} [{finding.code}]"))
        return
    out.print()
    print_reason(out, first.explanation, lines=lines, dense=lines < MAX_TEXT_LINES)
    # A part of the lines for a Dockerfile would be of no use.
    typed = first.remedies[0].commands if first.remedies else ()
    todo(out, first, None, done.typed, least=not any(line.startswith(_OF_DOCKERFILE) for line in typed))
    out.print()
    for finding in rest[:2]:
        print_hanging(out, Text("Also: "), clean_line(f"{finding.title} [{finding.code}]"))
    ways = [format_count(len(first.remedies) - 1, "other way")] if len(first.remedies) > 1 else []
    ways += [format_count(len(rest) - 2, "more finding")] if len(rest) > 2 else []
    more(
        out,
        "More",
        [(f"tfdoctor explain {first.code}", ""), (f"{done.typed} -v", join_words([*ways, "the evidence"]))],
    )


def _simulation(out: Page, one: Simulation, *, verbose: bool) -> None:
    """What was shown with stand-ins, and what cannot be."""
    shown = "; ".join(one.proves) or "nothing: see above"
    print_hanging(out, Text("  Shows     ", style="bold"), clean_line(shown, limit=1000))
    not_shown = one.does_not_prove if verbose else one.does_not_prove[:2]
    left = format_count(len(one.does_not_prove) - len(not_shown), "other thing")
    rest = "" if len(not_shown) == len(one.does_not_prove) else f"; {left} (-v)"
    print_hanging(
        out, Text("  Not shown ", style="bold"), clean_line(f"{'; '.join(not_shown)}{rest}", limit=1500)
    )


# ---------------------------------------------------------------- for other programs


def simulation_json(one: Simulation | None) -> dict[str, Any] | None:
    """Return `simulated` of `verify --json` and of whatever shows TensorFlow a stand-in."""
    if one is None:
        return None
    cards = [
        {"name": name, "compute_capability": capability}
        for name, capability in zip(one.cards, one.capabilities, strict=True)
    ]
    return {
        "card": one.cards[0],
        "cards": cards,
        "driver": one.driver,
        "cuda": one.cuda,
        "proves": list(one.proves),
        "does_not_prove": list(one.does_not_prove),
    }


def verification_json(done: Verification) -> dict[str, Any]:
    """`verify --json`."""
    return {
        "schema_version": 1,
        "target": done.target,
        "access": done.access,
        "stages": [
            {"name": stage.name, "status": stage.status, "detail": stage.detail, "seconds": stage.seconds}
            for stage in done.stages
        ],
        "gpus": {"expected": done.expected, "visible": done.visible, "computed": done.computed},
        "verdict": {
            # A stand-in shows what is wrong with an image, and never that a card is of use.
            "gpu_usable": None if done.simulated is not None and done.ok else done.ok,
            "cause": done.cause.value if done.cause is not None else None,
            "summary": done.summary,
        },
        "findings": [finding_json(finding) for finding in done.findings],
        "simulated": simulation_json(done.simulated),
    }


def junit(done: Verification) -> str:
    """Return one test case a stage, as the servers of continuous integration read it."""
    failed = sum(stage.status == "failed" for stage in done.stages)
    skipped = sum(stage.status == "skipped" for stage in done.stages)
    seconds = sum(stage.seconds for stage in done.stages)
    simulated = f" (simulated: {done.simulated.title})" if done.simulated is not None else ""
    counts = (
        f'name={attribute(f"tfdoctor verify {done.target}{simulated}")} tests="{len(done.stages)}" '
        f'failures="{failed}" errors="0" skipped="{skipped}" time="{seconds:.2f}"'
    )
    rows = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{len(done.stages)}" failures="{failed}" skipped="{skipped}" time="{seconds:.2f}">',
        f"<testsuite {counts}>",
    ]
    for stage in done.stages:
        rows.append(
            f'<testcase classname="tfdoctor.verify" name={attribute(stage.name)} time="{stage.seconds:.2f}">'
        )
        if stage.status == "failed":
            cause = done.cause.value if done.cause is not None else "inconclusive"
            told = "\n\n".join(f"{f.code} {f.title}\n{f.explanation}" for f in done.findings)
            rows.append(
                f"<failure type={attribute(cause)} message={attribute(stage.detail)}>{element(told)}</failure>"
            )
        elif stage.status == "skipped":
            rows.append(f"<skipped message={attribute(stage.detail)}/>")
        rows.append("</testcase>")
    return "\n".join([*rows, "</testsuite>", "</testsuites>", ""])
