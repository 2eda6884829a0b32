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


def test_memory_available_to_tensorflow_is_stated() -> None:
    report = make_report(load_facts("one-of-two-busy"))
    (finding,) = find_findings(report, "TFD603")
    assert (
        "about 3040 MiB" in finding.explanation
    )  # 24576 - 20000 - 1536: TensorFlow leaves 1536 MiB free on compute capability 8.x


def test_process_in_a_container_is_named_by_engine_and_id() -> None:
    (finding,) = find_findings(make_report(load_facts("held-by-a-container")), "TFD603")
    assert (
        "serve.py (pid 7001) of alice, in the container docker 4f1c4f1c4f1c, 24064 MiB" in finding.explanation
    )
    assert "cannot see" not in finding.explanation


def test_memory_of_unlisted_processes_is_reported() -> None:
    (finding,) = find_findings(make_report(load_facts("held-outside-this-container")), "TFD603")
    assert "24264 MiB are held by processes that this container cannot see" in finding.explanation


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
