"""TFD301, tensorflow-not-installed."""

from __future__ import annotations

import pytest

from rules.make_facts import (
    commands,
    finding,
    healthy,
    run,
    with_cards,
    with_python,
    without_tensorflow,
)
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import (
    no_matching_wheel,
    tensorflow_not_installed,
)


def test_best_release_is_installed_with_its_link():
    result = finding(tensorflow_not_installed.RULE, without_tensorflow(healthy()))
    assert result.severity is Severity.ERROR
    lines = commands(result)
    assert "/env/bin/python -m pip install 'tensorflow[and-cuda]==2.21.0'" in lines
    site = "/env/lib/python3.11/site-packages/nvidia"  # the RUNPATH of 2.21.0 lacks the folder of cuSOLVER
    assert f"ln -sf ../../cusolver/lib/libcusolver.so.11 {site}/cusparse/lib/libcusolver.so.11" in lines
    assert run(no_matching_wheel.RULE, without_tensorflow(healthy())).kind is OutcomeKind.CLEAN


@pytest.mark.parametrize(("card", "version"), [("12.0", "2.21.0"), ("5.0", "2.16.2"), ("3.5", "2.14.1")])
def test_release_fits_the_gpu(card, version):
    assert any(
        f"=={version}" in command
        for command in commands(
            finding(tensorflow_not_installed.RULE, with_cards(without_tensorflow(healthy()), card))
        )
    )


def test_externally_managed_python_gets_an_environment():
    facts = with_python(without_tensorflow(healthy()), virtual=False, externally_managed=True)
    lines = commands(finding(tensorflow_not_installed.RULE, facts))
    assert "/env/bin/python -m venv tf-env" in lines
    assert not any("--break-system-packages" in command for command in lines)
