"""A package that TensorFlow or its dependencies require is missing or has another version; the import still works.

What it means
-------------
Packages declare which versions of other packages they require. pip follows this when it installs
TensorFlow, but may replace such a version when it installs something else later, and installs nothing
with --no-deps. Often everything still works. tfdoctor has tested only the import, not what TensorFlow does
with the package afterwards.

How it is seen
--------------
Requires-Dist of TensorFlow and of its direct and indirect requirements, with their markers for this
Python, is compared with the installed versions. A child process imported the packages that differ from
what is known to work.

What to do
----------
Nothing, as long as your program works. Otherwise install the required versions.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.rehearsal import list_missing_requirements, list_unmet_requirements
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites


def check(context: RuleContext) -> Result:
    if context.python is None:
        return CouldNotCheck("which distributions are installed is not known")
    if context.prediction.import_ok is False:
        return NotApplicable("import tensorflow fails, which other checks explain")
    if context.tensorflow is not None and context.tensorflow.conda_build:
        return NotApplicable("conda's packages have conda's own requirements")
    missing = list_missing_requirements(context.python)
    conflicts = [
        conflict
        for conflict in list_unmet_requirements(context.python)
        if (conflict.installed_version is not None or conflict in missing)
        # TFD321 reports Keras
        and conflict.package != "keras"
    ]
    if not conflicts:
        return ()
    requirements = [conflict.requirement for conflict in conflicts]
    names = ", ".join(
        f"{conflict.package} {conflict.installed_version}"
        for conflict in conflicts
        if conflict.installed_version is not None
    )
    missing_names = ", ".join(
        conflict.package for conflict in conflicts if conflict.installed_version is None
    )
    sentences = []
    if names:
        sentences.append(f"{names}: another version is asked for. The import of TensorFlow works with it.")
    if missing_names:
        sentences.append(f"Not installed: {missing_names}. The import of TensorFlow works without it.")
    return [
        RULE.make_finding(
            Cause.PACKAGE_CONFLICT,
            Severity.INFO,
            " ".join(sentences),
            title=f"{conflicts[0].required_by} asks for {conflicts[0].requirement}, "
            f"and {conflicts[0].installed_version or 'nothing'} is installed"
            + (f" (and {len(conflicts) - 1} more like it)" if len(conflicts) > 1 else ""),
            evidence=[
                Evidence(
                    conflict.required_by,
                    f"asks for {conflict.requirement}; {conflict.package} {conflict.installed_version} is there"
                    if conflict.installed_version is not None
                    else f"asks for {conflict.requirement}; it is not installed",
                )
                for conflict in conflicts
            ],
            remedies=[
                Remedy(
                    "If your program fails with it, install the required version.",
                    (
                        format_pip_install(context.target, list(dict.fromkeys(requirements))),
                        format_check_command(context.target),
                    ),
                )
            ],
        )
    ]


RULE = Rule(
    "TFD322",
    "requirement-not-met",
    "A package that TensorFlow requires is missing or has another version",
    (Cause.PACKAGE_CONFLICT,),
    check,
    short_title="a package is missing or wrong",
    needs=(prerequisites.require_tensorflow,),
)
