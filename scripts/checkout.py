"""The root of the checkout. Importing this module makes tfdoctor, update_support and test helpers importable."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["ROOT"]

ROOT = Path(__file__).resolve().parent.parent
for _folder in ("doctor", "scripts", "tests"):
    if str(ROOT / _folder) not in sys.path:
        sys.path.insert(1, str(ROOT / _folder))
