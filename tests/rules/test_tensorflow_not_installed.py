"""TFD301, tensorflow-not-installed."""

from __future__ import annotations

import pytest

from rules.make_facts import (
    absent,
    commands,
    finding,
    healthy,
    run,
    with_cards,
    with_python,
)
from tfdoctor.findings import OutcomeKind, Severity
from tfdoctor.rules import (
    no_matching_wheel,
    tensorflow_not_installed,
)


def test_nothing_installed_names_the_best_release_and_what_it_needs_to_find_its_libraries():
    one = finding(tensorflow_not_installed.RULE, absent(healthy()))
    assert one.severity is Severity.ERROR
    said = commands(one)
    assert "/env/bin/python -m pip install 'tensorflow[and-cuda]==2.21.0'" in said
    site = "/env/lib/python3.11/site-packages/nvidia"  # 2.21.0 leaves cuSOLVER's folder out of its RUNPATH
    assert f"ln -sf ../../cusolver/lib/libcusolver.so.11 {site}/cusparse/lib/libcusolver.so.11" in said
    assert run(no_matching_wheel.RULE, absent(healthy())).kind is OutcomeKind.CLEAN


@pytest.mark.parametrize(("card", "version"), [("12.0", "2.21.0"), ("5.0", "2.16.2"), ("3.5", "2.14.1")])
def test_the_release_fits_the_card(card, version):
    assert any(
        f"=={version}" in c
        for c in commands(finding(tensorflow_not_installed.RULE, with_cards(absent(healthy()), card)))
    )


def test_a_managed_python_gets_an_environment():
    facts = with_python(absent(healthy()), virtual=False, externally_managed=True)
    said = commands(finding(tensorflow_not_installed.RULE, facts))
    assert "/env/bin/python -m venv tf-env" in said
    assert not any("--break-system-packages" in command for command in said)
