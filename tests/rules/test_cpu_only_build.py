"""TFD303, cpu-only-build."""

from __future__ import annotations

from dataclasses import replace

from prediction.rehearsals import with_rehearsal
from recorded import HOSTS, load_report
from rules.make_facts import (
    commands,
    cpu_only,
    finding,
    with_cards,
    with_python,
)
from tfdoctor.core.facts.imports import ImportResult
from tfdoctor.rules import (
    cpu_only_build,
    no_driver,
)


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


def test_machine_without_a_gpu_is_told_that_the_cpu_works():
    """Do not offer gigabytes of GPU packages where there is no GPU that could use them."""
    driver = load_report(HOSTS / "no-card-no-driver").facts.driver
    result = finding(cpu_only_build.RULE, replace(cpu_only("2.20.0", "tensorflow-cpu"), driver=driver))
    first, *others = result.remedies
    assert (first.text, first.commands) == (
        "Nothing, if the CPU is enough: TensorFlow works here on the CPU.",
        (),
    )
    assert all(remedy.text.startswith("Once there is a GPU: ") for remedy in others)
    assert not any(remedy.steps for remedy in result.remedies)
    assert "no NVIDIA GPU" in result.title


def test_cpu_is_not_recommended_where_the_import_fails():
    report = load_report(HOSTS / "no-card-no-driver")
    missing = ImportResult(
        "absl", "No module named 'absl'", "ModuleNotFoundError", import_error=True, not_found="absl"
    )
    for rule, facts in (
        (cpu_only_build.RULE, replace(cpu_only("2.20.0", "tensorflow-cpu"), driver=report.facts.driver)),
        (no_driver.RULE, report.facts),
    ):
        assert "works here on the CPU" in str(finding(rule, facts).remedies)
        remedies = finding(rule, with_rehearsal(facts, missing)).remedies
        assert "works here on the CPU" not in str(remedies)
        # `check` would join commands of the first remedy with those that repair the import.
        assert remedies[0].commands == ()
