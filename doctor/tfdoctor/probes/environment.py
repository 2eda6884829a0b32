"""Environment variables that decide whether TensorFlow sees a GPU, and their misspellings."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.facts import MODULE_PATH, PATHS, EnvironmentFacts, Origin
from tfdoctor.facts.variables import KNOWN, find_misspelt
from tfdoctor.probes.interpreter_selection import kernel_variables
from tfdoctor.system.payloads import run_payload
from tfdoctor.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdoctor.system import System

PREFIXES = ("TF_", "XLA_", "NVIDIA_", "CUDA_", "NCCL_")
SCHEDULERS = (
    ("SLURM_JOB_ID", "slurm"),
    ("LSB_JOBID", "lsf"),
    ("PBS_JOBID", "pbs"),
    ("RAY_RAYLET_PID", "ray"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
)
PROGRAMS = ("apt-get", "conda", "mamba", "micromamba", "pip", "pip3", "python3", "sh", "sudo", "uv")
"""Programs that advice may have somebody type. Every machine has `sh`: a recording without it never looked."""
AT_START = ("LD_", "PYTHON")
"""What only the loader and Python's start read: set later, it has no effect on that process."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,60}\Z")


def probe(
    system: System, python: str | None = None, *, kernel: str | None = None, timeout: float = 5.0
) -> EnvironmentFacts:
    """Return what of the environment matters, as `python` has it once its own start is over, and who set it.

    `kernel`: the kernel.json whose variables `system` has, too. Without a Python, and where it does not answer: the
    variables that this process was started with.
    """
    programs = frozenset(name for name in PROGRAMS if _runs(system, name))
    there = programs if "sh" in programs else None
    given = _relevant(system.env)
    answer = _answer(system, python, timeout) if python is not None else {}
    now = _texts(answer.get("now"))
    if now is None:
        return EnvironmentFacts(
            variables=given,
            misspelt=find_misspelt(system.env),
            scheduler=_scheduler(system.env),
            programs=there,
        )
    started = _texts(answer.get("started"))
    started = given if started is None else started
    handed = _texts(answer.get("given"))
    given = given if handed is None else handed  # a recording need not have all of ours
    variables = {name: value for name, value in now.items() if not name.startswith(AT_START)}
    variables |= {name: value for name, value in started.items() if name.startswith(AT_START)}
    variables = dict(sorted(_relevant(variables).items()))
    added = [str(name) for name in answer.get("added") or () if isinstance(name, str)]
    places = [place for place in answer.get("places") or () if isinstance(place, dict)]
    places += _list_kernel_lines(system, kernel) if kernel is not None else ()
    return EnvironmentFacts(
        variables=variables,
        misspelt=find_misspelt({*system.env, *now, *added}),
        scheduler=_scheduler(system.env),
        origins=(
            *_origins(system.env, variables, started, given, places),
            *_list_path_origins(answer.get("folders"), places),
        ),
        changed={
            name: variables.get(name)
            for name in sorted({*given, *variables})
            if given.get(name) != variables.get(name)
        },
        late=tuple(
            _find_origin(name, "start", places) or Origin(name, "start")
            for name in sorted(now)
            if name.startswith(AT_START) and now[name] != started.get(name)
        ),
        programs=there,
    )


def _runs(system: System, name: str) -> bool:
    """Return whether a name on PATH is a program: pyenv leaves shims behind which there may be none in the chosen
    version.
    """
    path = system.which(name)
    root, shim, _ = (path or "").partition("/shims/")
    if path is None or not shim or not system.is_dir(f"{root}/versions"):
        return path is not None
    chosen = system.env.get("PYENV_VERSION", "")
    for file in (f"{system.cwd.rstrip('/')}/.python-version", f"{root}/version"):
        if not chosen:
            try:
                chosen = system.read_text(file, limit=1000)
            except OSError:
                continue
    versions = re.split(r"[\s:]+", chosen.strip()) if chosen.strip() else []
    return any(system.exists(f"{root}/versions/{version}/bin/{name}") for version in versions)


def _answer(system: System, python: str, timeout: float) -> dict[str, Any]:
    names = [*KNOWN, *(f"{prefix}*" for prefix in PREFIXES)]
    given = json.dumps(_relevant(system.env))
    answer, _ = run_payload(
        system, python, "variables", [python, *names], timeout=timeout, env={"TFDOCTOR_GIVEN": given}
    )
    return answer


def _texts(raw: object) -> dict[str, str] | None:
    if not isinstance(raw, dict):
        return None
    return {str(name): clean(value) for name, value in raw.items() if isinstance(value, str)}


def _relevant(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: clean(value)
        for name, value in sorted(env.items())
        if name in KNOWN or (name.startswith(PREFIXES) and _NAME.match(name))
    }


def _scheduler(env: Mapping[str, str]) -> str | None:
    return next((word for name, word in SCHEDULERS if name in env), None)


# ---------------------------------------------------------------- who set it


def _origins(
    env: Mapping[str, str],
    variables: Mapping[str, str],
    started: Mapping[str, str],
    given: Mapping[str, str],
    places: Sequence[Mapping[str, Any]],
) -> tuple[Origin, ...]:
    """Return one for each variable, and one for each entry of those that are lists."""
    found = []
    for name, value in variables.items():
        by = "outside"
        if started.get(name) != value:
            by = "start"
        elif given.get(name) != value:
            by = "wrapper"
        for entry in _entries(name, value) or (None,):
            known = by
            if by == "wrapper" and entry is not None and entry in _entries(name, given.get(name, "")):
                known = "outside"
            if known != "outside":
                origin = _find_origin(name, known, places, env, entry=entry)
            else:
                origin = next(
                    (
                        one
                        for kind in ("kernel", "activation", "machine")
                        if (one := _find_origin(name, kind, places, env, entry=entry, value=value))
                        is not None
                    ),
                    None,
                )
            found.append(origin or Origin(name, known if known != "outside" else "shell", entry))
    return tuple(found)


def _list_path_origins(folders: object, places: Sequence[Mapping[str, Any]]) -> Iterator[Origin]:
    """Yield the folders that Python's own start put on its path, with the line that does it where one names the
    folder.
    """
    for folder in folders if isinstance(folders, list) else ():
        if isinstance(folder, str) and clean(folder) == folder:
            naming = [place for place in places if place.get("entry") == folder]
            yield _find_origin(MODULE_PATH, "start", naming, entry=folder) or Origin(
                MODULE_PATH, "start", folder
            )


def _list_kernel_lines(system: System, path: str) -> list[dict[str, Any]]:
    """Return the lines of a kernel.json that set variables, as the child answers those of scripts."""
    try:
        lines = system.read_text(path, limit=1 << 16).split("\n")
    except OSError:
        return []
    found = []
    for name, value in _relevant(kernel_variables(system, path)).items():
        numbers = (number for number, line in enumerate(lines, 1) if json.dumps(name) in line)
        text = f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        found.append(
            {"name": name, "kind": "kernel", "path": path, "line": next(numbers, None), "text": text}
        )
    return found


def _entries(name: str, value: str) -> tuple[str, ...]:
    """Return the entries of a list, each once; () for a variable that is none, or empty."""
    if name not in PATHS:
        return ()
    separators = r"[:\s]+" if name == "LD_PRELOAD" else "[:;]" if name == "LD_LIBRARY_PATH" else ":"
    return tuple(dict.fromkeys(entry for entry in re.split(separators, value) if entry))


def _find_origin(
    name: str,
    kind: str,
    places: Sequence[Mapping[str, Any]],
    env: Mapping[str, str] | None = None,
    *,
    entry: str | None = None,
    value: str | None = None,
) -> Origin | None:
    """Return the line of a file of that kind that sets the variable: in shell scripts the last possible one."""
    here = [p for p in places if p.get("name") == name and p.get("kind") == kind]
    if kind == "start":
        doing = [p for p in here if re.search(r"environ|putenv|setdefault|update", str(p.get("text")))]
        here = (doing or here)[:1]
    else:
        here = [p for p in here if _sets(name, str(p.get("text", "")), env or {}, entry, value)]
    if not here:
        return None
    place = here[-1]
    line = place.get("line")
    return Origin(
        name,
        kind,
        entry,
        path=clean(str(place.get("path", ""))),
        line=line if isinstance(line, int) else None,
        text=clean(str(place.get("text", "")), limit=500),
    )


def _sets(name: str, text: str, env: Mapping[str, str], entry: str | None, value: str | None) -> bool:
    """Return whether a line of a shell (or of conda's JSON) can be what gave the variable this value, this entry."""
    match = re.search(rf'(?<![A-Za-z0-9_]){re.escape(name)}("?\s*:\s*|=)(.*)', text)
    if match is None:
        return False
    said = re.sub(
        r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?",
        lambda found: env.get(found[1], found[0]) if found[1] != name else found[0],
        match[2],
    )
    if entry is not None:
        return (
            re.search(rf"(?<![^\s\"':=;]){re.escape(entry.rstrip('/'))}/?(?![^\s\"':;$])", said) is not None
        )
    word = re.match(r"""\s*(?:"([^"$`]*)"|'([^']*)'|([^\s;&|"'$`]*))(?=[\s;&|,}]|$)""", said)
    if word is None or value is None:
        return True
    return next((part for part in word.groups() if part is not None), "") == value
