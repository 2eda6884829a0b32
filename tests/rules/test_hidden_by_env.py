"""TFD601, hidden-by-env."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.hiding_facts import ACTIVATE, CUSTOM, HIDE, diagnose_root, with_hidden_gpus
from rules.make_facts import healthy
from tfdoctor.core.causes.steps import CommentOutLine, UnsetVariable
from tfdoctor.core.facts import EnvironmentFacts, Known, Origin, value_of
from tfdoctor.core.findings import Cause


def test_line_of_sitecustomize_is_named_and_commented_out() -> None:
    line = f"os.environ['{HIDE}'] = '-1'"
    report, result = diagnose_root(with_hidden_gpus(Origin(HIDE, "start", None, CUSTOM, 3, line)))
    assert (result.code, report.verdict.cause) == ("TFD601", Cause.HIDDEN_BY_ENV)
    assert result.title == f"{HIDE}=-1 is set by {CUSTOM}, line 3, and hides every GPU"
    assert (CUSTOM, 3) in [(evidence.source, evidence.line) for evidence in result.evidence]
    (remedy,) = result.remedies
    assert remedy.steps == (CommentOutLine(CUSTOM, 3, line),)
    assert "unset" not in " ".join(remedy.commands)
    assert remedy.commands[0].startswith("sed -i '3{")


def test_enabled_device_types_without_gpu() -> None:
    name = "TF_ENABLED_DEVICE_TYPES"
    origin = Origin(name, "activation", None, ACTIVATE, 7, f"export {name}=CPU")
    environment = EnvironmentFacts({name: "CPU"}, (), None, (origin,))
    report, result = diagnose_root(replace(healthy(), environment=environment))
    assert (result.code, report.verdict.cause) == ("TFD601", Cause.HIDDEN_BY_ENV)
    assert result.remedies[0].steps == (UnsetVariable(name),)
    assert f"{ACTIVATE}, line 7" in result.explanation


def test_line_with_other_effects_is_left_to_the_user() -> None:
    _, result = diagnose_root(
        with_hidden_gpus(Origin(HIDE, "start", None, CUSTOM, 3, f"os.environ['{HIDE}'] = choose()"))
    )
    assert not result.remedies[0].steps
    assert f"{CUSTOM}, line 3" in result.remedies[0].text


def test_file_outside_the_environment_is_never_edited() -> None:
    foreign = "/usr/lib/python3/dist-packages/sitecustomize.py"
    _, result = diagnose_root(
        with_hidden_gpus(Origin(HIDE, "start", None, foreign, 3, f"os.environ['{HIDE}'] = '-1'"))
    )
    (remedy,) = result.remedies
    assert (remedy.steps, remedy.commands) == ((), ())
    assert f"{foreign}, line 3" in remedy.text


def test_line_of_the_activation_script_is_commented_out() -> None:
    _, result = diagnose_root(
        with_hidden_gpus(Origin(HIDE, "activation", None, ACTIVATE, 82, f"export {HIDE}=-1"))
    )
    (remedy,) = result.remedies
    assert remedy.steps == (UnsetVariable(HIDE),)
    assert remedy.commands[:2] == (f"unset {HIDE}", f"sed -i '82{{/{HIDE}/s/^/: # /}}' {ACTIVATE}")


@pytest.mark.parametrize("by", ["shell", "machine"])
def test_variable_of_the_shell_is_unset(by: str) -> None:
    path, line = ("/etc/environment", 4) if by == "machine" else ("", None)
    _, result = diagnose_root(with_hidden_gpus(Origin(HIDE, by, None, path, line)))
    (remedy,) = result.remedies
    assert remedy.commands[0] == f"unset {HIDE}"
    assert not any(command.startswith("sed") for command in remedy.commands)
    assert ("/etc/environment, line 4" in remedy.text) is (by == "machine")


def test_scheduler_is_mentioned_and_nothing_changed() -> None:
    _, result = diagnose_root(with_hidden_gpus(Origin(HIDE, "shell"), value="", scheduler="slurm"))
    assert "slurm" in result.remedies[0].text
    assert not any(remedy.steps for remedy in result.remedies)


def test_device_that_is_named_twice() -> None:
    facts = with_hidden_gpus(Origin(HIDE, "shell", None), "0,0")
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    failed = replace(cuda, init=101, init_name="CUDA_ERROR_INVALID_DEVICE")  # driver 580 on an H200
    report, result = diagnose_root(
        replace(facts, driver=replace(facts.driver, cuda=Known(failed, "libcuda.so.1")))
    )
    assert (result.code, report.verdict.cause) == ("TFD601", Cause.HIDDEN_BY_ENV)
    assert "names a card twice" in result.explanation
    assert not [finding for finding in report.findings if finding.code == "TFD105"]
