"""Failures of the software GPU on request (STANDIN_FAULT), call by call, each in its own process."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.few(0)  # compiling the libraries alone takes ten seconds

TESTS = Path(__file__).resolve().parents[2]
CHILD = """
import ctypes, json, sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from lab.softcalls import Gpu
from verification.simulate.kernels import TEXT
gpu = Gpu(Path(sys.argv[1]))
cu, told = gpu.driver, {}
told["init"] = cu.cuInit(0)
context = c_void_p()
device = int(sys.argv[2])
told["context"] = cu.cuDevicePrimaryCtxRetain(byref(context), device)
cu.cuCtxSetCurrent(context)
free, total, at = c_size_t(), c_size_t(), c_uint64()
cu.cuMemGetInfo_v2(byref(free), byref(total))
told["free"] = free.value >> 20
told["alloc"] = [cu.cuMemAlloc_v2(byref(at), c_size_t(32 << 20)) for _ in range(4)]
module, function = c_void_p(), c_void_p()
told["module"] = cu.cuModuleLoadData(byref(module), TEXT.encode())
if not told["module"]:
    cu.cuModuleGetFunction(byref(function), module, b"add")
    out = (ctypes.c_uint32 * 4)(1, 2, 3, 4)
    to, by = c_uint64(ctypes.addressof(out)), ctypes.c_uint32(10)
    pointers = (c_void_p * 2)(ctypes.addressof(to), ctypes.addressof(by))
    told["launch"] = [cu.cuLaunchKernel(function, 1, 1, 1, 4, 1, 1, 0, None, pointers, None) for _ in range(4)]
    told["out"] = list(out)
told["sync"] = [cu.cuStreamSynchronize(None), cu.cuCtxSynchronize(), cu.cuEventQuery(None)]
told["runtime"] = [gpu.runtime.cudaDeviceSynchronize(), gpu.runtime.cudaStreamSynchronize(None)]
told["copy"] = cu.cuMemcpyDtoH_v2(ctypes.create_string_buffer(4), at, c_size_t(4)) if at.value else 0
handle = c_void_p()
told["cublas"] = gpu.blas.cublasCreate_v2(byref(handle))
told["cudnn"] = gpu.dnn.cudnnCreate(byref(handle))
told["cudnn-version"] = gpu.dnn.cudnnGetVersion()
gpu.dnn.cudnnGetErrorString.restype = c_char_p
told["words"] = gpu.dnn.cudnnGetErrorString(1).decode()
print(json.dumps(told))
"""
RESULTS_WITHOUT_FAULT = {
    "init": 0,
    "context": 0,
    "alloc": [0] * 4,
    "module": 0,
    "launch": [0] * 4,
    "out": [41, 42, 43, 44],
    "sync": [0] * 3,
    "runtime": [0] * 2,
    "copy": 0,
    "cublas": 0,
    "cudnn": 0,
    "cudnn-version": 8900,
}


def run_child(
    folder: Path, fault: str, *, device: int = 0, timeout: float = 60
) -> tuple[dict[str, Any], str]:
    env = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "LD_LIBRARY_PATH": str(folder),
        "STANDIN_GPUS": "2",
        "STANDIN_CC": "90",
        "STANDIN_FAULT": fault,
    }
    process = subprocess.run(
        [sys.executable, "-c", CHILD, folder, str(device)],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=True,
    )
    return json.loads(process.stdout), process.stderr


def find_differences(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results that differ from those without a fault."""
    return {
        key: results.get(key) for key, value in RESULTS_WITHOUT_FAULT.items() if results.get(key) != value
    }


def test_every_call_succeeds_without_a_fault(libraries_of_the_software_gpu: Path) -> None:
    results, errors = run_child(libraries_of_the_software_gpu, "")
    assert find_differences(results) == {}
    assert results["free"] == 80896
    assert errors == ""


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        ("oom:64M", {"alloc": [0, 0, 2, 2]}),
        ("held:80864M", {"alloc": [0, 2, 2, 2]}),
        ("held:81900M", {"context": 2, "alloc": [2] * 4}),
        ("module:209", {"module": 209, "launch": None, "out": None}),
        ("module:222", {"module": 222, "launch": None, "out": None}),
        ("launch:719", {"launch": [719] * 4, "out": [1, 2, 3, 4]}),
        (
            "broken:700/2",
            {
                "launch": [0, 0, 700, 700],
                "out": [21, 22, 23, 24],
                "sync": [700] * 3,
                "runtime": [700] * 2,
                "copy": 700,
            },
        ),
        (
            "broken:214/3",
            {
                "launch": [0, 0, 0, 214],
                "out": [31, 32, 33, 34],
                "sync": [214] * 3,
                "runtime": [214] * 2,
                "copy": 214,
            },
        ),
        ("cublas:3", {"cublas": 3}),
        ("cudnn:1", {"cudnn": 1}),
        ("cudnn-version:8500", {"cudnn-version": 8500}),
        ("cublas:1,cudnn:4", {"cublas": 1, "cudnn": 4}),
        ("oom:64M@1", {}),
    ],
)
def test_fault_changes_only_its_own_calls(
    libraries_of_the_software_gpu: Path, fault: str, wanted: dict[str, Any]
) -> None:
    results, _ = run_child(libraries_of_the_software_gpu, fault)
    assert find_differences(results) == wanted


def test_memory_of_another_process_is_not_free(libraries_of_the_software_gpu: Path) -> None:
    assert run_child(libraries_of_the_software_gpu, "held:80000M")[0]["free"] == 896


@pytest.mark.parametrize(
    ("fault", "used"), [("oom:1M", 1024), ("held:50000M", 51024), ("held:90000M", 81920)]
)
def test_nvml_reports_memory_of_another_process(
    libraries_of_the_software_gpu: Path, monkeypatch: pytest.MonkeyPatch, fault: str, used: int
) -> None:
    monkeypatch.setenv("STANDIN_FAULT", fault)
    monkeypatch.setenv("STANDIN_GPUS", "2")
    nvml = ctypes.CDLL(str(libraries_of_the_software_gpu / "libnvidia-ml.so.1"))
    assert nvml.nvmlInit_v2() == 0
    memory = (ctypes.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(1), memory) == 0
    assert (memory[0] >> 20, memory[2] >> 20) == (81920, used)
    status = ctypes.c_int()
    assert nvml.nvmlDeviceGetP2PStatus(ctypes.c_void_p(1), ctypes.c_void_p(2), 0, ctypes.byref(status)) == 0
    assert status.value != 0


def test_fault_of_one_gpu(libraries_of_the_software_gpu: Path) -> None:
    folder = libraries_of_the_software_gpu
    assert find_differences(run_child(folder, "oom:64M@1", device=1)[0]) == {"alloc": [0, 0, 2, 2]}
    assert find_differences(run_child(folder, "broken:719/0@0", device=1)[0]) == {}


def test_slow_gpu_computes_the_same(libraries_of_the_software_gpu: Path) -> None:
    import time

    started = time.monotonic()
    assert find_differences(run_child(libraries_of_the_software_gpu, "slow:500")[0]) == {}
    assert time.monotonic() - started > 2


def test_hanging_gpu_never_returns(libraries_of_the_software_gpu: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_child(libraries_of_the_software_gpu, "hang:1", timeout=6)


@pytest.mark.parametrize(
    "wrong", ["ooom:5", "oom", "oom:", "oom:x", "oom:5Q", "oom:5@", "oom:5@x", "broken:1/", "oom:-1"]
)
def test_invalid_fault_is_rejected(libraries_of_the_software_gpu: Path, wrong: str) -> None:
    results, errors = run_child(libraries_of_the_software_gpu, f"cublas:0,{wrong}")
    assert results["init"] == 1
    assert f"STANDIN_FAULT: {wrong} is no fault" in errors
