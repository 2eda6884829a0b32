"""What of TensorFlow's import is not known to work here, and so is rehearsed; and what the rehearsal means.

An import is known to work where every package that it takes is there in the version of one environment in which
it was seen to work (compat/imports, compat/locks), with the files that its RECORD lists, and no other module is found
first under a name that it takes. Where anything is unlike that, a child imports all that TensorFlow needs: packages use
one another without a word of it in their metadata. Pure: no I/O.
"""

from __future__ import annotations

import dataclasses
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat.locks import locked_package
from tfdoctor.facts import MODULE_DISTRIBUTIONS, NOEXEC, TENSORFLOW_DISTRIBUTIONS, value_of
from tfdoctor.facts.imports import Oddity, Rehearsed
from tfdoctor.findings import Cause
from tfdoctor.predict.requirements import asked, met, normal, shown
from tfdoctor.predict.shadows import package_led_away
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.compat.imported import Imported
    from tfdoctor.facts import Distribution, Facts, PythonFacts, TensorFlowFacts
    from tfdoctor.facts.imports import FileDifference, RehearsalFacts

__all__ = [
    "READ",
    "Failure",
    "Unmet",
    "Wanted",
    "cause_of",
    "failures",
    "good_version",
    "imported",
    "in_working_folder",
    "no_longer_standard",
    "own_damage",
    "table_of",
    "unmet",
    "wanted",
]

GENERATED = "core/framework/versions_pb2.py"
"""A generated protobuf source of TensorFlow's that needs nothing but protobuf; in every release from 1.0 on."""
GENERATED_BY_KERAS = "keras/protobuf/versions_pb2.py"
"""The same of Keras 2 apart from TensorFlow, which the import loads; Keras 3 has none."""
BREAKING = frozenset({"missing", "empty", "syntax", "unreadable"})
"""What a source cannot be and be imported."""
REAL_DIFFERENCES = BREAKING | {"cut", "altered"}
ODD_DIFFERENCES = REAL_DIFFERENCES | {"changed"}
"""What makes a package worth rehearsing: a changed file may be somebody's own work, and good."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a child is to import."""

    modules: tuple[tuple[str, tuple[str, ...]], ...]
    """(module, the attributes that are taken of it), in the order in which TensorFlow takes them."""
    sources: tuple[str, ...]
    oddities: tuple[Oddity, ...]


@dataclass(frozen=True, slots=True)
class Unmet:
    """A requirement that is not fulfilled."""

    by: str
    """The distribution that states it: "tensorflow"."""
    requirement: str
    """As written: "ml-dtypes<1.0.0,>=0.5.1"."""
    package: str
    have: str | None
    """The version that is there; None where it is not there at all."""


@dataclass(frozen=True, slots=True)
class Failure:
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


def table_of(tensorflow: TensorFlowFacts, compat: Compat) -> Imported | None:
    """What this TensorFlow is known to import."""
    return compat.imported_by(tensorflow.version)


def wanted(
    python: PythonFacts, tensorflow: TensorFlowFacts, variables: Mapping[str, str], compat: Compat
) -> Wanted | None:
    """What is to be rehearsed; None where all is as it is known to work, or nothing is known of this release."""
    table = table_of(tensorflow, compat)
    if table is None or not python.distributions:
        return None
    oddities = (*_oddities(python, tensorflow, table, compat), *_by_variables(variables))
    if not oddities:
        return None
    named = {oddity.module for oddity in oddities}
    modules = _needed(python, table)
    hidden = sorted(named & table.shadowable)
    if hidden:
        # Anything may need what the one of Python's own library has, and the other has not.
        modules = {**table.standard, **modules, **{n: () for n in hidden if n not in table.standard}}
    modules |= {name: chains for name, chains in table.standard.items() if name.partition(".")[0] in named}
    carried = not named.isdisjoint(python.carried)
    odd = {one.name for one in python.distributions} if hidden or carried else _dependents(python, named)
    for name in (*table.tried, *(module for taken in table.family.values() for module in taken)):
        if distribution_of(name) in odd and python.distribution(distribution_of(name)) is not None:
            modules.setdefault(name, ())
    return Wanted(tuple(modules.items()), tuple(_generated(python, tensorflow, table)), oddities)


def _generated(python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported) -> Iterator[str]:
    """Generated sources that need nothing but protobuf, each of them like all of its package."""
    yield f"{tensorflow.core_dir}/{GENERATED}"
    keras = python.distribution("keras")
    if "keras" in table.family and keras is not None:
        yield f"{keras.location}/{GENERATED_BY_KERAS}"


COMPILED = ("zlib", "binascii", "ssl", "ctypes", "bz2", "lzma", "hashlib", "uuid")
"""Modules of Python's own library that load libraries of the system."""


def _needed(python: PythonFacts, table: Imported) -> dict[str, tuple[str, ...]]:
    """All that the import takes of other packages: packages use one another without a word of it in their metadata."""
    found: dict[str, tuple[str, ...]] = {}
    if python.carried:  # where libraries of the system are other ones, any module may be hit
        found = dict.fromkeys((m for m in COMPILED if m in table.shadowable), ())
    found |= {name: table.standard[name] for name in no_longer_standard(python, table)}
    return found | {name: chains if table.exact else () for name, chains in table.needs.items()}


def no_longer_standard(python: PythonFacts, table: Imported) -> tuple[str, ...]:
    """What the import takes of Python's own library, as it was, and setuptools brings where Python has it no more."""
    if not versions.at_least(python.version, "3.12"):
        return ()
    return tuple(name for name in table.standard if name.partition(".")[0] == "distutils")


def distribution_of(module: str) -> str:
    """The distribution that a module comes with: "google.protobuf.message" → "protobuf"."""
    for name, distribution in MODULE_DISTRIBUTIONS.items():
        if module == name or module.startswith(f"{name}."):
            return distribution
    return normal(module.partition(".")[0])


def _oddities(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported, compat: Compat
) -> Iterator[Oddity]:
    """Everything that is unlike what is known to work, each once or more."""
    installed = _first(python)
    taken = {distribution_of(name) for name in (*table.needs, *no_longer_standard(python, table))}
    maybe = {distribution_of(name) for name in (*table.tried, *(m for f in table.family.values() for m in f))}
    family = {normal(name) for name in (*table.family, *table.must)}
    relevant = _closure(installed, {*taken, *family, *(maybe & installed.keys())})
    known = _nearest_set(python, tensorflow, table, relevant, compat)
    for name in sorted(relevant | taken):
        one = installed.get(name)
        if one is None:
            if name in taken:
                yield Oddity(name, f"{name} is not registered here")
            continue
        if known.get(name) != one.version:
            yield Oddity(name, f"{name} {one.version} is not a version that its import was seen with")
        elif any(difference.what in ODD_DIFFERENCES for difference in one.differs):
            yield Oddity(name, f"files of {name} {one.version} are not as it was installed with")
    for missing in unmet(python):
        if missing.package in {*relevant, *taken} or missing.by in relevant:
            yield Oddity(
                missing.package,
                f"{missing.by} asks for {missing.requirement}, and {missing.have or 'nothing'} is there",
            )
    for path in python.carried:
        yield Oddity(path, f"{path} comes before the system's own library of that name")
    tops = {name.partition(".")[0] for name in (*table.needs, *table.tried)}
    tops |= {m.partition(".")[0] for modules in table.family.values() for m in modules} | table.shadowable
    tops |= {name.partition(".")[0] for name in table.standard}
    for shadow in python.shadows:
        if shadow.name in tops:
            module = shadow.name if shadow.name in table.shadowable else distribution_of(shadow.name)
            module = "protobuf" if shadow.name == "google" else module
            yield Oddity(module, f"{shadow.taken} is found before the {shadow.name} in {shadow.hidden}")


def _by_variables(variables: Mapping[str, str]) -> Iterator[Oddity]:
    """What packages of the import, or Python itself, read as they are imported, and take another way for."""
    for name, module in READ.items():
        if variables.get(name):
            yield Oddity(module, f"{name} is set to {variables[name]!r}")


READ = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "protobuf", "PYTHONWARNINGS": "warnings"}
"""Variable → the module that reads it."""


def _first(python: PythonFacts) -> dict[str, Distribution]:
    """Normalised name → the distribution that is first on the path."""
    return {one.name: one for one in reversed(python.distributions)}


def _closure(installed: Mapping[str, Distribution], start: set[str]) -> set[str]:
    """The installed ones of `start`, and what they require."""
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        one = installed.get(name)
        if name in found or one is None or name in TENSORFLOW_DISTRIBUTIONS:
            continue
        found.add(name)
        todo += [other for line in one.requires if (other := _required(line)) is not None]
    return found


@lru_cache(maxsize=4096)
def _required(line: str, *, extras: bool = False) -> str | None:
    """The name in a requirement; None where only an extra asks for it, and extras are not asked for."""
    if not extras and "extra" in line.partition(";")[2]:
        return None
    match = re.match(r"[A-Za-z0-9._-]{1,100}", line.strip())
    return normal(match[0]) if match is not None else None


def _dependents(python: PythonFacts, odd: set[str]) -> set[str]:
    """`odd`, and every distribution that requires one of them, or one that does."""
    found = set(odd)
    while True:
        more = {
            one.name
            for one in python.distributions
            if one.name not in found and any(_required(line) in found for line in one.requires)
        }
        if not more:
            return found
        found |= more


def _nearest_set(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported, relevant: set[str], compat: Compat
) -> Mapping[str, str]:
    """The versions of the environment in which this import worked that is most like this one."""
    installed = _first(python)
    sets = list(table.sets) if table.exact else []
    version = tensorflow.version or ""
    locked = compat.locks.of(locked_package(version), version, python.version)
    if locked is not None:
        sets.append(locked.versions)
    return max(
        sets,
        key=lambda known: sum(
            known.get(name) == installed[name].version for name in relevant if name in installed
        ),
        default={},
    )


def good_version(
    python: PythonFacts, tensorflow: TensorFlowFacts, package: str, compat: Compat
) -> str | None:
    """The version of a package in the environment in which this import worked that is most like this one."""
    table = table_of(tensorflow, compat)
    if table is None:
        return None
    return _nearest_set(python, tensorflow, table, set(_first(python)), compat).get(package)


# ---------------------------------------------------------------- requirements


def unmet(python: PythonFacts) -> tuple[Unmet, ...]:
    """What TensorFlow, and everything that it requires, asks for and does not get in this Python."""
    installed = _first(python)
    environment = _environment(python)
    found: dict[tuple[str, str], Unmet] = {}
    own = {name for name in installed if name in TENSORFLOW_DISTRIBUTIONS}
    todo, seen = list(own), set[str]()
    while todo:
        name = todo.pop()
        one = installed.get(name)
        if name in seen or one is None:
            continue
        seen.add(name)
        for line in one.requires:
            wish = asked(line, environment)
            if wish is None:
                continue
            have = installed.get(wish.package)
            todo.append(wish.package)
            if have is None:
                found[name, wish.package] = Unmet(name, shown(wish), wish.package, None)
            elif versions.is_version(have.version) and not met(wish, have.version):
                found[name, wish.package] = Unmet(name, shown(wish), wish.package, have.version)
    return tuple(found[key] for key in sorted(found))


def _environment(python: PythonFacts) -> dict[str, str]:
    """PEP 508's variables as the examined Python has them; of no extra."""
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


# ---------------------------------------------------------------- what it means


def failures(facts: Facts, compat: Compat) -> tuple[Failure, ...]:
    """What stops `import tensorflow` (or, not `fatal`, Keras alone), the first one first."""
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    rehearsal = value_of(facts.rehearsal)
    table = table_of(tensorflow, compat) if tensorflow is not None else None
    if python is None or tensorflow is None or table is None:
        return ()
    found = list(_absent_family(python, table))
    loader = value_of(facts.loader)
    noexec = loader is not None and any(NOEXEC in one.error for one in loader.import_needs)
    if rehearsal is not None and not noexec:  # else no package's module can be loaded, and none is to blame
        found += (_led_away(facts, one) for one in _of_rehearsal(python, table, rehearsal))
    # The same package may be taken through several modules, and the same file hide from many of them: once is enough.
    first: dict[str, Failure] = {}
    for one in sorted(found, key=lambda one: not one.fatal):
        first.setdefault(one.shadow or one.package, one)
    told = list(first.values())
    if rehearsal is not None:
        # What is unlike what works lets others fail that are as they work.
        suspects = _odd(rehearsal) | _refused(python)
        first_hand = [one for one in told if one.shadow or one.missing or one.package in suspects]
        if any(one.fatal for one in first_hand):
            told = first_hand
    return tuple(told)


def imported(rehearsal: RehearsalFacts | None) -> set[str]:
    """The distributions whose modules were imported without an error."""
    modules = rehearsal.modules if rehearsal is not None else ()
    failed = {distribution_of(one.name) for one in modules if not one.ok}
    return {distribution_of(one.name) for one in modules if one.ok} - failed


def _led_away(facts: Facts, failure: Failure) -> Failure:
    """The failure, of a package of a folder that is put first: nothing that is installed changes it."""
    taken = package_led_away(facts, failure.package) if not failure.shadow and not failure.missing else None
    if taken is None:
        return failure
    return dataclasses.replace(failure, shadow=f"{taken.location}/{_top_module(taken.name)}")


def _absent_family(python: PythonFacts, table: Imported) -> Iterator[Failure]:
    if not any(one.requires for one in python.distributions):
        return  # planned, not looked at
    for name in table.must:
        package = normal(name)
        if python.distribution(package) is None and name not in python.modules:
            error = f"No module named {name!r}"
            yield Failure(
                Rehearsed(name, error, "ModuleNotFoundError", import_error=True, not_found=name),
                package,
                missing=True,
            )


def _of_rehearsal(python: PythonFacts, table: Imported, rehearsal: RehearsalFacts) -> Iterator[Failure]:
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
    if rehearsal.source is not None and not rehearsal.source.ok:
        source = dataclasses.replace(rehearsal.source, name="google.protobuf")
        yield _failure(python, rehearsal, source, fatal=True)


def _with_file(one: Rehearsed) -> Rehearsed:
    """A folder that lost its `__init__` is imported, and has no file. Modules in packages are tried to put their
    folder on TensorFlow's own path, for which their file is asked."""
    if not one.ok or "." not in one.name or not one.file or one.file.endswith((".py", ".pyc", ".so", ".pyd")):
        return one
    error = f"{one.file} has no __init__.py: expected str, bytes or os.PathLike object, not NoneType"
    return dataclasses.replace(one, error=error, error_type="TypeError")


def _failure(python: PythonFacts, rehearsal: RehearsalFacts, one: Rehearsed, *, fatal: bool) -> Failure:
    missing = bool(one.not_found)
    if missing:
        package = distribution_of(one.not_found)
        there = python.distribution(package)
        # A part of a package that is there: the package is to blame, or who asks for that part of it.
        if there is not None and "." in one.not_found:
            missing = False
        elif there is not None and one.not_found.partition(".")[0] == "distutils":
            missing = False  # setuptools brings it by importing its own, and says nothing where that fails
            suspects = _refused(python) or _odd(rehearsal)
            used = (name for line in there.requires if (name := _required(line, extras=True)) in suspects)
            package = package if package in suspects else next(used, package)
    else:
        package = _raised_by(python, rehearsal, one)
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
    distribution = python.distribution(package)
    here = in_working_folder(python, package)
    if not shadow and here is not None:
        shadow = f"{here.location}/{_top_module(package)}"
    damage = (
        tuple(d for d in distribution.differs if d.what in ODD_DIFFERENCES)
        if distribution is not None
        else ()
    )
    return Failure(one, package, missing, shadow, library, damage, fatal)


def in_working_folder(python: PythonFacts, package: str) -> Distribution | None:
    """A package that was installed into the working folder: into none that Python's own path has."""
    there = python.distribution(package)
    return there if there is not None and python.sys_path and there.location not in python.sys_path else None


def _top_module(package: str) -> str:
    """The file or folder that a distribution's module is: "protobuf" → "google"."""
    named = (module for module, name in MODULE_DISTRIBUTIONS.items() if name == package)
    return next(named, package.replace("-", "_")).partition(".")[0]


def cause_of(failure: Failure) -> Cause:
    """The contract's word for it."""
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


def _raised_by(python: PythonFacts, rehearsal: RehearsalFacts, one: Rehearsed) -> str:
    """The distribution to blame for an error: of those whose files it came through, the one that is unlike what works.

    The one whose version nobody asked for comes first, then one of another version than is known to work, then the
    one whose own file raised it. A module that is compiled for another NumPy raises in NumPy's files, or in none.
    """
    through = []
    for path in reversed(one.frames):
        name = distribution_at(python, path)
        if name is not None and name not in through:
            through.append(name)
    through.append(distribution_of(one.name))
    refused, odd = _refused(python), _odd(rehearsal)
    for suspects in (refused, odd, {*through} - {"numpy"}):
        blamed = next((name for name in through if name in suspects), None)
        if blamed is not None:
            return _beneath(python, blamed, refused or odd)
    return through[-1]


def _refused(python: PythonFacts) -> set[str]:
    """The packages whose version somebody does not want."""
    return {missing.package for missing in unmet(python) if missing.have is not None}


def _odd(rehearsal: RehearsalFacts) -> set[str]:
    """What was rehearsed for being unlike what works."""
    return {oddity.module for oddity in rehearsal.oddities}


def _beneath(python: PythonFacts, name: str, suspects: set[str]) -> str:
    """What a package requires and is unlike what works, where the package itself is not."""
    there = python.distribution(name)
    if name in suspects or there is None:
        return name
    return next((other for line in there.requires if (other := _required(line)) in suspects), None) or name


def distribution_at(python: PythonFacts, path: str) -> str | None:
    """The installed distribution that a file belongs to, by its place on the path."""
    for folder in python.sys_path:
        root = f"{folder.rstrip('/')}/"
        if len(root) > 1 and path.startswith(root):
            name = distribution_of(path[len(root) :].replace("/", ".").removesuffix(".py"))
            if name not in TENSORFLOW_DISTRIBUTIONS and python.distribution(name) is not None:
                return name
    return None


def own_damage(
    python: PythonFacts, tensorflow: TensorFlowFacts, compat: Compat
) -> tuple[FileDifference, ...]:
    """Files of TensorFlow that its import loads and that are not as they were installed."""
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
