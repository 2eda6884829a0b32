"""TFD302, no-matching-wheel."""

from __future__ import annotations

import pytest

from rules.make_facts import (
    commands,
    finding,
    healthy,
    run,
    with_python,
    without_tensorflow,
)
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
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
def test_reason_for_no_matching_wheel(changes, words):
    facts = with_python(without_tensorflow(healthy()), **changes)
    result = finding(no_matching_wheel.RULE, facts)
    assert words in result.explanation
    assert result.cause is Cause.NO_MATCHING_WHEEL
    assert finding(tensorflow_not_installed.RULE, facts).severity is Severity.WARNING


def test_python_of_the_best_release_is_named():
    result = finding(no_matching_wheel.RULE, with_python(without_tensorflow(healthy()), version="3.14.0"))
    assert commands(result)[0] == "uv venv --python 3.13 tf-env"
    assert "'tensorflow[and-cuda]==2.21.0'" in commands(result)[1]


def test_check_with_installed_tensorflow_is_skipped():
    assert run(no_matching_wheel.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE
