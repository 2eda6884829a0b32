"""``PARSERS``, the table of all parsers by the KIND of text in ``tfdoctor parse KIND``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.probes.parsers.container_cli import parse_container_cli
from tfdoctor.probes.parsers.cuda_version_file import parse_cuda_version_file
from tfdoctor.probes.parsers.cudnn_header import parse_cudnn_header
from tfdoctor.probes.parsers.detect import detect_kind
from tfdoctor.probes.parsers.docker_info import parse_docker_info
from tfdoctor.probes.parsers.dpkg import parse_dpkg
from tfdoctor.probes.parsers.ldconfig import parse_ldconfig
from tfdoctor.probes.parsers.lsmod import parse_lsmod
from tfdoctor.probes.parsers.nvcc import parse_nvcc
from tfdoctor.probes.parsers.pci import parse_lspci
from tfdoctor.probes.parsers.pip_conda import parse_pip_conda
from tfdoctor.probes.parsers.proc_version import parse_proc_version
from tfdoctor.probes.parsers.smi_csv import parse_smi_csv
from tfdoctor.probes.parsers.smi_failure import parse_smi_failure
from tfdoctor.probes.parsers.smi_list import parse_smi_list
from tfdoctor.probes.parsers.smi_q import parse_smi_q
from tfdoctor.probes.parsers.smi_table import parse_smi_table
from tfdoctor.probes.parsers.smi_topo import parse_smi_topo
from tfdoctor.probes.parsers.smi_version import parse_smi_version
from tfdoctor.probes.parsers.smi_xml import parse_smi_xml
from tfdoctor.probes.parsers.tf_env import parse_tf_env
from tfdoctor.probes.parsers.wrapped import unwrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.probes.parsers._text import Parsed

__all__ = ["PARSERS", "detect_kind", "parse"]

PARSERS: dict[str, Callable[[str], Parsed]] = {
    "smi_table": parse_smi_table,
    "smi_failure": parse_smi_failure,
    "smi_q_xml": parse_smi_xml,
    "smi_q": parse_smi_q,
    "smi_csv": parse_smi_csv,
    "smi_list": parse_smi_list,
    "smi_topo": parse_smi_topo,
    "smi_version": parse_smi_version,
    "nvcc": parse_nvcc,
    "cudnn_header": parse_cudnn_header,
    "cuda_version_file": parse_cuda_version_file,
    "ldconfig": parse_ldconfig,
    "dpkg": parse_dpkg,
    "pip_conda": parse_pip_conda,
    "lspci": parse_lspci,
    "proc_version": parse_proc_version,
    "container_cli": parse_container_cli,
    "docker_info": parse_docker_info,
    "lsmod": parse_lsmod,
    "tf_env": parse_tf_env,
}


def parse(kind: str, text: str) -> dict[str, Any]:
    """Parse a text as ``kind``, and return the ``data`` that ``tfdoctor parse KIND --json`` prints.

    Raise KeyError if the kind is unknown.
    """
    return PARSERS[kind](unwrap(text)).as_dict()
