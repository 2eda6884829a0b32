"""Probe the examined Python and its TensorFlow, without importing TensorFlow."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
from typing import TYPE_CHECKING, Any

from tfdoctor.core import versions
from tfdoctor.core.errors import UsageError
from tfdoctor.core.facts import (
    TENSORFLOW_DISTRIBUTIONS,
    Absent,
    CondaPackage,
    Distribution,
    Fact,
    Known,
    PythonFacts,
    TensorFlowFacts,
    Unknown,
)
from tfdoctor.core.facts.files import ChangedFile, SharedFile
from tfdoctor.core.facts.imports import FileDifference, Shadow
from tfdoctor.core.facts.python import DeniedPath, StartupFailure, UnusablePython
from tfdoctor.core.text import clean_line
from tfdoctor.probes.interpreter_selection import get_prefix, is_environment
from tfdoctor.probes.interpreter_startup import diagnose_startup
from tfdoctor.probes.target import is_base_missing, query_python
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.result import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdoctor.core.facts.python import PythonChoice
    from tfdoctor.system import CommandResult, System

_BUILD_INFO_PAIR = re.compile(
    r"\(?['\"](\w{1,40})['\"]\s{0,4}[,:]\s{0,4}(?:u?['\"]([^'\"]{0,200})['\"]|(\w{1,20})|(\[[^\]]{0,400}\]))"
)
"""A pair in the dictionary of build_info.py: the value is a string, a name such as True, or a list."""
_BUILD_INFO_LINE = re.compile(
    r"^(\w{1,40})\s{0,4}=\s{0,4}(?:u?['\"]([^'\"]{0,200})['\"]|(\w{1,20}))\s*$", re.MULTILINE
)
"""An assignment in the build_info.py of older releases."""
_DEFINE = re.compile(r"^#define\s{1,8}(TF_\w{1,40})\s{1,8}(.{1,400})$", re.MULTILINE)
_HEADER_NUMBER = re.compile(r"^#define\s{1,8}TF_(MAJOR|MINOR|PATCH)_VERSION\s{1,8}(\d{1,5})", re.MULTILINE)
_HEADER_SUFFIX = re.compile(r"^#define\s{1,8}TF_VERSION_SUFFIX\s{1,8}\"([^\"]{0,60})\"", re.MULTILINE)


def probe(
    system: System, choice: PythonChoice, *, is_requested: bool, timeout: float
) -> tuple[Fact[PythonFacts], Fact[TensorFlowFacts]]:
    """Query the chosen interpreter, and return the facts about it and about its TensorFlow.

    If it does not answer within the first part of the time limit, it is queried again, because its files are cached
    by then. If it never answers, both facts are the same unknown fact. Raise UsageError if the user requested the
    interpreter (`is_requested`) and it is not a Python.
    """
    python = choice.path
    if is_base_missing(choice):
        unusable = _make_unusable_fact(
            StartupFailure(kind="base-gone", path=python, how="leads to a Python that is gone")
        )
        return unusable, unusable
    start_time = time.monotonic()
    first_answer, result = query_python(system, python, timeout=timeout)
    answer = dict(first_answer)
    if "version" not in answer:
        remaining = max(0.2, timeout - (time.monotonic() - start_time))
        startup_failure, description, second_answer = _diagnose_and_retry(system, python, result, remaining)
        answer.update(second_answer)
        if "version" not in answer:
            unanswered = _make_unanswered_fact(
                system, choice, result, startup_failure, description, is_requested=is_requested
            )
            return unanswered, unanswered
    facts = _make_python_facts(answer, choice.how)
    source = f"{facts.executable} (its files, nothing imported)"
    raw_tensorflow = answer.get("tensorflow")
    if not isinstance(raw_tensorflow, dict):
        return Known(facts, source), Absent(
            source, f"no tensorflow package on the path of {facts.executable}"
        )
    tensorflow = _make_tensorflow_facts(raw_tensorflow, facts, answer.get("shadow"))
    raw_hidden = answer.get("behind")
    if isinstance(raw_hidden, dict):
        tensorflow = dataclasses.replace(tensorflow, behind=_make_tensorflow_facts(raw_hidden, facts, None))
    return Known(facts, source), Known(tensorflow, str(raw_tensorflow.get("package_dir")))


def _diagnose_and_retry(
    system: System, python: str, first_result: CommandResult, remaining_s: float
) -> tuple[StartupFailure | None, str, Mapping[str, Any]]:
    """Diagnose a Python that did not answer. If it timed out, query it again at the same time.

    Return (startup failure or None, description, answer to the second query or an empty mapping).
    """
    results: list[tuple[Mapping[str, Any], CommandResult]] = []

    def run_second_query() -> None:
        results.append(run_payload(system, python, "target", timeout=remaining_s, variant="patient"))

    thread = threading.Thread(target=run_second_query, daemon=True)
    if first_result.failure is Failure.TIMEOUT:
        thread.start()
    startup_failure, description = diagnose_startup(system, python, first_result, timeout=remaining_s * 0.9)
    if first_result.failure is not Failure.TIMEOUT:
        return startup_failure, description, {}
    thread.join()
    answer, _ = results[0] if results else ({}, None)
    return startup_failure, description, answer


def _make_unanswered_fact(
    system: System,
    choice: PythonChoice,
    result: CommandResult,
    startup_failure: StartupFailure | None,
    description: str,
    *,
    is_requested: bool,
) -> Unknown:
    """Return the fact about a Python that did not answer.

    Raise UsageError if the user requested it and it is not a Python.
    """
    python = choice.path
    if startup_failure is None:
        return Unknown(f"{python} {description}", python)
    is_environment_python = startup_failure.kind in ("site", "silent") or is_environment(
        system, get_prefix(python)
    )
    if not is_requested or is_environment_python:
        return _make_unusable_fact(startup_failure)
    message = f"--python: {clean_line(choice.how)} is not a Python: it {result.describe_outcome()}."
    error_text = startup_failure.said or startup_failure.detail
    raise UsageError(message, hint=f"It said: {startup_failure.said}" if startup_failure.said else error_text)


def _make_unusable_fact(startup_failure: StartupFailure) -> UnusablePython:
    """Return the fact about a Python that cannot be used."""
    details = "".join(f": {text}" for text in (startup_failure.detail, startup_failure.said) if text)
    return UnusablePython(
        f"{startup_failure.path} {startup_failure.how}{details}", startup_failure.path, startup_failure
    )


def _make_python_facts(raw: Mapping[str, Any], requested: str) -> PythonFacts:
    """Return the facts about the Python from the child's answer."""
    version = str(raw.get("version", ""))
    major_minor = [*version.split("."), "", ""][:2]
    prefix = str(raw.get("prefix", ""))
    return PythonFacts(
        requested=clean_line(requested),
        executable=str(raw.get("executable") or ""),
        real_executable=str(raw.get("real_executable") or ""),
        version=version,
        implementation=str(raw.get("implementation", "")),
        bits=int(raw.get("bits", 64)),
        machine=str(raw.get("machine", "")),
        glibc=raw.get("glibc"),
        prefix=prefix,
        base_prefix=str(raw.get("base_prefix") or prefix),
        abi_flags=str(raw.get("abi_flags", "")),
        platform=str(raw.get("platform", "")),
        virtual=prefix != raw.get("base_prefix", prefix),
        conda_prefix=prefix if raw.get("conda") else None,
        externally_managed=bool(raw.get("externally_managed")),
        sys_path=tuple(map(str, raw.get("sys_path", ()))),
        site_packages=tuple(map(str, raw.get("site_packages", ()))),
        distributions=tuple(
            Distribution(
                name=normalize_name(str(entry.get("name", ""))),
                version=clean_line(str(entry.get("version", ""))),
                location=str(entry.get("location", "")),
                installer=str(entry["installer"]) if entry.get("installer") is not None else None,
                requires=tuple(clean_line(str(line)) for line in entry.get("requires", ())),
                lost=tuple(clean_line(str(path)) for path in entry.get("lost", ())),
                differs=tuple(
                    FileDifference(clean_line(str(path)), clean_line(str(problem)))
                    for path, problem in _filter_by_length(entry.get("differs"), 2)
                ),
                changed=tuple(_iter_changed_files(entry.get("changed"))),
                files=tuple(clean_line(str(path)) for path in entry.get("files", ())),
                pins=tuple(clean_line(str(line)) for line in entry.get("pins", ())),
                real_location=str(entry.get("real_location") or ""),
            )
            for entry in raw.get("distributions", ())
            if isinstance(entry, dict)
        ),
        conda_packages=tuple(
            CondaPackage(str(entry.get("name")), str(entry.get("version")), str(entry.get("build")))
            for entry in raw.get("conda_packages", ())
            if isinstance(entry, dict)
        ),
        modules=tuple(map(str, raw.get("modules") or ())),
        absent=tuple(normalize_name(str(name)) for name in raw.get("absent") or ()),
        shared=tuple(_iter_shared_files(raw.get("shared"))),
        carried=tuple(clean_line(str(path)) for path in raw.get("carried") or ()),
        lacks=tuple(clean_line(str(module)) for module in raw.get("lacks") or ()),
        mapped=tuple(map(str, raw.get("mapped") or ())),
        shadows=tuple(Shadow(*map(str, shadow)) for shadow in _filter_by_length(raw.get("shadows"), 3)),
        closed=_parse_denied(raw.get("closed")),
        pip=_parse_bool(raw.get("pip")),
        ensurepip=_parse_bool(raw.get("ensurepip")),
        user_site=str(raw["user_site"]) if raw.get("user_site") else None,
        unwritable=tuple(
            (str(folder), clean_line(str(owner)))
            for folder, owner in _filter_by_length(raw.get("unwritable"), 2)
        ),
        noexec=tuple(
            (str(folder), str(mount_point)) for folder, mount_point in _filter_by_length(raw.get("noexec"), 2)
        ),
        tag=f"{'cp' if raw.get('implementation') == 'CPython' else 'pp'}{major_minor[0]}{major_minor[1]}",
    )


def _iter_changed_files(raw: Any) -> Iterator[ChangedFile]:
    """Yield the changed files of a distribution."""
    for entry in raw or ():
        yield ChangedFile(
            path=clean_line(str(entry.get("path", ""))),
            recorded=int(entry.get("recorded", 0)),
            size=int(entry.get("size", 0)),
            cut=bool(entry.get("cut")),
            foreign=bool(entry.get("foreign")),
        )


def _iter_shared_files(raw: Any) -> Iterator[SharedFile]:
    """Yield the files that several distributions have installed."""
    for entry in raw or ():
        owners = tuple(_parse_owner(owner_entry) for owner_entry in entry.get("owners", ()))
        current = entry.get("now")
        yield SharedFile(
            path=clean_line(str(entry.get("path", ""))),
            location=str(entry.get("location", "")),
            owners=owners,
            now=_parse_owner(current) if current else None,
        )


def _parse_owner(raw: Any) -> tuple[str, str]:
    """Return (normalized name, version) of a distribution that owns a file."""
    name, version = raw
    return normalize_name(str(name)), clean_line(str(version))


def _parse_denied(raw: object) -> tuple[DeniedPath, ...]:
    """Return the paths that this user may not read, from the child's answer.

    Each entry is [path, path that forbids access, its owner, whether this user is the owner, its mode].
    """
    return tuple(
        DeniedPath(
            path=str(path),
            closed=str(closed),
            owner=clean_line(str(owner), limit=64) if owner is not None else None,
            own=bool(is_own) if is_own is not None else None,
            mode=clean_line(str(mode), limit=8) if mode is not None else None,
        )
        for path, closed, owner, is_own, mode in _filter_by_length(raw, 5)
    )


def _parse_bool(raw: object) -> bool | None:
    return raw if isinstance(raw, bool) else None


def _make_tensorflow_facts(raw: Mapping[str, Any], python: PythonFacts, shadow: object) -> TensorFlowFacts:
    """Return the facts about TensorFlow from the child's answer.

    `shadow` is the path of a module that hides the package, or None.
    """
    package_dir = str(raw.get("package_dir", ""))
    site_folder = package_dir.rpartition("/")[0]
    tensorflow_distributions = [d for d in python.distributions if d.name in TENSORFLOW_DISTRIBUTIONS]
    preferred_distributions = [
        d for d in tensorflow_distributions if d.location == site_folder
    ] or tensorflow_distributions
    header_version = parse_version_header(str(raw.get("version_header") or ""))
    distribution = next(
        (d for d in preferred_distributions if header_version and is_same_release(d.version, header_version)),
        preferred_distributions[0] if preferred_distributions else None,
    )
    conda_package = next(
        (p for p in python.conda_packages if p.name in ("tensorflow-base", "tensorflow", "tensorflow-gpu")),
        None,
    )
    # If the header contradicts the metadata of the distribution, the header decides.
    return TensorFlowFacts(
        package_dir=package_dir,
        core_dir=str(raw.get("core_dir", package_dir)),
        version=header_version
        if header_version and distribution and not is_same_release(distribution.version, header_version)
        else (distribution.version if distribution else header_version),
        distribution=distribution.name if distribution else None,
        framework=raw.get("framework"),
        pywrap=raw.get("pywrap"),
        missing_files=tuple(map(str, raw.get("missing", ()))),
        build_info=parse_build_info(str(raw.get("build_info") or "")),
        cuda_config=parse_cuda_config(str(raw.get("cuda_config") or "")),
        shadowed_by=str(shadow) if shadow else None,
        conda_build=conda_package.build if conda_package else None,
        plugins=tuple(map(str, raw.get("plugins") or ())),
        archive=raw.get("archive"),
    )


def _filter_by_length(raw: object, length: int) -> list[Any]:
    """Return the items of a list that are lists of this length, or [] if the value is not a list."""
    entries = raw if isinstance(raw, list) else []
    return [entry for entry in entries if isinstance(entry, list) and len(entry) == length]


def normalize_name(name: str) -> str:
    """Return the name of a distribution, normalized as in PEP 503."""
    return versions.normalize_project_name(clean_line(name))


def is_same_release(left: str, right: str) -> bool:
    """Return whether two version strings mean the same release, such as "2.22.0-rc0" and "2.22.0rc0"."""
    return _normalize_version(left) == _normalize_version(right)


def _normalize_version(version: str) -> str:
    """Return a version without hyphens, local version and post-release, for comparison."""
    return re.sub(r"[^0-9a-z.]", "", version.lower().split("+")[0].split(".post")[0])


def parse_build_info(text: str) -> dict[str, str]:
    """Return the values in a build_info.py of any release, by name.

    All values are strings, such as "True", "12.5.1" and "['sm_60', …]". Values with an old name are also added under
    the new name.
    """
    values: dict[str, str] = {}
    for pattern in (_BUILD_INFO_LINE, _BUILD_INFO_PAIR):
        for match in pattern.finditer(text):
            value = next((group for group in match.groups()[1:] if group is not None), "")
            values.setdefault(match[1], clean_line(value))
    for old_name, new_name in (
        ("cuda_version_number", "cuda_version"),
        ("cudnn_version_number", "cudnn_version"),
    ):
        if old_name in values:
            values.setdefault(new_name, values[old_name])
    return values


def parse_cuda_config(text: str) -> dict[str, str]:
    """Return the values of the TF_* macros in cuda_config.h by name, without quotes."""
    return {match[1]: clean_line(match[2]).strip('"') for match in _DEFINE.finditer(text)}


def parse_version_header(text: str) -> str | None:
    """Return the version in version.h or release_version.h, such as "2.21.0", or None if incomplete."""
    numbers = {match[1]: match[2] for match in _HEADER_NUMBER.finditer(text)}
    if len(numbers) < 3:
        return None
    suffix = _HEADER_SUFFIX.search(text)
    return f"{numbers['MAJOR']}.{numbers['MINOR']}.{numbers['PATCH']}{suffix[1] if suffix else ''}"
