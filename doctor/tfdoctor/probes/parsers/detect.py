"""Recognise the tool that printed a text, for ``tfdoctor parse auto``.

The order of the tests matters. Outputs that contain others come first: for example, tf_env contains an nvidia-smi
table. Unambiguous marks come before shapes that several tools share.
"""

from __future__ import annotations

import re

from tfdoctor.probes.parsers._text import clean
from tfdoctor.probes.parsers.cuda_version_file import parse_cuda_version_file
from tfdoctor.probes.parsers.dpkg import parse_dpkg
from tfdoctor.probes.parsers.lsmod import parse_lsmod
from tfdoctor.probes.parsers.pci import parse_lspci
from tfdoctor.probes.parsers.pip_conda import parse_pip_conda
from tfdoctor.probes.parsers.smi_csv import parse_smi_csv
from tfdoctor.probes.parsers.smi_failure import parse_smi_failure, reports_missing_program
from tfdoctor.probes.parsers.smi_list import parse_smi_list
from tfdoctor.probes.parsers.smi_table import looks_like_smi_table, parse_smi_table
from tfdoctor.probes.parsers.smi_topo import parse_smi_topo
from tfdoctor.probes.parsers.smi_version import parse_smi_version
from tfdoctor.probes.parsers.tf_env import has_tf_env_titles
from tfdoctor.probes.parsers.wrapped import unwrap

# The number of characters that are examined. The beginning of a huge log is enough.
_MAX_CHARS = 200_000
_CONTAINER_CLI_LINE = re.compile(
    r"(?im)^\W{0,20}(?:NVRM version:[ \t]*(?:[0-9]|\(null\))|Device Minor:|Bus Location:)"
)
_NVCC_LINE = re.compile(r"Cuda compilation tools, release|\bnvcc: NVIDIA")
_LDCONFIG_LINE = re.compile(r"\((?:libc6|ELF)[^()\n]{0,80}\)[ \t]+=>|\.so[.0-9]{0,40}[ \t]+->[ \t]+lib")
_CUDNN_MACRO = re.compile(r"\bCUDNN_(?:MAJOR|MINOR|PATCHLEVEL)[ \t]+[0-9]")
_DOCKER_INFO_LINE = re.compile(
    r"(?m)^\W{0,20}(?:Runtimes|Default Runtime|Server Version):|\"Runtimes\":|map\[[a-z.A-Z0-9]+:\{"
)


def detect_kind(text: str) -> str | None:
    """Return the most likely kind of ``text``, a key of ``PARSERS``, or None if no kind is recognised."""
    text = clean(unwrap(text)[:_MAX_CHARS])
    return _detect_by_mark(text) or _detect_by_sentence(text) or _detect_by_shape(text)


def _detect_by_mark(text: str) -> str | None:
    """Return the kind of a text with an unambiguous mark, or None if there is no such mark."""
    if "<nvidia_smi_log" in text:
        return "smi_q_xml"
    if has_tf_env_titles(text):
        return "tf_env"
    if "NVSMI LOG" in text:
        return "smi_q"
    if parse_smi_topo(text).matrix:
        return "smi_topo"
    if len(parse_smi_version(text).fields) >= 2:
        return "smi_version"
    if _CONTAINER_CLI_LINE.search(text):
        return "container_cli"
    if "NVRM version:" in text:
        return "proc_version"
    if parse_smi_list(text).n_gpu_lines and "(UUID:" in text:
        return "smi_list"
    if _CUDNN_MACRO.search(text):
        return "cudnn_header"
    if looks_like_smi_table(text) and parse_smi_table(text).driver_version:
        return "smi_table"
    return None


def _detect_by_sentence(text: str) -> str | None:
    """Return the kind of a text with a known sentence or an nvidia-smi table, or None if it has neither."""
    failure_kind = parse_smi_failure(text).kind
    if failure_kind and failure_kind != "command_not_found":
        return "smi_failure"
    if _NVCC_LINE.search(text) or reports_missing_program(text, "nvcc"):
        return "nvcc"
    if failure_kind:
        return "smi_failure"
    return "smi_table" if looks_like_smi_table(text) else None


def _detect_by_shape(text: str) -> str | None:
    """Return the kind of a text whose lines have a known shape, or None if no shape is known."""
    if _LDCONFIG_LINE.search(text):
        return "ldconfig"
    if parse_lspci(text).devices:
        return "lspci"
    dpkg = parse_dpkg(text)
    if dpkg.rows or dpkg.apt_rows:
        return "dpkg"
    if _DOCKER_INFO_LINE.search(text):
        return "docker_info"
    if parse_cuda_version_file(text).kind:
        return "cuda_version_file"
    csv_table = parse_smi_csv(text)
    if csv_table.header is not None:
        return "smi_csv"
    packages = parse_pip_conda(text)
    module_count = parse_lsmod(text).n_modules
    if module_count and module_count >= packages.n_packages:
        return "lsmod"
    if packages.n_packages >= 2 and packages.n_packages > csv_table.n_rows:
        return "pip_conda"
    if csv_table.n_rows and any(len(row) > 1 for row in csv_table.rows):
        return "smi_csv"
    return "pip_conda" if packages.n_packages else None
