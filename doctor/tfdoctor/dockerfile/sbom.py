"""What an image's lock puts into it, as a CycloneDX 1.5 document. Pure text; the same bytes for the same plan."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.dockerfile.write import LOCKED, TOOLS

if TYPE_CHECKING:
    from tfdoctor.dockerfile.write import Context
    from tfdoctor.plan import Option

__all__ = ["bill"]

_NAMESPACE = uuid.UUID("8d1cf0c7-55c1-5c1e-9c6f-1a9cf1f3b5a4")


def bill(option: Option, context: Context, tag: str, loose: tuple[str, ...]) -> str:
    """Return the document. `loose`: requirements whose versions are not known before the image is built."""
    lines = [
        line
        for name in (TOOLS, *LOCKED)
        for line in context.files.get(name, b"").decode().splitlines()
        if line
    ]
    components = [_base(option), *(_package(line) for line in dict.fromkeys(lines))]  # tools are locked twice
    made = dt.datetime.fromtimestamp(context.epoch, dt.timezone.utc)
    properties = [
        _property("base", "What is in the base image is not listed; only its name is."),
        *(_property("not-pinned", one) for one in loose),
    ]
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {"components": [{"type": "application", "name": "tfdoctor", "version": __version__}]},
            "component": {"type": "container", "bom-ref": "image", "name": tag},
            "properties": properties,
        },
        "components": components,
        "dependencies": [{"ref": "image", "dependsOn": [one["bom-ref"] for one in components]}],
    }
    number = uuid.uuid5(_NAMESPACE, json.dumps(document, sort_keys=True))
    return json.dumps({"serialNumber": f"urn:uuid:{number}", **document}, indent=2) + "\n"


def _base(option: Option) -> dict[str, Any]:
    assert option.base is not None  # noqa: S101 - a context is of an image
    name, _, digest = option.base.reference.partition("@")
    found: dict[str, Any] = {"type": "container", "bom-ref": "base", "name": name}
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest.partition(":")[2]}]
    return found


def _package(line: str) -> dict[str, Any]:
    """Return a line of a lock. Several hashes are of several files, one of which is installed."""
    pin, *hashes = line.split()
    name, _, version = pin.partition("==")
    url = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    sums = [one.rpartition(":")[2] for one in hashes]
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
    }
    if len(sums) == 1:
        found["hashes"] = [{"alg": "SHA-256", "content": sums[0]}]
    else:
        found["properties"] = [_property("one-of-sha256", one) for one in sums]
    return found


def _property(name: str, value: str) -> dict[str, str]:
    return {"name": f"tfdoctor:{name}", "value": value}
