"""Serve tfdoctor's commands to a coding agent, over the Model Context Protocol on standard input and output.

`protocol` reads requests and writes responses, `tools` turns the arguments of a tool into a command line, and
`command` runs that command in a child process.
"""

from __future__ import annotations

from tfdoctor.cli.extensions import Extension

__all__ = ["EXTENSION"]

EXTENSION = Extension(
    summary="Serve these commands to a coding agent (MCP).",
    command="tfdoctor.extensions.mcp.command:mcp",
    run_without_typer="tfdoctor.extensions.mcp.command:run_mcp",
)
