"""Does TensorFlow in there really see and use the GPUs? The stages in order, the first failing one with its root cause.

The same probes and rules as `check` look into the container or environment; then one payload, in a process of its own,
imports TensorFlow, lists the GPUs, and computes on each. Nothing is judged inside.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tfdoctor.engine import GpuAccess, RunRequest
from tfdoctor.engine.system import ContainerSystem, StartError
from tfdoctor.examine import examine, judge
from tfdoctor.examine.observe import SHOW_LOADER, Said, cause_in_log, observation, opened
from tfdoctor.facts import value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity, Stage, Verification
from tfdoctor.logs.report import diagnose_log
from tfdoctor.rules import compute_fails
from tfdoctor.system import Failure
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.signals import stopping
from tfdoctor.text import clean_line
from tfdoctor.verify.stages import STAGES, Answer, Limits, read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.compat.cards import Cards
    from tfdoctor.engine import Engine
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Report
    from tfdoctor.system import CommandResult, System

__all__ = ["Wish", "verify_image", "verify_python"]

LOOKING = 30.0
"""Seconds that looking into a container or environment may take."""
OF_TENSORFLOW = ("import", "visible", "compute", "cudnn", "nccl")
"""The stages that the payload goes through, in its order."""
DRIVERS = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
"""What comes from the driver: the stage of that name judges them."""
_PYTHONS = ("python", "python3", "python2")


_HAS_TENSORFLOW = (
    "import sys\n"
    "try:\n from importlib.util import find_spec\n"
    "except ImportError:\n from pkgutil import find_loader as find_spec\n"
    "sys.exit(not find_spec('tensorflow'))"
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be verified."""

    stages: tuple[str, ...] = STAGES
    expected: int | None = None
    """How many GPUs there have to be; None: as many as the host has."""
    gpus: str | None = None
    """"all", "0,1", UUIDs, "none"; None: all."""
    limits: Limits = field(default_factory=Limits)
    memory: int | None = None
    """Bytes that the container may take."""
    python: str | None = None
    """The Python in the image."""
    device: str = "GPU"
    """"CPU": the same computations on the CPU, where there is no GPU to be had (a test of the test)."""


def _nobody(stage: Stage) -> None:
    """Nobody is told."""


class _Run:
    """The stages as they come, and what is found."""

    def __init__(self, target: str, wish: Wish, on_stage: Callable[[Stage], None]) -> None:
        self.target, self.wish, self._tell = target, wish, on_stage
        self.stages: list[Stage] = []
        self.findings: list[Finding] = []
        self.cause: Cause | None = None
        self.visible: int | None = None
        self.computed: int | None = None
        self.expected = wish.expected
        self.report: Report | None = None
        self.access = ""

    def add(self, name: str, status: str, detail: str, seconds: float = 0.0) -> None:
        if name not in self.wish.stages:
            return
        stage = Stage(name, status, clean_line(detail, limit=1000), round(seconds, 2))
        self.stages.append(stage)
        self._tell(stage)

    def fail(self, name: str, detail: str, cause: Cause | None, seconds: float = 0.0) -> None:
        self.add(name, "failed", detail, seconds)
        if self.cause is None and any(stage.status == "failed" for stage in self.stages):
            self.cause = cause or Cause.INCONCLUSIVE

    @property
    def stopped(self) -> bool:
        return any(stage.status == "failed" for stage in self.stages)

    def result(self) -> Verification:
        done = {stage.name for stage in self.stages}
        failed = next((stage for stage in self.stages if stage.status == "failed"), None)
        for name in self.wish.stages:
            if name not in done:
                why = f"not tried: {failed.name} failed" if failed is not None else "not tried"
                self.add(name, "skipped", why)
        self.stages.sort(key=lambda stage: STAGES.index(stage.name))
        return Verification(
            target=self.target,
            stages=tuple(self.stages),
            expected=self.expected,
            visible=self.visible,
            computed=self.computed,
            cause=self.cause if failed is not None else Cause.HEALTHY,
            summary=self._summary(failed),
            findings=tuple(_for_target(finding, self.target) for finding in self._worth_telling(failed)),
            access=self.access,
            report=self.report,
        )

    def _worth_telling(self, failed: Stage | None) -> list[Finding]:
        """What was found; where all passed without a look at the driver, what is said of that is beside the point."""
        return self.findings if failed is not None or "driver" in self.wish.stages else []

    def _summary(self, failed: Stage | None) -> str:
        if failed is not None:
            return f"{failed.name} failed: {failed.detail}"
        listed = self.visible if "visible" in self.wish.stages else None
        count = self.computed if self.computed is not None else listed
        if count is None:
            return "nothing that was tried failed"
        if self.wish.device != "GPU":
            return f"TensorFlow computes right on {count} {self.wish.device}{'s' * (count != 1)}"
        verb = "lists" if self.computed is None else "sees and computes on"
        return f"TensorFlow {verb} {count} GPU{'s' * (count != 1)}"


def _for_target(finding: Finding, target: str) -> Finding:
    """Its remedies end with looking again: at an image, that is another command."""
    if target.startswith("/"):
        return finding
    again = f"tfdoctor verify {target}"
    remedies = tuple(
        replace(
            remedy,
            commands=tuple(again if line.startswith("tfdoctor check") else line for line in remedy.commands),
        )
        for remedy in finding.remedies
    )
    return replace(finding, remedies=remedies)


def _completed(wish: Wish) -> Wish:
    """Nothing computes without the import; on the CPU nothing of a GPU is asked for."""
    stages = wish.stages
    last = max((OF_TENSORFLOW.index(name) for name in stages if name in OF_TENSORFLOW), default=-1)
    needed = OF_TENSORFLOW[: min(last, 1) + 1]
    stages = tuple(name for name in STAGES if name in stages or name in needed)
    if wish.device == "GPU":
        return replace(wish, stages=stages)
    stages = tuple(name for name in stages if name not in ("driver", "nccl"))
    return replace(wish, stages=stages, gpus="none", expected=None)


# ---------------------------------------------------------------- an image


def verify_image(
    engine: Engine,
    compat: Compat,
    image: str,
    wish: Wish,
    *,
    host: Facts | None = None,
    on_stage: Callable[[Stage], None] = _nobody,
) -> Verification:
    """Verify an image of the engine. The container is removed, whatever happens.

    `host`: the facts of the machine that the engine runs on, where it is this one. Raises EngineError where the image
    or the engine is not there.
    """
    wish = _completed(wish)
    run = _Run(image, wish, on_stage)
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
        report = examine(system, compat, python=python, timeout=LOOKING)
        _runtime(run, report.facts, access, started)
        _inside(run, system, compat, report)
        if system.state().get("OOMKilled") and run.stopped:
            run.findings.append(_killed_for_memory(wish))
    return run.result()


def _start(
    engine: Engine, compat: Compat, image: str, wish: Wish, host: Facts | None, run: _Run
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


def _runtime(run: _Run, facts: Facts, access: GpuAccess, seconds: float) -> None:
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


# ---------------------------------------------------------------- an environment


def verify_python(
    system: System,
    compat: Compat,
    python: str | None,
    wish: Wish,
    *,
    on_stage: Callable[[Stage], None] = _nobody,
) -> Verification:
    """Verify the TensorFlow of a Python on this machine. Raises UsageError where there is no such Python."""
    wish = _completed(replace(wish, stages=tuple(name for name in wish.stages if name != "runtime")))
    report = examine(system, compat, python=python, timeout=LOOKING)
    interpreter = value_of(report.facts.python)
    run = _Run(interpreter.executable if interpreter is not None else str(python), wish, on_stage)
    if run.expected is None:
        run.expected = expected_gpus(report.facts, wish.gpus)
    _inside(run, system, compat, report)
    return run.result()


def expected_gpus(facts: Facts, gpus: str | None) -> int | None:
    """How many CUDA devices the host can give: what its driver shows unhidden, or the chosen ones; None: not known."""
    if gpus == "none":
        return 0
    if gpus not in (None, "", "all"):
        return len(str(gpus).split(","))
    for fact in (facts.driver.cuda_unhidden, facts.driver.cuda):
        answer = value_of(fact) if fact is not None else None
        if answer is not None and answer.loaded and answer.init == 0 and answer.count is not None:
            return answer.count
    return None


# ---------------------------------------------------------------- what both share


def _inside(run: _Run, system: System, compat: Compat, report: Report) -> None:
    """driver, libraries, and what TensorFlow itself does."""
    facts, run.report = report.facts, report
    if not run.stopped and run.wish.device == "GPU":
        _driver(run, facts, report)
    if not run.stopped:
        _libraries(run, facts, report)
    interpreter, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    if run.stopped and run.wish.device == "GPU":
        run.findings += [finding for finding in report.findings if finding.severity is Severity.ERROR]
        return
    if interpreter is None or tensorflow is None:
        run.fail("import", "there is no TensorFlow in it", Cause.INCONCLUSIVE)
        run.findings += list(report.findings)
        return
    answer, result = _compute(run, system, interpreter.executable, expected_speed(facts, compat.cards))
    observed = observation(_said(answer, result), result, opened(tensorflow, compat), compat)
    report = judge(facts, compat, observed)
    run.report = report
    _told(run, answer, result, report, compat)
    run.findings += [f for f in report.findings if f.severity is not Severity.INFO]


def _driver(run: _Run, facts: Facts, report: Report) -> None:
    cuda = value_of(facts.driver.cuda)
    without = [name for name in report.prediction.missing_libraries if name in DRIVERS]
    if cuda is not None and cuda.loaded and cuda.init == 0 and cuda.count and not without:
        run.add(
            "driver",
            "passed",
            f"libcuda answers: CUDA {cuda.version}, {cuda.count} device{'s' * (cuda.count != 1)}",
        )
        return
    root = report.root
    if cuda is None:
        run.add("driver", "skipped", "the driver could not be asked")
        return
    detail = root.title if root is not None else (cuda.load_error or cuda.init_name or "no device")
    run.fail("driver", detail, root.cause if root is not None else report.prediction.cause)


def _libraries(run: _Run, facts: Facts, report: Report) -> None:
    tensorflow = value_of(facts.tensorflow)
    if tensorflow is None:
        return
    missing = [name for name in report.prediction.missing_libraries if name not in DRIVERS]
    if missing:
        cause = report.root.cause if report.root is not None else report.prediction.cause
        run.fail("libraries", f"the loader cannot give {', '.join(missing)}", cause)
        return
    loader = value_of(facts.loader)
    opened = [one for one in (loader.resolutions if loader is not None else ()) if one.soname not in DRIVERS]
    count = sum(resolution.ok for resolution in opened)
    if not count:
        run.add("libraries", "skipped", "which libraries this TensorFlow opens is not known")
        return
    run.add("libraries", "passed", f"the loader gives all {count} that TensorFlow opens")


def expected_speed(facts: Facts, cards: Cards) -> dict[str, float]:
    """GPU → GFLOP/s in float32 that its multiprocessors can give at their highest clock; those that are known."""
    cuda = value_of(facts.driver.cuda)
    found = {}
    for device in cuda.devices if cuda is not None else ():
        each = cards.per_clock(device.compute_capability) if device.compute_capability else None
        if each and device.multiprocessors and device.clock_mhz:
            found[str(device.ordinal)] = 2.0 * each * device.multiprocessors * device.clock_mhz / 1000
    return found


def _compute(run: _Run, system: System, python: str, speed: dict[str, float]) -> tuple[Answer, CommandResult]:
    """Run the payload; it ends by itself at each stage's deadline, and is ended where it does not."""
    wish = run.wish
    names = [name for name in wish.stages if name in OF_TENSORFLOW]
    asked: dict[str, Any] = {"stages": names, "device": wish.device, "limits": wish.limits.as_json()}
    if wish.device == "GPU":
        asked["expected"] = speed
    with stopping(system):
        _, result = run_payload(
            system,
            python,
            "stages",
            [json.dumps(asked)],
            timeout=wish.limits.total(names) + 15,
            env=SHOW_LOADER if wish.device == "GPU" else {**SHOW_LOADER, "CUDA_VISIBLE_DEVICES": "-1"},
            unset=("TF_CPP_MAX_VLOG_LEVEL",),
        )
    return read_answer(result, wish.limits), result


def _said(answer: Answer, result: CommandResult) -> Said:
    listed = answer.status("visible") in ("passed", "failed")
    return Said(
        imported=answer.status("import") == "passed",
        devices=answer.devices if listed else None,
        computed=tuple(answer.computed_lines()),
        error=answer.error,
        seconds=result.seconds,
        timed_out=result.failure is Failure.TIMEOUT or answer.timed_out,
    )


def _told(run: _Run, answer: Answer, result: CommandResult, report: Report, compat: Compat) -> None:
    """The payload's stages, with the root cause of the first that failed."""
    for name in OF_TENSORFLOW:
        if name not in run.wish.stages:
            continue
        stage = answer.stage(name)
        if stage is None or run.stopped:
            continue
        if name == "visible" and stage.status == "passed" and run.wish.device == "GPU":
            stage = _count(run, stage, len(answer.devices))
        if stage.status == "failed":
            run.fail(name, stage.detail, _cause_of(name, answer, result, report, compat), stage.seconds)
        else:
            run.add(name, stage.status, stage.detail, stage.seconds)
    if answer.topology and run.stages and run.stages[-1].name == "nccl":
        run.stages[-1] = replace(run.stages[-1], detail=f"{run.stages[-1].detail} ({answer.topology})")
    run.visible = len(answer.devices) if answer.status("visible") in ("passed", "failed") else None
    if answer.status("compute") in ("passed", "failed"):
        run.computed = answer.computed_count()


def _count(run: _Run, stage: Stage, visible: int) -> Stage:
    """As many as expected, or a failure that says how many."""
    if run.expected is None or visible == run.expected:
        return stage
    return replace(stage, status="failed", detail=f"TensorFlow lists {visible} of {run.expected} GPUs")


def _cause_of(
    name: str, answer: Answer, result: CommandResult, report: Report, compat: Compat
) -> Cause | None:
    """What the rules say of it; else what its log says."""
    root = report.root
    if name in ("import", "visible") and root is not None:
        return root.cause
    for finding in report.findings:
        if (
            finding.code == compute_fails.RULE.code
            and finding.cause is not Cause.INCONCLUSIVE
            and name == "compute"
        ):
            return finding.cause
    if name == "nccl":
        return Cause.NCCL_FAILURE
    return cause_in_log(result, answer.error, compat) or (root.cause if root is not None else None)


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
