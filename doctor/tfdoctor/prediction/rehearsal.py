"""Decide from metadata and files whether TensorFlow's import works, and plan a rehearsal of what they leave open.

A package gives no reason for a rehearsal if

* its version meets all requirements, and is not older than all tested versions (compat/imports, compat/locks) nor
  between one that works and one that fails;
* its files match their RECORD, and its extension modules are compiled for the installed NumPy;
* no other module with the same name is found first.

In particular, a version that is newer than the tested ones gives none. Otherwise a child process imports the package
and those that require it.
"""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor.compat.locks import choose_locked_package
from tfdoctor.core import versions
from tfdoctor.core.facts import MODULE_DISTRIBUTIONS, TENSORFLOW_DISTRIBUTIONS
from tfdoctor.core.facts.imports import RehearsalReason
from tfdoctor.core.records import dataclass
from tfdoctor.prediction.requirements import (
    format_requirement,
    is_requirement_met,
    parse_requirement_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.compat.imported import ImportNeeds
    from tfdoctor.core.facts import Distribution, PythonFacts, TensorFlowFacts
    from tfdoctor.prediction.requirements import RequirementLine

__all__ = [
    "DAMAGE_DIFFERENCES",
    "KERAS_ERROR_PREFIX",
    "LEGACY_KERAS_VARIABLE",
    "MODULE_BY_VARIABLE",
    "SUSPICIOUS_DIFFERENCES",
    "RehearsalPlan",
    "UnmetRequirement",
    "find_module_distribution",
    "find_required_specifiers",
    "find_tested_version",
    "get_import_table",
    "is_known_to_work",
    "list_missing_requirements",
    "list_removed_distutils",
    "list_unmet_requirements",
    "parse_required_name",
    "plan_rehearsal",
    "predict_companion",
    "predict_keras",
    "reads_pth_files",
    "uses_legacy_keras",
]

GENERATED_SOURCE = "core/framework/versions_pb2.py"
"""A generated protobuf source that needs only protobuf. Every TensorFlow release since 1.0 has it."""
KERAS_GENERATED_SOURCE = "keras/protobuf/versions_pb2.py"
"""The same source in a separate Keras 2, which TensorFlow's import loads. Keras 3 has none."""
BREAKING_DIFFERENCES = frozenset({"missing", "empty", "syntax", "unreadable"})
"""Differences from RECORD with which a source file cannot be imported."""
DAMAGE_DIFFERENCES = BREAKING_DIFFERENCES | {"cut", "altered"}
"""Differences from RECORD that cannot be deliberate edits."""
SUSPICIOUS_DIFFERENCES = DAMAGE_DIFFERENCES | {"changed"}
"""Differences from RECORD for which a package is rehearsed. A changed file may be a deliberate edit that works."""
KERAS_ERROR_PREFIX = "tf.keras: "
"""The beginning of an error with which only tf.keras fails, not the import."""
NUMPY_1_DIFFERENCE = "numpy-1"
"""The difference of an extension module that was compiled for NumPy 1, while NumPy 2 is installed."""
OTHER_PYTHON_DIFFERENCE = "other-python"
"""The difference of an extension module that was compiled for another Python."""
COMPILED_MODULES = ("zlib", "binascii", "ssl", "ctypes", "bz2", "lzma", "hashlib", "uuid")
"""Standard library modules that load system libraries."""
LEGACY_KERAS_VARIABLE = "TF_USE_LEGACY_KERAS"
"""The environment variable that selects tf_keras."""
MODULE_BY_VARIABLE = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "protobuf", "PYTHONWARNINGS": "warnings"}
"""The module or package that each of these environment variables affects."""


@dataclass(frozen=True, slots=True)
class RehearsalPlan:
    """The modules that a child process has to import, and the reasons."""

    modules: tuple[tuple[str, tuple[str, ...]], ...]
    """Modules in TensorFlow's order, each with the attributes that TensorFlow uses."""
    generated_sources: tuple[str, ...]
    """Paths of the generated protobuf sources to execute."""
    reasons: tuple[RehearsalReason, ...]
    """The differences from an environment in which the import works."""
    keras_modules: tuple[str, ...] = ()
    """Keras modules that TensorFlow loads. They are imported with a stand-in for TensorFlow."""


@dataclass(frozen=True, slots=True)
class UnmetRequirement:
    """A requirement that is not met."""

    required_by: str
    """The distribution that has the requirement, such as "tensorflow"."""
    requirement: str
    """The requirement as text, such as "ml-dtypes<1.0.0,>=0.5.1"."""
    package: str
    installed_version: str | None
    """The installed version; None if the package is not installed."""


def get_import_table(tensorflow: TensorFlowFacts, compat: Compat) -> ImportNeeds | None:
    """Return the table of modules that this TensorFlow imports; None if its release has no table."""
    return compat.find_import_needs(tensorflow.version)


def plan_rehearsal(
    python: PythonFacts, tensorflow: TensorFlowFacts, variables: Mapping[str, str], compat: Compat
) -> RehearsalPlan | None:
    """Return the plan of a rehearsal; None if the import is known to work or the release is unknown."""
    table = get_import_table(tensorflow, compat)
    if table is None or not python.distributions:
        return None
    extra_packages = {"tf-keras"} if uses_legacy_keras(variables, tensorflow.version, compat) else set[str]()
    oddities = (
        *_iter_oddities(python, tensorflow, table, variables, compat, extra_packages),
        *_iter_variable_oddities(variables),
    )
    if not oddities:
        return None
    deviating_names = {oddity.module for oddity in oddities}
    shadowed_names = sorted((deviating_names & table.shadowable_modules) - {*python.lacks})
    modules = {
        name: chains
        for name, chains in table.attributes_by_standard_module.items()
        # Any module may need a name that the shadowing module lacks.
        if name.partition(".")[0] in deviating_names
    } | {name: () for name in shadowed_names if name not in table.attributes_by_standard_module}
    if not deviating_names.isdisjoint(python.carried):  # replaced system libraries can affect any module
        modules |= dict.fromkeys(
            (module for module in COMPILED_MODULES if module in table.shadowable_modules), ()
        )
    needed = {
        name: table.attributes_by_standard_module[name] for name in list_removed_distutils(python, table)
    }
    needed |= {
        name: chains if table.is_measured else () for name, chains in table.attributes_by_module.items()
    }
    optional = (
        *table.optional_modules,
        *(module for family_modules in table.keras_modules_by_package.values() for module in family_modules),
    )
    needed |= {
        name: ()
        for name in optional
        if name not in needed and python.find_distribution(find_module_distribution(name)) is not None
    }
    affects_all = bool(shadowed_names) or not deviating_names.isdisjoint(python.carried)
    affected_packages = _list_dependents(python, deviating_names)
    candidates = {
        name: chains
        for name, chains in needed.items()
        if affects_all or find_module_distribution(name) in affected_packages
    }
    # First what deviates, then what needs it; the optional packages, of which some are slow, are last.
    modules |= {
        name: candidates[name]
        for name in sorted(candidates, key=lambda name: find_module_distribution(name) not in deviating_names)
    }
    keras = _list_keras_modules(python, tensorflow, table, variables, compat)
    return RehearsalPlan(
        modules=tuple(modules.items()),
        generated_sources=tuple(
            _iter_generated_sources(python, tensorflow, table)
            if affected_packages & {"protobuf", "keras"}
            else ()
        ),
        reasons=oddities,
        keras_modules=keras,
    )


def is_known_to_work(
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    table: ImportNeeds,
    package: str,
    variables: Mapping[str, str],
    compat: Compat,
) -> bool:
    """Return whether versions and files show that a package works, wherever Python finds it, with all that requires it."""
    if any(
        companion.package == package
        for companion in compat.find_incompatible_packages(
            tensorflow.version, python.list_installed_versions(), variables, absent=python.absent
        )
    ):
        return False
    dependents = _list_dependents(python, {package})
    oddities = _iter_oddities(
        dataclasses.replace(python, shadows=()), tensorflow, table, variables, compat, set()
    )
    return not any(oddity.module in dependents for oddity in oddities)


def uses_legacy_keras(variables: Mapping[str, str], version: str | None, compat: Compat) -> bool:
    """Return whether the variables configure this release to use tf_keras."""
    is_enabled = variables.get(LEGACY_KERAS_VARIABLE, "").lower() in ("1", "true")
    return is_enabled and version is not None and compat.has_trait(version, "legacy-keras-variable")


def _list_keras_modules(
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    table: ImportNeeds,
    variables: Mapping[str, str],
    compat: Compat,
) -> tuple[str, ...]:
    """Return the Keras modules that TensorFlow loads, in order; () if their import is expected to work.

    A rehearsal of Keras is slow. Keras is therefore rehearsed only if one of its packages is damaged or shadowed. If
    this release was not tried with other versions of Keras, or not with such a one, a package that does not meet a
    requirement or is older than all tested versions is a reason, too.
    """
    version = tensorflow.version or ""
    if "keras" not in table.keras_modules_by_package or not versions.is_version(version):
        return ()
    is_legacy = uses_legacy_keras(variables, version, compat)
    installed = _map_installed_distributions(python)
    keras_package = "tf-keras" if is_legacy else "keras"
    family_packages = {find_module_distribution(module) for module in table.keras_modules_by_package["keras"]}
    keras_packages = _list_with_requirements(installed, {keras_package, *family_packages}) - {
        find_module_distribution(name) for name in table.attributes_by_module
    }
    tested_sets = _list_tested_sets(python, tensorflow, table, compat)
    is_known = predict_keras(python, tensorflow, table, compat) is not None and not is_legacy
    suspects = set[str]() if is_known else {unmet.package for unmet in list_unmet_requirements(python)}
    suspects |= {find_module_distribution(shadow.name) for shadow in python.shadows}
    if keras_package not in installed or not any(
        name in suspects
        or any(difference.what in DAMAGE_DIFFERENCES for difference in installed[name].differs)
        or (
            not is_known
            and _is_older_than_all(
                installed[name].version,
                [tested_set[name] for tested_set in tested_sets if name in tested_set],
            )
        )
        for name in keras_packages
    ):
        return ()
    if not compat.has_trait(version, "keras-optimizers"):
        return ("keras.api._v2.keras",)
    if is_legacy:
        return ("tf_keras.src.optimizers", "tf_keras.api._v2.keras")
    optimizers = ("keras.optimizers",) if compat.has_trait(version, "keras-optimizers-twice") else ()
    full_keras = "keras._tf_keras.keras" if compat.has_trait(version, "keras-3") else "keras.api._v2.keras"
    return (*optimizers, "keras.src.optimizers", full_keras)


def _is_older_than_all(version: str, tested_versions: Sequence[str]) -> bool:
    """Return whether a version is older than all tested versions.

    An invalid version counts as older. If there are no tested versions, the result is False.
    """
    if not versions.is_version(version):
        return True
    return bool(tested_versions) and not any(
        versions.is_at_least(version, tested_version) for tested_version in tested_versions
    )


def _iter_generated_sources(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: ImportNeeds
) -> Iterator[str]:
    """Yield the paths of generated sources that need only protobuf. One source per package is enough."""
    yield f"{tensorflow.core_dir}/{GENERATED_SOURCE}"
    keras = python.find_distribution("keras")
    if "keras" in table.keras_modules_by_package and keras is not None:
        yield f"{keras.location}/{KERAS_GENERATED_SOURCE}"


def list_removed_distutils(python: PythonFacts, table: ImportNeeds) -> tuple[str, ...]:
    """Return the distutils modules that the import needs, if this Python (3.12 or newer) has no distutils.

    In that case, setuptools provides them.
    """
    if not versions.is_at_least(python.version, "3.12"):
        return ()
    return tuple(
        name for name in table.attributes_by_standard_module if name.partition(".")[0] == "distutils"
    )


def reads_pth_files(python: PythonFacts, folder: str) -> bool:
    """Return whether Python reads the .pth files in a folder: it does only in its own and the user's site folders.

    Debian's folders end with dist-packages. A folder of PYTHONPATH is not read, whatever its name is.
    """
    return folder in (*python.site_packages, python.user_site) or folder.endswith("/dist-packages")


def find_module_distribution(module: str) -> str:
    """Return the distribution that contains a module, such as "protobuf" for "google.protobuf.message" and for "google"."""
    for name, distribution in MODULE_DISTRIBUTIONS.items():
        if module == name or module.startswith(f"{name}.") or name.startswith(f"{module}."):
            return distribution
    return versions.normalize_project_name(module.partition(".")[0])


def list_versions_laid_over(python: PythonFacts) -> dict[str, tuple[str, ...]]:
    """Return the versions of each distribution that is registered several times in one folder, by name."""
    versions_by_place: dict[tuple[str, str], list[str]] = {}
    for distribution in python.distributions:
        versions_by_place.setdefault((distribution.name, distribution.location), []).append(
            distribution.version
        )
    return {
        name: tuple(dict.fromkeys(installed_versions))
        for (name, _), installed_versions in versions_by_place.items()
        if len(set(installed_versions)) > 1 and name not in TENSORFLOW_DISTRIBUTIONS
    }


def _iter_oddities(
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    table: ImportNeeds,
    variables: Mapping[str, str],
    compat: Compat,
    extra_packages: set[str],
) -> Iterator[RehearsalReason]:
    """Yield the reasons to rehearse the import, possibly with duplicates.

    `extra_packages` are packages that the import needs although they are not in the table.
    """
    installed = _map_installed_distributions(python)
    needed = {
        find_module_distribution(name)
        for name in (*table.attributes_by_module, *list_removed_distutils(python, table))
    }
    optional = {
        find_module_distribution(name)
        for name in (
            *table.optional_modules,
            *(member for members in table.keras_modules_by_package.values() for member in members),
        )
    }
    family = {
        versions.normalize_project_name(name)
        for name in (*table.keras_modules_by_package, *table.required_packages)
    }
    relevant = _list_with_requirements(
        installed, {*needed, *family, *extra_packages, *(optional & installed.keys())}
    )
    tested_sets = _list_tested_sets(python, tensorflow, table, compat)
    unmet_requirements = [
        unmet
        for unmet in list_unmet_requirements(python)
        if unmet.package in {*relevant, *needed} or unmet.required_by in relevant
    ]
    unmet_packages = {unmet.package for unmet in unmet_requirements}
    known_failures = {
        companion.package
        for companion in compat.find_incompatible_packages(
            tensorflow.version, python.list_installed_versions(), variables, absent=python.absent
        )
        if companion.effect == "import"
    }
    for name in sorted((relevant | needed) - known_failures):
        distribution = installed.get(name)
        if distribution is None:
            if name in needed:
                yield RehearsalReason(name, f"{name} is not registered here")
            continue
        differences = {difference.what for difference in distribution.differs}
        error = predict_companion(distribution, table, tested_sets, is_allowed=name not in unmet_packages)
        # Other packages are quickly tried, and may fail only beside some versions of others.
        if error is None or (error and name != "keras"):
            yield RehearsalReason(
                name, f"{name} {distribution.version} is not a version whose import was tested"
            )
        elif differences & SUSPICIOUS_DIFFERENCES:
            yield RehearsalReason(
                name, f"files of {name} {distribution.version} are not as it was installed with"
            )
        if NUMPY_1_DIFFERENCE in differences:
            yield RehearsalReason(
                name, f"{name} {distribution.version} is compiled for NumPy 1, and NumPy 2 is installed"
            )
        if OTHER_PYTHON_DIFFERENCE in differences:
            yield RehearsalReason(name, f"{name} {distribution.version} is compiled for another Python")
    for name, installed_versions in list_versions_laid_over(python).items():
        if name in relevant:
            yield RehearsalReason(
                name, f"{name} {' and '.join(installed_versions)} are registered in one folder"
            )
    setuptools = installed.get("setuptools")
    if (
        setuptools is not None
        and list_removed_distutils(python, table)
        and not reads_pth_files(python, setuptools.location)
    ):
        yield RehearsalReason(
            "setuptools", f"Python does not read setuptools' .pth file in {setuptools.location}: no distutils"
        )
    for unmet in unmet_requirements:
        if unmet.installed_version is None or unmet.package not in {*relevant, *needed}:
            yield RehearsalReason(
                unmet.package,
                f"{unmet.required_by} asks for {unmet.requirement}, and {unmet.installed_version or 'nothing'} is there",
            )
    for name in python.lacks:
        if name in table.attributes_by_standard_module:
            yield RehearsalReason(name, f"this Python was built without the compiled part of {name}")
    for path in python.carried:
        yield RehearsalReason(path, f"{path} is found before the system's own library of that name")
    top_modules = {name.partition(".")[0] for name in (*table.attributes_by_module, *table.optional_modules)}
    top_modules |= {
        member.partition(".")[0] for modules in table.keras_modules_by_package.values() for member in modules
    } | table.shadowable_modules
    top_modules |= {name.partition(".")[0] for name in table.attributes_by_standard_module}
    for shadow in python.shadows:
        if shadow.name in top_modules:
            module = (
                shadow.name
                if shadow.name in table.shadowable_modules
                else find_module_distribution(shadow.name)
            )
            yield RehearsalReason(
                module, f"{shadow.taken} is found before the {shadow.name} in {shadow.hidden}"
            )


def _iter_variable_oddities(variables: Mapping[str, str]) -> Iterator[RehearsalReason]:
    """Yield the environment variables that change how Python or a package behaves during the import."""
    for name, module in MODULE_BY_VARIABLE.items():
        if variables.get(name):
            yield RehearsalReason(module, f"{name} is set to {variables[name]!r}")


def _map_installed_distributions(python: PythonFacts) -> dict[str, Distribution]:
    """Return the installed distributions by normalised name. The first of several on the path counts."""
    return {distribution.name: distribution for distribution in reversed(python.distributions)}


def _list_with_requirements(installed: Mapping[str, Distribution], start_names: set[str]) -> set[str]:
    """Return the installed distributions in `start_names` and all that they require, without TensorFlow."""
    required_names: set[str] = set()
    pending = list(start_names)
    while pending:
        name = pending.pop()
        distribution = installed.get(name)
        if name in required_names or distribution is None or name in TENSORFLOW_DISTRIBUTIONS:
            continue
        required_names.add(name)
        pending += [
            required for line in distribution.requires if (required := parse_required_name(line)) is not None
        ]
    return required_names


@lru_cache(maxsize=4096)
def parse_required_name(line: str, *, allows_extras: bool = False) -> str | None:
    """Return the package that a requirement line names; None if the line is invalid.

    A requirement of an extra counts as invalid unless `allows_extras` is true.
    """
    if not allows_extras and "extra" in line.partition(";")[2]:
        return None
    match = re.match(r"[A-Za-z0-9._-]{1,100}", line.strip())
    return versions.normalize_project_name(match[0]) if match is not None else None


def _list_dependents(python: PythonFacts, deviating_names: set[str]) -> set[str]:
    """Return `deviating_names` and all distributions that require one of these, directly or indirectly."""
    dependents = set(deviating_names)
    while True:
        additional = {
            distribution.name
            for distribution in python.distributions
            if distribution.name not in dependents
            # setuptools also imports what its extra "core" names.
            and any(
                parse_required_name(line, allows_extras=distribution.name == "setuptools") in dependents
                for line in distribution.requires
            )
        }
        if not additional:
            return dependents
        dependents |= additional


def _list_tested_sets(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: ImportNeeds, compat: Compat
) -> list[Mapping[str, str]]:
    """Return the package versions of each environment in which the import of this release worked."""
    tested_sets = list(table.working_sets) if table.is_measured else []
    version = tensorflow.version or ""
    lock = compat.locks.get_lock(choose_locked_package(version), version, python.version)
    return [*tested_sets, lock.versions] if lock is not None else tested_sets


def predict_companion(
    distribution: Distribution,
    table: ImportNeeds,
    tested_sets: Sequence[Mapping[str, str]],
    *,
    is_allowed: bool,
) -> str | None:
    """Return the error of the import with this version of a package; "" if it works, and None if it is unknown.

    The next lower and the next higher tested version decide if they agree. `is_allowed` says whether the version meets
    all requirements: then it works if it is newer than the tested ones or none were tested.
    """
    version = distribution.version
    if not versions.is_version(version):
        return None
    name = distribution.name
    errors = {tested_set[name]: "" for tested_set in tested_sets if name in tested_set}
    errors |= dict(table.runs.get(name, {}))
    errors |= {
        tested: f"{KERAS_ERROR_PREFIX}{error}" for tested, error in table.keras_runs.get(name, {}).items()
    }
    if version in errors:
        return errors[version]
    newest_first = sorted(filter(versions.is_version, errors), key=versions.parse, reverse=True)
    lower = next((tested for tested in newest_first if versions.compare(tested, version) <= 0), None)
    upper = next(
        (tested for tested in reversed(newest_first) if versions.compare(tested, version) >= 0), None
    )
    if lower is not None and upper is not None:
        is_same_outcome = _get_outcome(errors[lower]) == _get_outcome(errors[upper])
        return errors[lower] if is_same_outcome else None
    if upper is None and is_allowed:
        return "" if lower is None or not errors[lower] else None
    return None


def _get_outcome(error: str) -> str:
    """Return "works", "import" or "keras", for the error of a tested import."""
    return "works" if not error else "keras" if error.startswith(KERAS_ERROR_PREFIX) else "import"


def predict_keras(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: ImportNeeds, compat: Compat
) -> str | None:
    """Return the error of the import with the installed Keras; "" if it works, None if it is unknown or not installed.

    The error of tf.keras alone begins with KERAS_ERROR_PREFIX.
    """
    keras = python.find_distribution("keras")
    if keras is None or "keras" not in table.runs:
        return None
    is_allowed = all(unmet.package != "keras" for unmet in list_unmet_requirements(python))
    tested_sets = _list_tested_sets(python, tensorflow, table, compat)
    return predict_companion(keras, table, tested_sets, is_allowed=is_allowed)


def _find_nearest_set(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: ImportNeeds, relevant: set[str], compat: Compat
) -> Mapping[str, str]:
    """Return the package versions of the tested environment that is most similar to this one."""
    installed = _map_installed_distributions(python)
    return max(
        _list_tested_sets(python, tensorflow, table, compat),
        key=lambda tested_set: sum(
            tested_set.get(name) == installed[name].version for name in relevant if name in installed
        ),
        default={},
    )


def find_tested_version(
    python: PythonFacts, tensorflow: TensorFlowFacts, package: str, compat: Compat
) -> str | None:
    """Return the version of a package in the most similar tested environment.

    Return None if it is unknown, or if the installed packages require another version.
    """
    table = get_import_table(tensorflow, compat)
    if table is None:
        return None
    version = _find_nearest_set(
        python, tensorflow, table, set(_map_installed_distributions(python)), compat
    ).get(package)
    is_allowed = version is None or all(
        is_requirement_met(requirement, version)
        for _, requirement in _iter_requirements(python)
        if requirement.package == package
    )
    return version if is_allowed else None


# ---------------------------------------------------------------- requirements


def list_unmet_requirements(python: PythonFacts) -> tuple[UnmetRequirement, ...]:
    """Return the unmet requirements of TensorFlow and of everything that it requires."""
    installed = _map_installed_distributions(python)
    unmet_by_names: dict[tuple[str, str], UnmetRequirement] = {}
    for name, requirement in _iter_requirements(python):
        distribution = installed.get(requirement.package)
        version = None if distribution is None else distribution.version
        if version is None or (versions.is_version(version) and not is_requirement_met(requirement, version)):
            unmet_by_names[name, requirement.package] = UnmetRequirement(
                required_by=name,
                requirement=format_requirement(requirement),
                package=requirement.package,
                installed_version=version,
            )
    return tuple(unmet_by_names[key] for key in sorted(unmet_by_names))


def list_missing_requirements(python: PythonFacts) -> tuple[UnmetRequirement, ...]:
    """Return TensorFlow's own requirements whose packages are not installed, each package once."""
    missing = {
        unmet.package: unmet for unmet in list_unmet_requirements(python) if unmet.package in python.absent
    }
    return tuple(missing.values())


def find_required_specifiers(python: PythonFacts, package: str) -> str:
    """Return all version specifiers that TensorFlow and its requirements have for a package; "" for none."""
    requirements = (
        versions.parse_requirement_or_none(requirement.line)
        for _, requirement in _iter_requirements(python)
        if requirement.package == package
    )
    specifiers = {
        str(specifier)
        for requirement in requirements
        if requirement is not None
        for specifier in requirement.specifier
    }
    return ",".join(sorted(specifiers))


def _iter_requirements(python: PythonFacts) -> Iterator[tuple[str, RequirementLine]]:
    """Yield (distribution, requirement) for TensorFlow and everything that it requires, without extras."""
    installed = _map_installed_distributions(python)
    environment = _make_marker_environment(python)
    pending, visited = [name for name in installed if name in TENSORFLOW_DISTRIBUTIONS], set[str]()
    while pending:
        name = pending.pop()
        distribution = installed.get(name)
        if name in visited or distribution is None:
            continue
        visited.add(name)
        for line in distribution.requires:
            requirement = parse_requirement_line(line, environment)
            if requirement is not None:
                pending.append(requirement.package)
                yield name, requirement


def _make_marker_environment(python: PythonFacts) -> dict[str, str]:
    """Return the PEP 508 marker variables of the examined Python, with an empty `extra`."""
    is_windows, is_mac = python.platform.startswith("win"), python.platform.startswith("macosx")
    return {
        "python_version": versions.major_minor(python.version),
        "python_full_version": python.version,
        "implementation_name": python.implementation.lower(),
        "implementation_version": python.version,
        "platform_python_implementation": python.implementation,
        "platform_machine": python.machine,
        "platform_system": "Windows" if is_windows else "Darwin" if is_mac else "Linux",
        "sys_platform": "win32" if is_windows else "darwin" if is_mac else "linux",
        "os_name": "nt" if is_windows else "posix",
        "platform_release": "",
        "platform_version": "",
        "extra": "",
    }
