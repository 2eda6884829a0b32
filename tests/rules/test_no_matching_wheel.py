"""TFD302, no-matching-wheel."""

from __future__ import annotations

import pytest

from rules.make_facts import (
    absent,
    commands,
    finding,
    healthy,
    run,
    with_python,
)
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import (
    no_matching_wheel,
    tensorflow_not_installed,
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "3.14.0"}, "newer than TensorFlow's wheels"),
        ({"bits": 32}, "64-bit"),
        ({"glibc": None}, "musl"),
        ({"implementation": "PyPy"}, "CPython"),
        ({"machine": "aarch64"}, "x86-64 only"),
        ({"platform": "macosx-14-arm64"}, "macOS"),
        ({"version": "3.12.1", "glibc": "2.12"}, "glibc 2.17"),
        ({"version": "3.2.6"}, "No TensorFlow release"),
    ],
)
def test_no_wheel(changes, words):
    facts = with_python(absent(healthy()), **changes)
    one = finding(no_matching_wheel.RULE, facts)
    assert words in one.explanation
    assert one.cause is Cause.NO_MATCHING_WHEEL
    assert finding(tensorflow_not_installed.RULE, facts).severity is Severity.WARNING


def test_the_python_of_the_best_release_is_named():
    one = finding(no_matching_wheel.RULE, with_python(absent(healthy()), version="3.14.0"))
    assert commands(one)[0] == "uv venv --python 3.13 tf-env"
    assert "'tensorflow[and-cuda]==2.21.0'" in commands(one)[1]


def test_an_installed_tensorflow_has_a_wheel():
    assert run(no_matching_wheel.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE
