"""What `capture` has written, in a terminal and as JSON (docs/schemas/capture.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.render.screen import format_count
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["make_capture_json", "render_captured"]

KINDS = {
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
"""What was replaced, one and several."""


def make_capture_json(
    manifest: Mapping[str, Any], target: str, size: int, files: int, *, packed: bool
) -> dict[str, Any]:
    """`capture --json`. target: the bundle's path; size: in bytes; files: how many are in it; packed: in one file."""
    return {
        "schema_version": 1,
        "tool": {"name": "tfdoctor", "version": __version__},
        "bundle": {
            "path": target,
            "format": "tar.gz" if packed else "folder",
            "bytes": size,
            "files": files,
        },
        "replaced": manifest["replaced"],
        "left_out": manifest["left_out"],
        "judged": manifest["judged"],
    }


def render_captured(
    manifest: Mapping[str, Any], differences: Sequence[str], target: str, size: int, *, packed: bool
) -> str:
    """Return what is in the bundle, what was replaced, and what to do with it."""
    name, looked = clean_line(target), manifest["looked_at"]
    replaced = [
        format_count(entry["distinct"], *KINDS.get(kind, (kind, kind)))
        for kind, entry in manifest["replaced"].items()
    ]
    lines = [
        f"{name}: {_size(size)}",
        "",
        (
            f"In it: {len(looked['files'])} files, {len(looked['commands'])} commands' output, "
            f"{len(looked['variables'])} variables, {len(looked['shared_objects'])} shared objects' headers, "
            f"{len(looked['folders_listed'])} folders' names."
        ),
        f"Replaced: {', '.join(replaced) or 'nothing'}.",
    ]
    left = [f"{count} {what}" for what, count in manifest["left_out"].items()]
    if left:
        lines.append(f"Left out: {', '.join(left)}.")
    if differences:
        which = ", ".join(differences)
        lines += [
            "",
            f"The recording gives a different result than this machine for {which}. Mention that when you send it.",
        ]
    look_into = f"tar -xzOf {name} | less" if packed else f"less {name}/host.json"
    lines += [
        "",
        "Nothing was sent. Inspect it before you send it: only you can tell what else is confidential.",
        f"  {look_into}",
        "Judge it anywhere:",
        f"  tfdoctor check --facts {name}",
        "",
    ]
    return "\n".join(lines)


def _size(count: int) -> str:
    return f"{count / 1024:.0f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"
