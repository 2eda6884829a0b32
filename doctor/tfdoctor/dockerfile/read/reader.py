"""A Dockerfile's text → its stages, with ARG and ENV put in as Docker does. Pure; never raises.

ARG before the first FROM holds for FROM alone; a stage takes it over with an ARG of its own. What a build would be
given on the command line, what base images set, and what commands print is not known, and says so.
"""

from __future__ import annotations

import functools
import itertools
import json
import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.dockerfile.read.models import BuildStage, Copy, Dockerfile, Setting, ShellCommand
from tfdoctor.dockerfile.read.shell import commands, expand
from tfdoctor.dockerfile.read.syntax import instructions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.dockerfile.read.models import Step
    from tfdoctor.dockerfile.read.syntax import Instruction, JoinedText

__all__ = ["read_dockerfile"]

MAX_INSTRUCTIONS = 10_000
MAX_STEPS = 20_000
"""Commands, copies and variables. What comes after is not read, and `Dockerfile.cut` says so."""
_FLAG = re.compile(r"\s*--([a-z-]{1,30})(?:=(\"[^\"]*\"|\S*))?")
_PAIR = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_.-]*)=((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|[^\s\"'\\])*)", re.DOTALL
)
_ARGUMENT = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)(?=\s|$)")
_HEREDOC_WORD = re.compile(r"\d?<<-?['\"]?[A-Za-z_][A-Za-z0-9_.-]*['\"]?")
_BUILD_ARGUMENTS = (
    "TARGETPLATFORM",
    "TARGETOS",
    "TARGETARCH",
    "TARGETVARIANT",
    "BUILDPLATFORM",
    "BUILDOS",
    "BUILDARCH",
)


@dataclass(slots=True)
class _StageBuilder:
    """A stage that is being read."""

    index: int
    name: str
    base: str | None
    parent: int | None
    written: str
    line: int
    platform: str | None
    arguments: dict[str, str | None] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    folder: str | None = "/"
    posix: bool = True
    """False where SHELL is no shell that is understood here."""
    steps: list[Step] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str | None]:
        """What `$NAME` means: ENV comes before ARG."""
        return {**self.arguments, **self.environment}

    def finish(self) -> BuildStage:
        return BuildStage(
            self.index,
            self.name,
            self.base,
            self.parent,
            self.written,
            self.line,
            self.platform,
            tuple(self.steps),
        )


def read_dockerfile(text: str) -> Dockerfile:
    """Return the stages of a Dockerfile; none if it has no FROM."""
    top: dict[str, str | None] = dict.fromkeys(_BUILD_ARGUMENTS)
    made: list[_StageBuilder] = []
    steps, cut = 0, False
    for number, one in enumerate(instructions(text)):
        if number >= MAX_INSTRUCTIONS or steps >= MAX_STEPS:
            cut = True
            break
        if one.word == "FROM":
            made.append(_from(one, top, made))
        elif not made:
            if one.word == "ARG":
                _argument(one.body.text, top, {}, top)
        else:
            before = len(made[-1].steps)
            _step(one, made[-1], top)
            steps += len(made[-1].steps) - before
    return Dockerfile(tuple(making.finish() for making in made), cut)


def _from(one: Instruction, top: dict[str, str | None], made: list[_StageBuilder]) -> _StageBuilder:
    flags, rest = _flags(one.body.text)
    words = rest.split()
    written = words[0] if words else ""
    name = words[2].lower() if len(words) > 2 and words[1].lower() == "as" else ""
    found = expand(written, top)
    image = found.text.strip("\"'") if found.known else None
    platform = expand(flags.get("platform", ""), top)
    parent = None
    if image:
        parent = next((m for m in reversed(made) if m.name and m.name == image.lower()), None)
    making = _StageBuilder(
        index=len(made),
        name=name,
        base=None if parent is not None or not image else image,
        parent=parent.index if parent is not None else None,
        written=written,
        line=one.line,
        platform=platform.text if platform.known and platform.text else None,
    )
    if parent is not None:
        making.environment, making.folder = dict(parent.environment), parent.folder
        making.posix = parent.posix
    return making


def _flags(text: str) -> tuple[dict[str, str], str]:
    """`--name=value` at the beginning, and the rest. Of several of one name the last is kept (see `_mounts`)."""
    flags: dict[str, str] = {}
    at = 0
    while (match := _FLAG.match(text, at)) is not None:
        flags[match[1]] = (match[2] or "").strip('"')
        at = match.end()
    return flags, text[at:]


def _step(one: Instruction, stage: _StageBuilder, top: dict[str, str | None]) -> None:
    if one.word == "ARG":
        _argument(one.body.text, stage.arguments, stage.variables, top)
    elif one.word == "ENV":
        _environment(one, stage)
    elif one.word == "WORKDIR":
        found = expand(one.body.text.strip().strip("\"'"), stage.variables)
        stage.folder = _resolve_path(stage.folder, found.text) if found.known else None
    elif one.word in ("COPY", "ADD"):
        stage.steps += _copies(one, stage)
    elif one.word == "SHELL":
        stage.posix = bool(re.search(r'"(?:\S*/)?(?:ba|da|z|a)?sh"', one.body.text))
    elif one.word == "RUN" and stage.posix:
        _run(one, stage)


def _argument(
    text: str, into: dict[str, str | None], variables: dict[str, str | None], top: dict[str, str | None]
) -> None:
    """`ARG A`, `ARG A=1 B=2`."""
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is not None:
            found = expand(
                _unquote(match[2]), {**top, **variables, **into} if into is top else {**variables, **into}
            )
            into[match[1]] = found.text if found.known else None
        else:
            match = _ARGUMENT.match(text, at)
            if match is None:
                return
            into[match[1]] = top.get(match[1]) if into is not top else None
        at = match.end()


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return re.sub(r"\\([\"'\\ ])", r"\1", text)


def _environment(one: Instruction, stage: _StageBuilder) -> None:
    """`ENV A=1 B=2`, and the old `ENV A all the rest`."""
    text, at = one.body.text, 0
    known = stage.variables
    found: list[Setting] = []
    while (match := _PAIR.match(text, at)) is not None:
        found.append(_setting(match[1], _unquote(match[2]), one.body.line_at(match.start(1)), known))
        at = match.end()
    if not found:
        name, _, value = text.strip().partition(" ")
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            found.append(_setting(name, _unquote(value.strip()), one.line, known))
    for setting in found:
        stage.environment[setting.name] = setting.value
        stage.steps.append(setting)


def _setting(name: str, value: str, line: int, variables: dict[str, str | None]) -> Setting:
    found = expand(value, variables)
    return Setting(name, found.text if found.known else None, line, value)


def _resolve_path(folder: str | None, path: str) -> str | None:
    if path.startswith("/"):
        return posixpath.normpath(path)
    return None if folder is None else posixpath.normpath(posixpath.join(folder, path))


def _copies(one: Instruction, stage: _StageBuilder) -> Iterator[Copy]:
    flags, rest = _flags(one.body.text)
    words: list[str] = []
    if rest.lstrip().startswith("["):
        try:
            value = json.loads(rest)
        except (ValueError, RecursionError):
            value = []
        words = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
    else:
        words = rest.split()
    expanded = [expand(word.strip("\"'"), stage.variables) for word in words]
    if len(expanded) < 2:
        return
    last = expanded[-1]
    target = _resolve_path(stage.folder, last.text) if last.known else None
    if target is not None and last.text.endswith(("/", "/.")) and target != "/":
        target += "/"
    origin = expand(flags["from"], stage.variables) if "from" in flags else None
    name = None if origin is None else origin.text if origin.known else "?"
    if one.heredocs:
        yield Copy((), target, name, one.line, one.heredocs[0].text)
    sources = tuple(word.text for word in expanded[:-1] if word.known and not word.text.startswith("<<"))
    if sources:
        yield Copy(sources, target, name, one.line)


def _run(one: Instruction, stage: _StageBuilder) -> None:
    text = one.body.text
    at = 0
    while (match := _FLAG.match(text, at)) is not None:
        if match[1] == "mount":
            stage.steps += _parse_mounts(match[2] or "", stage, one.line)
        at = match.end()
    variables = stage.variables
    folder = stage.folder
    rest = text[at:]
    scripts: list[tuple[str, JoinedText, int]] = [(rest, one.body, at)]
    plain = _HEREDOC_WORD.sub("", rest).strip() if one.heredocs else ""
    if one.heredocs and plain in ("", "bash", "sh", "bash -e", "bash -ex", "/bin/bash", "sh -e", "sh -ex"):
        scripts = [(body.text, body, 0) for body in one.heredocs if not _foreign(body.text)]
    for script, source, start in scripts:
        found = commands(
            script,
            functools.partial(_line, source, start),
            variables,
            exec_form=True,
        )
        for command in itertools.islice(found, MAX_STEPS):
            if command.name == "cd" and len(command.words) > 1:
                folder = _resolve_path(folder, command.words[1].text) if command.words[1].known else None
                continue
            stage.steps.append(ShellCommand(command, folder))


def _line(source: JoinedText, start: int, place: int) -> int:
    return source.line_at(place + start)


def _foreign(script: str) -> bool:
    """Return a heredoc for another interpreter than a shell."""
    return script.startswith("#!") and "sh" not in script.partition("\n")[0]


def _parse_mounts(text: str, stage: _StageBuilder, line: int) -> Iterator[Copy]:
    """`type=bind,source=requirements.txt,target=/tmp/requirements.txt`."""
    values = dict(part.partition("=")[::2] for part in text.split(","))
    if values.get("type", "bind") != "bind":
        return
    source = values.get("source", values.get("src", "."))
    target = values.get("target", values.get("dst", values.get("destination", "")))
    if target:
        yield Copy((source,), _resolve_path(stage.folder, target), values.get("from"), line)
