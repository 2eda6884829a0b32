"""TensorFlow's installation is incomplete.

What it means
-------------
Files that every TensorFlow has are missing: an installation that was interrupted, a full disk, a folder that was
deleted by hand. Or the distribution is registered and its package is gone; or the other way round.

How it is seen
--------------
A few files that no TensorFlow can do without are looked for, the registered distributions are compared with
the folder, and the files that an import loads with the list that was installed with them (RECORD): there, of that
size, readable, and still Python.

What to do
----------
Install it again, with --force-reinstall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.causes.steps import Install
from tfdoctor.facts import Absent, Unknown
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import find_closed_package, find_registered_only
from tfdoctor.predict.failures import find_own_damage
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared.companions import WHAT

if TYPE_CHECKING:
    from tfdoctor.facts import Distribution
    from tfdoctor.facts.imports import FileDifference
    from tfdoctor.findings import Finding


def check(context: RuleContext) -> Result:
    fact, python = context.facts.tensorflow, context.python
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"TensorFlow: {fact.why}")
    if python is None:
        return CouldNotCheck("this Python did not answer")
    if find_closed_package(context.facts) is not None:
        return NotApplicable("this user may not read it, which TFD319 explains")
    if isinstance(fact, Absent):
        registered = list(find_registered_only(context.facts))
        if not registered:
            return NotApplicable("TensorFlow is not installed")
        return [_files_gone(context, registered)]
    tensorflow = context.tensorflow
    if tensorflow is None:
        return NotApplicable("TensorFlow is not installed")
    if tensorflow.missing_files:
        return [_files_missing(context)]
    differs = find_own_damage(python, tensorflow, context.compat)
    if differs:
        return [_files_differ(context, differs)]
    if tensorflow.distribution is None and not tensorflow.conda_build:
        return [_build_unregistered_finding(context)]
    return ()


def _files_gone(context: RuleContext, registered: list[Distribution]) -> Finding:
    names = ", ".join(f"{d.name} {d.version}" for d in registered)
    return RULE.finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"{names} is registered as installed, and there is no `tensorflow` folder: import tensorflow fails.",
        title=f"{names} is registered and its files are gone",
        evidence=[Evidence(d.location, f"{d.name} {d.version}") for d in registered],
        remedies=[_reinstall_remedy(context, [f"{d.name}=={d.version}" for d in registered[:1]])],
    )


def _files_missing(context: RuleContext) -> Finding:
    tensorflow, build = context.tensorflow, context.build
    missing = tensorflow.missing_files if tensorflow is not None else ()
    folder = tensorflow.core_dir if tensorflow is not None else ""
    name = tensorflow.distribution if tensorflow is not None else None
    version = build.version if build is not None else None
    wanted = f"{name or 'tensorflow'}=={version}" if version else name or "tensorflow"
    return RULE.finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"{', '.join(missing)} is missing from {folder}: import tensorflow fails.",
        title="TensorFlow's installation is damaged: files are missing",
        evidence=[Evidence(folder, f"{entry} is not there") for entry in missing],
        remedies=[_reinstall_remedy(context, [wanted])],
    )


def _files_differ(context: RuleContext, differs: tuple[FileDifference, ...]) -> Finding:
    tensorflow, build = context.tensorflow, context.build
    location = tensorflow.package_dir.rpartition("/")[0] if tensorflow is not None else ""
    evidence = [Evidence(f"{location}/{one.path}", WHAT[one.what]) for one in differs]
    names = ", ".join(one.path.rpartition("/")[2] for one in differs[:3])
    more = f" and {len(differs) - 3} more" if len(differs) > 3 else ""
    if all(one.what == "unreadable" for one in differs):
        paths = " ".join(advice.quote(f"{location}/{one.path}") for one in differs)
        return RULE.finding(
            Cause.NOT_PERMITTED,
            Severity.ERROR,
            f"This user may not read {names}{more} of TensorFlow: import tensorflow fails.",
            title=f"TensorFlow's files may not be read: {names}{more}",
            evidence=evidence,
            remedies=[
                Remedy(
                    "Have the files' owner let everybody read them.",
                    (f"chmod a+r {paths}",),
                    changes_system=True,
                )
            ],
        )
    wanted = f"{tensorflow.distribution if tensorflow is not None else 'tensorflow'}"
    wanted += f"=={build.version}" if build is not None and build.version else ""
    return RULE.finding(
        Cause.DAMAGED_FILE,
        Severity.ERROR,
        f"{names}{more} of TensorFlow: not as installed, and import tensorflow loads it.",
        title=f"TensorFlow's installation is damaged: {names}{more} {WHAT[differs[0].what]}",
        evidence=evidence,
        remedies=[_reinstall_remedy(context, [wanted])],
    )


def _build_unregistered_finding(context: RuleContext) -> Finding:
    tensorflow = context.tensorflow
    folder = tensorflow.package_dir if tensorflow is not None else ""
    return RULE.finding(
        Cause.INCONCLUSIVE,
        Severity.INFO,
        "There is a `tensorflow` folder and no distribution that it belongs to: built from source, copied, "
        "or left "
        "behind. pip does not know of it, and will put another one over it or beside it.",
        title="This TensorFlow was not installed by pip or conda",
        evidence=[Evidence(folder, "belongs to no registered distribution")],
    )


def _reinstall_remedy(context: RuleContext, requirements: list[str]) -> Remedy:
    return Remedy(
        "Install it again.",
        (
            advice.pip_install(context.target, requirements, options="--force-reinstall --no-deps"),
            advice.check_again(context.target),
        ),
        steps=(Install(tuple(requirements), again=True, dependencies=False),),
    )


RULE = Rule(
    "TFD311",
    "damaged-installation",
    "TensorFlow's installation is damaged",
    (Cause.DAMAGED_FILE, Cause.NOT_PERMITTED, Cause.INCONCLUSIVE),
    check,
    row="damaged",
    first=12,
)
