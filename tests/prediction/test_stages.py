"""Stages of the prediction that depend on facts alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import (
    COMPAT,
    SITE,
    context,
    cpu_only,
    finding,
    healthy,
    make_missing,
    with_environment,
    with_loader,
    with_machine,
    with_python,
    with_tensorflow,
    without_tensorflow,
)
from tfdoctor.core.facts import Absent, CudaDevice, Distribution, Known, Unknown, value_of
from tfdoctor.core.facts.python import DeniedPath, StartupFailure, UnusablePython
from tfdoctor.core.findings import Cause
from tfdoctor.prediction.build import describe_build
from tfdoctor.prediction.stages import explain_disabled_device_types, predict
from tfdoctor.rules import hidden_by_env

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts


@pytest.mark.parametrize(
    ("version", "value", "ends"),
    [
        ("2.20.0", "--tf_xla_no_such_flag", True),
        ("2.10.1", "--tf_xla_auto_jit=2 --tf_xla_enable_xla_device", True),
        ("2.18.1", "--xla_gpu_cuda_data_dir=/usr/local/cuda", True),
        ("2.18.1", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit", False),
        ("2.18.1", "", False),
        ("2.18.1", "flags.txt", False),
        ("1.15.5", "--tf_xla_no_such_flag", False),
    ],
)
def test_unknown_xla_flag_ends_the_process(version: str, value: str, ends: bool) -> None:
    facts = with_environment(healthy(version), TF_XLA_FLAGS=value)
    prediction = predict(facts, COMPAT)
    assert (prediction.cause is Cause.HIDDEN_BY_ENV) is ends
    assert prediction.gpu_registered is not ends or version == "1.15.5"
    if ends:
        assert "TF_XLA_FLAGS" in finding(hidden_by_env.RULE, facts).title
        assert context(facts).prediction.import_ok


@pytest.mark.parametrize(
    ("version", "python", "name", "value", "stops"),
    [
        ("2.20.0", "3.11.4", "PYTHONOPTIMIZE", "2", True),
        ("2.20.0", "3.11.4", "PYTHONOPTIMIZE", "1", False),
        ("2.20.0", "3.11.4", "PYTHONOPTIMIZE", "yes", False),
        ("2.21.0", "3.11.4", "PYTHONOPTIMIZE", "2", False),
        ("2.4.4", "3.8.4", "PYTHONWARNINGS", "default,error", True),
        ("2.4.4", "3.8.4", "PYTHONWARNINGS", "ignore", False),
        ("2.20.0", "3.11.4", "PYTHONWARNINGS", "error", False),
        ("2.18.1", "3.12.4", "SETUPTOOLS_USE_DISTUTILS", "stdlib", True),
        ("2.18.1", "3.12.4", "SETUPTOOLS_USE_DISTUTILS", "local", False),
        ("2.18.1", "3.11.4", "SETUPTOOLS_USE_DISTUTILS", "stdlib", False),
        ("2.20.0", "3.12.4", "SETUPTOOLS_USE_DISTUTILS", "stdlib", False),
        ("2.20.0", "3.11.4", "KERAS_BACKEND", "theano", True),
        ("2.20.0", "3.11.4", "KERAS_BACKEND", "jax", False),
        ("2.15.1", "3.11.4", "KERAS_BACKEND", "theano", False),
    ],
)
def test_variable_can_stop_the_import(version: str, python: str, name: str, value: str, stops: bool) -> None:
    keras = Distribution("keras", "2.15.0" if version == "2.15.1" else "3.12.0", SITE)
    facts = with_environment(
        with_python(healthy(version), version=python, distributions=(keras,)), **{name: value}
    )
    prediction = predict(facts, COMPAT)
    assert (prediction.cause is Cause.HIDDEN_BY_ENV) is stops
    if stops:
        assert not prediction.import_ok
        problem = finding(hidden_by_env.RULE, facts)
        assert name in problem.title
        assert problem.remedies[0].commands[0] == f"unset {name}"


# ---------------------------------------------------------------- one stage at a time


def with_driver(facts: Facts, **changes: Any) -> Facts:
    """Return the facts with other fields of DriverFacts."""
    return replace(facts, driver=replace(facts.driver, **changes))


def with_nvml(**changes: Any) -> Facts:
    nvml = value_of(healthy("2.21.0").driver.nvml)
    assert nvml is not None
    return with_driver(healthy("2.21.0"), nvml=Known(replace(nvml, **changes), "x"))


def with_devices(*devices: CudaDevice, facts: Facts | None = None, **variables: str) -> Facts:
    facts = facts or healthy()
    cuda = value_of(facts.driver.cuda)
    assert cuda is not None
    cuda = replace(cuda, devices=devices, count=len(devices))
    return with_environment(with_driver(facts, cuda=Known(cuda, "x")), **variables)


def make_device(
    capability: str | None = "9.0", multiprocessors: int | None = 40, **fields: Any
) -> CudaDevice:
    return CudaDevice(0, "x", None, None, capability, 8000, multiprocessors, **fields)


CUDNN = make_missing("libcudnn.so.9")
TROUBLE = StartupFailure("denied", "/env/bin/python", "may not be run")


@pytest.mark.parametrize(
    ("facts", "registered", "import_ok", "cause"),
    [
        (healthy(), True, True, None),
        (replace(healthy(), python=UnusablePython("x", "y", TROUBLE)), False, False, Cause.NOT_PERMITTED),
        (replace(healthy(), python=UnusablePython("x", "y", replace(TROUBLE, kind="site"))), False, False, Cause.PYTHON_UNUSABLE),
        (replace(healthy(), python=UnusablePython("x", "y", replace(TROUBLE, kind="rubbish"))), True, True, None),
        (replace(healthy(), python=UnusablePython("x", "y", replace(TROUBLE, ended=False))), True, True, None),
        (replace(healthy(), python=UnusablePython("x", "y")), True, True, None),
        (with_python(healthy(), closed=(DeniedPath(f"{SITE}/tensorflow", closed="/env"),)), False, False, Cause.NOT_PERMITTED),
        (replace(healthy(), tensorflow=Absent("x")), False, False, Cause.DAMAGED_FILE),
        (without_tensorflow(healthy()), False, False, Cause.TENSORFLOW_MISSING),
        (replace(healthy(), tensorflow=Unknown("x")), None, None, None),
        (with_tensorflow(healthy(), build_info={"is_rocm_build": "True"}), None, None, None),
        (with_tensorflow(healthy(), missing_files=("a",)), False, False, Cause.DAMAGED_FILE),
        (cpu_only("2.18.1"), False, True, Cause.CPU_ONLY_BUILD),
        (with_machine(cpu_only("2.18.1"), system="Windows"), False, True, Cause.WINDOWS_NATIVE_UNSUPPORTED),
        (with_machine(cpu_only("2.10.1"), system="Windows"), False, True, Cause.CPU_ONLY_BUILD),
        (with_python(cpu_only("2.18.1"), installed={"tensorflow-cpu": "2.18.1"}), False, True, Cause.BOTH_PACKAGES),
        (replace(cpu_only("2.18.1"), rehearsal=Unknown("x")), False, None, Cause.CPU_ONLY_BUILD),
        (replace(healthy(), rehearsal=Unknown("x")), None, None, None),
        (with_tensorflow(healthy("2.18.1"), version="2.99.0", build_info={}, cuda_config={}), None, True, None),
        (replace(healthy(), loader=Unknown("x")), None, True, None),
        (with_driver(healthy(), cuda=Unknown("x")), None, True, None),
        (with_loader(healthy(), make_missing("libcuda.so.1")), False, True, Cause.NO_DRIVER),
        (with_loader(healthy("2.21.0"), make_missing("libnvidia-ml.so.1")), False, True, Cause.NVML_MISSING),
        (with_loader(healthy("2.18.1"), make_missing("libnvidia-ml.so.1")), True, True, None),
        (with_nvml(init=9), False, True, Cause.NVML_MISSING),
        (with_nvml(init=18), False, True, Cause.DRIVER_LIB_MISMATCH),
        (with_nvml(init=9, loaded=False), True, True, None),
        (with_nvml(init=None), True, True, None),
        (with_machine(with_nvml(init=999), container="docker"), False, True, Cause.CONTAINER_NVML_LOST),
        (with_loader(healthy(), CUDNN), False, True, Cause.CUDNN_MISSING),
        (with_devices(make_device("3.4")), False, True, Cause.GPU_TOO_OLD),
        (with_devices(make_device("3.5")), True, True, None),
        (with_devices(make_device(None)), True, True, None),
        (with_devices(make_device(), TF_MIN_GPU_MULTIPROCESSOR_COUNT="41"), False, True, Cause.HIDDEN_BY_ENV),
        (with_devices(make_device(), TF_MIN_GPU_MULTIPROCESSOR_COUNT="40"), True, True, None),
        (with_devices(make_device(attribute_error=3), facts=healthy("2.21.0")), False, True, Cause.DRIVER_INIT_UNKNOWN),
        (with_environment(healthy(), TF_ENABLED_DEVICE_TYPES="CPU"), False, True, Cause.HIDDEN_BY_ENV),
    ],
)  # fmt: skip
def test_first_failing_stage_decides(
    facts: Facts, registered: bool | None, import_ok: bool | None, cause: Cause | None
) -> None:
    prediction = predict(facts, COMPAT)
    assert (prediction.gpu_registered, prediction.import_ok, prediction.cause) == (
        registered,
        import_ok,
        cause,
    )
    assert prediction.reasons
    assert (prediction.gpu_count is None) is (registered is None)


LATE = Unknown("no time was left", "the look")


def with_silent_driver(facts: Facts) -> Facts:
    return with_driver(facts, cuda=LATE)


@pytest.mark.parametrize(
    ("facts", "cause", "import_ok"),
    [
        (replace(with_loader(healthy(), CUDNN), rehearsal=LATE), Cause.CUDNN_MISSING, None),
        (with_silent_driver(with_loader(healthy(), CUDNN)), Cause.CUDNN_MISSING, True),
        (with_silent_driver(with_environment(healthy(), CUDA_VISIBLE_DEVICES="-1")), Cause.HIDDEN_BY_ENV, True),
        (with_silent_driver(with_environment(healthy(), CUDA_VISIBLE_DEVICES="")), Cause.HIDDEN_BY_ENV, True),
        (with_silent_driver(with_environment(healthy(), TF_ENABLED_DEVICE_TYPES="CPU")), Cause.HIDDEN_BY_ENV, True),
        (replace(with_devices(make_device("3.4")), rehearsal=LATE), Cause.GPU_TOO_OLD, None),
        (replace(with_nvml(init=9), rehearsal=LATE), Cause.NVML_MISSING, None),
        (replace(with_environment(healthy(), TF_XLA_FLAGS="--tf_xla_no"), rehearsal=LATE), Cause.HIDDEN_BY_ENV, None),
        (replace(with_devices(), rehearsal=LATE, loader=LATE), Cause.NO_DEVICE, None),
        (replace(with_devices(), tensorflow=LATE, loader=LATE), Cause.NO_DEVICE, None),
        (replace(cpu_only("2.18.1"), rehearsal=LATE, loader=LATE), Cause.CPU_ONLY_BUILD, None),
    ],
)  # fmt: skip
def test_decisive_fact_is_not_lost(facts: Facts, cause: Cause, import_ok: bool | None) -> None:
    prediction = predict(facts, COMPAT)
    assert (prediction.gpu_registered, prediction.gpu_count) == (False, 0)
    assert (prediction.cause, prediction.import_ok) == (cause, import_ok)


def test_variable_that_hides_all_devices_is_reported_if_the_driver_is_silent() -> None:
    facts = with_silent_driver(with_environment(healthy(), CUDA_VISIBLE_DEVICES="-1"))
    problem = finding(hidden_by_env.RULE, facts)
    assert "CUDA_VISIBLE_DEVICES" in problem.title
    assert problem.remedies[0].commands[0] == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    "facts",
    [
        replace(healthy(), rehearsal=LATE),
        replace(healthy(), loader=LATE),
        replace(healthy(), tensorflow=LATE),
        with_silent_driver(healthy()),
        with_silent_driver(with_environment(healthy(), CUDA_VISIBLE_DEVICES="0,-1")),
    ],
)
def test_late_fact_alone_leaves_the_prediction_open(facts: Facts) -> None:
    prediction = predict(facts, COMPAT)
    assert (prediction.gpu_registered, prediction.gpu_count, prediction.cause) == (None, None, None)
    assert "no time was left" in prediction.reasons[-1]


@pytest.mark.parametrize(
    ("devices", "setting", "count"),
    [
        ((make_device(), make_device(multiprocessors=7)), "", 1),
        ((make_device(), make_device(multiprocessors=8)), "", 2),
        ((make_device(multiprocessors=3), make_device(multiprocessors=2)), "", 1),
        ((make_device(multiprocessors=None), make_device(multiprocessors=3)), "", 2),
        ((make_device(multiprocessors=None),), "", 1),
        ((make_device(multiprocessors=0), make_device()), "", 1),
        ((make_device(), make_device(multiprocessors=2)), " +2 ", 2),
        ((make_device(), make_device(multiprocessors=2)), "-1", 2),
        ((make_device(), make_device(multiprocessors=2)), "two", 1),
        ((make_device("3.0"), make_device("9.0")), "1", 1),
    ],
)
def test_small_devices_are_left_out(devices: tuple[CudaDevice, ...], setting: str, count: int) -> None:
    prediction = predict(with_devices(*devices, TF_MIN_GPU_MULTIPROCESSOR_COUNT=setting), COMPAT)
    assert prediction.gpu_count == count


@pytest.mark.parametrize(
    ("version", "value", "is_disabled"),
    [
        ("2.18.1", "GPU,CPU", False),
        ("2.18.1", "CPU,XLA_GPU", True),
        ("2.18.1", " GPU,CPU", True),
        ("2.18.1", "GPU", True),
        ("2.18.1", "", False),
        ("1.15.5", "CPU", False),
    ],
)
def test_device_types_are_compared_literally(version: str, value: str, is_disabled: bool) -> None:
    tensorflow = value_of(healthy(version).tensorflow)
    assert tensorflow is not None
    reason = explain_disabled_device_types(
        describe_build(tensorflow, COMPAT), {"TF_ENABLED_DEVICE_TYPES": value}
    )
    assert bool(reason) is is_disabled


@pytest.mark.parametrize(("count", "text"), [(1, "shows 1 device."), (2, "shows 2 devices.")])
def test_number_of_devices_is_named(count: int, text: str) -> None:
    assert text in " ".join(predict(with_devices(*[make_device()] * count), COMPAT).reasons)
