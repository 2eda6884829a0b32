"""`tfdoctor capture`, and the redacted look at a machine that `tfdoctor report` shares with it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.compat import Compat
from tfdoctor.errors import ExitCode
from tfdoctor.examine import examine
from tfdoctor.system import LiveSystem, RecordedSystem, RecordingSystem, archive, bundle
from tfdoctor.system.identity import redactor_for
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Report
    from tfdoctor.privacy.redactor import Redactor
    from tfdoctor.system import System

KINDS = {
    "address": "IP addresses", "email": "e-mail addresses", "host": "hosts and domains", "id": "identifiers",
    "mac": "MAC addresses", "name": "accounts, jobs and pods", "process": "programs and command lines",
    "secret": "tokens and passwords", "serial": "serial and part numbers", "user": "users", "uuid": "UUIDs",
}  # fmt: skip


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
    whole = recording.recording(_asked(machine.facts))
    whole.python = python
    redactor = redactor_for(system.env, local=local)
    redacted = bundle.redacted(bundle.shortened(whole), redactor)
    files = bundle.members(redacted)
    replayed = RecordedSystem(files)
    report = examine(replayed, compat, python=replayed.python)
    differences = compared(machine, report)
    day = datetime.now(timezone.utc).date().isoformat()
    manifest = bundle.manifest(redacted, redactor, {"name": "tfdoctor", "version": __version__}, day)
    manifest["judged"] = {
        "cause": report.verdict.cause.value if report.verdict.cause is not None else None,
        "codes": sorted({finding.code for finding in report.findings}),
        "differs_from_the_machine": list(differences),
    }
    files[archive.MANIFEST] = (json.dumps(manifest, indent=1) + "\n").encode("ascii")
    return Captured(files, manifest, report, machine, redactor, differences)


def _asked(facts: Facts) -> Any:
    """The variables that the environment's probe keeps: their values are facts."""
    return facts.environment.variables.__contains__


def compared(machine: Report, recording: Report) -> tuple[str, ...]:
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


def capture(
    *,
    output: Path | None,
    python: str | None,
    timeout: float,
    force: bool,
    as_json: bool,
    quiet: bool = False,
) -> int:
    """Look, redact, write, tell. Returns the exit status."""
    target = output
    if target is None:
        target = Path(f"tfdoctor-{datetime.now(timezone.utc).date().isoformat()}.tar.gz")
    archive.check_target(target, force=force)
    system = LiveSystem()
    captured = look(system, Compat.load(), python=python, timeout=timeout, local=True)
    size = archive.write(target, captured.files, force=force)
    if as_json:
        from tfdoctor.render.json import write_json

        write_json(answer(captured, target, size))
    elif not quiet:
        from tfdoctor.render import terminal

        terminal.write(_told(captured, target, size))
    return ExitCode.OK


def answer(captured: Captured, target: Path, size: int) -> dict[str, Any]:
    """`capture --json`."""
    return {
        "schema_version": 1,
        "tool": {"name": "tfdoctor", "version": __version__},
        "bundle": {
            "path": str(target),
            "format": "tar.gz" if archive.is_archive(target) else "folder",
            "bytes": size,
            "files": len(captured.files),
        },
        "replaced": captured.manifest["replaced"],
        "left_out": captured.manifest["left_out"],
        "judged": captured.manifest["judged"],
    }


def _told(captured: Captured, target: Path, size: int) -> str:
    looked = captured.manifest["looked_at"]
    lines = [
        f"{clean_line(str(target))}: {_size(size)}",
        "",
        (
            f"In it: {len(looked['files'])} files, {len(looked['commands'])} commands' output, "
            f"{len(looked['variables'])} variables, {len(looked['shared_objects'])} shared objects' headers, "
            f"{len(looked['folders_listed'])} folders' names."
        ),
    ]
    replaced = [
        f"{entry['distinct']} {KINDS.get(kind, kind)}"
        for kind, entry in captured.manifest["replaced"].items()
    ]
    lines.append(f"Replaced: {', '.join(replaced) or 'nothing'}.")
    left = [f"{count} {what}" for what, count in captured.manifest["left_out"].items()]
    if left:
        lines.append(f"Left out: {', '.join(left)}.")
    if captured.differences:
        lines += [
            "",
            f"It is not judged as this machine is: {', '.join(captured.differences)} differ. Say so with it.",
        ]
    name = clean_line(str(target))
    look_into = f"tar -xzOf {name} | less" if archive.is_archive(target) else f"less {name}/{archive.HOST}"
    lines += [
        "",
        "Nothing was sent. Look into it before you send it: what is secret only here, nobody else can know.",
        f"  {look_into}",
        "Judge it anywhere:",
        f"  tfdoctor check --facts {name}",
        "",
    ]
    return "\n".join(lines)


def _size(count: int) -> str:
    return f"{count / 1024:.0f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"


def warn(captured: Captured) -> None:
    """Tell on standard error where the redacted recording is judged otherwise."""
    if captured.differences:
        sys.stderr.write(
            f"tfdoctor: redacted, the machine is judged otherwise: {', '.join(captured.differences)}\n"
        )
