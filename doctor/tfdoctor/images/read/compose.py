"""Parse compose.yaml, devcontainer.json and pods of Kubernetes: the image of each container and its access to GPUs.

The files are read as Compose reads them, within limits. A value is None if it depends on another file, or on a variable
without a default.
"""

from __future__ import annotations

import itertools
import json
import posixpath
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yaml.nodes import Node

__all__ = [
    "ContainerStart",
    "StartFileError",
    "find_node",
    "hides_all_gpus",
    "is_compose_file",
    "is_devcontainer_file",
    "is_pod_file",
    "names_gpu_image",
    "parse_devcontainer",
    "parse_pods",
    "parse_services",
]

_COMPOSE_NAME = re.compile(r"(?:docker-)?compose(?:[.-][\w.-]{1,60})?\.ya?ml")
_DEVCONTAINER_NAME = re.compile(r"\.?devcontainer\.json")
_PREAMBLE = re.compile(r"\A\ufeff?(?:[ \t]*(?:#[^\n]*|---[ \t]*|%YAML[^\n]*)?\n)*")
"""Comments, empty lines and document markers at the beginning of a YAML file."""
_TOP_KEY = re.compile(
    r"(?:services|name|version|include|networks|volumes|configs|secrets|x-[\w.-]{1,100})[ \t]*:(?:\s|\Z)"
)
"""A top-level key of a compose file."""
_FIRST_BRACE = re.compile(r"\A\ufeff?(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*\{")
"""A brace as the first token after whitespace and comments."""
_VARIABLE_REFERENCE = re.compile(
    r"\$(?:\$|\{([A-Za-z_]\w{0,100})(?::?-([^${}]{0,500}))?\}|([A-Za-z_]\w{0,100}))"
)
"""$$ for a dollar sign, ${NAME}, ${NAME:-DEFAULT}, ${NAME-DEFAULT} or $NAME."""
_GPU_RESOURCE = re.compile(r"nvidia\.com/(?:gpu(?:\.shared)?|mig-[\w.]{1,40})")
_GPU_IMAGE = re.compile(
    r"(?<![\w.-])(?:tensorflow/tensorflow:[\w.-]{0,60}gpu|nvidia/tensorflow:|tfdoctor/tensorflow:)"
)
"""An image of TensorFlow for GPUs: an official one, NVIDIA's, or one that `tfdoctor build` named."""
_FRACTION = re.compile(r"\d*\.\d*[1-9]\d*|\d*[1-9]\d{0,2}m")
"""A number of devices that is not whole, in the syntax of Kubernetes."""
_GPU_OPTION = re.compile(r"--gpus(?:=|$)|--device=nvidia\.com/gpu|nvidia\.com/gpu=|--runtime=nvidia$")
"""`docker run` options that give a container a GPU."""
SETUP_KEYS = ("onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand")
"""The commands of a dev container that run after its creation, in this order."""
MAX_MERGE_DEPTH = 60
"""The largest depth of nested merges, and the largest number of mappings in one merge."""


class StartFileError(Exception):
    """The file cannot be parsed. The message is part of a sentence."""


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """How a container is started: its image or Dockerfile, its variables, and its access to GPUs."""

    name: str
    """The name of the service; empty for a dev container."""
    file: str
    line: int
    image: str | None = None
    """The name of the image. None if it is built, or if the name is unknown."""
    dockerfile: str | None = None
    """The path of the Dockerfile, relative to the folder of the file. None if no Dockerfile is used."""
    dockerfile_text: str | None = None
    """The text of a Dockerfile within the file itself, or None."""
    build_context: str = "."
    """The folder of the build context, relative to the folder of the file."""
    target_stage: str | None = None
    """The stage to build. None for the last one."""
    platform: str = ""
    """The platform that the file asks for, such as `linux/arm64`; empty if it asks for none."""
    build_arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments."""
    has_gpu: bool | None = None
    """Whether the container gets a GPU. None if that depends on another file."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the file sets, except those with an unknown value."""
    variable_lines: Mapping[str, int] = field(default_factory=dict)
    """The line on which the file sets each of them."""
    gpu_problem: str = ""
    """The reason why a request for a GPU in the file has no effect; empty if there is none."""
    program: str = ""
    """The name of the program that a service runs; empty if unknown."""
    setup_text: str = ""
    """RUN lines with the same effect as a dev container's commands after its creation."""
    setup_line: int = 0
    """The line of those commands."""
    gpu_setting: str = ""
    """The setting that gives the container a GPU, in the syntax of the file."""
    is_in_pod: bool = False
    """Whether it is a container of a Kubernetes pod."""

    @property
    def has_gpu_image(self) -> bool:
        """Whether the name of the image shows that it is of TensorFlow for GPUs."""
        return names_gpu_image(self.image or "")


def names_gpu_image(text: str) -> bool:
    """Return whether a text has the name of an image of TensorFlow for GPUs."""
    return _GPU_IMAGE.search(text) is not None


def is_compose_file(name: str, text: str) -> bool:
    """Return whether a file is a compose file, by its name or its first key.

    The key identifies files with other names and standard input. A Dockerfile never begins with such a key.
    """
    return (
        _COMPOSE_NAME.fullmatch(name) is not None
        or _TOP_KEY.match(_PREAMBLE.sub("", text, count=1)) is not None
    )


def is_devcontainer_file(name: str, text: str) -> bool:
    """Return whether a file is a devcontainer.json, by its name or because it begins with a brace."""
    return _DEVCONTAINER_NAME.fullmatch(name) is not None or _FIRST_BRACE.match(text) is not None


def is_pod_file(name: str, text: str) -> bool:
    """Return whether a file describes Kubernetes objects, by its first key or, in a YAML file, by one of its documents."""
    is_yaml = name.endswith((".yaml", ".yml"))
    return _PREAMBLE.sub("", text, count=1).startswith("apiVersion:") or (
        is_yaml and re.search(r"^apiVersion:", text, re.MULTILINE) is not None
    )


def hides_all_gpus(value: str) -> bool:
    """Return whether a value of CUDA_VISIBLE_DEVICES hides every GPU.

    CUDA stops at the first entry that is neither an index nor a UUID, such as `-1`, `all` or a scheduler's `NoDevFiles`.
    """
    return re.match(r"\d|GPU-|MIG-", value.strip()) is None


# ---------------------------------------------------------------- compose


def parse_services(text: str, file: str) -> list[ContainerStart]:
    """Return the services of a compose file, in order. Raise StartFileError if it is invalid or has none."""
    import yaml

    try:
        document = yaml.compose(text, Loader=yaml.BaseLoader)
        entries = list(_iter_entries(find_node(document, "services")))
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


def _iter_entries(node: Node | None, depth: int = 0) -> Iterator[tuple[str, Node]]:
    """Yield the entries of a mapping, then those of the mappings that it merges (`<<`)."""
    import yaml

    if not isinstance(node, yaml.MappingNode) or depth > MAX_MERGE_DEPTH:
        return
    names: set[str] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != "<<" and key.value not in names:
            names.add(key.value)
            yield key.value, value
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == "<<":
            merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for mapping in merged[:MAX_MERGE_DEPTH]:
                for name, inner in _iter_entries(mapping, depth + 1):
                    if name not in names:
                        names.add(name)
                        yield name, inner


def find_node(node: Node | None, *names: str) -> Node | None:
    """Return the node below nested keys, or None if it is missing."""
    for name in names:
        node = next((value for key, value in _iter_entries(node) if key == name), None)
    return node


def _parse_text(node: Node | None) -> str | None:
    """Return the text of a scalar with its variables expanded.

    Return None if the node is not a scalar, or depends on a variable without a default.
    """
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        return None
    is_known = all(
        match[0] == "$$" or match[2] is not None for match in _VARIABLE_REFERENCE.finditer(node.value)
    )
    return (
        _VARIABLE_REFERENCE.sub(lambda match: "$" if match[0] == "$$" else match[2], node.value)
        if is_known
        else None
    )


def _parse_texts(node: Node | None) -> list[str]:
    """Return the texts in a list, or the text of a single scalar. Unknown texts are omitted."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [text for item in node.value[:1000] if (text := _parse_text(item)) is not None]
    text = _parse_text(node)
    return [text] if text is not None else []


def _list_variables(node: Node | None) -> list[tuple[str, str | None, int]]:
    """Return (name, value, line) of the variables in a mapping, or in a list of `NAME=value` or of names and values.

    The value is None if it is not known.
    """
    import yaml

    if isinstance(node, yaml.MappingNode):
        return [(name, _parse_text(value), value.start_mark.line + 1) for name, value in _iter_entries(node)]
    if node is None:
        return []
    variables: list[tuple[str, str | None, int]] = []
    for item in node.value[:1000] if isinstance(node, yaml.SequenceNode) else [node]:
        assignment, name = _parse_text(item), _parse_text(find_node(item, "name"))
        value = find_node(item, "value")
        if assignment is not None and "=" in assignment:
            name, _, text = assignment.partition("=")
            variables.append((name, text, item.start_mark.line + 1))
        elif name is not None:
            variables.append((name, _parse_text(value), (value or item).start_mark.line + 1))
    return variables


def _parse_environment(node: Node | None) -> dict[str, str]:
    """Return the variables of `_list_variables`, except those without a known value."""
    return {name: value for name, value, _ in _list_variables(node) if value is not None}


def _find_variable_lines(node: Node | None) -> dict[str, int]:
    """Return the line of each variable of `_list_variables`."""
    return {name: line for name, _, line in _list_variables(node)}


def _parse_service(name: str, node: Node, file: str) -> ContainerStart:
    """Return how the container of a service is started."""
    build, variables = find_node(node, "build"), find_node(node, "environment")
    context = _parse_text(build) or _parse_text(find_node(build, "context")) or "."
    dockerfile = None
    dockerfile_text = _parse_text(find_node(build, "dockerfile_inline"))
    if build is not None and dockerfile_text is None:
        dockerfile = f"{context.rstrip('/')}/{_parse_text(find_node(build, 'dockerfile')) or 'Dockerfile'}"
    return ContainerStart(
        name=name,
        file=file,
        line=node.start_mark.line + 1,
        image=_parse_text(find_node(node, "image")) if build is None else None,
        dockerfile=dockerfile,
        dockerfile_text=dockerfile_text,
        build_context=context,
        target_stage=_parse_text(find_node(build, "target")),
        platform=_parse_text(find_node(node, "platform")) or "",
        build_arguments=_parse_environment(find_node(build, "args")),
        has_gpu=_has_gpu(node),
        environment=_parse_environment(variables),
        variable_lines=_find_variable_lines(variables),
        gpu_problem=_explain_gpu_request(node),
        program=_find_program(node),
        gpu_setting="NVIDIA_VISIBLE_DEVICES: all"
        if _parse_text(find_node(node, "runtime")) == "nvidia"
        else "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}",
    )


def _explain_gpu_request(node: Node) -> str:
    """Return why a service's request for a GPU has no effect; "" if it has none, or if nothing is wrong with it."""
    import yaml

    if _parse_text(find_node(node, "runtime")) == "nvidia":
        return "NVIDIA_VISIBLE_DEVICES of its environment asks for none"
    devices = find_node(node, "deploy", "resources", "reservations", "devices")
    for entry in devices.value[:1000] if isinstance(devices, yaml.SequenceNode) else ():
        if _parse_text(find_node(entry, "driver")) == "nvidia" and find_node(entry, "capabilities") is None:
            return "its entry of `devices` lacks `capabilities: [gpu]`, which Compose requires"
    return ""


def _find_program(node: Node) -> str:
    """Return the name of the program that a service or a container runs; "" if it is not known."""
    for key in ("entrypoint", "command", "args"):
        words = " ".join(_parse_texts(find_node(node, key))).split()
        if words:
            return words[0].rpartition("/")[2]
    return ""


def _has_gpu(node: Node) -> bool | None:
    """Return whether a service gets a GPU, or None if that depends on a service that it extends."""
    import yaml

    devices = find_node(node, "deploy", "resources", "reservations", "devices")
    if isinstance(devices, yaml.SequenceNode):
        for entry in devices.value[:1000]:
            if {"gpu", "nvidia"} & {*_parse_texts(find_node(entry, "capabilities"))}:
                return _parse_text(find_node(entry, "count")) != "0"
    if find_node(node, "gpus") is not None:
        return True
    if _parse_text(find_node(node, "runtime")) == "nvidia":
        return _parse_environment(find_node(node, "environment")).get("NVIDIA_VISIBLE_DEVICES") not in (
            "",
            "none",
            "void",
        )
    if any("nvidia.com/gpu=" in entry for entry in _parse_texts(find_node(node, "devices"))):
        return True
    return None if find_node(node, "extends") is not None else False


# ---------------------------------------------------------------- pods


def parse_pods(text: str, file: str) -> list[ContainerStart]:
    """Return the containers that ask for a GPU, or have an image of TensorFlow for GPUs, in the pods of Kubernetes objects.

    Raise StartFileError if the file is not YAML, or if there are none.
    """
    import yaml

    starts: list[ContainerStart] = []
    try:
        stack = list(yaml.compose_all(text, Loader=yaml.BaseLoader))[::-1]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        message = "it is not YAML, or too deep"
        raise StartFileError(message) from error
    visited_ids: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in visited_ids:
            continue
        visited_ids.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            stack += node.value[::-1]
        for name, value in list(_iter_entries(node))[::-1]:
            if name == "containers" and isinstance(value, yaml.SequenceNode):
                starts += [start for item in value.value if (start := _parse_container(item, node, file))]
            else:
                stack.append(value)
    if not starts:
        message = "no container in it asks for nvidia.com/gpu or has an image of TensorFlow for GPUs"
        raise StartFileError(message)
    return starts


def _parse_container(node: Node, pod: Node, file: str) -> ContainerStart | None:
    """Return how a container of a pod is started.

    Return None if it asks for no GPU, unless its image is of TensorFlow for GPUs and nothing else decides about them.
    """

    limits, requests = (
        {
            name: text
            for name, value in _iter_entries(find_node(node, "resources", key))
            if _GPU_RESOURCE.fullmatch(name) and (text := _parse_text(value)) not in (None, "0")
        }
        for key in ("limits", "requests")
    )
    problem = ""
    for name, value in limits.items():
        if _FRACTION.fullmatch(value or ""):
            problem = f"Kubernetes refuses the limit of {value} for {name}, which has to be a whole number"
    for name, value in requests.items():
        if name not in limits:
            problem = f"{name} is in `requests` and not in `limits`, which Kubernetes refuses"
        elif value != limits[name]:
            problem = f"`requests` and `limits` differ for {name}, which Kubernetes refuses"
    variables = find_node(node, "env")
    environment = _parse_environment(variables)
    image = _parse_text(find_node(node, "image"))
    if not limits and not requests:
        visible_devices = environment.get("CUDA_VISIBLE_DEVICES")
        hides_gpus = visible_devices is not None and hides_all_gpus(visible_devices)
        if not names_gpu_image(image or "") or hides_gpus or _has_other_gpu_setting(node, pod):
            return None
    return ContainerStart(
        name=_parse_text(find_node(node, "name")) or "?",
        file=file,
        line=node.start_mark.line + 1,
        image=image,
        has_gpu=bool(limits or requests) and not problem,
        environment=environment,
        variable_lines=_find_variable_lines(variables),
        gpu_problem=problem,
        program=_find_program(node),
        gpu_setting="resources: {limits: {nvidia.com/gpu: 1}}",
        is_in_pod=True,
    )


def _has_other_gpu_setting(container: Node, pod: Node) -> bool:
    """Return whether a container may get GPUs without `nvidia.com/gpu`, or asks for 0 of them.

    It can get them by a runtime class, a resource claim, the resource of another device plugin, or as a privileged container.
    """
    resources = [
        name
        for key in ("limits", "requests")
        for name, _ in _iter_entries(find_node(container, "resources", key))
    ]
    return (
        any("gpu" in name or name.startswith("nvidia.com/") for name in resources)
        or find_node(container, "resources", "claims") is not None
        or find_node(pod, "runtimeClassName") is not None
        or _parse_text(find_node(container, "securityContext", "privileged")) == "true"
    )


# ---------------------------------------------------------------- dev containers


def parse_devcontainer(text: str, file: str) -> ContainerStart | tuple[list[str], str]:
    """Return how a dev container is started, or its compose files and the name of its service.

    Raise StartFileError if the file is invalid or names no image.
    """
    try:
        document = json.loads(_strip_comments(text))
    except (ValueError, RecursionError) as error:
        message = "it is not JSON"
        raise StartFileError(message) from error
    if not isinstance(document, dict):
        message = "it is not a JSON object"
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
    joined_options = [
        *run_options,
        # "--gpus", "all" is the same as "--gpus=all".
        *(f"{option}={next_option}" for option, next_option in itertools.pairwise(run_options)),
    ]
    requirements = (
        (document.get("hostRequirements") or {}) if isinstance(document.get("hostRequirements"), dict) else {}
    )
    has_gpu = bool(requirements.get("gpu")) or any(_GPU_OPTION.match(item) for item in joined_options)
    setup_text, setup_line = _find_setup_commands(document, text, file)
    environment = document.get("containerEnv") if isinstance(document.get("containerEnv"), dict) else {}
    return ContainerStart(
        name="",
        file=file,
        line=_find_key_line(text, "dockerfile", "dockerFile", "image"),
        image=None if isinstance(dockerfile, str) else str(image),
        dockerfile=dockerfile if isinstance(dockerfile, str) else None,
        build_context=str(build.get("context") or document.get("context") or "."),
        target_stage=build.get("target") if isinstance(build.get("target"), str) else None,
        build_arguments={str(name): str(value) for name, value in _list_text_items(arguments)},
        has_gpu=has_gpu,
        environment={str(name): str(value) for name, value in _list_text_items(environment)},
        variable_lines={str(name): _find_key_line(text, re.escape(name)) for name in environment or ()},
        setup_text=setup_text,
        setup_line=setup_line,
        gpu_setting='"runArgs": ["--gpus", "all"]',
    )


def _find_setup_commands(document: dict[str, Any], text: str, file: str) -> tuple[str, int]:
    """Return the commands that run after a dev container is created, as RUN lines, and the line of the first."""
    lines, first_line = [], 0
    for key in SETUP_KEYS:
        value = document.get(key)
        values = list(value.values()) if isinstance(value, dict) else [value]
        for item in values:
            command = shlex.join(map(str, item)) if isinstance(item, list) else item
            if isinstance(command, str) and command.strip():
                lines.append(f"RUN {' '.join(command.split())}")
                first_line = first_line or _find_key_line(text, key)
    if not lines:
        return "", 0
    # The working folder is the project: the folder of the file, or the one above `.devcontainer`.
    project = "." if posixpath.basename(file).startswith(".devcontainer") else ".."
    return "\n".join([f"WORKDIR /workspace\nCOPY {project} /workspace", *lines]), first_line


def _find_key_line(text: str, *keys: str) -> int:
    """Return the number of the first line with one of these keys; 1 if there is none."""
    match = re.search(rf'"(?:{"|".join(keys)})"\s*:', text)
    return text.count("\n", 0, match.start()) + 1 if match is not None else 1


def _list_text_items(mapping: Any) -> list[tuple[Any, Any]]:
    """Return the entries of a mapping whose values are strings."""
    return [(name, value) for name, value in mapping.items() if isinstance(value, str)] if mapping else []


def _strip_comments(text: str) -> str:
    """Return the text as plain JSON, without comments and without commas before a closing bracket."""
    tokens = re.compile(r'"(?:[^"\\\n]|\\.){0,100000}"|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
    # A string is one token, so that nothing within it is removed. Commas follow in a second pass, because a comment may
    # stand between a comma and its bracket.
    without_comments = tokens.sub(lambda match: match[0] if match[0].startswith(('"', ",")) else " ", text)
    return tokens.sub(lambda match: "" if match[0] == "," else match[0], without_comments)
