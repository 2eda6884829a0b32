"""Reports and commands on a machine without a GPU and without TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import COMPAT, healthy, make_missing, with_loader, with_machine, with_python
from tfdoctor.core.facts import Absent, Known, Unknown, value_of
from tfdoctor.core.facts.python import OtherPython, PythonChoice, UnusableEnvironment
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.render.report import render_report

if TYPE_CHECKING:
    from tfdoctor.core.facts import Fact, Facts, TensorFlowFacts


NONE = Absent("its files", "no tensorflow package")


WORKS = "TensorFlow works here on the CPU"


PYTHON = PythonChoice("/env/bin/python", "/env")


in_a_container = pytest.mark.parametrize("container", [None, "docker"])


def make_bare_machine(
    tensorflow: Fact[TensorFlowFacts] = NONE, container: str | None = None, choice: PythonChoice = PYTHON
) -> Facts:
    """Return facts without a GPU and a driver, with this TensorFlow, or without one by default."""
    facts = healthy("2.21.0")
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    driver = replace(
        facts.driver,
        cuda=Known(replace(cuda, loaded=False, load_error="libcuda.so.1: cannot open"), "libcuda.so.1"),
        pci=Absent("/sys/bus/pci/devices", "no NVIDIA display controller on the PCI bus"),
        kernel_module=Absent(""),
        modules=Known((), ""),
        smi=Absent("nvidia-smi", "no nvidia-smi on PATH"),
        driver_files=(),
    )
    if not isinstance(tensorflow, Known):
        facts = replace(
            with_python(facts, installed={"tensorflow": None}), loader=Absent("", "no TensorFlow")
        )
    else:
        facts = with_loader(facts, make_missing("libcuda.so.1"))
    facts = replace(facts, driver=driver, tensorflow=tensorflow, choice=choice)
    return with_machine(facts, container=container)


def render_screen(facts: Facts) -> str:
    return " ".join(render_report(diagnose(facts, COMPAT)).split())


@in_a_container
def test_report_says_how_to_install_tensorflow(container: str | None) -> None:
    text = render_screen(make_bare_machine(container=container))
    assert "If the CPU is enough, install TensorFlow." in text
    assert "pip install tensorflow==" in text
    assert WORKS not in text
    assert "lspci" not in text


@in_a_container
def test_installed_tensorflow_works_on_the_cpu(container: str | None) -> None:
    report = diagnose(make_bare_machine(healthy("2.21.0").tensorflow, container), COMPAT)
    assert report.root_finding is not None
    assert [WORKS in remedy.text for remedy in report.root_finding.remedies].count(True) == 1
    assert not any(
        "pip install" in line for result in report.root_finding.remedies for line in result.commands
    )


@in_a_container
def test_unknown_tensorflow_is_not_said_to_work(container: str | None) -> None:
    report = diagnose(make_bare_machine(Unknown("its folder may not be read"), container), COMPAT)
    texts = [remedy.text for result in report.findings for remedy in result.remedies]
    assert not [text for text in texts if "CPU" in text]


def test_existing_tensorflow_comes_before_a_new_one() -> None:
    other_python = OtherPython("/srv/other/bin/python", "an environment beside it", "2.20.0")
    text = render_screen(make_bare_machine(choice=replace(PYTHON, others=(other_python,))))
    assert "tfdoctor check --python /srv/other/bin/python" in text
    assert "pip install" not in text


def test_nothing_is_installed_into_an_unintended_python() -> None:
    lost = UnusableEnvironment("VIRTUAL_ENV", "/srv/gone", "gone")
    report = diagnose(make_bare_machine(choice=replace(PYTHON, lost=(lost,))), COMPAT)
    assert not [
        command
        for result in report.findings
        for remedy in result.remedies
        for command in remedy.commands
        if "pip install" in command
    ]
