"""Is the GPU worth it, and why are two slower than one? What was timed, and what it means."""

from tfdoctor.bench.compare import compared
from tfdoctor.bench.first import told_of_first
from tfdoctor.bench.judge import judged
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
    "compared",
    "duration",
    "earlier",
    "judged",
    "read_lines",
    "told_of_first",
]
