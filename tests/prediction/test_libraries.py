"""Reasons why the loader cannot resolve a library."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import COMPAT, SITE, healthy, make_found, make_missing, with_loader
from tfdoctor.core.facts import FOLDER_DENIED, LoadAttempt
from tfdoctor.core.findings import Cause
from tfdoctor.prediction import predict


@pytest.mark.parametrize(
    ("soname", "missing", "folder"),
    [
        ("libcusparse.so.12", "libnvJitLink.so.12", "nvjitlink"),
        ("libcudart.so.12", "libcudart.so.12", "cuda_runtime"),
        ("libcudnn.so.9", "libcudnn_graph.so.9", "cudnn"),
    ],
)
def test_library_in_an_unreadable_folder_is_not_permitted(soname: str, missing: str, folder: str) -> None:
    """The folder is found whatever the case of the library's name, and also for a dependency of another library."""
    path = f"{SITE}/nvidia/{folder}/lib/{missing}"
    failed = replace(
        make_missing(soname), really_missing=(missing,), tried=(LoadAttempt(path, FOLDER_DENIED, "RUNPATH"),)
    )
    facts = with_loader(healthy(), failed)
    assert predict(facts, COMPAT).cause == Cause.NOT_PERMITTED


def test_wrong_elf_class_is_a_damaged_file() -> None:
    """The loader reaches the file by a RUNPATH with "..", and the probe finds it without; it is one file."""
    path = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    runpath = f"{SITE}/tensorflow/python/../../nvidia/cudnn/lib/libcudnn.so.9"
    failed = replace(
        make_missing("libcudnn.so.9"), tried=(LoadAttempt(runpath, "wrong ELF class: ELFCLASS32", "RUNPATH"),)
    )
    facts = with_loader(healthy(), failed, also_found=(make_found(path),))
    assert predict(facts, COMPAT).cause == Cause.DAMAGED_FILE


def test_truncated_dependency_is_a_damaged_file() -> None:
    """The loader cache was rebuilt without the file (as in a starting container); the RUNPATH of libcublas has it."""
    path = f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12"
    dependent = replace(
        make_missing("libcublas.so.12"),
        path=f"{SITE}/nvidia/cublas/lib/libcublas.so.12",
        really_missing=("libcublasLt.so.12",),
        tried=(LoadAttempt(path, "truncated", "RUNPATH"),),
        crash=True,
    )
    facts = with_loader(
        healthy(), dependent, make_missing("libcublasLt.so.12"), also_found=(make_found(path),)
    )
    answer = predict(facts, COMPAT)
    assert answer.cause == Cause.DAMAGED_FILE
