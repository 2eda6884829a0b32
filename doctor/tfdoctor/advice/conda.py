"""CUDA from conda: for releases whose libraries no wheel has. Pure."""

from __future__ import annotations

from tfdoctor import versions
from tfdoctor.advice.search_path import export_path

CONDA_CUDNN = {"8.0": "6.0", "9.0": "7.6", "10.0": "7.6", "10.1": "7.6", "11.0": "8.0", "11.2": "8.1"}
"""CUDA → the cuDNN that conda has for it and that satisfies every TensorFlow built with it."""


def conda_packages(cuda: str, cudnn: str | None) -> tuple[str, str]:
    """(channel, packages) that have this CUDA and a cuDNN for it."""
    if versions.major(cuda) >= 12:
        return "conda-forge", f"cuda-version={cuda} cuda-libraries cudnn"
    beside = CONDA_CUDNN.get(cuda)
    if cuda == "8.0" and cudnn is not None and versions.major(cudnn) == 5:
        beside = "5.1"
    channel = "conda-forge" if versions.at_least(cuda, "10.0") else "defaults"
    return channel, f"cudatoolkit={cuda} {f'cudnn={beside}' if beside else 'cudnn'}"


def conda_folder(cuda: str, cudnn: str | None) -> tuple[str, str]:
    """Commands that make a folder with this CUDA beside everything else, and name it."""
    cuda = versions.major_minor(cuda)
    channel, wanted = conda_packages(cuda, cudnn)
    return (
        f'conda create --prefix "$HOME/cuda-{cuda}" -c {channel} {wanted}',
        export_path([f"$HOME/cuda-{cuda}/lib"]),
    )
