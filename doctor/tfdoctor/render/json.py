"""JSON for other programs; the shapes are those of docs/schemas."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.facts import Absent, Known, Unknown

if TYPE_CHECKING:
    from tfdoctor.against import Comparison
    from tfdoctor.findings import Finding, Observation, Prediction, Report

SCHEMA_VERSION = 1


def write_json(value: Any) -> None:
    """Print one JSON document on standard output, in ASCII: every terminal and locale can take it."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def report_json(report: Report) -> dict[str, Any]:
    """`check --json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "tfdoctor", "version": __version__},
        "verdict": {
            "gpu_usable": report.verdict.gpu_usable,
            "cause": _word(report.verdict.cause),
            "summary": report.verdict.summary,
        },
        "prediction": _prediction(report.prediction),
        "observed": _observation(report.observed) if report.observed is not None else None,
        "facts": plain(report.facts),
        "outcomes": report.counts(),
        "rules": [
            {"code": outcome.code, "outcome": outcome.kind.value, "why": outcome.why}
            for outcome in report.outcomes
        ],
        "findings": [finding_json(finding) for finding in report.findings],
    }


def comparison_json(comparison: Comparison, name: str) -> dict[str, Any]:
    """What `check --against --json` has beside the report's."""
    return {
        "against": {
            "bundle": name,
            "summary": comparison.then,
            "another_machine": list(comparison.elsewhere),
            "environment": dict(zip(("was", "is"), comparison.environment, strict=True))
            if comparison.environment is not None
            else None,
            "found_then_only": list(comparison.gone),
            "found_now_only": list(comparison.fresh),
        },
        "differences": [
            {
                "name": one.name,
                "area": one.area,
                "was": one.was,
                "is": one.is_,
                "matters": one.matters.value,
                "explains": list(one.findings),
            }
            for one in comparison.differences
        ],
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """One finding, by the contract."""
    return {
        "code": finding.code,
        "cause": finding.cause.value,
        "severity": finding.severity.word,
        "title": finding.title,
        "explanation": finding.explanation,
        "evidence": [{"source": e.source, "line": e.line, "text": e.text} for e in finding.evidence],
        "remedies": [
            {"text": r.text, "commands": list(r.commands), "changes_system": r.changes_system}
            for r in finding.remedies
        ],
    }


def _word(value: enum.Enum | None) -> str | None:
    return None if value is None else str(value.value)


def _prediction(prediction: Prediction) -> dict[str, Any]:
    return {
        "gpu_registered": prediction.gpu_registered,
        "gpu_count": prediction.gpu_count,
        "missing_libraries": list(prediction.missing_libraries),
        "cause": _word(prediction.cause),
        "import_ok": prediction.import_ok,
        "reasons": list(prediction.reasons),
    }


def _observation(observed: Observation) -> dict[str, Any]:
    return {
        "import_ok": observed.import_ok,
        "gpu_registered": observed.gpu_registered,
        "gpu_count": observed.gpu_count,
        "missing_libraries": list(observed.missing_libraries),
        "seconds": observed.seconds,
        "devices": list(observed.devices),
        "computed": list(observed.computed),
        "error": observed.error,
    }


def plain(value: Any) -> Any:
    """Facts as JSON: a fact is {"known": …, "source": …}, {"absent": …} or {"unknown": why}."""
    if isinstance(value, Known):
        return {"known": plain(value.value), "source": value.source}
    if isinstance(value, Absent):
        return {"absent": value.why, "source": value.source}
    if isinstance(value, Unknown):
        return {"unknown": value.why, "source": value.source}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(inner) for inner in value)
    if isinstance(value, enum.Enum):
        return value.value
    return value
