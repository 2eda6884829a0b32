"""Parse the report of TensorFlow's ``tf_env_collect.sh``, which its issue template requests."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean, clean_lines, unquote
from tfdoctor.probes.parsers.smi_failure import parse_smi_failure
from tfdoctor.probes.parsers.smi_table import looks_like_smi_table, parse_smi_table

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECTION_TITLE = re.compile(r"== ([A-Za-z][^=\n]{0,60}?) *={2,}")
_SCRIPT_TITLES = {"are we in docker", "check pips", "tensorflow import", "cuda libs", "env", "nvidia-smi"}
_PIP_PACKAGE = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9_.-]*)(?:==|[ \t]+)\(?([0-9][^\s(),]*)\)?(?:[ \t]+(?:/|[A-Za-z]:\\)\S.*)?"
)
_PYTHON_VERSION = re.compile(r"(?m)^python version: *([0-9][0-9A-Za-z.+]*)")
_PYTHON_VERSION_TUPLE = re.compile(r"\(([0-9]{1,2}), ([0-9]{1,3}), ([0-9]{1,3}), '")
_TF_VERSION = re.compile(r"\btf\.(?:version\.)?VERSION *= *([^\s]+)")
_LIBRARY_PATH = re.compile(r"(?m)^[ \t>]*LD_LIBRARY_PATH(?:[ \t]+|=)([^\n]*)")
_IMPORT_ERROR = re.compile(
    r"Traceback \(most recent call last\)|\b(?:ImportError|ModuleNotFoundError)\b"
    r"|Illegal instruction|Segmentation fault|\bAborted\b|core dumped"
)


@dataclass(frozen=True, slots=True)
class TfEnvSmi(Parsed):
    """The nvidia-smi section: the values of a table, or the ``kind`` of an ``smi_failure`` in ``failure``."""

    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[str | None, ...] = ()
    n_processes: int | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class TfEnvRun(Parsed):
    """A run of the script. A value is None if its section is missing or LD_LIBRARY_PATH is unset."""

    python_version: str | None
    docker: bool | None
    pips: Mapping[str, str]
    virtualenv: bool | None
    tf_version: str | None
    tf_import_error: bool | None
    ld_library_path: str | None
    nvidia_smi: TfEnvSmi | None
    cuda_libs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TfEnvReport(Parsed):
    """All runs in a report. The script appends to its file, so there are often several."""

    n_runs: int
    runs: tuple[TfEnvRun, ...] = field(default=())
    notes: tuple[str, ...] = ()


def parse_tf_env(text: str) -> TfEnvReport:
    """Parse a ``tf_env.txt``. A repeated section title starts the next run."""
    runs: list[dict[str, list[str]]] = []
    current_lines: list[str] | None = None
    for line in clean_lines(text):
        title_match = _SECTION_TITLE.match(unquote(line))
        if title_match:
            name = " ".join(title_match[1].split()).lower()
            if not runs or name in runs[-1]:
                runs.append({})
            current_lines = runs[-1].setdefault(name, [])
        elif current_lines is not None:
            current_lines.append(line)
    parsed_runs = tuple(
        _make_run({name: "\n".join(lines) for name, lines in sections.items()}) for sections in runs
    )
    return TfEnvReport(
        n_runs=len(parsed_runs), runs=parsed_runs, notes=() if parsed_runs else ("no '== section ==' titles",)
    )


def has_tf_env_titles(text: str) -> bool:
    """Return whether ``text`` contains at least two of the script's section titles."""
    titles = {
        match[1].strip().lower()
        for line in clean(text).split("\n")
        if (match := _SECTION_TITLE.match(unquote(line)))
    }
    return len(titles & _SCRIPT_TITLES) > 1


def _make_run(sections: Mapping[str, str]) -> TfEnvRun:
    import_section = sections.get("tensorflow import")
    version_match = _TF_VERSION.search(import_section or "")
    return TfEnvRun(
        python_version=_find_python_version(sections),
        docker=_parse_flag(sections.get("are we in docker"), "yes", "no"),
        pips=_parse_pips(sections.get("check pips", "")),
        virtualenv=_parse_flag(sections.get("check for virtualenv"), "true", "false"),
        tf_version=version_match[1] if version_match else None,
        tf_import_error=None
        if import_section is None
        else not version_match and bool(_IMPORT_ERROR.search(import_section)),
        ld_library_path=_find_library_path(sections.get("env", "")),
        nvidia_smi=_parse_smi(sections.get("nvidia-smi")),
        cuda_libs=tuple(
            line.strip() for line in sections.get("cuda libs", "").split("\n") if line.strip().startswith("/")
        ),
    )


def _find_python_version(sections: Mapping[str, str]) -> str | None:
    """Return the version in the Python section, or else in ``sys.version_info``, or else None."""
    if match := _PYTHON_VERSION.search(sections.get("check python", "")):
        return match[1]
    numbers = _PYTHON_VERSION_TUPLE.search(sections.get("python version", ""))
    return ".".join(numbers.groups()) if numbers else None


def _parse_flag(section: str | None, true_word: str, false_word: str) -> bool | None:
    """Return True if a section starts with `true_word`, False for `false_word`, and None for other texts."""
    words = (section or "").lower().split()
    return words[0] == true_word if words and words[0] in (true_word, false_word) else None


def _parse_pips(section: str) -> dict[str, str]:
    matches = (_PIP_PACKAGE.fullmatch(line.strip()) for line in section.split("\n"))
    return {match[1]: match[2] for match in matches if match}


def _find_library_path(section: str) -> str | None:
    match = _LIBRARY_PATH.search(section)
    value = match[1].strip() if match else "is unset"
    return None if value == "is unset" or not value else value


def _parse_smi(section: str | None) -> TfEnvSmi | None:
    if section is None:
        return None
    if looks_like_smi_table(section):
        table = parse_smi_table(section)
        names = tuple(gpu.name for gpu in table.gpus)
        return TfEnvSmi(
            driver_version=table.driver_version,
            cuda_version=table.cuda_version,
            gpus=names,
            n_processes=table.n_processes,
        )
    kind = parse_smi_failure(section).kind
    return TfEnvSmi(failure=kind) if kind else None
