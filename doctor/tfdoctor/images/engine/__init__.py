"""Container engine operations: build, run, pull and inspect. No other package imports the Docker SDK.

The SDK connects to the socket of Docker, or to that of Podman, which supports the same protocol. Every container that is
started here is stopped and removed, even after an error or Ctrl-C.
"""

from tfdoctor.images.engine.building import BuildEvent, BuildFailedError, BuildRequest, build
from tfdoctor.images.engine.connection import ContainerEngine, EngineError, connect
from tfdoctor.images.engine.container_run import GpuAccess, RunRequest, RunResult, run
from tfdoctor.images.engine.registry import RegistryReply, query_registry

__all__ = [
    "BuildEvent",
    "BuildFailedError",
    "BuildRequest",
    "ContainerEngine",
    "EngineError",
    "GpuAccess",
    "RegistryReply",
    "RunRequest",
    "RunResult",
    "build",
    "connect",
    "query_registry",
    "run",
]
