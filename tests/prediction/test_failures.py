"""The package that causes a failure of a rehearsed import."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from prediction.rehearsals import VERSION, make_facts, with_rehearsal
from rules.make_facts import COMPAT, SITE, healthy, run, with_environment, with_python
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import Distribution, value_of
from tfdoctor.core.facts.imports import FileDifference, ImportResult, RehearsalFacts, RehearsalReason, Shadow
from tfdoctor.core.findings import Cause
from tfdoctor.prediction import failures
from tfdoctor.prediction.failures import ImportFailure, get_failure_cause, list_import_failures
from tfdoctor.rules import import_fails

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts


def test_missing_namespace_means_the_required_package():
    """PyPI has an unrelated package called google."""
    error = ImportResult(
        "google.protobuf",
        "No module named 'google'",
        "ModuleNotFoundError",
        import_error=True,
        not_found="google",
    )
    facts = with_rehearsal(make_facts({"protobuf": None}), error, oddities=[RehearsalReason("protobuf", "…")])
    (failure,) = list_import_failures(facts, COMPAT)
    assert (failure.package, failure.is_missing) == ("protobuf", True)


def test_shadowed_package_explains_later_failures():
    shadow = Shadow("numpy", "/home/user/code/numpy.py", SITE)
    errors = [
        ImportResult(
            "numpy",
            "module 'numpy' has no attribute 'integer'",
            "AttributeError",
            attribute_error=True,
            file=shadow.taken,
        ),
        ImportResult("ml_dtypes", "numpy._core.umath failed to import", "ImportError", import_error=True),
    ]
    facts = with_rehearsal(
        with_python(make_facts(), shadows=(shadow,)), *errors, oddities=[RehearsalReason("numpy", "…")]
    )
    assert [failure.shadowing_file for failure in list_import_failures(facts, COMPAT)] == [shadow.taken]


def test_known_conflict_is_reported_beside_the_rehearsal():
    error = ImportResult("packaging.version", "…", "SyntaxError", frames=(f"{SITE}/packaging/version.py",))
    facts = with_rehearsal(
        make_facts({"namex": "0.0.3"}), error, oddities=[RehearsalReason("packaging", "…")]
    )
    outcome = run(import_fails.RULE, facts)
    assert [item.title.rpartition(" ")[0] for item in outcome.findings] == [
        "import tensorflow fails with packaging",
        f"TensorFlow {VERSION} cannot be imported with namex",
    ]


def test_damaged_and_unsuitable_packages_are_reinstalled() -> None:
    damaged = {"packaging": {"differs": (FileDifference("packaging/version.py", "empty"),)}}
    errors = [
        ImportResult("packaging.version", "…", "SyntaxError", frames=(f"{SITE}/packaging/version.py",)),
        ImportResult("wrapt", "…", "TypeError", frames=(f"{SITE}/wrapt/__init__.py",)),
    ]
    oddities = [RehearsalReason("packaging", "…"), RehearsalReason("wrapt", "…")]
    facts = with_rehearsal(make_facts({"wrapt": "1.10.11"}, **damaged), *errors, oddities=oddities)
    (item,) = run(import_fails.RULE, facts).findings
    assert "damaged" not in item.title
    (step,) = item.remedies[0].steps
    assert isinstance(step, Install)
    reinstalled, other = step.requirements
    assert reinstalled == f"packaging=={value_of(facts.python).find_distribution('packaging').version}"
    assert other.startswith("wrapt==")
    assert other != "wrapt==1.10.11"


# ---------------------------------------------------------------- one decision at a time


def make_result(
    name: str = "wrapt", error: str = "boom", kind: str = "TypeError", **fields: Any
) -> ImportResult:
    return ImportResult(name, error, kind, **fields)


def make_failure(facts: Facts, result: ImportResult, *odd: str) -> ImportFailure:
    """Return the failure of one rehearsed module; `odd` are the packages that differ from a working environment."""
    python = value_of(facts.python)
    assert python is not None
    rehearsal = RehearsalFacts(tuple(RehearsalReason(name, "…") for name in odd), (result,), None)
    return failures._make_failure(python, rehearsal, result, is_fatal=True)


def not_found(name: str, missing: str) -> ImportResult:
    return make_result(
        name, f"No module named {missing!r}", "ModuleNotFoundError", import_error=True, not_found=missing
    )


@pytest.mark.parametrize(
    ("result", "package", "is_missing"),
    [
        (not_found("absl", "absl"), "absl-py", True),
        (not_found("google.protobuf", "google"), "protobuf", True),
        (not_found("wrapt", "namex"), "namex", True),
        (not_found("wrapt", "numpy.core"), "numpy", False),
        (not_found("wrapt", "tensorflow.python"), "wrapt", False),
        (not_found("wrapt", "gone.core"), "gone", True),
        (make_result(), "wrapt", False),
    ],
)
def test_missing_module_names_its_package(result: ImportResult, package: str, is_missing: bool) -> None:
    facts = with_python(healthy(), installed={"namex": None, "absl-py": None, "protobuf": None})
    failure = make_failure(facts, result)
    assert (failure.package, failure.is_missing) == (package, is_missing)


def with_setuptools(*requires: str, **installed: str) -> Facts:
    python = value_of(with_python(healthy(), installed=installed).python)
    assert python is not None
    setuptools = Distribution("setuptools", "70", SITE, requires=requires)
    return with_python(healthy(), distributions=(*python.distributions, setuptools))


@pytest.mark.parametrize(
    ("odd", "package"),
    [
        ((), "setuptools"),
        (("setuptools", "packaging"), "setuptools"),
        (("packaging",), "packaging"),
        (("more-itertools", "packaging"), "packaging"),
        (("numpy",), "setuptools"),
    ],
)
def test_missing_distutils_is_a_fault_of_setuptools(odd: tuple[str, ...], package: str) -> None:
    facts = with_setuptools("packaging>=24; extra == 'core'", "more-itertools")
    failure = make_failure(facts, not_found("distutils", "distutils"), *odd)
    assert (failure.package, failure.is_missing) == (package, False)


@pytest.mark.parametrize(
    ("location", "unread"),
    [
        ("/srv/libs", True),
        ("/srv/__pypackages__/3.12/lib", True),
        (SITE, False),
        ("/usr/lib/python3/dist-packages", False),
    ],
)
def test_setuptools_where_no_pth_file_is_read(location: str, *, unread: bool) -> None:
    """Its distutils then does not exist, whatever the versions of its requirements are."""
    facts = with_python(
        healthy(), distributions=(Distribution("setuptools", "70", location),), version="3.12.1"
    )
    failure = make_failure(facts, not_found("distutils", "distutils"), "packaging")
    assert (failure.package, failure.unread_folder) == ("setuptools", location if unread else "")


@pytest.mark.parametrize(
    ("name", "python", "standard_module"),
    [
        ("_ctypes", "3.11.7", "_ctypes"),
        ("_bz2", "3.12.1", "_bz2"),
        ("distutils", "3.12.1", ""),
        ("wrapt", "3.11.7", ""),
    ],
)
def test_module_that_python_itself_lacks(name: str, python: str, standard_module: str) -> None:
    facts = with_python(healthy(), version=python)
    failure = make_failure(facts, not_found("numpy", name))
    assert failure.standard_module == standard_module
    assert (get_failure_cause(failure) is Cause.PYTHON_UNUSABLE) == bool(standard_module)


FRAMES = tuple(f"{SITE}/{path}" for path in ("wrapt/__init__.py", "numpy/core/__init__.py", "six.py"))


@pytest.mark.parametrize(
    ("frames", "odd", "package"),
    [
        (FRAMES, (), "six"),
        (FRAMES[:2], (), "wrapt"),
        (FRAMES[1:2], (), "gast"),
        (FRAMES, ("numpy",), "numpy"),
        (FRAMES, ("wrapt", "numpy"), "numpy"),
        (("/elsewhere/six.py",), (), "gast"),
        ((f"{SITE}/tensorflow/__init__.py",), (), "gast"),
        ((f"{SITE}/unknown/x.py",), (), "gast"),
    ],
)
def test_package_at_fault_is_in_the_traceback(
    frames: tuple[str, ...], odd: tuple[str, ...], package: str
) -> None:
    assert make_failure(healthy(), make_result("gast", frames=frames), *odd).package == package


def test_unmet_requirement_comes_before_other_differences() -> None:
    python = value_of(healthy().python)
    assert python is not None
    requires = {"tensorflow": ("six>=99", "wrapt"), "wrapt": ("numpy", "gast")}
    distributions = tuple(
        replace(dist, requires=requires.get(dist.name, ())) for dist in python.distributions
    )
    facts = with_python(healthy(), distributions=distributions)
    assert make_failure(facts, make_result("gast", frames=FRAMES), "wrapt").package == "six"
    # A package that is no suspect itself is at fault for a requirement that is.
    only_wrapt = {"wrapt": requires["wrapt"]}
    distributions = tuple(
        replace(dist, requires=only_wrapt.get(dist.name, ())) for dist in python.distributions
    )
    plain = with_python(healthy(), distributions=distributions)
    assert make_failure(plain, make_result("wrapt", frames=FRAMES[:1]), "gast").package == "gast"
    assert make_failure(plain, make_result("wrapt", frames=FRAMES[:1]), "other").package == "wrapt"


SHADOW = Shadow("six", "/put/six.py", SITE)


@pytest.mark.parametrize(
    ("result", "carried", "shadowing_file", "library"),
    [
        (make_result(), (), "", ""),
        (make_result(error="in /put/six.py"), (), "/put/six.py", ""),
        (make_result(root="see /put/six.py"), (), "/put/six.py", ""),
        (make_result(file="/put/six.py"), (), "/put/six.py", ""),
        (make_result(top="/put/six.py/x"), (), "/put/six.py", ""),
        (make_result(frames=("/put/six.pyc",)), (), "", ""),
        (make_result(frames=("/put/six.py",)), (), "/put/six.py", ""),
        (make_result(error="module 'six' has no attribute 'x'"), (), "/put/six.py", ""),
        (make_result(not_found="six.moves"), (), "/put/six.py", ""),
        (
            make_result(error="undefined symbol: x", frames=("/put/six.py",)),
            ("/lib/libz.so.1",),
            "",
            "/lib/libz.so.1",
        ),
        (make_result(error="other", frames=("/put/six.py",)), ("/lib/libz.so.1",), "/put/six.py", ""),
        (make_result(root="file too short"), ("/lib/a.so", "/lib/b.so"), "", "/lib/a.so"),
    ],
)
def test_file_or_library_that_is_found_first(
    result: ImportResult, carried: tuple[str, ...], shadowing_file: str, library: str
) -> None:
    facts = with_python(healthy(), shadows=(Shadow("other", "/put/other.py", SITE), SHADOW), carried=carried)
    failure = make_failure(facts, result)
    assert (failure.shadowing_file, failure.overriding_library) == (shadowing_file, library)


def test_copy_in_the_working_folder_shadows_the_package() -> None:
    python = value_of(healthy().python)
    assert python is not None
    for location, shadowing_file in (("/srv", "/srv/absl"), (SITE, "")):
        local = Distribution("absl-py", "1", location)
        facts = with_python(healthy(), distributions=(local, *python.distributions))
        assert make_failure(facts, make_result("absl")).shadowing_file == shadowing_file
    facts = with_python(facts, distributions=(Distribution("absl-py", "1", "/srv"),), sys_path=())
    assert make_failure(facts, make_result("absl")).shadowing_file == ""


@pytest.mark.parametrize(
    ("version", "differs", "untested"),
    [
        ("2.4.6", (), False),
        ("9.9", (), False),
        ("2.4.6", (FileDifference("numpy/x.so", "other-python"),), True),
        ("1.17.0", (), True),
    ],
)
def test_copy_in_the_working_folder_that_tables_decide(
    version: str, differs: tuple[FileDifference, ...], *, untested: bool
) -> None:
    """It is not executed, so only versions and files can say whether TensorFlow works with it."""
    facts = make_facts({"numpy": version}, numpy={"location": "/srv", "differs": differs})
    facts = with_python(facts, shadows=(Shadow("numpy", "/srv/numpy", SITE),), sys_path=(SITE,))
    assert bool(failures.list_untested_copies(facts, COMPAT)) is untested


STDCXX = "/opt/libstdc++.so.6"


@pytest.mark.parametrize(
    ("fields", "error", "cause"),
    [
        ({"shadowing_file": "/x", "overriding_library": "/y"}, "", Cause.SHADOWED_MODULE),
        ({"overriding_library": STDCXX}, "version `GLIBCXX_3' not found", Cause.LIBSTDCXX_TOO_OLD),
        ({"overriding_library": STDCXX}, "file too short", Cause.DAMAGED_FILE),
        ({"overriding_library": "/opt/libz.so.1"}, "version `Z' not found", Cause.DAMAGED_FILE),
        (
            {"damaged_files": (FileDifference("a", "cut"), FileDifference("b", "unreadable"))},
            "",
            Cause.NOT_PERMITTED,
        ),
        ({"damaged_files": (FileDifference("a", "cut"),)}, "", Cause.DAMAGED_FILE),
        ({"package": "protobuf"}, "", Cause.PROTOBUF_CONFLICT),
        ({}, "", Cause.PACKAGE_CONFLICT),
    ],
)
def test_cause_of_a_failure(fields: dict[str, Any], error: str, cause: Cause) -> None:
    failure = ImportFailure(
        make_result(error=error), fields.pop("package", "wrapt"), is_missing=False, **fields
    )
    assert failures.get_failure_cause(failure) is cause


@pytest.mark.parametrize(
    ("module", "error_type"),
    [
        (make_result("keras.src", "", "", file=f"{SITE}/keras/src"), "TypeError"),
        (make_result("keras", "", "", file=f"{SITE}/keras"), ""),
        (make_result("keras.src", "", "", file=f"{SITE}/keras/src/__init__.py"), ""),
        (make_result("keras.src", "", "", file=f"{SITE}/keras/src.so"), ""),
        (make_result("keras.src", "", "", file=""), ""),
        (make_result("keras.src", "e", "ValueError", file=f"{SITE}/keras/src"), "ValueError"),
    ],
)
def test_folder_without_init_is_an_error(module: ImportResult, error_type: str) -> None:
    assert failures._add_missing_file_error(module).error_type == error_type


@pytest.mark.parametrize(
    ("module", "is_certain"),
    [
        (make_result(import_error=True), True),
        (make_result(error="module 'tensorflow' has no attribute 'x'", attribute_error=True), True),
        (make_result(error="'X' object has no attribute 'x'", attribute_error=True), False),
        (make_result(error="module 'tensorflow' has"), False),
    ],
)
def test_errors_of_keras_that_the_stand_in_cannot_cause(module: ImportResult, is_certain: bool) -> None:
    assert failures._is_keras_error_certain(module) is is_certain


def test_package_of_a_leading_folder_is_marked() -> None:
    python = value_of(healthy().python)
    assert python is not None
    put = Distribution("absl-py", "1", "/put")
    facts = with_environment(healthy(), PYTHONPATH="/put")
    facts = with_python(facts, distributions=(put, *python.distributions), sys_path=("/put", SITE))
    failure = ImportFailure(make_result("absl", "in /put/absl/x.so"), "absl-py", is_missing=False)
    assert failures._mark_shadowed(facts, failure).shadowing_file == "/put/absl"
    for unchanged in (
        replace(failure, is_missing=True),
        replace(failure, shadowing_file="/other"),
        replace(failure, package="six"),
        replace(
            failure, import_result=make_result("absl", "in /usr/lib/x.so"), overriding_library="/lib/libz.so"
        ),
    ):
        assert failures._mark_shadowed(facts, unchanged) is unchanged
    library = replace(failure, overriding_library="/lib/libz.so")
    assert failures._mark_shadowed(facts, library).shadowing_file == "/put/absl"


def test_required_packages_without_metadata_of_others() -> None:
    """The distributions of a planned environment have no requirements, so none is known to be missing."""
    planned = with_python(healthy(), installed={"absl-py": None})
    python = value_of(planned.python)
    assert python is not None
    table = COMPAT.find_import_needs("2.18.1")
    assert table is not None
    table = replace(table, required_packages=("absl_py", "gast"))
    assert not list(failures._iter_missing_packages(python, table))
    with_requires = replace(
        python, distributions=(Distribution("x", "1", SITE, requires=("y",)), *python.distributions)
    )
    missing = {failure.package for failure in failures._iter_missing_packages(with_requires, table)}
    assert missing == {"absl-py"}
    found = replace(with_requires, modules=tuple(table.required_packages))
    assert not list(failures._iter_missing_packages(found, table))


def test_imported_distributions_have_no_failed_module() -> None:
    modules = (make_result("numpy", "", ""), make_result("absl", "", ""), make_result("absl.flags"))
    assert failures.list_imported_distributions(RehearsalFacts((), modules, None)) == {"numpy"}
    assert failures.list_imported_distributions(None) == set()


def test_damaged_files_that_the_import_uses() -> None:
    facts = healthy()
    tensorflow, python = value_of(facts.tensorflow), value_of(facts.python)
    assert tensorflow is not None
    assert python is not None
    table = COMPAT.find_import_needs("2.18.1")
    assert table is not None
    unused = next(iter(table.unloaded_files))
    kinds = {"a.py": "cut", "b.py": "changed", unused: "cut", "c.so": "missing"}
    differs = tuple(FileDifference(path, kind) for path, kind in kinds.items())
    damaged = replace(python, distributions=tuple(replace(d, differs=differs) for d in python.distributions))
    paths = [file.path for file in failures.list_damaged_tensorflow_files(damaged, tensorflow, COMPAT)]
    assert paths == ["a.py", "c.so"]
    two = replace(damaged, distributions=(*damaged.distributions, Distribution("tensorflow-cpu", "1", SITE)))
    assert [file.path for file in failures.list_damaged_tensorflow_files(two, tensorflow, COMPAT)] == ["c.so"]
    elsewhere = replace(
        damaged, distributions=(*damaged.distributions, Distribution("tensorflow-cpu", "1", "/x"))
    )
    assert len(failures.list_damaged_tensorflow_files(elsewhere, tensorflow, COMPAT)) == 2
    assert (
        failures.list_damaged_tensorflow_files(damaged, replace(tensorflow, distribution=None), COMPAT) == ()
    )
