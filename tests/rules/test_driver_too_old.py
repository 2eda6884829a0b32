"""TFD103, driver-too-old."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import healthy, run, with_cards
from tfdoctor.core.facts import KernelModule, Known, value_of
from tfdoctor.core.findings import Severity
from tfdoctor.rules import driver_too_old


@pytest.mark.parametrize(
    ("version", "card", "speaks", "needed"),
    [
        # The wheel has machine code for an H100 in a fifth of its kernels; the others are PTX of CUDA 12.5.
        ("2.20.0", "9.0", "12.2", "555.42.02"),
        ("2.20.0", "9.0", "12.5", None),
        ("2.18.1", "9.0", "12.2", "545.23.06"),
        ("2.17.1", "9.0", "12.4", None),
        ("2.16.2", "9.0", "12.0", None),
        # In 2.15, most kernels for an A100 are PTX of CUDA 11.1, which every driver that 2.15 supports compiles.
        ("2.15.1", "8.0", "12.0", None),
        ("2.15.1", "7.5", "12.0", None),
        ("2.14.1", "8.6", "11.0", "455.23"),
    ],
)
def test_driver_too_old_to_compile_the_ptx(version: str, card: str, speaks: str, needed: str | None) -> None:
    facts = with_cards(healthy(version), card)
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    facts = replace(
        facts, driver=replace(facts.driver, cuda=Known(replace(cuda, version=speaks), "libcuda.so.1"))
    )
    findings = run(driver_too_old.RULE, facts).findings
    assert [result.title for result in findings] == (
        []
        if needed is None
        else [f"The driver is too old to compile this TensorFlow's code: {needed} is needed"]
    )
    for result in findings:
        assert "has most of its kernels as PTX alone for compute capability" in result.explanation
        assert f"({needed} or newer)" in result.remedies[0].text


@pytest.mark.parametrize(
    ("release", "driver", "speaks", "warned"),
    [
        ("2.14.1", "450.51.06", "11.0", True),
        ("2.14.1", "450.80.02", "11.0", False),
        ("2.4.4", "450.51.06", "11.0", False),  # the driver of CUDA 11.0
        ("2.15.1", "525.60.13", "12.0", False),
    ],
)
def test_driver_below_the_minimum_for_minor_compatibility(
    release: str, driver: str, speaks: str, warned: bool
) -> None:
    facts = with_cards(healthy(release), "7.5")
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    facts = replace(
        facts,
        driver=replace(
            facts.driver,
            cuda=Known(replace(cuda, version=speaks), "libcuda.so.1"),
            kernel_module=Known(
                KernelModule(version=driver, open_kernel=False), "/proc/driver/nvidia/version"
            ),
        ),
    )
    findings = run(driver_too_old.RULE, facts).findings
    assert [result.severity for result in findings] == ([Severity.WARNING] if warned else [])
