"""`tfdoctor capture`, and the redacted look at a machine that `tfdoctor report` shares with it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tfdoctor import __version__
from tfdoctor.cli.options import Json, Python, Timeout, command, option
from tfdoctor.compat import Compat
from tfdoctor.errors import ExitCode
from tfdoctor.examine import examine, live_machine
from tfdoctor.render.capture import make_capture_json, render_captured
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT
from tfdoctor.system import RecordedSystem, RecordingSystem, archive, bundle
from tfdoctor.system.identity import redactor_for

if TYPE_CHECKING:
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Report
    from tfdoctor.privacy.redactor import Redactor
    from tfdoctor.system import System


@dataclass(frozen=True, slots=True)
class Captured:
    """A machine, redacted, and what it is judged to be."""

    files: dict[str, bytes]
    manifest: dict[str, Any]
    report: Report
    """The judgement of the redacted recording."""
    machine: Report
    """That of the machine itself, nothing of it redacted."""
    redactor: Redactor
    """What replaced; it replaces the same in other texts."""
    differences: tuple[str, ...]
    """Where that is another than the machine's own: an empty tuple is the rule."""


def look(system: System, compat: Compat, *, python: str | None, timeout: float, local: bool) -> Captured:
    """Look at everything that `check` looks at, redact it, and judge both. `local`: `system` is this machine."""
    recording = RecordingSystem(system)
    machine = examine(recording, compat, python=python, timeout=timeout)
    whole = recording.get_recording(_list_variables(machine.facts))
    whole.python = python
    redactor = redactor_for(system.env, local=local)
    redacted = bundle.redact(bundle.shorten(whole), redactor)
    files = bundle.members(redacted)
    replayed = RecordedSystem(files)
    report = examine(replayed, compat, python=replayed.python)
    differences = describe_differences(machine, report)
    day = datetime.now(timezone.utc).date().isoformat()
    manifest = bundle.manifest(redacted, redactor, {"name": "tfdoctor", "version": __version__}, day)
    manifest["judged"] = {
        "cause": report.verdict.cause.value if report.verdict.cause is not None else None,
        "codes": sorted({finding.code for finding in report.findings}),
        "differs_from_the_machine": list(differences),
    }
    files[archive.MANIFEST] = (json.dumps(manifest, indent=1) + "\n").encode("ascii")
    return Captured(files, manifest, report, machine, redactor, differences)


def _list_variables(facts: Facts) -> Any:
    """Return the variables that the environment's probe keeps: their values are facts."""
    return facts.environment.variables.__contains__


def describe_differences(machine: Report, recording: Report) -> tuple[str, ...]:
    """In what the judgement of a recording is another than that of its machine, in words."""
    found = []
    if machine.verdict.cause != recording.verdict.cause:
        found.append("the verdict")
    one, two = machine.prediction, recording.prediction
    if (one.gpu_registered, one.gpu_count, one.missing_libraries) != (
        two.gpu_registered, two.gpu_count, two.missing_libraries,
    ):  # fmt: skip
        found.append("the prediction")
    ends = {outcome.code: outcome for outcome in recording.outcomes}
    for outcome in machine.outcomes:
        other = ends.get(outcome.code)
        left = [(finding.cause, finding.severity) for finding in outcome.findings]
        right = [(finding.cause, finding.severity) for finding in other.findings] if other is not None else []
        if other is None or outcome.kind is not other.kind or left != right:
            found.append(outcome.code)
    return tuple(found)


@command
def capture(
    output: Annotated[
        Path | None,
        option("A folder, or a file that ends in .tar.gz.", "--output", "-o", metavar="BUNDLE"),
    ] = None,
    python: Python = None,
    timeout: Timeout = 10.0,
    force: Annotated[bool, option("Replace an existing bundle.", "--force")] = False,
    as_json: Json = False,
) -> int:
    """Look, redact, write, tell. Returns the exit status.

    Users, hosts, addresses, tokens, serial numbers and UUIDs are replaced; equal values get the same placeholder.
    Sends nothing.
    """
    target = output
    if target is None:
        target = Path(f"tfdoctor-{datetime.now(timezone.utc).date().isoformat()}.tar.gz")
    archive.check_target(target, force=force)
    system = live_machine(python)
    captured = look(system, Compat.load(), python=python, timeout=timeout, local=True)
    size = archive.write(target, captured.files, force=force)
    packed = archive.is_archive(target)
    if as_json:
        write_json(
            make_capture_json(captured.manifest, str(target), size, len(captured.files), packed=packed)
        )
    else:
        OUT.write(render_captured(captured.manifest, captured.differences, str(target), size, packed=packed))
    return ExitCode.OK


def warn(captured: Captured) -> None:
    """Tell on standard error where the redacted recording is judged otherwise."""
    if captured.differences:
        sys.stderr.write(
            f"tfdoctor: the redacted recording gives different results: {', '.join(captured.differences)}\n"
        )
