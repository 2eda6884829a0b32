"""The data of compat/registration.toml, which wheels do not contain, for scripts/update_tensorflow.py."""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from update_support.targets import make_filter

if TYPE_CHECKING:
    from pathlib import Path

CUDNN_SOURCE_PREFIX = "by its own message on the software GPU:"
"""Prefix of the source that names the cuDNN."""


class Authored:
    """The data of compat/registration.toml and what follows from it."""

    def __init__(self, path: Path) -> None:
        toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        raw = toml.loads(path.read_text(encoding="utf-8"))
        self.runs: list[dict[str, Any]] = raw["run"]
        self.documented: dict[str, dict[str, Any]] = {row["minor"]: row for row in raw["documented"]}
        self.floors: dict[str, str] = {row["version"]: row["registers"] for row in raw["floor"]}
        self.compiled: list[dict[str, str]] = raw["compiled"]
        self.instructions: list[dict[str, Any]] = raw["instructions"]
        self.folders: dict[str, str] = raw["folder"]

    def find_run(self, version: str) -> dict[str, Any] | None:
        """Return the run of this version, else of the nearest patch of the same minor release."""
        return find_nearest(self.runs, version)

    def find_cudnn(self, version: str, pins: list[str]) -> tuple[str | None, str | None, list[str]]:
        """Return the cuDNN that it was compiled with (major and minor), the evidence, and sources.

        The version that a wheel of this minor release reported in a run takes precedence over the extra pins, and
        these over the documentation of tensorflow.org, because TensorFlow compares only with the first.
        """
        report = find_nearest(self.compiled, version)
        if report is not None:
            is_same_version = report["version"] == version
            text = (
                f"{CUDNN_SOURCE_PREFIX} TensorFlow {report['version']} compiled with cuDNN {report['cudnn']}"
            )
            return (
                ".".join(report["cudnn"].split(".")[:2]),
                "measured" if is_same_version else "inferred",
                [text],
            )
        pinned = next((re.search(r"(?:==|>=)(\d+\.\d+)", pin) for pin in pins if "cudnn" in pin), None)
        minor = ".".join(map(str, Version(version).release[:2]))
        cudnn = pinned[1] if pinned else self.documented.get(minor, {}).get("cudnn")
        return cudnn, "documented" if cudnn else None, []

    def find_instructions(self, version: str) -> list[str] | None:
        """Return the required CPU instructions, or None if they are not known."""
        matching = (row for row in self.instructions if make_filter(row["versions"])(version))
        return next((row["needs"] for row in matching), None)


def find_nearest(rows: list[dict[str, Any]], version: str) -> dict[str, Any] | None:
    """Return the row of this version, else of the nearest patch of the same minor release, or None."""
    minor = Version(version).release[:2]
    candidates = [row for row in rows if Version(row["version"]).release[:2] == minor]
    return min(
        candidates, key=lambda row: abs(Version(row["version"]).micro - Version(version).micro), default=None
    )
