"""A reader of environment.yml: the packages of a conda environment, as pip requirements.

Only one form of YAML is supported, and everything else is refused. Names that differ on the index are mapped. Packages
that exist only in conda (system libraries, CUDA, compilers) are left out, with a note that names them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tfdoctor.compat import Compat
from tfdoctor.environment.requirements.files import add_lines
from tfdoctor.environment.requirements.lines import MAX_LINES, parse_line
from tfdoctor.environment.requirements.models import Condition, RequirementFile
from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tfdoctor.compat.conda_names import CondaNames

__all__ = ["conda_specifier", "read_environment"]

_IGNORED_KEYS = frozenset({"name", "channels", "prefix", "platforms", "variables", "channel_priority"})
_CUDA = re.compile(r"cudatoolkit(?:-dev)?|cudnn|cuda(?:-.+)?|nccl|libcu.+|libnv.+|libnccl.*|cutensor|__cuda")
_CONDA_ONLY = re.compile(
    r"[_\-].*|lib.+|.+-(?:ng|base|devel|runtime|linux-64)|gcc.*|gxx.*|gfortran.*|clang.*|sysroot.*|binutils.*|ld_impl.*"
)


def read_environment(text: str, path: Path, text_of: Callable[[Path], str]) -> RequirementFile:
    """Return the requirements of an environment. Raise UsageError."""
    display_path = clean_line(str(path))
    part = RequirementFile()
    cuda: list[str] = []
    conda_only: list[str] = []
    unknown: list[str] = []
    pip_lines: list[tuple[str, str]] = []
    names = Compat.load().conda_names
    entries = _parse_entries(text, display_path)
    for entry in entries:
        where = f"{display_path}, line {entry.line}"
        if entry.inside == "pip":
            pip_lines.append((where, entry.text))
            continue
        name, specifier = _parse_spec(entry.text, where, names)
        if name == "python":
            part.pythons.append(_parse_python_condition(specifier, where, part))
        elif _CUDA.fullmatch(name):
            cuda.append(name)
        elif name == "pip":
            continue
        elif name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu") or name in names.same:
            _add_requirement(part, f"{name}{specifier}", where)
        elif name in names.other:
            _add_requirement(
                part, f"{names.other[name]}{_adapt_specifier(names.other[name], specifier)}", where
            )
        elif name in names.foreign or _CONDA_ONLY.fullmatch(name):
            conda_only.append(name)
        else:
            unknown.append(name)
    add_lines(pip_lines, path, part, text_of)
    if cuda:
        part.notes.append(
            f"{display_path}: {', '.join(cuda)} left out: CUDA and cuDNN come with the plan, as NVIDIA wheels."
        )
    if conda_only:
        part.notes.append(
            f"{display_path}: left out, because they exist only in conda: {', '.join(conda_only)}."
        )
    if unknown:
        part.notes.append(
            f"{display_path}: left out, for whether the package index has the same under this name is not known: "
            f"{', '.join(unknown)}. Those that it has, add with --package."
        )
    return part


def _adapt_specifier(name: str, specifier: str) -> str:
    """Return the specifier for a package of the index.

    The versions of opencv-python have a fourth number there, which counts builds.
    """
    return re.sub(r"^(==[0-9.]+)$", r"\1.*", specifier) if name == "opencv-python" else specifier


def _add_requirement(part: RequirementFile, line: str, where: str) -> None:
    """Add a requirement line to `part`. Raise UsageError."""
    item = parse_line(line, where)
    if item is not None:
        part.items.append(item)


def _parse_python_condition(specifier: str, where: str, part: RequirementFile) -> Condition:
    """Return the condition on the Python; an exported patch release is widened to its minor version."""
    match = re.fullmatch(r"==([0-9]+\.[0-9]+)\.[0-9.]+(?:\.\*)?", specifier)
    if match is not None:  # from an export: any patch release of that minor version is suitable
        version = specifier.removeprefix("==").removesuffix(".*")
        part.notes.append(f"{where}: Python {version} is taken as {match[1]}, and every release of it works.")
        specifier = f"=={match[1]}.*"
    elif re.fullmatch(r"==[0-9]+\.[0-9]+", specifier):
        specifier = f"{specifier}.*"
    return Condition(SpecifierSet(specifier), where)


# ---------------------------------------------------------------- package specifications

_SPEC = re.compile(r"(?:[A-Za-z0-9_.\-/]+::)?([A-Za-z0-9_][A-Za-z0-9_.\-]*)\s*(.*)")
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|=|<|>)?\s*([0-9][0-9A-Za-z.!+*]*)")


def _parse_spec(text: str, where: str, names: CondaNames) -> tuple[str, str]:
    """Return (name, PEP 440 specifier) of a package specification. Raise UsageError."""
    match = _SPEC.fullmatch(text)
    if match is None or len(text) > 300:
        raise _make_syntax_error(text, where)
    name = match[1].lower()
    known_names = {name, canonicalize_name(name)} & (names.same | {*names.other})
    name = name if name in known_names or not known_names else known_names.pop()
    return name, conda_specifier(match[2].strip(), where)


def conda_specifier(text: str, where: str) -> str:
    """Return a conda version constraint as a PEP 440 specifier.

    For `=1.2` it is `==1.2.*`, for `1.2.3 py39_0` it is `==1.2.3`. Raise UsageError.
    """
    text = text.strip()
    if text in ("", "*"):
        return ""
    if "|" in text or "[" in text:
        msg = f"{where}: `{clean_line(text)}` allows one of several; name one of them."
        raise UsageError(msg)
    if text[0] not in "=!<>~":  # "1.2.3", "1.2.3 py39_0"
        text = f"=={text.split(maxsplit=1)[0]}"
    elif re.match(r"==?[^=<>!~,\s]+=", text):  # "=1.2.3=py39_0" from an export means exactly this version
        text = f"=={text.lstrip('=').partition('=')[0]}"
    clauses = [_convert_clause(clause.strip(), text, where) for clause in text.split(",")]
    joined = ",".join(clause for clause in clauses if clause)
    try:
        SpecifierSet(joined)
    except InvalidSpecifier as error:
        raise _make_syntax_error(text, where) from error
    return joined


def _convert_clause(clause: str, text: str, where: str) -> str:
    """Return one clause of a constraint as a PEP 440 specifier; "" for "*". Raise UsageError."""
    if clause == "*":
        return ""
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise _make_syntax_error(text, where)
    sign, version = match[1] or "==", match[2]
    plain = version.removesuffix("*").removesuffix(".")
    if not plain or "*" in plain:
        raise _make_syntax_error(text, where)
    if sign == "=":
        return f"=={plain}.*"
    if plain != version:
        return f"{sign}{plain}.*" if sign in ("==", "!=") else f"{sign}{plain}"
    return f"{sign}{version}"


def _make_syntax_error(text: str, where: str) -> UsageError:
    return UsageError(f"{where}: `{clean_line(text, limit=120)}` is not understood as a package of conda.")


# ---------------------------------------------------------------- YAML


@dataclass(frozen=True, slots=True)
class _CondaEntry:
    line: int
    inside: str
    """The list that contains the entry: `"conda"` or `"pip"`."""
    text: str


def _parse_entries(text: str, display_path: str) -> list[_CondaEntry]:
    """Return the entries under `dependencies`. Raise UsageError for unsupported YAML."""
    entries: list[_CondaEntry] = []
    key, list_indent, pip_indent = "", -1, -1
    has_dependencies = False
    for number, raw_line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        where = f"{display_path}, line {number}"
        if "\t" in raw_line or not raw_line.isprintable():
            msg = f"{where}: a tab or control character, which is not read here."
            raise UsageError(msg)
        line = _strip_comment(raw_line).rstrip()
        if not line.strip() or (line == "---" and not key):
            continue
        indent, content = len(line) - len(line.lstrip()), line.strip()
        if indent == 0 and not content.startswith("- "):
            key, list_indent, pip_indent = _parse_key(content, where), -1, -1
            if key == "dependencies":
                has_dependencies = True
                entries += [
                    _CondaEntry(number, "conda", entry) for entry in _parse_inline_list(content, where)
                ]
            continue
        if key != "dependencies":
            continue
        if not content.startswith("- "):
            raise _make_yaml_error(content, where)
        list_indent = indent if list_indent < 0 else list_indent
        value = content[2:].strip()
        if indent == list_indent:
            pip_indent = -1
            if value == "pip:":
                pip_indent = 0
            else:
                entries.append(_CondaEntry(number, "conda", _parse_scalar(value, where)))
        elif pip_indent >= 0 and indent > list_indent and pip_indent in (0, indent):
            pip_indent = indent
            entries.append(_CondaEntry(number, "pip", _parse_scalar(value, where)))
        else:
            raise _make_yaml_error(content, where)
    if not has_dependencies or len(entries) > MAX_LINES:
        msg = f"-r: {display_path} has no list of dependencies, or more than {MAX_LINES}."
        raise UsageError(msg, hint="A conda environment is meant: `dependencies:` with a list below it.")
    return entries


def _parse_key(line: str, where: str) -> str:
    """Return the key of a top-level line. Raise UsageError if it is not supported."""
    match = re.match(r"([A-Za-z_]+)\s*:(?:\s|$)", line)
    if match is None or (match[1] != "dependencies" and match[1] not in _IGNORED_KEYS):
        raise _make_yaml_error(line, where)
    return match[1]


def _parse_inline_list(line: str, where: str) -> Iterator[str]:
    """Yield the entries of a list on one line: `dependencies: [python=3.11, numpy]`."""
    rest = line.partition(":")[2].strip()
    if not rest:
        return
    if not (rest.startswith("[") and rest.endswith("]")):
        raise _make_yaml_error(line, where)
    for match in re.finditer(r"""\s*("[^"]*"|'[^']*'|[^,"']+)\s*(?:,|$)""", rest[1:-1]):
        yield _parse_scalar(match[1].strip(), where)


def _make_yaml_error(yaml: str, where: str) -> UsageError:
    return UsageError(
        f"{where}: `{clean_line(yaml, limit=120)}` is not read here.",
        hint="What is read: name, channels, and dependencies as a list of names, with one `pip:` list in it.",
    )


def _strip_comment(line: str) -> str:
    """Return a line without its comment."""
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and (index == 0 or line[index - 1] in " -[,"):
            quote = char
        elif char == "#" and (index == 0 or line[index - 1] == " "):
            return line[:index]
    return line


def _parse_scalar(text: str, where: str) -> str:
    """Return a scalar without its quotes. Raise UsageError if it is not supported."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        inner = text[1:-1]
        if text[0] in inner or "\\" in inner:
            raise _make_yaml_error(text, where)
        return inner
    if not text or text[0] in "&*!|>%@`{}[]\"'?:," or ": " in text or text.endswith(":"):
        raise _make_yaml_error(text, where)
    return text
