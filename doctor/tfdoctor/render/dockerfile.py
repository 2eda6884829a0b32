"""The output of `build --check`, as text and as JSON (docs/schemas/build_check.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Severity, Status
from tfdoctor.core.text import clean_line
from tfdoctor.render.finding import (
    STATUS_BY_SEVERITY,
    STATUS_BY_USABLE,
    format_mark,
    make_finding_json,
    print_evidence,
    print_meaning,
    print_remedy,
)
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import Page, Text, print_hanging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.analysis import DockerfileReport
    from tfdoctor.images.read.compose import ContainerStart

__all__ = ["make_dockerfile_json", "make_services_json", "render_dockerfile_report", "render_services"]


def make_dockerfile_json(report: DockerfileReport) -> dict[str, Any]:
    """Return the document that `build --check --json` prints.

    It lists all stages of the file. The key `counts` of a stage says whether the image is built from that stage.
    """
    chain_indexes = {stage.index for stage in report.dockerfile.stage_chain}
    tensorflow, base = report.tensorflow, report.image.base
    return {
        **make_document_head("build_check"),
        "file": report.name,
        "stages": [
            {
                "name": stage.name or None,
                "line": stage.line,
                "from": stage.written_base,
                "image": stage.base,
                "counts": stage.index in chain_indexes,
            }
            for stage in report.dockerfile.stages
        ],
        "base": {
            "image": base.image_name,
            "kind": base.kind,
            "cuda": base.cuda,
            "cudnn": base.cudnn,
            "system": base.ubuntu_release,
            "python": base.python,
        },
        "tensorflow": None
        if tensorflow.state == "none"
        else {
            "package": tensorflow.package,
            "version": tensorflow.release.version if tensorflow.release is not None else None,
            "requirement": tensorflow.written_name,
            "python": tensorflow.python,
            "line": tensorflow.line,
        },
        "verdict": {
            "gpu_usable": report.verdict.gpu_usable,
            "cause": report.verdict.cause.value if report.verdict.cause is not None else None,
            "summary": report.verdict.summary,
        },
        "findings": [make_finding_json(finding) for finding in report.findings],
    }


def render_dockerfile_report(report: DockerfileReport, *, width: int = 80, colour: bool = False) -> str:
    """Return the result of the check as text, at most `width` columns wide. Commands are not wrapped."""
    out = Page(width, coloured=colour)
    for label, text in _list_facts(report):
        print_hanging(out, Text(f"{label:12}", style="bold"), clean_line(text))
    out.print()
    status = STATUS_BY_USABLE[report.verdict.gpu_usable]
    print_hanging(out, format_mark(status), clean_line(report.verdict.summary), style="bold")
    shown_commands: set[tuple[str, ...]] = set()
    for finding in report.findings:
        _print_finding(out, finding, shown_commands)
    if any(finding.severity > Severity.INFO for finding in report.findings):
        out.print()
        code = report.findings[0].code
        out.print(Text("Next: ") + Text(f"tfdoctor explain {code}"))
    return out.text


def make_services_json(
    file: str, results: Sequence[tuple[ContainerStart, DockerfileReport | None, str]]
) -> dict[str, Any]:
    """Return the JSON document for several containers (docs/schemas/build_check_services.schema.json).

    `results` contains (start of the container, report on its image, reason) for each container. If the image could not be
    checked, the report is None and the reason says why. Otherwise the reason is "".
    """
    return {
        **make_document_head("build_check_services"),
        "file": file,
        "services": [
            {
                "service": start.name or None,
                "line": start.line,
                "gpu_given": start.has_gpu,
                "check": make_dockerfile_json(report) if report is not None else None,
                "not_checked": reason or None,
            }
            for start, report, reason in results
        ],
    }


def render_services(
    results: Sequence[tuple[ContainerStart, DockerfileReport | None, str]],
    *,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return the results for all containers as text, one after the other.

    `results` is the same as for `make_services_json`.
    """
    parts = []
    for start, report, reason in results:
        out = Page(width, coloured=colour)
        noun = "container" if start.is_in_pod else "service"
        subject = f"{noun} {start.name}" if start.name else "dev container"
        gpu_texts = {
            True: "is given a GPU",
            False: "is given no GPU",
            None: "is given a GPU, or not, elsewhere",
        }
        print_hanging(
            out, Text("Started     ", style="bold"), clean_line(f"{subject} {gpu_texts[start.has_gpu]}")
        )
        if report is None:
            print_hanging(
                out, format_mark(Status.WARNING), clean_line(f"Not checked: {reason}."), style="bold"
            )
        parts.append(
            out.text + (render_dockerfile_report(report, width=width, colour=colour) if report else "")
        )
    return "\n".join(parts)


def _list_facts(report: DockerfileReport) -> list[tuple[str, str]]:
    """Return (label, text) for the base image and for TensorFlow."""
    base, tensorflow = report.image.base, report.tensorflow
    base_versions = [
        f"CUDA {base.cuda}" if base.cuda else "",
        f"cuDNN {base.cudnn}" if base.cudnn else "",
        f"Python {base.python}" if base.python else "",
    ]
    facts = [("Base", ", ".join([base.image_name, *(text for text in base_versions if text)]))]
    if tensorflow.state == "none":
        facts.append(("TensorFlow", "none was seen"))
    else:
        release = tensorflow.release
        build_note = (
            f" (built for CUDA {release.cuda}, cuDNN {release.cudnn})"
            if release is not None and release.cuda
            else ""
        )
        version = (
            release.version
            if release is not None and tensorflow.state == "there"
            else tensorflow.written_name
        )
        python = f", on Python {tensorflow.python}" if tensorflow.python else ""
        facts.append(("TensorFlow", f"{version}{build_note}{python}"))
    return facts


def _print_finding(out: Page, finding: Finding, shown_commands: set[tuple[str, ...]]) -> None:
    """Print a finding with its evidence and its remedies.

    Remedies whose commands were printed already are left out. If none would remain, all are printed.
    """
    out.print()
    location = next((f" (line {item.line})" for item in finding.evidence if item.line), "")
    label = format_mark(STATUS_BY_SEVERITY[finding.severity], f"{finding.code}  ")
    print_hanging(out, label, clean_line(finding.title) + location, style="bold")
    print_meaning(out, finding)
    for evidence in finding.evidence:
        print_evidence(out, evidence)
    remedies = [item for item in finding.remedies if item.commands not in shown_commands] or list(
        finding.remedies
    )
    shown_commands.update(item.commands for item in remedies if item.commands)
    for number, remedy in enumerate(remedies):
        print_remedy(out, remedy, first=number == 0)
