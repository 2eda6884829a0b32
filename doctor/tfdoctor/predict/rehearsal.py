"""The plan of an import rehearsal: the parts of TensorFlow's import that are not known to work here.

An import is known to work if every package has the version of one tested environment (compat/imports,
compat/locks) and the files of its RECORD, and no other module with the same name is found first. Otherwise a
child process imports everything that TensorFlow needs, because packages depend on each other in ways that
their metadata does not state. No I/O.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat.locks import choose_locked_package
from tfdoctor.facts import MODULE_DISTRIBUTIONS, TENSORFLOW_DISTRIBUTIONS
from tfdoctor.facts.imports import Oddity
from tfdoctor.predict.requirements import format_requirement, is_met, normalize_name, parse_requirement_line
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.compat.imported import Imported
    from tfdoctor.facts import Distribution, PythonFacts, TensorFlowFacts

__all__ = [
    "LEGACY_KERAS",
    "MODULES_BY_VARIABLE",
    "ODD_DIFFERENCES",
    "REAL_DIFFERENCES",
    "RehearsalPlan",
    "UnmetRequirement",
    "distribution_of",
    "find_tested_version",
    "get_import_table",
    "list_removed_standard",
    "list_unmet",
    "parse_required",
    "plan_rehearsal",
    "uses_legacy_keras",
]

GENERATED_SOURCE = "core/framework/versions_pb2.py"
"""A generated protobuf source of TensorFlow that needs only protobuf; in every release since 1.0."""
KERAS_GENERATED_SOURCE = "keras/protobuf/versions_pb2.py"
"""The same of a separate Keras 2, which the import loads; Keras 3 has none."""
BREAKING_DIFFERENCES = frozenset({"missing", "empty", "syntax", "unreadable"})
"""Differences with which a source file cannot be imported."""
REAL_DIFFERENCES = BREAKING_DIFFERENCES | {"cut", "altered"}
ODD_DIFFERENCES = REAL_DIFFERENCES | {"changed"}
"""Differences for which a package is rehearsed; a changed file may be a deliberate, working edit."""


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """The modules that a child process imports, and the reasons."""

    modules: tuple[tuple[str, tuple[str, ...]], ...]
    """(module, attributes that are taken from it), in TensorFlow's order."""
    sources: tuple[str, ...]
    """Paths of generated protobuf sources to execute."""
    oddities: tuple[Oddity, ...]
    """The differences from an environment that works."""
    keras: tuple[str, ...] = ()
    """Modules of Keras that TensorFlow loads, to be imported with a stand-in for TensorFlow."""


@dataclass(frozen=True, slots=True)
class UnmetRequirement:
    """A requirement that is not met."""

    by: str
    """The distribution that has the requirement: "tensorflow"."""
    requirement: str
    """As written: "ml-dtypes<1.0.0,>=0.5.1"."""
    package: str
    have: str | None
    """The installed version; None if it is not installed."""


def get_import_table(tensorflow: TensorFlowFacts, compat: Compat) -> Imported | None:
    """Return the table of modules that this TensorFlow imports; None if there is none."""
    return compat.find_imported(tensorflow.version)


def plan_rehearsal(
    python: PythonFacts, tensorflow: TensorFlowFacts, variables: Mapping[str, str], compat: Compat
) -> RehearsalPlan | None:
    """Return the plan for a rehearsal; None if everything is known to work or this release is unknown."""
    table = get_import_table(tensorflow, compat)
    if table is None or not python.distributions:
        return None
    extra_packages = {"tf-keras"} if uses_legacy_keras(variables, tensorflow.version, compat) else set[str]()
    oddities = (
        *_list_oddities(python, tensorflow, table, compat, extra_packages),
        *_find_variable_oddities(variables),
    )
    if not oddities:
        return None
    deviating = {oddity.module for oddity in oddities}
    modules = _map_needed(python, table)
    shadowed = sorted(deviating & table.shadowable)
    if shadowed:
        # Any module may need something that only Python's own module has.
        modules = {
            **table.standard,
            **modules,
            **{module_name: () for module_name in shadowed if module_name not in table.standard},
        }
    modules |= {
        name: chains for name, chains in table.standard.items() if name.partition(".")[0] in deviating
    }
    has_carried = not deviating.isdisjoint(python.carried)
    to_import = (
        {distribution.name for distribution in python.distributions}
        if shadowed or has_carried
        else _list_dependents(python, deviating)
    )
    for name in (
        *table.tried,
        *(module for family_modules in table.family.values() for module in family_modules),
    ):
        if distribution_of(name) in to_import and python.distribution(distribution_of(name)) is not None:
            modules.setdefault(name, ())
    keras = _list_keras_modules(python, tensorflow, table, variables, compat)
    return RehearsalPlan(
        tuple(modules.items()), tuple(_list_generated(python, tensorflow, table)), oddities, keras
    )


LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
"""The variable that selects tf_keras."""


def uses_legacy_keras(variables: Mapping[str, str], version: str | None, compat: Compat) -> bool:
    """Return whether this release is configured to use tf_keras."""
    is_enabled = variables.get(LEGACY_KERAS, "").lower() in ("1", "true")
    return is_enabled and version is not None and compat.has(version, "legacy-keras-variable")


def _list_keras_modules(
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    table: Imported,
    variables: Mapping[str, str],
    compat: Compat,
) -> tuple[str, ...]:
    """Return the modules of Keras that TensorFlow loads, in order, if their import may fail; else ().

    Rehearsing Keras is slow, and packages newer than the tested ones are common. Reasons to do it are damaged
    or shadowed packages, versions that do not meet a requirement, and versions older than all tested ones.
    """
    version = tensorflow.version or ""
    if "keras" not in table.family or not versions.is_version(version):
        return ()
    legacy = uses_legacy_keras(variables, version, compat)
    installed = _map_installed(python)
    keras = "tf-keras" if legacy else "keras"
    family_packages = {distribution_of(module) for module in table.family["keras"]}
    keras_packages = _list_closure(installed, {keras, *family_packages}) - {
        distribution_of(name) for name in table.needs
    }
    known_sets = _list_known_sets(python, tensorflow, table, compat)
    suspects = {missing.package for missing in list_unmet(python)}
    suspects |= {distribution_of(shadow.name) for shadow in python.shadows}
    if keras not in installed or not any(
        name in suspects
        or any(difference.what in REAL_DIFFERENCES for difference in installed[name].differs)
        or _is_older(
            installed[name].version, [known_set[name] for known_set in known_sets if name in known_set]
        )
        for name in keras_packages
    ):
        return ()
    if not compat.has(version, "keras-optimizers"):
        return ("keras.api._v2.keras",)
    if legacy:
        return ("tf_keras.src.optimizers", "tf_keras.api._v2.keras")
    optimizers = ("keras.optimizers",) if compat.has(version, "keras-optimizers-twice") else ()
    full_keras = "keras._tf_keras.keras" if compat.has(version, "keras-3") else "keras.api._v2.keras"
    return (*optimizers, "keras.src.optimizers", full_keras)


def _is_older(version: str, known_versions: Sequence[str]) -> bool:
    """Return whether a version is older than all of these; False if there are none, True if it is not a version."""
    if not versions.is_version(version):
        return True
    return bool(known_versions) and not any(
        versions.is_at_least(version, known_version) for known_version in known_versions
    )


def _list_generated(python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported) -> Iterator[str]:
    """Yield generated sources that need only protobuf; each represents all of its package."""
    yield f"{tensorflow.core_dir}/{GENERATED_SOURCE}"
    keras = python.distribution("keras")
    if "keras" in table.family and keras is not None:
        yield f"{keras.location}/{KERAS_GENERATED_SOURCE}"


COMPILED_MODULES = ("zlib", "binascii", "ssl", "ctypes", "bz2", "lzma", "hashlib", "uuid")
"""Modules of the standard library that load system libraries."""


def _map_needed(python: PythonFacts, table: Imported) -> dict[str, tuple[str, ...]]:
    """Return the modules of other packages that the import needs, each with the attributes taken from it.

    Packages depend on each other in ways that their metadata does not state.
    """
    needed: dict[str, tuple[str, ...]] = {}
    if python.carried:  # replaced system libraries can affect any module
        needed = dict.fromkeys((module for module in COMPILED_MODULES if module in table.shadowable), ())
    needed |= {name: table.standard[name] for name in list_removed_standard(python, table)}
    return needed | {name: chains if table.exact else () for name, chains in table.needs.items()}


def list_removed_standard(python: PythonFacts, table: Imported) -> tuple[str, ...]:
    """Return the distutils modules that the import needs, if this Python no longer has distutils.

    setuptools provides them instead.
    """
    if not versions.is_at_least(python.version, "3.12"):
        return ()
    return tuple(name for name in table.standard if name.partition(".")[0] == "distutils")


def distribution_of(module: str) -> str:
    """Return the distribution that contains a module: "google.protobuf.message" gives "protobuf"."""
    for name, distribution in MODULE_DISTRIBUTIONS.items():
        if module == name or module.startswith(f"{name}."):
            return distribution
    return normalize_name(module.partition(".")[0])


def _list_oddities(
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    table: Imported,
    compat: Compat,
    extra_packages: set[str],
) -> Iterator[Oddity]:
    """Yield every difference from an environment that works; some repeatedly.

    extra_packages: packages that are imported but in no table.
    """
    installed = _map_installed(python)
    needed = {distribution_of(name) for name in (*table.needs, *list_removed_standard(python, table))}
    optional = {
        distribution_of(name)
        for name in (*table.tried, *(member for members in table.family.values() for member in members))
    }
    family = {normalize_name(name) for name in (*table.family, *table.must)}
    relevant = _list_closure(installed, {*needed, *family, *extra_packages, *(optional & installed.keys())})
    tested_versions = _find_nearest_set(python, tensorflow, table, relevant, compat)
    for name in sorted(relevant | needed):
        distribution = installed.get(name)
        if distribution is None:
            if name in needed:
                yield Oddity(name, f"{name} is not registered here")
            continue
        if tested_versions.get(name) != distribution.version:
            yield Oddity(name, f"{name} {distribution.version} is not a version whose import was tested")
        elif any(difference.what in ODD_DIFFERENCES for difference in distribution.differs):
            yield Oddity(name, f"files of {name} {distribution.version} are not as it was installed with")
    for missing in list_unmet(python):
        if missing.package in {*relevant, *needed} or missing.by in relevant:
            yield Oddity(
                missing.package,
                f"{missing.by} asks for {missing.requirement}, and {missing.have or 'nothing'} is there",
            )
    for path in python.carried:
        yield Oddity(path, f"{path} is found before the system's own library of that name")
    top_modules = {name.partition(".")[0] for name in (*table.needs, *table.tried)}
    top_modules |= {
        member.partition(".")[0] for modules in table.family.values() for member in modules
    } | table.shadowable
    top_modules |= {name.partition(".")[0] for name in table.standard}
    for shadow in python.shadows:
        if shadow.name in top_modules:
            module = shadow.name if shadow.name in table.shadowable else distribution_of(shadow.name)
            module = "protobuf" if shadow.name == "google" else module
            yield Oddity(module, f"{shadow.taken} is found before the {shadow.name} in {shadow.hidden}")


def _find_variable_oddities(variables: Mapping[str, str]) -> Iterator[Oddity]:
    """Yield the variables that change how Python or a package behaves during the import."""
    for name, module in MODULES_BY_VARIABLE.items():
        if variables.get(name):
            yield Oddity(module, f"{name} is set to {variables[name]!r}")


MODULES_BY_VARIABLE = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "protobuf", "PYTHONWARNINGS": "warnings"}
"""Modules by the variable that they read."""


def _map_installed(python: PythonFacts) -> dict[str, Distribution]:
    """Return the distribution by normalised name; of several the first on the path."""
    return {distribution.name: distribution for distribution in reversed(python.distributions)}


def _list_closure(installed: Mapping[str, Distribution], start: set[str]) -> set[str]:
    """Return the installed distributions of `start` and everything that they require, without TensorFlow's."""
    closure: set[str] = set()
    pending = list(start)
    while pending:
        name = pending.pop()
        distribution = installed.get(name)
        if name in closure or distribution is None or name in TENSORFLOW_DISTRIBUTIONS:
            continue
        closure.add(name)
        pending += [
            required for line in distribution.requires if (required := parse_required(line)) is not None
        ]
    return closure


@lru_cache(maxsize=4096)
def parse_required(line: str, *, extras: bool = False) -> str | None:
    """Return the package name in a requirement; None if it is for an extra and `extras` is false."""
    if not extras and "extra" in line.partition(";")[2]:
        return None
    match = re.match(r"[A-Za-z0-9._-]{1,100}", line.strip())
    return normalize_name(match[0]) if match is not None else None


def _list_dependents(python: PythonFacts, deviating: set[str]) -> set[str]:
    """Return `deviating` and every distribution that requires one of them, directly or indirectly."""
    dependents = set(deviating)
    while True:
        additional = {
            distribution.name
            for distribution in python.distributions
            if distribution.name not in dependents
            and any(parse_required(line) in dependents for line in distribution.requires)
        }
        if not additional:
            return dependents
        dependents |= additional


def _list_known_sets(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported, compat: Compat
) -> list[Mapping[str, str]]:
    """Return the versions in each environment in which this import worked."""
    sets = list(table.sets) if table.exact else []
    version = tensorflow.version or ""
    locked = compat.locks.get_lock(choose_locked_package(version), version, python.version)
    return [*sets, locked.versions] if locked is not None else sets


def _find_nearest_set(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported, relevant: set[str], compat: Compat
) -> Mapping[str, str]:
    """Return the versions in the tested environment that is most similar to this one."""
    installed = _map_installed(python)
    return max(
        _list_known_sets(python, tensorflow, table, compat),
        key=lambda known_set: sum(
            known_set.get(name) == installed[name].version for name in relevant if name in installed
        ),
        default={},
    )


def find_tested_version(
    python: PythonFacts, tensorflow: TensorFlowFacts, package: str, compat: Compat
) -> str | None:
    """Return a package's version in the most similar tested environment; None if it is unknown."""
    table = get_import_table(tensorflow, compat)
    if table is None:
        return None
    return _find_nearest_set(python, tensorflow, table, set(_map_installed(python)), compat).get(package)


# ---------------------------------------------------------------- requirements


def list_unmet(python: PythonFacts) -> tuple[UnmetRequirement, ...]:
    """Return the requirements of TensorFlow and of everything that it requires that are not met."""
    installed = _map_installed(python)
    environment = _make_marker_environment(python)
    by_requirer: dict[tuple[str, str], UnmetRequirement] = {}
    tensorflow_names = {name for name in installed if name in TENSORFLOW_DISTRIBUTIONS}
    pending, seen = list(tensorflow_names), set[str]()
    while pending:
        name = pending.pop()
        distribution = installed.get(name)
        if name in seen or distribution is None:
            continue
        seen.add(name)
        for line in distribution.requires:
            requirement = parse_requirement_line(line, environment)
            if requirement is None:
                continue
            candidate = installed.get(requirement.package)
            pending.append(requirement.package)
            if candidate is None:
                by_requirer[name, requirement.package] = UnmetRequirement(
                    name, format_requirement(requirement), requirement.package, None
                )
            elif versions.is_version(candidate.version) and not is_met(requirement, candidate.version):
                by_requirer[name, requirement.package] = UnmetRequirement(
                    name, format_requirement(requirement), requirement.package, candidate.version
                )
    return tuple(by_requirer[key] for key in sorted(by_requirer))


def _make_marker_environment(python: PythonFacts) -> dict[str, str]:
    """Return the marker variables of PEP 508 for the examined Python, with an empty `extra`."""
    windows, mac = python.platform.startswith("win"), python.platform.startswith("macosx")
    return {
        "python_version": versions.major_minor(python.version),
        "python_full_version": python.version,
        "implementation_name": python.implementation.lower(),
        "implementation_version": python.version,
        "platform_python_implementation": python.implementation,
        "platform_machine": python.machine,
        "platform_system": "Windows" if windows else "Darwin" if mac else "Linux",
        "sys_platform": "win32" if windows else "darwin" if mac else "linux",
        "os_name": "nt" if windows else "posix",
        "platform_release": "",
        "platform_version": "",
        "extra": "",
    }
