"""The differences between two reports, ordered by their effect on TensorFlow (`check --against`).

`flatten` turns facts into named values. `compare` finds the values that differ, and the findings that they explain.
"""

from __future__ import annotations

from tfdoctor.diagnosis.diff.compare import Comparison, Difference, Importance, compare

__all__ = ["Comparison", "Difference", "Importance", "compare"]
