"""Is the GPU worth it, and why are two slower than one? What was timed, and what it means."""

from tfdoctor.bench.compare import compare_runs
from tfdoctor.bench.first import describe_first_calls
from tfdoctor.bench.judge import evaluate_bench
from tfdoctor.bench.models import (
    Bench,
    Change,
    Comparison,
    Crossover,
    Device,
    Disturbance,
    Link,
    Scaling,
    Seconds,
    Timed,
    Watched,
    Yardstick,
    duration,
)
from tfdoctor.bench.reader import Measured, earlier, read_lines

__all__ = [
    "Bench",
    "Change",
    "Comparison",
    "Crossover",
    "Device",
    "Disturbance",
    "Link",
    "Measured",
    "Scaling",
    "Seconds",
    "Timed",
    "Watched",
    "Yardstick",
    "compare_runs",
    "describe_first_calls",
    "duration",
    "earlier",
    "evaluate_bench",
    "read_lines",
]
