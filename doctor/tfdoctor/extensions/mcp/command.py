"""The `tfdoctor mcp` command: a server that runs other commands of tfdoctor for a client."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Annotated, Any

import tfdoctor
from tfdoctor.cli.options import command, option
from tfdoctor.compat.folder import data_dir
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.mcp.protocol import INVALID_PARAMS, PROTOCOL_VERSIONS, ProtocolError, serve
from tfdoctor.extensions.mcp.tools import TOOLS, ArgumentError, make_call, make_input_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.extensions.mcp.tools import Call, ServerTool
    from tfdoctor.system.children import Children

__all__ = ["mcp", "run_mcp"]

INSTRUCTIONS = (
    "tfdoctor finds out why TensorFlow does not use an NVIDIA GPU. Start with `check` on this machine, or `diagnose` with "
    "a log. The first finding is the root cause; its remedies have the commands. A value that is `null` could not be "
    "determined: do not guess it. Nothing is changed and nothing is sent."
)
RUN_CODE = (
    "import sys; sys.path.append(sys.argv.pop(1)); sys.argv[0] = 'tfdoctor'; "
    "from tfdoctor.__main__ import run; run()"
)
"""Code that runs tfdoctor as this process imported it, even from a folder that is not installed."""
LOADER_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")


@command("tfdoctor mcp", "tfdoctor mcp --folder ~/project")
def mcp(
    folder: Annotated[
        list[str] | None,
        option(
            "Read only files below this folder (repeatable). Default: the working folder.", metavar="FOLDER"
        ),
    ] = None,
    allow_fix: Annotated[
        bool, option("Let the client make and undo the changes of `fix`.", "--allow-fix")
    ] = False,
) -> int:
    """Serve the tools check, diagnose, explain, recommend, matrix, lint and fix on standard input and output.

    The client starts this command itself. `fix` only shows what it would change, unless --allow-fix is given.
    """
    folders = [os.path.realpath(name) for name in folder or ["."]]
    for name in folders:
        if not os.path.isdir(name):  # noqa: PTH112 - pathlib takes long to load
            msg = f"--folder: there is no folder {clean_line(name)}."
            raise UsageError(msg)
    server = _Server(folders, allow_fix=allow_fix)
    serve(
        sys.stdin.buffer,
        sys.stdout.buffer,
        {
            "initialize": _initialize,
            "ping": lambda _: {},
            "tools/list": lambda _: {"tools": [server.describe_tool(tool) for tool in TOOLS.values()]},
        },
        server.call_tool,
    )
    return ExitCode.OK


def run_mcp(words: Sequence[str]) -> int | None:
    """Run the command, and return its exit status. Return None if Typer must parse the words."""
    folders: list[str] = []
    allow_fix = False
    remaining = iter(words[1:])
    for word in remaining:
        if word == "--allow-fix":
            allow_fix = True
        elif word.startswith("--folder="):
            folders.append(word.removeprefix("--folder="))
        elif word == "--folder":
            folders.append(next(remaining, ""))
        else:
            return None
    return None if "" in folders else mcp(folder=folders, allow_fix=allow_fix)


def _initialize(params: Any) -> Any:
    """Return the version of the protocol that both sides speak, and what the server can do."""
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "tfdoctor", "title": "tfdoctor", "version": tfdoctor.__version__},
        "instructions": INSTRUCTIONS,
    }


class _Server:
    """The tools, with what the user allows."""

    def __init__(self, folders: Sequence[str], *, allow_fix: bool) -> None:
        self._folders = folders
        self._allow_fix = allow_fix

    def describe_tool(self, tool: ServerTool) -> dict[str, Any]:
        """Return the entry of a tool for `tools/list`."""
        changes = self._allow_fix and tool.name == "fix"
        return {
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": make_input_schema(tool, allow_fix=self._allow_fix),
            "outputSchema": _load_output_schema(tool),
            "annotations": {
                "title": tool.title,
                "readOnlyHint": not changes,
                "destructiveHint": changes,
                "idempotentHint": True,
                "openWorldHint": changes,
            },
        }

    def call_tool(self, params: Any, children: Children) -> dict[str, Any]:
        """Run a tool in `children` and return its result. Raise ProtocolError if there is no such tool."""
        name = params.get("name")
        tool = TOOLS.get(name) if isinstance(name, str) else None
        if tool is None:
            raise ProtocolError(INVALID_PARAMS, f"there is no such tool; there are {', '.join(TOOLS)}.")
        try:
            call = make_call(tool, params.get("arguments", {}), self._folders, allow_fix=self._allow_fix)
        except ArgumentError as error:
            return _make_error_result(str(error))
        return _run_call(call, children)


def _load_output_schema(tool: ServerTool) -> dict[str, Any]:
    """Return the schema of a tool's document, in which the fields that are usually left out are optional."""
    path = data_dir("schemas") / f"{tool.name}.schema.json"
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    schema["type"] = "object"  # the protocol requires it beside `anyOf`, too
    if tool.large_fields:
        schema["required"] = [name for name in schema["required"] if name not in tool.large_fields]
    return schema


def _make_error_result(message: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _run_call(call: Call, children: Children) -> dict[str, Any]:
    """Run the command in a child process, and return its document as the result."""
    python_options = ["-I", "-S"] if sys.flags.no_site else ["-I"]
    package_parent = os.path.dirname(os.path.dirname(tfdoctor.__file__))  # noqa: PTH120 - pathlib takes long to load
    with tempfile.TemporaryFile() as stdin:
        stdin.write(call.stdin)
        stdin.seek(0)
        try:
            result = children.run(
                [sys.executable, *python_options, "-c", RUN_CODE, package_parent, *call.words],
                timeout=call.timeout_s,
                env=_move_loader_variables(os.environ),
                stdin=stdin,
            )
        except (OSError, ValueError) as error:
            return _make_error_result(f"tfdoctor could not be started: {clean_line(str(error))}.")
    if result.returncode is None:
        return _make_error_result(f"stopped after {call.timeout_s:.0f} seconds.")
    try:
        document = json.loads(result.stdout)
    except ValueError:
        message = clean_line(result.stderr.decode("utf-8", "replace"), limit=1000)
        return _make_error_result(f"no answer (exit status {result.returncode}): {message}")
    if "error" in document:
        sentences = (document["error"]["message"], document["error"]["hint"])
        return _make_error_result(" ".join(filter(None, sentences)))
    for name in call.omitted_fields:
        document.pop(name, None)
    text = json.dumps(document, separators=(",", ":"))
    return {"content": [{"type": "text", "text": text}], "structuredContent": document, "isError": False}


def _move_loader_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with those of the dynamic loader in TFDOCTOR_LOADER (see `tfdoctor.__main__`).

    The child then examines them exactly as they are, and does not load libraries from their folders itself.
    """
    variables = {name: text for name, text in env.items() if name not in LOADER_VARIABLES}
    if moved := [f"{name}={env[name]}" for name in LOADER_VARIABLES if name in env]:
        variables["TFDOCTOR_LOADER"] = "\n".join(moved)
    return variables
