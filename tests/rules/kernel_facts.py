"""Facts and reports of recorded hosts for the tests of kernel and card rules."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.core.facts import Facts, KernelEvent, Known
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding, OutcomeKind, Report

HOSTS = Path(__file__).parents[1] / "hosts"


COMPAT = Compat.load()


@cache
def load_facts(host: str) -> Facts:
    return run_probes(RecordedSystem(HOSTS / host), COMPAT)


def make_report(facts: Facts) -> Report:
    return diagnose(facts, COMPAT)


def find_findings(report: Report, code: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == code]


def outcome_kind(report: Report, code: str) -> OutcomeKind:
    return next(outcome.kind for outcome in report.outcomes if outcome.code == code)


def with_events(host: str, *events: KernelEvent) -> Facts:
    facts = load_facts(host)
    return dataclasses.replace(facts, kernel=dataclasses.replace(facts.kernel, log=Known(events, "dmesg")))
