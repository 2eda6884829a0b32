"""CUDA libraries: which ones a build needs, their sonames, and the packages that contain them."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat, normalize_defines, split_soname

COMPAT = Compat.load()


def test_distributions() -> None:
    intel = COMPAT.find_distribution("tensorflow_intel")
    assert intel is not None
    assert intel.gpu is False
    assert COMPAT.find_distribution("torch") is None


def test_libraries_of_a_foreign_header() -> None:
    """Derive the libraries of a third-party build of TF 2.16 for CUDA 11.8 from its header; no release matches it."""
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
    assert COMPAT.find_required_libraries(header, "2.16.1") == (
        "libcudart.so.11.0",
        "libcublas.so.11",
        "libcublasLt.so.11",
        "libcufft.so.10",
        "libcusolver.so.11",
        "libcusparse.so.11",
        "libcudnn.so.8",
    )


def test_libraries_of_an_incomplete_header() -> None:
    assert COMPAT.find_required_libraries({}, "2.15.1") == ()
    assert COMPAT.find_required_libraries({"TF_CUDA_VERSION": '""', "TF_CUDNN_VERSION": '""'}, "1.14.0") == ()
    assert COMPAT.find_required_libraries({"TF_CUDA_VERSION": '"12.3"'}, "2.17.0") is None
    assert COMPAT.find_required_libraries({"TF_CUDNN_VERSION": '"9"'}, "2.18.0") is None


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
    assert COMPAT.find_soname(stem, cuda) == soname


def test_cuda_of_soname() -> None:
    assert COMPAT.list_cuda_with_soname("libcusolver.so.10") == ("10", "11.0")
    assert COMPAT.list_cuda_with_soname("libcudart.so.12") == ("12",)
    assert COMPAT.list_cuda_with_soname("libnothing.so.1") == ()


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
    assert COMPAT.find_nvidia_package(soname, cuda) == package


def test_wheel_for() -> None:
    wheel = COMPAT.find_wheel("libcusolver.so.11", 12)
    assert wheel is not None
    assert (wheel.project, wheel.folder) == ("nvidia-cusolver-cu12", "nvidia/cusolver/lib")
    assert COMPAT.find_wheel("libcuda.so.1", 12) is None
    assert COMPAT.find_wheel("libcusolver.so.10", 10) is None
