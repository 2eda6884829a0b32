"""The rules about Python and TensorFlow's package (TFD301 to TFD313)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    healthy,
    run,
    with_python,
    with_tensorflow,
)
from tfdoctor.core.facts import Unknown
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.rules import (
    both_packages,
    cpu_only_build,
    damaged_installation,
    glibc_too_old,
    illegal_instruction_avx,
    import_fails,
    known_problem,
    libstdcxx_too_old,
    no_matching_wheel,
    numpy_abi,
    protobuf_conflict,
    tensorflow_not_installed,
    windows_native_unsupported,
)

ABOUT_PYTHON = (
    tensorflow_not_installed,
    no_matching_wheel,
    cpu_only_build,
    both_packages,
    windows_native_unsupported,
    numpy_abi,
    protobuf_conflict,
    glibc_too_old,
    libstdcxx_too_old,
    illegal_instruction_avx,
    damaged_installation,
    import_fails,
    known_problem,
)


@pytest.mark.parametrize("module", ABOUT_PYTHON)
def test_check_of_a_python_that_hangs_could_not_run(module):
    facts = replace(
        healthy(), python=Unknown("it hung"), tensorflow=Unknown("it hung"), loader=Unknown("it hung")
    )
    outcome = run(module.RULE, facts)
    assert outcome.kind in {OutcomeKind.COULD_NOT_CHECK, OutcomeKind.NOT_APPLICABLE}


@pytest.mark.parametrize("module", ABOUT_PYTHON)
def test_partial_facts_never_crash_a_rule(module):
    facts = with_tensorflow(healthy(), version=None, distribution=None, build_info={}, cuda_config={})
    for altered in (facts, replace(facts, python=Unknown("no")), with_python(facts, distributions=())):
        assert run(module.RULE, altered).kind is not OutcomeKind.CRASHED
