"""The plan of a rehearsed import, and the findings that its results lead to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prediction.rehearsals import VERSION, list_keras_modules, make_facts, plan_modules, with_rehearsal
from rules.make_facts import (
    COMPAT,
    SITE,
    context,
    finding,
    healthy,
    make_rejected,
    run,
    with_environment,
    with_loader,
    with_python,
)
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import NOEXEC_ERROR, Distribution, Known, Resolution, Unknown
from tfdoctor.core.facts.imports import FileDifference, ImportResult, RehearsalReason, Shadow
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.prediction.failures import list_import_failures
from tfdoctor.prediction.rehearsal import list_unmet_requirements, plan_rehearsal, predict_companion
from tfdoctor.rules import (
    damaged_installation,
    import_fails,
    keras_fails,
    requirement_not_met,
    shadowed_module,
)


def test_locked_environment_is_not_rehearsed():
    assert plan_modules(make_facts()) == (set(), set())


@pytest.mark.parametrize(("package", "version"), [("numpy", "99.0"), ("wrapt", "99.0"), ("gast", "99.0")])
def test_newer_version_alone_is_not_rehearsed(package, version):
    assert plan_modules(make_facts({package: version})) == (set(), set())


def test_older_version_is_rehearsed_with_the_packages_that_need_it():
    facts = make_facts({"numpy": "1.16.0"}, version="2.18.1")
    plan = plan_rehearsal(facts.python.value, facts.tensorflow.value, {}, COMPAT)
    assert plan is not None
    modules = [name for name, _ in plan.modules]
    assert plan_modules(facts)[1] == {"numpy"}
    assert {"numpy", "ml_dtypes", "h5py"} <= {*modules}
    assert not {"absl", "wrapt", "google.protobuf"} & {*modules}
    assert modules[0] == "numpy"  # what deviates comes first


def test_version_outside_a_requirement_is_rehearsed():
    pinned = {"h5py": {"requires": ("numpy<90",)}}
    assert plan_modules(make_facts({"numpy": "99.0"}, **pinned))[1] == {"numpy"}


def test_only_requirements_of_what_the_import_needs_count():
    requires = {"tensorflow": {"requires": ("numpy<90", "libclang>=99", "tensorboard>=99")}}
    facts = make_facts({"numpy": "99.0", "tensorboard": None, "libclang": "18.1.1"}, **requires)
    assert {item.package for item in list_unmet_requirements(facts.python.value)} == {
        *("numpy", "libclang", "tensorboard")
    }
    assert plan_modules(facts)[1] == {"numpy"}


RUNS = {
    "wrapt": {
        "1.0": "",
        "1.4": "TypeError: a",
        "1.6": "TypeError: a",
        "1.9": "TypeError: b",
        "3.0": "",
        "5.0": "",
    }
}


@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("1.0", ""),
        ("0.9", None),  # older than all tested versions
        ("1.2", None),  # between one that works and one that fails
        ("1.5", "TypeError: a"),
        ("1.7", "TypeError: a"),
        ("4.0", ""),
        ("5.1", ""),
        ("five", None),
    ],
)
def test_tested_neighbours_decide_about_a_version(version, error):
    table = replace(COMPAT.find_import_needs(VERSION), runs=RUNS)
    wrapt = Distribution("wrapt", version, SITE)
    assert predict_companion(wrapt, table, (), is_allowed=True) == error


def test_version_newer_than_a_failing_one_or_outside_a_requirement_is_open():
    table = replace(COMPAT.find_import_needs(VERSION), runs={"wrapt": {"1.0": "", "2.0": "TypeError: a"}})
    wrapt = Distribution("wrapt", "2.1", SITE)
    assert predict_companion(wrapt, table, (), is_allowed=True) is None
    assert predict_companion(wrapt, replace(table, runs={}), ({"wrapt": "1.0"},), is_allowed=True) == ""
    assert predict_companion(wrapt, replace(table, runs={}), ({"wrapt": "1.0"},), is_allowed=False) is None
    assert predict_companion(wrapt, replace(table, runs={}), (), is_allowed=True) == ""


@pytest.mark.parametrize(
    ("version", "keras", "rule", "title"),
    [
        ("2.15.1", "3.10.0", None, ""),
        ("2.15.1", "2.13.1", None, ""),
        ("2.15.1", "2.10.0", keras_fails.RULE, "tf.keras fails with keras 2.10.0"),
        ("2.10.1", "2.11.0", import_fails.RULE, "import tensorflow fails with keras 2.11.0"),
    ],
)
def test_tested_versions_of_keras_decide_without_a_rehearsal(version, keras, rule, title):
    requires = {"tensorflow": {"requires": ("keras==1.0",)}, "keras": {"requires": ()}}
    facts = make_facts({"keras": keras}, version=version, python="3.10", **requires)
    assert list_keras_modules(facts) == ()
    for other in (keras_fails.RULE, import_fails.RULE):
        if other is rule:
            assert finding(other, facts).title == title
        else:
            assert not run(other, facts).findings


def test_extension_for_numpy_1_is_rehearsed():
    built = {"differs": (FileDifference("pandas/_libs/lib.so", "numpy-1"),)}
    modules, odd_modules = plan_modules(make_facts({"pandas": "2.1.4"}, pandas=built))
    assert (modules, odd_modules) == ({"pandas"}, {"pandas"})


def test_module_that_python_lacks_is_rehearsed():
    facts = make_facts(version="2.15.1", keras={"requires": ()})
    facts = with_python(facts, lacks=("ctypes", "sqlite3"))
    assert plan_modules(facts) == ({"ctypes"}, {"ctypes"})


def test_version_that_is_known_to_break_the_import_is_not_rehearsed():
    facts = make_facts({"numpy": "2.0.2"}, version="2.15.1")
    assert "numpy" not in plan_modules(facts)[1]


NO_REQUIREMENTS = {
    "tensorflow": {"requires": ()},
    "setuptools": {"requires": ('packaging>=24.2; extra == "core"',)},
}


def test_distutils_of_setuptools_is_rehearsed():
    modules, odd_modules = plan_modules(
        make_facts({"packaging": "15.1"}, version="2.18.1", python="3.12", **NO_REQUIREMENTS)
    )
    assert odd_modules == {"packaging"}
    assert "distutils" in modules
    assert (
        "distutils" not in plan_modules(make_facts({"packaging": "15.1"}))[0]
    )  # Python 3.11 still has distutils


@pytest.mark.parametrize(
    ("location", "is_rehearsed"),
    [(SITE, False), ("/srv/libs", True), ("/srv/lib/python3.12/site-packages", True)],
)
def test_distutils_of_a_folder_whose_pth_files_are_not_read(location: str, *, is_rehearsed: bool) -> None:
    """`pip install --target FOLDER` puts setuptools into a folder of PYTHONPATH: its .pth file has no effect there."""
    facts = make_facts(version="2.18.1", python="3.12", setuptools={"location": location})
    assert ("distutils" in {name.partition(".")[0] for name in plan_modules(facts)[0]}) is is_rehearsed


def test_dependency_of_setuptools_causes_missing_distutils():
    error = ImportResult(
        "distutils",
        "No module named 'distutils'",
        "ModuleNotFoundError",
        import_error=True,
        not_found="distutils",
    )
    oddities = [RehearsalReason("packaging", "…")]
    facts = make_facts({"packaging": "15.1"}, version="2.18.1", python="3.12", **NO_REQUIREMENTS)
    problem = finding(import_fails.RULE, with_rehearsal(facts, error, oddities=oddities))
    assert "packaging 15.1" in problem.title
    without_setuptools = make_facts({"setuptools": None}, version="2.18.1", python="3.12")
    problem = finding(
        import_fails.RULE,
        with_rehearsal(without_setuptools, error, oddities=[RehearsalReason("setuptools", "…")]),
    )
    assert "setuptools is not installed" in problem.title


def test_missing_package_is_rehearsed():
    modules, odd_modules = plan_modules(make_facts({"termcolor": None}))
    assert "termcolor" in modules
    assert "termcolor" in odd_modules


def test_optional_package_is_rehearsed_if_installed():
    shadows = (Shadow("random", "/here/random.py", SITE),)
    assert "pandas" not in plan_modules(with_python(make_facts(), shadows=shadows))[0]
    assert "pandas" in plan_modules(with_python(make_facts({"pandas": "2.1.4"}), shadows=shadows))[0]


@pytest.mark.parametrize(
    ("name", "modules"), [("random", {"random"}), ("numpy", {"numpy", "h5py"}), ("my_own_module", set())]
)
def test_shadowed_module_is_rehearsed_if_imported(name, modules):
    facts = with_python(make_facts(), shadows=(Shadow(name, f"/here/{name}.py", SITE),))
    rehearsed = plan_modules(facts)[0]
    assert modules <= rehearsed
    assert bool(rehearsed) is bool(modules)


def test_package_with_changed_files_is_rehearsed():
    damage = {"differs": (FileDifference("h5py/_errors.so", "cut"),)}
    assert "h5py" in plan_modules(make_facts({"h5py": "3.14.0"}, h5py=damage))[0]
    touched = {"differs": (FileDifference("h5py/__init__.py", "changed"),)}
    assert plan_modules(make_facts(h5py=touched))[1] == {
        "h5py"
    }  # the user may have edited it, so it is rehearsed


def test_unmeasured_release_is_rehearsed_without_names():
    facts = with_python(healthy("2.18.1"), distributions=())
    newer = replace(facts, tensorflow=Known(replace(facts.tensorflow.value, version="2.99.0"), "x"))
    damage = (FileDifference("numpy/__init__.py", "cut"),)
    newer = with_python(newer, distributions=(Distribution("numpy", "9.0", SITE, differs=damage),))
    plan = plan_rehearsal(newer.python.value, newer.tensorflow.value, {}, COMPAT)
    assert plan is not None
    assert dict(plan.modules)["numpy"] == ()
    assert COMPAT.find_import_needs("1.4.0") is None
    assert COMPAT.find_import_needs("not a version") is None


# ---------------------------------------------------------------- requirements


def test_unmet_requirements_are_found():
    missing = {
        (item.required_by, item.package, item.installed_version)
        for item in list_unmet_requirements(make_facts({"ml-dtypes": "0.4.1"}).python.value)
    }
    assert ("tensorflow", "ml-dtypes", "0.4.1") in missing
    assert not any(
        item.package.startswith("nvidia") for item in list_unmet_requirements(make_facts().python.value)
    )
    assert not any("gcs" in item.package for item in list_unmet_requirements(make_facts().python.value))
    assert ("optree", "typing-extensions", "4.0.0") in {
        (item.required_by, item.package, item.installed_version)
        for item in list_unmet_requirements(make_facts({"typing-extensions": "4.0.0"}).python.value)
    }


@pytest.mark.parametrize(
    ("platform", "values"),
    [
        ("linux-x86_64", ("linux", "Linux", "posix")),
        ("macosx-11.0-arm64", ("darwin", "Darwin", "posix")),
        ("win-amd64", ("win32", "Windows", "nt")),
    ],
)
def test_markers_are_those_of_the_platform(platform, values):
    names = ("sys_platform", "platform_system", "os_name")
    marker = " and ".join(f"{name} == '{value}'" for name, value in zip(names, values, strict=True))
    facts = make_facts(tensorflow={"requires": (f"absent; {marker}",)})
    unmet = list_unmet_requirements(replace(facts.python.value, platform=platform))
    assert [item.package for item in unmet] == ["absent"]


def test_invalid_requirement_is_ignored():
    facts = make_facts()
    distributions = tuple(
        replace(dist, requires=("numpy (>=1.8)x", "===", "")) if dist.name == "tensorflow" else dist
        for dist in facts.python.value.distributions
    )
    assert list_unmet_requirements(with_python(facts, distributions=distributions).python.value) == ()


# ---------------------------------------------------------------- findings

NUMPY_ABI_ERROR = ImportResult(
    "h5py",
    "numpy.dtype size changed, may indicate binary incompatibility",
    "ValueError",
    top=f"{SITE}/h5py/__init__.py",
    frames=(f"{SITE}/h5py/__init__.py",),
)


def test_module_built_for_another_numpy():
    facts = with_rehearsal(
        make_facts({"h5py": "3.10.0"}), NUMPY_ABI_ERROR, oddities=[RehearsalReason("h5py", "…")]
    )
    prediction = context(facts).prediction
    assert (prediction.import_ok, prediction.gpu_registered, prediction.cause) == (
        False,
        False,
        Cause.PACKAGE_CONFLICT,
    )
    problem = finding(import_fails.RULE, facts)
    assert "h5py 3.10.0" in problem.title
    assert "compiled for a different NumPy" in problem.explanation
    assert problem.remedies[0].steps == (Install(("h5py==3.14.0",)),)
    assert diagnose(facts, COMPAT).verdict.gpu_usable is False


def test_missing_optional_module_does_not_stop_the_import():
    missing = ImportResult(
        "h5py", "No module named 'h5py'", "ModuleNotFoundError", import_error=True, not_found="h5py"
    )
    facts = with_rehearsal(make_facts({"h5py": "3.10.0"}), missing)
    assert context(facts).prediction.import_ok is True
    assert run(import_fails.RULE, facts).kind is OutcomeKind.CLEAN


def test_missing_required_module_stops_the_import():
    missing = ImportResult(
        "absl", "No module named 'absl'", "ModuleNotFoundError", import_error=True, not_found="absl"
    )
    facts = with_rehearsal(make_facts({"absl-py": None}), missing)
    assert context(facts).prediction.import_ok is False
    problem = finding(import_fails.RULE, facts)
    assert problem.cause is Cause.PACKAGE_CONFLICT
    assert problem.title == "import tensorflow fails: absl-py is not installed"


def test_odd_version_is_the_cause():
    """ml_dtypes raises, and NumPy is too old for both."""
    error = ImportResult(
        "ml_dtypes",
        "module 'numpy' has no attribute 'exceptions'",
        "AttributeError",
        attribute_error=True,
        frames=(f"{SITE}/ml_dtypes/__init__.py", f"{SITE}/numpy/__init__.py"),
    )
    facts = with_rehearsal(
        make_facts({"numpy": "1.24.4"}, version="2.18.1", python="3.12"),
        error,
        oddities=[RehearsalReason("numpy", "…")],
    )
    assert "numpy 1.24.4" in finding(import_fails.RULE, facts).title


def test_one_remedy_fixes_several_packages():
    answers = [
        ImportResult(name, "x", "ImportError", import_error=True, frames=(f"{SITE}/{name}/__init__.py",))
        for name in ("wrapt", "ml_dtypes")
    ]
    oddities = [RehearsalReason("wrapt", "…"), RehearsalReason("ml-dtypes", "…")]
    facts = with_rehearsal(
        make_facts({"wrapt": "1.10.11", "ml-dtypes": "0.1.0"}), *answers, oddities=oddities
    )
    (step,) = finding(import_fails.RULE, facts).remedies[0].steps
    assert {requirement.partition("==")[0] for requirement in step.requirements} == {"wrapt", "ml-dtypes"}


def test_protobuf_rejects_generated_code():
    source = ImportResult("x/versions_pb2.py", "Descriptors cannot be created directly", "TypeError")
    facts = with_rehearsal(make_facts({"protobuf": "99.0"}), source=source)
    assert context(facts).prediction.cause is Cause.PROTOBUF_CONFLICT


def test_damaged_package_is_reinstalled():
    damage = {"differs": (FileDifference("wrapt/wrappers.py", "missing"),)}
    error = ImportResult(
        "wrapt",
        "No module named 'wrapt.wrappers'",
        "ModuleNotFoundError",
        import_error=True,
        not_found="wrapt.wrappers",
    )
    facts = with_rehearsal(make_facts({"wrapt": "1.17.3"}, wrapt=damage), error)
    problem = finding(import_fails.RULE, facts)
    assert problem.cause is Cause.DAMAGED_FILE
    assert problem.remedies[0].steps == (
        Install(("wrapt==1.17.3",), force_reinstall=True, install_dependencies=False),
    )
    unreadable = {"differs": (FileDifference("wrapt/wrappers.py", "unreadable"),)}
    facts = with_rehearsal(
        make_facts(wrapt=unreadable), replace(error, error_type="PermissionError", not_found="")
    )
    assert finding(import_fails.RULE, facts).cause is Cause.NOT_PERMITTED


def test_shadowing_file_is_named_instead_of_the_package():
    error = ImportResult("numpy", "x", "AttributeError", file="/here/numpy.py", top="/here/numpy.py")
    facts = with_python(make_facts(), shadows=(Shadow("numpy", "/here/numpy.py", SITE),))
    facts = with_rehearsal(facts, error)
    assert context(facts).prediction.cause is Cause.SHADOWED_MODULE
    problem = finding(shadowed_module.RULE, facts)
    assert problem.severity is Severity.ERROR
    assert "/here/numpy.py" in problem.title
    assert run(import_fails.RULE, facts).kind is OutcomeKind.CLEAN


def test_harmless_shadow_is_not_reported():
    facts = with_python(make_facts(), shadows=(Shadow("random", "/here/random.py", "/usr/lib/python3.11"),))
    facts = with_rehearsal(facts, ImportResult("random", file="/here/random.py", top="/here/random.py"))
    assert context(facts).prediction.import_ok is True
    assert run(shadowed_module.RULE, facts).kind is OutcomeKind.CLEAN


def test_shadowing_folder_is_removed_from_pythonpath():
    error = ImportResult("numpy", "x", "AttributeError", top="/over/numpy/__init__.py")
    facts = with_python(
        make_facts(), shadows=(Shadow("numpy", "/over/numpy", SITE),), sys_path=("/over", SITE)
    )
    facts = with_environment(with_rehearsal(facts, error), PYTHONPATH="/over:/other")
    assert finding(shadowed_module.RULE, facts).remedies[0].commands[0] == "export PYTHONPATH=/other"


def test_failed_rehearsal_gives_no_prediction():
    facts = replace(make_facts({"numpy": "1.26.1"}), rehearsal=Unknown("it did not answer within 8 s"))
    prediction = context(facts).prediction
    assert (prediction.import_ok, prediction.gpu_registered) == (None, None)
    assert run(import_fails.RULE, facts).kind is OutcomeKind.COULD_NOT_CHECK
    assert diagnose(facts, COMPAT).verdict.gpu_usable is None


# ---------------------------------------------------------------- TensorFlow's own files


def make_tensorflow_damage(path: str, difference: str):
    return make_facts(tensorflow={"differs": (FileDifference(path, difference),)})


@pytest.mark.parametrize(
    ("what", "cause", "registered"),
    [
        ("missing", Cause.DAMAGED_FILE, False),
        ("empty", Cause.DAMAGED_FILE, False),
        ("syntax", Cause.DAMAGED_FILE, False),
        ("unreadable", Cause.NOT_PERMITTED, False),
        ("cut", None, None),
        ("changed", None, True),
    ],
)
def test_damaged_source_file_of_tensorflow(what, cause, registered):
    facts = make_tensorflow_damage("tensorflow/python/framework/ops.py", what)
    prediction = context(facts).prediction
    assert (prediction.gpu_registered, prediction.cause) == (registered, cause)
    findings = run(damaged_installation.RULE, facts).findings
    assert bool(findings) is (registered is not True)


def test_unused_source_file_of_tensorflow():
    unused_file = next(
        path for path in sorted(COMPAT.find_import_needs(VERSION).unloaded_files) if path.endswith(".py")
    )
    facts = make_tensorflow_damage(unused_file, "missing")
    assert context(facts).prediction.gpu_registered is True
    assert run(damaged_installation.RULE, facts).kind is OutcomeKind.CLEAN


# ---------------------------------------------------------------- Keras, and unmet requirements


def test_missing_keras_is_a_warning():
    facts = make_facts({"keras": None})
    assert context(facts).prediction.gpu_registered is True
    problem = finding(keras_fails.RULE, facts)
    assert problem.severity is Severity.WARNING
    assert problem.remedies[0].steps == (Install(("keras==3.11.3",)),)
    assert diagnose(facts, COMPAT).verdict.gpu_usable is True


def test_keras_2_with_a_tensorflow_for_keras_3():
    assert "needs Keras 3" in finding(keras_fails.RULE, make_facts({"keras": "2.15.0"})).title
    assert run(keras_fails.RULE, make_facts()).kind is OutcomeKind.CLEAN


def test_missing_keras_backend_is_reported():
    facts = with_environment(make_facts(), KERAS_BACKEND="torch")
    problem = finding(keras_fails.RULE, facts)
    assert "torch" in problem.title
    assert problem.remedies[0].commands[0] == "unset KERAS_BACKEND"
    with_torch = with_environment(make_facts({"torch": "2.5"}), KERAS_BACKEND="torch")
    assert run(keras_fails.RULE, with_torch).kind is OutcomeKind.CLEAN


def test_variable_that_breaks_a_package_is_unset():
    name = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
    facts = with_environment(make_facts(), **{name: "garbage"})
    assert plan_modules(facts)[1] == {"protobuf"}
    error = ImportResult("google.protobuf", "garbage is not supported", "ValueError")
    facts = with_rehearsal(
        facts, error, oddities=[RehearsalReason("protobuf", f"{name} is set to 'garbage'")]
    )
    assert finding(import_fails.RULE, facts).remedies[0].commands[0] == f"unset {name}"


def test_shadowed_keras_is_a_warning():
    facts = with_python(make_facts(), shadows=(Shadow("keras", "/here/keras", SITE),))
    problem = finding(keras_fails.RULE, facts)
    assert (problem.cause, problem.severity) == (Cause.SHADOWED_MODULE, Severity.WARNING)
    assert context(facts).prediction.import_ok is True


def test_missing_legacy_keras_is_reported():
    facts = with_environment(make_facts(), TF_USE_LEGACY_KERAS="1")
    assert "tf-keras" in finding(keras_fails.RULE, facts).title
    with_tf_keras = with_environment(make_facts({"tf-keras": "2.20.1"}), TF_USE_LEGACY_KERAS="1")
    assert run(keras_fails.RULE, with_tf_keras).kind is OutcomeKind.CLEAN


def test_unmet_requirement_that_works_is_information():
    problem = finding(requirement_not_met.RULE, with_rehearsal(make_facts({"ml-dtypes": "0.4.1"})))
    assert problem.severity is Severity.INFO
    assert "ml-dtypes" in problem.title
    assert run(requirement_not_met.RULE, make_facts()).kind is OutcomeKind.CLEAN


def test_failed_import_comes_before_a_later_library():
    error = ImportResult(
        "numpy", "No module named 'numpy'", "ModuleNotFoundError", import_error=True, not_found="numpy"
    )
    facts = with_rehearsal(make_facts({"numpy": None}), error, oddities=[RehearsalReason("numpy", "…")])
    facts = with_loader(facts, make_rejected("libcufft.so.11", "/opt/libcufft.so.11", "invalid ELF header"))
    report = diagnose(facts, COMPAT)
    assert report.root_finding is not None
    assert (report.root_finding.code, report.verdict.cause) == ("TFD312", Cause.PACKAGE_CONFLICT)
    assert "TFD209" in {item.code for item in report.findings}


# ---------------------------------------------------------------- system libraries replaced by a variable


def test_replaced_libz_leaves_the_search_path():
    library = "/old/lib/libz.so.1"
    facts = with_environment(with_python(make_facts(), carried=(library,)), LD_LIBRARY_PATH="/old/lib:/mine")
    modules, odd_modules = plan_modules(facts)
    assert {"zlib", "numpy", "absl", "h5py"} <= modules
    assert odd_modules == {library}
    error = ImportResult(
        "zlib", "/usr/lib/zlib.so: undefined symbol: inflate", "ImportError", import_error=True
    )
    facts = with_rehearsal(facts, error, oddities=[RehearsalReason(library, "…")])
    assert context(facts).prediction.cause is Cause.DAMAGED_FILE
    problem = finding(import_fails.RULE, facts)
    assert library in problem.title
    assert problem.remedies[0].commands[0] == "export LD_LIBRARY_PATH=/mine"


def test_failure_inside_the_standard_library_is_the_librarys():
    """A package on PYTHONPATH imports zlib; the installed one would fail as well."""
    library, shadow = "/old/lib/libz.so.1", Shadow("wrapt", "/over/wrapt", SITE)
    facts = with_python(make_facts(), carried=(library,), shadows=(shadow,), sys_path=("/over", SITE))
    facts = with_environment(facts, LD_LIBRARY_PATH="/old/lib", PYTHONPATH="/over")

    def run_failing(file):
        error = f"{file}: undefined symbol: crc32"
        frames = ("/over/wrapt/__init__.py", "/usr/lib/python3.11/zipfile.py")
        failure = ImportResult("wrapt", error, "ImportError", import_error=True, frames=frames)
        return with_rehearsal(
            facts, failure, oddities=[RehearsalReason(library, "…"), RehearsalReason("wrapt", "…")]
        )

    python_failure = run_failing("/usr/lib/python3.11/lib-dynload/binascii.so")
    assert library in finding(import_fails.RULE, python_failure).title
    assert run(shadowed_module.RULE, python_failure).kind is OutcomeKind.CLEAN
    package_failure = run_failing("/over/wrapt/_wrappers.so")
    assert "wrapt" in finding(shadowed_module.RULE, package_failure).title


def test_loader_error_behind_a_package_error_is_used():
    library = "/old/lib/libgcc_s.so.1"
    facts = with_environment(with_python(make_facts(), carried=(library,)), LD_LIBRARY_PATH="/old/lib")
    error = ImportResult(
        "numpy",
        "Error importing numpy: you should not try to import numpy from its source directory",
        "ImportError",
        import_error=True,
        root="/lib/libstdc++.so.6: undefined symbol: _Unwind_GetRegionStart, version GCC_3.0",
    )
    facts = with_rehearsal(facts, error, oddities=[RehearsalReason(library, "…")])
    assert library in finding(import_fails.RULE, facts).title
    plain = with_rehearsal(facts, replace(error, root=""), oddities=[RehearsalReason(library, "…")])
    assert library not in finding(import_fails.RULE, plain).title


def test_older_libstdcxx_is_the_cause():
    library = "/old/lib/libstdc++.so.6"
    error = ImportResult(
        "h5py", f"{library}: version `GLIBCXX_3.4.29' not found", "ImportError", import_error=True
    )
    facts = with_environment(with_python(make_facts(), carried=(library,)), LD_LIBRARY_PATH="/old/lib")
    numpy_error = replace(error, name="numpy")
    facts = with_rehearsal(facts, numpy_error, oddities=[RehearsalReason(library, "…")])
    assert context(facts).prediction.cause is Cause.LIBSTDCXX_TOO_OLD


def test_package_in_the_working_folder_shadows():
    """After `pip install --target .`, a folder google without an __init__ precedes the installed one."""
    facts = make_facts({"protobuf": "3.2.0"}, protobuf={"location": "/here"})
    source = ImportResult(
        "x/versions_pb2.py", "unexpected keyword argument 'serialized_options'", "TypeError"
    )
    facts = with_rehearsal(facts, source=source, oddities=[RehearsalReason("protobuf", "…")])
    assert "/here/google" in finding(shadowed_module.RULE, facts).title
    assert (
        diagnose(facts, COMPAT).verdict.cause == Cause.SHADOWED_MODULE
    )  # although its version is a known conflict


@pytest.mark.parametrize(("is_imported", "works"), [(True, True), (False, False)])
def test_rehearsal_decides_which_of_two_versions_is_there(*, is_imported: bool, works: bool) -> None:
    """Two protobufs are registered in one folder: the table would blame the one that is named first."""
    facts = make_facts()
    old = Distribution("protobuf", "3.5.2", SITE)
    facts = with_python(facts, distributions=(old, *facts.python.value.distributions))
    results = [ImportResult("google.protobuf", "", "")] if is_imported else []
    facts = with_rehearsal(facts, *results, oddities=[RehearsalReason("protobuf", "…")])
    assert (context(facts).prediction.import_ok is not False) is works


def test_odd_dependency_of_a_good_package_is_the_cause():
    error = ImportResult("h5py", "x", "TypeError", frames=(f"{SITE}/h5py/__init__.py",))
    facts = with_rehearsal(make_facts({"numpy": "9.9"}), error, oddities=[RehearsalReason("numpy", "…")])
    assert "numpy 9.9" in finding(import_fails.RULE, facts).title


def test_shadowed_standard_module_has_all_rehearsed():
    """`http.cookiejar`, which requests imports, needs calendar.timegm, and the shadowing file has none."""
    shadow = Shadow("calendar", "/home/user/code/calendar.py", "/usr/lib/python3.11")
    modules, odd_modules = plan_modules(with_python(make_facts(), shadows=(shadow,)))
    assert odd_modules == {"calendar"}
    assert {"calendar", "requests", "h5py", "numpy"} <= modules
    failure = ImportResult(
        "requests",
        "cannot import name 'timegm' from 'calendar' (/home/user/code/calendar.py)",
        "ImportError",
        import_error=True,
        frames=("/usr/lib/python3.11/http/cookiejar.py", f"{SITE}/requests/cookies.py"),
    )
    facts = with_rehearsal(with_python(make_facts(), shadows=(shadow,)), failure)
    assert diagnose(facts, COMPAT).verdict.cause == Cause.SHADOWED_MODULE


def test_shadowing_file_is_reported_once():
    shadow = Shadow("inspect", "/home/user/code/inspect.py", "/usr/lib/python3.11")
    error = "module 'inspect' has no attribute 'signature'"
    failures_met = [
        ImportResult(
            name, error, "AttributeError", attribute_error=True, frames=(f"{SITE}/{name}/__init__.py",)
        )
        for name in ("numpy", "wrapt")
    ]
    failures_met.append(ImportResult("ml_dtypes", "numpy was not imported", "ImportError", import_error=True))
    oddities = [RehearsalReason("inspect", "…")]
    facts = with_rehearsal(with_python(make_facts(), shadows=(shadow,)), *failures_met, oddities=oddities)
    findings = diagnose(facts, COMPAT).findings
    assert [item.title for item in findings if item.severity is Severity.ERROR] == [
        "The file /home/user/code/inspect.py hides inspect from programs started here"
    ]


def test_consequence_of_another_package_is_not_reported():
    """ml-dtypes is a tested version; compiled for NumPy 1, it raises in no file of NumPy 2."""
    errors = [
        ImportResult("numpy", "np.complex_ was removed", "AttributeError", attribute_error=True),
        ImportResult("ml_dtypes", "numpy.core.umath failed to import", "ImportError", import_error=True),
    ]
    facts = with_rehearsal(
        make_facts({"numpy": "2.9"}, **{"ml-dtypes": {"requires": ()}}),
        *errors,
        oddities=[RehearsalReason("numpy", "…")],
    )
    assert finding(import_fails.RULE, facts).title == "import tensorflow fails with numpy 2.9"


@pytest.mark.parametrize(("version", "stops"), [("0.0.3", True), ("0.0.4", False), ("0.1.0", False)])
def test_namex_conflict_comes_from_the_table(version: str, *, stops: bool):
    facts = with_rehearsal(
        make_facts({"namex": version}), ImportResult("namex"), oddities=[RehearsalReason("namex", "…")]
    )
    assert context(facts).prediction.import_ok is not stops
    if stops:
        problem = finding(import_fails.RULE, facts)
        assert (problem.cause, problem.severity) == (Cause.PACKAGE_CONFLICT, Severity.ERROR)
        assert "namex>=0.0.4" in problem.remedies[0].commands[0]


def test_leftover_folder_of_a_package_can_be_imported():
    """Python imports a folder without __init__, and TensorFlow uses nothing of termcolor."""
    rehearsed = ImportResult("termcolor", file=f"{SITE}/termcolor", top=f"{SITE}/termcolor")
    damage = {"differs": (FileDifference("termcolor/__init__.py", "missing"),)}
    facts = with_rehearsal(
        make_facts(termcolor=damage), rehearsed, oddities=[RehearsalReason("termcolor", "…")]
    )
    assert context(facts).prediction.import_ok is True


def test_tensorboard_submodule_needs_its_init_file():
    """`from tensorboard.summary._tf import summary` works without tensorboard, but not with half of it."""
    name, path = "tensorboard.summary._tf.summary", f"{SITE}/tensorboard/summary/_tf/summary"
    rehearsed = ImportResult(name, file=path, top=f"{SITE}/tensorboard/__init__.py")
    damage = {"differs": (FileDifference("tensorboard/summary/_tf/summary/__init__.py", "missing"),)}
    facts = make_facts(version="2.13.1", tensorboard=damage)
    facts = with_rehearsal(facts, rehearsed, oddities=[RehearsalReason("tensorboard", "…")])
    assert context(facts).prediction.import_ok is False
    problem = finding(import_fails.RULE, facts)
    assert "tensorboard" in problem.title
    assert "--force-reinstall" in problem.remedies[0].commands[0]
    complete = replace(rehearsed, file=f"{path}/__init__.py")
    facts = with_rehearsal(facts, complete, oddities=[RehearsalReason("tensorboard", "…")])
    assert context(facts).prediction.import_ok is True


def test_file_that_shadows_a_package_is_the_cause():
    shadow = Shadow("email", "/home/user/code/email.py", "/usr/lib/python3.11")
    failure = ImportResult(
        "requests",
        "No module named 'email.parser'; 'email' is not a package",
        "ModuleNotFoundError",
        import_error=True,
        not_found="email.parser",
    )
    facts = with_rehearsal(
        with_python(make_facts(), shadows=(shadow,)), failure, oddities=[RehearsalReason("email", "…")]
    )
    assert diagnose(facts, COMPAT).verdict.cause == Cause.SHADOWED_MODULE
    assert "/home/user/code/email.py" in finding(shadowed_module.RULE, facts).title


def test_noexec_file_system_blames_no_package():
    error = ImportResult("numpy", "IMPORTANT: PLEASE READ THIS", "ImportError", import_error=True)
    facts = with_rehearsal(make_facts({"numpy": "1.99"}), error, oddities=[RehearsalReason("numpy", "…")])
    assert [item.package for item in list_import_failures(facts, COMPAT)] == ["numpy"]
    path = f"{SITE}/tensorflow/libtensorflow_framework.so.2"
    resolution = Resolution(path, path, "", f"{path}: {NOEXEC_ERROR}", (), needed_by=path)
    assert not list_import_failures(with_loader(facts, import_needs=(resolution,)), COMPAT)


def test_imported_package_without_metadata_is_installed():
    facts = make_facts({"typing-extensions": None}, version="2.15.1", **NO_REQUIREMENTS)
    facts = with_python(facts, absent=("typing-extensions",))
    assert not context(facts).prediction.import_ok
    facts = with_rehearsal(
        facts, ImportResult("typing_extensions"), oddities=[RehearsalReason("typing-extensions", "…")]
    )
    assert context(facts).prediction.import_ok


def test_generated_sources_of_keras_2_are_rehearsed():
    """Keras cannot be imported without TensorFlow, but its generated sources can."""
    requires = {"tensorflow": {"requires": ("keras<2.14,>=2.13.1",)}}
    facts = make_facts({"keras": "2.11.0"}, version="2.13.1", python="3.10", **requires)
    plan = plan_rehearsal(facts.python.value, facts.tensorflow.value, {}, COMPAT)
    assert plan is not None
    assert plan.generated_sources[-1] == f"{SITE}/keras/protobuf/versions_pb2.py"
    path = f"{SITE}/keras/protobuf/versions_pb2.py"
    error = "Descriptors cannot be created directly."
    source = ImportResult(path, error, "TypeError", frames=(path, f"{SITE}/google/protobuf/descriptor.py"))
    facts = with_rehearsal(facts, source=source, oddities=plan.reasons)
    assert finding(import_fails.RULE, facts).title == "import tensorflow fails with keras 2.11.0"


def test_missing_package_is_rehearsed_with_its_dependents():
    """TensorFlow does not require certifi; requests does, and TensorFlow imports requests."""
    requires = {"requests": {"requires": ("certifi>=2023.5.7",)}, "tensorflow": {"requires": ("requests",)}}
    modules, odd_modules = plan_modules(make_facts({"certifi": None}, **requires))
    assert odd_modules == {"certifi"}
    assert "requests" in modules


def test_dependency_with_a_changed_file_is_rehearsed():
    changed = {"urllib3": {"differs": (FileDifference("urllib3/_version.py", "changed"),)}}
    _, odd_modules = plan_modules(
        make_facts(
            **{"requests": {"requires": ("urllib3",)}, "tensorflow": {"requires": ("requests",)}, **changed}
        )
    )
    assert odd_modules == {"urllib3"}
