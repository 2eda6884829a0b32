"""Verifying the TensorFlow of an image: in a container of it, with the GPUs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdoctor.engine import GpuAccess, RunRequest
from tfdoctor.engine.system import ContainerSystem, StartError
from tfdoctor.examine import examine
from tfdoctor.facts import value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.logs.report import diagnose_log
from tfdoctor.text import clean_line
from tfdoctor.verify.inside import LOOKING, look_inside
from tfdoctor.verify.verifying import Verifying, completed, expected_gpus, nobody

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.engine import Engine
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Stage, Verification
    from tfdoctor.system import System
    from tfdoctor.verify.verifying import Wish

__all__ = ["verify_image", "ways"]

_PYTHONS = ("python", "python3", "python2")


_HAS_TENSORFLOW = (
    "import sys\n"
    "try:\n from importlib.util import find_spec\n"
    "except ImportError:\n from pkgutil import find_loader as find_spec\n"
    "sys.exit(not find_spec('tensorflow'))"
)


def verify_image(
    engine: Engine,
    compat: Compat,
    image: str,
    wish: Wish,
    *,
    host: Facts | None = None,
    on_stage: Callable[[Stage], None] = nobody,
) -> Verification:
    """Verify an image of the engine. The container is removed, whatever happens.

    `host`: the facts of the machine that the engine runs on, where it is this one. Raises EngineError where the image
    or the engine is not there.
    """
    wish = completed(wish)
    run = Verifying(image, wish, on_stage, image=image)
    if run.expected is None and host is not None:
        run.expected = expected_gpus(host, wish.gpus)
    began = time.monotonic()
    system, access = _start(engine, compat, image, wish, host, run)
    if system is None:
        return run.result()
    run.access = access.option
    with system:
        started = time.monotonic() - began
        python = wish.python or _python_with_tensorflow(system)
        report = examine(system, compat, python=python, timeout=LOOKING, image=image)
        _runtime(run, report.facts, access, started)
        look_inside(run, system, compat, report)
        if system.state().get("OOMKilled") and run.stopped:
            run.findings.append(_killed_for_memory(wish))
    return run.result()


def _start(
    engine: Engine, compat: Compat, image: str, wish: Wish, host: Facts | None, run: Verifying
) -> tuple[ContainerSystem | None, GpuAccess]:
    """The container, by the first way to the GPUs that the engine takes."""
    began = time.monotonic()
    refused: list[tuple[GpuAccess, str]] = []
    for access in ways(engine, wish.gpus):
        request = RunRequest(image=image, command=(), gpus=access, memory=wish.memory, shm_size=1 << 30)
        try:
            return ContainerSystem(engine, request), access
        except StartError as error:
            refused.append((access, error.said))
    access, said = refused[0]
    finding = _refused(compat, refused, host)
    run.access = access.option
    run.findings.append(finding)
    run.fail("runtime", f"{finding.title}: {said}", finding.cause, time.monotonic() - began)
    return None, access


def ways(engine: Engine, gpus: str | None) -> list[GpuAccess]:
    """How this engine might give GPUs to a container, the most usual first."""
    if gpus == "none":
        return [GpuAccess("none")]
    devices = ("all",) if gpus in (None, "all", "") else tuple(str(gpus).split(","))
    found: list[GpuAccess] = []
    if engine.name == "podman":
        return [GpuAccess("cdi", devices)]
    found.append(GpuAccess("gpus", devices))
    if "nvidia" in engine.runtimes:
        found.append(GpuAccess("runtime", devices))
    if engine.cdi:
        found.append(GpuAccess("cdi", devices))
    return found


def _refused(compat: Compat, refused: Sequence[tuple[GpuAccess, str]], host: Facts | None) -> Finding:
    """What the engine's own words mean, by the same signatures as `diagnose`."""
    text = "\n".join(f"docker: Error response from daemon: {said}" for _, said in refused)
    report = diagnose_log([text.encode("utf-8", "replace")], compat, "the engine")
    cause = report.cause
    if cause in (Cause.INCONCLUSIVE, Cause.HEALTHY):
        cause = Cause.NO_NVIDIA_RUNTIME if _about_gpus(text) else Cause.INCONCLUSIVE
    remedies: list[Remedy] = list(report.root.remedies) if report.root is not None else []
    containers = value_of(host.containers) if host is not None else None
    if containers is not None:
        from tfdoctor.advice.engine_state import troubles

        for trouble in troubles(containers):
            if trouble.cause is cause:
                remedies = [*trouble.remedies, *remedies]
    title = report.summary if report.root is not None else cause.row.meaning
    return Finding(
        code=cause.row.code,
        cause=cause,
        severity=Severity.ERROR,
        title=clean_line(report.root.title if report.root is not None else title, limit=200),
        explanation=clean_line(report.summary, limit=1000),
        evidence=tuple(
            Evidence(f"docker run {access.option}", clean_line(said, limit=600)) for access, said in refused
        ),
        remedies=tuple(dict.fromkeys(remedies)),
    )


def _about_gpus(text: str) -> bool:
    return any(word in text.lower() for word in ("gpu", "nvidia", "cdi", "device driver", "runtime"))


def _python_with_tensorflow(system: System) -> str | None:
    """The command in the image whose Python has a TensorFlow; None: the usual search decides."""
    for name in _PYTHONS:
        place = system.which(name)
        if place is None:
            continue
        found = system.run([place, "-B", "-c", _HAS_TENSORFLOW], timeout=20)
        if found.ok:
            return place
    return None


def _runtime(run: Verifying, facts: Facts, access: GpuAccess, seconds: float) -> None:
    """The container runs; did anything of the GPUs come into it?"""
    cuda = value_of(facts.driver.cuda)
    nodes = value_of(facts.driver.nodes)
    inside = (cuda is not None and cuda.loaded) or (
        nodes is not None and any(name.startswith("/dev/nvidia") for name in nodes.names)
    )
    if inside or run.wish.device != "GPU":
        run.add("runtime", "passed", f"a container starts with {access.option or 'no GPUs'}", seconds)
        return
    asked = run.wish.gpus == "none"
    cause = Cause.CONTAINER_NO_GPU
    detail = (
        "the container was started without GPUs, as asked"
        if asked
        else f"the container starts with {access.option}, and no driver and no device node comes into it"
    )
    run.fail("runtime", detail, cause, seconds)


def _killed_for_memory(wish: Wish) -> Finding:
    limit = f" of {wish.memory / 1e9:.1f} GB" if wish.memory else ""
    return Finding(
        code=Cause.OOM.row.code,
        cause=Cause.OOM,
        severity=Severity.ERROR,
        title=f"The container reached its limit of memory{limit} and was killed",
        explanation="The kernel ended a process of the container: it may take no more of the machine's memory.",
        remedies=(Remedy("Give it more: --memory, or none.", ()),),
    )
