"""The target Python and the TensorFlow in it: read from outside, nothing of it imported."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tfdoctor.errors import UsageError
from tfdoctor.facts import (
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
from tfdoctor.probes.payload import run_payload
from tfdoctor.redact import clean_line
from tfdoctor.system.result import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.system import System

_BUILD_INFO_PAIR = re.compile(
    r"\(?['\"](\w{1,40})['\"]\s{0,4}[,:]\s{0,4}(?:u?['\"]([^'\"]{0,200})['\"]|(\w{1,20})|(\[[^\]]{0,400}\]))"
)
_BUILD_INFO_LINE = re.compile(
    r"^(\w{1,40})\s{0,4}=\s{0,4}(?:u?['\"]([^'\"]{0,200})['\"]|(\w{1,20}))\s*$", re.MULTILINE
)
_DEFINE = re.compile(r"^#define\s{1,8}(TF_\w{1,40})\s{1,8}(.{1,400})$", re.MULTILINE)
_HEADER_NUMBER = re.compile(r"^#define\s{1,8}TF_(MAJOR|MINOR|PATCH)_VERSION\s{1,8}(\d{1,5})", re.MULTILINE)
_HEADER_SUFFIX = re.compile(r"^#define\s{1,8}TF_VERSION_SUFFIX\s{1,8}\"([^\"]{0,60})\"", re.MULTILINE)


def find_python(system: System, requested: str | None) -> tuple[str, str]:
    """(command or path to run, how it was chosen).

    The active virtual or conda environment's Python, else `python3` on PATH, else `python`. A `requested` path
    that is a folder is taken as an environment. Raises UsageError where there is nothing to run.
    """
    if requested is not None:
        return _requested(system, requested), requested
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = system.env.get(variable)
        if prefix:
            for name in ("bin/python", "python.exe", "Scripts/python.exe"):
                candidate = f"{prefix.rstrip('/')}/{name}"
                if system.exists(candidate):
                    return candidate, f"${variable}"
    for name in ("python3", "python"):
        found = system.which(name)
        if found:
            return found, f"{name} on PATH"
    raise UsageError(
        "No Python found: no active environment, no python3 on PATH.", hint="Name one with --python PATH."
    )


def _requested(system: System, requested: str) -> str:
    if not requested.strip() or "\0" in requested:
        raise UsageError("--python: an empty path, or one with a null character, names no interpreter.")
    if "/" not in requested and "\\" not in requested and not system.exists(_absolute(system, requested)):
        found = system.which(requested)
        if found is None:
            message = f"--python: there is no `{clean_line(requested)}` on PATH."
            raise UsageError(message)
        return found
    path = _absolute(system, requested)
    if system.is_dir(path):
        for name in ("bin/python", "bin/python3", "python.exe", "Scripts/python.exe"):
            if system.exists(f"{path.rstrip('/')}/{name}"):
                return f"{path.rstrip('/')}/{name}"
        message = f"--python: {clean_line(requested)} is a folder without bin/python."
        raise UsageError(message, hint="Name the interpreter itself, or the folder of a virtual environment.")
    if not system.exists(path):
        message = f"--python: {clean_line(requested)} does not exist."
        raise UsageError(message)
    return path


def _absolute(system: System, path: str) -> str:
    if path.startswith("~/") and "HOME" in system.env:
        return f"{system.env['HOME']}/{path[2:]}"
    return path if path.startswith("/") or ":" in path[:3] else f"{system.cwd.rstrip('/')}/{path}"


def probe(
    system: System, python: str, chosen: str, *, asked: bool, timeout: float
) -> tuple[Fact[PythonFacts], Fact[TensorFlowFacts]]:
    """Ask the interpreter `python`. Where the user named it (`asked`), one that is no Python is a UsageError."""
    answer, result = run_payload(system, python, "target", timeout=timeout)
    if "version" not in answer:
        why = f"{python} {result.why()}"
        if result.failure is Failure.TIMEOUT:
            return Unknown(why, python), Unknown(why, python)
        detail = clean_line(result.stderr or result.stdout, limit=160)
        if detail.count("\ufffd") > len(detail) // 10:
            detail = "something that is no text"
        if asked:
            message = f"--python: {clean_line(chosen)} does not answer as a Python does: it {result.why()}."
            raise UsageError(message, hint=f"It said: {detail}" if detail else "")
        return (Unknown(f"{why}: {detail}", python),) * 2
    facts = _python(answer, chosen)
    source = f"{facts.executable} (its files, nothing imported)"
    raw = answer.get("tensorflow")
    if not isinstance(raw, dict):
        return Known(facts, source), Absent(
            source, f"no tensorflow package on the path of {facts.executable}"
        )
    return Known(facts, source), Known(
        _tensorflow(raw, facts, answer.get("shadow")), str(raw.get("package_dir"))
    )


def _python(raw: Mapping[str, Any], chosen: str) -> PythonFacts:
    version = str(raw.get("version", ""))
    parts = [*version.split("."), "", ""][:2]
    prefix = str(raw.get("prefix", ""))
    return PythonFacts(
        requested=clean_line(chosen),
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
                name=normal_name(str(entry.get("name", ""))),
                version=clean_line(str(entry.get("version", ""))),
                location=str(entry.get("location", "")),
                installer=entry.get("installer"),
                requires=tuple(clean_line(str(line)) for line in entry.get("requires", ())),
                lost=tuple(clean_line(str(path)) for path in entry.get("lost", ())),
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
        absent=tuple(normal_name(str(name)) for name in raw.get("absent") or ()),
        mapped=tuple(map(str, raw.get("mapped") or ())),
        pip=_whether(raw.get("pip")),
        ensurepip=_whether(raw.get("ensurepip")),
        user_site=str(raw["user_site"]) if raw.get("user_site") else None,
        closed=tuple(
            (str(pair[0]), clean_line(str(pair[1])))
            for pair in raw.get("closed") or ()
            if isinstance(pair, list) and len(pair) == 2
        ),
        tag=f"{'cp' if raw.get('implementation') == 'CPython' else 'pp'}{parts[0]}{parts[1]}",
    )


def _whether(raw: object) -> bool | None:
    return raw if isinstance(raw, bool) else None


def _tensorflow(raw: Mapping[str, Any], python: PythonFacts, shadow: object) -> TensorFlowFacts:
    package_dir = str(raw.get("package_dir", ""))
    folder = package_dir.rpartition("/")[0]
    here = [d for d in python.distributions if d.name in TENSORFLOW_DISTRIBUTIONS]
    beside = [d for d in here if d.location == folder] or here
    header = parse_version_header(str(raw.get("version_header") or ""))
    chosen = next(
        (d for d in beside if header and same_release(d.version, header)), beside[0] if beside else None
    )
    conda = next(
        (p for p in python.conda_packages if p.name in ("tensorflow-base", "tensorflow", "tensorflow-gpu")),
        None,
    )
    return TensorFlowFacts(
        package_dir=package_dir,
        core_dir=str(raw.get("core_dir", package_dir)),
        version=header
        if header and chosen and not same_release(chosen.version, header)
        else (chosen.version if chosen else header),
        distribution=chosen.name if chosen else None,
        framework=raw.get("framework"),
        pywrap=raw.get("pywrap"),
        missing_files=tuple(map(str, raw.get("missing", ()))),
        build_info=parse_build_info(str(raw.get("build_info") or "")),
        cuda_config=parse_cuda_config(str(raw.get("cuda_config") or "")),
        shadowed_by=str(shadow) if shadow else None,
        conda_build=conda.build if conda else None,
    )


def normal_name(name: str) -> str:
    """A distribution's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", clean_line(name)).lower()


def same_release(left: str, right: str) -> bool:
    """Whether two spellings name one release: "2.4.1" and "2.4.1", "2.22.0-rc0" and "2.22.0rc0"."""
    return _plain(left) == _plain(right)


def _plain(version: str) -> str:
    return re.sub(r"[^0-9a-z.]", "", version.lower().split("+")[0].split(".post")[0])


def parse_build_info(text: str) -> dict[str, str]:
    """build_info.py of any era, as text: values are strings ("True", "12.5.1", "['sm_60', …]")."""
    found: dict[str, str] = {}
    for pattern in (_BUILD_INFO_LINE, _BUILD_INFO_PAIR):
        for match in pattern.finditer(text):
            value = next((group for group in match.groups()[1:] if group is not None), "")
            found.setdefault(match[1], clean_line(value))
    for old, new in (("cuda_version_number", "cuda_version"), ("cudnn_version_number", "cudnn_version")):
        if old in found:
            found.setdefault(new, found[old])
    return found


def parse_cuda_config(text: str) -> dict[str, str]:
    """The TF_* macros of cuda_config.h, quotes taken off."""
    return {match[1]: clean_line(match[2]).strip('"') for match in _DEFINE.finditer(text)}


def parse_version_header(text: str) -> str | None:
    """ "2.21.0" from version.h or release_version.h; None where it does not say."""
    numbers = {match[1]: match[2] for match in _HEADER_NUMBER.finditer(text)}
    if len(numbers) < 3:
        return None
    suffix = _HEADER_SUFFIX.search(text)
    return f"{numbers['MAJOR']}.{numbers['MINOR']}.{numbers['PATCH']}{suffix[1] if suffix else ''}"
