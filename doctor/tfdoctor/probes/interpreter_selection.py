"""Select the Python to examine: the requested one, that of the active environment, or the one on PATH.

An active environment that cannot be used is not ignored silently: the result lists it.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import posixpath
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.core.errors import UsageError
from tfdoctor.core.facts.python import PYTHON_OPTION, OtherPython, PythonChoice, UnusableEnvironment
from tfdoctor.core.text import clean_line, split_path_list
from tfdoctor.probes.files import list_names, load_text
from tfdoctor.system import INTERPRETER_PATHS
from tfdoctor.system.payloads import make_payload_variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.system import System

ACTIVE_VARIABLES = {
    "VIRTUAL_ENV": "the active virtual environment",
    "CONDA_PREFIX": "the active conda environment",
}
"""The variables that name an active environment, each with a description of the environment."""
PROJECT_FILES = (
    ("uv.lock", "uv", ".venv"),
    ("poetry.lock", "poetry", ".venv"),
    ("pdm.lock", "pdm", ".venv"),
    ("Pipfile", "pipenv", ".venv"),
    ("pixi.lock", "pixi", ".pixi/envs/default"),
    ("pixi.toml", "pixi", ".pixi/envs/default"),
    ("pyproject.toml", "uv", ".venv"),
)
"""(file of a project, the tool that it belongs to, the environment that `TOOL run` uses), the surest first."""
MAX_PARENTS = 8
"""The maximum number of folders above the working folder that are searched for a project."""
ENVIRONMENT_NAMES = (".venv", "venv", "env", ".env")
"""Common names of the environment in the folder of a project."""
MAX_FOLDERS = 40
"""The maximum number of folders that are searched for another Python."""
WHICH_TIMEOUT_S = 3.0
"""The time limit in seconds for a command that only searches PATH."""
_UV_CACHE_PYTHON = re.compile(r"/(?:archive|environments|builds)-v\d{1,3}/[^/]{1,80}/bin/[^/]{1,40}\Z")
"""An interpreter in uv's cache: `uvx tfdoctor` puts its temporary environment first on PATH."""
_PYVENV_SETTING = re.compile(r"^[ \t]*(\w{1,40})[ \t]*=[ \t]*(.{1,400}?)[ \t]*$", re.MULTILINE)
"""A line of pyvenv.cfg."""
FIND_TENSORFLOW_CODE = """\
import sys
sys.path[:] = [folder for folder in sys.path if folder[:1] == "/"]
import os
found = [f for f in sys.path if os.path.exists(os.path.join(f, "tensorflow", "__init__.py"))]
print("tfdoctor-path:" + sys.prefix + ":" + (found or [""])[0])
"""
"""Code that prints the prefix of a Python and the folder of its TensorFlow. It imports nothing of the working folder."""
_ENV_FILE_LINE = re.compile(
    r"""\s*(?:export\s+)?([A-Za-z_]\w{0,60})\s*=\s*(["']?)(.{0,400}?)\2\s*(?:\s#.*)?$"""
)
"""A line of a file that `uv run` reads: a name, and a value in quotes or without."""
_PYTHON_NAME = re.compile(r"python(?:\d(?:\.\d{1,2})?t?)?(?:\.exe)?\Z", re.IGNORECASE)
"""The file name of a Python interpreter."""
_SHEBANG = re.compile(r"#!\s*(/\S{1,400})(?:\s+(?:-S\s+)?(\S{1,100}))?")
"""The program in the first line of a script, and its first argument."""


def choose_python(system: System, requested: str | None) -> PythonChoice:
    """Return the Python to examine, and how it was chosen.

    `requested` is the value of `--python`: a command, an interpreter, the folder of an environment, or a Jupyter
    kernel.json, which stands for the Python that it starts. If it is None, the Python of the active virtual or conda
    environment is chosen, else `python3` on PATH, else `python`. Raise UsageError if there is no Python to run.
    """
    if requested is not None:
        return _find_requested(system, requested)
    unusable: list[UnusableEnvironment] = []
    for variable in _list_active_variables(system):
        prefix = system.env[variable].rstrip("/") or "/"
        python = _find_python(system, prefix)
        if python is not None:
            is_base = variable == "CONDA_PREFIX" and system.env.get("CONDA_DEFAULT_ENV") == "base"
            reason = "conda's base environment, which is active" if is_base else ACTIVE_VARIABLES[variable]
            return PythonChoice(
                path=python,
                how=f"${variable}",
                why=reason,
                lost=tuple(unusable),
                on_path=_find_other_on_path(system, prefix),
            )
        unusable.append(diagnose_environment(system, variable, prefix))
    for name in ("python3", "python"):
        python = _find_on_path(system, name)
        if python:
            known_prefixes = {environment.prefix for environment in unusable}
            unusable += [
                environment
                for environment in _diagnose_path_environments(system, python)
                if environment.prefix not in known_prefixes
            ]
            label = f"{name} on PATH"
            reason = f"{label}, the shim {python}" if "/shims/" in python else label
            return PythonChoice(python, label, reason, tuple(unusable))
    if unusable:
        environment = unusable[0]
        prefix = clean_line(environment.prefix)
        description = f"${environment.variable} names {prefix}, {describe_unusable_environment(environment)}"
        message = f"No Python found: {description}, and no python3 is on PATH."
        raise UsageError(message, hint="Name one with --python PATH.")
    raise UsageError(
        "No Python found: no active environment, no python3 on PATH.", hint="Name one with --python PATH."
    )


def find_program_python(system: System, program: str) -> str | None:
    """Return the Python that runs a program, or None if it is no Python program.

    The program is a Python itself, or a script whose first line names one.
    """
    path = system.which(program)
    if path is None:
        return None
    path = _make_absolute(system, path)
    if _PYTHON_NAME.match(posixpath.basename(path)):
        return path
    shebang = _SHEBANG.match(load_text(system, path, 1 << 12) or "")
    interpreter = shebang[1] if shebang is not None else ""
    if shebang is not None and shebang[2] and posixpath.basename(interpreter) == "env":
        interpreter = system.which(shebang[2]) or ""
    return interpreter if _PYTHON_NAME.match(posixpath.basename(interpreter)) else None


def describe_unusable_environment(environment: UnusableEnvironment) -> str:
    """Describe the problem of an unusable environment as a clause, such as "which is not there"."""
    return {
        "gone": "which is not there",
        "empty": "in which there is no Python",
        "base-gone": f"whose Python leads to {clean_line(environment.target or '')}, which is not there",
        "closed": "which this user may not look into",
    }[environment.problem]


def _list_active_variables(system: System) -> list[str]:
    """Return the variables that name an active environment. That of the Python on PATH comes first."""
    # An activation sets an absolute path. A relative path could run a file in the working folder.
    variables = [name for name in ACTIVE_VARIABLES if _is_absolute(system.env.get(name, ""))]
    if len(variables) > 1:
        python = system.which("python") or system.which("python3") or ""
        variables.sort(key=lambda name: not python.startswith(f"{system.env[name].rstrip('/')}/"))
    return variables


def _find_other_on_path(system: System, prefix: str) -> str:
    """Return the Python on PATH if it belongs to another environment than `prefix`, else "".

    If there is one, the variable that names `prefix` may be a leftover. A shim does not count if it may lead to
    `prefix`, because both are in the folder of the same version manager.
    """
    python = _find_on_path(system, "python") or _find_on_path(system, "python3") or ""
    real_prefix = system.realpath(prefix)
    root, shim, _ = python.partition("/shims/")
    if not python.startswith("/") or (shim and real_prefix.startswith(f"{system.realpath(root)}/")):
        return ""
    return python if shim or system.realpath(get_prefix(python)) != real_prefix else ""


def examine_python_on_path(system: System, choice: PythonChoice, *, timeout: float) -> PythonChoice:
    """Return the choice with what `on_path` imports as TensorFlow, without `on_path` if it is the same environment.

    `timeout` is in seconds. A shim of a version manager may lead to the environment itself.
    """
    if not choice.on_path:
        return choice
    result = system.run(
        (choice.on_path, "-c", FIND_TENSORFLOW_CODE),
        timeout=timeout,
        env=make_payload_variables(system),
        key="python:on-path",
    )
    line = next((line for line in result.stdout.splitlines() if line.startswith("tfdoctor-path:")), "")
    if line:
        _, prefix, folder = line.split(":", 2)
        if system.realpath(prefix) == system.realpath(get_prefix(choice.path)):
            return dataclasses.replace(choice, on_path="")
        return dataclasses.replace(choice, on_path_tensorflow=clean_line(folder))
    # A shim without a Python behind it ends with an error, and so does the user's program.
    return dataclasses.replace(choice, on_path_tensorflow="" if result.returncode else None)


def _find_on_path(system: System, name: str) -> str | None:
    """Return the path of a command on PATH, or None if it is missing.

    A temporary environment of uv is used only if there is no other match.
    """
    path = system.which(name)
    if path is None or not _UV_CACHE_PYTHON.search(path):
        return path
    candidates = system.run(("which", "-a", name), timeout=WHICH_TIMEOUT_S).stdout.split("\n")
    return next(
        (
            candidate
            for candidate in candidates
            if candidate.startswith("/") and not _UV_CACHE_PYTHON.search(candidate)
        ),
        path,
    )


def _diagnose_path_environments(system: System, python: str) -> list[UnusableEnvironment]:
    """Return the environments before `python` on PATH whose own Python is a dangling link, so that the shell skips it."""
    folders = split_path_list("PATH", system.env.get("PATH", ""))
    earlier = itertools.takewhile(lambda folder: folder.rstrip("/") != posixpath.dirname(python), folders)
    prefixes = dict.fromkeys(
        posixpath.dirname(folder.rstrip("/")) for folder in earlier if _is_absolute(folder)
    )
    environments = [
        diagnose_environment(system, "PATH", prefix) for prefix in prefixes if is_environment(system, prefix)
    ]
    return [environment for environment in environments if environment.problem == "base-gone"]


def _find_python(system: System, prefix: str) -> str | None:
    """Return the interpreter in the folder of an environment, or None if there is none."""
    for name in INTERPRETER_PATHS:
        path = f"{prefix.rstrip('/')}/{name}"
        if system.exists(path):
            return path
    return None


# ---------------------------------------------------------------- environment of a project


def _iter_project_environments(system: System) -> Iterator[tuple[str, str]]:
    """Yield (interpreter, tool) of the environments of the project that contains the working folder."""
    folder = system.cwd.rstrip("/")
    for _ in range(MAX_PARENTS):
        if not folder or folder == system.env.get("HOME", "").rstrip("/"):
            return
        for file, tool, name in PROJECT_FILES:
            prefix = f"{folder}/{name}"
            is_tool_known = file != "pyproject.toml" or "uv" in _load_pyvenv(system, prefix)
            if system.exists(f"{folder}/{file}") and system.exists(f"{prefix}/bin/python") and is_tool_known:
                yield f"{prefix}/bin/python", tool
                return
        folder = posixpath.dirname(folder)


# ---------------------------------------------------------------- requested by the user


def _find_requested(system: System, requested: str) -> PythonChoice:
    """Return the choice for a `--python` argument. Raise UsageError if it names nothing usable."""
    if not requested.strip() or "\0" in requested:
        raise UsageError("--python: an empty path, or one with a null character, names no interpreter.")
    if (
        "/" not in requested
        and "\\" not in requested
        and not system.exists(_make_absolute(system, requested))
    ):
        path_of_command = system.which(requested)
        if path_of_command is None:
            message = f"--python: there is no `{clean_line(requested)}` on PATH."
            raise UsageError(message)
        return PythonChoice(path_of_command, requested, f"from --python: {clean_line(requested)} on PATH")
    path = _make_absolute(system, requested)
    kernel = _find_kernel_file(system, path)
    if kernel is not None:
        return _choose_kernel(system, requested, kernel)
    if system.is_dir(path):
        return _choose_in_folder(system, requested, path.rstrip("/") or "/")
    if system.exists(path):
        return PythonChoice(path, requested, "from --python")
    if _get_errno(system, path) == errno.EACCES:
        message = f"--python: {clean_line(requested)} may not be looked at by this user."
        raise UsageError(message, hint="Run tfdoctor as the user whose Python it is.")
    prefix = posixpath.dirname(posixpath.dirname(path))
    if _is_dangling_link(system, path) and is_environment(system, prefix):
        environment = diagnose_environment(system, PYTHON_OPTION, prefix)
        return PythonChoice(path, requested, "from --python", (environment,))
    if _is_dangling_link(system, path):
        target = clean_line(system.realpath(path))
        message = f"--python: {clean_line(requested)} is a link to {target}, which does not exist."
        raise UsageError(message)
    message = f"--python: {clean_line(requested)} does not exist."
    raise UsageError(message)


def _choose_in_folder(system: System, requested: str, path: str) -> PythonChoice:
    """Return the choice for a requested folder. Raise UsageError if it is not an environment."""
    python = _find_python(system, path)
    if python is not None:
        return PythonChoice(python, requested, "from --python")
    unusable_environment = diagnose_environment(system, PYTHON_OPTION, path)
    if unusable_environment.problem == "closed":
        message = (
            f"--python: {clean_line(requested)}, or the folder that its Python leads to, may not be looked into by "
            "this user."
        )
        raise UsageError(message, hint="Run tfdoctor as the user whose environment it is.")
    if unusable_environment.problem == "base-gone":
        return PythonChoice(f"{path}/bin/python", requested, "from --python", (unusable_environment,))
    environment_name = next(
        (name for name in ENVIRONMENT_NAMES if _find_python(system, f"{path}/{name}")), None
    )
    message = f"--python: {clean_line(requested)} is a folder without bin/python."
    hint = "Name the interpreter itself, or the folder of a virtual environment."
    if environment_name is not None:
        hint = f"An environment is in it: --python {clean_line(posixpath.join(requested, environment_name))}"
    raise UsageError(message, hint=hint)


def _find_kernel_file(system: System, path: str) -> str | None:
    """Return the path of the kernel.json at an absolute path, or None if there is none.

    The path may be the file itself, or its folder if that has no Python.
    """
    if system.is_dir(path):
        kernel = f"{path.rstrip('/')}/kernel.json"
        return kernel if _find_python(system, path) is None and system.exists(kernel) else None
    return path if path.endswith(".json") and system.exists(path) else None


def _choose_kernel(system: System, requested: str, path: str) -> PythonChoice:
    """Return the choice of the Python that a Jupyter kernel starts.

    Raise UsageError if the kernel starts something else, or a Python that does not exist.
    """
    command = _load_kernel_command(system, path)
    name = clean_line(requested)
    if command is None:
        message = f"--python: {name} is no kernel.json of Jupyter: it names no command."
        raise UsageError(message)
    program, variables = command
    if not _PYTHON_NAME.match(posixpath.basename(program)):
        message = f"--python: the kernel {name} starts {clean_line(program)}, which is no Python."
        raise UsageError(message)
    python: str | None = program
    # Jupyter runs its own Python for a name without a path, so search the environment that contains the kernel.
    if not program.startswith("/"):
        prefix = path.partition("/share/jupyter/")[0] if "/share/jupyter/" in path else ""
        python = (_find_python(system, prefix) if prefix else None) or system.which(program)
    if python is None or not (system.exists(python) or is_environment(system, get_prefix(python))):
        message = f"--python: the kernel {name} starts {clean_line(program)}, which does not exist."
        raise UsageError(message)
    names = ", ".join(clean_line(variable, limit=60) for variable in list(variables)[:10])
    suffix = f" (which also sets {names})" if names else ""
    reason = f"the Jupyter kernel {name}{suffix}"
    unusable = (
        () if system.exists(python) else (diagnose_environment(system, PYTHON_OPTION, get_prefix(python)),)
    )
    return PythonChoice(
        python, requested, reason, unusable, kernel=path, kernel_sets=tuple(_filter_variables(variables))
    )


def _load_kernel_command(system: System, path: str) -> tuple[str, dict[str, Any]] | None:
    """Return (program, unfiltered variables) of a kernel.json, or None if it names no program."""
    try:
        document = json.loads(system.read_text(path, limit=1 << 16))
    except (OSError, ValueError, RecursionError):
        return None
    argv = document.get("argv") if isinstance(document, dict) else None
    if not isinstance(argv, list) or not argv or not isinstance(argv[0], str) or not argv[0].strip("\0 "):
        return None
    variables = document.get("env")
    return argv[0].replace("\0", ""), variables if isinstance(variables, dict) else {}


def read_kernel_variables(system: System, requested: str) -> dict[str, str]:
    """Return the variables that a kernel.json sets. The result is empty if it is not a kernel.json."""
    path = _find_kernel_file(system, _make_absolute(system, requested))
    command = _load_kernel_command(system, path) if path is not None else None
    _, variables = command if command is not None else ("", {})
    return _filter_variables(variables)


def iter_uv_variables(system: System) -> Iterator[tuple[str, str, str, int, str]]:
    """Yield (name, value, file, line number, line) of the variables in the files that UV_ENV_FILE names.

    `uv run` sets those that are not set already.
    """
    files = "" if system.env.get("UV_NO_ENV_FILE") else system.env.get("UV_ENV_FILE", "")
    for file in files.split():
        path = _make_absolute(system, file)
        for number, line in enumerate((load_text(system, path) or "").splitlines(), 1):
            match = _ENV_FILE_LINE.match(line)
            if match is not None:
                yield match[1], match[3], path, number, line


def _filter_variables(variables: dict[str, Any]) -> dict[str, str]:
    """Return the variables that are valid: their names and values can be passed to a process."""
    return {
        name: text
        for name, text in variables.items()
        if isinstance(text, str) and name and not {"=", "\0"} & {*name} and "\0" not in text
    }


# ---------------------------------------------------------------- unusable environments


def diagnose_environment(system: System, variable: str, prefix: str) -> UnusableEnvironment:
    """Find out why the environment that `variable` names has no usable Python."""
    version = _find_version(system, prefix)
    if _get_errno(system, prefix, is_folder=True) == errno.EACCES or any(
        _get_errno(system, f"{prefix}/{name}") == errno.EACCES for name in INTERPRETER_PATHS[:2]
    ):
        return UnusableEnvironment(variable=variable, prefix=prefix, problem="closed", version=version)
    if not system.is_dir(prefix):
        return UnusableEnvironment(
            variable=variable,
            prefix=prefix,
            problem="gone",
            moved_to=_find_moved_environments(system, prefix),
        )
    for name in INTERPRETER_PATHS[:2]:
        path = f"{prefix}/{name}"
        if _is_dangling_link(system, path):
            return UnusableEnvironment(
                variable=variable,
                prefix=prefix,
                problem="base-gone",
                target=system.realpath(path),
                version=version,
                successor=_find_successor(system, version),
            )
    return UnusableEnvironment(
        variable=variable,
        prefix=prefix,
        problem="empty",
        version=version,
        moved_to=_find_moved_environments(system, prefix),
    )


def get_prefix(python: str) -> str:
    """Return the prefix of an interpreter: the parent of its bin folder."""
    return posixpath.dirname(posixpath.dirname(python))


def is_environment(system: System, prefix: str) -> bool:
    """Return whether a folder is a virtual or conda environment, even if its Python is missing."""
    return system.exists(f"{prefix}/pyvenv.cfg") or system.is_dir(f"{prefix}/conda-meta")


def _is_dangling_link(system: System, path: str) -> bool:
    """Return whether a path that does not exist is a dangling link: its folder lists it."""
    return posixpath.basename(path) in list_names(system, posixpath.dirname(path))


def _get_errno(system: System, path: str, *, is_folder: bool = False) -> int | None:
    """Try to read a file or list a folder. Return the errno of the failure, or None if it succeeds."""
    try:
        if is_folder:
            system.listdir(path)
        else:
            system.read_bytes(path, limit=1)
    except OSError as error:
        return error.errno
    return None


def _load_pyvenv(system: System, prefix: str) -> dict[str, str]:
    """Return the settings in pyvenv.cfg by lower-case name, or an empty dict if it cannot be read."""
    text = load_text(system, f"{prefix}/pyvenv.cfg", 1 << 14) or ""
    return {match[1].lower(): match[2] for match in _PYVENV_SETTING.finditer(text)}


def _find_version(system: System, prefix: str) -> str | None:
    """Return the Python version of an environment according to its files, or None if they do not state it."""
    config = _load_pyvenv(system, prefix)
    version_match = re.match(
        r"\d{1,2}(?:\.\d{1,3}){1,2}", config.get("version") or config.get("version_info") or ""
    )
    if version_match is not None:
        return version_match[0]
    folder = next(
        (entry for entry in list_names(system, f"{prefix}/lib") if re.fullmatch(r"python\d\.\d{1,2}", entry)),
        None,
    )
    return folder.removeprefix("python") if folder is not None else None


def _find_successor(system: System, version: str | None) -> str | None:
    """Return an installed Python with the same minor version, on PATH or behind a shim, or None."""
    if not version:
        return None
    name = f"python{'.'.join(version.split('.')[:2])}"
    python = system.which(name)
    if python is None or "/shims/" not in python:
        return python
    versions = f"{python.partition('/shims/')[0]}/versions"
    paths = (f"{versions}/{folder}/bin/{name}" for folder in list_names(system, versions)[:MAX_FOLDERS])
    return next((path for path in paths if system.exists(path)), None)


def _find_moved_environments(system: System, prefix: str) -> tuple[str, ...]:
    """Return at most five nearby environments whose files show that they were moved from `prefix`."""
    parent = posixpath.dirname(prefix)
    while parent != "/" and not system.is_dir(parent):
        parent = posixpath.dirname(parent)
    environments = []
    for folder in dict.fromkeys((parent, system.cwd.rstrip("/") or "/", posixpath.dirname(system.cwd))):
        for name in list_names(system, folder)[: MAX_FOLDERS * 5]:
            path = f"{folder.rstrip('/')}/{name}"
            is_candidate = path != prefix and path not in environments and system.exists(f"{path}/pyvenv.cfg")
            if is_candidate and _was_created_as(system, path, prefix):
                environments.append(path)
    return tuple(environments[:5])


def _was_created_as(system: System, environment: str, prefix: str) -> bool:
    """Return whether an environment was created at `prefix`.

    `command` in pyvenv.cfg (Python 3.11 and newer) and the activate script state that.
    """
    if _load_pyvenv(system, environment).get("command", "").endswith(f" {prefix}"):
        return True
    text = load_text(system, f"{environment}/bin/activate", 1 << 14) or ""
    return re.search(rf"VIRTUAL_ENV=[\"']?{re.escape(prefix)}[\"']?\s", text) is not None


# ---------------------------------------------------------------- other interpreters


def find_other_pythons(system: System, choice: PythonChoice, examined: str) -> tuple[OtherPython, ...]:
    """Return other nearby Pythons whose environments contain TensorFlow, according to their files.

    `examined` is the prefix of the examined Python, or "" if that is not known.
    """
    excluded_prefixes = {system.realpath(examined)} if examined else set()
    pythons = []
    for number, (path, origin) in enumerate(_iter_candidates(system, choice, examined)):
        if number > MAX_FOLDERS:
            break
        prefix = get_prefix(path)
        if system.realpath(prefix) in excluded_prefixes:
            continue
        excluded_prefixes.add(system.realpath(prefix))
        has_tensorflow, version = _find_tensorflow(system, prefix)
        if has_tensorflow and system.exists(path):
            pythons.append(OtherPython(path, origin, version))
    return tuple(pythons)


def _iter_candidates(system: System, choice: PythonChoice, examined_prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (path, origin) of other interpreters that the user may have meant. The path need not exist."""
    home = system.env.get("HOME", "")
    cwd = system.cwd.rstrip("/")
    for lost in choice.lost:
        for environment in lost.moved_to:
            yield f"{environment}/bin/python", f"made as {lost.prefix}"
    if choice.on_path:
        yield choice.on_path, "what the shell finds"
    for python, tool in _iter_project_environments(system):
        yield python, f"`{tool} run`"
    for name in ENVIRONMENT_NAMES:
        yield f"{cwd}/{name}/bin/python", f"{name} in the working folder"
    settings = load_text(system, f"{cwd}/.vscode/settings.json", 1 << 14) or ""
    setting = re.search(r'"python\.(?:defaultInterpreterPath|pythonPath)"\s*:\s*"([^"\n]{1,400})"', settings)
    if setting is not None:
        path = _make_absolute(system, setting[1].replace("${workspaceFolder}", cwd))
        yield (path if "/bin/" in path else f"{path}/bin/python"), "the setting of VS Code here"
    jupyter = system.which("jupyter")
    launcher = (load_text(system, jupyter, 1 << 12) or "") if jupyter is not None else ""
    shebang = _SHEBANG.match(launcher)
    if shebang is not None and _PYTHON_NAME.match(posixpath.basename(shebang[1])):
        yield shebang[1], "what `jupyter` starts"
    for name in ENVIRONMENT_NAMES:
        yield f"/{name}/bin/python", f"/{name}"
    for folder in ("/opt", "/opt/conda/envs"):
        for name in list_names(system, folder)[:MAX_FOLDERS]:
            yield f"{folder}/{name}/bin/python", f"{folder}/{name}"
    for folder in ("/usr/local/bin", "/usr/bin"):
        yield f"{folder}/python3", f"the Python of {folder}"
    for folder in (
        f"{home}/.local/share/jupyter/kernels" if home else "",
        f"{examined_prefix}/share/jupyter/kernels",
    ):
        for name in list_names(system, folder)[:MAX_FOLDERS] if folder.startswith("/") else ():
            command = _load_kernel_command(system, f"{folder}/{name}/kernel.json")
            program, _ = command if command is not None else ("", {})
            if program.startswith("/") and _PYTHON_NAME.match(posixpath.basename(program)):
                yield program, f"the Jupyter kernel `{clean_line(name, limit=60)}`"
    if not home:
        return
    conda_prefixes = load_text(system, f"{home}/.conda/environments.txt", 1 << 14) or ""
    for prefix in conda_prefixes.splitlines()[:MAX_FOLDERS]:
        if prefix.startswith("/"):
            yield f"{prefix.rstrip('/')}/bin/python", "a conda environment"
    versions = f"{system.env.get('PYENV_ROOT') or f'{home}/.pyenv'}/versions"
    for name in list_names(system, versions)[:MAX_FOLDERS]:
        yield f"{versions}/{name}/bin/python", "pyenv"


def _find_tensorflow(system: System, prefix: str) -> tuple[bool, str | None]:
    """Return (whether an environment contains TensorFlow, its version or None if unknown)."""
    for name in list_names(system, f"{prefix}/lib"):
        for site in (f"{prefix}/lib/{name}/site-packages", f"{prefix}/lib/{name}/dist-packages"):
            if not name.startswith("python") or not system.exists(f"{site}/tensorflow/__init__.py"):
                continue
            for entry in list_names(system, site):
                match = re.fullmatch(
                    r"(?:tensorflow(?:_gpu|_cpu)?|tf_nightly)-([\w.]{1,40})\.dist-info", entry
                )
                if match is not None:
                    return True, match[1]
            return True, None
    return False, None


def _make_absolute(system: System, path: str) -> str:
    """Return the absolute form of a path, with "~/" expanded. A Windows path is not changed."""
    if path.startswith("~/") and "HOME" in system.env:
        return f"{system.env['HOME']}/{path[2:]}"
    return path if _is_absolute(path) else f"{system.cwd.rstrip('/')}/{path}"


def _is_absolute(path: str) -> bool:
    """Return whether a path is absolute, on Linux or on Windows."""
    return path.startswith("/") or ":" in path[:3]
