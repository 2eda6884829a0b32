"""Is the GPU worth it, and why are two slower than one? What was timed (`reader`), and what it means (`judge`, `compare`)."""

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
