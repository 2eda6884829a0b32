"""TFD601, hidden-by-env."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.hiding_facts import ACTIVATE, HIDE, diagnose_root, with_hidden_gpus
from rules.make_facts import healthy
from tfdoctor.core.causes.steps import UnsetVariable
from tfdoctor.core.facts import EnvironmentFacts, Known, Origin, value_of
from tfdoctor.core.findings import Cause


def test_enabled_device_types_without_gpu() -> None:
    name = "TF_ENABLED_DEVICE_TYPES"
    origin = Origin(name, "activation", None, ACTIVATE, 7, f"export {name}=CPU")
    environment = EnvironmentFacts({name: "CPU"}, (), None, (origin,))
    report, result = diagnose_root(replace(healthy(), environment=environment))
    assert (result.code, report.verdict.cause) == ("TFD601", Cause.HIDDEN_BY_ENV)
    assert result.remedies[0].steps == (UnsetVariable(name),)
    assert f"{ACTIVATE}, line 7" in result.explanation


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


@pytest.mark.parametrize(
    ("scheduler", "commands"), [("slurm", "srun"), ("kubernetes", "unset"), (None, "unset")]
)
def test_variable_of_a_scheduler_is_not_unset(scheduler: str | None, commands: str) -> None:
    """Kubernetes does not set the variable."""
    environment = EnvironmentFacts({HIDE: "-1"}, (), scheduler, ())
    _, result = diagnose_root(replace(with_hidden_gpus(Origin(HIDE, "shell", None)), environment=environment))
    assert [
        command.split()[0]
        for remedy in result.remedies
        for command in remedy.commands
        if "check" not in command
    ] == [commands]
    assert ("which sets the variable" in result.remedies[0].text) == (scheduler == "slurm")
