"""TFD601, hidden-by-env."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.hiding_facts import ACTIVATE, CUSTOM, HIDE, first, hidden
from rules.make_facts import healthy
from tfdoctor.causes.steps import TakeOut, Unset
from tfdoctor.facts import (
    EnvironmentFacts,
    Origin,
)
from tfdoctor.findings import Cause


def test_a_line_of_sitecustomize_is_named_and_taken_out() -> None:
    line = f"os.environ['{HIDE}'] = '-1'"
    report, one = first(hidden(Origin(HIDE, "start", None, CUSTOM, 3, line)))
    assert (one.code, report.verdict.cause) == ("TFD601", Cause.HIDDEN_BY_ENV)
    assert one.title == f"{HIDE}=-1 is set by {CUSTOM}, line 3, and hides every GPU"
    assert (CUSTOM, 3) in [(e.source, e.line) for e in one.evidence]
    (remedy,) = one.remedies
    assert remedy.steps == (TakeOut(CUSTOM, 3, line),)
    assert "unset" not in " ".join(remedy.commands)
    assert remedy.commands[0].startswith("sed -i '3{")


def test_the_types_that_tensorflow_itself_leaves_out() -> None:
    name = "TF_ENABLED_DEVICE_TYPES"
    origin = Origin(name, "activation", None, ACTIVATE, 7, f"export {name}=CPU")
    seen = EnvironmentFacts({name: "CPU"}, (), None, (origin,))
    report, one = first(replace(healthy(), environment=seen))
    assert (one.code, report.verdict.cause) == ("TFD601", Cause.HIDDEN_BY_ENV)
    assert one.remedies[0].steps == (Unset(name),)
    assert f"{ACTIVATE}, line 7" in one.explanation


def test_a_line_that_does_more_is_left_to_a_person() -> None:
    _, one = first(hidden(Origin(HIDE, "start", None, CUSTOM, 3, f"os.environ['{HIDE}'] = choose()")))
    assert not one.remedies[0].steps
    assert f"{CUSTOM}, line 3" in one.remedies[0].text


def test_a_file_of_somebody_else_is_never_edited() -> None:
    foreign = "/usr/lib/python3/dist-packages/sitecustomize.py"
    _, one = first(hidden(Origin(HIDE, "start", None, foreign, 3, f"os.environ['{HIDE}'] = '-1'")))
    (remedy,) = one.remedies
    assert (remedy.steps, remedy.commands) == ((), ())
    assert f"{foreign}, line 3" in remedy.text


def test_the_environments_own_activation() -> None:
    _, one = first(hidden(Origin(HIDE, "activation", None, ACTIVATE, 82, f"export {HIDE}=-1")))
    (remedy,) = one.remedies
    assert remedy.steps == (Unset(HIDE),)
    assert remedy.commands[:2] == (f"unset {HIDE}", f"sed -i '82{{/{HIDE}/s/^/: # /}}' {ACTIVATE}")


@pytest.mark.parametrize("by", ["shell", "machine"])
def test_the_shell(by: str) -> None:
    path, line = ("/etc/environment", 4) if by == "machine" else ("", None)
    _, one = first(hidden(Origin(HIDE, by, None, path, line)))
    (remedy,) = one.remedies
    assert remedy.commands[0] == f"unset {HIDE}"
    assert not any(command.startswith("sed") for command in remedy.commands)
    assert ("/etc/environment, line 4" in remedy.text) is (by == "machine")


def test_a_scheduler_is_asked_first() -> None:
    _, one = first(hidden(Origin(HIDE, "shell"), value="", scheduler="slurm"))
    assert "slurm" in one.remedies[0].text
    assert not any(remedy.steps for remedy in one.remedies)
