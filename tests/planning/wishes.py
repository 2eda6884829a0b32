"""Requests to `recommend` with the expected release."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestCase:
    typed: str
    """Arguments of `tfdoctor recommend`."""
    answer: str
    """The recommended TensorFlow.

    `-`: a conflict. `old`: a conflict with the installation for the CPU. `arm64`: a conflict with advice for ARM
    boards. `ask`: an ambiguous card name. `cpu`: no card, so
    the installation without a GPU comes first.
    """
    recipe: str | None = None
    """The expected recipe, if only one works."""


USER_CASES = (  # requests of users
    RequestCase('--gpu "RTX 5090" --tf 2.10', "-"),
    RequestCase('--gpu "GTX 1060" --driver 470', "2.14.1"),
    RequestCase("--gpu V100 --tf 2.20", "2.20.0"),
    RequestCase("--gpu K80", "2.14.1"),
    RequestCase('--gpu "Jetson Orin"', "arm64"),
    RequestCase("--gpu H100 --tf 1.15", "1.15.5", "ngc"),
    RequestCase("--gpu A100 --driver 450", "2.12.1"),
    RequestCase("--from wsl2-healthy", "2.21.0"),
    RequestCase("--gpu B200 --driver 570", "2.17.0", "ngc"),
    RequestCase('--gpu "RTX 4090" --gpu "GTX 1080"', "2.21.0"),
    RequestCase('--gpu "RTX 4090" --gpu "GTX 750 Ti"', "ask"),
    RequestCase('--gpu "Tesla M60" --driver 535', "2.16.2"),
    RequestCase("--from no-card-no-driver", "cpu"),
)

FURTHER_CASES = (
    # drivers as branches, and in full
    RequestCase("--gpu A100 --driver 450.51.06", "2.4.4"),
    RequestCase("--gpu A100 --driver 450.80.02", "2.12.1"),
    RequestCase("--gpu A100 --driver 525", "2.21.0"),
    RequestCase("--gpu A100 --driver 525.53", "2.14.1"),
    RequestCase("--gpu A100 --tf 2.20 --driver 525", "2.20.0"),
    RequestCase('--gpu "Tesla T4" --driver 418.87', "2.3.4"),
    RequestCase('--gpu "Tesla T4" --driver 410', "2.0.4"),
    RequestCase('--gpu "RTX 2070 SUPER" --driver 440', "2.3.4"),
    RequestCase('--gpu "GTX 1080 Ti" --driver 390.157', "1.12.0"),
    RequestCase('--gpu "GTX 1060" --driver 590', "-"),
    RequestCase("--gpu V100 --driver 595.45.04", "-"),
    RequestCase("--gpu V100 --driver 580", "2.21.0"),
    RequestCase("--gpu K80 --driver 470", "2.14.1"),
    RequestCase("--gpu K80 --driver 525", "-"),
    RequestCase('--gpu "RTX 3080" --driver 455', "2.14.1"),
    RequestCase('--gpu "RTX 3080" --driver 390', "-"),
    RequestCase('--gpu "RTX 5080" --driver 575', "2.17.0", "ngc"),
    RequestCase('--gpu "RTX 5090" --driver 575 --tf 2.17', "2.17.0", "ngc"),
    RequestCase('--gpu "RTX 5090" --tf 2.19', "-"),
    RequestCase('--gpu "RTX 5090" --tf 2.21', "2.21.0"),
    # old GPUs
    RequestCase('--gpu "GTX 980"', "2.16.2"),
    RequestCase('--gpu "Tesla M60" --driver 570', "2.16.2"),
    RequestCase('--gpu "Tesla M60"', "2.16.2"),
    RequestCase('--gpu "Tesla M60" --tf 2.17', "-"),
    RequestCase('--gpu "Tesla M10" --tf 2.3', "-"),
    RequestCase('--gpu "GTX 750" --tf 2.4', "2.4.4"),
    RequestCase('--gpu "Quadro K2000"', "1.4.1"),
    RequestCase('--gpu "GTX 680" --driver 390', "1.4.1"),
    RequestCase('--gpu "GTX 580"', "old"),
    RequestCase('--gpu "Tesla K40m" --driver 470.256.02', "2.14.1"),
    RequestCase('--gpu "Tesla P100" --tf 2.21', "2.21.0"),
    # several cards
    RequestCase('--gpu "RTX 2080 Ti" --gpu "RTX 5080"', "2.17.0", "ngc"),
    RequestCase("--gpu A100 --gpu K80", "2.14.1"),
    RequestCase('--gpu "RTX 5090" --gpu K80', "-"),
    RequestCase("--gpu H100 --gpu A100 --gpu L40S --driver 535", "2.16.2"),
    RequestCase("--gpu 8.9 --gpu 5.0", "2.16.2"),
    RequestCase("--from small-card-beside-a-large-one", "2.21.0"),
    # ambiguous names, laptops, servers, MIG
    RequestCase('--gpu "GTX 750 Ti"', "ask"),
    RequestCase('--gpu "GT 710"', "ask"),
    RequestCase('--gpu "Quadro M4000M"', "2.16.2"),
    RequestCase('--gpu "RTX 4060 Laptop GPU" --driver 546', "2.21.0"),
    RequestCase('--gpu "RTX 3050 Ti Laptop" --driver 510', "2.14.1"),
    RequestCase('--gpu "NVIDIA A100-SXM4-80GB" --driver 470', "2.14.1"),
    RequestCase('--gpu "Tesla V100-SXM2-32GB" --driver 418.39 --tf 2.1', "2.1.2"),
    RequestCase("--from mig-instance", "2.21.0"),
    RequestCase('--gpu "NVIDIA L4" --python-version 3.9', "2.20.0"),
    RequestCase("--gpu 10de:1b80 --driver 450", "2.14.1"),
    RequestCase("--gpu 10.3", "2.17.0", "ngc"),
    # Python versions and methods
    RequestCase('--gpu "RTX 3060" --python-version 3.7', "2.11.0"),
    RequestCase('--gpu "RTX 3060" --python-version 3.13 --method pip', "2.21.0"),
    RequestCase('--gpu "RTX 3060" --python-version 2.7', "-"),
    RequestCase('--gpu "GTX 1080" --python-version 2.7 --driver 410', "2.0.0"),
    RequestCase("--gpu T4 --tf 1.14 --python-version 2.7", "1.14.0", "official"),
    RequestCase("--gpu T4 --tf 1.15 --method pip", "-"),
    RequestCase("--gpu T4 --tf 2.3 --python-version 3.8", "2.3.4", "conda-cuda"),
    RequestCase("--gpu T4 --tf 1.14", "1.14.0", "official"),
    RequestCase('--gpu "RTX 3090" --tf ">=2.5,<2.8"', "2.7.4"),
    RequestCase("--gpu A100 --tf 1.14", "-"),
    # boards
    RequestCase("--gpu Jetson", "arm64"),
    RequestCase('--gpu "Jetson Nano"', "arm64"),
    RequestCase('--gpu "Jetson AGX Xavier" --tf 2.15', "arm64"),
    RequestCase('--gpu "Jetson AGX Thor"', "arm64"),
    RequestCase("--gpu GH200 --driver 570", "arm64"),
    RequestCase("--gpu GB10", "arm64"),
    RequestCase("--gpu GB200", "arm64"),
    RequestCase("--gpu 8.7", "arm64"),
    # WSL
    RequestCase("--from wsl2-healthy --tf 2.10", "2.10.1"),
    RequestCase("--from wsl2-healthy --driver 526.98", "2.14.1"),
    RequestCase("--from wsl2-healthy --driver 511 --method container", "-"),
)
