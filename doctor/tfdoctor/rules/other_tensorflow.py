"""Python imports a different TensorFlow than the one that would work.

What it means
-------------
PYTHONPATH, a .pth file or the user's own site-packages put a folder on Python's path before the
environment's own packages. If that folder contains a TensorFlow too, Python imports that one, while `pip`
shows and changes the other: what it installs has no effect.

How it is seen
--------------
The examined Python lists all folders on its path that contain a TensorFlow, and imports nothing. tfdoctor
predicts what the second TensorFlow would do in the same way as for the first.

What to do
----------
Remove the folder from the path. The environment's own TensorFlow does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import MODULE_PATH, value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.shadowing import drop_first_tensorflow, find_leading_folder, get_sys_path_folder
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites, variable_origins

if TYPE_CHECKING:
    from tfdoctor.core.facts import TensorFlowFacts
    from tfdoctor.prediction.shadowing import LeadingFolder


def check(context: RuleContext) -> Result:
    first = context.tensorflow
    if first is None or first.behind is None:
        return NotApplicable("there is one TensorFlow on this Python's path")
    if context.prediction.cause is not Cause.SHADOWED_MODULE:
        return ()
    folder, second = get_sys_path_folder(first.package_dir), first.behind
    leader = find_leading_folder(context.facts, folder)
    explanation = f"{folder} is before it on Python's path."
    if leader is not None:
        explanation = f"{variable_origins.format_path_setter(context, leader)} {folder} first on its path."
        explanation += (
            variable_origins.format_origin_sentence(context, leader.origin, leader.spelling)
            if leader.origin != MODULE_PATH
            else ""
        )
    return [
        RULE.make_finding(
            Cause.SHADOWED_MODULE,
            Severity.ERROR,
            f"Python imports {_format_tensorflow(context, first)} from {folder}, not {_format_tensorflow(context, second)} from "
            f"{get_sys_path_folder(second.package_dir)}: {explanation} What is installed or removed in the environment has no "
            "effect on it.",
            title=f"{_format_tensorflow(context, first)} in {folder} hides {_format_tensorflow(context, second)}",
            evidence=[
                Evidence(first.package_dir, "is what Python imports"),
                Evidence(second.package_dir, "is behind it on Python's path"),
                *(
                    variable_origins.list_origin_evidence(context, leader.origin, leader.spelling)
                    if leader is not None
                    else ()
                ),
            ],
            remedies=[_make_remedy(context, folder, leader)],
        )
    ]


def _format_tensorflow(context: RuleContext, tensorflow: TensorFlowFacts) -> str:
    """Return the distribution name and version of a TensorFlow.

    The name is "TensorFlow" if none of the distributions in its folder has the recorded name.
    """
    name = tensorflow.distribution or "TensorFlow"
    python = value_of(context.facts.python)
    folder = get_sys_path_folder(tensorflow.package_dir)
    distributions = (
        [distribution for distribution in python.distributions if distribution.location.rstrip("/") == folder]
        if python is not None
        else []
    )
    if distributions and all(distribution.name != name for distribution in distributions):
        name = "TensorFlow"
    return f"{name} {tensorflow.version or ''}".rstrip()


def _make_remedy(context: RuleContext, folder: str, leader: LeadingFolder | None) -> Remedy:
    if leader is not None:
        return variable_origins.make_python_path_removal_remedy(context, leader)
    python = value_of(context.facts.python)
    if folder.endswith("site-packages") and "/.local/" in folder and python is not None:
        return Remedy(
            "It is in your own site-packages, which every Python of this version reads. Keep Python from it:",
            ("export PYTHONNOUSERSITE=1", format_check_command(context.target)),
        )
    quoted_sites = " ".join(quote(path) for path in (python.site_packages if python is not None else ()))
    search_commands = (
        (f"grep -Fn {quote(folder)} {quoted_sites}/*.pth",)
        if quoted_sites and " " not in quoted_sites
        else ()
    )
    return Remedy(
        f"Remove {folder} from this Python's path: a .pth file or sitecustomize.py puts it there.",
        search_commands,
    )


def should_report_other_tensorflow(context: RuleContext) -> bool:
    """Return whether to report that another TensorFlow comes first, instead of the problems of that one."""
    return (
        context.prediction.cause is Cause.SHADOWED_MODULE and drop_first_tensorflow(context.facts) is not None
    )


RULE = Rule(
    "TFD703",
    "other-tensorflow",
    "Another TensorFlow comes before the one that would work",
    (Cause.SHADOWED_MODULE,),
    check,
    short_title="another TensorFlow comes first",
    needs=(prerequisites.require_tensorflow,),
    fix_order=10,
)
