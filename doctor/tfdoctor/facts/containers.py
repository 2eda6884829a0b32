"""The facts about container engines and NVIDIA's container toolkit."""

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
    """None if it did not report one, or if it was not asked: Docker's client reports its version with the
    engine's."""
    snap: bool = False


@dataclass(frozen=True, slots=True)
class Runtime:
    """A low-level container runtime, as an engine or its configuration names it."""

    name: str
    """"runc", "nvidia"."""
    path: str
    """A path as written, or a command that the engine looks up; "" if the engine does not report it."""
    found: bool | None
    """Whether that file exists; None if it cannot be examined from here (a snap, a virtual machine)."""


@dataclass(frozen=True, slots=True)
class DockerEngine:
    """The parts of `docker info` that matter for GPUs."""

    version: str | None
    runtimes: tuple[Runtime, ...]
    default_runtime: str | None
    rootless: bool
    snap: bool
    """Whether the engine itself is a snap, which has its own file system."""
    desktop: bool
    """Whether it is Docker Desktop, whose engine runs in a virtual machine."""
    cgroup_version: str | None
    cgroup_driver: str | None
    """"systemd" or "cgroupfs"."""
    storage_driver: str | None
    cdi_folders: tuple[str, ...]
    """The folders in which it looks for CDI specifications; empty if CDI is off or not supported."""

    def runtime(self, name: str) -> Runtime | None:
        return next((runtime for runtime in self.runtimes if runtime.name == name), None)


@dataclass(frozen=True, slots=True)
class EngineSilence:
    """A Docker engine that did not answer or was not asked."""

    kind: str
    """"permission", "not-running", "no-socket", "no-client", "remote", "context", "timeout", "other"."""
    text: str
    """Its error message, or the reason why it was not asked."""
    group: str | None = None
    """The group that owns the socket, if `kind` is "permission"."""


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """An engine's daemon.json."""

    path: str
    problem: str
    """Why the file is not a valid JSON object; empty if it is one."""
    runtimes: tuple[Runtime, ...] = ()
    default_runtime: str | None = None


@dataclass(frozen=True, slots=True)
class ToolkitConfig:
    """/etc/nvidia-container-runtime/config.toml; None: not set, or only in a comment."""

    path: str
    problem: str = ""
    """Why the file is not valid TOML; empty if it is."""
    mode: str | None = None
    """"auto", "legacy", "cdi", "csv", "jit-cdi"."""
    no_cgroups: bool | None = None
    skip_mode_detection: bool | None = None


@dataclass(frozen=True, slots=True)
class ContainerToolkit:
    """NVIDIA's container toolkit on this file system."""

    version: str | None
    executables: tuple[tuple[str, str], ...]
    """(command, path) of each command that was found: "nvidia-ctk", "nvidia-container-runtime-hook", …"""
    config: Fact[ToolkitConfig]
    hooks: tuple[str, ...] = ()
    """OCI hook files that name NVIDIA, which gave GPUs to Podman before CDI existed."""

    def has(self, name: str) -> bool:
        """Return whether the command was found."""
        return any(command == name for command, _ in self.executables)


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """A file in a CDI folder, compared with the host files that it names."""

    path: str
    problem: str = ""
    """Why it could not be read or parsed; the other fields then have no values. Empty if it could."""
    kind: str = ""
    """"nvidia.com/gpu"."""
    version: str = ""
    """The value of cdiVersion."""
    devices: tuple[str, ...] = ()
    """The names of its devices: "0", "all"."""
    missing: tuple[str, ...] = ()
    """Device nodes, libraries and programs that it names and that do not exist."""
    driver_version: str | None = None
    """The version in the name of the libcuda that it passes to containers."""


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """The container engines that could give this machine's GPUs to containers, and their configuration."""

    tools: tuple[ContainerTool, ...]
    docker: Fact[DockerEngine | EngineSilence]
    endpoint: str
    """The address that Docker's client would connect to: "unix:///var/run/docker.sock"."""
    context: str | None
    """The selected Docker context; None if it is the default one."""
    daemon_config: Fact[DaemonConfig]
    toolkit: Fact[ContainerToolkit]
    cdi: tuple[CdiSpec, ...]
    """The specifications for NVIDIA's devices, those of /etc/cdi first, then /var/run/cdi, then the engine's
    own."""

    def tool(self, *names: str) -> ContainerTool | None:
        """Return the first of the named tools that was found, else None."""
        return next((tool for name in names for tool in self.tools if tool.name == name), None)
