"""What the installed build is, from its own files or else from the release table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rules.make_facts import COMPAT, SITE, healthy, with_python
from tfdoctor.core.facts import Absent, Distribution, TensorFlowFacts, Unknown, value_of
from tfdoctor.core.facts.python import DeniedPath
from tfdoctor.prediction import build


def make_tensorflow(
    version: str | None = "2.18.1", distribution: str = "tensorflow", **changes: Any
) -> TensorFlowFacts:
    """Return a TensorFlow that does not describe itself."""
    tensorflow = value_of(healthy("2.18.1").tensorflow)
    assert tensorflow is not None
    fields: dict[str, Any] = {"build_info": {}, "cuda_config": {}, "pywrap": None, **changes}
    return replace(tensorflow, version=version, distribution=distribution, **fields)


@pytest.mark.parametrize(
    ("tensorflow", "has_gpu_code"),
    [
        (make_tensorflow(build_info={"is_cuda_build": "True"}, distribution="tensorflow-cpu"), True),
        (make_tensorflow(build_info={"is_cuda_build": "False"}, cuda_config={"TF_CUDA_VERSION": "12"}), False),
        (make_tensorflow(cuda_config={"TF_CUDA_VERSION": "12"}, distribution="tensorflow-cpu"), True),
        *((make_tensorflow(distribution=name), False) for name in ("tensorflow-cpu", "tf-nightly-cpu", "intel-tensorflow")),
        (make_tensorflow("2.99.0", distribution="tensorflow-macos"), False),
        (make_tensorflow(), True),
        (make_tensorflow("1.14.0"), False),
        (make_tensorflow("2.99.0", build_info={"is_cuda_build": "maybe"}), False),
        (make_tensorflow("2.99.0", build_info={"a": "b"}, cuda_config={"c": "d"}), None),
        (make_tensorflow("2.99.0", pywrap="/x.so"), None),
        (make_tensorflow("2.99.0"), None),
        (make_tensorflow(None), None),
        (make_tensorflow("not a version"), None),
    ],
)  # fmt: skip
def test_gpu_code_is_known_from_the_most_specific_source(
    tensorflow: TensorFlowFacts, has_gpu_code: bool | None
) -> None:
    assert build.describe_build(tensorflow, COMPAT).has_gpu_code is has_gpu_code


def test_nearest_release_gives_no_versions() -> None:
    exact = build.describe_build(make_tensorflow(), COMPAT)
    assert (exact.is_exact_release, exact.cuda, exact.cudnn) == (
        True,
        "12.5.1",
        exact.release and exact.release.cudnn,
    )
    near = build.describe_build(make_tensorflow("2.18.99", build_info={"is_cuda_build": "True"}), COMPAT)
    assert (near.is_exact_release, near.cuda, near.cudnn) == (False, None, None)
    assert near.release is not None
    assert near.required_libraries == near.release.required_libraries
    older = value_of(healthy("2.10.1").tensorflow)
    assert older is not None
    own = {**older.cuda_config, "TF_CUDA_VERSION": "11.2", "TF_CUDNN_VERSION": "8.1"}
    info = {"is_cuda_build": "True", "cuda_version": "10.1", "cudnn_version": "7"}
    described = build.describe_build(make_tensorflow(cuda_config=own, build_info=info), COMPAT)
    assert (described.cuda, described.cudnn) == ("11.2", "8.1")
    assert "libcudart.so.11.0" in described.required_libraries
    described = build.describe_build(make_tensorflow(build_info={**info, "is_rocm_build": "True"}), COMPAT)
    assert (described.cuda, described.cudnn, described.is_rocm) == ("10.1", "7", True)
    unknown = build.describe_build(make_tensorflow(None), COMPAT)
    assert (unknown.version, unknown.minor_numbers, unknown.linkage, unknown.is_rocm) == (
        None,
        (),
        "none",
        False,
    )
    assert (unknown.required_libraries, unknown.driver_libraries) == ((), ())


@pytest.mark.parametrize(
    ("version", "linkage", "caller", "first"),
    [
        ("2.18.1", "dlopen", "framework", "libcudart.so.12"),
        ("1.4.0", "needed", "pywrap", "libcuda.so.1"),
    ],
)
def test_libraries_are_opened_in_order(version: str, linkage: str, caller: str, first: str) -> None:
    tensorflow = make_tensorflow(version, "tensorflow-gpu" if version[0] == "1" else "tensorflow")
    described = build.describe_build(tensorflow, COMPAT)
    sonames = build.list_opened_sonames(described)
    assert described.linkage == linkage
    assert sorted(sonames) == sorted({*described.driver_libraries, *described.required_libraries})
    assert sonames[0] == first
    runtime_first = replace(described, traits=frozenset({"runtime-first"}))
    assert build.list_opened_sonames(runtime_first)[0].startswith("libcudart.")
    assert sorted(build.list_opened_sonames(runtime_first)) == sorted(sonames)
    assert build.list_opened_sonames(replace(described, traits=frozenset()))[0] == "libcuda.so.1"
    by_caller = {"pywrap": frozenset({"opened-by-pywrap"}), "framework": frozenset[Any]()}
    assert build.find_dlopen_caller(replace(described, traits=by_caller[caller])) == caller


def test_lowest_capability_that_is_registered() -> None:
    floor = build.find_capability_floor
    release = COMPAT.find_release("2.18.1", "tensorflow")
    linked = next(
        row
        for row in COMPAT.releases
        if row.gpu and row.cubin and COMPAT.find_registration(row.version).is_linked
    )
    assert release is not None
    assert floor(replace(release, registration_floor="6.0"), COMPAT) == "6.0"
    assert floor(replace(release, registration_floor=None), COMPAT) == build.DEFAULT_MIN_CAPABILITY
    assert floor(replace(linked, registration_floor=None, cubin=("10.0", "5.2", "6.1")), COMPAT) == "5.2"
    assert floor(replace(linked, registration_floor=None, cubin=()), COMPAT) == build.DEFAULT_MIN_CAPABILITY
    assert floor(replace(linked, registration_floor="3.0", cubin=("5.2",)), COMPAT) == "3.0"


def test_builds_of_the_same_folder_are_listed() -> None:
    facts = healthy()
    python = value_of(facts.python)
    assert python is not None
    added = (
        Distribution("tensorflow-cpu", "2.17.0", SITE),
        Distribution("tensorflow-intel", "2.17.0", SITE),
        Distribution("tf-nightly", "2.20", "/elsewhere"),
    )
    facts = with_python(facts, distributions=(*python.distributions, *added))
    assert build.list_installed_builds(facts) == ("tensorflow 2.18.1", "tensorflow-cpu 2.17.0")
    assert build.list_installed_builds(replace(facts, tensorflow=Absent("x"))) == ()
    assert build.list_installed_builds(replace(facts, python=Unknown("x"))) == ()


@pytest.mark.parametrize(
    ("path", "has_tensorflow", "counts"),
    [
        (f"{SITE}/tensorflow", True, True),
        (f"{SITE}/tensorflow/__init__.py", True, True),
        (f"{SITE}/tensorflow/python", True, True),
        (f"{SITE}/tensorflow/lite", True, False),
        (f"{SITE}/numpy", True, True),
        (f"{SITE}/six.py", True, True),
        (f"{SITE}/numpy-1.0.dist-info", True, False),
        (f"{SITE}/numpy.egg-info", True, False),
        (f"{SITE}/numpy/core", True, False),
        (SITE, True, False),
        (SITE, False, True),
        ("/path", True, False),
        (f"{SITE}/tensorflow/__init__.py", False, True),
        ("/path/tensorflow/__init__.py", False, True),
        ("/other", False, False),
    ],
)
def test_unreadable_path_of_the_import(path: str, has_tensorflow: bool, counts: bool) -> None:
    denied = DeniedPath(path, closed=path)
    facts = with_python(healthy(), closed=(DeniedPath("/x", closed="/x"), denied), sys_path=("/path", SITE))
    if not has_tensorflow:
        facts = replace(facts, tensorflow=Absent("x"))
    assert build.find_unreadable_package(facts) == (denied if counts else None)
    assert build.find_unreadable_package(replace(facts, python=Unknown("x"))) is None
    assert build.find_unreadable_package(replace(facts, tensorflow=Unknown("x"))) is None


@pytest.mark.parametrize(
    ("package", "has_tensorflow", "counts"),
    [("tensorflow", False, True), ("tensorflow", True, False), ("nvidia", False, False)],
)
def test_folder_that_this_user_may_not_enter(package: str, has_tensorflow: bool, counts: bool) -> None:
    """To Python, there is no package in it: only its registered files show that it is closed."""
    folder = f"{SITE}/{package}"
    denied = DeniedPath(f"{folder}/python/x.so", closed=folder, owner="root", mode="700")
    facts = with_python(healthy(), closed=(denied,), sys_path=("/path", SITE))
    if not has_tensorflow:
        facts = replace(facts, tensorflow=Absent("x"))
    assert build.find_unreadable_package(facts) == (denied if counts else None)


def test_metadata_without_package() -> None:
    facts = replace(healthy(), tensorflow=Absent("x"))
    assert [dist.name for dist in build.find_distributions_without_package(facts)] == ["tensorflow"]
    assert build.find_distributions_without_package(healthy()) == ()
    assert build.find_distributions_without_package(replace(facts, tensorflow=Unknown("x"))) == ()
    assert build.find_distributions_without_package(replace(facts, python=Unknown("x"))) == ()
