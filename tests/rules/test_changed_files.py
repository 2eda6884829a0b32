"""TFD212, changed-files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rules.make_facts import SITE, finding, healthy, make_lost, run, stop_process, with_loader
from rules.owners_facts import CU12, CU13, CUDNN, _cudnn, _shared, _with
from tfdoctor.facts import Distribution
from tfdoctor.facts.files import ChangedFile
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import changed_files


def _wheel(name: str = "nvidia-cublas-cu12", **more: Any) -> Distribution:
    return Distribution(name, "12.5.3.2", SITE, "pip", **more)


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
def test_a_file_of_another_size(change: ChangedFile, severity: Severity) -> None:
    one = finding(changed_files.RULE, _with(healthy(), _wheel(changed=(change,))))
    assert (one.cause, one.severity) == (Cause.DAMAGED_FILE, severity)
    assert "--force-reinstall --no-deps nvidia-cublas-cu12==12.5.3.2" in one.remedies[0].commands[0]


def test_of_a_file_that_two_own_only_one_can_have_the_size() -> None:
    change = ChangedFile(CUDNN, 100, 150, cut=False)
    facts = _with(healthy(), _cudnn("9.3.0.75", changed=(change,)), shared=(_shared(CUDNN, CU12, CU13),))
    assert run(changed_files.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE


def test_conda_patches_what_it_installs() -> None:
    change = ChangedFile("tensorflow/libtensorflow_framework.so.2", 100, 150, cut=False)
    other = replace(_wheel("tensorflow-base", changed=(change,)), installer="conda")
    assert run(changed_files.RULE, _with(healthy(), other)).kind is OutcomeKind.CLEAN


def test_what_our_images_go_without_is_not_lost() -> None:
    for owner, path, kind in (
        ("nvidia-cusolver-cu12", "nvidia/cusolver/lib/libcusolverMg.so.11", OutcomeKind.CLEAN),
        ("nvidia-cuda-nvrtc-cu12", "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.5", OutcomeKind.FOUND),
        ("tensorflow", "tensorflow/include/external/ml_dtypes/_ml_dtypes_ext.so", OutcomeKind.CLEAN),
        ("tensorflow", "tensorflow/python/_pywrap_own.so", OutcomeKind.FOUND),
    ):
        assert run(changed_files.RULE, _with(healthy(), _wheel(owner, lost=(path,)))).kind is kind, path


def test_what_the_loader_misses_or_stops_at_is_told_once() -> None:
    path = "nvidia/cufft/lib/libcufft.so.11"
    gone = with_loader(
        _with(healthy(), _wheel("nvidia-cufft-cu12", lost=(path,))), make_lost("libcufft.so.11")
    )
    assert run(changed_files.RULE, gone).kind is OutcomeKind.NOT_APPLICABLE
    change = ChangedFile(path, 100, 50, cut=True)
    stop = stop_process("libcufft.so.11", f"{SITE}/tensorflow/../{path}", "truncated", crash=True)
    cut = with_loader(_with(healthy(), _wheel("nvidia-cufft-cu12", changed=(change,))), stop)
    assert run(changed_files.RULE, cut).kind is OutcomeKind.NOT_APPLICABLE
