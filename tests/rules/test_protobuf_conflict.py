"""TFD307, protobuf-conflict."""

from __future__ import annotations

from rules.make_facts import (
    context,
    finding,
    healthy,
    with_environment,
    with_python,
)
from tfdoctor.core.findings import Severity
from tfdoctor.rules import (
    protobuf_conflict,
)


def test_pure_python_protobuf_is_a_warning():
    facts = with_python(healthy("2.10.1"), installed={"protobuf": "4.25.3"})
    facts = with_environment(facts, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    assert context(facts).prediction.import_ok
    assert finding(protobuf_conflict.RULE, facts).severity is Severity.WARNING
