"""compose.yaml and devcontainer.json → what their containers are made of, and whether they are given GPUs. Pure text.

What is read is read as Compose does, as far as it goes; what is not understood (a variable without a default, another
file) is None, never a guess.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yaml.nodes import Node

__all__ = ["Start", "StartFileError", "devcontainer", "is_compose", "is_devcontainer", "services"]

_COMPOSE = re.compile(r"(?:docker-)?compose(?:[.-][\w.-]{1,60})?\.ya?ml")
_DEVCONTAINER = re.compile(r"\.?devcontainer\.json")
_START = re.compile(r"\A\ufeff?(?:[ \t]*(?:#[^\n]*|---[ \t]*|%YAML[^\n]*)?\n)*")
_KEY = re.compile(
    r"(?:services|name|version|include|networks|volumes|configs|secrets|x-[\w.-]{1,100})[ \t]*:(?:\s|\Z)"
)
"""What a compose file has at its top level."""
_BRACE = re.compile(r"\A\ufeff?(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*\{")
_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_]\w{0,100})(?::?-([^${}]{0,500}))?\}|([A-Za-z_]\w{0,100}))")
_GPU_WORDS = re.compile(r"--gpus(?:=|$)|--device=nvidia\.com/gpu|nvidia\.com/gpu=|--runtime=nvidia$")
MAX_DEPTH = 60
"""Of merges and collections that are followed."""


class StartFileError(Exception):
    """It cannot be read; why, in a sentence's part."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a container is started."""

    name: str
    """The service; empty: a dev container."""
    file: str
    line: int
    image: str | None = None
    """None: none is named, or its name is not known."""
    dockerfile: str | None = None
    """Path from the folder of the file; None: nothing is built."""
    inline: str | None = None
    """A Dockerfile that stands in the file itself."""
    context: str = "."
    target: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    gpu: bool | None = None
    """Whether the container is given a GPU; None: another file decides."""
    environment: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""
    """What gives it one."""


def is_compose(name: str, text: str) -> bool:
    """By the file's name, else by how it begins (another name, standard input): no instruction is `services:`."""
    return _COMPOSE.fullmatch(name) is not None or _KEY.match(_START.sub("", text, count=1)) is not None


def is_devcontainer(name: str, text: str) -> bool:
    """By the file's name, else by how it begins: no Dockerfile does with a brace."""
    return _DEVCONTAINER.fullmatch(name) is not None or _BRACE.match(text) is not None


# ---------------------------------------------------------------- compose


def services(text: str, file: str) -> list[Start]:
    """Return the services of a compose file, in order. Raises StartError."""
    import yaml

    try:
        top = yaml.compose(text, Loader=yaml.BaseLoader)
        listed = list(_pairs(_get(top, "services")))
        found = [_service(name, node, file) for name, node in listed]
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        message = f"it is not YAML: {error.problem or error.context}{line}"
        raise StartFileError(message) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        message = "it is not YAML, or too deep"
        raise StartFileError(message) from error
    if not found:
        message = "it has no services"
        raise StartFileError(message)
    return found


def _pairs(node: Node | None, depth: int = 0) -> Iterator[tuple[str, Node]]:
    """Yield the entries of a mapping; its own come before those that it merges (`<<`)."""
    import yaml

    if not isinstance(node, yaml.MappingNode) or depth > MAX_DEPTH:
        return
    seen: set[str] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != "<<" and key.value not in seen:
            seen.add(key.value)
            yield key.value, value
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == "<<":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for one in merged[:MAX_DEPTH]:
                for name, inner in _pairs(one, depth + 1):
                    if name not in seen:
                        seen.add(name)
                        yield name, inner


def _get(node: Node | None, *names: str) -> Node | None:
    for name in names:
        node = next((value for key, value in _pairs(node) if key == name), None)
    return node


def _text(node: Node | None) -> str | None:
    """Return a scalar with its variables put in.

    None: there is none, or it depends on a variable without a default.
    """
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        return None
    known = all(match[0] == "$$" or match[2] is not None for match in _VARIABLE.finditer(node.value))
    return _VARIABLE.sub(lambda match: "$" if match[0] == "$$" else match[2], node.value) if known else None


def _texts(node: Node | None) -> list[str]:
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [text for one in node.value[:1000] if (text := _text(one)) is not None]
    text = _text(node)
    return [text] if text is not None else []


def _parse_environment(node: Node | None) -> dict[str, str]:
    """`NAME=value` in a list, or a mapping; names whose value comes from elsewhere are left out."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        return {name: text for name, value in _pairs(node) if (text := _text(value)) is not None}
    pairs = [one.partition("=") for one in _texts(node) if "=" in one]
    return {name: value for name, _, value in pairs}


def _service(name: str, node: Node, file: str) -> Start:
    build = _get(node, "build")
    context = _text(build) or _text(_get(build, "context")) or "."
    dockerfile = None
    inline = _text(_get(build, "dockerfile_inline"))
    if build is not None and inline is None:
        dockerfile = f"{context.rstrip('/')}/{_text(_get(build, 'dockerfile')) or 'Dockerfile'}"
    return Start(
        name=name,
        file=file,
        line=node.start_mark.line + 1,
        image=_text(_get(node, "image")) if build is None else None,
        dockerfile=dockerfile,
        inline=inline,
        context=context,
        target=_text(_get(build, "target")),
        arguments=_parse_environment(_get(build, "args")),
        gpu=_gpu(node),
        environment=_parse_environment(_get(node, "environment")),
        instead="deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}",
    )


def _gpu(node: Node) -> bool | None:
    import yaml

    devices = _get(node, "deploy", "resources", "reservations", "devices")
    if isinstance(devices, yaml.SequenceNode):
        for one in devices.value[:1000]:
            if {"gpu", "nvidia"} & {*_texts(_get(one, "capabilities"))}:
                return _text(_get(one, "count")) != "0"
    if _get(node, "gpus") is not None:
        return True
    if _text(_get(node, "runtime")) == "nvidia":
        return _parse_environment(_get(node, "environment")).get("NVIDIA_VISIBLE_DEVICES") not in (
            "",
            "none",
            "void",
        )
    if any("nvidia.com/gpu=" in one for one in _texts(_get(node, "devices"))):
        return True
    return None if _get(node, "extends") is not None else False


# ---------------------------------------------------------------- dev containers


def devcontainer(text: str, file: str) -> Start | tuple[list[str], str]:
    """Return how a dev container is started; or the compose files that say so, and its service.

    Raises StartError.
    """
    try:
        found = json.loads(_strip_comments(text))
    except (ValueError, RecursionError) as error:
        message = "it is not JSON"
        raise StartFileError(message) from error
    if not isinstance(found, dict):
        message = "it is no JSON object"
        raise StartFileError(message)
    compose = found.get("dockerComposeFile")
    if compose:
        files = compose if isinstance(compose, list) else [compose]
        return [one for one in files if isinstance(one, str)], str(found.get("service", ""))
    build = found.get("build") if isinstance(found.get("build"), dict) else {}
    assert isinstance(build, dict)  # noqa: S101 - as it was just asked
    dockerfile = build.get("dockerfile") or found.get("dockerFile")
    arguments = build.get("args") if isinstance(build.get("args"), dict) else {}
    image = found.get("image")
    if not isinstance(dockerfile, str) and not isinstance(image, str):
        message = "it names no image, no Dockerfile and no compose file"
        raise StartFileError(message)
    words = [str(one) for one in found.get("runArgs") or () if isinstance(one, str)]
    joined = [*words, *(f"{a}={b}" for a, b in itertools.pairwise(words))]
    wanted = (found.get("hostRequirements") or {}) if isinstance(found.get("hostRequirements"), dict) else {}
    given = bool(wanted.get("gpu")) or any(_GPU_WORDS.match(one) for one in joined)
    environment = found.get("containerEnv") if isinstance(found.get("containerEnv"), dict) else {}
    return Start(
        name="",
        file=file,
        line=1,
        image=None if isinstance(dockerfile, str) else str(image),
        dockerfile=dockerfile if isinstance(dockerfile, str) else None,
        context=str(build.get("context") or found.get("context") or "."),
        target=build.get("target") if isinstance(build.get("target"), str) else None,
        arguments={str(name): str(value) for name, value in _items(arguments)},
        gpu=given,
        environment={str(name): str(value) for name, value in _items(environment)},
        instead='"runArgs": ["--gpus", "all"]',
    )


def _items(found: Any) -> list[tuple[Any, Any]]:
    return [(name, value) for name, value in found.items() if isinstance(value, str)] if found else []


def _strip_comments(text: str) -> str:
    """Return JSON as editors take it: comments and a comma before a bracket go; a text is kept as it is."""
    parts = re.compile(r'"(?:[^"\\\n]|\\.){0,100000}"|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
    bare = parts.sub(lambda match: match[0] if match[0].startswith(('"', ",")) else " ", text)
    return parts.sub(lambda match: "" if match[0] == "," else match[0], bare)
