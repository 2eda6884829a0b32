"""`tfdoctor build --check FILE`: a Dockerfile, a compose file or a devcontainer.json, also on standard input."""

from __future__ import annotations

import os
import re
import stat
import sys
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.dockerfile.analysis import judge_dockerfile
from tfdoctor.dockerfile.read.compose import (
    Start,
    StartFileError,
    devcontainer,
    is_compose,
    is_devcontainer,
    services,
)
from tfdoctor.dockerfile.read.reader import read_dockerfile
from tfdoctor.dockerfile.write import check_reference
from tfdoctor.environment.precheck import foresee
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.findings import Severity
from tfdoctor.render.dockerfile import make_dockerfile_json, render_judged, render_services, services_json
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import OUT
from tfdoctor.system.sources import real_path
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from tfdoctor.dockerfile.analysis import Judged

MAX_FILE_BYTES = 1024 * 1024
"""Bytes of a Dockerfile, or of a requirements file beside it."""
_PLAIN = re.compile(r"[\w.:/@+-]{1,300}")
"""A build argument that can stand in an ARG."""


def check(path: Path, *, as_json: bool) -> int:
    """Print what will not work. Returns the exit status: 1 where there is an error in it."""
    if str(path) == "-":
        shown = "standard input"
        path, text = Path(shown), _text(sys.stdin.buffer, shown)  # what it names lies in the working folder
    else:
        shown = clean_line(str(path))
        try:
            with path.open("rb") as file:
                text = _text(file, shown)
        except (OSError, ValueError) as error:
            msg = f"--check: {shown} cannot be read: {getattr(error, 'strerror', None) or error}."
            raise UsageError(msg) from error
    if is_compose(path.name, text) or is_devcontainer(path.name, text):
        try:
            starts = _starts(text, path, shown)
        except StartFileError as why:
            msg = f"--check: {shown}: {clean_line(str(why))}."
            raise UsageError(msg) from why
        return _show_starts(starts, shown, path.parent, as_json=as_json)
    return _dockerfile(text, shown, path.parent, as_json)


def _dockerfile(text: str, shown: str, folder: Path, as_json: bool) -> int:
    judged = judge_dockerfile(
        text,
        Compat.load(),
        name=shown,
        read=make_file_reader(folder),
        foresee=partial(foresee, env=os.environ),
    )
    if judged is None:
        msg = f"--check: {shown} has no FROM: it is not a Dockerfile."
        raise UsageError(
            msg,
            hint="A compose file begins with services:, name: or version:, a devcontainer.json with a brace.",
        )
    if as_json:
        write_json(make_dockerfile_json(judged))
    else:
        OUT.write(render_judged(judged, **OUT.looks))
    return _status([judged])


def _status(all_judged: Sequence[Judged | None]) -> int:
    findings = [finding for judged in all_judged if judged is not None for finding in judged.findings]
    failed = any(finding.severity is Severity.ERROR for finding in findings)
    return ExitCode.FOUND if failed else ExitCode.OK


def _text(stream: BinaryIO, shown: str) -> str:
    """Raises UsageError, OSError."""
    content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        msg = f"--check: {shown} is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB: it is not a Dockerfile."
        raise UsageError(msg)
    if b"\0" in content:
        msg = f"--check: {shown} is not a text file."
        raise UsageError(msg)
    return content.decode("utf-8", "replace")


# ---------------------------------------------------------------- files that start containers


def _starts(text: str, path: Path, shown: str) -> list[Start]:
    """Return the containers that the file starts. Raises StartError."""
    if is_compose(path.name, text):
        return services(text, shown)
    found = devcontainer(text, shown)
    if isinstance(found, Start):
        return [found]
    files, name = found
    read = make_file_reader(path.parent, above=1)
    starts = []
    for file in files:
        content = read(file)
        if content is None:
            message = f"{file}, which it names, cannot be read"
            raise StartFileError(message)
        starts += [one for one in services(content, file) if one.name == name]
    if len(starts) != 1:
        message = f"the service {name} is in {len(starts)} of its compose files: check those"
        raise StartFileError(message)
    return starts


def _show_starts(starts: list[Start], shown: str, folder: Path, *, as_json: bool) -> int:
    rows = [(start, *_evaluate_start(start, folder)) for start in starts]
    if as_json:
        write_json(services_json(shown, rows))
    else:
        OUT.write(render_services(rows, **OUT.looks))
    return _status([judged for _, judged, _ in rows])


def _evaluate_start(start: Start, folder: Path) -> tuple[Judged | None, str]:
    """Return what is made of its image, or why nothing can be said of it."""
    above = 1 if start.name == "" else 0  # .devcontainer/devcontainer.json builds what is above it
    name, text = start.file, start.inline
    if text is None and start.dockerfile is not None:
        name = str(PurePosixPath(start.dockerfile))
        text = make_file_reader(folder, above=above)(start.dockerfile)
        if text is None:
            return None, f"its Dockerfile {clean_line(name)} cannot be read"
    if text is None:
        if start.image is None:
            return None, "its image depends on a variable, or on another file"
        try:
            text = (
                "\n" * (start.line - 1) + f"FROM {check_reference(start.image)}\n"
            )  # where the service stands
        except UsageError as error:
            return None, clean_line(error.message)
    judged = judge_dockerfile(
        _as_built(text, start),
        Compat.load(),
        name=clean_line(name),
        read=make_file_reader(folder / start.context) if above == 0 else make_file_reader(folder, above=1),
        start=start,
        foresee=partial(foresee, env=os.environ),
    )
    return judged, "" if judged is not None else f"{clean_line(name)} has no FROM"


def _as_built(text: str, start: Start) -> str:
    """Return the Dockerfile up to the stage that is built, with the arguments that are given.

    No line moves.
    """
    for name, value in start.arguments.items():
        if re.fullmatch(r"[A-Za-z_]\w{0,100}", name) and _PLAIN.fullmatch(value):
            text = re.sub(rf"(?m)^(ARG[ \t]+{name})(?:=[^\n]*)?$", rf"\g<1>={value}", text)
    if start.target is not None:
        stages = read_dockerfile(text).stages
        later = next((one.index + 1 for one in stages if one.name == start.target.lower()), len(stages))
        if later < len(stages):
            return "\n".join(text.split("\n")[: stages[later].line - 1]) + "\n"
    return text


def make_file_reader(folder: Path, *, above: int = 0) -> Callable[[str], str | None]:
    """Reads the files of a folder and those below it, and no other: a Dockerfile comes from anybody.

    above: how many folders higher the files may lie.
    """
    try:
        start = real_path(folder)
        root = start.parents[above - 1] if above else start
    except (OSError, IndexError):
        return lambda _: None

    def read(name: str) -> str | None:
        try:
            path = real_path(start / name)
            if not path.is_relative_to(root) or not stat.S_ISREG(path.stat().st_mode):
                return None
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError):
            return None
        return content.decode("utf-8", "replace") if len(content) <= MAX_FILE_BYTES else None

    return read
