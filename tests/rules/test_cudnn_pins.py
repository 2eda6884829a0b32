"""TFD213, cudnn-pins."""

from __future__ import annotations

import pytest

from rules.make_facts import SITE, healthy, run
from rules.owners_facts import _add_distributions, _make_cudnn
from tfdoctor.core.facts import Distribution
from tfdoctor.core.findings import Severity
from tfdoctor.rules import cudnn_pins


@pytest.mark.parametrize(
    ("version", "pin", "conflict"),
    [
        ("2.18.1", "nvidia-cudnn-cu12==9.1.0.70", True),
        ("2.18.1", "nvidia-cudnn-cu12==9.10.2.21", False),
        ("2.18.1", "nvidia-cudnn-cu12==8.9.2.26", True),
        ("2.15.1", "nvidia-cudnn-cu12<10.0,>=9.8", True),
        ("2.15.1", "nvidia-cudnn-cu12==8.9.2.26", False),
        ("2.18.1", "nvidia-cudnn-cu12<10.0,>=9.1", False),
        ("2.18.1", "nvidia-cudnn-cu12", False),
        ("2.18.1", "nvidia-cudnn-cu13==9.13.0.50", False),
        ("2.18.1", "nvidia-cudnn-cu12==9.1.*", True),
        ("2.18.1", "nvidia-cudnn-frontend==1.0", False),
        ("2.18.1", "nvidia-cudnn-cu12 nonsense", False),
    ],
)
def test_conflicting_cudnn_pins_of_other_packages(version: str, pin: str, *, conflict: bool) -> None:
    torch = Distribution("torch", "2.5.1", SITE, "pip", pins=(f"{pin}; platform_system == 'Linux'",))
    findings = run(cudnn_pins.RULE, _add_distributions(healthy(version), torch)).findings
    assert bool(findings) is conflict
    assert all(result.severity is Severity.WARNING for result in findings)


def test_pin_of_an_extra_counts_if_its_wheel_is_installed() -> None:
    pin = "nvidia-cudnn-cu12==9.1.0.70; extra == 'with-cuda'"
    jax = Distribution("jax-cuda12-plugin", "0.4.30", SITE, "pip", pins=(pin,))
    assert not run(cudnn_pins.RULE, _add_distributions(healthy(), jax)).findings
    assert run(cudnn_pins.RULE, _add_distributions(healthy(), jax, _make_cudnn("9.3.0.75"))).findings
