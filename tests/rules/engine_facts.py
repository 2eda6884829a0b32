"""Container-engine facts for the tests of the engine rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfdoctor.core.facts import Absent, Known
from tfdoctor.core.facts.containers import (
    CdiSpec,
    ContainerFacts,
    ContainerTool,
    ContainerToolkit,
    DockerEngine,
    Runtime,
)
from tfdoctor.remedies import engine

DOCKER = ContainerTool("docker", "/usr/bin/docker", "28.2.2")


RUNC = Runtime("runc", "runc", True)


ENGINE = DockerEngine("28.2.2", (RUNC,), "runc", False, False, False, "2", "cgroupfs", "overlay2", ())


NOTHING = Absent("x", "not there")


def engines(**changes: Any) -> ContainerFacts:
    facts = ContainerFacts(
        (DOCKER,), Known(ENGINE, "docker info"), "unix:///var/run/docker.sock", None, NOTHING, NOTHING, ()
    )
    return replace(facts, **changes)


def docker(**changes: Any) -> Known[DockerEngine]:
    return Known(replace(ENGINE, **changes), "docker info")


PODMAN = ContainerTool("podman", "/usr/bin/podman", "4.9.3")


NVIDIA = Runtime("nvidia", "nvidia-container-runtime", True)


FRESH = CdiSpec("/etc/cdi/nvidia.yaml", kind="nvidia.com/gpu", devices=("0", "all"), driver_version="570.1")


def toolkit(*names: str, config: Any = NOTHING, hooks: tuple[str, ...] = ()) -> Known[ContainerToolkit]:
    return Known(ContainerToolkit("1.17.8", tuple((n, f"/usr/bin/{n}") for n in names), config, hooks), "x")


HOOK = toolkit("nvidia-ctk", engine.HOOK_PROGRAM)


BASE = toolkit("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")
