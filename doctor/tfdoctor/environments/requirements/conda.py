"""Read environment.yml, and convert the packages of a conda environment to pip requirements.

Only the usual subset of YAML is supported; other YAML is an error. Names that differ between conda and the package index
are converted. Packages that exist only in conda (system libraries, CUDA, compilers) are left out with a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.environments.requirements.files import add_lines
from tfdoctor.environments.requirements.lines import MAX_LINES, parse_line
from tfdoctor.environments.requirements.models import RequirementFile, VersionCondition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tfdoctor.compat.conda_names import CondaNames

__all__ = ["convert_conda_constraint", "read_environment"]

_IGNORED_KEYS = frozenset({"name", "channels", "prefix", "platforms", "variables", "channel_priority"})
"""Top-level keys that contain no requirements."""
_CUDA_NAME = re.compile(
    r"cudatoolkit(?:-dev)?|cudnn|cuda(?:-.+)?|nccl|libcu.+|libnv.+|libnccl.*|cutensor|__cuda"
)
# System libraries, compilers and other names that only conda packages have.
_CONDA_ONLY_NAME = re.compile(
    r"[_\-].*|lib.+|.+-(?:ng|base|devel|runtime|linux-64)|gcc.*|gxx.*|gfortran.*|clang.*|sysroot.*|binutils.*|ld_impl.*"
)
# An optional channel, the package name, and the version constraint.
_SPEC = re.compile(r"(?:[A-Za-z0-9_.\-/]+::)?([A-Za-z0-9_][A-Za-z0-9_.\-]*)\s*(.*)")
# An optional operator and a version, possibly with "*".
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|=|<|>)?\s*([0-9][0-9A-Za-z.!+*]*)")
_MAX_SPEC_CHARS = 300


def read_environment(text: str, path: Path, read_text: Callable[[Path], str]) -> RequirementFile:
    """Return the requirements in the text of an environment.yml.

    `path` is the path of the environment.yml. `read_text` reads files that its `pip:` list includes. Raise UsageError if
    a file cannot be used.
    """
    display_path = clean_line(str(path))
    result = RequirementFile()
    cuda_names: list[str] = []
    conda_only_names: list[str] = []
    unknown_names: list[str] = []
    pip_lines: list[tuple[str, str]] = []
    conda_names = Compat.load().conda_names
    entries = _parse_entries(text, display_path)
    for entry in entries:
        location = f"{display_path}, line {entry.line}"
        if entry.list_name == "pip":
            pip_lines.append((location, entry.text))
            continue
        name, specifier = _parse_spec(entry.text, location, conda_names)
        if name == "python":
            result.python_conditions.append(_parse_python_condition(specifier, location, result))
        elif _CUDA_NAME.fullmatch(name):
            cuda_names.append(name)
        elif name == "pip":
            continue
        elif (
            name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu") or name in conda_names.identical_names
        ):
            _add_requirement(result, f"{name}{specifier}", location)
        elif name in conda_names.index_name_by_conda_name:
            index_name = conda_names.index_name_by_conda_name[name]
            _add_requirement(result, f"{index_name}{_adapt_specifier(index_name, specifier)}", location)
        elif name in conda_names.unrelated_names or _CONDA_ONLY_NAME.fullmatch(name):
            conda_only_names.append(name)
        else:
            unknown_names.append(name)
    add_lines(pip_lines, path, result, read_text)
    if cuda_names:
        result.notes.append(
            f"{display_path}: {', '.join(cuda_names)} left out: CUDA and cuDNN come with the plan, as NVIDIA wheels."
        )
    if conda_only_names:
        result.notes.append(
            f"{display_path}: left out, because they exist only in conda: {', '.join(conda_only_names)}."
        )
    if unknown_names:
        result.notes.append(
            f"{display_path}: left out, for whether the package index has the same under this name is not known: "
            f"{', '.join(unknown_names)}. Those that it has, add with --package."
        )
    return result


def _adapt_specifier(name: str, specifier: str) -> str:
    """Return the specifier for a package on the package index.

    The versions of opencv-python have a fourth number there (the build), so `==4.8.1` becomes `==4.8.1.*`.
    """
    return re.sub(r"^(==[0-9.]+)$", r"\1.*", specifier) if name == "opencv-python" else specifier


def _add_requirement(result: RequirementFile, line: str, location: str) -> None:
    """Parse a requirement line and add it to `result`. Raise UsageError if the line cannot be used."""
    item = parse_line(line, location)
    if item is not None:
        result.requirements.append(item)


def _parse_python_condition(specifier: str, location: str, result: RequirementFile) -> VersionCondition:
    """Return the condition on the Python version.

    An exact patch release, as `conda env export` writes it, is widened to its minor version, and a note is added to
    `result`.
    """
    match = re.fullmatch(r"==([0-9]+\.[0-9]+)\.[0-9.]+(?:\.\*)?", specifier)
    if match is not None:
        version = specifier.removeprefix("==").removesuffix(".*")
        result.notes.append(
            f"{location}: Python {version} is taken as {match[1]}, and every release of it works."
        )
        specifier = f"=={match[1]}.*"
    elif re.fullmatch(r"==[0-9]+\.[0-9]+", specifier):
        specifier = f"{specifier}.*"
    return VersionCondition(SpecifierSet(specifier), location)


# ---------------------------------------------------------------- package specifications


def _parse_spec(text: str, location: str, conda_names: CondaNames) -> tuple[str, str]:
    """Split a conda package specification into (name, PEP 440 specifier).

    Raise UsageError if the specification cannot be parsed.
    """
    match = _SPEC.fullmatch(text)
    if match is None or len(text) > _MAX_SPEC_CHARS:
        raise _make_syntax_error(text, location)
    name = match[1].lower()
    # Use the spelling in the table of conda's names, which may be the normalized one.
    known_names = {name, canonicalize_name(name)} & (
        conda_names.identical_names | {*conda_names.index_name_by_conda_name}
    )
    name = name if name in known_names or not known_names else known_names.pop()
    return name, convert_conda_constraint(match[2].strip(), location)


def convert_conda_constraint(text: str, location: str) -> str:
    """Return a conda version constraint as a PEP 440 specifier.

    `=1.2` becomes `==1.2.*`, `1.2.3 py39_0` becomes `==1.2.3`, and `*` becomes "". `location` is for error messages.
    Raise UsageError if the constraint allows alternatives or cannot be parsed.
    """
    text = text.strip()
    if text in ("", "*"):
        return ""
    if "|" in text or "[" in text:
        msg = f"{location}: `{clean_line(text)}` allows one of several; name one of them."
        raise UsageError(msg)
    if text[0] not in "=!<>~":  # "1.2.3", or "1.2.3 py39_0" with a build
        text = f"=={text.split(maxsplit=1)[0]}"
    elif re.match(r"==?[^=<>!~,\s]+=", text):  # "=1.2.3=py39_0" in an export is a version and its build
        text = f"=={text.lstrip('=').partition('=')[0]}"
    clauses = [_convert_clause(clause.strip(), text, location) for clause in text.split(",")]
    joined = ",".join(clause for clause in clauses if clause)
    try:
        SpecifierSet(joined)
    except InvalidSpecifier as error:
        raise _make_syntax_error(text, location) from error
    return joined


def _convert_clause(clause: str, text: str, location: str) -> str:
    """Return one clause of a constraint as a PEP 440 specifier; "" for "*".

    Raise UsageError if the clause cannot be parsed. `text` is the whole constraint, for the message.
    """
    if clause == "*":
        return ""
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise _make_syntax_error(text, location)
    operator, version = match[1] or "==", match[2]
    bare_version = version.removesuffix("*").removesuffix(".")  # "1.2" for "1.2.*" and "1.2*"
    if not bare_version or "*" in bare_version:
        raise _make_syntax_error(text, location)
    if operator == "=":
        return f"=={bare_version}.*"
    if bare_version != version:
        return f"{operator}{bare_version}.*" if operator in ("==", "!=") else f"{operator}{bare_version}"
    return f"{operator}{version}"


def _make_syntax_error(text: str, location: str) -> UsageError:
    return UsageError(f"{location}: `{clean_line(text, limit=120)}` is not understood as a package of conda.")


# ---------------------------------------------------------------- YAML


@dataclass(frozen=True, slots=True)
class _CondaEntry:
    """An entry in the list of dependencies."""

    line: int
    """The line number."""
    list_name: str
    """The list that contains the entry: `"conda"` or `"pip"`."""
    text: str


def _parse_entries(text: str, display_path: str) -> list[_CondaEntry]:
    """Return the entries under `dependencies` and in its `pip:` list.

    Raise UsageError if the YAML is not supported, if there is no `dependencies` key, or if there are too many entries.
    """
    entries: list[_CondaEntry] = []
    key, list_indent, pip_indent = "", -1, -1  # -1: not inside such a list
    has_dependencies = False
    for number, raw_line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        location = f"{display_path}, line {number}"
        if "\t" in raw_line or not raw_line.isprintable():
            msg = f"{location}: a tab or control character, which is not read here."
            raise UsageError(msg)
        line = _strip_comment(raw_line).rstrip()
        if not line.strip() or (line == "---" and not key):
            continue
        indent, content = len(line) - len(line.lstrip()), line.strip()
        if indent == 0 and not content.startswith("- "):
            key, list_indent, pip_indent = _parse_key(content, location), -1, -1
            if key == "dependencies":
                has_dependencies = True
                entries += [
                    _CondaEntry(number, "conda", entry) for entry in _parse_inline_list(content, location)
                ]
            continue
        if key != "dependencies":
            continue
        if not content.startswith("- "):
            raise _make_yaml_error(content, location)
        list_indent = indent if list_indent < 0 else list_indent
        value = content[2:].strip()
        if indent == list_indent:
            pip_indent = -1
            if value == "pip:":
                pip_indent = 0  # 0 until the first entry of the list shows its indentation
            else:
                entries.append(_CondaEntry(number, "conda", _parse_scalar(value, location)))
        elif pip_indent >= 0 and indent > list_indent and pip_indent in (0, indent):
            pip_indent = indent
            entries.append(_CondaEntry(number, "pip", _parse_scalar(value, location)))
        else:
            raise _make_yaml_error(content, location)
    if not has_dependencies or len(entries) > MAX_LINES:
        msg = f"-r: {display_path} has no list of dependencies, or more than {MAX_LINES}."
        raise UsageError(msg, hint="A conda environment is meant: `dependencies:` with a list below it.")
    return entries


def _parse_key(line: str, location: str) -> str:
    """Return the key of a top-level line. Raise UsageError if the key is not supported."""
    match = re.match(r"([A-Za-z_]+)\s*:(?:\s|$)", line)
    if match is None or (match[1] != "dependencies" and match[1] not in _IGNORED_KEYS):
        raise _make_yaml_error(line, location)
    return match[1]


def _parse_inline_list(line: str, location: str) -> Iterator[str]:
    """Yield the entries of a list on one line: `dependencies: [python=3.11, numpy]`.

    Raise UsageError if the text after the key is not such a list.
    """
    inline_list = line.partition(":")[2].strip()
    if not inline_list:
        return
    if not (inline_list.startswith("[") and inline_list.endswith("]")):
        raise _make_yaml_error(line, location)
    for match in re.finditer(r"""\s*("[^"]*"|'[^']*'|[^,"']+)\s*(?:,|$)""", inline_list[1:-1]):
        yield _parse_scalar(match[1].strip(), location)


def _make_yaml_error(yaml: str, location: str) -> UsageError:
    return UsageError(
        f"{location}: `{clean_line(yaml, limit=120)}` is not read here.",
        hint="What is read: name, channels, and dependencies as a list of names, with one `pip:` list in it.",
    )


def _strip_comment(line: str) -> str:
    """Return a line without its comment, which begins with a "#" after a space and outside of quotes."""
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and (index == 0 or line[index - 1] in " -[,"):
            quote = char
        elif char == "#" and (index == 0 or line[index - 1] == " "):
            return line[:index]
    return line


def _parse_scalar(text: str, location: str) -> str:
    """Return a YAML scalar without its quotes. Raise UsageError if the syntax is not supported."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        inner = text[1:-1]
        if text[0] in inner or "\\" in inner:
            raise _make_yaml_error(text, location)
        return inner
    if not text or text[0] in "&*!|>%@`{}[]\"'?:," or ": " in text or text.endswith(":"):
        raise _make_yaml_error(text, location)
    return text
