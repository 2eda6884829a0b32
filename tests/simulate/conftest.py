"""The interpreter of the software GPU, compiled once; once more with the sanitizers where the whole lab runs."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from lab.softgpu import Interpreter


@pytest.fixture(scope="session")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    """Runs PTX. TFDOCTOR_LAB_CACHE keeps what is compiled; TFDOCTOR_SANITIZE=1 has it check itself."""
    from lab.softgpu import SANITIZED, Interpreter, build

    if shutil.which(os.environ.get("CXX") or "c++") is None:
        pytest.skip("no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("ptx")
    kept = os.environ.get("TFDOCTOR_LAB_CACHE")
    cache = folder.__class__(kept) if kept else folder
    flags = SANITIZED if os.environ.get("TFDOCTOR_SANITIZE") else ()
    return Interpreter(build(cache, flags), folder)
