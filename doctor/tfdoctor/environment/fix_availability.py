"""Whether `fix` has something to do for a report, and how that is typed: `check` offers nothing that fix refuses."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.environment.activation import kind_of, list_inherited
from tfdoctor.environment.candidates import candidates, environment_of
from tfdoctor.environment.folder import find_outward_links
from tfdoctor.environment.models import Offer
from tfdoctor.facts import value_of
from tfdoctor.facts.python import ASKED
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from tfdoctor.environment.models import Environment
    from tfdoctor.findings import Report
    from tfdoctor.system import System

__all__ = ["environment_at", "make_offer", "offer"]


def offer(report: Report, system: System) -> Offer | None:
    """Return what fix would do on this machine; None if it would find nothing to do, or refuse."""
    python, choice = value_of(report.facts.python), report.facts.choice
    if python is None or (choice is not None and any(one.variable != ASKED for one in choice.lost)):
        return None  # nothing to fix, or a Python that nobody meant
    environment = environment_at(report, kind_of(python.prefix), list_inherited(system, python.prefix))
    if environment is None or not candidates(report, environment) or not os.access(python.prefix, os.W_OK):
        return None
    return make_offer(report, environment)


def environment_at(report: Report, kind: str | None, inherited: frozenset[str]) -> Environment | None:
    """Return what fix changes, with the links in it that lead out of it: it is on this disk.

    None if no Python answered.

    `kind`, `inherited`: as activation.kind_of and activation.inherited say.
    """
    environment, python = environment_of(report, kind, inherited), value_of(report.facts.python)
    if environment is None or environment.refusal or python is None:
        return environment
    return replace(environment, leading_out=find_outward_links(python.prefix, python.site_packages))


def make_offer(report: Report, environment: Environment) -> Offer | None:
    """Return the same for an environment that is known. Pure."""
    python, choice = value_of(report.facts.python), report.facts.choice
    found = candidates(report, environment)
    if python is None or not found:
        return None
    asked = python.requested.startswith(("$", "python3 on", "python on"))
    named = choice.kernel if choice is not None and choice.kernel is not None else python.executable
    command = "tfdoctor fix" if asked else f"tfdoctor fix --python {shlex.quote(clean_line(named))}"
    return Offer(command, tuple({id(one.finding): one.finding for one in found}.values()))
