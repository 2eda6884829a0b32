"""Read TensorFlow's device placement log, and report the devices on which operations ran."""

from __future__ import annotations

from tfdoctor.logs.placement.analysis import evaluate_placement
from tfdoctor.logs.placement.kernels import needs_kernels
from tfdoctor.logs.placement.models import OpCount, Placement, PlacementData, PlacementDevice, Refusal
from tfdoctor.logs.placement.reader import PlacementReader, read_placement
from tfdoctor.logs.placement.version_messages import infer_release_range

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
