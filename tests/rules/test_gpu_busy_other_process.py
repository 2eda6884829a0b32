"""TFD603, gpu-busy-other-process."""

from __future__ import annotations

from dataclasses import replace

from rules.kernel_facts import find_findings, load_facts, make_report
from tfdoctor.core.facts import Known, SmiFacts


def test_processes_are_named_by_user_program_and_memory() -> None:
    (finding,) = find_findings(make_report(load_facts("earlier-notebook")), "TFD603")
    for text in (
        "(pid 4242) of yours, 14000 MiB",
        "train.py (pid 5151) of alice",
        "no longer there",
        "Xorg",
    ):
        assert text in finding.explanation
    assert "secret" not in finding.explanation
    assert any("kill 4242" in remedy.commands for remedy in finding.remedies)
    assert not any("5151" in command for remedy in finding.remedies for command in remedy.commands)


def test_unknown_memory_amounts_are_not_guessed() -> None:
    facts = load_facts("held-by-a-container")
    assert isinstance(facts.driver.smi, Known)
    assert isinstance(facts.driver.smi.value, SmiFacts)
    smi = facts.driver.smi.value
    (gpu,) = smi.gpus
    processes = tuple(replace(process, used_mib=None) for process in gpu.processes)
    changed = replace(smi, gpus=(replace(gpu, processes=processes),))
    facts = replace(facts, driver=replace(facts.driver, smi=replace(facts.driver.smi, value=changed)))
    (finding,) = find_findings(make_report(facts), "TFD603")
    assert "nvidia-smi does not say how much each holds" in finding.explanation
    assert "cannot see" not in finding.explanation
