"""Refresh everything in compat/ and docs/ that can be regenerated, in order of dependence.

    python scripts/update_all.py                # offline: what follows from the authored tables, and the pages
    python scripts/update_all.py --fetch        # also measure new releases from the package index (uv, network), and
                                                # run the tests of the tables, with their expected outputs refreshed
    python scripts/update_all.py --todo         # only: what a person must author for the newest release
    python scripts/update_all.py --check        # change nothing; exit 1 where something is stale
    python scripts/update_all.py --check --fetch 3    # and measure three releases anew and compare
    python scripts/update_all.py --ages         # only: exit 1 where a table is old and nobody said why
    python scripts/update_all.py --fetch --report FILE    # and write what changed, as Markdown

The scripts:

    scripts/update_tensorflow.py    compat/tensorflow.json, from the wheels; --authored: from compat/registration.toml
    scripts/update_locks.py         compat/locks, from the index; offline only --check
    scripts/update_imports.py       compat/imports, from real imports of each release; offline only --check
    scripts/update_companions.py    runs in compat/imports, beside other versions of packages; by hand, offline only --check
    scripts/update_fat_binaries.py  compat/fat_binaries.json, from the wheels; offline only --check
    scripts/update_kernels.py       compat/kernels.json, from the wheels' own libraries; offline only --check
    scripts/update_functions.py     compat/functions.json, from the wheels; offline only --check
    scripts/update_source_lines.py  compat/source_lines.json, from the wheels; offline only --check and --cached
    scripts/update_images.py        compat/manifests.json, from registries; offline only --check
    scripts/update_matrix_docs.py   docs/matrix.md, from compat/
    scripts/generate_docs.py        docs/rules.md and docs/codes; the causes in docs/schemas
    scripts/make_pictures.py        docs/pictures, from runs on recorded machines
    scripts/generate_man.py         docs/tfdoctor.1, the manual page, from the command line's help

The other tables (cuda, cuda_wheels, cudnn, gpus, images, imports, libraries, problems, pythons, registration) are
authored: no script fetches them. Their `as_of` is the date of the last review. A table that is older than 120 days needs
a reason in scripts/update_support/table_ages.json, or a test fails. compat/logs and compat/remedies.toml have no date: each entry
is about messages that were printed once, and names its source.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
COMPAT = ROOT / "compat"
REASONS = SCRIPTS / "update_support" / "table_ages.json"
REVIEW_INTERVAL = dt.timedelta(days=120)
TESTS = ("compat", "golden", "pages", "planning", "prediction", "render", "rules")
"""Folders of tests that depend on the tables."""


@dataclass(frozen=True)
class Step:
    """One script: the command that writes and the command that checks."""

    name: str
    write: tuple[str, ...]
    check: tuple[str, ...]


def list_steps(fetch: int | None) -> list[Step]:
    """Return the steps in order.

    fetch: None for offline steps only; else the number of releases that --check measures again (0: 3).
    """
    python = sys.executable
    table = str(SCRIPTS / "update_tensorflow.py")
    pending = []
    uv = shutil.which("uv") or ""
    if fetch is not None:
        if not uv:
            sys.exit("--fetch needs uv on PATH: the script's dependencies are its own (PEP 723)")
        fetch_command = (uv, "run", table)
        pending.append(
            Step(
                "compat/tensorflow.json from the index",
                fetch_command,
                (*fetch_command, "--check", str(fetch or 3)),
            )
        )
    authored = (python, table, "--authored")
    pending.append(
        Step("compat/tensorflow.json from compat/registration.toml", authored, (*authored, "--dry"))
    )
    # Without uv it writes nothing, and fails if a lock is missing.
    locks = (*((python,) if fetch is None else (uv, "run")), str(SCRIPTS / "update_locks.py"))
    pending.append(Step("compat/locks, those that are missing", locks, (*locks, "--check")))
    imports = (python, str(SCRIPTS / "update_imports.py"))
    pending.append(Step("compat/imports, minors that are missing", imports, (*imports, "--check")))
    lines = (*((python,) if fetch is None else (uv, "run")), str(SCRIPTS / "update_source_lines.py"))
    pending.append(Step("compat/source_lines.json, releases that are missing", lines, (*lines, "--check")))
    functions = (*((python,) if fetch is None else (uv, "run")), str(SCRIPTS / "update_functions.py"))
    pending.append(
        Step("compat/functions.json, releases that are missing", functions, (*functions, "--check"))
    )
    binaries = (python, str(SCRIPTS / "update_fat_binaries.py"))
    pending.append(
        Step("compat/fat_binaries.json, minors that are missing", binaries, (*binaries, "--check"))
    )
    kernels = (python, str(SCRIPTS / "update_kernels.py"))
    pending.append(Step("compat/kernels.json, minors that are missing", kernels, (*kernels, "--check")))
    if fetch is not None:
        images = (uv, "run", str(SCRIPTS / "update_images.py"))
        pending.append(Step("compat/manifests.json, from registries", images, (*images, "--check")))
    for script, page in (
        ("update_matrix_docs.py", "docs/matrix.md"),
        ("generate_docs.py", "docs/rules.md"),
        ("make_pictures.py", "docs/pictures"),
        ("generate_man.py", "docs/tfdoctor.1"),
    ):
        command = (python, str(SCRIPTS / script))
        pending.append(Step(page, command, (*command, "--check")))
    if fetch is not None:
        tests = (
            python,
            "-m",
            "pytest",
            "-q",
            "--quick",
            "--continue-on-collection-errors",
            *(f"tests/{folder}" for folder in TESTS),
        )
        pending.append(Step("tests of the tables, and their expected outputs", (*tests, "--refresh"), tests))
    return pending


def load_dates() -> dict[str, str]:
    """Return the `as_of` date of each table by its path in compat/."""
    as_of = {}
    for path in sorted(path for path in COMPAT.rglob("*") if path.suffix in {".toml", ".json"}):
        text = path.read_text(encoding="utf-8")
        match = re.search(r'^as_of = "([0-9-]+)"', text, re.MULTILINE)
        if path.suffix == ".json":
            as_of[path.relative_to(COMPAT).as_posix()] = str(json.loads(text)["as_of"])
        elif match is not None:
            as_of[path.relative_to(COMPAT).as_posix()] = match[1]
    return as_of


def load_reasons() -> dict[str, tuple[dt.date, str]]:
    """Return (the day until which it holds, reason) by table, for tables that may be old."""
    return {
        name: (dt.date.fromisoformat(row["until"]), str(row["reason"]))
        for name, row in json.loads(REASONS.read_text(encoding="utf-8")).items()
    }


def list_old_tables(today: dt.date) -> list[str]:
    """Return the tables that were not reviewed for REVIEW_INTERVAL and have no reason that still holds."""
    excused = {name for name, (until, _) in load_reasons().items() if today <= until}
    return [
        name
        for name, as_of in load_dates().items()
        if today - dt.date.fromisoformat(as_of) > REVIEW_INTERVAL and name not in excused
    ]


def list_git(*command: str) -> list[str]:
    """Return what a command of git prints about the files that the steps write."""
    git = shutil.which("git") or "git"
    done = subprocess.run(
        [git, *command, "--", "compat", "docs", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def format_report(failures: Sequence[str], today: dt.date) -> str:
    """Return what git sees as changed, what failed, and which tables need a look, as Markdown."""
    rows = [line.split("\t") for line in list_git("diff", "--numstat")]
    changes = [f"| {name} | +{added} | -{removed} |" for added, removed, name in rows]
    changes += [f"| {name} | new | |" for name in list_git("ls-files", "--others", "--exclude-standard")]
    lines = [
        "## Changed",
        "",
        *(["| file | lines | |", "|---|---|---|", *changes] if changes else ["Nothing."]),
    ]
    lines += ["", "## Failed", "", *([f"- {name}" for name in failures] or ["Nothing."])]
    lines += ["", "## To author", "", describe_todo(today)]
    reasons = load_reasons()
    lines += ["## Tables, oldest first", "", "| table | as of | days | reason |", "|---|---|---|---|"]
    for name, as_of in sorted(load_dates().items(), key=lambda item: item[1]):
        days = (today - dt.date.fromisoformat(as_of)).days
        lines.append(f"| {name} | {as_of} | {days} | {reasons[name][1] if name in reasons else ''} |")
    return "\n".join(lines) + "\n"


def describe_todo(today: dt.date) -> str:
    """Return the checklist of the newest releases, or why there is none."""
    from tfdoctor.compat import Compat, DataError
    from update_support.checklist import (
        format_checklist,  # needs the environment of the tests; --ages does not
    )

    try:
        return format_checklist(Compat.load(), today)
    except DataError as error:
        return f"The tables cannot be read: {error}\n"


def print_old_tables(today: dt.date) -> int:
    """Print the tables that are old without a reason, and return 1 if there is one."""
    names = list_old_tables(today)
    for name in names:
        print(f"compat/{name} was last looked through on {load_dates()[name]}", file=sys.stderr)
    if not names:
        print(f"every table was looked through in the last {REVIEW_INTERVAL.days} days, or has a reason")
    return int(bool(names))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 where something is stale"
    )
    parser.add_argument(
        "--fetch",
        nargs="?",
        type=int,
        const=0,
        metavar="N",
        help="measure new releases from the index; with --check: N releases anew",
    )
    parser.add_argument("--ages", action="store_true", help="only say which tables are old")
    parser.add_argument(
        "--todo", action="store_true", help="only say what a person must author for the newest release"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what changed to this file")
    options = parser.parse_args(arguments)
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    if options.ages:
        return print_old_tables(today)
    if options.todo:
        print(describe_todo(today), end="")
        return 0
    stale = []
    for step in list_steps(options.fetch):
        print(f"{'checking' if options.check else 'writing'} {step.name}", file=sys.stderr, flush=True)
        command = step.check if options.check else step.write
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            stale.append(step.name)  # the others may still succeed
    print_old_tables(today)
    if options.fetch is not None:
        print(f"\nTo author:\n\n{describe_todo(today)}", end="")
    if options.report is not None:
        options.report.write_text(format_report(stale, today), encoding="utf-8")
    if stale:
        print(f"{'stale' if options.check else 'failed'}: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
