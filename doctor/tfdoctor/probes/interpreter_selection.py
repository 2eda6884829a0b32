"""Which Python is examined: the one that was named, the active environment's, or the shell's.

An environment that is named and cannot be used is never passed over in silence: it is in the answer.
"""

from __future__ import annotations

import errno
import json
import posixpath
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.errors import UsageError
from tfdoctor.facts.python import ASKED, Choice, LostEnvironment, OtherPython
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.system import System

NAMES = ("bin/python", "bin/python3", "python.exe", "Scripts/python.exe")
ACTIVE = {"VIRTUAL_ENV": "the active virtual environment", "CONDA_PREFIX": "the active conda environment"}
BESIDE = (".venv", "venv", "env", ".env")
"""What people call the environment in their project's folder."""
MAX_FOLDERS = 40
"""Folders that are looked into for another Python."""
ASK = 3.0
"""Seconds for a command that only looks along PATH."""
_EPHEMERAL = re.compile(r"/(?:archive|environments|builds)-v\d{1,3}/[^/]{1,80}/bin/[^/]{1,40}\Z")
"""The environments in uv's cache: `uvx tfdoctor` puts its own before everything else on PATH."""
_CONFIGURED = re.compile(r"^[ \t]*(\w{1,40})[ \t]*=[ \t]*(.{1,400}?)[ \t]*$", re.MULTILINE)
_PYTHON = re.compile(r"python(?:\d(?:\.\d{1,2})?t?)?(?:\.exe)?\Z", re.IGNORECASE)


def choose(system: System, requested: str | None) -> Choice:
    """Return the Python to examine, and how it was chosen.

    The active virtual or conda environment's, else `python3` on PATH, else `python`. A `requested` path that is a
    folder is taken as an environment, a Jupyter kernel.json as the Python that it starts. Raises UsageError if there
    is nothing to run.
    """
    if requested is not None:
        return _find_requested(system, requested)
    lost: list[LostEnvironment] = []
    for variable in _sort_by_path(system):
        prefix = _absolute(system, system.env[variable]).rstrip("/") or "/"
        found = _python_in(system, prefix)
        if found is not None:
            base = variable == "CONDA_PREFIX" and system.env.get("CONDA_DEFAULT_ENV") == "base"
            why = "conda's base environment, which is active" if base else ACTIVE[variable]
            return Choice(
                found, f"${variable}", why, tuple(lost), on_path=_find_other_on_path(system, prefix)
            )
        lost.append(explain_lost_environment(system, variable, prefix))
    for name in ("python3", "python"):
        found = _on_path(system, name)
        if found:
            how = f"{name} on PATH"
            why = f"{how}, the shim {found}" if "/shims/" in found else how
            return Choice(found, how, why, tuple(lost))
    if lost:
        one = lost[0]
        named = f"${one.variable} names {clean_line(one.prefix)}, {state_of(one)}"
        message = f"No Python found: {named}, and no python3 is on PATH."
        raise UsageError(message, hint="Name one with --python PATH.")
    raise UsageError(
        "No Python found: no active environment, no python3 on PATH.", hint="Name one with --python PATH."
    )


def state_of(lost: LostEnvironment) -> str:
    """Return what is the matter with it, as half a sentence."""
    return {
        "gone": "which is not there",
        "empty": "in which there is no Python",
        "base-gone": f"whose Python leads to {clean_line(lost.target or '')}, which is not there",
        "closed": "which this user may not look into",
    }[lost.problem]


def _sort_by_path(system: System) -> list[str]:
    """Return the variables that name an environment, the one first whose Python the shell finds."""
    named = [name for name in ACTIVE if system.env.get(name)]
    if len(named) > 1:
        first = system.which("python") or system.which("python3") or ""
        named.sort(key=lambda name: not first.startswith(f"{system.env[name].rstrip('/')}/"))
    return named


def _find_other_on_path(system: System, prefix: str) -> str:
    """Return the Python that the shell finds, where it is not of this environment: a variable that something left
    behind.

    Empty also where it is a shim that may lead there: to one of the environments beside it.
    """
    found, own = _on_path(system, "python") or _on_path(system, "python3") or "", system.realpath(prefix)
    root, shim, _ = found.partition("/shims/")
    if not found.startswith("/") or (shim and own.startswith(f"{system.realpath(root)}/")):
        return ""
    return found if shim or system.realpath(_prefix_of(found)) != own else ""


def _on_path(system: System, name: str) -> str | None:
    """Return the command on PATH, without the environments that uv makes for one run of a tool."""
    found = system.which(name)
    if found is None or not _EPHEMERAL.search(found):
        return found
    everywhere = system.run(("which", "-a", name), timeout=ASK).stdout.split("\n")
    return next((path for path in everywhere if path.startswith("/") and not _EPHEMERAL.search(path)), found)


def _python_in(system: System, prefix: str) -> str | None:
    """Return the interpreter of an environment's folder; None if it has none that leads to anything."""
    for name in NAMES:
        path = f"{prefix.rstrip('/')}/{name}"
        if system.exists(path):
            return path
    return None


# ---------------------------------------------------------------- named by the user


def _find_requested(system: System, requested: str) -> Choice:
    if not requested.strip() or "\0" in requested:
        raise UsageError("--python: an empty path, or one with a null character, names no interpreter.")
    if "/" not in requested and "\\" not in requested and not system.exists(_absolute(system, requested)):
        found = system.which(requested)
        if found is None:
            message = f"--python: there is no `{clean_line(requested)}` on PATH."
            raise UsageError(message)
        return Choice(found, requested, f"as asked: {clean_line(requested)} on PATH")
    path = _absolute(system, requested)
    kernel = _kernel_at(system, path)
    if kernel is not None:
        return _kernel(system, requested, kernel)
    if system.is_dir(path):
        return _folder(system, requested, path.rstrip("/") or "/")
    if system.exists(path):
        return Choice(path, requested, "as asked")
    if _error(system, path) == errno.EACCES:
        message = f"--python: {clean_line(requested)} may not be looked at by this user."
        raise UsageError(message, hint="Run tfdoctor as the user whose Python it is.")
    prefix = posixpath.dirname(posixpath.dirname(path))
    if _is_link(system, path) and _is_environment(system, prefix):
        lost = explain_lost_environment(system, ASKED, prefix)
        return Choice(path, requested, "as asked", (lost,))
    if _is_link(system, path):
        target = clean_line(system.realpath(path))
        message = f"--python: {clean_line(requested)} is a link to {target}, which does not exist."
        raise UsageError(message)
    message = f"--python: {clean_line(requested)} does not exist."
    raise UsageError(message)


def _folder(system: System, requested: str, path: str) -> Choice:
    found = _python_in(system, path)
    if found is not None:
        return Choice(found, requested, "as asked")
    lost = explain_lost_environment(system, ASKED, path)
    if lost.problem == "closed":
        message = f"--python: {clean_line(requested)} may not be looked into by this user."
        raise UsageError(message, hint="Run tfdoctor as the user whose environment it is.")
    if lost.problem == "base-gone":
        return Choice(f"{path}/bin/python", requested, "as asked", (lost,))
    inside = next((name for name in BESIDE if _python_in(system, f"{path}/{name}")), None)
    message = f"--python: {clean_line(requested)} is a folder without bin/python."
    hint = "Name the interpreter itself, or the folder of a virtual environment."
    if inside is not None:
        hint = f"An environment is in it: --python {clean_line(posixpath.join(requested, inside))}"
    raise UsageError(message, hint=hint)


def _kernel_at(system: System, path: str) -> str | None:
    """Return the kernel.json that an absolute path means: itself, or the one in a folder that has no Python of its
    own.
    """
    if system.is_dir(path):
        inside = f"{path.rstrip('/')}/kernel.json"
        return inside if _python_in(system, path) is None and system.exists(inside) else None
    return path if path.endswith(".json") and system.exists(path) else None


def _kernel(system: System, requested: str, path: str) -> Choice:
    """Return the Python that a Jupyter kernel starts."""
    said = _kernel_said(system, path)
    name = clean_line(requested)
    if said is None:
        message = f"--python: {name} is no kernel.json of Jupyter: it names no command."
        raise UsageError(message)
    program, variables = said
    if not _PYTHON.match(posixpath.basename(program)):
        message = f"--python: the kernel {name} starts {clean_line(program)}, which is no Python."
        raise UsageError(message)
    found: str | None = program
    if not program.startswith(
        "/"
    ):  # Jupyter takes its own Python for a bare name: the one of this environment
        prefix = path.partition("/share/jupyter/")[0] if "/share/jupyter/" in path else ""
        found = (_python_in(system, prefix) if prefix else None) or system.which(program)
    if found is None or not (system.exists(found) or _is_environment(system, _prefix_of(found))):
        message = f"--python: the kernel {name} starts {clean_line(program)}, which does not exist."
        raise UsageError(message)
    names = ", ".join(clean_line(variable, limit=60) for variable in list(variables)[:10])
    also = f" (which also sets {names})" if names else ""
    why = f"the Jupyter kernel {name}{also}"
    lost = () if system.exists(found) else (explain_lost_environment(system, ASKED, _prefix_of(found)),)
    return Choice(found, requested, why, lost, kernel=path, kernel_sets=tuple(_texts(variables)))


def _kernel_said(system: System, path: str) -> tuple[str, dict[str, Any]] | None:
    """Return (program, the variables that it sets, as written) of a kernel.json; None if it is none."""
    try:
        value = json.loads(system.read_text(path, limit=1 << 16))
    except (OSError, ValueError, RecursionError):
        return None
    argv = value.get("argv") if isinstance(value, dict) else None
    if not isinstance(argv, list) or not argv or not isinstance(argv[0], str) or not argv[0].strip("\0 "):
        return None
    variables = value.get("env")
    return argv[0].replace("\0", ""), variables if isinstance(variables, dict) else {}


def kernel_variables(system: System, requested: str) -> dict[str, str]:
    """Return the variables that a kernel.json sets for its Python.

    None if `--python` names something else.
    """
    path = _kernel_at(system, _absolute(system, requested))
    said = _kernel_said(system, path) if path is not None else None
    return _texts(said[1]) if said is not None else {}


def _texts(variables: dict[str, Any]) -> dict[str, str]:
    """Return those that a process can be given."""
    return {
        name: text
        for name, text in variables.items()
        if isinstance(text, str) and name and not {"=", "\0"} & {*name} and "\0" not in text
    }


# ---------------------------------------------------------------- what an environment has become


def explain_lost_environment(system: System, variable: str, prefix: str) -> LostEnvironment:
    """Return why there is no Python to be had in `prefix`."""
    version = _version_of(system, prefix)
    if _error(system, prefix, listing=True) == errno.EACCES or any(
        _error(system, f"{prefix}/{name}") == errno.EACCES for name in NAMES[:2]
    ):
        return LostEnvironment(variable, prefix, "closed", version=version)
    if not system.is_dir(prefix):
        return LostEnvironment(variable, prefix, "gone", moved_to=_find_moved(system, prefix))
    for name in NAMES[:2]:
        path = f"{prefix}/{name}"
        if _is_link(system, path):
            return LostEnvironment(
                variable, prefix, "base-gone", system.realpath(path), version, (), _successor(system, version)
            )
    return LostEnvironment(variable, prefix, "empty", version=version, moved_to=_find_moved(system, prefix))


def _prefix_of(python: str) -> str:
    return posixpath.dirname(posixpath.dirname(python))


def _is_environment(system: System, prefix: str) -> bool:
    return system.exists(f"{prefix}/pyvenv.cfg") or system.is_dir(f"{prefix}/conda-meta")


def _is_link(system: System, path: str) -> bool:
    """Return whether something of that name is there that leads nowhere."""
    try:
        listed = posixpath.basename(path) in system.listdir(posixpath.dirname(path))
    except OSError:
        return False
    return listed and not system.exists(path)


def _error(system: System, path: str, *, listing: bool = False) -> int | None:
    """Return the number of the error that reading the beginning of a file, or a folder's names, ends with."""
    try:
        if listing:
            system.listdir(path)
        else:
            system.read_bytes(path, limit=1)
    except OSError as error:
        return error.errno
    return None


def _read_pyvenv(system: System, prefix: str) -> dict[str, str]:
    try:
        text = system.read_text(f"{prefix}/pyvenv.cfg", limit=1 << 14)
    except OSError:
        return {}
    return {match[1].lower(): match[2] for match in _CONFIGURED.finditer(text)}


def _version_of(system: System, prefix: str) -> str | None:
    """Return the version of the Python that an environment was made from, as far as its files say it."""
    said = _read_pyvenv(system, prefix)
    match = re.match(r"\d{1,2}(?:\.\d{1,3}){1,2}", said.get("version") or said.get("version_info") or "")
    if match is not None:
        return match[0]
    folder = next((n for n in _names(system, f"{prefix}/lib") if re.fullmatch(r"python\d\.\d{1,2}", n)), None)
    return folder.removeprefix("python") if folder is not None else None


def _successor(system: System, version: str | None) -> str | None:
    """Return a Python of the same minor version: the one on PATH, or behind a shim that is."""
    if not version:
        return None
    name = f"python{'.'.join(version.split('.')[:2])}"
    found = system.which(name)
    if found is None or "/shims/" not in found:
        return found
    versions = f"{found.partition('/shims/')[0]}/versions"
    paths = (f"{versions}/{folder}/bin/{name}" for folder in _names(system, versions)[:MAX_FOLDERS])
    return next((path for path in paths if system.exists(path)), None)


def _find_moved(system: System, prefix: str) -> tuple[str, ...]:
    """Return environments near by whose own files say that they were made as `prefix`."""
    above = posixpath.dirname(prefix)
    while above != "/" and not system.is_dir(above):
        above = posixpath.dirname(above)
    found = []
    for folder in dict.fromkeys((above, system.cwd.rstrip("/") or "/", posixpath.dirname(system.cwd))):
        for name in _names(system, folder)[: MAX_FOLDERS * 5]:
            place = f"{folder.rstrip('/')}/{name}"
            made = place != prefix and place not in found and system.exists(f"{place}/pyvenv.cfg")
            if made and _was_made_as(system, place, prefix):
                found.append(place)
    return tuple(found[:5])


def _was_made_as(system: System, place: str, prefix: str) -> bool:
    """pyvenv.cfg's `command` (3.11 and newer), or the activate script, which has the path in it."""
    if _read_pyvenv(system, place).get("command", "").endswith(f" {prefix}"):
        return True
    try:
        text = system.read_text(f"{place}/bin/activate", limit=1 << 14)
    except OSError:
        return False
    return re.search(rf"VIRTUAL_ENV=[\"']?{re.escape(prefix)}[\"']?\s", text) is not None


# ---------------------------------------------------------------- others


def find_other_pythons(system: System, choice: Choice, examined: str) -> tuple[OtherPython, ...]:
    """Return the other Pythons at hand that have a TensorFlow, from their files.

    `examined`: the prefix of this one.
    """
    seen = {system.realpath(examined)} if examined else set()
    found = []
    for number, (path, how) in enumerate(_candidates(system, choice, examined)):
        if number > MAX_FOLDERS:
            break
        prefix = _prefix_of(path)
        if system.realpath(prefix) in seen:
            continue
        seen.add(system.realpath(prefix))
        has, version = _tensorflow_in(system, prefix)
        if has and system.exists(path):
            found.append(OtherPython(path, how, version))
    return tuple(found)


def _candidates(system: System, choice: Choice, examined: str) -> Iterator[tuple[str, str]]:
    home = system.env.get("HOME", "")
    cwd = system.cwd.rstrip("/")
    for lost in choice.lost:
        for place in lost.moved_to:
            yield f"{place}/bin/python", f"made as {lost.prefix}"
    if choice.on_path:
        yield choice.on_path, "what the shell finds"
    for name in BESIDE:
        yield f"{cwd}/{name}/bin/python", f"{name} in the working folder"
    for folder in (
        f"{home}/.local/share/jupyter/kernels" if home else "",
        f"{examined}/share/jupyter/kernels",
    ):
        for name in _names(system, folder)[:MAX_FOLDERS] if folder.startswith("/") else ():
            said = _kernel_said(system, f"{folder}/{name}/kernel.json")
            if said is not None and said[0].startswith("/") and _PYTHON.match(posixpath.basename(said[0])):
                yield said[0], f"the Jupyter kernel `{clean_line(name, limit=60)}`"
    if not home:
        return
    try:
        conda = system.read_text(f"{home}/.conda/environments.txt", limit=1 << 14).splitlines()
    except OSError:
        conda = []
    for prefix in conda[:MAX_FOLDERS]:
        if prefix.startswith("/"):
            yield f"{prefix.rstrip('/')}/bin/python", "a conda environment"
    versions = f"{system.env.get('PYENV_ROOT') or f'{home}/.pyenv'}/versions"
    for name in _names(system, versions)[:MAX_FOLDERS]:
        yield f"{versions}/{name}/bin/python", "pyenv"


def _tensorflow_in(system: System, prefix: str) -> tuple[bool, str | None]:
    """Return whether there is a TensorFlow in an environment, and which."""
    for name in _names(system, f"{prefix}/lib"):
        site = f"{prefix}/lib/{name}/site-packages"
        if name.startswith("python") and system.exists(f"{site}/tensorflow/__init__.py"):
            for entry in _names(system, site):
                match = re.fullmatch(
                    r"(?:tensorflow(?:_gpu|_cpu)?|tf_nightly)-([\w.]{1,40})\.dist-info", entry
                )
                if match is not None:
                    return True, match[1]
            return True, None
    return False, None


def _names(system: System, folder: str) -> list[str]:
    try:
        return system.listdir(folder)
    except OSError:
        return []


def _absolute(system: System, path: str) -> str:
    if path.startswith("~/") and "HOME" in system.env:
        return f"{system.env['HOME']}/{path[2:]}"
    return path if path.startswith("/") or ":" in path[:3] else f"{system.cwd.rstrip('/')}/{path}"
