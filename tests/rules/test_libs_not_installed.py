"""TFD201, libs-not-installed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.libraries_facts import ABOUT_LIBRARIES
from rules.make_facts import (
    NOT_FOUND,
    context,
    finding,
    healthy,
    make_found,
    make_missing,
    make_rejected,
    remove_libraries,
    run,
    with_loader,
    with_tensorflow,
)
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import (
    Resolution,
    Unknown,
    value_of,
)
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.prediction.libraries import choose_libraries_cause
from tfdoctor.rules import (
    import_missing_cuda_lib,
    libdevice_or_ptxas_missing,
    libs_not_installed,
    shadowing_path,
)


def test_all_libraries_come_from_the_locked_set():
    (step,) = finding(libs_not_installed.RULE, remove_libraries(healthy("2.20.0"))).remedies[0].steps
    assert isinstance(step, Install)
    assert step.lock_id == "cu12.9-cudnn9.10"
    assert "nvidia-cudnn-cu12==9.10.2.21" in step.requirements


@pytest.mark.parametrize(
    "version", ["1.15.5", "2.1.4", "2.4.4", "2.5.3", "2.10.1", "2.13.1", "2.16.1", "2.21.0"]
)
@pytest.mark.parametrize("kind", ["lost", "short", "transitive", "elsewhere"])
def test_each_library_has_one_finding_with_the_predicted_cause(version, kind):
    facts = healthy(version, distribution="tensorflow-gpu" if version.startswith("1.") else "tensorflow")
    loader = value_of(facts.loader)
    assert loader is not None
    for resolution in loader.resolutions:
        name = resolution.soname
        if name.startswith(("libcuda.", "libnvidia-ml")):
            continue
        change = {
            "lost": make_missing(name),
            "short": make_rejected(name, f"/bad/{name}", "file too short"),
            "transitive": Resolution(name, f"/x/{name}", "cache", f"liby.so: {NOT_FOUND}", ("liby.so",)),
            "elsewhere": make_missing(name),
        }[kind]
        also = (make_found(f"/somewhere/{name}"),) if kind == "elsewhere" else ()
        changed = with_loader(facts, change, also_found=also)
        ctx = context(changed)
        outcomes = [module.RULE.run(ctx) for module in ABOUT_LIBRARIES]
        assert not [outcome for outcome in outcomes if outcome.kind is OutcomeKind.CRASHED]
        findings = [result for outcome in outcomes for result in outcome.findings]
        assert len(findings) == 1, (name, findings)
        assert findings[0].cause is ctx.prediction.cause
        assert findings[0].remedies
        assert ctx.build is not None
        assert choose_libraries_cause(changed, ctx.build) is findings[0].cause


def test_partial_facts_never_crash_a_rule():
    facts = replace(healthy(), python=Unknown("it hung"))
    for altered in (
        facts,
        with_tensorflow(facts, version=None, distribution=None, cuda_config={}, build_info={}),
    ):
        for module in (*ABOUT_LIBRARIES, import_missing_cuda_lib, libdevice_or_ptxas_missing, shadowing_path):
            for variant in (altered, with_loader(altered, make_missing("libcublas.so.12"))):
                assert run(module.RULE, variant).kind is not OutcomeKind.CRASHED
