"""TFD210, shadowing-path."""

from __future__ import annotations

from rules.make_facts import (
    commands,
    finding,
    healthy,
    make_found,
    make_resolution,
    run,
    with_loader,
    with_python,
)
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import (
    shadowing_path,
)


def test_older_cuda_before_the_wheels_is_reported():
    folder = "/usr/local/cuda-12.2/lib64"
    facts = with_loader(
        with_python(healthy(), installed={"nvidia-cublas-cu12": "12.5.3.2"}),
        make_resolution("libcublas.so.12", f"{folder}/libcublas.so.12", "LD_LIBRARY_PATH"),
        also_found=(make_found(f"{folder}/libcublas.so.12"), make_found(f"{folder}/libcublas.so.12.2.5.6")),
        library_path=(folder, "/keep"),
    )
    result = finding(shadowing_path.RULE, facts)
    assert result.severity is Severity.WARNING
    assert commands(result)[0] == "export LD_LIBRARY_PATH=/keep"
    newer = with_python(facts, installed={"nvidia-cublas-cu12": "12.1.0.26"})
    assert run(shadowing_path.RULE, newer).kind is OutcomeKind.CLEAN
    assert run(shadowing_path.RULE, healthy()).kind is OutcomeKind.NOT_APPLICABLE
