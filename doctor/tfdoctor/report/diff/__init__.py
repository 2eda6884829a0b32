"""The differences between two reports, ordered by their effect on TensorFlow (`check --against`). Pure.

`flatten` turns facts into named values; `compare` finds those that differ, and those that explain a finding.
"""

from __future__ import annotations

from tfdoctor.report.diff.compare import Comparison, Difference, Importance, compare

__all__ = ["Comparison", "Difference", "Importance", "compare"]
