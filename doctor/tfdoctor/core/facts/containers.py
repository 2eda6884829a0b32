"""Dataclasses for the facts about container engines and NVIDIA's container toolkit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.core.facts import Fact


@dataclass(frozen=True, slots=True)
class ContainerTool:
    """A command that starts containers."""

    name: str
    """The name: "docker", "podman", "nerdctl", "apptainer" or "singularity"."""
    path: str
    version: str | None
    """The version; None if it is not known, for example because Docker's engine does not respond."""
    snap: bool = False
    """Whether it was installed as a snap."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A low-level container runtime that an engine, or its configuration, lists."""

    name: str
    """The name in the engine's configuration, such as "runc" or "nvidia"."""
    path: str
    """The path or the command of its program; empty if the engine does not report it."""
    found: bool | None
    """Whether the program exists; None if this process cannot see it, because it is in a snap or a virtual machine."""


@dataclass(frozen=True, slots=True)
class DockerEngine:
    """The parts of the output of `docker info` that matter for GPUs."""

    version: str | None
    runtimes: tuple[Runtime, ...]
    default_runtime: str | None
    rootless: bool
    snap: bool
    """Whether the engine is a snap, which has its own file system."""
    desktop: bool
    """Whether it is Docker Desktop, whose engine runs in a virtual machine."""
    cgroup_version: str | None
    cgroup_driver: str | None
    """"systemd" or "cgroupfs"."""
    storage_driver: str | None
    cdi_folders: tuple[str, ...]
    """The folders in which it looks for CDI specifications; empty if CDI is off or not supported."""

    def find_runtime(self, name: str) -> Runtime | None:
        """Return the runtime with this name; None if there is none."""
        return next((runtime for runtime in self.runtimes if runtime.name == name), None)


@dataclass(frozen=True, slots=True)
class UnreachableEngine:
    """A Docker engine that did not respond, or to which no request was sent."""

    kind: str
    """The problem: "permission", "not-running", "no-socket", "no-client", "remote", "context", "timeout", "other"."""
    text: str
    """The error message, or the reason why no request was sent."""
    group: str | None = None
    """The group that owns the socket, if `kind` is "permission"."""


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """An engine's daemon.json."""

    path: str
    problem: str
    """The reason why the file is not a valid JSON object; empty if it is valid."""
    runtimes: tuple[Runtime, ...] = ()
    default_runtime: str | None = None


@dataclass(frozen=True, slots=True)
class ToolkitConfig:
    """The settings in /etc/nvidia-container-runtime/config.toml. A setting that is not in it is None."""

    path: str
    problem: str = ""
    """The reason why the file is not valid TOML; empty if it is valid."""
    mode: str | None = None
    """The mode of the runtime: "auto", "legacy", "cdi", "csv", "jit-cdi"."""
    no_cgroups: bool | None = None
    skip_mode_detection: bool | None = None


@dataclass(frozen=True, slots=True)
class ContainerToolkit:
    """NVIDIA's container toolkit on this file system."""

    version: str | None
    executables: tuple[tuple[str, str], ...]
    """The commands that were found, as (command, path): "nvidia-ctk", "nvidia-container-runtime-hook", …"""
    config: Fact[ToolkitConfig]
    hooks: tuple[str, ...] = ()
    """NVIDIA's OCI hook files, which gave GPUs to Podman before CDI existed."""

    def has_command(self, name: str) -> bool:
        """Return whether the command was found."""
        return any(command == name for command, _ in self.executables)


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """A file in a CDI folder, compared with the host files that it names."""

    path: str
    problem: str = ""
    """The reason why the file cannot be read or parsed; empty if it can. The other fields are then empty."""
    kind: str = ""
    """The kind of its devices, such as "nvidia.com/gpu"."""
    version: str = ""
    """The value of cdiVersion."""
    devices: tuple[str, ...] = ()
    """The names of its devices, such as "0" and "all"."""
    missing: tuple[str, ...] = ()
    """Device nodes, libraries and programs in it that do not exist."""
    driver_version: str | None = None
    """The driver version in the name of the libcuda that it passes to containers; None if it names none."""


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """The container engines on this machine, and their configuration."""

    tools: tuple[ContainerTool, ...]
    docker: Fact[DockerEngine | UnreachableEngine]
    endpoint: str
    """The address that Docker's client would connect to: "unix:///var/run/docker.sock"."""
    context: str | None
    """The selected Docker context; None if it is the default one."""
    daemon_config: Fact[DaemonConfig]
    toolkit: Fact[ContainerToolkit]
    cdi: tuple[CdiSpec, ...]
    """The specifications for NVIDIA's devices: those in /etc/cdi, in /var/run/cdi, and in other folders of the engine."""

    def find_tool(self, *names: str) -> ContainerTool | None:
        """Return the first of the named tools that is installed; None if none is."""
        return next((tool for name in names for tool in self.tools if tool.name == name), None)
