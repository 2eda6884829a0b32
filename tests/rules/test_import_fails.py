"""TFD312, import-fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    commands,
    context,
    finding,
    healthy,
    with_python,
)
from tfdoctor.core.causes.steps import Install
from tfdoctor.rules import (
    import_fails,
)


@pytest.mark.parametrize("name", ["termcolor", "packaging"])
def test_missing_requirement_is_installed(name):
    facts = healthy("2.20.0")
    assert context(facts).prediction.import_ok is True
    python = facts.python.value
    tensorflow = replace(python.distributions[0], requires=(f"{name} (>=3.10)", "numpy>=1.26"))
    facts = with_python(facts, absent=(name,), distributions=(tensorflow, *python.distributions[1:]))
    assert context(facts).prediction.import_ok is False
    result = finding(import_fails.RULE, facts)
    assert result.title == f"TensorFlow 2.20.0 cannot be imported without {name}"
    assert result.remedies[0].steps == (Install((f"{name}>=3.10",)),)
    assert f"'{name}>=3.10'" in commands(result)[0]
    # No data say that other releases need it.
    older = with_python(healthy("2.3.4", python="3.8.10"), absent=(name,))
    assert context(older).prediction.import_ok is True
