"""Evaluate benchmarks: whether a GPU is worth using, and why several devices are slower than one."""

from tfdoctor.bench.analysis import evaluate_bench
from tfdoctor.bench.compare import compare_runs
from tfdoctor.bench.models import (
    Bench,
    BenchComparison,
    Crossover,
    Disturbance,
    Interconnect,
    PieceChange,
    ProcessorTimes,
    Scaling,
    Seconds,
    Timed,
    TimedDevice,
    Watched,
    format_duration,
)
from tfdoctor.bench.reader import Measured, parse_earlier, parse_lines
from tfdoctor.bench.warmup import describe_first_calls

__all__ = [
    "Bench",
    "BenchComparison",
    "Crossover",
    "Disturbance",
    "Interconnect",
    "Measured",
    "PieceChange",
    "ProcessorTimes",
    "Scaling",
    "Seconds",
    "Timed",
    "TimedDevice",
    "Watched",
    "compare_runs",
    "describe_first_calls",
    "evaluate_bench",
    "format_duration",
    "parse_earlier",
    "parse_lines",
]
