"""`tfdoctor lint` on the command line, the pre-commit hook and the GitHub action."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.planner import CommandResult, Tfdoctor, is_clean, validate
from tfdoctor.cli import build_check
from tfdoctor.diagnosis.explain import MEMORY_CODE
from tfdoctor.environments.precheck import PrecheckResult

ROOT = Path(__file__).resolve().parents[3]
BAD = 'import os\nos.environ["CUDA_VISIBLE_DEVIES"] = "0"\n'
GOOD = BAD.replace("DEVIES", "DEVICES")


class Lint:
    """A callable that runs `tfdoctor lint` in a folder, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._tfdoctor = monkeypatch, Tfdoctor(monkeypatch, capsys)
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            monkeypatch.delenv(name, raising=False)

    def __call__(self, *args: str, cwd: Path) -> CommandResult:
        self._monkeypatch.chdir(cwd)
        return self._tfdoctor("lint", *args)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lint:
    return Lint(monkeypatch, capsys)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(BAD)
    (tmp_path / "src" / "b.py").write_text(GOOD)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "c.py").write_text(BAD)
    (tmp_path / "run").write_text("#!/bin/sh\nexport CUDA_VISIBLE_DEVIES=0\n")
    (tmp_path / "notes.txt").write_text("export CUDA_VISIBLE_DEVIES=0\n")
    return tmp_path


def test_text_output(run: Lint, project: Path) -> None:
    result = run("src", cwd=project)
    assert result.status == 1
    assert result.err == ""
    assert is_clean(result.out)
    lines = result.out.splitlines()
    assert lines[0].startswith("src/a.py:2:12: TFD711 misspelt-variable: ")
    assert lines[1:3] == ['  2 | os.environ["CUDA_VISIBLE_DEVIES"] = "0"', f"    | {' ' * 11}^"]
    assert lines[-1].startswith("1 finding in 2 files. --fix corrects it.")
    clean = run("src/b.py", cwd=project)
    assert (clean.status, clean.out) == (0, "No problems found in 1 file.\n")


def test_json_follows_the_schema(run: Lint, project: Path) -> None:
    result = run(".", "--json", cwd=project)
    answer = json.loads(result.out)
    validate(answer, "lint")
    assert answer["files"] == 3
    assert [(finding["path"], finding["line"]) for finding in answer["findings"]] == [
        ("run", 2),
        ("src/a.py", 2),
    ]
    assert json.loads(run(".", "--format", "json", cwd=project).out) == answer


def test_github_format_escapes_names(run: Lint, project: Path) -> None:
    (project / "a,b%.py").write_text(BAD)
    github = run("a,b%.py", "--format", "github", cwd=project).out
    assert github.startswith(
        "::error file=a%2Cb%25.py,line=2,col=12,title=TFD711 misspelt-variable::Nothing reads"
    )


def test_github_format_is_redacted(run: Lint, project: Path) -> None:
    address = "http://kim:hunter22@gpu7.corp.example.net:22"
    (project / "cluster.py").write_text(
        f"import tensorflow as tf\ntf.train.ClusterSpec({{'worker': ['{address}', '10.77.66.55', 'annabox:x']}})\n"
    )
    result = run("cluster.py", "--format", "github", cwd=project)
    assert result.out.count("TFD722") == 3
    assert not any(word in result.out for word in ("kim", "hunter22", "gpu7", "corp", "10.77", "annabox"))


def test_diff_changes_nothing_and_fix_corrects(run: Lint, project: Path) -> None:
    file = project / "src" / "a.py"
    diff = run("--diff", "src", cwd=project)
    assert '-os.environ["CUDA_VISIBLE_DEVIES"] = "0"\n+os.environ["CUDA_VISIBLE_DEVICES"] = "0"\n' in diff.out
    assert (diff.status, file.read_text()) == (1, BAD)
    result = run("--fix", "src", cwd=project)
    assert result.out == f"{diff.out}No problems found in 2 files.\n"
    assert (result.status, file.read_text()) == (0, GOOD)


def test_fix_keeps_the_encoding_and_line_endings(run: Lint, tmp_path: Path) -> None:
    for name, content in (
        ("latin.py", b"# -*- coding: latin-1 -*-\r\n# \xe9\r\n" + BAD.replace("\n", "\r\n").encode()),
        ("bom.py", b"\xef\xbb\xbf" + BAD.encode()),
    ):
        (tmp_path / name).write_bytes(content)
        assert run("--fix", name, cwd=tmp_path).status == 0
        assert (tmp_path / name).read_bytes() == content.replace(b"DEVIES", b"DEVICES")


@pytest.mark.parametrize(
    ("table", "status"),
    [
        ('ignore = ["TFD711"]', 0),
        ('ignore = ["misspelt-variable"]', 0),
        ('select = ["removed-api"]', 0),
        ('exclude = ["src/a.py", "run"]', 0),
        ('exclude = ["src"]', 1),
        ('per-file-ignores = { "src/*" = ["TFD711"], "run" = ["TFD711"] }', 0),
        ("gpu-count = 3", 1),
    ],
)
def test_settings(run: Lint, project: Path, table: str, status: int) -> None:
    (project / "pyproject.toml").write_text(f"[tool.tfdoctor]\n{table}\n")
    assert run(".", cwd=project).status == status


DOCKERFILE = """\
FROM nvidia/cuda:11.2.2-base-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip install tensorflow==2.15.0
"""


def test_dockerfile_is_checked_like_a_machine(run: Lint, tmp_path: Path) -> None:
    """Lint finds what does not work in an image, for its Dockerfile and for the service that uses it."""
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "compose.yaml").write_text("services:\n  train:\n    build: .\n")
    result = run("--json", "Dockerfile", cwd=tmp_path)
    validate(result.json, "lint")
    assert result.status == 1
    assert [(item["code"], item["line"]) for item in result.json["findings"]] == [("TFD507", 3)]
    service_findings = run("--json", "compose.yaml", cwd=tmp_path).json["findings"]
    assert {("TFD507", "train"), ("TFD515", "train")} <= {
        (item["code"], item["service"]) for item in service_findings
    }
    findings = run("--json", ".", cwd=tmp_path).json["findings"]
    assert [item["code"] for item in findings].count("TFD507") == 1
    (tmp_path / "pyproject.toml").write_text('[tool.tfdoctor]\nignore = ["TFD507", "gpu-not-given"]\n')
    assert run(".", cwd=tmp_path).status == 0


CONFLICT = "tensorflow==2.15.0\nnumpy==2.1\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("requirements.txt", CONFLICT, {("TFD306", 2), ("TFD519", 2)}),
        ("dev-requirements.in", "-r base.txt\n" + CONFLICT, {("TFD306", 3), ("TFD519", 3)}),
        ("constraints_gpu.txt", "tensorflow-gpu==2.12.0", {("TFD508", 1)}),
        ("requirements2.txt", CONFLICT, {("TFD306", 2), ("TFD519", 2)}),
        ("constraints3.txt", "tensorflow-gpu==2.12.0", {("TFD508", 1)}),
        ("requirements.txt", "# for the CPU\ntensorflow-cpu==2.15.0\nnumpy<2\n", set()),
        ("requirements.txt", "tensorflow\nkeras\n-r base.txt\n", set()),
        (
            "requirements.txt",
            "tensorflow==2.15\nnumpy==2.1; python_version>='3.13'\nnumpy==1.26; python_version<'3.13'\n",
            set(),
        ),
        (
            "environment.yml",
            "dependencies:\n- python=3.10\n- pip\n- pip:\n  - pandas\n  - tensorflow-gpu==2.12.0\n",
            {("TFD508", 6)},
        ),
        ("environment.yml", "dependencies:\n- pip:\n  - tensorflow==2.15.0\n", set()),
    ],
)
def test_named_requirements_are_checked_like_those_of_a_dockerfile(
    run: Lint, tmp_path: Path, name: str, text: str, expected: set[tuple[str, int]]
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "base.txt").write_text("pandas\n")
    result = run("--json", name, cwd=tmp_path)
    assert {(item["code"], item["line"]) for item in result.json["findings"]} == expected
    assert (result.status, result.json["unreadable"]) == (bool(expected), [])
    assert "`RUN " not in result.out
    (tmp_path / "a.py").write_text(GOOD)
    assert run(".", cwd=tmp_path).status == 0


def test_folder_without_a_file_to_check_is_a_wrong_request(run: Lint, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.md").write_text("x\n")
    result = run("data", cwd=tmp_path)
    assert (result.status, result.out) == (2, "")
    assert "there is no file that lint checks in data." in result.err


def test_question_that_the_index_did_not_answer_makes_the_result_incomplete(
    run: Lint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = PrecheckResult(unknown_reason="the package index was not reached")
    monkeypatch.setattr(build_check, "precheck_requirements", lambda *_, **__: reply)
    (tmp_path / "Dockerfile").write_text(
        "FROM python:3.11-slim\nRUN pip install 'tensorflow[and-cuda]==2.18.0' torch==2.5.1\n"
    )
    result = run("Dockerfile", cwd=tmp_path)
    assert "Dockerfile: not checked completely: whether pip can install all of it together" in result.out
    assert "the package index was not reached" in result.out
    assert result.out.splitlines()[-1].startswith("Incomplete: 1 of 1 could not be checked completely.")
    assert run("--json", "Dockerfile", cwd=tmp_path).json["unreadable"]


def test_finding_in_a_requirements_file_is_not_on_a_line_of_the_dockerfile(run: Lint, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM $BASE\n\nRUN true\nCOPY deps.txt .\nRUN pip install -r deps.txt\n"
    )
    (tmp_path / "deps.txt").write_text(CONFLICT)
    findings = run("--json", "Dockerfile", cwd=tmp_path).json["findings"]
    assert {(item["code"], item["line"]) for item in findings} == {("TFD306", 4), ("TFD519", 4)}
    assert all("(deps.txt, line 2)" in item["message"] for item in findings)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("notes.txt", "tensorflow==2.15.0", "it is not a kind of file that lint reads"),
        ("data.json", "{}", "it is not a kind of file that lint reads"),
        (
            "environment.yml",
            "dependencies:\n- python=3.8\n- conda-forge::tensorflow-gpu=1.14\n",
            "what conda installs for conda-forge::tensorflow-gpu=1.14 is not read",
        ),
        ("environment.yml", "dependencies:\n- pip\n---\na: 1\n", "it is not YAML, or too deep"),
    ],
)
def test_named_file_that_cannot_be_judged_is_not_without_problems(
    run: Lint, tmp_path: Path, name: str, text: str, reason: str
) -> None:
    (tmp_path / name).write_text(text)
    result = run(name, cwd=tmp_path)
    assert (result.status, "No problems" in result.out) == (3, False)
    assert re.search(rf"{re.escape(name)}: not checked(?: completely)?: {re.escape(reason)}\n", result.out)
    (tmp_path / "train.py.orig").write_text(BAD)
    assert run("train.py.orig", cwd=tmp_path).status == 1


POD = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers:
      - name: log
        image: busybox
        env: [{name: CUDA_VISIBLE_DEVICES, value: "-1"}]
      - name: train
        image: IMAGE
        env:
        - {name: CUDA_VISIBLE_DEVICES, value: "VISIBLE"}
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        resources: RESOURCES
"""


@pytest.mark.parametrize(
    ("resources", "image", "visible", "expected"),
    [
        ("{limits: {nvidia.com/gpu: 1}}", "registry.local/fit:3", "0", set()),
        ("{limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 2}}", "registry.local/fit:3", "0", set()),
        ("{limits: {nvidia.com/mig-1g.5gb: 1}}", "tensorflow/tensorflow:2.17.0-gpu", "0", set()),
        ("{limits: {nvidia.com/gpu: 1.0, cpu: 500m}}", "registry.local/fit:3", "0", set()),
        ("{limits: {nvidia.com/gpu: 0}}", "tensorflow/tensorflow:2.18.0-gpu", "-1", set()),
        ("{requests: {cpu: 1}} # nvidia.com/gpu", "tensorflow/tensorflow:2.18.0", "-1", set()),
        ("{requests: {nvidia.com/gpu: 1}}", "registry.local/fit:3", "0", {("TFD515", "error")}),
        ("{limits: {nvidia.com/gpu: 0.5}}", "registry.local/fit:3", "0", {("TFD515", "error")}),
        ("{limits: {nvidia.com/gpu: 500m}}", "registry.local/fit:3", "0", {("TFD515", "error")}),
        (
            "{limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 2}}",
            "registry.local/fit:3",
            "0",
            {("TFD515", "error")},
        ),
        ("{limits: {nvidia.com/gpu: 1}}", "registry.local/fit:3", "-1", {("TFD515", "warning")}),
        ("{limits: {nvidia.com/gpu: 1}}", "tensorflow/tensorflow:2.18.0-gpu", "0", {("TFD503", "error")}),
        ("{limits: {cpu: 1}}", "tensorflow/tensorflow:2.17.0-gpu", "0", {("TFD515", "error")}),
        ("{limits: {cpu: 1}}", "tensorflow/tensorflow:2.17.0-gpu", "-1", set()),
    ],
)
def test_pod_that_asks_for_a_gpu(
    run: Lint, tmp_path: Path, resources: str, image: str, visible: str, expected: set[tuple[str, str]]
) -> None:
    text = POD.replace("RESOURCES", resources).replace("IMAGE", image).replace('"VISIBLE"', f'"{visible}"')
    (tmp_path / "pod.yaml").write_text(text)
    result = run("--json", "pod.yaml", cwd=tmp_path)
    validate(result.json, "lint")
    assert {(item["code"], item["severity"]) for item in result.json["findings"]} == expected
    line = 18 if visible == "-1" else 15
    assert {(item["line"], item["service"]) for item in result.json["findings"]} <= {(line, "train")}
    assert result.json["unreadable"] == []
    assert "The service" not in result.out


@pytest.mark.parametrize(
    ("image", "settings", "is_found"),
    [
        ("tensorflow/tensorflow:2.17.0-gpu", "", True),
        ("docker.io/tensorflow/tensorflow:latest-gpu-jupyter", "resources: {limits: {cpu: 1}}", True),
        ("nvcr.io/nvidia/tensorflow:25.02-tf2-py3", "", True),
        ("localhost/tfdoctor/tensorflow:2.17.0-cuda12.3-py3.11", "", True),
        ("tensorflow/tensorflow:2.17.0", "", False),
        ("my-tensorflow/tensorflow:2.17.0-gpu", "", False),
        ("tensorflow/tensorflow:2.17.0-gpu", "resources: {limits: {aliyun.com/gpu-mem: 4}}", False),
        ("tensorflow/tensorflow:2.17.0-gpu", "resources: {claims: [{name: gpu}]}", False),
        ("tensorflow/tensorflow:2.17.0-gpu", "securityContext: {privileged: true}", False),
        ("tensorflow/tensorflow:2.17.0-gpu", "command: [tensorboard, --logdir=/logs]", False),
        ("tensorflow/tensorflow:2.17.0-gpu", "args: [tensorboard, --logdir=/logs]", False),
    ],
)
def test_pod_with_an_image_for_gpus_asks_for_one(
    run: Lint, tmp_path: Path, image: str, settings: str, is_found: bool
) -> None:
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n"
        f"      - name: train\n        image: {image}\n        {settings}\n"
    )
    (tmp_path / "deploy.yaml").write_text(text)
    findings = run("--json", "deploy.yaml", cwd=tmp_path).json["findings"]
    found = [(item["line"], item["message"]) for item in findings if item["code"] == "TFD515"]
    message = "The container train is given no GPU. Add to the container: `resources: {limits: {nvidia.com/gpu: 1}}`."
    assert found == ([(7, message)] if is_found else [])
    (tmp_path / "deploy.yaml").write_text(
        text.replace("      containers:", "      runtimeClassName: x\n      containers:")
    )
    assert "TFD515" not in run("deploy.yaml", cwd=tmp_path).out


def test_advice_about_a_compose_file_names_what_to_add_and_what_to_build(run: Lint, tmp_path: Path) -> None:
    services = "services:\n  a:\n    image: tensorflow/tensorflow:2.18.0-gpu\n"
    (tmp_path / "compose.yaml").write_text(services)
    (tmp_path / "devcontainer.json").write_text('{"image": "tensorflow/tensorflow:2.17.0-gpu"}')
    out = run("compose.yaml", "devcontainer.json", cwd=tmp_path).out
    assert "The service a is given no GPU. Add to the service: `deploy: {resources: " in out
    assert (
        'The dev container is given no GPU. Add to devcontainer.json: `"runArgs": ["--gpus", "all"]`.' in out
    )
    assert (
        "Build an image of TensorFlow 2.18.0 that has the libraries it opens: CUDA 12.5 and cuDNN 9." in out
    )


@pytest.mark.parametrize("platform", ["linux/arm64", "linux/arm64/v8", "linux/aarch64", "linux/amd64", ""])
def test_official_gpu_image_is_not_for_arm64(run: Lint, tmp_path: Path, platform: str) -> None:
    image = "tensorflow/tensorflow:2.17.0-gpu"
    is_arm = "amd" not in platform and bool(platform)
    option = f"--platform={platform} " if platform else ""
    (tmp_path / "Dockerfile.official").write_text(f"FROM {option}{image}\n")
    (tmp_path / "Dockerfile").write_text(
        "FROM python:3.11-slim\nRUN pip install 'tensorflow[and-cuda]==2.17.1'\n"
    )
    setting = f"    platform: {platform}\n" if platform else ""
    (tmp_path / "compose.yaml").write_text(
        f"services:\n  a:\n    image: {image}\n    gpus: all\n{setting}  b:\n    build: .\n    gpus: all\n{setting}"
    )
    for name, services in (("Dockerfile.official", [None]), ("compose.yaml", ["a", "b"])):
        findings = run("--json", name, cwd=tmp_path).json["findings"]
        found = [item["service"] for item in findings if item["code"] == "TFD507"]
        assert found == (services if is_arm else [])


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("pip install tensorflow-gpu==2.12.0", "TFD508"),
        ("sudo python3 -m pip install -U 'tensorflow==2.7.77'", "TFD508"),
        ("pip install tensorflow==2.15.0 'numpy==2.1'", "TFD519"),
        ("pip install \\\n  tensorflow-gpu==2.12.0", "TFD508"),
        ("pip install tensorflow-gpu==2.11.0", None),
        ("pip install tensorflow==2.8.0", None),
        ("pip install tensorflow-cpu==2.15.0", None),
        ("pip install tensorflow-gpu==$VERSION", None),
        ("pip install tensorflow-gpu==2.12.0 || pip install tensorflow==2.12.0", None),
        ("pip install tensorflow-gpu==2.12.0  # noqa: TFD508", None),
        ("# pip install tensorflow-gpu==2.12.0", None),
        ("echo pip install tensorflow-gpu==2.12.0", None),
    ],
)
def test_pip_commands_in_scripts_and_notebooks(
    run: Lint, tmp_path: Path, line: str, code: str | None
) -> None:
    (tmp_path / "a.sh").write_text(f"#!/bin/sh\npip install -U pip\n{line}\n")
    cells = [
        {"cell_type": "markdown", "source": "pip install tensorflow-gpu==2.12.0"},
        {"cell_type": "code", "source": f"import os\n!{line}\n"},
        {"cell_type": "code", "source": f"%{line}"},
    ]
    (tmp_path / "b.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    result = run(".", "--json", cwd=tmp_path)
    validate(result.json, "lint")
    assert [
        (item["path"], item.get("cell"), item["line"], item["code"]) for item in result.json["findings"]
    ] == [("a.sh", None, 3, code), ("b.ipynb", 2, 2, code), ("b.ipynb", 3, 1, code)] * (code is not None)
    assert result.json["unreadable"] == []


def test_options_override_settings(run: Lint, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tfdoctor]\ntf = "1.15"\ngpu-count = 1\n')
    (tmp_path / "a.py").write_text(
        "import tensorflow as tf\ntf.Session()\nwith tf.device('/gpu:1'):\n    pass\n"
    )

    def names(*args: str) -> list[str]:
        return [finding["name"] for finding in run("a.py", "--json", *args, cwd=tmp_path).json["findings"]]

    assert names() == ["no-such-device"]
    assert names("--tf", "2.16") == ["removed-api", "no-such-device"]
    assert names("--gpu-count", "2") == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("none",), "there is no file or folder"),
        (("--tf", "banana", "."), "not a release"),
        (("--json", "--format", "sarif", "."), "exclude each other"),
        (("bad",), "unknown key `ingore`; did you mean `ignore`?"),
        (("worse",), "not valid TOML"),
    ],
)
def test_invalid_requests_are_refused(run: Lint, tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    for folder, text in (("bad", "[tool.tfdoctor]\ningore = []\n"), ("worse", "[tool.tfdoctor")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pyproject.toml").write_text(text)
    result = run(*args, cwd=tmp_path)
    assert result.status == 2
    assert words in result.err + result.out
    assert "Traceback" not in result.err


def test_unreadable_files_are_listed(run: Lint, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\0\0")
    (tmp_path / "b.ipynb").write_text("{")
    (tmp_path / "c.py").symlink_to("nowhere")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "loop").symlink_to(tmp_path)
    result = run(".", "--json", cwd=tmp_path)
    answer = json.loads(result.out)
    validate(answer, "lint")
    assert result.status == 0
    assert [file["path"] for file in answer["unreadable"]] == ["a.py", "b.ipynb", "c.py"]
    assert "Incomplete: 3 of 3 could not be checked completely." in run(".", cwd=tmp_path).out


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "junit"])
def test_nothing_read_is_not_success(
    run: Lint, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text(BAD)
    (tmp_path / "b").mkdir()
    open_path, scan = Path.open, os.scandir

    def refuse_open(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "a.py":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        return open_path(path, *args, **options)

    def refuse_scan(path: Any) -> Any:
        if isinstance(path, (str, Path)) and os.fspath(path).endswith("b"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        return scan(path)

    monkeypatch.setattr(Path, "open", refuse_open)
    monkeypatch.setattr(os, "scandir", refuse_scan)
    for paths in (["a.py"], ["."]):
        result = run(*paths, "--format", form, cwd=tmp_path)
        assert result.status == 3
        assert "Permission denied" in result.out
        assert "No problems" not in result.out
    (tmp_path / "c.py").write_text("x = 1\n")
    result = run(".", "--format", form, cwd=tmp_path)
    assert result.status == 0
    assert form != "text" or result.out.endswith(
        "\nIncomplete: 2 of 3 could not be checked completely. No problems found in the rest.\n"
    )
    assert form != "json" or json.loads(result.out)["files"] == 1


@pytest.mark.parametrize("form", ["github", "sarif", "json", "junit"])
def test_source_lines_are_not_published(run: Lint, tmp_path: Path, form: str) -> None:
    (tmp_path / "a.py").write_text(
        "import os\nos.environ['CUDA_VISIBLE_DEVIES'] = '0'; login('hunter2Zq7')\n"
    )
    result = run("a.py", "--format", form, cwd=tmp_path)
    assert result.status == 1
    assert "hunter2Zq7" not in result.out


def test_control_characters_of_names_are_removed(run: Lint, tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m\n.py").write_text(BAD)
    for form in ("text", "github", "junit", "sarif"):
        result = run(".", "--format", form, cwd=tmp_path)
        assert is_clean(result.out), form
        assert result.status == 1


def test_pre_commit_hook(project: Path) -> None:
    """Run the hook as pre-commit does: the entry, then the changed files."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["language"] == "python"
    program, *options = hook["entry"].split()
    assert program == "tfdoctor"
    for name, status in (("src/a.py", 1), ("src/b.py", 0)):
        command = [sys.executable, "-m", program, *options, name, "run" if status else "src/b.py"]
        assert (
            subprocess.run(command, cwd=project, capture_output=True, check=False, timeout=60).returncode
            == status
        )


@pytest.mark.skipif(sys.platform == "win32", reason="the action runs bash")
def test_github_action(project: Path) -> None:
    """Run the last step as GitHub does; the step before it installs this checkout."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    install, lint = action["runs"]["steps"]
    assert "$GITHUB_ACTION_PATH" in install["run"]
    assert "${{" not in install["run"] + lint["run"], "what is given goes through the environment"
    folder = project / "temp" / "tfdoctor" / "bin"
    folder.mkdir(parents=True)
    (folder / "tfdoctor").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tfdoctor "$@"\n')
    (folder / "tfdoctor").chmod(0o755)
    inputs = {name: definition["default"] for name, definition in action["inputs"].items()}
    variables = {f"LINT_{name.upper().replace('-', '_')}": value for name, value in inputs.items()}
    assert set(lint["env"]) == set(variables)
    (project / "a b.py").write_text(BAD)
    for changes, status, count in (
        ({}, 1, 3),
        ({"LINT_PATHS": "src/b.py\na b.py\n"}, 1, 1),
        ({"LINT_PATHS": "src/b.py", "LINT_TF": "2.16", "LINT_GPU_COUNT": "1"}, 0, 0),
    ):
        env = {**os.environ, **variables, **changes, "RUNNER_TEMP": str(project / "temp")}
        result = subprocess.run(
            [shutil.which("bash") or "", "-e", "-o", "pipefail", "-c", lint["run"]],
            cwd=project,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (result.returncode, result.stdout.count("::error ")) == (status, count), result.stderr


@pytest.mark.parametrize(("era", "release"), [("2", "2.20"), ("1", "1.15")])
def test_memory_examples_fit_their_tensorflow(run: Lint, tmp_path: Path, era: str, release: str) -> None:
    """Use only names in the example code that the release has."""
    section = MEMORY_CODE.partition(f"TensorFlow {era}")[2].splitlines()[1:]
    lines = "\n".join(itertools.takewhile(lambda line: line.startswith("    "), section))
    (tmp_path / "limits.py").write_text(f"import tensorflow as tf\n\n{textwrap.dedent(lines)}\n")
    result = run("limits.py", "--tf", release, cwd=tmp_path)
    assert (result.status, result.err) == (0, ""), result.out
    assert lines.count("tf.") >= 2
    if era == "1":
        assert "TFD" in run("limits.py", "--tf", "2.20", cwd=tmp_path).out
