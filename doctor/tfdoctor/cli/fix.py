"""`tfdoctor fix`: shows what it would do, asks, does it, and says what came of it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli import completion_values
from tfdoctor.cli.options import (
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
from tfdoctor.environment.fix import FixRequest, fix_environment, plan, prefix_of, undo
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.findings import Severity
from tfdoctor.render.fix import fix_json, render_fix, render_undo, undo_json
from tfdoctor.render.json import write_json
from tfdoctor.render.progress import progress
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.rules import RULE_OF
from tfdoctor.rules.retired import RETIRED, current_codes
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stop_on_signal
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.environment.models import FixResult
    from tfdoctor.rules.retired import RetiredRule
    from tfdoctor.system import System


class _Machines:
    """This machine under different environment variables; Ctrl-C stops whichever runs."""

    def __init__(self) -> None:
        self._made: list[LiveSystem] = []

    def __call__(self, env: Mapping[str, str] | None) -> System:
        self._made.append(LiveSystem(env=env))
        return self._made[-1]

    def stop(self) -> None:
        for system in self._made:
            system.stop()


@command
def fix(
    codes: Annotated[
        list[str] | None,
        argument(
            "Only these findings: TFD203. Default: all that can be fixed.",
            metavar="[CODE…]",
            autocompletion=completion_values.codes,
        ),
    ] = None,
    python: Annotated[str | None, option("The Python to fix, as for `check`.", metavar="PATH")] = None,
    dry_run: Annotated[bool, option("Show what would be done; change nothing.", "--dry-run", "-n")] = False,
    yes: Yes = False,
    take_back: Annotated[bool, option("Undo everything that fix has done here.", "--undo")] = False,
    force: Annotated[
        bool,
        option("With --undo: go ahead even if files have changed since; those are left alone.", "--force"),
    ] = False,
    installer: Installers = None,
    timeout: Timeout = 10.0,
    no_deep: NoDeep = False,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show all output.")] = False,
    quiet: Quiet = False,
) -> int:
    """Show, ask, do it, say what came of it. Returns the exit status: 1 where an error is left.

    Needs no root, installs no drivers. Changes are recorded: --undo restores what was there. Exit status 1 if an error
    is left.
    """
    _check(codes or (), dry_run=dry_run, undo=take_back, force=force)
    machines, compat, env = _Machines(), Compat.load(), dict(os.environ)
    told_nothing = quiet or as_json
    request = FixRequest(
        python=python,
        codes=codes_of(codes or ()),
        installer=installer.value if installer is not None else None,
        timeout=timeout,
        deep=not no_deep,
        inherit=not told_nothing and ERR.watched,
    )

    def show(result: FixResult, *, dry: bool, asking: bool = False) -> None:
        if as_json:
            write_json(fix_json(result))
        else:
            OUT.write(render_fix(result, dry=dry, asking=asking, verbose=verbose, quiet=quiet, **OUT.looks))

    with stop_on_signal(machines), progress(quiet=told_nothing, verbose=verbose, moving=False) as told:
        if take_back:
            prefix = prefix_of(machines, request)
            undone = undo(prefix, force=force, tell=told)
            if as_json:
                write_json(undo_json(prefix, undone))
            else:
                OUT.write(render_undo(prefix, undone, **OUT.looks))
            return ExitCode.FOUND if undone.kept else ExitCode.OK
        if dry_run or not yes:
            planned = plan(machines, compat, request, env)
            if dry_run or not planned.attempts:
                show(planned, dry=True)
                return _status(planned)
            if as_json or not sys.stdin.isatty():
                raise UsageError(
                    "there is something to fix, but no terminal to ask on.",
                    hint="--yes makes the changes, --dry-run only shows them.",
                )
            show(planned, dry=True, asking=True)
            if not _ask_agreement():
                return ExitCode.FOUND
        result = fix_environment(machines, compat, request, env, told)
    show(result, dry=False)
    return _status(result)


def _check(codes: Sequence[str], *, dry_run: bool, undo: bool, force: bool) -> None:
    """Raises UsageError."""
    codes_of(codes)
    if undo and (codes or dry_run):
        raise UsageError(
            "--undo undoes everything that fix has done here: it takes no CODE and no --dry-run."
        )
    if force and not undo:
        raise UsageError("--force needs --undo.")


def _ask_agreement() -> bool:
    """A person at a terminal is asked."""
    OUT.flush()
    ERR.write("Do this? [y/N] ")
    ERR.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    ERR.write("Nothing was changed.\n")
    return False


def codes_of(asked: Sequence[str], retired: Sequence[RetiredRule] = RETIRED) -> tuple[str, ...]:
    """Return the findings that are meant; a retired code means those that tell it now. Raises UsageError."""
    found: dict[str, None] = {}
    for code in asked:
        today = [one for one in current_codes(code.upper(), retired) if one in RULE_OF]
        if not today:
            msg = f"there is no finding {clean_line(code, limit=40)}."
            raise UsageError(msg, hint="tfdoctor explain lists all of them.")
        found |= dict.fromkeys(today)
    return tuple(found)


def _status(result: FixResult) -> int:
    """As `check` ends: 1 where an error is left, whoever has to fix it."""
    errors = any(finding.severity >= Severity.ERROR for finding in result.after.findings)
    seen = result.observed
    errors |= seen is not None and seen.gpu_registered is False  # TensorFlow itself has the last word
    return ExitCode.FOUND if errors else ExitCode.OK
