"""Check Dockerfiles, compose files and devcontainer.json files, for `tfdoctor lint` and `tfdoctor build --check FILE`."""

from __future__ import annotations

import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tfdoctor.cli.log_arguments import write_note
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.findings import Severity
from tfdoctor.core.text import clean_line
from tfdoctor.environments.precheck import precheck_requirements
from tfdoctor.images.analysis import check_dockerfile
from tfdoctor.images.read.compose import (
    ContainerStart,
    StartFileError,
    is_compose_file,
    is_devcontainer_file,
    is_pod_file,
    parse_devcontainer,
    parse_pods,
    parse_services,
)
from tfdoctor.images.read.reader import parse_dockerfile
from tfdoctor.images.write import validate_reference
from tfdoctor.render.dockerfile import (
    make_dockerfile_json,
    make_services_json,
    render_dockerfile_report,
    render_services,
)
from tfdoctor.render.json import write_json
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.system.sources import resolve_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from tfdoctor.images.analysis import DockerfileReport
    from tfdoctor.images.checks.base import IndexQuery

    ContainerCheck = tuple[ContainerStart | None, DockerfileReport | None, str]

MAX_FILE_BYTES = 1024 * 1024
"""The size limit of a Dockerfile, and of each file that it copies or installs from."""
PROGRAMS_WITHOUT_GPU = frozenset({"tensorboard"})
"""Programs of TensorFlow that need no GPU."""
WITHOUT_TENSORFLOW = "it is given no GPU, and nothing shows that its image has TensorFlow"
"""The reason why a service such as a database is not checked."""
_FROM = re.compile(r"\bFROM (\S+)")
_OTHER_BASE = re.compile(r"\bFROM (?!\S{0,200}tensorflow)|\bRUN ")
"""Matches commands that only a Dockerfile can have, or a base image without TensorFlow."""
_PLAIN_VALUE = re.compile(r"[\w.:/@+-]{1,300}")
"""Matches a build argument that can be written unquoted into an ARG instruction."""


def check_build_file(path: Path, *, as_json: bool) -> int:
    """Check a file, or standard input for `-`, print the problems and return the exit status.

    The status is 1 if an error was found. Raise UsageError if the file cannot be read or is of another kind.
    """
    if str(path) == "-":
        display_name = "standard input"
        path = Path(display_name)  # its parent is the working folder, to which paths in the file are relative
        text = _load_text(sys.stdin.buffer, display_name)
    else:
        display_name = clean_line(str(path))
        try:
            with path.open("rb") as file:
                text = _load_text(file, display_name)
        except (OSError, ValueError) as error:
            msg = f"--check: {display_name} cannot be read: {getattr(error, 'strerror', None) or error}."
            raise UsageError(msg) from error
    try:
        results = check_container_file(text, path, display_name, queries_index=True)
    except StartFileError as reason:
        msg = f"--check: {display_name}: {clean_line(str(reason))}."
        raise UsageError(msg) from reason
    if starts_containers(path, text):
        services = [(start, report, reason) for start, report, reason in results if start is not None]
        if as_json:
            write_json(make_services_json(display_name, services))
        else:
            OUT.write(render_services(services, **OUT.layout))
    else:
        ((_, report, _),) = results
        if report is None:
            msg = f"--check: {display_name} has no FROM: it is not a Dockerfile."
            raise UsageError(
                msg,
                hint="A compose file begins with services:, name: or version:, a pod with apiVersion:, a devcontainer.json "
                "with a brace.",
            )
        if as_json:
            write_json(make_dockerfile_json(report))
        else:
            OUT.write(render_dockerfile_report(report, **OUT.layout))
    return _choose_exit_status([report for _, report, _ in results])


def _query_index(*arguments: Any, **options: Any) -> Any:
    """Ask the package index whether requirements can be installed together. On a terminal, say so first."""
    if ERR.is_terminal:
        write_note("asking the package index whether these packages fit together …")
    return precheck_requirements(*arguments, **options, env=os.environ)


def starts_containers(path: Path, text: str) -> bool:
    """Return whether a file is a compose file, a devcontainer.json or about pods, by its name or its first key."""
    name = path.name
    return is_compose_file(name, text) or is_pod_file(name, text) or is_devcontainer_file(name, text)


def check_container_file(
    text: str, path: Path, display_name: str, *, queries_index: bool
) -> list[ContainerCheck]:
    """Check a Dockerfile, or the image of each container that a compose file, a devcontainer.json or a pod starts.

    Return (start of the container, report on its image, reason) for each. The start is None for a Dockerfile. If the
    image could not be checked, the report is None and the reason says why; otherwise the reason is "". With
    `queries_index`, ask the package index whether requirements can be installed together. Raise StartFileError if the
    containers are unknown.
    """
    query_index = _query_index if queries_index else None
    if starts_containers(path, text):
        starts = _load_starts(text, path, display_name)
        return [(start, *_evaluate_start(start, path.parent, query_index)) for start in starts]
    report = check_dockerfile(
        text, Compat.load(), name=display_name, read=make_file_reader(path.parent), query_index=query_index
    )
    return [(None, report, "" if report is not None else f"{display_name} has no FROM")]


def _choose_exit_status(reports: Sequence[DockerfileReport | None]) -> int:
    """Return the exit status for the reports. The report on an image that could not be checked is None."""
    findings = [finding for report in reports if report is not None for finding in report.findings]
    has_error = any(finding.severity is Severity.ERROR for finding in findings)
    return ExitCode.FOUND if has_error else ExitCode.OK


def _load_text(stream: BinaryIO, display_name: str) -> str:
    """Read a file and return its text.

    Raise UsageError if it is too large or not text, and OSError if it cannot be read.
    """
    content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        msg = f"--check: {display_name} is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB: it is not a Dockerfile."
        raise UsageError(msg)
    if b"\0" in content:
        msg = f"--check: {display_name} is not a text file."
        raise UsageError(msg)
    return content.decode("utf-8", "replace")


# ---------------------------------------------------------------- files that start containers


def _load_starts(text: str, path: Path, display_name: str) -> list[ContainerStart]:
    """Return the container starts that the file describes. Raise StartFileError if they are unknown.

    A devcontainer.json can describe the start itself, or name a service in compose files.
    """
    if is_pod_file(path.name, text):
        return parse_pods(text, display_name)
    if is_compose_file(path.name, text):
        return parse_services(text, display_name)
    parsed = parse_devcontainer(text, display_name)
    if isinstance(parsed, ContainerStart):
        return [parsed]
    compose_files, service_name = parsed
    read = make_file_reader(path.parent, parent_levels=1)
    starts = []
    for compose_file in compose_files:
        content = read(compose_file)
        if content is None:
            message = f"{compose_file}, which it names, cannot be read"
            raise StartFileError(message)
        starts += [
            service for service in parse_services(content, compose_file) if service.name == service_name
        ]
    if len(starts) != 1:
        message = f"the service {service_name} is in {len(starts)} of its compose files: check those"
        raise StartFileError(message)
    return starts


def _evaluate_start(
    start: ContainerStart, folder: Path, query_index: IndexQuery | None
) -> tuple[DockerfileReport | None, str]:
    """Check the image of a container, and return (report, reason).

    If the image cannot be checked, the report is None and the reason says why; otherwise the reason is "".
    """
    if start.program in PROGRAMS_WITHOUT_GPU and start.has_gpu is False:
        return None, f"it runs {start.program}, which needs no GPU"
    parent_levels = 1 if start.name == "" else 0  # .devcontainer/devcontainer.json builds the folder above it
    dockerfile_name, text = start.file, start.dockerfile_text
    if text is None and start.dockerfile is not None:
        dockerfile_name = str(PurePosixPath(start.dockerfile))
        text = make_file_reader(folder, parent_levels=parent_levels)(start.dockerfile)
        if text is None:
            return None, f"its Dockerfile {clean_line(dockerfile_name)} cannot be read"
    if text is None:
        if start.image is None:
            return None, "its image depends on a variable, or on another file"
        try:
            # Put the FROM on the line of the service, so that findings cite that line.
            text = "\n" * (start.line - 1) + f"FROM {validate_reference(start.image)}\n"
        except UsageError as error:
            return None, clean_line(error.message)
    text = _apply_build_settings(text, start)
    lines = text.rstrip().splitlines()
    line_count = max(len(lines), *start.variable_lines.values(), 0)
    if start.setup_text:
        lines += [""] * (line_count - len(lines))
        text = "\n".join((*lines, start.setup_text, ""))
    report = check_dockerfile(
        text,
        Compat.load(),
        name=clean_line(dockerfile_name),
        read=make_file_reader(folder / start.build_context)
        if parent_levels == 0
        else make_file_reader(folder, parent_levels=1),
        start=start,
        query_index=query_index,
    )
    if report is None:
        return None, f"{clean_line(dockerfile_name)} has no FROM"
    if (
        start.has_gpu is False
        and not start.gpu_problem
        and start.image is not None
        and start.name
        and report.tensorflow.state == "none"
        and not start.has_gpu_image
    ):
        return None, WITHOUT_TENSORFLOW
    return _cite_start_file(report, start, line_count), ""


def _cite_start_file(report: DockerfileReport, start: ContainerStart, line_count: int) -> DockerfileReport:
    """Return the report with lines in the file that starts the container, in place of those that were made up.

    Its own Dockerfile is kept. The FROM of an image is the file's `image`, and the lines after `line_count` are a dev
    container's commands.
    """
    image_setting = r"image: \1" if start.name else r'"image": "\1"'

    def adapt(text: str) -> str:
        return _FROM.sub(image_setting, text) if start.image else text

    findings = [
        replace(
            finding,
            evidence=tuple(
                replace(item, source=start.file, line=start.setup_line)
                if start.setup_text and item.line is not None and item.line > line_count
                else replace(item, text=adapt(item.text))
                for item in finding.evidence
            ),
            remedies=tuple(
                replace(remedy, text=adapt(remedy.text), commands=tuple(map(adapt, remedy.commands)))
                for remedy in finding.remedies
                # No command of the file could install TensorFlow into a base without it.
                if not (
                    start.image and not start.setup_text and _OTHER_BASE.search(" ".join(remedy.commands))
                )
            ),
        )
        for finding in report.findings
    ]
    return replace(report, findings=tuple(findings))


def _apply_build_settings(text: str, start: ContainerStart) -> str:
    """Return the Dockerfile up to the stage that is built, with the container's build arguments filled in.

    The line numbers stay the same.
    """
    for name, value in start.build_arguments.items():
        if re.fullmatch(r"[A-Za-z_]\w{0,100}", name) and _PLAIN_VALUE.fullmatch(value):
            text = re.sub(rf"(?m)^(ARG[ \t]+{name})(?:=[^\n]*)?$", rf"\g<1>={value}", text)
    if start.target_stage is not None:
        stages = parse_dockerfile(text).stages
        next_stage_index = next(
            (stage.index + 1 for stage in stages if stage.name == start.target_stage.lower()), len(stages)
        )
        if next_stage_index < len(stages):
            return "\n".join(text.split("\n")[: stages[next_stage_index].line - 1]) + "\n"
    return text


def make_file_reader(folder: Path, *, parent_levels: int = 0) -> Callable[[str], str | None]:
    """Return a function that reads files only below a folder, because the Dockerfile is not trusted.

    `parent_levels` is the number of parent folders that it may read from as well. The function returns None for a file
    that it cannot or may not read.
    """
    try:
        resolved_folder = resolve_path(folder)
        readable_root = resolved_folder.parents[parent_levels - 1] if parent_levels else resolved_folder
    except (OSError, IndexError):
        return lambda _: None

    def read(name: str) -> str | None:
        try:
            path = resolve_path(resolved_folder / name)
            if not path.is_relative_to(readable_root) or not stat.S_ISREG(path.stat().st_mode):
                return None
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError):
            return None
        return content.decode("utf-8", "replace") if len(content) <= MAX_FILE_BYTES else None

    return read
