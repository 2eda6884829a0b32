"""The report's first page: one line for each area, from what was seen and found. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdoctor.facts import Absent, Known, Unknown, value_of
from tfdoctor.findings import Area, Cause, Severity, Status
from tfdoctor.predict import hidden_by_environment, library_version
from tfdoctor.rules import RULE_OF
from tfdoctor.rules.base import CUDA, CUDNN, DRIVER, ENVIRONMENT, GPU, LOADER, TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.facts import CudaDevice, Facts
    from tfdoctor.findings import Finding
    from tfdoctor.predict import Build

    Texts = tuple[str, ...]
    """A line's text, and the same in less room, the longest first."""


def find_area(finding: Finding) -> str | None:
    """Return the area whose line a finding marks; None for findings about the report itself."""
    rule = RULE_OF.get(finding.code)
    return rule.shown_in if rule is not None else None


def make_areas(facts: Facts, build: Build | None, findings: Iterable[Finding]) -> tuple[Area, ...]:
    """Return the lines, in their fixed order."""
    marking: dict[str, list[Finding]] = {}
    for finding in findings:
        name = find_area(finding)
        if name is not None and finding.severity > Severity.INFO:
            marking.setdefault(name, []).append(finding)
    for found in marking.values():
        found.sort(key=lambda finding: -finding.severity)
    lines = (
        (GPU, _gpu(facts)),
        (DRIVER, _driver(facts)),
        (CUDA, _cuda(facts, build)),
        (CUDNN, _cudnn(facts, build)),
        (TENSORFLOW, _tensorflow(facts)),
        (LOADER, _loader(facts, build)),
        (ENVIRONMENT, _environment(facts)),
    )
    return tuple(_make_area(name, *seen, marking.get(name, ())) for name, seen in lines)


def _make_area(name: str, seen: Status, texts: Texts, findings: Sequence[Finding]) -> Area:
    """Make a line. `seen`: what `texts` say by themselves."""
    if (
        name == TENSORFLOW
        and seen is Status.BAD
        and findings
        and findings[0].cause is not Cause.TENSORFLOW_MISSING
    ):
        return Area(name, seen, findings[0].title, tuple(findings))  # it is there, and cannot be looked into
    if seen is Status.BAD or not findings:
        return Area(name, seen, texts[0], brief=texts[1:])
    error = findings[0].severity is Severity.ERROR
    if name == LOADER:  # where it looks says nothing of what was found there
        texts = (findings[0].title,)
    status = Status.BAD if error else Status.WARNING
    told = seen is Status.UNKNOWN or name == LOADER
    return Area(name, status, texts[0], tuple(findings), texts[1:], told)


def _gpu(facts: Facts) -> tuple[Status, Texts]:
    driver = value_of(facts.driver.cuda)
    if driver is not None and driver.devices:
        return Status.GOOD, (
            _format_counts(_format_card(one) for one in driver.devices),
            _format_counts(one.name or "unnamed" for one in driver.devices),
            _format_counts(_shorten_name(one.name or "unnamed") for one in driver.devices),
        )
    if hidden_by_environment(facts):
        return Status.BAD, ("hidden by CUDA_VISIBLE_DEVICES",)
    cards = value_of(facts.driver.pci)
    if cards:
        return (
            Status.BAD,
            (f"{len(cards)} NVIDIA card{'s' * (len(cards) > 1)} on the PCI bus; the driver reports none",),
        )
    if facts.driver.dxcore:
        return Status.UNKNOWN, ("WSL's /dev/dxg is there; the driver shows no card",)
    if isinstance(facts.driver.pci, Absent):
        return Status.BAD, ("no NVIDIA card on the PCI bus",)
    return Status.UNKNOWN, ("could not be looked for",)


def _format_counts(names: Iterable[str]) -> str:
    """Format names with their number: "2 × NVIDIA A100"."""
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in Counter(names).items())


def _shorten_name(name: str) -> str:
    """Return `"RTX 5090"` of `"NVIDIA GeForce RTX 5090"`."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def _format_card(device: CudaDevice) -> str:
    """Return `"Tesla T4 (compute capability 7.5, 15 GiB)"`, with what is known of it."""
    known = []
    if device.compute_capability:
        known.append(f"compute capability {device.compute_capability}")
    if device.memory_mib:
        known.append(f"{device.memory_mib / 1024:.0f} GiB")
    return f"{device.name or 'unnamed'} ({', '.join(known)})" if known else device.name or "unnamed"


def _driver(facts: Facts) -> tuple[Status, Texts]:
    cuda, module = value_of(facts.driver.cuda), value_of(facts.driver.kernel_module)
    nvml, smi = value_of(facts.driver.nvml), value_of(facts.driver.smi)
    version = (
        (nvml.driver_version if nvml else None)
        or (module.version if module else None)
        or getattr(smi, "driver_version", None)
    )
    if isinstance(facts.driver.cuda, Unknown):
        return Status.UNKNOWN, (f"{version or 'version not known'}; {facts.driver.cuda.why}",)
    if cuda is None or not cuda.loaded:
        return (
            Status.BAD,
            (f"{version}, but libcuda.so.1 cannot be opened" if version else "not there: no libcuda.so.1",),
        )
    parts = [version or "version not known"]
    if cuda.version:
        parts.append(f"for CUDA up to {cuda.version}")
    if cuda.crashed:
        return Status.BAD, (f"{parts[0]}; it crashes when asked ({cuda.crashed})",)
    if cuda.init and not hidden_by_environment(facts):
        fails = f"cuInit fails: {cuda.init_name}"
        known = (f"{', '.join(parts)}; {fails} ({cuda.init})", f"{parts[0]}; {fails} ({cuda.init})")
        return Status.BAD, (*known, f"{parts[0]}; {fails}", fails)
    return Status.GOOD, (", ".join(parts), parts[0])


def _split_by_resolution(facts: Facts, names: Sequence[str]) -> tuple[list[str], list[str]]:
    loader = value_of(facts.loader)
    good: list[str] = []
    bad: list[str] = []
    for name in names:
        resolution = loader.resolution(name) if loader is not None else None
        (good if resolution is not None and resolution.ok else bad).append(name)
    return good, bad


def _cuda(facts: Facts, build: Build | None) -> tuple[Status, Texts]:
    here = sorted({toolkit.version for toolkit in facts.toolkits if toolkit.version})
    installed = f"; toolkit {', '.join(here)} is installed" if here else ""
    if build is None or not build.gpu:
        return Status.UNKNOWN, (f"nothing asks for it{installed}", "nothing asks for it")
    wanted = [name for name in build.required if not name.startswith("libcudnn")]
    if not wanted or not isinstance(facts.loader, Known):
        return (
            Status.UNKNOWN,
            (f"built for CUDA {build.cuda or '?'}; its libraries could not be resolved{installed}",),
        )
    bad = _split_by_resolution(facts, wanted)[1]
    if not bad:
        version = build.cuda or "version not known"
        return Status.GOOD, (f"{version}: all {len(wanted)} libraries open", version)
    wants = f"{build.cuda or 'version not known'} wanted"
    names = _find_culprits(facts, bad)
    few = f"{len(bad)} of {len(wanted)}" if len(bad) < len(wanted) else "none" if len(wanted) > 1 else "one"
    do_not = {"none": "no library opens", "one": "its library does not open"}.get(
        few, f"{few} libraries do not open"
    )
    return Status.BAD, (
        f"{wants}, {do_not}: {_join_first(names)}{installed}",
        f"{wants}, {do_not}: {_join_first(names)}",
        f"{wants}, {do_not}: {_join_first(names, 1)}",
        f"{wants}; not opened: {_join_first(names, 1)}",
        f"not opened: {_join_first(names, 1)}",
    )


def _find_culprits(facts: Facts, names: Sequence[str]) -> list[str]:
    """Return each library that cannot be opened, by what is missing or damaged if that is another one."""
    loader = value_of(facts.loader)
    found: dict[str, None] = {}
    for name in names:
        resolution = loader.resolution(name) if loader is not None else None
        lost = resolution.really_missing if resolution is not None else ()
        others = [one for one in lost if one != name]
        found.update({f"{name} (it needs {one})": None for one in others} if others else {name: None})
    return list(found)


def _cudnn(facts: Facts, build: Build | None) -> tuple[Status, Texts]:
    name = next((n for n in build.required if n.startswith("libcudnn")), None) if build is not None else None
    loader = value_of(facts.loader)
    if name is None or loader is None:
        return Status.UNKNOWN, ("nothing asks for it",)
    resolution = loader.resolution(name)
    if resolution is None or not resolution.ok:
        lost = resolution.really_missing if resolution is not None else ()
        others = [one for one in lost if one != name]
        if others:
            return Status.BAD, (
                f"{name} does not open: it needs {_join_first(others)}",
                f"{name} needs {others[0]}",
            )
        return Status.BAD, (f"{name} is needed but does not open", f"{name} does not open")
    known = library_version(facts, resolution)
    version = f" ({known.version})" if known is not None else ""
    return Status.GOOD, (f"{name} opens{version}", f"{name}{version}", name)


def _tensorflow(facts: Facts) -> tuple[Status, Texts]:
    tensorflow, python = value_of(facts.tensorflow), value_of(facts.python)
    where = f"Python {python.version}" if python is not None else "Python"
    if isinstance(facts.tensorflow, Absent):
        return Status.BAD, (f"not installed in {where}", "not installed")
    if tensorflow is None:
        return Status.UNKNOWN, (getattr(facts.tensorflow, "why", "could not be examined"),)
    version = tensorflow.version or "unknown version"
    return Status.GOOD, (
        f"{version} ({tensorflow.distribution or 'no distribution'}), {where}",
        f"{version}, {where}",
        version,
    )


def _loader(facts: Facts, build: Build | None) -> tuple[Status, Texts]:
    loader = value_of(facts.loader)
    if loader is None:
        return Status.UNKNOWN, (getattr(facts.loader, "why", "could not be followed"),)
    path = (
        f"LD_LIBRARY_PATH has {len(loader.library_path)}"
        if loader.library_path
        else "LD_LIBRARY_PATH is not set"
    )
    text = f"{path}, RUNPATH has {len(loader.runpath_folders)} folders that exist"
    wanted = (*build.required, *build.driver_libraries) if build is not None else ()
    bad = _split_by_resolution(facts, wanted)[1]
    if loader.import_needs:
        return Status.BAD, (f"the import fails: {loader.import_needs[0].error}",)
    if not bad:
        return Status.GOOD, (text, path)
    names = _find_culprits(facts, bad)
    return Status.BAD, (f"cannot give {_join_first(names)}", f"cannot give {_join_first(names, 1)}")


def _environment(facts: Facts) -> tuple[Status, Texts]:
    machine = facts.machine
    parts = [machine.distribution or machine.system]
    if machine.wsl:
        parts.append(f"WSL {machine.wsl}")
    if machine.container:
        parts.append(f"in a container ({machine.container})")
    value = facts.environment.variables.get("CUDA_VISIBLE_DEVICES")
    if value is not None:
        parts.append(f"CUDA_VISIBLE_DEVICES={value!r}")
    return Status.GOOD, (
        ", ".join(parts),
        *parts[:0:-1],
        *(("CUDA_VISIBLE_DEVICES",) if value is not None else ()),
    )


def _join_first(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
