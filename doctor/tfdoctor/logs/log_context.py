"""A log with what follows from it, ready to be judged; and what a judgement is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.findings import Cause
from tfdoctor.logs.libraries import (
    UnopenedLibrary,
    find_missing_libraries,
    find_other_cuda,
    is_cupti,
    is_driver,
    is_nvml,
    stem_of,
)
from tfdoctor.logs.version_inference import LogOrigin, RegisteredDevice, devices, origin

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.traits import TraitName
    from tfdoctor.logs.events import Event, Log

__all__ = ["LIBRARY_CAUSES", "Case", "Decision"]

LIBRARY_CAUSES = (Cause.LIBS_WRONG_VERSION, Cause.LIBS_NOT_INSTALLED, Cause.LIBS_NOT_ON_PATH)
REGISTRATION = frozenset({"cudart", "cublas", "cufft", "cusolver", "cusparse", "cudnn"})
"""What every release from 1.14 on opens before it registers a GPU."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The root cause, what shows it, and what else it could be."""

    cause: Cause
    events: tuple[Event, ...] = ()
    maybe: tuple[Cause, ...] = ()
    """Other causes that this log does not rule out."""
    note: str = ""
    """What is particular to this log, as sentences."""
    title: str = ""
    """In the place of the cause's own, where that would say too little."""


@dataclass(frozen=True)
class Case:
    """A log with what follows from it; nothing here does I/O."""

    log: Log
    compat: Compat
    written_by: LogOrigin | None = None
    """Where several TensorFlows wrote the log: the one that it is about."""

    @cached_property
    def origin(self) -> LogOrigin:
        return self.written_by or origin(self.log, self.compat)

    @cached_property
    def windows(self) -> bool:
        """Whether this is native Windows: not where TensorFlow itself asked for libraries of Linux."""
        asked = self.log.list_events("dso-opened", "dso-failed", "dso-failed-old")
        return self.log.has("windows-hint") and not any(".so" in event.get("soname") for event in asked)

    @cached_property
    def devices(self) -> tuple[RegisteredDevice, ...]:
        return devices(self.log, self.compat)

    @cached_property
    def missing(self) -> tuple[UnopenedLibrary, ...]:
        return find_missing_libraries(self.log)

    @cached_property
    def created(self) -> Event | None:
        """The last message that shows a registered GPU."""
        return self.log.last("device-created", "device-created-part", "gpu-listed", "gpu-listed-old")

    @cached_property
    def ready(self) -> int:
        """The place of the last message after which nothing stands between TensorFlow and the GPU; -1 without one.

        Weaker than `created`: every library was opened, or the cards were taken, and no skipping followed.
        """
        place = max((event.order for event in self.log.list_events("devices-visible")), default=-1)
        opened = {stem_of(event.get("soname")): event.order for event in self.log.list_events("dso-opened")}
        card = {"cuda", "nvcuda"} & opened.keys() or self.log.has("device-found", "numa")
        if card and opened.keys() >= REGISTRATION:
            place = max(place, *(opened[stem] for stem in REGISTRATION))
        skipped = self.log.last("registration-skipped", "device-ignored", "amd-ignored")
        return place if skipped is None or skipped.order < place or self.others_left else -1

    @cached_property
    def others_left(self) -> bool:
        """Whether TensorFlow left out some cards and took others."""
        ignored = {int(event.get("index")) for event in self.log.list_events("device-ignored")}
        found = {int(event.get("index")) for event in self.log.list_events("device-found")}
        return bool(ignored) and bool((found | set(range(max(ignored)))) - ignored)

    @cached_property
    def none_left(self) -> bool:
        """Whether TensorFlow left out every card that it found."""
        found = {int(event.get("index")) for event in self.log.list_events("device-found")}
        return bool(found) and found <= {
            int(event.get("index")) for event in self.log.list_events("device-ignored")
        }

    @cached_property
    def toolkit(self) -> tuple[UnopenedLibrary, ...]:
        """What is missing of CUDA and cuDNN itself, after the last GPU was registered.

        Before 1.14 a GPU was registered without cuDNN, too.
        """
        after = self.created.order if self.created is not None else -1
        return tuple(
            m
            for m in self.missing
            if not is_driver(m.soname)
            and not is_nvml(m.soname)
            and not is_cupti(m.soname)
            and (m.event.id == "dso-failed-old" or (m.event.id == "dso-failed" and m.event.order > after))
        )

    @cached_property
    def other_cuda(self) -> tuple[str, str] | None:
        """(the CUDA on the search path, the one that is wanted), where only another one is there."""
        return find_other_cuda(self.toolkit, self.compat)

    @cached_property
    def cards(self) -> tuple[str, ...]:
        """The names of the cards that the log tells of, registered or not."""
        seen = self.log.list_events("device-properties")
        names = [*(one.name for one in self.devices), *(one.get("name") or one.get("xla") for one in seen)]
        return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))

    @cached_property
    def driver(self) -> str | None:
        """The driver's version, where the log tells it: as NVIDIA writes it ("450.57", not "450.57.0")."""
        said = self.log.last("kernel-driver", "library-driver", "driver-possibly-insufficient")
        version = said.get("driver").rstrip(".") if said is not None else ""
        version = version.removesuffix(".0") if version.count(".") > 1 else version
        return version if versions.is_version(version) else None

    @cached_property
    def hidden(self) -> Event | None:
        """Where CUDA_VISIBLE_DEVICES is shown to hide every GPU."""
        for event in self.log.list_events("visible-devices"):
            value = event.fields.get("value", event.fields.get("set"))
            if value is None or event.text.lstrip("# $").startswith("NVIDIA"):
                continue
            if value.strip("\"'") in ("", "-1", "none", "None", "NoDevFiles"):
                return event
        return None

    @cached_property
    def both_listed(self) -> bool:
        """Whether pip lists two TensorFlows. conda's packages of these names are parts of one and belong together."""
        if self.log.has("both-installed"):
            return True
        names = {
            (event.get("name") or event.get("shown")).replace("_", "-")
            for event in self.log.list_events("package-listed")
            if event.get("build") in ("", "pypi_0")
        }
        return len({"gpu" if name.endswith(("-gpu", "-rocm")) else "other" for name in names}) > 1

    def answers(self, question: str, answer: str) -> bool:
        """Return whether a question to TensorFlow is followed by this answer, on one of the next lines."""
        lines = {event.line for event in self.log.list_events("answer-line") if event.get("answer") == answer}
        return any(lines & {e.line + 1, e.line + 2} for e in self.log.list_events(question))

    def surely(self, name: TraitName) -> bool:
        """Return whether the log is surely of a release that does this (compat/traits.toml)."""
        trait = self.compat.trait(name)
        return (trait.since is None or self._is_since(trait.since)) and (
            trait.until is None or self._is_until(trait.until)
        )

    def _is_since(self, minor: str) -> bool:
        """Return whether the log is surely of this minor release or a newer one."""
        low = (self.origin.era or "").rstrip("+").partition("-")[0]
        return bool(low) and versions.compare(low, minor) >= 0

    def _is_until(self, minor: str) -> bool:
        """Return whether the log is surely of this minor release or an older one."""
        era = self.origin.era or "+"
        return not era.endswith("+") and versions.compare(era.rpartition("-")[2], minor) <= 0

    def in_container(self) -> bool:
        return self.log.has("container-hint")

    def says(self, *ids: str) -> tuple[Event, ...]:
        """Return the first two events of each of these, as evidence."""
        return tuple(event for name in ids for event in self.log.list_events(name)[:2])

    def capability(self) -> str | None:
        """Return the compute capability of the card that the log is about."""
        for device in reversed(self.devices):
            if device.compute_capability:
                return device.compute_capability
        event = self.log.last("jit-from-ptx")
        if event is not None and event.get("cc"):
            return event.get("cc")
        event = self.log.last("device-properties")
        if event is None:
            return None
        both = f"{event.get('major')}.{event.get('minor')}" if event.get("major") else None
        return event.get("cc") or event.get("xcc") or both
