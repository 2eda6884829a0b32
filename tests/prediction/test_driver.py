"""The driver stages: why libcuda, cuInit or the devices fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import healthy, make_missing, with_machine
from tfdoctor.core.facts import (
    PERMISSION_DENIED,
    Absent,
    CudaDriver,
    DeviceNodes,
    KernelModule,
    Known,
    LoadAttempt,
    Nvml,
    SmiFailure,
    Unknown,
    value_of,
)
from tfdoctor.core.findings import Cause
from tfdoctor.prediction import driver as stage

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts

LIBCUDA = "/usr/lib/libcuda.so.570.1"


def with_driver(facts: Facts, **changes: Any) -> Facts:
    """Return the facts with other fields of DriverFacts."""
    return replace(facts, driver=replace(facts.driver, **changes))


def make_driver(**changes: Any) -> CudaDriver:
    cuda = value_of(healthy().driver.cuda)
    assert cuda is not None
    return replace(cuda, **changes)


MISSING = make_missing("libcuda.so.1")
DENIED = LoadAttempt("/x/libcuda.so.1", PERMISSION_DENIED, "cache")
NO_FILES = with_driver(healthy(), driver_files=())
IN_CONTAINER = with_machine(NO_FILES, container="docker")
NO_HOST_GPU = {"pci": Absent("x"), "kernel_module": Absent("x")}


@pytest.mark.parametrize(
    ("facts", "resolution", "cause"),
    [
        (with_machine(with_driver(healthy(), dxcore="/x"), wsl=2), MISSING, Cause.WSL_LIBCUDA),
        (with_machine(with_driver(healthy(), driver_files=("/a", "/wsl/libcuda.so")), wsl=2), MISSING, Cause.WSL_LIBCUDA),
        (with_machine(NO_FILES, wsl=2), MISSING, Cause.NO_DRIVER),
        (with_driver(NO_FILES, dxcore="/x"), MISSING, Cause.NO_DRIVER),
        (IN_CONTAINER, replace(MISSING, tried=(DENIED,)), Cause.NOT_PERMITTED),
        (IN_CONTAINER, replace(MISSING, path="/x"), Cause.NO_DRIVER),
        (with_machine(healthy(), container="docker"), MISSING, Cause.NO_DRIVER),
        (IN_CONTAINER, MISSING, Cause.CONTAINER_NO_GPU),
        (with_driver(IN_CONTAINER, pci=Absent("x")), MISSING, Cause.CONTAINER_NO_GPU),
        (with_driver(IN_CONTAINER, kernel_module=Absent("x")), MISSING, Cause.CONTAINER_NO_GPU),
        (with_driver(IN_CONTAINER, **NO_HOST_GPU), MISSING, Cause.NO_DRIVER),
        (NO_FILES, MISSING, Cause.NO_DRIVER),
    ],
)  # fmt: skip
def test_missing_libcuda(facts: Facts, resolution: Any, cause: Cause) -> None:
    assert stage.find_missing_driver_cause(facts, resolution) is cause


def test_stubs_and_compat_are_no_driver_files() -> None:
    files = ("/cuda/lib64/stubs/libcuda.so", "/usr/local/cuda/compat/libcuda.so.1", LIBCUDA)
    assert stage.list_driver_files(with_driver(healthy(), driver_files=files)) == (LIBCUDA,)


HIDDEN = with_driver(healthy(), cuda_unhidden=Known(make_driver(), "x"))
LOST = with_driver(
    with_machine(healthy(), container="docker"), smi=Known(SmiFailure("nvml_unknown_error", "", 1), "x")
)
WSL = with_driver(with_machine(healthy(), wsl=2), dxcore="/x")
OLD_MODULE = with_driver(healthy(), kernel_module=Known(KernelModule("535.1", True), "x"))
BARE = with_driver(healthy(), nodes=Absent("x"))


@pytest.mark.parametrize(
    ("facts", "changes", "expected"),
    [
        (healthy(), {}, 1),
        (healthy(), {"crashed": "signal 11", "loaded": False}, Cause.DRIVER_INIT_UNKNOWN),
        (healthy(), {"loaded": False, "load_error": "e"}, Cause.NO_DRIVER),
        (healthy(), {"stand_in": True, "path": None}, Cause.STUB_LIBCUDA),
        (healthy(), {"init": None}, Cause.STUB_LIBCUDA),
        (healthy(), {"count": None}, None),
        (HIDDEN, {"count": None}, Cause.HIDDEN_BY_ENV),
        (HIDDEN, {"count": 0}, Cause.HIDDEN_BY_ENV),
        (HIDDEN, {"init": 999}, Cause.HIDDEN_BY_ENV),
        (HIDDEN, {}, 1),
        (with_driver(HIDDEN, cuda_unhidden=Known(make_driver(count=0), "x")), {"count": 0}, Cause.NO_DEVICE),
        (with_driver(HIDDEN, cuda_unhidden=Unknown("x")), {"count": 0}, Cause.NO_DEVICE),
        (healthy(), {"init": 100}, Cause.NO_DEVICE),
        (healthy(), {"init": 100, "count": None}, Cause.NO_DEVICE),
        (LOST, {"init": 100}, Cause.CONTAINER_NVML_LOST),
        (LOST, {"count": 0}, Cause.CONTAINER_NVML_LOST),
        (WSL, {"count": 0}, Cause.WSL_LIBCUDA),
        (with_machine(BARE, container="docker"), {"count": 0}, Cause.CONTAINER_NO_GPU),
        (BARE, {"count": 0}, Cause.NO_DEVICE),
        (with_machine(healthy(), container="docker"), {"count": 0}, Cause.NO_DEVICE),
        (with_driver(with_machine(BARE, container="docker"), kernel_module=Absent("x")), {"count": 0}, Cause.NO_DEVICE),
        (healthy(), {"init": 34}, Cause.STUB_LIBCUDA),
        (healthy(), {"init": 35, "path": "/cuda/stubs/libcuda.so"}, Cause.STUB_LIBCUDA),
        (healthy(), {"init": 35}, Cause.DRIVER_TOO_OLD),
        (OLD_MODULE, {"init": 36}, Cause.DRIVER_TOO_OLD),
        (healthy(), {"init": 999}, Cause.DRIVER_INIT_UNKNOWN),
        (OLD_MODULE, {"init": 999}, Cause.DRIVER_LIB_MISMATCH),
        (LOST, {"init": 999}, Cause.CONTAINER_NVML_LOST),
        (WSL, {"init": 999}, Cause.WSL_LIBCUDA),
        (healthy(), {"init": 803}, Cause.DRIVER_LIB_MISMATCH),
        (healthy(), {"init": 804}, Cause.COMPAT_NOT_SUPPORTED),
        (OLD_MODULE, {"init": 804}, Cause.DRIVER_LIB_MISMATCH),
        (OLD_MODULE, {"init": 804, "path": "/usr/local/cuda/compat/libcuda.so.1"}, Cause.COMPAT_NOT_SUPPORTED),
        (OLD_MODULE, {"init": 803, "path": None}, Cause.DRIVER_LIB_MISMATCH),
    ],
)  # fmt: skip
def test_driver_stage(facts: Facts, changes: dict[str, Any], expected: Cause | int | None) -> None:
    result = stage.predict_driver_stage(facts, make_driver(**changes))
    assert (result[0] if isinstance(result, tuple) else result) == expected
    if isinstance(result, tuple):
        assert "None" not in result[1]


def test_sentence_names_the_library_even_without_a_path() -> None:
    for changes in ({"stand_in": True}, {"init": None}):
        for path in (LIBCUDA, None):
            result = stage.predict_driver_stage(healthy(), make_driver(**changes, path=path))
            assert isinstance(result, tuple)
            assert result[1].startswith(path or "libcuda.so.1")


@pytest.mark.parametrize(
    ("path", "files", "expected"),
    [
        ("/usr/local/cuda/compat/libcuda.so.1", (), True),
        ("/usr/lib/libcuda.so.550.54.14", ("/x/compat/libcuda.so.550.54.14",), True),
        ("/usr/lib/libcuda.so.550.54.14", ("/x/compat/libcuda.so.560.1",), False),
        ("/usr/lib/libcuda.so.1", ("/x/compat/libcuda.so.1",), False),
        (None, ("/x/compat/",), False),
    ],
)
def test_cuda_compat(path: str | None, files: tuple[str, ...], expected: bool) -> None:
    assert (
        stage.is_cuda_compat(with_driver(healthy(), driver_files=files), make_driver(path=path)) is expected
    )


def make_nvml(**changes: Any) -> Known[Nvml]:
    nvml = value_of(healthy().driver.nvml)
    assert nvml is not None
    return Known(replace(nvml, **changes), "x")


@pytest.mark.parametrize(
    ("changes", "container", "expected"),
    [
        ({"smi": Known(SmiFailure("nvml_unknown_error", "", 1), "x"), "nvml": Unknown("x")}, "docker", True),
        ({"smi": Known(SmiFailure("other", "", 1), "x"), "nvml": make_nvml(init=999)}, "docker", True),
        ({"smi": Known(SmiFailure("other", "", 1), "x"), "nvml": make_nvml(init=9)}, "docker", False),
        ({"nvml": make_nvml(init=999)}, None, False),
        ({"smi": Unknown("x"), "nvml": Unknown("x")}, "docker", False),
    ],
)
def test_lost_devices_of_a_container(changes: dict[str, Any], container: str | None, expected: bool) -> None:
    assert (
        stage.has_lost_devices(with_driver(with_machine(healthy(), container=container), **changes))
        is expected
    )


@pytest.mark.parametrize(
    ("machine", "dxcore", "path", "expected"),
    [
        ({"wsl": 2}, "/x", LIBCUDA, True),
        ({}, "/x", LIBCUDA, False),
        ({"wsl": 2, "container": "docker"}, "/x", LIBCUDA, False),
        ({"wsl": 2}, None, LIBCUDA, False),
        ({"wsl": 2}, "/x", "/usr/lib/wsl/lib/libcuda.so", False),
        ({"wsl": 2}, "/x", None, False),
    ],
)
def test_linux_driver_in_wsl(
    machine: dict[str, Any], dxcore: str | None, path: str | None, expected: bool
) -> None:
    facts = with_driver(with_machine(healthy(), **machine), dxcore=dxcore)
    assert stage.is_linux_driver_in_wsl(facts, make_driver(path=path)) is expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("nvidiactl",), False), (("nvidiactl", "nvidia3"), True), (("dxg",), True), (("nvidia-uvm",), False)],
)
def test_gpu_nodes(names: tuple[str, ...], expected: bool) -> None:
    assert stage.has_gpu_nodes(with_driver(healthy(), nodes=Known(DeviceNodes(names), "x"))) is expected


@pytest.mark.parametrize(
    ("module", "nvml", "path", "expected"),
    [
        ("535.1", "570.1", None, ("535.1", "570.1")),
        ("535.1", "570.1", "/libcuda.so.535.1", ("535.1", "570.1")),
        ("570.01", "570.1", None, None),
        ("535.1", None, "/libcuda.so.570.1", ("535.1", "570.1")),
        ("535.1", None, "/libcuda.so.1", None),
        ("535.1", None, None, None),
        (None, "570.1", "/libcuda.so.570.1", None),
    ],
)
def test_versions_of_kernel_module_and_libraries(
    module: str | None, nvml: str | None, path: str | None, expected: tuple[str, str] | None
) -> None:
    facts = with_driver(
        healthy(),
        kernel_module=Known(KernelModule(module, True), "x") if module else Unknown("x"),
        nvml=make_nvml(driver_version=nvml),
        cuda=Known(make_driver(path=path), "x"),
    )
    assert stage.find_kernel_module_mismatch(facts) == expected
    without_nvml = with_driver(facts, nvml=Unknown("x"), cuda=Unknown("x"))
    assert stage.find_kernel_module_mismatch(without_nvml) is None
