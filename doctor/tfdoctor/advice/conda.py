"""CUDA from conda: for releases whose libraries no wheel has. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.advice.search_path import export_path

if TYPE_CHECKING:
    from tfdoctor.compat import Compat


def conda_packages(compat: Compat, cuda: str, cudnn: str | None) -> tuple[str, str]:
    """Return (channel, packages) that have this CUDA and a cuDNN for it."""
    if versions.major(cuda) >= 12:
        return "conda-forge", f"cuda-version={cuda} cuda-libraries cudnn"
    beside = compat.conda_cudnn(cuda, cudnn)
    channel = "conda-forge" if versions.is_at_least(cuda, "10.0") else "defaults"
    return channel, f"cudatoolkit={cuda} {f'cudnn={beside}' if beside else 'cudnn'}"


def conda_folder(compat: Compat, cuda: str, cudnn: str | None) -> tuple[str, str]:
    """Return commands that make a folder with this CUDA beside everything else, and name it."""
    cuda = versions.major_minor(cuda)
    channel, wanted = conda_packages(compat, cuda, cudnn)
    return (
        f'conda create --prefix "$HOME/cuda-{cuda}" -c {channel} {wanted}',
        export_path([f"$HOME/cuda-{cuda}/lib"]),
    )
