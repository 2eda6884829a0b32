"""Reasons why containers cannot use GPUs: engines, their toolkit, and CDI specifications."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.engine_facts import BASE, DOCKER, FRESH, HOOK, NOTHING, NVIDIA, PODMAN, docker, engines, toolkit
from tfdoctor.core.facts import Known, Unknown
from tfdoctor.core.facts.containers import (
    CdiSpec,
    ContainerFacts,
    DaemonConfig,
    ToolkitConfig,
    UnreachableEngine,
)
from tfdoctor.core.findings import Severity
from tfdoctor.remedies import engine, engine_state


def list_kinds(facts: ContainerFacts, driver: str | None = "570.1") -> list[str]:
    return [trouble.kind for trouble in engine_state.list_engine_problems(facts, driver=driver)]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (engines(toolkit=HOOK), []),
        (engines(tools=(DOCKER, PODMAN)), ["no-toolkit"]),  # one finding for both engines
        (engines(tools=(DOCKER, PODMAN), toolkit=BASE), ["not-registered", "podman-no-cdi"]),
        (engines(docker=docker(desktop=True)), ["docker-desktop"]),
        (engines(docker=docker(rootless=True), toolkit=HOOK), ["rootless-cgroups"]),
        (
            engines(
                docker=docker(rootless=True),
                toolkit=toolkit(engine.HOOK_PROGRAM, config=Known(ToolkitConfig("c", no_cgroups=True), "c")),
            ),
            [],
        ),
        (
            engines(
                docker=docker(rootless=True), toolkit=toolkit(engine.HOOK_PROGRAM, config=Unknown("closed"))
            ),
            [],
        ),
        (
            engines(
                toolkit=toolkit(engine.HOOK_PROGRAM, config=Known(ToolkitConfig("c", no_cgroups=True), "c"))
            ),
            ["no-cgroups"],
        ),
        (engines(docker=docker(cgroup_driver="systemd"), toolkit=HOOK), ["systemd-cgroups"]),
        (engines(docker=docker(cgroup_driver="systemd"), toolkit=BASE, cdi=(FRESH,)), ["not-registered"]),
        (
            engines(
                toolkit=toolkit(engine.HOOK_PROGRAM, config=Known(ToolkitConfig("c", mode="cdi"), "c")),
            ),
            ["hook-refuses"],
        ),
        (
            engines(
                toolkit=toolkit(
                    engine.HOOK_PROGRAM,
                    config=Known(ToolkitConfig("c", mode="cdi", skip_mode_detection=True), "c"),
                ),
            ),
            [],
        ),
        (
            engines(toolkit=toolkit(engine.HOOK_PROGRAM, config=Known(ToolkitConfig("c", "line 3"), "c"))),
            ["toolkit-config"],
        ),
        (
            engines(toolkit=HOOK, daemon_config=Known(DaemonConfig("d", "", (), "nvidia"), "d")),
            ["default-runtime"],
        ),
        (engines(toolkit=HOOK, daemon_config=Known(DaemonConfig("d", "", (NVIDIA,), "nvidia"), "d")), []),
        (engines(toolkit=HOOK, daemon_config=Known(DaemonConfig("d", "", (), "runc"), "d")), []),
        (
            engines(
                toolkit=HOOK, daemon_config=Known(DaemonConfig("d", "", (replace(NVIDIA, found=None),)), "d")
            ),
            [],
        ),
        (engines(docker=Known(UnreachableEngine("remote", "tcp://x"), "x")), []),
        (engines(docker=Known(UnreachableEngine("timeout", "3 s"), "x")), ["engine-timeout"]),
    ],
)
def test_engine_problems(facts: ContainerFacts, expected: list[str]) -> None:
    assert list_kinds(facts) == expected


STALE = replace(FRESH, missing=("/usr/lib/libcuda.so.535.1",), driver_version="535.1")


LATER_FOLDER = replace(FRESH, path="/var/run/cdi/nvidia.yaml")


@pytest.mark.parametrize(
    ("specs", "driver", "severities"),
    [
        ((FRESH,), "570.1", []),
        ((FRESH,), None, []),
        ((FRESH,), "575.2", [Severity.WARNING]),
        ((replace(FRESH, driver_version=None),), "575.2", []),
        ((STALE,), None, [Severity.WARNING]),
        ((replace(FRESH, problem="Permission denied"),), "570.1", [Severity.WARNING]),
        ((STALE, LATER_FOLDER), "570.1", [Severity.INFO]),  # CDI uses the devices of the later folder
        ((FRESH, replace(STALE, path=LATER_FOLDER.path)), "570.1", [Severity.WARNING]),
        ((STALE, replace(LATER_FOLDER, devices=("0",))), "570.1", [Severity.WARNING]),
        ((replace(STALE, kind="nvidia.com/pgpu"),), "570.1", []),
    ],
)
def test_stale_cdi_specifications(
    specs: tuple[CdiSpec, ...], driver: str | None, severities: list[Severity]
) -> None:
    facts = engines(tools=(PODMAN,), docker=NOTHING, toolkit=HOOK, cdi=specs)
    assert [trouble.severity for trouble in engine_state.find_cdi_spec_problems(facts, driver)] == severities
    unused = engines(toolkit=HOOK, cdi=specs)  # Docker with CDI off
    assert all(
        trouble.severity is Severity.INFO for trouble in engine_state.find_cdi_spec_problems(unused, driver)
    )
