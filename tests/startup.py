"""Skip marks for tests of files that Python runs as it starts."""

from __future__ import annotations

import importlib.machinery
import sysconfig

import pytest

HAS_SITECUSTOMIZE = (
    importlib.machinery.PathFinder.find_spec("sitecustomize", [sysconfig.get_path("stdlib")]) is not None
)
"""Whether this Python has a sitecustomize beside its standard library.

Debian's and Ubuntu's Python has one. The sitecustomize of site-packages then never runs.
"""
needs_sitecustomize = pytest.mark.skipif(
    HAS_SITECUSTOMIZE, reason="this Python has a sitecustomize of its own"
)
