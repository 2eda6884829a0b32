"""Define the request for a verification, and the state of a running verification."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Stage, Verification
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.remedies.pip import quote
from tfdoctor.verification.stages import PAYLOAD_STAGES, STAGES, Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Finding, Report, Simulation
    from tfdoctor.remedies.target import TargetImage
    from tfdoctor.verification.simulate.compute_libraries import LibrarySet
    from tfdoctor.verification.simulate.request import SimulatedGpus

__all__ = [
    "VerificationRun",
    "VerifyRequest",
    "complete_request",
    "count_expected_gpus",
    "format_memory_limit",
    "ignore_stage",
]


STAGE_MEANINGS = {
    "runtime": "a container of the image starts, and a Python answers in it",
    "driver": "TensorFlow finds the driver's library",
    "libraries": "the loader gives TensorFlow the CUDA libraries that it opens",
    "import": "TensorFlow imports",
    "visible": "TensorFlow registers such cards behind such a driver",
}
"""Phrases for what a passed stage shows, even with simulated GPUs and drivers."""


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """A request for a verification."""

    stages: tuple[str, ...] = STAGES
    expected: int | None = None
    """Expected number of GPUs; None means as many as the host has."""
    gpus: str | None = None
    """GPUs for the container: "all", "none", indexes such as "0,1", or UUIDs; None means all."""
    limits: Limits = field(default_factory=Limits)
    memory_bytes: int | None = None
    """Memory limit of the container in bytes; None means no limit."""
    python: str | None = None
    """Path of the Python in the image; None means the first one that has TensorFlow."""
    device: str = "GPU"
    """"GPU", or "CPU" to run the same computations on the CPU."""
    simulated_gpus: SimulatedGpus | None = None
    """GPUs and driver to simulate; None means to use the real ones."""


def complete_request(request: VerifyRequest) -> VerifyRequest:
    """Add the stages on which the requested stages depend.

    If the CPU is tested, remove the stages that need a GPU. The container gets no GPUs if they are simulated or if the
    CPU is tested.
    """
    stages = request.stages
    last_index = max((PAYLOAD_STAGES.index(name) for name in stages if name in PAYLOAD_STAGES), default=-1)
    # The first two stages of the payload, `import` and `visible`, precede each later one.
    dependencies = PAYLOAD_STAGES[: min(last_index, 1) + 1]
    stages = tuple(name for name in STAGES if name in stages or name in dependencies)
    if request.simulated_gpus is not None:
        return replace(request, stages=stages, gpus="none")
    if request.device == "GPU":
        return replace(request, stages=stages)
    stages = tuple(name for name in stages if name not in ("driver", "nccl"))
    return replace(request, stages=stages, gpus="none", expected=None)


def count_expected_gpus(facts: Facts, gpus: str | None) -> int | None:
    """Return the number of CUDA devices that the host can provide; None if it is unknown.

    `gpus` selects devices as in `VerifyRequest`. If it selects all, devices that CUDA_VISIBLE_DEVICES hides are
    counted, too.
    """
    if gpus == "none":
        return 0
    if gpus not in (None, "", "all"):
        return len(str(gpus).split(","))
    for fact in (facts.driver.cuda_unhidden, facts.driver.cuda):
        cuda = value_of(fact) if fact is not None else None
        if cuda is not None and cuda.loaded and cuda.init == 0 and cuda.count is not None:
            return cuda.count
    return None


def ignore_stage(stage: Stage) -> None:
    """Do nothing. This is the default callback for finished stages."""


def format_memory_limit(size: int | None) -> str:
    """Return a number of bytes in the form that --memory accepts, such as "4g"."""
    for unit, letter in ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")):
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return f"{(size or 0) >> 10}k"


class VerificationRun:
    """The state of a running verification: its stages and its findings."""

    def __init__(
        self,
        target: str,
        request: VerifyRequest,
        on_stage: Callable[[Stage], None],
        image: TargetImage | None = None,
    ) -> None:
        self.target, self.verify_request, self._on_stage, self.image = target, request, on_stage, image
        self.stages: list[Stage] = []
        self.findings: list[Finding] = []
        self.cause: Cause | None = None
        """The cause of the first failed stage; None if none has failed."""
        self.visible_count: int | None = None
        """The number of GPUs that TensorFlow lists; None if the stage `visible` has not run."""
        self.computed_count: int | None = None
        """The number of GPUs that computed correctly; None if the stage `compute` has not run."""
        self.expected_count = request.expected
        """The expected number of GPUs; None if it is unknown."""
        self.report: Report | None = None
        """The result of the probes and rules."""
        self.gpu_option = ""
        """The engine's option that gave the container its GPUs; "" if there is none."""
        self.architectures = ("", "")
        """The architectures of the image and of the engine, such as "arm64"; "" if unknown."""
        self.other_libcuda: str | None = None
        """Path of another libcuda.so.1 that the loader finds before the stand-in; None if there is none."""
        self.build_software_gpu: Callable[[LibrarySet, tuple[int, ...] | None], str] | None = None
        """A function that builds the libraries of the software GPU, and returns their folder in the target.

        Its second argument is the newest glibc that the libraries may require; None if it is unknown. The attribute
        is None if there is no software GPU.
        """
        self.simulation_results: tuple[str, ...] = ()
        """Phrases for what a simulation shows in addition to its stages."""
        if request.simulated_gpus is not None:
            self.expected_count = (
                request.expected if request.expected is not None else len(request.simulated_gpus.cards)
            )

    def record_stage(self, name: str, status: str, detail: str, seconds: float = 0.0) -> None:
        """Record a finished stage and pass it to the callback, unless it was not requested."""
        if name not in self.verify_request.stages:
            return
        stage = Stage(name, status, clean_line(detail, limit=1000), round(seconds, 2))
        self.stages.append(stage)
        self._on_stage(stage)

    def record_failure(self, name: str, detail: str, cause: Cause | None, seconds: float = 0.0) -> None:
        """Record that a stage failed.

        If it was not requested, the next requested stage fails instead, or else the last requested one.
        """
        requested = [stage_name for stage_name in STAGES if stage_name in self.verify_request.stages]
        this_and_later = [
            stage_name for stage_name in requested if STAGES.index(stage_name) >= STAGES.index(name)
        ]
        for stage_name in (this_and_later or requested[-1:])[:1]:  # nothing if no stage was requested
            self.record_stage(stage_name, "failed", detail, seconds)
        if self.cause is None and any(stage.status == "failed" for stage in self.stages):
            self.cause = cause or Cause.INCONCLUSIVE

    @property
    def has_failed(self) -> bool:
        """Whether a stage has failed."""
        return any(stage.status == "failed" for stage in self.stages)

    def make_result(self) -> Verification:
        """Return the result of the verification, with the stages that were not run as skipped."""
        recorded_names = {stage.name for stage in self.stages}
        failed_stage = next((stage for stage in self.stages if stage.status == "failed"), None)
        for name in self.verify_request.stages:
            if name not in recorded_names:
                reason = f"not tried: {failed_stage.name} failed" if failed_stage is not None else "not tried"
                self.record_stage(name, "skipped", reason)
        self.stages.sort(key=lambda stage: STAGES.index(stage.name))
        return Verification(
            target=self.target,
            stages=tuple(self.stages),
            expected=self.expected_count,
            visible=self.visible_count,
            computed=self.computed_count,
            cause=self.cause if failed_stage is not None else Cause.HEALTHY,
            summary=self._summarize(failed_stage),
            # If nothing failed, findings need the stage `driver`: without it, nobody asked about the machine.
            findings=tuple(self.findings)
            if failed_stage is not None or "driver" in self.verify_request.stages
            else (),
            access=self.gpu_option,
            report=self.report,
            command=self.build_command(),
            simulated=self._build_simulation(),
        )

    def _build_simulation(self) -> Simulation | None:
        """Return what was simulated and what that shows; None if nothing was simulated."""
        simulated = self.verify_request.simulated_gpus
        if simulated is None:
            return None
        passed = [stage.name for stage in self.stages if stage.status == "passed"]
        return simulated.describe(
            [*(STAGE_MEANINGS[name] for name in passed if name in STAGE_MEANINGS), *self.simulation_results],
            computed=self.computed_count is not None,
        )

    def build_command(self, *, memory: bool = True, gpus: bool = True) -> str:
        """Return the command that repeats this verification, without its stages and time limits.

        The options --memory and --devices can be omitted.
        """
        request, image = self.verify_request, self.image
        if image is None:
            arguments = ["--python", quote(self.target)]
        else:
            arguments = [quote(image.name)]
            arguments += (
                ["--devices", quote(request.gpus)]
                if gpus
                and request.gpus is not None
                and request.device == "GPU"
                and request.simulated_gpus is None
                else []
            )
            arguments += (
                ["--memory", format_memory_limit(request.memory_bytes)]
                if memory and request.memory_bytes
                else []
            )
            arguments += ["--python", quote(request.python)] if request.python else []
        arguments += ["--devices", request.device] if request.device != "GPU" else []
        arguments += (
            [quote(argument) for argument in request.simulated_gpus.typed_options]
            if request.simulated_gpus is not None
            else []
        )
        return " ".join(["tfdoctor verify", *arguments])

    def _summarize(self, failed_stage: Stage | None) -> str:
        """Summarize the result in one sentence."""
        if failed_stage is not None:
            return f"{failed_stage.name} failed: {failed_stage.detail}"
        listed_count = self.visible_count if "visible" in self.verify_request.stages else None
        count = self.computed_count if self.computed_count is not None else listed_count
        if count is None:
            passed = [stage.name for stage in self.stages if stage.status == "passed"]
            was_imported = "import" in passed
            outcome = f"{join_words(passed)} passed" if passed else "nothing could be tried"
            return outcome if was_imported else f"{outcome}; TensorFlow was not started"
        if self.verify_request.simulated_gpus is not None:
            gpu_text, card_note = (
                f"{count} GPU{'s' * (count != 1)}",
                f"(simulated: {self.verify_request.simulated_gpus.title})",
            )
            if self.computed_count:
                return f"TensorFlow sees {gpu_text} {card_note} and computes on {'it' if count == 1 else 'them'} in software"
            return f"TensorFlow lists {gpu_text} {card_note}; nothing was computed"
        devices = f"{count} {self.verify_request.device}{'s' * (count != 1)}"
        if self.computed_count is None:
            return f"TensorFlow lists {devices}; nothing was computed"
        verb = "sees and computes on" if self.verify_request.device == "GPU" else "computes correctly on"
        return f"TensorFlow {verb} {devices}"
