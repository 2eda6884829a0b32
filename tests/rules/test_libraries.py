"""The rules about CUDA libraries and the loader (TFD201 to TFD210)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.libraries_facts import ABOUT_LIBRARIES
from rules.make_facts import (
    healthy,
    run,
)
from tfdoctor.core.facts import (
    Absent,
    Unknown,
)
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.rules import (
    import_missing_cuda_lib,
    shadowing_path,
)


@pytest.mark.parametrize("module", [*ABOUT_LIBRARIES, import_missing_cuda_lib, shadowing_path])
def test_check_without_tensorflow_is_skipped(module):
    facts = replace(healthy(), tensorflow=Absent("python", "no tensorflow package"))
    assert run(module.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE


@pytest.mark.parametrize("module", [*ABOUT_LIBRARIES, import_missing_cuda_lib, shadowing_path])
def test_check_of_an_unknown_loader_could_not_run(module):
    facts = replace(healthy(), loader=Unknown("only glibc's loader is modelled", "python"))
    assert run(module.RULE, facts).kind is OutcomeKind.COULD_NOT_CHECK


@pytest.mark.parametrize("module", ABOUT_LIBRARIES)
def test_linked_tensorflow_is_left_to_the_import_rule(module):
    assert (
        run(module.RULE, healthy("1.13.1", distribution="tensorflow-gpu")).kind is OutcomeKind.NOT_APPLICABLE
    )
