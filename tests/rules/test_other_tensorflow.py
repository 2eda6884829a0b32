"""TFD703, other-tensorflow."""

from __future__ import annotations

from dataclasses import replace

from rules.hiding_facts import ACTIVATE, first, two
from rules.make_facts import COMPAT, SITE, remove_libraries
from tfdoctor.causes.steps import Drop
from tfdoctor.facts import (
    Known,
    value_of,
)
from tfdoctor.facts.imports import Oddity, RehearsalFacts, Rehearsed, Shadow
from tfdoctor.findings import Cause
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import other_tensorflow


def test_a_tensorflow_from_pythonpath_hides_the_environments_own() -> None:
    report, one = first(two("/team:/mine", origin="activation"))
    assert (one.code, report.verdict.cause) == (other_tensorflow.RULE.code, Cause.SHADOWED_MODULE)
    assert report.prediction.gpu_registered is False
    assert "TFD303" not in [finding.code for finding in report.findings]
    (remedy,) = one.remedies
    assert remedy.commands[0] == "export PYTHONPATH=/mine"
    assert remedy.steps == (Drop("PYTHONPATH", ("/team",)),)
    assert f"{ACTIVATE}, line 9" in one.explanation
    commands = [c for finding in report.findings for r in finding.remedies for c in r.commands]
    assert not any("install" in command for command in commands)


def test_what_the_first_one_cannot_import_is_no_fault_of_the_one_behind() -> None:
    """The packages beside it are tried for the TensorFlow that Python takes: an older one, which they do not fit."""
    facts = two(origin="start")
    error = "Descriptors cannot be created directly."
    broken = Rehearsed(
        "google.protobuf.descriptor", error, "TypeError", file=f"{SITE}/google/protobuf/descriptor.py"
    )
    tried = RehearsalFacts((), (broken,), replace(broken, name="google.protobuf"))
    report, one = first(replace(facts, rehearsal=Known(tried, "a child")))
    assert report.prediction.import_ok is False
    assert (one.code, report.verdict.cause) == (other_tensorflow.RULE.code, Cause.SHADOWED_MODULE)


def test_nothing_is_added_to_a_tensorflow_that_will_not_be_taken() -> None:
    """The one of PYTHONPATH lacks a library; the environment's own, which is taken without it, does not."""
    facts = remove_libraries(two())
    cpu = value_of(facts.tensorflow)
    assert cpu is not None
    assert cpu.behind is not None
    same = replace(cpu, build_info=cpu.behind.build_info, cuda_config=cpu.behind.cuda_config)
    report, one = first(replace(facts, tensorflow=Known(same, "x")))
    assert one.code == other_tensorflow.RULE.code
    assert any(f.cause is Cause.LIBS_NOT_INSTALLED for f in report.findings)
    assert one.remedies[0].commands == ("unset PYTHONPATH", "tfdoctor check --python /env/bin/python")


def test_a_file_that_hides_a_module_and_another_tensorflow_go_at_once_and_its_packages_stay() -> None:
    """What the TensorFlow that nobody meant lacks is not installed; the file hides the module from the other, too."""
    facts = two(origin="activation")
    python = value_of(facts.python)
    assert python is not None
    shadow = Shadow("numpy", "/home/user/code/numpy.py", SITE)
    error = Rehearsed(
        "numpy", "module 'numpy' has no attribute 'integer'", "AttributeError", file=shadow.taken
    )
    other = Rehearsed(
        "google.protobuf", "too old", "TypeError", frames=(f"{SITE}/google/protobuf/__init__.py",)
    )
    tried = RehearsalFacts((Oddity("numpy", "…"),), (error, other))
    facts = replace(
        facts,
        python=Known(replace(python, shadows=(shadow,)), "x"),
        rehearsal=Known(tried, "a child"),
    )
    _, one = first(facts)
    commands = one.remedies[0].commands
    assert any("numpy.py" in command for command in commands)
    assert any("PYTHONPATH" in command for command in commands)
    assert not any("install" in command for command in commands)


def test_the_first_one_stays_where_the_one_behind_is_no_better() -> None:
    facts = two()
    first_one = value_of(facts.tensorflow)
    assert first_one is not None
    same = replace(first_one, behind=replace(first_one, package_dir=f"{SITE}/tensorflow", behind=None))
    report = diagnose(replace(facts, tensorflow=Known(same, "x")), COMPAT)
    assert report.verdict.cause is Cause.CPU_ONLY_BUILD
