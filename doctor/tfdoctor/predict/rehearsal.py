"""What of TensorFlow's import is not known to work here, and so is rehearsed; and what the rehearsal means.

An import is known to work where every package that it takes is there in the version of one environment in which
it was seen to work (compat/imports, compat/locks), with the files that its RECORD lists, and no other module is found
first under a name that it takes. Where anything is unlike that, a child imports all that TensorFlow needs: packages use
one another without a word of it in their metadata. Pure: no I/O.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat.locks import choose_locked_package
from tfdoctor.facts import MODULE_DISTRIBUTIONS, TENSORFLOW_DISTRIBUTIONS
from tfdoctor.facts.imports import Oddity
from tfdoctor.predict.requirements import format_asked, met, normal, parse_asked
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.compat.imported import Imported
    from tfdoctor.facts import Distribution, PythonFacts, TensorFlowFacts

__all__ = [
    "LEGACY_KERAS",
    "ODD_DIFFERENCES",
    "READ",
    "REAL_DIFFERENCES",
    "RehearsalPlan",
    "Unmet",
    "distribution_of",
    "good_version",
    "legacy_keras",
    "list_removed_standard",
    "parse_required",
    "plan_rehearsal",
    "table_of",
    "unmet",
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
class RehearsalPlan:
    """What a child is to import."""

    modules: tuple[tuple[str, tuple[str, ...]], ...]
    """(module, the attributes that are taken of it), in the order in which TensorFlow takes them."""
    sources: tuple[str, ...]
    oddities: tuple[Oddity, ...]
    keras: tuple[str, ...] = ()
    """Modules of Keras that TensorFlow loads, to be imported with something in the place of TensorFlow."""


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


def table_of(tensorflow: TensorFlowFacts, compat: Compat) -> Imported | None:
    """Return what this TensorFlow is known to import."""
    return compat.find_imported(tensorflow.version)


def plan_rehearsal(
    python: PythonFacts, tensorflow: TensorFlowFacts, variables: Mapping[str, str], compat: Compat
) -> RehearsalPlan | None:
    """Return what is to be rehearsed.

    None if all is as it is known to work, or nothing is known of this release.
    """
    table = table_of(tensorflow, compat)
    if table is None or not python.distributions:
        return None
    beside = {"tf-keras"} if legacy_keras(variables, tensorflow.version, compat) else set[str]()
    oddities = (*_oddities(python, tensorflow, table, compat, beside), *_find_variable_oddities(variables))
    if not oddities:
        return None
    named = {oddity.module for oddity in oddities}
    modules = _map_needed(python, table)
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
    keras = _list_keras_modules(python, tensorflow, table, variables, compat)
    return RehearsalPlan(
        tuple(modules.items()), tuple(_list_generated(python, tensorflow, table)), oddities, keras
    )


LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


def legacy_keras(variables: Mapping[str, str], version: str | None, compat: Compat) -> bool:
    """Return whether this release is told to take tf_keras."""
    told = variables.get(LEGACY_KERAS, "").lower() in ("1", "true")
    return told and version is not None and compat.has(version, "legacy-keras-variable")


def _list_keras_modules(
    python: PythonFacts,
    tensorflow: TensorFlowFacts,
    table: Imported,
    variables: Mapping[str, str],
    compat: Compat,
) -> tuple[str, ...]:
    """Return the modules of Keras that TensorFlow loads, in their order, where something speaks against their import.

    Keras is most of the work of a rehearsal, and newer packages than were tried are usual: only what is damaged, in
    the place of another, not what somebody asks for, or older than all that was seen to work is a reason.
    """
    version = tensorflow.version or ""
    if "keras" not in table.family or not versions.is_version(version):
        return ()
    legacy = legacy_keras(variables, version, compat)
    installed = _first(python)
    keras = "tf-keras" if legacy else "keras"
    taken = {distribution_of(module) for module in table.family["keras"]}
    alone = _closure(installed, {keras, *taken}) - {distribution_of(name) for name in table.needs}
    known = _list_known_sets(python, tensorflow, table, compat)
    doubted = {missing.package for missing in unmet(python)}
    doubted |= {distribution_of(shadow.name) for shadow in python.shadows}
    if keras not in installed or not any(
        name in doubted
        or any(difference.what in REAL_DIFFERENCES for difference in installed[name].differs)
        or _older(installed[name].version, [one[name] for one in known if name in one])
        for name in alone
    ):
        return ()
    if not compat.has(version, "keras-optimizers"):
        return ("keras.api._v2.keras",)
    if legacy:
        return ("tf_keras.src.optimizers", "tf_keras.api._v2.keras")
    first = ("keras.optimizers",) if compat.has(version, "keras-optimizers-twice") else ()
    whole = "keras._tf_keras.keras" if compat.has(version, "keras-3") else "keras.api._v2.keras"
    return (*first, "keras.src.optimizers", whole)


def _older(version: str, known: Sequence[str]) -> bool:
    """Return whether it is older than all of these; not where there are none."""
    if not versions.is_version(version):
        return True
    return bool(known) and not any(versions.is_at_least(version, one) for one in known)


def _list_generated(python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported) -> Iterator[str]:
    """Yield generated sources that need nothing but protobuf, each of them like all of its package."""
    yield f"{tensorflow.core_dir}/{GENERATED}"
    keras = python.distribution("keras")
    if "keras" in table.family and keras is not None:
        yield f"{keras.location}/{GENERATED_BY_KERAS}"


COMPILED = ("zlib", "binascii", "ssl", "ctypes", "bz2", "lzma", "hashlib", "uuid")
"""Modules of Python's own library that load libraries of the system."""


def _map_needed(python: PythonFacts, table: Imported) -> dict[str, tuple[str, ...]]:
    """Return all that the import takes of other packages: packages use one another without a word of it in their
    metadata.
    """
    found: dict[str, tuple[str, ...]] = {}
    if python.carried:  # where libraries of the system are other ones, any module may be hit
        found = dict.fromkeys((m for m in COMPILED if m in table.shadowable), ())
    found |= {name: table.standard[name] for name in list_removed_standard(python, table)}
    return found | {name: chains if table.exact else () for name, chains in table.needs.items()}


def list_removed_standard(python: PythonFacts, table: Imported) -> tuple[str, ...]:
    """Return what the import takes of Python's own library, as it was, and setuptools brings where Python has it no
    more.
    """
    if not versions.is_at_least(python.version, "3.12"):
        return ()
    return tuple(name for name in table.standard if name.partition(".")[0] == "distutils")


def distribution_of(module: str) -> str:
    """Return the distribution that a module comes with: "google.protobuf.message" → "protobuf"."""
    for name, distribution in MODULE_DISTRIBUTIONS.items():
        if module == name or module.startswith(f"{name}."):
            return distribution
    return normal(module.partition(".")[0])


def _oddities(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported, compat: Compat, beside: set[str]
) -> Iterator[Oddity]:
    """Yield everything that is unlike what is known to work, each once or more.

    `beside`: taken, and in no table.
    """
    installed = _first(python)
    taken = {distribution_of(name) for name in (*table.needs, *list_removed_standard(python, table))}
    maybe = {distribution_of(name) for name in (*table.tried, *(m for f in table.family.values() for m in f))}
    family = {normal(name) for name in (*table.family, *table.must)}
    relevant = _closure(installed, {*taken, *family, *beside, *(maybe & installed.keys())})
    known = _nearest_set(python, tensorflow, table, relevant, compat)
    for name in sorted(relevant | taken):
        one = installed.get(name)
        if one is None:
            if name in taken:
                yield Oddity(name, f"{name} is not registered here")
            continue
        if known.get(name) != one.version:
            yield Oddity(name, f"{name} {one.version} is not a version whose import was tested")
        elif any(difference.what in ODD_DIFFERENCES for difference in one.differs):
            yield Oddity(name, f"files of {name} {one.version} are not as it was installed with")
    for missing in unmet(python):
        if missing.package in {*relevant, *taken} or missing.by in relevant:
            yield Oddity(
                missing.package,
                f"{missing.by} asks for {missing.requirement}, and {missing.have or 'nothing'} is there",
            )
    for path in python.carried:
        yield Oddity(path, f"{path} is found before the system's own library of that name")
    tops = {name.partition(".")[0] for name in (*table.needs, *table.tried)}
    tops |= {m.partition(".")[0] for modules in table.family.values() for m in modules} | table.shadowable
    tops |= {name.partition(".")[0] for name in table.standard}
    for shadow in python.shadows:
        if shadow.name in tops:
            module = shadow.name if shadow.name in table.shadowable else distribution_of(shadow.name)
            module = "protobuf" if shadow.name == "google" else module
            yield Oddity(module, f"{shadow.taken} is found before the {shadow.name} in {shadow.hidden}")


def _find_variable_oddities(variables: Mapping[str, str]) -> Iterator[Oddity]:
    """Yield what packages of the import, or Python itself, read as they are imported, and take another way for."""
    for name, module in READ.items():
        if variables.get(name):
            yield Oddity(module, f"{name} is set to {variables[name]!r}")


READ = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "protobuf", "PYTHONWARNINGS": "warnings"}
"""Variable → the module that reads it."""


def _first(python: PythonFacts) -> dict[str, Distribution]:
    """Normalised name → the distribution that is first on the path."""
    return {one.name: one for one in reversed(python.distributions)}


def _closure(installed: Mapping[str, Distribution], start: set[str]) -> set[str]:
    """Return the installed ones of `start`, and what they require."""
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        one = installed.get(name)
        if name in found or one is None or name in TENSORFLOW_DISTRIBUTIONS:
            continue
        found.add(name)
        todo += [other for line in one.requires if (other := parse_required(line)) is not None]
    return found


@lru_cache(maxsize=4096)
def parse_required(line: str, *, extras: bool = False) -> str | None:
    """Return the name in a requirement; None if only an extra asks for it, and extras are not asked for."""
    if not extras and "extra" in line.partition(";")[2]:
        return None
    match = re.match(r"[A-Za-z0-9._-]{1,100}", line.strip())
    return normal(match[0]) if match is not None else None


def _dependents(python: PythonFacts, odd: set[str]) -> set[str]:
    """Return `odd`, and every distribution that requires one of them, or one that does."""
    found = set(odd)
    while True:
        more = {
            one.name
            for one in python.distributions
            if one.name not in found and any(parse_required(line) in found for line in one.requires)
        }
        if not more:
            return found
        found |= more


def _list_known_sets(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported, compat: Compat
) -> list[Mapping[str, str]]:
    """Return the versions of each environment in which this import worked."""
    sets = list(table.sets) if table.exact else []
    version = tensorflow.version or ""
    locked = compat.locks.get_lock(choose_locked_package(version), version, python.version)
    return [*sets, locked.versions] if locked is not None else sets


def _nearest_set(
    python: PythonFacts, tensorflow: TensorFlowFacts, table: Imported, relevant: set[str], compat: Compat
) -> Mapping[str, str]:
    """Return the versions of the environment in which this import worked that is most like this one."""
    installed = _first(python)
    return max(
        _list_known_sets(python, tensorflow, table, compat),
        key=lambda known: sum(
            known.get(name) == installed[name].version for name in relevant if name in installed
        ),
        default={},
    )


def good_version(
    python: PythonFacts, tensorflow: TensorFlowFacts, package: str, compat: Compat
) -> str | None:
    """Return the version of a package in the environment in which this import worked that is most like this one."""
    table = table_of(tensorflow, compat)
    if table is None:
        return None
    return _nearest_set(python, tensorflow, table, set(_first(python)), compat).get(package)


# ---------------------------------------------------------------- requirements


def unmet(python: PythonFacts) -> tuple[Unmet, ...]:
    """Return what TensorFlow, and everything that it requires, asks for and does not get in this Python."""
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
            wish = parse_asked(line, environment)
            if wish is None:
                continue
            have = installed.get(wish.package)
            todo.append(wish.package)
            if have is None:
                found[name, wish.package] = Unmet(name, format_asked(wish), wish.package, None)
            elif versions.is_version(have.version) and not met(wish, have.version):
                found[name, wish.package] = Unmet(name, format_asked(wish), wish.package, have.version)
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
