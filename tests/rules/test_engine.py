"""Container engines: what could keep GPUs from containers, and that it never explains this Python's trouble."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rules.make_facts import COMPAT, healthy
from tfdoctor.advice import engine, engine_state
from tfdoctor.examine.survey import survey
from tfdoctor.facts import Absent, Known, Unknown
from tfdoctor.facts.containers import (
    CdiSpec,
    ContainerFacts,
    ContainerTool,
    ContainerToolkit,
    DaemonConfig,
    DockerEngine,
    EngineSilence,
    Runtime,
    ToolkitConfig,
)
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.report.diagnose import BESIDE, diagnose
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.shared import engines as shared
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).parents[1] / "hosts"
DOCKER = ContainerTool("docker", "/usr/bin/docker", "28.2.2")
PODMAN = ContainerTool("podman", "/usr/bin/podman", "4.9.3")
RUNC = Runtime("runc", "runc", True)
NVIDIA = Runtime("nvidia", "nvidia-container-runtime", True)
ENGINE = DockerEngine("28.2.2", (RUNC,), "runc", False, False, False, "2", "cgroupfs", "overlay2", ())
FRESH = CdiSpec("/etc/cdi/nvidia.yaml", kind="nvidia.com/gpu", devices=("0", "all"), driver_version="570.1")
NOTHING = Absent("x", "not there")


def toolkit(*names: str, config: Any = NOTHING, hooks: tuple[str, ...] = ()) -> Known[ContainerToolkit]:
    return Known(ContainerToolkit("1.17.8", tuple((n, f"/usr/bin/{n}") for n in names), config, hooks), "x")


def engines(**changes: Any) -> ContainerFacts:
    facts = ContainerFacts(
        (DOCKER,), Known(ENGINE, "docker info"), "unix:///var/run/docker.sock", None, NOTHING, NOTHING, ()
    )
    return replace(facts, **changes)


def docker(**changes: Any) -> Known[DockerEngine]:
    return Known(replace(ENGINE, **changes), "docker info")


HOOK = toolkit("nvidia-ctk", engine.HOOK)
BASE = toolkit("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime")


@pytest.mark.parametrize(
    ("facts", "ways"),
    [
        (engines(), ()),
        (engines(toolkit=HOOK), (engine.GPUS,)),
        (engines(toolkit=BASE), ()),
        (engines(toolkit=BASE, docker=docker(runtimes=(RUNC, NVIDIA))), (engine.RUNTIME,)),
        (engines(docker=docker(runtimes=(RUNC, replace(NVIDIA, found=False)))), ()),
        (engines(toolkit=BASE, cdi=(FRESH,)), ()),  # CDI is off
        (engines(toolkit=BASE, cdi=(FRESH,), docker=docker(cdi_folders=("/etc/cdi",))), (engine.DEVICE,)),
        (
            engines(toolkit=BASE, cdi=(FRESH,), docker=docker(cdi_folders=("/etc/cdi",), version="29.0.1")),
            (engine.GPUS, engine.DEVICE),
        ),
        (engines(toolkit=HOOK, docker=docker(desktop=True)), ()),
        (engines(toolkit=HOOK, docker=docker(snap=True)), ()),
        (engines(docker=docker(snap=True, runtimes=(NVIDIA,))), (engine.GPUS, engine.RUNTIME)),
        (engines(docker=NOTHING), ()),
    ],
)
def test_the_ways_to_ask_docker_for_gpus(facts: ContainerFacts, ways: tuple[str, ...]) -> None:
    assert engine.docker_ways(facts) == ways


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
def test_podman_needs_a_specification_or_a_hook(changes: dict[str, Any], way: bool | None) -> None:
    assert engine.podman_way(engines(**{"tools": (PODMAN,), "docker": NOTHING, **changes})) is way


def kinds(facts: ContainerFacts, driver: str | None = "570.1") -> list[str]:
    return [trouble.kind for trouble in engine_state.troubles(facts, driver=driver)]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (engines(toolkit=HOOK), []),
        (engines(tools=(DOCKER, PODMAN)), ["no-toolkit"]),  # one finding for both
        (engines(tools=(DOCKER, PODMAN), toolkit=BASE), ["not-registered", "podman-no-cdi"]),
        (engines(docker=docker(desktop=True)), ["docker-desktop"]),
        (engines(docker=docker(rootless=True), toolkit=HOOK), ["rootless-cgroups"]),
        (
            engines(
                docker=docker(rootless=True),
                toolkit=toolkit(engine.HOOK, config=Known(ToolkitConfig("c", no_cgroups=True), "c")),
            ),
            [],
        ),
        (engines(docker=docker(rootless=True), toolkit=toolkit(engine.HOOK, config=Unknown("closed"))), []),
        (
            engines(toolkit=toolkit(engine.HOOK, config=Known(ToolkitConfig("c", no_cgroups=True), "c"))),
            ["no-cgroups"],
        ),
        (engines(docker=docker(cgroup_driver="systemd"), toolkit=HOOK), ["systemd-cgroups"]),
        (engines(docker=docker(cgroup_driver="systemd"), toolkit=BASE, cdi=(FRESH,)), ["not-registered"]),
        (
            engines(
                toolkit=toolkit(engine.HOOK, config=Known(ToolkitConfig("c", mode="cdi"), "c")),
            ),
            ["hook-refuses"],
        ),
        (
            engines(
                toolkit=toolkit(
                    engine.HOOK, config=Known(ToolkitConfig("c", mode="cdi", skip_mode_detection=True), "c")
                ),
            ),
            [],
        ),
        (
            engines(toolkit=toolkit(engine.HOOK, config=Known(ToolkitConfig("c", "line 3"), "c"))),
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
        (engines(docker=Known(EngineSilence("remote", "tcp://x"), "x")), []),
        (engines(docker=Known(EngineSilence("timeout", "3 s"), "x")), ["engine-timeout"]),
    ],
)
def test_troubles(facts: ContainerFacts, expected: list[str]) -> None:
    assert kinds(facts) == expected


STALE = replace(FRESH, missing=("/usr/lib/libcuda.so.535.1",), driver_version="535.1")
LATER = replace(FRESH, path="/var/run/cdi/nvidia.yaml")


@pytest.mark.parametrize(
    ("specs", "driver", "severities"),
    [
        ((FRESH,), "570.1", []),
        ((FRESH,), None, []),
        ((FRESH,), "575.2", [Severity.WARNING]),
        ((replace(FRESH, driver_version=None),), "575.2", []),
        ((STALE,), None, [Severity.WARNING]),
        ((replace(FRESH, problem="Permission denied"),), "570.1", [Severity.WARNING]),
        ((STALE, LATER), "570.1", [Severity.INFO]),  # CDI takes the devices of the later folder
        ((FRESH, replace(STALE, path=LATER.path)), "570.1", [Severity.WARNING]),
        ((STALE, replace(LATER, devices=("0",))), "570.1", [Severity.WARNING]),
        ((replace(STALE, kind="nvidia.com/pgpu"),), "570.1", []),
    ],
)
def test_stale_specifications(
    specs: tuple[CdiSpec, ...], driver: str | None, severities: list[Severity]
) -> None:
    facts = engines(tools=(PODMAN,), docker=NOTHING, toolkit=HOOK, cdi=specs)
    assert [trouble.severity for trouble in engine_state.stale(facts, driver)] == severities
    unused = engines(toolkit=HOOK, cdi=specs)  # Docker with CDI off
    assert all(trouble.severity is Severity.INFO for trouble in engine_state.stale(unused, driver))


def outcomes(facts: Any) -> dict[str, OutcomeKind]:
    report = diagnose(facts, COMPAT)
    return {outcome.code: outcome.kind for outcome in report.outcomes if outcome.code in BESIDE}


def test_nothing_is_judged_where_containers_could_have_no_gpu() -> None:
    facts = replace(healthy(), containers=Known(engines(), "x"))
    assert outcomes(facts)["TFD403"] is OutcomeKind.FOUND
    inside = replace(facts, machine=replace(facts.machine, container="docker"))
    blind = replace(facts, driver=replace(facts.driver, cuda=Unknown("hangs"), cuda_unhidden=None))
    bare = replace(facts, containers=Known(engines(tools=(), docker=NOTHING), "x"))
    absent = replace(facts, containers=NOTHING)
    for nothing in (inside, blind, bare, absent):
        assert set(outcomes(nothing).values()) == {OutcomeKind.NOT_APPLICABLE}
    unknown = replace(facts, containers=Unknown("it crashed"))
    assert set(outcomes(unknown).values()) == {OutcomeKind.COULD_NOT_CHECK}


def test_docker_desktop_under_wsl_has_a_toolkit_of_its_own() -> None:
    facts = replace(healthy(), containers=Known(engines(docker=docker(desktop=True)), "x"))
    assert outcomes(facts)["TFD403"] is OutcomeKind.FOUND
    wsl = replace(facts, machine=replace(facts.machine, wsl=2))
    assert outcomes(wsl)["TFD403"] is OutcomeKind.NOT_APPLICABLE


def test_it_is_never_the_root_cause() -> None:
    """Not even where the prediction has no better word than one of theirs."""
    assert {rule.code for rule in ALL_RULES if rule.check.__module__ in _modules()} == BESIDE
    facts = replace(
        healthy(), containers=Known(engines(docker=Known(EngineSilence("timeout", "3 s"), "x")), "x")
    )
    for cause in (Cause.INCONCLUSIVE, Cause.NO_NVIDIA_RUNTIME, Cause.CONTAINER_NVML_LOST):
        found = diagnose(facts, COMPAT)
        findings = [replace(f, cause=cause) for f in found.findings]
        assert findings
        prediction = replace(found.prediction, gpu_registered=False, cause=cause)
        from tfdoctor.report.diagnose import _root

        assert _root([f for f in findings if f.code in BESIDE], prediction) is None


def _modules() -> set[str]:
    """Those that judge through `shared.engines`."""
    import sys

    return {
        rule.check.__module__
        for rule in ALL_RULES
        if getattr(sys.modules[rule.check.__module__], "engines", None) is shared
    }


@pytest.mark.parametrize(
    "folder", sorted(p.parent for p in HOSTS.glob("*/host.json") if p.parent.name.startswith(("docker-", "podman-"))),
    ids=lambda path: path.name,
)  # fmt: skip
def test_no_rule_crashes_where_parts_are_unknown(folder: Path) -> None:
    facts = survey(RecordedSystem(folder), COMPAT)
    assert isinstance(facts.containers, Known)
    for nothing in (Unknown("not looked at"), Absent("somewhere")):
        for name in ("docker", "daemon_config", "toolkit"):
            part = replace(facts.containers.value, **{name: nothing})
            report = diagnose(replace(facts, containers=Known(part, "x")), COMPAT)
            assert not [o for o in report.outcomes if o.kind is OutcomeKind.CRASHED]
            assert all(f.severity < Severity.ERROR for f in report.findings if f.code in BESIDE)
