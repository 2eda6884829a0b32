"""The active environment cannot be used: your shell uses a different Python.

What it means
-------------
VIRTUAL_ENV or CONDA_PREFIX names an environment that was moved or deleted, or whose Python was removed. The shell then
finds another `python` later on PATH without a warning, and that one does not have the packages that you installed.

How it is seen
--------------
The check examines the folder that the variable names, and the target of its bin/python. An environment that was moved
still has its first path in pyvenv.cfg or in its activate script: nearby folders are searched for it.

What to do
----------
Move the environment back, or rewrite its scripts for its new path. Recreate a deleted environment. Do not install
anything into the Python that the shell finds instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Known
from tfdoctor.core.facts.python import PYTHON_OPTION
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import quote
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared.pythons import describe_python_choice

if TYPE_CHECKING:
    from tfdoctor.core.facts.python import UnusableEnvironment

PROBLEM_CLAUSES = {
    "gone": "which is not there: it was moved or deleted",
    "empty": "in which there is no Python",
    "base-gone": "whose Python is a link to {target}, which is not there",
    "closed": "which this user may not look into",
}
"""The clause that describes each value of LostEnvironment.problem."""


def check(context: RuleContext) -> Result:
    choice = context.facts.choice
    environment = (
        next((candidate for candidate in choice.lost if candidate.variable != PYTHON_OPTION), None)
        if choice is not None
        else None
    )
    if choice is None or environment is None:
        return NotApplicable("no environment is named that could not be used")
    problem_clause = PROBLEM_CLAUSES[environment.problem].format(target=environment.target)
    uses_gpu = context.prediction.gpu_registered is True
    python = context.python.executable if context.python is not None else choice.path
    evidence = [Evidence(f"${environment.variable}", environment.prefix)]
    if environment.target is not None:
        evidence.append(
            Evidence(f"{environment.prefix}/bin/python", f"leads to {environment.target}, which is not there")
        )
    evidence += [
        Evidence(f"{folder}/bin/activate", f"was made as {environment.prefix}")
        for folder in environment.moved_to
    ]
    return [
        RULE.make_finding(
            Cause.NOT_PERMITTED if environment.problem == "closed" else Cause.PYTHON_UNUSABLE,
            Severity.WARNING if uses_gpu else Severity.ERROR,
            f"${environment.variable} names {environment.prefix}, {problem_clause}. In this shell, `python` starts "
            f"a different one: {python} ({describe_python_choice(context)}), and that is what was examined"
            + (
                ""
                if isinstance(context.facts.tensorflow, Known)
                else ". Do not install anything into it because of this"
            )
            + ".",
            title=f"The active environment {environment.prefix} cannot be used: your shell uses a different Python",
            evidence=evidence,
            remedies=build_restore_remedies(environment),
        )
    ]


def build_restore_remedies(environment: UnusableEnvironment) -> list[Remedy]:
    """Return the remedies that restore the lost environment."""
    prefix = quote(environment.prefix)
    is_conda = environment.variable == "CONDA_PREFIX"
    if environment.problem == "closed":
        return [Remedy("Run as the user whose environment it is, or use one of your own.", ("id -un",))]
    if environment.problem == "base-gone":
        return _build_base_remedies(environment)
    remedies = []
    for folder in environment.moved_to[:2]:
        quoted_folder = quote(folder)
        remedies += [
            Remedy(
                f"It is now in {folder}. Examine it there.", (f"tfdoctor check --python {quoted_folder}",)
            ),
            Remedy(
                "To use it there, have its scripts written again (its packages stay), and activate it.",
                (
                    f"{quoted_folder}/bin/python -m venv --without-pip {quoted_folder}",
                    "deactivate",
                    f". {quoted_folder}/bin/activate",
                    "tfdoctor check",
                ),
            ),
            Remedy("Or put it back where it was made.", (f"mv {quoted_folder} {prefix}", "tfdoctor check")),
        ]
    if remedies:
        return remedies
    if is_conda:
        return [
            Remedy(
                "Activate an existing environment.",
                ("conda env list", "conda activate NAME", "tfdoctor check"),
            )
        ]
    return [
        Remedy(
            "Leave it, and activate the environment that you mean.",
            ("deactivate", ". PATH/TO/ENVIRONMENT/bin/activate", "tfdoctor check"),
        ),
        Remedy(
            "If it is lost, create a new one with TensorFlow in it.",
            (f"tfdoctor install --into {prefix}", f". {prefix}/bin/activate", "tfdoctor check"),
        )
        if environment.problem == "gone"
        else Remedy(
            "Create it again with TensorFlow in it; put the rest aside first.",
            (f"mv {prefix} {prefix}.aside", f"tfdoctor install --into {prefix}", f". {prefix}/bin/activate"),
        ),
    ]


def _build_base_remedies(environment: UnusableEnvironment) -> list[Remedy]:
    """Return the remedies to replace the base Python with another one of the same minor version.

    The environment's packages work only with that minor version.
    """
    prefix = quote(environment.prefix)
    minor = ".".join((environment.version or "").split(".")[:2])
    recreate_remedy = Remedy(
        "Or create it again; its packages have to be installed again.",
        (f"mv {prefix} {prefix}.aside", f"tfdoctor install --into {prefix}", f". {prefix}/bin/activate"),
    )
    if environment.successor is None:
        text = (
            f"Install Python {minor} again: then its link leads somewhere."
            if minor
            else "Install that Python again."
        )
        return [Remedy(text, ()), recreate_remedy]
    links = " ".join(f"{prefix}/bin/{name}" for name in ("python", "python3", f"python{minor}"))
    return [
        Remedy(
            f"Give it the Python {minor} that is there; its packages stay.",
            (
                f"rm -f {links}",
                f"{quote(environment.successor)} -m venv --upgrade --without-pip {prefix}",
                f"tfdoctor check --python {prefix}",
            ),
        ),
        recreate_remedy,
    ]


RULE = Rule(
    "TFD318",
    "environment-gone",
    "The active environment cannot be used",
    (Cause.PYTHON_UNUSABLE, Cause.NOT_PERMITTED),
    check,
    short_title="the active environment is unusable",
)
