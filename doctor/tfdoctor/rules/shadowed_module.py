"""Another module is found first under a name that TensorFlow's import takes.

What it means
-------------
Python searches the script's folder or the working directory, then the folders of PYTHONPATH, before
the folders of installed packages. A tensorflow.py, numpy.py, random.py or a folder keras there is imported
instead of the intended module: "module 'tensorflow' has no attribute ...", "partially initialized module",
or an error in a file of your own.

How it is seen
--------------
The examined Python lists the modules that are on its path twice, the working directory first, and imports
nothing. A file or folder of the working directory is reported by its name alone: nothing there is
executed. For a folder of PYTHONPATH, a child process imports the packages that use the name. A package
from there is reported here even if this Python has none of its own, because what is installed in the
environment has no effect then.

What to do
----------
Give the file another name, start Python from another folder, or remove the folder from PYTHONPATH.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.text import upper_first
from tfdoctor.prediction.imports import is_tensorflow_shadowed
from tfdoctor.prediction.shadowing import (
    LeadingFolder,
    find_leading_folder,
    find_leading_package,
    get_sys_path_folder,
)
from tfdoctor.remedies.pip import format_pip_install
from tfdoctor.rules.base import Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites, shadowing, variable_origins
from tfdoctor.rules.shared.companions import choose_missing_requirement, find_shadowed_companions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding

PYTHONPATH_VARIABLE = "PYTHONPATH"
MAX_ERROR_CHARS = 200
"""The maximum length of a quoted error, because NumPy's is a page long."""


@dataclass(frozen=True)
class _ShadowedPackage:
    """A package that is imported from a leading folder, and the error of that import."""

    name: str
    error: str


def check(context: RuleContext) -> Result:
    tensorflow = context.tensorflow
    findings = []
    if tensorflow is not None and is_tensorflow_shadowed(tensorflow) and tensorflow.shadowed_by:
        findings.append(
            _build_module_finding(context, "tensorflow", tensorflow.shadowed_by, tensorflow.package_dir, "")
        )
    # the packages that are imported from each leading folder and fail
    packages_by_leader: dict[LeadingFolder, list[_ShadowedPackage]] = {}
    for failure in context.import_failures:
        if not failure.shadowing_file:
            continue
        rehearsal, folder = failure.import_result, get_sys_path_folder(failure.shadowing_file)
        leader = find_leading_folder(context.facts, folder)
        error = f"{rehearsal.error_type}: {rehearsal.error}" if rehearsal.error else ""
        if leader is None:
            name = failure.shadowing_file.rpartition("/")[2].partition(".")[0]
            findings.append(_build_module_finding(context, name, failure.shadowing_file, "", error))
        elif not _is_reported_by_other_rule(context, folder):
            packages_by_leader.setdefault(leader, []).append(_ShadowedPackage(failure.package, error))
    for companion in find_shadowed_companions(context):
        distribution = find_leading_package(context.facts, companion.package)
        leader = (
            find_leading_folder(context.facts, distribution.location) if distribution is not None else None
        )
        if leader is not None:
            packages = packages_by_leader.setdefault(leader, [])
            if all(package.name != companion.package for package in packages):
                packages.append(_ShadowedPackage(companion.package, companion.error))
    return [
        *findings,
        *(_build_path_finding(context, leader, packages) for leader, packages in packages_by_leader.items()),
    ]


def _is_reported_by_other_rule(context: RuleContext, folder: str) -> bool:
    """Return whether TFD703 reports the folder: it contains the first of two TensorFlows."""
    tensorflow = context.tensorflow
    if tensorflow is None or tensorflow.behind is None:
        return False
    return get_sys_path_folder(tensorflow.package_dir) == folder


def _build_module_finding(
    context: RuleContext, name: str, path: str, hidden_folder: str, error: str
) -> Finding:
    """Return the finding about a file or folder at `path` that hides the module `name`.

    If `hidden_folder` is "", the hidden module's folder is taken from the facts about this Python.
    """
    location = path.removesuffix("/__init__.py")
    description = f"the {shadowing.get_module_kind(location)} {location}"
    python = context.python
    folder = hidden_folder or next(
        (shadow.hidden for shadow in (python.shadows if python is not None else ()) if shadow.taken == path),
        "Python's own folders",
    )
    explanation = (
        f"`import {name}` in a program that is started here takes {description}, not the one in {folder}."
    )
    if error:
        explanation += f" The import of TensorFlow stops ({error})."
    is_here = shadowing.describe_path_source(context, location) == shadowing.WORKING_DIRECTORY_LABEL
    return RULE.make_finding(
        Cause.SHADOWED_MODULE,
        Severity.ERROR,
        explanation,
        title=f"{upper_first(description)} hides {'TensorFlow' if name == 'tensorflow' else name}"
        f"{' from programs started here' if is_here else ''}",
        evidence=shadowing.list_shadowing_evidence(context, location),
        remedies=shadowing.make_shadowing_remedies(context, location),
    )


# ---------------------------------------------------------------- packages on PYTHONPATH


def _build_path_finding(
    context: RuleContext, leader: LeadingFolder, packages: Sequence[_ShadowedPackage]
) -> Finding:
    """Return the finding about packages in a leading folder with which the import fails."""
    folder = leader.spelling.rstrip("/") or leader.spelling
    names = " and ".join(_format_package(context, package.name) for package in packages)
    python = context.python
    version = versions.major_minor(python.version) if python is not None else ""
    other_python = re.search(r"/python(\d\.\d{1,2})(?:/|$)", folder)
    explanation = (
        f"{upper_first(variable_origins.format_path_setter(context, leader))} {folder} before the packages of "
        "this Python, which then takes "
        f"{names} from there."
    )
    if other_python is not None and other_python[1] != version:
        explanation += (
            f" That folder is Python {other_python[1]}'s: what is compiled in it does not load in {version}."
        )
    if leader.origin == PYTHONPATH_VARIABLE:
        explanation += variable_origins.format_origin_sentence(context, leader.origin, leader.spelling)
    explanation += f" The import of TensorFlow stops ({_shorten_error(packages[0].error)})."
    return RULE.make_finding(
        Cause.SHADOWED_MODULE,
        Severity.ERROR,
        explanation,
        title=f"{leader.origin} leads to {names} in {folder}, with which import tensorflow fails",
        evidence=[
            *(
                Evidence(f"{folder}, {package.name}", f"is found first, through {leader.origin}")
                for package in packages
            ),
            *variable_origins.list_origin_evidence(context, leader.origin, leader.spelling),
        ],
        remedies=[_make_removal_remedy(context, leader, packages)],
    )


def _shorten_error(error: str) -> str:
    """Shorten an error message to MAX_ERROR_CHARS characters, at the end of a word."""
    return error if len(error) <= MAX_ERROR_CHARS else f"{error[:MAX_ERROR_CHARS].rpartition(' ')[0]} …"


def _format_package(context: RuleContext, name: str) -> str:
    """Return the name of a package, with its version if that is known."""
    distribution = context.python.find_distribution(name) if context.python is not None else None
    return f"{name} {distribution.version}" if distribution is not None else name


def _make_removal_remedy(
    context: RuleContext, leader: LeadingFolder, packages: Sequence[_ShadowedPackage]
) -> Remedy:
    """Return the remedy to remove the leading folder from Python's path.

    It also installs the packages that this Python then lacks.
    """
    remedy = variable_origins.make_python_path_removal_remedy(context, leader)
    distributions = context.python.distributions if context.python is not None else ()
    remaining_names = {
        distribution.name
        for distribution in distributions
        if find_leading_folder(context.facts, distribution.location) != leader
    }
    missing_names = tuple(package.name for package in packages if package.name not in remaining_names)
    if not missing_names or not remedy.commands:
        return remedy
    requirements = tuple(choose_missing_requirement(context, name) for name in missing_names)
    return replace(
        remedy,
        text=f"{remedy.text} This Python does not have {' and '.join(missing_names)}: install it.",
        commands=(
            *remedy.commands[:-1],
            format_pip_install(context.target, requirements),
            remedy.commands[-1],
        ),
        steps=(*remedy.steps, Install(requirements)),
    )


RULE = Rule(
    "TFD701",
    "shadowed-module",
    "Another module hides one that TensorFlow's import takes",
    (Cause.SHADOWED_MODULE,),
    check,
    short_title="another module hides one",
    needs=(prerequisites.require_tensorflow,),
)
