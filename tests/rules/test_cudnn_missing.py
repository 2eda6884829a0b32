"""TFD205, cudnn-missing."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    SITE,
    commands,
    context,
    finding,
    healthy,
    make_missing,
    make_resolution,
    run,
    with_loader,
    with_python,
)
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import (
    Distribution,
)
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import (
    cudnn_missing,
)


def test_missing_cudnn_is_reported():
    facts = with_loader(healthy(), make_missing("libcudnn.so.9"))
    result = finding(cudnn_missing.RULE, facts)
    assert commands(result)[0] == "/env/bin/python -m pip install nvidia-cudnn-cu12==9.3.0.75"
    assert context(facts).prediction.cause is Cause.CUDNN_MISSING


def test_missing_part_of_cudnn_is_reported():
    python = healthy().python.value
    wheel = Distribution(
        "nvidia-cudnn-cu12", "9.3.0.75", SITE, "pip", lost=("nvidia/cudnn/lib/libcudnn_ops.so.9",)
    )
    facts = with_python(healthy(), distributions=(*python.distributions, wheel))
    path = f"{SITE}/tensorflow/../nvidia/cudnn/lib/libcudnn.so.9"
    facts = with_loader(facts, replace(make_resolution("libcudnn.so.9"), path=path))
    result = finding(cudnn_missing.RULE, facts)
    assert result.title == "A part of cuDNN is missing: libcudnn_ops.so.9"
    assert result.severity is Severity.ERROR
    assert result.remedies[0].steps == (
        Install(("nvidia-cudnn-cu12==9.3.0.75",), force_reinstall=True, install_dependencies=False),
    )
    # The loader uses a cuDNN outside the wheel.
    elsewhere = with_loader(facts, replace(make_resolution("libcudnn.so.9"), path="/usr/lib/libcudnn.so.9"))
    assert run(cudnn_missing.RULE, elsewhere).kind is OutcomeKind.CLEAN
