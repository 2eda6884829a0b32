"""Parse the XML report of ``nvidia-smi -q -x``, DTD v2 (2012) to v13 (2026).

defusedxml rejects entities and external resources. A truncated report is parsed as far as possible.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean, is_placeholder, parse_listed_version, to_int, to_mib

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ROOT_TAG = "nvidia_smi_log"
_CLOSING_TAG = f"</{_ROOT_TAG}>"
_DTD_VERSION = re.compile(r"nvsmi_device_(v[0-9]{1,3})\.dtd")


@dataclass(frozen=True, slots=True)
class XmlGpu(Parsed):
    """A ``<gpu>`` element. ``position`` is its index in the report. A missing value is None."""

    position: int
    bus_id: str | None
    name: str | None
    uuid: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    mig: bool
    n_mig_devices: int
    driver_model: str | None
    n_processes: int | None
    minor_number: int | None = None
    compute_mode: str | None = None
    persistence_mode: str | None = None
    ecc_mode: str | None = None
    architecture: str | None = None
    addressing_mode: str | None = None
    virtualization_mode: str | None = None
    fabric_state: str | None = None


@dataclass(frozen=True, slots=True)
class SmiXml(Parsed):
    """The report. ``driver_version`` is that of the kernel driver. ``*_raw`` fields are as printed."""

    dtd: str | None
    timestamp: str | None
    driver_version: str | None
    cuda_version: str | None
    attached_gpus: int | None
    gpus: tuple[XmlGpu, ...]
    cuda_version_raw: str | None = None
    driver_version_raw: str | None = None
    complete: bool = True
    notes: tuple[str, ...] = ()


def parse_smi_xml(text: str) -> SmiXml:
    """Parse the report. Text around it, such as prompts and Markdown fences, is ignored."""
    document = _extract_document(clean(text))
    root, problem = _parse_document(document)
    dtd_match = _DTD_VERSION.search(document[:4000])
    notes = [problem] if problem else []
    if root is None:
        return SmiXml(
            dtd=dtd_match[1] if dtd_match else None,
            timestamp=None,
            driver_version=None,
            cuda_version=None,
            attached_gpus=None,
            gpus=(),
            complete=False,
            notes=tuple(notes),
        )
    driver_raw = _get_version_text(root, "kmd_version", "driver_version")
    cuda_raw = _get_version_text(root, "cuda_umd_version", "cuda_version")
    return SmiXml(
        dtd=dtd_match[1] if dtd_match else None,
        timestamp=_get_text(root, "timestamp"),
        driver_version=parse_listed_version(driver_raw),
        cuda_version=parse_listed_version(cuda_raw),
        attached_gpus=to_int(_get_text(root, "attached_gpus") or ""),
        gpus=tuple(
            _make_gpu(position, gpu_element) for position, gpu_element in enumerate(root.findall("gpu"))
        ),
        cuda_version_raw=cuda_raw,
        driver_version_raw=driver_raw,
        complete=problem is None,
        notes=tuple(notes),
    )


def read_report(text: str) -> Element | None:
    """Return the root element of a report, as far as it is well-formed, or None if there is no report."""
    return _parse_document(_extract_document(clean(text)))[0]


def _extract_document(text: str) -> str:
    """Return the text from the DOCTYPE or the root element to the end of the root element, or "".

    The XML declaration is dropped, because its encoding does not apply to decoded text.
    """
    start = text.find("<!DOCTYPE " + _ROOT_TAG)
    if start < 0:
        start = text.find("<" + _ROOT_TAG)
    if start < 0:
        return ""
    end = text.find(_CLOSING_TAG, start)
    return text[start:] if end < 0 else text[start : end + len(_CLOSING_TAG)]


def _parse_document(document: str) -> tuple[Element | None, str | None]:
    """Return (root element, problem). The root has only what comes before the problem; each can be None."""
    if not document:
        return None, "no <nvidia_smi_log> element"
    root: Element | None = None
    source = io.BytesIO(document.encode("utf-8", errors="replace"))
    try:
        # the first element is the root; the loop only makes the parser go on
        for _, element in iterparse(source, events=("start", "end")):
            root = element if root is None else root
    except ParseError as error:
        return root, f"not well-formed, read up to there: {error}"
    except DefusedXmlException as error:
        return None, f"refused: {error}"
    return root, None


def _get_text(element: Element, path: str) -> str | None:
    """Return the stripped text at ``path``, or None if the element is missing or empty."""
    content = element.findtext(path)
    return content.strip() or None if content else None


def _get_version_text(element: Element, *paths: str) -> str | None:
    """Return the first text at ``paths`` that is a version, or else the first text, or else None."""
    texts = [text for path in paths if (text := _get_text(element, path)) is not None]
    return next((text for text in texts if parse_listed_version(text)), texts[0] if texts else None)


def _make_gpu(position: int, gpu: Element) -> XmlGpu:
    return XmlGpu(
        position=position,
        bus_id=gpu.get("id") or _get_text(gpu, "pci/pci_bus_id"),
        name=_get_text(gpu, "product_name"),
        uuid=_get_text(gpu, "uuid"),
        memory_total_mib=_get_memory(gpu, "total"),
        memory_used_mib=_get_memory(gpu, "used"),
        mig=_get_text(gpu, "mig_mode/current_mig") == "Enabled",
        n_mig_devices=len(gpu.findall("mig_devices/mig_device")),
        driver_model=_get_text(gpu, "driver_model/current_dm"),
        n_processes=_count_processes(gpu),
        minor_number=to_int(_get_text(gpu, "minor_number") or ""),
        compute_mode=_get_text(gpu, "compute_mode"),
        persistence_mode=_get_text(gpu, "persistence_mode"),
        ecc_mode=_get_text(gpu, "ecc_mode/current_ecc"),
        architecture=_get_text(gpu, "product_architecture"),
        addressing_mode=_get_text(gpu, "addressing_mode"),
        virtualization_mode=_get_text(gpu, "gpu_virtualization_mode/virtualization_mode"),
        fabric_state=_get_text(gpu, "fabric/state"),
    )


def _get_memory(gpu: Element, kind: str) -> int | None:
    text = _get_text(gpu, f"fb_memory_usage/{kind}")
    return None if text is None else to_mib(text)


def _count_processes(gpu: Element) -> int | None:
    """Return the number of listed processes, or None if the list is absent or unavailable."""
    processes = gpu.find("processes")
    if processes is None:
        processes = gpu.find("compute_processes")  # DTD v6 and older
    if processes is None:
        return None
    listed = len(processes.findall("process_info"))
    remark = (processes.text or "").strip()
    # A placeholder such as N/A means that the list is unavailable, but "None" means that it is empty.
    return None if listed == 0 and remark and is_placeholder(remark) and remark.lower() != "none" else listed
