"""Select a TensorFlow release and a Python for `tfdoctor install`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.core import versions
from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.environments.install import InstallRequest, NoLockError, get_lock_files
from tfdoctor.environments.installers import InstallFailedError
from tfdoctor.environments.interpreters import find_interpreters, query_interpreter
from tfdoctor.environments.requirements import drop_cuda_lines
from tfdoctor.planning import Method, Request
from tfdoctor.planning.arguments import make_plan, parse_python_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import MachineFacts
    from tfdoctor.environments.interpreters import Interpreter
    from tfdoctor.environments.requirements import RequirementSet, VersionCondition
    from tfdoctor.planning import Option, Recommendation
    from tfdoctor.prediction.fit.models import Host
    from tfdoctor.system import System

__all__ = ["InstallOptions", "PlanChoice", "choose_plan", "make_install_request"]

_VERSION = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}(?:\.[0-9]{1,3})?")


@dataclasses.dataclass(frozen=True, slots=True)
class PlanChoice:
    """The option to install, and the Python to install it for."""

    option: Option
    base_python: str
    """The base interpreter: a path, or a version that uv downloads."""
    python_version: str
    """The version of the base interpreter: `"3.11.7"`, or `"3.11"` if uv downloads it."""
    notes: tuple[str, ...] = ()
    """Sentences for the user about the choice."""


@dataclasses.dataclass(frozen=True, slots=True)
class InstallOptions:
    """The user's options `--tf`, `--package` and `-r`, with the data about releases."""

    compat: Compat
    tensorflow_option: str | None
    """The value of `--tf`."""
    packages: tuple[str, ...]
    """The validated lines of the `--package` options."""
    requirement_set: RequirementSet

    @property
    def depends_on_python(self) -> bool:
        """Whether the files restrict the Python version, or require a TensorFlow that depends on it."""
        return bool(self.requirement_set.python_conditions) or self.requirement_set.depends_on_python

    def make_request(self, python: str | None) -> Request:
        """Return the request for the planner.

        `python` is a version such as `"3.11"`; None means any version. Raise UsageError if the files require no
        TensorFlow on this version, or if they contradict `--tf`.
        """
        requirements = self.requirement_set.select_for_python(python or self.python_versions[0])
        if (
            python is not None
            and self.tensorflow_option is None
            and not requirements.tensorflow_conditions
            and self.requirement_set.has_tensorflow
        ):
            msg = f"-r: on Python {python} these files want no TensorFlow: their lines are for other Pythons."
            raise UsageError(
                msg, hint="Name another Python with --python-version, or the TensorFlow with --tf."
            )
        return Request(
            tensorflow=self._combine_specifiers(requirements.tensorflow_conditions),
            python=python,
            method=Method.PIP,
            requirements=(*requirements.lines, *self.packages),
        )

    @property
    def python_versions(self) -> tuple[str, ...]:
        """The minor versions of Python for which a TensorFlow has a wheel, newest first."""
        minors = {python for release in self.compat.releases for python in release.linux_pythons}
        return tuple(sorted(minors, key=versions.make_sort_key, reverse=True))

    def _combine_specifiers(self, conditions: Sequence[VersionCondition]) -> str | None:
        """Return the specifier that combines `--tf` and the files; None if neither has one.

        Raise UsageError if no known release meets the conditions of the files, or if they contradict `--tf`.
        """
        restrictive_conditions = [condition for condition in conditions if str(condition.specifier)]
        if not restrictive_conditions:
            return self.tensorflow_option
        releases = [release.version for release in self.compat.releases]
        file_specifier = ",".join(
            dict.fromkeys(str(condition.specifier) for condition in restrictive_conditions)
        )
        origins = " and ".join(
            dict.fromkeys(
                f"{condition.location} (tensorflow{condition.specifier})"
                for condition in restrictive_conditions
            )
        )
        if not versions.VersionSpec(file_specifier).select(releases):
            msg = f"{origins}: no known TensorFlow meets this requirement."
            raise UsageError(msg, hint="`tfdoctor matrix` lists every release.")
        if self.tensorflow_option is None:
            return file_specifier
        try:
            option_specifier = _to_specifier(self.tensorflow_option, self.compat)
            matches = versions.VersionSpec(f"{option_specifier},{file_specifier}").select(releases)
        except versions.VersionSyntaxError:
            return self.tensorflow_option  # the planner reports the error
        if not matches and versions.VersionSpec(option_specifier).select(releases):
            msg = f"--tf {clean_line(self.tensorflow_option)} and {origins} contradict each other."
            raise UsageError(msg, hint="Leave --tf out, or change the file.")
        return f"{option_specifier},{file_specifier}" if matches else self.tensorflow_option


def _to_specifier(text: str, compat: Compat) -> str:
    """Return the value of `--tf` as a specifier: `==2.15.*` for `2.15`, the newest for `latest`."""
    text = text.strip()
    if text.lower() == "latest":
        return f"=={compat.newest.version}"
    if versions.is_major_or_minor(text):
        return f"=={text}.*"
    return text if re.match(r"[<>=!~]", text) else f"=={text}"


def choose_plan(
    options: InstallOptions,
    python: str | None,
    host: Host,
    folder: Path,
    *,
    uv: str | None,
    system: System,
    machine: MachineFacts,
) -> PlanChoice | Recommendation:
    """Return the best option for an installed Python, or for one that uv can download.

    Return the planner's recommendation if it has no options. `python` is the value of `--python-version`. Interpreters are
    searched in `system`, except in `folder`, the folder of the new environment. `machine` has the facts about the
    machine. Raise Error if there is an option but no suitable Python.
    """
    version, requested = _parse_python_option(python, system)
    minor = requested.minor_version if requested is not None else parse_python_version(version)
    if minor is not None:
        _check_python_allowed(
            options.requirement_set, requested.version if requested is not None else str(version)
        )
    recommendation = _recommend(options, minor, host)
    if not recommendation.options:
        return recommendation
    interpreters = (
        [requested]
        if requested is not None
        else [
            candidate
            for candidate in find_interpreters(system)
            if not Path(candidate.path).is_relative_to(folder)
        ]
    )
    interpreters = [
        candidate for candidate in interpreters if options.requirement_set.allows_python(candidate.version)
    ]
    if version is not None:
        interpreters = [
            candidate for candidate in interpreters if _matches_version(candidate.version, version)
        ]
    usable_interpreters = [
        candidate for candidate in interpreters if candidate.can_create_venv or uv is not None
    ]
    best_pair = _find_best_option(options, host, usable_interpreters)
    if best_pair is not None:
        option, interpreter = best_pair
        return PlanChoice(
            option=option,
            base_python=interpreter.path,
            python_version=interpreter.version,
            notes=_suggest_newer(recommendation, option),
        )
    option = recommendation.options[0]
    get_lock_files(option)  # raises NoLockError: without a lock, another Python does not help
    pair_without_venv = _find_best_option(options, host, interpreters)
    if pair_without_venv is not None:
        _option, interpreter = pair_without_venv
        raise _make_venv_error(interpreter, machine)
    if uv is not None and requested is None:
        required = version or option.python
        note = f"No Python {required} is here: uv fetches one."
        return PlanChoice(option=option, base_python=required, python_version=required, notes=(note,))
    raise _make_python_error(option, version, machine)


def make_install_request(
    choice: PlanChoice,
    options: InstallOptions,
    folder: Path,
    *,
    uv: str | None,
    index: str | None,
    env: dict[str, str],
) -> tuple[InstallRequest, tuple[str, ...]]:
    """Return the installation request, and the notes for the user.

    `index` is the URL of the package index; None for the usual one.
    """
    requirements = options.requirement_set.select_for_python(choice.python_version)
    wheels = {wheel.name: wheel.version for wheel in choice.option.wheels_to_install}
    lines, cuda_notes = drop_cuda_lines(requirements.lines, wheels)
    constraints, _ = drop_cuda_lines(requirements.constraints, wheels)
    request = InstallRequest(
        option=choice.option,
        folder=folder,
        base_python=choice.base_python,
        python_version=choice.python_version,
        uv_path=uv,
        lock_files=get_lock_files(choice.option),
        requirements=(*lines, *options.packages),
        constraints=constraints,
        index_url=index,
        env=env,
    )
    return request, (*choice.notes, *requirements.notes, *cuda_notes)


def _check_python_allowed(requirement_set: RequirementSet, version: str) -> None:
    """Raise UsageError if the files do not allow the version of `--python-version`."""
    if not requirement_set.allows_python(version):
        msg = f"--python-version {version} and {_format_origins(requirement_set)} contradict each other."
        raise UsageError(msg, hint="Leave --python-version out, or change the file.")


def _format_origins(requirement_set: RequirementSet) -> str:
    """Return the conditions on the Python version and their locations."""
    return " and ".join(
        f"{condition.location} (python{condition.specifier})"
        for condition in requirement_set.python_conditions
    )


def _recommend(options: InstallOptions, minor: str | None, host: Host) -> Recommendation:
    """Return the planner's recommendation, whether or not the Python that it needs is installed.

    `minor` is the minor version of `--python-version`. If it is None, the best recommendation for any version that the files
    allow is returned. Raise UsageError if the files allow no version.
    """
    if minor is not None or not options.depends_on_python:
        return make_plan(options.compat, options.make_request(minor), host)
    allowed_versions = [
        python for python in options.python_versions if options.requirement_set.allows_python(python)
    ]
    if not allowed_versions:
        msg = f"{_format_origins(options.requirement_set)}: TensorFlow has no wheels for this Python."
        raise UsageError(msg, hint=f"It has for {', '.join(reversed(options.python_versions))}.")
    recommendations: list[Recommendation] = []
    errors: list[UsageError] = []
    for python in allowed_versions:
        try:
            recommendations.append(make_plan(options.compat, options.make_request(python), host))
        except UsageError as error:  # caused by the lines of the files for this Python
            errors.append(error)
    if not recommendations:
        raise errors[0]
    feasible = [recommendation for recommendation in recommendations if recommendation.options]
    return (
        max(feasible, key=lambda recommendation: _rank(recommendation.options[0]))
        if feasible
        else recommendations[0]
    )


def _rank(option: Option) -> tuple[int, Any]:
    """Return the sort key of an option, best last: by the number of serious caveats, then by release."""
    return -option.serious_count, versions.make_sort_key(option.tensorflow)


def _parse_python_option(text: str | None, system: System) -> tuple[str | None, Interpreter | None]:
    """Parse the value of `--python-version`, and return (version, None) or (None, interpreter at that path).

    Both items are None if there is no value. Raise UsageError if the value is neither a version nor a usable interpreter.
    """
    if text is None or _VERSION.fullmatch(text):
        return text, None
    path = Path(text).expanduser()
    if "/" not in text and not path.exists():
        msg = f"--python-version: `{clean_line(text)}` is neither a version nor a path."
        raise UsageError(
            msg,
            hint="--python-version 3.11, --python-version 3.11.7, or --python-version /usr/bin/python3.11.",
        )
    if path.is_dir():
        path = path / "bin" / "python"
    interpreter = query_interpreter(str(path.absolute()), system)
    if interpreter is None:
        msg = f"--python-version: {clean_line(str(path))} is no Python 3 (CPython, 64 bits) that runs."
        raise UsageError(msg, hint="Name another one, or leave --python-version out.")
    return None, interpreter


def _matches_version(version: str, required: str) -> bool:
    return version == required or version.startswith(f"{required}.")


def _find_best_option(
    options: InstallOptions, host: Host, interpreters: Sequence[Interpreter]
) -> tuple[Option, Interpreter] | None:
    """Return (the best option with a lock, the interpreter for it); None if there is no such option.

    Among equally good options, the minor version of the first interpreter is preferred, then the newest.
    """
    first_minor = interpreters[0].minor_version if interpreters else ""
    ranked: list[tuple[tuple[Any, ...], Option, Interpreter]] = []
    for minor in dict.fromkeys(candidate.minor_version for candidate in interpreters):
        try:
            recommendation = make_plan(options.compat, options.make_request(minor), host)
        except UsageError:
            if options.depends_on_python:  # caused by the lines of the files for this Python
                continue
            raise
        if not recommendation.options:
            continue
        option = recommendation.options[0]
        try:
            get_lock_files(option)
        except NoLockError:
            continue
        rank = (
            *_rank(option),
            minor == first_minor,
            versions.make_sort_key(minor),
        )
        ranked.append(
            (rank, option, next(candidate for candidate in interpreters if candidate.minor_version == minor))
        )
    if not ranked:
        return None
    _, option, interpreter = max(ranked, key=lambda entry: entry[0])
    return option, interpreter


def _suggest_newer(recommendation: Recommendation, option: Option) -> tuple[str, ...]:
    """Return a note as a tuple of one if another Python would allow a newer TensorFlow; empty otherwise."""
    best = recommendation.options[0]
    if versions.make_sort_key(best.tensorflow) <= versions.make_sort_key(option.tensorflow):
        return ()
    python_versions = ", ".join(best.release.linux_pythons)
    return (
        f"TensorFlow {best.tensorflow} is newer; it needs another Python ({python_versions}) than those here.",
    )


def _make_venv_error(interpreter: Interpreter, machine: MachineFacts) -> Error:
    """Return the error for an interpreter that cannot create environments."""
    minor = interpreter.minor_version
    msg = f"{clean_line(interpreter.path)} (Python {interpreter.version}) cannot make environments: it lacks ensurepip."
    if _find_package_manager(machine) == "apt":
        return InstallFailedError(
            msg,
            hint=f"{_get_sudo_prefix(machine)}apt-get install python{minor}-venv, or get uv (pipx install uv).",
        )
    return InstallFailedError(msg, hint="Install its venv package, or get uv (pipx install uv).")


def _make_python_error(option: Option, version: str | None, machine: MachineFacts) -> Error:
    """Return the error that no installed Python is suitable. `version` is the value of `--python-version`."""
    suitable_versions = [version] if version is not None else list(reversed(option.release.linux_pythons))
    msg = (
        f"TensorFlow {option.tensorflow} needs Python {' or '.join(suitable_versions[:4])}, and none is here."
        if version is None
        else f"No Python {version} is here."
    )
    hints = []
    system_version = next(
        (
            candidate
            for candidate in suitable_versions
            if _find_system_python(machine) == versions.major_minor(candidate)
        ),
        None,
    )
    if system_version is not None and _find_package_manager(machine) == "apt":
        minor = versions.major_minor(system_version)
        hints.append(f"{_get_sudo_prefix(machine)}apt-get install python{minor} python{minor}-venv")
    elif _find_package_manager(machine) == "dnf":
        hints.append(
            f"{_get_sudo_prefix(machine)}dnf install python{versions.major_minor(suitable_versions[0])}"
        )
    hints.append("get uv (pipx install uv): the same command then fetches one")
    return InstallFailedError(msg, hint=f"{', or '.join(hints)}.")


def _find_system_python(machine: MachineFacts) -> str | None:
    """Return the Python version that this Debian or Ubuntu release packages; None if it is not known."""
    from tfdoctor.compat import Compat

    return Compat.load().pythons.get_default_python(
        machine.distribution_id or "", machine.distribution_version or ""
    )


def _find_package_manager(machine: MachineFacts) -> str | None:
    from tfdoctor.remedies.system import find_package_manager

    return find_package_manager(machine.distribution_id, *machine.distribution_like)


def _get_sudo_prefix(machine: MachineFacts) -> str:
    return "" if machine.root else "sudo "
