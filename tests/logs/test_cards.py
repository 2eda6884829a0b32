"""The GPUs that a log names."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.logs.cards import list_cards
from tfdoctor.logs.report import diagnose_log
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures

OLD = """\
I tensorflow/core/common_runtime/gpu/gpu_device.cc:1618] Found device {0} with properties:
name: Tesla M60 major: 5 minor: 2 memoryClockRate(GHz): 1.1775
pciBusID: 0000:0{0}:00.0
"""
NEW = """\
I tensorflow/core/common_runtime/gpu/gpu_device.cc:1720] Found device {0} with properties:
pciBusID: 0000:0{0}:00.0 name: GeForce MX230 computeCapability: 6.1
"""
XLA = "service.cc:176]   StreamExecutor device ({0}): Tesla T4, Compute Capability 7.5\n"
IGNORED = (
    "gpu_device.cc:1812] Ignoring visible gpu device (device: 0, name: GeForce GTX 550 Ti, pci bus id: 0000:01:00.0, "
    "compute capability: 2.1) with Cuda compute capability 2.1. The minimum required Cuda capability is 3.5.\n"
)
CREATED = (
    "gpu_device.cc:1402] Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 7613 MB memory) -> "
    "physical GPU (device: 0, name: Tesla M60, pci bus id: 0000:b1:00.0, compute capability: 5.2)\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (
            OLD.format(0) + OLD.format(1),
            [
                (0, "Tesla M60", "5.2", None, "0000:00:00.0"),
                (1, "Tesla M60", "5.2", None, "0000:01:00.0"),
            ],
        ),
        (NEW.format(2), [(2, "GeForce MX230", "6.1", None, "0000:02:00.0")]),
        (XLA.format(1), [(1, "Tesla T4", "7.5", None, None)]),
        (XLA.format(0) + NEW.format(0), [(0, "GeForce MX230", "6.1", None, "0000:00:00.0")]),
        (IGNORED, [(0, "GeForce GTX 550 Ti", "2.1", None, "0000:01:00.0")]),
        (OLD.format(0) + CREATED, [(0, "Tesla M60", "5.2", 7613, "0000:b1:00.0")]),
        ("name: Tesla M60 major: 5 minor: 2 memoryClockRate(GHz): 1.1775\n", []),
    ],
)
def test_cards(text: str, expected: list[tuple[object, ...]]) -> None:
    cards = list_cards(scan([text.encode()], load_signatures()), Compat.load())
    assert [
        (card.index, card.name, card.compute_capability, card.memory_mib, card.pci_bus_id) for card in cards
    ] == expected


def test_a_healthy_log_has_no_finding_about_its_cause() -> None:
    report = diagnose_log([CREATED.encode()], Compat.load())
    assert report.cause is Cause.HEALTHY
    assert report.root_finding is None
    assert Cause.HEALTHY.data.finding_code not in {finding.code for finding in report.findings}
