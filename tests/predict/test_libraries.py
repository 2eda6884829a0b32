"""Why a library cannot be had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import COMPAT, SITE, at, healthy, make_lost, with_loader
from tfdoctor.facts import CLOSED, Tried
from tfdoctor.findings import Cause
from tfdoctor.predict import predict


@pytest.mark.parametrize(
    ("soname", "missing", "folder"),
    [
        ("libcusparse.so.12", "libnvJitLink.so.12", "nvjitlink"),
        ("libcudart.so.12", "libcudart.so.12", "cuda_runtime"),
        ("libcudnn.so.9", "libcudnn_graph.so.9", "cudnn"),
    ],
)
def test_a_library_in_a_closed_folder_is_not_permitted(soname: str, missing: str, folder: str) -> None:
    """Its own folder among NVIDIA's wheels, whatever the case of its name; also where another library needs it."""
    path = f"{SITE}/nvidia/{folder}/lib/{missing}"
    failed = replace(make_lost(soname), really_missing=(missing,), tried=(Tried(path, CLOSED, "RUNPATH"),))
    facts = with_loader(healthy(), failed)
    assert predict(facts, COMPAT).cause == Cause.NOT_PERMITTED


def test_a_file_of_another_class_is_not_somewhere_else() -> None:
    """The loader came to it by a RUNPATH with ".." in it, the look around without: it is one file."""
    path = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    via = f"{SITE}/tensorflow/python/../../nvidia/cudnn/lib/libcudnn.so.9"
    failed = replace(
        make_lost("libcudnn.so.9"), tried=(Tried(via, "wrong ELF class: ELFCLASS32", "RUNPATH"),)
    )
    facts = with_loader(healthy(), failed, also_found=(at(path),))
    assert predict(facts, COMPAT).cause == Cause.DAMAGED_FILE


def test_a_truncated_file_that_only_a_neighbour_reaches() -> None:
    """The cache was made anew without it (as a container's is when it starts), and libcublas' RUNPATH leads there."""
    path = f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12"
    neighbour = replace(
        make_lost("libcublas.so.12"),
        path=f"{SITE}/nvidia/cublas/lib/libcublas.so.12",
        really_missing=("libcublasLt.so.12",),
        tried=(Tried(path, "truncated", "RUNPATH"),),
        crash=True,
    )
    facts = with_loader(healthy(), neighbour, make_lost("libcublasLt.so.12"), also_found=(at(path),))
    answer = predict(facts, COMPAT)
    assert answer.cause == Cause.DAMAGED_FILE
