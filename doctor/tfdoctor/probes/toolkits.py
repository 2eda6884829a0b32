"""Find the CUDA toolkits on this machine."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, CudaToolkit, Fact, Known, Unknown
from tfdoctor.probes.parsers.cuda_version_file import parse_cuda_version_file
from tfdoctor.probes.parsers.nvcc import parse_nvcc

if TYPE_CHECKING:
    from tfdoctor.system import System

XLA_FOLDER_OPTION = re.compile(r"--xla_gpu_cuda_data_dir=([^\s'\"]+)")
"""The option in XLA_FLAGS that names the folder in which XLA first searches for libdevice and ptxas."""


def probe(system: System) -> tuple[CudaToolkit, ...]:
    """Return the toolkits in the usual folders and in those that environment variables name.

    Each toolkit is returned once, even if several links lead to it.
    """
    folders: list[str] = []
    with contextlib.suppress(OSError):
        folders += [f"/usr/local/{name}" for name in system.listdir("/usr/local") if name.startswith("cuda")]
    folders += [system.env[name] for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT") if system.env.get(name)]
    folders += ["/opt/cuda", "/usr/lib/cuda"]
    match = XLA_FOLDER_OPTION.search(system.env.get("XLA_FLAGS", ""))
    if match is not None:
        folders.append(match[1] if match[1].startswith("/") else f"{system.cwd.rstrip('/')}/{match[1]}")
    toolkit_by_real_path: dict[str, CudaToolkit] = {}
    for folder in folders:
        if system.is_dir(folder):
            toolkit_by_real_path.setdefault(system.realpath(folder), _probe_toolkit(system, folder))
    return tuple(toolkit_by_real_path.values())


def _probe_toolkit(system: System, folder: str) -> CudaToolkit:
    """Return the facts about the toolkit in a folder.

    The version comes from its version file, or else from the name of the folder.
    """
    version = None
    for name in ("version.json", "version.txt"):
        try:
            version = parse_cuda_version_file(system.read_text(f"{folder}/{name}")).cuda_version
        except OSError:
            continue
        if version:
            break
    if version is None:
        version_in_name = system.realpath(folder).rpartition("cuda-")[2]
        version = version_in_name if version_in_name.replace(".", "").isdigit() else None
    return CudaToolkit(
        path=folder,
        version=version,
        libdevice=system.exists(f"{folder}/nvvm/libdevice/libdevice.10.bc"),
        ptxas=system.exists(f"{folder}/bin/ptxas"),
    )


def probe_nvcc(system: System, *, timeout: float) -> Fact[str]:
    """Return the release of the nvcc on PATH. Its toolkit need not be the one that TensorFlow uses."""
    command = system.which("nvcc")
    if command is None:
        return Absent("nvcc", "no nvcc on PATH")
    result = system.run([command, "--version"], timeout=timeout, key="nvcc --version")
    release = parse_nvcc(result.stdout).release if result.ok else None
    if release is None:
        return Unknown(f"nvcc --version {result.describe_outcome()}", "nvcc --version")
    return Known(release, "nvcc --version")
