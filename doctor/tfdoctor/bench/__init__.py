"""Is the GPU worth it, and why are two slower than one? What was timed, and what it means."""

from tfdoctor.bench.compare import compared
from tfdoctor.bench.judge import judged
from tfdoctor.bench.models import (
    Bench,
    Change,
    Comparison,
    Crossover,
    Device,
    Scaling,
    Seconds,
    Timed,
    Watched,
)
from tfdoctor.bench.reader import Measured, earlier, read_lines

__all__ = [
    "Bench",
    "Change",
    "Comparison",
    "Crossover",
    "Device",
    "Measured",
    "Scaling",
    "Seconds",
    "Timed",
    "Watched",
    "compared",
    "earlier",
    "judged",
    "read_lines",
]
