"""Predict which libraries the dynamic loader finds for TensorFlow, using the model in loader.py."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core.facts import (
    Fact,
    FoundElsewhere,
    Known,
    LoaderFacts,
    RemovedEntriesResult,
    ReplacedLibrary,
    Resolution,
    Unknown,
)
from tfdoctor.core.text import split_path_list
from tfdoctor.probes.files import list_names
from tfdoctor.probes.loader import LinkMap, LoaderProcess
from tfdoctor.probes.parsers.cudnn_header import parse_cudnn_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tfdoctor.core.facts import PythonFacts, TensorFlowFacts
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
"""Folders that usually contain CUDA libraries, whether or not the loader searches them."""
TOOLKIT_VARIABLES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDA_DIR",
    "CUDNN_HOME",
    "CUDNN_PATH",
    "CUDNN_ROOT",
)
"""Variables that name the folder of a CUDA toolkit or of cuDNN. TensorFlow reads none of them."""
MAX_LIBRARIES = 400
"""The maximum number of libraries that `find_installed_libraries` returns."""
FULL_VERSION_SUFFIX = re.compile(r"\.so\.(\d{1,6}(?:\.\d{1,6}){2,4})\Z")
"""The end of a library's file name with the full version."""
MAX_HEADER_BYTES = 1 << 18
"""The maximum number of bytes that are read from a header."""
MAX_REMOVED_ENTRIES = 4
"""The maximum number of entries of a variable that are removed one by one to see their effect."""
LIBRARY_PATH, PRELOAD = "LD_LIBRARY_PATH", "LD_PRELOAD"
DRIVER_SONAMES = ("libcuda.so.1", "libnvidia-ml.so.1")
"""The sonames of the driver's libraries."""


def probe(
    system: System,
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    *,
    sonames: Sequence[str],
    caller: str,
    is_linked_to_cuda: bool = False,
    loads_globally: bool = True,
    cpu_flags: Iterable[str],
    variables: Mapping[str, str] | None = None,
) -> Fact[LoaderFacts]:
    """Model `import tensorflow`, and then `dlopen` for each of `sonames`, in their order.

    `caller` is the object that calls dlopen: "framework" or "pywrap". `is_linked_to_cuda` says whether TensorFlow is linked to
    CUDA's libraries (1.13 and older). `loads_globally` says whether TensorFlow's own libraries are loaded with
    RTLD_GLOBAL. `variables` are the variables of the examined Python; None means those of `system`.
    """
    if not python.platform.startswith("linux") or python.glibc is None:
        return Unknown(
            f"only glibc's loader is modelled, and this Python is for {python.platform}", python.executable
        )
    env = dict(system.env.items())  # `items` does not count as reading each variable
    env.update(variables or {})
    for name in (LIBRARY_PATH, PRELOAD):
        if variables is not None and name not in variables:
            env.pop(name, None)

    noexec = [system.realpath(folder) for folder, _ in python.noexec]

    def run_model(
        env: Mapping[str, str], baseline: _ModelRun | None = None, excluded_folders: Sequence[str] = ()
    ) -> _ModelRun:
        """Model the process with these variables, and without objects in `excluded_folders` before the import."""
        process = LoaderProcess(
            system,
            python.real_executable or python.executable,
            env,
            cpu_flags=cpu_flags,
            glibc=python.glibc,
            files=baseline.process.file_cache if baseline is not None else None,
            noexec=noexec,
        )
        removed_paths = (
            baseline.initial_paths - {link.path for link in process.loaded_objects}
            if baseline is not None
            else frozenset()
        )
        removed_real_paths = {system.realpath(path) for path in removed_paths}
        mapped = [
            path
            for path in python.mapped
            if system.realpath(path) not in removed_real_paths
            and not path.startswith(tuple(f"{folder}/" for folder in excluded_folders))
        ]
        return _run(
            system,
            process,
            mapped,
            tensorflow,
            sonames=sonames,
            caller=caller,
            bind_now=is_linked_to_cuda,
            global_symbols=loads_globally,
        )

    run_result = run_model(env)
    process, opener = run_result.process, run_result.caller
    if opener is None:
        return Unknown("TensorFlow's own shared objects are not there", tensorflow.core_dir)
    missing = tuple(
        soname
        for resolution in run_result.resolutions
        for soname in resolution.really_missing
        if "/" not in soname and soname not in sonames
    )
    mapped_bytes, notes = _sum_sizes(process), tuple(process.notes)
    without = tuple(_resolve_without_entries(env, run_result, run_model))
    found = find_installed_libraries(system, python, (*sonames, *missing), process)
    found_needs = _list_unresolved_needs(run_result.resolutions, found, process, opener)
    if found_needs:
        found = find_installed_libraries(system, python, (*sonames, *missing, *found_needs), process)
    return Known(
        LoaderFacts(
            caller=opener.path,
            runpath_folders=process.list_run_path_folders(opener),
            library_path=process.library_folders,
            resolutions=run_result.resolutions,
            import_needs=run_result.failures,
            found=found,
            found_needs=found_needs,
            import_bytes=run_result.import_bytes,
            mapped_bytes=mapped_bytes,
            preload=process.preloaded_names,
            notes=notes,
            without=without,
            plugins=run_result.plugins,
        ),
        "the loader's rules followed on the files",
    )


def _list_unresolved_needs(
    resolutions: Sequence[Resolution],
    found: Sequence[FoundElsewhere],
    process: LoaderProcess,
    caller: LinkMap,
) -> tuple[str, ...]:
    """Return the sonames that are missing if the process opens the files of missing libraries that were found."""
    needs: list[str] = []
    for resolution in resolutions:
        path = next((file.path for file in found if file.name == resolution.soname), None)
        if resolution.path is None and path is not None:
            needs += process.dlopen(path, caller).really_missing
    return tuple(dict.fromkeys(name for name in needs if "/" not in name and ".so" in name))


def _complete_resolution(system: System, resolution: Resolution) -> Resolution:
    """Add the real path, and the version in the file name or in cuDNN's header, to a resolution."""
    if resolution.path is None:
        return resolution
    real = system.realpath(resolution.path)
    if not resolution.ok:
        is_link = posixpath.basename(real) != posixpath.basename(resolution.path)
        return dataclasses.replace(resolution, real=real) if is_link else resolution
    match = FULL_VERSION_SUFFIX.search(real)
    version = match[1] if match is not None else None
    if version is None and resolution.soname.startswith("libcudnn."):
        version = _find_header_version(system, posixpath.dirname(real))
    real_path = real if real != posixpath.normpath(resolution.path) else ""
    return dataclasses.replace(resolution, real=real_path, version=version)


def _find_header_version(system: System, folder: str) -> str | None:
    """Return the version in the header that belongs to the cuDNN in `folder`, or None if there is none.

    The header is cudnn_version.h, or cudnn.h up to cuDNN 7.
    """
    for name in ("cudnn_version.h", "cudnn.h"):
        path = posixpath.normpath(f"{folder}/../include/{name}")
        try:
            version = parse_cudnn_header(system.read_text(path, limit=MAX_HEADER_BYTES))
        except OSError:
            continue
        numbers = (version.major, version.minor, version.patch)
        if version.major is not None and version.minor is not None:
            return ".".join(str(number) for number in numbers if number is not None)
    return None


@dataclass(slots=True)
class _ModelRun:
    """A modelled process that has imported TensorFlow and opened its libraries."""

    process: LoaderProcess
    initial_paths: frozenset[str]
    """The paths that were loaded before Python ran."""
    failures: tuple[Resolution, ...]
    """The failures of the import."""
    caller: LinkMap | None
    """The object that calls dlopen, or None if it cannot be read."""
    resolutions: tuple[Resolution, ...]
    """The results of the dlopen calls."""
    plugins: tuple[Resolution, ...] = ()
    import_bytes: int = 0
    """The sizes of the objects that were loaded after the import, added up."""


def _sum_sizes(process: LoaderProcess) -> int:
    return sum(link.elf.size for link in process.loaded_objects)


def _run(
    system: System,
    process: LoaderProcess,
    mapped: Sequence[str],
    tensorflow: TensorFlowFacts,
    *,
    sonames: Sequence[str],
    caller: str,
    bind_now: bool,
    global_symbols: bool,
) -> _ModelRun:
    """Model the import of TensorFlow in `process`, and its dlopen calls.

    `mapped` are the paths of extension modules that Python has loaded before.
    """
    paths_before = frozenset(link.path for link in process.loaded_objects)
    for path in mapped:
        if process.find_loaded_object(path) is None:
            process.add_object(path)
    failures: tuple[Resolution, ...] = ()
    if tensorflow.pywrap:
        result = process.load_extension(tensorflow.pywrap, bind_now=bind_now, is_global=global_symbols)
        if not result.ok:
            failures = (result,)
    opener = _find_caller(process, tensorflow, caller)
    import_bytes = _sum_sizes(process)
    resolutions = (
        tuple(_complete_resolution(system, process.dlopen(name, opener)) for name in sonames)
        if opener is not None
        else ()
    )
    plugins = tuple(process.dlopen(path, opener) for path in tensorflow.plugins) if opener is not None else ()
    return _ModelRun(
        process=process,
        initial_paths=paths_before,
        failures=failures,
        caller=opener,
        resolutions=resolutions,
        plugins=plugins,
        import_bytes=import_bytes,
    )


# ---------------------------------------------------------------- results without some entries


def _resolve_without_entries(
    env: Mapping[str, str],
    baseline: _ModelRun,
    run: Callable[[Mapping[str, str], _ModelRun, Sequence[str]], _ModelRun],
) -> list[RemovedEntriesResult]:
    """Run the model again without each entry of LD_LIBRARY_PATH and LD_PRELOAD, and return the results.

    Return nothing if these entries cause no problem: nothing failed, and they did not supply a driver library.
    """
    attempts = [
        attempt for resolution in (*baseline.failures, *baseline.resolutions) for attempt in resolution.tried
    ]
    library_path_files = {link.path for link in baseline.process.loaded_objects if link.via == LIBRARY_PATH}
    library_path_files |= {attempt.path for attempt in attempts if attempt.via == LIBRARY_PATH}
    is_driver_affected = any(
        resolution.path in library_path_files or resolution.via == PRELOAD
        for resolution in baseline.resolutions
        if resolution.soname in DRIVER_SONAMES
    )
    if not (
        baseline.failures
        or is_driver_affected
        or any(not resolution.ok for resolution in baseline.resolutions)
    ):
        return []
    folder_by_entry = dict(baseline.process.library_entries)
    used_entries = [
        entry
        for entry, folder in folder_by_entry.items()
        if any(path.startswith(f"{folder}/") for path in library_path_files)
    ]
    variants = [(LIBRARY_PATH, entries_to_remove) for entries_to_remove in _list_removals(used_entries)]
    variants += [
        (PRELOAD, entries_to_remove) for entries_to_remove in _list_removals(baseline.process.preloaded_names)
    ]
    results = []
    for variable, entries in variants:
        changed_env = {**env, variable: _remove_entries(variable, env.get(variable, ""), entries)}
        changed = run(
            changed_env, baseline, [folder_by_entry[entry] for entry in entries if entry in folder_by_entry]
        )
        if changed.caller is not None:
            replaced = _list_replaced_libraries(baseline, changed)
            results.append(
                RemovedEntriesResult(variable, entries, changed.resolutions, changed.failures, replaced)
            )
    return results


def _list_removals(entries: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the sets of entries to remove: each entry alone, and all of them if there are several."""
    distinct_entries = tuple(dict.fromkeys(entries))
    removals: list[tuple[str, ...]] = [(entry,) for entry in distinct_entries[:MAX_REMOVED_ENTRIES]]
    return [*removals, distinct_entries] if len(distinct_entries) > 1 else removals


def _remove_entries(variable: str, value: str, entries: Sequence[str]) -> str:
    """Return the value of a list variable without some entries."""
    remaining = [entry for entry in split_path_list(variable, value) if entry not in entries]
    return (" " if variable == PRELOAD else ":").join(remaining)


def _list_replaced_libraries(baseline: _ModelRun, changed: _ModelRun) -> tuple[ReplacedLibrary, ...]:
    """Return the files that differ between two runs, among loaded objects and attempted paths."""
    path_by_name, changed_path_by_name = _map_names(baseline.process), _map_names(changed.process)
    loaded_paths = frozenset(path_by_name.values())
    for resolution in (*baseline.failures, *baseline.resolutions):
        for attempt in resolution.tried:
            path_by_name.setdefault(attempt.path.rpartition("/")[2], attempt.path)
    return tuple(
        ReplacedLibrary(name, path, changed_path_by_name.get(name))
        for name, path in sorted(path_by_name.items())
        if "/" not in name
        and not _is_same_file(path, changed_path_by_name.get(name))
        and (name in changed_path_by_name or path in loaded_paths)
    )


def _is_same_file(path: str, other: str | None) -> bool:
    """Return whether two paths are equal after normalization: paths from a RUNPATH may contain ".."."""
    return other is not None and posixpath.normpath(path) == posixpath.normpath(other)


def _map_names(process: LoaderProcess) -> dict[str, str]:
    """Return the paths of all objects in a process, by soname and by requested name."""
    paths = {name: link.path for link in process.loaded_objects for name in link.names}
    return paths | {link.elf.soname: link.path for link in process.loaded_objects if link.elf.soname}


def _find_caller(process: LoaderProcess, tensorflow: TensorFlowFacts, kind: str) -> LinkMap | None:
    """Return the object that calls dlopen, or None if it cannot be read.

    It is added to the process if the import did not load it. `kind` is "framework" or "pywrap"; the other object is
    used if that one is missing.
    """
    paths = [tensorflow.framework, tensorflow.pywrap]
    for path in paths if kind == "framework" else reversed(paths):
        if path:
            link = process.find_loaded_object(path) or process.add_object(path)
            if link is not None:
                return link
    return None


def find_installed_libraries(
    system: System, python: PythonFacts, sonames: Sequence[str], process: LoaderProcess
) -> tuple[FoundElsewhere, ...]:
    """Return the libraries in the usual folders that have the names of `sonames`, in any version."""
    stems = sorted(
        {
            soname.split(".so")[0]
            for soname in sonames
            if ".so" in soname and not soname.startswith(("libcuda.", "libnvidia-ml."))
        }
    )
    if not stems:
        return ()
    pattern = re.compile(rf"({'|'.join(map(re.escape, stems))})\.so(\.\d+)+\Z")
    libraries: dict[str, FoundElsewhere] = {}
    for folder, package in _list_folders(system, python, process):
        try:
            names = system.listdir(folder)
        except OSError:
            continue
        for name in names:
            match = pattern.match(name)
            if match and len(libraries) < MAX_LIBRARIES and system.exists(f"{folder}/{name}"):
                path = f"{folder}/{name}"
                libraries.setdefault(path, FoundElsewhere(match[1], name, path, package))
    return tuple(libraries.values())


def _iter_toolkit_folders(system: System) -> Iterator[str]:
    """Yield the folders in which CUDA or cuDNN may be installed: the usual ones, and those that variables name."""
    home = system.env.get("HOME", "").rstrip("/")
    for parent in ("/usr/local", "/opt", "/opt/nvidia", home):
        for name in list_names(system, parent) if parent.startswith("/") else ():
            if name.startswith(("cuda", "cudnn")):
                yield f"{parent}/{name}"
    for variable in TOOLKIT_VARIABLES:
        folder = system.env.get(variable, "").rstrip("/")
        if folder.startswith("/"):
            yield folder
    for entry in system.env.get("PATH", "").split(":"):
        if entry.startswith("/") and entry.rstrip("/").endswith("/bin") and "cuda" in entry.lower():
            yield posixpath.dirname(entry.rstrip("/"))


def _list_folders(
    system: System, python: PythonFacts, process: LoaderProcess
) -> list[tuple[str, str | None]]:
    """Return (folder, package that owns it or None) for each existing folder that may have CUDA libraries."""
    folders: dict[str, str | None] = {}
    for site in (
        *python.site_packages,
        *python.sys_path,  # a folder of `pip install --target` on PYTHONPATH contains NVIDIA's wheels, too
    ):
        for name in list_names(system, f"{site}/nvidia"):
            folders.setdefault(f"{site}/nvidia/{name}/lib", f"nvidia/{name}")
        folders.setdefault(f"{site}/torch/lib", "torch")
    if python.conda_prefix:
        folders.setdefault(f"{python.conda_prefix}/lib", "conda")
    for folder in process.library_folders:
        folders.setdefault(folder, None)
    for toolkit in _iter_toolkit_folders(system):
        for subfolder in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            folders.setdefault(f"{toolkit}/{subfolder}", toolkit)
    for folder in SYSTEM_FOLDERS:
        folders.setdefault(folder, None)
    for paths in process.cached_paths_by_soname.values():
        for path in paths:
            folders.setdefault(path.rpartition("/")[0], None)
    folder_by_real_path: dict[str, tuple[str, str | None]] = {}
    for folder, package in folders.items():
        if system.is_dir(folder):
            folder_by_real_path.setdefault(system.realpath(folder), (folder, package))
    return list(folder_by_real_path.values())
