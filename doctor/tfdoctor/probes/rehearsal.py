"""The import of what TensorFlow imports of others, rehearsed in a child of the examined Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tfdoctor.facts import Absent, Fact, Known, Unknown
from tfdoctor.facts.imports import RehearsalFacts, Rehearsed
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.result import Failure
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.facts import PythonFacts
    from tfdoctor.facts.imports import Oddity
    from tfdoctor.system import CommandResult, System


def probe(
    system: System,
    python: PythonFacts,
    modules: Sequence[tuple[str, Sequence[str]]],
    sources: Sequence[str],
    oddities: Sequence[Oddity],
    keras: Sequence[str] = (),
    *,
    version: str = "",
    timeout: float,
) -> Fact[RehearsalFacts]:
    """Import `modules` (with the attributes that are taken of them), execute `sources`, and import Keras's modules
    with something in the place of TensorFlow `version`. `timeout` in seconds."""
    where = f"{python.executable}: the imports of TensorFlow's imports"
    if not modules and not sources:
        return Known(RehearsalFacts(tuple(oddities), ()), where)
    wanted = {"modules": modules, "sources": sources, "keras": (keras, version)}
    answer, result = run_payload(
        system, python.executable, "rehearse", (json.dumps(wanted),), timeout=timeout
    )
    seen, of_keras = _parse_all(answer, "module", len(modules)), _parse_all(answer, "keras", len(keras))
    source = answer.get("source")
    complete = answer.get("done") is True
    if result.failure is Failure.NOT_FOUND:  # it has just answered: this is a recording, without a rehearsal
        return Absent(where, "the imports were not rehearsed when this was recorded")
    if "at" not in answer:
        return Unknown(f"{python.executable} {result.describe_end()}", where)
    if not complete and result.ok:
        return Unknown(
            f"the import of {clean_line(str(answer['at']))} ended the process without an error", where
        )
    if not complete:
        if result.returncode is None:
            return Unknown(f"the import of {clean_line(str(answer['at']))} {result.describe_end()}", where)
        ended = of_keras if answer["at"] in keras else seen
        ended.append(_make_crashed(str(answer["at"]), result))
    return Known(
        RehearsalFacts(
            tuple(oddities),
            tuple(seen),
            _parse_rehearsed(source) if isinstance(source, dict) else None,
            tuple(of_keras),
            complete,
        ),
        where,
    )


def _parse_all(answer: Mapping[str, Any], kind: str, number: int) -> list[Rehearsed]:
    """Return what was said of the modules of one kind, as far as the child came."""
    keys = (f"{kind}:{at}" for at in range(number))
    return [_parse_rehearsed(answer[key]) for key in keys if isinstance(answer.get(key), dict)]


def _parse_rehearsed(raw: Mapping[str, Any]) -> Rehearsed:
    frames = raw.get("frames")
    return Rehearsed(
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


def _make_crashed(name: str, result: CommandResult) -> Rehearsed:
    last = result.stderr.strip().splitlines()[-1:] or [""]
    said = f": {clean_line(last[0])}" if last[0] else ""
    return Rehearsed(clean_line(name), f"the import {result.describe_end()}{said}", "crash")
