"""`tfdoctor build --check DOCKERFILE`."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.dockerfile.judge import judge_dockerfile
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.findings import Severity
from tfdoctor.render.dockerfile import judged_json, render_judged
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LARGEST = 1024 * 1024
"""Bytes of a Dockerfile, or of a requirements file beside it."""


def check(path: Path, *, as_json: bool) -> int:
    """Print what will not work of a Dockerfile. Returns the exit status: 1 where there is an error in it."""
    shown = clean_line(str(path))
    text = _text_of(path, shown)
    judged = judge_dockerfile(text, Compat.load(), name=shown, read=beside(path.parent))
    if judged is None:
        msg = f"--check: {shown} has no FROM: it is no Dockerfile."
        raise UsageError(msg)
    if as_json:
        write_json(judged_json(judged))
    else:
        OUT.write(render_judged(judged, **OUT.looks))
    failed = any(finding.severity is Severity.ERROR for finding in judged.findings)
    return ExitCode.FOUND if failed else ExitCode.OK


def _text_of(path: Path, shown: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        msg = f"--check: {shown} cannot be read: {getattr(error, 'strerror', None) or error}."
        raise UsageError(msg) from error
    if len(content) > LARGEST:
        msg = f"--check: {shown} is larger than {LARGEST // 1024 // 1024} MiB: it is no Dockerfile."
        raise UsageError(msg)
    if b"\0" in content:
        msg = f"--check: {shown} is not a text."
        raise UsageError(msg)
    return content.decode("utf-8", "replace")


def beside(folder: Path) -> Callable[[str], str | None]:
    """Reads the files of a folder and those below it, and no other: a Dockerfile comes from anybody."""
    try:
        root = folder.resolve()
    except OSError:
        return lambda _: None

    def read(name: str) -> str | None:
        try:
            path = (root / name).resolve()
            if not path.is_relative_to(root) or not stat.S_ISREG(path.stat().st_mode):
                return None
            with path.open("rb") as file:
                content = file.read(LARGEST + 1)
        except (OSError, ValueError, RuntimeError):
            return None
        return content.decode("utf-8", "replace") if len(content) <= LARGEST else None

    return read
