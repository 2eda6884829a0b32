"""Reasons why the loader cannot resolve a library."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    COMPAT,
    SITE,
    healthy,
    make_failed_import,
    make_found,
    make_missing,
    with_loader,
)
from tfdoctor.core.causes.steps import RemoveEntries
from tfdoctor.core.facts import (
    FOLDER_DENIED,
    NOEXEC_ERROR,
    PERMISSION_DENIED,
    LoadAttempt,
    Resolution,
    Unknown,
    value_of,
)
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.prediction.build import describe_build
from tfdoctor.prediction.libraries import (
    MissingLibrary,
    explain_missing_libraries,
    list_forbidden_files,
    list_missing_libraries,
)
from tfdoctor.prediction.stages import predict


@pytest.mark.parametrize(
    ("soname", "missing", "folder"),
    [
        ("libcusparse.so.12", "libnvJitLink.so.12", "nvjitlink"),
        ("libcudart.so.12", "libcudart.so.12", "cuda_runtime"),
        ("libcudnn.so.9", "libcudnn_graph.so.9", "cudnn"),
    ],
)
def test_library_in_an_unreadable_folder_is_not_permitted(soname: str, missing: str, folder: str) -> None:
    """The folder is found whatever the case of the library's name, and also for a dependency of another library."""
    path = f"{SITE}/nvidia/{folder}/lib/{missing}"
    failed = replace(
        make_missing(soname), really_missing=(missing,), tried=(LoadAttempt(path, FOLDER_DENIED, "RUNPATH"),)
    )
    facts = with_loader(healthy(), failed)
    assert predict(facts, COMPAT).cause == Cause.NOT_PERMITTED


def test_wrong_elf_class_is_a_damaged_file() -> None:
    """The loader reaches the file by a RUNPATH with "..", and the probe finds it without; it is one file."""
    path = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
    runpath = f"{SITE}/tensorflow/python/../../nvidia/cudnn/lib/libcudnn.so.9"
    failed = replace(
        make_missing("libcudnn.so.9"), tried=(LoadAttempt(runpath, "wrong ELF class: ELFCLASS32", "RUNPATH"),)
    )
    facts = with_loader(healthy(), failed, also_found=(make_found(path),))
    assert predict(facts, COMPAT).cause == Cause.DAMAGED_FILE


def test_truncated_dependency_is_a_damaged_file() -> None:
    """The loader cache was rebuilt without the file (as in a starting container); the RUNPATH of libcublas has it."""
    path = f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12"
    dependent = replace(
        make_missing("libcublas.so.12"),
        path=f"{SITE}/nvidia/cublas/lib/libcublas.so.12",
        really_missing=("libcublasLt.so.12",),
        tried=(LoadAttempt(path, "truncated", "RUNPATH"),),
        crash=True,
    )
    facts = with_loader(
        healthy(), dependent, make_missing("libcublasLt.so.12"), also_found=(make_found(path),)
    )
    answer = predict(facts, COMPAT)
    assert answer.cause == Cause.DAMAGED_FILE


BLAS = "libcublas.so.12"


def explain(*failed: Resolution, found: tuple[str, ...] = ()) -> tuple[MissingLibrary, ...]:
    """Return the missing libraries of a machine with these failures and other files."""
    facts = with_loader(healthy(), *failed, also_found=tuple(map(make_found, found)))
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    return explain_missing_libraries(facts, describe_build(tensorflow, COMPAT))


def make_attempt(path: str, problem: str) -> tuple[LoadAttempt, ...]:
    return (LoadAttempt(path, problem, "RUNPATH"),)


def make_tried(path: str, problem: str) -> Resolution:
    """Return the failure of cuBLAS after this file."""
    return replace(make_missing(BLAS), tried=make_attempt(path, problem))


@pytest.mark.parametrize(
    ("failed", "found", "cause"),
    [
        (make_missing("libcudnn.so.9"), (), Cause.CUDNN_MISSING),
        (make_missing(BLAS), (), Cause.LIBS_NOT_INSTALLED),
        (make_missing(BLAS), ("/opt/libcublas.so.12",), Cause.LIBS_NOT_ON_PATH),
        (make_missing(BLAS), ("/opt/libcublas.so.11",), Cause.LIBS_WRONG_VERSION),
        (make_missing(BLAS), ("/opt/libcublas.so.12.4.5",), Cause.LIBS_NOT_INSTALLED),
        (make_missing(BLAS), ("/opt/libcublas.so.12", "/opt/libcudart.so.11.0"), Cause.LIBS_WRONG_VERSION),
        (make_missing(BLAS), ("/o/libcublas.so.12", "/o/libcudart.so.11.0", "/o/libcudart.so.12"), Cause.LIBS_NOT_ON_PATH),
        (make_missing(BLAS), ("/opt/libcublas.so.12", "/opt/libcudnn.so.8"), Cause.LIBS_NOT_ON_PATH),
        (make_missing("libcudnn.so.9"), ("/opt/libcudnn.so.8",), Cause.CUDNN_VERSION_MISMATCH),
        (make_tried("/x/libcublas.so.12", "file too short"), (), Cause.DAMAGED_FILE),
        (make_tried("/x/libcublas.so.12", "Permission denied by x"), (), Cause.LIBS_NOT_INSTALLED),
        (make_tried("/x/libcublas.so.12", "wrong ELF class"), (), Cause.LIBS_WRONG_VERSION),
        (make_tried("/x/libcublas.so.12", "wrong machine"), ("/opt/libcublas.so.12",), Cause.LIBS_NOT_ON_PATH),
        (make_tried(f"{SITE}/nvidia/cublas/lib/{BLAS}", "wrong ELF class"), (), Cause.DAMAGED_FILE),
        (make_tried("/x/libcublas.so.12", PERMISSION_DENIED), (), Cause.NOT_PERMITTED),
        (make_tried("/x/libcublas.so.12", NOEXEC_ERROR), (), Cause.NOT_PERMITTED),
        (replace(make_missing(BLAS), path="/x/a", really_missing=("libother.so",)), (), Cause.LIBS_TRANSITIVE),
        (
            replace(
                make_missing(BLAS), path="/x/a", really_missing=("libcublasLt.so.12",),
                tried=make_attempt("/x/libcublasLt.so.12", "file too short"),
            ),
            (), Cause.DAMAGED_FILE,
        ),
        (
            replace(
                make_missing(BLAS), path="/x/a", really_missing=("libcublasLt.so.12",),
                tried=make_attempt("/x/libcublasLt.so.12", "wrong ELF class"),
            ),
            (), Cause.LIBS_TRANSITIVE,
        ),
    ],
)  # fmt: skip
def test_cause_of_one_missing_library(failed: Resolution, found: tuple[str, ...], cause: Cause) -> None:
    (library,) = explain(failed, found=found)
    assert (library.soname, library.cause) == (failed.soname, cause)


def test_file_in_a_folder_of_loaded_libraries_is_damaged() -> None:
    """A folder from which other libraries are loaded has none for another machine."""
    path = "/usr/lib/./libcublas.so.12"
    failed = make_tried(path, "wrong ELF class")
    facts = with_loader(healthy(), failed)
    (library,) = explain(failed)
    assert library.cause is Cause.DAMAGED_FILE  # libcuda.so.1 is in /usr/lib
    assert library.file_problem == "wrong ELF class"
    assert predict(facts, COMPAT).missing_libraries == (BLAS,)


def test_usable_files_and_other_versions() -> None:
    found = ("/opt/libcublas.so.12", "/old/libcublas.so.11", "/old/libcublas.so.12", "/old/libcudart.so.11.0")
    (library,) = explain(make_missing(BLAS), found=found)
    assert [file.path for file in library.usable_files] == ["/opt/libcublas.so.12"]
    assert [file.path for file in library.other_versions] == ["/old/libcublas.so.11"]
    (library,) = explain(make_missing(BLAS), found=("/old/libcublas.so.12", "/old/libcudart.so.11.0"))
    assert library.usable_files == ()
    assert [file.path for file in library.other_versions] == ["/old/libcublas.so.12"]


def test_library_whose_dependency_is_listed_is_omitted() -> None:
    dependent = replace(make_missing("libcusolver.so.11"), path="/x/a", really_missing=(BLAS,))
    assert [library.soname for library in explain(make_missing(BLAS), dependent)] == [BLAS]
    other = replace(dependent, really_missing=(BLAS, "libx.so"))
    assert len(explain(make_missing(BLAS), other)) == 2
    assert len(explain(make_missing(BLAS), replace(dependent, really_missing=()))) == 2


@pytest.mark.parametrize(
    ("path", "soname", "is_elsewhere", "counts"),
    [
        (f"{SITE}/nvidia/cublas/lib/{BLAS}", BLAS, True, True),
        (f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12", "libcublasLt.so.12", True, True),
        (f"{SITE}/nvidia/cuda_cupti/lib/libcupti.so.12", "libcupti.so.12", True, True),
        (f"{SITE}/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "libnvrtc.so.12", True, True),
        (f"{SITE}/nvidia/cufft/lib/{BLAS}", BLAS, False, False),
        (f"{SITE}/nvidia/cu13/lib/libcublas.so.13", "libcublas.so.13", True, True),
        (f"{SITE}/nvidia/cu13/lib/libcudnn.so.9", "libcudnn.so.9", True, False),
        (f"/opt/{BLAS}", BLAS, False, True),
        (f"/opt/{BLAS}", BLAS, True, False),
        (f"/opt/other/{BLAS}", "libcufft.so.11", False, False),
    ],
)
def test_file_in_an_unreadable_folder(path: str, soname: str, is_elsewhere: bool, counts: bool) -> None:
    resolution = replace(make_missing(soname), tried=make_attempt(path, FOLDER_DENIED))
    assert bool(list_forbidden_files(resolution, is_elsewhere=is_elsewhere)) is counts


@pytest.mark.parametrize(
    ("failed", "found", "cause"),
    [
        (("libcudnn.so.9",), (), Cause.CUDNN_MISSING),
        (("libcudnn.so.9", BLAS), (), Cause.LIBS_NOT_INSTALLED),
        (("libcudnn.so.9",), ("/opt/libcudnn.so.8",), Cause.CUDNN_VERSION_MISMATCH),
        ((BLAS, "libcufft.so.11"), ("/opt/libcublas.so.12",), Cause.LIBS_NOT_ON_PATH),
        ((BLAS, "libcufft.so.11", "libcusparse.so.12"), ("/opt/libcublas.so.12",), Cause.LIBS_NOT_INSTALLED),
        ((BLAS, "libcufft.so.11"), ("/opt/libcublas.so.12", "/o/libcufft.so.10"), Cause.LIBS_WRONG_VERSION),
    ],
)
def test_most_frequent_cause_is_chosen(failed: tuple[str, ...], found: tuple[str, ...], cause: Cause) -> None:
    facts = with_loader(healthy(), *map(make_missing, failed), also_found=tuple(map(make_found, found)))
    assert predict(facts, COMPAT).cause is cause


def test_missing_permission_takes_precedence() -> None:
    denied = make_tried(f"/x/{BLAS}", PERMISSION_DENIED)
    facts = with_loader(healthy(), denied, make_missing("libcufft.so.11"), make_missing("libcusparse.so.12"))
    assert predict(facts, COMPAT).cause is Cause.NOT_PERMITTED


def test_missing_names_are_listed_with_those_of_the_import() -> None:
    tensorflow = value_of(healthy().tensorflow)
    assert tensorflow is not None
    build = describe_build(tensorflow, COMPAT)
    needs = (make_failed_import("e", ("liba.so.1", "/env/own.so")),)
    failed = replace(make_missing(BLAS), really_missing=("libdep.so",))
    facts = with_loader(healthy(), failed, make_missing("libcuda.so.1"), import_needs=needs)
    assert list_missing_libraries(facts, build) == ("liba.so.1", "libcuda.so.1", "libdep.so")
    nameless = replace(make_missing(BLAS), really_missing=())
    assert list_missing_libraries(with_loader(healthy(), nameless), build) == (BLAS,)
    unknown = replace(healthy(), loader=Unknown("x"))
    assert list_missing_libraries(unknown, build) == explain_missing_libraries(unknown, build) == ()


@pytest.mark.parametrize(
    ("limit_mib", "import_ok", "registered"),
    [(None, True, True), (1419, False, False), (1420, True, False), (2719, True, False), (2720, True, True)],
)
def test_limit_of_the_address_space(limit_mib: int | None, *, import_ok: bool, registered: bool) -> None:
    """TensorFlow 2.18.1 takes 1351 MiB for the import and 2673 with its libraries, of which 1230 and 2477 are files."""
    facts = with_loader(healthy(), import_bytes=1300 << 20, mapped_bytes=2600 << 20)
    limit = limit_mib << 20 if limit_mib is not None else None
    facts = replace(facts, machine=replace(facts.machine, address_limit=limit))
    prediction = predict(facts, COMPAT)
    assert (prediction.import_ok, prediction.gpu_registered) == (import_ok, registered)
    assert prediction.cause is (None if registered else Cause.NOT_PERMITTED)


@pytest.mark.parametrize(
    ("version", "limit_mib", "import_ok", "registered"),
    [
        ("2.18.1", None, True, True),
        ("2.18.1", 189, False, False),
        ("2.18.1", 190, None, None),
        ("2.18.1", 511, None, None),
        ("2.18.1", 512, True, True),
        ("2.10.1", 189, True, True),
    ],
)
def test_limit_of_the_memory(
    version: str, limit_mib: int | None, *, import_ok: bool | None, registered: bool | None
) -> None:
    """In a cgroup, 2.15.1 and 2.20.0 are killed in between by 192 to 301 MiB; older releases were not measured."""
    facts = healthy(version)
    limit = limit_mib << 20 if limit_mib is not None else None
    facts = replace(facts, machine=replace(facts.machine, memory_limit=limit))
    prediction = predict(facts, COMPAT)
    assert (prediction.import_ok, prediction.gpu_registered) == (import_ok, registered)
    assert prediction.cause is (Cause.OOM if import_ok is False else None)


@pytest.mark.parametrize(
    ("real", "cause"),
    [
        ("/opt/cuda-12/libcublas.so.12", Cause.LIBS_WRONG_VERSION),
        ("/opt/cuda-12/libcublas.so.12.4.5", Cause.LIBS_WRONG_VERSION),
        ("/opt/cuda-11/libcublas.so.11.11.3.6", Cause.LIBS_TRANSITIVE),
        ("", Cause.LIBS_TRANSITIVE),
    ],
)
def test_link_to_another_version_under_the_name_that_is_opened(real: str, cause: Cause) -> None:
    """It is found, and needs libraries of its own version."""
    facts = healthy("2.10.1", python="3.10.13")
    linked = Resolution(
        "libcublas.so.11",
        "/srv/links/libcublas.so.11",
        "LD_LIBRARY_PATH",
        "libcublasLt.so.12: cannot open shared object file: No such file or directory",
        ("libcublasLt.so.12",),
        needed_by="/srv/links/libcublas.so.11",
        real=real,
    )
    loader = value_of(facts.loader)
    assert loader is not None
    others = tuple(item for item in loader.resolutions if item.soname != "libcublas.so.11")
    facts = with_loader(facts, *others, linked, library_path=("/srv/links",))
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    (library,) = explain_missing_libraries(facts, describe_build(tensorflow, COMPAT))
    assert library.cause is cause
    assert library.link_target == (real if cause is Cause.LIBS_WRONG_VERSION else "")
    report = diagnose(facts, COMPAT)
    assert report.verdict.cause is cause
    if library.link_target:
        assert report.root_finding is not None
        assert "is a link to" in report.root_finding.title
        assert report.root_finding.remedies[0].steps[0] == RemoveEntries("LD_LIBRARY_PATH", ("/srv/links",))
