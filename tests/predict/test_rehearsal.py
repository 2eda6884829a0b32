"""What of an import is rehearsed, and what is made of the rehearsal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predict.rehearsals import VERSION, ask, make_facts, rehearse
from rules.make_facts import (
    COMPAT,
    SITE,
    context,
    finding,
    healthy,
    run,
    stop_process,
    with_environment,
    with_loader,
    with_python,
)
from tfdoctor.causes.steps import Install
from tfdoctor.facts import NOEXEC, Distribution, Known, Resolution, Unknown
from tfdoctor.facts.imports import FileDifference, Oddity, Rehearsed, Shadow
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.predict.failures import failures
from tfdoctor.predict.rehearsal import plan_rehearsal, unmet
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import (
    damaged_installation,
    import_fails,
    keras_fails,
    requirement_not_met,
    shadowed_module,
)


def test_what_is_as_its_lock_is_not_rehearsed():
    assert ask(make_facts()) == (set(), set())


@pytest.mark.parametrize(("package", "version"), [("numpy", "1.26.1"), ("wrapt", "1.10.11")])
def test_with_another_version_all_that_the_import_needs_is_rehearsed(package, version):
    """Packages use one another without a word of it in their metadata."""
    modules, odd = ask(make_facts({package: version}))
    assert odd == {package}
    assert {"numpy", "ml_dtypes", "absl", "wrapt"} <= modules
    assert ("h5py" in modules) is (
        package == "numpy"
    )  # it is only tried, and says itself that it needs NumPy


ASKS_NOTHING = {"tensorflow": {"requires": ()}}


def test_setuptools_brings_the_distutils_that_python_has_no_more():
    modules, odd = ask(make_facts({"packaging": "15.1"}, version="2.18.1", python="3.12", **ASKS_NOTHING))
    assert odd == {"packaging"}
    assert "distutils" in modules
    assert "distutils" not in ask(make_facts({"packaging": "15.1"}))[0]  # Python 3.11 has it


def test_what_setuptools_uses_is_to_blame_for_distutils():
    requires = {"setuptools": {"requires": ('packaging>=24.2; extra == "core"',)}, **ASKS_NOTHING}
    error = Rehearsed(
        "distutils",
        "No module named 'distutils'",
        "ModuleNotFoundError",
        import_error=True,
        not_found="distutils",
    )
    odd = [Oddity("packaging", "…")]
    facts = make_facts({"packaging": "15.1"}, version="2.18.1", python="3.12", **requires)
    one = finding(import_fails.RULE, rehearse(facts, error, oddities=odd))
    assert "packaging 15.1" in one.title
    gone = make_facts({"setuptools": None}, version="2.18.1", python="3.12")
    one = finding(import_fails.RULE, rehearse(gone, error, oddities=[Oddity("setuptools", "…")]))
    assert "setuptools is not installed" in one.title


def test_what_is_missing_is_rehearsed():
    modules, odd = ask(make_facts({"termcolor": None}))
    assert "termcolor" in modules
    assert "termcolor" in odd


def test_what_is_tried_is_rehearsed_only_where_it_is():
    assert "pandas" not in ask(make_facts())[0]
    assert "pandas" in ask(make_facts({"pandas": "2.1.4"}))[0]


@pytest.mark.parametrize(
    ("name", "modules"), [("random", {"random"}), ("numpy", {"numpy", "h5py"}), ("my_own_module", set())]
)
def test_what_is_found_twice_is_rehearsed_where_the_import_takes_it(name, modules):
    facts = with_python(make_facts(), shadows=(Shadow(name, f"/here/{name}.py", SITE),))
    seen = ask(facts)[0]
    assert modules <= seen
    assert bool(seen) is bool(modules)


def test_files_that_are_not_as_installed_are_rehearsed():
    damage = {"differs": (FileDifference("h5py/_errors.so", "cut"),)}
    assert "h5py" in ask(make_facts({"h5py": "3.14.0"}, h5py=damage))[0]
    touched = {"differs": (FileDifference("h5py/__init__.py", "changed"),)}
    assert ask(make_facts(h5py=touched))[1] == {"h5py"}  # somebody's own work, maybe: it is tried


def test_an_unmeasured_release_is_rehearsed_by_its_modules_alone():
    facts = with_python(healthy("2.18.1"), distributions=())
    newer = replace(facts, tensorflow=Known(replace(facts.tensorflow.value, version="2.99.0"), "x"))
    newer = with_python(newer, distributions=(Distribution("numpy", "9.0", SITE),))
    found = plan_rehearsal(newer.python.value, newer.tensorflow.value, {}, COMPAT)
    assert found is not None
    assert dict(found.modules)["numpy"] == ()
    assert COMPAT.find_imported("1.4.0") is None
    assert COMPAT.find_imported("not a version") is None


# ---------------------------------------------------------------- requirements


def test_unmet_requirements():
    found = {
        (one.by, one.package, one.have) for one in unmet(make_facts({"ml-dtypes": "0.4.1"}).python.value)
    }
    assert ("tensorflow", "ml-dtypes", "0.4.1") in found
    assert not any(one.package.startswith("nvidia") for one in unmet(make_facts().python.value))
    assert not any("gcs" in one.package for one in unmet(make_facts().python.value))
    assert ("optree", "typing-extensions", "4.0.0") in {
        (one.by, one.package, one.have)
        for one in unmet(make_facts({"typing-extensions": "4.0.0"}).python.value)
    }


def test_a_requirement_that_is_no_requirement():
    facts = make_facts()
    own = tuple(
        replace(one, requires=("numpy (>=1.8)x", "===", "")) if one.name == "tensorflow" else one
        for one in facts.python.value.distributions
    )
    assert unmet(with_python(facts, distributions=own).python.value) == ()


# ---------------------------------------------------------------- what it means

NUMPY_2 = Rehearsed(
    "h5py",
    "numpy.dtype size changed, may indicate binary incompatibility",
    "ValueError",
    top=f"{SITE}/h5py/__init__.py",
    frames=(f"{SITE}/h5py/__init__.py",),
)


def test_a_module_for_another_numpy():
    facts = rehearse(make_facts({"h5py": "3.10.0"}), NUMPY_2, oddities=[Oddity("h5py", "…")])
    said = context(facts).prediction
    assert (said.import_ok, said.gpu_registered, said.cause) == (False, False, Cause.PACKAGE_CONFLICT)
    one = finding(import_fails.RULE, facts)
    assert "h5py 3.10.0" in one.title
    assert "compiled for a different NumPy" in one.explanation
    assert one.remedies[0].steps == (Install(("h5py==3.14.0",)),)
    assert diagnose(facts, COMPAT).verdict.gpu_usable is False


def test_an_import_error_of_what_is_only_tried_stops_nothing():
    missing = Rehearsed(
        "h5py", "No module named 'h5py'", "ModuleNotFoundError", import_error=True, not_found="h5py"
    )
    facts = rehearse(make_facts({"h5py": "3.10.0"}), missing)
    assert context(facts).prediction.import_ok is True
    assert run(import_fails.RULE, facts).kind is OutcomeKind.CLEAN


def test_what_is_needed_stops_it_with_an_import_error():
    missing = Rehearsed(
        "absl", "No module named 'absl'", "ModuleNotFoundError", import_error=True, not_found="absl"
    )
    facts = rehearse(make_facts({"absl-py": None}), missing)
    assert context(facts).prediction.import_ok is False
    one = finding(import_fails.RULE, facts)
    assert one.cause is Cause.PACKAGE_CONFLICT
    assert one.title == "import tensorflow fails: absl-py is not installed"


def test_the_version_that_nobody_asked_for_is_to_blame():
    """ml_dtypes raises, and numpy is the one that is too old for both."""
    error = Rehearsed(
        "ml_dtypes",
        "module 'numpy' has no attribute 'exceptions'",
        "AttributeError",
        attribute_error=True,
        frames=(f"{SITE}/ml_dtypes/__init__.py", f"{SITE}/numpy/__init__.py"),
    )
    facts = rehearse(
        make_facts({"numpy": "1.24.4"}, version="2.18.1", python="3.12"),
        error,
        oddities=[Oddity("numpy", "…")],
    )
    assert "numpy 1.24.4" in finding(import_fails.RULE, facts).title


def test_several_are_put_right_at_once():
    answers = [
        Rehearsed(name, "x", "ImportError", import_error=True, frames=(f"{SITE}/{name}/__init__.py",))
        for name in ("wrapt", "ml_dtypes")
    ]
    odd = [Oddity("wrapt", "…"), Oddity("ml-dtypes", "…")]
    facts = rehearse(make_facts({"wrapt": "1.10.11", "ml-dtypes": "0.1.0"}), *answers, oddities=odd)
    (step,) = finding(import_fails.RULE, facts).remedies[0].steps
    assert {one.partition("==")[0] for one in step.requirements} == {"wrapt", "ml-dtypes"}


def test_generated_code_that_protobuf_refuses():
    source = Rehearsed("x/versions_pb2.py", "Descriptors cannot be created directly", "TypeError")
    facts = rehearse(make_facts({"protobuf": "99.0"}), source=source)
    assert context(facts).prediction.cause is Cause.PROTOBUF_CONFLICT


def test_a_damaged_package_is_installed_again():
    damage = {"differs": (FileDifference("wrapt/wrappers.py", "missing"),)}
    gone = Rehearsed(
        "wrapt",
        "No module named 'wrapt.wrappers'",
        "ModuleNotFoundError",
        import_error=True,
        not_found="wrapt.wrappers",
    )
    facts = rehearse(make_facts({"wrapt": "1.17.3"}, wrapt=damage), gone)
    one = finding(import_fails.RULE, facts)
    assert one.cause is Cause.DAMAGED_FILE
    assert one.remedies[0].steps == (Install(("wrapt==1.17.3",), again=True, dependencies=False),)
    unreadable = {"differs": (FileDifference("wrapt/wrappers.py", "unreadable"),)}
    facts = rehearse(make_facts(wrapt=unreadable), replace(gone, error_type="PermissionError", not_found=""))
    assert finding(import_fails.RULE, facts).cause is Cause.NOT_PERMITTED


def test_a_file_in_the_working_folder_is_named_and_not_the_package():
    error = Rehearsed("numpy", "x", "AttributeError", file="/here/numpy.py", top="/here/numpy.py")
    facts = with_python(make_facts(), shadows=(Shadow("numpy", "/here/numpy.py", SITE),))
    facts = rehearse(facts, error)
    assert context(facts).prediction.cause is Cause.SHADOWED_MODULE
    one = finding(shadowed_module.RULE, facts)
    assert one.severity is Severity.ERROR
    assert "/here/numpy.py" in one.title
    assert run(import_fails.RULE, facts).kind is OutcomeKind.CLEAN


def test_a_shadow_that_works_is_not_worth_a_word():
    facts = with_python(make_facts(), shadows=(Shadow("random", "/here/random.py", "/usr/lib/python3.11"),))
    facts = rehearse(facts, Rehearsed("random", file="/here/random.py", top="/here/random.py"))
    assert context(facts).prediction.import_ok is True
    assert run(shadowed_module.RULE, facts).kind is OutcomeKind.CLEAN


def test_a_folder_of_pythonpath_is_taken_off():
    error = Rehearsed("numpy", "x", "AttributeError", top="/over/numpy/__init__.py")
    facts = with_python(
        make_facts(), shadows=(Shadow("numpy", "/over/numpy", SITE),), sys_path=("/over", SITE)
    )
    facts = with_environment(rehearse(facts, error), PYTHONPATH="/over:/other")
    assert finding(shadowed_module.RULE, facts).remedies[0].commands[0] == "export PYTHONPATH=/other"


def test_what_could_not_be_tried_is_not_known():
    facts = replace(make_facts({"numpy": "1.26.1"}), rehearsal=Unknown("it did not answer within 8 s"))
    said = context(facts).prediction
    assert (said.import_ok, said.gpu_registered) == (None, None)
    assert run(import_fails.RULE, facts).kind is OutcomeKind.COULD_NOT_CHECK
    assert diagnose(facts, COMPAT).verdict.gpu_usable is None


# ---------------------------------------------------------------- TensorFlow's own files


def make_own_file(path: str, what: str):
    return make_facts(tensorflow={"differs": (FileDifference(path, what),)})


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
def test_a_source_of_tensorflow(what, cause, registered):
    facts = make_own_file("tensorflow/python/framework/ops.py", what)
    said = context(facts).prediction
    assert (said.gpu_registered, said.cause) == (registered, cause)
    found = run(damaged_installation.RULE, facts).findings
    assert bool(found) is (registered is not True)


def test_a_source_that_the_import_does_not_load():
    idle = next(path for path in sorted(COMPAT.find_imported(VERSION).idle) if path.endswith(".py"))
    facts = make_own_file(idle, "missing")
    assert context(facts).prediction.gpu_registered is True
    assert run(damaged_installation.RULE, facts).kind is OutcomeKind.CLEAN


# ---------------------------------------------------------------- Keras apart, and requirements that are not met


def test_keras_is_not_there():
    facts = make_facts({"keras": None})
    assert context(facts).prediction.gpu_registered is True
    one = finding(keras_fails.RULE, facts)
    assert one.severity is Severity.WARNING
    assert one.remedies[0].steps == (Install(("keras==3.11.3",)),)
    assert diagnose(facts, COMPAT).verdict.gpu_usable is True


def test_keras_2_under_a_tensorflow_for_keras_3():
    assert "needs Keras 3" in finding(keras_fails.RULE, make_facts({"keras": "2.15.0"})).title
    assert run(keras_fails.RULE, make_facts()).kind is OutcomeKind.CLEAN


def test_the_backend_that_keras_is_told_to_take_is_not_there():
    facts = with_environment(make_facts(), KERAS_BACKEND="torch")
    one = finding(keras_fails.RULE, facts)
    assert "torch" in one.title
    assert one.remedies[0].commands[0] == "unset KERAS_BACKEND"
    there = with_environment(make_facts({"torch": "2.5"}), KERAS_BACKEND="torch")
    assert run(keras_fails.RULE, there).kind is OutcomeKind.CLEAN


def test_a_variable_with_which_a_package_fails_is_taken_away():
    name = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
    facts = with_environment(make_facts(), **{name: "garbage"})
    assert ask(facts)[1] == {"protobuf"}
    error = Rehearsed("google.protobuf", "garbage is not supported", "ValueError")
    facts = rehearse(facts, error, oddities=[Oddity("protobuf", f"{name} is set to 'garbage'")])
    assert finding(import_fails.RULE, facts).remedies[0].commands[0] == f"unset {name}"


def test_a_folder_keras_in_the_working_folder():
    facts = with_python(make_facts(), shadows=(Shadow("keras", "/here/keras", SITE),))
    one = finding(keras_fails.RULE, facts)
    assert (one.cause, one.severity) == (Cause.SHADOWED_MODULE, Severity.WARNING)
    assert context(facts).prediction.import_ok is True


def test_legacy_keras_is_asked_for_and_not_there():
    facts = with_environment(make_facts(), TF_USE_LEGACY_KERAS="1")
    assert "tf-keras" in finding(keras_fails.RULE, facts).title
    there = with_environment(make_facts({"tf-keras": "2.20.1"}), TF_USE_LEGACY_KERAS="1")
    assert run(keras_fails.RULE, there).kind is OutcomeKind.CLEAN


def test_a_requirement_that_is_not_met_and_works():
    one = finding(requirement_not_met.RULE, rehearse(make_facts({"ml-dtypes": "0.4.1"})))
    assert one.severity is Severity.INFO
    assert "ml-dtypes" in one.title
    assert run(requirement_not_met.RULE, make_facts()).kind is OutcomeKind.CLEAN


def test_what_stops_the_import_leads_before_a_library_that_is_asked_for_later():
    error = Rehearsed(
        "numpy", "No module named 'numpy'", "ModuleNotFoundError", import_error=True, not_found="numpy"
    )
    facts = rehearse(make_facts({"numpy": None}), error, oddities=[Oddity("numpy", "…")])
    facts = with_loader(facts, stop_process("libcufft.so.11", "/opt/libcufft.so.11", "invalid ELF header"))
    report = diagnose(facts, COMPAT)
    assert report.root is not None
    assert (report.root.code, report.verdict.cause) == ("TFD312", Cause.PACKAGE_CONFLICT)
    assert "TFD209" in {one.code for one in report.findings}


# ---------------------------------------------------------------- libraries of the system that a variable replaces


def test_another_libz_has_everything_rehearsed_and_is_taken_off():
    library = "/old/lib/libz.so.1"
    facts = with_environment(with_python(make_facts(), carried=(library,)), LD_LIBRARY_PATH="/old/lib:/mine")
    modules, odd = ask(facts)
    assert {"zlib", "numpy", "absl", "h5py"} <= modules
    assert odd == {library}
    error = Rehearsed("zlib", "/usr/lib/zlib.so: undefined symbol: inflate", "ImportError", import_error=True)
    facts = rehearse(facts, error, oddities=[Oddity(library, "…")])
    assert context(facts).prediction.cause is Cause.DAMAGED_FILE
    one = finding(import_fails.RULE, facts)
    assert library in one.title
    assert one.remedies[0].commands[0] == "export LD_LIBRARY_PATH=/mine"


def test_a_library_that_lets_python_s_own_file_fail_is_no_fault_of_who_imports_it():
    """A package of PYTHONPATH asks for zlib; so would the installed one."""
    library, shadow = "/old/lib/libz.so.1", Shadow("wrapt", "/over/wrapt", SITE)
    facts = with_python(make_facts(), carried=(library,), shadows=(shadow,), sys_path=("/over", SITE))
    facts = with_environment(facts, LD_LIBRARY_PATH="/old/lib", PYTHONPATH="/over")

    def run_failing(file):
        error = f"{file}: undefined symbol: crc32"
        through = ("/over/wrapt/__init__.py", "/usr/lib/python3.11/zipfile.py")
        one = Rehearsed("wrapt", error, "ImportError", import_error=True, frames=through)
        return rehearse(facts, one, oddities=[Oddity(library, "…"), Oddity("wrapt", "…")])

    python_s = run_failing("/usr/lib/python3.11/lib-dynload/binascii.so")
    assert library in finding(import_fails.RULE, python_s).title
    assert run(shadowed_module.RULE, python_s).kind is OutcomeKind.CLEAN
    its_own = run_failing("/over/wrapt/_wrappers.so")
    assert "wrapt" in finding(shadowed_module.RULE, its_own).title


def test_a_package_that_tells_its_own_story_in_the_place_of_the_loader_s():
    library = "/old/lib/libgcc_s.so.1"
    facts = with_environment(with_python(make_facts(), carried=(library,)), LD_LIBRARY_PATH="/old/lib")
    error = Rehearsed(
        "numpy",
        "Error importing numpy: you should not try to import numpy from its source directory",
        "ImportError",
        import_error=True,
        root="/lib/libstdc++.so.6: undefined symbol: _Unwind_GetRegionStart, version GCC_3.0",
    )
    facts = rehearse(facts, error, oddities=[Oddity(library, "…")])
    assert library in finding(import_fails.RULE, facts).title
    plain = rehearse(facts, replace(error, root=""), oddities=[Oddity(library, "…")])
    assert library not in finding(import_fails.RULE, plain).title


def test_an_older_libstdcxx_in_a_package_s_way():
    library = "/old/lib/libstdc++.so.6"
    error = Rehearsed(
        "h5py", f"{library}: version `GLIBCXX_3.4.29' not found", "ImportError", import_error=True
    )
    facts = with_environment(with_python(make_facts(), carried=(library,)), LD_LIBRARY_PATH="/old/lib")
    needed = replace(error, name="numpy")
    facts = rehearse(facts, needed, oddities=[Oddity(library, "…")])
    assert context(facts).prediction.cause is Cause.LIBSTDCXX_TOO_OLD


def test_a_package_that_was_installed_into_the_working_folder():
    """`pip install --target .`: a folder google without an __init__ comes before the real one."""
    facts = make_facts({"protobuf": "3.2.0"}, protobuf={"location": "/here"})
    source = Rehearsed("x/versions_pb2.py", "unexpected keyword argument 'serialized_options'", "TypeError")
    facts = rehearse(facts, source=source, oddities=[Oddity("protobuf", "…")])
    assert "/here/google" in finding(shadowed_module.RULE, facts).title
    assert diagnose(facts, COMPAT).verdict.cause == Cause.SHADOWED_MODULE  # whatever its version is known for


def test_what_a_package_requires_is_to_blame_where_the_package_is_as_it_works():
    error = Rehearsed("h5py", "x", "TypeError", frames=(f"{SITE}/h5py/__init__.py",))
    facts = rehearse(make_facts({"numpy": "9.9"}), error, oddities=[Oddity("numpy", "…")])
    assert "numpy 9.9" in finding(import_fails.RULE, facts).title


def test_a_hidden_module_of_pythons_own_is_rehearsed_with_all_that_may_need_it():
    """`http.cookiejar`, which requests takes, wants calendar.timegm: the file that hides it has none."""
    shadow = Shadow("calendar", "/home/user/code/calendar.py", "/usr/lib/python3.11")
    modules, odd = ask(with_python(make_facts(), shadows=(shadow,)))
    assert odd == {"calendar"}
    assert {"calendar", "requests", "h5py", "numpy"} <= modules
    failed = Rehearsed(
        "requests",
        "cannot import name 'timegm' from 'calendar' (/home/user/code/calendar.py)",
        "ImportError",
        import_error=True,
        frames=("/usr/lib/python3.11/http/cookiejar.py", f"{SITE}/requests/cookies.py"),
    )
    facts = rehearse(with_python(make_facts(), shadows=(shadow,)), failed)
    assert diagnose(facts, COMPAT).verdict.cause == Cause.SHADOWED_MODULE


def test_a_file_that_hides_a_module_is_told_once_and_nothing_that_fails_by_it():
    shadow = Shadow("inspect", "/home/user/code/inspect.py", "/usr/lib/python3.11")
    error = "module 'inspect' has no attribute 'signature'"
    failed = [
        Rehearsed(name, error, "AttributeError", attribute_error=True, frames=(f"{SITE}/{name}/__init__.py",))
        for name in ("numpy", "wrapt")
    ]
    failed.append(Rehearsed("ml_dtypes", "numpy was not imported", "ImportError", import_error=True))
    odd = [Oddity("inspect", "…")]
    facts = rehearse(with_python(make_facts(), shadows=(shadow,)), *failed, oddities=odd)
    found = diagnose(facts, COMPAT).findings
    assert [one.title for one in found if one.severity is Severity.ERROR] == [
        "The file /home/user/code/inspect.py hides inspect from programs started here"
    ]


def test_what_fails_by_another_package_is_not_blamed_beside_it():
    """ml-dtypes is as it works; compiled for NumPy 1, it raises in no file of NumPy 2."""
    errors = [
        Rehearsed("numpy", "np.complex_ was removed", "AttributeError", attribute_error=True),
        Rehearsed("ml_dtypes", "numpy.core.umath failed to import", "ImportError", import_error=True),
    ]
    facts = rehearse(
        make_facts({"numpy": "2.9"}, **{"ml-dtypes": {"requires": ()}}),
        *errors,
        oddities=[Oddity("numpy", "…")],
    )
    assert finding(import_fails.RULE, facts).title == "import tensorflow fails with numpy 2.9"


@pytest.mark.parametrize(("version", "stops"), [("0.0.3", True), ("0.0.4", False), ("0.1.0", False)])
def test_what_keras_takes_as_tensorflow_imports_it_cannot_be_rehearsed_and_was_run(
    version: str, *, stops: bool
):
    facts = rehearse(make_facts({"namex": version}), Rehearsed("namex"), oddities=[Oddity("namex", "…")])
    assert context(facts).prediction.import_ok is not stops
    if stops:
        one = finding(import_fails.RULE, facts)
        assert (one.cause, one.severity) == (Cause.PACKAGE_CONFLICT, Severity.ERROR)
        assert "namex>=0.0.4" in one.remedies[0].commands[0]


def test_a_folder_that_is_left_of_a_package_is_imported():
    """Without its __init__ Python imports it; what is taken of it fails, and nothing is of termcolor."""
    left = Rehearsed("termcolor", file=f"{SITE}/termcolor", top=f"{SITE}/termcolor")
    damage = {"differs": (FileDifference("termcolor/__init__.py", "missing"),)}
    facts = rehearse(make_facts(termcolor=damage), left, oddities=[Oddity("termcolor", "…")])
    assert context(facts).prediction.import_ok is True


def test_a_folder_that_tensorflow_puts_on_its_own_path_has_to_have_a_file():
    """`from tensorboard.summary._tf import summary` does without tensorboard, and not with half of it."""
    name, path = "tensorboard.summary._tf.summary", f"{SITE}/tensorboard/summary/_tf/summary"
    left = Rehearsed(name, file=path, top=f"{SITE}/tensorboard/__init__.py")
    damage = {"differs": (FileDifference("tensorboard/summary/_tf/summary/__init__.py", "missing"),)}
    facts = make_facts(version="2.13.1", tensorboard=damage)
    facts = rehearse(facts, left, oddities=[Oddity("tensorboard", "…")])
    assert context(facts).prediction.import_ok is False
    one = finding(import_fails.RULE, facts)
    assert "tensorboard" in one.title
    assert "--force-reinstall" in one.remedies[0].commands[0]
    whole = replace(left, file=f"{path}/__init__.py")
    facts = rehearse(facts, whole, oddities=[Oddity("tensorboard", "…")])
    assert context(facts).prediction.import_ok is True


def test_a_file_in_the_place_of_a_package_has_none_of_its_modules():
    shadow = Shadow("email", "/home/user/code/email.py", "/usr/lib/python3.11")
    failed = Rehearsed(
        "requests",
        "No module named 'email.parser'; 'email' is not a package",
        "ModuleNotFoundError",
        import_error=True,
        not_found="email.parser",
    )
    facts = rehearse(with_python(make_facts(), shadows=(shadow,)), failed, oddities=[Oddity("email", "…")])
    assert diagnose(facts, COMPAT).verdict.cause == Cause.SHADOWED_MODULE
    assert "/home/user/code/email.py" in finding(shadowed_module.RULE, facts).title


def test_where_nothing_can_be_loaded_no_package_is_to_blame():
    error = Rehearsed("numpy", "IMPORTANT: PLEASE READ THIS", "ImportError", import_error=True)
    facts = rehearse(make_facts({"numpy": "1.99"}), error, oddities=[Oddity("numpy", "…")])
    assert [one.package for one in failures(facts, COMPAT)] == ["numpy"]
    path = f"{SITE}/tensorflow/libtensorflow_framework.so.2"
    failed = Resolution(path, path, "", f"{path}: {NOEXEC}", (), needed_by=path)
    assert not failures(with_loader(facts, import_needs=(failed,)), COMPAT)


def test_what_nobody_registered_and_was_imported_is_there():
    facts = make_facts({"typing-extensions": None}, version="2.15.1", **ASKS_NOTHING)
    facts = with_python(facts, absent=("typing-extensions",))
    assert not context(facts).prediction.import_ok
    facts = rehearse(facts, Rehearsed("typing_extensions"), oddities=[Oddity("typing-extensions", "…")])
    assert context(facts).prediction.import_ok


def test_code_that_keras_2_was_generated_with_is_tried_too():
    """Keras cannot be imported without TensorFlow: its generated sources can."""
    asks = {"tensorflow": {"requires": ("keras<2.14,>=2.13.1",)}}
    facts = make_facts({"keras": "2.11.0"}, version="2.13.1", python="3.10", **asks)
    found = plan_rehearsal(facts.python.value, facts.tensorflow.value, {}, COMPAT)
    assert found is not None
    assert found.sources[-1] == f"{SITE}/keras/protobuf/versions_pb2.py"
    path = f"{SITE}/keras/protobuf/versions_pb2.py"
    error = "Descriptors cannot be created directly."
    source = Rehearsed(path, error, "TypeError", frames=(path, f"{SITE}/google/protobuf/descriptor.py"))
    facts = rehearse(facts, source=source, oddities=found.oddities)
    assert finding(import_fails.RULE, facts).title == "import tensorflow fails with keras 2.11.0"


def test_a_package_that_is_gone_is_rehearsed_with_who_asks_for_it():
    """TensorFlow asks for certifi nowhere: requests does, and TensorFlow takes requests."""
    requires = {"requests": {"requires": ("certifi>=2023.5.7",)}, "tensorflow": {"requires": ("requests",)}}
    modules, odd = ask(make_facts({"certifi": None}, **requires))
    assert odd == {"certifi"}
    assert "requests" in modules


def test_a_changed_file_of_a_package_is_tried():
    changed = {"urllib3": {"differs": (FileDifference("urllib3/_version.py", "changed"),)}}
    _, odd = ask(
        make_facts(
            **{"requests": {"requires": ("urllib3",)}, "tensorflow": {"requires": ("requests",)}, **changed}
        )
    )
    assert odd == {"urllib3"}
