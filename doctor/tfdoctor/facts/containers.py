"""What was seen of container engines and of NVIDIA's container toolkit: frozen, without judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.facts import Fact


@dataclass(frozen=True, slots=True)
class ContainerTool:
    """A command that starts containers."""

    name: str
    """"docker", "podman", "nerdctl", "apptainer", "singularity"."""
    path: str
    version: str | None
    """None where it did not say, or was not asked: Docker's client says its own with the engine's answer."""
    snap: bool = False


@dataclass(frozen=True, slots=True)
class Runtime:
    """A low-level runtime as an engine or its configuration names it."""

    name: str
    """"runc", "nvidia"."""
    path: str
    """As written: a path, or a command that the engine looks for; "" where the engine does not say."""
    found: bool | None
    """Whether that file is there; None where it cannot be known from here (a snap, a virtual machine)."""


@dataclass(frozen=True, slots=True)
class DockerEngine:
    """`docker info`, as far as GPUs are concerned."""

    version: str | None
    runtimes: tuple[Runtime, ...]
    default_runtime: str | None
    rootless: bool
    snap: bool
    """The engine itself comes from a snap, and sees its own file system."""
    desktop: bool
    """Docker Desktop: the engine is in a virtual machine."""
    cgroup_version: str | None
    cgroup_driver: str | None
    """"systemd" or "cgroupfs"."""
    storage_driver: str | None
    cdi_folders: tuple[str, ...]
    """Where it looks for CDI specifications; empty where CDI is off or the engine does not know it."""

    def runtime(self, name: str) -> Runtime | None:
        return next((runtime for runtime in self.runtimes if runtime.name == name), None)


@dataclass(frozen=True, slots=True)
class EngineSilence:
    """Docker is there, and its engine did not answer or was not asked."""

    kind: str
    """"permission", "not-running", "no-socket", "no-client", "remote", "context", "timeout", "other"."""
    text: str
    """What it said, or why it was not asked."""
    group: str | None = None
    """"permission": the group that the socket belongs to."""


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """An engine's daemon.json."""

    path: str
    problem: str
    """Why it is not the JSON object that it must be; empty where it is."""
    runtimes: tuple[Runtime, ...] = ()
    default_runtime: str | None = None


@dataclass(frozen=True, slots=True)
class ToolkitConfig:
    """/etc/nvidia-container-runtime/config.toml; None: not set, or only in a comment."""

    path: str
    problem: str = ""
    """Why it is not TOML; empty where it is."""
    mode: str | None = None
    """"auto", "legacy", "cdi", "csv", "jit-cdi"."""
    no_cgroups: bool | None = None
    skip_mode_detection: bool | None = None


@dataclass(frozen=True, slots=True)
class ContainerToolkit:
    """NVIDIA's container toolkit on this file system."""

    version: str | None
    executables: tuple[tuple[str, str], ...]
    """(command, path) of those found: "nvidia-ctk", "nvidia-container-runtime-hook", …"""
    config: Fact[ToolkitConfig]
    hooks: tuple[str, ...] = ()
    """OCI hook files that name NVIDIA: how Podman was given GPUs before CDI."""

    def has(self, name: str) -> bool:
        return any(command == name for command, _ in self.executables)


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """One file of a CDI folder, looked through for what it names on the host."""

    path: str
    problem: str = ""
    """Why it could not be read or understood; then nothing below is known."""
    kind: str = ""
    """"nvidia.com/gpu"."""
    version: str = ""
    """cdiVersion."""
    devices: tuple[str, ...] = ()
    """Their names: "0", "all"."""
    missing: tuple[str, ...] = ()
    """Device nodes, libraries and programs that it names and that are not there (any more)."""
    driver_version: str | None = None
    """The version in the name of the libcuda that it lends."""


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """Everything about engines that could give this machine's GPUs to containers."""

    tools: tuple[ContainerTool, ...]
    docker: Fact[DockerEngine | EngineSilence]
    endpoint: str
    """Where Docker's client would connect: "unix:///var/run/docker.sock"."""
    context: str | None
    """Docker's context, where another than the default one is chosen."""
    daemon_config: Fact[DaemonConfig]
    toolkit: Fact[ContainerToolkit]
    cdi: tuple[CdiSpec, ...]
    """Specifications for NVIDIA's devices; in the order of /etc/cdi, /var/run/cdi, then the engine's own."""

    def tool(self, *names: str) -> ContainerTool | None:
        return next((tool for name in names for tool in self.tools if tool.name == name), None)
