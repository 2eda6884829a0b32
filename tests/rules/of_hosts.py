"""Reports on the recorded hosts of tests/hosts, by host name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import recorded

if TYPE_CHECKING:
    from tfdoctor.core.findings import Cause, Finding, OutcomeKind, Report, Severity


def report(host: str) -> Report:
    return recorded.load_report(recorded.HOSTS / host)


def finding(host: str, code: str) -> Finding:
    """Return the first finding with this code; raise StopIteration if there is none."""
    return next(result for result in report(host).findings if result.code == code)


def commands(result: Finding) -> str:
    """Return all commands of the finding's remedies, one per line."""
    return "\n".join(command for remedy in result.remedies for command in remedy.commands)


def first_command(result: Finding) -> str:
    """Return the first command of the finding's remedies, or "" if there is none."""
    return commands(result).partition("\n")[0]


def outcome_kind(host: str, code: str) -> OutcomeKind:
    """Return how the check with this code ended on the host."""
    return next(outcome.kind for outcome in report(host).outcomes if outcome.code == code)


def summarize_finding(host: str, code: str) -> tuple[Severity, Cause, str, str]:
    """Return severity, cause, title and first command of the host's finding with this code."""
    result = finding(host, code)
    return result.severity, result.cause, result.title, first_command(result)
