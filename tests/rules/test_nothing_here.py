"""What a machine without a card and without TensorFlow is told: nothing false, and what is typed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import COMPAT, healthy, make_lost, with_loader, with_machine, with_python
from tfdoctor.facts import Absent, Known, Unknown, value_of
from tfdoctor.facts.python import Choice, LostEnvironment, OtherPython
from tfdoctor.render.report import render_report
from tfdoctor.report.diagnose import diagnose

if TYPE_CHECKING:
    from tfdoctor.facts import Fact, Facts, TensorFlowFacts


NONE = Absent("its files", "no tensorflow package")


WORKS = "TensorFlow works here on the CPU"


PYTHON = Choice("/env/bin/python", "/env")


in_a_container = pytest.mark.parametrize("container", [None, "docker"])


def bare(
    tensorflow: Fact[TensorFlowFacts] = NONE, container: str | None = None, choice: Choice = PYTHON
) -> Facts:
    """No card, no driver; no TensorFlow but what is given."""
    facts = healthy("2.21.0")
    answer = value_of(facts.driver.cuda)
    assert answer is not None
    driver = replace(
        facts.driver,
        cuda=Known(replace(answer, loaded=False, load_error="libcuda.so.1: cannot open"), "libcuda.so.1"),
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
        facts = with_loader(facts, make_lost("libcuda.so.1"))
    facts = replace(facts, driver=driver, tensorflow=tensorflow, choice=choice)
    return with_machine(facts, container=container)


def screen(facts: Facts) -> str:
    return " ".join(render_report(diagnose(facts, COMPAT)).split())


@in_a_container
def test_the_screen_says_how_to_install_it(container: str | None) -> None:
    said = screen(bare(container=container))
    assert "If the CPU is enough, install TensorFlow." in said
    assert "pip install tensorflow==" in said
    assert WORKS not in said
    assert "lspci" not in said


@in_a_container
def test_where_it_is_installed_it_works_on_the_cpu(container: str | None) -> None:
    report = diagnose(bare(healthy("2.21.0").tensorflow, container), COMPAT)
    assert report.root is not None
    assert [WORKS in remedy.text for remedy in report.root.remedies].count(True) == 1
    assert not any("pip install" in line for one in report.root.remedies for line in one.commands)


@in_a_container
def test_where_it_is_not_known_nothing_is_said_of_the_cpu(container: str | None) -> None:
    report = diagnose(bare(Unknown("its folder may not be read"), container), COMPAT)
    texts = [remedy.text for one in report.findings for remedy in one.remedies]
    assert not [text for text in texts if "CPU" in text]


def test_a_tensorflow_at_hand_comes_before_a_new_one() -> None:
    there = OtherPython("/srv/other/bin/python", "an environment beside it", "2.20.0")
    said = screen(bare(choice=replace(PYTHON, others=(there,))))
    assert "tfdoctor check --python /srv/other/bin/python" in said
    assert "pip install" not in said


def test_nothing_is_installed_into_a_python_that_nobody_meant() -> None:
    lost = LostEnvironment("VIRTUAL_ENV", "/srv/gone", "gone")
    report = diagnose(bare(choice=replace(PYTHON, lost=(lost,))), COMPAT)
    assert not [c for f in report.findings for r in f.remedies for c in r.commands if "pip install" in c]
