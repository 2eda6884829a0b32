"""Files that Python runs as it starts."""

from __future__ import annotations

import importlib.machinery
import sysconfig

import pytest

HAS_ITS_OWN = (
    importlib.machinery.PathFinder.find_spec("sitecustomize", [sysconfig.get_path("stdlib")]) is not None
)
"""Debian's and Ubuntu's Python has a sitecustomize beside the standard library: one of site-packages never runs."""
needs_sitecustomize = pytest.mark.skipif(HAS_ITS_OWN, reason="this Python has a sitecustomize of its own")
