"""Evaluate benchmarks: whether a GPU is worth using, and why several devices are slower than one."""

from __future__ import annotations

from tfdoctor.cli.extensions import Extension

__all__ = ["EXTENSION"]

EXTENSION = Extension(
    summary="Time the GPUs against the CPU and each other.",
    command="tfdoctor.extensions.bench.command:bench",
    example="tfdoctor bench",
    pages="tfdoctor.extensions.bench.codes:BENCH_PAGES",
)
