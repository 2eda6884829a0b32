"""`diagnose --json`; its shape is docs/schemas/diagnose.schema.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.render.json import SCHEMA_VERSION, finding_json

if TYPE_CHECKING:
    from tfdoctor.logs.deduce import Device
    from tfdoctor.logs.report import LogReport


def log_json(report: LogReport) -> dict[str, Any]:
    """One log's report."""
    return {
        "schema_version": SCHEMA_VERSION,
        "file": report.name,
        "tensorflow_version": report.tensorflow_version,
        "era": report.era,
        "gpu_registered": report.gpu_registered,
        "devices": [_device(device) for device in report.devices],
        "missing_libraries": list(report.missing_libraries),
        "benign": list(report.benign),
        "verdict": {
            "cause": report.cause.value,
            "summary": report.summary,
            "undecided": [cause.value for cause in report.undecided],
        },
        "findings": [finding_json(finding) for finding in report.findings],
        "lines": report.lines,
        "bytes": report.bytes,
        "processes": [
            {
                "label": process.label,
                "framework": process.framework,
                "line": process.line,
                "gpu_registered": process.gpu_registered,
                "cause": process.cause.value if process.cause is not None else None,
                "summary": process.summary,
                "devices": [_device(device) for device in process.devices],
            }
            for process in report.processes
        ],
        "more_processes": report.more_processes,
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "index": device.index,
        "name": device.name,
        "compute_capability": device.compute_capability,
        "memory_mib": device.memory_mib,
        "pci_bus_id": device.pci_bus_id,
    }
