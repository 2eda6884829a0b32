"""Fixtures: the PTX interpreter and the libraries of the software GPU, each compiled once per session."""

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
    """Return an interpreter for PTX. TFDOCTOR_LAB_CACHE keeps the compiled files; TFDOCTOR_SANITIZE=1 adds the sanitizers."""
    from lab.softgpu import SANITIZED, Interpreter, build_interpreter

    if shutil.which(os.environ.get("CXX") or "c++") is None:
        pytest.skip("no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("ptx")
    cache_folder = os.environ.get("TFDOCTOR_LAB_CACHE")
    cache = folder.__class__(cache_folder) if cache_folder else folder
    flags = SANITIZED if os.environ.get("TFDOCTOR_SANITIZE") else ()
    return Interpreter(build_interpreter(cache, flags), folder)


@pytest.fixture(scope="session")
def libraries_of_the_software_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the libraries for TensorFlow 2.15.1."""
    from lab.softgpu import SANITIZED, build_libraries

    if shutil.which(os.environ.get("CXX") or "c++") is None:
        pytest.skip("no C++ compiler")
    flags = ("-O1", *SANITIZED) if os.environ.get("TFDOCTOR_SANITIZE") else ("-O1",)
    return build_libraries(tmp_path_factory.mktemp("gpu"), "2.15.1", flags)


@pytest.fixture(scope="module")
def gpu(libraries_of_the_software_gpu: Path) -> Iterator[Gpu]:
    """Yield the software GPU with a current context; a failing kernel returns an error and does not end the process."""
    from lab.softcalls import Gpu

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"STANDIN_CC": "90", "STANDIN_GPUS": "2", "STANDIN_FAILED": "return"}.items():
            patch.setenv(name, value)
        software_gpu = Gpu(libraries_of_the_software_gpu)
        assert software_gpu.driver.cuInit(0) == 0
        context = software_gpu.create_handle("driver", "cuDevicePrimaryCtxRetain", 0)
        assert software_gpu.driver.cuCtxSetCurrent(context) == 0
        yield software_gpu
