"""`tfdoctor install`."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tfdoctor.cli import completion_values
from tfdoctor.cli.files import wish_of
from tfdoctor.cli.machine import PROBE_TIMEOUT_S, host_for
from tfdoctor.cli.options import (
    Driver,
    Gpus,
    Index,
    Installer,
    Installers,
    Json,
    NoDeep,
    OnlyErrors,
    Packages,
    Simulate,
    command,
    option,
    verbose_option,
)
from tfdoctor.cli.simulation_options import parse_simulation, verify_simulated_python
from tfdoctor.compat import Compat
from tfdoctor.environment.disk_space import needs, refuse, used
from tfdoctor.environment.install import (
    commands_of,
    describe_changes,
    list_locked_lines,
    list_writing,
    make,
    try_requirements,
)
from tfdoctor.environment.install_state import is_free, read_record
from tfdoctor.environment.installers import InstallFailedError, find_uv
from tfdoctor.environment.requirements import parse_packages
from tfdoctor.environment.resolution import NoSolutionError
from tfdoctor.environment.selection import PlanChoice, Wishes, choose, choose_making
from tfdoctor.environment.smoke_test import gpu_is_missing, is_right, prove
from tfdoctor.errors import Error, ExitCode, UsageError
from tfdoctor.examine import collect_facts
from tfdoctor.fit import Fit, Host, build_host, find_best_fit
from tfdoctor.plan.arguments import check_driver, check_python, readings, settle_answer
from tfdoctor.render.install import (
    environment_json,
    install_json,
    render_dry_run,
    render_installed,
    resolution_json,
)
from tfdoctor.render.json import write_json
from tfdoctor.render.plan import recommendation_json, render_recommendation, size_text
from tfdoctor.render.progress import progress
from tfdoctor.render.report import render_report
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.render.verify import render_end, verification_json
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.text import clean_line
from tfdoctor.verify.session import Wish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.environment.disk_space import Need
    from tfdoctor.environment.install import InstallResult, Making
    from tfdoctor.facts import MachineFacts
    from tfdoctor.findings import Report, Verification
    from tfdoctor.simulate.request import Simulated
    from tfdoctor.system import System

_INDEX = re.compile(r"(?:https?://[A-Za-z0-9.\-\[\]:]{1,255}|file://)(?:/[A-Za-z0-9._~%+/\-]{0,500})?")


@command
def install(
    tf: Annotated[
        str | None,
        option(
            "TensorFlow: 2.15.1, 2.20, latest. Default: the best.",
            metavar="SPEC",
            autocompletion=completion_values.releases,
        ),
    ] = None,
    python: Annotated[
        str | None,
        option("Create it from this Python: 3.11, 3.11.7, /usr/bin/python3.11.", metavar="V|PATH"),
    ] = None,
    into: Annotated[Path, option("Folder to create.", metavar="DIR")] = Path("tensorflow-env"),
    requirements: Annotated[
        list[Path] | None,
        option(
            "Install what this file lists, with the TensorFlow that it names: requirements, pyproject.toml, "
            "environment.yml, poetry.lock, uv.lock.",
            "-r",
            "--requirements",
            metavar="FILE",
        ),
    ] = None,
    package: Packages = None,
    gpu: Gpus = None,
    driver: Driver = None,
    anywhere: Annotated[
        bool, option("For any card and driver: do not look at this machine's.", "--anywhere")
    ] = False,
    facts: Annotated[
        Path | None, option("For a recorded machine's cards and driver.", metavar="BUNDLE")
    ] = None,
    simulate: Simulate = None,
    index: Index = None,
    installer: Installers = None,
    no_deep: NoDeep = False,
    dry_run: Annotated[
        bool,
        option("Show the plan, its sizes and the commands; change nothing.", "--dry-run", "-n"),
    ] = False,
    as_json: Json = False,
    verbose: Annotated[
        bool, verbose_option("Show all output and every check; with --dry-run the whole plan.")
    ] = False,
    quiet: OnlyErrors = False,
) -> int:
    """Plan, make, check. Returns the exit status.

    Plans as `recommend` does, makes a new folder with pinned and hashed packages, NVIDIA's CUDA wheels among them,
    and checks the result. The system's Python is not touched. If interrupted, run the same command again to resume.

    With --simulate it plans for that card, and verifies what was made beside a stand-in of it.
    """
    if platform.system() != "Linux":
        msg = f"install makes environments on Linux; this is {platform.system()}."
        raise InstallFailedError(
            msg, hint="On Windows, run it under WSL 2, or build an image: tfdoctor build."
        )
    wish, packages = wish_of(requirements or ()), parse_packages(package or ())
    if index is not None:
        _check_index(index)
    folder = Path(os.path.abspath(into))  # noqa: PTH100 - links stay links
    is_free(folder)
    env = dict(os.environ)
    uv = None if installer is Installer.pip else find_uv(env)
    if installer is Installer.uv and uv is None:
        raise InstallFailedError("uv is not on PATH, or does not run.", hint="--installer pip, or get uv.")
    compat, gpu = Compat.load(), gpu or simulate
    asked = parse_simulation(compat, simulate or (), driver=driver)
    system, wishes = LiveSystem(), Wishes(compat, tf, packages, wish)
    with stop_on_signal(system):
        host, machine = _host(compat, system, gpus=gpu or (), driver=driver, anywhere=anywhere, facts=facts)
        host = _choose_host(compat, host, tf, python)
        choice = choose(wishes, python, host, folder, uv=uv, system=system, machine=machine)
    if not isinstance(choice, PlanChoice):
        if as_json:
            write_json(recommendation_json(choice))
        else:
            OUT.write(render_recommendation(choice, verbose=verbose, **OUT.looks))
        return ExitCode.FOUND
    making, notes = choose_making(choice, wishes, folder, uv=uv, index=index, env=env)
    if dry_run:
        return _dry_run(making, notes, as_json=as_json, verbose=verbose)
    made = _make(making, notes, quiet=quiet or as_json, verbose=verbose)
    with progress(quiet=quiet or as_json or not ERR.watched, moving=False) as told:
        report = prove(making, compat, told, deep=not no_deep)
    here = not (gpu or anywhere or driver is not None or facts is not None)
    right = is_right(report) and not (here and gpu_is_missing(report))
    document = _document(making, notes, made=made, report=report)
    if not as_json and not quiet:
        _tell(making, made, report, verbose=verbose)
    elif not as_json and not right:
        OUT.write(render_report(report, quiet=True, **OUT.looks))
    if asked is not None and right:
        done = _verify_installation(compat, making, asked, quiet=quiet, as_json=as_json, verbose=verbose)
        right, document["verification"] = done.ok is not False, verification_json(done)
    if as_json:
        write_json(document)
    return ExitCode.OK if right else ExitCode.FOUND


def _verify_installation(
    compat: Compat, making: Making, asked: Simulated, *, quiet: bool, as_json: bool, verbose: bool
) -> Verification:
    """Return what was made, verified beside a stand-in."""
    python = str(making.folder / "bin" / "python")
    done = verify_simulated_python(compat, python, Wish(simulated=asked), asked, quiet=quiet or as_json)
    if not as_json:
        OUT.write(render_end(done, verbose=verbose, quiet=quiet, **OUT.looks))
    return done


# ---------------------------------------------------------------- the request


def _check_index(text: str) -> None:
    """Raises UsageError for what is no index, and for one with a password: everybody here can read command lines."""
    if "@" in text.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "--index: a name or password in an address can be read by everybody on this machine.",
            hint="Put them in ~/.netrc, or the whole address in pip.conf or UV_DEFAULT_INDEX.",
        )
    if not _INDEX.fullmatch(text):
        msg = f"--index: `{clean_line(text)}` is not the address of a package index."
        raise UsageError(msg, hint="Expected an address such as https://HOST/simple/.")


def _host(
    compat: Compat,
    system: System,
    *,
    gpus: Sequence[str],
    driver: str | None,
    anywhere: bool,
    facts: Path | None,
) -> tuple[Host, MachineFacts]:
    """Return the cards and the driver that are meant, on the system that is here.

    And what is known of that.
    """
    if anywhere and (gpus or facts is not None):
        raise UsageError("--anywhere means every card; give only one of --anywhere, --gpu and --facts.")
    driver = check_driver(driver)
    meant = None
    if gpus or facts is not None:
        meant = host_for(compat, gpus=gpus, driver=driver, facts=facts)
    elif anywhere:
        meant = Host(driver=driver)
    seen = collect_facts(system, compat, timeout=PROBE_TIMEOUT_S)
    here = dataclasses.replace(build_host(seen, compat), engine=None)
    if meant is None:
        host = dataclasses.replace(here, driver=driver or here.driver, shown=here.shown and driver is None)
    else:
        wsl = meant.wsl or (meant.system == "Windows" and here.system == "Linux")
        wanted = dataclasses.replace(
            here, cards=meant.cards, driver=meant.driver, cpu_flags=meant.cpu_flags, shown=meant.shown
        )
        host = dataclasses.replace(wanted, wsl=wsl, python=None)
    return host, seen.machine


def _choose_host(compat: Compat, host: Host, tf: str | None, python: str | None) -> Host:
    """Return the machine, where a card's name can mean several that all have the same answer.

    Raises UsageError.
    """
    if any(card.others for card in host.cards):
        wanted = check_python(python) if python is not None and python[:1].isdigit() else None
        spec = tf if tf is not None and compat.select(tf) else None
        settle_answer(compat, host, lambda one: _gist(find_best_fit(compat, one, python=wanted, spec=spec)))
    return readings(host)[0]


def _gist(fit: Fit | None) -> tuple[object, ...]:
    return () if fit is None else (fit.release.version, fit.python, fit.serious)


# ---------------------------------------------------------------- what is done


def _dry_run(making: Making, notes: Sequence[str], *, as_json: bool, verbose: bool) -> int:
    """Return what would be done, tried as far as it can be without doing it.

    Raises NoRoomError, NoSolutionError.
    """
    room = needs(list_writing(making), exact=True)
    refuse(room, clean_line(str(making.folder)))
    untried = ""
    if making.asks:
        making, untried = _try_resolution(making)
    if as_json:
        write_json(_document(making, notes, room=room, untried=untried))
    else:
        lines = [*notes, *(f"Room: {need.text}." for need in room), *describe_changes(making)]
        if untried:
            lines.append(f"Could not check whether your requirements are compatible with it: {untried}")
        folder, steps = str(making.folder), commands_of(making)
        OUT.write(render_dry_run(making.option, folder, lines, steps, whole=verbose, **OUT.looks))
    return ExitCode.IMPOSSIBLE if untried else ExitCode.OK


def _try_resolution(making: Making) -> tuple[Making, str]:
    """(with what the requirements come to, ""), or (as it was, why that could not be found out)."""
    if not making.can_try:
        return making, f"the pip of Python {making.option.python} cannot say; uv can."
    try:
        return dataclasses.replace(making, resolution=try_requirements(making)), ""
    except NoSolutionError:
        raise
    except InstallFailedError as error:
        return making, str(error)


def _make(making: Making, notes: Sequence[str], *, quiet: bool, verbose: bool) -> InstallResult:
    """With what to do about it where it ends half-way."""
    shown = clean_line(str(making.folder))
    go_on = f"{shown} is unfinished: run the same command again to finish it, or remove it: rm -r {shlex.quote(shown)}"
    try:
        with progress(quiet=quiet, verbose=verbose) as told:
            for note in (*(one.text for one in making.option.caveats if one.serious), *notes):
                told.stage(f"Note: {note}")
            return make(making, told)
    except Error as error:
        if _is_unfinished(making.folder):
            error.hint = f"{error.hint} {go_on}".strip()
        raise
    except KeyboardInterrupt:
        if _is_unfinished(making.folder):
            sys.stderr.write(f"{go_on}\n")
        raise


def _is_unfinished(folder: Path) -> bool:
    record = read_record(folder)
    return record is not None and not record.finished


# ---------------------------------------------------------------- what is told


def _document(
    making: Making,
    notes: Sequence[str],
    *,
    made: InstallResult | None = None,
    report: Report | None = None,
    room: Sequence[Need] = (),
    untried: str = "",
) -> dict[str, Any]:
    """Return the JSON; `made`: None if nothing was."""
    environment = None
    if made is not None:
        making = made.making or making
        environment = environment_json(
            making.folder, making.installer.name, made.seconds, resumed=made.resumed
        )
    resolution = None
    if making.asks:
        chosen = making.resolution
        changes = chosen.changes(list_locked_lines(making.locks.tensorflow)) if chosen is not None else ()
        resolution = resolution_json(
            [(one.name, one.locked, one.chosen) for one in changes],
            tried=chosen is not None,
            why=untried or None,
        )
    return install_json(
        making.option,
        [words for _, words in commands_of(making)],
        environment=environment,
        report=report,
        notes=notes,
        resolution=resolution,
        room=[(str(one.folder), one.what, one.size, one.free) for one in room] if made is None else None,
    )


def _tell(making: Making, made: InstallResult, report: Report, *, verbose: bool) -> None:
    option, folder = making.option, str(making.folder)
    what = (
        f"TensorFlow {option.tensorflow}, Python {making.version}, CUDA {option.cuda}, cuDNN {option.cudnn}"
    )
    if made.already:
        OUT.write(f"{clean_line(folder)} already exists, as planned ({what}): nothing was done.\n")
    else:
        how = "Finished" if made.resumed else "Made"
        size = size_text(used(making.folder))
        OUT.write(
            f"{how} {clean_line(folder)} ({size}, {made.seconds:.0f} s, {making.installer.name}): {what}.\n"
        )
    OUT.write(render_installed(folder, report, right=is_right(report), verbose=verbose, **OUT.looks))
