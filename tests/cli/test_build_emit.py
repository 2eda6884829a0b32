"""`tfdoctor build --emit`: the plan in other forms, and the folder that `docker build` needs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cli.planner import Tfdoctor
from tfdoctor.cli import build_emit
from tfdoctor.images.engine import EngineError, RegistryReply
from tfdoctor.images.folder import FILE_DESCRIPTIONS

if TYPE_CHECKING:
    from pathlib import Path

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
BUILD_215 = ("build", "--tf", "2.15.1", "--python-version", "3.11")
EMIT_CONTEXT = (*BUILD_215, "--emit", "context")
SH = shutil.which("sh") or "/bin/sh"
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    return Tfdoctor(monkeypatch, capsys)


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the content of each file of a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------- build context


def test_folder_is_the_build_context(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "image"
    result = tfdoctor(*EMIT_CONTEXT, str(folder), "--package", "six")
    assert (result.status, result.err) == (0, "")
    files = read_folder(folder)
    assert files["Dockerfile"].decode() == tfdoctor(*BUILD_215, "--print", "--package", "six").out
    copied = re.findall(r"^COPY (.+) \S+$", files["Dockerfile"].decode(), re.MULTILINE)
    names = {source for line in copied for source in line.split()}
    assert files.keys() == names | {"Dockerfile", "README.md", ".dockerignore", "sbom.cdx.json"}
    assert {"*", *(f"!{name}" for name in names)} == set(files[".dockerignore"].decode().split())
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in files} == {0o644}
    assert [path.name for path in folder.parent.iterdir()] == ["image"], "nothing beside it"
    readme = files["README.md"].decode()
    assert (
        "tfdoctor build --tf 2.15.1 --python-version 3.11 --recipe pip-cuda --anywhere --package six\n"
        in readme
    )
    assert "docker build -t localhost/tfdoctor/tensorflow:2.15.1-cuda12.2-py3.11 .\n" in readme
    assert '-v "$PWD":/workspace -v tensorflow-cuda-cache:/var/cache/cuda' in readme
    assert all(f"| `{name}` |" in readme for name in files if name != "README.md")
    assert f"docker build -t localhost/tfdoctor/tensorflow:2.15.1-cuda12.2-py3.11 {folder}" in result.out


@pytest.mark.parametrize(
    ("tf", "recipe"), [("2.4.4", "cuda-base"), ("1.14", "official"), ("1.15.5", "ngc"), ("2.10", "pip-cuda")]
)
def test_readme_describes_every_file(tfdoctor: Tfdoctor, tmp_path: Path, tf: str, recipe: str) -> None:
    (tmp_path / "ca.pem").write_text(PEM, encoding="ascii")
    arguments = ("build", "--tf", tf, "--recipe", recipe, "--emit", "context", "--package", "six")
    assert tfdoctor(*arguments, "--ca-cert", str(tmp_path / "ca.pem"), str(tmp_path / "d")).status == 0
    assert read_folder(tmp_path / "d").keys() - {"README.md"} <= FILE_DESCRIPTIONS.keys()


def test_second_run_changes_nothing(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    assert tfdoctor(*EMIT_CONTEXT, str(tmp_path)).status == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    second = tfdoctor(*EMIT_CONTEXT, str(tmp_path))
    assert second.status == 0
    assert "unchanged: .dockerignore, Dockerfile," in second.out
    assert "new:" not in second.out
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_existing_files_are_replaced_only_with_force(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print()\n", encoding="ascii")
    (tmp_path / "README.md").write_text("mine\n", encoding="ascii")
    refused = tfdoctor(*EMIT_CONTEXT, str(tmp_path))
    assert (refused.status, refused.out) == (2, "")
    assert "has README.md already, with different content." in refused.err
    assert read_folder(tmp_path) == {"mine.py": b"print()\n", "README.md": b"mine\n"}
    dry_run = tfdoctor(*EMIT_CONTEXT, str(tmp_path), "--dry-run")
    assert dry_run.status == 0
    assert "Nothing was written." in dry_run.out
    assert "replaced: README.md" in dry_run.out
    assert read_folder(tmp_path) == {"mine.py": b"print()\n", "README.md": b"mine\n"}
    assert tfdoctor(*EMIT_CONTEXT, str(tmp_path), "--force").status == 0
    assert read_folder(tmp_path)["README.md"].startswith(b"# TensorFlow 2.15.1")
    assert read_folder(tmp_path)["mine.py"] == b"print()\n"


@pytest.mark.parametrize("new", [True, False], ids=["new", "there"])
def test_no_partial_folder_is_left(
    tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    folder = tmp_path / "image"
    if not new:
        folder.mkdir()
        (folder / "Dockerfile").write_text("FROM mine\n", encoding="ascii")
    before = read_folder(folder) if folder.exists() else None
    calls = []
    original = build_emit.place_file

    def fail_to_place(target: Path, content: bytes, *, force: bool) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        original(target, content, force=force)

    def fail_to_touch(path: Path, _times: Any) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(build_emit, "place_file", fail_to_place)
    monkeypatch.setattr(os, "utime", fail_to_touch)
    result = tfdoctor(*EMIT_CONTEXT, str(folder), "--force")
    assert result.status == 3
    assert "No space left on device" in result.err
    assert (read_folder(folder) if folder.exists() else None) == before
    assert [path.name for path in tmp_path.iterdir()] == ([] if new else ["image"])


def test_invalid_folders_are_refused(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "Dockerfile").symlink_to(tmp_path / "file")
    for name in ("file", "nowhere", "linked"):
        result = tfdoctor(*EMIT_CONTEXT, str(tmp_path / name), "--force")
        assert (result.status, result.out) == (2, ""), name
    assert (tmp_path / "file").read_text(encoding="ascii") == ""
    assert tfdoctor(*EMIT_CONTEXT, str(tmp_path / "file" / "below")).status in (2, 3)


@pytest.mark.parametrize(
    "words",
    [
        ("--emit", "context"),
        ("folder",),
        ("--print", "folder"),
        ("--emit", "compose", "folder"),
        ("--emit", "compose", "--force"),
        ("--emit", "compose", "--print"),
        ("--emit", "context", "folder", "--json"),
        ("--push",),
        ("--push", "--tag", "x/y:1", "--dry-run"),
        ("--uid", "-1"),
        ("--uid", "4294967295"),
    ],
    ids=" ".join,
)
def test_incompatible_options_are_refused(
    tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tfdoctor(*BUILD_215, *words).status == 2
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- options in the output


def test_command_has_every_option(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "my r.txt").write_text("pandas\n", encoding="ascii")
    (tmp_path / "ca.pem").write_text(PEM, encoding="ascii")
    options = (
        *("-r", str(tmp_path / "my r.txt"), "--package", "scipy<1.12", "--package", "six"),
        *("--registry", "mirror.example:5000", "--index", "https://mirror.example/simple/"),
        *("--ca-cert", str(tmp_path / "ca.pem"), "--network", "host", "--platform", "linux/amd64"),
        *("--uid", "1234", "--tag", "mine:1"),
    )
    for form in ("compose", "k8s", "apptainer", "devcontainer"):
        text = tfdoctor(*BUILD_215, *options, "--gpu", "RTX 3090", "--driver", "550", "--emit", form).out
        if form == "devcontainer":
            text = json.loads(text)["customizations"]["tfdoctor"]["build"]
        command = text[text.index("tfdoctor build") :].split("\n", 1)[0]
        parsed = shlex.split(command)
        assert parsed[:8] == [
            *("tfdoctor", "build", "--tf", "2.15.1", "--python-version", "3.11"),
            "--recipe",
            "pip-cuda",
        ]
        expected = ["--gpu", "RTX 3090", "--driver", "550", *options]
        assert parsed[8 : 8 + len(expected)] == expected, command


def test_docker_command_has_the_build_options(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    folder = tmp_path / "my folder"
    options = ("--network", "a b$(x)", "--platform", "linux/amd64", "--tag", "mine:1")
    output = tfdoctor(*BUILD_215, *options, "--emit", "context", str(folder)).out
    build_options = ["--platform", "linux/amd64", "--network", "a b$(x)"]
    (line,) = [
        output_line.partition(":")[2]
        for output_line in output.splitlines()
        if output_line.startswith("Build it:")
    ]
    assert shlex.split(line) == ["docker", "build", *build_options, "-t", "mine:1", str(folder)]
    readme = (folder / "README.md").read_text(encoding="utf-8")
    lines = [
        output_line.partition("   #")[0]
        for output_line in readme.splitlines()
        if re.match(r"(docker|podman) (buildx )?build ", output_line)
    ]
    assert [output_line.split()[0] for output_line in lines] == ["docker", "podman", "docker"]
    for line in lines:
        arguments = shlex.split(line)
        index = arguments.index("--platform")
        assert arguments[index : index + 4] == build_options
        assert arguments[-3:] == ["-t", "mine:1", "."]


def test_machine_options_are_not_repeated(tfdoctor: Tfdoctor) -> None:
    text = tfdoctor(
        "build", "--tf", "1.15", "--gpu", "A100", "--driver", "525", "--emit", "compose"
    ).out.splitlines()[0]
    assert text.count("--gpu ") == text.count("--driver ") == 1


def test_file_name_cannot_end_the_comment(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    hostile = tmp_path / "r\nimage: evil"
    hostile.write_text("six\n", encoding="ascii")
    text = tfdoctor(*BUILD_215, "-r", str(hostile), "--emit", "compose").out
    assert list(yaml.safe_load(text)) == ["services", "volumes"]


def test_compose(tfdoctor: Tfdoctor) -> None:
    text = tfdoctor("build", "--tf", "2.15.1", "--python-version", "3.10", "--emit", "compose").out
    assert text.splitlines()[0] == (
        "# tfdoctor build --tf 2.15.1 --python-version 3.10 --recipe pip-cuda --anywhere makes the image. "
        "So does `docker compose build`, after"
    )
    document = yaml.safe_load(text)
    service = document["services"]["tensorflow"]
    assert service["image"] == "localhost/tfdoctor/tensorflow:2.15.1-cuda12.2-py3.10"
    assert service["build"] == "./tensorflow-image"
    assert (service["shm_size"], service["ulimits"]) == ("1gb", {"memlock": -1})
    assert service["user"] == "1000"
    assert service["volumes"] == [".:/workspace", "tensorflow-cuda-cache:/var/cache/cuda"]
    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    ]
    assert list(document["volumes"]) == ["tensorflow-cuda-cache"]


def test_devcontainer(tfdoctor: Tfdoctor) -> None:
    document = json.loads(tfdoctor("build", "--tf", "2.15.1", "--emit", "devcontainer", "--uid", "7").out)
    assert document["build"] == {
        "dockerfile": "./tensorflow-image/Dockerfile",
        "context": "./tensorflow-image",
    }
    assert document["runArgs"] == ["--gpus", "all"]
    assert document["containerUser"] == "7"
    assert document["mounts"] == ["source=tensorflow-cuda-cache,target=/var/cache/cuda,type=volume"]


@pytest.mark.parametrize(("uid", "root"), [("1000", True), ("0", None)])
def test_k8s(tfdoctor: Tfdoctor, uid: str, root: bool | None) -> None:
    options = ("--tag", "registry.example/x:1", "--uid", uid)
    pod = yaml.safe_load(tfdoctor(*BUILD_215, "--emit", "k8s", *options).out)
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    assert pod["spec"]["securityContext"].get("runAsNonRoot") is root
    assert pod["spec"]["securityContext"]["runAsUser"] == int(uid)
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example/x:1"
    assert container["command"][0] == "/opt/tensorflow/bin/python"
    compile(container["command"][2], "command", "exec")
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    (mount,) = container["volumeMounts"]
    assert mount == {"name": pod["spec"]["volumes"][0]["name"], "mountPath": "/var/cache/cuda"}


@pytest.mark.parametrize("form", ["compose", "devcontainer"])
def test_emitted_service_has_a_gpu(tfdoctor: Tfdoctor, tmp_path: Path, form: str) -> None:
    name = {"compose": "compose.yaml", "devcontainer": "devcontainer.json"}[form]
    (tmp_path / name).write_text(tfdoctor(*BUILD_215, "--emit", form).out, encoding="utf-8")
    result = tfdoctor("build", "--check", str(tmp_path / name), "--json")
    assert result.status == 0
    assert [service["gpu_given"] for service in result.json["services"]] == [True]


@pytest.mark.parametrize(
    ("tf", "recipe", "usable"),
    [
        ("2.8.4", "pip-cuda", True),
        ("2.17.1", "cuda-base", True),
        ("1.14", "official", True),
        ("2.4", "conda-cuda", None),
        ("1.15.5", "ngc", True),
    ],
)
def test_emitted_dockerfile_passes_the_check(
    tfdoctor: Tfdoctor, tmp_path: Path, tf: str, recipe: str, usable: bool | None
) -> None:
    """Give no verdict for the conda recipe: its Dockerfile does not tell what conda installs."""
    tfdoctor("build", "--tf", tf, "--recipe", recipe, "--emit", "context", str(tmp_path / "here"))
    result = tfdoctor("build", "--check", str(tmp_path / "here/Dockerfile"), "--json")
    assert (result.status, result.json["verdict"]["gpu_usable"]) == (0, usable), result.json


# ---------------------------------------------------------------- Apptainer


SECTIONS = ["post", "environment", "labels", "runscript"]


def parse_sections(text: str) -> tuple[str, dict[str, str]]:
    """Return the header and the lines of each section; every line that begins with % starts a section."""
    header, *parts_text = re.split(r"^%", text, flags=re.MULTILINE)
    parts = [section.partition("\n") for section in parts_text]
    assert len({name for name, _, _ in parts}) == len(parts)
    return header, {name: body for name, _, body in parts}


@pytest.mark.parametrize(
    ("tf", "recipe"),
    [("2.15.1", "pip-cuda"), ("2.4.4", "cuda-base"), ("1.14", "official"), ("1.15.5", "ngc")],
)
def test_apptainer(tfdoctor: Tfdoctor, tmp_path: Path, tf: str, recipe: str) -> None:
    (tmp_path / "ca.pem").write_text(PEM, encoding="ascii")
    arguments = (
        "build",
        "--tf",
        tf,
        "--recipe",
        recipe,
        "--package",
        "six",
        "--ca-cert",
        str(tmp_path / "ca.pem"),
    )
    header, section_texts = parse_sections(tfdoctor(*arguments, "--emit", "apptainer").out)
    dockerfile = tfdoctor(*arguments, "--print", "--uid", "0").out
    base = re.search(r"^FROM (.+)$", dockerfile, re.MULTILINE)
    assert base is not None
    assert header.endswith(f"\nBootstrap: docker\nFrom: {base[1]}\n\n"), "no engine is asked"
    assert list(section_texts) == SECTIONS
    for step in re.findall(r"^RUN ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE):
        assert step in section_texts["post"], "the same steps"
    for name in ("post", "runscript", "environment"):
        subprocess.run([SH, "-n"], input=section_texts[name], text=True, check=True)
    command = json.loads(dockerfile.rpartition("\nCMD ")[2])
    assert section_texts["runscript"].strip() == f'exec {command[0]} "$@"'
    assert "HOME=" not in section_texts["environment"]
    assert "NVIDIA_VISIBLE_DEVICES=all" in section_texts["environment"]
    assert "org.opencontainers.image.title TensorFlow " in section_texts["labels"]
    assert not re.search(r"settle\.sh .* 1000", section_texts["post"])
    assert "useradd" not in section_texts["post"].replace("|| useradd", "")


def test_apptainer_definition_with_two_stages(tfdoctor: Tfdoctor) -> None:
    """Copy from the first stage what the Dockerfile copies from its first image."""
    arguments = ("build", "--tf", "1.14", "--recipe", "conda-cuda", "--package", "six")
    text = tfdoctor(*arguments, "--emit", "apptainer").out
    comment, *stages = re.split(r"^(?=Bootstrap: )", text, flags=re.MULTILINE)
    first, last = (parse_sections(stage) for stage in stages)
    assert comment.startswith("#")
    assert not re.search(r"bootstrap|from:", comment, re.IGNORECASE), (
        "some tools take such a comment for a header"
    )
    assert re.fullmatch(r"Bootstrap: docker\nFrom: mambaorg/micromamba:\S+\nStage: cuda\n\n", first[0])
    assert last[0] == "Bootstrap: docker\nFrom: python:3.7-slim-bookworm\nStage: image\n\n"
    assert list(first[1]) == ["post"]
    assert list(last[1]) == ["files from cuda", *SECTIONS]
    assert last[1]["files from cuda"].split() == ["/tmp/libraries", "/opt/cuda/lib"]
    dockerfile = tfdoctor(*arguments, "--print", "--uid", "0").out
    for step in re.findall(r"^RUN ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE):
        assert (step in first[1]["post"]) is ("micromamba" in step)
        assert (step in last[1]["post"]) is ("micromamba" not in step)
    for post in (first[1]["post"], last[1]["post"]):
        subprocess.run([SH, "-n"], input=post, text=True, check=True)


def test_apptainer_files_equal_the_context(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    """Write the same bytes that the Dockerfile copies."""
    _, section_texts = parse_sections(tfdoctor(*BUILD_215, "--package", "six", "--emit", "apptainer").out)
    tfdoctor(*EMIT_CONTEXT, "--package", "six", str(tmp_path / "context"))
    share = "/usr/local/share/tfdoctor"
    commands = re.findall(
        r"^mkdir -p .+\n(?:sed .+\n(?:\|.*\n)*END-OF-FILE\n)", section_texts["post"], re.MULTILINE
    )
    script = "".join(commands).replace(share, str(tmp_path / "made"))
    subprocess.run([SH, "-e"], input=script, text=True, check=True)
    written = read_folder(tmp_path / "made")
    assert written.keys() == {
        "tools.txt",
        "cuda.txt",
        "tensorflow.txt",
        "strip.py",
        "settle.sh",
        "constraints.txt",
        "requirements.txt",
        "sbom.cdx.json",
    }
    assert written == {name: read_folder(tmp_path / "context")[name] for name in written}


# ---------------------------------------------------------------- lists


def test_requirements(tfdoctor: Tfdoctor) -> None:
    lines = tfdoctor(
        "build", "--tf", "2.8.4", "--recipe", "pip-cuda", "--emit", "requirements"
    ).out.splitlines()
    assert lines[0].startswith("# pip install --no-deps --require-hashes")
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+(?: --hash=sha256:[0-9a-f]{64})+", line) for line in lines[1:])
    names = [line.split("==")[0] for line in lines[1:]]
    assert len(names) == len(set(names))
    assert {"tensorflow", "protobuf", "numpy", "nvidia-cudnn-cu11"} <= {*names}


def test_requirements_list_unpinned_packages_as_comments(tfdoctor: Tfdoctor) -> None:
    arguments = ("build", "--tf", "2.8.4", "--recipe", "pip-cuda", "--emit", "requirements")
    extended = tfdoctor(*arguments, "--package", "pandas>=1", "--package", "six").out.splitlines()
    added = [line for line in extended if line not in tfdoctor(*arguments).out.splitlines()]
    assert [line[2:].strip() for line in added[-2:]] == ["pandas>=1", "six"]
    assert all(line.startswith("#") for line in added)


def test_sbom(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    arguments = (*BUILD_215, "--package", "pandas>=2")
    text = tfdoctor(*arguments, "--emit", "sbom").out
    assert text == tfdoctor(*arguments, "--emit", "sbom").out
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    base, *packages = document["components"]
    assert (base["type"], base["name"]) == ("container", "python:3.11-slim-bookworm")
    tfdoctor(*arguments, "--emit", "context", str(tmp_path))
    files = read_folder(tmp_path)
    assert files["sbom.cdx.json"].decode() == text
    assert "COPY sbom.cdx.json /usr/local/share/tfdoctor/\n" in files["Dockerfile"].decode(), (
        "in the image, too"
    )
    lines = [
        line.split()
        for name in ("tools.txt", "cuda.txt", "tensorflow.txt")
        for line in files[name].decode().splitlines()
    ]
    lines = [list(line) for line in dict.fromkeys(tuple(line) for line in lines)]
    assert len({component["bom-ref"] for component in document["components"]}) == len(lines) + 1
    assert [f"{component['name']}=={component['version']}" for component in packages] == [
        line[0] for line in lines
    ]
    for component, line in zip(packages, lines, strict=True):
        digests = [item["content"] for item in component.get("hashes", ())]
        digests += [item["value"] for item in component.get("properties", ())]
        assert [f"--hash=sha256:{item}" for item in digests] == line[1:]
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version'].replace('+', '%2B')}"
    assert document["dependencies"] == [
        {"ref": "image", "dependsOn": [component["bom-ref"] for component in document["components"]]}
    ]
    unpinned = [
        component["value"]
        for component in document["metadata"]["properties"]
        if component["name"] == "tfdoctor:not-pinned"
    ]
    assert unpinned == ["pandas>=2"]


# ---------------------------------------------------------------- base image and user


def test_pin_names_the_base_by_its_digest(tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        RegistryReply("x", "there", DIGEST, ""),
        RegistryReply("x", "there", None, ""),
        RegistryReply("x", "unreachable", None, "the registry x does not answer: no network"),
    ]
    monkeypatch.setattr("tfdoctor.images.engine.query_registry", lambda *_, **__: answers.pop(0))
    text = tfdoctor(*BUILD_215, "--pin", "--print").out
    assert f"\nFROM python:3.11-slim-bookworm@{DIGEST}\n" in text
    assert f'org.opencontainers.image.base.digest="{DIGEST}"' in text
    assert 'org.opencontainers.image.base.name="python:3.11-slim-bookworm"' in text
    for reason in ("gives no digest", "no network"):
        result = tfdoctor(*BUILD_215, "--pin", "--print")
        assert (result.status, result.out) == (3, "")
        assert reason in result.err


def test_uninspected_base_is_reported(tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_engine_error() -> None:
        raise EngineError("no container engine answers.", hint="")

    monkeypatch.setattr("tfdoctor.images.engine.connect", raise_engine_error)
    result = tfdoctor(*BUILD_215, "--base", "debian:bookworm", "--print")
    assert result.status == 0
    assert "Note: debian:bookworm was not examined: no container engine answers." in result.err
    assert "docker pull debian:bookworm" in result.err


@pytest.mark.parametrize("uid", ["0", "1234", "4294967294"])
def test_user_of_the_image(tfdoctor: Tfdoctor, uid: str) -> None:
    text = tfdoctor(*BUILD_215, "--uid", uid, "--print").out
    assert f"\nUSER {uid}\nWORKDIR" in text
    command = f'settle.sh "$since" /opt/tensorflow/bin/python {uid} /opt/tensorflow\n'
    assert (command in text) is (uid != "0"), "root needs no owner: files of other layers would be copied"


# ---------------------------------------------------------------- index with a login


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a netrc file that has the login of pypi.example."""
    path = tmp_path / "netrc"
    path.write_text("machine pypi.example login me password s3:Zq\n", encoding="ascii")
    monkeypatch.setenv("NETRC", str(path))
    return path


@pytest.mark.usefixtures("netrc")
@pytest.mark.parametrize(
    "form", ["--print", "compose", "devcontainer", "k8s", "requirements", "sbom", "context"]
)
def test_password_of_the_index_is_in_no_emitted_file(tfdoctor: Tfdoctor, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "image"
    options = ["--print"] if form == "--print" else ["--emit", form]
    options += [str(folder)] if form == "context" else []
    result = tfdoctor(*BUILD_215, "--index", "https://pypi.example/simple/", *options)
    assert result.status == 0, result.err
    text = result.out + result.err
    if form == "context":
        text += b"".join(read_folder(folder).values()).decode()
    assert "Zq" not in text
    assert ("--mount=type=secret,id=pip.conf,required=true" in text) is (form in ("--print", "context"))
    assert (".config/pip/pip.conf" in text) is (form in ("compose", "devcontainer", "context"))
    if form == "compose":
        document = yaml.safe_load(text)
        assert document["services"]["tensorflow"]["build"]["secrets"] == [*document["secrets"]]


@pytest.mark.usefixtures("netrc")
def test_apptainer_has_no_secrets(tfdoctor: Tfdoctor) -> None:
    result = tfdoctor(*BUILD_215, "--index", "https://pypi.example/", "--emit", "apptainer")
    assert (result.status, "no secrets" in result.err) == (2, True)


# ---------------------------------------------------------------- own code


def test_build_folder_has_the_own_code(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    code, folder = tmp_path / "code", tmp_path / "image"
    (code / "lib").mkdir(parents=True)
    (code / "lib" / "a.py").write_text("pass\n", encoding="ascii")
    (code / "run.sh").write_text("#!/bin/sh\n", encoding="ascii")
    (code / "run.sh").chmod(0o700)
    options = ("--copy", str(code), "--entrypoint", "./run.sh --fast", "--dev")
    result = tfdoctor(*EMIT_CONTEXT, str(folder), *options)
    assert (result.status, result.err) == (0, "")
    assert "app/" in result.out
    assert "a.py" not in result.out
    assert (folder / "app" / "lib" / "a.py").read_bytes() == b"pass\n"
    modes = [stat.S_IMODE((folder / "app" / name).stat().st_mode) for name in ("run.sh", "lib/a.py")]
    assert modes == [0o755, 0o644]
    assert "\n!app\n" in (folder / ".dockerignore").read_text(encoding="ascii")
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "| `app/` | your code |" in readme
    assert f"--dev --copy {code} --entrypoint './run.sh --fast'" in readme
    assert (folder / "Dockerfile").read_text(encoding="utf-8").endswith('ENTRYPOINT ["./run.sh", "--fast"]\n')
    (code / "lib" / "b.py").write_text("pass\n", encoding="ascii")
    (code / "run.sh").write_text("#!/bin/sh\nexit\n", encoding="ascii")
    assert tfdoctor(*EMIT_CONTEXT, str(folder), *options).status == 2
    assert tfdoctor(*EMIT_CONTEXT, str(folder), *options, "--force").status == 0
    assert (folder / "app" / "lib" / "b.py").exists()
    assert stat.S_IMODE((folder / "app" / "run.sh").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "options",
    [
        ("--entrypoint", ""),
        ("--entrypoint", "python 'x"),
        ("--entrypoint", "python\x1b x"),
        ("--copy", "/nowhere"),
        ("--entrypoint", "python", "--emit", "apptainer"),
    ],
)
def test_wrong_own_code_is_refused(tfdoctor: Tfdoctor, options: tuple[str, ...]) -> None:
    result = tfdoctor(*BUILD_215, *(options if "--emit" in options else (*options, "--print")))
    assert (result.status, result.out) == (2, "")
    assert options[0] in result.err


def test_files_of_an_earlier_copy_are_refused(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    """A file that --copy leaves out now would still get into the image."""
    project, context = tmp_path / "project", tmp_path / "context"
    project.mkdir()
    (project / "a.py").write_text("x")
    (project / "dump.json").write_text("x")
    arguments = ["--tf", "2.20", "--anywhere", "--emit", "context", str(context), "--copy", str(project)]
    assert tfdoctor("build", *arguments).status == 0
    (project / ".dockerignore").write_text("dump.json\n")
    for force in ([], ["--force"]):
        result = tfdoctor("build", *arguments, *force)
        assert (result.status, "app/dump.json" in result.err) == (2, True)
    (context / "app/dump.json").unlink()
    assert tfdoctor("build", *arguments, "--force").status == 0
