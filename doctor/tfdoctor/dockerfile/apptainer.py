"""A Dockerfile of ours as an Apptainer definition: the same steps, from the registry's image, in one file.

Apptainer builds it without a container engine. Its containers run as the user who starts them, with that one's home, so
that the image's user, home and cache of compiled kernels are left to Apptainer. Pure text.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.dockerfile.write import Context
    from tfdoctor.plan import Option

__all__ = ["definition"]

END = "END-OF-FILE"
"""What ends a file that the definition carries: every line of it begins with `|`, so that none is this one."""
_LEFT = ("HOME", "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE")
"""Variables that are Apptainer's, or of a place that nobody may write to in its images."""


def definition(option: Option, context: Context, command: str) -> str:
    """Return the definition.

    `context` is that of an image whose user is root; `command`: `tfdoctor build …`, to be told.
    """
    stages = _stages(context)
    last, named = stages[-1], len(stages) > 1
    head = (
        f"# TensorFlow {option.tensorflow}; as the image of {command}\n"
        "# apptainer build tensorflow.sif tensorflow.def && apptainer exec --nv tensorflow.sif python\n"
        "# Without a registry: `localimage` for `docker`, and a .sif or a sandbox folder of the same image.\n"
    )
    return (
        head
        + "\n".join(_format_stage_header(stage, named=named) for stage in stages)
        + f"\n%environment\n{_indent_lines(last.environment)}\n"
        f"%labels\n{_indent_lines(last.labels)}\n"
        "%runscript\n"
        f'    exec {last.start} "$@"\n'
    )


@dataclass(slots=True)
class _Stage:
    """From one FROM to the next."""

    base: str
    name: str
    files: dict[str, list[str]] = field(default_factory=dict)
    """Stage → lines (what is copied out of it, and where to)."""
    post: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    start: str = ""


def _stages(context: Context) -> list[_Stage]:
    stages: list[_Stage] = []
    for word, rest in _instructions(context.dockerfile):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(_Stage(base, name or "image"))
            continue
        stage = stages[-1]
        if word == "ARG":
            name, _, value = rest.partition("=")
            stage.post.append(f"export {name}={shlex.quote(value)}")
        elif word == "COPY" and rest.startswith("--from="):
            origin, source, target = rest.removeprefix("--from=").split()
            stage.files.setdefault(origin, []).append(f"{source} {target}")
        elif word == "COPY":
            *names, target = rest.split()
            stage.post += [_file(name, target, context.files) for name in names]
        elif word == "RUN":
            stage.post.append(rest)
        elif word == "ENV" and rest.partition("=")[0] not in _LEFT:
            stage.environment.append(f"export {rest}")
        elif word == "LABEL":
            stage.labels += [pair.replace("=", " ", 1) for pair in shlex.split(rest.replace("\\\n", " "))]
        elif word == "CMD":
            stage.start = rest.strip('[]"')
    return stages


def _format_stage_header(stage: _Stage, *, named: bool) -> str:
    """Return a stage's header, what it takes out of others, and its steps."""
    head = f"Bootstrap: docker\nFrom: {stage.base}\n" + (f"Stage: {stage.name}\n" if named else "")
    files = "".join(
        f"%files from {origin}\n{_indent_lines(lines)}\n" for origin, lines in stage.files.items()
    )
    steps = "\n".join(stage.post)
    return f"{head}\n{files}%post\nset -e\n{steps}\n"


def _instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return (instruction, what it is given), in order; a line that goes on is kept as it is."""
    whole = re.sub(r"^#.*\n", "", dockerfile, flags=re.MULTILINE)
    found = []
    for line in re.split(r"(?<!\\)\n", whole):
        word, _, rest = line.partition(" ")
        if word:
            found.append((word, rest))
    return found


def _file(name: str, target: str, files: Mapping[str, bytes]) -> str:
    """Return the lines that write a file of the context; no line of it can be taken for a section."""
    path = f"{target}{name}" if target.endswith("/") else target
    text = files[name].decode()
    body = "".join(f"|{line}\n" for line in text.splitlines())
    return f"mkdir -p {path.rpartition('/')[0]}\nsed 's/^|//' >{path} <<'{END}'\n{body}{END}"


def _indent_lines(lines: list[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)
