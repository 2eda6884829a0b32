"""The tools that a client can call, and the command line of each call.

Arguments come from a client that may be hostile. They are validated against the same JSON Schema that the client gets,
and no argument can become an option: values follow `--option=` or `--`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.core.records import dataclass
from tfdoctor.remedies.tools import Tool
from tfdoctor.system import INTERPRETER_PATHS
from tfdoctor.system.archive import DEMO_PREFIX, DEMOS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["TOOLS", "ArgumentError", "Call", "ServerTool", "make_call", "make_input_schema"]

MAX_TEXT_CHARS = 1000
MAX_PATH_CHARS = 4096
MAX_LOG_CHARS = 16 << 20
MAX_ITEMS = 100
CALL_TIMEOUT_S = 120.0
FIX_TIMEOUT_S = 3600.0
"""The time limit of `fix` when it installs packages."""
_PYTHON_NAME = re.compile(r"(python|pypy|graalpy)[\d.]*(t|d)?(\.exe)?")


class ArgumentError(ValueError):
    """An argument is invalid. The message is for the client."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool."""

    description: str
    kind: str = "string"
    """`string`, `boolean` or `array` (of strings)."""
    option: str = ""
    """The option of the command. Empty means that the value follows `--`."""
    role: str = "text"
    """`text`, `path` (a file or folder to read), `recording` (that, or a demonstration), `python` or `log` (standard input)."""
    choices: tuple[str, ...] = ()
    needs_permission: bool = False
    """Whether the parameter exists only if the user allows changes."""

    @property
    def max_chars(self) -> int:
        """The largest length of a text, in characters."""
        return {"log": MAX_LOG_CHARS, "text": MAX_TEXT_CHARS}.get(self.role, MAX_PATH_CHARS)


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool, which is one command of tfdoctor with `--json`."""

    name: str
    title: str
    description: str
    parameters: Mapping[str, Parameter]
    large_fields: tuple[str, ...] = ()
    """The fields of the document that are left out unless the client asks for `details`."""
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A command line for one call of a tool."""

    words: tuple[str, ...]
    stdin: bytes
    timeout_s: float
    omitted_fields: tuple[str, ...]


_PYTHON = Parameter(
    "The Python to examine, or the folder of its environment. Default: the active environment's.",
    option="--python",
    role="python",
)
_RECORDING = Parameter(
    "A recorded machine to examine instead of this one: a file or folder that `tfdoctor capture` wrote, or "
    f"a demonstration: {', '.join(DEMO_PREFIX + name for name in DEMOS)}.",
    option="--from",
    role="recording",
)
_DETAILS = Parameter(
    "Also return all facts and the outcome of every rule (tens of kilobytes).", kind="boolean", role="details"
)
_FOR = Parameter(
    "Write the commands for this tool.", option="--for", choices=tuple(tool.value for tool in Tool)
)

TOOLS = {
    tool.name: tool
    for tool in (
        ServerTool(
            "check",
            "Check this machine",
            "Find out whether TensorFlow will use the NVIDIA GPUs of this machine, and if not, why and which command "
            "fixes it. Looks at the driver, the Python environment and the loader. Changes nothing and does not import "
            "TensorFlow (unless `deep`).",
            {
                "python": _PYTHON,
                "recording": _RECORDING,
                "deep": Parameter(
                    "Also run TensorFlow in a child process and compare.", kind="boolean", option="--deep"
                ),
                "for": _FOR,
                "details": _DETAILS,
            },
            large_fields=("facts", "values", "rules"),
        ),
        ServerTool(
            "diagnose",
            "Diagnose a log",
            "Find the root cause in a TensorFlow log: why no GPU was registered, or why the program failed, and what "
            "to do. Give either `text` or `file`.",
            {
                "text": Parameter("The log, as the program printed it.", role="log"),
                "file": Parameter("A log file, also compressed.", role="path"),
                "for": _FOR,
            },
        ),
        ServerTool(
            "explain",
            "Explain a code or a message",
            "Explain a code of tfdoctor (TFD203), a cause (libs-not-on-path) or one line of an error message.",
            {"term": Parameter("The code, the cause or the message.")},
            required=("term",),
        ),
        ServerTool(
            "recommend",
            "Recommend an installation",
            "Find the TensorFlow release that works on this machine, or with the given GPUs and driver, and the commands "
            "that install it with pip or in a container.",
            {
                "tf": Parameter('Releases: "2.15", "2.15.0", ">=2.10,<2.13".', option="--tf"),
                "gpu": Parameter(
                    'GPUs by name or compute capability: "RTX 5090", "8.6". Default: those of this machine.',
                    kind="array",
                    option="--gpu",
                ),
                "driver": Parameter('The driver: "550.54.14" or "550".', option="--driver"),
                "python": Parameter('The version of Python: "3.11".', option="--python-version"),
                "method": Parameter("Only this method.", option="--method", choices=("pip", "container")),
                "recording": _RECORDING,
            },
        ),
        ServerTool(
            "matrix",
            "Look up versions",
            "List which TensorFlow releases were built with which CUDA and cuDNN, for which Python, driver and GPU. Give "
            "at least one condition: the whole table is large.",
            {
                "tf": Parameter('Releases: "2.15", ">=2.10,<2.13", "latest".', option="--tf"),
                "cuda": Parameter('Built with this CUDA: "12", "11.2".', option="--cuda"),
                "cudnn": Parameter('Built with this cuDNN: "9", "8.1".', option="--cudnn"),
                "python": Parameter('With a wheel for this Python: "3.11".', option="--python-version"),
                "gpu": Parameter(
                    'With code for this GPU or compute capability: "RTX 3060", "8.6".', option="--gpu"
                ),
                "driver": Parameter('Those that run on this driver: "550.54.14".', option="--driver"),
            },
        ),
        ServerTool(
            "lint",
            "Lint code",
            "Find code that keeps TensorFlow from the GPUs: misspelt variables, settings that come too late, removed "
            "functions, wrong devices. Reads Python 2 and 3, notebooks, shell scripts, Dockerfiles and YAML, and runs none.",
            {
                "paths": Parameter(
                    "Files, or folders with all that is below them. Default: the allowed folder.",
                    kind="array",
                    role="path",
                ),
                "tf": Parameter('The release that the code is for: "2.16".', option="--tf"),
            },
        ),
        ServerTool(
            "fix",
            "Fix the environment",
            "Show what `tfdoctor fix` would change so that TensorFlow uses the GPU. Nothing is changed unless the user "
            "started the server with --allow-fix and `apply` or `undo` is true.",
            {
                "codes": Parameter(
                    "Only these findings, such as TFD203. Default: all that can be fixed.", kind="array"
                ),
                "python": _PYTHON,
                "apply": Parameter(
                    "Make the changes.", kind="boolean", option="--yes", needs_permission=True
                ),
                "undo": Parameter(
                    "Undo everything that fix has done.",
                    kind="boolean",
                    option="--undo",
                    needs_permission=True,
                ),
            },
        ),
    )
}


def make_input_schema(tool: ServerTool, *, allow_fix: bool) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    properties = {}
    for name, parameter in _list_parameters(tool, allow_fix=allow_fix).items():
        text: dict[str, Any] = {"type": "string", "maxLength": parameter.max_chars}
        if parameter.choices:
            text = {"type": "string", "enum": list(parameter.choices)}
        schema: dict[str, Any] = {
            "string": text,
            "boolean": {"type": "boolean"},
            "array": {"type": "array", "items": text, "maxItems": MAX_ITEMS},
        }[parameter.kind]
        properties[name] = {**schema, "description": parameter.description}
    return {
        "type": "object",
        "properties": properties,
        "required": list(tool.required),
        "additionalProperties": False,
    }


def make_call(tool: ServerTool, arguments: Any, folders: Sequence[str], *, allow_fix: bool) -> Call:
    """Return the command line for a call. Raise ArgumentError if the arguments are invalid.

    `folders` are the absolute, resolved folders below which files may be read.
    """
    parameters = _list_parameters(tool, allow_fix=allow_fix)
    _validate_arguments(arguments, tool, parameters)
    options: list[str] = []
    operands: list[str] = []
    stdin = b""
    for name, value in arguments.items():
        parameter = parameters[name]
        if parameter.kind == "boolean":
            if value and parameter.option:
                options.append(parameter.option)
            continue
        for text in value if parameter.kind == "array" else [value]:
            if parameter.role == "log":
                stdin = text.encode()
                continue
            word = _resolve_argument(name, text, parameter, folders)
            if parameter.option:
                options.append(f"{parameter.option}={word}")
            else:
                operands.append(word)
    timeout_s = CALL_TIMEOUT_S
    if tool.name == "diagnose" and bool(stdin) == bool(operands):
        raise ArgumentError("give either `text` or `file`.")
    if tool.name == "matrix" and not options:
        raise ArgumentError('give at least one condition, such as {"tf": "latest"}.')
    if tool.name == "lint" and not operands:
        operands.append(folders[0])
    if tool.name == "fix":
        if "--yes" in options and "--undo" in options:
            raise ArgumentError("`apply` and `undo` exclude each other.")
        if "--yes" in options or "--undo" in options:
            timeout_s = FIX_TIMEOUT_S
        else:
            options.append("--dry-run")
    if stdin:
        operands.append("-")
    return Call(
        words=(tool.name, "--json", *options, *(["--", *operands] if operands else [])),
        stdin=stdin,
        timeout_s=timeout_s,
        omitted_fields=() if arguments.get("details") else tool.large_fields,
    )


def _list_parameters(tool: ServerTool, *, allow_fix: bool) -> dict[str, Parameter]:
    """Return the parameters that exist for this user."""
    return {
        name: parameter
        for name, parameter in tool.parameters.items()
        if allow_fix or not parameter.needs_permission
    }


def _validate_arguments(arguments: Any, tool: ServerTool, parameters: Mapping[str, Parameter]) -> None:
    """Raise ArgumentError if the arguments do not match the schema of `make_input_schema`."""
    if not isinstance(arguments, dict):
        raise ArgumentError("the arguments are no object.")
    for name in tool.required:
        if name not in arguments:
            msg = f"`{name}` is missing."
            raise ArgumentError(msg)
    for name, value in arguments.items():
        parameter = parameters.get(name)
        if parameter is None:
            forbidden = tool.parameters.get(name)
            msg = (
                f"`{name}` is not allowed: the server was started without --allow-fix."
                if forbidden is not None
                else f"there is no parameter {name[:80]!r}; there are {', '.join(parameters)}."
            )
            raise ArgumentError(msg)
        if parameter.kind == "boolean":
            if not isinstance(value, bool):
                msg = f"`{name}` is true or false."
                raise ArgumentError(msg)
        elif parameter.kind == "array":
            if not isinstance(value, list) or len(value) > MAX_ITEMS:
                msg = f"`{name}` is a list of at most {MAX_ITEMS} texts."
                raise ArgumentError(msg)
            for item in value:
                _validate_text(name, item, parameter)
        else:
            _validate_text(name, value, parameter)


def _validate_text(name: str, value: Any, parameter: Parameter) -> None:
    """Raise ArgumentError if a value is not a text that can be an argument."""
    if not isinstance(value, str) or not value or len(value) > parameter.max_chars:
        msg = f"`{name}` is a text of 1 to {parameter.max_chars} characters."
        raise ArgumentError(msg)
    if parameter.role != "log" and "\0" in value:
        msg = f"`{name}` contains a null character."
        raise ArgumentError(msg)
    try:
        value.encode()
    except UnicodeEncodeError:
        msg = f"`{name}` contains half of a surrogate pair."
        raise ArgumentError(msg) from None
    if parameter.choices and value not in parameter.choices:
        msg = f"`{name}` is one of {', '.join(parameter.choices)}."
        raise ArgumentError(msg)


def _resolve_argument(name: str, text: str, parameter: Parameter, folders: Sequence[str]) -> str:
    """Return the word of the command line for a text. Raise ArgumentError if a path is not allowed.

    Relative paths start at the first allowed folder.
    """
    if parameter.role not in ("path", "recording", "python"):
        return text
    if parameter.role == "recording" and text.startswith(DEMO_PREFIX):
        return text
    path = os.path.normpath(os.path.join(folders[0], text))  # noqa: PTH118 - pathlib takes long to load
    resolved = _resolve_python(path) if parameter.role == "python" else os.path.realpath(path)
    if not any(os.path.commonpath([folder, resolved]) == folder for folder in folders):
        msg = (
            f"`{name}` lies outside the allowed folders ({', '.join(folders)}). "
            "The user can allow more: tfdoctor mcp --folder FOLDER"
        )
        raise ArgumentError(msg)
    if parameter.role == "python" and not _is_environment_python(resolved):
        msg = (
            f"`{name}` names no Python of a virtual or conda environment: its folder, or bin/python in that."
        )
        raise ArgumentError(msg)
    return resolved


def _resolve_python(path: str) -> str:
    """Return the path of the Python in the folder of an environment, or of the one that is named itself.

    Links are followed, except that of the Python itself: that of a virtual environment leads out.
    """
    found = next((name for name in INTERPRETER_PATHS if os.path.exists(f"{path}/{name}")), None)  # noqa: PTH110
    folder, name = os.path.split(f"{path}/{found}" if found is not None else path)
    return os.path.join(os.path.realpath(folder), name)  # noqa: PTH118


def _is_environment_python(path: str) -> bool:
    """Return whether a file is called Python, where it is and where its link leads, and lies in an environment."""
    names = (os.path.basename(path), os.path.basename(os.path.realpath(path)))  # noqa: PTH119
    folder = os.path.dirname(path)  # noqa: PTH120
    return all(_PYTHON_NAME.fullmatch(name) for name in names) and any(
        os.path.exists(f"{prefix}/{mark}")  # noqa: PTH110
        for prefix in (folder, os.path.dirname(folder))  # noqa: PTH120
        for mark in ("pyvenv.cfg", "conda-meta")
    )
