"""Summarize the facts and findings of each area in one line."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, Known, Unknown, value_of
from tfdoctor.core.findings import Area, Cause, Severity, Status
from tfdoctor.core.text import join_first
from tfdoctor.prediction.driver import is_hidden_by_environment
from tfdoctor.prediction.library_versions import find_library_version
from tfdoctor.rules import RULES_BY_CODE
from tfdoctor.rules.base import CUDA, CUDNN, DRIVER, ENVIRONMENT, GPU, LOADER, TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.core.facts import CudaDevice, Facts
    from tfdoctor.core.findings import Finding
    from tfdoctor.prediction.build import Build

    Texts = tuple[str, ...]
    """The text of a line, followed by shorter versions of it."""


def find_area(finding: Finding) -> str | None:
    """Return the name of the area that a finding belongs to, or None for a finding about the report itself."""
    rule = RULES_BY_CODE.get(finding.code)
    return rule.summary_area if rule is not None else None


def make_areas(facts: Facts, build: Build | None, findings: Iterable[Finding]) -> tuple[Area, ...]:
    """Return all areas in their fixed order. `build` is None if the TensorFlow build is unknown."""
    findings_by_area: dict[str, list[Finding]] = {}
    for finding in findings:
        name = find_area(finding)
        if name is not None and finding.severity > Severity.INFO:
            findings_by_area.setdefault(name, []).append(finding)
    for area_findings in findings_by_area.values():
        area_findings.sort(key=lambda finding: -finding.severity)
    lines = (
        (GPU, _describe_gpu(facts)),
        (DRIVER, _describe_driver(facts)),
        (CUDA, _describe_cuda(facts, build)),
        (CUDNN, _describe_cudnn(facts, build)),
        (TENSORFLOW, _describe_tensorflow(facts)),
        (LOADER, _describe_loader(facts, build)),
        (ENVIRONMENT, _describe_environment(facts)),
    )
    return tuple(
        _make_area(name, *status_and_texts, findings_by_area.get(name, ()))
        for name, status_and_texts in lines
    )


def _make_area(name: str, fact_status: Status, texts: Texts, findings: Sequence[Finding]) -> Area:
    """Return an area with its findings.

    `fact_status` and `texts` come from the facts alone. Findings change the status, unless it is bad already.
    """
    if (
        name == TENSORFLOW
        and fact_status is Status.BAD
        and findings
        and findings[0].cause is not Cause.TENSORFLOW_MISSING
    ):
        # TensorFlow is installed but cannot be examined, so its finding says more than the facts.
        return Area(name, fact_status, findings[0].title, tuple(findings))
    if fact_status is Status.BAD or not findings:
        return Area(name, fact_status, texts[0], short_texts=texts[1:])
    is_error = findings[0].severity is Severity.ERROR
    if name == LOADER:  # its text describes the search path, which does not say what is wrong
        texts = (findings[0].title,)
    status = Status.BAD if is_error else Status.WARNING
    has_reason = fact_status is Status.UNKNOWN or name == LOADER
    return Area(name, status, texts[0], tuple(findings), texts[1:], has_reason)


def _describe_gpu(facts: Facts) -> tuple[Status, Texts]:
    """Return the status and the texts of the GPU area, from the driver or, failing that, the PCI bus."""
    driver = value_of(facts.driver.cuda)
    if driver is not None and driver.devices:
        return Status.GOOD, (
            _format_counts(_format_card(device) for device in driver.devices),
            _format_counts(device.name or "unnamed" for device in driver.devices),
            _format_counts(_shorten_name(device.name or "unnamed") for device in driver.devices),
        )
    if is_hidden_by_environment(facts):
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
    """Return the names with their counts, such as "2 × NVIDIA A100"."""
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in Counter(names).items())


def _shorten_name(name: str) -> str:
    """Return the name of a GPU without its brand: "RTX 5090" for "NVIDIA GeForce RTX 5090"."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def _format_card(device: CudaDevice) -> str:
    """Return a description such as "Tesla T4 (compute capability 7.5, 15 GiB)", without unknown parts."""
    details = []
    if device.compute_capability:
        details.append(f"compute capability {device.compute_capability}")
    if device.memory_mib:
        details.append(f"{device.memory_mib / 1024:.0f} GiB")
    return f"{device.name or 'unnamed'} ({', '.join(details)})" if details else device.name or "unnamed"


def _describe_driver(facts: Facts) -> tuple[Status, Texts]:
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
            (
                f"{version}, but libcuda.so.1 cannot be opened"
                if version
                else "not installed (no libcuda.so.1)",
            ),
        )
    parts = [version or "version not known"]
    if cuda.version:
        parts.append(f"for CUDA up to {cuda.version}")
    if cuda.crashed:
        return Status.BAD, (f"{parts[0]}; it crashes when asked ({cuda.crashed})",)
    if cuda.init and not is_hidden_by_environment(facts):
        error = f"cuInit fails: {cuda.init_name}"
        texts = (f"{', '.join(parts)}; {error} ({cuda.init})", f"{parts[0]}; {error} ({cuda.init})")
        return Status.BAD, (*texts, f"{parts[0]}; {error}", error)
    return Status.GOOD, (", ".join(parts), parts[0])


def _split_by_resolution(facts: Facts, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return two lists: the libraries that the loader can open, and those that it cannot."""
    loader = value_of(facts.loader)
    resolved: list[str] = []
    missing: list[str] = []
    for name in names:
        resolution = loader.find_resolution(name) if loader is not None else None
        (resolved if resolution is not None and resolution.ok else missing).append(name)
    return resolved, missing


def _describe_no_need(facts: Facts, build: Build | None) -> str:
    if build is not None:
        return "not needed by this TensorFlow"
    if isinstance(facts.tensorflow, Unknown):
        return "skipped (TensorFlow could not be examined)"
    return "not needed without TensorFlow"


def _describe_cuda(facts: Facts, build: Build | None) -> tuple[Status, Texts]:
    """Return the status and the texts of the CUDA libraries that TensorFlow needs, without cuDNN."""
    toolkit_versions = sorted({toolkit.version for toolkit in facts.toolkits if toolkit.version})
    toolkit_note = f"; toolkit {', '.join(toolkit_versions)} is installed" if toolkit_versions else ""
    if build is None or not build.has_gpu_code:
        no_need = _describe_no_need(facts, build)
        return Status.UNKNOWN, (f"{no_need}{toolkit_note}", no_need)
    required = [name for name in build.required_libraries if not name.startswith("libcudnn")]
    if not required or not isinstance(facts.loader, Known):
        return (
            Status.UNKNOWN,
            (f"built for CUDA {build.cuda or '?'}; its libraries could not be resolved{toolkit_note}",),
        )
    _, missing = _split_by_resolution(facts, required)
    if not missing:
        version = build.cuda or "version not known"
        return Status.GOOD, (f"{version}: all {len(required)} libraries open", version)
    prefix = f"{build.cuda or 'version not known'} required"
    problem = _describe_failure(facts, missing)
    names = _describe_missing(facts, missing)
    return Status.BAD, (
        f"{prefix}; {problem}: {join_first(names, 3)}{toolkit_note}",
        f"{prefix}; {problem}: {join_first(names, 3)}",
        f"{prefix}; {problem}: {join_first(names, 1)}",
        f"{problem}: {join_first(names, 1)}",
    )


def _describe_failure(facts: Facts, names: Sequence[str]) -> str:
    """Return "not found", or "cannot be opened" if the loader found a file for one of the libraries."""
    loader = value_of(facts.loader)
    resolutions = [loader.find_resolution(name) for name in names] if loader is not None else []
    is_absent = all(
        resolution is None
        or not (
            resolution.path or resolution.needed_by or any(attempt.problem for attempt in resolution.tried)
        )
        for resolution in resolutions
    )
    return "not found" if is_absent else "cannot be opened"


def _describe_missing(facts: Facts, names: Sequence[str]) -> list[str]:
    """Describe libraries that cannot be opened. If a dependency is missing or damaged, the text names it."""
    loader = value_of(facts.loader)
    descriptions: dict[str, None] = {}  # an ordered set
    for name in names:
        resolution = loader.find_resolution(name) if loader is not None else None
        missing = resolution.really_missing if resolution is not None else ()
        dependencies = [dependency for dependency in missing if dependency != name]
        descriptions.update(
            {f"{name} (it needs {dependency})": None for dependency in dependencies}
            if dependencies
            else {name: None}
        )
    return list(descriptions)


def _describe_cudnn(facts: Facts, build: Build | None) -> tuple[Status, Texts]:
    name = (
        next((soname for soname in build.required_libraries if soname.startswith("libcudnn")), None)
        if build is not None
        else None
    )
    loader = value_of(facts.loader)
    if name is None or loader is None:
        return Status.UNKNOWN, (_describe_no_need(facts, build),)
    resolution = loader.find_resolution(name)
    if resolution is None or not resolution.ok:
        missing = resolution.really_missing if resolution is not None else ()
        dependencies = [dependency for dependency in missing if dependency != name]
        if dependencies:
            return Status.BAD, (
                f"{name} cannot be opened: it needs {join_first(dependencies, 3)}",
                f"{name} needs {dependencies[0]}",
            )
        problem = _describe_failure(facts, [name])
        return Status.BAD, (f"{name} required; {problem}", f"{name} {problem}")
    version_info = find_library_version(facts, resolution)
    version = f" ({version_info.version})" if version_info is not None else ""
    return Status.GOOD, (f"{name} opens{version}", f"{name}{version}", name)


def _describe_tensorflow(facts: Facts) -> tuple[Status, Texts]:
    tensorflow, python = value_of(facts.tensorflow), value_of(facts.python)
    python_text = f"Python {python.version}" if python is not None else "Python"
    if isinstance(facts.tensorflow, Absent):
        return Status.BAD, (f"not installed in {python_text}", "not installed")
    if tensorflow is None:
        return Status.UNKNOWN, (getattr(facts.tensorflow, "why", "could not be examined"),)
    version = tensorflow.version or "unknown version"
    return Status.GOOD, (
        f"{version} ({tensorflow.distribution or 'no distribution'}), {python_text}",
        f"{version}, {python_text}",
        version,
    )


def _describe_loader(facts: Facts, build: Build | None) -> tuple[Status, Texts]:
    loader = value_of(facts.loader)
    if loader is None and build is None and not isinstance(facts.loader, Unknown):
        return Status.UNKNOWN, (_describe_no_need(facts, build),)
    if loader is None:
        return Status.UNKNOWN, (getattr(facts.loader, "why", "could not be followed"),)
    path = (
        f"LD_LIBRARY_PATH has {len(loader.library_path)}"
        if loader.library_path
        else "LD_LIBRARY_PATH is not set"
    )
    text = f"{path}, RUNPATH has {len(loader.runpath_folders)} folders that exist"
    required = (*build.required_libraries, *build.driver_libraries) if build is not None else ()
    _, missing = _split_by_resolution(facts, required)
    if loader.import_needs:
        return Status.BAD, (f"the import fails: {loader.import_needs[0].error}",)
    if not missing:
        return Status.GOOD, (text, path)
    names = _describe_missing(facts, missing)
    verb = "cannot find" if _describe_failure(facts, missing) == "not found" else "cannot open"
    return Status.BAD, (f"{verb} {join_first(names, 3)}", f"{verb} {join_first(names, 1)}")


def _describe_environment(facts: Facts) -> tuple[Status, Texts]:
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
        *parts[:0:-1],  # each part but the first alone, the last part first
        *(("CUDA_VISIBLE_DEVICES",) if value is not None else ()),
    )
