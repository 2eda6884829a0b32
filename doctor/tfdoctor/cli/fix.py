"""The `tfdoctor fix` command: show the changes, ask, apply them and report the result."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli import completion_values
from tfdoctor.cli.configuration import load_settings
from tfdoctor.cli.confirmation import ask
from tfdoctor.cli.options import (
    Ignore,
    Installers,
    Json,
    NoDeep,
    Quiet,
    Timeout,
    Yes,
    argument,
    command,
    option,
    verbose_option,
)
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.findings import Severity
from tfdoctor.core.text import clean_line
from tfdoctor.environments.fix import FixRequest, find_prefix, fix_environment, plan_fix, undo_fix
from tfdoctor.render.fix import make_fix_json, make_undo_json, render_fix, render_undo
from tfdoctor.render.json import write_json
from tfdoctor.render.progress import open_progress
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.rules import RULES_BY_CODE
from tfdoctor.rules.retired import RETIRED_RULES, find_current_codes
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.environments.models import FixResult
    from tfdoctor.rules.retired import RetiredRule
    from tfdoctor.system import System


class _SystemFactory:
    """A factory of `LiveSystem` objects with different variables, which can be stopped together."""

    def __init__(self) -> None:
        self._systems: list[LiveSystem] = []

    def __call__(self, env: Mapping[str, str] | None) -> System:
        self._systems.append(LiveSystem(env=env))
        return self._systems[-1]

    def stop(self) -> None:
        for system in self._systems:
            system.stop()


@command("tfdoctor fix", "tfdoctor fix -n TFD203", "tfdoctor fix --undo")
def fix(
    codes: Annotated[
        list[str] | None,
        argument(
            "Only these findings: TFD203. Default: all that can be fixed.",
            metavar="[CODE…]",
            autocompletion=completion_values.complete_code,
        ),
    ] = None,
    python: Annotated[str | None, option("The Python to fix, as for `check`.", metavar="PATH")] = None,
    dry_run: Annotated[bool, option("Show what would be done; change nothing.", "--dry-run", "-n")] = False,
    yes: Yes = False,
    undo_changes: Annotated[bool, option("Undo everything that fix has done here.", "--undo")] = False,
    ignores_changes: Annotated[
        bool,
        option(
            "With --undo: undo even if files have changed since; leave those files alone.",
            "--even-if-changed",
        ),
    ] = False,
    installer: Installers = None,
    timeout: Timeout = 10.0,
    no_deep: NoDeep = False,
    ignore: Ignore = None,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show all output.")] = False,
    quiet: Quiet = False,
) -> int:
    """Show the changes, ask, apply them, print the result and return the exit status.

    Needs no root, installs no drivers. Changes are recorded: --undo restores what was there. Exit status 1 if an error
    is left.
    """
    _check_options(codes or (), dry_run=dry_run, undo=undo_changes, ignores_changes=ignores_changes)
    system_factory, compat, env = _SystemFactory(), Compat.load(), dict(os.environ)
    is_silent = quiet or as_json
    settings, ignored_codes = load_settings(ignore or ())
    if settings is not None and python is None:
        python = settings.find_python(LiveSystem())
    request = FixRequest(
        python=python,
        codes=resolve_codes(codes or ()),
        ignored_codes=() if codes else ignored_codes,
        preferred_installer=installer.value if installer is not None else None,
        timeout=timeout,
        runs_tensorflow=not no_deep,
        inherits_stderr=not is_silent and ERR.is_terminal,
    )

    def show(result: FixResult, *, is_plan: bool, asks_next: bool = False) -> None:
        if as_json:
            write_json(make_fix_json(result))
        else:
            OUT.write(
                render_fix(
                    result, is_plan=is_plan, asks_next=asks_next, verbose=verbose, quiet=quiet, **OUT.layout
                )
            )

    with (
        stop_on_signal(system_factory),
        open_progress(quiet=is_silent, verbose=verbose, animated=False) as display,
    ):
        if undo_changes:
            prefix = find_prefix(system_factory, request)
            undo_result = undo_fix(prefix, force=ignores_changes, progress=display)
            if as_json:
                write_json(make_undo_json(prefix, undo_result))
            else:
                OUT.write(render_undo(prefix, undo_result, **OUT.layout))
            return ExitCode.FOUND if undo_result.unrestored_paths else ExitCode.OK
        if dry_run or not yes:
            plan = plan_fix(system_factory, compat, request, env)
            if dry_run or not plan.attempts:
                show(plan, is_plan=True)
                return _choose_exit_status(plan)
            if as_json or not sys.stdin.isatty():
                raise UsageError(
                    "there is something to fix, but no terminal to ask on.",
                    hint="--yes makes the changes, --dry-run only shows them.",
                )
            show(plan, is_plan=True, asks_next=True)
            if not ask("Do this?", default=False):
                ERR.write("Nothing was changed.\n")
                return ExitCode.FOUND
        result = fix_environment(system_factory, compat, request, env, display)
    show(result, is_plan=False)
    return _choose_exit_status(result)


def _check_options(codes: Sequence[str], *, dry_run: bool, undo: bool, ignores_changes: bool) -> None:
    """Raise UsageError if a code is unknown or options exclude each other."""
    resolve_codes(codes)
    if undo and (codes or dry_run):
        raise UsageError(
            "--undo undoes everything that fix has done here: it takes no CODE and no --dry-run."
        )
    if ignores_changes and not undo:
        raise UsageError("--even-if-changed needs --undo.")


def resolve_codes(
    given_codes: Sequence[str], retired: Sequence[RetiredRule] = RETIRED_RULES
) -> tuple[str, ...]:
    """Return the given codes in upper case, with each retired code replaced by its successors.

    Raise UsageError if a code is unknown.
    """
    codes: dict[str, None] = {}
    for code in given_codes:
        current_codes = [
            current_code
            for current_code in find_current_codes(code.upper(), retired)
            if current_code in RULES_BY_CODE
        ]
        if not current_codes:
            msg = f"there is no finding {clean_line(code, limit=40)}."
            raise UsageError(msg, hint="tfdoctor explain lists all of them.")
        codes |= dict.fromkeys(current_codes)
    return tuple(codes)


def _choose_exit_status(result: FixResult) -> int:
    """Return the exit status: 1 if an error remains, even if tfdoctor cannot fix it, else 0."""
    has_errors = any(finding.severity >= Severity.ERROR for finding in result.report_after.findings)
    observed = result.observed
    # what TensorFlow did when it ran is more certain than a prediction
    has_errors |= observed is not None and observed.gpu_registered is False
    return ExitCode.FOUND if has_errors else ExitCode.OK
