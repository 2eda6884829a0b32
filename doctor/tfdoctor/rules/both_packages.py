"""Two TensorFlow packages are installed over each other.

What it means
-------------
`tensorflow`, `tensorflow-gpu`, `tensorflow-cpu`, `tf-nightly` and Intel's package all write into the same
folder. Where two are installed the files of the later one win, some of the earlier one stay, and removing
either breaks the other.

How it is seen
--------------
The distributions that are registered in the same site-packages as the `tensorflow` folder; and leftovers of
an interrupted pip, whose names begin with a tilde (`~ensorflow`).

What to do
----------
Remove all of them, then install one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.causes.steps import Install, Remove, Uninstall
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import builds_installed
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import Distribution
    from tfdoctor.findings import Finding

SAME_FILES = {"tensorflow", "tensorflow-gpu"}
"""These two have the same files in some releases (the trait `same-files`) where their versions are the same."""


def check(context: RuleContext) -> Result:
    if context.python is None:
        return CouldNotCheck("which distributions are installed is not known")
    findings = []
    builds = builds_installed(context.facts)
    if len(builds) > 1:
        findings.append(_two(context, builds))
    left = [d for d in context.python.distributions if d.name.startswith("~") and "ensorflow" in d.name]
    if left:
        findings.append(_leftovers(left))
    return findings


def _two(context: RuleContext, builds: tuple[str, ...]) -> Finding:
    names = {one.split(" ")[0] for one in builds}
    numbers = {one.split(" ")[1] for one in builds}
    build = context.build
    guilty = context.prediction.cause is Cause.BOTH_PACKAGES or context.prediction.import_ok is False
    same = names <= SAME_FILES and len(numbers) == 1 and build is not None and build.has("same-files")
    harmless = same and not guilty
    severity = Severity.ERROR if guilty else Severity.INFO if harmless else Severity.WARNING
    tensorflow = context.tensorflow
    return RULE.finding(
        Cause.BOTH_PACKAGES,
        severity,
        (
            "These two have the same files in this version, so nothing is wrong until one of them is "
            "removed: "
            "that takes the files of the other one along."
            if harmless
            else "They write into the same folder. What is there now is a mixture, in which the one installed "
            "last wins."
        ),
        title=f"{len(builds)} TensorFlow packages are installed over each other: {', '.join(builds)}",
        evidence=[Evidence(tensorflow.package_dir if tensorflow else "", one) for one in builds],
        remedies=_clean(context, sorted(names), harmless=harmless),
    )


def _clean(context: RuleContext, names: list[str], *, harmless: bool) -> list[Remedy]:
    build = context.build
    release = None
    if build is not None and build.version is not None:
        choices = [context.compat.release(build.version, p) for p in ("tensorflow", "tensorflow-gpu")]
        release = next((row for row in choices if row is not None and row.gpu), None)
    best = advice.best_release(context.target) if release is None else None
    if best is not None:
        text = f"Remove all of them, then install TensorFlow {best.version}, the best for this machine and Python."
        return [advice.make_replacement(context.target, tuple(names), best, text)]
    if release is None:
        return [
            Remedy("Remove all of them, then install one.", (advice.pip_uninstall(context.target, names),))
        ]
    wanted = (f"{release.package}=={release.version}", *advice.companion_pins(context.compat, release))
    text = (
        "To have only one: remove both, then install one."
        if harmless
        else "Remove all of them, then install one."
    )
    return [
        Remedy(
            text,
            (
                advice.pip_uninstall(context.target, names),
                advice.pip_install(context.target, wanted),
                advice.check_again(context.target),
            ),
            steps=(Uninstall(tuple(names)), Install(wanted)),
        )
    ]


def _leftovers(left: list[Distribution]) -> Finding:
    folders = sorted({d.location for d in left})
    names = ", ".join(f"{d.name} {d.version}" for d in left)
    return RULE.finding(
        Cause.BOTH_PACKAGES,
        Severity.INFO,
        'pip puts a package aside under such a name while it replaces it, and warns of an "invalid '
        'distribution" when '
        "it was interrupted. Python ignores it.",
        title=f"A leftover of an interrupted pip: {names}",
        evidence=[Evidence(d.location, f"{d.name} {d.version}") for d in left],
        remedies=[
            Remedy(
                "Remove the leftovers.",
                tuple(f"rm -rf {advice.quote(folder)}/~*ensorflow*" for folder in folders),
                steps=tuple(Remove(f"{folder}/~*ensorflow*") for folder in folders),
            )
        ],
    )


RULE = Rule(
    "TFD304",
    "both-packages",
    "Two TensorFlow packages are installed over each other",
    (Cause.BOTH_PACKAGES,),
    check,
    row="two packages over each other",
    needs=(prerequisites.require_tensorflow,),
    first=11,
)
