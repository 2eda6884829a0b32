"""Which operations went to which device, from what TensorFlow prints where it is asked to log device placement."""

from __future__ import annotations

from tfdoctor.placement.judge import judged
from tfdoctor.placement.kernels import asks_for_kernels
from tfdoctor.placement.models import Device, Found, OpCount, Placement, Refusal
from tfdoctor.placement.reader import Reader, read_placement
from tfdoctor.placement.said import era_of

__all__ = [
    "Device",
    "Found",
    "OpCount",
    "Placement",
    "Reader",
    "Refusal",
    "asks_for_kernels",
    "era_of",
    "judged",
    "read_placement",
]
