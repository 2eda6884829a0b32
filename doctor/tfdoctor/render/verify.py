"""The output of `verify`: text, JSON (docs/schemas/verify.schema.json), and JUnit XML for CI servers.

The text has a line for each stage, which is printed when the stage ends, followed by the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Status
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.render.finding import format_mark, make_finding_json, print_explanation
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import SCREEN_LINES, Page, Text, print_hanging
from tfdoctor.render.screen import (
    MAX_TEXT_LINES,
    format_count,
    print_main_remedy,
    print_more_commands,
    print_reason,
)
from tfdoctor.render.xml import escape_element, quote_attribute

if TYPE_CHECKING:
    from tfdoctor.core.findings import Simulation, Stage, Verification

__all__ = [
    "make_junit_xml",
    "make_simulation_json",
    "make_verification_json",
    "render_result",
    "render_simulation",
    "render_stage",
]

_DOCKERFILE_INSTRUCTIONS = ("USER ", "RUN ", "ENV ", "FROM ")
"""The beginnings of a remedy's commands that are lines for a Dockerfile."""
STATUS_BY_STAGE_STATUS = {"passed": Status.GOOD, "failed": Status.BAD, "skipped": Status.UNKNOWN}
"""The status with whose mark and colour a stage is printed, by its own status."""


def render_stage(stage: Stage, *, width: int = 80, colour: bool = False) -> str:
    """Return the line for a stage that has ended. A time that rounds to 0.0 s is left out."""
    out = Page(width, coloured=colour)
    seconds = f" ({stage.seconds:.1f} s)" if stage.seconds >= 0.05 else ""
    print_hanging(
        out,
        format_mark(STATUS_BY_STAGE_STATUS[stage.status]) + Text(stage.name.ljust(11), style="bold"),
        clean_line(stage.detail, limit=1000) + seconds,
    )
    return out.text


def render_simulation(title: str, *, width: int = 80, colour: bool = False) -> str:
    """Return the line that says, above the stages, that a GPU is simulated."""
    out = Page(width, coloured=colour)
    print_hanging(out, Text("Simulated: ", style="bold"), f"{clean_line(title)}. No GPU is used.")
    return out.text


def render_result(
    verification: Verification,
    *,
    verbose: bool = False,
    quiet: bool = False,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return the verdict, the reason and the remedy, shortened to fit on one screen with the stages."""
    for max_lines in (MAX_TEXT_LINES, 2, 1):
        out = Page(width, coloured=colour)
        _print_result(out, verification, verbose=verbose, quiet=quiet, max_lines=max_lines)
        if out.height + len(verification.stages) <= SCREEN_LINES:
            break
    return out.text


def _print_result(
    out: Page, verification: Verification, *, verbose: bool, quiet: bool, max_lines: int
) -> None:
    """Print the result, with the reason in at most `max_lines` lines."""
    mark = format_mark({True: Status.GOOD, False: Status.BAD, None: Status.UNKNOWN}[verification.ok])
    cause = (
        f" [{verification.cause.value}]"
        if verification.cause is not None and verification.ok is False
        else ""
    )
    if not quiet:
        out.print()
    print_hanging(out, mark, clean_line(verification.summary, limit=1000) + cause, style="bold")
    if not quiet and verification.simulated is not None:
        _print_simulation(out, verification.simulated, verbose=verbose)
    if quiet or not verification.findings:
        return
    main_finding, *other_findings = verification.findings
    if verbose:
        print_explanation(out, main_finding)
        for finding in other_findings:
            print_hanging(out, Text("  Also  "), clean_line(f"{finding.title} [{finding.code}]"))
        return
    out.print()
    print_reason(out, main_finding.explanation, max_lines=max_lines, is_dense=max_lines < MAX_TEXT_LINES)
    # Lines for a Dockerfile are useless unless they are complete.
    commands = main_finding.remedies[0].commands if main_finding.remedies else ()
    print_main_remedy(
        out,
        main_finding,
        offer=None,
        check_command=verification.command,
        is_short=not any(line.startswith(_DOCKERFILE_INSTRUCTIONS) for line in commands),
    )
    out.print()
    for finding in other_findings[:2]:
        print_hanging(out, Text("Also: "), clean_line(f"{finding.title} [{finding.code}]"))
    hidden_parts = (
        [format_count(len(main_finding.remedies) - 1, "other way")] if len(main_finding.remedies) > 1 else []
    )
    hidden_parts += [format_count(len(other_findings) - 2, "more finding")] if len(other_findings) > 2 else []
    print_more_commands(
        out,
        "More",
        [
            (f"tfdoctor explain {main_finding.code}", ""),
            (f"{verification.command} -v", join_words([*hidden_parts, "the evidence"])),
        ],
    )


def _print_simulation(out: Page, simulation: Simulation, *, verbose: bool) -> None:
    """Print what the simulation proves, and what it cannot prove."""
    proven = "; ".join(simulation.proves) or "nothing: see above"
    print_hanging(out, Text("  Shows     ", style="bold"), clean_line(proven, limit=1000))
    not_proven = simulation.does_not_prove if verbose else simulation.does_not_prove[:2]
    hidden_text = format_count(len(simulation.does_not_prove) - len(not_proven), "other thing")
    suffix = "" if len(not_proven) == len(simulation.does_not_prove) else f"; {hidden_text} (-v)"
    print_hanging(
        out, Text("  Not shown ", style="bold"), clean_line(f"{'; '.join(not_proven)}{suffix}", limit=1500)
    )


# ---------------------------------------------------------------- JSON and XML


def make_simulation_json(simulation: Simulation | None) -> dict[str, Any] | None:
    """Return the JSON of a simulation for all commands with `--simulate`, or None if there was none."""
    if simulation is None:
        return None
    cards = [
        {"name": name, "compute_capability": capability}
        for name, capability in zip(simulation.cards, simulation.capabilities, strict=True)
    ]
    return {
        "card": simulation.cards[0],
        "cards": cards,
        "driver": simulation.driver,
        "cuda": simulation.cuda,
        "proves": list(simulation.proves),
        "does_not_prove": list(simulation.does_not_prove),
    }


def make_verification_json(verification: Verification) -> dict[str, Any]:
    """Return the document that `verify --json` prints."""
    return {
        **make_document_head("verify"),
        "target": verification.target,
        "access": verification.access,
        "stages": [
            {"name": stage.name, "status": stage.status, "detail": stage.detail, "seconds": stage.seconds}
            for stage in verification.stages
        ],
        "gpus": {
            "expected": verification.expected,
            "visible": verification.visible,
            "computed": verification.computed,
        },
        "verdict": {
            # A simulation can show that an image is broken, but never that a GPU works.
            "gpu_usable": None if verification.simulated is not None and verification.ok else verification.ok,
            "cause": verification.cause.value if verification.cause is not None else None,
            "summary": verification.summary,
        },
        "findings": [make_finding_json(finding) for finding in verification.findings],
        "simulated": make_simulation_json(verification.simulated),
    }


def make_junit_xml(verification: Verification) -> str:
    """Return JUnit XML with one test case for each stage."""
    failed_count = sum(stage.status == "failed" for stage in verification.stages)
    skipped_count = sum(stage.status == "skipped" for stage in verification.stages)
    seconds = sum(stage.seconds for stage in verification.stages)
    simulation_note = (
        f" (simulated: {verification.simulated.title})" if verification.simulated is not None else ""
    )
    suite_attributes = (
        f'name={quote_attribute(f"tfdoctor verify {verification.target}{simulation_note}")} tests="{len(verification.stages)}" '
        f'failures="{failed_count}" errors="0" skipped="{skipped_count}" time="{seconds:.2f}"'
    )
    stage_count = len(verification.stages)
    suites_attributes = (
        f'tests="{stage_count}" failures="{failed_count}" skipped="{skipped_count}" time="{seconds:.2f}"'
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites {suites_attributes}>",
        f"<testsuite {suite_attributes}>",
    ]
    for stage in verification.stages:
        lines.append(
            f'<testcase classname="tfdoctor.verify" name={quote_attribute(stage.name)} time="{stage.seconds:.2f}">'
        )
        if stage.status == "failed":
            cause = verification.cause.value if verification.cause is not None else "inconclusive"
            details = "\n\n".join(
                f"{finding.code} {finding.title}\n{finding.explanation}" for finding in verification.findings
            )
            lines.append(
                f"<failure type={quote_attribute(cause)} message={quote_attribute(stage.detail)}>"
                f"{escape_element(details)}</failure>"
            )
        elif stage.status == "skipped":
            lines.append(f"<skipped message={quote_attribute(stage.detail)}/>")
        lines.append("</testcase>")
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])
