"""`tfdoctor build --check`: what is said of Dockerfiles as people write them, and of what is none."""

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
from cli.dockerfile_cases import Case
from cli.dockerfile_cases_pip import CASES_OF_PIP
from cli.dockerfile_cases_stages import CASES_OF_STAGES
from tfdoctor.cli.build_check import MAX_FILE_BYTES, make_file_reader
from tfdoctor.compat import Compat
from tfdoctor.dockerfile import checks
from tfdoctor.dockerfile.analysis import judge_dockerfile
from tfdoctor.dockerfile.checks import DOCKERFILE_RULES
from tfdoctor.dockerfile.write import Extras
from tfdoctor.engine.image import context_of
from tfdoctor.environment.precheck import Foreseen
from tfdoctor.explain import EXPLAINED, HEADINGS, lookup, rule_entry
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.fit import Host
from tfdoctor.plan import Method, Recipe, Request
from tfdoctor.plan.arguments import make_plan
from tfdoctor.render.dockerfile import make_dockerfile_json, render_judged
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.base import Rule
from tfdoctor.rules.retired import RETIRED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.analysis import Judged
    from tfdoctor.dockerfile.checks.base import DockerfileRule
    from tfdoctor.findings import Outcome
    from tfdoctor.rules.base import RuleContext

CASES = (*MOST_CASES, *CASES_OF_PIP, *CASES_OF_STAGES)
ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "build_check.schema.json").read_text(encoding="utf-8"))
CHECKS = Path(checks.__file__).parent

by_rule = pytest.mark.parametrize("rule", DOCKERFILE_RULES, ids=lambda rule: rule.code)


def make_report(text: str, files: dict[str, str] | None = None) -> Judged:
    found = judge_dockerfile(text, Compat.load(), read=(files or {}).get)
    assert found is not None
    return found


def codes(found: Judged, least: Severity = Severity.WARNING) -> set[str]:
    return {finding.code for finding in found.findings if finding.severity >= least}


def tfdoctor(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", "build", "--check", *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ---------------------------------------------------------------- what people write


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_dockerfile_gets_its_findings(case: Case) -> None:
    found = make_report(case.text, dict(case.files))
    assert codes(found) == case.codes
    assert (found.verdict.gpu_usable, str(found.verdict.cause.value if found.verdict.cause else None)) == (
        case.usable,
        case.cause,
    )
    for code, line in case.lines.items():
        lines = {e.line for f in found.findings if f.code == code for e in f.evidence}
        assert line in lines, f"{code} names {lines}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_json_is_what_the_schema_promises(case: Case) -> None:
    answer = json.loads(json.dumps(make_dockerfile_json(make_report(case.text, dict(case.files)))))
    jsonschema.Draft202012Validator(SCHEMA).validate(answer)
    assert answer["stages"][-1]["counts"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_error_says_what_to_do_and_where(case: Case) -> None:
    for finding in make_report(case.text, dict(case.files)).findings:
        assert finding.evidence
        assert all(evidence.line for evidence in finding.evidence)
        assert finding.cause in next(r for r in EXPLAINED if r.code == finding.code).causes
        if finding.severity is Severity.ERROR:
            assert finding.remedies


@pytest.mark.few(2)
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_text_fits_the_terminal(width: int) -> None:
    for case in CASES:
        for line in render_judged(make_report(case.text, dict(case.files)), width=width).splitlines():
            command = line.startswith("          ") or "tfdoctor explain" in line
            assert command or len(line) <= width or " " not in line.strip()
            assert line == line.rstrip()


def test_no_runtime_image_is_advised_where_all_of_its_cuda_are_gone() -> None:
    gone = "FROM nvidia/cuda:10.0-cudnn7-devel-ubuntu18.04\nRUN pip3 install tensorflow-gpu==1.14.0\n"
    there = "FROM nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04\nRUN pip3 install tensorflow==2.13.1\n"
    assert "TFD517" not in codes(make_report(gone), Severity.INFO)
    assert "TFD517" in codes(make_report(there), Severity.INFO)


def test_every_check_is_met_by_a_case() -> None:
    seen = {finding.code for case in CASES for finding in make_report(case.text, dict(case.files)).findings}
    assert seen >= {rule.code for rule in DOCKERFILE_RULES}


def test_no_rule_crashes_on_what_does_not_exist_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Outcome] = []
    run = Rule.run

    def keep_outcome(rule: Rule, context: RuleContext) -> Outcome:
        ended.append(run(rule, context))
        return ended[-1]

    monkeypatch.setattr(Rule, "run", keep_outcome)
    for case in CASES:
        make_report(case.text, dict(case.files))
    assert ended
    assert not [outcome for outcome in ended if outcome.kind is OutcomeKind.CRASHED]


def test_the_rules_of_check_judge_it_too_and_their_old_codes_lead_there() -> None:
    seen = {finding.code for case in CASES for finding in make_report(case.text, dict(case.files)).findings}
    for row in RETIRED:
        if row.code.startswith("TFD5"):
            assert seen.intersection(row.by), row.code


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_to_be_typed_is_for_a_dockerfile(case: Case) -> None:
    for finding in make_report(case.text, dict(case.files)).findings:
        for remedy in finding.remedies:
            for command in remedy.commands:
                assert command.startswith(("ENV ", "FROM ", "RUN ", "tfdoctor build", "tfdoctor verify "))
        assert "machine" not in f"{finding.title} {finding.explanation}"


# ---------------------------------------------------------------- the table of checks


@by_rule
def test_a_check_is_documented_as_rules_are(rule: DockerfileRule) -> None:
    module = sys.modules[rule.check.__module__]
    assert module.__name__ == f"tfdoctor.dockerfile.checks.{rule.name.replace('-', '_')}"
    assert module.RULE is rule
    assert re.fullmatch(r"TFD5\d\d", rule.code)
    assert [section.heading for section in rule_entry(rule).sections] == list(HEADINGS)
    headings = re.findall(r"^(\S[^\n]*)\n(-+)$", module.__doc__ or "", re.MULTILINE)
    assert all(len(heading) == len(line) for heading, line in headings)
    assert all(len(section.text) > 20 for section in rule_entry(rule).sections)
    assert [entry.code for entry in lookup(rule.code).rules] == [rule.code]


def test_codes_and_names_are_unique() -> None:
    numbers = [rule.code for rule in DOCKERFILE_RULES]
    assert numbers == sorted(set(numbers))
    names = [rule.name for rule in (*DOCKERFILE_RULES, *ALL_RULES)]
    assert len(set(names)) == len(names)
    files = {path.stem for path in CHECKS.glob("*.py")} - {"__init__", "base"}
    assert files == {rule.name.replace("-", "_") for rule in DOCKERFILE_RULES}


def test_the_schema_has_the_vocabulary() -> None:
    assert SCHEMA["$defs"]["cause"]["enum"] == [cause.value for cause in Cause]


# ---------------------------------------------------------------- the grammar


def tensorflow_of(text: str, files: dict[str, str] | None = None) -> tuple[str, str | None, int]:
    found = make_report(text, files).tensorflow
    return found.text, found.python, found.line


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
def test_ways_to_say_it(run: str) -> None:
    found = make_report(f"FROM python:3.11-slim\nRUN {run}\n").tensorflow
    assert found.release is not None
    assert (found.release.version, found.python, found.state) == ("2.15.1", "3.11", "there")


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
def test_what_installs_none(run: str) -> None:
    assert make_report(f"FROM python:3.11-slim\nRUN {run}\n").tensorflow.state == "none"


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("ARG V=3.11\nFROM python:${V}-slim", "python:3.11-slim"),
        ("ARG V\nFROM python:${V:-3.10}-slim", None),  # --build-arg may say another
        ("FROM python:${NOBODY:-3.10}-slim", "python:3.10-slim"),
        ("FROM --platform=$BUILDPLATFORM python:3.11 AS x", "python:3.11"),
        ("FROM python:3.11 AS x\nFROM X\nFROM x", "python:3.11"),
        ('ARG A="3" B=.11\nfrom "python:$A$B"', "python:3.11"),
        ("ARG IMAGE\nFROM $IMAGE", None),
    ],
)
def test_what_from_means(text: str, image: str | None) -> None:
    first = make_report(text + "\n").file.chain[0]
    assert first.base == image


def test_an_argument_of_the_top_holds_for_from_alone() -> None:
    text = "ARG V=2.15.1\nFROM python:3.11\n{}RUN pip install tensorflow==$V\n"
    assert make_report(text.format("")).tensorflow.state == "unknown"
    assert make_report(text.format("ARG V\n")).tensorflow.state == "there"


def test_a_pinned_image_is_there_whatever_its_tag() -> None:
    text = f"FROM nvidia/cuda:9.0-base@sha256:{'0' * 64}\nRUN apt-get update\n"
    assert codes(make_report(text)) == set()
    assert codes(make_report(text.partition("@")[0])) == {"TFD501"}


def test_the_end_of_a_file_that_was_not_read_is_said() -> None:
    found = make_report("FROM python:3.11\n" + "RUN true\n" * 10_001 + "RUN pip install tensorflow\n")
    assert found.verdict.gpu_usable is None
    assert "very long" in found.verdict.summary


def test_onbuild_is_not_run() -> None:
    assert make_report("FROM python:3.11\nONBUILD RUN pip install tensorflow\n").tensorflow.state == "none"


@pytest.mark.parametrize(
    ("setup", "pip", "python"),
    [
        ("", "pip", "3.10"),
        ("RUN apt-get install -y python3.11\n", "python3.11 -m pip", "3.11"),
        ("RUN ln -sf /usr/bin/python3.11 /usr/bin/python3\n", "pip3", "3.11"),
        ("RUN ln -s /usr/bin/python3.11 /usr/local/bin/python\n", "python -m pip", "3.11"),
        ("RUN update-alternatives --set python3 /usr/bin/python3.11\n", "pip3", "3.11"),
        ("RUN curl -s https://x.example/get-pip.py | python3.11\n", "pip", "3.11"),
        ("RUN python3.11 get-pip.py\n", "pip3", "3.11"),
        ("RUN python3.11 -m venv /v\n", "/v/bin/pip", "3.11"),
        ("RUN python3.11 -m venv /v\nENV PATH=/v/bin:$PATH\n", "pip", "3.11"),
        ("RUN python3.11 -m venv v && . v/bin/activate\n", "pip", "3.11"),
        ("RUN uv venv --python 3.11 /v\n", "uv pip", "3.11"),
        ("RUN conda create -n tf python=3.9\n", "conda run -n tf pip", None),
        ("RUN pyenv install 3.9.18\n", "pip", None),
    ],
)
def test_which_python_pip_installs_for(setup: str, pip: str, python: str | None) -> None:
    text = (
        f"FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04\n{setup}RUN {pip} install tensorflow==2.15.1\n"
    )
    assert tensorflow_of(text)[1] == python


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
def test_requirements_are_found_where_they_were_copied_from(copy: str, path: str) -> None:
    text = f"FROM python:3.11\nWORKDIR /app\n{copy}\nRUN pip install -r requirements.txt\n"
    assert make_report(text, {path: "a\n\ntensorflow==2.15.1 # why\n"}).tensorflow.line == 3
    unseen = make_report(text)
    assert unseen.tensorflow.state == "none"
    assert "TFD518" in codes(unseen, Severity.INFO)
    assert unseen.verdict.gpu_usable is None


def test_a_bind_mount_a_heredoc_and_files_of_files() -> None:
    mount = (
        "FROM python:3.11\nRUN --mount=type=bind,source=r.txt,target=/tmp/x.txt pip install -r /tmp/x.txt\n"
    )
    assert tensorflow_of(mount, {"r.txt": "tensorflow==2.15.1"})[0] == "tensorflow==2.15.1"
    heredoc = "FROM python:3.11\nCOPY <<EOF /r.txt\ntensorflow==2.15.1\nEOF\nRUN pip install -r /r.txt\n"
    assert tensorflow_of(heredoc)[0] == "tensorflow==2.15.1"
    nested = "FROM python:3.11\nCOPY a /a\nRUN pip install -r /a/one.txt -c /a/c.txt\n"
    files = {"a/one.txt": "-r b/two.txt\n", "a/b/two.txt": "tensorflow\n", "a/c.txt": "tensorflow==2.14.1\n"}
    found = make_report(nested, files)
    assert found.tensorflow.release is not None
    assert found.tensorflow.release.version == "2.14.1"


# ---------------------------------------------------------------- the command


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM tensorflow/tensorflow:2.18.0-gpu\n", encoding="utf-8")
    done = tfdoctor(str(path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "libcudnn.so.9" in done.stdout
    assert "tfdoctor build --tf 2.18.0" in done.stdout
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
def test_what_is_no_dockerfile_ends_in_2(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "Dockerfile"
    if content is not None:
        path.write_bytes(content)
    done = tfdoctor(str(path), "--json")
    assert done.returncode == 2
    assert said in json.loads(done.stdout)["error"]["message"]


def test_only_files_of_the_folder_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "in.txt").write_text("a", encoding="utf-8")
    (tmp_path / "out.txt").write_text("b", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "out.txt")
    read = make_file_reader(folder)
    assert read("in.txt") == "a"
    for name in ("../out.txt", "link.txt", str(tmp_path / "out.txt"), ".", "nothing", "a\0b", "x" * 5000):
        assert read(name) is None


def test_what_the_file_says_cannot_move_the_terminal() -> None:
    text = "FROM python:3.11\nRUN pip install 'tensorflow==2.15.1' && apt-get update\nENV CUDA_VISIBLE_DEVICES=-1\n"
    hostile = make_report(text.replace("python:3.11", "nvidia/cuda:\x1b]0;title\x07\x1b[31m9.0\u202e"))
    assert "\x1b" not in render_judged(hostile)
    assert "\u202e" not in render_judged(hostile)


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


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES | st.text(max_size=60), max_size=25))
@example(["FROM a", "FROM a AS a", "FROM a"])
def test_no_text_is_too_strange(lines: list[str]) -> None:
    found = judge_dockerfile("\n".join(lines), Compat.load(), read=lambda name: name)
    if found is not None:
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(make_dockerfile_json(found))))
        render_judged(found, width=40)


@pytest.mark.few(5)
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
def test_a_large_file_takes_no_longer_than_its_size(text: str) -> None:
    began = time.process_time()
    judge_dockerfile(text, Compat.load())
    assert time.process_time() - began < 8


# ---------------------------------------------------------------- tfdoctor's own Dockerfiles

OWN = [
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


@pytest.mark.parametrize(("recipe", "version"), OWN, ids=str)
def test_what_tfdoctor_builds_itself_is_healthy(recipe: Recipe | None, version: str) -> None:
    request = Request(tensorflow=version, method=Method.CONTAINER, recipe=recipe)
    answer = make_plan(Compat.load(), request, Host())
    assert answer.options, answer.conflict
    context = context_of(answer.options[0], Extras())
    found = make_report(
        context.dockerfile, {name: content.decode() for name, content in context.files.items()}
    )
    assert not found.findings
    assert found.verdict.gpu_usable
    alone = make_report(context.dockerfile)  # --print gives the Dockerfile without its files
    assert not codes(alone)


# ---------------------------------------------------------------- what the index is asked

ASKED = """
FROM python:3.11
RUN pip install "tensorflow[and-cuda]==2.18.0" "tensorflow-text==2.15.0"
"""


def foreseen(text: str, said: Foreseen) -> tuple[Judged, list[tuple[list[str], list[str], str]]]:
    """What is judged where the index says this, and what it was asked."""
    asked: list[tuple[list[str], list[str], str]] = []

    def foresee(wanted: Sequence[str], limits: Sequence[str], python: str) -> Foreseen:
        asked.append((list(wanted), list(limits), python))
        return said

    found = judge_dockerfile(text, Compat.load(), foresee=foresee)
    assert found is not None
    return found, asked


def test_what_the_index_refuses_is_an_error() -> None:
    found, asked = foreseen(ASKED, Foreseen(conflict="tensorflow-text 2.15.0 depends on tensorflow<2.16"))
    assert codes(found) == {"TFD519"}
    assert found.verdict.cause is Cause.PACKAGE_CONFLICT
    assert asked == [(["tensorflow[and-cuda]==2.18.0", "tensorflow-text==2.15.0"], [], "3.11")]


def test_an_index_that_is_not_reached_is_said_and_is_no_error() -> None:
    found, _ = foreseen(ASKED, Foreseen(unknown="the package index was not reached"))
    assert codes(found) == set()
    assert found.verdict.gpu_usable is True
    told = next(finding for finding in found.findings if finding.code == "TFD519")
    assert "not reached" in told.explanation


@pytest.mark.parametrize(
    "text",
    [
        ASKED.replace("install", "install -i https://mirror.example/simple"),
        ASKED.replace("RUN", "ENV PIP_INDEX_URL=https://mirror.example/simple\nRUN"),
        ASKED.replace('"tensorflow-text==2.15.0"', '"x @ https://example.org/x-1-py3-none-any.whl"'),
        ASKED.replace('"tensorflow-text==2.15.0"', "-r gone.txt six"),
        ASKED.replace('"tensorflow-text==2.15.0"', "--no-deps six"),
        ASKED.replace(' "tensorflow-text==2.15.0"', ""),
        ASKED.replace("python:3.11", "unknown/image:1"),
    ],
)
def test_the_index_is_not_asked_what_it_cannot_answer(text: str) -> None:
    assert foreseen(text, Foreseen(conflict="never"))[1] == []


def test_pips_before_20_3_install_what_does_not_go_together() -> None:
    text = "FROM nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04\nRUN apt-get install -y python3-pip\n"
    install = "RUN pip3 install tensorflow==2.10.1 'protobuf==4.25.3'\n"
    assert "TFD519" not in codes(make_report(text + install))
    assert "TFD519" in codes(make_report(f"{text}RUN pip3 install -U pip\n{install}"))


def test_no_other_tag_is_named_of_a_release_that_is_gone() -> None:
    gone = make_report(
        "FROM nvidia/cuda:10.0-cudnn7-devel-ubuntu18.04\nRUN pip3 install tensorflow-gpu==1.15.5\n"
    )
    assert "TFD517" not in {finding.code for finding in gone.findings}
