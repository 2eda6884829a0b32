"""Interpret a rehearsal of TensorFlow's import: find the failures and the packages that cause them."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import MODULE_DISTRIBUTIONS, NOEXEC_ERROR, TENSORFLOW_DISTRIBUTIONS, value_of
from tfdoctor.core.facts.imports import ImportResult
from tfdoctor.core.findings import Cause
from tfdoctor.core.records import dataclass
from tfdoctor.prediction.rehearsal import (
    DAMAGE_DIFFERENCES,
    KERAS_ERROR_PREFIX,
    KERAS_GENERATED_SOURCE,
    SUSPICIOUS_DIFFERENCES,
    find_module_distribution,
    get_import_table,
    is_known_to_work,
    list_unmet_requirements,
    list_versions_laid_over,
    parse_required_name,
    predict_keras,
    reads_pth_files,
)
from tfdoctor.prediction.shadowing import find_leading_folder, find_leading_package, get_sys_path_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Compat
    from tfdoctor.compat.imported import ImportNeeds
    from tfdoctor.core.facts import Distribution, Facts, PythonFacts, TensorFlowFacts
    from tfdoctor.core.facts.imports import FileDifference, RehearsalFacts, Shadow

__all__ = [
    "ImportFailure",
    "find_working_folder_copy",
    "get_failure_cause",
    "list_damaged_tensorflow_files",
    "list_import_failures",
    "list_imported_distributions",
    "list_untested_copies",
]

REMOVED_STANDARD_MODULES = frozenset({"asynchat", "asyncore", "distutils", "imp", "smtpd"})
"""Modules of the standard library that Python 3.12 no longer has."""
LOADER_ERROR_PHRASES = (
    "undefined symbol",
    "version `",
    "cannot open shared object",
    "file too short",
    "invalid ELF header",
)
"""Phrases in the messages with which the loader reports a problem of a library."""


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """A module that makes `import tensorflow` fail."""

    import_result: ImportResult
    """The result of importing the module."""
    package: str
    """The distribution that causes the failure."""
    is_missing: bool
    """Whether the distribution, or a module that it needs, is missing."""
    shadowing_file: str = ""
    """The file that was imported instead; "" if there is none."""
    overriding_library: str = ""
    """The library that LD_LIBRARY_PATH or LD_PRELOAD puts before the system's; "" if no library is involved."""
    damaged_files: tuple[FileDifference, ...] = ()
    """Files of the distribution that differ from its RECORD."""
    is_fatal: bool = True
    """False if `import tensorflow` works and only tf.keras fails."""
    standard_module: str = ""
    """The module of Python's own library that is missing; "" if none is."""
    installed_versions: tuple[str, ...] = ()
    """The versions of the distribution if several are installed over each other in one folder; else empty."""
    unread_folder: str = ""
    """The folder of setuptools if Python does not read its .pth file there, without which there is no distutils."""


def list_import_failures(facts: Facts, compat: Compat) -> tuple[ImportFailure, ...]:
    """Return the failures of `import tensorflow`, followed by those of tf.keras alone (not fatal)."""
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    rehearsal = value_of(facts.rehearsal)
    table = get_import_table(tensorflow, compat) if tensorflow is not None else None
    if python is None or tensorflow is None or table is None:
        return ()
    candidates = list(_iter_missing_packages(python, table))
    if rehearsal is None or not rehearsal.keras:
        candidates += _list_tested_keras_failures(python, tensorflow, table, compat)
    loader = value_of(facts.loader)
    is_noexec = loader is not None and any(NOEXEC_ERROR in failure.error for failure in loader.import_needs)
    # On a file system with noexec, no compiled module can be loaded. This is no package's fault.
    if rehearsal is not None and not is_noexec:
        is_keras_optional = tensorflow.version is not None and compat.has_trait(
            tensorflow.version, "keras-optimizers"
        )
        rehearsed_failures = (
            *_iter_rehearsal_failures(python, table, rehearsal),
            *_iter_keras_failures(python, rehearsal, allows_attribute_error=is_keras_optional),
        )
        candidates += (_mark_shadowed(facts, failure) for failure in rehearsed_failures)
    candidates += _iter_working_folder_failures(facts, python, table, rehearsal)
    # Report each package and each shadowing file only once, even if it affects several modules. The fatal failures
    # come first.
    shadowed_packages = {failure.package for failure in candidates if failure.shadowing_file}
    failure_by_origin: dict[str, ImportFailure] = {}
    for failure in sorted(candidates, key=lambda failure: not failure.is_fatal):
        # If a file shadows the package, only that file is reported.
        if failure.shadowing_file or failure.package not in shadowed_packages:
            failure_by_origin.setdefault(failure.shadowing_file or failure.package, failure)
    reported = list(failure_by_origin.values())
    if rehearsal is not None:
        # A suspect package can make others fail, so report only the suspects if one of their failures is fatal.
        suspects = _list_deviating_names(rehearsal) | _list_unmet_packages(python)
        suspect_failures = [
            failure
            for failure in reported
            if failure.shadowing_file or failure.is_missing or failure.package in suspects
        ]
        if any(failure.is_fatal for failure in suspect_failures):
            reported = suspect_failures
        reported = _blame_packages_laid_over(python, table, reported)
    return tuple(reported)


def _blame_packages_laid_over(
    python: PythonFacts, table: ImportNeeds, failures: list[ImportFailure]
) -> list[ImportFailure]:
    """Return failures of the packages that are installed over each other in place of those that they cause."""
    first = next((failure for failure in failures if failure.is_fatal and not failure.shadowing_file), None)
    needed_names = {find_module_distribution(name) for name in table.attributes_by_module}
    versions_by_name = {
        name: installed for name, installed in list_versions_laid_over(python).items() if name in needed_names
    }
    if first is None or not versions_by_name:
        return failures
    return [
        dataclasses.replace(
            first, package=name, is_missing=False, damaged_files=(), installed_versions=installed
        )
        for name, installed in versions_by_name.items()
    ]


def _list_tested_keras_failures(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: ImportNeeds, compat: Compat
) -> list[ImportFailure]:
    """Return the failure with which this release was seen beside the installed Keras, if there is one."""
    error = predict_keras(python, tensorflow, table, compat)
    if not error:
        return []
    error_type, _, text = error.removeprefix(KERAS_ERROR_PREFIX).partition(": ")
    result = ImportResult("keras", text or error_type, error_type)
    is_fatal = not error.startswith(KERAS_ERROR_PREFIX)
    return [ImportFailure(result, "keras", is_missing=False, is_fatal=is_fatal)]


def _iter_working_folder_shadows(
    facts: Facts, python: PythonFacts, table: ImportNeeds, rehearsal: RehearsalFacts | None
) -> Iterator[Shadow]:
    """Yield the modules that TensorFlow's import takes from the working folder of a program.

    Rehearsals do not execute code of that folder. Those of earlier versions of tfdoctor did, so modules that a
    recorded rehearsal imported successfully are omitted.
    """
    modules = {*table.attributes_by_module, *table.attributes_by_standard_module, *table.shadowable_modules}
    top_names = {module.partition(".")[0] for module in modules}
    imported_files = (
        [module.top or module.file for module in rehearsal.modules if module.ok]
        if rehearsal is not None
        else []
    )
    for shadow in python.shadows:
        folder = get_sys_path_folder(shadow.taken)
        in_working_folder = folder not in python.sys_path and find_leading_folder(facts, folder) is None
        if (
            in_working_folder
            and shadow.name in top_names
            and not any(_is_at_or_below(file, shadow.taken) for file in imported_files)
        ):
            yield shadow


def _iter_working_folder_failures(
    facts: Facts, python: PythonFacts, table: ImportNeeds, rehearsal: RehearsalFacts | None
) -> Iterator[ImportFailure]:
    """Yield a failure for each module of the working folder that hides one of TensorFlow's modules."""
    for shadow in _iter_working_folder_shadows(facts, python, table, rehearsal):
        package = find_module_distribution(shadow.name)
        if find_working_folder_copy(python, package) is None:
            yield ImportFailure(
                ImportResult(shadow.name), package, is_missing=False, shadowing_file=shadow.taken
            )


def list_untested_copies(facts: Facts, compat: Compat) -> tuple[Distribution, ...]:
    """Return the packages in the working folder that TensorFlow would import and of which no table decides.

    No rehearsal tests them.
    """
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    table = get_import_table(tensorflow, compat) if tensorflow is not None else None
    if python is None or tensorflow is None or table is None:
        return ()
    shadows = _iter_working_folder_shadows(facts, python, table, value_of(facts.rehearsal))
    copies = (find_working_folder_copy(python, find_module_distribution(shadow.name)) for shadow in shadows)
    return tuple(
        copy
        for copy in copies
        if copy is not None
        and not is_known_to_work(python, tensorflow, table, copy.name, facts.environment.variables, compat)
    )


def list_imported_distributions(rehearsal: RehearsalFacts | None) -> set[str]:
    """Return the distributions of which every rehearsed module was imported successfully."""
    modules = rehearsal.modules if rehearsal is not None else ()
    failed_names = {find_module_distribution(module.name) for module in modules if not module.ok}
    return {find_module_distribution(module.name) for module in modules if module.ok} - failed_names


def _mark_shadowed(facts: Facts, failure: ImportFailure) -> ImportFailure:
    """Return the failure, marked as shadowed if its package is in a folder that is put first on the path.

    In that case it does not help to reinstall the package.
    """
    leading_package = (
        find_leading_package(facts, failure.package)
        if not failure.shadowing_file and not failure.is_missing
        else None
    )
    if leading_package is None:
        return failure
    if (
        failure.overriding_library
        and f"{leading_package.location}/"
        not in f"{failure.import_result.error} {failure.import_result.root}"
    ):
        return failure  # the library breaks a file in another folder, no matter which module imports it
    return dataclasses.replace(
        failure, shadowing_file=f"{leading_package.location}/{_get_top_module(leading_package.name)}"
    )


def _iter_missing_packages(python: PythonFacts, table: ImportNeeds) -> Iterator[ImportFailure]:
    """Yield a failure for each missing package that this release always requires."""
    if not any(distribution.requires for distribution in python.distributions):
        return  # the distributions of a planned environment have no metadata
    for name in table.required_packages:
        package = versions.normalize_project_name(name)
        if python.find_distribution(package) is None and name not in python.modules:
            error = f"No module named {name!r}"
            yield ImportFailure(
                ImportResult(name, error, "ModuleNotFoundError", import_error=True, not_found=name),
                package,
                is_missing=True,
            )


def _iter_rehearsal_failures(
    python: PythonFacts, table: ImportNeeds, rehearsal: RehearsalFacts
) -> Iterator[ImportFailure]:
    """Yield a failure for each rehearsed module that failed and that TensorFlow's import needs."""
    for module in (
        _add_missing_file_error(module) if module.name in table.optional_modules else module
        for module in rehearsal.modules
    ):
        if module.ok:
            continue
        is_needed = (
            module.name in table.attributes_by_module
            or module.name in table.attributes_by_standard_module
            or module.name.partition(".")[0] in table.shadowable_modules
        )
        if not is_needed and module.import_error:
            continue
        is_keras_only = not is_needed and module.name not in table.optional_modules and module.attribute_error
        yield _make_failure(python, rehearsal, module, is_fatal=not is_keras_only)
    source = rehearsal.source
    is_keras_source = source is not None and source.name.endswith(KERAS_GENERATED_SOURCE)
    # The rehearsal of Keras reports the same failure with a better error.
    if source is not None and not source.ok and not (is_keras_source and rehearsal.keras):
        source = dataclasses.replace(source, name="google.protobuf")
        # TensorFlow ignores an ImportError of Keras.
        yield _make_failure(python, rehearsal, source, is_fatal=not (is_keras_source and source.import_error))


def _iter_keras_failures(
    python: PythonFacts, rehearsal: RehearsalFacts, *, allows_attribute_error: bool
) -> Iterator[ImportFailure]:
    """Yield the failures of Keras.

    An ImportError in Keras does not stop TensorFlow's import. An AttributeError does not stop it, either, if
    `allows_attribute_error` is true. The stand-in for TensorFlow can cause errors of Keras itself. Only packages
    that differ from a working environment are therefore reported. Keras itself is reported only for failed imports
    and for names that the installed TensorFlow lacks.
    """
    for module in rehearsal.keras:
        is_last = module is rehearsal.keras[-1]
        is_full_keras = is_last and len(rehearsal.keras) > 1  # loaded by the first use of tf.keras only
        is_fatal = not (
            is_full_keras or module.import_error or (allows_attribute_error and module.attribute_error)
        )
        # Skip errors that the stand-in caused.
        if module.ok or "rehearse_keras" in " ".join((module.error, *module.frames)):
            continue
        failure = _make_failure(python, rehearsal, module, is_fatal=is_fatal)
        # It is unknown which package to install, so report the one that raised the error.
        if failure.is_missing and failure.package not in _list_deviating_names(rehearsal):
            package_at_fault = _find_responsible_package(python, rehearsal, module)
            failure = dataclasses.replace(failure, package=package_at_fault, is_missing=False)
        # Of the failures that are not fatal, only that of the last module shows that tf.keras fails.
        is_certain = _is_keras_error_certain(module) and (is_fatal or is_last)
        is_keras_itself = (
            failure.package in ("keras", "tf-keras") and not failure.damaged_files and not is_certain
        )
        if failure.shadowing_file or (
            failure.package in _list_deviating_names(rehearsal) and not is_keras_itself
        ):
            yield failure


def _is_keras_error_certain(module: ImportResult) -> bool:
    """Return whether the stand-in for TensorFlow cannot have caused an error of Keras."""
    # The stand-in raises an AttributeError about a module only if the installed TensorFlow lacks the name, too.
    return module.import_error or (module.attribute_error and module.error.startswith("module '"))


def _add_missing_file_error(module: ImportResult) -> ImportResult:
    """Add an error to a module if it is a folder without `__init__` and therefore has no file.

    Python can import such a folder, but TensorFlow needs the file of these modules to extend its path.
    """
    if (
        not module.ok
        or "." not in module.name
        or not module.file
        or module.file.endswith((".py", ".pyc", ".so", ".pyd"))
    ):
        return module
    error = f"{module.file} has no __init__.py: expected str, bytes or os.PathLike object, not NoneType"
    return dataclasses.replace(module, error=error, error_type="TypeError")


def _make_failure(
    python: PythonFacts, rehearsal: RehearsalFacts, module: ImportResult, *, is_fatal: bool
) -> ImportFailure:
    """Return the failure of a module, with the package that causes it and the reason."""
    is_missing = bool(module.not_found) and not module.not_found.startswith("tensorflow.")
    standard_module = _find_missing_standard_module(python, module)
    if standard_module:
        return ImportFailure(
            module, "python", is_missing=True, is_fatal=is_fatal, standard_module=standard_module
        )
    unread_folder = ""
    if is_missing:
        # Python reports only the first missing part, for example "google" for google.protobuf.
        missing_module = module.name if module.name.startswith(f"{module.not_found}.") else module.not_found
        package = find_module_distribution(missing_module)
        installed = python.find_distribution(package)
        # A module of an installed package is missing, so that package or the importing one causes the failure.
        if installed is not None and "." in module.not_found:
            is_missing = False
        elif installed is not None and module.not_found.partition(".")[0] == "distutils":
            is_missing = False  # setuptools provides distutils, and hides its own import errors
            if not reads_pth_files(python, installed.location):
                unread_folder = installed.location
            suspects = _list_unmet_packages(python) or _list_deviating_names(rehearsal)
            required_suspects = (
                name
                for line in installed.requires
                if (name := parse_required_name(line, allows_extras=True)) in suspects
            )
            if not unread_folder:
                package = package if package in suspects else next(required_suspects, package)
    else:
        package = _find_responsible_package(python, rehearsal, module)
    error_text = f"{module.error} {module.root}"
    library = (
        next(iter(python.carried), "") if any(phrase in error_text for phrase in LOADER_ERROR_PHRASES) else ""
    )
    shadow = next(
        (
            shadow.taken
            for shadow in python.shadows
            if shadow.taken in error_text
            # A replaced library breaks a file, no matter which module imports it.
            or (not library and any(_is_at_or_below(path, shadow.taken) for path in _list_files(module)))
            or module.not_found.partition(".")[0] == shadow.name
            or f"module '{shadow.name}' has no attribute" in module.error
        ),
        "",
    )
    distribution = python.find_distribution(package)
    local_copy = find_working_folder_copy(python, package)
    if not shadow and local_copy is not None:
        shadow = f"{local_copy.location}/{_get_top_module(package)}"
    damage = (
        tuple(difference for difference in distribution.differs if difference.what in SUSPICIOUS_DIFFERENCES)
        if distribution is not None
        else ()
    )
    return ImportFailure(
        import_result=module,
        package=package,
        is_missing=is_missing,
        shadowing_file=shadow,
        overriding_library=library,
        damaged_files=damage,
        is_fatal=is_fatal,
        unread_folder=unread_folder,
    )


def _find_missing_standard_module(python: PythonFacts, module: ImportResult) -> str:
    """Return the module of Python's own library that a ModuleNotFoundError names; "" if it names another one."""
    name = module.not_found
    is_replaced = name == "distutils" and python.find_distribution("setuptools") is not None
    is_removed = name in REMOVED_STANDARD_MODULES and versions.is_at_least(python.version, "3.12")
    is_standard = name in sys.stdlib_module_names and not is_replaced and not is_removed
    return name if is_standard and not any(shadow.name == name for shadow in python.shadows) else ""


def _is_at_or_below(path: str, parent: str) -> bool:
    """Return whether a path is `parent` or below it."""
    return path == parent or path.startswith(f"{parent}/")


def find_working_folder_copy(python: PythonFacts, package: str) -> Distribution | None:
    """Return a package if it is installed in a folder that is not on Python's own path; otherwise None."""
    distribution = python.find_distribution(package)
    return (
        distribution
        if distribution is not None and python.sys_path and distribution.location not in python.sys_path
        else None
    )


def _get_top_module(package: str) -> str:
    """Return the top-level module of a distribution, for example "google" for "protobuf"."""
    modules = (module for module, name in MODULE_DISTRIBUTIONS.items() if name == package)
    return next(modules, package.replace("-", "_")).partition(".")[0]


def get_failure_cause(failure: ImportFailure) -> Cause:
    """Return the cause of a failure."""
    if failure.standard_module:
        return Cause.PYTHON_UNUSABLE
    if failure.shadowing_file:
        return Cause.SHADOWED_MODULE
    if failure.overriding_library:
        is_too_old = "libstdc++" in failure.overriding_library and "version `" in failure.import_result.error
        return Cause.LIBSTDCXX_TOO_OLD if is_too_old else Cause.DAMAGED_FILE
    if any(difference.what == "unreadable" for difference in failure.damaged_files):
        return Cause.NOT_PERMITTED
    if failure.damaged_files:
        return Cause.DAMAGED_FILE
    if failure.package == "protobuf":
        return Cause.PROTOBUF_CONFLICT
    return Cause.PACKAGE_CONFLICT


def _list_files(module: ImportResult) -> tuple[str, ...]:
    """Return the files of a module, of its top-level package, and of its traceback, the innermost first."""
    return tuple(path for path in (module.file, module.top, *reversed(module.frames)) if path)


def _find_responsible_package(python: PythonFacts, rehearsal: RehearsalFacts, module: ImportResult) -> str:
    """Return the distribution that most likely causes an error, of those whose files are in the traceback.

    The first choice is a distribution whose version does not meet a requirement, then one that differs from a
    working environment, then the one whose file raised the error. NumPy is the last choice, because a module that
    was compiled for another NumPy raises its error in NumPy's files.
    """
    involved = []
    for path in reversed(module.frames):
        name = find_file_distribution(python, path)
        if name is not None and name not in involved:
            involved.append(name)
    involved.append(find_module_distribution(module.name))
    unmet, deviating = _list_unmet_packages(python), _list_deviating_names(rehearsal)
    for suspects in (unmet, deviating, {*involved} - {"numpy"}):
        package_at_fault = next((name for name in involved if name in suspects), None)
        if package_at_fault is not None:
            return _find_suspect_requirement(python, package_at_fault, unmet or deviating)
    return involved[-1]


def _list_unmet_packages(python: PythonFacts) -> set[str]:
    """Return the installed packages whose version does not meet a requirement."""
    return {unmet.package for unmet in list_unmet_requirements(python) if unmet.installed_version is not None}


def _list_deviating_names(rehearsal: RehearsalFacts) -> set[str]:
    """Return the modules and packages that differ from a working environment."""
    return {reason.module for reason in rehearsal.oddities}


def _find_suspect_requirement(python: PythonFacts, name: str, suspects: set[str]) -> str:
    """Return the package, or its first requirement in `suspects` if the package itself is no suspect."""
    distribution = python.find_distribution(name)
    if name in suspects or distribution is None:
        return name
    return (
        next(
            (
                requirement
                for line in distribution.requires
                if (requirement := parse_required_name(line)) in suspects
            ),
            None,
        )
        or name
    )


def find_file_distribution(python: PythonFacts, path: str) -> str | None:
    """Return the distribution that a file's path belongs to; None for TensorFlow, or if it is unknown."""
    for folder in python.sys_path:
        root = f"{folder.rstrip('/')}/"
        if len(root) > 1 and path.startswith(root):
            name = find_module_distribution(path[len(root) :].replace("/", ".").removesuffix(".py"))
            if name not in TENSORFLOW_DISTRIBUTIONS and python.find_distribution(name) is not None:
                return name
    return None


def list_damaged_tensorflow_files(
    python: PythonFacts, tensorflow: TensorFlowFacts, compat: Compat
) -> tuple[FileDifference, ...]:
    """Return the files of TensorFlow that differ from RECORD and that its import uses."""
    table = get_import_table(tensorflow, compat)
    distribution = python.find_distribution(tensorflow.distribution or "")
    if distribution is None:
        return ()
    unused_files = table.unloaded_files if table is not None else frozenset()
    installed_builds = [
        installed
        for installed in python.distributions
        if installed.name in TENSORFLOW_DISTRIBUTIONS and installed.location == distribution.location
    ]
    # If two builds are installed over each other, the files of one differ from the other's RECORD.
    kinds = DAMAGE_DIFFERENCES if len(installed_builds) < 2 else frozenset({"missing", "empty", "unreadable"})
    return tuple(
        difference
        for difference in distribution.differs
        if difference.what in kinds and difference.path not in unused_files
    )
