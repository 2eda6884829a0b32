"""The first gate: does `import tensorflow` work?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import Resolution, Unknown, value_of
from tfdoctor.findings import Cause
from tfdoctor.predict.driver import driver_missing_cause
from tfdoctor.predict.failures import (
    cause_of,
    failures,
    find_own_damage,
    find_untested_copies,
    find_working_folder_copy,
    list_imported,
)
from tfdoctor.predict.libraries import list_forbidden_files
from tfdoctor.predict.rehearsal import BREAKING, list_removed_standard
from tfdoctor.predict.shadowing import find_leader, package_led_away

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.compat.companions import Companion
    from tfdoctor.facts import Facts, Instead, PythonFacts, TensorFlowFacts
    from tfdoctor.predict.build import Build
    from tfdoctor.predict.failures import ImportFailure


def import_failure(
    facts: Facts, tensorflow: TensorFlowFacts, build: Build, compat: Compat
) -> tuple[Cause, str] | None:
    """Return why `import tensorflow` fails; None if nothing known stands in its way."""
    python = value_of(facts.python)
    if shadows_tensorflow(tensorflow):
        return Cause.SHADOWED_MODULE, f"{tensorflow.shadowed_by} is imported in its place."
    if tensorflow.missing_files:
        return (
            Cause.DAMAGED_FILE,
            f"Its installation is damaged: {', '.join(tensorflow.missing_files)} missing.",
        )
    damage = find_own_damage(python, tensorflow, compat) if python is not None else ()
    if any(difference.what == "unreadable" for difference in damage):
        return Cause.NOT_PERMITTED, f"{damage[0].path} of TensorFlow may not be read."
    if any(difference.what in BREAKING or difference.path.endswith(".so") for difference in damage):
        return (
            Cause.DAMAGED_FILE,
            f"{damage[0].path} of TensorFlow is not as it was installed ({damage[0].what}).",
        )
    loader = value_of(facts.loader)
    if loader is not None and loader.import_needs:
        return _load_failure(facts, build, loader.import_needs[0])
    opened = loader.resolutions if loader is not None and build.has("runtime-at-import") else ()
    for one in opened:
        if one.crash and one.soname.startswith("libcudart."):
            return (
                Cause.DAMAGED_FILE,
                f"It opens {one.soname}, which is truncated: that kills Python (SIGBUS).",
            )
    if lacks_avx(facts, tensorflow, build):
        return Cause.ILLEGAL_INSTRUCTION_AVX, "The processor has no AVX, with which this build is compiled."
    stopped = find_stopping_variable(python, build, facts.environment.variables, compat)
    if stopped is not None:
        return Cause.HIDDEN_BY_ENV, stopped[1]
    return _companion_failure(facts, tensorflow, build, compat) or _plugin_failure(facts)


def import_unknown(facts: Facts, tensorflow: TensorFlowFacts, compat: Compat) -> str:
    """Return why it cannot be known whether the import works; empty if it can."""
    python = value_of(facts.python)
    damage = find_own_damage(python, tensorflow, compat) if python is not None else ()
    if damage:
        return f"{damage[0].path} of TensorFlow is truncated: whether the import still works is not known."
    if isinstance(facts.rehearsal, Unknown):
        return f"Could not test whether the import works: {facts.rehearsal.why}."
    untested = find_untested_copies(facts, compat)
    if untested:
        return (
            f"A program that is started in {untested[0].location} takes {untested[0].name} from there. Whether "
            "TensorFlow works with it was not tested: nothing of the working folder is executed."
        )
    return ""


def shadows_tensorflow(tensorflow: TensorFlowFacts) -> bool:
    """Return whether programs that are started in the working folder import something else under this name."""
    path = tensorflow.shadowed_by
    return bool(path) and path != f"{tensorflow.package_dir}/__init__.py"


def _plugin_failure(facts: Facts) -> tuple[Cause, str] | None:
    """Return every import of TensorFlow loads the shared objects in tensorflow-plugins/, and stops where one does not
    load.
    """
    loader = value_of(facts.loader)
    failed = next((one for one in loader.plugins if not one.ok), None) if loader is not None else None
    if failed is None:
        return None
    return plugin_cause(failed), f"The plugin {failed.soname} does not load: {failed.error}"


def plugin_cause(failed: Resolution) -> Cause:
    """Return the contract's word for a plugin that does not load: damaged, or built for another TensorFlow."""
    lost = [name for name in failed.really_missing if name != failed.soname]
    return Cause.PACKAGE_CONFLICT if lost or "undefined symbol" in failed.error else Cause.DAMAGED_FILE


def lacks_avx(facts: Facts, tensorflow: TensorFlowFacts, build: Build) -> bool:
    """Return whether this is one of TensorFlow's own x86 wheels compiled with AVX, on a processor without."""
    machine, release = facts.machine, build.release if build.exact else None
    if release is None or machine.machine.lower() not in {"x86_64", "amd64"} or tensorflow.conda_build:
        return False
    compiled = release.cpu_instructions
    with_avx = build.has("avx") if compiled is None else "avx" in compiled
    return with_avx and bool(machine.cpu_flags) and "avx" not in machine.cpu_flags


BACKEND = "KERAS_BACKEND"


def keras_backend(python: PythonFacts | None, build: Build, variables: Mapping[str, str]) -> str:
    """Return the backend that Keras 3 is told to take; empty if none is named or this Keras does not ask."""
    keras = python.versions_installed().get("keras", "") if python is not None else ""
    third = versions.is_version(keras) and versions.is_at_least(keras, "3")
    return variables.get(BACKEND, "") if third and build.has("keras-3") else ""


def find_stopping_variable(
    python: PythonFacts | None, build: Build, variables: Mapping[str, str], compat: Compat
) -> tuple[str, str] | None:
    """Return (the variable with which Python does not get through this release's import, why).

    None if none is known.
    """
    if build.version is None:
        return None
    optimize, warnings = variables.get("PYTHONOPTIMIZE", ""), variables.get("PYTHONWARNINGS", "")
    dropped = re.fullmatch(r"[0-9]{1,9}", optimize) is not None and int(optimize) >= 2
    if dropped and versions.satisfies(build.version, compat.flags.docstrings):
        return "PYTHONOPTIMIZE", f"PYTHONOPTIMIZE={optimize} drops docstrings, which the import parses."
    strict = any(entry.strip() == "error" for entry in warnings.split(","))
    if strict and versions.satisfies(build.version, compat.flags.warnings):
        return "PYTHONWARNINGS", "PYTHONWARNINGS turns warnings into errors, and the import raises warnings."
    backend = keras_backend(python, build, variables)
    if backend and backend not in compat.flags.keras_backends:
        return BACKEND, f"{BACKEND} names {backend!r}, which Keras does not have: it raises a ValueError."
    if python is not None and variables.get("SETUPTOOLS_USE_DISTUTILS") == "stdlib":
        table = compat.find_imported(build.version)
        if table is not None and list_removed_standard(python, table):
            why = "SETUPTOOLS_USE_DISTUTILS=stdlib asks for Python's own distutils, and this Python has none."
            return "SETUPTOOLS_USE_DISTUTILS", why
    return None


def find_broken_companions(
    facts: Facts, tensorflow: TensorFlowFacts, build: Build, compat: Compat
) -> tuple[Companion, ...]:
    """Return what of compat/imports.toml applies to this Python: NumPy, protobuf and the like.

    Nothing for conda's builds, which differ; nothing about what lies in the working folder: that hides a module,
    whatever its version, and is rehearsed; and nothing is missing that was imported, though nobody registered it.
    """
    python = value_of(facts.python)
    if python is None or not python.distributions or tensorflow.conda_build:
        return ()
    rows = compat.find_breaking(
        build.version, python.versions_installed(), facts.environment.variables, absent=python.absent
    )
    there = list_imported(value_of(facts.rehearsal))
    return tuple(
        row
        for row in rows
        if find_working_folder_copy(python, row.package) is None and (row.breaks or row.package not in there)
    )


def _companion_failure(
    facts: Facts, tensorflow: TensorFlowFacts, build: Build, compat: Compat
) -> tuple[Cause, str] | None:
    """Return a package with which the import fails: one that is known to, or one that failed in the rehearsal."""
    python = value_of(facts.python)
    if python is None or not python.distributions:
        return None
    tried = next((one for one in failures(facts, compat) if one.fatal), None)
    for row in find_broken_companions(facts, tensorflow, build, compat):
        if row.effect == "import":
            have = python.versions_installed().get(row.package)
            if have is None and tried is not None:
                continue
            named = f"{row.package} {have}" if have is not None else f"no {row.package}"
            led = package_led_away(facts, row.package)
            if led is not None:
                by = find_leader(facts, led.location)
                who = by.by if by is not None and by.by == "PYTHONPATH" else "what Python runs when it starts"
                why = f"{who} puts {named} of {led.location} first, and import tensorflow fails with it"
                return Cause.SHADOWED_MODULE, f"{why}: {row.error}"
            return Cause(row.cause), f"import tensorflow fails with {named}: {row.error}"
    return _find_rehearsed_failure(tried)


def _find_rehearsed_failure(failed: ImportFailure | None) -> tuple[Cause, str] | None:
    if failed is None:
        return None
    one = failed.rehearsed
    if failed.shadow and not one.error:
        return cause_of(failed), f"{failed.shadow} is imported in place of {one.name}."
    return cause_of(failed), f"import tensorflow fails with {one.name}: {one.error_type}: {one.error}"


def foreign_libstdcxx(facts: Facts, failed: Resolution) -> Instead | None:
    """Return the C++ library that LD_LIBRARY_PATH or LD_PRELOAD puts first, where it lacks what the objects ask of it
    by name: one without any versions is taken by the loader, and the symbols are missed afterwards.
    """
    loader = value_of(facts.loader)
    if loader is None or "undefined symbol" not in failed.error:
        return None
    working = (w for w in loader.without if not w.import_needs)
    return next((i for w in working for i in w.instead if i.soname == "libstdc++.so.6"), None)


def _load_failure(facts: Facts, build: Build, failed: Resolution) -> tuple[Cause, str]:
    """Return why the loader cannot load TensorFlow's own objects."""
    if list_forbidden_files(failed, elsewhere=True):
        return Cause.NOT_PERMITTED, failed.error
    if "version `GLIBC_" in failed.error:
        return Cause.GLIBC_TOO_OLD, failed.error
    if "version `GLIBCXX_" in failed.error or "version `CXXABI_" in failed.error:
        return Cause.LIBSTDCXX_TOO_OLD, failed.error
    if foreign_libstdcxx(facts, failed) is not None:
        return Cause.LIBSTDCXX_TOO_OLD, failed.error
    lost = set(failed.really_missing)
    if lost and lost <= {"libcuda.so.1"}:
        return driver_missing_cause(facts, failed), failed.error
    if build.linkage == "needed" and lost & {*build.required, *build.driver_libraries}:
        return Cause.IMPORT_MISSING_CUDA_LIB, failed.error
    return choose_object_cause(failed), failed.error


def choose_object_cause(failed: Resolution) -> Cause:
    """Return the word for an object of TensorFlow's own that does not load: its file, or one of the system's that it
    needs.
    """
    own = any("tensorflow" in name.rpartition("/")[2] for name in failed.really_missing)
    return Cause.DAMAGED_FILE if failed.crash or own or is_damaged(failed) else Cause.INCONCLUSIVE


def is_damaged(failed: Resolution) -> bool:
    """Return whether the loader stops at a file that is no library, or not a whole one."""
    return any(tried.problem and failed.error.startswith(f"{tried.path}: ") for tried in failed.tried)
