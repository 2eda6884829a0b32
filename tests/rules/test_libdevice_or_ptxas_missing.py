"""TFD208, libdevice-or-ptxas-missing."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    commands,
    finding,
    healthy,
    remove_libraries,
    run,
    with_environment,
    with_python,
)
from tfdoctor.core.facts import (
    CudaToolkit,
)
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import (
    libdevice_or_ptxas_missing,
)


def test_xla_uses_its_wheel_or_a_toolkit():
    rule = libdevice_or_ptxas_missing.RULE
    assert run(rule, healthy()).kind is OutcomeKind.CLEAN
    without_wheel = with_python(healthy(), installed={"nvidia-cuda-nvcc-cu12": None})
    result = finding(rule, without_wheel)
    assert result.severity is Severity.WARNING
    assert commands(result)[0] == "/env/bin/python -m pip install nvidia-cuda-nvcc-cu12==12.5.82"
    default_toolkit = replace(without_wheel, toolkits=(CudaToolkit("/usr/local/cuda", "12.5", True, True),))
    assert run(rule, default_toolkit).kind is OutcomeKind.CLEAN
    other_toolkit = replace(without_wheel, toolkits=(CudaToolkit("/opt/cuda", "12.5", True, True),))
    assert "export XLA_FLAGS=--xla_gpu_cuda_data_dir=/opt/cuda" in commands(finding(rule, other_toolkit))
    with_flag = with_environment(other_toolkit, XLA_FLAGS="--xla_gpu_cuda_data_dir=/opt/cuda")
    assert run(rule, with_flag).kind is OutcomeKind.CLEAN


def test_check_without_a_gpu_is_skipped():
    outcome = run(libdevice_or_ptxas_missing.RULE, remove_libraries(healthy()))
    assert outcome.kind is OutcomeKind.NOT_APPLICABLE
