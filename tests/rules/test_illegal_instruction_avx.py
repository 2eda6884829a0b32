"""TFD310, illegal-instruction-avx."""

from __future__ import annotations

from rules.make_facts import (
    context,
    finding,
    healthy,
    run,
    with_cards,
    with_machine,
    with_python,
    with_tensorflow,
)
from tfdoctor.core.findings import Cause, OutcomeKind
from tfdoctor.rules import (
    illegal_instruction_avx,
)


def test_processor_without_avx_is_reported():
    no_avx = with_machine(healthy(), cpu_flags=frozenset({"sse4_2", "hypervisor"}))
    result = finding(illegal_instruction_avx.RULE, no_avx)
    assert "virtual machine" in result.remedies[0].text
    assert context(no_avx).prediction.cause is Cause.ILLEGAL_INSTRUCTION_AVX
    unknown = with_machine(healthy(), cpu_flags=frozenset())
    assert run(illegal_instruction_avx.RULE, unknown).kind is OutcomeKind.COULD_NOT_CHECK
    assert context(unknown).prediction.import_ok
    old = with_cards(with_python(no_avx, version="3.6.9"), "6.1")
    lines = [
        line for remedy in finding(illegal_instruction_avx.RULE, old).remedies for line in remedy.commands
    ]
    assert any("tensorflow-gpu==1.5." in line for line in lines), lines
    conda = with_tensorflow(no_avx, conda_build="cuda112py39")
    assert run(illegal_instruction_avx.RULE, conda).kind is OutcomeKind.NOT_APPLICABLE
