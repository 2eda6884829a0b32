"""Rehearse TensorFlow's imports of other packages in a child process of the examined Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts import Absent, Fact, Known, Unknown
from tfdoctor.core.facts.imports import ImportResult, RehearsalFacts
from tfdoctor.core.text import clean_line
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.result import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.core.facts import PythonFacts
    from tfdoctor.core.facts.imports import RehearsalReason
    from tfdoctor.system import CommandResult, System


def probe(
    system: System,
    python: PythonFacts,
    modules: Sequence[tuple[str, Sequence[str]]],
    sources: Sequence[str],
    reasons: Sequence[RehearsalReason],
    keras_modules: Sequence[str] = (),
    *,
    version: str = "",
    timeout: float,
) -> Fact[RehearsalFacts]:
    """Import the packages that TensorFlow imports, without TensorFlow itself, and return the results.

    `modules` are pairs (name, attributes that TensorFlow uses). `sources` are source files to execute. `keras` are
    modules of Keras, which are imported with a substitute for TensorFlow `version`. `oddities` are the reasons for the
    rehearsal, which are copied to the result. `timeout` is in seconds.
    """
    label = f"{python.executable}: the imports of TensorFlow's imports"
    if not modules and not sources:
        return Known(RehearsalFacts(tuple(reasons), ()), label)
    request = {"modules": modules, "sources": sources, "keras": (keras_modules, version)}
    answer, result = run_payload(
        system, python.executable, "rehearse", (json.dumps(request),), timeout=timeout
    )
    module_results = _parse_results(answer, "module", len(modules))
    keras_results = _parse_results(answer, "keras", len(keras_modules))
    source_result = answer.get("source")
    is_complete = answer.get("done") is True
    # This Python ran a moment ago, so the system is a recording that lacks the rehearsal.
    if result.failure is Failure.NOT_FOUND:
        return Absent(label, "the imports were not rehearsed when this was recorded")
    if "at" not in answer:
        return Unknown(f"{python.executable} {result.describe_outcome()}", label)
    if not is_complete and result.ok:
        return Unknown(
            f"the import of {clean_line(str(answer['at']))} ended the process without an error", label
        )
    if not is_complete:
        if result.returncode is None:
            return Unknown(
                f"the import of {clean_line(str(answer['at']))} {result.describe_outcome()}", label
            )
        results_of_kind = keras_results if answer["at"] in keras_modules else module_results
        results_of_kind.append(_make_crash_result(str(answer["at"]), result))
    return Known(
        RehearsalFacts(
            oddities=tuple(reasons),
            modules=tuple(module_results),
            source=_parse_result(source_result) if isinstance(source_result, dict) else None,
            keras=tuple(keras_results),
            complete=is_complete,
        ),
        label,
    )


def _parse_results(answer: Mapping[str, Any], kind: str, count: int) -> list[ImportResult]:
    """Return the results for the modules of one kind, up to the last that the child imported."""
    keys = (f"{kind}:{position}" for position in range(count))
    return [_parse_result(answer[key]) for key in keys if isinstance(answer.get(key), dict)]


def _parse_result(raw: Mapping[str, Any]) -> ImportResult:
    """Parse the result of one import."""
    frames = raw.get("frames")
    return ImportResult(
        name=clean_line(str(raw.get("name", ""))),
        error=clean_line(str(raw.get("error", "")), limit=600),
        root=clean_line(str(raw.get("root") or ""), limit=600),
        error_type=clean_line(str(raw.get("type", ""))),
        import_error=raw.get("import_error") is True,
        attribute_error=raw.get("attribute_error") is True,
        not_found=clean_line(str(raw.get("not_found") or "")),
        file=str(raw.get("file") or ""),
        top=str(raw.get("top") or ""),
        frames=tuple(map(str, frames)) if isinstance(frames, list) else (),
    )


def _make_crash_result(name: str, result: CommandResult) -> ImportResult:
    """Return the result for a module whose import ended the process."""
    last_line = next(reversed(result.stderr.strip().splitlines()), "")
    message = f": {clean_line(last_line)}" if last_line else ""
    return ImportResult(
        name=clean_line(name), error=f"the import {result.describe_outcome()}{message}", error_type="crash"
    )
