"""Probe container engines and NVIDIA's container toolkit.

No engine is started, and nothing is sent to another machine. Docker is queried through its own client, but only if the
client connects to the local socket of a running engine. For Podman, Apptainer and similar tools only the version is
queried: they have no running engine, and `podman info` would create folders.
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import TYPE_CHECKING, Any

from tfdoctor.core import engine_output as parse
from tfdoctor.core.facts import Absent, Fact, Known, Unknown
from tfdoctor.core.facts.containers import (
    CdiSpec,
    ContainerFacts,
    ContainerTool,
    ContainerToolkit,
    DaemonConfig,
    DockerEngine,
    Runtime,
    ToolkitConfig,
    UnreachableEngine,
)
from tfdoctor.core.text import clean_line
from tfdoctor.probes.files import list_names
from tfdoctor.probes.parsers.cdi import CdiError, parse_cdi
from tfdoctor.system import Failure
from tfdoctor.system.contexts import find_endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.system import CommandResult, System

INFO_COMMAND = "docker info"
"""The command that queries Docker, as shown in messages."""
VERSIONED_TOOLS = ("podman", "nerdctl", "apptainer", "singularity")
"""The tools besides Docker, whose versions are queried with `--version`."""
SERVICE_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""The usual PATH of a service: engines search it for runtimes and hooks, regardless of the user's PATH."""
TOOLKIT_FOLDERS = (*SERVICE_PATH, "/usr/local/nvidia/toolkit", "/run/current-system/sw/bin")
TOOLKIT_EXECUTABLES = (
    "nvidia-ctk",
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-cdi-hook",
    "nvidia-container-cli",
    "nvidia-container-toolkit",
    "nvidia-docker",
    "nvidia-docker-plugin",
)
"""The commands of NVIDIA's container toolkit, in its present and earlier versions."""
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
HOOK_FOLDERS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
MAX_FILES = 40
"""The maximum number of files that are read in one folder."""
MAX_SPEC_BYTES = 2 << 20
"""The size in bytes from which a CDI specification is not read."""
UNITS_FOLDER = "/run/systemd/units"
"""A folder in which systemd has an entry for each active unit."""


def probe(system: System, *, timeout: float) -> Fact[ContainerFacts]:
    """Return the facts about container engines. `timeout` is the time limit in seconds for each command."""
    if system.platform.get("system") != "Linux":
        return Absent("container engines", "they are looked at on Linux only")
    toolkit = _probe_toolkit(system, timeout)
    tools = _list_tools(system, timeout, query_versions=isinstance(toolkit, Known))
    endpoint, context = find_endpoint(system)
    docker = next((tool for tool in tools if tool.name == "docker"), None)
    docker_fact, client_version = _probe_docker(system, docker, endpoint, timeout)
    if docker is not None and client_version is not None:
        docker_with_version = ContainerTool(docker.name, docker.path, client_version, docker.snap)
        tools = tuple(docker_with_version if tool is docker else tool for tool in tools)
    engine = docker_fact.value if isinstance(docker_fact, Known) else None
    folders: tuple[str, ...] = ()
    if isinstance(engine, DockerEngine) and not engine.snap and not engine.desktop:
        folders = engine.cdi_folders  # only these engines use the file system of this machine
    return Known(
        ContainerFacts(
            tools=tools,
            docker=docker_fact,
            endpoint=clean_line(endpoint),
            context=clean_line(context) if context else None,
            daemon_config=_probe_daemon_config(system, docker_fact, docker, endpoint),
            toolkit=toolkit,
            cdi=_list_cdi_specs(system, (*CDI_FOLDERS, *folders)),
        ),
        "the commands and folders of container engines",
    )


# ---------------------------------------------------------------- commands


def _list_tools(system: System, timeout: float, *, query_versions: bool) -> tuple[ContainerTool, ...]:
    """Return the container tools on PATH.

    `query_versions` says whether to query their versions, which matter only if NVIDIA's toolkit is installed.
    """
    tools: list[ContainerTool] = []
    for name in ("docker", *VERSIONED_TOOLS):
        path = system.which(name)
        if path is None or (name == "docker" and _is_podman(system, path)):
            continue
        if name == "singularity" and any(tool.name == "apptainer" for tool in tools):
            continue  # Apptainer installs the old name as a link to itself
        is_snap = path.startswith("/snap/") or system.realpath(path) == "/usr/bin/snap"
        version = None
        if query_versions and name in VERSIONED_TOOLS:
            result = system.run([path, "--version"], timeout=timeout, key=f"{name} --version")
            version = parse.find_version(result.stdout) if result.ok else None
        tools.append(ContainerTool(name, path, version, is_snap))
    return tuple(tools)


def _is_podman(system: System, path: str) -> bool:
    """Return whether this `docker` command is Podman, which the package podman-docker installs."""
    podman = system.which("podman")
    if podman is None:
        return False
    if system.realpath(path) == system.realpath(podman):
        return True
    with contextlib.suppress(OSError):
        head = system.read_text(path, limit=600)
        return head.startswith("#!") and "podman" in head
    return False


def _can_find_command(system: System, command: str) -> bool | None:
    """Return whether an engine can find a command: a path or a name. None if that is not known."""
    if not command:
        return None
    if command.startswith("/"):
        return system.exists(command) or (False if _is_certainly_missing(system, command) else None)
    return system.which(command) is not None or any(
        system.exists(f"{folder}/{command}") for folder in SERVICE_PATH
    )


def _is_certainly_missing(system: System, path: str) -> bool:
    """Return whether a path certainly does not exist.

    This is certain if a parent folder can be listed and lacks the next name in the path.
    """
    while path not in ("", "/"):
        parent, name = posixpath.split(path)
        if system.is_dir(parent):
            try:
                return name not in system.listdir(parent)
            except OSError:
                return False
        path = parent
    return False


# ---------------------------------------------------------------- Docker


def _probe_docker(
    system: System, docker: ContainerTool | None, endpoint: str, timeout: float
) -> tuple[Fact[DockerEngine | UnreachableEngine], str | None]:
    """Return (fact about the engine, version of the client or None)."""
    socket = endpoint.removeprefix("unix://") if endpoint.startswith("unix://") else None
    has_socket = socket is not None and system.exists(socket)

    def make_unreachable(
        kind: str, text: str, group: str | None = None
    ) -> Known[DockerEngine | UnreachableEngine]:
        return Known(UnreachableEngine(kind, clean_line(text), group), INFO_COMMAND)

    if docker is None:
        if has_socket:
            return make_unreachable("no-client", f"{socket} is there and no docker command is on PATH"), None
        return Absent(INFO_COMMAND, "there is no Docker"), None
    if not endpoint:
        return make_unreachable("context", "the chosen context is not there or names no endpoint"), None
    if socket is None:
        return make_unreachable("remote", f"the client is set to {endpoint}, which is not asked"), None
    if not has_socket:
        is_missing = _is_certainly_missing(system, socket)
        return make_unreachable(
            "no-socket" if is_missing else "other",
            f"{socket} {'is not there' if is_missing else 'cannot be seen'}",
        ), None
    if socket in ("/var/run/docker.sock", "/run/docker.sock") and _would_query_start_engine(system):
        return make_unreachable(
            "not-running", "the engine is stopped; systemd starts it at the first use"
        ), None
    result = system.run([docker.path, "info", "--format", "{{json .}}"], timeout=timeout, key=INFO_COMMAND)
    info = parse.parse_info(result.stdout) or {}
    client_version = parse.text_or_none(parse.table_or_empty(info.get("ClientInfo")).get("Version"))
    if parse.text_or_none(info.get("ServerVersion")):
        return Known(_make_engine(system, info), INFO_COMMAND), client_version
    if result.failure is Failure.TIMEOUT:
        return make_unreachable("timeout", f"`{INFO_COMMAND}` {result.describe_outcome()}"), client_version
    output = "\n".join((result.stderr, *parse.list_strings(info.get("ServerErrors"))))
    kind = parse.classify_failure(output)
    group = _find_group(system, socket, timeout) if kind == "permission" else None
    return make_unreachable(kind, _get_first_line(output, result), group), client_version


def _get_first_line(output: str, result: CommandResult) -> str:
    """Return the first line of an error message, or else a description of how the command ended."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return (
        lines[0] if lines else f"`{INFO_COMMAND}` {result.describe_outcome()} and said nothing of an engine"
    )


def _would_query_start_engine(system: System) -> bool:
    """Return whether systemd listens on the socket of a stopped engine, so that a query would start it."""
    units = list_names(system, UNITS_FOLDER)
    return "invocation:docker.socket" in units and "invocation:docker.service" not in units


def _find_group(system: System, path: str, timeout: float) -> str | None:
    """Return the name of the group that owns a file, or None if it is not known."""
    result = system.run(["stat", "-L", "-c", "%G", path], timeout=timeout, key="stat docker.sock")
    return clean_line(result.stdout, limit=64) or None if result.ok else None


def _make_engine(system: System, info: dict[str, Any]) -> DockerEngine:
    """Return the facts about an engine from the output of `docker info`."""
    root = parse.text_or_none(info.get("DockerRootDir")) or ""
    system_name = parse.text_or_none(info.get("OperatingSystem")) or ""
    is_snap = root.startswith("/var/snap/")
    is_desktop = "Docker Desktop" in system_name
    return DockerEngine(
        version=parse.text_or_none(info.get("ServerVersion")),
        runtimes=_list_runtimes(system, info.get("Runtimes"), is_opaque=is_snap or is_desktop),
        default_runtime=parse.text_or_none(info.get("DefaultRuntime")),
        rootless=any(
            option.startswith("name=rootless") for option in parse.list_strings(info.get("SecurityOptions"))
        ),
        snap=is_snap,
        desktop=is_desktop,
        cgroup_version=parse.text_or_none(info.get("CgroupVersion")),
        cgroup_driver=parse.text_or_none(info.get("CgroupDriver")),
        storage_driver=parse.text_or_none(info.get("Driver")),
        cdi_folders=parse.list_strings(info.get("CDISpecDirs")),
    )


def _list_runtimes(system: System, runtimes: Any, *, is_opaque: bool) -> tuple[Runtime, ...]:
    """Return the runtimes in `docker info` or daemon.json, which have the form {name: {"path": …}}.

    If `is_opaque` is true, the engine has another file system, so it is unknown whether it finds their commands.
    """
    parsed_runtimes = []
    for name, value in sorted(parse.table_or_empty(runtimes).items()):
        path = parse.text_or_none(parse.table_or_empty(value).get("path")) or ""
        parsed_runtimes.append(
            Runtime(
                clean_line(name), clean_line(path), None if is_opaque else _can_find_command(system, path)
            )
        )
    return tuple(parsed_runtimes)


def _probe_daemon_config(
    system: System,
    docker_fact: Fact[DockerEngine | UnreachableEngine],
    docker: ContainerTool | None,
    endpoint: str,
) -> Fact[DaemonConfig]:
    """Return the settings in the daemon.json that the engine reads."""
    engine = (
        docker_fact.value
        if isinstance(docker_fact, Known) and isinstance(docker_fact.value, DockerEngine)
        else None
    )
    # If the engine did not answer, its client and its address tell how it is installed.
    is_snap = engine.snap if engine is not None else docker is not None and docker.snap
    is_rootless = engine.rootless if engine is not None else endpoint.startswith("unix:///run/user/")
    path = "/etc/docker/daemon.json"
    if engine is not None and engine.desktop:
        return Absent(path, "Docker Desktop's engine does not read it")
    if is_snap:
        path = "/var/snap/docker/current/config/daemon.json"
    elif is_rootless:
        home = system.env.get("XDG_CONFIG_HOME") or f"{system.env.get('HOME', '')}/.config"
        path = f"{home}/docker/daemon.json"
    try:
        text = system.read_text(path)
    except FileNotFoundError:
        return Absent(path, "there is none")
    except OSError as error:
        return Unknown(f"{path}: {error.strerror or error}", path)
    document, problem = parse.parse_daemon_json(text)
    return Known(
        DaemonConfig(
            path=path,
            problem=clean_line(problem),
            runtimes=_list_runtimes(system, document.get("runtimes"), is_opaque=is_snap),
            default_runtime=parse.text_or_none(document.get("default-runtime")),
        ),
        path,
    )


# ---------------------------------------------------------------- NVIDIA's container toolkit


def _probe_toolkit(system: System, timeout: float) -> Fact[ContainerToolkit]:
    """Return the commands, the version, the settings and the hooks of NVIDIA's container toolkit."""
    executables: list[tuple[str, str]] = []
    for name in TOOLKIT_EXECUTABLES:
        candidates = (f"{folder}/{name}" for folder in TOOLKIT_FOLDERS)
        path = system.which(name) or next(filter(system.exists, candidates), None)
        if path is not None:
            executables.append((name, path))
    hooks = _list_hooks(system)
    if not executables and not hooks:
        return Absent("NVIDIA's container toolkit", "none of its commands is on PATH or in the usual folders")
    paths = dict(executables)
    version = None
    for name in ("nvidia-ctk", "nvidia-container-cli"):
        if name in paths and version is None:
            result = system.run([paths[name], "--version"], timeout=timeout, key=f"{name} --version")
            version = parse.find_version(result.stdout) if result.ok else None
    return Known(
        ContainerToolkit(version, tuple(executables), _probe_toolkit_config(system), hooks),
        executables[0][1] if executables else hooks[0],
    )


def _probe_toolkit_config(system: System) -> Fact[ToolkitConfig]:
    """Return the settings in the configuration file of NVIDIA's container runtime."""
    try:
        text = system.read_text(TOOLKIT_CONFIG)
    except FileNotFoundError:
        return Absent(TOOLKIT_CONFIG, "there is none: its defaults hold")
    except OSError as error:
        return Unknown(f"{TOOLKIT_CONFIG}: {error.strerror or error}", TOOLKIT_CONFIG)
    tables, problem = parse.parse_toolkit_toml(text)
    return Known(
        ToolkitConfig(
            path=TOOLKIT_CONFIG,
            problem=clean_line(problem),
            mode=parse.text_or_none(parse.table_or_empty(tables.get("nvidia-container-runtime")).get("mode")),
            no_cgroups=parse.bool_or_none(
                parse.table_or_empty(tables.get("nvidia-container-cli")).get("no-cgroups")
            ),
            skip_mode_detection=parse.bool_or_none(
                parse.table_or_empty(tables.get("nvidia-container-runtime-hook")).get("skip-mode-detection")
            ),
        ),
        TOOLKIT_CONFIG,
    )


def _list_hooks(system: System) -> tuple[str, ...]:
    """Return the OCI hook files that call NVIDIA's hook."""
    paths = []
    for folder in HOOK_FOLDERS:
        for path in _list_files(system, folder, (".json",)):
            with contextlib.suppress(OSError):
                if "nvidia" in system.read_text(path, limit=1 << 16):
                    paths.append(path)
    return tuple(paths)


def _list_files(system: System, folder: str, extensions: tuple[str, ...]) -> list[str]:
    """Return the paths of the files in a folder with these extensions, or [] if it cannot be listed."""
    names = list_names(system, folder)
    return [f"{folder}/{name}" for name in names if name.endswith(extensions)][:MAX_FILES]


# ---------------------------------------------------------------- CDI


def _list_cdi_specs(system: System, folders: Sequence[str]) -> tuple[CdiSpec, ...]:
    """Return the CDI specifications for NVIDIA's devices. A folder is read once, even under several paths."""
    # Reversed, so that of several paths of one folder the first is kept.
    folders_by_real_path = {system.realpath(folder): folder for folder in reversed(folders)}
    specs: list[CdiSpec] = []
    for folder in reversed(folders_by_real_path.values()):
        for path in _list_files(system, folder, (".json", ".yaml")):  # the only extensions that CDI accepts
            spec = _load_cdi_spec(system, path)
            if "nvidia" in (spec.kind or posixpath.basename(path)):
                specs.append(spec)
    return tuple(specs)


def _load_cdi_spec(system: System, path: str) -> CdiSpec:
    """Read a CDI specification. If it cannot be read or parsed, the result contains the problem."""
    try:
        text = system.read_text(path, limit=MAX_SPEC_BYTES)
        if len(text) >= MAX_SPEC_BYTES:
            return CdiSpec(path, f"larger than {MAX_SPEC_BYTES >> 20} MiB")
        spec = parse_cdi(text)
    except CdiError as error:
        return CdiSpec(path, clean_line(str(error)))
    except OSError as error:
        return CdiSpec(path, error.strerror or str(error))
    return CdiSpec(
        path=path,
        kind=clean_line(spec.kind),
        version=clean_line(spec.version),
        devices=tuple(clean_line(name) for name in spec.devices),
        missing=tuple(
            clean_line(host_path)
            for host_path in spec.paths
            if not system.exists(host_path) and _is_certainly_missing(system, host_path)
        ),
        driver_version=spec.driver_version,
    )
