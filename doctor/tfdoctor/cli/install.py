"""`tfdoctor install`."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor import versions
from tfdoctor.cli.files import requirement_lines
from tfdoctor.cli.recommend import checked_driver, checked_python, host_for, named_cards, planned
from tfdoctor.compat import Compat
from tfdoctor.errors import Error, ExitCode, UsageError
from tfdoctor.findings import Severity
from tfdoctor.install import Making, NoLockError, commands_of, locks_of, make, used
from tfdoctor.interpreters import ask, at_hand
from tfdoctor.plan import Host, Method, Request
from tfdoctor.redact import clean_line
from tfdoctor.repair.installers import InstallFailedError, find_uv
from tfdoctor.workplace import is_free, read_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.cli.progress import Silent
    from tfdoctor.findings import Report
    from tfdoctor.install import Installed
    from tfdoctor.interpreters import Interpreter
    from tfdoctor.plan import Option, Recommendation

_INDEX = re.compile(r"(?:https?://[A-Za-z0-9.\-\[\]:]{1,255}|file://)(?:/[A-Za-z0-9._~%+/\-]{0,500})?")
_VERSION = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}(?:\.[0-9]{1,3})?")


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    tf: str | None
    python: str | None
    into: Path
    requirements: Sequence[Path]
    packages: Sequence[str]
    gpus: Sequence[str]
    driver: str | None
    anywhere: bool
    facts: Path | None
    index: str | None
    installer: str | None
    no_deep: bool
    dry_run: bool
    as_json: bool
    verbose: bool
    quiet: bool

    @property
    def for_another(self) -> bool:
        """Whether it is planned for other cards than this machine's."""
        return bool(self.gpus) or self.anywhere or self.facts is not None or self.driver is not None


def install(options: Options) -> int:
    """Plan, make, check. Returns the exit status."""
    if platform.system() != "Linux":
        msg = f"install makes environments on Linux; this is {platform.system()}."
        raise InstallFailedError(
            msg, hint="On Windows run it under WSL 2, or build an image: tfdoctor build."
        )
    lines = requirement_lines(options.requirements, options.packages)
    if options.index is not None:
        _check_index(options.index)
    folder = Path(os.path.abspath(options.into))  # noqa: PTH100 - links stay links
    is_free(folder)
    env = dict(os.environ)
    uv = None if options.installer == "pip" else find_uv(env)
    if options.installer == "uv" and uv is None:
        raise InstallFailedError("uv is not on PATH, or does not run.", hint="--installer pip, or get uv.")
    compat = Compat.load()
    host = _host(options, compat)
    choice = _choose(options, compat, host, lines, folder, uv=uv, env=env)
    if not isinstance(choice, _Choice):
        return _no_plan(choice, options)
    making = Making(
        option=choice.option,
        folder=folder,
        base=choice.base,
        version=choice.version,
        uv=uv,
        locks=locks_of(choice.option),
        requirements=lines,
        index=options.index,
        env=env,
    )
    if options.dry_run:
        return _dry_run(making, choice, options)
    return _install(making, choice, compat, options)


# ---------------------------------------------------------------- the request


def _check_index(text: str) -> None:
    """Raises UsageError for what is no index, and for one with a password: everybody here can read command lines."""
    if "@" in text.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "--index: a name or password in an address can be read by everybody on this machine.",
            hint="Put them into ~/.netrc, or the whole address into pip.conf or UV_DEFAULT_INDEX.",
        )
    if not _INDEX.fullmatch(text):
        msg = f"--index: `{clean_line(text)}` is not the address of a package index."
        raise UsageError(msg, hint="It looks like https://HOST/simple/.")


def _host(options: Options, compat: Compat) -> Host:
    """The cards and the driver that are meant, on the system that is here."""
    if options.anywhere and (options.gpus or options.facts is not None):
        raise UsageError("--anywhere is for every card; give it alone, or --gpu, or --facts.")
    if options.gpus and options.facts is None:
        cards = tuple(card for name in options.gpus for card in named_cards(compat, name))
        host = Host(cards=cards, driver=checked_driver(options.driver))
    elif options.anywhere:
        host = Host(driver=checked_driver(options.driver))
    else:
        host = host_for(compat, gpus=options.gpus, driver=options.driver, facts=options.facts)
        if options.facts is None:
            return dataclasses.replace(host, engine=None)
        if host.system == "Windows" and platform.system() == "Linux":
            host = dataclasses.replace(host, wsl=True)
    return dataclasses.replace(
        host,
        system=platform.system(),
        machine=platform.machine(),
        glibc=_glibc(),
        python=None,
        engine=None,
    )


def _glibc() -> str | None:
    """`"2.36"`; None on another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return version if name == "glibc" else None


# ---------------------------------------------------------------- which TensorFlow, which Python


@dataclasses.dataclass(frozen=True, slots=True)
class _Choice:
    option: Option
    base: str
    """A path, or a version that uv fetches."""
    version: str
    notes: tuple[str, ...] = ()


def _choose(
    options: Options,
    compat: Compat,
    host: Host,
    lines: tuple[str, ...],
    folder: Path,
    *,
    uv: str | None,
    env: dict[str, str],
) -> _Choice | Recommendation:
    """The best plan that a Python at hand (or one that uv can fetch) can carry out, or the planner's conflict.

    Raises Error where a plan is there and no Python for it.
    """
    version, named = _python(options.python, env)
    minor = named.minor if named is not None else checked_python(version)
    request = Request(tensorflow=options.tf, python=minor, method=Method.PIP, requirements=lines)
    whole = planned(compat, request, host)
    if not whole.options:
        return whole
    have = [named] if named is not None else [one for one in at_hand(env) if not _is_in(one.path, folder)]
    if version is not None:
        have = [one for one in have if _is_version(one.version, version)]
    able = [one for one in have if one.venv or uv is not None]
    best = _best(compat, request, host, able)
    if best is not None:
        option, interpreter = best
        return _Choice(option, interpreter.path, interpreter.version, _newer(whole, option))
    option = whole.options[0]
    locks_of(option)  # raises where nobody pinned it: no other Python would help
    unable = _best(compat, request, host, have)
    if unable is not None:
        raise _without_venv(unable[1])
    if uv is not None and named is None:
        wanted = version or option.python
        note = f"No Python {wanted} is here: uv fetches one."
        return _Choice(option, wanted, wanted, (note,))
    raise _no_python(option, version)


def _python(text: str | None, env: dict[str, str]) -> tuple[str | None, Interpreter | None]:
    """`--python`: a version, or the Python at a path."""
    if text is None or _VERSION.fullmatch(text):
        return text, None
    path = Path(text).expanduser()
    if "/" not in text and not path.exists():
        msg = f"--python: `{clean_line(text)}` is neither a version nor a path."
        raise UsageError(msg, hint="--python 3.11, --python 3.11.7, or --python /usr/bin/python3.11.")
    if path.is_dir():
        path = path / "bin" / "python"
    found = ask(str(path.absolute()), env)
    if found is None:
        msg = f"--python: {clean_line(str(path))} is no Python 3 (CPython, 64 bits) that runs."
        raise UsageError(msg, hint="Name another one, or leave --python out.")
    return None, found


def _is_in(path: str, folder: Path) -> bool:
    return Path(path).is_relative_to(folder)


def _is_version(have: str, wanted: str) -> bool:
    return have == wanted or have.startswith(f"{wanted}.")


def _best(
    compat: Compat, request: Request, host: Host, have: Sequence[Interpreter]
) -> tuple[Option, Interpreter] | None:
    """The newest release that one of these Pythons can have; of the Pythons that can, the first, else the newest."""
    first = have[0].minor if have else ""
    found: list[tuple[tuple[Any, ...], Option, Interpreter]] = []
    for minor in dict.fromkeys(one.minor for one in have):
        answer = planned(compat, dataclasses.replace(request, python=minor), host)
        if not answer.options:
            continue
        option = answer.options[0]
        try:
            locks_of(option)
        except NoLockError:
            continue
        rank = (
            -option.serious,
            versions.sort_key(option.tensorflow),
            minor == first,
            versions.sort_key(minor),
        )
        found.append((rank, option, next(one for one in have if one.minor == minor)))
    if not found:
        return None
    _, option, interpreter = max(found, key=lambda row: row[0])
    return option, interpreter


def _newer(whole: Recommendation, option: Option) -> tuple[str, ...]:
    """That another Python would bring a newer TensorFlow."""
    best = whole.options[0]
    if versions.sort_key(best.tensorflow) <= versions.sort_key(option.tensorflow):
        return ()
    have = ", ".join(best.release.linux_pythons)
    return (f"TensorFlow {best.tensorflow} is newer; it needs another Python ({have}) than those here.",)


def _without_venv(interpreter: Interpreter) -> Error:
    minor = interpreter.minor
    msg = f"{clean_line(interpreter.path)} (Python {interpreter.version}) cannot make environments: it lacks ensurepip."
    if _manager() == "apt":
        return InstallFailedError(
            msg, hint=f"{_sudo()}apt-get install python{minor}-venv, or get uv (pipx install uv)."
        )
    return InstallFailedError(msg, hint="Install its venv package, or get uv (pipx install uv).")


def _no_python(option: Option, version: str | None) -> Error:
    fits = [version] if version is not None else list(reversed(option.release.linux_pythons))
    msg = (
        f"TensorFlow {option.tensorflow} needs Python {' or '.join(fits[:4])}, and none is here."
        if version is None
        else f"No Python {version} is here."
    )
    hints = []
    system = _os_release()
    own = next((one for one in fits if _system_python(system) == versions.major_minor(one)), None)
    if own is not None and _manager() == "apt":
        minor = versions.major_minor(own)
        hints.append(f"{_sudo()}apt-get install python{minor} python{minor}-venv")
    elif _manager() == "dnf":
        hints.append(f"{_sudo()}dnf install python{versions.major_minor(fits[0])}")
    hints.append("get uv (pipx install uv): the same command then fetches one")
    return InstallFailedError(msg, hint=f"{', or '.join(hints)}.")


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _system_python(system: dict[str, str]) -> str | None:
    """The Python of a Debian or Ubuntu, which is all that its own packages have."""
    from tfdoctor.build import SYSTEM_PYTHONS

    return SYSTEM_PYTHONS.get(f"{system.get('ID', '')} {system.get('VERSION_ID', '')}")


def _manager() -> str | None:
    from tfdoctor.rules.advice import MANAGERS

    system = _os_release()
    names = [system.get("ID", ""), *system.get("ID_LIKE", "").split()]
    return next((MANAGERS[name] for name in names if name in MANAGERS), None)


def _sudo() -> str:
    return "" if os.geteuid() == 0 else "sudo "


# ---------------------------------------------------------------- what is told


def _no_plan(answer: Recommendation, options: Options) -> int:
    from tfdoctor.render.plan_console import render_recommendation
    from tfdoctor.render.terminal import colour, width, write

    if options.as_json:
        from tfdoctor.render.json import write_json
        from tfdoctor.render.plan_json import recommendation_json

        write_json(recommendation_json(answer))
    else:
        write(render_recommendation(answer, verbose=options.verbose, width=width(), colour=colour()))
    return ExitCode.FOUND


def _dry_run(making: Making, choice: _Choice, options: Options) -> int:
    if options.as_json:
        _write_json(making, None, None)
        return ExitCode.OK
    from tfdoctor.render.plan_console import render_option
    from tfdoctor.render.terminal import colour, width, write

    shown = dataclasses.replace(making.option, commands=())
    write(render_option(shown, width=width(), colour=colour()))
    notes = "".join(f"{clean_line(note)}\n" for note in choice.notes)
    write(f"\n{notes}Nothing was changed. This would be {clean_line(str(making.folder))}, made with:\n\n")
    last = ""
    for what, words in commands_of(making):
        if what != last:
            write(f"# {clean_line(what)}\n")
        last = what
        write(f"{clean_line(shlex.join(words), limit=8000)}\n")
    return ExitCode.OK


def _write_json(making: Making, made: Installed | None, report: Report | None) -> None:
    from tfdoctor.render.install_json import install_json
    from tfdoctor.render.json import write_json

    environment = None
    if made is not None:
        environment = {
            "path": str(making.folder),
            "python": str(making.folder / "bin" / "python"),
            "installer": making.installer.name,
            "seconds": round(made.seconds, 2),
            "resumed": made.resumed,
        }
    commands = [list(words) for _, words in commands_of(making)]
    write_json(install_json(making.option, environment, commands, report))


class _Teller:
    """The progress of an installation, told as a build's is."""

    def __init__(self, watcher: Silent) -> None:
        from tfdoctor.engine.building import BuildEvent

        self._watcher, self._event = watcher, BuildEvent

    def stage(self, text: str) -> None:
        self._watcher.stage(text)

    def step(self, number: int, total: int, text: str) -> None:
        self._watcher.event(self._event("step", text, number, total))

    def output(self, line: str) -> None:
        self._watcher.event(self._event("output", line))

    def done(self) -> None:
        """The last step has ended."""
        self._watcher.event(self._event("image"))


def _install(making: Making, choice: _Choice, compat: Compat, options: Options) -> int:
    from tfdoctor.cli.progress import watching

    try:
        with watching(quiet=options.quiet or options.as_json, verbose=options.verbose) as watcher:
            for note in (*(one.text for one in making.option.caveats if one.serious), *choice.notes):
                watcher.stage(f"Note: {note}")
            teller = _Teller(watcher)
            try:
                made = make(making, teller)
            except InstallFailedError as error:
                watcher.close()
                _last_lines(error, options)
                raise
            teller.done()
    except Error as error:
        if _is_unfinished(making.folder):
            error.hint = f"{error.hint} {_go_on(making.folder)}".strip()
        raise
    except KeyboardInterrupt:
        if _is_unfinished(making.folder):
            sys.stderr.write(f"{_go_on(making.folder)}\n")
        raise
    from tfdoctor.cli.proof import prove

    report = prove(making, compat, deep=not options.no_deep, quiet=options.quiet or options.as_json)
    if options.as_json:
        _write_json(making, made, report)
    elif not options.quiet:
        _tell(making, made, report, options)
    elif _status(report, options):
        from tfdoctor.render.console import print_report

        print_report(report, quiet=True)
    return _status(report, options)


def _last_lines(error: InstallFailedError, options: Options) -> None:
    if options.verbose or not error.output:
        return
    sys.stderr.write("  its last lines:\n")
    for line in error.output[-20:]:
        sys.stderr.write(f"    | {clean_line(line, limit=400)}\n")


def _is_unfinished(folder: Path) -> bool:
    record = read_record(folder)
    return record is not None and not record.finished


def _go_on(folder: Path) -> str:
    shown = clean_line(str(folder))
    return f"{shown} is unfinished: run the same command again to finish it, or remove it: rm -r {shlex.quote(shown)}"


# ---------------------------------------------------------------- what came of it


def _status(report: Report, options: Options) -> int:
    """1 where the environment is wrong, or TensorFlow was run and does not register the GPUs that it must.

    What the machine lacks, or a card that registers and does not compute, is told and no fault of the installation.
    """
    from tfdoctor.cli.proof import is_right

    seen = report.observed
    must = report.prediction.gpu_registered is True and not options.for_another
    failed = seen is not None and seen.gpu_registered is False and must
    return ExitCode.OK if is_right(report) and not failed else ExitCode.FOUND


def _tell(making: Making, made: Installed, report: Report, options: Options) -> None:
    from tfdoctor.cli.proof import is_right
    from tfdoctor.render.console import print_report
    from tfdoctor.render.plan_console import size_text
    from tfdoctor.render.terminal import write

    option, folder = making.option, clean_line(str(making.folder))
    what = (
        f"TensorFlow {option.tensorflow}, Python {making.version}, CUDA {option.cuda}, cuDNN {option.cudnn}"
    )
    if made.already:
        write(f"{folder} is there already, as it was planned ({what}): nothing was done.\n")
    else:
        how = "Finished" if made.resumed else "Made"
        size = size_text(used(making.folder))
        write(f"{how} {folder} ({size}, {made.seconds:.0f} s, {making.installer.name}): {what}.\n")
    quoted = shlex.quote(folder)
    write(f"Use it:     . {quoted}/bin/activate\nRemove it:  rm -r {quoted}\n\n")
    right, usable = is_right(report), report.verdict.gpu_usable is True
    if right and not usable and report.observed is None and not options.verbose:
        write(f"The environment is right. {_machine(report)}\n")
        write(f"More:       tfdoctor check --python {quoted}\n")
        return
    print_report(report, verbose=options.verbose, quiet=right and usable and not options.verbose)
    warnings = [one for one in report.findings if one.severity is Severity.WARNING]
    if right and usable and warnings and not options.verbose:
        for one in warnings:
            write(f"Note:       {clean_line(one.title)} [{one.code}]\n")
        write(f"More:       tfdoctor check --python {quoted}    tfdoctor fix --python {quoted} --dry-run\n")


def _machine(report: Report) -> str:
    """What keeps this machine from using it."""
    if report.root is None:
        return clean_line(report.verdict.summary)
    return f"What stands in the way here: {clean_line(report.root.title)}."
