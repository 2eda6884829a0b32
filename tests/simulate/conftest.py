"""The interpreter of the software GPU, compiled once; once more with the sanitizers where the whole lab runs."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.softcalls import Gpu
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


@pytest.fixture(scope="session")
def libraries_of_the_software_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of those for TensorFlow 2.15.1, compiled once."""
    from lab.softgpu import SANITIZED, libraries

    if shutil.which(os.environ.get("CXX") or "c++") is None:
        pytest.skip("no C++ compiler")
    flags = ("-O1", *SANITIZED) if os.environ.get("TFDOCTOR_SANITIZE") else ("-O1",)
    return libraries(tmp_path_factory.mktemp("gpu"), "2.15.1", flags)


@pytest.fixture(scope="module")
def gpu(libraries_of_the_software_gpu: Path) -> Iterator[Gpu]:
    """The software GPU, ready to be called; a kernel that fails leaves this process alive."""
    from lab.softcalls import Gpu

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"STANDIN_CC": "90", "STANDIN_GPUS": "2", "STANDIN_FAILED": "return"}.items():
            patch.setenv(name, value)
        found = Gpu(libraries_of_the_software_gpu)
        assert found.driver.cuInit(0) == 0
        context = found.made("driver", "cuDevicePrimaryCtxRetain", 0)
        assert found.driver.cuCtxSetCurrent(context) == 0
        yield found
