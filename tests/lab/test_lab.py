"""Tests of the lab itself: the stand-ins behave like the real libraries, and TensorFlow's logs are read correctly.

No TensorFlow is needed here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from lab import standins
from lab.compiled_cudnn import compiled_with, previous_major
from lab.situations import UUIDS, VISIBLE
from lab.truth import Failure, find_failures, make_truth, stem

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are ELF"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]

_QUERY_CODE = r"""
import ctypes, json, os
out = {}
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int(-1)
out["before"] = cuda.cuDeviceGetCount(ctypes.byref(count))
out["init"] = cuda.cuInit(0)
name = ctypes.c_char_p()
out["known"] = cuda.cuGetErrorName(out["init"], ctypes.byref(name))
out["error"] = (name.value or b"").decode()
cuda.cuDeviceGetCount(ctypes.byref(count))
out["count"] = count.value
out["devices"] = []
for ordinal in range(max(count.value, 0)):
    device, text, uuid = ctypes.c_int(), ctypes.create_string_buffer(64), ctypes.create_string_buffer(16)
    memory, value = ctypes.c_size_t(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    row = {}
    cuda.cuDeviceGetName(text, 64, device)
    row["name"] = text.value.decode()
    cuda.cuDeviceGetPCIBusId(text, 64, device)
    row["pci"] = text.value.decode()
    cuda.cuDeviceGetUuid(uuid, device)
    row["uuid"] = uuid.raw.hex()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    row["mib"] = memory.value >> 20
    for key, attribute in (("major", 75), ("minor", 76), ("mp", 16)):
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        row[key] = value.value
    out["devices"].append(row)
nvml = ctypes.CDLL("libnvidia-ml.so.1")
out["nvml"] = nvml.nvmlInit_v2()
number = ctypes.c_uint()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(number))
out["nvml_count"] = number.value
handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
out["nvml_names"] = []
for index in range(number.value):
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
    nvml.nvmlDeviceGetName(handle, text, 96)
    row = [text.value.decode()]
    nvml.nvmlDeviceGetUUID(handle, text, 96)
    row.append(text.value.decode())
    out["nvml_names"].append(row)
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def drivers(cache: Path) -> Path:
    return standins.write_driver(cache / "driver", cache)


def query_driver(drivers: Path, **env: str) -> dict[str, Any]:
    """Return the answers of the stand-in driver and of NVML."""
    child = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(drivers), **env}
    done = subprocess.run(
        [sys.executable, "-c", _QUERY_CODE], env=child, capture_output=True, text=True, check=True, timeout=60
    )
    return dict(json.loads(done.stdout))


def open_library(library: str, *folders: Path, **env: str) -> str:
    """Return the text of dlerror, or "" if the library can be opened."""
    code = f"import ctypes\ntry: ctypes.CDLL({library!r})\nexcept OSError as error: print(error)"
    child = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": ":".join(map(str, folders)), **env}
    done = subprocess.run(
        [sys.executable, "-c", code], env=child, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_driver_reads_lists_of_properties(drivers: Path) -> None:
    answer = query_driver(
        drivers,
        STANDIN_GPUS="3",
        STANDIN_NAME="A;B b",
        STANDIN_CC="80,30",
        STANDIN_MEM_MIB="100,200,300",
        STANDIN_MP="132,2",
    )
    assert answer["before"] == 3  # CUDA_ERROR_NOT_INITIALIZED
    assert [device["name"] for device in answer["devices"]] == ["A", "B b", "B b"]
    assert [(device["major"], device["minor"]) for device in answer["devices"]] == [(8, 0), (3, 0), (3, 0)]
    assert [device["mib"] for device in answer["devices"]] == [100, 200, 300]
    assert [device["mp"] for device in answer["devices"]] == [132, 2, 2]
    assert [device["pci"] for device in answer["devices"]] == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    assert answer["nvml_names"] == [["A", UUIDS[0]], ["B b", UUIDS[1]], ["B b", UUIDS[2]]]


VISIBLE_TO = {
    "": [],
    "-1": [],
    "abc": [],
    "NoDevFiles": [],
    "none": [],
    "0,7,1": [0],
    "1,0": [1, 0],
    "1": [1],
    "0,1": [0, 1],
    "0,0": [],
    "0,-1,1": [0],
    " 0": [0],
    "0 ,1": [0, 1],
    "0, 1": [0, 1],
    "0gpu": [0],
    "0,": [0],
    ",0": [],
    "0;1": [0],
    "7": [],
    UUIDS[1]: [1],
    "GPU-02": [1],
    "GPU-": [],
    "GPU-ff": [],
    f"{UUIDS[1]},{UUIDS[0]}": [1, 0],
    f"{UUIDS[0]},1": [0],
    f"0,{UUIDS[1]}": [0],
    f"{UUIDS[0]},GPU-01": [],
}


@pytest.mark.parametrize("value", VISIBLE_TO)
def test_cuda_visible_devices(drivers: Path, value: str) -> None:
    answer = query_driver(drivers, STANDIN_GPUS="2", STANDIN_NAME="zero;one", CUDA_VISIBLE_DEVICES=value)
    expected = VISIBLE_TO[value]
    assert [device["name"] for device in answer["devices"]] == [("zero", "one")[index] for index in expected]
    assert [device["pci"] for device in answer["devices"]] == [
        f"0000:0{index + 1}:00.0" for index in expected
    ]
    is_named_twice = value in ("0,0", f"{UUIDS[0]},GPU-01")
    assert answer["init"] == (0 if expected else 101 if is_named_twice else 100)
    assert answer["nvml_count"] == 2


def test_visible_values_are_unique() -> None:
    assert len(set(VISIBLE.values())) == len(VISIBLE)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (3, "CUDA_ERROR_NOT_INITIALIZED"),
        (35, "CUDA_ERROR_INSUFFICIENT_DRIVER"),
        (100, "CUDA_ERROR_NO_DEVICE"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
        (999, "CUDA_ERROR_UNKNOWN"),
    ],
)
def test_init_errors_have_names(drivers: Path, code: int, name: str) -> None:
    answer = query_driver(drivers, STANDIN_INIT=str(code))
    assert (answer["init"], answer["known"], answer["error"], answer["count"]) == (code, 0, name, -1)


def test_nvml_init_error(drivers: Path) -> None:
    assert query_driver(drivers, STANDIN_NVML_INIT="18")["nvml"] == 18


def test_stub_driver_returns_34(cache: Path, drivers: Path, tmp_path: Path) -> None:
    standins.write_stub_driver(tmp_path / standins.CUDA, cache)
    child = {"LD_LIBRARY_PATH": f"{tmp_path}:{drivers}"}
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=child, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "34"
    assert standins.find_defined_symbols(tmp_path / standins.CUDA) >= {"cuDeviceGet", "cuLaunchKernel"}


def test_library_has_the_requested_contents(cache: Path, tmp_path: Path) -> None:
    path = standins.write_library(
        tmp_path / "libcublas.so.10.0",
        cache,
        needs=["libfoo.so.1", "libbar.so.2"],
        runpath="$ORIGIN/x",
        symbols=["plain", "old@V_1", "new@V_2"],
    )
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        dynamic = elf.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        tags: list[tuple[str, Any]] = [(tag.entry.d_tag, tag) for tag in dynamic.iter_tags()]
        needed = [tag.needed for name, tag in tags if name == "DT_NEEDED"]
        assert needed == ["libfoo.so.1", "libbar.so.2"]
        assert [tag.soname for name, tag in tags if name == "DT_SONAME"] == ["libcublas.so.10.0"]
        assert [tag.runpath for name, tag in tags if name == "DT_RUNPATH"] == ["$ORIGIN/x"]
        assert not [name for name, _ in tags if name == "DT_RPATH"]
    assert standins.find_defined_symbols(path) >= {"plain", "old", "new"}


def test_library_with_rpath_without_soname(cache: Path, tmp_path: Path) -> None:
    path = standins.write_library(tmp_path / "libx.so", cache, soname="", rpath="/nowhere")
    with path.open("rb") as stream:
        dynamic = ELFFile(stream).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        names = {tag.entry.d_tag for tag in dynamic.iter_tags()}
    assert "DT_RPATH" in names
    assert not names & {"DT_RUNPATH", "DT_SONAME", "DT_NEEDED"}


def test_wanted_symbols_keep_versions(cache: Path, tmp_path: Path) -> None:
    path = standins.write_library(
        tmp_path / "liblike_tf.so",
        cache,
        needs=["libcublas.so.10.0"],
        imports=["cublasSgemm_v2@libcublas.so.10.0", "cudnnCreate", "cuInit", "__cudaRegisterFatBinary"],
    )
    imported = standins.find_imported_symbols([path])
    assert imported == {
        "libcublas": {"cublasSgemm_v2@libcublas.so.10.0"},
        "libcudnn": {"cudnnCreate"},
        "libcuda": {"cuInit"},
        "libcudart": {"__cudaRegisterFatBinary"},
    }
    assert standins.find_missing_driver_symbols([path], cache) == set()
    folder = tmp_path / "cuda"
    for name, symbols in imported.items():
        soname = {"libcublas": "libcublas.so.10.0"}.get(name, f"{name}.so")
        standins.write_library(folder / soname, cache, symbols=symbols)
    preload = ":".join(str(folder / f"{name}.so") for name in ("libcudnn", "libcuda", "libcudart"))
    assert open_library(path.name, tmp_path, folder, LD_PRELOAD=preload) == ""
    assert "cudnnCreate" in open_library(path.name, tmp_path, folder) or "undefined symbol" in open_library(
        path.name, tmp_path, folder
    )


def test_damaged_library_does_not_open(cache: Path, tmp_path: Path) -> None:
    good = standins.write_library(tmp_path / "good" / "libx.so.1", cache)
    damaged = {
        "file too short": standins.write_empty(tmp_path / "empty" / "libx.so.1"),
        "invalid ELF header": standins.write_linker_script(tmp_path / "text" / "libx.so.1"),
        "wrong ELF class: ELFCLASS32": standins.write_wrong_class(tmp_path / "class" / "libx.so.1"),
        "cannot open shared object file": standins.write_wrong_machine(tmp_path / "machine" / "libx.so.1"),
        "cannot read file data": standins.write_truncated(tmp_path / "cut" / "libx.so.1", good, 64),
    }
    for message, path in damaged.items():
        assert message in open_library("libx.so.1", path.parent)
        # The loader skips a file of another architecture; a broken file ends the search.
        is_skipped = path.parent.name in {"class", "machine"}
        assert (open_library("libx.so.1", path.parent, good.parent) == "") is is_skipped


NO_FILE = "cannot open shared object file: No such file or directory"
NO_VERSION = "/lib/libc.so.6: version `GLIBC_2.99' not found (required by /c/libcudnn.so.9)"
LOGS = {
    "1.14": (
        (
            f"dso_loader.cc:53] Could not dlopen library 'libcudnn.so.7'; dlerror: libfoo.so.1: {NO_FILE}; "
            "LD_LIBRARY_PATH: /a:/b"
        ),
        Failure("libcudnn.so.7", "libfoo.so.1", f"libfoo.so.1: {NO_FILE}"),
    ),
    "2.4": (
        (
            "dso_loader.cc:60] Could not load dynamic library 'libcublas.so.11'; "
            "dlerror: /bad/libcublas.so.11: file too short; LD_LIBRARY_PATH: /bad"
        ),
        Failure("libcublas.so.11", "libcublas.so.11", "/bad/libcublas.so.11: file too short"),
    ),
    "2.15, no LD_LIBRARY_PATH": (
        f"Could not load dynamic library 'libcudart.so.12'; dlerror: libcudart.so.12: {NO_FILE}",
        Failure("libcudart.so.12", "libcudart.so.12", f"libcudart.so.12: {NO_FILE}"),
    ),
    "a version": (
        f"Could not load dynamic library 'libcudnn.so.9'; dlerror: {NO_VERSION}",
        Failure("libcudnn.so.9", "libc.so.6", NO_VERSION),
    ),
    "1.0": (
        "dso_loader.cc:126] Couldn't open CUDA library libcufft.so.8.0. LD_LIBRARY_PATH: /a",
        Failure("libcufft.so.8.0", "libcufft.so.8.0", ""),
    ),
}


@pytest.mark.parametrize("log", LOGS)
def test_failures_are_read_from_logs(log: str) -> None:
    text, failure = LOGS[log]
    assert find_failures(f"before\n{text}\n{text}\nafter\n") == [failure]


def test_truth_of_an_import_error() -> None:
    error = (
        "Traceback:\nImportError: libcublas.so.10.0: cannot open shared object file: No such file\n\nFailed\n"
    )
    truth = make_truth({"stage": "import", "error": error, "tensorflow": None}, "", 0, 1.0)
    assert (truth.import_ok, truth.gpu_registered, truth.gpu_count) == (False, False, 0)
    assert truth.missing_libraries == truth.really_missing == ["libcublas.so.10.0"]


def test_truth_of_a_crash() -> None:
    truth = make_truth({"stage": "list", "tensorflow": "2.4.4", "count": None}, "", -7, 1.0)
    assert (truth.import_ok, truth.gpu_registered, truth.crashed) == (True, False, "SIGBUS")


def test_truth_ignores_tensorrt() -> None:
    log = "Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open\n"
    truth = make_truth({"stage": "done", "tensorflow": "2.10.1", "count": 1}, log, 0, 1.0)
    assert truth.missing_libraries == []
    assert [failure.opened for failure in truth.failures] == ["libnvinfer.so.7"]


def test_stem_of_a_soname() -> None:
    assert stem("/x/libcublasLt.so.12") == "cublasLt"
    assert stem("libnvidia-ml.so.1") == "nvidia-ml"


def test_cudnn_version_is_read_from_the_message() -> None:
    newer = "E cuda_dnn.cc:324] Loaded runtime CuDNN library: 7.0.0 but source was compiled with: 8.0.4.  CuDNN library"
    older = "Loaded runtime CuDNN library: 6021 (compatibility version 6000) but source was compiled with 7004 (comp"
    assert compiled_with(newer) == "8.0.4"
    assert compiled_with(older) == "7.0.4"
    assert compiled_with("Loaded cuDNN version 90300\ncomputed 8.0") is None
    assert [previous_major(version) for version in ("9.3", "8.1", "7")] == ["8.0", "7.0", "6.0"]
