"""Read TensorFlow's device placement log, and report the devices on which operations ran."""

from __future__ import annotations

from tfdoctor.placement.analysis import evaluate_placement
from tfdoctor.placement.kernels import needs_kernels
from tfdoctor.placement.models import OpCount, Placement, PlacementData, PlacementDevice, Refusal
from tfdoctor.placement.reader import PlacementReader, read_placement
from tfdoctor.placement.version_messages import infer_release_range

__all__ = [
    "OpCount",
    "Placement",
    "PlacementData",
    "PlacementDevice",
    "PlacementReader",
    "Refusal",
    "evaluate_placement",
    "infer_release_range",
    "needs_kernels",
    "read_placement",
]
