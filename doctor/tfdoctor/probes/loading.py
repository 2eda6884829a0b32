"""What the loader will give TensorFlow: the model of probes/loader.py run on one installation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.facts import Fact, FoundElsewhere, Known, LoaderFacts, Resolution, Unknown
from tfdoctor.probes.loader import LinkMap, Process

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.facts import PythonFacts, TensorFlowFacts
    from tfdoctor.system import System

SYSTEM_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/opt/cuda/lib64",
    "/usr/lib/cuda/lib64",
    "/usr/lib/wsl/lib",
    "/opt/conda/lib",
)
"""Where CUDA libraries are found on machines, whether or not the loader looks there."""
MAX_FOUND = 400


def probe(
    system: System,
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    *,
    sonames: Sequence[str],
    caller: str,
    hard_linked: bool = False,
    cpu_flags: Iterable[str],
) -> Fact[LoaderFacts]:
    """Follow the loader through `import tensorflow` and every `dlopen` of `sonames`, in their order.

    `caller` is the object that calls dlopen: "framework" or "pywrap"; `hard_linked` TensorFlow (1.13 and older)
    has the libraries among its own needs.
    """
    if not python.platform.startswith("linux") or python.glibc is None:
        return Unknown(
            f"only glibc's loader is modelled, and this Python is for {python.platform}", python.executable
        )
    process = Process(
        system,
        python.real_executable or python.executable,
        system.env,
        cpu_flags=cpu_flags,
        glibc=python.glibc,
        noexec=[system.realpath(folder) for folder, _ in python.noexec],
    )
    for path in python.mapped:
        if process.find(path) is None:
            process.assume(path)
    failures: tuple[Resolution, ...] = ()
    if tensorflow.pywrap:
        imported = process.load(tensorflow.pywrap, bind_now=hard_linked)
        if not imported.ok:
            failures = (imported,)
    opener = _caller(process, tensorflow, caller)
    if opener is None:
        return Unknown("TensorFlow's own shared objects are not there", tensorflow.core_dir)
    resolutions = tuple(process.dlopen(soname, opener) for soname in sonames)
    lost = tuple(n for r in resolutions for n in r.really_missing if "/" not in n and n not in sonames)
    return Known(
        LoaderFacts(
            caller=opener.path,
            runpath_folders=process.own_folders(opener),
            library_path=process.library_path,
            resolutions=resolutions,
            import_needs=failures,
            found=find_libraries(system, python, (*sonames, *lost), process),
            preload=process.preload,
            notes=tuple(process.notes),
        ),
        "the loader's rules followed on the files",
    )


def _caller(process: Process, tensorflow: TensorFlowFacts, which: str) -> LinkMap | None:
    """The object that calls dlopen; taken from its file where the import did not bring it in."""
    choices = [tensorflow.framework, tensorflow.pywrap]
    for path in choices if which == "framework" else reversed(choices):
        if path:
            found = process.find(path) or process.assume(path)
            if found is not None:
                return found
    return None


def find_libraries(
    system: System, python: PythonFacts, sonames: Sequence[str], process: Process
) -> tuple[FoundElsewhere, ...]:
    """Libraries of the same families as `sonames`, in any version, wherever machines keep them."""
    stems = sorted(
        {
            soname.split(".so")[0]
            for soname in sonames
            if ".so" in soname and not soname.startswith(("libcuda.", "libnvidia-ml."))
        }
    )
    if not stems:
        return ()
    wanted = re.compile(rf"({'|'.join(map(re.escape, stems))})\.so(\.\d+)+\Z")
    found: dict[str, FoundElsewhere] = {}
    for folder, package in _folders(system, python, process):
        try:
            names = system.listdir(folder)
        except OSError:
            continue
        for name in names:
            match = wanted.match(name)
            if match and len(found) < MAX_FOUND and system.exists(f"{folder}/{name}"):
                path = f"{folder}/{name}"
                found.setdefault(path, FoundElsewhere(match[1], name, path, package))
    return tuple(found.values())


def _folders(system: System, python: PythonFacts, process: Process) -> list[tuple[str, str | None]]:
    folders: dict[str, str | None] = {}
    for site in (
        *python.site_packages,
        *(p for p in python.sys_path if p.endswith(("site-packages", "dist-packages"))),
    ):
        for name in _names(system, f"{site}/nvidia"):
            folders.setdefault(f"{site}/nvidia/{name}/lib", f"nvidia/{name}")
        folders.setdefault(f"{site}/torch/lib", "torch")
    if python.conda_prefix:
        folders.setdefault(f"{python.conda_prefix}/lib", "conda")
    for folder in process.library_path:
        folders.setdefault(folder, None)
    for name in _names(system, "/usr/local"):
        if name.startswith("cuda"):
            for sub in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
                folders.setdefault(f"/usr/local/{name}/{sub}", f"/usr/local/{name}")
    for folder in SYSTEM_FOLDERS:
        folders.setdefault(folder, None)
    for paths in process.cache_sonames.values():
        for path in paths:
            folders.setdefault(path.rpartition("/")[0], None)
    kept: dict[str, tuple[str, str | None]] = {}
    for folder, package in folders.items():
        if system.is_dir(folder):
            kept.setdefault(system.realpath(folder), (folder, package))
    return list(kept.values())


def _names(system: System, folder: str) -> list[str]:
    try:
        return system.listdir(folder)
    except OSError:
        return []
