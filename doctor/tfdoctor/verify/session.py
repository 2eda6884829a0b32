"""What is to be verified, and the stages of a verification as they come."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfdoctor.advice.pip import quote
from tfdoctor.facts import value_of
from tfdoctor.findings import Cause, Stage, Verification
from tfdoctor.text import clean_line, join_words
from tfdoctor.verify.stages import PAYLOAD, STAGES, Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.advice.target import InImage
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Finding, Report, Simulation
    from tfdoctor.simulate.compute_libraries import LibrarySet
    from tfdoctor.simulate.request import Simulated

__all__ = ["Verifying", "Wish", "complete_request", "count_expected_gpus", "format_size", "ignore_stage"]


PROVES = {
    "runtime": "a container of the image starts, and a Python answers in it",
    "driver": "the environment lets TensorFlow find a driver where a driver's libraries lie",
    "libraries": "the loader gives TensorFlow the CUDA libraries that it opens",
    "import": "TensorFlow imports",
    "visible": "TensorFlow registers such cards behind such a driver",
}
"""What a stage that passes shows, also where card and driver are stand-ins."""


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
    simulated: Simulated | None = None
    """The cards and the driver that stand-ins are for; None: it is the real ones that count."""


def complete_request(wish: Wish) -> Wish:
    """Add the stages that others need: nothing computes without the import, and the CPU needs no GPU stage."""
    stages = wish.stages
    last = max((PAYLOAD.index(name) for name in stages if name in PAYLOAD), default=-1)
    needed = PAYLOAD[: min(last, 1) + 1]
    stages = tuple(name for name in STAGES if name in stages or name in needed)
    if wish.simulated is not None:
        return replace(wish, stages=stages, gpus="none")
    if wish.device == "GPU":
        return replace(wish, stages=stages)
    stages = tuple(name for name in stages if name not in ("driver", "nccl"))
    return replace(wish, stages=stages, gpus="none", expected=None)


def count_expected_gpus(facts: Facts, gpus: str | None) -> int | None:
    """Return how many CUDA devices the host can give; None if it is not known.

    These are the devices that its driver shows unhidden, or the chosen ones.
    """
    if gpus == "none":
        return 0
    if gpus not in (None, "", "all"):
        return len(str(gpus).split(","))
    for fact in (facts.driver.cuda_unhidden, facts.driver.cuda):
        answer = value_of(fact) if fact is not None else None
        if answer is not None and answer.loaded and answer.init == 0 and answer.count is not None:
            return answer.count
    return None


def ignore_stage(stage: Stage) -> None:
    """Ignore a finished stage."""


def format_size(size: int | None) -> str:
    """Return bytes in the form that --memory takes."""
    for unit, letter in ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")):
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return f"{(size or 0) >> 10}k"


class Verifying:
    """The stages as they come, and what is found."""

    def __init__(
        self, target: str, wish: Wish, on_stage: Callable[[Stage], None], image: InImage | None = None
    ) -> None:
        self.target, self.wish, self._tell, self.image = target, wish, on_stage, image
        self.stages: list[Stage] = []
        self.findings: list[Finding] = []
        self.cause: Cause | None = None
        self.visible: int | None = None
        self.computed: int | None = None
        self.expected = wish.expected
        self.report: Report | None = None
        self.access = ""
        self.other_libcuda: str | None = None
        """The libcuda.so.1 that the loader finds before the stand-in, where one was meant to be met."""
        self.software: Callable[[LibrarySet, tuple[int, ...] | None], str] | None = None
        """Makes the libraries of the software GPU, for that glibc at most, and says their folder there; None: nothing
        computes beside a stand-in."""
        self.shown_by_simulation: tuple[str, ...] = ()
        """What a simulation has shown beyond its stages, a phrase each."""
        if wish.simulated is not None:
            self.expected = wish.expected if wish.expected is not None else len(wish.simulated.cards)

    def add(self, name: str, status: str, detail: str, seconds: float = 0.0) -> None:
        if name not in self.wish.stages:
            return
        stage = Stage(name, status, clean_line(detail, limit=1000), round(seconds, 2))
        self.stages.append(stage)
        self._tell(stage)

    def fail(self, name: str, detail: str, cause: Cause | None, seconds: float = 0.0) -> None:
        """Record a failure at a stage, or at the next requested one: what stops a stage stops those after it."""
        wished = [one for one in STAGES if one in self.wish.stages]
        behind = [one for one in wished if STAGES.index(one) >= STAGES.index(name)]
        for one in (behind or wished[-1:])[:1]:
            self.add(one, "failed", detail, seconds)
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
            findings=tuple(self._list_findings(failed)),
            access=self.access,
            report=self.report,
            typed=self.build_command(),
            simulated=self._build_simulation(),
        )

    def _build_simulation(self) -> Simulation | None:
        """Return what stood in for the GPUs, and what was shown with that."""
        asked = self.wish.simulated
        if asked is None:
            return None
        passed = [stage.name for stage in self.stages if stage.status == "passed"]
        return asked.simulation(
            [*(PROVES[name] for name in passed if name in PROVES), *self.shown_by_simulation],
            computed=self.computed is not None,
        )

    def build_command(self, *, memory: bool = True, gpus: bool = True) -> str:
        """Return the command for the same verification, without its stages and deadlines."""
        wish, image = self.wish, self.image
        if image is None:
            words = ["--python", quote(self.target)]
        else:
            words = [quote(image.name)]
            words += (
                ["--gpus", quote(wish.gpus)]
                if gpus and wish.gpus is not None and wish.device == "GPU" and wish.simulated is None
                else []
            )
            words += ["--memory", format_size(wish.memory)] if memory and wish.memory else []
            words += ["--python", quote(wish.python)] if wish.python else []
        words += ["--device", wish.device] if wish.device != "GPU" else []
        words += [quote(word) for word in wish.simulated.typed] if wish.simulated is not None else []
        return " ".join(["tfdoctor verify", *words])

    def _list_findings(self, failed: Stage | None) -> list[Finding]:
        """Return the findings; those of the driver are left out if all stages passed and it was not requested."""
        return self.findings if failed is not None or "driver" in self.wish.stages else []

    def _summary(self, failed: Stage | None) -> str:
        if failed is not None:
            return f"{failed.name} failed: {failed.detail}"
        seen = self.visible if "visible" in self.wish.stages else None
        count = self.computed if self.computed is not None else seen
        if count is None:
            passed = [stage.name for stage in self.stages if stage.status == "passed"]
            begun = "import" in passed
            done = f"{join_words(passed)} passed" if passed else "nothing could be tried"
            return done if begun else f"{done}; TensorFlow was not started"
        if self.wish.simulated is not None:
            gpus, cards = f"{count} GPU{'s' * (count != 1)}", f"(simulated: {self.wish.simulated.title})"
            if self.computed:
                return f"TensorFlow sees {gpus} {cards} and computes on {'it' if count == 1 else 'them'} in software"
            return f"TensorFlow lists {gpus} {cards}; nothing was computed"
        if self.wish.device != "GPU":
            return f"TensorFlow computes correctly on {count} {self.wish.device}{'s' * (count != 1)}"
        verb = "lists" if self.computed is None else "sees and computes on"
        return f"TensorFlow {verb} {count} GPU{'s' * (count != 1)}"
