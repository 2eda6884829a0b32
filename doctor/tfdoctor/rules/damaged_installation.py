"""TensorFlow's installation is incomplete.

What it means
-------------
Files that every TensorFlow has are missing, because an installation was interrupted, a disk was full, or a folder was
deleted by hand. Or the distribution is registered but its package is missing, or the other way round.

How it is seen
--------------
The check tests whether a few files exist that every TensorFlow needs, and compares the registered distributions with
the folder. It also compares the files that an import loads with the list that was installed with them (RECORD): they
must exist, have the recorded size, be readable, and still be Python.

A TensorFlow in an archive (PYTHONPATH names a .zip, .whl or .pyz file) cannot be imported either: the loader opens
shared objects only as files.

What to do
----------
Install it again, with --force-reinstall.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import Absent, Unknown
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.build import find_distributions_without_package, find_unreadable_package
from tfdoctor.prediction.failures import list_damaged_tensorflow_files
from tfdoctor.prediction.shadowing import find_leading_folder
from tfdoctor.remedies.pip import format_check_command, format_pip_install, quote
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared.companions import DAMAGE_PREDICATES
from tfdoctor.rules.shared.variable_origins import make_python_path_removal_remedy

if TYPE_CHECKING:
    from tfdoctor.core.facts import Distribution, TensorFlowFacts
    from tfdoctor.core.facts.imports import FileDifference
    from tfdoctor.core.findings import Finding


def check(context: RuleContext) -> Result:
    fact, python = context.facts.tensorflow, context.python
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"TensorFlow: {fact.why}")
    if python is None:
        return CouldNotCheck("this Python did not answer")
    if find_unreadable_package(context.facts) is not None:
        return NotApplicable("this user may not read it, which TFD319 explains")
    if isinstance(fact, Absent):
        distributions = list(find_distributions_without_package(context.facts))
        if not distributions:
            return NotApplicable("TensorFlow is not installed")
        return [_build_missing_package_finding(context, distributions)]
    tensorflow = fact.value
    if tensorflow.missing_files:
        return [_build_missing_files_finding(context, tensorflow)]
    differences = list_damaged_tensorflow_files(python, tensorflow, context.compat)
    if differences:
        return [_build_changed_files_finding(context, tensorflow, differences)]
    if tensorflow.distribution is None and not tensorflow.conda_build:
        return [_build_unregistered_finding(tensorflow)]
    return ()


def _build_missing_package_finding(context: RuleContext, distributions: list[Distribution]) -> Finding:
    """Return the finding about distributions that are registered but whose package folder is missing."""
    names = ", ".join(f"{distribution.name} {distribution.version}" for distribution in distributions)
    return RULE.make_finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"{names} is registered as installed, and there is no `tensorflow` folder: import tensorflow fails.",
        title=f"{names} is registered and its files are gone",
        evidence=[
            Evidence(distribution.location, f"{distribution.name} {distribution.version}")
            for distribution in distributions
        ],
        remedies=[
            _build_reinstall_remedy(
                context,
                [f"{distribution.name}=={distribution.version}" for distribution in distributions[:1]],
            )
        ],
    )


def _build_missing_files_finding(context: RuleContext, tensorflow: TensorFlowFacts) -> Finding:
    """Return the finding about missing files that every TensorFlow has."""
    missing, folder = tensorflow.missing_files, tensorflow.core_dir
    requirement = _format_requirement(context, tensorflow.distribution or "tensorflow")
    if tensorflow.archive is not None:
        return _build_archive_finding(context, tensorflow, requirement)
    return RULE.make_finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"{', '.join(missing)} is missing from {folder}: import tensorflow fails.",
        title="TensorFlow's installation is damaged: files are missing",
        evidence=[Evidence(folder, f"{entry} is not there") for entry in missing],
        remedies=[_build_reinstall_remedy(context, [requirement])],
    )


def _build_archive_finding(context: RuleContext, tensorflow: TensorFlowFacts, requirement: str) -> Finding:
    """Return the finding about a TensorFlow that Python finds only in an archive."""
    archive = str(tensorflow.archive)
    remedy = Remedy(
        "Install TensorFlow.",
        (format_pip_install(context.target, [requirement]), format_check_command(context.target)),
        steps=(Install((requirement,)),),
    )
    leader = find_leading_folder(context.facts, archive)
    if leader is not None:
        removal = make_python_path_removal_remedy(context, leader)
        remedy = replace(
            remedy,
            text=f"{removal.text} Then install TensorFlow.",
            commands=(*removal.commands[:-1], *remedy.commands),
            steps=(*removal.steps, *remedy.steps),
        )
    return RULE.make_finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"Python finds TensorFlow in {archive} and can load no shared object out of an archive: import tensorflow fails.",
        title=f"TensorFlow is in an archive, which cannot work: {archive}",
        evidence=[Evidence(tensorflow.package_dir, "is a member of the archive, not a folder")],
        remedies=[remedy],
    )


def _build_changed_files_finding(
    context: RuleContext, tensorflow: TensorFlowFacts, differences: tuple[FileDifference, ...]
) -> Finding:
    """Return the finding about files that differ from the installed ones, or that this user may not read."""
    location = tensorflow.package_dir.rpartition("/")[0]
    evidence = [
        Evidence(f"{location}/{difference.path}", DAMAGE_PREDICATES[difference.what])
        for difference in differences
    ]
    names = ", ".join(_shorten_path(difference.path) for difference in differences[:3])
    count_text = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
    if all(difference.what == "unreadable" for difference in differences):
        paths = " ".join(quote(f"{location}/{difference.path}") for difference in differences)
        return RULE.make_finding(
            Cause.NOT_PERMITTED,
            Severity.ERROR,
            f"This user may not read {names}{count_text} of TensorFlow: import tensorflow fails.",
            title=f"TensorFlow's files may not be read: {names}{count_text}",
            evidence=evidence,
            remedies=[
                Remedy(
                    "Have the files' owner let everybody read them.",
                    (f"chmod a+r {paths}",),
                    changes_system=True,
                )
            ],
        )
    requirement = _format_requirement(context, str(tensorflow.distribution))
    return RULE.make_finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"{names}{count_text} of TensorFlow: not as installed, and import tensorflow loads it.",
        title=f"TensorFlow's installation is damaged: {names}{count_text} {_format_predicate(differences)}",
        evidence=evidence,
        remedies=[_build_reinstall_remedy(context, [requirement])],
    )


def _shorten_path(path: str) -> str:
    """Return the file name, with its folder if the name alone says nothing."""
    folder, _, name = path.rpartition("/")
    return f"{folder.rpartition('/')[2]}/{name}" if name == "__init__.py" else name


def _format_predicate(differences: tuple[FileDifference, ...]) -> str:
    """Return the predicate of the title, in the plural if there are several files."""
    predicate = DAMAGE_PREDICATES[differences[0].what]
    if len(differences) == 1:
        return predicate
    plurals = {"is": "are", "was": "were", "has": "have", "may": "may"}
    verb, _, rest = predicate.partition(" ")
    return f"{plurals.get(verb, verb)} {rest}"


def _build_unregistered_finding(tensorflow: TensorFlowFacts) -> Finding:
    """Return the finding about a TensorFlow folder that belongs to no distribution."""
    return RULE.make_finding(
        Cause.INCONCLUSIVE,
        Severity.INFO,
        "There is a `tensorflow` folder and no distribution that it belongs to: built from source, copied, "
        "or left "
        "behind. pip does not know of it, and will put another one over it or beside it.",
        title="This TensorFlow was not installed by pip or conda",
        evidence=[Evidence(tensorflow.package_dir, "belongs to no registered distribution")],
    )


def _format_requirement(context: RuleContext, name: str) -> str:
    """Return the requirement for the installed version, or the name alone if the version is not known."""
    version = context.build.version if context.build is not None else None
    return f"{name}=={version}" if version else name


def _build_reinstall_remedy(context: RuleContext, requirements: list[str]) -> Remedy:
    """Return the remedy to reinstall these requirements."""
    return Remedy(
        "Install it again.",
        (
            format_pip_install(context.target, requirements, options="--force-reinstall --no-deps"),
            format_check_command(context.target),
        ),
        steps=(Install(tuple(requirements), force_reinstall=True, install_dependencies=False),),
    )


RULE = Rule(
    "TFD311",
    "damaged-installation",
    "TensorFlow's installation is damaged",
    (Cause.DAMAGED_FILE, Cause.NOT_PERMITTED, Cause.INCONCLUSIVE),
    check,
    short_title="damaged",
    fix_order=12,
)
