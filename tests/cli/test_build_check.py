"""`tfdoctor build --check`: the findings of Dockerfiles as people write them, and of hostile or invalid files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cli.dockerfile_cases import CASES as MOST_CASES
from cli.dockerfile_cases import DockerfileCase
from cli.dockerfile_cases_others import OTHER_CASES
from cli.dockerfile_cases_pip import PIP_CASES
from cli.dockerfile_cases_stages import STAGE_CASES
from compat.every_row import for_each
from tfdoctor.cli.build_check import MAX_FILE_BYTES, check_container_file, make_file_reader
from tfdoctor.cli.explain import load_documentation
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.diagnosis.explain import SECTION_HEADINGS, find_entries, make_rule_entry
from tfdoctor.environments.precheck import PrecheckResult
from tfdoctor.images import checks
from tfdoctor.images.analysis import check_dockerfile
from tfdoctor.images.checks import DOCKERFILE_RULES
from tfdoctor.images.engine.image import render_context
from tfdoctor.images.write import UserAdditions
from tfdoctor.planning import Method, Recipe, Request
from tfdoctor.planning.arguments import make_plan
from tfdoctor.prediction.fit.models import Host
from tfdoctor.render.dockerfile import make_dockerfile_json, render_dockerfile_report
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.base import Rule
from tfdoctor.rules.retired import RETIRED_RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Outcome
    from tfdoctor.images.analysis import DockerfileReport
    from tfdoctor.images.checks.base import DockerfileRule
    from tfdoctor.rules.base import RuleContext

CASES = (*MOST_CASES, *PIP_CASES, *STAGE_CASES, *OTHER_CASES)
ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "build_check.schema.json").read_text(encoding="utf-8"))
CHECKS = Path(checks.__file__).parent

with_each_rule = pytest.mark.parametrize("rule", DOCKERFILE_RULES, ids=lambda rule: rule.code)


def make_report(text: str, files: dict[str, str] | None = None) -> DockerfileReport:
    report = check_dockerfile(text, Compat.load(), read=(files or {}).get)
    assert report is not None
    return report


def codes(report: DockerfileReport, minimum: Severity = Severity.WARNING) -> set[str]:
    return {finding.code for finding in report.findings if finding.severity >= minimum}


def tfdoctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", "build", "--check", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ---------------------------------------------------------------- typical Dockerfiles


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_dockerfile_has_the_expected_findings(case: DockerfileCase) -> None:
    report = make_report(case.text, dict(case.files))
    assert codes(report) == case.codes
    assert (report.verdict.gpu_usable, str(report.verdict.cause.value if report.verdict.cause else None)) == (
        case.usable,
        case.cause,
    )
    for code, line in case.lines.items():
        lines = {e.line for f in report.findings if f.code == code for e in f.evidence}
        assert line in lines, f"{code} names {lines}"


@for_each(CASES, lambda case: case.name)
def test_json_follows_the_schema(case: DockerfileCase) -> None:
    answer = json.loads(json.dumps(make_dockerfile_json(make_report(case.text, dict(case.files)))))
    jsonschema.Draft202012Validator(SCHEMA).validate(answer)
    assert answer["stages"][-1]["counts"]


@for_each(CASES, lambda case: case.name)
def test_findings_have_evidence_and_errors_a_remedy(case: DockerfileCase) -> None:
    for finding in make_report(case.text, dict(case.files)).findings:
        assert finding.evidence
        assert all(evidence.line for evidence in finding.evidence)
        assert finding.cause in next(r for r in load_documentation().rules if r.code == finding.code).causes
        if finding.severity is Severity.ERROR:
            assert finding.remedies


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_text_fits_the_terminal(width: int) -> None:
    for case in CASES:
        for line in render_dockerfile_report(
            make_report(case.text, dict(case.files)), width=width
        ).splitlines():
            command = line.startswith("          ") or "tfdoctor explain" in line
            assert command or len(line) <= width or " " not in line.strip()
            assert line == line.rstrip()


def test_removed_images_are_not_recommended() -> None:
    removed = "FROM nvidia/cuda:10.0-cudnn7-devel-ubuntu18.04\nRUN pip3 install tensorflow-gpu==1.14.0\n"
    available = "FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04\nRUN pip3 install tensorflow==2.13.1\n"
    assert "TFD517" not in codes(make_report(removed), Severity.INFO)
    assert "TFD517" in codes(make_report(available), Severity.INFO)


def test_every_rule_has_a_case() -> None:
    reported = {
        finding.code for case in CASES for finding in make_report(case.text, dict(case.files)).findings
    }
    assert reported >= {rule.code for rule in DOCKERFILE_RULES}


def test_no_rule_crashes_without_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Outcome] = []
    run = Rule.run

    def keep_outcome(rule: Rule, context: RuleContext) -> Outcome:
        outcomes.append(run(rule, context))
        return outcomes[-1]

    monkeypatch.setattr(Rule, "run", keep_outcome)
    for case in CASES:
        make_report(case.text, dict(case.files))
    assert outcomes
    assert not [outcome for outcome in outcomes if outcome.kind is OutcomeKind.CRASHED]


def test_successors_of_retired_rules_check_dockerfiles() -> None:
    reported = {
        finding.code for case in CASES for finding in make_report(case.text, dict(case.files)).findings
    }
    for retired in RETIRED_RULES:
        if retired.code.startswith("TFD5"):
            assert reported.intersection(retired.successors), retired.code


@for_each(CASES, lambda case: case.name)
def test_remedies_are_for_dockerfiles(case: DockerfileCase) -> None:
    for finding in make_report(case.text, dict(case.files)).findings:
        for remedy in finding.remedies:
            for command in remedy.commands:
                assert command.startswith(("ENV ", "FROM ", "RUN ", "tfdoctor build", "tfdoctor verify "))
        assert "machine" not in f"{finding.title} {finding.explanation}"


# ---------------------------------------------------------------- rules


@with_each_rule
def test_dockerfile_rules_are_documented(rule: DockerfileRule) -> None:
    module = sys.modules[rule.check.__module__]
    assert module.__name__ == f"tfdoctor.images.checks.{rule.name.replace('-', '_')}"
    assert module.RULE is rule
    assert re.fullmatch(r"TFD5\d\d", rule.code)
    assert [section.heading for section in make_rule_entry(rule).sections] == list(SECTION_HEADINGS)
    headings = re.findall(r"^(\S[^\n]*)\n(-+)$", module.__doc__ or "", re.MULTILINE)
    assert all(len(heading) == len(line) for heading, line in headings)
    assert all(len(section.text) > 20 for section in make_rule_entry(rule).sections)
    assert [entry.code for entry in find_entries(rule.code, load_documentation()).rules] == [rule.code]


def test_codes_and_names_are_unique() -> None:
    numbers = [rule.code for rule in DOCKERFILE_RULES]
    assert numbers == sorted(set(numbers))
    names = [rule.name for rule in (*DOCKERFILE_RULES, *ALL_RULES)]
    assert len(set(names)) == len(names)
    files = {path.stem for path in CHECKS.glob("*.py")} - {"__init__", "base"}
    assert files == {rule.name.replace("-", "_") for rule in DOCKERFILE_RULES}


# ---------------------------------------------------------------- syntax


def find_tensorflow(text: str, files: dict[str, str] | None = None) -> tuple[str, str | None, int]:
    tensorflow = make_report(text, files).tensorflow
    return tensorflow.written_name, tensorflow.python, tensorflow.line


@pytest.mark.parametrize(
    "run",
    [
        "pip install tensorflow==2.15.1",
        "pip3 install --no-cache-dir -U 'tensorflow==2.15.1'",
        "python -m pip --disable-pip-version-check install -i https://mirror.example/simple tensorflow==2.15.1",
        "PIP_NO_CACHE_DIR=1 pip install numpy \\\n  # a comment\n  \\\n  tensorflow==2.15.1",
        "set -eux; if true; then pip install tensorflow==2.15.1; fi",
        "bash -lc 'pip install tensorflow==2.15.1'",
        '["python3", "-m", "pip", "install", "tensorflow==2.15.1"]',
        "sudo -H pip install tensorflow==2.15.1 >/dev/null 2>&1",
        "V=2.15.1; pip install tensorflow==$V",
        "export V=2.15.1 && pip install tensorflow==${V}",
        "--mount=type=cache,target=/var/cache/pip pip install tensorflow==2.15.1",
        "<<EOF\npip install tensorflow==2.15.1\nEOF",
        "bash <<'EOF'\nset -e\npip install \\\n   tensorflow==2.15.1\nEOF",
        "pip install https://files.example/tensorflow-2.15.1-cp311-cp311-manylinux_2_17_x86_64.whl",
        "pip install 'tensorflow @ https://files.example/tensorflow-2.15.1-cp311-cp311-linux_x86_64.whl'",
        "python3.11 -m pip install tensorflow==2.15.1",
        "uv pip install --system tensorflow==2.15.1",
        "apt-get update && (pip install tensorflow==2.15.1 || true)",
        "pip install tensorflow==2.14.0 && pip install tensorflow==2.15.1",
        "pip install tensorflow==${MINOR:-2.15}.1",
    ],
)
def test_recognized_ways_to_install(run: str) -> None:
    tensorflow = make_report(f"FROM python:3.11-slim\nRUN {run}\n").tensorflow
    assert tensorflow.release is not None
    assert (tensorflow.release.version, tensorflow.python, tensorflow.state) == ("2.15.1", "3.11", "there")


@pytest.mark.parametrize(
    "run",
    [
        "# pip install tensorflow==2.15.1",
        "echo pip install tensorflow==2.15.1",
        "pip install tensorflow==2.15.1 && pip uninstall -y tensorflow",
        "python3 <<EOF\npip install tensorflow==2.15.1\nEOF",
        "pip install tensorboard==2.15.1 keras tensorflow-datasets",
        "pip show tensorflow",
        "pip install 'tensorflow==2.15.1; sys_platform == \"darwin\"'",
    ],
)
def test_commands_that_install_no_tensorflow(run: str) -> None:
    assert make_report(f"FROM python:3.11-slim\nRUN {run}\n").tensorflow.state == "none"


def test_image_pinned_by_digest_is_available() -> None:
    text = f"FROM nvidia/cuda:9.0-base@sha256:{'0' * 64}\nRUN apt-get update\n"
    assert codes(make_report(text)) == set()
    assert codes(make_report(text.partition("@")[0])) == {"TFD501"}


def test_truncated_file_is_reported() -> None:
    report = make_report("FROM python:3.11\n" + "RUN true\n" * 10_001 + "RUN pip install tensorflow\n")
    assert report.verdict.gpu_usable is None
    assert "very long" in report.verdict.summary


@pytest.mark.parametrize(
    ("copy", "path"),
    [
        ("COPY requirements.txt .", "requirements.txt"),
        ("COPY requirements.txt /app/requirements.txt", "requirements.txt"),
        ("COPY ./docker/requirements.txt /app/", "docker/requirements.txt"),
        ("COPY docker /app", "docker/requirements.txt"),
        ("COPY . .", "requirements.txt"),
        ("ADD req*.txt ./", "requirements.txt"),
        ('COPY ["docker/requirements.txt", "./"]', "docker/requirements.txt"),
        ("COPY other.txt requirements.txt", "other.txt"),
    ],
)
def test_copied_requirements_are_read(copy: str, path: str) -> None:
    text = f"FROM python:3.11\nWORKDIR /app\n{copy}\nRUN pip install -r requirements.txt\n"
    assert make_report(text, {path: "a\n\ntensorflow==2.15.1 # why\n"}).tensorflow.line == 3
    without_file = make_report(text)
    assert without_file.tensorflow.state == "none"
    assert "TFD518" in codes(without_file, Severity.INFO)
    assert without_file.verdict.gpu_usable is None


def test_requirements_of_mounts_heredocs_and_nested_files() -> None:
    mount = (
        "FROM python:3.11\nRUN --mount=type=bind,source=r.txt,target=/tmp/x.txt pip install -r /tmp/x.txt\n"
    )
    assert find_tensorflow(mount, {"r.txt": "tensorflow==2.15.1"})[0] == "tensorflow==2.15.1"
    heredoc = "FROM python:3.11\nCOPY <<EOF /r.txt\ntensorflow==2.15.1\nEOF\nRUN pip install -r /r.txt\n"
    assert find_tensorflow(heredoc)[0] == "tensorflow==2.15.1"
    nested = "FROM python:3.11\nCOPY a /a\nRUN pip install -r /a/one.txt -c /a/c.txt\n"
    files = {"a/one.txt": "-r b/two.txt\n", "a/b/two.txt": "tensorflow\n", "a/c.txt": "tensorflow==2.14.1\n"}
    report = make_report(nested, files)
    assert report.tensorflow.release is not None
    assert report.tensorflow.release.version == "2.14.1"


# ---------------------------------------------------------------- command


def test_command_prints_text_and_json(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM tensorflow/tensorflow:2.18.0-gpu\n", encoding="utf-8")
    result = tfdoctor(str(path))
    assert (result.returncode, result.stderr) == (1, "")
    assert "libcudnn.so.9" in result.stdout
    assert "tfdoctor build --tf 2.18.0" in result.stdout
    answer: Any = json.loads(tfdoctor(str(path), "--json").stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(answer)
    assert answer["file"] == str(path)
    path.write_text("FROM python:3.11\nRUN pip install 'tensorflow[and-cuda]==2.18.0'\n", encoding="utf-8")
    assert tfdoctor(str(path)).returncode == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no FROM"),
        (b"RUN x\n", "no FROM"),
        (b"FROM x\0", "not a text"),
        (b"#" * (MAX_FILE_BYTES + 1), "larger than"),
        (None, "cannot be read"),
    ],
)
def test_invalid_dockerfile_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "Dockerfile"
    if content is not None:
        path.write_bytes(content)
    result = tfdoctor(str(path), "--json")
    assert result.returncode == 2
    assert said in json.loads(result.stdout)["error"]["message"]


def test_files_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "in.txt").write_text("a", encoding="utf-8")
    (tmp_path / "out.txt").write_text("b", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "out.txt")
    read = make_file_reader(folder)
    assert read("in.txt") == "a"
    for name in ("../out.txt", "link.txt", str(tmp_path / "out.txt"), ".", "nothing", "a\0b", "x" * 5000):
        assert read(name) is None


def test_control_characters_are_removed() -> None:
    text = "FROM python:3.11\nRUN pip install 'tensorflow==2.15.1' && apt-get update\nENV CUDA_VISIBLE_DEVICES=-1\n"
    hostile = make_report(text.replace("python:3.11", "nvidia/cuda:\x1b]0;title\x07\x1b[31m9.0\u202e"))
    assert "\x1b" not in render_dockerfile_report(hostile)
    assert "\u202e" not in render_dockerfile_report(hostile)


# ---------------------------------------------------------------- hostile files

LINES = st.sampled_from(
    [
        "FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04",
        "FROM tensorflow/tensorflow:latest-gpu AS a",
        "FROM a",
        "FROM ${A:-${B:-${C}}}",
        "ARG A=$A$A",
        "ENV A=$A$A B='x C=\"",
        "RUN pip install tensorflow>=2 'numpy<",
        "RUN pip install -r - -c",
        "RUN <<EOF",
        "EOF",
        "RUN python3 -m venv",
        "RUN ln -s",
        "RUN update-alternatives --install",
        "COPY --from=9999999999 / /",
        'COPY ["',
        "SHELL []",
        "\\",
        "# escape=`",
        "RUN $( ` \" ' ${ && || ;; > <",
        "RUN pip install tensorflow==99999999999999999999999.0 tensorflow===x tensorflow==2.*",
        "RUN pip install tensorflow==1!2.0 'tensorflow; python_version < \"x\"'",
        "ENV NVIDIA_DRIVER_CAPABILITIES",
        "RUN bash -c 'bash -c \"bash -c x\"'",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES | st.text(max_size=60), max_size=25))
@example(["FROM a", "FROM a AS a", "FROM a"])
def test_any_text_is_checked(lines: list[str]) -> None:
    report = check_dockerfile("\n".join(lines), Compat.load(), read=lambda name: name)
    if report is not None:
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(make_dockerfile_json(report))))
        render_dockerfile_report(report, width=40)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nRUN " + "\\\n" * 400_000,
        "FROM a\n" + "RUN <<EOF\n" * 90_000,
        "FROM a\nENV A=xxxxxxxx\n" + "ENV A=$A$A\n" * 60_000,
        "FROM a\nRUN " + "'" * 900_000,
        "FROM a\nRUN " + '"$(' * 300_000,
        "FROM a\nRUN " + "${" * 450_000,
        "FROM a\nRUN " + "a;" * 450_000,
        "FROM a\nRUN pip install " + "tensorflow " * 80_000,
        "FROM a\n" + "RUN pip install -r x\n" * 40_000,
        "FROM a\nENV " + "A=\\ " * 200_000,
        "FROM x AS a\n" + "FROM a AS a\n" * 80_000,
        "FROM a\nRUN bash -c '" + "bash -c " * 100_000,
        "FROM " + "a" * 1_000_000,
        "FROM python:" + "9" * 10_000 + "\nRUN pip install tensorflow==" + "9" * 10_000,
    ],
    ids=range(14),
)
def test_large_files_take_linear_time(text: str) -> None:
    start = time.process_time()
    check_dockerfile(text, Compat.load())
    assert time.process_time() - start < 8


# ---------------------------------------------------------------- generated Dockerfiles

GENERATED_PLANS = [
    (None, "1.4.1"),
    (None, "1.14.0"),
    (None, "2.4.1"),
    (None, "2.10.1"),
    (None, "2.15.1"),
    (None, "2.21.0"),
    (Recipe.CUDA_BASE, "2.6.0"),
    (Recipe.CUDA_BASE, "2.17.1"),
    (Recipe.OFFICIAL, "2.14.0"),
    (Recipe.NGC, "1.15.5"),
    (Recipe.NGC, "2.17.0"),
]


@pytest.mark.parametrize(("recipe", "version"), GENERATED_PLANS, ids=str)
def test_generated_dockerfiles_have_no_findings(recipe: Recipe | None, version: str) -> None:
    request = Request(tensorflow=version, method=Method.CONTAINER, recipe=recipe)
    answer = make_plan(Compat.load(), request, Host())
    assert answer.options, answer.conflict
    context = render_context(answer.options[0], UserAdditions())
    report = make_report(
        context.dockerfile, {name: content.decode() for name, content in context.files.items()}
    )
    assert not report.findings
    assert report.verdict.gpu_usable
    without_files = make_report(context.dockerfile)  # --print writes the Dockerfile without its files
    assert not codes(without_files)


# ---------------------------------------------------------------- package index

TWO_REQUIREMENTS = """
FROM python:3.11
RUN pip install "tensorflow[and-cuda]==2.18.0" "tensorflow-text==2.15.0"
"""


def check_with_index(
    text: str, prediction: PrecheckResult
) -> tuple[DockerfileReport, list[tuple[list[str], list[str], str]]]:
    """Return the check's report if the index gives this answer, and the questions that the index was asked."""
    calls: list[tuple[list[str], list[str], str]] = []

    def foresee(requirements: Sequence[str], limits: Sequence[str], python: str) -> PrecheckResult:
        calls.append((list(requirements), list(limits), python))
        return prediction

    report = check_dockerfile(text, Compat.load(), query_index=foresee)
    assert report is not None
    return report, calls


def test_conflict_reported_by_the_index_is_an_error() -> None:
    report, calls = check_with_index(
        TWO_REQUIREMENTS, PrecheckResult(conflict_reason="tensorflow-text 2.15.0 depends on tensorflow<2.16")
    )
    assert codes(report) == {"TFD519"}
    assert report.verdict.cause is Cause.PACKAGE_CONFLICT
    assert calls == [(["tensorflow[and-cuda]==2.18.0", "tensorflow-text==2.15.0"], [], "3.11")]


def test_unreachable_index_is_no_error() -> None:
    report, _ = check_with_index(
        TWO_REQUIREMENTS, PrecheckResult(unknown_reason="the package index was not reached")
    )
    assert codes(report) == set()
    assert report.verdict.gpu_usable is True
    note = next(finding for finding in report.findings if finding.code == "TFD519")
    assert "not reached" in note.explanation


@pytest.mark.parametrize(
    "text",
    [
        TWO_REQUIREMENTS.replace("install", "install -i https://mirror.example/simple"),
        TWO_REQUIREMENTS.replace("RUN", "ENV PIP_INDEX_URL=https://mirror.example/simple\nRUN"),
        TWO_REQUIREMENTS.replace(
            '"tensorflow-text==2.15.0"', '"x @ https://example.org/x-1-py3-none-any.whl"'
        ),
        TWO_REQUIREMENTS.replace('"tensorflow-text==2.15.0"', "-r gone.txt six"),
        TWO_REQUIREMENTS.replace('"tensorflow-text==2.15.0"', "--no-deps six"),
        TWO_REQUIREMENTS.replace(' "tensorflow-text==2.15.0"', ""),
        TWO_REQUIREMENTS.replace("python:3.11", "unknown/image:1"),
    ],
)
def test_index_is_not_asked_about_unanswerable_requests(text: str) -> None:
    assert check_with_index(text, PrecheckResult(conflict_reason="never"))[1] == []


def test_pip_before_20_3_ignores_conflicts() -> None:
    text = "FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04\nRUN apt-get install -y python3-pip\n"
    install = "RUN pip3 install tensorflow==2.10.1 'protobuf==4.25.3'\n"
    assert "TFD519" not in codes(make_report(text + install))
    assert "TFD519" in codes(make_report(f"{text}RUN pip3 install -U pip\n{install}"))


def test_no_other_tag_of_a_removed_release_is_recommended() -> None:
    report = make_report(
        "FROM nvidia/cuda:10.0-cudnn7-devel-ubuntu18.04\nRUN pip3 install tensorflow-gpu==1.15.5\n"
    )
    assert "TFD517" not in {finding.code for finding in report.findings}


@pytest.mark.parametrize(
    ("cuda", "first"),
    [
        ("11.2.0-cudnn8-runtime-ubuntu20.04", "FROM nvidia/cuda:11.8"),
        ("11.8.0-cudnn8-runtime-ubuntu22.04", "RUN pip install tensorflow=="),
        ("11.8.0-cudnn8-devel-ubuntu22.04", "RUN pip install tensorflow=="),
    ],
)
def test_gpu_build_is_advised_with_a_base_that_fits(cuda: str, first: str) -> None:
    """The advice for a CPU build does not lead to a cuDNN that is too old."""
    report = make_report(
        f"FROM nvidia/cuda:{cuda}\nRUN apt-get update && apt-get install -y python3-pip\n"
        "RUN pip3 install tensorflow-cpu==2.12.0\n"
    )
    finding = next(item for item in report.findings if item.code == "TFD303")
    assert finding.remedies[0].commands[0].startswith(first)


@pytest.mark.parametrize("tag", ["nightly", "devel", "custom-op", "3", "2024"])
def test_tag_without_a_known_version_is_judged(tag: str) -> None:
    text = f"FROM tensorflow/tensorflow:{tag}\n"
    ((_, report, reason),) = check_container_file(text, Path("Dockerfile"), "Dockerfile", queries_index=False)
    assert (report is not None, reason) == (True, "")
