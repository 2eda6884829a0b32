"""TensorFlow did not do what tfdoctor predicted.

What it means
-------------
`check --deep` runs TensorFlow and compares what it did with what tfdoctor predicted before. If they
differ, what TensorFlow did is right, and tfdoctor has a fault.

How it is seen
--------------
Predicted and observed are compared: whether a GPU was registered, how many, and which libraries were
missing.

What to do
----------
Trust the observation, and report the difference: your report becomes a test for the fix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding, Observation


def check(context: RuleContext) -> Result:
    observed, prediction = context.observation, context.prediction
    if observed is None:
        return NotApplicable("TensorFlow was not run (`tfdoctor check --deep` does it)")
    if observed.stop_reason and observed.gpu_registered is None:
        return CouldNotCheck(f"TensorFlow was run and {observed.stop_reason}")
    if observed.gpu_registered is None and observed.import_ok:
        return CouldNotCheck("TensorFlow was run and did not say whether it registers a GPU")
    if not observed.import_ok and prediction.import_ok is not False:
        return [_build_import_finding(observed)]
    differences = []
    if prediction.import_ok is not None and prediction.import_ok != observed.import_ok:
        differences.append(
            ("the import", _format_import(prediction.import_ok), _format_import(observed.import_ok))
        )
    if prediction.gpu_registered is not None and bool(observed.gpu_registered) != prediction.gpu_registered:
        differences.append(
            (
                "a GPU is registered",
                _format_bool(prediction.gpu_registered),
                _format_bool(bool(observed.gpu_registered)),
            )
        )
    elif (
        prediction.gpu_count is not None
        and observed.gpu_count is not None
        and prediction.gpu_count != observed.gpu_count
    ):
        differences.append(("GPUs registered", str(prediction.gpu_count), str(observed.gpu_count)))
    if _libraries_differ(context):
        differences.append(
            (
                "missing libraries",
                ", ".join(prediction.missing_libraries) or "none",
                ", ".join(observed.missing_libraries) or "none",
            )
        )
    if not differences:
        return ()
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            "What TensorFlow did is right. The difference is a fault of tfdoctor, or something changed in "
            "between.",
            title="TensorFlow did not do what tfdoctor predicted",
            evidence=[
                Evidence("prediction and observation", f"{name}: predicted {predicted}, was {actual}")
                for name, predicted, actual in differences
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
    """Return the finding about an import that failed although no rule predicted that."""
    cause = observed.cause or Cause.INCONCLUSIVE
    error = observed.error or "it ended without a word"
    is_cause_known = cause is not Cause.INCONCLUSIVE
    remedy = (
        Remedy("See what this cause means, and how to fix it.", (f"tfdoctor explain {cause.value}",))
        if is_cause_known
        else Remedy(
            "Please report it to the project, with this file.",
            ("tfdoctor check --deep --json > tfdoctor-report.json",),
        )
    )
    return RULE.make_finding(
        cause,
        Severity.ERROR,
        f"TensorFlow was run, and its import failed, which was not predicted: {error.rstrip('.')}."
        + (f" {cause.data.meaning}" if is_cause_known else ""),
        title=f"import tensorflow failed: {error[:160]}",
        evidence=[Evidence("import tensorflow", error)],
        remedies=[remedy],
    )


def _libraries_differ(context: RuleContext) -> bool:
    """Return whether a library was missing that was not predicted to be missing.

    Fewer missing libraries than predicted are no contradiction: an ImportError names only the first one, and
    TensorFlow tries its libraries only after it has found a device.
    """
    if context.observation is None:
        return False
    return not set(context.observation.missing_libraries) <= set(context.prediction.missing_libraries)


def _format_bool(value: bool) -> str:
    return "yes" if value else "no"


def _format_import(value: bool) -> str:
    return "works" if value else "fails"


RULE = Rule(
    "TFD901",
    "prediction-differs",
    "TensorFlow did not do what was predicted",
    tuple(Cause),
    check,
)
