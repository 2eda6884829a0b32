"""Hosts with container engines: a healthy machine plus an engine and NVIDIA's toolkit.

The answers of `docker info` are shortened from those of real engines (20.10, 28.2); the CDI specification has the
format that `nvidia-ctk cdi generate` writes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RUNC = {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}}
NVIDIA = {"nvidia": {"path": "nvidia-container-runtime"}}
SYSTEM = "/usr/lib/x86_64-linux-gnu"
REFUSED = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "
    '"http://%2Fvar%2Frun%2Fdocker.sock/v1.50/info": dial unix /var/run/docker.sock: connect: permission denied\n'
)
WHOLE = (
    "nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-cdi-hook",
    "nvidia-container-cli",
)  # fmt: skip
BASE = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-cdi-hook")
"""Programs of the package nvidia-container-toolkit-base, which has no hook."""


def docker(machine: Any, *, client: str = "28.2.2", path: str = "/usr/bin/docker", **engine: Any) -> None:
    """Add Docker's client and an engine that answers."""
    info = {
        "ServerVersion": "28.2.2", "Driver": "overlay2", "DockerRootDir": "/var/lib/docker",
        "CgroupDriver": "cgroupfs", "CgroupVersion": "2", "OperatingSystem": "Ubuntu 22.04.4 LTS",
        "Runtimes": RUNC, "DefaultRuntime": "runc", "SecurityOptions": ["name=seccomp,profile=builtin"],
        "CDISpecDirs": None, "Warnings": None, "ClientInfo": {"Version": client, "Context": "default"},
        **engine,
    }  # fmt: skip
    machine.which |= {"docker": path, "runc": "/usr/bin/runc"}
    machine.directories["/var/run"] = ["docker.sock"]
    machine.commands["docker info"] = {"stdout": json.dumps(info) + "\n"}


def silent(machine: Any, stderr: str, **engine: Any) -> None:
    """Add Docker's client with an engine that does not answer."""
    docker(machine, ServerVersion="", Runtimes=None, **engine)
    machine.commands["docker info"] |= {"stderr": stderr, "returncode": 1}


def toolkit(machine: Any, *, names: tuple[str, ...] = WHOLE, config: str = "") -> None:
    """Add NVIDIA's container toolkit with its default configuration."""
    machine.which |= {name: f"/usr/bin/{name}" for name in names}
    machine.commands["nvidia-ctk --version"] = {"stdout": "NVIDIA Container Toolkit CLI version 1.17.8\n"}
    for name in names:
        machine.files[f"/usr/bin/{name}"] = ""
    machine.files["/etc/nvidia-container-runtime/config.toml"] = config or (
        "#accept-nvidia-visible-devices-as-volume-mounts = false\n\n[nvidia-container-cli]\nenvironment = []\n"
        '#no-cgroups = false\nload-kmods = true\n\n[nvidia-container-runtime]\nmode = "auto"\n'
        'runtimes = ["docker-runc", "runc", "crun"]\n'
    )


def podman(machine: Any, version: str = "4.9.3") -> None:
    """Add Podman."""
    machine.which["podman"] = "/usr/bin/podman"
    machine.commands["podman --version"] = {"stdout": f"podman version {version}\n"}


def cdi(machine: Any, driver: str | None = None, path: str = "/etc/cdi/nvidia.yaml") -> None:
    """Add a CDI specification for one GPU, written for this driver or for another one."""
    version = driver or machine.driver
    libraries = (f"{SYSTEM}/libcuda.so.{version}", f"{SYSTEM}/libnvidia-ml.so.{version}")
    mounts = "".join(
        f"    - containerPath: {library}\n      hostPath: {library}\n      options:\n      - ro\n      - rbind\n"
        for library in libraries
    )
    machine.files[path] = (
        "---\ncdiVersion: 0.5.0\ncontainerEdits:\n  deviceNodes:\n  - path: /dev/nvidia-uvm\n"
        "  - path: /dev/nvidiactl\n  env:\n  - NVIDIA_VISIBLE_DEVICES=void\n  hooks:\n  - args:\n"
        "    - nvidia-cdi-hook\n    - create-symlinks\n    - --link\n    - libcuda.so.1::"
        f"{SYSTEM}/libcuda.so\n    hookName: createContainer\n    path: /usr/bin/nvidia-cdi-hook\n  mounts:\n"
        + mounts.replace("    - ", "  - ").replace("      ", "    ")
        + 'devices:\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n  name: "0"\n'
        "- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n  name: all\nkind: nvidia.com/gpu\n"
    )
    machine.files["/usr/bin/nvidia-cdi-hook"] = ""


def register(host: Callable[..., Any], healthy: Callable[..., Any]) -> None:
    """Register these hosts with the functions of make.py."""

    @host("TFD403")
    def docker_without_toolkit() -> Any:
        """Docker, and nothing of NVIDIA's for it."""
        machine = healthy()
        docker(machine)
        return machine

    @host("TFD403")
    def docker_with_half_a_toolkit() -> Any:
        """Only the base package, without the hook, and the runtime was never registered."""
        machine = healthy()
        docker(machine)
        toolkit(machine, names=BASE)
        return machine

    @host()
    def docker_with_nvidia_runtime() -> Any:
        """Docker with the toolkit, registered."""
        machine = healthy()
        docker(machine, Runtimes=RUNC | NVIDIA)
        toolkit(machine)
        machine.files["/etc/docker/daemon.json"] = json.dumps(
            {"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}
        )
        return machine

    @host()
    def docker_with_hook_alone() -> Any:
        """The toolkit is there and was never registered: `--gpus` needs no more than the hook."""
        machine = healthy()
        docker(machine)
        toolkit(machine)
        return machine

    @host()
    def docker_with_cdi() -> Any:
        """Docker 29 with the base package and a fresh CDI specification."""
        machine = healthy()
        docker(machine, ServerVersion="29.0.1", CDISpecDirs=["/etc/cdi", "/var/run/cdi"])
        toolkit(machine, names=BASE)
        cdi(machine)
        return machine

    @host("TFD406")
    def docker_with_systemd_cgroups() -> Any:
        """systemd manages the cgroups, and GPUs come through the hook."""
        machine = healthy()
        docker(machine, Runtimes=RUNC | NVIDIA, CgroupDriver="systemd")
        toolkit(machine)
        return machine

    @host("TFD406")
    def docker_without_cgroups() -> Any:
        """no-cgroups is set for an engine that runs as root."""
        machine = healthy()
        docker(machine, Runtimes=RUNC | NVIDIA)
        toolkit(machine, config="[nvidia-container-cli]\nno-cgroups = true\n")
        return machine

    @host("TFD403")
    def docker_from_a_snap() -> Any:
        """Docker's snap, which sees nothing of the toolkit outside."""
        machine = healthy()
        docker(machine, path="/snap/bin/docker", DockerRootDir="/var/snap/docker/common/var-lib-docker")
        toolkit(machine)
        return machine

    @host()
    def docker_from_a_snap_set_up() -> Any:
        """Docker's snap, which has registered its own runtime."""
        machine = healthy()
        docker(
            machine, path="/snap/bin/docker", DockerRootDir="/var/snap/docker/common/var-lib-docker",
            Runtimes=RUNC | {"nvidia": {"path": "/snap/docker/3265/usr/bin/nvidia-container-runtime"}},
        )  # fmt: skip
        return machine

    @host("TFD404")
    def docker_rootless() -> Any:
        """A rootless engine, and a toolkit that still wants to change cgroups."""
        machine = healthy()
        docker(
            machine, SecurityOptions=["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"],
            Runtimes=RUNC | NVIDIA, CgroupDriver="systemd",
        )  # fmt: skip
        toolkit(machine)
        machine.env |= {"DOCKER_HOST": "unix:///run/user/1000/docker.sock"}
        machine.directories["/run/user/1000"] = ["docker.sock"]
        return machine

    @host("TFD404")
    def docker_toolkit_in_cdi_mode() -> Any:
        """The toolkit's mode is cdi: its hook refuses `--gpus`."""
        machine = healthy()
        docker(machine, Runtimes=RUNC | NVIDIA)
        toolkit(machine, config='[nvidia-container-runtime]\nmode = "cdi"\n')
        return machine

    @host("TFD403", "TFD404")
    def docker_default_runtime_gone() -> Any:
        """The toolkit was removed, and daemon.json still makes its runtime the default."""
        machine = healthy()
        docker(machine, Runtimes=RUNC | NVIDIA, DefaultRuntime="nvidia")
        machine.files["/etc/docker/daemon.json"] = json.dumps(
            {"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
        )
        return machine

    @host("TFD402", "TFD404")
    def docker_daemon_json_broken() -> Any:
        """A comma too many in daemon.json: the engine does not start."""
        machine = healthy()
        silent(
            machine,
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
        )
        machine.files["/etc/docker/daemon.json"] = '{\n  "default-runtime": "runc",\n}\n'
        return machine

    @host("TFD402")
    def docker_socket_closed() -> Any:
        """This user is not in the socket's group."""
        machine = healthy()
        silent(machine, REFUSED)
        machine.commands["stat docker.sock"] = {"stdout": "docker\n"}
        return machine

    @host("TFD402")
    def docker_stopped() -> Any:
        """Only systemd listens at the socket: asking would start the engine, so it is not asked."""
        machine = healthy()
        docker(machine)
        machine.directories["/run/systemd/units"] = ["invocation:docker.socket", "invocation:ssh.service"]
        return machine

    @host("TFD403")
    def docker_desktop() -> Any:
        """Docker Desktop for Linux: the engine is in a virtual machine."""
        machine = healthy()
        docker(machine, OperatingSystem="Docker Desktop", Name="docker-desktop")
        toolkit(machine)
        return machine

    @host()
    def docker_of_another_machine() -> Any:
        """The client is set to another machine's engine, which is not asked."""
        machine = healthy()
        docker(machine)
        machine.env["DOCKER_HOST"] = "tcp://192.0.2.7:2376"
        return machine

    @host("TFD405")
    def podman_with_stale_cdi() -> Any:
        """The driver was updated after the CDI specification was written."""
        machine = healthy()
        podman(machine)
        toolkit(machine)
        cdi(machine, "535.129.03")
        return machine

    @host("TFD403")
    def podman_without_cdi() -> Any:
        """The toolkit is there, and nobody wrote a CDI specification."""
        machine = healthy()
        podman(machine)
        toolkit(machine)
        return machine

    @host()
    def podman_with_cdi() -> Any:
        """Podman, the toolkit and a fresh specification."""
        machine = healthy()
        podman(machine)
        toolkit(machine)
        cdi(machine, path="/var/run/cdi/nvidia.yaml")
        return machine

    @host()
    def apptainer_only() -> Any:
        """Apptainer needs no toolkit: `--nv` is its own."""
        machine = healthy()
        machine.which |= {"apptainer": "/usr/bin/apptainer", "singularity": "/usr/bin/singularity"}
        machine.commands["apptainer --version"] = {"stdout": "apptainer version 1.3.4\n"}
        return machine
