"""The options by which a container engine can use GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.engine_facts import BASE, FRESH, HOOK, NOTHING, NVIDIA, PODMAN, RUNC, docker, engines, toolkit
from tfdoctor.remedies import engine

if TYPE_CHECKING:
    from tfdoctor.core.facts.containers import ContainerFacts


@pytest.mark.parametrize(
    ("facts", "ways"),
    [
        (engines(), ()),
        (engines(toolkit=HOOK), (engine.GPUS_OPTION,)),
        (engines(toolkit=BASE), ()),
        (engines(toolkit=BASE, docker=docker(runtimes=(RUNC, NVIDIA))), (engine.RUNTIME_OPTIONS,)),
        (engines(docker=docker(runtimes=(RUNC, replace(NVIDIA, found=False)))), ()),
        (engines(toolkit=BASE, cdi=(FRESH,)), ()),  # CDI is off
        (
            engines(toolkit=BASE, cdi=(FRESH,), docker=docker(cdi_folders=("/etc/cdi",))),
            (engine.DEVICE_OPTION,),
        ),
        (
            engines(toolkit=BASE, cdi=(FRESH,), docker=docker(cdi_folders=("/etc/cdi",), version="29.0.1")),
            (engine.GPUS_OPTION, engine.DEVICE_OPTION),
        ),
        (engines(toolkit=HOOK, docker=docker(desktop=True)), ()),
        (engines(toolkit=HOOK, docker=docker(snap=True)), ()),
        (engines(docker=docker(snap=True, runtimes=(NVIDIA,))), (engine.GPUS_OPTION, engine.RUNTIME_OPTIONS)),
        (engines(docker=NOTHING), ()),
    ],
)
def test_options_that_give_docker_gpus(facts: ContainerFacts, ways: tuple[str, ...]) -> None:
    assert engine.list_docker_gpu_options(facts) == ways


@pytest.mark.parametrize(
    ("changes", "way"),
    [
        ({}, False),
        ({"cdi": (FRESH,)}, True),
        ({"toolkit": toolkit("nvidia-ctk", hooks=("/usr/share/containers/oci/hooks.d/nvidia.json",))}, True),
        ({"cdi": (FRESH,), "tools": (replace(PODMAN, version="4.0.3"),)}, False),
        ({"cdi": (replace(FRESH, kind="nvidia.com/pgpu"),)}, False),
        ({"cdi": (FRESH,), "tools": (replace(PODMAN, version=None),)}, None),
        ({"tools": (replace(PODMAN, version=None),)}, False),
        ({"tools": ()}, None),
    ],
)
def test_podman_needs_a_cdi_specification_or_a_hook(changes: dict[str, Any], way: bool | None) -> None:
    assert engine.can_podman_give_gpus(engines(**{"tools": (PODMAN,), "docker": NOTHING, **changes})) is way
