"""The `tfdoctor install` command."""

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
from tfdoctor.cli.confirmation import confirm_download
from tfdoctor.cli.files import read_requirement_set
from tfdoctor.cli.machine import PROBE_TIMEOUT_S, select_host
from tfdoctor.cli.options import (
    Driver,
    From,
    Gpus,
    Index,
    Installer,
    Installers,
    Json,
    NoDeep,
    OnlyErrors,
    Packages,
    Simulate,
    Yes,
    command,
    option,
    verbose_option,
)
from tfdoctor.cli.simulation_options import parse_simulation, verify_simulated_python
from tfdoctor.compat import Compat
from tfdoctor.core.errors import Error, ExitCode, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis import collect_facts
from tfdoctor.environments.disk_space import (
    compute_needs,
    find_uv_cache,
    format_gigabytes,
    measure_disk_usage,
    measure_unfinished_downloads,
    require_space,
)
from tfdoctor.environments.install import (
    describe_changes,
    install_environment,
    list_install_commands,
    list_locked_lines,
    make_install_sizes,
    resolve_requirements,
)
from tfdoctor.environments.install_state import read_record, require_usable_folder
from tfdoctor.environments.installers import InstallFailedError, find_uv
from tfdoctor.environments.requirements import parse_packages
from tfdoctor.environments.resolution import NoSolutionError
from tfdoctor.environments.selection import InstallOptions, PlanChoice, choose_plan, make_install_request
from tfdoctor.environments.smoke_test import examine_installed, is_gpu_missing, is_intact
from tfdoctor.planning.arguments import (
    add_machine_arguments,
    expand_ambiguous_gpus,
    find_common_answer,
    parse_python_version,
    validate_driver,
)
from tfdoctor.prediction.fit.compatibility import Fit, find_best_fit
from tfdoctor.prediction.fit.host import build_host
from tfdoctor.prediction.fit.models import Host
from tfdoctor.render.install import (
    make_environment_json,
    make_install_json,
    make_resolution_json,
    render_dry_run,
    render_installation,
)
from tfdoctor.render.json import write_json
from tfdoctor.render.plan import format_bytes, make_recommendation_json, render_recommendation
from tfdoctor.render.progress import open_progress
from tfdoctor.render.report import render_report
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.render.verify import make_verification_json, render_result
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.verification.session import VerifyRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts import MachineFacts
    from tfdoctor.core.findings import Report, Verification
    from tfdoctor.environments.disk_space import DiskSpaceNeed
    from tfdoctor.environments.install import InstallRequest, InstallResult
    from tfdoctor.system import System
    from tfdoctor.verification.simulate.request import SimulatedGpus

_INDEX = re.compile(r"(?:https?://[A-Za-z0-9.\-\[\]:]{1,255}|file://)(?:/[A-Za-z0-9._~%+/\-]{0,500})?")
"""Matches an http, https or file URL without credentials, query and fragment."""


@command(
    "tfdoctor install", "tfdoctor install --tf 2.20 --into ~/tf", "tfdoctor install -n -r requirements.txt"
)
def install(
    tf: Annotated[
        str | None,
        option(
            "TensorFlow: 2.15.1, 2.20, latest. Default: the best.",
            metavar="SPEC",
            autocompletion=completion_values.complete_release,
        ),
    ] = None,
    python_version: Annotated[
        str | None,
        option("With this Python: 3.11, 3.11.7, /usr/bin/python3.11.", metavar="V|PATH"),
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
        bool, option("Plan for any GPU and driver, and ignore those of this machine.", "--anywhere")
    ] = False,
    recording_path: From = None,
    simulate: Simulate = None,
    index: Index = None,
    installer: Installers = None,
    no_deep: NoDeep = False,
    dry_run: Annotated[
        bool,
        option("Show the plan, its sizes and the commands; change nothing.", "--dry-run", "-n"),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
    verbose: Annotated[
        bool, verbose_option("Show all output and every check; with --dry-run the whole plan.")
    ] = False,
    quiet: OnlyErrors = False,
) -> int:
    """Install TensorFlow in a new virtual environment, check it and return the exit status.

    Plans as `recommend` does, makes a new folder with pinned and hashed packages, NVIDIA's CUDA wheels among them,
    and checks the result. The system's Python is not touched. If interrupted, run the same command again to resume.

    With --simulate it plans for that GPU, and verifies the environment with a simulated one.
    """
    if platform.system() != "Linux":
        msg = f"install makes environments on Linux; this is {platform.system()}."
        raise InstallFailedError(
            msg, hint="On Windows, run it under WSL 2, or build an image: tfdoctor build."
        )
    requirement_set, packages = read_requirement_set(requirements or ()), parse_packages(package or ())
    if index is not None:
        _check_index(index)
    folder = Path(os.path.abspath(into))  # noqa: PTH100 - keeps links, which resolve() would follow
    require_usable_folder(folder)
    env = dict(os.environ)
    uv = None if installer is Installer.pip else find_uv(env)
    if installer is Installer.uv and uv is None:
        raise InstallFailedError("uv is not on PATH, or does not run.", hint="--installer pip, or get uv.")
    compat, gpu = Compat.load(), gpu or simulate
    simulation = parse_simulation(compat, simulate or (), driver=driver)
    system = LiveSystem()
    options = InstallOptions(
        compat=compat, tensorflow_option=tf, packages=packages, requirement_set=requirement_set
    )
    with stop_on_signal(system):
        host, machine = _find_host(
            compat, system, gpus=gpu or (), driver=driver, anywhere=anywhere, recording_path=recording_path
        )
        host = _resolve_gpu_names(compat, host, tf, python_version)
        choice = choose_plan(options, python_version, host, folder, uv=uv, system=system, machine=machine)
    if not isinstance(choice, PlanChoice):  # a recommendation without a suitable option
        choice = add_machine_arguments(choice, gpu or (), driver)
        if as_json:
            write_json(make_recommendation_json(choice))
        else:
            OUT.write(render_recommendation(choice, verbose=verbose, **OUT.layout))
        return ExitCode.FOUND
    request, notes = make_install_request(choice, options, folder, uv=uv, index=index, env=env)
    if dry_run:
        return _print_dry_run(request, notes, as_json=as_json, verbose=verbose)
    if read_record(request.folder) is None and not _confirm(request, yes=yes, quiet=quiet or as_json):
        return ExitCode.FOUND
    result = _make_environment(request, notes, quiet=quiet or as_json, verbose=verbose)
    with open_progress(quiet=quiet or as_json or not ERR.is_terminal, animated=False) as display:
        report = examine_installed(request, compat, display, run_tensorflow=not no_deep)
    is_for_this_host = not (gpu or anywhere or driver is not None or recording_path is not None)
    is_correct = is_intact(report) and not (is_for_this_host and is_gpu_missing(report))
    document = _make_document(request, notes, result=result, report=report)
    if not as_json and not quiet:
        _report_result(request, result, report, verbose=verbose)
    elif not as_json and not is_correct:
        OUT.write(render_report(report, quiet=True, **OUT.layout))
    if simulation is not None and is_correct:
        verification = _verify_installation(
            compat, request, simulation, quiet=quiet, as_json=as_json, verbose=verbose
        )
        is_correct = verification.ok is not False
        document["verification"] = make_verification_json(verification)
    if as_json:
        write_json(document)
    return ExitCode.OK if is_correct else ExitCode.FOUND


def _verify_installation(
    compat: Compat,
    request: InstallRequest,
    simulation: SimulatedGpus,
    *,
    quiet: bool,
    as_json: bool,
    verbose: bool,
) -> Verification:
    """Verify the new environment with the stand-in driver and print the result."""
    python = str(request.folder / "bin" / "python")
    verification = verify_simulated_python(
        compat, python, VerifyRequest(simulated_gpus=simulation), simulation, quiet=quiet or as_json
    )
    if not as_json:
        OUT.write(render_result(verification, verbose=verbose, quiet=quiet, **OUT.layout))
    return verification


# ---------------------------------------------------------------- the request


def _check_index(text: str) -> None:
    """Raise UsageError if the index is invalid or contains credentials.

    Credentials are rejected because every user of a host can read the command lines of its processes.
    """
    if "@" in text.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "--index: a name or password in an address can be read by everybody on this machine.",
            hint="Put them in ~/.netrc, or the whole address in pip.conf or UV_DEFAULT_INDEX.",
        )
    if not _INDEX.fullmatch(text):
        msg = f"--index: `{clean_line(text)}` is not the address of a package index."
        raise UsageError(msg, hint="Expected an address such as https://HOST/simple/.")


def _find_host(
    compat: Compat,
    system: System,
    *,
    gpus: Sequence[str],
    driver: str | None,
    anywhere: bool,
    recording_path: Path | None,
) -> tuple[Host, MachineFacts]:
    """Return the host that the plan is for, and the facts about this machine.

    The GPUs and the driver are those of the options, of a recorded host or of this host. The operating system is always
    that of this host. Raise UsageError if the options are wrong.
    """
    if anywhere and (gpus or recording_path is not None):
        raise UsageError("--anywhere means every card; give only one of --anywhere, --gpu and --from.")
    driver = validate_driver(compat, driver)
    requested_host = None
    if gpus or recording_path is not None:
        requested_host = select_host(compat, gpus=gpus, driver=driver, recording_path=recording_path)
    elif anywhere:
        requested_host = Host(driver=driver)
    host_facts = collect_facts(system, compat, timeout=PROBE_TIMEOUT_S)
    this_host = dataclasses.replace(build_host(host_facts, compat), has_engine=None)
    if requested_host is None:
        host = dataclasses.replace(
            this_host,
            driver=driver or this_host.driver,
            has_driver_gpus=this_host.has_driver_gpus and driver is None,
        )
    else:
        is_wsl = requested_host.is_wsl or (requested_host.system == "Windows" and this_host.system == "Linux")
        combined_host = dataclasses.replace(
            this_host,
            cards=requested_host.cards,
            driver=requested_host.driver,
            cpu_flags=requested_host.cpu_flags,
            has_driver_gpus=requested_host.has_driver_gpus,
            has_no_gpu=requested_host.has_no_gpu,
        )
        host = dataclasses.replace(combined_host, is_wsl=is_wsl, python=None)
    return host, host_facts.machine


def _resolve_gpu_names(compat: Compat, host: Host, tf: str | None, python: str | None) -> Host:
    """Return the host with each ambiguous GPU name replaced by the first GPU with that name.

    Raise UsageError if these GPUs need different plans.
    """
    if any(gpu.other_capabilities for gpu in host.cards):
        version = parse_python_version(python) if python is not None and python[:1].isdigit() else None
        spec = tf if tf is not None and compat.select(tf) else None
        # raises UsageError if the answers differ; the answer itself is not needed
        find_common_answer(
            compat,
            host,
            lambda resolved_host: _list_deciding_parts(
                find_best_fit(compat, resolved_host, python=version, spec=spec)
            ),
        )
    return expand_ambiguous_gpus(host)[0]


def _list_deciding_parts(fit: Fit | None) -> tuple[object, ...]:
    """Return the parts of a fit that must be equal for two plans to count as the same."""
    return () if fit is None else (fit.release.version, fit.python, fit.serious_count)


# ---------------------------------------------------------------- actions


def _print_dry_run(request: InstallRequest, notes: Sequence[str], *, as_json: bool, verbose: bool) -> int:
    """Print the plan, after all checks that change nothing, and return the exit status.

    Raise NoRoomError if the disk is too full, and NoSolutionError if the requirements exclude each other.
    """
    disk_needs = compute_needs(make_install_sizes(request), subtract_cached=True)
    require_space(disk_needs, clean_line(str(request.folder)))
    unresolved_reason = ""
    if request.has_requirements:
        request, unresolved_reason = _try_resolution(request)
    if as_json:
        write_json(_make_document(request, notes, disk_needs=disk_needs, unresolved_reason=unresolved_reason))
    else:
        lines = [*notes, *_describe_size(request, disk_needs), *describe_changes(request)]
        if unresolved_reason:
            lines.append(
                f"Could not check whether your requirements are compatible with it: {unresolved_reason}"
            )
        folder, steps = str(request.folder), list_install_commands(request)
        OUT.write(render_dry_run(request.option, folder, lines, steps, complete=verbose, **OUT.layout))
    return ExitCode.IMPOSSIBLE if unresolved_reason else ExitCode.OK


def _try_resolution(request: InstallRequest) -> tuple[InstallRequest, str]:
    """Resolve the requirements, and return (request, reason).

    Normally the request contains the resolution, and the reason is "". If the requirements cannot be resolved here, the
    request is unchanged, and the reason says why. Raise NoSolutionError if the requirements exclude each other.
    """
    if not request.can_resolve_first:
        return request, f"the pip of Python {request.option.python} cannot say; uv can."
    try:
        return dataclasses.replace(request, resolution=resolve_requirements(request)), ""
    except NoSolutionError:  # an InstallFailedError that is not caught below
        raise
    except InstallFailedError as error:
        return request, str(error)


def _confirm(request: InstallRequest, *, yes: bool, quiet: bool) -> bool:
    """Show what is installed where and how much is downloaded, and return whether to start (see `confirm_download`).

    Raise DiskSpaceError if a disk is too full.
    """
    disk_needs = compute_needs(make_install_sizes(request))
    require_space(disk_needs, clean_line(str(request.folder)))
    option = request.option
    contents = f"TensorFlow {option.tensorflow}, Python {request.python_version}, CUDA {option.cuda}"
    summary = f"{contents} in {request.folder}\n{' '.join(_describe_size(request, disk_needs))}"
    return confirm_download(summary, yes=yes, quiet=quiet)


def _describe_size(request: InstallRequest, disk_needs: Sequence[DiskSpaceNeed]) -> list[str]:
    """Return sentences: how much is downloaded at most, and the space that is needed on each disk, if known."""
    download = format_gigabytes(make_install_sizes(request).download_bytes)
    disks = "; in ".join(need.text for need in disk_needs)
    return [f"Downloads up to {download}.", *([f"Disk space in {disks}."] if disks else [])]


def _make_environment(
    request: InstallRequest, notes: Sequence[str], *, quiet: bool, verbose: bool
) -> InstallResult:
    """Create the environment. If this fails half-way, tell the user how to resume, and re-raise the error."""
    display_name, cache = clean_line(str(request.folder)), find_uv_cache(make_install_sizes(request))
    advice = (
        f"{display_name} is unfinished: run the same command again to finish it, "
        f"or remove it: rm -r {shlex.quote(display_name)}"
    )
    try:
        with open_progress(quiet=quiet, verbose=verbose) as display:
            for note in (*(caveat.text for caveat in request.option.caveats if caveat.is_serious), *notes):
                display.begin_stage(f"Note: {note}")
            return install_environment(request, display)
    except Error as error:
        if _is_unfinished(request.folder):
            error.hint = f"{error.hint} {advice}".strip()
        raise
    except KeyboardInterrupt:
        if _is_unfinished(request.folder):
            sys.stderr.write(f"{advice}\n")
        if cache is not None and (size := measure_unfinished_downloads(cache)):
            sys.stderr.write(
                f"{clean_line(str(cache))} has {format_bytes(size)} of unfinished downloads, which are of no use: "
                "uv cache prune removes them.\n"
            )
        raise


def _is_unfinished(folder: Path) -> bool:
    """Return whether the folder has the record of an installation that did not finish."""
    record = read_record(folder)
    return record is not None and not record.is_finished


# ---------------------------------------------------------------- output


def _make_document(
    request: InstallRequest,
    notes: Sequence[str],
    *,
    result: InstallResult | None = None,
    report: Report | None = None,
    disk_needs: Sequence[DiskSpaceNeed] = (),
    unresolved_reason: str = "",
) -> dict[str, Any]:
    """Return the JSON document.

    `result` is None for a dry run. `unresolved_reason` says why the requirements could not be resolved, or is "".
    """
    environment = None
    if result is not None:
        request = result.request or request
        environment = make_environment_json(
            request.folder, request.installer.name, result.seconds, was_resumed=result.was_resumed
        )
    resolution = None
    if request.has_requirements:
        chosen = request.resolution
        changes = (
            chosen.compare_with_lock(list_locked_lines(request.lock_files.tensorflow))
            if chosen is not None
            else ()
        )
        resolution = make_resolution_json(
            [(item.name, item.locked_version, item.resolved_version) for item in changes],
            was_attempted=chosen is not None,
            reason=unresolved_reason or None,
        )
    return make_install_json(
        request.option,
        [command for _, command in list_install_commands(request)],
        environment=environment,
        report=report,
        notes=notes,
        resolution=resolution,
        disk_space=[
            (str(item.folder), item.purposes, item.needed_bytes, item.free_bytes) for item in disk_needs
        ]
        if result is None
        else None,
    )


def _report_result(request: InstallRequest, result: InstallResult, report: Report, *, verbose: bool) -> None:
    """Print what was installed, followed by the report on it."""
    option, folder = request.option, str(request.folder)
    contents = f"TensorFlow {option.tensorflow}, Python {request.python_version}, CUDA {option.cuda}, cuDNN {option.cudnn}"
    if result.was_complete:
        OUT.write(f"{clean_line(folder)} already exists, as planned ({contents}): nothing was done.\n")
    else:
        verb = "Finished" if result.was_resumed else "Made"
        size = format_bytes(measure_disk_usage(request.folder))
        OUT.write(
            f"{verb} {clean_line(folder)} ({size}, {result.seconds:.0f} s, {request.installer.name}): {contents}.\n"
        )
    OUT.write(
        render_installation(folder, report, is_correct=is_intact(report), verbose=verbose, **OUT.layout)
    )
