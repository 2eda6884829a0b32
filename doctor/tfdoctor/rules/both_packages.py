"""Two TensorFlow packages are installed over each other.

What it means
-------------
`tensorflow`, `tensorflow-gpu`, `tensorflow-cpu`, `tf-nightly` and Intel's package all write into the same
folder. If two are installed, the files of the later one overwrite those of the earlier one, some of the earlier
files stay, and removing either package breaks the other.

How it is seen
--------------
The check lists the distributions that are registered in the same site-packages as the `tensorflow` folder, and
leftovers of an interrupted pip, whose names begin with a tilde (`~ensorflow`).

What to do
----------
Remove all of them, then install one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install, RemovePath, Uninstall
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.build import list_installed_builds
from tfdoctor.remedies.pip import format_check_command, format_pip_install, format_pip_uninstall, quote
from tfdoctor.remedies.releases import find_best_release, list_companion_pins, make_replacement_remedy
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts import Distribution
    from tfdoctor.core.findings import Finding

SAME_FILE_PACKAGES = {"tensorflow", "tensorflow-gpu"}
"""Packages with the same files if their versions are equal and the release has the trait `same-files`."""


def check(context: RuleContext) -> Result:
    if context.python is None:
        return CouldNotCheck("which distributions are installed is not known")
    findings = []
    builds = list_installed_builds(context.facts)
    if len(builds) > 1:
        findings.append(_build_overlap_finding(context, builds))
    leftovers = [
        distribution
        for distribution in context.python.distributions
        if distribution.name.startswith("~") and "ensorflow" in distribution.name
    ]
    if leftovers:
        findings.append(_build_leftover_finding(leftovers))
    return findings


def _build_overlap_finding(context: RuleContext, builds: tuple[str, ...]) -> Finding:
    """Return the finding about several packages in one folder.

    It is an error only if it is the root cause, or if the import fails.
    """
    names = {package_label.split(" ")[0] for package_label in builds}
    versions = {package_label.split(" ")[1] for package_label in builds}
    build = context.build
    is_serious = context.prediction.cause is Cause.BOTH_PACKAGES or context.prediction.import_ok is False
    have_same_files = (
        names <= SAME_FILE_PACKAGES
        and len(versions) == 1
        and build is not None
        and build.has_trait("same-files")
    )
    is_harmless = have_same_files and not is_serious
    severity = Severity.ERROR if is_serious else Severity.INFO if is_harmless else Severity.WARNING
    tensorflow = context.tensorflow
    return RULE.make_finding(
        Cause.BOTH_PACKAGES,
        severity,
        (
            "These two have the same files in this version, so nothing is wrong until one of them is "
            "removed: "
            "that takes the files of the other one along."
            if is_harmless
            else "They write into the same folder. What is there now is a mixture, in which the one installed "
            "last wins."
        ),
        title=f"{len(builds)} TensorFlow packages are installed over each other: {', '.join(builds)}",
        evidence=[
            Evidence(tensorflow.package_dir if tensorflow else "", package_label) for package_label in builds
        ],
        remedies=_build_single_package_remedies(context, sorted(names), is_harmless=is_harmless),
    )


def _build_single_package_remedies(
    context: RuleContext, names: list[str], *, is_harmless: bool
) -> list[Remedy]:
    """Return the remedy that keeps only one package, if possible one with GPU code."""
    build = context.build
    release = None
    if build is not None and build.version is not None:
        candidates = [
            context.compat.find_release(build.version, package)
            for package in ("tensorflow", "tensorflow-gpu")
        ]
        release = next(
            (candidate for candidate in candidates if candidate is not None and candidate.gpu), None
        )
    best = find_best_release(context.target) if release is None else None
    if best is not None:
        text = f"Remove all of them, then install TensorFlow {best.version}, the best for this machine and Python."
        return [make_replacement_remedy(context.target, tuple(names), best, text)]
    if release is None:
        return [
            Remedy("Remove all of them, then install one.", (format_pip_uninstall(context.target, names),))
        ]
    requirements = (
        f"{release.package}=={release.version}",
        *list_companion_pins(context.compat, release),
    )
    text = (
        "To have only one: remove both, then install one."
        if is_harmless
        else "Remove all of them, then install one."
    )
    return [
        Remedy(
            text,
            (
                format_pip_uninstall(context.target, names),
                format_pip_install(context.target, requirements),
                format_check_command(context.target),
            ),
            steps=(Uninstall(tuple(names)), Install(requirements)),
        )
    ]


def _build_leftover_finding(leftovers: list[Distribution]) -> Finding:
    """Return the finding about folders that an interrupted pip left behind."""
    folders = sorted({distribution.location for distribution in leftovers})
    names = ", ".join(f"{distribution.name} {distribution.version}" for distribution in leftovers)
    return RULE.make_finding(
        Cause.BOTH_PACKAGES,
        Severity.INFO,
        'pip puts a package aside under such a name while it replaces it, and warns of an "invalid '
        'distribution" when '
        "it was interrupted. Python ignores it.",
        title=f"A leftover of an interrupted pip: {names}",
        evidence=[
            Evidence(distribution.location, f"{distribution.name} {distribution.version}")
            for distribution in leftovers
        ],
        remedies=[
            Remedy(
                "Remove the leftovers.",
                tuple(f"rm -rf {quote(folder)}/~*ensorflow*" for folder in folders),
                steps=tuple(RemovePath(f"{folder}/~*ensorflow*") for folder in folders),
            )
        ],
    )


RULE = Rule(
    "TFD304",
    "both-packages",
    "Two TensorFlow packages are installed over each other",
    (Cause.BOTH_PACKAGES,),
    check,
    short_title="two packages over each other",
    needs=(prerequisites.require_tensorflow,),
    fix_order=11,
)
