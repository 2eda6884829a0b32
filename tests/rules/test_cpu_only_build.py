"""TFD303, cpu-only-build."""

from __future__ import annotations

import pytest

from rules.make_facts import (
    commands,
    context,
    cpu_only,
    finding,
    with_cards,
    with_machine,
    with_python,
)
from tfdoctor.core.findings import Cause
from tfdoctor.rules import (
    cpu_only_build,
)


@pytest.mark.parametrize(
    ("version", "distribution", "words", "command"),
    [
        ("1.15.5", "tensorflow", "1.15.2 to 1.15.5 have none", "tensorflow-gpu==1.15.5"),
        ("2.0.4", "tensorflow", "`tensorflow-gpu`", "tensorflow-gpu==2.0.4"),
        ("1.14.0", "tensorflow", "Before 1.15", "tensorflow-gpu==1.14.0"),
        ("2.18.1", "tensorflow-cpu", "without GPU code", "'tensorflow[and-cuda]==2.18.1'"),
    ],
)
def test_command_for_each_cpu_only_build(version, distribution, words, command):
    python = "3.7.5" if version < "2.1" else "3.11.7"
    facts = with_cards(with_python(cpu_only(version, distribution), version=python), "7.0")
    result = finding(cpu_only_build.RULE, facts)
    assert words in result.explanation
    assert any(command in c for c in commands(result))
    assert commands(result)[0].endswith(f"pip uninstall -y {distribution}")
    assert context(facts).prediction.cause is Cause.CPU_ONLY_BUILD


def test_release_that_supports_the_gpu_is_recommended():
    facts = with_python(
        cpu_only("1.15.5"), version="3.7.5"
    )  # the GPU is an H100, which CUDA 10 does not support
    lines = commands(finding(cpu_only_build.RULE, facts))
    assert any("'tensorflow==2.11.0'" in line or "tensorflow==2.11.0" in line for line in lines)
    assert not any("1.15" in line for line in lines)
    managed = with_python(facts, virtual=False, externally_managed=True)
    assert not any("uninstall" in line for line in commands(finding(cpu_only_build.RULE, managed)))
    old = with_cards(facts, "12.0", "3.5")
    assert commands(finding(cpu_only_build.RULE, old)) == ["tfdoctor recommend"]


def test_conda_cpu_build():
    facts = with_python(cpu_only("2.10.0", conda_build="eigen_py310h1"), conda_prefix="/opt/conda")
    result = finding(cpu_only_build.RULE, facts)
    assert "eigen_py310h1" in result.explanation
    assert "conda install --prefix /opt/conda -c conda-forge 'tensorflow=*=cuda*'" in commands(result)[0]


def test_no_commands_for_arm():
    result = finding(cpu_only_build.RULE, with_machine(cpu_only("2.18.1"), machine="aarch64"))
    assert commands(result) == []
