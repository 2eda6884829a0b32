"""compat/cuda_wheels.toml: read strictly, closed under linking, and complete for every release that it claims."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from tfdoctor.compat import Compat
from tfdoctor.compat.decode import DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.compat.wheels import CudaSet, read_sets
from tfdoctor.core import versions

if TYPE_CHECKING:
    from pathlib import Path

COMPAT = Compat.load()
TABLE = Compat.load().cuda_sets
GPU_RELEASES = [row for row in COMPAT.releases if row.gpu and row.package == "tensorflow"]

by_set = pytest.mark.parametrize("row", TABLE.sets, ids=lambda row: row.id)


def list_releases(row: CudaSet) -> list[str]:
    return [r.version for r in GPU_RELEASES if versions.satisfies(r.version, row.tensorflow)]


@by_set
def test_set_has_every_library_of_its_releases(row: CudaSet) -> None:
    claimed = [r for r in GPU_RELEASES if r.version in list_releases(row)]
    assert claimed
    for release in claimed:
        missing = [name for name in release.required_libraries if name not in row.library_by_file_name]
        assert not missing, f"{release.version}: {missing}"


@by_set
def test_set_is_closed_under_linking(row: CudaSet) -> None:
    """What its libraries link is in the set, or is installed without it."""
    for wheel in row.wheels:
        for library in wheel.libraries:
            missing = [
                name
                for name in library.needed_sonames
                if name not in row.library_by_file_name and name not in SYSTEM_LIBRARIES
            ]
            assert not missing or library.path.startswith(OPTIONAL_PLUGINS), f"{library.path}: {missing}"


SYSTEM_LIBRARIES = {"libcuda.so.1", "libnvidia-ml.so.1", "libz.so.1"}
"""The driver's libraries, and zlib, which every Debian and Ubuntu has (dpkg links it)."""
OPTIONAL_PLUGINS = ("nvidia/nvshmem/",)
"""NVSHMEM's transports, which link MPI, UCX and InfiniBand; each is loaded only on request."""


@by_set
def test_file_names_equal_the_sonames(row: CudaSet) -> None:
    for version in list_releases(row):
        release = next(r for r in GPU_RELEASES if r.version == version)
        for name in release.required_libraries:
            assert row.library_by_file_name[name].soname == name


@by_set
def test_versions_agree_with_the_set(row: CudaSet) -> None:
    runtime = next(wheel for wheel in row.wheels if wheel.name.startswith("nvidia-cuda-runtime-cu"))
    assert versions.major_minor(runtime.version) == row.cuda
    major = versions.major(row.cuda)
    assert all(wheel.name.endswith(f"-cu{major}") for wheel in row.wheels)
    for stem in ("cuda-nvcc", "cuda-nvrtc", "cuda-cupti", *(["nvjitlink"] if major > 11 else [])):
        wheel = next(wheel for wheel in row.wheels if wheel.name == f"nvidia-{stem}-cu{major}")
        assert versions.major_minor(wheel.version) == row.cuda
    cudnn_range = COMPAT.find_cudnn_range(row.cudnn)
    assert cudnn_range is not None
    assert major in cudnn_range.cuda


@by_set
def test_cudnn_is_at_least_that_of_the_build(row: CudaSet) -> None:
    for version in list_releases(row):
        release = next(r for r in GPU_RELEASES if r.version == version)
        assert release.cudnn is not None
        assert versions.major(release.cudnn) == versions.major(row.cudnn)
        assert versions.is_at_least(row.cudnn, release.cudnn)


@by_set
def test_pins_satisfy_the_pip_extra(row: CudaSet) -> None:
    """If a release has an extra, the set pins each package of it except TensorRT, in a version that it allows."""
    pinned = {wheel.name: wheel.version for wheel in row.wheels}
    for version in list_releases(row):
        release = next(r for r in GPU_RELEASES if r.version == version)
        for text in release.extra_pins:
            requirement = Requirement(text)
            if not requirement.name.startswith("tensorrt"):
                assert requirement.specifier.contains(pinned[requirement.name]), f"{version}: {text}"


@by_set
def test_lock_equals_the_set(row: CudaSet) -> None:
    lock = COMPAT.locks.get_cuda_lock(row.id)
    assert lock is not None
    assert [(f"{p.name}=={p.version}", p.hashes) for p in lock.packages] == [
        (wheel.pin, (wheel.sha256,)) for wheel in row.wheels
    ]


@by_set
def test_sizes_are_plausible(row: CudaSet) -> None:
    assert 1e9 < row.size_bytes < row.unpacked_bytes < 10e9
    assert all(wheel.filename.endswith("x86_64.whl") for wheel in row.wheels)
    assert {"nvidia/cudnn/lib", "nvidia/cublas/lib", "nvidia/cuda_runtime/lib"} <= set(row.folders)


def test_release_is_in_at_most_one_set() -> None:
    for release in GPU_RELEASES:
        claimed = [
            cuda_set.id for cuda_set in TABLE.sets if versions.satisfies(release.version, cuda_set.tensorflow)
        ]
        assert len(claimed) == (1 if versions.satisfies(release.version, ">=2.5") else 0), release.version


def test_releases_without_a_set_need_other_libraries() -> None:
    available = {name for cuda_set in TABLE.sets for name in cuda_set.library_by_file_name}
    without = [
        release
        for release in COMPAT.releases
        if release.gpu and COMPAT.cuda_sets.find_for_release(release.version) is None
    ]
    assert len(without) > 50
    for release in without:
        assert set(release.required_libraries) - available, release.version


def test_set_by_release() -> None:
    cuda_set = COMPAT.cuda_sets.find_for_release("2.15.0.post1")
    assert cuda_set is not None
    assert cuda_set.id == "cu12.2-cudnn8.9"
    assert COMPAT.cuda_sets.find_for_release("2.4.4") is None
    assert COMPAT.cuda_sets.find_for_release("2.99.0") is None
    candidate = COMPAT.cuda_sets.find_for_release("2.22.0rc0")
    assert candidate is not None
    assert "nvidia-nvshmem-cu12" in {wheel.name for wheel in candidate.wheels}


def test_newest_set_has_code_for_old_and_new_gpus() -> None:
    cuda_set = COMPAT.cuda_sets.find_for_release("2.21.0")
    assert cuda_set is not None
    cudnn_range = COMPAT.find_cudnn_range(cuda_set.cudnn)
    assert cudnn_range is not None
    assert (cudnn_range.min_capability, cudnn_range.max_capability) == ("5.0", "12.0")
    following = COMPAT.find_cudnn_range("9.11.0")
    assert following is not None
    assert following.min_capability != "5.0"


# ---------------------------------------------------------------- strict reading


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(data_dir("compat") / "cuda_wheels.toml", tmp_path)
    (tmp_path / "locks" / "cuda").mkdir(parents=True)
    shutil.copy(data_dir("compat") / "locks" / "cuda" / "wheels.json", tmp_path / "locks" / "cuda")
    return tmp_path


def edit_table(folder: Path, old: str, new: str) -> None:
    path = folder / "cuda_wheels.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version is 2"),
        ('why = "', 'wy = "', "unknown key `wy`, did you mean `why`"),
        ("nvidia-cublas-cu11==11.11.3.6", "nvidia-cublas-cu11>=11.11", "is not `nvidia-…==version`"),
        ("nvidia-cublas-cu11==11.11.3.6", "nvidia-cublas-cu11==11.11.3.7", "was not measured"),
        ('id = "cu11.8-cudnn8.7"', 'id = "cu11.8-cudnn8.6"', "there twice"),
        ('id = "cu11.8-cudnn8.7"', 'id = "../x"', "a file's name"),
        ('cudnn = "8.6.0.163"', 'cudnn = "8.6.0.164"', "`cudnn` is not the version"),
        ('tensorflow = ">=2.5,<2.14"', 'tensorflow = "2.5 to 2.14"', "2.5 to 2.14"),
        ('evidence = "measured"', 'evidence = "guessed"', "can be measured"),
        ('  "nvidia-cublas-cu11==11.11.3.6",\n', "", "no set has"),
    ],
)
def test_invalid_table_is_rejected(folder: Path, old: str, new: str, message: str) -> None:
    edit_table(folder, old, new)
    if message == "no set has":  # the wheel is in two sets and must be removed from both
        edit_table(folder, old, new)
    with pytest.raises(DataError, match=re.escape(message)):
        _ = Compat(folder).cuda_sets


def test_invalid_measurement_is_rejected(folder: Path) -> None:
    path = folder / "locks" / "cuda" / "wheels.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    next(iter(raw["wheels"].values()))["unpaked"] = 1
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(DataError, match="unpaked"):
        _ = Compat(folder).cuda_sets


def test_sets_are_read_without_the_measurements(folder: Path) -> None:
    sets = read_sets(folder).sets
    assert [dataclasses.replace(cuda_set, wheels=()) for cuda_set in TABLE.sets] == [*sets]
