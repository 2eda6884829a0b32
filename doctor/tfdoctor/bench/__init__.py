"""Evaluate benchmarks: whether a GPU is worth using, and why several devices are slower than one."""

from tfdoctor.bench.analysis import evaluate_bench
from tfdoctor.bench.compare import compare_runs
from tfdoctor.bench.models import (
    Bench,
    BenchComparison,
    Crossover,
    Disturbance,
    GpuObservation,
    Interconnect,
    MeasuredDevice,
    Measurement,
    MeasurementChange,
    MedianTime,
    ProcessorTimes,
    Scaling,
    format_duration,
)
from tfdoctor.bench.reader import RawMeasurements, parse_earlier_run, parse_payload_lines
from tfdoctor.bench.warmup import describe_first_calls

__all__ = [
    "Bench",
    "BenchComparison",
    "Crossover",
    "Disturbance",
    "GpuObservation",
    "Interconnect",
    "MeasuredDevice",
    "Measurement",
    "MeasurementChange",
    "MedianTime",
    "ProcessorTimes",
    "RawMeasurements",
    "Scaling",
    "compare_runs",
    "describe_first_calls",
    "evaluate_bench",
    "format_duration",
    "parse_earlier_run",
    "parse_payload_lines",
]
