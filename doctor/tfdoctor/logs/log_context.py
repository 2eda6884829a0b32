"""A log with the facts derived from it, as detectors use it, and the decision that they return."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause
from tfdoctor.logs.frameworks import has_tensorflow_text
from tfdoctor.logs.libraries import (
    UnopenedLibrary,
    find_mismatched_cuda,
    find_missing_libraries,
    is_cupti_library,
    is_driver_library,
    is_nvml_library,
    strip_library_name,
)
from tfdoctor.logs.version_inference import LogOrigin, RegisteredDevice, infer_origin, list_devices
from tfdoctor.remedies.place import Place

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.traits import TraitName
    from tfdoctor.logs.events import Event, Log
    from tfdoctor.remedies.tools import Tool

__all__ = ["LIBRARY_CAUSES", "Decision", "LogContext"]

LIBRARY_CAUSES = (Cause.LIBS_WRONG_VERSION, Cause.LIBS_NOT_INSTALLED, Cause.LIBS_NOT_ON_PATH)
REGISTRATION_LIBRARIES = frozenset({"cudart", "cublas", "cufft", "cusolver", "cusparse", "cudnn"})
"""Libraries that TensorFlow 1.14 and later open before they register a GPU."""
_HIDES_ALL = re.compile(r"|-1|[Nn]one|NoDevFiles|\$0|(?:cuda|gpu):?\d+", re.IGNORECASE)
"""Values of CUDA_VISIBLE_DEVICES that hide every GPU. In a shell, $0 is the name of the shell."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A root cause, its evidence and the other possible causes."""

    cause: Cause
    evidence_events: tuple[Event, ...] = ()
    """The messages that are evidence of the cause."""
    other_causes: tuple[Cause, ...] = ()
    """Other causes that this log does not rule out."""
    note: str = ""
    """Sentences with details of this log, or an empty string if there are none."""
    title: str = ""
    """A more precise title than that of the cause. Empty means the title of the cause."""
    is_failure: bool = False
    """Whether the program failed, so that the finding is an error even if the cause alone is not."""


@dataclass(frozen=True)
class LogContext:
    """A log with the facts derived from it, which are computed without I/O."""

    log: Log
    compat: Compat
    reported_origin: LogOrigin | None = None
    """The TensorFlow to report if several wrote the log. None means the result of `infer_origin`."""
    framework: str | None = None
    """The other framework whose error is reported, or None if it is TensorFlow's."""
    requested_tool: Tool | None = None
    """The tool for which the user wants the commands. None means the one that the log shows."""

    @cached_property
    def origin(self) -> LogOrigin:
        return self.reported_origin or infer_origin(self.log, self.compat)

    @cached_property
    def mentions_tensorflow(self) -> bool:
        """Whether the log has anything from TensorFlow, and not only the output of other tools."""
        return (
            self.origin.version is not None
            or has_tensorflow_text(self.log)
            or any(
                events[0].signature.source.startswith(("tensorflow", "openxla"))
                for events in self.log.events.values()
            )
        )

    @cached_property
    def is_windows(self) -> bool:
        """Whether the log comes from native Windows, where TensorFlow opens no Linux libraries."""
        dso_events = self.log.list_events("dso-opened", "dso-failed", "dso-failed-old")
        return (
            self.log.has("windows-hint")
            and not self.log.has("wsl-hint")
            and not any(".so" in event.get("soname") for event in dso_events)
        )

    @cached_property
    def places(self) -> frozenset[Place]:
        """The places in which the log was written, as far as it shows them."""
        places = {place for place in Place if self.log.has(place.value)}
        return frozenset(places - {Place.WINDOWS} | ({Place.WINDOWS} if self.is_windows else set()))

    @cached_property
    def registered_devices(self) -> tuple[RegisteredDevice, ...]:
        return list_devices(self.log, self.compat)

    @cached_property
    def missing_libraries(self) -> tuple[UnopenedLibrary, ...]:
        return find_missing_libraries(self.log)

    @cached_property
    def registration_event(self) -> Event | None:
        """The last event that shows a registered GPU, or None if there is none."""
        return self.log.find_last("device-created", "device-created-part", "gpu-listed", "gpu-listed-old")

    @cached_property
    def gpu_ready_order(self) -> int:
        """The order of the last event that shows that a GPU is usable, or -1 if there is none.

        The GPU need not be registered yet. It counts as usable after TensorFlow selected it, or opened every
        library that registration needs, unless registration was skipped afterwards.
        """
        last_order = max((event.order for event in self.log.list_events("devices-visible")), default=-1)
        opened = {
            strip_library_name(event.get("soname")): event.order
            for event in self.log.list_events("dso-opened")
        }
        has_gpu = {"cuda", "nvcuda"} & opened.keys() or self.log.has("device-found", "numa")
        if has_gpu and opened.keys() >= REGISTRATION_LIBRARIES:
            last_order = max(last_order, *(opened[stem] for stem in REGISTRATION_LIBRARIES))
        skipped = self.log.find_last("registration-skipped", "device-ignored", "amd-ignored")
        return last_order if skipped is None or skipped.order < last_order or self.has_unignored_gpus else -1

    @cached_property
    def has_unignored_gpus(self) -> bool:
        """Whether TensorFlow ignored some GPUs and used others."""
        ignored_indices = {int(event.get("index")) for event in self.log.list_events("device-ignored")}
        found_indices = {int(event.get("index")) for event in self.log.list_events("device-found")}
        # the indices below that of an ignored GPU belong to GPUs, too, even if the log does not name them
        return bool(ignored_indices) and bool(
            (found_indices | set(range(max(ignored_indices)))) - ignored_indices
        )

    @cached_property
    def has_ignored_all_gpus(self) -> bool:
        """Whether TensorFlow ignored every GPU that it found."""
        found_indices = {int(event.get("index")) for event in self.log.list_events("device-found")}
        return bool(found_indices) and found_indices <= {
            int(event.get("index")) for event in self.log.list_events("device-ignored")
        }

    @cached_property
    def missing_toolkit_libraries(self) -> tuple[UnopenedLibrary, ...]:
        """CUDA and cuDNN libraries that TensorFlow failed to open after it registered the last GPU.

        Releases before 1.14 ("dso-failed-old") register a GPU without cuDNN, so their failures count anywhere in
        the log. The driver, NVML and CUPTI are not included.
        """
        registration_order = self.registration_event.order if self.registration_event is not None else -1
        return tuple(
            library
            for library in self.missing_libraries
            if not is_driver_library(library.soname)
            and not is_nvml_library(library.soname)
            and not is_cupti_library(library.soname)
            and (
                library.event.id == "dso-failed-old"
                or (library.event.id == "dso-failed" and library.event.order > registration_order)
            )
        )

    @cached_property
    def mismatched_cuda_versions(self) -> tuple[str, str] | None:
        """(CUDA version on the search path, required CUDA version), or None if they are equal or unknown."""
        return find_mismatched_cuda(self.missing_toolkit_libraries, self.compat)

    @cached_property
    def gpu_names(self) -> tuple[str, ...]:
        """The names of the GPUs in the log, whether TensorFlow registered them or not."""
        property_events = self.log.list_events("device-properties")
        names = [
            *(gpu.name for gpu in self.registered_devices),
            *(event.get("name") or event.get("xla") for event in property_events),
        ]
        return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))

    @cached_property
    def driver_version(self) -> str | None:
        """The driver version as NVIDIA writes it, such as "450.57" (not "450.57.0"), or None if unknown."""
        event = self.log.find_last("kernel-driver", "library-driver", "driver-possibly-insufficient")
        version = event.get("driver").rstrip(".") if event is not None else ""
        version = version.removesuffix(".0") if version.count(".") > 1 else version
        return version if versions.is_version(version) else None

    @cached_property
    def hiding_event(self) -> Event | None:
        """The event that shows that CUDA_VISIBLE_DEVICES hides every GPU, or None if there is none."""
        for event in self.log.list_events("visible-devices"):
            value = event.captures.get("value", event.captures.get("set"))
            # NVIDIA_VISIBLE_DEVICES selects the GPUs of a container, not of a process
            if value is None or event.text.lstrip("# $").startswith("NVIDIA"):
                continue
            if _HIDES_ALL.fullmatch(value.strip("\"'")):
                return event
        return None

    @cached_property
    def has_both_packages(self) -> bool:
        """Whether pip lists a GPU package (tensorflow-gpu or tensorflow-rocm) and another TensorFlow package.

        Two packages without such a suffix do not count. Conda packages do not count either, because they are parts of
        one TensorFlow.
        """
        if self.log.has("both-installed"):
            return True
        names = {
            (event.get("name") or event.get("shown")).replace("_", "-")
            for event in self.log.list_events("package-listed")
            if event.get("build") in ("", "pypi_0")  # conda lists packages from pip with the build "pypi_0"
        }
        return len({"gpu" if name.endswith(("-gpu", "-rocm")) else "other" for name in names}) > 1

    def has_printed_answer(self, question: str, answer: str) -> bool:
        """Return whether a call in the log printed this result on one of the two lines after it.

        `question` is the signature of the call, such as "gpu-asked". `answer` is the result: "True" or "False".
        """
        return bool(self.list_printed_answers(question, answer))

    def list_printed_answers(self, question: str, answer: str) -> list[Event]:
        """Return the lines with this result that follow a call; see `has_printed_answer`."""
        lines = {call.line + offset for call in self.log.list_events(question) for offset in (1, 2)}
        return [
            event
            for event in self.log.list_events("answer-line")
            if event.get("answer") == answer and event.line in lines
        ]

    def has_trait(self, name: TraitName) -> bool:
        """Return whether every release that can have written the log has this trait (compat/traits.toml)."""
        trait = self.compat.get_trait(name)
        return (trait.since is None or self._is_since(trait.since)) and (
            trait.until is None or self.is_at_most(trait.until)
        )

    def _is_since(self, minor: str) -> bool:
        """Return whether this minor release or a newer one certainly wrote the log."""
        # an era is "2.4", "2.4-2.11", "2.4+" (no upper bound) or "-2.11" (no lower bound)
        min_minor = (self.origin.era or "").rstrip("+").partition("-")[0]
        return bool(min_minor) and versions.compare(min_minor, minor) >= 0

    def is_at_most(self, minor: str) -> bool:
        """Return whether this minor release or an older one certainly wrote the log."""
        era = self.origin.era or "+"
        return not era.endswith("+") and versions.compare(era.rpartition("-")[2], minor) <= 0

    def is_in_container(self) -> bool:
        return self.log.has("container-hint", "compose-hint")

    def list_evidence(self, *signature_ids: str) -> tuple[Event, ...]:
        """Return the first two events of each of these signatures, to show as evidence."""
        return tuple(
            event for signature_id in signature_ids for event in self.log.list_events(signature_id)[:2]
        )

    def find_capability(self) -> str | None:
        """Return the compute capability of the last GPU that the log describes, or None if unknown."""
        for device in reversed(self.registered_devices):
            if device.compute_capability:
                return device.compute_capability
        event = self.log.find_last("jit-from-ptx")
        if event is not None and event.get("cc"):
            return event.get("cc")
        event = self.log.find_last("device-properties")
        if event is None:
            named = self.log.find_first("card-named")
            match = self.compat.find_gpus_by_name(named.get("name")) if named is not None else None
            return match.capabilities[0] if match is not None else None
        capability = f"{event.get('major')}.{event.get('minor')}" if event.get("major") else None
        return event.get("cc") or event.get("xcc") or capability
