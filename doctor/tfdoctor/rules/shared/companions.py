"""Helpers for the rules about the packages that TensorFlow depends on (NumPy, protobuf, …)."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import Install, Uninstall
from tfdoctor.core.facts import value_of
from tfdoctor.core.facts.imports import FileDifference
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.text import join_words, split_path_list
from tfdoctor.core.versions import major_minor, parse_requirement_or_none, satisfies
from tfdoctor.prediction.failures import get_failure_cause
from tfdoctor.prediction.imports import find_broken_companions
from tfdoctor.prediction.rehearsal import (
    MODULE_BY_VARIABLE,
    find_required_specifiers,
    find_tested_version,
    list_missing_requirements,
    list_unmet_requirements,
)
from tfdoctor.prediction.shadowing import find_leading_package
from tfdoctor.remedies.pip import format_check_command, format_pip_install, quote
from tfdoctor.remedies.system import APT, get_package_manager
from tfdoctor.remedies.user_permissions import format_uninstall_command, get_sudo_prefix
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import variable_origins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.companions import Companion
    from tfdoctor.core.findings import Finding
    from tfdoctor.prediction.failures import ImportFailure

DAMAGE_PREDICATES = {
    "missing": "is not there",
    "empty": "is empty",
    "cut": "is truncated",
    "changed": "was changed",
    "altered": "has other content than it was installed with",
    "syntax": "is no longer Python source",
    "unreadable": "may not be read by this user",
}
"""The predicate of a sentence for each value of FileDifference.what."""
DEBIAN_HEADERS_BY_STANDARD_MODULE = {
    "_ctypes": "libffi-dev",
    "_bz2": "libbz2-dev",
    "_lzma": "liblzma-dev",
    "_sqlite3": "libsqlite3-dev",
    "_ssl": "libssl-dev",
    "_hashlib": "libssl-dev",
    "_uuid": "uuid-dev",
    "_curses": "libncurses-dev",
    "_tkinter": "tk-dev",
    "readline": "libreadline-dev",
    "zlib": "zlib1g-dev",
}
"""Debian and Ubuntu packages without which Python is built without the module."""
LIBRARY_BY_STANDARD_MODULE = {
    module: package.removesuffix("-dev") for module, package in DEBIAN_HEADERS_BY_STANDARD_MODULE.items()
}
_NUMPY_MISMATCH_TEXTS = (
    "numpy.dtype size changed",
    "numpy.ufunc size changed",
    "_ARRAY_API",
    "compiled using NumPy",
    "numpy.core",  # "numpy.core.umath failed to import"
)
"""Parts of the errors that an extension module raises if it was compiled for another NumPy."""
_DAMAGE_PLACEHOLDER = (FileDifference("", "missing"),)
"""Used for a failure without damaged files, so that it does not count as one whose files are all unreadable."""


def find_unshadowed_companions(context: RuleContext) -> tuple[Companion, ...]:
    """Return the compatibility table's entries for packages of this Python that are broken or missing."""
    return tuple(
        companion
        for companion in _find_all_broken_companions(context)
        if not _is_shadowed(context, companion)
    )


def find_shadowed_companions(context: RuleContext) -> tuple[Companion, ...]:
    """Return the broken companions that Python finds on its path before its own copies.

    For these, installing another version into this Python would have no effect.
    """
    return tuple(
        companion for companion in _find_all_broken_companions(context) if _is_shadowed(context, companion)
    )


def _is_shadowed(context: RuleContext, companion: Companion) -> bool:
    """Return whether the import finds another copy of the package before this Python's own."""
    return companion.effect == "import" and find_leading_package(context.facts, companion.package) is not None


def _find_all_broken_companions(context: RuleContext) -> tuple[Companion, ...]:
    """Return the compatibility table's entries for broken or missing packages, including shadowed copies."""
    if context.build is None or context.tensorflow is None:
        return ()
    return find_broken_companions(context.facts, context.tensorflow, context.build, context.compat)


def make_companion_result(context: RuleContext, rule: Rule, *packages: str) -> Result:
    """Return the result of a rule about these packages, which has at most one finding.

    A package that breaks the import is preferred. The rule must require TensorFlow and the distributions.
    """
    if context.build is None or context.build.version is None:
        return CouldNotCheck("the version of this TensorFlow is not known")
    if context.tensorflow is not None and context.tensorflow.conda_build:
        return NotApplicable("conda's TensorFlow is built with conda's own versions of its companions")
    companions = [
        companion
        for companion in find_unshadowed_companions(context)
        if companion.package in packages and companion.broken_versions
    ]
    companions.sort(key=lambda companion: companion.effect != "import")  # those that break the import first
    return [build_companion_finding(context, rule, companion) for companion in companions[:1]]


def build_companion_finding(context: RuleContext, rule: Rule, companion: Companion) -> Finding:
    """Return the finding about one entry of the compatibility table."""
    installed = context.python.find_distribution(companion.package) if context.python is not None else None
    version = installed.version if installed is not None else "nothing"
    build = context.build
    name = f"TensorFlow {build.version}" if build is not None else "TensorFlow"
    breaks_import = companion.effect == "import"
    missing_names = _list_missing_packages(context, {companion.package})
    requirements = (
        _find_working_requirement(context, companion),
        *(choose_missing_requirement(context, package) for package in missing_names),
    )
    return rule.make_finding(
        Cause(companion.cause),
        Severity.ERROR if breaks_import else Severity.WARNING,
        f"{companion.text} {'The import stops with' if breaks_import else 'It stops with'}: {companion.error}"
        + _format_missing_packages(missing_names),
        title=(
            f"{name} cannot be imported with {companion.package} {version}"
            if installed is not None and breaks_import
            else f"{name} does not work with {companion.package} {version}"
            if installed is not None
            else f"{name} cannot be imported without {companion.package}"
        ),
        evidence=[
            Evidence(
                installed.location if installed is not None else "installed distributions",
                f"{companion.package} {version}" if installed is not None else f"no {companion.package}",
            ),
            *(Evidence("tried with real wheels", f"fails: {run}") for run in companion.failing_runs[:2]),
            *(Evidence("tried with real wheels", f"works: {run}") for run in companion.working_runs[:2]),
        ],
        remedies=[
            Remedy(
                "Install versions that this TensorFlow works with."
                if missing_names
                else "Install a version that this TensorFlow works with.",
                (
                    format_pip_install(context.target, requirements),
                    format_check_command(context.target),
                ),
                steps=(Install(requirements),),
            )
        ],
    )


def _list_missing_packages(context: RuleContext, packages: set[str]) -> list[str]:
    """Return the packages that TensorFlow requires and that are not installed, without `packages`."""
    missing = list_missing_requirements(context.python) if context.python is not None else ()
    return [unmet.package for unmet in missing if unmet.package not in packages]


def _format_missing_packages(packages: Sequence[str]) -> str:
    """Return a sentence, after a space, about the other missing packages; "" if there are none."""
    if not packages:
        return ""
    verb = "is" if len(packages) == 1 else "are"
    return f" TensorFlow also requires {join_words(list(packages))}, which {verb} not installed."


def _find_working_requirement(context: RuleContext, companion: Companion) -> str:
    """Return a requirement for a version that works with this TensorFlow and that its metadata allows.

    If possible, the version satisfies all table entries about the package, so that it is replaced only once.
    """
    specifiers = _find_required_specifiers(context, companion.package)
    requirement = _find_table_requirement(context, companion)
    if requirement is None:
        return f"{companion.package}{specifiers}" if specifiers else companion.requirement
    parsed = parse_requirement_or_none(f"{companion.package}{specifiers}")
    limits = parse_requirement_or_none(requirement)
    if parsed is None or limits is None or not specifiers:
        return requirement
    return f"{companion.package}{limits.specifier & parsed.specifier}"


def _find_table_requirement(context: RuleContext, companion: Companion) -> str | None:
    """Return the table's requirement for the package; None if it is only missing and no version is known to fail."""
    if context.build is None or context.build.version is None:
        return companion.requirement
    version = context.build.version
    if companion.broken_versions.startswith(">="):
        return context.compat.list_companion_limits(version).get(companion.package, companion.requirement)
    if companion.broken_versions:
        return companion.requirement
    import_entries = (
        other
        for other in context.compat.companions
        if other.package == companion.package and other.broken_versions and other.effect == "import"
    )
    return next((other.requirement for other in import_entries if satisfies(version, other.tensorflow)), None)


# ---------------------------------------------------------------- import failures


def build_failing_packages_finding(
    context: RuleContext, rule: Rule, failures: Sequence[ImportFailure]
) -> Finding:
    """Return one finding about all packages that make the import fail.

    A rehearsal of the import, without TensorFlow itself, showed the `failures`. One remedy fixes all of them.
    """
    first_failure = failures[0]
    if first_failure.standard_module:
        return _build_standard_module_finding(context, rule, first_failure)
    if first_failure.unread_folder:
        return _build_distutils_finding(context, rule, first_failure)
    if first_failure.installed_versions:
        return _build_laid_over_finding(context, rule, failures)
    rehearsed_import = first_failure.import_result
    names = join_words([_format_package(context, failure) for failure in failures])
    if first_failure.overriding_library:
        title = f"import tensorflow fails: {first_failure.overriding_library} comes before the system's own library"
    elif all(failure.damaged_files for failure in failures):
        damaged_file = first_failure.damaged_files[0]
        title = f"{names} is damaged: {damaged_file.path} {DAMAGE_PREDICATES[damaged_file.what]}"
        if len(failures) > 1:
            title = f"{names} are damaged"
    elif first_failure.is_missing:
        title = f"import tensorflow fails: {names} {'is' if len(failures) == 1 else 'are'} not installed"
    else:
        title = f"import tensorflow fails with {names}"
    if not first_failure.is_fatal:
        title = title.replace("import tensorflow fails", "tf.keras fails")
    stop_clause = "import tensorflow stops" if first_failure.is_fatal else "tf.keras stops"
    explanation = f"{stop_clause} with {rehearsed_import.error_type}: {rehearsed_import.error.rstrip('.')}."
    numpy_mismatch = next(
        (
            failure
            for failure in failures
            if any(text in failure.import_result.error for text in _NUMPY_MISMATCH_TEXTS)
        ),
        None,
    )
    if numpy_mismatch is not None:
        numpy = context.python.find_distribution("numpy") if context.python is not None else None
        explanation += (
            f" {_format_package(context, numpy_mismatch)} is compiled for a different NumPy than"
            f" {numpy.version if numpy is not None else 'this one'}."
        )
    explanation += _format_missing_packages(
        _list_missing_packages(context, {failure.package for failure in failures})
    )
    return rule.make_finding(
        get_failure_cause(first_failure),
        Severity.ERROR if first_failure.is_fatal else Severity.WARNING,
        explanation,
        title=title,
        evidence=_list_evidence(context, failures),
        remedies=[_build_remedy(context, failures)],
    )


def _build_standard_module_finding(context: RuleContext, rule: Rule, failure: ImportFailure) -> Finding:
    """Return the finding that this Python lacks a module of its own library."""
    module, python = failure.standard_module, context.python
    library = LIBRARY_BY_STANDARD_MODULE.get(module, "")
    base = python.base_prefix if python is not None else ""
    reason = (
        f"it was built where {library}'s headers were missing"
        if library
        else "its installation is incomplete"
    )
    return rule.make_finding(
        Cause.PYTHON_UNUSABLE,
        Severity.ERROR,
        f"import tensorflow stops with ModuleNotFoundError: No module named {module!r}. That is a part of Python itself, which "
        f"no package provides: {reason}.",
        title=f"import tensorflow fails: this Python ({base}) has no {module}",
        evidence=[Evidence(f"import {failure.import_result.name}", failure.import_result.error)],
        remedies=[_build_python_remedy(context, module)],
    )


def _build_python_remedy(context: RuleContext, module: str) -> Remedy:
    """Return the remedy that completes this Python, depending on who installed it."""
    target, python = context.target, context.python
    base, version = (python.base_prefix, python.version) if python is not None else ("", "")
    minor, sudo = version.rpartition(".")[0], get_sudo_prefix(target)
    check_command = format_check_command(target)
    if python is not None and python.conda_prefix:
        command = f"conda install --prefix {quote(python.conda_prefix)} --force-reinstall python={version}"
        return Remedy("Install conda's Python again.", (command, check_command))
    if "/uv/python/" in base:
        return Remedy(
            "Have uv install this Python again.", (f"uv python install --reinstall {version}", check_command)
        )
    is_apt = get_package_manager(target) == APT
    if base == "/usr" and is_apt:
        packages = f"libpython{minor}-stdlib python{minor}" + (" python3-distutils" * (module == "distutils"))
        command = f"{sudo}apt-get install --reinstall {packages}"
        return Remedy("Install Python's library again.", (command, check_command), changes_system=True)
    headers = DEBIAN_HEADERS_BY_STANDARD_MODULE.get(module, "")
    commands = [f"{sudo}apt-get install {headers}"] if headers and is_apt else []
    if "/.pyenv/versions/" in base or "/pyenv/versions/" in base:
        name = posixpath.basename(base)
        text = f"Install what {module} needs, and have pyenv build this Python again: environments made with it stay."
        return Remedy(
            text, (*commands, f"pyenv install --force {name}", check_command), changes_system=bool(commands)
        )
    return Remedy(
        f"Install what {module} needs ({headers or 'see the log of its build'}), and build this Python again in {base}, or make "
        "the environment with another Python.",
        (*commands, f"{base}/bin/python{minor} -c 'import {module}'"),
        changes_system=bool(commands),
    )


def _build_laid_over_finding(context: RuleContext, rule: Rule, failures: Sequence[ImportFailure]) -> Finding:
    """Return the finding about packages of which several versions are installed over each other."""
    rehearsed, target = failures[0].import_result, context.target
    names = [failure.package for failure in failures]
    labels = join_words(
        [f"{failure.package} {' and '.join(failure.installed_versions)}" for failure in failures]
    )
    # pip removes one version at a time
    count = max(len(failure.installed_versions) for failure in failures)
    uninstall_command = format_uninstall_command(target, names)
    requirements = tuple(choose_missing_requirement(context, name) for name in names)
    return rule.make_finding(
        Cause.PACKAGE_CONFLICT,
        Severity.ERROR,
        f"import tensorflow stops with {rehearsed.error_type}: {rehearsed.error.rstrip('.')}. {labels} are registered in the "
        "same folder: the files of one lie over those of the other (pip over conda, or --target twice).",
        title=f"import tensorflow fails: {labels} are installed over each other",
        evidence=_list_evidence(context, failures),
        remedies=[
            Remedy(
                "Remove all of its versions, and install one.",
                (
                    *((uninstall_command,) * (1 if uninstall_command.startswith("uv ") else count)),
                    format_pip_install(target, requirements),
                    format_check_command(target),
                ),
                steps=(*(Uninstall(tuple(names)) for _ in range(count)), Install(requirements)),
            )
        ],
    )


def _build_distutils_finding(context: RuleContext, rule: Rule, failure: ImportFailure) -> Finding:
    """Return the finding that setuptools, which provides distutils, is where Python does not read its .pth file."""
    folder, python = failure.unread_folder, context.python
    version = major_minor(python.version) if python is not None else ""
    return rule.make_finding(
        Cause.PACKAGE_CONFLICT,
        Severity.ERROR,
        f"import tensorflow stops with ModuleNotFoundError: No module named 'distutils'. Python {version} has none of its own; "
        f"setuptools provides it by a .pth file, and Python does not read .pth files in {folder} (pip install --target, "
        "PYTHONPATH).",
        title=f"import tensorflow fails: Python {version} has no distutils, and setuptools in {folder} does not replace it",
        evidence=[Evidence(folder, "contains setuptools; its .pth file is not read there")],
        remedies=[
            Remedy(
                "Install setuptools into this Python itself; the rest stays where it is.",
                (
                    f"PYTHONPATH= {format_pip_install(context.target, ['setuptools'])}",
                    format_check_command(context.target),
                ),
            )
        ],
    )


def _format_package(context: RuleContext, failure: ImportFailure) -> str:
    """Return a package's name, with its version if it is installed."""
    distribution = context.python.find_distribution(failure.package) if context.python is not None else None
    return (
        f"{failure.package} {distribution.version}"
        if distribution is not None and not failure.is_missing
        else failure.package
    )


def _list_evidence(context: RuleContext, failures: Sequence[ImportFailure]) -> list[Evidence]:
    """Return the errors, the damaged files and the oddities of these packages as evidence."""
    evidence = []
    for failure in failures:
        rehearsed = failure.import_result
        source = rehearsed.frames[-1] if rehearsed.frames else (rehearsed.file or f"import {rehearsed.name}")
        evidence.append(Evidence(source, f"{rehearsed.error_type}: {rehearsed.error}"))
        evidence += [
            Evidence(difference.path, DAMAGE_PREDICATES[difference.what])
            for difference in failure.damaged_files[:3]
        ]
    rehearsal = value_of(context.facts.rehearsal)
    packages = {failure.package for failure in failures}
    oddities = rehearsal.oddities if rehearsal is not None else ()
    evidence += [
        Evidence("installed distributions", oddity.why) for oddity in oddities if oddity.module in packages
    ]
    return evidence


def _build_remedy(context: RuleContext, failures: Sequence[ImportFailure]) -> Remedy:
    """Return one remedy that fixes all these failures."""
    library = failures[0].overriding_library
    if library:
        return _build_library_removal_remedy(context, library)
    variable = _find_harmful_variable(context, failures)
    if variable:
        return variable_origins.make_unset_remedy(context, variable, "Unset the variable.")
    if all(
        difference.what == "unreadable"
        for failure in failures
        for difference in failure.damaged_files or _DAMAGE_PLACEHOLDER
    ):
        python = context.python
        distributions = (
            {failure.package: python.find_distribution(failure.package) for failure in failures}
            if python
            else {}
        )
        paths = [
            f"{distribution.location}/{difference.path}"
            for failure in failures
            if (distribution := distributions.get(failure.package)) is not None
            for difference in failure.damaged_files
        ]
        command = f"chmod a+r {' '.join(quote(path) for path in paths)}"
        return Remedy("Have the files' owner let everybody read them.", (command,), changes_system=True)
    damage_flags = [bool(failure.damaged_files) or _lacks_module(context, failure) for failure in failures]
    reinstall = any(damage_flags)
    requirements = tuple(
        dict.fromkeys(
            choose_working_requirement(context, failure.package, reinstall=damaged)
            for failure, damaged in zip(failures, damage_flags, strict=True)
        )
    )
    missing_names = _list_missing_packages(context, {failure.package for failure in failures})
    requirements += tuple(choose_missing_requirement(context, package) for package in missing_names)
    options = "--force-reinstall --no-deps" if reinstall else ""
    return Remedy(
        "Install it again." if reinstall else "Install versions that this TensorFlow works with.",
        (
            format_pip_install(context.target, requirements, options=options),
            format_check_command(context.target),
        ),
        steps=(Install(requirements, force_reinstall=reinstall, install_dependencies=not reinstall),),
    )


def _find_harmful_variable(context: RuleContext, failures: Sequence[ImportFailure]) -> str:
    """Return the environment variable that makes an otherwise working package fail; "" if there is none."""
    rehearsal = value_of(context.facts.rehearsal)
    modules = {entry.package for entry in failures}
    oddities = [
        entry for entry in (rehearsal.oddities if rehearsal is not None else ()) if entry.module in modules
    ]
    variables = context.facts.environment.variables
    names = [name for name, module in MODULE_BY_VARIABLE.items() if module in modules and variables.get(name)]
    # each of these variables is itself an oddity: a further oddity may be the cause as well
    return names[0] if names and len(oddities) == len(names) else ""


def _lacks_module(context: RuleContext, failure: ImportFailure) -> bool:
    """Return whether an installed package lacks one of its modules and no other version is known to work."""
    if failure.is_missing or not failure.import_result.not_found:
        return False
    distribution = context.python.find_distribution(failure.package) if context.python is not None else None
    working_version = _find_working_version(context, failure.package)
    return distribution is None or working_version is None or working_version == distribution.version


def _build_library_removal_remedy(context: RuleContext, library: str) -> Remedy:
    """Return the remedy to remove a library, or its folder, from the variable that puts it first_failure."""
    folder = posixpath.dirname(library)
    variables = context.facts.environment.variables
    name = (
        "LD_PRELOAD"
        if library in variables.get("LD_PRELOAD", "").replace(":", " ").split()
        else "LD_LIBRARY_PATH"
    )
    entries = split_path_list(name, variables.get(name, ""))
    removed_entries = [entry for entry in entries if entry.rstrip("/") in (folder, library)]
    remaining = [entry for entry in entries if entry not in removed_entries]
    text = f"Take {', '.join(removed_entries) or library} off {name} where TensorFlow runs."
    return variable_origins.make_entries_removal_remedy(
        context, name, tuple(removed_entries), remaining, text
    )


def choose_working_requirement(context: RuleContext, package: str, *, reinstall: bool = False) -> str:
    """Return the pip requirement that gives TensorFlow a working version of a package.

    With `reinstall`, it names the installed version. Otherwise it is the first of these that is known:

    * the version in the most similar environment in which the import worked;
    * the versions that TensorFlow and its requirements ask for;
    * any of these except the installed one.
    """
    python = context.python
    distribution = python.find_distribution(package) if python is not None else None
    if reinstall and distribution is not None:
        return f"{package}=={distribution.version}"
    working_version = _find_working_version(context, package)
    if working_version is not None and (distribution is None or working_version != distribution.version):
        return f"{package}=={working_version}"
    requirement = f"{package}{_find_required_specifiers(context, package)}"
    unmet_requirements = list_unmet_requirements(python) if python is not None else ()
    if distribution is None or any(unmet.package == package for unmet in unmet_requirements):
        return requirement
    separator = "," if requirement != package else ""
    return f"{requirement}{separator}!={distribution.version}"


def choose_missing_requirement(context: RuleContext, package: str) -> str:
    """Return the pip requirement for a package that this environment lacks.

    A copy elsewhere on PYTHONPATH does not count as installed.
    """
    working_version = _find_working_version(context, package)
    if working_version is not None:
        return f"{package}=={working_version}"
    return f"{package}{_find_required_specifiers(context, package)}"


def _find_required_specifiers(context: RuleContext, package: str) -> str:
    return find_required_specifiers(context.python, package) if context.python is not None else ""


def _find_working_version(context: RuleContext, package: str) -> str | None:
    """Return the package version that worked in the most similar environment; None if there is none."""
    python, tensorflow = context.python, context.tensorflow
    if python is None or tensorflow is None:
        return None
    return find_tested_version(python, tensorflow, package, context.compat)
