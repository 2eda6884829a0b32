"""Parse and compare versions. No other module compares versions as text or as floats.

There are four notations, each with its own rules:

* Python distributions (`2.15.0.post1`, `2.22.0rc0`, `1.15.5+nv23.03`): PEP 440, read by `packaging`;
* dotted numbers that do not follow PEP 440 (drivers `535.104.05`, toolkits `12.5.1`, glibc `2.27`): compared number
  by number; missing numbers count as zero and leading zeros are ignored;
* CUDA's integers (`12080` is 12.8);
* compute capabilities (`8.6`, `86`, `sm_86`, `compute_90a`).

`VersionSpec` is the value of the option `--tf`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

__all__ = [
    "Version",
    "VersionSpec",
    "VersionSyntaxError",
    "can_run_cubin",
    "compare",
    "cuda_from_int",
    "find_upper_limit",
    "format_capability",
    "format_python_tag",
    "group_consecutive",
    "has_prefix",
    "is_at_least",
    "is_driver_at_least",
    "is_major_or_minor",
    "is_minor_in_range",
    "is_version",
    "major",
    "major_minor",
    "make_marker_environment",
    "make_sort_key",
    "normalize_project_name",
    "parse",
    "parse_capability",
    "parse_numbers",
    "parse_project_name",
    "parse_python_tag",
    "parse_requirement_or_none",
    "satisfies",
]

_DOTTED = re.compile(r"\d+(?:\.\d+)*")
"""A dotted version number."""
_MAJOR_OR_MINOR = re.compile(r"\d+(?:\.\d+)?")
"""A major or minor version: 2, 2.17."""
_CAPABILITY = re.compile(r"(?:sm_|compute_|sm|cc)?\s*(\d+)(?:\.(\d+))?([af])?", re.IGNORECASE)
"""A compute capability: 8.6, 86, sm_86, compute_90a."""
_PLAIN_CONDITION = re.compile(
    r"(<=|>=|==|!=|~=|<|>)\s*([0-9]+(?:\.[0-9]+)*(?:rc[0-9]+|\.?dev[0-9]*)?)(\.\*)?"
)
"""A condition that can be evaluated without `packaging.specifiers`: operator, version, optional `.*`."""
_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")
"""The project name with which every requirement begins (PEP 508)."""
_PYTHON_TAG = re.compile(r"cp(\d)(\d+)")
"""The tag of a CPython version: cp310."""
_MAX_TEXT_CHARS = 400
"""The maximum length of a version or a specification, in characters.

With this maximum int() accepts every number. It may reject more than 640 digits (sys.set_int_max_str_digits).
"""


class VersionSyntaxError(ValueError):
    """A text is not a version, or not a version specification."""


def _require_short(text: str, kind: str) -> str:
    """Return `text`; raise VersionSyntaxError if it is too long to be a version or a specification."""
    if len(text) > _MAX_TEXT_CHARS:
        msg = f"`{text[:40]}…` ({len(text)} characters) is not {kind}"
        raise VersionSyntaxError(msg)
    return text


@lru_cache(maxsize=4096)
def parse(text: str) -> Version:
    """Parse `text` as a PEP 440 version. A leading `v` and surrounding white space are accepted.

    Raise VersionSyntaxError if it is not a version.
    """
    try:
        return Version(_require_short(text, "a version"))
    except InvalidVersion as error:
        msg = f"`{text}` is not a version"
        raise VersionSyntaxError(msg) from error


def is_version(text: str) -> bool:
    """Return whether a text is a PEP 440 version."""
    try:
        parse(text)
    except VersionSyntaxError:
        return False
    return True


@lru_cache(maxsize=4096)
def parse_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a dotted version without trailing zeros: (535, 104, 5) for `"535.104.05"`.

    Only the beginning is read: (8, 6, 0, 163) for `"8.6.0.163-1+cuda11.8"`. Raise VersionSyntaxError if it is not a
    dotted number.
    """
    match = _DOTTED.match(text.strip())
    if match is None:
        msg = f"`{text}` is not a dotted version number"
        raise VersionSyntaxError(msg)
    _require_short(match.group(), "a dotted version number")
    parts = [int(part) for part in match.group().split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def compare(left: str, right: str) -> int:
    """Return -1, 0 or 1 if the dotted version `left` is older than, equal to or newer than `right`.

    `12.5` equals `12.5.0`.
    """
    left_numbers, right_numbers = parse_numbers(left), parse_numbers(right)
    return (left_numbers > right_numbers) - (left_numbers < right_numbers)


def is_at_least(version: str, minimum: str) -> bool:
    """Return whether the dotted version is `minimum` or newer."""
    return parse_numbers(version) >= parse_numbers(minimum)


def is_driver_at_least(version: str, minimum: str) -> bool:
    """Return whether the driver version is `minimum` or newer.

    `version` may be a branch (`"450"`), which counts as the newest driver of that branch.
    """
    return is_at_least(version, minimum) or has_prefix(minimum, version)


def is_minor_in_range(minor: tuple[int, ...], since: str | None, until: str | None) -> bool:
    """Return whether a minor release, such as `(2, 16)`, is between `since` and `until`.

    Both limits are minor releases and inclusive; None means no limit. An unknown release, `()`, is older than every
    `since`.
    """
    padded_minor = (*minor, 0)[:2] if minor else ()  # a major number alone is its minor 0
    first, last = ((*parse_numbers(limit), 0)[:2] if limit is not None else None for limit in (since, until))
    return (first is None or padded_minor >= first) and (last is None or padded_minor <= last)


def major(text: str) -> int:
    """Return the first number of a dotted version: 12 for `"12.5.1"`."""
    return parse_numbers(text)[0]


@lru_cache(maxsize=4096)
def major_minor(text: str) -> str:
    """Return the first two numbers of a version as text: `"12.5"` for `"12.5.1"`, `"12.0"` for `"12"`."""
    parts = (*parse_numbers(text), 0)
    return f"{parts[0]}.{parts[1]}"


def has_prefix(text: str, prefix: str) -> bool:
    """Return whether a dotted version starts with the numbers of `prefix`.

    2.4.1 starts with 2.4; 2.40 does not. Raise VersionSyntaxError if `prefix` is not a dotted number.
    """
    if not _DOTTED.fullmatch(_require_short(prefix, "a dotted version number")):
        msg = f"`{prefix}` is not a dotted version number"
        raise VersionSyntaxError(msg)
    prefix_numbers = [int(part) for part in prefix.split(".")]
    version_numbers = [*parse_numbers(text)]
    version_numbers += [0] * (len(prefix_numbers) - len(version_numbers))
    return version_numbers[: len(prefix_numbers)] == prefix_numbers


def make_sort_key(text: str) -> tuple[int, Version]:
    """Return a key that sorts PEP 440 versions and puts any other text first. It raises no exception."""
    try:
        return (1, parse(text))
    except VersionSyntaxError:
        return (0, Version("0"))


def cuda_from_int(value: int) -> str:
    """Convert CUDA's integer version to text: `"12.8"` for 12080, `"11.2"` for 11020.

    The last digit is ignored, because NVIDIA does not use it. Raise VersionSyntaxError if the value is below 1000.
    """
    if value < 1000:
        msg = f"{value} is not a CUDA version integer (1000 x major + 10 x minor)"
        raise VersionSyntaxError(msg)
    return f"{value // 1000}.{value % 1000 // 10}"


@lru_cache(maxsize=512)
def parse_capability(text: str) -> tuple[int, int]:
    """Parse a compute capability (`8.6`, `86`, `sm_86`, `compute_90a`) as (major, minor).

    `120` gives (12, 0). Raise VersionSyntaxError for anything else.
    """
    match = _CAPABILITY.fullmatch(_require_short(text, "a compute capability").strip())
    if match is None:
        msg = f"`{text}` is not a compute capability (such as 8.6, sm_86)"
        raise VersionSyntaxError(msg)
    digits, minor, _ = match.groups()
    if minor is not None:
        return int(digits), int(minor)
    if len(digits) == 1:
        return int(digits), 0
    return int(digits[:-1]), int(digits[-1])


def can_run_cubin(gpu_capability: tuple[int, int], code_capability: tuple[int, int]) -> bool:
    """Return whether a GPU of compute capability `gpu_capability` can run a cubin for `code_capability`.

    The major numbers must be equal, and the minor number of `code_capability` must not be higher.
    """
    gpu_major, gpu_minor = gpu_capability
    code_major, code_minor = code_capability
    return code_major == gpu_major and code_minor <= gpu_minor


def format_capability(capability: tuple[int, int]) -> str:
    """Format a compute capability: `"8.6"` for `(8, 6)`."""
    major_number, minor_number = capability
    return f"{major_number}.{minor_number}"


def parse_python_tag(tag: str) -> str:
    """Return the Python version of a wheel tag: `"3.10"` for `"cp310"`.

    Raise VersionSyntaxError if it is not a CPython tag.
    """
    match = _PYTHON_TAG.fullmatch(_require_short(tag, "a CPython wheel tag"))
    if match is None:
        msg = f"`{tag}` is not a CPython wheel tag"
        raise VersionSyntaxError(msg)
    return f"{match.group(1)}.{int(match.group(2))}"


def format_python_tag(version: str) -> str:
    """Return the wheel tag of a Python version: `"cp310"` for `"3.10.13"`."""
    major_text, minor_text = major_minor(version).split(".")
    return f"cp{major_text}{minor_text}"


def group_consecutive(pythons: Iterable[str]) -> list[list[str]]:
    """Return sorted versions such as "3.9" in groups. A missing minor version, or another major one, ends a group."""
    groups: list[list[str]] = []
    for python in pythons:
        major_number, minor_number = map(int, python.split("."))
        if groups and groups[-1][-1] == f"{major_number}.{minor_number - 1}":
            groups[-1].append(python)
        else:
            groups.append([python])
    return groups


@lru_cache(maxsize=512)
def _parse_specifiers(text: str) -> SpecifierSet:
    """Parse a version specification with `packaging`. Raise VersionSyntaxError if it is invalid."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(_require_short(text, "a specification of versions"))
    except InvalidSpecifier as error:
        msg = f"`{text}` is not a specification of versions"
        raise VersionSyntaxError(msg) from error


@lru_cache(maxsize=8192)
def satisfies(version: str, specification: str) -> bool:
    """Return whether a PEP 440 version satisfies a specification such as `">=2.16,<2.21"` or `"==1.12.*"`.

    Pre-releases are allowed. Simple conditions are evaluated without `packaging.specifiers`, which takes 13 ms to import.
    Raise VersionSyntaxError if either text is invalid.
    """
    candidate = parse(version)
    conditions = _parse_plain_conditions(specification)
    if conditions is None:
        return _parse_specifiers(specification).contains(candidate, prereleases=True)
    return all(_meets_condition(candidate, operator, limit, prefix) for operator, limit, prefix in conditions)


def is_plain_specification(specification: str) -> bool:
    """Return whether `satisfies` can evaluate the specification without `packaging.specifiers`.

    Raise VersionSyntaxError as `satisfies` does.
    """
    return _parse_plain_conditions(specification) is not None


@lru_cache(maxsize=4096)
def is_major_or_minor(specification: str) -> bool:
    """Return whether the specification is only a major or minor version: `"2"`, `"2.17"`."""
    return _MAJOR_OR_MINOR.fullmatch(specification.strip()) is not None


def make_marker_environment(python: str) -> dict[str, str]:
    """Return the marker environment of CPython on x86-64 Linux.

    `python` is a version such as `"3.11"` or `"3.11.7"`. A minor version stands for its newest patch release.
    """
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": python if python.count(".") > 1 else f"{python}.99",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": python if python.count(".") > 1 else f"{python}.99",
        "python_version": major_minor(python),
        "sys_platform": "linux",
    }


def parse_requirement_or_none(text: str) -> Requirement | None:
    """Parse a requirement (PEP 508). Return None if it is not valid."""
    # Not at the top, because this import takes a tenth of the time of `check`.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def parse_project_name(text: str) -> str:
    """Return the normalized project name of a requirement; empty if the text does not begin with a name.

    For `"nvidia_cudnn.cu12[x]<10,>=9.3; extra == 'a'"` it is `"nvidia-cudnn-cu12"`.
    """
    match = _PROJECT_NAME.match(text)
    return "" if match is None else normalize_project_name(match[0])


def normalize_project_name(name: str) -> str:
    """Return the normalized form of a project name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_upper_limit(text: str) -> str | None:
    """Return the lowest version that a requirement excludes with `<`: `"2"` for `"numpy>=1.20,<2"`.

    Return None if there is none, or if the requirement is not valid.
    """
    requirement = parse_requirement_or_none(text)
    limits = (
        [specifier.version for specifier in requirement.specifier if specifier.operator == "<"]
        if requirement is not None
        else []
    )
    return min(limits, key=parse, default=None)


@lru_cache(maxsize=512)
def _parse_plain_conditions(
    specification: str,
) -> tuple[tuple[str, Version, tuple[int, ...] | None], ...] | None:
    """Parse each condition as (operator, version, prefix); the prefix is None for conditions without `.*`.

    Return None if a condition needs `packaging.specifiers`.
    """
    conditions: list[tuple[str, Version, tuple[int, ...] | None]] = []
    for part in _require_short(specification, "a specification of versions").split(","):
        match = _PLAIN_CONDITION.fullmatch(part.strip())
        if match is None:
            return None
        operator, number, star = match.groups()
        if star and (operator not in {"==", "!="} or number.strip("0123456789.")):
            return None
        limit = parse(number)
        if operator == "~=":  # PEP 440: ">=2.4.1, ==2.4.*"
            if len(limit.release) < 2:
                return None
            conditions += [(">=", limit, None), ("==", limit, limit.release[:-1])]
            continue
        if operator == ">" and limit.is_prerelease:
            return None
        prefix = tuple(int(number_text) for number_text in number.split(".")) if star else None
        conditions.append((operator, limit, prefix))
    return tuple(conditions)


def _meets_condition(version: Version, operator: str, limit: Version, prefix: tuple[int, ...] | None) -> bool:
    """Return whether a version meets one condition of `_parse_plain_conditions`."""
    if prefix is not None:
        release = version.release + (0,) * (len(prefix) - len(version.release))
        return (version.epoch == 0 and release[: len(prefix)] == prefix) is (operator == "==")
    public_version = Version(version.public) if version.local else version
    if operator in {"==", "!="}:
        return (public_version == limit) is (operator == "==")
    if operator in {"<=", ">="}:
        return public_version <= limit if operator == "<=" else public_version >= limit
    # PEP 440: `<2.21` excludes the candidates of 2.21, `>2.20` excludes the post-releases of 2.20.
    is_same_release = Version(version.base_version) == Version(limit.base_version)
    if operator == "<":
        return version < limit and not (is_same_release and version.is_prerelease and not limit.is_prerelease)
    is_post_or_local = version.is_postrelease or version.local is not None
    return version > limit and not (is_same_release and is_post_or_local)


class VersionSpec:
    """The versions that a user requests: a prefix, an exact version, or conditions.

    * `"2.4"` or `"1"`: all versions with this prefix (pre-releases only if there is no final version);
    * `"2.15.0"`, `"2.22.0rc0"`: exactly this version;
    * `">=2.10,<2.13"`, `"~=2.4.1"`, `"==2.4.*"`: all versions that `packaging` accepts;
    * `"latest"`: the newest final version.

    The constructor raises VersionSyntaxError for anything else.
    """

    __slots__ = ("_exact_version", "_is_latest", "_prefix", "_specifiers", "text")

    def __init__(self, text: str) -> None:
        self.text = _require_short(text.strip(), "a specification of versions")
        self._exact_version: Version | None = None
        self._prefix: str | None = None
        self._specifiers: SpecifierSet | None = None
        self._is_latest = self.text.lower() == "latest"
        if self._is_latest:
            return
        if is_major_or_minor(self.text):
            self._prefix = self.text
        elif re.match(r"[<>=!~]", self.text):
            self._specifiers = _parse_specifiers(self.text)
        else:
            self._exact_version = parse(self.text)

    def __repr__(self) -> str:
        return f"VersionSpec({self.text!r})"

    def select(self, versions: Iterable[str]) -> list[str]:
        """Return the versions that match, newest first, without duplicates; empty if none does.

        `latest` matches only the newest version. Conditions exclude pre-releases unless a condition names one or nothing
        else matches.
        """
        candidates = sorted({*versions}, key=parse, reverse=True)
        if self._exact_version is not None:
            return [text for text in candidates if parse(text) == self._exact_version]
        if self._specifiers is not None:
            # packaging falls back to pre-releases only if no final version matches.
            return list(self._specifiers.filter(candidates))
        if self._prefix is not None:
            candidates = [text for text in candidates if has_prefix(text, self._prefix)]
        finals = [text for text in candidates if not parse(text).is_prerelease] or candidates
        return finals[:1] if self._is_latest else finals
