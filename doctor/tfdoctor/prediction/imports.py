"""Predict the first stage: whether `import tensorflow` works."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import Resolution, Unknown, value_of
from tfdoctor.core.findings import Cause
from tfdoctor.core.records import dataclass
from tfdoctor.prediction.driver import find_missing_driver_cause
from tfdoctor.prediction.failures import (
    find_working_folder_copy,
    get_failure_cause,
    list_damaged_tensorflow_files,
    list_import_failures,
    list_imported_distributions,
    list_untested_copies,
)
from tfdoctor.prediction.libraries import compute_needed_address_space, list_forbidden_files
from tfdoctor.prediction.rehearsal import (
    BREAKING_DIFFERENCES,
    list_removed_distutils,
    list_versions_laid_over,
)
from tfdoctor.prediction.shadowing import find_leading_folder, find_leading_package

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.companions import Companion
    from tfdoctor.core.facts import EnvironmentFacts, Facts, PythonFacts, ReplacedLibrary, TensorFlowFacts
    from tfdoctor.prediction.build import Build
    from tfdoctor.prediction.failures import ImportFailure

BACKEND_VARIABLE = "KERAS_BACKEND"
"""The environment variable that selects the backend of Keras 3."""


def find_import_failure(
    facts: Facts, tensorflow: TensorFlowFacts, build: Build, compat: Compat
) -> tuple[Cause, str] | None:
    """Return why `import tensorflow` fails, as a cause and a sentence; None if no reason is known."""
    python = value_of(facts.python)
    if is_tensorflow_shadowed(tensorflow):
        return Cause.SHADOWED_MODULE, f"{tensorflow.shadowed_by} is imported in its place."
    if tensorflow.archive is not None:
        return Cause.DAMAGED_FILE, f"It is in an archive, {tensorflow.archive}, without its shared objects."
    if tensorflow.missing_files:
        return (
            Cause.DAMAGED_FILE,
            f"Its installation is damaged: {', '.join(tensorflow.missing_files)} missing.",
        )
    damage = list_damaged_tensorflow_files(python, tensorflow, compat) if python is not None else ()
    if any(difference.what == "unreadable" for difference in damage):
        return Cause.NOT_PERMITTED, f"{damage[0].path} of TensorFlow may not be read."
    if any(
        difference.what in BREAKING_DIFFERENCES or difference.path.endswith(".so") for difference in damage
    ):
        return (
            Cause.DAMAGED_FILE,
            f"{damage[0].path} of TensorFlow is not as it was installed ({damage[0].what}).",
        )
    loader = value_of(facts.loader)
    if loader is not None and loader.import_needs:
        return _explain_load_failure(facts, build, loader.import_needs[0])
    if compute_needed_address_space(facts, is_import=True) is not None:
        return (
            Cause.NOT_PERMITTED,
            "The limit of the address space (ulimit -v) is too low for TensorFlow's own files.",
        )
    memory = get_short_memory(facts, tensorflow.version, compat)
    if memory is not None and memory.limit < memory.import_bytes:
        return Cause.OOM, "The memory limit is too low for the import: the kernel kills the process."
    opened_libraries = (
        loader.resolutions if loader is not None and build.has_trait("runtime-at-import") else ()
    )
    for library in opened_libraries:
        if library.crash and library.soname.startswith("libcudart."):
            return (
                Cause.DAMAGED_FILE,
                f"It opens {library.soname}, which is truncated: that kills Python (SIGBUS).",
            )
    if lacks_avx(facts, tensorflow, build):
        return Cause.ILLEGAL_INSTRUCTION_AVX, "The processor has no AVX, with which this build is compiled."
    breaking_variable = find_import_breaking_variable(python, build, facts.environment, compat)
    if breaking_variable is not None:
        _, reason = breaking_variable
        return Cause.HIDDEN_BY_ENV, reason
    return _find_companion_failure(facts, tensorflow, build, compat) or _find_plugin_failure(facts)


@dataclass(frozen=True, slots=True)
class ShortMemory:
    """A limit of the memory with which TensorFlow may be killed, and what its import takes at least, in bytes."""

    limit: int
    import_bytes: int


def get_short_memory(facts: Facts, release: str | None, compat: Compat) -> ShortMemory | None:
    """Return the memory limit if it may be too low for TensorFlow; None if there is none, or enough."""
    limit, need = facts.machine.memory_limit, compat.flags.import_memory
    if limit is None or release is None or not versions.satisfies(release, need.releases):
        return None
    return ShortMemory(limit, need.import_mib << 20) if limit < need.enough_mib << 20 else None


def explain_unknown_import(facts: Facts, tensorflow: TensorFlowFacts, compat: Compat) -> str:
    """Return why it is unknown whether `import tensorflow` works; "" if there is no doubt."""
    python = value_of(facts.python)
    damage = list_damaged_tensorflow_files(python, tensorflow, compat) if python is not None else ()
    if damage:
        return f"{damage[0].path} of TensorFlow is truncated: whether the import still works is not known."
    if isinstance(facts.rehearsal, Unknown):
        return f"Could not test whether the import works: {facts.rehearsal.why}."
    if get_short_memory(facts, tensorflow.version, compat) is not None:
        return "Whether the memory limit suffices for TensorFlow is not known."
    untested = list_untested_copies(facts, compat)
    if untested:
        return (
            f"A program that is started in {untested[0].location} takes {untested[0].name} from there. Whether "
            "TensorFlow works with it was not tested: nothing of the working folder is executed."
        )
    return ""


def is_tensorflow_shadowed(tensorflow: TensorFlowFacts) -> bool:
    """Return whether programs in the working folder import a different module named tensorflow."""
    path = tensorflow.shadowed_by
    return bool(path) and path != f"{tensorflow.package_dir}/__init__.py"


def _find_plugin_failure(facts: Facts) -> tuple[Cause, str] | None:
    """Return (cause, sentence) if a plugin in tensorflow-plugins/ does not load, which stops the import."""
    loader = value_of(facts.loader)
    resolution = (
        next((plugin for plugin in loader.plugins if not plugin.ok), None) if loader is not None else None
    )
    if resolution is None:
        return None
    cause = choose_plugin_cause(resolution)
    return cause, f"The plugin {resolution.soname} does not load: {resolution.error}"


def choose_plugin_cause(resolution: Resolution) -> Cause:
    """Return why a plugin cannot be loaded: it is damaged, or it was built for another TensorFlow."""
    missing_dependencies = [name for name in resolution.really_missing if name != resolution.soname]
    return (
        Cause.PACKAGE_CONFLICT
        if missing_dependencies or "undefined symbol" in resolution.error
        else Cause.DAMAGED_FILE
    )


def lacks_avx(facts: Facts, tensorflow: TensorFlowFacts, build: Build) -> bool:
    """Return whether the processor lacks AVX and this build, an official wheel for x86, needs it."""
    machine, release = facts.machine, build.release if build.is_exact_release else None
    if release is None or machine.machine.lower() not in {"x86_64", "amd64"} or tensorflow.conda_build:
        return False
    instructions = release.cpu_instructions
    needs_avx = build.has_trait("avx") if instructions is None else "avx" in instructions
    return needs_avx and bool(machine.cpu_flags) and "avx" not in machine.cpu_flags


def get_keras_backend(
    python: PythonFacts | None, build: Build, environment: EnvironmentFacts
) -> tuple[str, str]:
    """Return (backend, origin): KERAS_BACKEND, or else keras.json, selects it. ("", "") if this Keras ignores both."""
    keras = python.list_installed_versions().get("keras", "") if python is not None else ""
    is_keras_3 = versions.is_version(keras) and versions.is_at_least(keras, "3")
    if not is_keras_3 or not build.has_trait("keras-3"):
        return "", ""
    backend = environment.variables.get(BACKEND_VARIABLE, "")
    return (backend, BACKEND_VARIABLE) if backend else (environment.keras_backend, environment.keras_file)


def find_import_breaking_variable(
    python: PythonFacts | None, build: Build, environment: EnvironmentFacts, compat: Compat
) -> tuple[str, str] | None:
    """Return (name, reason) of an environment variable, or keras.json, that makes the import fail; None if none does."""
    if build.version is None:
        return None
    variables = environment.variables
    optimize, warnings = variables.get("PYTHONOPTIMIZE", ""), variables.get("PYTHONWARNINGS", "")
    drops_docstrings = re.fullmatch(r"[0-9]{1,9}", optimize) is not None and int(optimize) >= 2
    if drops_docstrings and versions.satisfies(build.version, compat.flags.releases_needing_docstrings):
        return "PYTHONOPTIMIZE", f"PYTHONOPTIMIZE={optimize} drops docstrings, which the import parses."
    raises_warnings = any(entry.strip() == "error" for entry in warnings.split(","))
    if raises_warnings and versions.satisfies(build.version, compat.flags.releases_failing_on_warnings):
        return "PYTHONWARNINGS", "PYTHONWARNINGS turns warnings into errors, and the import raises warnings."
    backend, origin = get_keras_backend(python, build, environment)
    if backend and backend not in compat.flags.module_by_keras_backend:
        return origin, f"{origin} names {backend!r}, which Keras does not have: it raises a ValueError."
    if python is not None and variables.get("SETUPTOOLS_USE_DISTUTILS") == "stdlib":
        table = compat.find_import_needs(build.version)
        if table is not None and list_removed_distutils(python, table):
            reason = (
                "SETUPTOOLS_USE_DISTUTILS=stdlib asks for Python's own distutils, and this Python has none."
            )
            return "SETUPTOOLS_USE_DISTUTILS", reason
    return None


def find_broken_companions(
    facts: Facts, tensorflow: TensorFlowFacts, build: Build, compat: Compat
) -> tuple[Companion, ...]:
    """Return the entries of compat/imports.toml for packages that break this import.

    Return () for conda builds, to which the table does not apply. Packages in the working folder are omitted,
    because they shadow a module whatever their version is. A package that the rehearsal imported does not count
    as missing, even if it has no metadata.
    """
    python = value_of(facts.python)
    if python is None or not python.distributions or tensorflow.conda_build:
        return ()
    companions = compat.find_incompatible_packages(
        build.version, python.list_installed_versions(), facts.environment.variables, absent=python.absent
    )
    imported = list_imported_distributions(value_of(facts.rehearsal))
    # Of two versions in one folder, nobody knows whose files are there, but the rehearsal tried them.
    laid_over = list_versions_laid_over(python)
    return tuple(
        companion
        for companion in companions
        if find_working_folder_copy(python, companion.package) is None
        and not (companion.package in laid_over and companion.package in imported)
        and (companion.broken_versions or companion.package not in imported)
    )


def _find_companion_failure(
    facts: Facts, tensorflow: TensorFlowFacts, build: Build, compat: Compat
) -> tuple[Cause, str] | None:
    """Return (cause, sentence) if the table or else the rehearsal shows that a package stops the import."""
    python = value_of(facts.python)
    if python is None or not python.distributions:
        return None
    rehearsed_failure = next(
        (failure for failure in list_import_failures(facts, compat) if failure.is_fatal), None
    )
    for companion in find_broken_companions(facts, tensorflow, build, compat):
        if companion.effect == "import":
            version = python.list_installed_versions().get(companion.package)
            if version is None and rehearsed_failure is not None:
                continue
            label = f"{companion.package} {version}" if version is not None else f"no {companion.package}"
            leading_package = find_leading_package(facts, companion.package)
            if leading_package is not None:
                leading_folder = find_leading_folder(facts, leading_package.location)
                origin = (
                    leading_folder.origin
                    if leading_folder is not None and leading_folder.origin == "PYTHONPATH"
                    else "what Python runs when it starts"
                )
                message = f"{origin} puts {label} of {leading_package.location} first, and import tensorflow fails with it"
                return Cause.SHADOWED_MODULE, f"{message}: {companion.error}"
            return Cause(companion.cause), f"import tensorflow fails with {label}: {companion.error}"
    return _explain_rehearsed_failure(rehearsed_failure)


def _explain_rehearsed_failure(failure: ImportFailure | None) -> tuple[Cause, str] | None:
    if failure is None:
        return None
    module = failure.import_result
    if failure.shadowing_file and not module.error:
        return get_failure_cause(failure), f"{failure.shadowing_file} is imported in place of {module.name}."
    sentence = f"import tensorflow fails with {module.name}: {module.error_type}: {module.error}"
    return get_failure_cause(failure), sentence


def find_overriding_libstdcxx(facts: Facts, resolution: Resolution) -> ReplacedLibrary | None:
    """Return the libstdc++ that the environment puts first if it lacks symbols; otherwise None.

    LD_LIBRARY_PATH or LD_PRELOAD can do that. The loader accepts a library without symbol versions, and reports its
    missing symbols only later.
    """
    loader = value_of(facts.loader)
    if loader is None or "undefined symbol" not in resolution.error:
        return None
    successful_attempts = (attempt for attempt in loader.without if not attempt.import_needs)
    return next(
        (
            library
            for attempt in successful_attempts
            for library in attempt.instead
            if library.soname == "libstdc++.so.6"
        ),
        None,
    )


def _explain_load_failure(facts: Facts, build: Build, resolution: Resolution) -> tuple[Cause, str]:
    """Return why the loader cannot load one of TensorFlow's own objects: the cause and the loader's error."""
    if list_forbidden_files(resolution, is_elsewhere=True):
        return Cause.NOT_PERMITTED, resolution.error
    if "version `GLIBC_" in resolution.error:
        return Cause.GLIBC_TOO_OLD, resolution.error
    if "version `GLIBCXX_" in resolution.error or "version `CXXABI_" in resolution.error:
        return Cause.LIBSTDCXX_TOO_OLD, resolution.error
    if find_overriding_libstdcxx(facts, resolution) is not None:
        return Cause.LIBSTDCXX_TOO_OLD, resolution.error
    missing = set(resolution.really_missing)
    if missing and missing <= {"libcuda.so.1"}:
        return find_missing_driver_cause(facts, resolution), resolution.error
    if build.linkage == "needed" and missing & {*build.required_libraries, *build.driver_libraries}:
        return Cause.IMPORT_MISSING_CUDA_LIB, resolution.error
    return choose_object_cause(resolution), resolution.error


def choose_object_cause(resolution: Resolution) -> Cause:
    """Return why one of TensorFlow's own objects cannot be loaded.

    The cause is a damaged file if loading crashes, if another object of TensorFlow is missing, or if the loader
    stops at an incomplete file. Otherwise it is inconclusive.
    """
    is_own_object_missing = any("tensorflow" in name.rpartition("/")[2] for name in resolution.really_missing)
    return (
        Cause.DAMAGED_FILE
        if resolution.crash or is_own_object_missing or stops_at_damaged_file(resolution)
        else Cause.INCONCLUSIVE
    )


def stops_at_damaged_file(resolution: Resolution) -> bool:
    """Return whether the loader stops at a file that is not a complete library.

    The loader's message begins with the path of that file.
    """
    return any(tried.problem and resolution.error.startswith(f"{tried.path}: ") for tried in resolution.tried)
