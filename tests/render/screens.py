"""Every screen for a recorded machine, a log or a question."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from recorded import FOLDERS, load_report
from tfdoctor.cli.explain import load_documentation
from tfdoctor.cli.machine import select_host
from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.core.findings import Severity, Stage, Verification
from tfdoctor.diagnosis.explain import find_entries, list_entries
from tfdoctor.environments.actions import format_steps
from tfdoctor.environments.candidates import list_fix_candidates, list_unfixed, make_environment
from tfdoctor.environments.fix_availability import make_fix_offer
from tfdoctor.environments.models import Attempt, Candidate, FixResult, FixStatus
from tfdoctor.images.emit import EmittedImage, make_default_tag
from tfdoctor.images.engine.image import render_context
from tfdoctor.images.write import UserAdditions
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.planning import Method, Request, recommend
from tfdoctor.planning.release_sheet import make_sheet
from tfdoctor.prediction.fit.matrix import MatrixQuery, select_rows
from tfdoctor.prediction.fit.models import Host
from tfdoctor.render.build import render_dry_run as build_dry_run
from tfdoctor.render.explain import render_explanation
from tfdoctor.render.fix import render_fix
from tfdoctor.render.install import render_dry_run as install_dry_run
from tfdoctor.render.log import render_log
from tfdoctor.render.matrix import render_sheet_screen
from tfdoctor.render.paragraphs import count_columns
from tfdoctor.render.plan import render_recommendation
from tfdoctor.render.report import render_report
from tfdoctor.render.verify import render_result, render_stage

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]
LOGS = sorted([*(TESTS / "logs/lab").glob("*.log"), *(TESTS / "logs/data").glob("*.txt")])


@cache
def load_log_report(path: Path) -> LogReport:
    return diagnose_log(iter([path.read_bytes()]), Compat.load(), path.name)


def check_screen(folder: Path, width: int = 80, *, here: bool = True, colour: bool = False) -> str:
    """Return the screen of `check` on that machine, where `fix` may be offered; else of `check --from`."""
    report = load_report(folder)
    fix = None
    if here:
        environment = make_environment(report, "venv")
        fix = make_fix_offer(report, environment) if environment is not None else None
    typed = "tfdoctor check" if here else f"tfdoctor check --from /srv/recorded/{folder.name}.tar.gz"
    return render_report(report, width=width, colour=colour, offer=fix, check_command=typed)


def log_screen(path: Path, width: int = 80, *, colour: bool = False) -> str:
    return render_log(load_log_report(path), width=width, colour=colour)


def fix_screen(folder: Path, width: int = 80) -> str | None:
    """Return the screen of `fix --dry-run`, or None if there is no environment."""
    report = load_report(folder)
    environment = make_environment(report, "venv")
    if environment is None:
        return None
    first: dict[str, Candidate] = {}
    for candidate in list_fix_candidates(report, environment):
        first.setdefault(candidate.finding.code, candidate)
    attempts = [
        Attempt(candidate, FixStatus.PLANNED, format_steps(candidate.steps, environment, None))
        for candidate in first.values()
    ]
    unfixed = [
        candidate for candidate in list_unfixed(report, environment) if candidate.finding.code not in first
    ]
    result = FixResult(environment, tuple(attempts), tuple(unfixed), report, report, is_activated=True)
    return render_fix(result, is_plan=True, width=width)


def verify_screen(folder: Path, width: int = 80) -> str:
    """Return the screen of `verify` for an image in which everything fails as it does on this host."""
    report = load_report(folder)
    failed = not report.verdict.gpu_usable
    names = ("runtime", "driver", "libraries", "import", "visible", "compute", "cudnn", "nccl")
    stages = [
        Stage(name, "failed" if failed and name == "driver" else "passed", "as it was", 0.4) for name in names
    ]
    verification = Verification(
        "an-image:latest",
        tuple(stages),
        1,
        0 if failed else 1,
        0,
        report.verdict.cause,
        report.verdict.summary,
        tuple(finding for finding in report.findings if finding.severity > Severity.INFO),
    )
    stage_lines = "".join(render_stage(stage, width=width) for stage in stages)
    return stage_lines + render_result(verification, width=width)


def lines_at(text: str, width: int) -> int:
    """Return the number of terminal lines: a line that is too wide counts as several."""
    return sum(max(1, -(-count_columns(line) // width)) for line in text.splitlines())


def matrix_screen(version: str, capability: str | None = None, width: int = 80) -> str | None:
    """Return the screen of `matrix --tf VERSION [--gpu X]`, or None if no release matches."""
    compat = Compat.load()
    rows = select_rows(compat, MatrixQuery(tf=version, capability=capability))
    if not rows:
        return None
    matrix_sheet = make_sheet(compat, rows, capabilities=[capability] if capability else [])
    return render_sheet_screen(matrix_sheet, as_of=compat.as_of, width=width)


def explain_screen(code: str, width: int = 80) -> str:
    """Return the screen of `explain CODE`."""
    return render_explanation(find_entries(code, load_documentation()), complete=False, width=width)


def recommend_screen(card: str, driver: str | None, version: str | None, width: int = 80) -> str:
    """Return the screen of `recommend --gpu NAME --driver V --tf V`."""
    compat = Compat.load()
    host = select_host(compat, gpus=[card], driver=driver, recording_path=None)
    return render_recommendation(recommend(compat, Request(tensorflow=version), host), width=width)


def build_screen(version: str, width: int = 80) -> str:
    """Return the screen of `build --tf VERSION --dry-run`, or the reason why there is no such image."""
    recommendation = recommend(Compat.load(), Request(version, method=Method.CONTAINER), Host())
    if recommendation.conflict is not None:
        return render_recommendation(recommendation, width=width)
    option = recommendation.options[0]
    image = EmittedImage(
        option,
        render_context(option, UserAdditions()),
        make_default_tag(option),
        f"tfdoctor build --tf {version} --anywhere",
    )
    return build_dry_run(image, complete=False, width=width)


def install_screen(version: str, width: int = 80) -> str | None:
    """Return the screen of `install --tf VERSION --dry-run` with uv's usual commands, or None if no option fits."""
    recommendation = recommend(Compat.load(), Request(version, method=Method.PIP), Host())
    if not recommendation.options:
        return None
    locks = "/home/user/.cache/tfdoctor/locks"
    install = (
        "/usr/bin/uv",
        "pip",
        "install",
        "--python",
        "/srv/tf/bin/python",
        "--require-hashes",
        "--no-deps",
    )
    commands = [
        ("make the environment", ("/usr/bin/uv", "venv", "--python", "3.13", "--seed", "/srv/tf")),
        *(
            (title, (*install, "-r", f"{locks}/{name}-{version}-cp313-manylinux.txt"))
            for title, name in (("install CUDA", "cuda"), ("install TensorFlow", "tensorflow"))
        ),
        (
            "link what it does not find",
            ("ln", "-s", "../../cusolver/lib/libcusolver.so.11", "/srv/tf/lib/x.so"),
        ),
    ]
    notes = [
        "No NVIDIA card was found here; this is for any card.",
        "Downloads up to 3.3 GB. Disk space in /srv: 6.1 GB for the environment and 3.3 GB for temporary files, 80.0 GB free.",
    ]
    return install_dry_run(recommendation.options[0], "/srv/tf", notes, commands, complete=False, width=width)


def codes() -> list[str]:
    """Return every code and cause that `explain` knows."""
    explained = list_entries(load_documentation())
    return [*(rule.code for rule in explained.rules), *(entry.cause.value for entry in explained.causes)]


def releases() -> list[str]:
    """Return the newest release of each minor version."""
    newest: dict[str, str] = {}
    for release in Compat.load().releases:
        newest.setdefault(versions.major_minor(release.version), release.version)
    return list(newest.values())


CARDS = ("GTX 680", "GTX 1080 Ti", "RTX 4090", "RTX 5090")
REQUESTED_VERSIONS = (None, "1.14", "2.15")


def screens() -> Iterator[tuple[str, str | None]]:
    """Yield the command line and the text of every screen. The text is None if there is no screen."""
    for host in FOLDERS:
        yield f"check {host.name}", check_screen(host)
        yield f"check --from {host.name}", check_screen(host, here=False)
        yield f"fix --dry-run {host.name}", fix_screen(host)
        yield f"verify {host.name}", verify_screen(host)
    for log in LOGS:
        yield f"diagnose {log.name}", log_screen(log)
    for version in releases():
        yield f"matrix --tf {version}", matrix_screen(version)
        yield f"matrix --tf {version} --gpu 12.0", matrix_screen(version, "12.0")
        yield f"build --dry-run --tf {version}", build_screen(version)
        yield f"install --dry-run --tf {version}", install_screen(version)
    for card in CARDS:
        for driver in (None, "470.82"):
            for version in REQUESTED_VERSIONS:
                name = f"recommend --gpu {card} --driver {driver} --tf {version}"
                yield name, recommend_screen(card, driver, version)
    for code in codes():
        yield f"explain {code}", explain_screen(code)
