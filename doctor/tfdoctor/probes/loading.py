"""What the loader will give TensorFlow: the model of probes/loader.py run on one installation."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.facts import Fact, FoundElsewhere, Instead, Known, LoaderFacts, Resolution, Unknown, Without
from tfdoctor.parse.cudnn_header import parse_cudnn_header
from tfdoctor.probes.loader import LinkMap, Process
from tfdoctor.text import entries_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
FULL_NAME = re.compile(r"\.so\.(\d{1,6}(?:\.\d{1,6}){2,4})\Z")
"""A library's name with its whole version."""
HEADER_LIMIT = 1 << 18
MAX_ENTRIES = 4
"""Entries of a variable without each of which the loader is followed once more."""
LIBRARY_PATH, PRELOAD = "LD_LIBRARY_PATH", "LD_PRELOAD"
DRIVERS = ("libcuda.so.1", "libnvidia-ml.so.1")


def probe(
    system: System,
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    *,
    sonames: Sequence[str],
    caller: str,
    hard_linked: bool = False,
    shown: bool = True,
    cpu_flags: Iterable[str],
    variables: Mapping[str, str] | None = None,
) -> Fact[LoaderFacts]:
    """Follow the loader through `import tensorflow` and every `dlopen` of `sonames`, in their order.

    `caller` is the object that calls dlopen: "framework" or "pywrap"; `hard_linked` TensorFlow (1.13 and older)
    has the libraries among its own needs; `shown`: its own libraries show their symbols to what is loaded later.
    """
    if not python.platform.startswith("linux") or python.glibc is None:
        return Unknown(
            f"only glibc's loader is modelled, and this Python is for {python.platform}", python.executable
        )
    env = dict(system.env.items())  # going through all of them notes none as looked at
    env.update(variables or {})
    for name in (LIBRARY_PATH, PRELOAD):
        if variables is not None and name not in variables:
            env.pop(name, None)

    noexec = [system.realpath(folder) for folder, _ in python.noexec]

    def run(env: Mapping[str, str], beside: _Run | None = None, folders: Sequence[str] = ()) -> _Run:
        process = Process(
            system,
            python.real_executable or python.executable,
            env,
            cpu_flags=cpu_flags,
            glibc=python.glibc,
            files=beside.process.files if beside is not None else None,
            noexec=noexec,
        )
        gone = beside.began - {link.path for link in process.loaded} if beside is not None else frozenset()
        real = {system.realpath(path) for path in gone}
        there = [
            path
            for path in python.mapped
            if system.realpath(path) not in real and not path.startswith(tuple(f"{f}/" for f in folders))
        ]
        return _run(
            system,
            process,
            there,
            tensorflow,
            sonames=sonames,
            caller=caller,
            bind_now=hard_linked,
            shown=shown,
        )

    done = run(env)
    process, opener = done.process, done.opener
    if opener is None:
        return Unknown("TensorFlow's own shared objects are not there", tensorflow.core_dir)
    lost = tuple(n for r in done.resolutions for n in r.really_missing if "/" not in n and n not in sonames)
    return Known(
        LoaderFacts(
            caller=opener.path,
            runpath_folders=process.list_own_folders(opener),
            library_path=process.library_path,
            resolutions=done.resolutions,
            import_needs=done.failures,
            found=find_libraries(system, python, (*sonames, *lost), process),
            preload=process.preload,
            notes=tuple(process.notes),
            without=tuple(_resolve_again(env, done, run)),
            plugins=done.plugins,
        ),
        "the loader's rules followed on the files",
    )


def _complete_resolution(system: System, resolution: Resolution) -> Resolution:
    """Return the resolution, with what its file itself tells: its real path, the version in its name or in a header."""
    if not resolution.ok or resolution.path is None:
        return resolution
    real = system.realpath(resolution.path)
    match = FULL_NAME.search(real)
    version = match[1] if match is not None else None
    if version is None and resolution.soname.startswith("libcudnn."):
        version = _header(system, posixpath.dirname(real))
    other = real if real != posixpath.normpath(resolution.path) else ""
    return dataclasses.replace(resolution, real=other, version=version)


def _header(system: System, folder: str) -> str | None:
    """Return the version in the header that came with a cuDNN in `folder`: cudnn_version.h, cudnn.h up to 7."""
    for name in ("cudnn_version.h", "cudnn.h"):
        path = posixpath.normpath(f"{folder}/../include/{name}")
        try:
            found = parse_cudnn_header(system.read_text(path, limit=HEADER_LIMIT))
        except OSError:
            continue
        numbers = (found.major, found.minor, found.patch)
        if found.major is not None and found.minor is not None:
            return ".".join(str(number) for number in numbers if number is not None)
    return None


@dataclass(slots=True)
class _Run:
    """A process in which TensorFlow was imported and has opened its libraries."""

    process: Process
    began: frozenset[str]
    """The files that the process had before Python ran."""
    failures: tuple[Resolution, ...]
    opener: LinkMap | None
    resolutions: tuple[Resolution, ...]
    plugins: tuple[Resolution, ...] = ()


def _run(
    system: System,
    process: Process,
    mapped: Sequence[str],
    tensorflow: TensorFlowFacts,
    *,
    sonames: Sequence[str],
    caller: str,
    bind_now: bool,
    shown: bool,
) -> _Run:
    began = frozenset(link.path for link in process.loaded)
    for path in mapped:
        if process.find(path) is None:
            process.assume(path)
    failures: tuple[Resolution, ...] = ()
    if tensorflow.pywrap:
        imported = process.load(tensorflow.pywrap, bind_now=bind_now, visible=shown)
        if not imported.ok:
            failures = (imported,)
    opener = _caller(process, tensorflow, caller)
    opened = (
        tuple(_complete_resolution(system, process.dlopen(name, opener)) for name in sonames)
        if opener is not None
        else ()
    )
    plugins = tuple(process.dlopen(path, opener) for path in tensorflow.plugins) if opener is not None else ()
    return _Run(process, began, failures, opener, opened, plugins)


# ---------------------------------------------------------------- without an entry


def _resolve_again(
    env: Mapping[str, str],
    done: _Run,
    run: Callable[[Mapping[str, str], _Run, Sequence[str]], _Run],
) -> list[Without]:
    """Return the same once more without what LD_LIBRARY_PATH and LD_PRELOAD bring, where there is a reason to ask."""
    tried = [t for r in (*done.failures, *done.resolutions) for t in r.tried]
    through = {link.path for link in done.process.loaded if link.via == LIBRARY_PATH}
    through |= {t.path for t in tried if t.via == LIBRARY_PATH}
    driver = any(r.path in through or r.via == PRELOAD for r in done.resolutions if r.soname in DRIVERS)
    if not (done.failures or driver or any(not r.ok for r in done.resolutions)):
        return []
    places = dict(done.process.library_entries)
    used = [e for e, folder in places.items() if any(path.startswith(f"{folder}/") for path in through)]
    asked = [(LIBRARY_PATH, choice) for choice in _choices(used)]
    asked += [(PRELOAD, choice) for choice in _choices(done.process.preload)]
    answers = []
    for variable, entries in asked:
        less = {**env, variable: _less(variable, env.get(variable, ""), entries)}
        changed = run(less, done, [places[entry] for entry in entries if entry in places])
        if changed.opener is not None:
            instead = _list_instead(done, changed)
            answers.append(Without(variable, entries, changed.resolutions, changed.failures, instead))
    return answers


def _choices(entries: Sequence[str]) -> list[tuple[str, ...]]:
    """Return each alone, then all of them."""
    single = tuple(dict.fromkeys(entries))
    each: list[tuple[str, ...]] = [(entry,) for entry in single[:MAX_ENTRIES]]
    return [*each, single] if len(single) > 1 else each


def _less(variable: str, value: str, entries: Sequence[str]) -> str:
    kept = [entry for entry in entries_of(variable, value) if entry not in entries]
    return (" " if variable == PRELOAD else ":").join(kept)


def _list_instead(done: _Run, changed: _Run) -> tuple[Instead, ...]:
    """Return what is another file then: of the objects that are in the process, and of those at which it stopped."""
    now, then = _names_of(done.process), _names_of(changed.process)
    taken = frozenset(now.values())
    for resolution in (*done.failures, *done.resolutions):
        for tried in resolution.tried:
            now.setdefault(tried.path.rpartition("/")[2], tried.path)
    return tuple(
        Instead(name, path, then.get(name))
        for name, path in sorted(now.items())
        if "/" not in name and not _is_same_file(path, then.get(name)) and (name in then or path in taken)
    )


def _is_same_file(path: str, other: str | None) -> bool:
    """A RUNPATH leads there with ".." in it, a variable without."""
    return other is not None and posixpath.normpath(path) == posixpath.normpath(other)


def _names_of(process: Process) -> dict[str, str]:
    """Return soname → file of everything in a process."""
    found = {name: link.path for link in process.loaded for name in link.names}
    return found | {link.elf.soname: link.path for link in process.loaded if link.elf.soname}


def _caller(process: Process, tensorflow: TensorFlowFacts, which: str) -> LinkMap | None:
    """Return the object that calls dlopen; taken from its file where the import did not bring it in."""
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
    """Return libraries of the same families as `sonames`, in any version, wherever machines keep them."""
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
