"""Commands that install CUDA from conda, for releases whose CUDA libraries are in no wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.remedies.search_path import format_export

if TYPE_CHECKING:
    from tfdoctor.compat import Compat


def choose_conda_packages(compat: Compat, cuda: str, cudnn: str | None) -> tuple[str, str]:
    """Return (conda channel, package specifications) for this CUDA version with a matching cuDNN."""
    if versions.major(cuda) >= 12:
        return "conda-forge", f"cuda-version={cuda} cuda-libraries cudnn"
    # up to CUDA 11, conda's package is cudatoolkit
    matching_cudnn = compat.find_conda_cudnn(cuda, cudnn)
    channel = "conda-forge" if versions.is_at_least(cuda, "10.0") else "defaults"
    return channel, f"cudatoolkit={cuda} {f'cudnn={matching_cudnn}' if matching_cudnn else 'cudnn'}"


def make_conda_commands(compat: Compat, cuda: str, cudnn: str | None) -> tuple[str, str]:
    """Return the commands that install CUDA into a new conda environment and add it to LD_LIBRARY_PATH."""
    cuda = versions.major_minor(cuda)
    channel, packages = choose_conda_packages(compat, cuda, cudnn)
    return (
        f'conda create --prefix "$HOME/cuda-{cuda}" -c {channel} {packages}',
        format_export([f"$HOME/cuda-{cuda}/lib"]),
    )
