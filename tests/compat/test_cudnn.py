"""cuDNN versions and the GPUs that they support."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat

COMPAT = Compat.load()


@pytest.mark.parametrize(
    ("version", "capability", "verdict"),
    [
        ("9.10.2.21", "6.1", "native"),
        ("9.10", "7.0", "native"),
        ("9.11.0.98", "7.0", "dropped"),
        ("9.27.0.42", "6.1", "dropped"),
        ("9.27.0.42", "7.5", "native"),
        ("9.3.0.75", "12.0", "jit"),
        ("8.9.7.29-1+cuda12.2", "8.6", "native"),
        ("8.9.7", "3.5", "dropped"),
        ("8.7.0.84", "3.5", "native"),
        ("7.6.5", "8.6", "too-new"),
        ("7.6.5", "2.0", "unknown"),
        ("7.4.1.5", "7.0", "unknown"),
        ("10.0", "9.0", "unknown"),
    ],
)
def test_cudnn_support(version: str, capability: str, verdict: str) -> None:
    support = COMPAT.find_cudnn_support(version, capability)
    assert support.verdict == verdict
    assert support.explanation
