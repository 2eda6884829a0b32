"""The report's first page: one line for each area, from what was seen and found. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdoctor.facts import Absent, Known, Unknown, value_of
from tfdoctor.findings import Area, Severity, Status
from tfdoctor.predict import hidden_by_environment, library_version
from tfdoctor.rules import RULE_OF
from tfdoctor.rules.base import CUDA, CUDNN, DRIVER, ENVIRONMENT, GPU, LOADER, TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.facts import CudaDevice, Facts
    from tfdoctor.findings import Finding
    from tfdoctor.predict import Build


def area_of(finding: Finding) -> str | None:
    """The area whose line a finding marks; None for findings about the report itself."""
    rule = RULE_OF.get(finding.code)
    return rule.shown_in if rule is not None else None


def areas(facts: Facts, build: Build | None, findings: Iterable[Finding]) -> tuple[Area, ...]:
    """The lines, in their fixed order."""
    marking: dict[str, list[Finding]] = {}
    for finding in findings:
        name = area_of(finding)
        if name is not None and finding.severity > Severity.INFO:
            marking.setdefault(name, []).append(finding)
    for found in marking.values():
        found.sort(key=lambda finding: -finding.severity)
    lines = (
        (GPU, *_gpu(facts)),
        (DRIVER, *_driver(facts)),
        (CUDA, *_cuda(facts, build)),
        (CUDNN, *_cudnn(facts, build)),
        (TENSORFLOW, *_tensorflow(facts)),
        (LOADER, *_loader(facts, build)),
        (ENVIRONMENT, *_environment(facts)),
    )
    return tuple(_area(name, seen, text, marking.get(name, ())) for name, seen, text in lines)


def _area(name: str, seen: Status, text: str, findings: Sequence[Finding]) -> Area:
    """`seen`: what `text` says by itself."""
    if seen is Status.BAD or not findings:
        return Area(name, seen, text)
    error = findings[0].severity is Severity.ERROR
    return Area(name, Status.BAD if error else Status.WARNING, text, tuple(findings))


def _gpu(facts: Facts) -> tuple[Status, str]:
    driver = value_of(facts.driver.cuda)
    if driver is not None and driver.devices:
        names = Counter(map(_card, driver.devices))
        return Status.GOOD, ", ".join(
            f"{count} × {name}" if count > 1 else name for name, count in names.items()
        )
    if hidden_by_environment(facts):
        return Status.BAD, "hidden by CUDA_VISIBLE_DEVICES"
    cards = value_of(facts.driver.pci)
    if cards:
        return (
            Status.BAD,
            f"{len(cards)} NVIDIA card{'s' * (len(cards) > 1)} on the PCI bus; the driver reports none",
        )
    if facts.driver.dxcore:
        return Status.UNKNOWN, "WSL's /dev/dxg is there; the driver gives no card"
    if isinstance(facts.driver.pci, Absent):
        return Status.BAD, "no NVIDIA card on the PCI bus"
    return Status.UNKNOWN, "could not be looked for"


def _card(device: CudaDevice) -> str:
    """`"Tesla T4 (compute capability 7.5, 15 GiB)"`, with what is known of it."""
    known = []
    if device.compute_capability:
        known.append(f"compute capability {device.compute_capability}")
    if device.memory_mib:
        known.append(f"{device.memory_mib / 1024:.0f} GiB")
    return f"{device.name or 'unnamed'} ({', '.join(known)})" if known else device.name or "unnamed"


def _driver(facts: Facts) -> tuple[Status, str]:
    cuda, module = value_of(facts.driver.cuda), value_of(facts.driver.kernel_module)
    nvml, smi = value_of(facts.driver.nvml), value_of(facts.driver.smi)
    version = (
        (nvml.driver_version if nvml else None)
        or (module.version if module else None)
        or getattr(smi, "driver_version", None)
    )
    if isinstance(facts.driver.cuda, Unknown):
        return Status.UNKNOWN, f"{version or 'version not known'}; {facts.driver.cuda.why}"
    if cuda is None or not cuda.loaded:
        return (
            Status.BAD,
            f"{version}, but libcuda.so.1 cannot be opened" if version else "not there: no libcuda.so.1",
        )
    parts = [version or "version not known"]
    if cuda.version:
        parts.append(f"for CUDA up to {cuda.version}")
    if cuda.crashed:
        return Status.BAD, f"{parts[0]}; it crashes when asked ({cuda.crashed})"
    if cuda.init and not hidden_by_environment(facts):
        return Status.BAD, f"{', '.join(parts)}; cuInit fails: {cuda.init_name} ({cuda.init})"
    return Status.GOOD, ", ".join(parts)


def _opened(facts: Facts, names: Sequence[str]) -> tuple[list[str], list[str]]:
    loader = value_of(facts.loader)
    good: list[str] = []
    bad: list[str] = []
    for name in names:
        resolution = loader.resolution(name) if loader is not None else None
        (good if resolution is not None and resolution.ok else bad).append(name)
    return good, bad


def _cuda(facts: Facts, build: Build | None) -> tuple[Status, str]:
    here = sorted({toolkit.version for toolkit in facts.toolkits if toolkit.version})
    installed = f"; toolkit {', '.join(here)} is installed" if here else ""
    if build is None or not build.gpu:
        return Status.UNKNOWN, f"nothing asks for it{installed}"
    wanted = [name for name in build.required if not name.startswith("libcudnn")]
    if not wanted or not isinstance(facts.loader, Known):
        return (
            Status.UNKNOWN,
            f"built for CUDA {build.cuda or '?'}; its libraries could not be followed{installed}",
        )
    bad = _opened(facts, wanted)[1]
    if not bad:
        return Status.GOOD, f"{build.cuda or 'version not known'}: all {len(wanted)} libraries open"
    few = (
        f"{len(bad)} of {len(wanted)} libraries missing"
        if len(bad) < len(wanted)
        else "its libraries are missing"
    )
    return Status.BAD, f"{build.cuda or 'version not known'} wanted, {few}: {_some(bad)}{installed}"


def _cudnn(facts: Facts, build: Build | None) -> tuple[Status, str]:
    name = next((n for n in build.required if n.startswith("libcudnn")), None) if build is not None else None
    loader = value_of(facts.loader)
    if name is None or loader is None:
        return Status.UNKNOWN, "nothing asks for it"
    resolution = loader.resolution(name)
    if resolution is None or not resolution.ok:
        return Status.BAD, f"{name} is wanted and does not open"
    known = library_version(facts, resolution)
    return Status.GOOD, f"{name} opens" + (f" ({known.version})" if known is not None else "")


def _tensorflow(facts: Facts) -> tuple[Status, str]:
    tensorflow, python = value_of(facts.tensorflow), value_of(facts.python)
    where = f"Python {python.version}" if python is not None else "Python"
    if isinstance(facts.tensorflow, Absent):
        return Status.BAD, f"not installed in {where}"
    if tensorflow is None:
        return Status.UNKNOWN, getattr(facts.tensorflow, "why", "could not be examined")
    return (
        Status.GOOD,
        f"{tensorflow.version or 'unknown version'} ({tensorflow.distribution or 'no distribution'}), {where}",
    )


def _loader(facts: Facts, build: Build | None) -> tuple[Status, str]:
    loader = value_of(facts.loader)
    if loader is None:
        return Status.UNKNOWN, getattr(facts.loader, "why", "could not be followed")
    path = (
        f"LD_LIBRARY_PATH has {len(loader.library_path)}"
        if loader.library_path
        else "LD_LIBRARY_PATH is not set"
    )
    text = f"{path}, RUNPATH has {len(loader.runpath_folders)} folders that exist"
    wanted = (*build.required, *build.driver_libraries) if build is not None else ()
    bad = _opened(facts, wanted)[1]
    if loader.import_needs:
        return Status.BAD, f"the import fails: {loader.import_needs[0].error}"
    return (Status.BAD, f"cannot give {_some(bad)}") if bad else (Status.GOOD, text)


def _environment(facts: Facts) -> tuple[Status, str]:
    machine = facts.machine
    parts = [machine.distribution or machine.system]
    if machine.wsl:
        parts.append(f"WSL {machine.wsl}")
    if machine.container:
        parts.append(f"in a container ({machine.container})")
    value = facts.environment.variables.get("CUDA_VISIBLE_DEVICES")
    if value is not None:
        parts.append(f"CUDA_VISIBLE_DEVICES={value!r}")
    return Status.GOOD, ", ".join(parts)


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
