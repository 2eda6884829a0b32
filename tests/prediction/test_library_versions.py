"""The wheel or package that a library comes from, and its version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rules.make_facts import (
    SITE,
    healthy,
    make_found,
    make_missing,
    make_resolution,
    with_loader,
    with_python,
)
from tfdoctor.core.facts import CondaPackage, Distribution, PythonFacts, Unknown, value_of
from tfdoctor.core.facts.files import ChangedFile, SharedFile
from tfdoctor.prediction import library_versions as owners
from tfdoctor.prediction.library_versions import LibraryVersion

FILE = "nvidia/cudnn/lib/libcudnn.so.9"
PATH = f"{SITE}/{FILE}"


def make_wheel(name: str = "nvidia-cudnn-cu12", version: str = "9.3.0", **fields: Any) -> Distribution:
    return Distribution(name, version, fields.pop("location", SITE), **fields)


def make_python(*distributions: Distribution, **fields: Any) -> PythonFacts:
    python = value_of(with_python(healthy(), distributions=distributions, **fields).python)
    assert python is not None
    return python


def test_path_below_a_folder_is_relative() -> None:
    wheel = make_wheel(location="/link/site/", real_location="/real/site")
    paths = owners.iter_relative_paths(wheel, "/link/site/a/../b", "/real/site/c")
    assert list(paths) == ["b", "c"]
    assert list(owners.iter_relative_paths(wheel, "/link/site2/b")) == []
    assert list(owners.iter_relative_paths(make_wheel(location=""), "/b")) == []


@pytest.mark.parametrize(
    ("wheels", "expected"),
    [
        ((make_wheel(files=(FILE,)), make_wheel("nvidia-other", files=(FILE,))), ["nvidia-cudnn-cu12", "nvidia-other"]),
        ((make_wheel(files=("nvidia/cudnn/lib/x.so",)),), []),
        ((make_wheel("cudnn", files=(FILE,)),), []),
        ((make_wheel(), make_wheel("nvidia-cudnn"), make_wheel("nvidia-cudnn-cu12x")), ["nvidia-cudnn-cu12", "nvidia-cudnn"]),
        ((make_wheel(), make_wheel("nvidia-x", files=(FILE,))), ["nvidia-x"]),
        ((make_wheel("nvidia-cublas-cu12"),), []),
        ((make_wheel(location="/other"),), []),
    ],
)  # fmt: skip
def test_owners_by_record_or_else_by_folder(wheels: tuple[Distribution, ...], expected: list[str]) -> None:
    assert [owner.name for owner in owners.list_nvidia_owners(make_python(*wheels), PATH)] == expected


def test_folder_with_an_underscore_belongs_to_a_name_with_a_hyphen() -> None:
    python = make_python(make_wheel("nvidia-cuda-runtime-cu12"))
    assert owners.list_nvidia_owners(python, f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12")
    assert not owners.list_nvidia_owners(python, f"{SITE}/nvidia/libcudart.so.12")


@pytest.mark.parametrize(
    ("path", "real", "expected"),
    [
        (f"{SITE}/nvidia/x/lib/a.so", "", True),
        ("/link/a.so", f"{SITE}/nvidia/x/a.so", True),
        ("/found/nvidia/x/a.so", "", True),
        ("/usr/nvidia/x/a.so", "", False),
        (f"{SITE}/nvidia.so", "", False),
        (f"{SITE}/../nvidia/a.so", "", False),
    ],
)
def test_file_in_a_folder_of_wheels(path: str, real: str, expected: bool) -> None:
    python = make_python(
        Distribution("six", "1", "/found"), Distribution("x", "1", ""), site_packages=(SITE,)
    )
    assert owners.is_in_nvidia_wheel(python, path, real) is expected


TWO = (make_wheel(files=(FILE,)), make_wheel("nvidia-cudnn-cu11", "8.9", files=(FILE,)))


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        ((), None),
        ((SharedFile(FILE, SITE, (), ("nvidia-cudnn-cu11", "8.9")),), "nvidia-cudnn-cu11"),
        ((SharedFile(FILE, SITE, (), ("nvidia-cudnn-cu11", "8.8")),), None),
        ((SharedFile(FILE, SITE, (), None),), None),
        ((SharedFile(FILE, "/other", (), ("nvidia-cudnn-cu11", "8.9")),), None),
        ((SharedFile("x", SITE, (), ("nvidia-cudnn-cu11", "8.9")),), None),
    ],
)
def test_owner_that_was_installed_last(shared: tuple[SharedFile, ...], expected: str | None) -> None:
    owner = owners.find_current_owner(make_python(*TWO, shared=shared), PATH)
    assert (owner.name if owner else None) == expected
    assert owners.find_current_owner(make_python(TWO[0], shared=shared), PATH) == TWO[0]


CUDNN = make_resolution("libcudnn.so.9", PATH)
IN_PREFIX = replace(CUDNN, path="/conda/lib/libcudnn.so.9")
CONDA = {
    "conda_prefix": "/conda/",
    "conda_packages": (CondaPackage("cuda", "12", ""), CondaPackage("cudnn", "9.1.0", "")),
}


@pytest.mark.parametrize(
    ("wheels", "fields", "resolution", "expected"),
    [
        ((make_wheel(files=(FILE,)),), {}, replace(CUDNN, version="1"), LibraryVersion("9.3.0", "nvidia-cudnn-cu12")),
        ((make_wheel(version="x", files=(FILE,)),), {}, replace(CUDNN, version="9.9"), LibraryVersion("9.9", "")),
        (
            (make_wheel(files=(FILE,), changed=(ChangedFile(FILE, 1, 2, False),)),),
            {},
            replace(CUDNN, version="9.9"),
            LibraryVersion("9.9", ""),
        ),
        (
            (make_wheel(files=(FILE,), changed=(ChangedFile("other", 1, 2, False),)),),
            {},
            CUDNN,
            LibraryVersion("9.3.0", "nvidia-cudnn-cu12"),
        ),
        ((), CONDA, IN_PREFIX, LibraryVersion("9.1.0", "cudnn")),
        ((), CONDA, replace(CUDNN, path="/conda/lib64/libcudnn.so.9"), None),
        ((), CONDA, replace(CUDNN, soname="libcublas.so.12", path="/conda/lib/libcublas.so.12"), None),
        ((), {**CONDA, "conda_prefix": None}, IN_PREFIX, None),
        ((), {**CONDA, "conda_packages": (CondaPackage("cudnn", "?", ""),)}, IN_PREFIX, None),
        ((), {}, CUDNN, None),
        ((), {}, replace(CUDNN, path=None, version="9"), None),
    ],
)  # fmt: skip
def test_version_of_a_library(
    wheels: tuple[Distribution, ...], fields: dict[str, Any], resolution: Any, expected: LibraryVersion | None
) -> None:
    facts = with_python(healthy(), distributions=wheels, **fields)
    assert owners.find_library_version(facts, resolution) == expected
    facts = (
        with_loader(facts, resolution)
        if resolution.path
        else with_loader(facts, make_missing("libcudnn.so.9"))
    )
    if resolution.soname == "libcudnn.so.9":
        assert owners.find_cudnn_version(facts) == expected


def test_conda_package_is_not_asked_for_the_file_of_a_wheel() -> None:
    wheel = make_wheel(version="?", location="/conda/lib", files=("libcudnn.so.9",))
    facts = with_python(healthy(), distributions=(wheel,), **CONDA)
    resolution = replace(CUDNN, path="/conda/lib/libcudnn.so.9", version="9.2")
    assert owners.find_library_version(facts, resolution) == LibraryVersion("9.2", "")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("/usr/lib/libcudnn.so.9.1.0",), "9.1.0"),
        (("/usr/lib/libcudnn.so.9.1.0", "/usr/lib/libcudnn.so.9.2.0"), None),
        (("/usr/lib/libcudnn.so.9.1.0", "/other/libcudnn.so.9.2.0", "/usr/lib/libcudnn.so.8.9.0"), "9.1.0"),
        (("/usr/lib/libcudnn.so.9.1",), None),
        (("/usr/lib/libcudnn_ops.so.9.1.0",), None),
        (("/usr/lib/libcudnn.so.90.1.0",), None),
    ],
)
def test_version_in_a_longer_name(names: tuple[str, ...], expected: str | None) -> None:
    resolution = make_resolution("libcudnn.so.9", "/usr/./lib/libcudnn.so.9")
    facts = with_loader(healthy(), resolution, found=tuple(map(make_found, names)))
    version = owners.find_library_version(facts, resolution)
    assert (version.version if version else None) == expected
    assert owners.find_library_version(replace(facts, loader=Unknown("x")), resolution) is None
