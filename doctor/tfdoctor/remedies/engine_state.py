"""Find wrong engine settings, outdated CDI specifications, and conditions that make containers lose GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import Unknown, value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.engine import (
    BUILTIN_RUNTIMES,
    DEVICE_OPTION,
    HOOK_PROGRAM,
    INSTALL_GUIDE_URL,
    LEGACY_MODES,
    RUNTIME_OPTIONS,
    EngineProblem,
    find_connection_problems,
    find_gpu_support_problems,
    format_runtime_names,
    get_docker_engine,
    get_toolkit_config,
    list_gpu_cdi_specs,
    make_runtime_problem,
)
from tfdoctor.remedies.pip import quote

if TYPE_CHECKING:
    from tfdoctor.core.facts.containers import CdiSpec, ContainerFacts, ToolkitConfig


def list_engine_problems(
    containers: ContainerFacts, *, driver: str | None = None, sudo: str = "sudo "
) -> tuple[EngineProblem, ...]:
    """Return all problems of container engines, the most severe first, for commands that run containers.

    `driver` is the loaded driver's version, or None if it is not known.
    """
    problems = [
        *find_connection_problems(containers, sudo),
        *find_config_problems(containers, sudo),
        *find_gpu_support_problems(containers, sudo),
        *find_cdi_spec_problems(containers, driver, sudo),
        *find_gpu_loss_problems(containers, sudo),
    ]
    return tuple(sorted(problems, key=lambda problem: -problem.severity))


# ---------------------------------------------------------------- configuration


def find_config_problems(containers: ContainerFacts, sudo: str = "sudo ") -> list[EngineProblem]:
    """Return the problems of the engine's and the toolkit's configuration that break containers."""
    problems = [*_find_daemon_json_problems(containers, sudo), *_find_missing_runtimes(containers, sudo)]
    docker, toolkit, config = (
        get_docker_engine(containers),
        value_of(containers.toolkit),
        get_toolkit_config(containers),
    )
    is_native = docker is not None and not docker.snap and not docker.desktop
    if config is not None and config.problem:
        problems.append(
            make_runtime_problem(
                "toolkit-config",
                "The configuration of NVIDIA's container toolkit is not TOML",
                "Its hook and its runtime stop with an error, and no container with GPUs starts.",
                [Evidence(config.path, config.problem)],
                [
                    Remedy(
                        "Fix that line; this prints the default to compare with.",
                        ("nvidia-ctk config default",),
                    )
                ],
                Severity.WARNING,
            )
        )
        return problems
    if docker is None or not is_native or toolkit is None or not toolkit.has_command(HOOK_PROGRAM):
        return problems
    is_config_readable = not isinstance(toolkit.config, Unknown)
    if docker.rootless and is_config_readable and not (config is not None and config.no_cgroups):
        problems.append(
            make_runtime_problem(
                "rootless-cgroups",
                "Rootless Docker is refused when it gives GPUs: the toolkit wants to change cgroups",
                "A rootless engine may not change device cgroups; NVIDIA's hook does so unless no-cgroups is true, "
                "and then the container does not start (bpf_prog_query or devices.allow: not permitted).",
                [
                    Evidence("docker info", "Security Options: rootless"),
                    Evidence(
                        getattr(toolkit.config, "source", "") or "",
                        f"no-cgroups = {_format_no_cgroups(config)}",
                    ),
                ],
                [
                    Remedy(
                        "Set it. An engine that runs as root on the same machine then loses its GPUs; CDI serves "
                        "both.",
                        (f"{sudo}nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",),
                        changes_system=True,
                    )
                ],
                Severity.WARNING,
            )
        )
    mode = (config.mode or "") if config is not None else ""
    if config is not None and mode not in LEGACY_MODES and not config.skip_mode_detection:
        problems.append(
            make_runtime_problem(
                "hook-refuses",
                f"`docker run --gpus` is refused: the toolkit's mode is {mode!r}",
                "`--gpus` calls NVIDIA's hook directly, which serves the modes auto and legacy alone.",
                [Evidence(config.path, f"mode = {mode!r}")],
                [
                    Remedy(
                        "Start containers with the runtime instead.",
                        (f"docker run {RUNTIME_OPTIONS} IMAGE",),
                    ),
                    Remedy(
                        "Or set the mode back.",
                        (f"{sudo}nvidia-ctk config --set nvidia-container-runtime.mode=auto --in-place",),
                        changes_system=True,
                    ),
                ],
            )
        )
    return problems


def _format_no_cgroups(config: ToolkitConfig | None) -> str:
    """Return the value of no-cgroups as it appears in the configuration, or "not set"."""
    value = config.no_cgroups if config is not None else None
    return "not set" if value is None else str(value).lower()


def _find_daemon_json_problems(containers: ContainerFacts, sudo: str) -> list[EngineProblem]:
    """Return at most one problem: daemon.json is not valid, or names an undefined default runtime."""
    config = value_of(containers.daemon_config)
    if config is None:
        return []
    validate_remedy = Remedy(
        "Let the engine itself check it (Docker 23 and newer).",
        (f"{sudo}dockerd --validate --config-file {config.path}",),
    )
    if config.problem:
        return [
            make_runtime_problem(
                "daemon-json",
                "Docker's configuration is not valid JSON",
                "The engine refuses to start with it; one that runs has not read it yet and will fail at its next "
                "start.",
                [Evidence(config.path, config.problem)],
                [
                    Remedy(
                        "Fix the JSON where this command points.",
                        (f"{sudo}python3 -m json.tool {config.path}",),
                    ),
                    validate_remedy,
                ],
                Severity.WARNING,
            )
        ]
    docker = get_docker_engine(containers)
    defined_names = {
        runtime.name for runtime in (*config.runtimes, *(docker.runtimes if docker is not None else ()))
    }
    default_name = config.default_runtime or ""
    if default_name in BUILTIN_RUNTIMES or default_name in defined_names:
        return []
    return [
        make_runtime_problem(
            "default-runtime",
            f"Docker's default runtime {default_name!r} is not defined",
            "The engine refuses to start with such a configuration.",
            [
                Evidence(config.path, f'"default-runtime": "{default_name}"'),
                Evidence(config.path, f"runtimes: {format_runtime_names(config.runtimes)}"),
            ],
            [
                Remedy(
                    "Define it with the toolkit, or remove the line.",
                    (
                        f"{sudo}nvidia-ctk runtime configure --runtime=docker",
                        f"{sudo}systemctl restart docker",
                    ),
                    changes_system=True,
                ),
                validate_remedy,
            ],
            Severity.WARNING,
        )
    ]


def _find_missing_runtimes(containers: ContainerFacts, sudo: str) -> list[EngineProblem]:
    """Return a problem for each NVIDIA runtime whose program does not exist."""
    docker, config = get_docker_engine(containers), value_of(containers.daemon_config)
    runtimes = {runtime.name: runtime for runtime in (docker.runtimes if docker is not None else ())}
    runtimes |= {runtime.name: runtime for runtime in (config.runtimes if config is not None else ())}
    default_name = (docker.default_runtime if docker is not None else None) or (
        config.default_runtime if config is not None else None
    )
    problems = []
    for runtime in runtimes.values():
        if runtime.found is not False or "nvidia" not in f"{runtime.name} {runtime.path}":
            continue
        note = (
            " It is the default runtime: no container starts at all." if runtime.name == default_name else ""
        )
        problems.append(
            make_runtime_problem(
                "runtime-missing",
                f"Docker's runtime {runtime.name!r} points to a program that is not there",
                f"Docker is told to start containers with {runtime.path}, which does not exist on this "
                f"machine.{note}",
                [
                    Evidence(
                        "docker info" if docker is not None else "daemon.json",
                        f"{runtime.name}: {runtime.path}",
                    ),
                    Evidence("docker info", f"Default Runtime: {default_name or 'not known'}"),
                ],
                [
                    Remedy(
                        "Install the package nvidia-container-toolkit, or take the runtime out of "
                        f"{config.path if config is not None else 'daemon.json'}; then restart the engine. "
                        f"See NVIDIA's installation guide ({INSTALL_GUIDE_URL}).",
                        (f"{sudo}systemctl restart docker",),
                        changes_system=True,
                    )
                ],
                Severity.WARNING,
            )
        )
    return problems


# ---------------------------------------------------------------- CDI


def find_cdi_spec_problems(
    containers: ContainerFacts, driver: str | None, sudo: str = "sudo "
) -> list[EngineProblem]:
    """Return a problem for each CDI specification that is unreadable or does not match the loaded driver.

    `driver` is the version of the loaded driver, or None if it is not known.
    """
    docker, config = get_docker_engine(containers), get_toolkit_config(containers)
    is_cdi_used = bool(
        containers.find_tool("podman", "nerdctl")
        or (docker is not None and docker.cdi_folders)
        or (config is not None and (config.mode or "").endswith("cdi"))
    )
    specs = list_gpu_cdi_specs(containers)
    problems = []
    for index, spec in enumerate(specs):
        fault_text = _describe_spec_fault(spec, driver)
        if not fault_text:
            continue
        # If two folders define the same devices, CDI uses the later folder.
        replacements = [
            other
            for other in specs[index + 1 :]
            if not _describe_spec_fault(other, driver) and set(spec.devices) <= set(other.devices)
        ]
        is_replaced = bool(
            replacements and not spec.problem and _get_folder(replacements[0].path) != _get_folder(spec.path)
        )
        is_serious = is_cdi_used and not is_replaced
        problems.append(
            EngineProblem(
                kind="cdi-unreadable" if spec.problem else "cdi-stale",
                cause=Cause.CONTAINER_DRIVER_LIBS,
                severity=Severity.WARNING if is_serious else Severity.INFO,
                title="The CDI specification cannot be used"
                if spec.problem
                else "The CDI specification does not match the driver",
                explanation=f"{fault_text} "
                + (
                    f"Engines that look into {_get_folder(replacements[0].path)} take its devices from there."
                    if is_replaced
                    else "Containers that ask for its devices do not start, or start with the wrong libraries."
                ),
                evidence=tuple(_list_spec_evidence(spec, driver)),
                remedies=(
                    Remedy(
                        "Write it again; toolkits from 1.18 on do so themselves for /var/run/cdi.",
                        (
                            f"{sudo}nvidia-ctk cdi generate --output={quote(spec.path)}",
                            *(
                                (f"{sudo}chmod a+r {quote(spec.path)}",)
                                if "ermission" in spec.problem
                                else ()
                            ),
                            "nvidia-ctk cdi list",
                        ),
                        changes_system=True,
                    ),
                ),
            )
        )
    return problems


def _get_folder(path: str) -> str:
    return path.rpartition("/")[0]


def _describe_spec_fault(spec: CdiSpec, driver: str | None) -> str:
    """Return a sentence about what is wrong with a specification; "" if nothing is wrong."""
    if spec.problem:
        return f"{spec.path}: {spec.problem.rstrip('.')}."
    if spec.missing:
        more = f" and {len(spec.missing) - 1} more that are" if len(spec.missing) > 1 else ", which is"
        return f"It names {spec.missing[0]}{more} not there."
    if (
        driver is not None
        and spec.driver_version is not None
        and not _is_same_version(spec.driver_version, driver)
    ):
        return f"It names the libraries of driver {spec.driver_version}, but {driver} is loaded."
    return ""


def _is_same_version(first: str, second: str) -> bool:
    return first == second or versions.compare(first, second) == 0


def _list_spec_evidence(spec: CdiSpec, driver: str | None) -> list[Evidence]:
    """Return the evidence for what is wrong with a specification."""
    evidence = [Evidence(spec.path, f"not there: {path}") for path in spec.missing[:4]]
    if spec.problem:
        evidence.append(Evidence(spec.path, spec.problem))
    if spec.driver_version is not None:
        evidence.append(
            Evidence(spec.path, f"made for driver {spec.driver_version}; loaded: {driver or 'not known'}")
        )
    return evidence


# ---------------------------------------------------------------- loss of GPUs


def find_gpu_loss_problems(containers: ContainerFacts, sudo: str = "sudo ") -> list[EngineProblem]:
    """Return the settings with which a running container loses its GPUs or cannot open them."""
    docker, toolkit, config = (
        get_docker_engine(containers),
        value_of(containers.toolkit),
        get_toolkit_config(containers),
    )
    if (
        docker is None
        or toolkit is None
        or not toolkit.has_command(HOOK_PROGRAM)
        or docker.rootless
        or docker.snap
        or docker.desktop
    ):
        return []
    if config is not None and config.no_cgroups:
        return [
            EngineProblem(
                kind="no-cgroups",
                cause=Cause.CONTAINER_NVML_LOST,
                severity=Severity.WARNING,
                title="Containers get the card's device nodes without permission to open them",
                explanation="no-cgroups is true, which is for rootless engines; this one runs as root, and its containers say "
                '"Failed to initialize NVML: Unknown Error".',
                evidence=(
                    Evidence(config.path, "no-cgroups = true"),
                    Evidence("docker info", "not rootless"),
                ),
                remedies=(
                    Remedy(
                        "Set it to false. For a rootless engine on the same machine, use CDI.",
                        (f"{sudo}nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",),
                        changes_system=True,
                    ),
                ),
            )
        ]
    if docker.cgroup_driver != "systemd":
        return []
    return [
        EngineProblem(
            kind="systemd-cgroups",
            cause=Cause.CONTAINER_NVML_LOST,
            severity=Severity.INFO,
            title="A running container can lose its GPUs at `systemctl daemon-reload`",
            explanation="systemd manages the cgroups of containers here, and does not know about the devices that NVIDIA's hook "
            '(`--gpus`) adds: when it reloads its units, they are gone ("Failed to initialize NVML: Unknown '
            'Error") until the container is started again.',
            evidence=(
                Evidence(
                    "docker info", f"Cgroup Driver: systemd, Cgroup Version: {docker.cgroup_version or '?'}"
                ),
                Evidence(dict(toolkit.executables)[HOOK_PROGRAM], "the hook of `--gpus`"),
            ),
            remedies=(
                Remedy(
                    "For long-running containers, ask through CDI (Docker 28.2 and newer; older "
                    "versions have to enable "
                    "it), which tells the engine of the devices.",
                    (f"docker run {DEVICE_OPTION} IMAGE",),
                ),
                Remedy(
                    'Or let Docker manage cgroups itself: `"exec-opts": ["native.cgroupdriver=cgroupfs"]` in '
                    "/etc/docker/daemon.json, then restart it.",
                    changes_system=True,
                ),
            ),
        )
    ]
