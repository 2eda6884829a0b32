"""`check` offers `fix` where fix has something to do, and nowhere that fix refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdoctor.compat import Compat
from tfdoctor.environment import fix_availability as module
from tfdoctor.environment.candidates import environment_of
from tfdoctor.environment.fix_availability import make_offer, offer
from tfdoctor.examine.collect import survey
from tfdoctor.report.diagnose import diagnose
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).parents[1] / "hosts"
COMPAT = Compat.load()


def make_sample(
    host: str, monkeypatch: pytest.MonkeyPatch, *, writable: bool, links: tuple[tuple[str, str], ...]
) -> str:
    """The command that is offered on this machine, were it here; empty where none is."""
    system = RecordedSystem(HOSTS / host)
    report = diagnose(survey(system, COMPAT), COMPAT)
    monkeypatch.setattr(module, "kind_of", lambda _: "venv")
    monkeypatch.setattr(module, "list_inherited", lambda *_: frozenset())
    monkeypatch.setattr(module, "find_outward_links", lambda *_: links)
    monkeypatch.setattr(module.os, "access", lambda *_: writable)
    found = offer(report, system)
    return found.command if found is not None else ""


def test_what_fix_can_do_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_sample("two-other-cudas", monkeypatch, writable=True, links=()) == "tfdoctor fix"


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
def test_what_fix_refuses_is_not(
    host: str, writable: bool, links: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not make_sample(host, monkeypatch, writable=writable, links=links)


def test_an_offer_says_what_it_is_for() -> None:
    report = diagnose(survey(RecordedSystem(HOSTS / "two-other-cudas"), COMPAT), COMPAT)
    environment = environment_of(report, "venv")
    assert environment is not None
    found = make_offer(report, environment)
    assert found is not None
    assert report.root in found.findings
