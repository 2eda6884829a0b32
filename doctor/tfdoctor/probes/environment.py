"""Environment variables that decide whether TensorFlow sees a GPU, and their misspellings."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.facts import MODULE_PATH, PATHS, EnvironmentFacts, Origin
from tfdoctor.probes.choice import kernel_variables
from tfdoctor.system.payloads import run_payload
from tfdoctor.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdoctor.system import System

KNOWN = (
    "CONDA_DEFAULT_ENV",
    "CONDA_PREFIX",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_CACHE_PATH",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_HOME",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDA_VISIBLE_DEVICES",
    "CUDNN_PATH",
    "KERAS_BACKEND",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LMOD_CMD",
    "LOADEDMODULES",
    "MODULESHOME",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",
    "PYTHONHOME",
    "PYTHONOPTIMIZE",
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "SETUPTOOLS_USE_DISTUTILS",
    "TF_CPP_MAX_VLOG_LEVEL",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_CPP_VMODULE",
    "TF_CUDA_COMPUTE_CAPABILITIES",
    "TF_ENABLE_GPU_GARBAGE_COLLECTION",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "TF_GPU_THREAD_MODE",
    "TF_MIN_GPU_MULTIPROCESSOR_COUNT",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "VIRTUAL_ENV",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
)
PREFIXES = ("TF_", "XLA_", "NVIDIA_", "CUDA_", "NCCL_")
GUARDED = tuple(
    name for name in KNOWN if len(name) >= 8 and name not in {"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"}
)
"""Names whose misspelling is looked for; the short ones have too many innocent neighbours."""
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
    """What of the environment matters, as `python` has it once its own start is over, and who set it.

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
    places += _of_kernel(system, kernel) if kernel is not None else ()
    return EnvironmentFacts(
        variables=variables,
        misspelt=find_misspelt({*system.env, *now, *added}),
        scheduler=_scheduler(system.env),
        origins=(
            *_origins(system.env, variables, started, given, places),
            *_of_module_path(answer.get("folders"), places),
        ),
        changed={
            name: variables.get(name)
            for name in sorted({*given, *variables})
            if given.get(name) != variables.get(name)
        },
        late=tuple(
            _found(name, "start", places) or Origin(name, "start")
            for name in sorted(now)
            if name.startswith(AT_START) and now[name] != started.get(name)
        ),
        programs=there,
    )


def _runs(system: System, name: str) -> bool:
    """Whether a name on PATH is a program: pyenv leaves shims behind which there may be none in the chosen version."""
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
    """One for each variable, and one for each entry of those that are lists."""
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
                origin = _found(name, known, places, env, entry=entry)
            else:
                origin = next(
                    (
                        one
                        for kind in ("kernel", "activation", "machine")
                        if (one := _found(name, kind, places, env, entry=entry, value=value)) is not None
                    ),
                    None,
                )
            found.append(origin or Origin(name, known if known != "outside" else "shell", entry))
    return tuple(found)


def _of_module_path(folders: object, places: Sequence[Mapping[str, Any]]) -> Iterator[Origin]:
    """The folders that Python's own start put on its path, with the line that does it where one names the folder."""
    for folder in folders if isinstance(folders, list) else ():
        if isinstance(folder, str) and clean(folder) == folder:
            naming = [place for place in places if place.get("entry") == folder]
            yield _found(MODULE_PATH, "start", naming, entry=folder) or Origin(MODULE_PATH, "start", folder)


def _of_kernel(system: System, path: str) -> list[dict[str, Any]]:
    """The lines of a kernel.json that set variables, as the child answers those of scripts."""
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
    """The entries of a list, each once; () for a variable that is none, or empty."""
    if name not in PATHS:
        return ()
    separators = r"[:\s]+" if name == "LD_PRELOAD" else "[:;]" if name == "LD_LIBRARY_PATH" else ":"
    return tuple(dict.fromkeys(entry for entry in re.split(separators, value) if entry))


def _found(
    name: str,
    kind: str,
    places: Sequence[Mapping[str, Any]],
    env: Mapping[str, str] | None = None,
    *,
    entry: str | None = None,
    value: str | None = None,
) -> Origin | None:
    """The line of a file of that kind that sets the variable: in a shell's scripts the last one that can have."""
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
    """Whether a line of a shell (or of conda's JSON) can be what gave the variable this value, this entry."""
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


def find_misspelt(env: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Pairs (as set, as meant) for names one or two letters off a known one, or in the wrong case."""
    pairs: list[tuple[str, str]] = []
    for name in sorted(env):
        if name in KNOWN or not _NAME.match(name):
            continue
        upper = name.upper()
        if upper in GUARDED:
            pairs.append((name, upper))
            continue
        if not any(_may_be_meant(upper, known) for known in GUARDED):
            continue
        import difflib  # seldom needed

        close = difflib.get_close_matches(upper, GUARDED, n=1, cutoff=0.9)
        if close and _edits(upper, close[0]) <= 2 and not _is_other_name(upper, close[0]):
            pairs.append((name, close[0]))
    return tuple(pairs)


def _may_be_meant(name: str, known: str) -> bool:
    """Whether `_edits` can be two at most: each changes the length by one at most, and the set of letters by two."""
    return abs(len(name) - len(known)) <= 2 and len(set(name) ^ set(known)) <= 4


def _is_other_name(name: str, known: str) -> bool:
    """TF_CUDA_PATH beside CUDA_PATH, CUDNN_PATHS…: a whole word more or less is another name, not a slip."""
    return set(name.split("_")) ^ set(known.split("_")) in ({"S"}, {"V2"}) or name.startswith(f"{known}_")


def _edits(left: str, right: str) -> int:
    """Damerau-Levenshtein distance of two short words (adjacent letters swapped count once)."""
    previous: list[int] = []
    current = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, previous, current = previous, current, [i]
        for j, b in enumerate(right, 1):
            best = min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                best = min(best, before[j - 2] + 1)
            current.append(best)
    return current[-1]
