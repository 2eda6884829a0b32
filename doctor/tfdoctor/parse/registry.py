"""``PARSERS``, the table of all parsers by the KIND of text in ``tfdoctor parse KIND``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.parse.container_cli import parse_container_cli
from tfdoctor.parse.cuda_version_file import parse_cuda_version_file
from tfdoctor.parse.cudnn_header import parse_cudnn_header
from tfdoctor.parse.detect import detect_kind
from tfdoctor.parse.docker_info import parse_docker_info
from tfdoctor.parse.dpkg import parse_dpkg
from tfdoctor.parse.ldconfig import parse_ldconfig
from tfdoctor.parse.lsmod import parse_lsmod
from tfdoctor.parse.nvcc import parse_nvcc
from tfdoctor.parse.pci import parse_lspci
from tfdoctor.parse.pip_conda import parse_pip_conda
from tfdoctor.parse.proc_version import parse_proc_version
from tfdoctor.parse.smi_csv import parse_smi_csv
from tfdoctor.parse.smi_failure import parse_smi_failure
from tfdoctor.parse.smi_list import parse_smi_list
from tfdoctor.parse.smi_q import parse_smi_q
from tfdoctor.parse.smi_table import parse_smi_table
from tfdoctor.parse.smi_topo import parse_smi_topo
from tfdoctor.parse.smi_version import parse_smi_version
from tfdoctor.parse.smi_xml import parse_smi_xml
from tfdoctor.parse.tf_env import parse_tf_env
from tfdoctor.parse.wrapped import unwrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.parse._text import Parsed

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
