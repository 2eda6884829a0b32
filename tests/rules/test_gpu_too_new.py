"""What TFD111 says about Blackwell cards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.planner import call_tfdoctor
from recorded import HOSTS
from rules.make_facts import finding, healthy, make_resolution, with_cards, with_loader
from tfdoctor.rules import gpu_too_new

LINE_OF_CODE = "model.compile(..., jit_compile=False)"


@pytest.mark.parametrize(
    "line",
    [
        "check --from HOST",
        "recommend RTX-5070",
        "check --from demo:blackwell-with-tf218",
        "explain PTX version 8.5 does not support target sm_120",
    ],
)
def test_the_line_of_code_is_named_without_verbose(line: str) -> None:
    """Keras 3 compiles with XLA by itself, and XLA of 2.21 cannot compile for these cards."""
    result = call_tfdoctor(*line.replace("HOST", str(HOSTS / "blackwell-with-tf221")).split())
    assert LINE_OF_CODE in " ".join(result.out.split())


@pytest.mark.parametrize(("cuda", "is_limited"), [("12.5.82", True), ("12.9.79", False)])
def test_limit_of_cuda_is_that_of_the_loaded_cuda(cuda: str, is_limited: bool) -> None:
    """`recommend` offers 2.21 with CUDA 12.9, so the CUDA of the build alone does not exclude it."""
    facts = with_loader(
        with_cards(healthy("2.21.0"), "12.0"),
        replace(make_resolution("libcudart.so.12", "/srv/cuda/lib/libcudart.so.12"), version=cuda),
    )
    result = finding(gpu_too_new.RULE, facts)
    assert LINE_OF_CODE in result.explanation
    assert ("what needs cuBLAS or cuDNN may fail" in result.explanation) is is_limited
    assert ("some operations may fail" in result.title) is is_limited
    assert "does not offer this release" not in result.explanation
