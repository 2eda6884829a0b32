"""From compose.yaml and devcontainer.json to the images of their containers and their access to GPUs. Pure text.

The files are read as Compose reads them, with limits. What is not understood (a variable without a default, another
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

__all__ = [
    "ContainerStart",
    "StartFileError",
    "is_compose",
    "is_devcontainer",
    "parse_devcontainer",
    "parse_services",
]

_COMPOSE = re.compile(r"(?:docker-)?compose(?:[.-][\w.-]{1,60})?\.ya?ml")
_DEVCONTAINER = re.compile(r"\.?devcontainer\.json")
_PREAMBLE = re.compile(r"\A\ufeff?(?:[ \t]*(?:#[^\n]*|---[ \t]*|%YAML[^\n]*)?\n)*")
_TOP_KEY = re.compile(
    r"(?:services|name|version|include|networks|volumes|configs|secrets|x-[\w.-]{1,100})[ \t]*:(?:\s|\Z)"
)
"""A top-level key of a compose file."""
_FIRST_BRACE = re.compile(r"\A\ufeff?(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*\{")
_VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_]\w{0,100})(?::?-([^${}]{0,500}))?\}|([A-Za-z_]\w{0,100}))")
_GPU_OPTION = re.compile(r"--gpus(?:=|$)|--device=nvidia\.com/gpu|nvidia\.com/gpu=|--runtime=nvidia$")
MAX_DEPTH = 60
"""Nested merges that are followed, and entries of a merge that are read."""


class StartFileError(Exception):
    """The file cannot be read; the message is a part of a sentence."""


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """How a container is started."""

    name: str
    """The service; empty for a dev container."""
    file: str
    line: int
    image: str | None = None
    """None if no image is named, or if its name is unknown."""
    dockerfile: str | None = None
    """Path from the folder of the file; None if nothing is built."""
    inline: str | None = None
    """A Dockerfile within the file itself."""
    context: str = "."
    target: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    gpu: bool | None = None
    """Whether the container gets a GPU; None if another file decides."""
    environment: Mapping[str, str] = field(default_factory=dict)
    gpu_setting: str = ""
    """The setting that gives the container a GPU."""


def is_compose(name: str, text: str) -> bool:
    """Return whether a file is a compose file, by its name or its first key.

    The key is for files of other names and for standard input: a Dockerfile never begins with `services:`.
    """
    return (
        _COMPOSE.fullmatch(name) is not None or _TOP_KEY.match(_PREAMBLE.sub("", text, count=1)) is not None
    )


def is_devcontainer(name: str, text: str) -> bool:
    """Return whether a file is a devcontainer.json, by its name or because it begins with a brace."""
    return _DEVCONTAINER.fullmatch(name) is not None or _FIRST_BRACE.match(text) is not None


# ---------------------------------------------------------------- compose


def parse_services(text: str, file: str) -> list[ContainerStart]:
    """Return the services of a compose file, in order. Raise StartFileError."""
    import yaml

    try:
        document = yaml.compose(text, Loader=yaml.BaseLoader)
        entries = list(_list_entries(_get_node(document, "services")))
        starts = [_parse_service(name, node, file) for name, node in entries]
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        message = f"it is not YAML: {error.problem or error.context}{line}"
        raise StartFileError(message) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        message = "it is not YAML, or too deep"
        raise StartFileError(message) from error
    if not starts:
        message = "it has no services"
        raise StartFileError(message)
    return starts


def _list_entries(node: Node | None, depth: int = 0) -> Iterator[tuple[str, Node]]:
    """Yield the entries of a mapping; its own come before those that it merges (`<<`)."""
    import yaml

    if not isinstance(node, yaml.MappingNode) or depth > MAX_DEPTH:
        return
    names: set[str] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != "<<" and key.value not in names:
            names.add(key.value)
            yield key.value, value
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == "<<":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for mapping in merged[:MAX_DEPTH]:
                for name, inner in _list_entries(mapping, depth + 1):
                    if name not in names:
                        names.add(name)
                        yield name, inner


def _get_node(node: Node | None, *names: str) -> Node | None:
    """Return the node under nested keys, or None."""
    for name in names:
        node = next((value for key, value in _list_entries(node) if key == name), None)
    return node


def _parse_text(node: Node | None) -> str | None:
    """Return a scalar with its variables expanded.

    None if it is not a scalar, or depends on a variable without a default.
    """
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        return None
    is_known = all(match[0] == "$$" or match[2] is not None for match in _VARIABLE.finditer(node.value))
    return (
        _VARIABLE.sub(lambda match: "$" if match[0] == "$$" else match[2], node.value) if is_known else None
    )


def _parse_texts(node: Node | None) -> list[str]:
    """Return the texts of a list or of a single scalar; unknown ones are left out."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [text for item in node.value[:1000] if (text := _parse_text(item)) is not None]
    text = _parse_text(node)
    return [text] if text is not None else []


def _parse_environment(node: Node | None) -> dict[str, str]:
    """Return the variables of a mapping or of a list of `NAME=value`; those without a value are left out."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        return {name: text for name, value in _list_entries(node) if (text := _parse_text(value)) is not None}
    pairs = [text_item.partition("=") for text_item in _parse_texts(node) if "=" in text_item]
    return {name: value for name, _, value in pairs}


def _parse_service(name: str, node: Node, file: str) -> ContainerStart:
    """Return the container of a service."""
    build = _get_node(node, "build")
    context = _parse_text(build) or _parse_text(_get_node(build, "context")) or "."
    dockerfile = None
    inline = _parse_text(_get_node(build, "dockerfile_inline"))
    if build is not None and inline is None:
        dockerfile = f"{context.rstrip('/')}/{_parse_text(_get_node(build, 'dockerfile')) or 'Dockerfile'}"
    return ContainerStart(
        name=name,
        file=file,
        line=node.start_mark.line + 1,
        image=_parse_text(_get_node(node, "image")) if build is None else None,
        dockerfile=dockerfile,
        inline=inline,
        context=context,
        target=_parse_text(_get_node(build, "target")),
        arguments=_parse_environment(_get_node(build, "args")),
        gpu=_has_gpu(node),
        environment=_parse_environment(_get_node(node, "environment")),
        gpu_setting="deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}",
    )


def _has_gpu(node: Node) -> bool | None:
    """Return whether a service gets a GPU; None if it extends another service and asks for none itself."""
    import yaml

    devices = _get_node(node, "deploy", "resources", "reservations", "devices")
    if isinstance(devices, yaml.SequenceNode):
        for entry in devices.value[:1000]:
            if {"gpu", "nvidia"} & {*_parse_texts(_get_node(entry, "capabilities"))}:
                return _parse_text(_get_node(entry, "count")) != "0"
    if _get_node(node, "gpus") is not None:
        return True
    if _parse_text(_get_node(node, "runtime")) == "nvidia":
        return _parse_environment(_get_node(node, "environment")).get("NVIDIA_VISIBLE_DEVICES") not in (
            "",
            "none",
            "void",
        )
    if any("nvidia.com/gpu=" in entry for entry in _parse_texts(_get_node(node, "devices"))):
        return True
    return None if _get_node(node, "extends") is not None else False


# ---------------------------------------------------------------- dev containers


def parse_devcontainer(text: str, file: str) -> ContainerStart | tuple[list[str], str]:
    """Return how a dev container is started, or its compose files and the name of its service.

    Raise StartFileError.
    """
    try:
        document = json.loads(_strip_comments(text))
    except (ValueError, RecursionError) as error:
        message = "it is not JSON"
        raise StartFileError(message) from error
    if not isinstance(document, dict):
        message = "it is no JSON object"
        raise StartFileError(message)
    compose = document.get("dockerComposeFile")
    if compose:
        files = compose if isinstance(compose, list) else [compose]
        return [item for item in files if isinstance(item, str)], str(document.get("service", ""))
    build = document.get("build") if isinstance(document.get("build"), dict) else {}
    assert isinstance(build, dict)  # noqa: S101 - the line above makes sure of it
    dockerfile = build.get("dockerfile") or document.get("dockerFile")
    arguments = build.get("args") if isinstance(build.get("args"), dict) else {}
    image = document.get("image")
    if not isinstance(dockerfile, str) and not isinstance(image, str):
        message = "it names no image, no Dockerfile and no compose file"
        raise StartFileError(message)
    run_options = [str(item) for item in document.get("runArgs") or () if isinstance(item, str)]
    joined = [
        *run_options,
        *(f"{option}={following}" for option, following in itertools.pairwise(run_options)),
    ]
    requirements = (
        (document.get("hostRequirements") or {}) if isinstance(document.get("hostRequirements"), dict) else {}
    )
    has_gpu = bool(requirements.get("gpu")) or any(_GPU_OPTION.match(item) for item in joined)
    environment = document.get("containerEnv") if isinstance(document.get("containerEnv"), dict) else {}
    return ContainerStart(
        name="",
        file=file,
        line=1,
        image=None if isinstance(dockerfile, str) else str(image),
        dockerfile=dockerfile if isinstance(dockerfile, str) else None,
        context=str(build.get("context") or document.get("context") or "."),
        target=build.get("target") if isinstance(build.get("target"), str) else None,
        arguments={str(name): str(value) for name, value in _list_text_items(arguments)},
        gpu=has_gpu,
        environment={str(name): str(value) for name, value in _list_text_items(environment)},
        gpu_setting='"runArgs": ["--gpus", "all"]',
    )


def _list_text_items(mapping: Any) -> list[tuple[Any, Any]]:
    """Return the entries of a mapping whose values are texts."""
    return [(name, value) for name, value in mapping.items() if isinstance(value, str)] if mapping else []


def _strip_comments(text: str) -> str:
    """Return plain JSON: without comments and without commas before a closing bracket, except within strings."""
    parts = re.compile(r'"(?:[^"\\\n]|\\.){0,100000}"|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
    bare = parts.sub(lambda match: match[0] if match[0].startswith(('"', ",")) else " ", text)
    return parts.sub(lambda match: "" if match[0] == "," else match[0], bare)
