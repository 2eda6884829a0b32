"""Every screen that a recorded machine or a log gives: their lines, and how wide they are.

`python -m render.screens` (in tests/) prints the table; DIR… are further folders of logs.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.environment.actions import shown
from tfdoctor.environment.candidates import candidates, environment_of, unfixed
from tfdoctor.environment.models import Attempt, Candidate, FixResult, Status
from tfdoctor.environment.offer import offered
from tfdoctor.examine.survey import survey
from tfdoctor.findings import Severity, Stage, Verification
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.render.fix import render_fix
from tfdoctor.render.log import render_log
from tfdoctor.render.page import cells
from tfdoctor.render.report import render_report
from tfdoctor.render.verify import render_end, render_stage
from tfdoctor.report.diagnose import diagnose
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.findings import Report

TESTS = Path(__file__).parents[1]
HOSTS = sorted(path.parent for path in (TESTS / "hosts").glob("*/host.json"))
LOGS = sorted([*(TESTS / "logs/lab").glob("*.log"), *(TESTS / "logs/data").glob("*.txt")])


@cache
def report_of(folder: Path) -> Report:
    compat = Compat.load()
    return diagnose(survey(RecordedSystem(folder), compat), compat)


@cache
def log_of(path: Path) -> LogReport:
    return diagnose_log(iter([path.read_bytes()]), Compat.load(), path.name)


def check_screen(folder: Path, width: int = 80, *, here: bool = True, colour: bool = False) -> str:
    """`here`: as on that machine, where `fix` may be offered; else as `check --facts`."""
    report = report_of(folder)
    fix = None
    if here:
        environment = environment_of(report, "venv")
        fix = offered(report, environment) if environment is not None else None
    typed = "tfdoctor check" if here else f"tfdoctor check --facts /srv/recorded/{folder.name}.tar.gz"
    return render_report(report, width=width, colour=colour, fix=fix, typed=typed)


def log_screen(path: Path, width: int = 80, *, colour: bool = False) -> str:
    return render_log(log_of(path), width=width, colour=colour)


def fix_screen(folder: Path, width: int = 80) -> str | None:
    """`fix --dry-run`; None where there is no environment."""
    report = report_of(folder)
    environment = environment_of(report, "venv")
    if environment is None:
        return None
    first: dict[str, Candidate] = {}
    for one in candidates(report, environment):
        first.setdefault(one.finding.code, one)
    planned = [Attempt(one, Status.PLANNED, shown(one.steps, environment, None)) for one in first.values()]
    left = [one for one in unfixed(report, environment) if one.finding.code not in first]
    result = FixResult(environment, tuple(planned), tuple(left), report, report, activated=True)
    return render_fix(result, dry=True, width=width)


def verify_screen(folder: Path, width: int = 80) -> str:
    """`verify` of an image in which everything fails as it does on this host."""
    report = report_of(folder)
    failed = not report.verdict.gpu_usable
    names = ("runtime", "driver", "libraries", "import", "visible", "compute", "cudnn", "nccl")
    stages = [
        Stage(name, "failed" if failed and name == "driver" else "passed", "as it was", 0.4) for name in names
    ]
    done = Verification(
        "an-image:latest",
        tuple(stages),
        1,
        0 if failed else 1,
        0,
        report.verdict.cause,
        report.verdict.summary,
        tuple(one for one in report.findings if one.severity > Severity.INFO),
    )
    told = "".join(render_stage(stage, width=width) for stage in stages)
    return told + render_end(done, width=width)


def lines_at(text: str, width: int) -> int:
    """Lines of a terminal, which wraps what is too wide."""
    return sum(max(1, -(-cells(line) // width)) for line in text.splitlines())


def screens(folders: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    for host in HOSTS:
        yield f"check {host.name}", check_screen(host)
    logs = [*LOGS, *(path for folder in folders for path in sorted(Path(folder).rglob("log.txt")))]
    for log in logs:
        name = log.parent.name if log.name == "log.txt" else log.name
        yield f"diagnose {name}", log_screen(log)


def main() -> None:
    rows = [
        (name, lines_at(text, 80), max(map(cells, text.splitlines()))) for name, text in screens(sys.argv[1:])
    ]
    for name, lines, wide in rows:
        print(f"{lines:4} {wide:4}  {name}")
    for command in ("check", "diagnose"):
        counts = sorted(lines for name, lines, _ in rows if name.startswith(command))
        over = sum(count > 24 for count in counts)
        broad = sum(wide > 80 for name, _, wide in rows if name.startswith(command))
        print(
            f"{command}: {len(counts)} screens, median {counts[len(counts) // 2]}, most {counts[-1]}, "
            f"{over} over 24 lines, {broad} wider than 80"
        )


if __name__ == "__main__":
    main()
