"""GPUs by PCI id and by the names that people use."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat

COMPAT = Compat.load()


@pytest.mark.parametrize("text", ["2684", "0x2684", "10de:2684", "0x268410DE", " 2684 "])
def test_gpu_by_pci_id(text: str) -> None:
    gpu = COMPAT.find_gpu_by_pci_id(text)
    assert gpu is not None
    assert gpu.name == "NVIDIA GeForce RTX 4090"
    assert gpu.capability == "8.9"


def test_unknown_pci_id() -> None:
    assert COMPAT.find_gpu_by_pci_id("ffff") is None
    assert COMPAT.find_gpu_by_pci_id("") is None


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
def test_gpus_by_name(text: str, capabilities: tuple[str, ...], *, exact: bool) -> None:
    match = COMPAT.find_gpus_by_name(text)
    assert match is not None
    assert match.capabilities == capabilities
    assert match.is_exact is exact
    assert match.is_ambiguous is (len(capabilities) > 1)


@pytest.mark.parametrize("text", ["RTX 9999", "", "nvidia", "Radeon RX 7900"])
def test_unknown_gpu_name(text: str) -> None:
    assert COMPAT.find_gpus_by_name(text) is None


def test_nearest_gpu_names() -> None:
    assert "NVIDIA GeForce RTX 5090" in COMPAT.find_similar_gpu_names("RTX 9090")


def test_every_gpu_is_found_by_its_own_name() -> None:
    for gpu in COMPAT.gpus:
        match = COMPAT.find_gpus_by_name(gpu.name)
        assert match is not None
        assert gpu.capability in match.capabilities
