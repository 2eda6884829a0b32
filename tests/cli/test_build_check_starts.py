"""`tfdoctor build --check` of compose files, devcontainer.json files and standard input."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.planner import Tfdoctor, is_clean, validate
from tfdoctor.images.read.compose import (
    ContainerStart,
    StartFileError,
    is_compose_file,
    is_devcontainer_file,
    parse_devcontainer,
    parse_services,
)

if TYPE_CHECKING:
    from pathlib import Path

GPU_LINES = (
    "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}"
)
IMAGE = "tensorflow/tensorflow:2.16.1-gpu"


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    return Tfdoctor(monkeypatch, capsys)


def parse_service(lines: str, header: str = "") -> ContainerStart:
    """Return the only service of a compose file with these lines."""
    (start,) = parse_services(f"{header}\nservices:\n  one:\n    {lines}\n", "compose.yaml")
    return start


@pytest.mark.parametrize(
    ("lines", "given_one"),
    [
        (GPU_LINES, True),
        (GPU_LINES.replace("count: all, ", ""), True),
        (GPU_LINES.replace("count: all", "count: 0"), False),
        (GPU_LINES.replace("[gpu]", "[nvidia]"), True),
        (GPU_LINES.replace("[gpu]", "[tpu]"), False),
        ("gpus: all", True),
        ("runtime: nvidia", True),
        ("{runtime: nvidia, environment: {NVIDIA_VISIBLE_DEVICES: none}}", False),
        ("{runtime: nvidia, environment: [NVIDIA_VISIBLE_DEVICES=void]}", False),
        ("runtime: runc", False),
        ('devices: ["nvidia.com/gpu=all"]', True),
        ('devices: ["/dev/snd"]', False),
        ("image: x", False),
        ("extends: {file: other.yaml, service: two}", None),
    ],
)
def test_gpu_access_of_a_service(lines: str, given_one: bool | None) -> None:
    assert parse_service(lines).has_gpu is given_one


def test_own_keys_override_merged_ones() -> None:
    header = f"x-gpu: &gpu\n  {GPU_LINES}\n  image: other"
    start = parse_service("<<: *gpu\n    image: mine", header)
    assert (start.has_gpu, start.image) == (True, "mine")
    assert parse_service("<<: [*gpu]", header).image == "other"


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("a:1", "a:1"),
        ("a:${TAG:-2}", "a:2"),
        ("a:${TAG-2}", "a:2"),
        ("a:${TAG}", None),
        ("a:$TAG", None),
        ("a$$b", "a$b"),
    ],
)
def test_variables_in_image_names(image: str, known: str | None) -> None:
    assert parse_service(f"image: '{image}'").image == known


def test_build_section_is_read() -> None:
    start = parse_service("build: {context: app, dockerfile: D, target: run, args: [A=1, B]}")
    assert (start.dockerfile, start.build_context, start.target_stage, start.build_arguments) == (
        "app/D",
        "app",
        "run",
        {"A": "1"},
    )
    assert parse_service("build: .").dockerfile == "./Dockerfile"
    assert (parse_service("build: a/").dockerfile, start.image) == ("a/Dockerfile", None)
    assert parse_service("environment: {A: 1, B: $C, D: '${E:-f}'}").environment == {"A": "1", "D": "f"}
    assert parse_service("environment: A=1").environment == {"A": "1"}
    assert (start.line, start.name) == (4, "one")
    assert parse_service('build: {dockerfile_inline: "FROM x"}').dockerfile_text == "FROM x"


@pytest.mark.parametrize("text", ["", "a: [", "services: 3", "services: {}", "- a", "[" * 5000, "a: &a [*a]"])
def test_invalid_compose_file_is_refused(text: str) -> None:
    with pytest.raises(StartFileError):
        parse_services(text, "compose.yaml")


def test_nested_aliases_do_not_explode() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 12)]
    assert parse_service("image: x", "\n".join(lines)).image == "x"


@given(text=st.text() | st.text(alphabet="services:\n -{}[]&*<'\"ab ", max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for read in (parse_services, parse_devcontainer):
        with contextlib.suppress(StartFileError):
            assert read(text, "x")


# ---------------------------------------------------------------- dev containers


def make_devcontainer_start(**entries: Any) -> ContainerStart:
    """Return the parsed devcontainer.json with these entries and an image."""
    start = parse_devcontainer(json.dumps({"image": "x", **entries}), "devcontainer.json")
    assert isinstance(start, ContainerStart)
    return start


@pytest.mark.parametrize(
    ("more", "given_one"),
    [
        ({}, False),
        ({"runArgs": ["--gpus", "all"]}, True),
        ({"runArgs": ["--gpus=all"]}, True),
        ({"runArgs": ["--device", "nvidia.com/gpu=all"]}, True),
        ({"runArgs": ["--runtime=nvidia"]}, True),
        ({"runArgs": ["--runtime", "nvidia"]}, True),
        ({"runArgs": ["--shm-size=1g"]}, False),
        ({"hostRequirements": {"gpu": True}}, True),
        ({"hostRequirements": {"gpu": "optional"}}, True),
        ({"hostRequirements": {"cpus": 4}}, False),
    ],
)
def test_gpu_access_of_a_dev_container(more: dict[str, Any], given_one: bool) -> None:
    assert make_devcontainer_start(**more).has_gpu is given_one


def test_comments_and_trailing_commas_are_accepted() -> None:
    text = """{ // a comment, with a "text"
      /* "image": "no" */ "image": "a//b /* c */", "runArgs": ["--gpus", "all",], }"""
    start = parse_devcontainer(text, "devcontainer.json")
    assert isinstance(start, ContainerStart)
    assert (start.image, start.has_gpu) == ("a//b /* c */", True)


@pytest.mark.parametrize(
    ("entries", "files", "service"),
    [
        ({"dockerComposeFile": "a.yml", "service": "s"}, ["a.yml"], "s"),
        ({"dockerComposeFile": ["a.yml", 3, "b.yml"]}, ["a.yml", "b.yml"], ""),
    ],
)
def test_dev_container_names_compose_files(entries: dict[str, Any], files: list[str], service: str) -> None:
    assert parse_devcontainer(json.dumps(entries), "devcontainer.json") == (files, service)


def test_build_of_a_dev_container() -> None:
    start = make_devcontainer_start(
        build={"dockerfile": "D", "context": "..", "target": "run", "args": {"A": "1", "B": 2}},
        containerEnv={"C": "3", "D": None},
    )
    assert (start.image, start.dockerfile, start.build_context, start.target_stage) == (
        None,
        "D",
        "..",
        "run",
    )
    assert (start.build_arguments, start.environment) == ({"A": "1"}, {"C": "3"})
    old = make_devcontainer_start(dockerFile="E", context="c", build=[], containerEnv=[], hostRequirements=[])
    assert (old.dockerfile, old.build_context, old.target_stage, old.has_gpu) == ("E", "c", None, False)
    assert make_devcontainer_start().build_context == "."


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"image": 3}', "{" * 20_000, "null"])
def test_invalid_devcontainer_is_refused(text: str) -> None:
    with pytest.raises(StartFileError):
        parse_devcontainer(text, "devcontainer.json")


def test_file_kinds_are_recognized_by_name() -> None:
    for name in ("compose.yaml", "docker-compose.yml", "compose.gpu.yaml", "docker-compose-dev.yml"):
        assert is_compose_file(name, "")
    assert is_devcontainer_file("devcontainer.json", "")
    assert is_devcontainer_file(".devcontainer.json", "")
    for name in ("Dockerfile", "Dockerfile.yaml", "composer.json", "values.yaml"):
        assert not is_compose_file(name, "FROM scratch\n")
        assert not is_devcontainer_file(name, "FROM scratch\n")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("services:\n  a: {image: b}\n", "compose"),
        ("\ufeff# ours\n\n---\nname: a\nservices:\n", "compose"),
        ("x-common: &c\n  a: b\n", "compose"),
        ('{"image": "a"}', "devcontainer"),
        ("// For format details\n/* and\n more */\n{", "devcontainer"),
        ("# syntax=docker/dockerfile:1\nFROM a\n", None),
        ("FROM a\nRUN echo 'services: none' && x\nservices:\n", None),
        ("from a\n", None),
        ("services are many\n", None),
        ("", None),
        (" " * 1_000_000, None),
        ("\n#" * 300_000, None),
        ("/*" * 300_000, None),
    ],
    ids=lambda value: repr(value[:20]) if value else "none",
)
def test_file_kinds_are_recognized_by_content(text: str, kind: str | None) -> None:
    for name in ("stack.yml", "standard input", "file"):
        assert is_compose_file(name, text) is (kind == "compose")
        assert is_devcontainer_file(name, text) is (kind == "devcontainer")


# ---------------------------------------------------------------- command


def run_check(tfdoctor: Tfdoctor, path: Path) -> tuple[int, list[dict[str, Any]]]:
    result = tfdoctor("build", "--check", str(path), "--json")
    validate(result.json, "build_check_services")
    for service_json in result.json["services"]:
        if service_json["check"] is not None:
            validate(service_json["check"], "build_check")
    text_result = tfdoctor("build", "--check", str(path))
    assert text_result.status == result.status
    assert is_clean(text_result.out)
    return result.status, result.json["services"]


def codes(service_json: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in service_json["check"]["findings"]]


def test_compose_file(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "Dockerfile").write_text(
        f"ARG TF=1.2\nFROM {IMAGE.replace('2.16.1', '${TF}')} AS run\nFROM alpine AS other\n",
        encoding="ascii",
    )
    path = tmp_path / "compose.yaml"
    build_line = 'build: {context: app, target: run, args: {TF: "2.16.1"}}'
    path.write_text(
        f"services:\n  good:\n    {build_line}\n    {GPU_LINES}\n  bad:\n    {build_line}\n"
        f"  hidden:\n    image: {IMAGE}\n    gpus: all\n    environment: [CUDA_VISIBLE_DEVICES=-1]\n"
        "  db:\n    image: postgres:16\n  unknown:\n    image: ${WHAT}\n  outside:\n    build: ../..\n",
        encoding="ascii",
    )
    status, services_json = run_check(tfdoctor, path)
    assert status == 1
    good, bad, hidden, db, unknown, outside = services_json
    assert good["check"]["base"]["image"] == IMAGE
    assert codes(bad) == ["TFD515", *codes(good)]
    assert codes(hidden) == codes(bad)
    assert bad["check"]["verdict"]["cause"] == "container-no-gpu"
    assert hidden["check"]["verdict"]["cause"] == "hidden-by-env"
    assert db["check"] is None
    assert "nothing shows that its image has TensorFlow" in db["not_checked"]
    assert unknown["check"] is None
    assert "variable" in unknown["not_checked"]
    assert outside["check"] is None
    (evidence,) = next(finding for finding in bad["check"]["findings"] if finding["code"] == "TFD515")[
        "evidence"
    ]
    assert (evidence["source"], evidence["line"]) == (str(path), 6)


def test_dev_container(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    folder = tmp_path / ".devcontainer"
    folder.mkdir()
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\n", encoding="ascii")
    path = folder / "devcontainer.json"
    path.write_text('{"build": {"dockerfile": "../Dockerfile", "context": ".."}}', encoding="ascii")
    status, (service_json,) = run_check(tfdoctor, path)
    assert (status, service_json["service"], service_json["gpu_given"]) == (1, None, False)
    (tmp_path / "compose.yml").write_text(
        f"services: {{a: {{image: '{IMAGE}', gpus: all}}}}\n", encoding="ascii"
    )
    path.write_text('{"dockerComposeFile": "../compose.yml", "service": "a"}', encoding="ascii")
    status, (service_json,) = run_check(tfdoctor, path)
    assert (service_json["service"], service_json["gpu_given"]) == ("a", True)
    path.write_text('{"dockerComposeFile": "../compose.yml", "service": "b"}', encoding="ascii")
    assert tfdoctor("build", "--check", str(path)).status == 2


def test_standard_input(tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    for content, status in ((f"FROM {IMAGE}\n", 0), ("FROM nvidia/cuda:10.0-base\n", 1), ("nothing\n", 2)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        result = tfdoctor("build", "--check", "-", "--json")
        assert result.status == status, result
        validate(result.json, "error" if status == 2 else "build_check")


def test_standard_input_of_other_kinds(
    tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read the files that they name from the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Dockerfile.gpu").write_text(f"FROM {IMAGE}\n", encoding="ascii")
    for content in (
        "services: {a: {build: {context: ., dockerfile: Dockerfile.gpu}, gpus: all}}\n",
        '{"build": {"dockerfile": "Dockerfile.gpu"}, "runArgs": ["--gpus", "all"]}\n',
        f'{{"image": "{IMAGE}", "runArgs": ["--gpus=all"]}}\n',
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        result = tfdoctor("build", "--check", "-", "--json")
        (service_json,) = result.json["services"]
        assert (result.status, service_json["gpu_given"], service_json["check"]["base"]["image"]) == (
            0,
            True,
            IMAGE,
        ), content


# ---------------------------------------------------------------- services without a GPU, requests without effect


def test_tensorboard_needs_no_gpu(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        f"services:\n  train:\n    image: {IMAGE}\n    {GPU_LINES}\n"
        "  board:\n    image: tensorflow/tensorflow:2.17.0\n    command: tensorboard --logdir /logs\n"
    )
    answer = tfdoctor("build", "--check", str(tmp_path / "compose.yaml"))
    assert answer.status == 0
    assert "it runs tensorboard, which needs no GPU" in " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1}]}}}",
            "lacks `capabilities: [gpu]`",
        ),
        ("{runtime: nvidia, environment: {NVIDIA_VISIBLE_DEVICES: none}}", "NVIDIA_VISIBLE_DEVICES"),
        ("image: x", ""),
    ],
)
def test_request_without_effect_is_named(lines: str, problem: str) -> None:
    start = parse_service(lines)
    assert start.has_gpu is False
    assert problem in start.gpu_problem
    assert bool(problem) is bool(start.gpu_problem)


@pytest.mark.parametrize(
    "command",
    [
        '"pip install tensorflow==2.15.1"',
        '["pip", "install", "tensorflow==2.15.1"]',
        '{"first": "true", "second": "pip install tensorflow==2.15.1"}',
    ],
)
def test_commands_after_creation_are_read(tfdoctor: Tfdoctor, tmp_path: Path, command: str) -> None:
    file = tmp_path / ".devcontainer" / "devcontainer.json"
    file.parent.mkdir()
    file.write_text(
        '{\n  "image": "python:3.11-bookworm",\n  "runArgs": ["--gpus=all"],\n  "postCreateCommand": '
        + command
        + "\n}\n"
    )
    answer = tfdoctor("build", "--check", str(file), "--json")
    (service,) = json.loads(answer.out)["services"]
    assert service["check"]["tensorflow"]["version"] == "2.15.1"
    finding = next(found for found in service["check"]["findings"] if found["code"] == "TFD201")
    assert {(item["source"], item["line"]) for item in finding["evidence"]} == {
        (str(file), 4),
        (str(file), 2),
    }


def test_requirements_of_the_project_are_read(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    file = tmp_path / ".devcontainer" / "devcontainer.json"
    file.parent.mkdir()
    (tmp_path / "requirements.txt").write_text("tensorflow[and-cuda]==2.19.0\n")
    file.write_text(
        '{"image": "python:3.11", "runArgs": ["--gpus=all"], "postCreateCommand": "pip install -r requirements.txt"}'
    )
    answer = tfdoctor("build", "--check", str(file), "--json")
    (service,) = json.loads(answer.out)["services"]
    assert service["check"]["tensorflow"]["version"] == "2.19.0"


DEVEL = "nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04"


def test_findings_cite_the_lines_and_settings_of_a_dev_container(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    """A Dockerfile is only made up from it: nobody finds FROM in the file."""
    file = tmp_path / "devcontainer.json"
    file.write_text(
        f'{{\n  "image": "{DEVEL}",\n  "containerEnv": {{\n    "CUDA_VISIBLE_DEVICES": "all"\n  }},\n'
        '  "postCreateCommand": "pip install tensorflow==2.12.1",\n  "runArgs": ["--gpus=all"]\n}\n'
    )
    _, (service_json,) = run_check(tfdoctor, file)
    findings = {finding["code"]: finding for finding in service_json["check"]["findings"]}
    assert findings["TFD515"]["evidence"][0]["line"] == 4
    (evidence,) = findings["TFD517"]["evidence"]
    assert (evidence["line"], evidence["text"]) == (2, f'"image": "{DEVEL}"')
    assert f'"image": "{DEVEL.replace("devel", "runtime")}"' in findings["TFD517"]["remedies"][0]["text"]


def test_service_gets_no_base_image_without_tensorflow(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    """Its file has no command that could install TensorFlow there."""
    file = tmp_path / "compose.yaml"
    file.write_text("services:\n  a:\n    image: tensorflow/tensorflow:2.15.0-gpu\n    gpus: all\n")
    _, (service_json,) = run_check(tfdoctor, file)
    commands = [
        command
        for finding in service_json["check"]["findings"]
        for remedy in finding["remedies"]
        for command in remedy["commands"]
    ]
    assert any("tfdoctor build --tf 2.15.0" in command for command in commands)
    assert not [command for command in commands if "nvidia/cuda" in command or command.startswith("RUN")]


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ("\n      A: b\n      CUDA_VISIBLE_DEVICES: ''\n", 7),
        ("\n      - CUDA_VISIBLE_DEVICES=none\n", 6),
    ],
)
def test_variable_of_a_service_is_cited(
    tfdoctor: Tfdoctor, tmp_path: Path, variables: str, line: int
) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(f"services:\n  train:\n    image: {IMAGE}\n    gpus: all\n    environment:{variables}")
    _, (service_json,) = run_check(tfdoctor, file)
    finding = next(found for found in service_json["check"]["findings"] if found["code"] == "TFD515")
    assert finding["evidence"][0]["line"] == line


POD = """\
# of a tutorial
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: train
      image: IMAGE
      resources: {limits: {nvidia.com/gpu: 1}}
      env:
        - name: A
          value: "1"
        - name: CUDA_VISIBLE_DEVICES
          value: none
"""


def test_pod_is_checked(tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = POD.replace("IMAGE", IMAGE)
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    _, (service_json,) = run_check(tfdoctor, file)
    assert (service_json["service"], service_json["gpu_given"]) == ("train", True)
    finding = next(found for found in service_json["check"]["findings"] if found["code"] == "TFD515")
    assert finding["evidence"][0]["line"] == 13
    assert "Started     container train" in tfdoctor("build", "--check", str(file)).out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert len(tfdoctor("build", "--check", "-", "--json").json["services"]) == 1
    file.write_text(text.replace("nvidia.com/gpu: 1", "cpu: 1"))
    refused = tfdoctor("build", "--check", str(file))
    assert refused.status == 2
    assert "no container in it asks for nvidia.com/gpu" in refused.err
