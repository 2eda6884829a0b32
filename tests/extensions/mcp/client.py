"""Use a server as a coding agent does, with the package `mcp`: the name of the server's program, then its arguments.

Python 3.10 or newer, in an environment of its own: tfdoctor is not in it. Standard input has the calls as JSON, a list
of [tool, arguments, expected cause]. It prints the cause that each call returns, and exits with 1 if one is wrong. The
package itself validates each answer against the schema of its tool.
"""

from __future__ import annotations

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

TOOLS = {"check", "diagnose", "explain", "recommend", "matrix", "lint", "fix"}


async def use_server(program: str, arguments: list[str]) -> int:
    """Return the number of wrong answers."""
    wrong = 0
    async with (
        stdio_client(StdioServerParameters(command=program, args=arguments)) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        names = {tool.name for tool in (await session.list_tools()).tools}
        wrong += names != TOOLS
        for tool, arguments_of_call, cause in json.load(sys.stdin):
            result = (await session.call_tool(tool, arguments_of_call)).model_dump(by_alias=True)
            answer = (result["structuredContent"] or {}).get("verdict", {}).get("cause")
            wrong += answer != cause
            print(
                f"{tool} {str(arguments_of_call)[:60]}: {answer}"
                + ("" if answer == cause else f", not {cause}")
            )
        refused = await session.call_tool("diagnose", {"file": "/etc/passwd"})
        wrong += not refused.model_dump(by_alias=True)["isError"]
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, asyncio.run(use_server(sys.argv[1], sys.argv[2:]))))
