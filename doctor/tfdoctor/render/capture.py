"""The result of `capture`, as text and as JSON (docs/schemas/capture.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.core.text import clean_line
from tfdoctor.render.json import make_document_head
from tfdoctor.render.screen import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["make_capture_json", "render_recording"]

KIND_NAMES = {
    "address": ("IP address", "IP addresses"),
    "email": ("e-mail address", "e-mail addresses"),
    "host": ("host or domain", "hosts and domains"),
    "id": ("identifier", "identifiers"),
    "mac": ("MAC address", "MAC addresses"),
    "name": ("account, job or pod", "accounts, jobs and pods"),
    "process": ("program or command line", "programs and command lines"),
    "secret": ("token or password", "tokens and passwords"),
    "serial": ("serial or part number", "serial and part numbers"),
    "user": ("user", "users"),
    "uuid": ("UUID", "UUIDs"),
}
"""The name of each kind of replaced text, in the singular and the plural."""


def make_capture_json(
    manifest: Mapping[str, Any], target: str, size: int, file_count: int, *, is_archive: bool
) -> dict[str, Any]:
    """Return the document that `capture --json` prints.

    `target` is the path of the recording, `size` its size in bytes, and `file_count` the number of its files. `is_archive` says
    whether the recording is an archive instead of a folder.
    """
    return {
        **make_document_head("capture"),
        "tool": {"name": "tfdoctor", "version": __version__},
        "bundle": {
            "path": target,
            "format": "tar.gz" if is_archive else "folder",
            "bytes": size,
            "files": file_count,
        },
        "replaced": manifest["replaced"],
        "left_out": manifest["left_out"],
        "judged": manifest["judged"],
    }


def render_recording(
    manifest: Mapping[str, Any], differences: Sequence[str], target: str, size: int, *, is_archive: bool
) -> str:
    """Return a summary of the recording: its contents, the replaced texts, and how to use it.

    `differences` are the results that differ between the recording and this machine.
    """
    name, inspected_names = clean_line(target), manifest["looked_at"]
    replaced_counts = [
        format_count(entry["distinct"], *KIND_NAMES.get(kind, (kind, kind)))
        for kind, entry in manifest["replaced"].items()
    ]
    lines = [
        f"{name}: {_format_size(size)}",
        "",
        (
            f"In it: {len(inspected_names['files'])} files, {len(inspected_names['commands'])} commands' output, "
            f"{len(inspected_names['variables'])} variables, {len(inspected_names['shared_objects'])} shared objects' headers, "
            f"{len(inspected_names['folders_listed'])} folders' names."
        ),
        f"Replaced: {', '.join(replaced_counts) or 'nothing'}.",
    ]
    left_out_counts = [f"{count} {label}" for label, count in manifest["left_out"].items()]
    if left_out_counts:
        lines.append(f"Left out: {', '.join(left_out_counts)}.")
    if differences:
        changed = ", ".join(differences)
        lines += [
            "",
            f"The recording gives a different result than this machine for {changed}. Mention that when you send it.",
        ]
    view_command = f"tar -xzOf {name} | less" if is_archive else f"less {name}/host.json"
    lines += [
        "",
        "Nothing was sent. Inspect it before you send it: only you can tell what else is confidential.",
        f"  {view_command}",
        "Judge it anywhere:",
        f"  tfdoctor check --from {name}",
        "",
    ]
    return "\n".join(lines)


def _format_size(count: int) -> str:
    return f"{count / 1024:.0f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"
