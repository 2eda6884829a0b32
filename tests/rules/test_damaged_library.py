"""TFD209: the loader stops at a damaged library."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    SITE,
    commands,
    context,
    finding,
    healthy,
    make_rejected,
    with_environment,
    with_loader,
    with_python,
)
from tfdoctor.core.causes.steps import MakeLink, RemoveEntries
from tfdoctor.core.facts import (
    Distribution,
    FoundElsewhere,
    Known,
    LoadAttempt,
    RemovedEntriesResult,
    Resolution,
    value_of,
)
from tfdoctor.core.facts.files import ChangedFile
from tfdoctor.core.findings import Cause
from tfdoctor.rules import (
    damaged_library,
)


def test_single_library_for_another_machine_is_damaged() -> None:
    names = ("libcublas.so.12", "libcufft.so.11")
    resolutions = [Resolution(name, f"/opt/cuda/lib64/{name}", "LD_LIBRARY_PATH", "") for name in names]
    wrong = make_rejected("libcublas.so.12", "/opt/cuda/lib64/libcublas.so.12", "wrong machine (183)")
    only_wrong = with_loader(healthy(), wrong)
    assert context(only_wrong).prediction.cause is Cause.LIBS_WRONG_VERSION
    mixed = with_loader(healthy(), wrong, resolutions[1])
    assert context(mixed).prediction.cause is Cause.DAMAGED_FILE


@pytest.mark.parametrize(
    ("version", "soname", "imported"),
    [
        ("2.20.0", "libcudart.so.12", False),
        ("2.20.0", "libcufft.so.11", True),
        ("2.4.4", "libcudart.so.11.0", False),
    ],
)
def test_only_libcudart_is_loaded_during_the_import(version, soname, imported):
    """A truncated libcudart kills Python during the import; other libraries do so when devices are listed."""
    facts = with_loader(
        healthy(version), make_rejected(soname, f"/old/{soname}", "file too short", crash=True)
    )
    prediction = context(facts).prediction
    assert (prediction.import_ok, prediction.gpu_registered) == (imported, False)
    assert prediction.cause is finding(damaged_library.RULE, facts).cause


def test_wheel_behind_a_damaged_link_is_reinstalled():
    """Moving the link away does not help: it would be created again, because the library is installed."""
    name = "nvidia/cufft/lib/libcufft.so.11"
    wheel = Distribution(
        "nvidia-cufft-cu12", "11.2.3.61", SITE, "pip", changed=(ChangedFile(name, 9, 5, cut=True),)
    )
    facts = with_python(healthy(), distributions=(wheel,))
    link = f"{SITE}/tensorflow/libcufft.so.11"
    result = finding(
        damaged_library.RULE, with_loader(facts, make_rejected("libcufft.so.11", link, "invalid ELF header"))
    )
    assert "--force-reinstall --no-deps nvidia-cufft-cu12==11.2.3.61" in commands(result)[0]


def test_bad_file_on_the_path_is_dropped_and_the_wheel_linked() -> None:
    bad_path, good_path = "/conda/lib/libcufft.so.11", f"{SITE}/nvidia/cufft/lib/libcufft.so.11"
    via = "LD_LIBRARY_PATH"
    failed = replace(
        make_rejected("libcufft.so.11", bad_path, "is no ELF object"),
        tried=(LoadAttempt(bad_path, "is no ELF object", via),),
    )
    facts = with_loader(with_environment(healthy(), LD_LIBRARY_PATH="/conda/lib"), failed)
    loader = value_of(facts.loader)
    assert loader is not None
    intact = FoundElsewhere("libcufft", "libcufft.so.11", good_path, None)
    without_variable = RemovedEntriesResult(via, ("/conda/lib",), loader.resolutions, (), ())
    for without, kinds in (((), [RemoveEntries]), ((without_variable,), [RemoveEntries, MakeLink])):
        changed = replace(loader, library_path=("/conda/lib",), found=(intact,), without=without)
        result = finding(damaged_library.RULE, replace(facts, loader=Known(changed, "")))
        assert [type(step) for step in result.remedies[0].steps] == kinds
