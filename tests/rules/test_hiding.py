"""What an environment variable hides, and who set it: the findings name the file, the line, and the way back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rules.make_facts import COMPAT, SITE, healthy, without_libraries
from tfdoctor.causes.steps import Drop, Install, TakeOut, Unset, without_line
from tfdoctor.facts import (
    MODULE_PATH,
    Distribution,
    EnvironmentFacts,
    Facts,
    Instead,
    Known,
    Origin,
    Resolution,
    Tried,
    Without,
    value_of,
)
from tfdoctor.facts.imports import Oddity, RehearsalFacts, Rehearsed, Shadow
from tfdoctor.findings import Cause, Severity
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import other_tensorflow
from tfdoctor.rules.shared.origins import _adds_alone, _sets_alone

if TYPE_CHECKING:
    from tfdoctor.findings import Finding, Report

HIDE = "CUDA_VISIBLE_DEVICES"
CUSTOM = f"{SITE}/sitecustomize.py"
ACTIVATE = "/env/bin/activate"


def hidden(origin: Origin, value: str = "-1", scheduler: str | None = None) -> Facts:
    facts = healthy()
    answer = value_of(facts.driver.cuda)
    assert answer is not None
    nothing = replace(answer, init=100, init_name="CUDA_ERROR_NO_DEVICE", count=None, devices=())
    driver = replace(facts.driver, cuda=Known(nothing, "x"), cuda_unhidden=Known(answer, "x"))
    seen = EnvironmentFacts({HIDE: value}, (), scheduler, (origin,))
    return replace(facts, driver=driver, environment=seen)


def first(facts: Facts) -> tuple[Report, Finding]:
    report = diagnose(facts, COMPAT)
    assert report.root is not None
    return report, report.root


def test_a_line_of_sitecustomize_is_named_and_taken_out() -> None:
    line = f"os.environ['{HIDE}'] = '-1'"
    report, one = first(hidden(Origin(HIDE, "start", None, CUSTOM, 3, line)))
    assert (one.code, report.verdict.cause) == ("TFD601", Cause.HIDDEN_BY_ENV)
    assert one.title == f"{HIDE}=-1 is set by {CUSTOM}, line 3, and hides every GPU"
    assert (CUSTOM, 3) in [(e.source, e.line) for e in one.evidence]
    (remedy,) = one.remedies
    assert remedy.steps == (TakeOut(CUSTOM, 3, line),)
    assert "unset" not in " ".join(remedy.commands)
    assert remedy.commands[0].startswith("sed -i '3{")


def test_a_line_that_does_more_is_left_to_a_person() -> None:
    _, one = first(hidden(Origin(HIDE, "start", None, CUSTOM, 3, f"os.environ['{HIDE}'] = choose()")))
    assert not one.remedies[0].steps
    assert f"{CUSTOM}, line 3" in one.remedies[0].text


def test_a_file_of_somebody_else_is_never_edited() -> None:
    foreign = "/usr/lib/python3/dist-packages/sitecustomize.py"
    _, one = first(hidden(Origin(HIDE, "start", None, foreign, 3, f"os.environ['{HIDE}'] = '-1'")))
    (remedy,) = one.remedies
    assert (remedy.steps, remedy.commands) == ((), ())
    assert f"{foreign}, line 3" in remedy.text


def test_the_environments_own_activation() -> None:
    _, one = first(hidden(Origin(HIDE, "activation", None, ACTIVATE, 82, f"export {HIDE}=-1")))
    (remedy,) = one.remedies
    assert remedy.steps == (Unset(HIDE),)
    assert remedy.commands[:2] == (f"unset {HIDE}", f"sed -i '82{{/{HIDE}/s/^/: # /}}' {ACTIVATE}")


@pytest.mark.parametrize("by", ["shell", "machine"])
def test_the_shell(by: str) -> None:
    path, line = ("/etc/environment", 4) if by == "machine" else ("", None)
    _, one = first(hidden(Origin(HIDE, by, None, path, line)))
    (remedy,) = one.remedies
    assert remedy.commands[0] == f"unset {HIDE}"
    assert not any(command.startswith("sed") for command in remedy.commands)
    assert ("/etc/environment, line 4" in remedy.text) is (by == "machine")


def test_the_types_that_tensorflow_itself_leaves_out() -> None:
    name = "TF_ENABLED_DEVICE_TYPES"
    origin = Origin(name, "activation", None, ACTIVATE, 7, f"export {name}=CPU")
    seen = EnvironmentFacts({name: "CPU"}, (), None, (origin,))
    report, one = first(replace(healthy(), environment=seen))
    assert (one.code, report.verdict.cause) == ("TFD601", Cause.HIDDEN_BY_ENV)
    assert one.remedies[0].steps == (Unset(name),)
    assert f"{ACTIVATE}, line 7" in one.explanation


def test_a_scheduler_is_asked_first() -> None:
    _, one = first(hidden(Origin(HIDE, "shell"), value="", scheduler="slurm"))
    assert "slurm" in one.remedies[0].text
    assert not any(remedy.steps for remedy in one.remedies)


# ---------------------------------------------------------------- libraries


def beside(variable: str = "LD_LIBRARY_PATH") -> Facts:
    """What is left of a CUDA 11 comes first; its cuSOLVER has CUDA 12's name."""
    facts = healthy()
    loader = value_of(facts.loader)
    assert loader is not None
    bad, good = "/old/lib64/libcusolver.so.11", f"{SITE}/tensorflow/../nvidia/cusolver/lib/libcusolver.so.11"
    failed = Resolution(
        "libcusolver.so.11",
        bad,
        variable,
        "libcublas.so.11: cannot open shared object file: No such file or directory",
        ("libcublas.so.11",),
        bad,
        (Tried(bad, "", variable),),
    )
    now = tuple(failed if r.soname == failed.soname else r for r in loader.resolutions)
    without = Without(
        variable, ("/old/lib64",), loader.resolutions, (), (Instead("libcusolver.so.11", bad, good),)
    )
    environment = EnvironmentFacts(
        {variable: "/old/lib64:/mine"},
        (),
        None,
        (
            Origin(
                variable,
                "activation",
                "/old/lib64",
                ACTIVATE,
                82,
                f"export {variable}=/old/lib64:${variable}",
            ),
        ),
    )
    return replace(
        facts,
        environment=environment,
        loader=Known(
            replace(loader, resolutions=now, library_path=("/old/lib64", "/mine"), without=(without,)), "x"
        ),
    )


def test_a_library_that_hides_a_good_one_is_named_with_its_door() -> None:
    report, one = first(beside())
    assert (one.code, report.verdict.cause) == ("TFD204", Cause.LIBS_TRANSITIVE)
    assert (
        one.title
        == "/old/lib64/libcusolver.so.11, which LD_LIBRARY_PATH puts first, hides a library that works"
    )
    assert f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11" in one.explanation
    assert f"{ACTIVATE}, line 82" in one.explanation
    (remedy,) = one.remedies
    assert remedy.commands[0] == "export LD_LIBRARY_PATH=/mine"
    assert remedy.commands[1].startswith("sed -i '82{/LD_LIBRARY_PATH/")
    assert remedy.steps == (Drop("LD_LIBRARY_PATH", ("/old/lib64",)),)


def test_where_something_else_would_be_lost_the_entry_stays() -> None:
    facts = beside()
    loader = value_of(facts.loader)
    assert loader is not None
    (without,) = loader.without
    lost = tuple(
        replace(r, path=None, error="not found") if r.soname == "libcuda.so.1" else r
        for r in without.resolutions
    )
    worse = replace(loader, without=(replace(without, resolutions=lost),))
    _, one = first(replace(facts, loader=Known(worse, "x")))
    assert not any(isinstance(step, Drop) for remedy in one.remedies for step in remedy.steps)


# ---------------------------------------------------------------- another TensorFlow


def two(value: str = "/team", *, origin: str = "shell") -> Facts:
    facts = healthy()
    own, python = value_of(facts.tensorflow), value_of(facts.python)
    assert own is not None
    assert python is not None
    other = replace(
        own,
        package_dir="/team/tensorflow",
        core_dir="/team/tensorflow",
        distribution="tensorflow-cpu",
        build_info={"is_cuda_build": "False"},
        cuda_config={},
        behind=own,
    )
    path = ACTIVATE if origin == "activation" else ""
    line = (9, "export PYTHONPATH=/team") if path else (None, "")
    seen = (Origin("PYTHONPATH", origin, "/team", path, *line),)
    return replace(
        facts,
        tensorflow=Known(other, "/team/tensorflow"),
        python=Known(replace(python, sys_path=("/team", *python.sys_path)), "x"),
        loader_behind=facts.loader,
        environment=EnvironmentFacts({"PYTHONPATH": value}, (), None, seen),
    )


def test_a_tensorflow_from_pythonpath_hides_the_environments_own() -> None:
    report, one = first(two("/team:/mine", origin="activation"))
    assert (one.code, report.verdict.cause) == (other_tensorflow.RULE.code, Cause.SHADOWED_MODULE)
    assert report.prediction.gpu_registered is False
    assert "TFD303" not in [finding.code for finding in report.findings]
    (remedy,) = one.remedies
    assert remedy.commands[0] == "export PYTHONPATH=/mine"
    assert remedy.steps == (Drop("PYTHONPATH", ("/team",)),)
    assert f"{ACTIVATE}, line 9" in one.explanation
    commands = [c for finding in report.findings for r in finding.remedies for c in r.commands]
    assert not any("install" in command for command in commands)


def test_what_the_first_one_cannot_import_is_no_fault_of_the_one_behind() -> None:
    """The packages beside it are tried for the TensorFlow that Python takes: an older one, which they do not fit."""
    facts = two(origin="start")
    error = "Descriptors cannot be created directly."
    broken = Rehearsed(
        "google.protobuf.descriptor", error, "TypeError", file=f"{SITE}/google/protobuf/descriptor.py"
    )
    tried = RehearsalFacts((), (broken,), replace(broken, name="google.protobuf"))
    report, one = first(replace(facts, rehearsal=Known(tried, "a child")))
    assert report.prediction.import_ok is False
    assert (one.code, report.verdict.cause) == (other_tensorflow.RULE.code, Cause.SHADOWED_MODULE)


def test_a_file_that_hides_a_module_and_another_tensorflow_go_at_once_and_its_packages_stay() -> None:
    """What the TensorFlow that nobody meant lacks is not installed; the file hides the module from the other, too."""
    facts = two(origin="activation")
    python = value_of(facts.python)
    assert python is not None
    shadow = Shadow("numpy", "/home/user/code/numpy.py", SITE)
    error = Rehearsed(
        "numpy", "module 'numpy' has no attribute 'integer'", "AttributeError", file=shadow.taken
    )
    other = Rehearsed(
        "google.protobuf", "too old", "TypeError", frames=(f"{SITE}/google/protobuf/__init__.py",)
    )
    tried = RehearsalFacts((Oddity("numpy", "…"),), (error, other))
    facts = replace(
        facts,
        python=Known(replace(python, shadows=(shadow,)), "x"),
        rehearsal=Known(tried, "a child"),
    )
    _, one = first(facts)
    commands = one.remedies[0].commands
    assert any("numpy.py" in command for command in commands)
    assert any("PYTHONPATH" in command for command in commands)
    assert not any("install" in command for command in commands)


def test_the_first_one_stays_where_the_one_behind_is_no_better() -> None:
    facts = two()
    first_one = value_of(facts.tensorflow)
    assert first_one is not None
    same = replace(first_one, behind=replace(first_one, package_dir=f"{SITE}/tensorflow", behind=None))
    report = diagnose(replace(facts, tensorflow=Known(same, "x")), COMPAT)
    assert report.verdict.cause is Cause.CPU_ONLY_BUILD


# ---------------------------------------------------------------- a package on PYTHONPATH

FOREIGN = "/old/lib/python3.10/site-packages"


def foreign(*installed: Distribution, error: str = "", value: str = f"{FOREIGN}/:/mine") -> Facts:
    """PYTHONPATH has a folder of Python 3.10, with a NumPy; this Python is 3.11."""
    facts = healthy("2.20.0")
    python = value_of(facts.python)
    assert python is not None
    taken = Distribution("numpy", "1.24.3" if not error else "2.4.6", FOREIGN, "pip")
    python = replace(
        python,
        sys_path=(FOREIGN, *python.sys_path),
        distributions=(taken, *installed, *(d for d in python.distributions if d.name != "numpy")),
    )
    seen = EnvironmentFacts({"PYTHONPATH": value}, (), None)
    facts = replace(facts, python=Known(python, "x"), environment=seen)
    if not error:
        return facts
    broken = Rehearsed("numpy", error, "ImportError", import_error=True, file=f"{FOREIGN}/numpy/__init__.py")
    return replace(facts, rehearsal=Known(RehearsalFacts((), (broken,)), "a child"))


OWN_NUMPY = Distribution("numpy", "2.4.6", SITE, "pip")


@pytest.mark.parametrize("error", ["", "No module named 'numpy._core._multiarray_umath'"])
def test_a_numpy_of_pythonpath_is_no_fault_of_numpy(error: str) -> None:
    """Whether a table knows of its version, or a child of that Python stopped at it."""
    report, one = first(foreign(OWN_NUMPY, error=error))
    assert (one.code, report.verdict.cause) == ("TFD701", Cause.SHADOWED_MODULE)
    assert [f.code for f in report.findings if f.severity is Severity.ERROR] == ["TFD701"]
    assert "PYTHONPATH" in one.title
    assert FOREIGN in one.title
    assert "Python 3.10's" in one.explanation
    (remedy,) = one.remedies
    assert remedy.commands == ("export PYTHONPATH=/mine", "tfdoctor check --python /env/bin/python")
    assert remedy.steps == (Drop("PYTHONPATH", (f"{FOREIGN}/",)),)


def by_start(facts: Facts, line: str = f"import sys; sys.path.insert(0, '{FOREIGN}')") -> Facts:
    """The same folder, put there by a .pth file."""
    origin = Origin(
        MODULE_PATH, "start", FOREIGN, f"{SITE}/zz.pth" if line else "", 1 if line else None, line
    )
    return replace(facts, environment=EnvironmentFacts({}, (), None, (origin,)))


def test_a_pth_file_that_puts_a_numpy_first_is_named() -> None:
    report, one = first(by_start(foreign(OWN_NUMPY)))
    assert (one.code, report.verdict.cause) == ("TFD701", Cause.SHADOWED_MODULE)
    assert f"{SITE}/zz.pth, line 1 puts {FOREIGN}" in one.explanation
    (remedy,) = one.remedies
    assert remedy.commands[0] == f"sed -i '1{{/sys.path/s/^/# /}}' {SITE}/zz.pth"
    assert isinstance(remedy.steps[0], TakeOut)
    _, one = first(by_start(foreign(OWN_NUMPY), ""))
    assert one.remedies[0].commands[0].startswith("grep -rn ")
    assert one.remedies[0].steps == ()


def test_a_folder_that_the_start_puts_last_hides_nothing() -> None:
    facts = by_start(foreign(OWN_NUMPY))
    python = value_of(facts.python)
    assert python is not None
    last = replace(python, sys_path=(*(one for one in python.sys_path if one != FOREIGN), FOREIGN))
    _, one = first(replace(facts, python=Known(last, "x")))
    assert one.code != "TFD701"


def test_what_is_nowhere_else_is_installed_besides() -> None:
    _, one = first(foreign(error="No module named 'numpy._core._multiarray_umath'"))
    (remedy,) = one.remedies
    assert remedy.commands[0] == "export PYTHONPATH=/mine"
    assert " install " in remedy.commands[1]
    assert "numpy" in remedy.commands[1]
    assert remedy.steps[0] == Drop("PYTHONPATH", (f"{FOREIGN}/",))
    assert isinstance(remedy.steps[1], Install)


def test_a_numpy_of_the_environment_is_still_numpys_fault() -> None:
    facts = foreign(value="/mine")
    report, one = first(facts)
    assert (one.code, report.verdict.cause) == ("TFD306", Cause.NUMPY_ABI)


def test_a_whole_environment_on_pythonpath_is_one() -> None:
    """TensorFlow lies there, too: what is wrong beside it is wrong with that environment."""
    facts = foreign()
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    moved = replace(tensorflow, package_dir=f"{FOREIGN}/tensorflow", core_dir=f"{FOREIGN}/tensorflow")
    _, one = first(replace(facts, tensorflow=Known(moved, "x")))
    assert one.code == "TFD306"


def test_nothing_is_added_to_a_tensorflow_that_will_not_be_taken() -> None:
    """The one of PYTHONPATH lacks a library; the environment's own, which is taken without it, does not."""
    facts = without_libraries(two())
    cpu = value_of(facts.tensorflow)
    assert cpu is not None
    assert cpu.behind is not None
    same = replace(cpu, build_info=cpu.behind.build_info, cuda_config=cpu.behind.cuda_config)
    report, one = first(replace(facts, tensorflow=Known(same, "x")))
    assert one.code == other_tensorflow.RULE.code
    assert any(f.cause is Cause.LIBS_NOT_INSTALLED for f in report.findings)
    assert one.remedies[0].commands == ("unset PYTHONPATH", "tfdoctor check --python /env/bin/python")


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("line", "alone"),
    [
        (f"os.environ['{HIDE}'] = '-1'", True),
        (f"    os.environ['{HIDE}'] = ''", True),
        (f"import os; os.environ.setdefault('{HIDE}', '')", True),
        (f"import os, sys; os.environ.update({HIDE}='-1')", True),
        (f"os.environ.pop('{HIDE}', None)", True),
        (f"del os.environ['{HIDE}']", True),
        (f"os.environ['{HIDE}'] = pick()", False),
        (f"import company; os.environ['{HIDE}'] = '-1'", False),
        (f"os.environ['{HIDE}'] = os.environ['OTHER'] = '-1'", False),
        (f"if os.environ.get('{HIDE}'): stop()", False),
        (f"os.environ.update({{'{HIDE}': '-1'}})", False),
        (f"'{HIDE}': '-1',", False),
        (f"os.environ.update({HIDE}='-1', OTHER='1')", False),
        ("x" * 100_000, False),
    ],
)
def test_a_line_that_does_nothing_else(line: str, *, alone: bool) -> None:
    assert _sets_alone(Origin(HIDE, "start", text=line)) is alone


@pytest.mark.parametrize(
    ("path", "line", "alone"),
    [
        ("a.pth", "/team/libs", True),
        ("a.pth", "import sys; sys.path.insert(0, '/team/libs')", True),
        ("sitecustomize.py", "sys.path.insert(0, '/team/libs/')", True),
        ("sitecustomize.py", "    site.addsitedir('/team/libs')", True),
        ("sitecustomize.py", "sys.path.insert(0, '/team/other')", False),
        ("sitecustomize.py", "sys.path.insert(0, '/team/libs'); start()", False),
        ("sitecustomize.py", "sys.path.insert(where(), '/team/libs')", False),
        ("sitecustomize.py", "sys.path[:0] = ['/team/libs']", False),
        ("sitecustomize.py", "import company; sys.path.insert(0, '/team/libs')", False),
        ("sitecustomize.py", "/team/libs", False),
    ],
)
def test_a_line_that_only_puts_one_folder_on_the_path(path: str, line: str, *, alone: bool) -> None:
    assert _adds_alone(Origin(MODULE_PATH, "start", "/team/libs", path, 1, line)) is alone


def test_a_line_becomes_a_comment_only_where_it_is_the_same() -> None:
    step = TakeOut("/x/sitecustomize.py", 2, "    a = 1")
    assert without_line(step, "if b:\n    a = 1\n") == "if b:\n    pass  # a = 1\n"
    assert without_line(step, "if b:\n    a = 2\n") is None
    assert without_line(step, "if b:\n") is None
    assert without_line(TakeOut("/x/a.pth", 1, "import os"), "import os\n") == "# import os\n"
