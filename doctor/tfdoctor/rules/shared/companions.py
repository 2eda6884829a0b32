"""What the rules about TensorFlow's companions (NumPy, protobuf, …) share."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor import advice, predict
from tfdoctor.causes.steps import Install
from tfdoctor.facts import TENSORFLOW_DISTRIBUTIONS, value_of
from tfdoctor.facts.imports import FileDifference
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict.failures import cause_of
from tfdoctor.predict.rehearsal import READ, good_version, unmet
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import variable_origins
from tfdoctor.text import entries_of, join_words
from tfdoctor.versions import parse_requirement_or_none, project_of, satisfies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.companions import Companion
    from tfdoctor.findings import Finding
    from tfdoctor.predict.failures import ImportFailure


def find_broken_companions(context: RuleContext) -> tuple[Companion, ...]:
    """Return the rows of the table that apply to what is installed in this Python."""
    return tuple(row for row in _find_all_broken_companions(context) if not _is_shadowed(context, row))


def find_shadowed_companions(context: RuleContext) -> tuple[Companion, ...]:
    """Return the rows of the table that apply to packages that precede this Python's on its path.

    Installing a package does not change them.
    """
    return tuple(row for row in _find_all_broken_companions(context) if _is_shadowed(context, row))


def _is_shadowed(context: RuleContext, row: Companion) -> bool:
    return row.effect == "import" and predict.package_led_away(context.facts, row.package) is not None


def _find_all_broken_companions(context: RuleContext) -> tuple[Companion, ...]:
    if context.build is None or context.tensorflow is None:
        return ()
    return predict.find_broken_companions(context.facts, context.tensorflow, context.build, context.compat)


def companion_findings(context: RuleContext, rule: Rule, *packages: str) -> Result:
    """Return the outcome of a rule about these packages, the errors first.

    The rule needs TensorFlow and the distributions.
    """
    if context.build is None or context.build.version is None:
        return CouldNotCheck("the version of this TensorFlow is not known")
    if context.tensorflow is not None and context.tensorflow.conda_build:
        return NotApplicable("conda's TensorFlow is built with conda's own versions of its companions")
    rows = [row for row in find_broken_companions(context) if row.package in packages and row.breaks]
    rows.sort(key=lambda row: row.effect != "import")
    return [companion_finding(context, rule, row) for row in rows[:1]]


def companion_finding(context: RuleContext, rule: Rule, row: Companion) -> Finding:
    """Convert one row of the table to a finding."""
    installed = context.python.distribution(row.package) if context.python is not None else None
    version = installed.version if installed is not None else "nothing"
    build = context.build
    name = f"TensorFlow {build.version}" if build is not None else "TensorFlow"
    fails = row.effect == "import"
    return rule.finding(
        Cause(row.cause),
        Severity.ERROR if fails else Severity.WARNING,
        f"{row.text} {'The import stops with' if fails else 'It stops with'}: {row.error}",
        title=(
            f"{name} cannot be imported with {row.package} {version}"
            if installed is not None and fails
            else f"{name} does not work with {row.package} {version}"
            if installed is not None
            else f"{name} cannot be imported without {row.package}"
        ),
        evidence=[
            Evidence(
                installed.location if installed is not None else "installed distributions",
                f"{row.package} {version}" if installed is not None else f"no {row.package}",
            ),
            *(Evidence("tried with real wheels", f"fails: {run}") for run in row.fails[:2]),
            *(Evidence("tried with real wheels", f"works: {run}") for run in row.works[:2]),
        ],
        remedies=[
            Remedy(
                "Install a version that this TensorFlow works with.",
                (
                    advice.pip_install(context.target, [_requirement(context, row)]),
                    advice.check_again(context.target),
                ),
                steps=(Install((_requirement(context, row),)),),
            )
        ],
    )


def _requirement(context: RuleContext, row: Companion) -> str:
    """Return a requirement that no row of the table excludes.

    So the installed version is replaced only once.
    """
    if context.build is None or context.build.version is None:
        return row.requirement
    version = context.build.version
    if row.breaks.startswith(">="):
        return context.compat.companion_limits(version).get(row.package, row.requirement)
    if row.breaks:
        return row.requirement
    others = [
        o for o in context.compat.companions if o.package == row.package and o.breaks and o.effect == "import"
    ]
    there = context.python.distributions if context.python is not None else ()
    own = [d for d in there if d.name in TENSORFLOW_DISTRIBUTIONS]
    lines = (
        parse_requirement_or_none(line) for d in own for line in d.requires if project_of(line) == row.package
    )
    asked = next((one for one in lines if one is not None), None)
    wanted = f"{row.package}{asked.specifier}" if asked is not None else row.requirement
    return next((o.requirement for o in others if satisfies(version, o.tensorflow)), wanted)


# ---------------------------------------------------------------- what was rehearsed


def package_finding(context: RuleContext, rule: Rule, failed: Sequence[ImportFailure]) -> Finding:
    """Report the packages that a rehearsed import fails with as one finding.

    They are fixed together.
    """
    first = failed[0]
    one = first.rehearsed
    names = join_words([_format_package(context, failure) for failure in failed])
    if first.library:
        title = f"import tensorflow fails: {first.library} comes before the system's own library"
    elif all(failure.damage for failure in failed):
        title = f"{names} is damaged: {first.damage[0].path} {WHAT[first.damage[0].what]}"
        if len(failed) > 1:
            title = f"{names} are damaged"
    elif first.missing:
        title = f"import tensorflow fails: {names} {'is' if len(failed) == 1 else 'are'} not installed"
    else:
        title = f"import tensorflow fails with {names}"
    if not first.fatal:
        title = title.replace("import tensorflow fails", "tf.keras fails")
    stops = "import tensorflow stops" if first.fatal else "tf.keras stops"
    explanation = f"{stops} with {one.error_type}: {one.error.rstrip('.')}."
    compiled = next((failure for failure in failed if _is_numpy_mismatch(failure.rehearsed.error)), None)
    if compiled is not None:
        numpy = context.python.distribution("numpy") if context.python is not None else None
        explanation += (
            f" {_format_package(context, compiled)} is compiled for a different NumPy than"
            f" {numpy.version if numpy is not None else 'this one'}."
        )
    return rule.finding(
        cause_of(first),
        Severity.ERROR if first.fatal else Severity.WARNING,
        explanation,
        title=title,
        evidence=_evidence(context, failed),
        remedies=[_remedy(context, failed)],
    )


WHAT = {
    "missing": "is not there",
    "empty": "is empty",
    "cut": "is truncated",
    "changed": "was changed",
    "altered": "has other content than it was installed with",
    "syntax": "is no longer Python source",
    "unreadable": "may not be read by this user",
}
"""FileDifference.what, for people."""
_OTHER_NUMPY = (
    "numpy.dtype size changed",
    "numpy.ufunc size changed",
    "_ARRAY_API",
    "compiled using NumPy",
    "numpy.core",
)


def _is_numpy_mismatch(error: str) -> bool:
    """Return whether an extension module reports the NumPy that it was compiled for."""
    return any(words in error for words in _OTHER_NUMPY)


def _format_package(context: RuleContext, failure: ImportFailure) -> str:
    there = context.python.distribution(failure.package) if context.python is not None else None
    return (
        f"{failure.package} {there.version}" if there is not None and not failure.missing else failure.package
    )


def _evidence(context: RuleContext, failed: Sequence[ImportFailure]) -> list[Evidence]:
    found = []
    for failure in failed:
        one = failure.rehearsed
        place = one.frames[-1] if one.frames else (one.file or f"import {one.name}")
        found.append(Evidence(place, f"{one.error_type}: {one.error}"))
        found += [Evidence(difference.path, WHAT[difference.what]) for difference in failure.damage[:3]]
    rehearsal = value_of(context.facts.rehearsal)
    packages = {failure.package for failure in failed}
    oddities = rehearsal.oddities if rehearsal is not None else ()
    found += [Evidence("installed distributions", odd.why) for odd in oddities if odd.module in packages]
    return found


def _remedy(context: RuleContext, failed: Sequence[ImportFailure]) -> Remedy:
    library = failed[0].library
    if library:
        return _library_removal_remedy(context, library)
    variable = _variable_of(context, failed)
    if variable:
        return variable_origins.unset_remedy(context, variable, "Unset the variable.")
    if all(difference.what == "unreadable" for failure in failed for difference in failure.damage or _NONE):
        python = context.python
        folders = (
            {failure.package: python.distribution(failure.package) for failure in failed} if python else {}
        )
        paths = [
            f"{there.location}/{difference.path}"
            for failure in failed
            if (there := folders.get(failure.package)) is not None
            for difference in failure.damage
        ]
        command = f"chmod a+r {' '.join(advice.quote(path) for path in paths)}"
        return Remedy("Have the files' owner let everybody read them.", (command,), changes_system=True)
    lost = [bool(failure.damage) or _lacks_module(context, failure) for failure in failed]
    again = any(lost)
    wanted = tuple(
        dict.fromkeys(
            requirement_of(context, failure.package, again=one)
            for failure, one in zip(failed, lost, strict=True)
        )
    )
    options = "--force-reinstall --no-deps" if again else ""
    return Remedy(
        "Install it again." if again else "Install versions that this TensorFlow works with.",
        (advice.pip_install(context.target, wanted, options=options), advice.check_again(context.target)),
        steps=(Install(wanted, again=again, dependencies=not again),),
    )


def _variable_of(context: RuleContext, failed: Sequence[ImportFailure]) -> str:
    """Return the variable that made an otherwise working package odd; empty if there is none."""
    rehearsal = value_of(context.facts.rehearsal)
    modules = {one.package for one in failed}
    odd = [one for one in (rehearsal.oddities if rehearsal is not None else ()) if one.module in modules]
    variables = context.facts.environment.variables
    named = [name for name, module in READ.items() if module in modules and variables.get(name)]
    return named[0] if named and len(odd) == len(named) else ""


def _lacks_module(context: RuleContext, failure: ImportFailure) -> bool:
    """Return whether a package lacks a module and no other version is known to have it."""
    if failure.missing or not failure.rehearsed.not_found:
        return False
    there = context.python.distribution(failure.package) if context.python is not None else None
    known = _find_good_version(context, failure.package)
    return there is None or known is None or known == there.version


def _library_removal_remedy(context: RuleContext, library: str) -> Remedy:
    """Return the remedy for a library that a variable puts before the system's library."""
    folder = posixpath.dirname(library)
    variables = context.facts.environment.variables
    name = (
        "LD_PRELOAD"
        if library in variables.get("LD_PRELOAD", "").replace(":", " ").split()
        else "LD_LIBRARY_PATH"
    )
    entries = entries_of(name, variables.get(name, ""))
    gone = [one for one in entries if one.rstrip("/") in (folder, library)]
    kept = [one for one in entries if one not in gone]
    text = f"Take {', '.join(gone) or library} off {name} where TensorFlow runs."
    return variable_origins.remove_entries_remedy(context, name, tuple(gone), kept, text)


_NONE = (FileDifference("", "missing"),)


def requirement_of(context: RuleContext, package: str, *, again: bool = False) -> str:
    """Return the requirement for pip with which TensorFlow's import gets a working package.

    With `again`, the installed version. Else the version of the most similar environment in which the
    import worked, what an installed package requires, or the newest version.
    """
    python = context.python
    there = python.distribution(package) if python is not None else None
    if again and there is not None:
        return f"{package}=={there.version}"
    known = _find_good_version(context, package)
    if known is not None and (there is None or known != there.version):
        return f"{package}=={known}"
    asked = [one.requirement for one in unmet(python) if one.package == package] if python is not None else []
    if asked:
        return asked[0]
    return f"{package}!={there.version}" if there is not None else package


def requirement_if_absent(context: RuleContext, package: str) -> str:
    """Return the requirement for a package that is nowhere in this environment.

    What PYTHONPATH adds does not count.
    """
    known = _find_good_version(context, package)
    return f"{package}=={known}" if known is not None else package


def _find_good_version(context: RuleContext, package: str) -> str | None:
    python, tensorflow = context.python, context.tensorflow
    if python is None or tensorflow is None:
        return None
    return good_version(python, tensorflow, package, context.compat)
