"""Parse the stages of a Dockerfile, and expand ARG and ENV as Docker does. No text raises an error.

An ARG before the first FROM applies to FROM lines only, unless a stage declares it again. Build arguments from the
command line, variables of base images and the output of commands are marked as unknown.
"""

from __future__ import annotations

import functools
import itertools
import json
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.images.read.models import BuildStage, Copy, Dockerfile, Setting, ShellCommand
from tfdoctor.images.read.shell import expand_variables, parse_commands
from tfdoctor.images.read.syntax import parse_instructions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.images.read.models import Step
    from tfdoctor.images.read.syntax import Instruction, JoinedText

__all__ = ["parse_dockerfile"]

MAX_INSTRUCTIONS = 10_000
MAX_STEPS = 20_000
"""The largest number of commands, copies and variables that are read (see `Dockerfile.is_truncated`)."""
_FLAG = re.compile(r"\s*--([a-z-]{1,30})(?:=(\"[^\"]*\"|\S*))?")
"""--NAME or --NAME=VALUE, with an optionally quoted value."""
_PAIR = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_.-]*)=((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|[^\s\"'\\])*)", re.DOTALL
)
"""NAME=VALUE, where the value has quoted and unquoted parts."""
_ARGUMENT_NAME = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)(?=\s|$)")
"""NAME without a value, in an ARG instruction."""
_HEREDOC_WORD = re.compile(r"\d?<<-?['\"]?[A-Za-z_][A-Za-z0-9_.-]*['\"]?")
"""The marker that starts a heredoc, such as <<EOF."""
_BUILD_ARGUMENTS = (
    "TARGETPLATFORM",
    "TARGETOS",
    "TARGETARCH",
    "TARGETVARIANT",
    "BUILDPLATFORM",
    "BUILDOS",
    "BUILDARCH",
)
"""Build arguments that Docker defines. Their values are unknown."""


@dataclass(slots=True)
class _StageBuilder:
    """A build stage while its instructions are read."""

    index: int
    name: str
    base: str | None
    parent_index: int | None
    """The index of the stage that it builds on. None if it builds on an image."""
    written_base: str
    """The base image as written."""
    line: int
    platform: str | None
    arguments: dict[str, str | None] = field(default_factory=dict)
    """The values of ARG instructions, by name. None means unknown."""
    environment: dict[str, str | None] = field(default_factory=dict)
    """The values of ENV instructions, by name. None means unknown."""
    folder: str | None = "/"
    """The working directory. None if unknown."""
    is_posix: bool = True
    """Whether RUN uses a POSIX shell. SHELL can select another one, whose commands are not read."""
    steps: list[Step] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str | None]:
        """The variables of the stage. ENV takes precedence over ARG."""
        return {**self.arguments, **self.environment}

    def finish(self) -> BuildStage:
        """Return the finished stage."""
        return BuildStage(
            self.index,
            self.name,
            self.base,
            self.parent_index,
            self.written_base,
            self.line,
            self.platform,
            tuple(self.steps),
        )


def parse_dockerfile(text: str) -> Dockerfile:
    """Return the parsed Dockerfile. It has no stages if the text has no FROM."""
    global_arguments: dict[str, str | None] = dict.fromkeys(_BUILD_ARGUMENTS)
    stages: list[_StageBuilder] = []
    step_count, is_truncated = 0, False
    for instruction_count, instruction in enumerate(parse_instructions(text)):
        if instruction_count >= MAX_INSTRUCTIONS or step_count >= MAX_STEPS:
            is_truncated = True
            break
        if instruction.name == "FROM":
            stages.append(_start_stage(instruction, global_arguments, stages))
        elif not stages:
            if instruction.name == "ARG":
                _parse_arguments(instruction.body.text, global_arguments, {}, global_arguments)
        else:
            step_count_before = len(stages[-1].steps)
            _parse_instruction(instruction, stages[-1], global_arguments)
            step_count += len(stages[-1].steps) - step_count_before
    return Dockerfile(tuple(stage.finish() for stage in stages), is_truncated)


def _start_stage(
    instruction: Instruction, global_arguments: dict[str, str | None], stages: list[_StageBuilder]
) -> _StageBuilder:
    """Return a new stage for a FROM instruction.

    If it builds on another stage, it inherits the variables, the folder and the shell of that stage.
    """
    flags, arguments_text = _parse_flags(instruction.body.text)
    arguments = arguments_text.split()
    written_base = arguments[0] if arguments else ""
    name = arguments[2].lower() if len(arguments) > 2 and arguments[1].lower() == "as" else ""
    expanded = expand_variables(written_base, global_arguments)
    image = expanded.text.strip("\"'") if expanded.is_known else None
    platform = expand_variables(flags.get("platform", ""), global_arguments)
    parent = None
    if image:
        parent = next(
            (earlier for earlier in reversed(stages) if earlier.name and earlier.name == image.lower()), None
        )
    stage = _StageBuilder(
        index=len(stages),
        name=name,
        base=None if parent is not None or not image else image,
        parent_index=parent.index if parent is not None else None,
        written_base=written_base,
        line=instruction.line,
        platform=platform.text if platform.is_known and platform.text else None,
    )
    if parent is not None:
        stage.environment, stage.folder = dict(parent.environment), parent.folder
        stage.is_posix = parent.is_posix
    return stage


def _parse_flags(text: str) -> tuple[dict[str, str], str]:
    """Return the `--name=value` flags at the beginning of the text, and the text after them."""
    flags: dict[str, str] = {}
    position = 0
    while (match := _FLAG.match(text, position)) is not None:
        flags[match[1]] = (match[2] or "").strip('"')
        position = match.end()
    return flags, text[position:]


def _parse_instruction(
    instruction: Instruction, stage: _StageBuilder, global_arguments: dict[str, str | None]
) -> None:
    """Apply an instruction to its stage."""
    if instruction.name == "ARG":
        _parse_arguments(instruction.body.text, stage.arguments, stage.variables, global_arguments)
    elif instruction.name == "ENV":
        _parse_environment(instruction, stage)
    elif instruction.name == "WORKDIR":
        expanded = expand_variables(instruction.body.text.strip().strip("\"'"), stage.variables)
        stage.folder = _resolve_path(stage.folder, expanded.text) if expanded.is_known else None
    elif instruction.name in ("COPY", "ADD"):
        stage.steps += _parse_copies(instruction, stage)
    elif instruction.name == "SHELL":
        stage.is_posix = bool(re.search(r'"(?:\S*/)?(?:ba|da|z|a)?sh"', instruction.body.text))
    elif instruction.name == "RUN" and stage.is_posix:
        _parse_run(instruction, stage)


def _parse_arguments(
    text: str,
    arguments: dict[str, str | None],
    variables: dict[str, str | None],
    global_arguments: dict[str, str | None],
) -> None:
    """Add the variables of `ARG A` or `ARG A=1 B=2` to `arguments`. The values may refer to `variables`.

    Before the first FROM, `arguments` and `global_arguments` are the same object.
    """
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is not None:
            expanded = expand_variables(
                _unquote(match[2]),
                {**global_arguments, **variables, **arguments}
                if arguments is global_arguments
                else {**variables, **arguments},
            )
            arguments[match[1]] = expanded.text if expanded.is_known else None
        else:
            match = _ARGUMENT_NAME.match(text, position)
            if match is None:
                return
            arguments[match[1]] = (
                global_arguments.get(match[1]) if arguments is not global_arguments else None
            )
        position = match.end()


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return re.sub(r"\\([\"'\\ ])", r"\1", text)


def _parse_environment(instruction: Instruction, stage: _StageBuilder) -> None:
    """Add the variables of `ENV A=1 B=2`, or of the legacy form `ENV A VALUE WITH SPACES`, to the stage."""
    text, position = instruction.body.text, 0
    variables = stage.variables
    settings: list[Setting] = []
    while (match := _PAIR.match(text, position)) is not None:
        settings.append(
            _make_setting(match[1], _unquote(match[2]), instruction.body.line_at(match.start(1)), variables)
        )
        position = match.end()
    if not settings:
        name, _, value = text.strip().partition(" ")
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            settings.append(_make_setting(name, _unquote(value.strip()), instruction.line, variables))
    for setting in settings:
        stage.environment[setting.name] = setting.value
        stage.steps.append(setting)


def _make_setting(name: str, value: str, line: int, variables: dict[str, str | None]) -> Setting:
    expanded = expand_variables(value, variables)
    return Setting(name, expanded.text if expanded.is_known else None, line, value)


def _resolve_path(folder: str | None, path: str) -> str | None:
    if path.startswith("/"):
        return posixpath.normpath(path)
    return None if folder is None else posixpath.normpath(posixpath.join(folder, path))


def _parse_copies(instruction: Instruction, stage: _StageBuilder) -> Iterator[Copy]:
    """Yield the copies of a COPY or ADD instruction: one for its heredoc and one for its files."""
    flags, arguments_text = _parse_flags(instruction.body.text)
    arguments: list[str] = []
    if arguments_text.lstrip().startswith("["):
        try:
            value = json.loads(arguments_text)
        except (ValueError, RecursionError):
            value = []
        arguments = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    else:
        arguments = arguments_text.split()
    expanded = [expand_variables(argument.strip("\"'"), stage.variables) for argument in arguments]
    if len(expanded) < 2:
        return
    destination = expanded[-1]
    target = _resolve_path(stage.folder, destination.text) if destination.is_known else None
    if target is not None and destination.text.endswith(("/", "/.")) and target != "/":
        target += "/"
    origin = expand_variables(flags["from"], stage.variables) if "from" in flags else None
    # No stage is called "?". An unknown stage must not be taken for the build context, which None stands for.
    origin_name = None if origin is None else origin.text if origin.is_known else "?"
    if instruction.heredocs:
        yield Copy((), target, origin_name, instruction.line, instruction.heredocs[0].text)
    sources = tuple(
        argument.text
        for argument in expanded[:-1]
        if argument.is_known and not argument.text.startswith("<<")
    )
    if sources:
        yield Copy(sources, target, origin_name, instruction.line)


def _parse_run(instruction: Instruction, stage: _StageBuilder) -> None:
    """Add the mounts and commands of a RUN instruction to the stage."""
    text = instruction.body.text
    position = 0
    while (match := _FLAG.match(text, position)) is not None:
        if match[1] == "mount":
            stage.steps += _parse_mounts(match[2] or "", stage, instruction.line)
        position = match.end()
    variables = stage.variables
    folder = stage.folder
    script_text = text[position:]
    scripts: list[tuple[str, JoinedText, int]] = [(script_text, instruction.body, position)]
    interpreter = _HEREDOC_WORD.sub("", script_text).strip() if instruction.heredocs else ""
    if instruction.heredocs and interpreter in (
        "",
        "bash",
        "sh",
        "bash -e",
        "bash -ex",
        "/bin/bash",
        "sh -e",
        "sh -ex",
    ):
        scripts = [
            (body.text, body, 0) for body in instruction.heredocs if not _names_other_interpreter(body.text)
        ]
    for script, source, start in scripts:
        parsed = parse_commands(
            script,
            functools.partial(_find_line_number, source, start),
            variables,
            exec_form=True,
        )
        for command in itertools.islice(parsed, MAX_STEPS):
            if command.name == "cd" and len(command.words) > 1:
                folder = _resolve_path(folder, command.words[1].text) if command.words[1].is_known else None
                continue
            has_code = bool(instruction.heredocs) and re.fullmatch(r"python[\d.]*(?: -)?", command.text)
            code = instruction.heredocs[0].text if has_code else ""
            stage.steps.append(ShellCommand(command, folder, "CONDA_OVERRIDE_CUDA" in text, code))


def _find_line_number(source: JoinedText, start: int, offset: int) -> int:
    return source.line_at(offset + start)


def _names_other_interpreter(script: str) -> bool:
    """Return whether the first line of a heredoc names an interpreter that is not a shell."""
    return script.startswith("#!") and "sh" not in script.partition("\n")[0]


def _parse_mounts(text: str, stage: _StageBuilder, line: int) -> Iterator[Copy]:
    """Yield a copy for a bind mount such as `type=bind,source=a.txt,target=/tmp/a.txt`."""
    values = dict(part.partition("=")[::2] for part in text.split(","))
    if values.get("type", "bind") != "bind":
        return
    source = values.get("source", values.get("src", "."))
    target = values.get("target", values.get("dst", values.get("destination", "")))
    if target:
        yield Copy((source,), _resolve_path(stage.folder, target), values.get("from"), line)
