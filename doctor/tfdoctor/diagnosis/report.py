"""Run all rules on the facts and make the report: prediction, outcomes, root cause and verdict.

The rules use only the facts, so a recording gets the same report as the machine that it was made on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, value_of
from tfdoctor.core.findings import Cause, Finding, OutcomeKind, Prediction, Report, Severity, Verdict
from tfdoctor.core.text import lower_first
from tfdoctor.diagnosis.areas import find_area, make_areas
from tfdoctor.prediction.stages import predict
from tfdoctor.remedies.commands import adapt_findings
from tfdoctor.remedies.machine import add_book_remedies
from tfdoctor.rules import ALL_RULES, RULES_BY_CODE
from tfdoctor.rules.base import CUDA, CUDNN, LOADER, TENSORFLOW, RuleContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Observation, Outcome
    from tfdoctor.remedies.target import TargetImage
    from tfdoctor.rules.base import Rule

CONTAINER_RULE_CODES = frozenset(rule.code for rule in ALL_RULES if rule.containers_only)
"""The codes of rules that concern only containers, and so never explain why the examined Python fails."""


def diagnose(
    facts: Facts,
    compat: Compat,
    observed: Observation | None = None,
    rules: Sequence[Rule] = ALL_RULES,
    *,
    image: TargetImage | None = None,
) -> Report:
    """Run the rules on the facts and return the report.

    `observed` is the behaviour of TensorFlow; None means that it was not run. `image` is the image that the facts
    are about; None means that they are about a machine.
    """
    prediction = predict(facts, compat)
    context = RuleContext(facts, compat, prediction, observed, image)
    outcomes = tuple(rule.run(context) for rule in rules)
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    root = _find_root(findings, prediction)
    if image is None:
        adapted_by_id = adapt_findings(context.target, root, findings, CONTAINER_RULE_CODES)
        adapted_root = adapted_by_id[id(root)] if root is not None else None
        adapted_by_id = {
            key: add_book_remedies(facts, compat, adapted_root, finding)
            for key, finding in adapted_by_id.items()
        }
    else:
        from tfdoctor.remedies.image import adapt_image_findings

        adapted_by_id = adapt_image_findings(context.target, root, findings, CONTAINER_RULE_CODES)
    # `adapted_by_id` maps the `id` of each finding to the same finding with other remedies.
    outcomes = tuple(
        replace(outcome, findings=tuple(adapted_by_id[id(finding)] for finding in outcome.findings))
        for outcome in outcomes
    )
    findings = [adapted_by_id[id(finding)] for finding in findings]
    root = adapted_by_id[id(root)] if root is not None else None
    consequence_causes = root.cause.consequences if root is not None else frozenset()
    consequences = [f for f in findings if f is not root and f.cause in consequence_causes]
    other_findings = [f for f in findings if f is not root and f not in consequences]
    other_findings.sort(key=lambda finding: -finding.severity)
    ordered_findings = [*([root] if root is not None else []), *consequences, *other_findings]
    prediction = _add_root_cause(prediction, root)
    return Report(
        facts=facts,
        prediction=prediction,
        observed=observed,
        outcomes=outcomes,
        findings=tuple(ordered_findings),
        verdict=_make_verdict(facts, prediction, observed, root, outcomes),
        root_finding=root,
        consequences=tuple(consequences),
        areas=make_areas(facts, context.build, findings),
    )


def _find_root(findings: Sequence[Finding], prediction: Prediction) -> Finding | None:
    """Return the finding that is the root cause, or None if there is no error.

    If the prediction is that no GPU is registered, this is a finding with the predicted cause, preferably an error.
    In all other cases, or if there is no such finding, it is the first error.
    """
    findings = [finding for finding in findings if finding.code not in CONTAINER_RULE_CODES]
    if prediction.gpu_registered is False and prediction.cause is not Cause.TENSORFLOW_MISSING:
        same_cause = [f for f in findings if f.cause is prediction.cause]
        errors = [f for f in same_cause if f.severity is Severity.ERROR]
        if same_cause:
            return (errors or same_cause)[0]
    errors = [f for f in findings if f.severity is Severity.ERROR]
    if prediction.import_ok is False:  # a failed import comes before missing libraries
        errors.sort(key=_is_about_libraries)
    if prediction.gpu_registered is None:  # without a working Python, nothing else can be examined
        errors.sort(key=lambda finding: not _is_about_python(finding))
    return errors[0] if errors else None


def _is_about_libraries(finding: Finding) -> bool:
    rule = RULES_BY_CODE.get(finding.code)
    return rule is not None and rule.summary_area in (LOADER, CUDA, CUDNN)


def _is_about_python(finding: Finding) -> bool:
    rule = RULES_BY_CODE.get(finding.code)
    return rule is not None and rule.explains_broken_python


def _add_root_cause(prediction: Prediction, root: Finding | None) -> Prediction:
    """Return the prediction. If it is a failure of unknown cause, it gets the cause of the root finding."""
    if prediction.gpu_registered is not False or prediction.cause is not Cause.INCONCLUSIVE or root is None:
        return prediction
    return replace(prediction, cause=root.cause)


def _make_verdict(
    facts: Facts,
    prediction: Prediction,
    observed: Observation | None,
    root: Finding | None,
    outcomes: Sequence[Outcome],
) -> Verdict:
    """Return the verdict. If TensorFlow was run, its behaviour overrides the prediction."""
    tensorflow = value_of(facts.tensorflow)
    name = (
        f"TensorFlow {tensorflow.version or '(unknown version)'}" if tensorflow is not None else "TensorFlow"
    )
    unchecked_count = sum(outcome.kind is OutcomeKind.COULD_NOT_CHECK for outcome in outcomes)
    if isinstance(facts.tensorflow, Absent) and prediction.cause is Cause.TENSORFLOW_MISSING:
        return _make_absent_verdict(root)
    registered, count = prediction.gpu_registered, prediction.gpu_count
    if observed is not None and observed.gpu_registered is not None:
        registered, count = observed.gpu_registered, observed.gpu_count
    if registered is None:
        summary = f"Could not determine whether {name} will see a GPU."
        headline = f"Could not determine whether {name} will use the GPU."
        if root is not None and root.cause is Cause.PYTHON_UNUSABLE:
            summary = headline = f"TensorFlow could not be examined: {lower_first(root.title)}"
        elif root is not None:
            headline = f"{headline[:-1]}: {lower_first(root.title)}"
        return Verdict(
            gpu_usable=None,
            cause=root.cause if root else Cause.INCONCLUSIVE,
            summary=summary,
            headline=headline,
        )
    if registered is False:
        reason = root.title if root is not None else (prediction.reasons[-1] if prediction.reasons else "")
        cause = root.cause if root is not None else prediction.cause
        verb = "registers" if observed is not None else "will register"
        effect = "does not use the GPU" if observed is not None else "will not use the GPU"
        reason = lower_first(reason)
        return Verdict(
            gpu_usable=False,
            cause=cause,
            summary=f"{name} {verb} no GPU: {reason}",
            headline=f"{name} {effect}: {_shorten_reason(reason, name)}",
        )
    if root is not None:
        reason = lower_first(root.title)
        return Verdict(
            gpu_usable=False,
            cause=root.cause,
            summary=f"{name} registers the GPU but cannot use it: {reason}",
            headline=f"{name} sees the GPU but cannot use it: {_shorten_reason(reason, name)}",
        )
    plural = "" if count == 1 else "s"
    verb = "registers" if observed is not None else "will register"
    suffix = (
        f" ({unchecked_count} check{'s' * (unchecked_count > 1)} could not be run)" if unchecked_count else ""
    )
    gpus = "the GPU" if count == 1 else f"{count} GPUs"
    return Verdict(
        gpu_usable=True,
        cause=Cause.HEALTHY,
        summary=f"{name} {verb} {count} GPU{plural}; no problems found{suffix}.",
        headline=f"{name} {'uses' if observed is not None else 'will use'} {gpus}.",
    )


def _make_absent_verdict(root: Finding | None) -> Verdict:
    """Return the verdict for a Python without TensorFlow.

    Its `gpu_usable` is False if the root finding would prevent any TensorFlow from using a GPU, else None.
    """
    absence_text = "TensorFlow is not installed in this Python"
    if root is None or find_area(root) == TENSORFLOW:
        cause = root.cause if root is not None else Cause.INCONCLUSIVE
        return Verdict(
            gpu_usable=None,
            cause=cause,
            summary=f"{absence_text}.",
            headline=_format_absence(absence_text, root),
        )
    reason = lower_first(root.title)
    return Verdict(
        gpu_usable=False,
        cause=root.cause,
        summary=f"{absence_text}, and none could use a GPU here: {reason}",
        headline=f"{absence_text}, and no GPU can be used: {reason}",
    )


def _format_absence(absence_text: str, root: Finding | None) -> str:
    """Return `absence_text` as a sentence, with the title of the root finding if that has another cause."""
    if root is None or root.cause is Cause.TENSORFLOW_MISSING:
        return f"{absence_text}."
    return f"{absence_text}: {lower_first(root.title)}"


def _shorten_reason(reason: str, name: str) -> str:
    """Return a reason without `name` at its beginning, for use after a mention of that name.

    For example, "TensorFlow 2.4 needs …" becomes "it needs …".
    """
    if reason.startswith("A "):
        return f"a{reason[1:]}"
    return f"it {reason.removeprefix(name).lstrip()}" if reason.startswith(f"{name} ") else reason
