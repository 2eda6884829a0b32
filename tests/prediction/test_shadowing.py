"""Two TensorFlows on the path, and folders that are put first on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import (
    COMPAT,
    SITE,
    cpu_only,
    healthy,
    make_missing,
    with_environment,
    with_loader,
    with_python,
    with_tensorflow,
)
from tfdoctor.core.facts import MODULE_PATH, Absent, Distribution, Unknown, value_of
from tfdoctor.core.facts.loading import Origin
from tfdoctor.core.findings import Cause
from tfdoctor.prediction import shadowing
from tfdoctor.prediction.stages import predict

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts

FIRST = "/home/me/first"


def with_two(first: Facts, second: Facts) -> Facts:
    """Return the facts of `second`, with the TensorFlow of `first` in a folder before it."""
    behind, tensorflow, python = (
        value_of(second.tensorflow),
        value_of(first.tensorflow),
        value_of(second.python),
    )
    assert behind is not None
    assert tensorflow is not None
    assert python is not None
    moved = replace(tensorflow, package_dir=f"{FIRST}/tensorflow", core_dir=f"{FIRST}/tensorflow")
    facts = with_python(
        second,
        sys_path=(f"{FIRST}/", *python.sys_path),
        distributions=(Distribution("tensorflow", tensorflow.version or "", FIRST), *python.distributions),
    )
    names = ("package_dir", "core_dir", "version", "build_info", "cuda_config", "missing_files")
    facts = with_tensorflow(facts, **{name: getattr(moved, name) for name in names}, behind=behind)
    return replace(facts, loader=first.loader, loader_behind=second.loader)


def test_first_tensorflow_is_dropped_with_its_folder() -> None:
    facts = with_two(cpu_only("2.15.1"), healthy())
    dropped = shadowing.drop_first_tensorflow(facts)
    assert dropped is not None
    python, tensorflow = value_of(dropped.python), value_of(dropped.tensorflow)
    assert python is not None
    assert tensorflow is not None
    assert python.sys_path == (SITE,)
    assert FIRST not in {distribution.location for distribution in python.distributions}
    assert (tensorflow.version, tensorflow.behind) == ("2.18.1", None)
    assert dropped.loader is facts.loader_behind
    assert isinstance(dropped.rehearsal, Absent)
    for changed in (healthy(), replace(facts, python=Unknown("x")), replace(facts, tensorflow=Unknown("x"))):
        assert shadowing.drop_first_tensorflow(changed) is None


NO_CUDNN = with_loader(healthy(), make_missing("libcudnn.so.9"))
BROKEN = with_tensorflow(healthy(), missing_files=("a",))


@pytest.mark.parametrize(
    ("first", "second", "is_shadowed"),
    [
        (cpu_only("2.15.1"), healthy(), True),
        (cpu_only("2.15.1"), NO_CUDNN, True),
        (cpu_only("2.15.1"), cpu_only("2.18.1"), False),
        (cpu_only("2.15.1"), BROKEN, False),
        (NO_CUDNN, healthy(), True),
        (NO_CUDNN, NO_CUDNN, False),
        (healthy(), cpu_only("2.18.1"), False),
        (healthy(), healthy(), False),
    ],
)
def test_second_tensorflow_counts_if_it_works_better(first: Facts, second: Facts, is_shadowed: bool) -> None:
    prediction = predict(with_two(first, second), COMPAT)
    assert (prediction.cause is Cause.SHADOWED_MODULE) is is_shadowed
    assert prediction.gpu_registered is (first == healthy())


@pytest.mark.parametrize(
    ("taken", "folder"),
    [
        ("/a/tensorflow/__init__.py", "/a"),
        ("/a/tensorflow/", "/a"),
        ("/a/six.py", "/a"),
    ],
)
def test_folder_of_a_module(taken: str, folder: str) -> None:
    assert shadowing.get_sys_path_folder(taken) == folder


def with_origin(facts: Facts, folder: str) -> Facts:
    origin = Origin(MODULE_PATH, "x.pth", folder)
    return replace(facts, environment=replace(facts.environment, origins=(origin,)))


@pytest.mark.parametrize(
    ("sys_path", "folder", "origin"),
    [
        (("/put", SITE), "/put", MODULE_PATH),
        (("/put/", SITE), "/put", MODULE_PATH),
        ((SITE, "/put"), "/put", None),
        ((SITE, "/put", "/site2"), "/put", MODULE_PATH),
        (("/put",), "/put", MODULE_PATH),
        ((SITE,), "/put", None),
        (("/put", SITE), "/other", None),
    ],
)
def test_folder_that_startup_puts_first(sys_path: tuple[str, ...], folder: str, origin: str | None) -> None:
    facts = with_python(healthy(), sys_path=sys_path, site_packages=(f"{SITE}/", "/site2"))
    found = shadowing.find_leading_folder(with_origin(facts, "/put"), folder)
    assert (found.origin if found else None) == origin
    assert shadowing.find_leading_folder(facts, folder) is None
    assert (
        shadowing.find_leading_folder(with_origin(replace(facts, python=Unknown("x")), "/put"), folder)
        is None
    )


def test_folder_of_pythonpath() -> None:
    facts = with_environment(healthy(), PYTHONPATH="/a:/put/./:/b")
    assert shadowing.find_leading_folder(facts, "/put") == shadowing.LeadingFolder("PYTHONPATH", "/put/./")
    assert shadowing.find_leading_folder(facts, "/put/x") is None


def test_package_of_a_leading_folder() -> None:
    python = value_of(healthy().python)
    assert python is not None
    numpy = Distribution("numpy", "2", "/put/")
    facts = with_python(
        with_environment(healthy(), PYTHONPATH="/put"), distributions=(numpy, *python.distributions)
    )
    assert shadowing.find_leading_package(facts, "numpy") == numpy
    assert shadowing.find_leading_package(facts, "six") is None
    assert shadowing.find_leading_package(facts, "absent") is None
    assert shadowing.find_leading_package(replace(facts, python=Unknown("x")), "numpy") is None
    assert shadowing.find_leading_package(replace(facts, tensorflow=Unknown("x")), "numpy") is None
    same = with_tensorflow(facts, package_dir="/put/tensorflow")
    assert shadowing.find_leading_package(same, "numpy") is None
