"""Where the checkout is. Imported, it lets scripts import tfdoctor, update_support and what the tests share."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["ROOT"]

ROOT = Path(__file__).resolve().parent.parent
for _place in ("doctor", "scripts", "tests"):
    if str(ROOT / _place) not in sys.path:
        sys.path.insert(1, str(ROOT / _place))
