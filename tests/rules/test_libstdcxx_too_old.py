"""TFD309, libstdcxx-too-old."""

from __future__ import annotations

from rules.make_facts import (
    SITE,
    commands,
    context,
    finding,
    healthy,
    make_failed_import,
    with_loader,
    with_python,
)
from tfdoctor.core.causes.steps import RemoveEntries
from tfdoctor.core.findings import Cause
from tfdoctor.rules import (
    libstdcxx_too_old,
)


def test_old_libstdcxx_on_the_library_path():
    error = f"/old/lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by {SITE}/x)"
    facts = with_loader(healthy(), import_needs=(make_failed_import(error),), library_path=("/old/lib", "/b"))
    result = finding(libstdcxx_too_old.RULE, facts)
    assert commands(result)[0] == "export LD_LIBRARY_PATH=/b"
    assert result.remedies[0].steps == (
        RemoveEntries("LD_LIBRARY_PATH", ("/old/lib",)),
    )  # the step that `fix` applies
    assert context(facts).prediction.cause is Cause.LIBSTDCXX_TOO_OLD


def test_old_libstdcxx_of_conda():
    error = f"/opt/conda/lib/libstdc++.so.6: version `CXXABI_1.3.13' not found (required by {SITE}/x)"
    facts = with_loader(healthy(), import_needs=(make_failed_import(error),))
    facts = with_python(facts, conda_prefix="/opt/conda")
    assert "-c conda-forge libstdcxx-ng" in commands(finding(libstdcxx_too_old.RULE, facts))[0]
