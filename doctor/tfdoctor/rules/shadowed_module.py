"""Another module is found first under a name that TensorFlow's import takes.

What it means
-------------
Python looks for modules beside the script, or in the working directory, then in the folders of PYTHONPATH, before
it looks where packages are installed. A tensorflow.py, numpy.py, random.py or a folder keras there is imported in
place of the one that is meant: "module 'tensorflow' has no attribute ...", "partially initialized module", or an
error in a file of your own.

How it is seen
--------------
The examined Python lists what its path has twice, the working directory first, and imports nothing. A file or folder
of the working directory is reported by its name alone: nothing there is executed. For a folder of PYTHONPATH, a child
rehearses the import of the packages that take the name; a package that comes from there is reported here, too, whether
or not this Python has one of its own: what is installed in the environment has no effect then.

What to do
----------
Give the file another name, start Python from another folder, or remove the folder from PYTHONPATH.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdoctor import advice, versions
from tfdoctor.causes.steps import Install
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import Led, find_leader, folder_of, package_led_away
from tfdoctor.predict.imports import shadows_tensorflow
from tfdoctor.rules.base import Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites, shadowing, variable_origins
from tfdoctor.rules.shared.companions import find_shadowed_companions, requirement_if_absent
from tfdoctor.text import upper_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.findings import Finding


def check(context: RuleContext) -> Result:
    tensorflow = context.tensorflow
    found = []
    if tensorflow is not None and shadows_tensorflow(tensorflow) and tensorflow.shadowed_by:
        found.append(_finding(context, "tensorflow", tensorflow.shadowed_by, tensorflow.package_dir, ""))
    listed: dict[Led, list[_ShadowedPackage]] = {}
    """A folder that is put first → what is taken from there."""
    for failed in context.failures:
        if not failed.shadow:
            continue
        one, folder = failed.rehearsed, folder_of(failed.shadow)
        led = find_leader(context.facts, folder)
        error = f"{one.error_type}: {one.error}" if one.error else ""
        if led is None:
            name = failed.shadow.rpartition("/")[2].partition(".")[0]
            found.append(_finding(context, name, failed.shadow, "", error))
        elif not _is_reported_by_other_rule(context, folder):
            listed.setdefault(led, []).append(_ShadowedPackage(failed.package, error))
    for row in find_shadowed_companions(context):
        there = package_led_away(context.facts, row.package)
        led = find_leader(context.facts, there.location) if there is not None else None
        if led is not None:
            taken = listed.setdefault(led, [])
            if all(one.package != row.package for one in taken):
                taken.append(_ShadowedPackage(row.package, row.error))
    return [*found, *(_build_path_finding(context, led, taken) for led, taken in listed.items())]


@dataclass(frozen=True)
class _ShadowedPackage:
    """A package that is taken from a folder that is put first, and how the import fails with it."""

    package: str
    error: str


def _is_reported_by_other_rule(context: RuleContext, folder: str) -> bool:
    first = context.tensorflow
    return first is not None and first.behind is not None and folder_of(first.package_dir) == folder


def _finding(context: RuleContext, name: str, path: str, hidden: str, error: str) -> Finding:
    here = path.removesuffix("/__init__.py")
    what = f"the {shadowing.kind_of(here)} {here}"
    python = context.python
    behind = hidden or next(
        (one.hidden for one in (python.shadows if python is not None else ()) if one.taken == path),
        "Python's own folders",
    )
    explanation = f"`import {name}` in a program that is started here takes {what}, not the one in {behind}."
    if error:
        explanation += f" The import of TensorFlow stops ({error})."
    is_here = shadowing.describe_path_source(context, here) == shadowing.WORKING_DIRECTORY_LABEL
    return RULE.finding(
        Cause.SHADOWED_MODULE,
        Severity.ERROR,
        explanation,
        title=f"{upper_first(what)} hides {'TensorFlow' if name == 'tensorflow' else name}"
        f"{' from programs started here' if is_here else ''}",
        evidence=shadowing.evidence_of_shadowing(context, here),
        remedies=shadowing.remedies_for_shadowing(context, here),
    )


# ---------------------------------------------------------------- packages on PYTHONPATH


def _build_path_finding(context: RuleContext, led: Led, taken: Sequence[_ShadowedPackage]) -> Finding:
    folder = led.entry.rstrip("/") or led.entry
    names = " and ".join(_format_package(context, one.package) for one in taken)
    python = context.python
    version = versions.major_minor(python.version) if python is not None else ""
    other = re.search(r"/python(\d\.\d{1,2})(?:/|$)", folder)
    explanation = (
        f"{upper_first(variable_origins.path_source_phrase(context, led))} {folder} before the packages of "
        "this Python, which then takes "
        f"{names} from there."
    )
    if other is not None and other[1] != version:
        explanation += (
            f" That folder is Python {other[1]}'s: what is compiled in it does not load in {version}."
        )
    if led.by == VARIABLE:
        explanation += variable_origins.origin_sentence(context, led.by, led.entry)
    explanation += f" The import of TensorFlow stops ({_shorten_error(taken[0].error)})."
    return RULE.finding(
        Cause.SHADOWED_MODULE,
        Severity.ERROR,
        explanation,
        title=f"{led.by} leads to {names} in {folder}, with which import tensorflow fails",
        evidence=[
            *(Evidence(f"{folder}, {one.package}", f"is found first, through {led.by}") for one in taken),
            *variable_origins.origin_evidence(context, led.by, led.entry),
        ],
        remedies=[_remove_folder_remedy(context, led, taken)],
    )


def _shorten_error(error: str) -> str:
    """Shorten the error; NumPy's has a page of advice."""
    return error if len(error) <= 200 else f"{error[:200].rpartition(' ')[0]} …"


def _format_package(context: RuleContext, package: str) -> str:
    there = context.python.distribution(package) if context.python is not None else None
    return f"{package} {there.version}" if there is not None else package


def _remove_folder_remedy(context: RuleContext, led: Led, taken: Sequence[_ShadowedPackage]) -> Remedy:
    """Remove the folder from the path and install the packages that this Python has nowhere else."""
    remedy = variable_origins.remove_from_python_path(context, led)
    there = context.python.distributions if context.python is not None else ()
    elsewhere = {one.name for one in there if find_leader(context.facts, one.location) != led}
    lost = tuple(one.package for one in taken if one.package not in elsewhere)
    if not lost or not remedy.commands:
        return remedy
    wanted = tuple(requirement_if_absent(context, package) for package in lost)
    return replace(
        remedy,
        text=f"{remedy.text} This Python has no {' and '.join(lost)} of its own: install it.",
        commands=(
            *remedy.commands[:-1],
            advice.pip_install(context.target, wanted),
            remedy.commands[-1],
        ),
        steps=(*remedy.steps, Install(wanted)),
    )


VARIABLE = "PYTHONPATH"


RULE = Rule(
    "TFD701",
    "shadowed-module",
    "Another module hides one that TensorFlow's import takes",
    (Cause.SHADOWED_MODULE,),
    check,
    row="another module hides one",
    needs=(prerequisites.require_tensorflow,),
)
