"""TFD207, import-missing-cuda-lib."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    commands,
    context,
    finding,
    healthy,
    make_found,
    make_missing,
    run,
    with_loader,
)
from tfdoctor.core.findings import Cause, OutcomeKind
from tfdoctor.rules import (
    import_missing_cuda_lib,
)


def test_import_that_needs_a_missing_cuda_library():
    facts = healthy("1.13.1", distribution="tensorflow-gpu", python="3.7.5")
    failed = replace(make_missing("libcublas.so.10.0"), needed_by="x")
    facts = with_loader(facts, make_missing("libcublas.so.10.0"), import_needs=(failed,))
    result = finding(import_missing_cuda_lib.RULE, facts)
    assert result.title == "import tensorflow fails: libcublas.so.10.0 cannot be opened"
    assert any("cudatoolkit=10.0 cudnn=7.6" in command for command in commands(result))
    assert context(facts).prediction.cause is Cause.IMPORT_MISSING_CUDA_LIB
    assert run(import_missing_cuda_lib.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE


def test_folder_of_the_cuda_library_is_added_to_the_path():
    facts = healthy("1.13.1", distribution="tensorflow-gpu", python="3.7.5")
    facts = with_loader(
        facts,
        make_missing("libcublas.so.10.0"),
        import_needs=(make_missing("libcublas.so.10.0"),),
        also_found=(make_found("/usr/local/cuda-10.0/lib64/libcublas.so.10.0"),),
    )
    assert any(
        "/usr/local/cuda-10.0/lib64" in command
        for command in commands(finding(import_missing_cuda_lib.RULE, facts))
    )
