"""The book of remedies for an examined machine: by the place that its facts show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from recorded import HOSTS, load_facts, load_report
from tfdoctor.compat import Compat
from tfdoctor.core.causes.steps import Remedy
from tfdoctor.core.facts import Known, value_of
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.logs.log_context import LogContext
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.remedies.machine import list_place_evidence
from tfdoctor.remedies.place import Place, fit_remedy

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts

COMPAT = Compat.load()
WITHOUT_GPU = HOSTS / "container-without-gpu"
WITHOUT_DRIVER = HOSTS / "card-without-driver"


def change_facts(facts: Facts, **changes: Any) -> Facts:
    """Return the facts with another container, scheduler, variables or folder of the Python."""
    machine, environment, python = facts.machine, facts.environment, value_of(facts.python)
    assert python is not None
    if "container" in changes:
        machine = replace(machine, container=changes["container"])
    environment = replace(
        environment,
        variables=environment.variables | changes.get("variables", {}),
        scheduler=changes.get("scheduler", environment.scheduler),
    )
    python = replace(
        python,
        real_executable=changes.get("executable", python.real_executable),
        conda_prefix=changes.get("conda", python.conda_prefix),
    )
    return replace(facts, machine=machine, environment=environment, python=Known(python, "python"))


@pytest.mark.parametrize(
    ("folder", "changes", "line", "words", "absent"),
    [
        (WITHOUT_GPU, {"container": "kubernetes"}, "KUBERNETES_PORT=tcp://10.96.0.1:443", "nvidia.com/gpu: 1", "docker"),
        (WITHOUT_GPU, {"container": "apptainer"}, "Apptainer> python3 train.py", "--nv", "docker"),
        (WITHOUT_GPU, {"variables": {"COLAB_RELEASE_TAG": "x"}}, "/content/train.py", "Change runtime type", "docker"),
        (WITHOUT_GPU, {"variables": {"KAGGLE_KERNEL_RUN_TYPE": "x"}}, "/kaggle/working/x", "Accelerator", "docker"),
        (WITHOUT_GPU, {"variables": {"SM_NUM_GPUS": "0"}}, "SM_NUM_GPUS=0", "instance type", "docker"),
        (WITHOUT_DRIVER, {"executable": "/nix/store/0123456789ab-p/bin/python3"}, "/nix/store/0123456789ab-x", "nixGL", "apt"),
        (WITHOUT_DRIVER, {"scheduler": "slurm"}, "slurmstepd: error: x", "srun --gres", "nixGL"),
    ],
)  # fmt: skip
def test_machine_and_log_get_the_remedy_of_their_place(
    folder: Any, changes: dict[str, Any], line: str, words: str, absent: str
) -> None:
    facts = change_facts(load_facts(folder), **changes)
    root = diagnose(facts, COMPAT).root_finding
    assert root is not None
    screen = [text for remedy in root.remedies for text in (remedy.text, *remedy.commands)]
    assert words in " ".join((screen[0], screen[1] if len(screen) > 1 else ""))
    assert absent not in " ".join(screen)
    log = scan([line.encode()], load_signatures())
    places = LogContext(log, COMPAT).places
    assert places - {Place.CONTAINER} == list_place_evidence(facts).keys() - {Place.CONTAINER}


def test_other_machines_keep_the_remedies_of_the_rules() -> None:
    for folder in (HOSTS / "libcuda-where-nobody-looks", HOSTS / "uvm-not-loaded"):
        report = load_report(folder)
        assert report.root_finding is not None
        assert not list_place_evidence(report.facts)
        assert report.root_finding.remedies[0].commands


def test_a_remedy_without_a_command_for_the_place_is_left_out() -> None:
    assert fit_remedy(Remedy("Load it.", ("sudo modprobe nvidia",)), {Place.WINDOWS}) is None
    assert fit_remedy(Remedy("Load it.", ("sudo modprobe nvidia",)), {Place.WINDOWS, Place.WSL}) is not None
    assert fit_remedy(Remedy("Only a text."), {Place.WINDOWS}) == Remedy("Only a text.")
    translated = fit_remedy(
        Remedy("x", ("export A='b c'", "unset A", "python3.9 -m pip list")), {Place.WINDOWS}
    )
    assert translated == Remedy("x", ("$env:A = 'b c'", "Remove-Item Env:A", "py -3.9 -m pip list"))
    on_host = fit_remedy(Remedy("Load it.", ("sudo modprobe nvidia",)), {Place.CONTAINER})
    assert on_host is not None
    assert on_host.text == "On the host: load it."
