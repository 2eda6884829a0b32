"""TFD308, glibc-too-old."""

from __future__ import annotations

from rules.make_facts import (
    SITE,
    commands,
    context,
    finding,
    healthy,
    make_failed_import,
    run,
    with_loader,
    with_python,
)
from tfdoctor.core.findings import Cause, OutcomeKind
from tfdoctor.rules import (
    glibc_too_old,
    import_fails,
)


def test_old_glibc_is_reported():
    error = f"/lib/libc.so.6: version `GLIBC_2.27' not found (required by {SITE}/x)"
    facts = with_python(
        with_loader(healthy("2.21.0"), import_needs=(make_failed_import(error),)), glibc="2.24"
    )
    result = finding(glibc_too_old.RULE, facts)
    assert result.title == "TensorFlow needs glibc 2.27, and this system has 2.24"
    # The cuDNN wheels for 2.20 need glibc 2.27.
    assert any("tensorflow[and-cuda]==2.19.1" in command for command in commands(result))
    assert context(facts).prediction.cause is Cause.GLIBC_TOO_OLD
    assert run(import_fails.RULE, facts).kind is OutcomeKind.CLEAN
