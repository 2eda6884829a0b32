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
from tfdoctor.facts import (
    CudaToolkit,
)
from tfdoctor.findings import OutcomeKind, Severity
from tfdoctor.rules import (
    libdevice_or_ptxas_missing,
)


def test_xla_finds_its_wheel_or_a_toolkit():
    rule = libdevice_or_ptxas_missing.RULE
    assert run(rule, healthy()).kind is OutcomeKind.CLEAN
    bare = with_python(healthy(), installed={"nvidia-cuda-nvcc-cu12": None})
    one = finding(rule, bare)
    assert one.severity is Severity.WARNING
    assert commands(one)[0] == "/env/bin/python -m pip install nvidia-cuda-nvcc-cu12==12.5.82"
    usual = replace(bare, toolkits=(CudaToolkit("/usr/local/cuda", "12.5", True, True),))
    assert run(rule, usual).kind is OutcomeKind.CLEAN
    other = replace(bare, toolkits=(CudaToolkit("/opt/cuda", "12.5", True, True),))
    assert "export XLA_FLAGS=--xla_gpu_cuda_data_dir=/opt/cuda" in commands(finding(rule, other))
    named = with_environment(other, XLA_FLAGS="--xla_gpu_cuda_data_dir=/opt/cuda")
    assert run(rule, named).kind is OutcomeKind.CLEAN


def test_xla_without_a_gpu_is_no_matter():
    outcome = run(libdevice_or_ptxas_missing.RULE, remove_libraries(healthy()))
    assert outcome.kind is OutcomeKind.NOT_APPLICABLE
