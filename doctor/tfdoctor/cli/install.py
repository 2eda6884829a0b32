"""`tfdoctor install`."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.cli.choosing import Choice, Wishes, choose
from tfdoctor.cli.files import wish_of
from tfdoctor.cli.recommend import LOOKING, checked_driver, host_for
from tfdoctor.compat import Compat
from tfdoctor.environment.install import (
    Making,
    commands_of,
    in_words,
    locked_lines,
    locks_of,
    make,
    try_requirements,
    writing,
)
from tfdoctor.environment.installers import InstallFailedError, find_uv
from tfdoctor.environment.requirements import parse_packages, without_cuda
from tfdoctor.environment.resolution import NoSolutionError
from tfdoctor.environment.room import needs, refuse, used
from tfdoctor.environment.workplace import is_free, read_record
from tfdoctor.errors import Error, ExitCode, UsageError
from tfdoctor.examine import look
from tfdoctor.findings import Severity
from tfdoctor.fit import Host, host_of
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stopping
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.cli.progress import Silent
    from tfdoctor.environment.install import Installed
    from tfdoctor.environment.room import Need
    from tfdoctor.facts import MachineFacts
    from tfdoctor.findings import Report
    from tfdoctor.plan import Recommendation
    from tfdoctor.system import System

_INDEX = re.compile(r"(?:https?://[A-Za-z0-9.\-\[\]:]{1,255}|file://)(?:/[A-Za-z0-9._~%+/\-]{0,500})?")


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
    wish, packages = wish_of(options.requirements), parse_packages(options.packages)
    if options.index is not None:
        _check_index(options.index)
    folder = Path(os.path.abspath(options.into))  # noqa: PTH100 - links stay links
    is_free(folder)
    env = dict(os.environ)
    uv = None if options.installer == "pip" else find_uv(env)
    if options.installer == "uv" and uv is None:
        raise InstallFailedError("uv is not on PATH, or does not run.", hint="--installer pip, or get uv.")
    compat = Compat.load()
    system, wishes = LiveSystem(), Wishes(compat, options.tf, packages, wish)
    with stopping(system):
        host, machine = _host(options, compat, system)
        choice = choose(wishes, options.python, host, folder, uv=uv, system=system, machine=machine)
    if not isinstance(choice, Choice):
        return _no_plan(choice, options)
    wanted = wish.on(choice.version)
    wheels = {wheel.name: wheel.version for wheel in choice.option.wheels}
    lines, left = without_cuda(wanted.lines, wheels)
    limits, _ = without_cuda(wanted.constraints, wheels)
    choice = dataclasses.replace(choice, notes=(*choice.notes, *wanted.notes, *left))
    making = Making(
        option=choice.option,
        folder=folder,
        base=choice.base,
        version=choice.version,
        uv=uv,
        locks=locks_of(choice.option),
        requirements=(*lines, *packages),
        constraints=limits,
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


def _host(options: Options, compat: Compat, system: System) -> tuple[Host, MachineFacts]:
    """The cards and the driver that are meant, on the system that is here; and what is known of that."""
    if options.anywhere and (options.gpus or options.facts is not None):
        raise UsageError("--anywhere is for every card; give it alone, or --gpu, or --facts.")
    driver = checked_driver(options.driver)
    meant = None
    if options.gpus or options.facts is not None:
        meant = host_for(compat, gpus=options.gpus, driver=driver, facts=options.facts)
    elif options.anywhere:
        meant = Host(driver=driver)
    facts = look(system, compat, timeout=LOOKING)
    here = dataclasses.replace(host_of(facts, compat), engine=None)
    if meant is None:
        host = dataclasses.replace(here, driver=driver or here.driver)
    else:
        wsl = meant.wsl or (meant.system == "Windows" and here.system == "Linux")
        wanted = dataclasses.replace(here, cards=meant.cards, driver=meant.driver, cpu_flags=meant.cpu_flags)
        host = dataclasses.replace(wanted, wsl=wsl, python=None)
    return host, facts.machine


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


def _dry_run(making: Making, choice: Choice, options: Options) -> int:
    """What would be done, tried as far as it can be without doing it. Raises NoRoomError, NoSolutionError."""
    room = needs(writing(making), exact=True)
    refuse(room, clean_line(str(making.folder)))
    untried = ""
    if making.asks:
        making, untried = _tried(making)
    if options.as_json:
        _write_json(making, None, None, notes=choice.notes, room=room, untried=untried)
        return ExitCode.IMPOSSIBLE if untried else ExitCode.OK
    from tfdoctor.render.plan_console import render_option
    from tfdoctor.render.terminal import colour, width, write

    shown = dataclasses.replace(making.option, commands=())
    write(render_option(shown, width=width(), colour=colour()))
    lines = [*choice.notes, *(f"Room: {need.text}." for need in room), *in_words(making)]
    if untried:
        lines.append(f"Whether your requirements go with it could not be tried: {untried}")
    notes = "".join(f"{clean_line(line, limit=4000)}\n" for line in lines)
    write(f"\n{notes}Nothing was changed. This would be {clean_line(str(making.folder))}, made with:\n\n")
    last = ""
    for what, words in commands_of(making):
        if what != last:
            write(f"# {clean_line(what)}\n")
        last = what
        write(f"{clean_line(shlex.join(words), limit=8000)}\n")
    return ExitCode.IMPOSSIBLE if untried else ExitCode.OK


def _tried(making: Making) -> tuple[Making, str]:
    """(with what the requirements come to, ""), or (as it was, why that could not be found out)."""
    if not making.can_try:
        return making, f"the pip of Python {making.option.python} cannot say; uv can."
    try:
        return dataclasses.replace(making, resolution=try_requirements(making)), ""
    except NoSolutionError:
        raise
    except InstallFailedError as error:
        return making, str(error)


def _write_json(
    making: Making,
    made: Installed | None,
    report: Report | None,
    *,
    notes: Sequence[str],
    room: Sequence[Need] = (),
    untried: str = "",
) -> None:
    from tfdoctor.render.install_json import install_json, resolution_json, room_json
    from tfdoctor.render.json import write_json

    environment = None
    if made is not None:
        making = made.making or making
        environment = {
            "path": str(making.folder),
            "python": str(making.folder / "bin" / "python"),
            "installer": making.installer.name,
            "seconds": round(made.seconds, 2),
            "resumed": made.resumed,
        }
    resolution = None
    if making.asks:
        changes = (
            making.resolution.changes(locked_lines(making.locks.tensorflow)) if making.resolution else ()
        )
        resolution = resolution_json(
            [(one.name, one.locked, one.chosen) for one in changes],
            tried=making.resolution is not None,
            why=untried or None,
        )
    document = install_json(
        making.option, environment, [list(words) for _, words in commands_of(making)], report
    )
    rows = [(str(need.folder), need.what, need.size, need.free) for need in room]
    room_told = room_json(rows) if made is None else None
    write_json({**document, "notes": list(notes), "resolution": resolution, "room": room_told})


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


def _install(making: Making, choice: Choice, compat: Compat, options: Options) -> int:
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
        _write_json(making, made, report, notes=choice.notes)
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
