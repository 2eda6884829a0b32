"""TFD211, shared-files."""

from __future__ import annotations

from rules.make_facts import SITE, finding, healthy, run, with_python
from rules.owners_facts import CU12, CU13, CUDNN, _make_shared
from tfdoctor.core.causes.steps import Install, Uninstall
from tfdoctor.core.facts import Distribution, value_of
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import shared_files


def test_current_owner_of_shared_files_is_removed() -> None:
    facts = with_python(
        healthy(), shared=(_make_shared(CUDNN, CU12, CU13, now=CU13),), installed=dict((CU12, CU13))
    )
    result = finding(shared_files.RULE, facts)
    assert result.severity is Severity.WARNING
    assert "came with nvidia-cudnn-cu13 9.13.0.50" in result.explanation
    assert result.remedies[0].steps == (
        Uninstall(("nvidia-cudnn-cu13",)),
        Install(("nvidia-cudnn-cu12==9.3.0.75",), force_reinstall=True, install_dependencies=False),
    )


def test_package_required_by_another_one_is_not_removed() -> None:
    torch = Distribution("torch", "2.9.0", SITE, "pip", pins=("nvidia-cudnn-cu13==9.13.0.50",))
    facts = with_python(healthy(), shared=(_make_shared(CUDNN, CU12, CU13, now=CU13),))
    python = value_of(facts.python)
    assert python is not None
    facts = with_python(facts, distributions=(*python.distributions, torch))
    result = finding(shared_files.RULE, facts)
    assert not any(remedy.steps for remedy in result.remedies)
    assert "torch 2.9.0" in result.remedies[0].text


def test_two_tensorflow_packages_are_left_to_another_rule() -> None:
    owners = (("tensorflow", "2.10.1"), ("tensorflow-gpu", "2.10.1"))
    facts = with_python(healthy(), shared=(_make_shared("tensorflow/libtensorflow_framework.so.2", *owners),))
    assert run(shared_files.RULE, facts).kind is OutcomeKind.CLEAN
