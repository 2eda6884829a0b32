"""The way from the card to TensorFlow, joint by joint, and the joint that is broken. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.facts import Absent, Known, value_of
from tfdoctor.findings import Severity, Status
from tfdoctor.report.areas import find_area
from tfdoctor.rules.base import CUDA, CUDNN, DRIVER, GPU, LOADER, TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import Facts
    from tfdoctor.findings import Area, Finding, Report

__all__ = ["JOINTS", "Joint", "make_chain"]

CARD, MODULE, USER_SPACE, CONTAINER, LIBRARIES, NEURAL, SEARCH, FRAMEWORK, PYTHON = JOINTS = (
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
"""The joints, in the order in which a computation on the GPU needs them."""
_OF_AREA = {
    GPU: CARD,
    DRIVER: USER_SPACE,
    CUDA: LIBRARIES,
    CUDNN: NEURAL,
    LOADER: SEARCH,
    TENSORFLOW: FRAMEWORK,
}
"""An area of the first page → its joint; everything else is about the Python and its environment."""
_CONTAINERS = "4"
"""The hundred of the codes about containers."""


@dataclass(frozen=True, slots=True)
class Joint:
    """One joint of the chain."""

    name: str
    status: Status
    text: str
    findings: tuple[Finding, ...] = ()
    """What is wrong with it, the worst first."""
    broken: bool = False
    """The root cause is here: of all joints at most one."""


def make_chain(report: Report) -> tuple[Joint, ...]:
    """Return the links of the chain, in the order of `JOINTS`. None is broken if there is no root cause."""
    areas = {area.name: area for area in report.areas}
    seen = {joint: _read_area(areas.get(area)) for area, joint in _OF_AREA.items()}
    seen[MODULE] = _module(report.facts)
    seen[CONTAINER] = _container(report.facts)
    seen[PYTHON] = _python(report.facts)
    marking: dict[str, list[Finding]] = {}
    for finding in report.findings:
        joint = _find_joint(finding, report.facts, seen[MODULE][0])
        if joint is not None and finding.severity > Severity.INFO:
            marking.setdefault(joint, []).append(finding)
    root = report.root if report.root is not None and report.root.severity is Severity.ERROR else None
    return tuple(_joint(name, *seen[name], marking.get(name, ()), root) for name in JOINTS)


def _joint(name: str, status: Status, text: str, findings: Sequence[Finding], root: Finding | None) -> Joint:
    worst = max((one.severity for one in findings), default=Severity.INFO)
    if worst is Severity.ERROR:
        status = Status.BAD
    elif worst is Severity.WARNING and status is not Status.BAD:
        status = Status.WARNING
    broken = any(one is root for one in findings)
    return Joint(name, status, text, tuple(sorted(findings, key=lambda one: -one.severity)), broken)


def _find_joint(finding: Finding, facts: Facts, module: Status) -> str | None:
    """Return the link that a finding is about; None for those about the report itself."""
    area = find_area(finding)
    if area is None:
        return None
    if finding.code[3] == _CONTAINERS:
        return CONTAINER
    if area in (GPU, DRIVER) and isinstance(facts.driver.pci, Absent) and module is Status.BAD:
        return CARD  # there is none, and what comes after it has nothing to work with
    if area in (GPU, DRIVER) and module is Status.BAD and finding.severity is Severity.ERROR:
        return MODULE  # without it, what comes after it cannot work
    if area == TENSORFLOW and not isinstance(facts.python, Known):
        return PYTHON
    return _OF_AREA.get(area, PYTHON)


def _read_area(area: Area | None) -> tuple[Status, str]:
    """Return status and text as the first page has them."""
    return (area.status, area.text) if area is not None else (Status.UNKNOWN, "not looked into")


def _module(facts: Facts) -> tuple[Status, str]:
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


def _container(facts: Facts) -> tuple[Status, str]:
    where = facts.machine.container
    if not where:
        return Status.GOOD, "none between: this is not a container"
    cuda = value_of(facts.driver.cuda)
    if cuda is not None and cuda.devices:
        return Status.GOOD, f"in a container ({where}), which was given the GPU"
    return Status.UNKNOWN, f"in a container ({where})"


def _python(facts: Facts) -> tuple[Status, str]:
    if isinstance(facts.python, Known):
        python = facts.python.value
        return Status.GOOD, f"{python.version}, {python.executable}"
    if isinstance(facts.python, Absent):
        return Status.BAD, "no Python was found"
    return Status.UNKNOWN, facts.python.why
