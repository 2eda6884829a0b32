"""`tfdoctor fix`: shows what it would do, asks, does it, and says what came of it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.environment.fix import FixRequest, fix_environment, plan, prefix_of, undo
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.findings import Severity
from tfdoctor.rules import RULE_OF
from tfdoctor.rules.retired import RETIRED, living
from tfdoctor.system import LiveSystem
from tfdoctor.system.signals import stopping
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.environment.models import FixResult
    from tfdoctor.rules.retired import Retired
    from tfdoctor.system import System

__all__ = ["Options", "fix"]


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    codes: list[str]
    python: str | None
    dry_run: bool
    yes: bool
    undo: bool
    force: bool
    installer: str | None
    timeout: float
    deep: bool
    as_json: bool
    verbose: bool
    quiet: bool


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


class _Teller:
    """Tells a person, on standard error, what is being done."""

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        self._quiet, self._verbose = quiet, verbose

    def stage(self, text: str) -> None:
        if not self._quiet:
            self._say(text)

    def line(self, text: str) -> None:
        if self._verbose and not self._quiet:
            self._say(text, "    | ")

    def _say(self, text: str, before: str = "") -> None:
        sys.stderr.write(f"{before}{clean_line(text, limit=400)}\n")
        sys.stderr.flush()


def fix(options: Options) -> int:
    """Returns the exit status: 1 where an error is left."""
    _check(options)
    machines, compat = _Machines(), Compat.load()
    quiet = options.quiet or options.as_json
    teller = _Teller(quiet=quiet, verbose=options.verbose)
    request = FixRequest(
        python=options.python,
        codes=codes_of(options.codes),
        installer=options.installer,
        timeout=options.timeout,
        deep=options.deep,
        inherit=not quiet and sys.stderr.isatty(),
    )
    with stopping(machines):
        if options.undo:
            return _undo(machines, request, options, teller)
        env = dict(os.environ)
        if options.dry_run or not options.yes:
            planned = plan(machines, compat, request, env)
            if options.dry_run or not planned.attempts:
                _show(planned, options, dry=True)
                return _status(planned)
            if not _agreed(planned, options):
                return ExitCode.FOUND
        result = fix_environment(machines, compat, request, env, teller)
    _show(result, options, dry=False)
    return _status(result)


def _check(options: Options) -> None:
    codes_of(options.codes)
    if options.undo and (options.codes or options.dry_run):
        raise UsageError(
            "--undo takes back everything that fix has done here: it takes no CODE and no --dry-run."
        )
    if options.force and not options.undo:
        raise UsageError("--force belongs to --undo.")


def codes_of(asked: Sequence[str], retired: Sequence[Retired] = RETIRED) -> tuple[str, ...]:
    """The findings that are meant; a retired code means those that tell it now. Raises UsageError."""
    found: dict[str, None] = {}
    for code in asked:
        today = [one for one in living(code.upper(), retired) if one in RULE_OF]
        if not today:
            msg = f"there is no finding {clean_line(code, limit=40)}."
            raise UsageError(msg, hint="tfdoctor explain lists all of them.")
        found |= dict.fromkeys(today)
    return tuple(found)


def _status(result: FixResult) -> int:
    """As `check` ends: 1 where an error is left, whoever has to mend it."""
    errors = any(finding.severity >= Severity.ERROR for finding in result.after.findings)
    seen = result.observed
    errors |= seen is not None and seen.gpu_registered is False  # TensorFlow itself has the last word
    return ExitCode.FOUND if errors else ExitCode.OK


def _agreed(planned: FixResult, options: Options) -> bool:
    """What would be done is shown; a person at a terminal is asked."""
    if options.as_json or not sys.stdin.isatty():
        raise UsageError(
            "there is something to fix, and nobody to ask.",
            hint="--yes does it, --dry-run shows it.",
        )
    _show(planned, options, dry=True, asking=True)
    sys.stdout.flush()
    sys.stderr.write("Do this? [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    if answer in ("y", "yes"):
        return True
    sys.stderr.write("Nothing was changed.\n")
    return False


def _show(result: FixResult, options: Options, *, dry: bool, asking: bool = False) -> None:
    if options.as_json:
        from tfdoctor.render.fix_json import fix_json
        from tfdoctor.render.json import write_json

        write_json(fix_json(result))
        return
    from tfdoctor.render.fix_console import render_fix
    from tfdoctor.render.terminal import colour, width, write

    write(
        render_fix(
            result,
            dry=dry,
            asking=asking,
            verbose=options.verbose,
            quiet=options.quiet,
            width=width(),
            colour=colour(),
        )
    )


def _undo(machines: _Machines, request: FixRequest, options: Options, teller: _Teller) -> int:
    prefix = prefix_of(machines, request)
    undone = undo(prefix, force=options.force, tell=teller)
    if options.as_json:
        from tfdoctor.render.fix_json import undo_json
        from tfdoctor.render.json import write_json

        write_json(undo_json(prefix, undone))
    else:
        from tfdoctor.render.fix_console import render_undo
        from tfdoctor.render.terminal import colour, width, write

        write(render_undo(prefix, undone, width=width(), colour=colour()))
    return ExitCode.FOUND if undone.kept else ExitCode.OK
