"""Format an image's locked packages as a CycloneDX 1.5 document. The same plan gives the same bytes."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.planning import Option

__all__ = ["format_sbom"]

# The namespace of the serial numbers. It must not change, so that the same plan gives the same number.
_NAMESPACE = uuid.UUID("8d1cf0c7-55c1-5c1e-9c6f-1a9cf1f3b5a4")


def format_sbom(
    option: Option, lock_lines: Iterable[str], epoch: int, unpinned_requirements: Iterable[str]
) -> str:
    """Return the JSON document of the packages in lock files, with the time stamp `epoch` in seconds since 1970.

    It only names the `unpinned_requirements`, whose versions are not known.
    """
    components = [
        _make_base_component(option),
        *(_make_package_component(line) for line in dict.fromkeys(lock_lines) if line),
    ]  # without duplicates, because the tools are in two lock files
    release_date = dt.datetime.fromtimestamp(epoch, dt.timezone.utc)
    properties = [
        _make_property("base", "What is in the base image is not listed; only its name is."),
        *(_make_property("not-pinned", requirement) for requirement in unpinned_requirements),
    ]
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release_date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {"components": [{"type": "application", "name": "tfdoctor", "version": __version__}]},
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": f"TensorFlow {option.tensorflow} for NVIDIA GPUs",
            },
            "properties": properties,
        },
        "components": components,
        "dependencies": [{"ref": "image", "dependsOn": [component["bom-ref"] for component in components]}],
    }
    serial_number = uuid.uuid5(_NAMESPACE, json.dumps(document, sort_keys=True))
    return json.dumps({"serialNumber": f"urn:uuid:{serial_number}", **document}, indent=2) + "\n"


def _make_base_component(option: Option) -> dict[str, Any]:
    """Return the component for the base image."""
    assert option.base is not None  # noqa: S101 - only an option with an image has a build context
    name, _, digest = option.base.reference.partition("@")
    component: dict[str, Any] = {"type": "container", "bom-ref": "base", "name": name}
    if digest:
        component["hashes"] = [{"alg": "SHA-256", "content": digest.partition(":")[2]}]
    return component


def _make_package_component(lock_line: str) -> dict[str, Any]:
    """Return the component for a line of a lock file.

    A line with several hashes has one for each file of the release. pip installs only one of the files.
    """
    pin, *hash_options = lock_line.split()
    name, _, version = pin.partition("==")
    url = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    digests = [option.rpartition(":")[2] for option in hash_options]
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
    }
    if len(digests) == 1:
        component["hashes"] = [{"alg": "SHA-256", "content": digests[0]}]
    else:
        component["properties"] = [_make_property("one-of-sha256", digest) for digest in digests]
    return component


def _make_property(name: str, value: str) -> dict[str, str]:
    return {"name": f"tfdoctor:{name}", "value": value}
