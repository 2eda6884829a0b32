"""compat/registration.toml: what a wheel's files cannot say, for scripts/update_tensorflow.py."""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from update_support.targets import make_filter

if TYPE_CHECKING:
    from pathlib import Path

SAID = "by its own message on the software GPU:"
"""How the source begins that names the cuDNN."""


class Authored:
    """compat/registration.toml and what follows from it."""

    def __init__(self, path: Path) -> None:
        toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        raw = toml.loads(path.read_text(encoding="utf-8"))
        self.runs: list[dict[str, Any]] = raw["run"]
        self.documented: dict[str, dict[str, Any]] = {row["minor"]: row for row in raw["documented"]}
        self.floors: dict[str, str] = {row["version"]: row["registers"] for row in raw["floor"]}
        self.compiled: list[dict[str, str]] = raw["compiled"]
        self.instructions: list[dict[str, Any]] = raw["instructions"]
        self.folders: dict[str, str] = raw["folder"]

    def run_for(self, version: str) -> dict[str, Any] | None:
        """The run of this version, else the nearest of the same minor."""
        return nearest_of(self.runs, version)

    def cudnn_for(self, version: str, pins: list[str]) -> tuple[str | None, str | None, list[str]]:
        """The cuDNN that it was compiled with (major and minor), the evidence, and sources.

        What a wheel of this minor said in a run goes before what the extra pins, and this before what
        tensorflow.org documents: TensorFlow compares with the first alone.
        """
        said = nearest_of(self.compiled, version)
        if said is not None:
            own = said["version"] == version
            text = f"{SAID} TensorFlow {said['version']} compiled with cuDNN {said['cudnn']}"
            return ".".join(said["cudnn"].split(".")[:2]), "measured" if own else "inferred", [text]
        pinned = next((re.search(r"(?:==|>=)(\d+\.\d+)", pin) for pin in pins if "cudnn" in pin), None)
        minor = ".".join(map(str, Version(version).release[:2]))
        found = pinned[1] if pinned else self.documented.get(minor, {}).get("cudnn")
        return found, "documented" if found else None, []

    def instructions_for(self, version: str) -> list[str] | None:
        """What the processor must have; None: nobody looked."""
        found = (row for row in self.instructions if make_filter(row["versions"])(version))
        return next((row["needs"] for row in found), None)


def nearest_of(rows: list[dict[str, Any]], version: str) -> dict[str, Any] | None:
    """The row of this version, else that of the nearest patch of the same minor, or None."""
    minor = Version(version).release[:2]
    near = [row for row in rows if Version(row["version"]).release[:2] == minor]
    return min(
        near, key=lambda row: abs(Version(row["version"]).micro - Version(version).micro), default=None
    )
