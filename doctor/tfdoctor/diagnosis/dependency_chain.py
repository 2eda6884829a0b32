"""Find the broken link in the chain from the GPU to TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, Known, value_of
from tfdoctor.core.findings import Severity, Status
from tfdoctor.diagnosis.areas import find_area
from tfdoctor.rules.base import CUDA, CUDNN, DRIVER, GPU, LOADER, TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Area, Finding, Report

__all__ = ["LINK_NAMES", "ChainLink", "make_chain"]

(
    GPU_LINK,
    MODULE_LINK,
    DRIVER_LINK,
    CONTAINER_LINK,
    LIBRARIES_LINK,
    CUDNN_LINK,
    LOADER_LINK,
    TENSORFLOW_LINK,
    PYTHON_LINK,
) = LINK_NAMES = (
    "Card",
    "Kernel module",
    "User-space driver",
    "Container runtime",
    "CUDA libraries",
    "cuDNN",
    "Loader",
    "TensorFlow",
    "Python",
)
"""The names of the links, from the GPU to Python. Each link depends on those before it."""
_LINK_BY_AREA = {
    GPU: GPU_LINK,
    DRIVER: DRIVER_LINK,
    CUDA: LIBRARIES_LINK,
    CUDNN: CUDNN_LINK,
    LOADER: LOADER_LINK,
    TENSORFLOW: TENSORFLOW_LINK,
}
"""The link of each area. Findings of all other areas belong to the Python link."""
_CONTAINER_CODE_DIGIT = "4"
"""The first digit of the codes of findings about containers, such as TFD401."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A link of the chain from the GPU to TensorFlow."""

    name: str
    status: Status
    text: str
    findings: tuple[Finding, ...] = ()
    """The findings about this link, the most severe first."""
    is_broken: bool = False
    """Whether the root cause is in this link. At most one link is broken."""


def make_chain(report: Report) -> tuple[ChainLink, ...]:
    """Return the links of the chain, in the order of `LINK_NAMES`. Without a root cause, no link is broken."""
    areas = {area.name: area for area in report.areas}
    status_and_text_by_link = {link: _get_area_line(areas.get(area)) for area, link in _LINK_BY_AREA.items()}
    status_and_text_by_link[MODULE_LINK] = _describe_module(report.facts)
    status_and_text_by_link[CONTAINER_LINK] = _describe_container(report.facts)
    status_and_text_by_link[PYTHON_LINK] = _describe_python(report.facts)
    module_status, _ = status_and_text_by_link[MODULE_LINK]
    findings_by_link: dict[str, list[Finding]] = {}
    for finding in report.findings:
        link = _find_link(finding, report.facts, module_status)
        if link is not None and finding.severity > Severity.INFO:
            findings_by_link.setdefault(link, []).append(finding)
    root = (
        report.root_finding
        if report.root_finding is not None and report.root_finding.severity is Severity.ERROR
        else None
    )
    return tuple(
        _make_link(name, *status_and_text_by_link[name], findings_by_link.get(name, ()), root)
        for name in LINK_NAMES
    )


def _make_link(
    name: str, status: Status, text: str, findings: Sequence[Finding], root: Finding | None
) -> ChainLink:
    """Return a link, which is broken if `root` is one of its findings. Findings can only make its status worse."""
    worst = max((finding.severity for finding in findings), default=Severity.INFO)
    if worst is Severity.ERROR:
        status = Status.BAD
    elif worst is Severity.WARNING and status is not Status.BAD:
        status = Status.WARNING
    is_broken = any(finding is root for finding in findings)
    return ChainLink(
        name=name,
        status=status,
        text=text,
        findings=tuple(sorted(findings, key=lambda finding: -finding.severity)),
        is_broken=is_broken,
    )


def _find_link(finding: Finding, facts: Facts, module_status: Status) -> str | None:
    """Return the link that a finding is about, or None for a finding about the report itself.

    `module_status` is the status of the kernel module.
    """
    area = find_area(finding)
    if area is None:
        return None
    if finding.code[3] == _CONTAINER_CODE_DIGIT:  # the first digit after "TFD"
        return CONTAINER_LINK
    if area in (GPU, DRIVER) and isinstance(facts.driver.pci, Absent) and module_status is Status.BAD:
        return GPU_LINK  # there is no GPU, so the later links cannot work
    if area in (GPU, DRIVER) and module_status is Status.BAD and finding.severity is Severity.ERROR:
        return MODULE_LINK  # without the module, the later links cannot work
    if area == TENSORFLOW and not isinstance(facts.python, Known):
        return PYTHON_LINK
    return _LINK_BY_AREA.get(area, PYTHON_LINK)


def _get_area_line(area: Area | None) -> tuple[Status, str]:
    """Return the status and the text of an area. A missing area has the status UNKNOWN."""
    return (area.status, area.text) if area is not None else (Status.UNKNOWN, "skipped")


def _describe_module(facts: Facts) -> tuple[Status, str]:
    """Return the status and the text of the kernel module, which is not visible in WSL and in some containers."""
    module = facts.driver.kernel_module
    if isinstance(module, Known):
        kind = ", the open kernel module" if module.value.open_kernel else ""
        return Status.GOOD, f"{module.value.version}{kind}"
    if facts.machine.wsl:
        return Status.UNKNOWN, "Windows has it: below WSL there is none to look at"
    cuda = value_of(facts.driver.cuda)
    if cuda is not None and cuda.devices:
        return Status.UNKNOWN, "not visible from here; the driver shows a card, so it is loaded"
    if isinstance(module, Absent):
        return Status.BAD, "not loaded"
    return Status.UNKNOWN, module.why


def _describe_container(facts: Facts) -> tuple[Status, str]:
    """Return the status and the text of the container runtime. Without a container, its status is GOOD."""
    container = facts.machine.container
    if not container:
        return Status.GOOD, "none between: this is not a container"
    cuda = value_of(facts.driver.cuda)
    if cuda is not None and cuda.devices:
        return Status.GOOD, f"in a container ({container}), which was given the GPU"
    return Status.UNKNOWN, f"in a container ({container})"


def _describe_python(facts: Facts) -> tuple[Status, str]:
    if isinstance(facts.python, Known):
        python = facts.python.value
        return Status.GOOD, f"{python.version}, {python.executable}"
    if isinstance(facts.python, Absent):
        return Status.BAD, "no Python was found"
    return Status.UNKNOWN, facts.python.why
