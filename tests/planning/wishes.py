"""Requests to `recommend` with the expected release; brute.py confirms most of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestCase:
    typed: str
    """Arguments of `tfdoctor recommend`."""
    cards: str
    """The compute capabilities of the cards; `?` if the name is ambiguous."""
    driver: str | None
    answer: str
    """The recommended TensorFlow.

    `-`: a conflict. `arm64`: a conflict with advice for ARM boards. `ask`: an ambiguous card name. `cpu`: no card, so
    the installation without a GPU comes first.
    """
    recipe: str | None = None
    """The expected recipe, if only one works."""


USER_CASES = (  # requests of users
    RequestCase('--gpu "RTX 5090" --tf 2.10', "12.0", None, "-"),
    RequestCase('--gpu "GTX 1060" --driver 470', "6.1", "470", "2.14.1"),
    RequestCase("--gpu V100 --tf 2.20", "7.0", None, "2.20.0"),
    RequestCase("--gpu K80", "3.7", None, "2.14.1"),
    RequestCase('--gpu "Jetson Orin"', "8.7", None, "arm64"),
    RequestCase("--gpu H100 --tf 1.15", "9.0", None, "1.15.5", "ngc"),
    RequestCase("--gpu A100 --driver 450", "8.0", "450", "2.12.1"),
    RequestCase("--facts wsl2-healthy", "8.9", "552.22", "2.21.0"),
    RequestCase("--gpu B200 --driver 570", "10.0", "570", "2.17.0", "ngc"),
    RequestCase('--gpu "RTX 4090" --gpu "GTX 1080"', "8.9 6.1", None, "2.21.0"),
    RequestCase('--gpu "RTX 4090" --gpu "GTX 750 Ti"', "?", None, "ask"),
    RequestCase('--gpu "Tesla M60" --driver 535', "5.2", "535", "2.16.2"),
    RequestCase("--facts no-card-no-driver", "", None, "cpu"),
)

FURTHER_CASES = (
    # drivers as branches, and in full
    RequestCase("--gpu A100 --driver 450.51.06", "8.0", "450.51.06", "2.4.4"),
    RequestCase("--gpu A100 --driver 450.80.02", "8.0", "450.80.02", "2.12.1"),
    RequestCase("--gpu A100 --driver 525", "8.0", "525", "2.21.0"),
    RequestCase("--gpu A100 --driver 525.53", "8.0", "525.53", "2.14.1"),
    RequestCase("--gpu A100 --tf 2.20 --driver 525", "8.0", "525", "2.20.0"),
    RequestCase('--gpu "Tesla T4" --driver 418.87', "7.5", "418.87", "2.3.4"),
    RequestCase('--gpu "Tesla T4" --driver 410', "7.5", "410", "2.0.4"),
    RequestCase('--gpu "RTX 2070 SUPER" --driver 440', "7.5", "440", "2.3.4"),
    RequestCase('--gpu "GTX 1080 Ti" --driver 390.157', "6.1", "390.157", "1.12.0"),
    RequestCase('--gpu "GTX 1060" --driver 590', "6.1", "590", "-"),
    RequestCase("--gpu V100 --driver 595.45.04", "7.0", "595.45.04", "-"),
    RequestCase("--gpu V100 --driver 580", "7.0", "580", "2.21.0"),
    RequestCase("--gpu K80 --driver 470", "3.7", "470", "2.14.1"),
    RequestCase("--gpu K80 --driver 525", "3.7", "525", "-"),
    RequestCase('--gpu "RTX 3080" --driver 455', "8.6", "455", "2.14.1"),
    RequestCase('--gpu "RTX 3080" --driver 390', "8.6", "390", "-"),
    RequestCase('--gpu "RTX 5080" --driver 575', "12.0", "575", "2.17.0", "ngc"),
    RequestCase('--gpu "RTX 5090" --driver 575 --tf 2.17', "12.0", "575", "2.17.0", "ngc"),
    RequestCase('--gpu "RTX 5090" --tf 2.19', "12.0", None, "-"),
    RequestCase('--gpu "RTX 5090" --tf 2.21', "12.0", None, "2.21.0"),
    # old GPUs
    RequestCase('--gpu "GTX 980"', "5.2", None, "2.16.2"),
    RequestCase('--gpu "Tesla M60" --driver 570', "5.2", "570", "2.16.2"),
    RequestCase('--gpu "Tesla M60"', "5.2", None, "2.16.2"),
    RequestCase('--gpu "Tesla M60" --tf 2.17', "5.2", None, "-"),
    RequestCase('--gpu "Tesla M10" --tf 2.3', "5.0", None, "-"),
    RequestCase('--gpu "GTX 750" --tf 2.4', "5.0", None, "2.4.4"),
    RequestCase('--gpu "Quadro K2000"', "3.0", None, "1.4.1"),
    RequestCase('--gpu "GTX 680" --driver 390', "3.0", "390", "1.4.1"),
    RequestCase('--gpu "GTX 580"', "2.0", None, "-"),
    RequestCase('--gpu "Tesla K40m" --driver 470.256.02', "3.5", "470.256.02", "2.14.1"),
    RequestCase('--gpu "Tesla P100" --tf 2.21', "6.0", None, "2.21.0"),
    # several cards
    RequestCase('--gpu "RTX 2080 Ti" --gpu "RTX 5080"', "7.5 12.0", None, "2.17.0", "ngc"),
    RequestCase("--gpu A100 --gpu K80", "8.0 3.7", None, "2.14.1"),
    RequestCase('--gpu "RTX 5090" --gpu K80', "12.0 3.7", None, "-"),
    RequestCase("--gpu H100 --gpu A100 --gpu L40S --driver 535", "9.0 8.0 8.9", "535", "2.16.2"),
    RequestCase("--gpu 8.9 --gpu 5.0", "8.9 5.0", None, "2.16.2"),
    RequestCase("--facts small-card-beside-a-large-one", "8.6 6.1", "550.54.14", "2.21.0"),
    # ambiguous names, laptops, servers, MIG
    RequestCase('--gpu "GTX 750 Ti"', "?", None, "ask"),
    RequestCase('--gpu "GT 710"', "?", None, "ask"),
    RequestCase('--gpu "Quadro M4000M"', "5.0", None, "2.16.2"),
    RequestCase('--gpu "RTX 4060 Laptop GPU" --driver 546', "8.9", "546", "2.21.0"),
    RequestCase('--gpu "RTX 3050 Ti Laptop" --driver 510', "8.6", "510", "2.14.1"),
    RequestCase('--gpu "NVIDIA A100-SXM4-80GB" --driver 470', "8.0", "470", "2.14.1"),
    RequestCase('--gpu "Tesla V100-SXM2-32GB" --driver 418.39 --tf 2.1', "7.0", "418.39", "2.1.4"),
    RequestCase("--facts mig-instance", "8.0", "550.54.14", "2.21.0"),
    RequestCase('--gpu "NVIDIA L4" --python 3.9', "8.9", None, "2.20.0"),
    RequestCase("--gpu 10de:1b80 --driver 450", "6.1", "450", "2.14.1"),
    RequestCase("--gpu 10.3", "10.3", None, "2.17.0", "ngc"),
    # Python versions and methods
    RequestCase('--gpu "RTX 3060" --python 3.7', "8.6", None, "2.11.0"),
    RequestCase('--gpu "RTX 3060" --python 3.13 --method pip', "8.6", None, "2.21.0"),
    RequestCase('--gpu "RTX 3060" --python 2.7', "8.6", None, "-"),
    RequestCase('--gpu "GTX 1080" --python 2.7 --driver 410', "6.1", "410", "2.0.0"),
    RequestCase("--gpu T4 --tf 1.14 --python 2.7", "7.5", None, "1.14.0", "official"),
    RequestCase("--gpu T4 --tf 1.15 --method pip", "7.5", None, "-"),
    RequestCase("--gpu T4 --tf 2.3 --python 3.8", "7.5", None, "2.3.4", "conda-cuda"),
    RequestCase("--gpu T4 --tf 1.14", "7.5", None, "1.14.0", "official"),
    RequestCase('--gpu "RTX 3090" --tf ">=2.5,<2.8"', "8.6", None, "2.7.4"),
    RequestCase("--gpu A100 --tf 1.14", "8.0", None, "-"),
    # boards
    RequestCase("--gpu Jetson", "8.7", None, "arm64"),
    RequestCase('--gpu "Jetson Nano"', "5.3", None, "arm64"),
    RequestCase('--gpu "Jetson AGX Xavier" --tf 2.15', "7.2", None, "arm64"),
    RequestCase('--gpu "Jetson AGX Thor"', "11.0", None, "arm64"),
    RequestCase("--gpu GH200 --driver 570", "9.0", "570", "arm64"),
    RequestCase("--gpu GB10", "12.1", None, "arm64"),
    RequestCase("--gpu GB200", "10.0", None, "arm64"),
    RequestCase("--gpu 8.7", "8.7", None, "arm64"),
    # WSL
    RequestCase("--facts wsl2-healthy --tf 2.10", "8.9", "552.22", "2.10.1"),
    RequestCase("--facts wsl2-healthy --driver 526.98", "8.9", "526.98", "2.14.1"),
    RequestCase("--facts wsl2-healthy --driver 511 --method container", "8.9", "511", "-"),
)
