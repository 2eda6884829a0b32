"""Container engines: build, run, pull, inspect. The only package that imports the Docker SDK.

It talks to Docker's own socket and to Podman's, which speaks the same protocol. Every container that it starts is
stopped and removed again, even after an error or Ctrl-C.
"""

from tfdoctor.engine.building import BuildEvent, BuildFailedError, BuildRequest, build
from tfdoctor.engine.connection import ContainerEngine, EngineError, connect
from tfdoctor.engine.container_run import GpuAccess, RunRequest, RunResult, run
from tfdoctor.engine.registry import RegistryAnswer, ask_registry

__all__ = [
    "BuildEvent",
    "BuildFailedError",
    "BuildRequest",
    "ContainerEngine",
    "EngineError",
    "GpuAccess",
    "RegistryAnswer",
    "RunRequest",
    "RunResult",
    "ask_registry",
    "build",
    "connect",
    "run",
]
