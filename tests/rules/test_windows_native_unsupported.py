"""TFD305, windows-native-unsupported."""

from __future__ import annotations

from rules.make_facts import (
    commands,
    context,
    cpu_only,
    finding,
    healthy,
    run,
    with_machine,
)
from tfdoctor.core.findings import Cause, OutcomeKind
from tfdoctor.rules import (
    cpu_only_build,
    windows_native_unsupported,
)


def test_native_windows_is_reported():
    facts = with_machine(cpu_only("2.15.1"), system="Windows", machine="AMD64")
    result = finding(windows_native_unsupported.RULE, facts)
    assert context(facts).prediction.cause is Cause.WINDOWS_NATIVE_UNSUPPORTED
    assert any("tensorflow==2.10.1" in command for command in commands(result))
    assert run(cpu_only_build.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    assert run(windows_native_unsupported.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE
