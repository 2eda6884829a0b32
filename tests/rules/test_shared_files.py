"""TFD211, shared-files."""

from __future__ import annotations

from rules.make_facts import healthy, run, with_python
from rules.owners_facts import _make_shared
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.rules import shared_files


def test_two_tensorflow_packages_are_left_to_another_rule() -> None:
    owners = (("tensorflow", "2.10.1"), ("tensorflow-gpu", "2.10.1"))
    facts = with_python(healthy(), shared=(_make_shared("tensorflow/libtensorflow_framework.so.2", *owners),))
    assert run(shared_files.RULE, facts).kind is OutcomeKind.CLEAN
