"""`check` suggests `fix` only if `fix` has something to do and does not refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.facts import Known, Unknown, value_of
from tfdoctor.core.facts.python import PythonChoice
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.environments import fix_availability as module
from tfdoctor.environments.candidates import make_environment
from tfdoctor.environments.fix_availability import find_fix_offer, make_fix_offer
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).parents[1] / "hosts"
COMPAT = Compat.load()


def find_suggestion(
    host: str, monkeypatch: pytest.MonkeyPatch, *, writable: bool, links: tuple[tuple[str, str], ...]
) -> str:
    """Return the command that is suggested on this recorded host, or "" if there is none."""
    system = RecordedSystem(HOSTS / host)
    report = diagnose(run_probes(system, COMPAT), COMPAT)
    monkeypatch.setattr(module, "detect_activation_kind", lambda _: "venv")
    monkeypatch.setattr(module, "list_inherited_variables", lambda *_: frozenset())
    monkeypatch.setattr(module, "find_outward_links", lambda *_: links)
    monkeypatch.setattr(module.os, "access", lambda *_: writable)
    suggestion = find_fix_offer(report, system)
    return suggestion.command if suggestion is not None else ""


def test_fix_is_suggested_if_it_can_help(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_suggestion("two-other-cudas", monkeypatch, writable=True, links=()) == "tfdoctor fix"


@pytest.mark.parametrize(
    ("host", "writable", "links"),
    [
        ("two-other-cudas", False, ()),
        ("two-other-cudas", True, (("/srv/tf/lib/python3.11/site-packages", "/srv/shared"),)),
        ("driver-below-cuda-12", True, ()),
        ("healthy-one-gpu", True, ()),
        ("environment-deleted", True, ()),
    ],
)
def test_fix_is_not_suggested_if_it_refuses(
    host: str, writable: bool, links: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not find_suggestion(host, monkeypatch, writable=writable, links=links)


def test_suggestion_names_its_findings() -> None:
    """It names the Python if `fix` would choose another one."""
    report = diagnose(run_probes(RecordedSystem(HOSTS / "two-other-cudas"), COMPAT), COMPAT)
    environment = make_environment(report, "venv")
    assert environment is not None
    suggestion = make_fix_offer(report, environment)
    assert suggestion is not None
    assert report.root_finding in suggestion.findings
    assert len({id(finding) for finding in suggestion.findings}) == len(suggestion.findings)
    python = value_of(report.facts.python)
    assert python is not None

    def offer(requested: str, **choice: Any) -> str:
        fact = Known(replace(python, requested=requested, executable="/a b/python"), "x")
        chosen = PythonChoice(path="/a b/python", how=requested, **choice) if choice else None
        changed = replace(report, facts=replace(report.facts, python=fact, choice=chosen))
        made = make_fix_offer(changed, environment)
        return made.command if made is not None else ""

    for default in ("$VIRTUAL_ENV", "python3 on PATH", "python on PATH"):
        assert offer(default) == "tfdoctor fix"
    assert offer("--python") == "tfdoctor fix --python '/a b/python'"
    assert offer("--python", kernel="/k/kernel.json") == "tfdoctor fix --python /k/kernel.json"
    assert offer("--python", kernel=None) == "tfdoctor fix --python '/a b/python'"
    unknown = replace(report, facts=replace(report.facts, python=Unknown("x", "no")))
    assert make_fix_offer(unknown, environment) is None
    assert make_fix_offer(replace(report, findings=()), environment) is None
