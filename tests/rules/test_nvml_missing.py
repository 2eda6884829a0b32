"""TFD109, nvml-missing."""

from __future__ import annotations

import pytest

from rules.make_facts import (
    commands,
    finding,
    healthy,
    make_missing,
    with_environment,
    with_loader,
    with_machine,
)
from rules.of_hosts import outcome_kind, summarize_finding
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import nvml_missing

CODE = nvml_missing.RULE.code


@pytest.mark.parametrize(
    ("host", "severity", "cause", "title", "typed"),
    [
        (
            "docker-without-utility",
            Severity.ERROR,
            Cause.NVML_MISSING,
            "libnvidia-ml.so.1 is missing; TensorFlow 2.21.0 registers no GPU without it",
            "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE",
        ),
        ("nvml-fails", Severity.ERROR, Cause.NVML_MISSING, "NVML is installed but fails (999)", "nvidia-smi"),
    ],
)
def test_finding_on_recorded_host(
    host: str, severity: Severity, cause: Cause, title: str, typed: str
) -> None:
    assert summarize_finding(host, CODE) == (severity, cause, title, typed)


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("healthy-tf221", OutcomeKind.CLEAN),
        ("nvml-missing-before-221", OutcomeKind.NOT_APPLICABLE),
        ("python-hangs", OutcomeKind.COULD_NOT_CHECK),
    ],
)
def test_outcome_without_finding(host: str, kind: OutcomeKind) -> None:
    assert outcome_kind(host, CODE) is kind


@pytest.mark.parametrize(
    ("capabilities", "typed"),
    [
        ("compute", "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE"),
        ("compute, utility", "nvidia-smi"),
        ("all", "nvidia-smi"),
    ],
)
def test_capabilities_that_include_nvml_are_not_the_cause(capabilities: str, typed: str) -> None:
    facts = with_loader(
        with_machine(healthy("2.21.0"), container="docker"), make_missing("libnvidia-ml.so.1")
    )
    result = finding(nvml_missing.RULE, with_environment(facts, NVIDIA_DRIVER_CAPABILITIES=capabilities))
    assert commands(result) == [typed]
