"""What the rules about TensorFlow's companions (NumPy, protobuf, …) share. No rule itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.compat.imports import breaking, companions
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules import advice
from tfdoctor.rules.base import Context, CouldNotCheck, NotApplicable, Result, Rule, unanswered
from tfdoctor.steps import Install
from tfdoctor.versions import satisfies

if TYPE_CHECKING:
    from tfdoctor.compat.imports import Companion
    from tfdoctor.findings import Finding


def broken_companions(context: Context) -> tuple[Companion, ...]:
    """What of the table applies to this Python."""
    conda = context.tensorflow is not None and context.tensorflow.conda_build
    if context.build is None or context.python is None or not context.python.distributions or conda:
        return ()
    return breaking(
        context.build.version,
        context.python.versions_installed(),
        context.facts.environment.variables,
        absent=context.python.absent,
    )


def companion_findings(context: Context, rule: Rule, *packages: str) -> Result:
    """The outcome of a rule about these packages; the errors first."""
    refused = unanswered(context.facts.tensorflow, "TensorFlow")
    if refused is not None:
        return refused
    if context.python is None or not context.python.distributions:
        return CouldNotCheck("which distributions are installed is not known")
    if context.build is None or context.build.version is None:
        return CouldNotCheck("the version of this TensorFlow is not known")
    if context.tensorflow is not None and context.tensorflow.conda_build:
        return NotApplicable("conda's TensorFlow is built with conda's own versions of its companions")
    rows = [row for row in broken_companions(context) if row.package in packages and row.breaks]
    rows.sort(key=lambda row: row.effect != "import")
    return [companion_finding(context, rule, row) for row in rows[:1]]


def companion_finding(context: Context, rule: Rule, row: Companion) -> Finding:
    """One row of the table as a finding."""
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
                (advice.pip_install(context, [_requirement(context, row)]), advice.check_again(context)),
                steps=(Install((_requirement(context, row),)),),
            )
        ],
    )


def _requirement(context: Context, row: Companion) -> str:
    """For one that is missing: a version that no row of the table speaks against."""
    if row.breaks or context.build is None or context.build.version is None:
        return row.requirement
    version = context.build.version
    others = [o for o in companions() if o.package == row.package and o.breaks and o.effect == "import"]
    own = [d for d in context.python.distributions if d.requires] if context.python is not None else []
    asked = [
        line.partition(";")[0] for d in own for line in d.requires if advice.project_of(line) == row.package
    ]
    wanted = "".join(asked[0].split()).replace("(", "").replace(")", "") if asked else row.requirement
    return next((o.requirement for o in others if satisfies(version, o.tensorflow)), wanted)
