"""TensorFlow did not do what tfdoctor predicted.

What it means
-------------
`check --deep` runs TensorFlow and compares what it did with what was said without running it. Where they
differ, what TensorFlow did is right, and tfdoctor has a fault.

How it is seen
--------------
Whether a GPU was registered, how many, and which libraries were missing: predicted and observed, side by
side.

What to do
----------
Trust the observation, and report the difference: your report becomes a test for the fix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext

if TYPE_CHECKING:
    from tfdoctor.findings import Finding, Observation


def check(context: RuleContext) -> Result:
    observed, said = context.observed, context.prediction
    if observed is None:
        return NotApplicable("TensorFlow was not run (`tfdoctor check --deep` does it)")
    if observed.ended and observed.gpu_registered is None:
        return CouldNotCheck(f"TensorFlow was run and {observed.ended}")
    if observed.gpu_registered is None and observed.import_ok:
        return CouldNotCheck("TensorFlow was run and did not say whether it registers a GPU")
    if not observed.import_ok and said.import_ok is not False:
        return [_build_import_finding(observed)]
    differences = []
    if said.import_ok is not None and said.import_ok != observed.import_ok:
        differences.append(("the import", _works(said.import_ok), _works(observed.import_ok)))
    if said.gpu_registered is not None and bool(observed.gpu_registered) != said.gpu_registered:
        differences.append(
            (
                "a GPU is registered",
                _format_bool(said.gpu_registered),
                _format_bool(bool(observed.gpu_registered)),
            )
        )
    elif (
        said.gpu_count is not None and observed.gpu_count is not None and said.gpu_count != observed.gpu_count
    ):
        differences.append(("GPUs registered", str(said.gpu_count), str(observed.gpu_count)))
    if _libraries_differ(context):
        differences.append(
            (
                "missing libraries",
                ", ".join(said.missing_libraries) or "none",
                ", ".join(observed.missing_libraries) or "none",
            )
        )
    if not differences:
        return ()
    return [
        RULE.finding(
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            "What TensorFlow did is right. The difference is a fault of tfdoctor, or something changed in "
            "between.",
            title="TensorFlow did not do what tfdoctor predicted",
            evidence=[
                Evidence("prediction and observation", f"{what}: predicted {one}, was {other}")
                for what, one, other in differences
            ],
            remedies=[
                Remedy(
                    "Please report it to the project, with this file.",
                    ("tfdoctor check --deep --json > tfdoctor-report.json",),
                )
            ],
        )
    ]


def _build_import_finding(observed: Observation) -> Finding:
    """Report an import that failed for a reason that no rule saw.

    What its error says is all that is known.
    """
    cause = observed.cause or Cause.INCONCLUSIVE
    error = observed.error or "it ended without a word"
    known = cause is not Cause.INCONCLUSIVE
    remedy = (
        Remedy("See what this cause means, and how to fix it.", (f"tfdoctor explain {cause.value}",))
        if known
        else Remedy(
            "Please report it to the project, with this file.",
            ("tfdoctor check --deep --json > tfdoctor-report.json",),
        )
    )
    return RULE.finding(
        cause,
        Severity.ERROR,
        f"TensorFlow was run, and its import failed, which was not predicted: {error.rstrip('.')}."
        + (f" {cause.row.meaning}" if known else ""),
        title=f"import tensorflow failed: {error[:160]}",
        evidence=[Evidence("import tensorflow", error)],
        remedies=[remedy],
    )


def _libraries_differ(context: RuleContext) -> bool:
    """Return whether the observed missing libraries differ from the predicted ones.

    TensorFlow tries its libraries only once it has seen a device; an ImportError names only the
    first.
    """
    observed, said = context.observed, set(context.prediction.missing_libraries)
    if observed is None or not observed.missing_libraries:
        return False
    was = set(observed.missing_libraries)
    return not was <= said if not observed.import_ok or not was >= said else was != said


def _format_bool(value: bool) -> str:
    return "yes" if value else "no"


def _works(value: bool) -> str:
    return "works" if value else "fails"


RULE = Rule(
    "TFD901",
    "prediction-differs",
    "TensorFlow did not do what was predicted",
    tuple(Cause),
    check,
)
