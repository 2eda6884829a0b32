"""environment.yml: what a conda environment lists, as the package index has it.

Only this one shape of YAML is read, and what is not of it is refused. Names that the index knows under another name
are mapped; what is of conda alone (libraries of the system, CUDA, compilers) is left out, each by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tfdoctor.compat import Compat
from tfdoctor.environment.requirements.files import take_rows
from tfdoctor.environment.requirements.lines import MAX_LINES, parse_line
from tfdoctor.environment.requirements.models import Condition, RequirementFile
from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tfdoctor.compat.conda_names import CondaNames

__all__ = ["conda_specifier", "read_environment"]

_SKIPPED = frozenset({"name", "channels", "prefix", "platforms", "variables", "channel_priority"})
_CUDA = re.compile(r"cudatoolkit(?:-dev)?|cudnn|cuda(?:-.+)?|nccl|libcu.+|libnv.+|libnccl.*|cutensor|__cuda")
_NONE_OF_PYTHONS = re.compile(
    r"[_\-].*|lib.+|.+-(?:ng|base|devel|runtime|linux-64)|gcc.*|gxx.*|gfortran.*|clang.*|sysroot.*|binutils.*|ld_impl.*"
)


def read_environment(text: str, path: Path, text_of: Callable[[Path], str]) -> RequirementFile:
    """Return what an environment lists. Raises UsageError."""
    shown = clean_line(str(path))
    part = RequirementFile()
    cuda: list[str] = []
    foreign: list[str] = []
    unknown: list[str] = []
    pips: list[tuple[str, str]] = []
    names = Compat.load().conda_names
    entries = _entries(text, shown)
    for entry in entries:
        where = f"{shown}, line {entry.line}"
        if entry.inside == "pip":
            pips.append((where, entry.text))
            continue
        name, specifier = _spec(entry.text, where, names)
        if name == "python":
            part.pythons.append(_python(specifier, where, part))
        elif _CUDA.fullmatch(name):
            cuda.append(name)
        elif name == "pip":
            continue
        elif name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu") or name in names.same:
            _add(part, f"{name}{specifier}", where)
        elif name in names.other:
            _add(part, f"{names.other[name]}{_fourth(names.other[name], specifier)}", where)
        elif name in names.foreign or _NONE_OF_PYTHONS.fullmatch(name):
            foreign.append(name)
        else:
            unknown.append(name)
    take_rows(pips, path, part, text_of)
    if cuda:
        part.notes.append(
            f"{shown}: {', '.join(cuda)} left out: CUDA and cuDNN come with the plan, as NVIDIA wheels."
        )
    if foreign:
        part.notes.append(f"{shown}: left out, because they exist only in conda: {', '.join(foreign)}.")
    if unknown:
        part.notes.append(
            f"{shown}: left out, for whether the package index has the same under this name is not known: "
            f"{', '.join(unknown)}. Those that it has, add with --package."
        )
    return part


def _fourth(name: str, specifier: str) -> str:
    """The index counts the builds of OpenCV with a fourth number."""
    return re.sub(r"^(==[0-9.]+)$", r"\1.*", specifier) if name == "opencv-python" else specifier


def _add(part: RequirementFile, line: str, where: str) -> None:
    item = parse_line(line, where)
    if item is not None:
        part.items.append(item)


def _python(specifier: str, where: str, part: RequirementFile) -> Condition:
    match = re.fullmatch(r"==([0-9]+\.[0-9]+)\.[0-9.]+(?:\.\*)?", specifier)
    if match is not None:  # of an export: any patch release of it serves
        full = specifier.removeprefix("==").removesuffix(".*")
        part.notes.append(f"{where}: Python {full} is taken as {match[1]}, and every release of it works.")
        specifier = f"=={match[1]}.*"
    elif re.fullmatch(r"==[0-9]+\.[0-9]+", specifier):
        specifier = f"{specifier}.*"
    return Condition(SpecifierSet(specifier), where)


# ---------------------------------------------------------------- a package

_SPEC = re.compile(r"(?:[A-Za-z0-9_.\-/]+::)?([A-Za-z0-9_][A-Za-z0-9_.\-]*)\s*(.*)")
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|=|<|>)?\s*([0-9][0-9A-Za-z.!+*]*)")


def _spec(text: str, where: str, names: CondaNames) -> tuple[str, str]:
    match = _SPEC.fullmatch(text)
    if match is None or len(text) > 300:
        raise _make_syntax_error(text, where)
    name = match[1].lower()
    known = {name, canonicalize_name(name)} & (names.same | {*names.other})
    name = name if name in known or not known else known.pop()
    return name, conda_specifier(match[2].strip(), where)


def conda_specifier(text: str, where: str) -> str:
    """conda's condition on a version as PEP 440 has it: `=1.2` → `==1.2.*`, `1.2.3 py39_0` → `==1.2.3`.

    Raises UsageError.
    """
    text = text.strip()
    if text in ("", "*"):
        return ""
    if "|" in text or "[" in text:
        msg = f"{where}: `{clean_line(text)}` allows one of several; name one of them."
        raise UsageError(msg)
    if text[0] not in "=!<>~":  # "1.2.3", "1.2.3 py39_0"
        text = f"=={text.split(maxsplit=1)[0]}"
    elif re.match(r"==?[^=<>!~,\s]+=", text):  # "=1.2.3=py39_0", of an export: exactly this version
        text = f"=={text.lstrip('=').partition('=')[0]}"
    found = [_clause(one.strip(), text, where) for one in text.split(",")]
    joined = ",".join(one for one in found if one)
    try:
        SpecifierSet(joined)
    except InvalidSpecifier as error:
        raise _make_syntax_error(text, where) from error
    return joined


def _clause(one: str, text: str, where: str) -> str:
    if one == "*":
        return ""
    match = _CLAUSE.fullmatch(one)
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


# ---------------------------------------------------------------- the file


@dataclass(frozen=True, slots=True)
class _CondaEntry:
    line: int
    inside: str
    """`"conda"` or `"pip"`."""
    text: str


def _entries(text: str, shown: str) -> list[_CondaEntry]:
    """Return what stands under `dependencies`. Raises UsageError for what is not of this shape."""
    found: list[_CondaEntry] = []
    key, outer, inner = "", -1, -1
    seen = False
    for number, row in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        where = f"{shown}, line {number}"
        if "\t" in row or not row.isprintable():
            msg = f"{where}: a tab or control character, which is not read here."
            raise UsageError(msg)
        line = _strip_comment(row).rstrip()
        if not line.strip() or (line == "---" and not key):
            continue
        indent, word = len(line) - len(line.lstrip()), line.strip()
        if indent == 0 and not word.startswith("- "):
            key, outer, inner = _top(word, where), -1, -1
            if key == "dependencies":
                seen = True
                found += [_CondaEntry(number, "conda", one) for one in _flow(word, where)]
            continue
        if key != "dependencies":
            continue
        if not word.startswith("- "):
            raise _shape(word, where)
        outer = indent if outer < 0 else outer
        value = word[2:].strip()
        if indent == outer:
            inner = -1
            if value == "pip:":
                inner = 0
            else:
                found.append(_CondaEntry(number, "conda", _scalar(value, where)))
        elif inner >= 0 and indent > outer and inner in (0, indent):
            inner = indent
            found.append(_CondaEntry(number, "pip", _scalar(value, where)))
        else:
            raise _shape(word, where)
    if not seen or len(found) > MAX_LINES:
        msg = f"-r: {shown} has no list of dependencies, or more than {MAX_LINES}."
        raise UsageError(msg, hint="A conda environment is meant: `dependencies:` with a list below it.")
    return found


def _top(word: str, where: str) -> str:
    match = re.match(r"([A-Za-z_]+)\s*:(?:\s|$)", word)
    if match is None or (match[1] != "dependencies" and match[1] not in _SKIPPED):
        raise _shape(word, where)
    return match[1]


def _flow(word: str, where: str) -> Iterator[str]:
    """Yield `dependencies: [python=3.11, numpy]`."""
    rest = word.partition(":")[2].strip()
    if not rest:
        return
    if not (rest.startswith("[") and rest.endswith("]")):
        raise _shape(word, where)
    for match in re.finditer(r"""\s*("[^"]*"|'[^']*'|[^,"']+)\s*(?:,|$)""", rest[1:-1]):
        yield _scalar(match[1].strip(), where)


def _shape(word: str, where: str) -> UsageError:
    return UsageError(
        f"{where}: `{clean_line(word, limit=120)}` is not read here.",
        hint="What is read: name, channels, and dependencies as a list of names, with one `pip:` list in it.",
    )


def _strip_comment(row: str) -> str:
    quote = ""
    for place, sign in enumerate(row):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'" and (place == 0 or row[place - 1] in " -[,"):
            quote = sign
        elif sign == "#" and (place == 0 or row[place - 1] == " "):
            return row[:place]
    return row


def _scalar(text: str, where: str) -> str:
    """Return a word, with or without quotes."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        inner = text[1:-1]
        if text[0] in inner or "\\" in inner:
            raise _shape(text, where)
        return inner
    if not text or text[0] in "&*!|>%@`{}[]\"'?:," or ": " in text or text.endswith(":"):
        raise _shape(text, where)
    return text
