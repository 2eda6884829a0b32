"""What a rehearsal of TensorFlow's import means: what stops it, and which package is to blame. Pure: no I/O."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfdoctor.facts import MODULE_DISTRIBUTIONS, NOEXEC, TENSORFLOW_DISTRIBUTIONS, value_of
from tfdoctor.facts.imports import Rehearsed
from tfdoctor.findings import Cause
from tfdoctor.predict.rehearsal import (
    GENERATED_BY_KERAS,
    ODD_DIFFERENCES,
    REAL_DIFFERENCES,
    distribution_of,
    parse_required,
    table_of,
    unmet,
)
from tfdoctor.predict.requirements import normal
from tfdoctor.predict.shadowing import find_leader, folder_of, package_led_away
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Compat
    from tfdoctor.compat.imported import Imported
    from tfdoctor.facts import Distribution, Facts, PythonFacts, TensorFlowFacts
    from tfdoctor.facts.imports import FileDifference, RehearsalFacts, Shadow

__all__ = [
    "ImportFailure",
    "cause_of",
    "failures",
    "find_own_damage",
    "find_untested_copies",
    "find_working_folder_copy",
    "list_imported",
]


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """A module with which `import tensorflow` stops."""

    rehearsed: Rehearsed
    package: str
    """The distribution to blame: the one whose own file raised the error, or that is not there."""
    missing: bool
    """It is not there, or a module that it needs is not."""
    shadow: str = ""
    """The file that was imported in its place."""
    library: str = ""
    """The library that LD_LIBRARY_PATH or LD_PRELOAD puts before the system's, where the error is about a library."""
    damage: tuple[FileDifference, ...] = ()
    """Files of that distribution that are not as its RECORD says."""
    fatal: bool = True
    """False: only Keras (tf.keras) fails with it."""


def failures(facts: Facts, compat: Compat) -> tuple[ImportFailure, ...]:
    """Return what stops `import tensorflow` (or, not `fatal`, Keras alone), the first one first."""
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    rehearsal = value_of(facts.rehearsal)
    table = table_of(tensorflow, compat) if tensorflow is not None else None
    if python is None or tensorflow is None or table is None:
        return ()
    found = list(_absent_family(python, table))
    loader = value_of(facts.loader)
    noexec = loader is not None and any(NOEXEC in one.error for one in loader.import_needs)
    if rehearsal is not None and not noexec:  # else no package's module can be loaded, and none is to blame
        spared = tensorflow.version is not None and compat.has(tensorflow.version, "keras-optimizers")
        said = (
            *_list_rehearsal_failures(python, table, rehearsal),
            *_list_keras_failures(python, rehearsal, spared=spared),
        )
        found += (_explain_led_away(facts, one) for one in said)
    found += _find_in_working_folder(facts, python, table, rehearsal)
    # The same package may be taken through several modules, and the same file hide from many of them: once is enough.
    hidden = {one.package for one in found if one.shadow}
    first: dict[str, ImportFailure] = {}
    for one in sorted(found, key=lambda one: not one.fatal):
        if one.shadow or one.package not in hidden:  # else what stands in its place is to blame for that, too
            first.setdefault(one.shadow or one.package, one)
    told = list(first.values())
    if rehearsal is not None:
        # What is unlike what works lets others fail that are as they work.
        suspects = _odd(rehearsal) | _list_refused(python)
        first_hand = [one for one in told if one.shadow or one.missing or one.package in suspects]
        if any(one.fatal for one in first_hand):
            told = first_hand
    return tuple(told)


def _shadows_here(
    facts: Facts, python: PythonFacts, table: Imported, rehearsal: RehearsalFacts | None
) -> Iterator[Shadow]:
    """Yield what programs that are started in the working folder import from there in TensorFlow's import.

    Nothing of that folder is executed. Recordings of earlier versions have a rehearsal that did: what it imported is
    left out.
    """
    modules = {*table.needs, *table.standard, *table.shadowable}
    names = {module.partition(".")[0] for module in modules}
    tried = [one.top or one.file for one in rehearsal.modules if one.ok] if rehearsal is not None else []
    for shadow in python.shadows:
        folder = folder_of(shadow.taken)
        here = folder not in python.sys_path and find_leader(facts, folder) is None
        if here and shadow.name in names and not any(_is_in(one, shadow.taken) for one in tried):
            yield shadow


def _find_in_working_folder(
    facts: Facts, python: PythonFacts, table: Imported, rehearsal: RehearsalFacts | None
) -> Iterator[ImportFailure]:
    for shadow in _shadows_here(facts, python, table, rehearsal):
        package = distribution_of(shadow.name)
        if find_working_folder_copy(python, package) is None:
            yield ImportFailure(Rehearsed(shadow.name), package, missing=False, shadow=shadow.taken)


def find_untested_copies(facts: Facts, compat: Compat) -> tuple[Distribution, ...]:
    """Return the packages installed into the working folder that TensorFlow's import takes from there."""
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    table = table_of(tensorflow, compat) if tensorflow is not None else None
    if python is None or table is None:
        return ()
    shadows = _shadows_here(facts, python, table, value_of(facts.rehearsal))
    copies = (find_working_folder_copy(python, distribution_of(shadow.name)) for shadow in shadows)
    return tuple(copy for copy in copies if copy is not None)


def list_imported(rehearsal: RehearsalFacts | None) -> set[str]:
    """Return the distributions whose modules were imported without an error."""
    modules = rehearsal.modules if rehearsal is not None else ()
    failed = {distribution_of(one.name) for one in modules if not one.ok}
    return {distribution_of(one.name) for one in modules if one.ok} - failed


def _explain_led_away(facts: Facts, failure: ImportFailure) -> ImportFailure:
    """Return the failure, of a package of a folder that is put first: nothing that is installed changes it."""
    taken = package_led_away(facts, failure.package) if not failure.shadow and not failure.missing else None
    if taken is None:
        return failure
    if failure.library and f"{taken.location}/" not in f"{failure.rehearsed.error} {failure.rehearsed.root}":
        return failure  # the library lets a file of another folder fail, whoever imports that
    return dataclasses.replace(failure, shadow=f"{taken.location}/{_top_module(taken.name)}")


def _absent_family(python: PythonFacts, table: Imported) -> Iterator[ImportFailure]:
    if not any(one.requires for one in python.distributions):
        return  # planned, not looked at
    for name in table.must:
        package = normal(name)
        if python.distribution(package) is None and name not in python.modules:
            error = f"No module named {name!r}"
            yield ImportFailure(
                Rehearsed(name, error, "ModuleNotFoundError", import_error=True, not_found=name),
                package,
                missing=True,
            )


def _list_rehearsal_failures(
    python: PythonFacts, table: Imported, rehearsal: RehearsalFacts
) -> Iterator[ImportFailure]:
    for one in (_with_file(one) if one.name in table.tried else one for one in rehearsal.modules):
        if one.ok:
            continue
        needed = (
            one.name in table.needs
            or one.name in table.standard
            or one.name.partition(".")[0] in table.shadowable
        )
        if not needed and one.import_error:
            continue
        keras_alone = not needed and one.name not in table.tried and one.attribute_error
        yield _failure(python, rehearsal, one, fatal=not keras_alone)
    source = rehearsal.source
    of_keras = source is not None and source.name.endswith(GENERATED_BY_KERAS)
    if source is not None and not source.ok and not (of_keras and rehearsal.keras):  # all of Keras tells more
        source = dataclasses.replace(source, name="google.protobuf")
        # TensorFlow goes on without a Keras that cannot be imported.
        yield _failure(python, rehearsal, source, fatal=not (of_keras and source.import_error))


def _list_keras_failures(
    python: PythonFacts, rehearsal: RehearsalFacts, *, spared: bool
) -> Iterator[ImportFailure]:
    """Yield what Keras fails with; `spared`: an AttributeError does not stop TensorFlow's import either.

    Only what is unlike what works is blamed. A Keras that raises something itself may do so because of the stand-in
    for TensorFlow, but for an import that fails, or a name that the installed TensorFlow does not have.
    """
    for one in rehearsal.keras:
        last = one is rehearsal.keras[-1]
        whole = last and len(rehearsal.keras) > 1  # only the first use of tf.keras loads it
        fatal = not (whole or one.import_error or (spared and one.attribute_error))
        if one.ok or "rehearse_keras" in " ".join((one.error, *one.frames)):  # it is about the stand-in
            continue
        failure = _failure(python, rehearsal, one, fatal=fatal)
        if failure.missing and failure.package not in _odd(rehearsal):  # nobody knows what is to be installed
            asker = _find_raiser(python, rehearsal, one)
            failure = dataclasses.replace(failure, package=asker, missing=False)
        sure = _sure(one) and (
            fatal or last
        )  # else TensorFlow goes on, and the last one says whether tf.keras works
        own = failure.package in ("keras", "tf-keras") and not failure.damage and not sure
        if failure.shadow or (failure.package in _odd(rehearsal) and not own):
            yield failure


def _sure(one: Rehearsed) -> bool:
    """Return whether what Keras fails with is not about the stand-in for TensorFlow."""
    return one.import_error or (one.attribute_error and one.error.startswith("module '"))


def _with_file(one: Rehearsed) -> Rehearsed:
    """Return a folder that lost its `__init__` is imported, and has no file.

    Modules in packages are tried to put their folder on TensorFlow's own path, for which their file is asked.
    """
    if not one.ok or "." not in one.name or not one.file or one.file.endswith((".py", ".pyc", ".so", ".pyd")):
        return one
    error = f"{one.file} has no __init__.py: expected str, bytes or os.PathLike object, not NoneType"
    return dataclasses.replace(one, error=error, error_type="TypeError")


def _failure(python: PythonFacts, rehearsal: RehearsalFacts, one: Rehearsed, *, fatal: bool) -> ImportFailure:
    missing = bool(one.not_found) and not one.not_found.startswith("tensorflow.")
    if missing:
        # Of a namespace without any of its parts only its first name is missed: "google" for google.protobuf.
        wanted = one.name if one.name.startswith(f"{one.not_found}.") else one.not_found
        package = distribution_of(wanted)
        there = python.distribution(package)
        # A part of a package that is there: the package is to blame, or who asks for that part of it.
        if there is not None and "." in one.not_found:
            missing = False
        elif there is not None and one.not_found.partition(".")[0] == "distutils":
            missing = False  # setuptools brings it by importing its own, and says nothing where that fails
            suspects = _list_refused(python) or _odd(rehearsal)
            used = (
                name for line in there.requires if (name := parse_required(line, extras=True)) in suspects
            )
            package = package if package in suspects else next(used, package)
    else:
        package = _find_raiser(python, rehearsal, one)
    shadow = next(
        (
            shadow.taken
            for shadow in python.shadows
            if any(place == shadow.taken or place.startswith(f"{shadow.taken}/") for place in _places(one))
            or shadow.taken in one.error
            or one.not_found.partition(".")[0] == shadow.name
            or f"module '{shadow.name}' has no attribute" in one.error
        ),
        "",
    )
    said = f"{one.error} {one.root}"
    library = next(iter(python.carried), "") if any(words in said for words in LOADER_WORDS) else ""
    shadow = next(
        (
            shadow.taken
            for shadow in python.shadows
            if shadow.taken in said
            # a library lets a file fail for whoever imports it
            or (not library and any(_is_in(place, shadow.taken) for place in _places(one)))
            or one.not_found.partition(".")[0] == shadow.name
            or f"module '{shadow.name}' has no attribute" in one.error
        ),
        "",
    )
    distribution = python.distribution(package)
    here = find_working_folder_copy(python, package)
    if not shadow and here is not None:
        shadow = f"{here.location}/{_top_module(package)}"
    damage = (
        tuple(d for d in distribution.differs if d.what in ODD_DIFFERENCES)
        if distribution is not None
        else ()
    )
    return ImportFailure(one, package, missing, shadow, library, damage, fatal)


def _is_in(place: str, taken: str) -> bool:
    return place == taken or place.startswith(f"{taken}/")


def find_working_folder_copy(python: PythonFacts, package: str) -> Distribution | None:
    """Return a package that was installed into the working folder: into none that Python's own path has."""
    there = python.distribution(package)
    return there if there is not None and python.sys_path and there.location not in python.sys_path else None


def _top_module(package: str) -> str:
    """Return the file or folder that a distribution's module is: "protobuf" → "google"."""
    named = (module for module, name in MODULE_DISTRIBUTIONS.items() if name == package)
    return next(named, package.replace("-", "_")).partition(".")[0]


def cause_of(failure: ImportFailure) -> Cause:
    """Return the contract's word for it."""
    if failure.shadow:
        return Cause.SHADOWED_MODULE
    if failure.library:
        old = "libstdc++" in failure.library and "version `" in failure.rehearsed.error
        return Cause.LIBSTDCXX_TOO_OLD if old else Cause.DAMAGED_FILE
    if any(difference.what == "unreadable" for difference in failure.damage):
        return Cause.NOT_PERMITTED
    if failure.damage:
        return Cause.DAMAGED_FILE
    if failure.package == "protobuf":
        return Cause.PROTOBUF_CONFLICT
    return Cause.PACKAGE_CONFLICT


LOADER_WORDS = (
    "undefined symbol",
    "version `",
    "cannot open shared object",
    "file too short",
    "invalid ELF header",
)
"""What the loader says of a library."""


def _places(one: Rehearsed) -> tuple[str, ...]:
    return tuple(path for path in (one.file, one.top, *reversed(one.frames)) if path)


def _find_raiser(python: PythonFacts, rehearsal: RehearsalFacts, one: Rehearsed) -> str:
    """Return the distribution to blame for an error: of those whose files it came through, the one that is unlike
    what works.

    The one whose version nobody asked for comes first, then one of another version than is known to work, then the
    one whose own file raised it. A module that is compiled for another NumPy raises in NumPy's files, or in none.
    """
    through = []
    for path in reversed(one.frames):
        name = distribution_at(python, path)
        if name is not None and name not in through:
            through.append(name)
    through.append(distribution_of(one.name))
    refused, odd = _list_refused(python), _odd(rehearsal)
    for suspects in (refused, odd, {*through} - {"numpy"}):
        blamed = next((name for name in through if name in suspects), None)
        if blamed is not None:
            return _beneath(python, blamed, refused or odd)
    return through[-1]


def _list_refused(python: PythonFacts) -> set[str]:
    """Return the packages whose version somebody does not want."""
    return {missing.package for missing in unmet(python) if missing.have is not None}


def _odd(rehearsal: RehearsalFacts) -> set[str]:
    """Return what was rehearsed for being unlike what works."""
    return {oddity.module for oddity in rehearsal.oddities}


def _beneath(python: PythonFacts, name: str, suspects: set[str]) -> str:
    """Return what a package requires and is unlike what works, where the package itself is not."""
    there = python.distribution(name)
    if name in suspects or there is None:
        return name
    return (
        next((other for line in there.requires if (other := parse_required(line)) in suspects), None) or name
    )


def distribution_at(python: PythonFacts, path: str) -> str | None:
    """Return the installed distribution that a file belongs to, by its place on the path."""
    for folder in python.sys_path:
        root = f"{folder.rstrip('/')}/"
        if len(root) > 1 and path.startswith(root):
            name = distribution_of(path[len(root) :].replace("/", ".").removesuffix(".py"))
            if name not in TENSORFLOW_DISTRIBUTIONS and python.distribution(name) is not None:
                return name
    return None


def find_own_damage(
    python: PythonFacts, tensorflow: TensorFlowFacts, compat: Compat
) -> tuple[FileDifference, ...]:
    """Return files of TensorFlow that its import loads and that are not as they were installed."""
    table = table_of(tensorflow, compat)
    own = python.distribution(tensorflow.distribution or "")
    if own is None:
        return ()
    idle = table.idle if table is not None else frozenset()
    owners = [
        d for d in python.distributions if d.name in TENSORFLOW_DISTRIBUTIONS and d.location == own.location
    ]
    # Of two packages over each other one has other files than its RECORD says.
    kinds = REAL_DIFFERENCES if len(owners) < 2 else frozenset({"missing", "empty", "unreadable"})
    return tuple(d for d in own.differs if d.what in kinds and d.path not in idle)
