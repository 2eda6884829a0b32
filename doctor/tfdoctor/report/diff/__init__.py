"""What differs between two looks at a machine, ordered by what matters for TensorFlow on a GPU (`check --against`).

Pure: both sides are given as reports. `snapshot` turns facts into named values, `compare` says which differ and which
of these explain a finding.
"""

from __future__ import annotations

from tfdoctor.report.diff.compare import Comparison, Difference, Matters, compare

__all__ = ["Comparison", "Difference", "Matters", "compare"]
