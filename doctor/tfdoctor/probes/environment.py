"""Probe the environment variables that decide whether TensorFlow sees a GPU, and what set them.

Misspelt names of these variables are also reported.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts import LIST_VARIABLES, MODULE_PATH, EnvironmentFacts, Origin
from tfdoctor.core.facts.variables import KNOWN_VARIABLES, find_misspelt_variables
from tfdoctor.core.text import clean, clean_line
from tfdoctor.probes.files import load_text
from tfdoctor.probes.interpreter_selection import iter_uv_variables, read_kernel_variables
from tfdoctor.system.children import drop_working_folder
from tfdoctor.system.payloads import run_payload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdoctor.system import System

VARIABLE_PREFIXES = ("TF_", "XLA_", "NVIDIA_", "CUDA_", "NCCL_")
"""Prefixes of variables that are reported beside the known ones, if their value is a number or a switch.

Terraform's variables begin with TF_, too, and hold tokens and names. So only a known variable is reported with any value.
"""
OTHER_VARIABLES = frozenset(
    {
        "CUDA_MODULE_LOADING",
        "NCCL_ALGO",
        "NCCL_DEBUG",
        "NCCL_NET",
        "NCCL_P2P_LEVEL",
        "NCCL_PROTO",
        "NCCL_SOCKET_IFNAME",
        "TF_CONFIG",
        "TF_ENABLED_DEVICE_TYPES",
    }
)
"""Variables that TensorFlow, CUDA or NCCL reads, in addition to KNOWN_VARIABLES, whose misspellings are not searched for."""
_PLAIN_VALUE = re.compile(r"(?i)(?:[-+]?\d[\d.]{0,30}|true|false|yes|no|on|off|)\Z")
"""The value of a number or a switch, as in payload/variables.py."""
SCHEDULER_VARIABLES = (
    ("SLURM_JOB_ID", "slurm"),
    ("LSB_JOBID", "lsf"),
    ("PBS_JOBID", "pbs"),
    ("RAY_RAYLET_PID", "ray"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
)
"""Pairs of a variable and the scheduler that sets it."""
REMEDY_PROGRAMS = ("apt-get", "conda", "mamba", "micromamba", "pip", "pip3", "python3", "sh", "sudo", "uv")
"""Programs that remedies may use.

Every machine has `sh`. If a recording lacks it, the programs were not recorded.
"""
STARTUP_PREFIXES = ("LD_", "PYTHON")
"""Prefixes of variables that are read only when a process starts: a later change has no effect."""
_COMMAND_OR_ALIAS = re.compile(r"\s*(?:alias\s|[A-Za-z_]\w*=[^\s;&|\"'$`()]*\s+[\w./-])")
"""A line of a shell script that sets a variable for one command only."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,60}\Z")


def probe(
    system: System, python: str | None = None, *, kernel: str | None = None, timeout: float = 5.0
) -> EnvironmentFacts:
    """Return the relevant environment variables of `python` after its startup, and what set them.

    `kernel` is the Jupyter kernel.json whose variables are part of `system.env`. If `python` is None or does not
    answer, the variables of `system.env` are returned, without their origins. `timeout` is in seconds.
    """
    programs = frozenset(name for name in REMEDY_PROGRAMS if _is_working_program(system, name))
    known_programs = programs if "sh" in programs else None
    keras_file, keras_backend = _read_keras_file(system)
    variables_before = select_variables(system.env)
    answer = _query_child(system, python, timeout) if python is not None else {}
    variables_after = _clean_texts(answer.get("now"))
    if variables_after is None:
        return EnvironmentFacts(
            variables=variables_before,
            misspelt=find_misspelt_variables(system.env),
            scheduler=_find_scheduler(system.env),
            keras_file=keras_file,
            keras_backend=keras_backend,
            programs=known_programs,
        )
    variables_at_start = _clean_texts(answer.get("started"))
    variables_at_start = variables_before if variables_at_start is None else variables_at_start
    library_path = variables_before.get("LD_LIBRARY_PATH", "")
    reduced_env = drop_working_folder({"LD_LIBRARY_PATH": library_path} if library_path else {})
    if library_path and variables_at_start.get("LD_LIBRARY_PATH") == reduced_env.get("LD_LIBRARY_PATH"):
        # The child was started without empty and relative entries.
        variables_at_start = {**variables_at_start, "LD_LIBRARY_PATH": library_path}
        if variables_after.get("LD_LIBRARY_PATH") == reduced_env.get("LD_LIBRARY_PATH"):
            variables_after = {**variables_after, "LD_LIBRARY_PATH": library_path}
    reported_before = _clean_texts(answer.get("given"))
    # A recording need not have all variables of this process.
    variables_before = variables_before if reported_before is None else select_variables(reported_before)
    variables = {
        name: value for name, value in variables_after.items() if not name.startswith(STARTUP_PREFIXES)
    }
    variables |= {
        name: value for name, value in variables_at_start.items() if name.startswith(STARTUP_PREFIXES)
    }
    variables = dict(sorted(select_variables(variables).items()))
    added = [str(name) for name in answer.get("added") or () if isinstance(name, str)]
    locations = [location for location in answer.get("places") or () if isinstance(location, dict)]
    locations += _list_kernel_lines(system, kernel) if kernel is not None else _list_uv_lines(system)
    return EnvironmentFacts(
        variables=variables,
        misspelt=find_misspelt_variables({*system.env, *variables_after, *added}),
        scheduler=_find_scheduler(system.env),
        origins=(
            *_find_origins(system.env, variables, variables_at_start, variables_before, locations),
            *_iter_path_origins(answer.get("folders"), locations),
        ),
        changed={
            name: variables.get(name)
            for name in sorted({*variables_before, *variables})
            if variables_before.get(name) != variables.get(name)
        },
        late=tuple(
            _find_origin(name, "start", locations) or Origin(name, "start")
            for name in sorted(variables_after)
            if name.startswith(STARTUP_PREFIXES) and variables_after[name] != variables_at_start.get(name)
        ),
        keras_file=keras_file,
        keras_backend=keras_backend,
        programs=known_programs,
    )


def _is_working_program(system: System, name: str) -> bool:
    """Return whether a program is on PATH and works.

    A shim of pyenv works only if the selected version has the program.
    """
    path = system.which(name)
    root, shim, _ = (path or "").partition("/shims/")
    if path is None or not shim or not system.is_dir(f"{root}/versions"):
        return path is not None
    selected_versions = system.env.get("PYENV_VERSION", "")
    for file in (f"{system.cwd.rstrip('/')}/.python-version", f"{root}/version"):
        if not selected_versions:
            try:
                selected_versions = system.read_text(file, limit=1000)
            except OSError:
                continue
    versions = re.split(r"[\s:]+", selected_versions.strip()) if selected_versions.strip() else []
    return any(system.exists(f"{root}/versions/{version}/bin/{name}") for version in versions)


def _read_keras_file(system: System) -> tuple[str, str]:
    """Return (path, backend) of the keras.json that Keras reads, or ("", "") if it names no backend."""
    home = system.env.get("HOME", "")
    folder = system.env.get("KERAS_HOME") or (f"{home}/.keras" if home else "")
    path = f"{folder}/keras.json"
    try:
        backend = json.loads(load_text(system, path) or "").get("backend") if path.startswith("/") else None
    except (ValueError, AttributeError, RecursionError):  # Keras ignores a file that it cannot read
        return "", ""
    return (path, clean_line(backend, limit=60)) if isinstance(backend, str) else ("", "")


def _query_child(system: System, python: str, timeout: float) -> dict[str, Any]:
    """Return the child's answer: the variables before and after Python's startup, and what set them.

    The answer is empty if the child fails.
    """
    names = [*KNOWN_VARIABLES, *sorted(OTHER_VARIABLES), *(f"{prefix}*" for prefix in VARIABLE_PREFIXES)]
    variables_before = json.dumps(select_variables(system.env))
    answer, _ = run_payload(
        system,
        python,
        "variables",
        [python, *names],
        timeout=timeout,
        env={"TFDOCTOR_GIVEN": variables_before},
    )
    return answer


def _clean_texts(raw: object) -> dict[str, str] | None:
    """Return the string values of a mapping, without control characters, or None if it is not a mapping."""
    if not isinstance(raw, dict):
        return None
    return {str(name): clean(value) for name, value in raw.items() if isinstance(value, str)}


def select_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the relevant variables, sorted and without control characters."""
    return {
        name: clean(value)
        for name, value in sorted(env.items())
        if name in KNOWN_VARIABLES
        or name in OTHER_VARIABLES
        or (name.startswith(VARIABLE_PREFIXES) and _VARIABLE_NAME.match(name) and _PLAIN_VALUE.match(value))
    }


def _find_scheduler(env: Mapping[str, str]) -> str | None:
    """Return the scheduler that started this process, or None if none did."""
    return next((scheduler for name, scheduler in SCHEDULER_VARIABLES if name in env), None)


# ---------------------------------------------------------------- origins


def _find_origins(
    env: Mapping[str, str],
    variables: Mapping[str, str],
    variables_at_start: Mapping[str, str],
    variables_before: Mapping[str, str],
    locations: Sequence[Mapping[str, Any]],
) -> tuple[Origin, ...]:
    """Return the origin of each variable, or the origins of the entries of a list variable.

    A value comes from Python's startup ("start") if it differs from `variables_at_start`, the variables when Python was
    started. It comes from a wrapper script ("wrapper") if it differs from `variables_before`, which this process passed
    on. Any other value comes from outside: it is searched in the files of the kernel, the activation and the machine. If
    these do not set it, the origin is "shell".
    """
    origins = []
    for name, value in variables.items():
        kind_of_value = "outside"
        if variables_at_start.get(name) != value:
            kind_of_value = "start"
        elif variables_before.get(name) != value:
            kind_of_value = "wrapper"
        for entry in _split_entries(name, value) or (None,):  # None stands for the whole value
            kind_of_entry = kind_of_value
            if (
                kind_of_value == "wrapper"
                and entry is not None
                and entry in _split_entries(name, variables_before.get(name, ""))
            ):
                kind_of_entry = "outside"
            if kind_of_entry != "outside":
                origin = _find_origin(name, kind_of_entry, locations, env, entry=entry)
            else:
                origin = next(
                    (
                        candidate
                        for kind in ("kernel", "uv", "activation", "profile", "machine")
                        if (candidate := _find_origin(name, kind, locations, env, entry=entry, value=value))
                        is not None
                    ),
                    None,
                )
            origins.append(
                origin or Origin(name, kind_of_entry if kind_of_entry != "outside" else "shell", entry)
            )
    return tuple(origins)


def _iter_path_origins(folders: object, locations: Sequence[Mapping[str, Any]]) -> Iterator[Origin]:
    """Yield the origin of each folder that the startup of Python added to its path."""
    for folder in folders if isinstance(folders, list) else ():
        if isinstance(folder, str) and clean(folder) == folder:
            matches = [location for location in locations if location.get("entry") == folder]
            yield _find_origin(MODULE_PATH, "start", matches, entry=folder) or Origin(
                MODULE_PATH, "start", folder
            )


def _list_kernel_lines(system: System, path: str) -> list[dict[str, Any]]:
    """Return the lines of a kernel.json that set variables, in the format of the child's answer.

    Return nothing if the file cannot be read.
    """
    try:
        lines = system.read_text(path, limit=1 << 16).split("\n")
    except OSError:
        return []
    locations = []
    for name, value in select_variables(read_kernel_variables(system, path)).items():
        numbers = (number for number, line in enumerate(lines, 1) if json.dumps(name) in line)
        text = f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        locations.append(
            {"name": name, "kind": "kernel", "path": path, "line": next(numbers, None), "text": text}
        )
    return locations


def _list_uv_lines(system: System) -> list[dict[str, Any]]:
    """Return the lines of the files that UV_ENV_FILE names, in the format of the child's answer."""
    return [
        {"name": name, "kind": "uv", "path": path, "line": number, "text": text}
        for name, value, path, number, text in iter_uv_variables(system)
        if system.env.get(name) == value
    ]


def _split_entries(name: str, value: str) -> tuple[str, ...]:
    """Return the distinct entries of a list variable, or an empty tuple if it is not a list."""
    if name not in LIST_VARIABLES:
        return ()
    separators = r"[:\s]+" if name == "LD_PRELOAD" else "[:;]" if name == "LD_LIBRARY_PATH" else ":"
    return tuple(dict.fromkeys(entry for entry in re.split(separators, value) if entry))


def _find_origin(
    name: str,
    kind: str,
    locations: Sequence[Mapping[str, Any]],
    env: Mapping[str, str] | None = None,
    *,
    entry: str | None = None,
    value: str | None = None,
) -> Origin | None:
    """Return the origin of a variable, or of its `entry`, in a file of one kind, or None if there is none.

    `locations` are the lines in the child's answer. For the startup of Python, the first assignment counts. For other
    kinds, the last line that can have set the value counts.
    """
    matches = [
        location for location in locations if location.get("name") == name and location.get("kind") == kind
    ]
    if kind == "start":
        python_assignments = [
            location
            for location in matches
            if re.search(r"environ|putenv|setdefault|update", str(location.get("text")))
        ]
        matches = (python_assignments or matches)[:1]
    else:
        matches = [
            location
            for location in matches
            if _can_set(name, str(location.get("text", "")), env or {}, entry, value)
        ]
    if not matches:
        return None
    match = matches[-1]
    line = match.get("line")
    return Origin(
        name,
        kind,
        entry,
        path=clean(str(match.get("path", ""))),
        line=line if isinstance(line, int) else None,
        text=clean(str(match.get("text", "")), limit=500),
    )


def _can_set(name: str, text: str, env: Mapping[str, str], entry: str | None, value: str | None) -> bool:
    """Return whether a line of a shell script or of a JSON file can have set this value or entry.

    `env` is used to expand variables in the line. If the value in the line cannot be parsed, the result is true.
    """
    match = re.search(rf'(?<![A-Za-z0-9_]){re.escape(name)}("?\s*:\s*|=)(.*)', text)
    if match is None or _COMMAND_OR_ALIAS.match(text):
        return False
    # The variable itself is not expanded: "$PATH" in its own assignment means the earlier value.
    expanded = re.sub(
        r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?",
        lambda reference: env.get(reference[1], reference[0]) if reference[1] != name else reference[0],
        match[2],
    )
    if entry is not None:
        return (
            re.search(rf"(?<![^\s\"':=;]){re.escape(entry.rstrip('/'))}/?(?![^\s\"':;$])", expanded)
            is not None
        )
    value_match = re.match(r"""\s*(?:"([^"$`]*)"|'([^']*)'|([^\s;&|"'$`]*))(?=[\s;&|,}]|$)""", expanded)
    if value_match is None or value is None:
        return True
    return next((part for part in value_match.groups() if part is not None), "") == value
