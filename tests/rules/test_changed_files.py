"""TFD212, changed-files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rules.make_facts import COMPAT, SITE, finding, healthy, make_missing, make_rejected, run, with_loader
from rules.owners_facts import CU12, CU13, CUDNN, _add_distributions, _make_cudnn, _make_shared
from tfdoctor.core.facts import Distribution, Known, value_of
from tfdoctor.core.facts.files import ChangedFile
from tfdoctor.core.facts.imports import FileDifference
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.prediction.stages import predict
from tfdoctor.rules import changed_files


def _wheel(name: str = "nvidia-cublas-cu12", **fields: Any) -> Distribution:
    return Distribution(name, "12.5.3.2", SITE, "pip", **fields)


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 50, cut=True), Severity.ERROR),
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 50, cut=False), Severity.INFO),
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 150, cut=False), Severity.WARNING),
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, -1, cut=False), Severity.ERROR),
        (ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 50, cut=False, foreign=True), Severity.ERROR),
    ],
)
def test_file_with_a_wrong_size(change: ChangedFile, severity: Severity) -> None:
    result = finding(changed_files.RULE, _add_distributions(healthy(), _wheel(changed=(change,))))
    assert (result.cause, result.severity) == (Cause.DAMAGED_FILE, severity)
    assert "--force-reinstall --no-deps nvidia-cublas-cu12==12.5.3.2" in result.remedies[0].commands[0]


def test_object_with_other_content_of_the_same_size_is_a_warning() -> None:
    change = FileDifference("tensorflow/libtensorflow_cc.so.2", "changed")
    facts = healthy()
    python = value_of(facts.python)
    assert python is not None
    wheel = Distribution(
        "tensorflow", "2.18.1", SITE, "pip", differs=(change, FileDifference("tensorflow/a.py", "changed"))
    )
    others = tuple(item for item in python.distributions if item.name != "tensorflow")
    changed = replace(facts, python=Known(replace(python, distributions=(*others, wheel)), "x"))
    result = finding(changed_files.RULE, changed)
    assert (result.severity, len(result.evidence)) == (Severity.WARNING, 1)
    assert "tensorflow==2.18.1" in result.remedies[0].commands[0]
    assert predict(changed, COMPAT).gpu_registered is True


def test_size_of_a_file_with_two_owners_is_not_compared() -> None:
    change = ChangedFile(CUDNN, 100, 150, cut=False)
    facts = _add_distributions(
        healthy(), _make_cudnn("9.3.0.75", changed=(change,)), shared=(_make_shared(CUDNN, CU12, CU13),)
    )
    assert run(changed_files.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE


def test_files_installed_by_conda_are_not_compared() -> None:
    change = ChangedFile("tensorflow/libtensorflow_framework.so.2", 100, 150, cut=False)
    wheel = replace(_wheel("tensorflow-base", changed=(change,)), installer="conda")
    assert run(changed_files.RULE, _add_distributions(healthy(), wheel)).kind is OutcomeKind.CLEAN


def test_files_that_our_images_omit_are_not_reported() -> None:
    for owner, path, kind in (
        ("nvidia-cusolver-cu12", "nvidia/cusolver/lib/libcusolverMg.so.11", OutcomeKind.CLEAN),
        ("nvidia-cuda-nvrtc-cu12", "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.5", OutcomeKind.FOUND),
        ("tensorflow", "tensorflow/include/external/ml_dtypes/_ml_dtypes_ext.so", OutcomeKind.CLEAN),
        ("tensorflow", "tensorflow/python/_pywrap_own.so", OutcomeKind.FOUND),
    ):
        assert (
            run(changed_files.RULE, _add_distributions(healthy(), _wheel(owner, lost=(path,)))).kind is kind
        ), path


def test_loader_errors_are_left_to_other_rules() -> None:
    path = "nvidia/cufft/lib/libcufft.so.11"
    missing = with_loader(
        _add_distributions(healthy(), _wheel("nvidia-cufft-cu12", lost=(path,))),
        make_missing("libcufft.so.11"),
    )
    assert run(changed_files.RULE, missing).kind is OutcomeKind.NOT_APPLICABLE
    change = ChangedFile(path, 100, 50, cut=True)
    stop = make_rejected("libcufft.so.11", f"{SITE}/tensorflow/../{path}", "truncated", crash=True)
    truncated = with_loader(
        _add_distributions(healthy(), _wheel("nvidia-cufft-cu12", changed=(change,))), stop
    )
    assert run(changed_files.RULE, truncated).kind is OutcomeKind.NOT_APPLICABLE
