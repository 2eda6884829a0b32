"""Strict readers of the tables in `compat/`.

A table that says something unknown, or leaves something out, is refused with the place and the likely
meaning: `compat/cuda.toml: release 12.9: unknown key `cudann`, did you mean `cudnn`?`
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from tfdoctor.compat import models
from tfdoctor.data import data_dir
from tfdoctor.parse import toml
from tfdoctor.versions import VersionSyntaxError, parse, parse_capability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tfdoctor.compat import models_cuda, models_gpus, models_libraries

__all__ = [
    "DataError",
    "Table",
    "load_cuda",
    "load_cudnn",
    "load_gpus",
    "load_libraries",
    "load_problems",
    "load_tensorflow",
    "read_json",
    "read_toml",
]

T = TypeVar("T")


class DataError(ValueError):
    """A table in compat/ is not as it must be; the message says where and what was expected."""


def _suggest(word: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean `{close[0]}`?" if close else ""


class Table:
    """One table of a file: values are taken out by name and kind, and `done` refuses what is left.

    `where` is `"compat/cuda.toml: release 12.9"`; it begins every message.
    """

    __slots__ = ("_taken", "raw", "where")

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            msg = f"{where}: a table was expected, not {_kind(raw)}"
            raise DataError(msg)
        self.raw: dict[str, Any] = raw
        self.where = where
        self._taken: list[str] = []

    def fail(self, message: str) -> DataError:
        """An error at this place, to be raised."""
        return DataError(f"{self.where}: {message}")

    def _take(self, key: str, *, optional: bool = False) -> Any:
        self._taken.append(key)
        try:
            return self.raw[key]
        except KeyError:
            if optional:
                return None
        unknown = [name for name in self.raw if name not in self._taken]
        import difflib

        close = difflib.get_close_matches(key, unknown, n=1, cutoff=0.6)
        if close:
            msg = f"unknown key `{close[0]}`, did you mean `{key}`?"
            raise self.fail(msg)
        msg = f"`{key}` is missing"
        raise self.fail(msg)

    def _wrong(self, key: str, expected: str, value: object) -> DataError:
        return self.fail(f"`{key}` must be {expected}, not {_kind(value)}")

    def text(self, key: str) -> str:
        """A string that is not empty."""
        value = self._take(key)
        if type(value) is not str:
            raise self._wrong(key, "text", value)
        if not value:
            msg = f"`{key}` is empty"
            raise self.fail(msg)
        return value

    def opt_text(self, key: str) -> str | None:
        """A string, or None where it is null or absent."""
        value = self._take(key, optional=True)
        if value is None or type(value) is str:
            return value
        raise self._wrong(key, "text", value)

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self._take(key)
        if type(value) is not bool:
            raise self._wrong(key, "true or false", value)
        return value

    def opt_flag(self, key: str) -> bool | None:
        """true, false, or None where it is null or absent."""
        value = self._take(key, optional=True)
        if value is None or type(value) is bool:
            return value
        raise self._wrong(key, "true or false", value)

    def whole(self, key: str) -> int:
        """A whole number that is not negative."""
        value = self._take(key)
        if type(value) is not int or value < 0:
            raise self._wrong(key, "a whole number", value)
        return value

    def texts(self, key: str, *, optional: bool = False) -> tuple[str, ...]:
        """A list of strings; `optional`: empty where absent."""
        value = self._take(key, optional=optional)
        if value is None and optional:
            return ()
        if type(value) is not list or any(type(item) is not str for item in value):
            raise self._wrong(key, "a list of texts", value)
        return tuple(value)

    def opt_texts(self, key: str) -> tuple[str, ...] | None:
        """A list of strings, or None where it is null or absent."""
        if self.raw.get(key) is None:
            self._taken.append(key)
            return None
        return self.texts(key)

    def wholes(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self._take(key)
        if type(value) is not list or any(type(item) is not int for item in value):
            raise self._wrong(key, "a list of whole numbers", value)
        return tuple(value)

    def pairs(self, key: str, *, optional: bool = False) -> dict[str, str]:
        """A table of strings; `optional`: empty where absent."""
        value = self._take(key, optional=optional)
        if value is None and optional:
            return {}
        if type(value) is not dict or any(type(item) is not str for item in value.values()):
            raise self._wrong(key, "a table of texts", value)
        return dict(value)

    def choice(self, key: str, allowed: tuple[str, ...]) -> Any:
        """One of `allowed`."""
        value = self.text(key)
        if value not in allowed:
            msg = f"`{key}` is `{value}`; it can be {', '.join(allowed)}{_suggest(value, allowed)}"
            raise self.fail(msg)
        return value

    def tables(self, key: str) -> list[Any]:
        """A list of tables, still raw."""
        value = self._take(key)
        if type(value) is not list:
            raise self._wrong(key, "a list of tables", value)
        return value

    def table(self, key: str) -> Table:
        """A table inside this one."""
        return Table(self._take(key), f"{self.where}: {key}")

    def done(self) -> None:
        """Refuse every key that nobody took."""
        if len(self.raw) <= len(self._taken) and self.raw.keys() <= set(self._taken):
            return
        unknown = next(name for name in self.raw if name not in self._taken)
        msg = f"unknown key `{unknown}`{_suggest(unknown, self._taken)}"
        raise self.fail(msg)


def _kind(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "text", bool: "true or false", int: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def read_json(path: Path) -> Table:
    """The top table of a JSON file; DataError where it is not JSON."""
    where = f"compat/{path.name}"
    try:
        return Table(json.loads(path.read_bytes()), where)
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        msg = f"{where}: not JSON: {error}"
        raise DataError(msg) from error


def read_toml(path: Path) -> Table:
    """The top table of a TOML file; DataError where it is not TOML."""
    where = f"compat/{path.name}"
    try:
        return Table(toml.loads(path.read_text(encoding="utf-8")), where)
    except (toml.TomlError, UnicodeDecodeError) as error:
        msg = f"{where}: not TOML: {error}"
        raise DataError(msg) from error


def _as_of(top: Table) -> str:
    version = top.whole("schema_version")
    if version != 1:
        msg = f"schema_version is {version}; this tfdoctor reads 1"
        raise top.fail(msg)
    return top.text("as_of")


def _rows(
    top: Table, key: str, noun: str, name: Callable[[Any], str], build: Callable[[Table], T]
) -> tuple[T, ...]:
    """Every table of list `key` built; `noun name` tells in messages which one is meant."""
    result = []
    for index, raw in enumerate(top.tables(key)):
        label = name(raw) if isinstance(raw, dict) else ""
        row = Table(raw, f"{top.where}: {noun} {label or index + 1}")
        result.append(build(row))
        row.done()
    if not result:
        msg = f"`{key}` has no rows"
        raise top.fail(msg)
    return tuple(result)


def _field(*keys: str) -> Callable[[Any], str]:
    return lambda raw: " ".join(str(raw[key]) for key in keys if key in raw)


_EVIDENCE = get_args(models.Evidence)
_LINKAGE = get_args(models.Linkage)


def _evidence(row: Table) -> models.Evidence:
    return cast("models.Evidence", row.choice("evidence", _EVIDENCE))


def _sources(row: Table) -> tuple[str, ...]:
    sources = row.texts("sources")
    if not sources:
        raise row.fail("`sources` is empty: every row says where it is from")
    return sources


def _folder(folder: Path | None) -> Path:
    return data_dir("compat") if folder is None else folder


# --- tensorflow.json ---


def load_tensorflow(folder: Path | None = None) -> tuple[str, tuple[models.Release, ...]]:
    """compat/tensorflow.json: its date, and its rows in the file's order (version, then package).

    Repeated values (requirement lists, RUNPATHs, sources …) stand once in the file's `shared` list; a row
    refers to them by index. Raises DataError.
    """
    top = read_json(_folder(folder) / "tensorflow.json")
    as_of = _as_of(top)
    shared = top.tables("shared")
    rows = _rows(top, "releases", "release", _field("package", "version"), lambda row: _release(row, shared))
    top.done()
    return as_of, rows


def _shared_texts(row: Table, key: str, shared: list[Any]) -> tuple[str, ...]:
    value = _shared(row, key, shared)
    if type(value) is not list or any(type(item) is not str for item in value):
        msg = f"`{key}` must point at a list of texts, not {_kind(value)}"
        raise row.fail(msg)
    return tuple(value)


def _shared(row: Table, key: str, shared: list[Any]) -> Any:
    index = row.whole(key)
    if index >= len(shared):
        msg = f"`{key}` is {index}, but `shared` has only {len(shared)} entries"
        raise row.fail(msg)
    return shared[index]


def _runpath(row: Table, shared: list[Any]) -> dict[str, tuple[str, ...]]:
    value = _shared(row, "runpath", shared)
    if type(value) is not dict or any(type(item) is not list for item in value.values()):
        msg = f"`runpath` must point at a table of lists, not {_kind(value)}"
        raise row.fail(msg)
    return {name: tuple(folders) for name, folders in value.items()}


def _defines(row: Table, shared: list[Any]) -> dict[str, str]:
    value = _shared(row, "defines", shared)
    if type(value) is not dict or any(type(item) is not str for item in value.values()):
        msg = f"`defines` must point at a table of texts, not {_kind(value)}"
        raise row.fail(msg)
    return value


def _release(row: Table, shared: list[Any]) -> models.Release:
    floor_evidence = row.opt_text("registration_floor_evidence")
    if floor_evidence is not None and floor_evidence not in _EVIDENCE:
        msg = f"`registration_floor_evidence` is `{floor_evidence}`"
        raise row.fail(msg)
    return models.Release(
        package=row.text("package"),
        version=row.text("version"),
        released=row.text("released"),
        yanked=row.flag("yanked"),
        gpu=row.flag("gpu"),
        windows_gpu=row.opt_flag("windows_gpu"),
        linkage=row.choice("linkage", _LINKAGE),
        linux_pythons=_shared_texts(row, "linux_pythons", shared),
        windows_pythons=_shared_texts(row, "windows_pythons", shared),
        platform_tag=row.text("platform_tag"),
        wheel=row.text("wheel"),
        size=row.whole("size"),
        unpacked=row.whole("unpacked"),
        sha256=row.text("sha256"),
        cuda=row.opt_text("cuda"),
        cudnn=row.opt_text("cudnn"),
        defines=_defines(row, shared),
        required_libraries=_shared_texts(row, "required_libraries", shared),
        optional_libraries=_shared_texts(row, "optional_libraries", shared),
        driver_libraries=_shared_texts(row, "driver_libraries", shared),
        libraries_from=row.text("libraries_from"),
        runpath=_runpath(row, shared),
        runpath_misses=_shared_texts(row, "runpath_misses", shared),
        cubin=_shared_texts(row, "cubin", shared),
        ptx=_shared_texts(row, "ptx", shared),
        ptx_arch_specific=_shared_texts(row, "ptx_arch_specific", shared),
        registration_floor=row.opt_text("registration_floor"),
        registration_floor_evidence=cast("models.Evidence | None", floor_evidence),
        glibc=row.opt_text("glibc"),
        glibcxx=row.opt_text("glibcxx"),
        cxxabi=row.opt_text("cxxabi"),
        cpu_instructions=row.opt_texts("cpu_instructions"),
        pip_extra=row.opt_text("pip_extra"),
        extra_pins=_shared_texts(row, "extra_pins", shared),
        requires=_shared_texts(row, "requires", shared),
        evidence=_evidence(row),
        inferred_from=row.opt_text("inferred_from"),
        sources=_shared_texts(row, "sources", shared),
    )


# --- cuda.toml ---


class CudaTables:
    """The four tables of compat/cuda.toml."""

    __slots__ = ("as_of", "families", "forward_compatibility", "releases", "series")

    def __init__(self, top: Table) -> None:
        from tfdoctor.compat import models_cuda

        self.as_of = _as_of(top)
        self.families = _rows(top, "family", "family", _field("major"), _family)
        self.releases = _rows(top, "release", "release", _field("version"), _cuda_release)
        self.series = _rows(top, "series", "series", _field("version"), _series)
        forward = top.table("forward_compatibility")
        self.forward_compatibility = models_cuda.ForwardCompatibility(
            package=forward.text("package"),
            since=forward.text("since"),
            only_for=forward.texts("only_for"),
            errors=forward.wholes("errors"),
            note=forward.text("note"),
            sources=_sources(forward),
        )
        forward.done()
        top.done()


def load_cuda(folder: Path | None = None) -> CudaTables:
    """compat/cuda.toml. Raises DataError."""
    return CudaTables(read_toml(_folder(folder) / "cuda.toml"))


def _family(row: Table) -> models_cuda.CudaFamily:
    from tfdoctor.compat import models_cuda

    return models_cuda.CudaFamily(
        major=row.whole("major"),
        linux=row.opt_text("linux"),
        windows=row.opt_text("windows"),
        minor_version_compatibility=row.flag("minor_version_compatibility"),
        note=row.text("note"),
        sources=_sources(row),
    )


def _cuda_release(row: Table) -> models_cuda.CudaRelease:
    from tfdoctor.compat import models_cuda

    return models_cuda.CudaRelease(
        version=row.text("version"),
        name=row.text("name"),
        linux=row.opt_text("linux"),
        windows=row.opt_text("windows"),
        sources=_sources(row),
    )


def _capabilities(row: Table, key: str) -> tuple[str, ...]:
    texts = row.texts(key)
    for text in texts:
        _capability(row, key, text)
    return texts


def _capability(row: Table, key: str, text: str) -> str:
    try:
        parse_capability(text)
    except VersionSyntaxError as error:
        msg = f"`{key}`: {error}"
        raise row.fail(msg) from error
    return text


def _series(row: Table) -> models_cuda.CudaSeries:
    from tfdoctor.compat import models_cuda

    return models_cuda.CudaSeries(
        version=row.text("version"),
        capabilities=_capabilities(row, "capabilities"),
        driver_branch=row.opt_text("driver_branch"),
        evidence=_evidence(row),
        sources=_sources(row),
    )


# --- cudnn.toml ---


def load_cudnn(folder: Path | None = None) -> tuple[str, tuple[models_cuda.CudnnRange, ...]]:
    """compat/cudnn.toml: its date and its ranges, oldest first. Raises DataError."""
    top = read_toml(_folder(folder) / "cudnn.toml")
    as_of = _as_of(top)
    rows = _rows(top, "range", "range", _field("first"), _cudnn_range)
    top.done()
    return as_of, rows


def _cudnn_range(row: Table) -> models_cuda.CudnnRange:
    from tfdoctor.compat import models_cuda

    return models_cuda.CudnnRange(
        first=row.text("first"),
        below=row.text("below"),
        cuda=row.wholes("cuda"),
        lowest=_capability(row, "lowest", row.text("lowest")),
        highest=_capability(row, "highest", row.text("highest")),
        ptx=row.opt_text("ptx"),
        glibc=row.opt_text("glibc"),
        evidence=_evidence(row),
        measured=row.texts("measured"),
        note=row.opt_text("note") or "",
        sources=_sources(row),
    )


# --- libraries.toml ---

_ROLES = ("registration", "lazy", "dependency", "driver", "optional")


def load_libraries(
    folder: Path | None = None,
) -> tuple[str, tuple[models_libraries.LibraryFamily, ...], tuple[models_libraries.Distribution, ...]]:
    """compat/libraries.toml: its date, the library families, the distributions. Raises DataError."""
    top = read_toml(_folder(folder) / "libraries.toml")
    as_of = _as_of(top)
    families = _rows(top, "library", "library", _field("stem"), _library)
    distributions = _rows(top, "distribution", "distribution", _field("name"), _distribution)
    top.done()
    return as_of, families, distributions


def _library(row: Table) -> models_libraries.LibraryFamily:
    from tfdoctor.compat import models_libraries

    wheels = {}
    for key, value in row.pairs("wheels", optional=True).items():
        project, _, place = value.partition(" ")
        if not key.isdigit() or not place:
            msg = f"`wheels`: `{key} = {value}` is not `CUDA major = project folder`"
            raise row.fail(msg)
        wheels[int(key)] = models_libraries.PypiWheel(project=project, folder=place, cuda_major=int(key))
    return models_libraries.LibraryFamily(
        stem=row.text("stem"),
        title=row.text("title"),
        role=row.choice("role", _ROLES),
        define=row.opt_text("define"),
        first_tf=row.opt_text("first_tf"),
        last_tf=row.opt_text("last_tf"),
        sonames=row.pairs("sonames", optional=True),
        wheels=wheels,
        debian=row.pairs("debian", optional=True),
        distro=row.pairs("distro", optional=True),
        conda=row.opt_text("conda"),
        sources=_sources(row),
    )


def _distribution(row: Table) -> models_libraries.Distribution:
    from tfdoctor.compat import models_libraries

    return models_libraries.Distribution(
        name=row.text("name"),
        gpu=row.opt_flag("gpu"),
        same_as=row.opt_text("same_as"),
        note=row.text("note"),
        sources=_sources(row),
    )


# --- problems.toml ---

_AREAS = ("libraries", "python", "gpu", "images", "packaging")
_SEVERITIES = ("error", "warning", "info")
_CONDITIONS = ("capability", "extra", "image", "python", "platform")


def load_problems(folder: Path | None = None) -> tuple[str, tuple[models_libraries.Problem, ...]]:
    """compat/problems.toml: its date and its problems in the file's order. Raises DataError."""
    top = read_toml(_folder(folder) / "problems.toml")
    as_of = _as_of(top)
    rows = _rows(top, "problem", "problem", _field("id"), _problem)
    top.done()
    return as_of, rows


def _problem(row: Table) -> models_libraries.Problem:
    from tfdoctor.compat import models_libraries

    conditions = row.pairs("when", optional=True)
    for key in conditions:
        if key not in _CONDITIONS:
            msg = f"`when`: unknown key `{key}`{_suggest(key, _CONDITIONS)}"
            raise row.fail(msg)
    return models_libraries.Problem(
        id=row.text("id"),
        package=row.texts("package"),
        versions=row.text("versions"),
        cause=row.text("cause"),
        area=row.choice("area", _AREAS),
        severity=row.choice("severity", _SEVERITIES),
        title=row.text("title"),
        text=row.text("text"),
        when=conditions,
        remedy=row.text("remedy"),
        pins=row.texts("pins", optional=True),
        seen=row.text("seen"),
        evidence=_evidence(row),
        sources=_sources(row),
    )


# --- gpus.json ---


def load_gpus(folder: Path | None = None) -> tuple[str, tuple[models_gpus.Gpu, ...]]:
    """compat/gpus.json: its date and its GPUs. Raises DataError."""
    top = read_json(_folder(folder) / "gpus.json")
    as_of = _as_of(top)
    sources = top.pairs("sources")
    rows = _rows(top, "gpus", "GPU", _field("name"), lambda row: _gpu(row, sources))
    top.pairs("ambiguous")
    top.done()
    return as_of, rows


def _gpu(row: Table, sources: Mapping[str, str]) -> models_gpus.Gpu:
    from tfdoctor.compat import models_gpus

    keys = row.texts("sources")
    for key in keys:
        if key not in sources:
            msg = f"source `{key}` is not explained{_suggest(key, sources)}"
            raise row.fail(msg)
    return models_gpus.Gpu(
        name=row.text("name"),
        capability=row.text("cc"),
        pci_ids=row.texts("pci", optional=True),
        sources=tuple(sources[key] for key in keys),
    )


def check_sorted(rows: Iterable[models.Release]) -> None:
    """Refuse release rows that are not ordered by version, then package, or that occur twice."""
    previous: tuple[Any, ...] | None = None
    for row in rows:
        key = (parse(row.version), row.package)
        if previous is not None and key <= previous:
            msg = f"compat/tensorflow.json: release {row.package} {row.version} is out of order"
            raise DataError(msg)
        previous = key
