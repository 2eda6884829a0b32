"""The queries, edge cases included."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfdoctor.compat
from tfdoctor import versions
from tfdoctor.compat import (
    Compat,
    UnknownReleaseError,
    capability_matches,
    normalize_defines,
    split_soname,
)

COMPAT = Compat.load()


def test_lazy_names_are_all_there() -> None:
    for exported in tfdoctor.compat.__all__:
        assert getattr(tfdoctor.compat, exported) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = tfdoctor.compat.nothing_here


def test_load_is_cached() -> None:
    assert Compat.load() is COMPAT


def test_tables_load_fast() -> None:
    best = min(_seconds_to_load() for _ in range(5))
    assert best < 0.025


def _seconds_to_load() -> float:
    start = time.process_time()
    _ = Compat().releases
    return time.process_time() - start


def test_import_reads_nothing_and_needs_no_network() -> None:
    code = (
        "import sys, tfdoctor.compat as c; c.Compat.load().release('2.15.1');"
        "bad = {'socket', 'subprocess', 'tomllib', 'packaging.specifiers', 'requests'} & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_every_check_asks_is_read_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    compat = Compat()
    compat.prepare()
    monkeypatch.setattr(Path, "read_text", None)  # whoever reads now fails
    assert compat.release("2.20.0") is not None
    assert compat.required_libraries_for({"CUDA": "12.5.1", "CUDNN": "9"}, "2.20.0") is None
    assert compat.breaking("2.20.0", {}, {})
    assert compat.problems_of("tensorflow", "2.21.0")


# --- releases ---


@pytest.mark.parametrize(
    ("version", "package", "expected"),
    [
        ("1.15.0", None, "tensorflow"),
        ("1.14.0", None, "tensorflow-gpu"),
        ("2.0.4", None, "tensorflow-gpu"),
        ("2.0.4", "tensorflow", "tensorflow"),
        ("2.10.1", None, "tensorflow"),
        ("2.10.1", "tensorflow_gpu", "tensorflow-gpu"),
        ("2.22.0-rc0", "tf-nightly", "tensorflow"),
    ],
)
def test_release(version: str, package: str | None, expected: str) -> None:
    row = COMPAT.release(version, package)
    assert row is not None
    assert row.package == expected


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("3.0", None),
        ("banana", None),
        ("1.13.0", None),
        ("2.12.0", "tensorflow-gpu"),
        ("2.15.1", "tensorflow-cpu"),
    ],
)
def test_no_such_release(version: str, package: str | None) -> None:
    assert COMPAT.release(version, package) is None


@pytest.mark.parametrize(
    ("version", "package", "row", "extrapolated"),
    [
        ("99.0.0", None, COMPAT.releases[-1].version, True),
        ("2.22.0.dev20260901", "tf-nightly", "2.22.0rc0", False),
        ("2.15.2", None, "2.15.1", False),
        ("2.16.0rc0", None, "2.16.1", False),
        ("2.9.0rc2", None, "2.9.0", False),
        ("1.15.5+nv23.03", "nvidia-tensorflow", "1.15.5", False),
        ("0.12.1", None, "1.0.0", False),
        ("1.13.0", "tensorflow-gpu", "1.13.1", False),
    ],
)
def test_nearest(version: str, package: str | None, row: str, *, extrapolated: bool) -> None:
    nearest = COMPAT.nearest(version, package)
    assert nearest.release.version == row
    assert nearest.release.gpu
    assert not nearest.exact
    assert nearest.extrapolated is extrapolated
    assert version in nearest.reason


def test_nearest_of_a_known_one_is_itself() -> None:
    for row in COMPAT.releases:
        nearest = COMPAT.nearest(row.version, row.package)
        assert nearest.exact
        assert nearest.release is row


@given(st.integers(0, 4), st.integers(0, 40), st.integers(0, 9), st.sampled_from(["", "rc0", ".dev1", "+x"]))
def test_nearest_always_answers(major: int, minor: int, patch: int, suffix: str) -> None:
    text = f"{major}.{minor}.{patch}{suffix}"
    nearest = COMPAT.nearest(text)
    assert nearest.exact == (nearest.release.version == text)
    assert nearest.exact or nearest.reason


def test_select() -> None:
    assert [row.version for row in COMPAT.select("2.4")] == ["2.4.4", "2.4.4"]
    assert [row.version for row in COMPAT.select(">=2.10,<2.12", "tensorflow")] == [
        "2.11.1",
        "2.11.0",
        "2.10.1",
        "2.10.0",
    ]
    with pytest.raises(UnknownReleaseError, match=r"there is no TensorFlow 3\.0; the nearest known: 2\."):
        COMPAT.select("3.0")
    with pytest.raises(UnknownReleaseError) as caught:
        COMPAT.select("1.13.0")
    assert "1.13.1" in caught.value.nearest
    with pytest.raises(versions.VersionSyntaxError, match="`banana` is not a version"):
        COMPAT.select("banana")


def test_releases_for_python() -> None:
    rows = COMPAT.releases_for_python("3.8.18")
    assert rows[0].version == "2.13.1"
    assert rows[-1].version == "2.2.0"
    assert all(row.gpu for row in rows)
    assert COMPAT.releases_for_python("3.10", "windows")[0].version == "2.10.1"
    assert COMPAT.releases_for_python("3.99") == ()
    assert {row.package for row in COMPAT.releases_for_python("2.7", gpu=False)} == {"tensorflow"}


@pytest.mark.parametrize(
    ("version", "capability", "expected"),
    [
        ("2.21.0", "8.6", "native"),
        ("2.21.0", "12.0", "jit"),
        ("2.20.0", "12.0", "arch-specific"),
        ("2.21.0", "5.2", "none"),
        ("2.3.4", "5.0", "none"),
        ("2.3.4", "5.3", "native"),
        ("2.3.4", "7.5", "native"),
        ("2.3.4", "8.0", "jit"),
        ("1.12.3", "6.1", "jit"),
        ("1.12.3", "3.5", "none"),
        ("2.0.4", "3.0", "none"),
    ],
)
def test_code_for(version: str, capability: str, expected: str) -> None:
    row = COMPAT.release(version)
    assert row is not None
    assert COMPAT.code_for(row, capability) == expected


def test_distributions() -> None:
    intel = COMPAT.distribution("tensorflow_intel")
    assert intel is not None
    assert intel.gpu is False
    assert COMPAT.distribution("torch") is None


# --- libraries ---


def test_derivation_from_a_foreign_header() -> None:
    """A build of TF 2.16 by somebody else, for CUDA 11.8: no row says this, its header does."""
    header = {
        "TF_CUDA_VERSION": '"11.8"',
        "TF_CUDART_VERSION": '"11.0"',
        "TF_CUBLAS_VERSION": '"11"',
        "TF_CUSOLVER_VERSION": '"11"',
        "TF_CURAND_VERSION": '"10"',
        "TF_CUFFT_VERSION": '"10"',
        "TF_CUSPARSE_VERSION": '"11"',
        "TF_CUDNN_VERSION": '"8"',
        "TF_CUDA_TOOLKIT_PATH": '"/usr/local/cuda-11.8"',
    }
    assert COMPAT.required_libraries_for(header, "2.16.1") == (
        "libcudart.so.11.0",
        "libcublas.so.11",
        "libcublasLt.so.11",
        "libcufft.so.10",
        "libcusolver.so.11",
        "libcusparse.so.11",
        "libcudnn.so.8",
    )


def test_derivation_knows_when_it_cannot() -> None:
    assert COMPAT.required_libraries_for({}, "2.15.1") == ()
    assert COMPAT.required_libraries_for({"TF_CUDA_VERSION": '""', "TF_CUDNN_VERSION": '""'}, "1.14.0") == ()
    assert COMPAT.required_libraries_for({"TF_CUDA_VERSION": '"12.3"'}, "2.17.0") is None
    assert COMPAT.required_libraries_for({"TF_CUDNN_VERSION": '"9"'}, "2.18.0") is None


def test_normalize_defines() -> None:
    raw = {"TF_CUDA_VERSION": ' "12.3" ', "TF_CUDA_TOOLKIT_PATH": '"/x"', "CUDNN": "8", "TF_NCCL_VERSION": ""}
    assert normalize_defines(raw) == {"CUDA": "12.3", "CUDNN": "8"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("libcudart.so.11.0", ("cudart", "11.0")),
        ("libcublasLt.so.12", ("cublasLt", "12")),
        ("libnvidia-ml.so.1", ("nvidia-ml", "1")),
        ("libcudnn.so", ("cudnn", None)),
        ("libnvinfer_plugin.so.8.6.1", ("nvinfer_plugin", "8.6.1")),
        ("cudart64_110.dll", None),
        ("libcudart.so.11.0.bak", None),
    ],
)
def test_split_soname(text: str, expected: tuple[str, str | None] | None) -> None:
    assert split_soname(text) == expected


@pytest.mark.parametrize(
    ("stem", "cuda", "soname"),
    [
        ("cudart", "11.8", "libcudart.so.11.0"),
        ("cudart", "10.1", "libcudart.so.10.1"),
        ("cusolver", "11.0", "libcusolver.so.10"),
        ("cusolver", "11.2", "libcusolver.so.11"),
        ("cufft", "12.5.1", "libcufft.so.11"),
        ("cupti", "11.8", "libcupti.so.11.8"),
        ("cusolver", "13.0", "libcusolver.so.12"),
        ("cudnn", "12.5", None),
        ("cudart", "14.0", None),
    ],
)
def test_soname_for(stem: str, cuda: str, soname: str | None) -> None:
    assert COMPAT.soname_for(stem, cuda) == soname


def test_cuda_of_soname() -> None:
    assert COMPAT.cuda_of_soname("libcusolver.so.10") == ("10", "11.0")
    assert COMPAT.cuda_of_soname("libcudart.so.12") == ("12",)
    assert COMPAT.cuda_of_soname("libnothing.so.1") == ()


@pytest.mark.parametrize(
    ("soname", "cuda", "package"),
    [
        ("libcublas.so.12", "12.5.1", "libcublas-12-5"),
        ("libcublasLt.so.11", "11.2", "libcublas-11-2"),
        ("libcublas.so.10.0", "10.0", "cuda-cublas-10-0"),
        ("libcublas.so.10", "10.1", "libcublas10"),
        ("libcudart.so.12", "12.2", "cuda-cudart-12-2"),
        ("libcudnn.so.8", None, "libcudnn8"),
        ("libcudnn.so.9", "12.5", "libcudnn9-cuda-12"),
        ("libcudnn.so.9", None, None),
        ("libcudart.so.12", None, None),
        ("libnothing.so.1", "12.2", None),
    ],
)
def test_debian_package_for(soname: str, cuda: str | None, package: str | None) -> None:
    assert COMPAT.debian_package_for(soname, cuda) == package


def test_distro_package_for() -> None:
    assert COMPAT.distro_package_for("libcublasLt.so.12") == "libcublaslt12"
    assert COMPAT.distro_package_for("libcuda.so.1") == "libcuda1"
    assert COMPAT.distro_package_for("libcublas.so.10") is None


def test_wheel_for() -> None:
    wheel = COMPAT.wheel_for("libcusolver.so.11", 12)
    assert wheel is not None
    assert (wheel.project, wheel.folder) == ("nvidia-cusolver-cu12", "nvidia/cusolver/lib")
    assert COMPAT.wheel_for("libcuda.so.1", 12) is None
    assert COMPAT.wheel_for("libcusolver.so.10", 10) is None


# --- drivers ---


@pytest.mark.parametrize(
    ("cuda", "os", "minimum", "own"),
    [
        ("12.5.1", "linux", "525.60.13", "555.42.06"),
        ("12.5", "linux", "525.60.13", "555.42.02"),
        ("12.3", "linux", "525.60.13", "545.23.06"),
        ("11.2", "windows", "452.39", "460.82"),
        ("11.0", "linux", "450.51.05", "450.51.05"),
        ("10.1", "linux", "418.39", "418.39"),
        ("9.0", "linux", "384.81", "384.81"),
        ("8.0", "linux", "367.48", "367.48"),
        ("8.0.61", "linux", "375.26", "375.26"),
        ("13.0", "linux", "580.65.06", "580.65.06"),
        ("13.0", "windows", None, None),
        ("12.7", "linux", "525.60.13", None),
        ("10.3", "linux", None, None),
        ("14.0", "linux", None, None),
        ("6.5", "linux", None, None),
    ],
)
def test_driver_minimum(cuda: str, os: str, minimum: str | None, own: str | None) -> None:
    answer = COMPAT.driver_minimum(cuda, os)  # type: ignore[arg-type]
    assert (answer.minimum, answer.own) == (minimum, own)
    assert answer.explanation
    assert minimum is None or answer.sources


def test_minor_version_compatibility_is_explained() -> None:
    answer = COMPAT.driver_minimum("12.5.1")
    assert answer.minor_version_compatibility
    assert "any CUDA 12.x runs on driver 525.60.13" in answer.explanation
    assert "needs 555.42.06" in answer.explanation
    assert not COMPAT.driver_minimum("10.1").minor_version_compatibility


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("535.104.05", "12.2"),
        ("470.57.02", "11.4"),
        ("580.65.06", "13.0"),
        ("999.1", None),
        ("300.1", None),
    ],
)
def test_newest_cuda_for_driver(driver: str, cuda: str | None) -> None:
    assert COMPAT.newest_cuda_for_driver(driver) == cuda


# --- cuDNN ---


@pytest.mark.parametrize(
    ("version", "capability", "verdict"),
    [
        ("9.10.2.21", "6.1", "native"),
        ("9.10", "7.0", "native"),
        ("9.11.0.98", "7.0", "dropped"),
        ("9.27.0.42", "6.1", "dropped"),
        ("9.27.0.42", "7.5", "native"),
        ("9.3.0.75", "12.0", "jit"),
        ("8.9.7.29-1+cuda12.2", "8.6", "native"),
        ("8.9.7", "3.5", "dropped"),
        ("8.7.0.84", "3.5", "native"),
        ("7.6.5", "8.6", "too-new"),
        ("7.6.5", "2.0", "unknown"),
        ("7.4.1.5", "7.0", "unknown"),
        ("10.0", "9.0", "unknown"),
    ],
)
def test_cudnn_support(version: str, capability: str, verdict: str) -> None:
    answer = COMPAT.cudnn_support(version, capability)
    assert answer.verdict == verdict
    assert answer.explanation


# --- GPUs ---


@pytest.mark.parametrize("text", ["2684", "0x2684", "10de:2684", "0x268410DE", " 2684 "])
def test_gpu_by_pci_id(text: str) -> None:
    gpu = COMPAT.gpu_by_pci_id(text)
    assert gpu is not None
    assert gpu.name == "NVIDIA GeForce RTX 4090"
    assert gpu.capability == "8.9"


def test_no_such_pci_id() -> None:
    assert COMPAT.gpu_by_pci_id("ffff") is None
    assert COMPAT.gpu_by_pci_id("") is None


@pytest.mark.parametrize(
    ("text", "capabilities", "exact"),
    [
        ("RTX 3060", ("8.6",), True),
        ("rtx3060", ("8.6",), True),
        ("NVIDIA GeForce RTX 5090", ("12.0",), True),
        ("GTX1080Ti", ("6.1",), True),
        ("Tesla V100-SXM2-16GB", ("7.0",), True),
        ("NVIDIA A100-SXM4-40GB", ("8.0",), True),
        ("h100", ("9.0",), True),
        ("Tesla M60", ("5.2",), True),
        ("GeForce GT 730", ("2.1", "3.0", "3.5"), True),
        ("4090", ("8.9",), False),
    ],
)
def test_gpus_named(text: str, capabilities: tuple[str, ...], *, exact: bool) -> None:
    match = COMPAT.gpus_named(text)
    assert match is not None
    assert match.capabilities == capabilities
    assert match.exact is exact
    assert match.ambiguous is (len(capabilities) > 1)


@pytest.mark.parametrize("text", ["RTX 9999", "", "nvidia", "Radeon RX 7900"])
def test_no_such_gpu(text: str) -> None:
    assert COMPAT.gpus_named(text) is None


def test_nearest_gpu_names() -> None:
    assert "NVIDIA GeForce RTX 5090" in COMPAT.nearest_gpu_names("RTX 9090")


def test_every_gpu_is_found_by_its_own_name() -> None:
    for gpu in COMPAT.gpus:
        match = COMPAT.gpus_named(gpu.name)
        assert match is not None
        assert gpu.capability in match.capabilities


# --- problems ---


def test_problems_of() -> None:
    ids = {problem.id for problem in COMPAT.problems_of("tensorflow", "2.21.0")}
    assert {"runpath-without-cusolver", "nvml-required", "cudnn-unpinned"} <= ids
    assert "ptx-sm90a-on-blackwell" not in ids
    pascal = {problem.id for problem in COMPAT.problems_of("tensorflow", "2.21.0", capability="6.1")}
    ampere = {problem.id for problem in COMPAT.problems_of("tensorflow", "2.21.0", capability="8.6")}
    assert "cudnn-unpinned" in pascal
    assert "cudnn-unpinned" not in ampere
    assert {problem.area for problem in COMPAT.problems_of("tensorflow", "2.18.0", area="images")} == {
        "images"
    }
    assert [problem.id for problem in COMPAT.problems_of("tensorflow", "2.0.4", area="gpu")] == []


@pytest.mark.parametrize(
    ("capability", "condition", "expected"),
    [
        ("7.0", "<7.5", True),
        ("7.5", "<7.5", False),
        ("5.0", ">=5.0,<5.2", True),
        ("5.2", ">=5.0,<5.2", False),
        ("10.0", ">=9.0", True),
        ("3.7", "!=3.7", False),
        ("3.7", None, True),
    ],
)
def test_capability_matches(capability: str, condition: str | None, *, expected: bool) -> None:
    assert capability_matches(capability, condition) is expected


def test_a_condition_that_is_none() -> None:
    with pytest.raises(versions.VersionSyntaxError):
        capability_matches("7.0", "about 7")
