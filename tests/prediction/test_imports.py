"""Whether `import tensorflow` works, and why it fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import (
    COMPAT,
    SITE,
    healthy,
    make_failed_import,
    with_loader,
    with_machine,
    with_python,
    with_tensorflow,
)
from tfdoctor.core.facts import PERMISSION_DENIED, Distribution, LoadAttempt, Resolution, Unknown, value_of
from tfdoctor.core.facts.imports import FileDifference
from tfdoctor.core.facts.loading import RemovedEntriesResult, ReplacedLibrary
from tfdoctor.core.findings import Cause
from tfdoctor.prediction import imports
from tfdoctor.prediction.build import describe_build

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts


def find_cause(facts: Facts) -> Cause | None:
    """Return why the import fails; None if it works."""
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    failure = imports.find_import_failure(facts, tensorflow, describe_build(tensorflow, COMPAT), COMPAT)
    return failure[0] if failure is not None else None


def with_damage(*differences: tuple[str, str], other_build: bool = False) -> Facts:
    """Return facts of a TensorFlow whose files differ from its RECORD."""
    python = value_of(healthy().python)
    assert python is not None
    damaged = tuple(FileDifference(path, kind) for path, kind in differences)
    distributions = tuple(
        replace(dist, differs=damaged) if dist.name == "tensorflow" else dist for dist in python.distributions
    )
    added = (Distribution("tensorflow-cpu", "2.18.1", SITE),) if other_build else ()
    return with_python(healthy(), distributions=(*distributions, *added))


INIT = f"{SITE}/tensorflow/__init__.py"
CRASH = Resolution("libcudart.so.12", None, "", "/x/libcudart.so.12: truncated", crash=True)


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (healthy(), None),
        (with_tensorflow(healthy(), shadowed_by="/here/tensorflow.py"), Cause.SHADOWED_MODULE),
        (with_tensorflow(healthy(), shadowed_by=INIT), None),
        (with_tensorflow(healthy(), missing_files=("a",)), Cause.DAMAGED_FILE),
        (with_damage(("tensorflow/__init__.py", "unreadable"), ("tensorflow/a.py", "empty")), Cause.NOT_PERMITTED),
        *((with_damage(("tensorflow/__init__.py", kind)), Cause.DAMAGED_FILE) for kind in ("missing", "empty", "syntax")),
        (with_damage(("tensorflow/__init__.py", "cut")), None),
        (with_damage(("tensorflow/a.so", "cut")), Cause.DAMAGED_FILE),
        (with_damage(("tensorflow/a.so", "cut"), other_build=True), None),
        (with_damage(("tensorflow/a.so", "missing"), other_build=True), Cause.DAMAGED_FILE),
        (with_damage(("tensorflow/__init__.py", "changed")), None),
        (with_loader(healthy(), CRASH), Cause.DAMAGED_FILE),
        (with_loader(healthy(), replace(CRASH, crash=False)), None),
        (with_loader(healthy("2.3.4"), replace(CRASH, soname="libcudart.so.10.1")), None),
        (with_loader(healthy(), replace(CRASH, soname="libcublas.so.12")), None),
        (with_machine(healthy(), cpu_flags=frozenset({"sse2"})), Cause.ILLEGAL_INSTRUCTION_AVX),
        (with_machine(healthy(), cpu_flags=frozenset()), None),
        (with_machine(healthy(), cpu_flags=frozenset({"sse2"}), machine="aarch64"), None),
        (with_machine(healthy(), cpu_flags=frozenset({"sse2"}), machine="AMD64"), Cause.ILLEGAL_INSTRUCTION_AVX),
        (with_tensorflow(with_machine(healthy(), cpu_flags=frozenset({"x"})), conda_build="h1"), None),
        (with_tensorflow(with_machine(healthy(), cpu_flags=frozenset({"x"})), version="2.18.99"), None),
        (with_loader(healthy(), plugins=(make_failed_import("e", ("a",)),)), Cause.PACKAGE_CONFLICT),
        (with_loader(healthy(), plugins=(make_failed_import("", ()),)), None),
        (replace(healthy(), loader=Unknown("x")), None),
        (replace(healthy(), python=Unknown("x")), None),
    ],
)  # fmt: skip
def test_first_reason_decides(facts: Facts, cause: Cause | None) -> None:
    assert find_cause(facts) is cause


def test_instructions_of_the_release_or_else_its_trait_decide() -> None:
    facts = with_machine(healthy(), cpu_flags=frozenset({"x"}))
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    build = describe_build(tensorflow, COMPAT)
    assert build.release is not None
    for instructions, traits, expected in (
        (("avx",), frozenset(), True),
        (("avx2",), frozenset({"avx"}), False),
        (None, frozenset({"avx"}), True),
        (None, frozenset(), False),
    ):
        changed = replace(build, traits=traits, release=replace(build.release, cpu_instructions=instructions))
        assert imports.lacks_avx(facts, tensorflow, changed) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("missing", "error", "cause"),
    [
        (("x",), "undefined symbol: a", Cause.PACKAGE_CONFLICT),
        (("x",), "file too short", Cause.DAMAGED_FILE),
        (("x", "y"), "file too short", Cause.PACKAGE_CONFLICT),
        ((), "file too short", Cause.DAMAGED_FILE),
    ],
)
def test_cause_of_a_plugin_that_does_not_load(missing: tuple[str, ...], error: str, cause: Cause) -> None:
    assert imports.choose_plugin_cause(Resolution("x", None, "", error, missing)) is cause


LIBCUDA = make_failed_import("libcuda.so.1: not found", ("libcuda.so.1",))
OWN = f"{SITE}/tensorflow/libtensorflow_framework.so.2"


@pytest.mark.parametrize(
    ("version", "resolution", "cause"),
    [
        ("2.18.1", replace(LIBCUDA, tried=(LoadAttempt("/a/libcuda.so.1", PERMISSION_DENIED, "x"),)), Cause.NOT_PERMITTED),
        ("2.18.1", make_failed_import("libc.so.6: version `GLIBC_2.30' not found"), Cause.GLIBC_TOO_OLD),
        ("2.18.1", make_failed_import("version `GLIBCXX_3.4.30' not found"), Cause.LIBSTDCXX_TOO_OLD),
        ("2.18.1", make_failed_import("version `CXXABI_1.3.13' not found"), Cause.LIBSTDCXX_TOO_OLD),
        ("1.4.0", LIBCUDA, Cause.NO_DRIVER),
        ("1.4.0", make_failed_import("e", ("libcuda.so.1", "libcudart.so.8.0")), Cause.IMPORT_MISSING_CUDA_LIB),
        ("1.4.0", make_failed_import("e", ("libother.so",)), Cause.INCONCLUSIVE),
        ("2.18.1", make_failed_import("e", ("libcudart.so.12",)), Cause.INCONCLUSIVE),
        ("2.18.1", make_failed_import("e", (OWN,)), Cause.DAMAGED_FILE),
        ("2.18.1", make_failed_import("e", (f"{SITE}/tensorflow/other.so",)), Cause.INCONCLUSIVE),
        ("2.18.1", replace(make_failed_import("e"), crash=True), Cause.DAMAGED_FILE),
        (
            "2.18.1",
            replace(make_failed_import(f"{OWN}: file too short"), tried=(LoadAttempt(OWN, "file too short", "x"),)),
            Cause.DAMAGED_FILE,
        ),
        ("2.18.1", replace(make_failed_import(f"{OWN}: bad"), tried=(LoadAttempt(OWN, "", "x"),)), Cause.INCONCLUSIVE),
        ("2.18.1", replace(make_failed_import("/b: bad"), tried=(LoadAttempt("/a", "bad", "x"),)), Cause.INCONCLUSIVE),
        ("2.18.1", make_failed_import("e", ()), Cause.INCONCLUSIVE),
    ],
)  # fmt: skip
def test_own_object_that_does_not_load(version: str, resolution: Resolution, cause: Cause) -> None:
    facts = healthy(version, distribution="tensorflow-gpu" if version[0] == "1" else "tensorflow")
    facts = replace(facts, driver=replace(facts.driver, driver_files=()))
    assert find_cause(with_loader(facts, import_needs=(resolution,))) is cause


def make_attempt(soname: str, *import_needs: Resolution) -> Any:
    library = ReplacedLibrary(soname, f"/opt/{soname}", f"/usr/lib/{soname}")
    return RemovedEntriesResult("LD_LIBRARY_PATH", ("/opt",), (), import_needs, (library,))


def test_older_libstdcxx_of_the_environment() -> None:
    failed = make_failed_import("x: undefined symbol: _ZSt4")
    attempts = (
        make_attempt("libstdc++.so.6", failed),
        make_attempt("libz.so.1"),
        make_attempt("libstdc++.so.6"),
    )
    facts = with_loader(healthy(), import_needs=(failed,), without=attempts)
    assert imports.find_overriding_libstdcxx(facts, failed) == attempts[2].instead[0]
    assert find_cause(facts) is Cause.LIBSTDCXX_TOO_OLD
    assert imports.find_overriding_libstdcxx(facts, replace(failed, error="e")) is None
    assert imports.find_overriding_libstdcxx(replace(facts, loader=Unknown("x")), failed) is None
    for incomplete in (attempts[:1], attempts[1:2]):
        assert imports.find_overriding_libstdcxx(with_loader(facts, without=incomplete), failed) is None


@pytest.mark.parametrize(
    ("value", "keras", "version", "expected"),
    [
        ("jax", "3.0.0", "2.18.1", "jax"),
        ("jax", "2.15.0", "2.18.1", ""),
        ("jax", "?", "2.18.1", ""),
        ("jax", "3.0.0", "2.15.1", ""),
    ],
)
def test_backend_of_keras(value: str, keras: str, version: str, expected: str) -> None:
    facts = with_python(healthy(version), installed={"keras": keras})
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    build = describe_build(tensorflow, COMPAT)
    path = "/srv/.keras/keras.json"
    unset = replace(facts.environment, keras_file=path, keras_backend=value)
    is_set = replace(unset, variables={"KERAS_BACKEND": value}, keras_backend="tensorflow")
    for environment, origin in ((is_set, "KERAS_BACKEND"), (unset, path)):
        wanted = (expected, origin if expected else "")
        assert imports.get_keras_backend(value_of(facts.python), build, environment) == wanted
        assert imports.get_keras_backend(None, build, environment) == ("", "")


def test_unknown_import_has_a_reason() -> None:
    facts = with_damage(("tensorflow/__init__.py", "cut"))
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    assert "truncated" in imports.explain_unknown_import(facts, tensorflow, COMPAT)
    unknown = replace(healthy(), rehearsal=Unknown("it hung"))
    assert "it hung" in imports.explain_unknown_import(unknown, tensorflow, COMPAT)
    assert imports.explain_unknown_import(healthy(), tensorflow, COMPAT) == ""
