"""payload/strip.py takes symbol tables off real shared objects, and leaves everything else as it is, byte for byte."""

from __future__ import annotations

import builtins
import importlib.util
import shutil
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from payload.test_pythons import pythons  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).resolve().parents[2] / "doctor" / "tfdoctor" / "payload" / "strip.py"
SOURCE = r"""
#include <stdlib.h>
static int table[4] = {1, 2, 3, 4};
__thread int counter;
int answer(int n) { counter += n; return counter + table[n & 3]; }
__attribute__((constructor)) static void set(void) { counter = 35; }
"""
