"""TFD312, import-fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prediction.rehearsals import with_rehearsal
from rules.make_facts import (
    SITE,
    commands,
    context,
    finding,
    healthy,
    run,
    with_python,
)
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import Distribution
from tfdoctor.core.facts.imports import ImportResult
from tfdoctor.core.findings import Cause
from tfdoctor.core.versions import parse_project_name
from tfdoctor.rules import (
    import_fails,
    numpy_abi,
    requirement_not_met,
)


@pytest.mark.parametrize("name", ["termcolor", "packaging"])
def test_missing_requirement_is_installed(name):
    facts = healthy("2.20.0")
    assert context(facts).prediction.import_ok is True
    python = facts.python.value
    tensorflow = replace(python.distributions[0], requires=(f"{name} (>=3.10)", "numpy>=1.26"))
    facts = with_python(facts, absent=(name,), distributions=(tensorflow, *python.distributions[1:]))
    assert context(facts).prediction.import_ok is False
    result = finding(import_fails.RULE, facts)
    assert result.title == f"TensorFlow 2.20.0 cannot be imported without {name}"
    assert result.remedies[0].steps == (Install((f"{name}>=3.10",)),)
    assert f"'{name}>=3.10'" in commands(result)[0]
    # No data say that other releases need it.
    older = with_python(healthy("2.3.4", python="3.8.10"), absent=(name,))
    assert context(older).prediction.import_ok is True


HEADERS = "sudo apt-get install libffi-dev"
PYENV, UV = "/srv/u/.pyenv/versions/3.11.7", "/srv/u/.local/share/uv/python/cpython-3.11.7-linux"
APT_LIBRARY = "sudo apt-get install --reinstall libpython3.11-stdlib python3.11"


@pytest.mark.parametrize(
    ("fields", "module", "distribution", "expected"),
    [
        ({"conda_prefix": "/c"}, "_ctypes", "debian", ["conda install --prefix /c --force-reinstall python=3.11.7"]),
        ({"base_prefix": UV}, "_ctypes", "debian", ["uv python install --reinstall 3.11.7"]),
        ({"base_prefix": "/usr"}, "_ctypes", "debian", [APT_LIBRARY]),
        ({"base_prefix": "/usr"}, "distutils", "debian", [f"{APT_LIBRARY} python3-distutils"]),
        ({"base_prefix": "/usr"}, "_ctypes", "fedora", []),
        ({"base_prefix": PYENV}, "_ctypes", "debian", [HEADERS, "pyenv install --force 3.11.7"]),
        ({"base_prefix": PYENV}, "_ctypes", "fedora", ["pyenv install --force 3.11.7"]),
        ({"base_prefix": "/opt/python"}, "_ctypes", "debian", [HEADERS]),
        ({"base_prefix": "/opt/python"}, "_ctypes", "fedora", []),
        ({"base_prefix": "/opt/python"}, "_random", "debian", []),
    ],
)  # fmt: skip
def test_python_without_a_module_of_its_own_is_completed(fields, module, distribution, expected):
    """No package provides such a module."""
    missing = ImportResult(
        "numpy", f"No module named '{module}'", "ModuleNotFoundError", import_error=True, not_found=module
    )
    facts = with_rehearsal(with_python(healthy(), version="3.11.7", **fields), missing)
    facts = replace(facts, machine=replace(facts.machine, distribution_id=distribution, root=False))
    result = finding(import_fails.RULE, facts)
    assert (result.cause, context(facts).prediction.import_ok) == (Cause.PYTHON_UNUSABLE, False)
    (remedy,) = result.remedies
    assert list(remedy.commands[:-1]) == expected
    assert remedy.changes_system is any(command.startswith("sudo") for command in expected)
    if "build this Python again in" in remedy.text:
        assert f"({'libffi-dev' if module == '_ctypes' else 'see the log of its build'})" in remedy.text
        assert remedy.commands[-1] == f"{fields['base_prefix']}/bin/python3.11 -c 'import {module}'"


def test_setuptools_is_installed_where_its_pth_file_is_read():
    missing = ImportResult(
        "distutils.spawn",
        "No module named 'distutils'",
        "ModuleNotFoundError",
        import_error=True,
        not_found="distutils",
    )
    facts = healthy(python="3.12.1")
    setuptools = Distribution("setuptools", "80.9.0", "/srv/libs", "pip")
    facts = with_rehearsal(
        with_python(
            facts,
            version="3.12.1",
            sys_path=("/srv/libs", SITE),
            distributions=(*facts.python.value.distributions, setuptools),
        ),
        missing,
    )
    result = finding(import_fails.RULE, facts)
    assert "/srv/libs" in result.title
    assert commands(result)[0].startswith("PYTHONPATH= ")
    assert commands(result)[0].endswith(" setuptools")


def test_versions_over_each_other_are_removed_and_one_is_installed():
    """Whichever package raises the error, the mixed one is the cause."""
    failed = ImportResult(
        "opt_einsum", "cannot load module more than once per process", "ImportError", import_error=True
    )
    facts = healthy("2.13.1")
    others = tuple(item for item in facts.python.value.distributions if item.name != "numpy")
    numpys = tuple(Distribution("numpy", version, SITE, "pip") for version in ("1.24.3", "2.4.6"))
    mixed = with_rehearsal(with_python(facts, distributions=(*others, *numpys)), failed)
    result = finding(import_fails.RULE, mixed)
    assert result.title == "import tensorflow fails: numpy 1.24.3 and 2.4.6 are installed over each other"
    assert [line.rpartition(" -m ")[2] for line in commands(result)[:3]] == [
        "pip uninstall -y numpy",
        "pip uninstall -y numpy",
        "pip install numpy==1.24.3",
    ]
    # An import that works, or a copy in another folder, is no problem.
    works = with_rehearsal(mixed, ImportResult("opt_einsum"))
    assert not any("over each other" in item.title for item in run(import_fails.RULE, works).findings)
    apart = (numpys[0], replace(numpys[1], location="/srv/other"))
    elsewhere = with_rehearsal(with_python(facts, distributions=(*others, *apart)), failed)
    assert not any("over each other" in item.title for item in run(import_fails.RULE, elsewhere).findings)


def test_all_missing_requirements_are_installed_as_tensorflow_requires_them():
    """The metadata does not allow the ml-dtypes of the tested environments."""
    facts = healthy("2.18.0")
    python = facts.python.value
    lines = (
        "ml-dtypes<0.4.0,>=0.3.1",
        "absl-py>=1.0.0",
        "grpcio<2.0,>=1.24.3",
        'wheel<1.0,>=0.23.0; python_version < "3.0"',
        "tensorboard<2.19,>=2.18",
    )
    tensorflow = replace(python.distributions[0], requires=lines)
    facts = with_python(
        facts,
        absent=("absl-py", "grpcio", "ml-dtypes", "tensorboard", "wheel"),
        distributions=(tensorflow, *python.distributions[1:]),
    )
    missing = [
        ImportResult(
            name, f"No module named {name!r}", "ModuleNotFoundError", import_error=True, not_found=name
        )
        for name in ("ml_dtypes", "absl")
    ]
    result = finding(import_fails.RULE, with_rehearsal(facts, *missing))
    (step,) = result.remedies[0].steps
    by_package = {parse_project_name(requirement): requirement for requirement in step.requirements}
    assert set(by_package) == {"ml-dtypes", "absl-py", "grpcio", "tensorboard"}
    assert by_package["ml-dtypes"] == "ml-dtypes<0.4.0,>=0.3.1"
    assert by_package["absl-py"].startswith("absl-py==")  # any version is allowed: the tested one
    assert "TensorFlow also requires grpcio and tensorboard, which are not installed." in result.explanation


def test_version_limit_of_the_table_and_of_the_metadata_both_hold():
    facts = healthy("2.15.0")
    python = facts.python.value
    distributions = tuple(
        replace(distribution, requires=("numpy<2.5,>=1.23.5",))
        if distribution.name == "tensorflow"
        else replace(distribution, version="2.1.0")
        if distribution.name == "numpy"
        else distribution
        for distribution in python.distributions
    )
    result = finding(numpy_abi.RULE, with_python(facts, distributions=distributions))
    (step,) = result.remedies[0].steps
    assert step.requirements == ("numpy<2,<2.5,>=1.23.5",)


def test_missing_requirement_without_which_the_import_works_is_named():
    facts = healthy("2.18.0")
    python = facts.python.value
    tensorflow = replace(python.distributions[0], requires=("grpcio<2.0,>=1.24.3", "libclang>=13.0.0"))
    facts = with_python(facts, absent=("grpcio",), distributions=(tensorflow, *python.distributions[1:]))
    result = finding(requirement_not_met.RULE, facts)
    assert result.title == "tensorflow asks for grpcio<2.0,>=1.24.3, and nothing is installed"
    assert result.explanation == "Not installed: grpcio. The import of TensorFlow works without it."
    assert "'grpcio<2.0,>=1.24.3'" in commands(result)[0]
