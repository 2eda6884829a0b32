"""Find what keeps containers from using this machine's GPUs, given its `ContainerFacts`.

`check` reports these problems in addition to its verdict, which concerns TensorFlow in a Python on this
machine. Commands that build or run images use the same functions to explain a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import SetVariable
from tfdoctor.core.facts import value_of
from tfdoctor.core.facts.containers import ContainerFacts, ContainerToolkit, DockerEngine, UnreachableEngine
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.records import dataclass
from tfdoctor.remedies.pip import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts.containers import CdiSpec, Runtime, ToolkitConfig
    from tfdoctor.remedies.target import Target

HOOK_PROGRAM = "nvidia-container-runtime-hook"
"""The program of NVIDIA's container toolkit that `docker run --gpus` calls."""
GPU_CDI_KIND = "nvidia.com/gpu"
"""The kind under which CDI specifications list NVIDIA's GPUs."""
INSTALL_GUIDE_URL = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)
GPUS_OPTION, RUNTIME_OPTIONS, DEVICE_OPTION = (
    "--gpus all",
    "--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all",
    f"--device {GPU_CDI_KIND}=all",
)
"""The options of `docker run` for GPUs, which use NVIDIA's hook, its runtime, or a CDI specification."""
MIN_DOCKER_CDI_VERSION = "29"
"""The first Docker version whose `--gpus` uses CDI if NVIDIA's hook is missing (moby pull request 50228)."""
MIN_PODMAN_CDI_VERSION = "4.1"
"""The first Podman version that supports CDI devices."""
CAPABILITIES_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
"""The variable that selects the parts of the driver for a container, set by the image or at its start."""
BUILTIN_RUNTIMES = frozenset({"", "runc", "crun", "io.containerd.runc.v2", "io.containerd.runtime.v1.linux"})
"""Runtimes that engines define themselves, so that no configuration has to define them."""
LEGACY_MODES = frozenset({"", "auto", "legacy"})
"""The modes of the toolkit in which its hook supports `--gpus`; in any other mode the hook refuses it."""


@dataclass(frozen=True, slots=True)
class EngineProblem:
    """A problem that keeps containers from using GPUs, now or later."""

    kind: str
    """A stable identifier such as "no-toolkit" or "daemon-json"."""
    cause: Cause
    severity: Severity
    title: str
    explanation: str
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()


# ---------------------------------------------------------------- queries


def excludes_capability(capabilities: str, part: str) -> bool:
    """Return whether a value of `CAPABILITIES_VARIABLE` excludes this part of the driver."""
    return not {part, "all"} & set(capabilities.replace(" ", "").split(","))


def make_capabilities_remedy(target: Target) -> Remedy:
    """Return the remedy that sets `CAPABILITIES_VARIABLE`, so that a container gets libcuda and NVML."""
    value = "compute,utility"
    steps: tuple[SetVariable, ...] = ()
    text = f"Start the container with this variable (Docker; in a Dockerfile: `ENV {CAPABILITIES_VARIABLE}={value}`)."
    if target.image is not None:
        text = "This variable names the parts of the driver that a container is given."
        steps = (SetVariable(CAPABILITIES_VARIABLE, value),)
    return Remedy(text, (f"docker run --gpus all -e {CAPABILITIES_VARIABLE}={value} IMAGE",), steps=steps)


def get_docker_engine(containers: ContainerFacts) -> DockerEngine | None:
    """Return the facts about Docker's engine; None if it did not respond, or if there is no Docker."""
    docker_facts = value_of(containers.docker)
    return docker_facts if isinstance(docker_facts, DockerEngine) else None


def get_unreachable_engine(containers: ContainerFacts) -> UnreachableEngine | None:
    """Return how Docker's engine failed to respond; None if it responded, or if there is no Docker."""
    docker_facts = value_of(containers.docker)
    return docker_facts if isinstance(docker_facts, UnreachableEngine) else None


def get_toolkit_config(containers: ContainerFacts) -> ToolkitConfig | None:
    """Return the configuration of NVIDIA's container toolkit; None if it is not known."""
    toolkit = value_of(containers.toolkit)
    return value_of(toolkit.config) if toolkit is not None else None


def list_gpu_cdi_specs(containers: ContainerFacts) -> tuple[CdiSpec, ...]:
    """Return the CDI specifications for NVIDIA's GPUs, and unreadable specifications, which may be for GPUs too."""
    return tuple(spec for spec in containers.cdi if spec.problem or spec.kind == GPU_CDI_KIND)


def list_docker_gpu_options(containers: ContainerFacts) -> tuple[str, ...]:
    """Return the options of `docker run` with which this engine gives GPUs to containers.

    Return an empty tuple if no option works, or if the engine did not respond.
    """
    docker, toolkit = get_docker_engine(containers), value_of(containers.toolkit)
    if docker is None or docker.desktop:
        return ()
    nvidia_runtime = docker.find_runtime("nvidia")
    if docker.snap:  # the snap contains its own toolkit, and registers the runtime only if the toolkit works
        return (GPUS_OPTION, RUNTIME_OPTIONS) if nvidia_runtime is not None else ()
    has_cdi = bool(docker.cdi_folders and list_gpu_cdi_specs(containers))
    options = []
    has_hook = toolkit is not None and toolkit.has_command(HOOK_PROGRAM)
    gpus_uses_cdi = (
        has_cdi
        and toolkit is not None
        and toolkit.has_command("nvidia-cdi-hook")
        and _has_version(docker, MIN_DOCKER_CDI_VERSION)
    )
    if has_hook or gpus_uses_cdi:
        options.append(GPUS_OPTION)
    if nvidia_runtime is not None and nvidia_runtime.found is not False:
        options.append(RUNTIME_OPTIONS)
    if has_cdi:
        options.append(DEVICE_OPTION)
    return tuple(options)


def _has_version(docker: DockerEngine, version: str) -> bool:
    """Return whether Docker's version is known and is at least this one."""
    release_version = (docker.version or "").partition("+")[0].partition("-")[0]
    return versions.is_version(release_version) and versions.is_at_least(release_version, version)


def can_podman_give_gpus(containers: ContainerFacts) -> bool | None:
    """Return whether Podman can give GPUs to containers.

    Return None if there is no Podman, or if the answer depends on a version that is not known.
    """
    podman, toolkit = containers.find_tool("podman"), value_of(containers.toolkit)
    if podman is None:
        return None
    if toolkit is not None and toolkit.hooks:
        return True
    if not list_gpu_cdi_specs(containers):
        return False
    if podman.version is None or not versions.is_version(podman.version):
        return None
    return versions.is_at_least(podman.version, MIN_PODMAN_CDI_VERSION)


# ---------------------------------------------------------------- unreachable engines


def find_connection_problems(containers: ContainerFacts, sudo: str = "sudo ") -> list[EngineProblem]:
    """Return at most one problem: that Docker's engine does not respond.

    The list is empty for a remote engine too, because tfdoctor sends no request to a remote engine.
    """
    unreachable = get_unreachable_engine(containers)
    if unreachable is None or unreachable.kind == "remote":
        return []
    start_command = (
        "systemctl --user start docker"
        if containers.endpoint.startswith("unix:///run/user/")
        else f"{sudo}systemctl start docker"
    )
    remedies: tuple[Remedy, ...] = ()
    title, text = "Docker's engine does not answer", "Docker's client is installed."
    start_remedies = (Remedy("Start the engine.", (start_command, "docker info"), changes_system=True),)
    if unreachable.kind == "permission":
        group = unreachable.group
        title = "This user has no permission to use Docker's engine"
        text = f"The socket of the engine belongs to the group {group or '(not known)'}, and this process is not in it."
        join_remedy = Remedy(
            "Join that group, then log in again; its members can become root through Docker.",
            (f'sudo usermod -aG {quote(group)} "$USER"', "newgrp " + quote(group)) if group else (),
            changes_system=True,
        )
        root_remedy = Remedy("Or run Docker's commands as root.", ("sudo docker info",))
        remedies = (root_remedy,) if group in (None, "root") else (join_remedy, root_remedy)
    elif unreachable.kind in ("not-running", "no-socket"):
        title, text = "Docker's engine is not running", "Docker is installed."
        remedies = start_remedies
    elif unreachable.kind == "no-client":
        title = "Docker's engine has a socket, but there is no docker command"
        text = "Its client is not on PATH, so it was not asked."
    elif unreachable.kind == "context":
        title = "Docker's current context does not work"
        name = f" {containers.context!r}" if containers.context else ""
        text = f"The context{name} does not exist, or cannot be read."
        remedies = (
            Remedy("List the contexts, and choose one.", ("docker context ls", "docker context use default")),
        )
    elif unreachable.kind == "timeout":
        text = "The socket is open, but the engine does not answer."
        remedies = (Remedy("See its log.", (f"{sudo}journalctl -u docker -n 50 --no-pager",)),)
    return [
        EngineProblem(
            kind=f"engine-{unreachable.kind}",
            cause=Cause.INCONCLUSIVE,
            severity=Severity.INFO,
            title=title,
            explanation=f"{text} Could not check whether it can give GPUs to containers. TensorFlow outside containers "
            "does not need it.",
            evidence=(Evidence("docker info", unreachable.text),),
            remedies=remedies,
        )
    ]


# ---------------------------------------------------------------- engines without GPU support


def find_gpu_support_problems(containers: ContainerFacts, sudo: str = "sudo ") -> list[EngineProblem]:
    """Return the problems of engines that cannot give GPUs to containers."""
    docker, toolkit = get_docker_engine(containers), value_of(containers.toolkit)
    problems = []
    engines_without_gpus = []
    if docker is not None and docker.desktop:
        problems.append(_make_desktop_problem(containers))
    elif docker is not None and docker.snap and not list_docker_gpu_options(containers):
        problems.append(_make_snap_problem(sudo))
    elif docker is not None and not list_docker_gpu_options(containers):
        engines_without_gpus.append("Docker")
    if can_podman_give_gpus(containers) is False:
        engines_without_gpus.append("Podman")
    if not engines_without_gpus:
        return problems
    if toolkit is None:
        return [*problems, _make_missing_toolkit_problem(containers, engines_without_gpus, sudo)]
    if "Docker" in engines_without_gpus and docker is not None:
        problems.append(_make_unregistered_runtime_problem(containers, docker, toolkit, sudo))
    if "Podman" in engines_without_gpus:
        problems.append(_make_missing_spec_problem(containers, sudo))
    return problems


def make_runtime_problem(
    kind: str,
    title: str,
    explanation: str,
    evidence: Sequence[Evidence],
    remedies: Sequence[Remedy],
    severity: Severity = Severity.WARNING,
) -> EngineProblem:
    """Return a problem with the cause no-nvidia-runtime."""
    return EngineProblem(
        kind=kind,
        cause=Cause.NO_NVIDIA_RUNTIME,
        severity=severity,
        title=title,
        explanation=explanation,
        evidence=tuple(evidence),
        remedies=tuple(remedies),
    )


def _make_missing_toolkit_problem(containers: ContainerFacts, engines: list[str], sudo: str) -> EngineProblem:
    """Return the problem that NVIDIA's container toolkit is not installed."""
    docker = get_docker_engine(containers)
    evidence = [Evidence("PATH", "nvidia-ctk, nvidia-container-runtime and its hook are all missing")]
    if docker is not None:
        evidence.append(Evidence("docker info", f"Runtimes: {format_runtime_names(docker.runtimes)}"))
    setup_commands = (
        [f"{sudo}nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"] if "Podman" in engines else []
    )
    if "Docker" in engines and docker is not None:
        setup_commands += list_configure_commands(sudo, is_rootless=docker.rootless)
    remedies = [make_toolkit_remedy(setup_commands)]
    apptainer = containers.find_tool("apptainer", "singularity")
    if apptainer is not None:
        remedies.append(
            Remedy(
                f"{apptainer.name.capitalize()}, which is also installed, needs no toolkit.",
                (f"{apptainer.name} exec --nv IMAGE.sif python3 SCRIPT.py",),
            )
        )
    return make_runtime_problem(
        "no-toolkit",
        f"{' and '.join(engines)} cannot give GPUs to containers: NVIDIA's container toolkit is not here",
        "The driver works, but containers cannot use it: an engine gives them its device nodes and libraries "
        "through NVIDIA's container toolkit. TensorFlow outside containers does not need it.",
        evidence,
        remedies,
    )


def make_toolkit_remedy(setup_commands: Sequence[str]) -> Remedy:
    """Return the remedy that installs NVIDIA's container toolkit and then runs these commands.

    Distributions do not have the package. How it is installed depends on them, so NVIDIA's guide is named.
    """
    return Remedy(
        f"Install NVIDIA's container toolkit, then let it configure the engine. (Guide: {INSTALL_GUIDE_URL})",
        tuple(setup_commands),
        changes_system=True,
    )


def list_configure_commands(sudo: str, *, is_rootless: bool = False) -> list[str]:
    """Return the commands that register the toolkit with Docker and restart it."""
    if is_rootless:
        return [
            'nvidia-ctk runtime configure --runtime=docker --config="$HOME/.config/docker/daemon.json"',
            f"{sudo}nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
            "systemctl --user restart docker",
        ]
    return [f"{sudo}nvidia-ctk runtime configure --runtime=docker", f"{sudo}systemctl restart docker"]


def _make_unregistered_runtime_problem(
    containers: ContainerFacts, docker: DockerEngine, toolkit: ContainerToolkit, sudo: str
) -> EngineProblem:
    """Return the problem that the toolkit is installed, at least in part, but Docker does not use it."""
    evidence = [
        Evidence("PATH", f"there: {', '.join(path for _, path in toolkit.executables) or 'only OCI hooks'}"),
        Evidence("PATH", f"not there: {HOOK_PROGRAM}"),
        Evidence("docker info", f"Runtimes: {format_runtime_names(docker.runtimes)}"),
    ]
    if list_gpu_cdi_specs(containers) and not docker.cdi_folders:
        evidence.append(Evidence("docker info", "CDI is off"))
    if toolkit.has_command("nvidia-container-runtime"):
        remedy = Remedy(
            "Register the runtime, then restart the engine.",
            tuple(list_configure_commands(sudo, is_rootless=docker.rootless)),
            changes_system=True,
        )
    else:
        remedy = Remedy(
            f"Install the whole package nvidia-container-toolkit from NVIDIA's repository ({INSTALL_GUIDE_URL}), then "
            "register it.",
            tuple(list_configure_commands(sudo, is_rootless=docker.rootless)),
            changes_system=True,
        )
    return make_runtime_problem(
        "not-registered",
        "Docker is not configured for NVIDIA's container toolkit",
        f"The toolkit is only partly installed. `--gpus` needs {HOOK_PROGRAM} in the engine's PATH, "
        f"`--runtime=nvidia` a runtime of "
        "that name, `--device` CDI; this engine has none of the three.",
        evidence,
        [remedy],
    )


def make_cdi_spec_remedy(sudo: str = "sudo ") -> Remedy:
    """Return the remedy that writes the CDI specification for Podman."""
    return Remedy(
        "Write the CDI specification; again after each update of the driver.",
        (
            f"{sudo}nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            f"podman run --rm --device {GPU_CDI_KIND}=all IMAGE nvidia-smi",
        ),
        changes_system=True,
    )


def _make_missing_spec_problem(containers: ContainerFacts, sudo: str) -> EngineProblem:
    """Return the problem that there is no CDI specification for Podman."""
    podman = containers.find_tool("podman")
    version = podman.version if podman is not None else None
    return make_runtime_problem(
        "podman-no-cdi",
        "Podman cannot give GPUs to containers: there is no CDI specification",
        f"Podman from {MIN_PODMAN_CDI_VERSION} on is given GPUs through a CDI specification in /etc/cdi or /var/run/cdi; "
        "there is none for NVIDIA, and no OCI hook either.",
        [
            Evidence("podman --version", version or "not known"),
            Evidence("/etc/cdi, /var/run/cdi", f"no {GPU_CDI_KIND}"),
        ],
        [make_cdi_spec_remedy(sudo)],
    )


def _make_desktop_problem(containers: ContainerFacts) -> EngineProblem:
    """Return the problem that Docker Desktop for Linux does not support GPUs."""
    return make_runtime_problem(
        "docker-desktop",
        "Docker Desktop for Linux gives no GPU to containers",
        "Its engine runs in a virtual machine, which has neither the card nor NVIDIA's toolkit. Docker "
        "Engine, which can be installed next to it, does not have this "
        "limit.",
        [
            Evidence("docker info", "Operating System: Docker Desktop"),
            Evidence("docker", containers.endpoint),
        ],
        [
            Remedy(
                "Install Docker Engine, and choose it.", ("docker context use default",), changes_system=True
            )
        ],
    )


def _make_snap_problem(sudo: str) -> EngineProblem:
    """Return the problem that Docker's snap has not registered the runtime of its own NVIDIA toolkit."""
    return make_runtime_problem(
        "snap",
        "Docker's snap has not set up its NVIDIA support",
        "It does not see the toolkit installed on this machine, has its own, and registers the runtime "
        "`nvidia` where it could set that up; its engine has none.",
        [Evidence("docker info", "Docker Root Dir is below /var/snap; no runtime `nvidia`")],
        [
            Remedy("See why.", (f"{sudo}snap logs -n 100 docker.nvidia-container-toolkit",)),
            Remedy(
                "Or replace it with Docker Engine from Docker's own packages; images of the snap are lost with it.",
                changes_system=True,
            ),
        ],
    )


def format_runtime_names(runtimes: Sequence[Runtime]) -> str:
    """Return the names of the runtimes, joined with commas, or "none"."""
    return ", ".join(runtime.name for runtime in runtimes) or "none"
