"""What a recorded machine of tests/hosts is told, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import recorded

if TYPE_CHECKING:
    from tfdoctor.findings import Cause, Finding, OutcomeKind, Report, Severity


def report(host: str) -> Report:
    return recorded.report(recorded.HOSTS / host)


def finding(host: str, code: str) -> Finding:
    """The first of this code; a StopIteration where there is none."""
    return next(one for one in report(host).findings if one.code == code)


def commands(one: Finding) -> str:
    """All that it says to type, a line each."""
    return "\n".join(command for remedy in one.remedies for command in remedy.commands)


def first_command(one: Finding) -> str:
    """What it says to type first; empty where it says nothing to type."""
    return commands(one).partition("\n")[0]


def run_to_end(host: str, code: str) -> OutcomeKind:
    """How the check of this code ended there."""
    return next(one.kind for one in report(host).outcomes if one.code == code)


def summarize_answer(host: str, code: str) -> tuple[Severity, Cause, str, str]:
    """(severity, cause, title, the first command) of what is told there under this code."""
    one = finding(host, code)
    return one.severity, one.cause, one.title, first_command(one)
