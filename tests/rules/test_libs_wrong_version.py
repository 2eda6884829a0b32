"""TFD202, libs-wrong-version."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import (
    at,
    commands,
    context,
    finding,
    healthy,
    remove_libraries,
    run,
    stop_process,
    with_cards,
    with_loader,
)
from tfdoctor.facts import (
    CudaToolkit,
)
from tfdoctor.findings import Cause, OutcomeKind
from tfdoctor.rules import (
    cudnn_missing,
    libs_not_installed,
    libs_not_on_path,
    libs_wrong_version,
)

if TYPE_CHECKING:
    from tfdoctor.facts import Facts


def use_other_cuda(facts, *paths):
    return with_loader(
        remove_libraries(facts), also_found=tuple(at(path) for path in paths), found=tuple(map(at, paths))
    )


CUDA_11 = (
    "/usr/local/cuda-11.8/lib64/libcudart.so.11.0",
    "/usr/local/cuda-11.8/lib64/libcublas.so.11",
    "/usr/local/cuda-11.8/lib64/libcublasLt.so.11",
    "/usr/local/cuda-11.8/lib64/libcufft.so.10",
    "/usr/local/cuda-11.8/lib64/libcusolver.so.11",
    "/usr/local/cuda-11.8/lib64/libcusparse.so.11",
)


def test_another_cuda_leads_and_its_equal_names_do_not_mislead():
    facts = replace(
        use_other_cuda(healthy(), *CUDA_11),
        toolkits=(CudaToolkit("/usr/local/cuda-11.8", "11.8", True, True),),
    )
    one = finding(libs_wrong_version.RULE, facts)
    assert one.title == "TensorFlow 2.18.1 needs CUDA 12, but CUDA 11.8 (/usr/local/cuda-11.8) is installed"
    assert "does not help" in one.explanation
    assert "tensorflow[and-cuda]==2.18.1" in commands(one)[0]
    assert any("tensorflow==2.14.1" in command for command in commands(one))
    # libcusolver.so.11 of CUDA 11 has the name that CUDA 12's has
    assert run(libs_not_on_path.RULE, facts).kind is OutcomeKind.CLEAN
    assert run(libs_not_installed.RULE, facts).kind is OutcomeKind.CLEAN
    assert run(cudnn_missing.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    assert context(facts).prediction.cause is Cause.LIBS_WRONG_VERSION


def test_a_32_bit_library_is_told_as_such():
    path = "/usr/lib32/libcufft.so.11"
    facts = with_loader(healthy(), stop_process("libcufft.so.11", path, "wrong ELF class: ELFCLASS32"))
    one = finding(libs_wrong_version.RULE, facts)
    assert "another kind of processor" in one.title
    assert path in one.explanation


def test_a_few_of_another_version_among_many_missing_are_told_together():
    facts = use_other_cuda(healthy(), "/usr/local/cuda/lib64/libcudart.so.13")
    assert run(libs_wrong_version.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    one = finding(libs_not_installed.RULE, facts)
    assert "tensorflow[and-cuda]" in commands(one)[0]
    assert any("libcudart.so.13" in line.source for line in one.evidence)


TEN_ONE = (
    "libcudart.so.10.1",
    "libcublas.so.10",
    "libcufft.so.10",
    "libcurand.so.10",
    "libcusolver.so.10",
    "libcusparse.so.10",
    "libcudnn.so.7",
)


ELEVEN = (
    "libcudart.so.11.0",
    "libcublas.so.11",
    "libcublasLt.so.11",
    "libcufft.so.10",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusparse.so.11",
    "libcudnn.so.8",
)


THIRTEEN = CudaToolkit("/usr/local/cuda", "13.0", libdevice=True, ptxas=True)


OF_THIRTEEN = tuple(
    f"/usr/local/cuda/lib64/{name}.so.13" for name in ("libcudart", "libcublas", "libcublasLt")
)


def machine(facts: Facts, *paths: str, path: tuple[str, ...]) -> Facts:
    """These libraries and CUDA 13 in /usr/local/cuda, with `path` as LD_LIBRARY_PATH."""
    found = tuple(map(at, (*paths, *OF_THIRTEEN)))
    return replace(
        with_loader(remove_libraries(facts), also_found=found, found=found, library_path=path),
        toolkits=(THIRTEEN,),
    )


def list_below(folder: str, names: tuple[str, ...]) -> list[str]:
    return [f"{folder}/{name}" for name in names]


def test_the_libraries_on_the_path_are_named_and_not_the_toolkit_elsewhere() -> None:
    folder = "/opt/cuda-old/lib64"
    facts = machine(
        with_cards(healthy("2.0.4", python="3.7.16", distribution="tensorflow-gpu"), "7.0"),
        *list_below(folder, TEN_ONE),
        path=(f"{folder}/../lib64/",),
    )
    one = finding(libs_wrong_version.RULE, facts)
    assert f"CUDA 10.1 ({folder}, on LD_LIBRARY_PATH) is installed" in one.title
    assert "13.0" not in one.title
    assert "libcudart.so.10.1" in one.explanation
    assert f"in {folder}" in one.explanation
    assert any(" tensorflow-gpu==2.3.4" in command for command in commands(one))


@pytest.mark.parametrize(
    ("more", "folder", "label"),
    [
        (("libcudart.so.11.2.152",), "/srv/old/cuda112/lib64", "CUDA 11.2 ("),
        ((), "/opt/cuda-11.2/lib64", "CUDA 11.2 ("),
        ((), "/srv/old/libs", "CUDA 11 ("),
    ],
)
def test_no_tensorflow_is_offered_that_was_built_with_a_newer_minor(
    more: tuple[str, ...], folder: str, label: str
) -> None:
    facts = machine(healthy("2.4.4", python="3.8.18"), *list_below(folder, (*ELEVEN, *more)), path=(folder,))
    facts = with_loader(facts)
    one = finding(libs_wrong_version.RULE, facts)
    assert label in one.title
    offered = [remedy for remedy in one.remedies if "for the CUDA that is there" in remedy.text]
    assert [remedy.text.split("there: ")[1][:29] for remedy in offered] == ["2.11.1, built for CUDA 11.2, "]


def test_where_the_loader_looks_at_none_all_are_named() -> None:
    facts = machine(healthy("2.18.1"), *list_below("/usr/local/cuda-11.8/lib64", ELEVEN), path=())
    one = finding(libs_wrong_version.RULE, facts)
    assert "CUDA 11.8 (/usr/local/cuda-11.8)" in one.title
    assert "CUDA 13.0 (/usr/local/cuda)" in one.title
    assert "The loader looks" not in one.explanation
