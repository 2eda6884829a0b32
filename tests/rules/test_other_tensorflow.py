"""TFD703, other-tensorflow."""

from __future__ import annotations

from dataclasses import replace

from rules.hiding_facts import diagnose_root, with_two_tensorflows
from rules.make_facts import COMPAT, SITE, remove_libraries
from tfdoctor.core.facts import (
    Known,
    value_of,
)
from tfdoctor.core.facts.imports import ImportResult, RehearsalFacts, RehearsalReason, Shadow
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.rules import other_tensorflow


def test_import_errors_of_the_first_tensorflow_do_not_count() -> None:
    """The installed packages do not fit the older TensorFlow that Python imports."""
    facts = with_two_tensorflows(origin="start")
    error = "Descriptors cannot be created directly."
    failure = ImportResult(
        "google.protobuf.descriptor", error, "TypeError", file=f"{SITE}/google/protobuf/descriptor.py"
    )
    rehearsal = RehearsalFacts((), (failure,), replace(failure, name="google.protobuf"))
    report, result = diagnose_root(replace(facts, rehearsal=Known(rehearsal, "a child")))
    assert report.prediction.import_ok is False
    assert (result.code, report.verdict.cause) == (other_tensorflow.RULE.code, Cause.SHADOWED_MODULE)


def test_nothing_is_installed_for_the_shadowing_tensorflow() -> None:
    """The TensorFlow on PYTHONPATH lacks a library; the environment's own, used without PYTHONPATH, does not."""
    facts = remove_libraries(with_two_tensorflows())
    cpu = value_of(facts.tensorflow)
    assert cpu is not None
    assert cpu.behind is not None
    same = replace(cpu, build_info=cpu.behind.build_info, cuda_config=cpu.behind.cuda_config)
    report, result = diagnose_root(replace(facts, tensorflow=Known(same, "x")))
    assert result.code == other_tensorflow.RULE.code
    assert any(finding.cause is Cause.LIBS_NOT_INSTALLED for finding in report.findings)
    assert result.remedies[0].commands == ("unset PYTHONPATH", "tfdoctor check --python /env/bin/python")


def test_shadowing_file_and_tensorflow_are_removed_together() -> None:
    """The file shadows the module for both; what the unintended TensorFlow lacks is not installed."""
    facts = with_two_tensorflows(origin="activation")
    python = value_of(facts.python)
    assert python is not None
    shadow = Shadow("numpy", "/home/user/code/numpy.py", SITE)
    numpy_failure = ImportResult(
        "numpy", "module 'numpy' has no attribute 'integer'", "AttributeError", file=shadow.taken
    )
    protobuf_failure = ImportResult(
        "google.protobuf", "too old", "TypeError", frames=(f"{SITE}/google/protobuf/__init__.py",)
    )
    rehearsal = RehearsalFacts((RehearsalReason("numpy", "…"),), (numpy_failure, protobuf_failure))
    facts = replace(
        facts,
        python=Known(replace(python, shadows=(shadow,)), "x"),
        rehearsal=Known(rehearsal, "a child"),
    )
    _, result = diagnose_root(facts)
    commands = result.remedies[0].commands
    assert any("numpy.py" in command for command in commands)
    assert any("PYTHONPATH" in command for command in commands)
    assert not any("install" in command for command in commands)


def test_first_tensorflow_stays_if_the_second_is_no_better() -> None:
    facts = with_two_tensorflows()
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    same = replace(tensorflow, behind=replace(tensorflow, package_dir=f"{SITE}/tensorflow", behind=None))
    report = diagnose(replace(facts, tensorflow=Known(same, "x")), COMPAT)
    assert report.verdict.cause is Cause.CPU_ONLY_BUILD
