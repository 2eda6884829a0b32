"""The `tfdoctor check` command. While the first probe runs, it imports the modules for later steps."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli import completion_values
from tfdoctor.cli.options import (
    MAX_SETTINGS_FOLDERS,
    SETTINGS_FILES,
    FailOn,
    For,
    Force,
    From,
    Html,
    Ignore,
    Json,
    Quiet,
    Timeout,
    Yes,
    argument,
    command,
    option,
    verbose_option,
)
from tfdoctor.core.errors import Error, ExitCode, UsageError
from tfdoctor.core.facts import value_of
from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis import evaluate_facts, examine, make_live_system, run_tensorflow, start_query
from tfdoctor.remedies.tools import convert_findings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.cli.capture import RedactedRecording
    from tfdoctor.cli.configuration import Configuration
    from tfdoctor.compat import Compat
    from tfdoctor.core.findings import Report
    from tfdoctor.diagnosis.diff import Comparison
    from tfdoctor.environments.models import FixOffer
    from tfdoctor.remedies.tools import Tool
    from tfdoctor.system import RecordedSystem, System


@command("tfdoctor check", "tfdoctor check --python ~/tf/bin/python -v", "tfdoctor check --from bug.tar.gz")
def check(
    folder: Annotated[str | None, argument("The same as --python FOLDER.", metavar="[FOLDER]")] = None,
    python: Annotated[
        str | None,
        option(
            "The Python (or its environment's folder) to examine. Default: the active environment's, "
            "else python3 on PATH.",
            metavar="PATH",
        ),
    ] = None,
    deep: Annotated[
        bool,
        option("Also run TensorFlow in a child process and compare (some seconds).", "--deep"),
    ] = False,
    simulate: Annotated[
        list[str] | None,
        option(
            "With --deep: simulate this GPU, so that none is needed.",
            metavar="NAME|CC",
            autocompletion=completion_values.complete_gpu,
        ),
    ] = None,
    driver: Annotated[
        str | None,
        option("With --deep --simulate: simulate this driver. Default: the newest.", metavar="V"),
    ] = None,
    recording_path: From = None,
    against: Annotated[
        Path | None,
        option(
            "Show the differences from a recording: of this machine when it worked, or of another machine.",
            metavar="RECORDING",
        ),
    ] = None,
    then_fix: Annotated[
        bool, option("Then run `tfdoctor fix`: show the changes, ask, apply them.", "--fix")
    ] = False,
    yes: Yes = False,
    timeout: Timeout = 10.0,
    for_tool: For = None,
    ignore: Ignore = None,
    fail_on: Annotated[
        FailOn | None,
        option("Exit with status 1 if any finding is at least this severe. Default: error."),
    ] = None,
    html: Html = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show the evidence and every check.")] = False,
    quiet: Quiet = False,
) -> int:
    """Examine the machine, print the report and return the exit status.

    Looks at the driver, the Python environment and the loader, and predicts what TensorFlow will do,
    without importing it. Changes nothing without --fix, and sends nothing.

    Exit status: 1 if a finding is at least as severe as --fail-on; 3 if there is none, but it could not be determined
    whether TensorFlow will use a GPU; otherwise 0. With --fail-on never it is always 0. With --fix, exit status and
    JSON are those of `tfdoctor fix`.
    """
    _check_options(
        deep=deep, recording_path=recording_path, against=against, then_fix=then_fix, yes=yes, fail_on=fail_on
    )
    _check_html_option(html, [recording_path, against], then_fix=then_fix, force=force)
    if simulate or driver is not None:
        is_allowed = not (folder or recording_path or against or then_fix or html or ignore or fail_on)
        return _run_simulated_check(
            simulate or [],
            driver,
            python,
            timeout,
            deep=deep,
            is_allowed=is_allowed,
            as_json=as_json,
            verbose=verbose,
            quiet=quiet,
        )
    python = python if folder is None else _validate_folder(folder, python, recording_path)
    requested_python = python
    if then_fix and as_json:
        return _run_fix(
            requested_python, timeout, ignore, yes=yes, as_json=True, verbose=verbose, quiet=quiet
        )
    settings, ignored_codes = _load_settings(ignore or ())
    if settings is not None and recording_path is None:
        python = python or settings.find_python(make_live_system(None))
    fail_on = fail_on or (settings.fail_on if settings is not None else None) or FailOn.error
    live_system = make_live_system(python if recording_path is None else None)
    system: System = live_system
    earlier: RecordedSystem | None = None
    if recording_path is not None or against is not None:
        from tfdoctor.system import RecordedSystem

        if recording_path is not None:
            recorded = RecordedSystem(recording_path)
            system, python = recorded, python or recorded.python
        earlier = RecordedSystem(against) if against is not None else None
    if recording_path is None:
        start_query(live_system, python, timeout=timeout)
    try:
        needs_recording = (earlier is not None and recording_path is None) or html is not None
        local = recording_path is None
        report, recording, compat = _examine_machine(
            system, python, timeout, deep=deep, needs_recording=needs_recording, local=local, quiet=quiet
        )
        report = _convert_commands(report, for_tool, compat).ignore(ignored_codes)
        comparison = None
        if earlier is not None:
            comparable_report = recording.recording_report if recording is not None and local else report
            comparison = _compare_reports(earlier, comparable_report, compat, timeout)
        offer = None
        if recording_path is None and (html is not None or not (quiet or as_json)):
            from tfdoctor.environments.fix_availability import find_fix_offer

            offer = find_fix_offer(report, system)
        check_command = _format_check_command({"--python": requested_python, "--from": recording_path})
        if html is not None and recording is not None:
            _write_page(
                html,
                report,
                recording,
                compat,
                offer=offer,
                check_command=check_command,
                force=force,
                quiet=quiet,
            )
        if as_json:
            _print_json(report, comparison, against, settings)
        else:
            _print_report(
                report,
                comparison,
                against,
                verbose=verbose,
                quiet=quiet,
                offer=offer,
                check_command=check_command,
            )
            _print_settings(settings, report, requested_python or recording_path, quiet=quiet)
    except BaseException:  # a probe may still be running
        system.stop()
        raise
    if then_fix:
        from tfdoctor.render.terminal import OUT

        OUT.write("\n")
        return _run_fix(
            requested_python, timeout, ignore, yes=yes, as_json=False, verbose=verbose, quiet=quiet
        )
    return choose_exit_status(report, fail_on.value)


def _load_settings(ignore: Sequence[str]) -> tuple[Configuration | None, tuple[str, ...]]:
    """Return the settings that apply in the working folder, and the codes that they and `--ignore` ignore."""
    if not ignore and not any(  # fast, because most folders have no settings
        os.path.exists(f"{'../' * depth}{name}")  # noqa: PTH110
        for depth in range(MAX_SETTINGS_FOLDERS)
        for name in SETTINGS_FILES
    ):
        return None, ()
    from tfdoctor.cli.configuration import load_settings

    return load_settings(ignore)


def _print_settings(
    settings: Configuration | None, report: Report, requested_target: object, *, quiet: bool
) -> None:
    """Print which file has settings, what they did, and which findings are ignored, if there are any.

    `requested_target` is the Python or the recording that the command line names; it precedes the Python of the file.
    """
    if quiet or (settings is None and not report.ignored_findings):
        return
    from tfdoctor.render.paragraphs import Page, Text, print_hanging
    from tfdoctor.render.terminal import OUT

    codes = list(dict.fromkeys(finding.code for finding in report.ignored_findings))
    parts = [f"ignored {', '.join(codes)}"] if codes else []
    notes = []
    if settings is not None:
        parts += [f"--fail-on {settings.fail_on.value}"] if settings.fail_on is not None else []
        if requested_target is None and settings.is_python_followed:
            parts.append(f"--python {settings.python}")
        elif requested_target is None and settings.python is not None and not _is_examined(settings, report):
            path = shlex.quote(clean_line(os.path.relpath(settings.python_path)))
            notes.append(f"It names a Python, which a file cannot start: `tfdoctor check --python {path}`.")
    source = os.path.relpath(settings.path) if settings is not None else "the command line"
    page = Page(OUT.width, coloured=False)
    text = "; ".join([clean_line(source), *parts]) + ("." if notes else "")
    print_hanging(page, Text("Settings: "), " ".join([text, *notes]))
    OUT.write(page.text)


def _is_examined(settings: Configuration, report: Report) -> bool:
    """Return whether the Python that the file names is the one that was examined."""
    python = value_of(report.facts.python)
    return python is not None and settings.python_path in (python.prefix, python.executable)


def _convert_commands(report: Report, tool: Tool | None, compat: Compat) -> Report:
    """Return the report with commands for a tool, or the report itself if the user names none."""
    if tool is None:
        return report
    python = value_of(report.facts.python)
    # a package that pip installed must not be installed by conda over it
    conda_packages = {package.name for package in python.conda_packages} if python is not None else set()
    findings, root_finding = convert_findings(
        report.findings, report.root_finding, tool, conda_packages & compat.conda_names.identical_names
    )
    return dataclasses.replace(report, findings=findings, root_finding=root_finding)


def _run_simulated_check(
    gpu_names: list[str],
    driver: str | None,
    python: str | None,
    timeout: float,
    *,
    deep: bool,
    is_allowed: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Examine this host and run TensorFlow with a stand-in driver, for `check --deep --simulate GPU`.

    `is_allowed` is False if the user gave options that exclude a simulation. Return the exit status. Raise UsageError
    if the options are wrong, CompilerError if the stand-in cannot be built, and Error if the loader finds another
    libcuda first.
    """
    if not deep or not is_allowed:
        words = [
            *(word for name in gpu_names or ["RTX 4090"] for word in ("--simulate", name)),
            *(("--driver", driver) if driver is not None else ()),
            *(("--python", python) if python is not None else ()),
        ]
        raise UsageError(
            "--simulate can only be combined with --deep, --driver, --python and output options.",
            hint=f"tfdoctor check --deep {shlex.join(clean_line(word) for word in words)}",
        )
    from tfdoctor.cli.simulation_options import (
        make_stand_in_system,
        parse_simulation,
        print_simulation_note,
        print_simulation_title,
    )
    from tfdoctor.compat import Compat
    from tfdoctor.render.json import write_json
    from tfdoctor.render.report import make_report_json
    from tfdoctor.render.verify import make_simulation_json
    from tfdoctor.verification.session import STAGE_MEANINGS
    from tfdoctor.verification.simulate.facts import RealGpuFilter

    compat = Compat.load()
    simulation = parse_simulation(compat, gpu_names, driver=driver)
    if simulation is None:
        raise UsageError("--driver belongs to --simulate: a real driver is what it is.")
    system, simulated_facts = make_stand_in_system(python, simulation), RealGpuFilter()
    report = examine(system, compat, python=python, timeout=timeout, deep=True, modify_facts=simulated_facts)
    if simulated_facts.other_libcuda is not None:
        msg = f"nothing could be simulated: the loader finds {clean_line(simulated_facts.other_libcuda)} before the stand-in."
        raise Error(msg, hint="Take its folder off LD_LIBRARY_PATH.")
    if as_json:
        document = make_report_json(report)
        document["verdict"]["gpu_usable"] = False if report.verdict.gpu_usable is False else None
        observed = report.observed
        stage_results = {
            "import": observed is not None and observed.import_ok,
            "visible": bool(observed and observed.gpu_registered),
        }
        proven_meanings = [STAGE_MEANINGS[name] for name, passed in stage_results.items() if passed]
        write_json({**document, "simulated": make_simulation_json(simulation.describe(proven_meanings))})
    else:
        print_simulation_title(simulation, quiet=quiet)
        options = {"--python": python, "--simulate": " ".join(gpu_names), "--driver": driver}
        command = _format_check_command(options) + " --deep"
        _print_report(report, None, None, verbose=verbose, quiet=quiet, offer=None, check_command=command)
        print_simulation_note(quiet=quiet)
    return choose_exit_status(report, FailOn.error.value)


def _check_options(
    *,
    deep: bool,
    recording_path: Path | None,
    against: Path | None,
    then_fix: bool,
    yes: bool,
    fail_on: FailOn | None,
) -> None:
    """Raise UsageError if options exclude each other."""
    if deep and recording_path is not None:
        raise UsageError("--deep runs TensorFlow here; a recorded machine (--from) cannot run it.")
    if then_fix and not (recording_path is None and against is None):
        raise UsageError("--fix changes this machine: it cannot be combined with --from or --against.")
    if then_fix and fail_on not in (None, FailOn.error):
        raise UsageError(
            "--fail-on cannot be combined with --fix, whose exit status is that of `tfdoctor fix`."
        )
    if yes and not then_fix:
        raise UsageError("--yes needs --fix.")


def _check_html_option(
    html: Path | None, input_paths: Sequence[Path | None], *, then_fix: bool, force: bool
) -> None:
    """Raise UsageError or Error if the page cannot be written, before anything is examined."""
    if html is None:
        return
    from tfdoctor.system.writing import check_output_file

    if then_fix:
        raise UsageError("--html cannot be combined with --fix.", hint="Run it again after the fix.")
    check_output_file(html, force=force, option="--html", input_paths=input_paths)


def _validate_folder(folder: str, python: str | None, recording_path: Path | None) -> str:
    """Return the folder of `check FOLDER` unchanged, for use as the value of `--python`.

    Raise UsageError if it does not exist, is a file or a recording, or is combined with `--python` or `--from`.
    """
    if python is not None or recording_path is not None:
        raise UsageError(
            "check FOLDER is check --python FOLDER: it cannot be combined with --python or --from."
        )
    from tfdoctor.system.archive import HOST_FILE

    quoted = shlex.quote(clean_line(folder))
    if (Path(folder) / HOST_FILE).is_file():
        msg = f"{quoted} is a recorded machine."
        raise UsageError(msg, hint=f"tfdoctor check --from {quoted}")
    if Path(folder).is_file():
        msg = f"{quoted} is not an environment's folder."
        raise UsageError(
            msg,
            hint=f"A log: tfdoctor diagnose {quoted}. A Python: --python {quoted}. "
            f"A recorded machine: --from {quoted}.",
        )
    if not os.path.lexists(folder):
        msg = f"{quoted} does not exist."
        raise UsageError(
            msg, hint=f"Expected an environment's folder; for a Python on PATH: --python {quoted}."
        )
    return folder


def _run_fix(
    python: str | None,
    timeout: float,
    ignore: list[str] | None,
    *,
    yes: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Run `tfdoctor fix` and return its exit status."""
    from tfdoctor.cli.fix import fix

    return fix(
        python=python, yes=yes, timeout=timeout, ignore=ignore, as_json=as_json, verbose=verbose, quiet=quiet
    )


def _examine_machine(
    system: System,
    python: str | None,
    timeout: float,
    *,
    deep: bool,
    needs_recording: bool,
    local: bool,
    quiet: bool,
) -> tuple[Report, RedactedRecording | None, Compat]:
    """Examine the system, and return (report, redacted recording, compatibility data).

    The recording is None unless `needs_recording` is set, which a comparison and an HTML page require. `local` says
    whether the system is this host.
    """
    from tfdoctor.compat import Compat

    def show_message(text: str) -> None:
        from tfdoctor.render.progress import open_progress
        from tfdoctor.render.terminal import ERR

        with open_progress(quiet=quiet or not ERR.is_terminal, animated=False) as display:
            display.begin_stage(text)

    compat = Compat.load()
    if not needs_recording:
        report = examine(
            system,
            compat,
            python=python,
            timeout=timeout,
            deep=deep,
            on_message=show_message,
            meanwhile=lambda: _load_modules(compat),
        )
        return report, None, compat
    from tfdoctor.cli.capture import record_system

    # `capture` bundles are redacted, so only a redacted recording is comparable with them. An HTML page may be
    # published and must be redacted as well.
    recording = record_system(system, compat, python=python, timeout=timeout, local=local)
    report = recording.host_report
    if deep:
        observed = run_tensorflow(system, compat, report.facts, timeout=timeout, on_message=show_message)
        report = evaluate_facts(report.facts, compat, observed)
    return report, recording, compat


def _load_modules(compat: Compat) -> None:
    """Load the data and the modules for later steps while the probes wait for their results.

    This function must not import modules that a probe imports at the same time.
    """
    compat.prepare()
    for name in ("diagnosis.report", "render.report", "environments.fix_availability"):
        importlib.import_module(f"tfdoctor.{name}")


def _compare_reports(earlier: RecordedSystem, report: Report, compat: Compat, timeout: float) -> Comparison:
    """Examine an earlier recording, and compare its report with the given one."""
    from tfdoctor.diagnosis.diff import compare

    return compare(examine(earlier, compat, python=earlier.python, timeout=timeout), report)


def _write_page(
    target: Path,
    report: Report,
    recording: RedactedRecording,
    compat: Compat,
    *,
    offer: FixOffer | None,
    check_command: str,
    force: bool,
    quiet: bool,
) -> None:
    """Write the redacted HTML page. Raise UsageError or Error if it cannot be written.

    `recording` is the redacted recording, and `report` the unredacted report.
    """
    from dataclasses import replace

    from tfdoctor.cli.html_file import write_page
    from tfdoctor.render.html.check import make_report_html
    from tfdoctor.render.screen import find_main_offer

    redact = recording.redactor.text
    redacted_report = recording.recording_report
    if report.observed is not None:
        observed = report.observed
        observed = replace(
            observed,
            error=redact(observed.error),
            devices=tuple(map(redact, observed.devices)),
            computed=tuple(map(redact, observed.computed)),
        )
        redacted_report = evaluate_facts(redacted_report.facts, compat, observed)
    main_offer = find_main_offer(
        report, offer
    )  # the page shows only a fix for the finding that it puts first
    page = make_report_html(
        redacted_report,
        check_command=redact(check_command),
        fix_command=None if main_offer is None else redact(main_offer.command),
        differences=recording.differences,
    )
    write_page(target, page, force=force, quiet=quiet)


def _print_json(
    report: Report, comparison: Comparison | None, against: Path | None, settings: Configuration | None
) -> None:
    """Print the report as JSON, with the comparison and the file with settings if there are any."""
    from tfdoctor.render.diff import make_comparison_json
    from tfdoctor.render.json import write_json
    from tfdoctor.render.report import make_report_json

    document = make_report_json(report)
    if comparison is not None:
        document |= make_comparison_json(comparison, str(against))
    if settings is not None:
        document["settings_file"] = str(settings.path)
    write_json(document)


def _print_report(
    report: Report,
    comparison: Comparison | None,
    against: Path | None,
    *,
    verbose: bool,
    quiet: bool,
    offer: FixOffer | None,
    check_command: str,
) -> None:
    """Print the report, and the comparison if there is one."""
    from tfdoctor.render.report import render_report
    from tfdoctor.render.terminal import OUT

    text = render_report(
        report, verbose=verbose, quiet=quiet, offer=offer, check_command=check_command, **OUT.layout
    )
    OUT.write(text)
    if comparison is not None and not quiet:
        from tfdoctor.render.diff import render_comparison

        OUT.write(render_comparison(comparison, str(against), verbose=verbose, **OUT.layout))


def _format_check_command(options: Mapping[str, object]) -> str:
    """Return the `tfdoctor check` command with the given options, quoted for a shell."""
    arguments = (f" {name} {shlex.quote(clean_line(str(value)))}" for name, value in options.items() if value)
    return "tfdoctor check" + "".join(arguments)


def choose_exit_status(report: Report, fail_on: str) -> ExitCode:
    """Return the exit status for a report.

    It is 1 if a finding is at least as severe as `fail_on`. Otherwise it is 3 if it is unknown whether TensorFlow will
    use a GPU, and 0 if that is known. It is always 0 if `fail_on` is "never".
    """
    if fail_on == "never":
        return ExitCode.OK
    if FailOn(fail_on).is_reached(report.findings):
        return ExitCode.FOUND
    from tfdoctor.core.facts import Absent

    # without TensorFlow, it is known that no GPU will be used
    is_unknown = report.verdict.gpu_usable is None and not isinstance(report.facts.tensorflow, Absent)
    return ExitCode.IMPOSSIBLE if is_unknown else ExitCode.OK
