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
from tfdoctor.core.errors import ExitCode
from tfdoctor.diagnosis import examine, make_live_system
from tfdoctor.render.capture import make_capture_json, render_recording
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT
from tfdoctor.system import RecordedSystem, RecordingSystem, archive, bundle
from tfdoctor.system.identity import make_redactor

if TYPE_CHECKING:
    from tfdoctor.core.findings import Report
    from tfdoctor.core.privacy.redactor import Redactor
    from tfdoctor.system import System


@dataclass(frozen=True, slots=True)
class RedactedRecording:
    """A redacted recording of a host, with the `check` reports on the host and on the recording."""

    files: dict[str, bytes]
    """The content of each file of the recording, by its name."""
    manifest: dict[str, Any]
    """The content of the manifest, which is one of the files."""
    recording_report: Report
    """The report on the redacted recording."""
    host_report: Report
    """The unredacted report on the host itself."""
    redactor: Redactor
    """The redactor that made the recording.

    It replaces the same values in other texts with the same placeholders.
    """
    differences: tuple[str, ...]
    """The parts in which the two reports differ, such as "the verdict"; usually empty."""


def record_system(
    system: System, compat: Compat, *, python: str | None, timeout: float, local: bool
) -> RedactedRecording:
    """Examine and record a system, redact the recording, and examine the redacted recording.

    `local` says whether the system is this host. `timeout` is in seconds.
    """
    recording_system = RecordingSystem(system)
    host_report = examine(recording_system, compat, python=python, timeout=timeout)
    full_recording = recording_system.get_recording(host_report.facts.environment.variables.__contains__)
    full_recording.python = python
    redactor = make_redactor(system.env, include_local_names=local)
    redacted_recording = bundle.redact_recording(bundle.shorten_recording(full_recording), redactor)
    files = bundle.build_recording_files(redacted_recording)
    recorded_system = RecordedSystem(files)
    report = examine(recorded_system, compat, python=recorded_system.python)
    differences = describe_differences(host_report, report)
    date = datetime.now(timezone.utc).date().isoformat()
    manifest = bundle.build_manifest(
        redacted_recording, redactor, {"name": "tfdoctor", "version": __version__}, date
    )
    manifest["judged"] = {
        "cause": report.verdict.cause.value if report.verdict.cause is not None else None,
        "codes": sorted({finding.code for finding in report.findings}),
        "differs_from_the_machine": list(differences),
    }
    files[archive.MANIFEST_FILE] = (json.dumps(manifest, indent=1) + "\n").encode("ascii")
    return RedactedRecording(
        files=files,
        manifest=manifest,
        recording_report=report,
        host_report=host_report,
        redactor=redactor,
        differences=differences,
    )


def describe_differences(host_report: Report, recording_report: Report) -> tuple[str, ...]:
    """Return the parts in which the report on a recording differs from the report on its host."""
    differences = []
    if host_report.verdict.cause != recording_report.verdict.cause:
        differences.append("the verdict")
    host_prediction, recording_prediction = host_report.prediction, recording_report.prediction
    if (host_prediction.gpu_registered, host_prediction.gpu_count, host_prediction.missing_libraries) != (
        recording_prediction.gpu_registered, recording_prediction.gpu_count, recording_prediction.missing_libraries,
    ):  # fmt: skip
        differences.append("the prediction")
    recorded_outcomes = {outcome.code: outcome for outcome in recording_report.outcomes}
    for outcome in host_report.outcomes:
        recorded_outcome = recorded_outcomes.get(outcome.code)
        host_findings = [(finding.cause, finding.severity) for finding in outcome.findings]
        recorded_findings = (
            [(finding.cause, finding.severity) for finding in recorded_outcome.findings]
            if recorded_outcome is not None
            else []
        )
        if (
            recorded_outcome is None
            or outcome.kind is not recorded_outcome.kind
            or host_findings != recorded_findings
        ):
            differences.append(outcome.code)
    return tuple(differences)


@command("tfdoctor capture -o bug.tar.gz", "tfdoctor capture -o bug.tar.gz --python ~/tf/bin/python")
def capture(
    output: Annotated[
        Path | None,
        option("A folder, or a file that ends in .tar.gz.", "--output", "-o", metavar="RECORDING"),
    ] = None,
    python: Python = None,
    timeout: Timeout = 10.0,
    force: Annotated[bool, option("Replace an existing recording.", "--force")] = False,
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
    recording = record_system(system, Compat.load(), python=python, timeout=timeout, local=True)
    size = archive.write_recording(target, recording.files, force=force)
    is_packed = archive.is_archive(target)
    if as_json:
        write_json(
            make_capture_json(
                recording.manifest, str(target), size, len(recording.files), is_archive=is_packed
            )
        )
    else:
        OUT.write(
            render_recording(
                recording.manifest, recording.differences, str(target), size, is_archive=is_packed
            )
        )
    return ExitCode.OK


def warn_of_differences(recording: RedactedRecording) -> None:
    """Print a warning to standard error if the redacted recording gives different results."""
    if recording.differences:
        sys.stderr.write(
            f"tfdoctor: the redacted recording gives different results: {', '.join(recording.differences)}\n"
        )
