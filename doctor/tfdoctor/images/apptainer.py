"""Convert a tfdoctor Dockerfile to an Apptainer definition with the same base image and steps.

Apptainer builds the definition without a container engine. Its containers run as the user who starts them, in that
user's home directory, so the definition omits the image's user, home and kernel cache.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.images.write import BuildContext
    from tfdoctor.planning import Option

__all__ = ["format_definition"]

END_MARKER = "END-OF-FILE"
"""The line that ends a file in the definition. The file's own lines all begin with `|`."""
_OMITTED_VARIABLES = ("HOME", "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE")
"""Variables that are omitted. Apptainer sets them, or the folder that they name is read-only in its images."""


def format_definition(option: Option, context: BuildContext, command: str) -> str:
    """Return the Apptainer definition for the Dockerfile in `context`.

    The image's user must be root. `command` is the `tfdoctor build` command, which the first comment shows.
    """
    stages = _parse_stages(context)
    last_stage, has_several_stages = stages[-1], len(stages) > 1
    head = (
        f"# TensorFlow {option.tensorflow}; as the image of {command}\n"
        "# apptainer build tensorflow.sif tensorflow.def && apptainer exec --nv tensorflow.sif python\n"
        "# Without a registry: put `localimage` for `docker`, and the path of a .sif or a sandbox for the image's name.\n"
    )
    return (
        head
        + "\n".join(_format_stage(stage, has_name=has_several_stages) for stage in stages)
        + f"\n%environment\n{_indent_lines(last_stage.environment)}\n"
        f"%labels\n{_indent_lines(last_stage.labels)}\n"
        "%runscript\n"
        f'    exec {last_stage.start_command} "$@"\n'
    )


@dataclass(slots=True)
class _Stage:
    """A build stage: a FROM instruction and all instructions up to the next one."""

    base: str
    name: str
    copies_by_stage: dict[str, list[str]] = field(default_factory=dict)
    """Lines "SOURCE TARGET" for the files that are copied from other stages, by stage name."""
    post_commands: list[str] = field(default_factory=list)
    """Shell commands of the %post section."""
    environment: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    start_command: str = ""
    """The command that a container runs."""


def _parse_stages(context: BuildContext) -> list[_Stage]:
    """Return the build stages of the context's Dockerfile."""
    stages: list[_Stage] = []
    for instruction, arguments in _split_instructions(context.dockerfile):
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            stages.append(_Stage(base, name or "image"))
            continue
        stage = stages[-1]
        if instruction == "ARG":
            name, _, value = arguments.partition("=")
            stage.post_commands.append(f"export {name}={shlex.quote(value)}")
        elif instruction == "COPY" and arguments.startswith("--from="):
            source_stage, source, target = arguments.removeprefix("--from=").split()
            stage.copies_by_stage.setdefault(source_stage, []).append(f"{source} {target}")
        elif instruction == "COPY":
            *names, target = arguments.split()
            stage.post_commands += [_format_file(name, target, context.files) for name in names]
        elif instruction == "RUN":
            stage.post_commands.append(arguments)
        elif instruction == "ENV" and arguments.partition("=")[0] not in _OMITTED_VARIABLES:
            stage.environment.append(f"export {arguments}")
        elif instruction == "LABEL":
            stage.labels += [
                pair.replace("=", " ", 1) for pair in shlex.split(arguments.replace("\\\n", " "))
            ]
        elif instruction == "CMD":
            stage.start_command = arguments.strip('[]"')
    return stages


def _format_stage(stage: _Stage, *, has_name: bool) -> str:
    """Return the header of a stage, the files that it copies from other stages, and its steps."""
    head = f"Bootstrap: docker\nFrom: {stage.base}\n" + (f"Stage: {stage.name}\n" if has_name else "")
    files = "".join(
        f"%files from {source_stage}\n{_indent_lines(lines)}\n"
        for source_stage, lines in stage.copies_by_stage.items()
    )
    steps = "\n".join(stage.post_commands)
    return f"{head}\n{files}%post\nset -e\n{steps}\n"


def _split_instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return (name, arguments) for each instruction. Arguments keep the backslashes that continue lines."""
    text = re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE)
    instructions = []
    for line in re.split(r"(?<!\\)\n", text):
        name, _, arguments = line.partition(" ")
        if name:
            instructions.append((name, arguments))
    return instructions


def _format_file(name: str, target: str, files: Mapping[str, bytes]) -> str:
    """Return the shell commands that write a file of the context.

    Each line has the prefix `|`, which sed removes, so that no line is mistaken for a section title.
    """
    path = f"{target}{name}" if target.endswith("/") else target
    text = files[name].decode()
    body = "".join(f"|{line}\n" for line in text.splitlines())
    return f"mkdir -p {path.rpartition('/')[0]}\nsed 's/^|//' >{path} <<'{END_MARKER}'\n{body}{END_MARKER}"


def _indent_lines(lines: list[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)
