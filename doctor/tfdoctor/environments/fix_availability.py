"""Decide whether a report offers to run `tfdoctor fix`. There is no offer if fix would refuse to run."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.core.facts.python import PYTHON_OPTION
from tfdoctor.core.text import clean_line
from tfdoctor.environments.activation import detect_activation_kind, list_inherited_variables
from tfdoctor.environments.candidates import list_fix_candidates, make_environment
from tfdoctor.environments.folder import find_outward_links
from tfdoctor.environments.models import FixOffer

if TYPE_CHECKING:
    from tfdoctor.core.findings import Report
    from tfdoctor.environments.models import Environment
    from tfdoctor.system import System

__all__ = ["find_environment", "find_fix_offer", "make_fix_offer"]


def find_fix_offer(report: Report, system: System) -> FixOffer | None:
    """Return the offer to run fix on this machine; None if fix has nothing to do or would refuse."""
    python, choice = value_of(report.facts.python), report.facts.choice
    if python is None or (
        choice is not None and any(unusable.variable != PYTHON_OPTION for unusable in choice.lost)
    ):
        return None  # no Python, or a Python that was chosen because the active environment is unusable
    environment = find_environment(
        report, detect_activation_kind(python.prefix), list_inherited_variables(system, python.prefix)
    )
    if (
        environment is None
        or not list_fix_candidates(report, environment)
        or not os.access(python.prefix, os.W_OK)
    ):
        return None
    return make_fix_offer(report, environment)


def find_environment(
    report: Report, kind: str | None, inherited_variables: frozenset[str]
) -> Environment | None:
    """Return the environment to fix, with its outward links; None if the Python could not be queried.

    `kind` comes from `activation.detect_kind`, and `inherited_variables` from `activation.list_inherited_variables`.
    """
    environment, python = make_environment(report, kind, inherited_variables), value_of(report.facts.python)
    if environment is None or environment.refusal_reason or python is None:
        return environment
    return replace(environment, outward_links=find_outward_links(python.prefix, python.site_packages))


def make_fix_offer(report: Report, environment: Environment) -> FixOffer | None:
    """Return the offer for a known environment; None if nothing can be fixed."""
    python, choice = value_of(report.facts.python), report.facts.choice
    candidates = list_fix_candidates(report, environment)
    if python is None or not candidates:
        return None
    # `requested` is a text for the user. These texts mean that fix would choose the same Python without `--python`.
    is_default = python.requested.startswith(("$", "python3 on", "python on"))
    python_argument = choice.kernel if choice is not None and choice.kernel is not None else python.executable
    command = (
        "tfdoctor fix" if is_default else f"tfdoctor fix --python {shlex.quote(clean_line(python_argument))}"
    )
    # Several candidates may share a finding object: keep each object once, in order.
    findings_by_id = {id(candidate.finding): candidate.finding for candidate in candidates}
    return FixOffer(command=command, findings=tuple(findings_by_id.values()))
