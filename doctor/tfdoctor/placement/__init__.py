"""Read TensorFlow's device placement log, and report the devices on which operations ran."""

from __future__ import annotations

from tfdoctor.placement.analysis import evaluate_placement
from tfdoctor.placement.kernels import needs_kernels
from tfdoctor.placement.models import OpCount, Placement, PlacementData, PlacementDevice, Refusal
from tfdoctor.placement.reader import Reader, read_placement
from tfdoctor.placement.version_messages import infer_era

__all__ = [
    "OpCount",
    "Placement",
    "PlacementData",
    "PlacementDevice",
    "Reader",
    "Refusal",
    "evaluate_placement",
    "infer_era",
    "needs_kernels",
    "read_placement",
]
