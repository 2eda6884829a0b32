"""The `tfdoctor capture` command, and the redacted recording that `report` and `check` use as well."""

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
from tfdoctor.examine import examine, make_live_system
from tfdoctor.render.capture import make_capture_json, render_captured
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT
from tfdoctor.system import RecordedSystem, RecordingSystem, archive, bundle
from tfdoctor.system.identity import make_redactor

if TYPE_CHECKING:
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Report
    from tfdoctor.privacy.redactor import Redactor
    from tfdoctor.system import System


@dataclass(frozen=True, slots=True)
class RedactedRecording:
    """A redacted recording of a host, with the `check` reports on the host and on the recording."""

    files: dict[str, bytes]
    """The content of each file of the recording, by its name."""
    manifest: dict[str, Any]
    """The content of the manifest, which is one of the files."""
    report: Report
    """The report on the redacted recording."""
    host_report: Report
    """The unredacted report on the host itself."""
    redactor: Redactor
    """The redactor that made the recording. It replaces the same values in other texts with the same placeholders."""
    differences: tuple[str, ...]
    """The parts in which the two reports differ, such as "the verdict"; usually empty."""


def record_system(
    system: System, compat: Compat, *, python: str | None, timeout: float, local: bool
) -> RedactedRecording:
    """Record a system while examining it, redact the recording, and then examine the redacted recording.

    `local` says whether the system is this host. `timeout` is in seconds.
    """
    recording = RecordingSystem(system)
    host_report = examine(recording, compat, python=python, timeout=timeout)
    full_recording = recording.get_recording(_make_variable_filter(host_report.facts))
    full_recording.python = python
    redactor = make_redactor(system.env, local=local)
    redacted = bundle.redact(bundle.shorten(full_recording), redactor)
    files = bundle.build_files(redacted)
    replayed = RecordedSystem(files)
    report = examine(replayed, compat, python=replayed.python)
    differences = describe_differences(host_report, report)
    date = datetime.now(timezone.utc).date().isoformat()
    manifest = bundle.build_manifest(redacted, redactor, {"name": "tfdoctor", "version": __version__}, date)
    manifest["judged"] = {
        "cause": report.verdict.cause.value if report.verdict.cause is not None else None,
        "codes": sorted({finding.code for finding in report.findings}),
        "differs_from_the_machine": list(differences),
    }
    files[archive.MANIFEST_FILE] = (json.dumps(manifest, indent=1) + "\n").encode("ascii")
    return RedactedRecording(files, manifest, report, host_report, redactor, differences)


def _make_variable_filter(facts: Facts) -> Any:
    """Return a predicate that accepts the names of the environment variables among the facts."""
    return facts.environment.variables.__contains__


def describe_differences(host_report: Report, recording: Report) -> tuple[str, ...]:
    """Return the parts in which the report on a recording differs from the report on its host."""
    differences = []
    if host_report.verdict.cause != recording.verdict.cause:
        differences.append("the verdict")
    expected, actual = host_report.prediction, recording.prediction
    if (expected.gpu_registered, expected.gpu_count, expected.missing_libraries) != (
        actual.gpu_registered, actual.gpu_count, actual.missing_libraries,
    ):  # fmt: skip
        differences.append("the prediction")
    outcomes = {outcome.code: outcome for outcome in recording.outcomes}
    for outcome in host_report.outcomes:
        recorded_outcome = outcomes.get(outcome.code)
        expected_findings = [(finding.cause, finding.severity) for finding in outcome.findings]
        actual_findings = (
            [(finding.cause, finding.severity) for finding in recorded_outcome.findings]
            if recorded_outcome is not None
            else []
        )
        if (
            recorded_outcome is None
            or outcome.kind is not recorded_outcome.kind
            or expected_findings != actual_findings
        ):
            differences.append(outcome.code)
    return tuple(differences)


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
    """Write a redacted recording of this machine, print a summary and return the exit status.

    Users, hosts, addresses, tokens, serial numbers and UUIDs are replaced; equal values get the same placeholder.
    Sends nothing.
    """
    target = output
    if target is None:
        target = Path(f"tfdoctor-{datetime.now(timezone.utc).date().isoformat()}.tar.gz")
    archive.check_target(target, force=force)
    system = make_live_system(python)
    captured = record_system(system, Compat.load(), python=python, timeout=timeout, local=True)
    size = archive.write(target, captured.files, force=force)
    is_packed = archive.is_archive(target)
    if as_json:
        write_json(
            make_capture_json(captured.manifest, str(target), size, len(captured.files), packed=is_packed)
        )
    else:
        OUT.write(
            render_captured(captured.manifest, captured.differences, str(target), size, packed=is_packed)
        )
    return ExitCode.OK


def warn_of_differences(captured: RedactedRecording) -> None:
    """Print a warning to standard error if the redacted recording gives different results."""
    if captured.differences:
        sys.stderr.write(
            f"tfdoctor: the redacted recording gives different results: {', '.join(captured.differences)}\n"
        )
