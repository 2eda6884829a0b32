"""Use a server as a coding agent does, with the package `mcp`: the name of the server's program, then its arguments.

Python 3.10 or newer, in an environment of its own: tfdoctor is not in it. It prints the cause of each machine and log,
and exits with 1 if one is wrong. The package itself validates each answer against the schema of its tool.
"""

from __future__ import annotations

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

MACHINES = {
    "healthy-one-gpu": "healthy",
    "plain-pip-install": "libs-not-installed",
    "updated-without-restart": "driver-lib-mismatch",
    "two-other-cudas": "libs-wrong-version",
    "container-without-gpu": "container-no-gpu",
}
LOGS = {
    "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: "
    "No such file or directory\nSkipping registering GPU devices...": "libs-not-installed",
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected": "no-device",
    "failed call to cuInit: UNKNOWN ERROR (303)": "no-driver",
    "failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver "
    "combination": "driver-lib-mismatch",
    "Epoch 1/10": "inconclusive",
}
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
        cases = [
            *(("check", {"recording": f"demo:{name}"}, cause) for name, cause in MACHINES.items()),
            *(("diagnose", {"text": text}, cause) for text, cause in LOGS.items()),
        ]
        for tool, arguments_of_call, cause in cases:
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
