"""TFD202, libs-wrong-version."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import (
    COMPAT,
    commands,
    finding,
    healthy,
    make_found,
    remove_libraries,
    run,
    with_cards,
    with_loader,
)
from tfdoctor.core.facts import (
    CudaToolkit,
)
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.rules import (
    libs_not_installed,
    libs_wrong_version,
)

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts


def with_cuda_libraries(facts, *paths):
    return with_loader(
        remove_libraries(facts),
        also_found=tuple(make_found(path) for path in paths),
        found=tuple(map(make_found, paths)),
    )


def test_few_other_versions_are_reported_as_missing_libraries():
    facts = with_cuda_libraries(healthy(), "/usr/local/cuda/lib64/libcudart.so.13")
    assert run(libs_wrong_version.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    result = finding(libs_not_installed.RULE, facts)
    assert "tensorflow[and-cuda]" in commands(result)[0]
    assert any("libcudart.so.13" in line.source for line in result.evidence)


CUDA_10_1_LIBRARIES = (
    "libcudart.so.10.1",
    "libcublas.so.10",
    "libcufft.so.10",
    "libcurand.so.10",
    "libcusolver.so.10",
    "libcusparse.so.10",
    "libcudnn.so.7",
)


CUDA_11_LIBRARIES = (
    "libcudart.so.11.0",
    "libcublas.so.11",
    "libcublasLt.so.11",
    "libcufft.so.10",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusparse.so.11",
    "libcudnn.so.8",
)


CUDA_13_TOOLKIT = CudaToolkit("/usr/local/cuda", "13.0", libdevice=True, ptxas=True)


CUDA_13_PATHS = tuple(
    f"/usr/local/cuda/lib64/{name}.so.13" for name in ("libcudart", "libcublas", "libcublasLt")
)


def with_libraries(facts: Facts, *paths: str, path: tuple[str, ...]) -> Facts:
    """Return the facts with these libraries and CUDA 13 in /usr/local/cuda; `path` is LD_LIBRARY_PATH."""
    files = tuple(map(make_found, (*paths, *CUDA_13_PATHS)))
    return replace(
        with_loader(remove_libraries(facts), also_found=files, found=files, library_path=path),
        toolkits=(CUDA_13_TOOLKIT,),
    )


def join_paths(folder: str, names: tuple[str, ...]) -> list[str]:
    return [f"{folder}/{name}" for name in names]


def test_libraries_on_the_path_are_named_before_toolkits() -> None:
    folder = "/opt/cuda-old/lib64"
    facts = with_libraries(
        with_cards(healthy("2.0.4", python="3.7.16", distribution="tensorflow-gpu"), "7.0"),
        *join_paths(folder, CUDA_10_1_LIBRARIES),
        path=(f"{folder}/../lib64/",),
    )
    result = finding(libs_wrong_version.RULE, facts)
    assert f"CUDA 10.1 ({folder}, on LD_LIBRARY_PATH) is installed" in result.title
    assert "13.0" not in result.title
    assert "libcudart.so.10.1" in result.explanation
    assert f"in {folder}" in result.explanation
    assert any(" tensorflow-gpu==2.3.4" in command for command in commands(result))


@pytest.mark.parametrize(
    ("more", "folder", "label"),
    [
        (("libcudart.so.11.2.152",), "/srv/old/cuda112/lib64", "CUDA 11.2 ("),
        ((), "/opt/cuda-11.2/lib64", "CUDA 11.2 ("),
        ((), "/srv/old/libs", "CUDA 11 ("),
    ],
)
def test_release_built_with_a_newer_cuda_is_not_offered(
    more: tuple[str, ...], folder: str, label: str
) -> None:
    facts = with_libraries(
        healthy("2.4.4", python="3.8.18"), *join_paths(folder, (*CUDA_11_LIBRARIES, *more)), path=(folder,)
    )
    facts = with_loader(facts)
    result = finding(libs_wrong_version.RULE, facts)
    assert label in result.title
    offered = [remedy for remedy in result.remedies if "for the CUDA that is there" in remedy.text]
    assert [remedy.text.split("there: ")[1][:29] for remedy in offered] == ["2.11.1, built for CUDA 11.2, "]


def test_all_toolkits_are_named_if_none_is_on_the_path() -> None:
    facts = with_libraries(
        healthy("2.18.1"), *join_paths("/usr/local/cuda-11.8/lib64", CUDA_11_LIBRARIES), path=()
    )
    result = finding(libs_wrong_version.RULE, facts)
    assert "CUDA 11.8 (/usr/local/cuda-11.8)" in result.title
    assert "CUDA 13.0 (/usr/local/cuda)" in result.title
    assert "The loader looks" not in result.explanation


@pytest.mark.parametrize(
    ("release", "installed", "libraries", "stems", "expected"),
    [
        ("2.14.1", "11.8", ("libcudart.so.11.0",), {"libcudart"}, True),
        ("2.14.1", "11.8", ("libcudart.so.11.0",), {"libcufftw"}, False),  # the release requires none of them
        ("2.14.1", "11.8", ("libcudart.so.11.0",), {"libcudart", "libcublas"}, False),
        ("2.14.1", "11.9", ("libcudart.so.11.0",), {"libcudart"}, True),
        ("2.14.1", "11.7", ("libcudart.so.11.0",), {"libcudart"}, False),
        ("2.14.1", "12.0", ("libcudart.so.11.0",), {"libcudart"}, False),
        ("2.14.1", "11", ("libcudart.so.11.0",), {"libcudart"}, True),
        ("2.14.1", None, ("libcudart.so.11.0",), {"libcudart"}, True),
        ("1.15.5", "10.0", ("libcudart.so.10.0",), {"libcudart"}, True),
        ("1.15.5", "10.1", ("libcudart.so.10.0",), {"libcudart"}, False),
    ],
)
def test_release_that_can_use_another_cuda(release, installed, libraries, stems, expected):
    other = libs_wrong_version.OtherCuda("/opt/cuda/lib64", installed, "", libraries, ())
    found = COMPAT.find_release(release)
    assert libs_wrong_version._can_use(found, other, stems) is expected
