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
from tfdoctor.dockerfile.folder import ABOUT
from tfdoctor.engine import EngineError, RegistryAnswer

if TYPE_CHECKING:
    from pathlib import Path

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
WISH = ("build", "--tf", "2.15.1", "--python", "3.11")
CONTEXT = (*WISH, "--emit", "context")
SH = shutil.which("sh") or "/bin/sh"
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    return Tfdoctor(monkeypatch, capsys)


def list_present(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------- the folder


def test_the_folder_is_what_a_build_sends(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "image"
    ended = tfdoctor(*CONTEXT, str(folder), "--package", "six")
    assert (ended.status, ended.err) == (0, "")
    files = list_present(folder)
    assert files["Dockerfile"].decode() == tfdoctor(*WISH, "--print", "--package", "six").out
    copied = re.findall(r"^COPY (.+) \S+$", files["Dockerfile"].decode(), re.MULTILINE)
    names = {word for line in copied for word in line.split()}
    assert files.keys() == names | {"Dockerfile", "README.md", ".dockerignore", "sbom.cdx.json"}
    assert {"*", *(f"!{name}" for name in names)} == set(files[".dockerignore"].decode().split())
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in files} == {0o644}
    assert [path.name for path in folder.parent.iterdir()] == ["image"], "nothing beside it"
    readme = files["README.md"].decode()
    assert "tfdoctor build --tf 2.15.1 --python 3.11 --recipe pip-cuda --anywhere --package six\n" in readme
    assert "docker build -t tfdoctor/tensorflow:2.15.1-cuda12.2-py3.11 .\n" in readme
    assert '-v "$PWD":/workspace -v tensorflow-cuda-cache:/var/cache/cuda' in readme
    assert all(f"| `{name}` |" in readme for name in files if name != "README.md")
    assert f"docker build -t tfdoctor/tensorflow:2.15.1-cuda12.2-py3.11 {folder}" in ended.out


@pytest.mark.parametrize(
    ("tf", "recipe"), [("2.4.4", "cuda-base"), ("1.14", "official"), ("1.15.5", "ngc"), ("2.10", "pip-cuda")]
)
def test_every_file_of_every_recipe_is_told(tfdoctor: Tfdoctor, tmp_path: Path, tf: str, recipe: str) -> None:
    (tmp_path / "ca.pem").write_text(PEM, encoding="ascii")
    wish = ("build", "--tf", tf, "--recipe", recipe, "--emit", "context", "--package", "six")
    assert tfdoctor(*wish, "--ca-cert", str(tmp_path / "ca.pem"), str(tmp_path / "d")).status == 0
    assert list_present(tmp_path / "d").keys() - {"README.md"} <= ABOUT.keys()


def test_a_second_time_changes_nothing(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    assert tfdoctor(*CONTEXT, str(tmp_path)).status == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = tfdoctor(*CONTEXT, str(tmp_path))
    assert again.status == 0
    assert "unchanged: .dockerignore, Dockerfile," in again.out
    assert "new:" not in again.out
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_what_is_there_is_replaced_where_that_was_asked_for(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print()\n", encoding="ascii")
    (tmp_path / "README.md").write_text("mine\n", encoding="ascii")
    ended = tfdoctor(*CONTEXT, str(tmp_path))
    assert (ended.status, ended.out) == (2, "")
    assert "has README.md already, with different content." in ended.err
    assert list_present(tmp_path) == {"mine.py": b"print()\n", "README.md": b"mine\n"}
    dry = tfdoctor(*CONTEXT, str(tmp_path), "--dry-run")
    assert dry.status == 0
    assert "Nothing was written." in dry.out
    assert "replaced: README.md" in dry.out
    assert list_present(tmp_path) == {"mine.py": b"print()\n", "README.md": b"mine\n"}
    assert tfdoctor(*CONTEXT, str(tmp_path), "--force").status == 0
    assert list_present(tmp_path)["README.md"].startswith(b"# TensorFlow 2.15.1")
    assert list_present(tmp_path)["mine.py"] == b"print()\n"


@pytest.mark.parametrize("new", [True, False], ids=["new", "there"])
def test_half_a_folder_is_never_left(
    tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    folder = tmp_path / "image"
    if not new:
        folder.mkdir()
        (folder / "Dockerfile").write_text("FROM mine\n", encoding="ascii")
    before = list_present(folder) if folder.exists() else None
    calls = []
    original = build_emit.place_file

    def full(target: Path, content: bytes, *, force: bool) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        original(target, content, force=force)

    def full_too(path: Path, _times: Any) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(build_emit, "place_file", full)
    monkeypatch.setattr(os, "utime", full_too)
    ended = tfdoctor(*CONTEXT, str(folder), "--force")
    assert ended.status == 3
    assert "No space left on device" in ended.err
    assert (list_present(folder) if folder.exists() else None) == before
    assert [path.name for path in tmp_path.iterdir()] == ([] if new else ["image"])


def test_places_that_are_no_folder(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "Dockerfile").symlink_to(tmp_path / "file")
    for name in ("file", "nowhere", "linked"):
        ended = tfdoctor(*CONTEXT, str(tmp_path / name), "--force")
        assert (ended.status, ended.out) == (2, ""), name
    assert (tmp_path / "file").read_text(encoding="ascii") == ""
    assert tfdoctor(*CONTEXT, str(tmp_path / "file" / "below")).status in (2, 3)


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
def test_what_does_not_go_together(
    tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tfdoctor(*WISH, *words).status == 2
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- nothing that was asked for is lost


def test_every_option_is_in_the_command(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "my r.txt").write_text("pandas\n", encoding="ascii")
    (tmp_path / "ca.pem").write_text(PEM, encoding="ascii")
    words = (
        *("-r", str(tmp_path / "my r.txt"), "--package", "scipy<1.12", "--package", "six"),
        *("--registry", "mirror.example:5000", "--index", "https://mirror.example/simple/"),
        *("--ca-cert", str(tmp_path / "ca.pem"), "--network", "host", "--platform", "linux/amd64"),
        *("--uid", "1234", "--tag", "mine:1"),
    )
    for form in ("compose", "k8s", "apptainer", "devcontainer"):
        text = tfdoctor(*WISH, *words, "--gpu", "RTX 3090", "--driver", "550", "--emit", form).out
        if form == "devcontainer":
            text = json.loads(text)["customizations"]["tfdoctor"]["image"]
        command = text[text.index("tfdoctor build") :].split("\n", 1)[0]
        asked = shlex.split(command)
        assert asked[:8] == [
            *("tfdoctor", "build", "--tf", "2.15.1", "--python", "3.11"),
            "--recipe",
            "pip-cuda",
        ]
        rest = ["--gpu", "RTX 3090", "--driver", "550", *words]
        assert asked[8 : 8 + len(rest)] == rest, command


def test_docker_is_told_what_tfdoctor_was(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    folder = tmp_path / "my folder"
    words = ("--network", "a b$(x)", "--platform", "linux/amd64", "--tag", "mine:1")
    told = tfdoctor(*WISH, *words, "--emit", "context", str(folder)).out
    given = ["--platform", "linux/amd64", "--network", "a b$(x)"]
    (line,) = [one.partition(":")[2] for one in told.splitlines() if one.startswith("Build it:")]
    assert shlex.split(line) == ["docker", "build", *given, "-t", "mine:1", str(folder)]
    readme = (folder / "README.md").read_text(encoding="utf-8")
    lines = [
        one.partition("   #")[0]
        for one in readme.splitlines()
        if re.match(r"(docker|podman) (buildx )?build ", one)
    ]
    assert [one.split()[0] for one in lines] == ["docker", "podman", "docker"]
    for line in lines:
        words_of = shlex.split(line)
        at = words_of.index("--platform")
        assert words_of[at : at + 4] == given
        assert words_of[-3:] == ["-t", "mine:1", "."]


def test_the_machine_is_named_once(tfdoctor: Tfdoctor) -> None:
    text = tfdoctor(
        "build", "--tf", "1.15", "--gpu", "A100", "--driver", "525", "--emit", "compose"
    ).out.splitlines()[0]
    assert text.count("--gpu ") == text.count("--driver ") == 1


def test_a_name_cannot_end_the_comment(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    hostile = tmp_path / "r\nimage: evil"
    hostile.write_text("six\n", encoding="ascii")
    text = tfdoctor(*WISH, "-r", str(hostile), "--emit", "compose").out
    assert list(yaml.safe_load(text)) == ["services", "volumes"]


def test_compose(tfdoctor: Tfdoctor) -> None:
    text = tfdoctor("build", "--tf", "2.15.1", "--python", "3.10", "--emit", "compose").out
    assert text.splitlines()[0] == (
        "# tfdoctor build --tf 2.15.1 --python 3.10 --recipe pip-cuda --anywhere makes the image."
    )
    found = yaml.safe_load(text)
    service = found["services"]["tensorflow"]
    assert service["image"] == "tfdoctor/tensorflow:2.15.1-cuda12.2-py3.10"
    assert service["user"] == "1000"
    assert service["volumes"] == [".:/workspace", "tensorflow-cuda-cache:/var/cache/cuda"]
    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    ]
    assert list(found["volumes"]) == ["tensorflow-cuda-cache"]


def test_devcontainer(tfdoctor: Tfdoctor) -> None:
    document = json.loads(tfdoctor("build", "--tf", "2.15.1", "--emit", "devcontainer", "--uid", "7").out)
    assert document["image"] == "tfdoctor/tensorflow:2.15.1-cuda12.2-py3.11"
    assert document["runArgs"] == ["--gpus", "all"]
    assert document["containerUser"] == "7"
    assert document["mounts"] == ["source=tensorflow-cuda-cache,target=/var/cache/cuda,type=volume"]


@pytest.mark.parametrize(("uid", "root"), [("1000", True), ("0", None)])
def test_k8s(tfdoctor: Tfdoctor, uid: str, root: bool | None) -> None:
    wish = ("--tag", "registry.example/x:1", "--uid", uid)
    pod = yaml.safe_load(tfdoctor(*WISH, "--emit", "k8s", *wish).out)
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
def test_what_we_write_is_given_a_gpu(tfdoctor: Tfdoctor, tmp_path: Path, form: str) -> None:
    name = {"compose": "compose.yaml", "devcontainer": "devcontainer.json"}[form]
    (tmp_path / name).write_text(tfdoctor(*WISH, "--emit", form).out, encoding="utf-8")
    ended = tfdoctor("build", "--check", str(tmp_path / name), "--json")
    assert ended.status == 0
    assert [one["gpu_given"] for one in ended.json["services"]] == [True]


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
def test_the_context_we_write_is_right(
    tfdoctor: Tfdoctor, tmp_path: Path, tf: str, recipe: str, usable: bool | None
) -> None:
    """Of what conda brings the Dockerfile does not tell."""
    tfdoctor("build", "--tf", tf, "--recipe", recipe, "--emit", "context", str(tmp_path / "here"))
    ended = tfdoctor("build", "--check", str(tmp_path / "here/Dockerfile"), "--json")
    assert (ended.status, ended.json["verdict"]["gpu_usable"]) == (0, usable), ended.json


# ---------------------------------------------------------------- Apptainer


SECTIONS = ["post", "environment", "labels", "runscript"]


def sections(text: str) -> tuple[str, dict[str, str]]:
    """The header, and section → lines. A line that begins with % is a section, wherever it stands."""
    head, *rest = re.split(r"^%", text, flags=re.MULTILINE)
    parts = [one.partition("\n") for one in rest]
    assert len({name for name, _, _ in parts}) == len(parts)
    return head, {name: body for name, _, body in parts}


@pytest.mark.parametrize(
    ("tf", "recipe"),
    [("2.15.1", "pip-cuda"), ("2.4.4", "cuda-base"), ("1.14", "official"), ("1.15.5", "ngc")],
)
def test_apptainer(tfdoctor: Tfdoctor, tmp_path: Path, tf: str, recipe: str) -> None:
    (tmp_path / "ca.pem").write_text(PEM, encoding="ascii")
    wish = (
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
    head, found = sections(tfdoctor(*wish, "--emit", "apptainer").out)
    dockerfile = tfdoctor(*wish, "--print", "--uid", "0").out
    base = re.search(r"^FROM (.+)$", dockerfile, re.MULTILINE)
    assert base is not None
    assert head.endswith(f"\nBootstrap: docker\nFrom: {base[1]}\n\n"), "no engine is asked"
    assert list(found) == SECTIONS
    for step in re.findall(r"^RUN ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE):
        assert step in found["post"], "the same steps"
    for name in ("post", "runscript", "environment"):
        subprocess.run([SH, "-n"], input=found[name], text=True, check=True)
    assert "HOME=" not in found["environment"]
    assert "NVIDIA_VISIBLE_DEVICES=all" in found["environment"]
    assert "org.opencontainers.image.title TensorFlow " in found["labels"]
    assert not re.search(r"settle\.sh .* 1000", found["post"])
    assert "useradd" not in found["post"].replace("|| useradd", "")


def test_a_definition_of_two_stages(tfdoctor: Tfdoctor) -> None:
    """What the Dockerfile copies out of its first image, the definition does, too."""
    wish = ("build", "--tf", "1.14", "--recipe", "conda-cuda", "--package", "six")
    text = tfdoctor(*wish, "--emit", "apptainer").out
    about, *stages = re.split(r"^(?=Bootstrap: )", text, flags=re.MULTILINE)
    first, last = (sections(stage) for stage in stages)
    assert about.startswith("#")
    assert not re.search(r"bootstrap|from:", about, re.IGNORECASE), (
        "some tools take such a comment for a header"
    )
    assert re.fullmatch(r"Bootstrap: docker\nFrom: mambaorg/micromamba:\S+\nStage: cuda\n\n", first[0])
    assert last[0] == "Bootstrap: docker\nFrom: python:3.7-slim-bookworm\nStage: image\n\n"
    assert list(first[1]) == ["post"]
    assert list(last[1]) == ["files from cuda", *SECTIONS]
    assert last[1]["files from cuda"].split() == ["/tmp/libraries", "/opt/cuda/lib"]
    dockerfile = tfdoctor(*wish, "--print", "--uid", "0").out
    for step in re.findall(r"^RUN ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE):
        assert (step in first[1]["post"]) is ("micromamba" in step)
        assert (step in last[1]["post"]) is ("micromamba" not in step)
    for post in (first[1]["post"], last[1]["post"]):
        subprocess.run([SH, "-n"], input=post, text=True, check=True)


def test_the_files_of_a_definition_are_the_contexts(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    """What its shell writes is, byte for byte, what the Dockerfile copies."""
    _, found = sections(tfdoctor(*WISH, "--package", "six", "--emit", "apptainer").out)
    tfdoctor(*CONTEXT, "--package", "six", str(tmp_path / "context"))
    share = "/usr/local/share/tfdoctor"
    writing = re.findall(r"^mkdir -p .+\n(?:sed .+\n(?:\|.*\n)*END-OF-FILE\n)", found["post"], re.MULTILINE)
    script = "".join(writing).replace(share, str(tmp_path / "made"))
    subprocess.run([SH, "-e"], input=script, text=True, check=True)
    made = list_present(tmp_path / "made")
    assert made.keys() == {
        "tools.txt",
        "cuda.txt",
        "tensorflow.txt",
        "strip.py",
        "settle.sh",
        "constraints.txt",
        "requirements.txt",
    }
    assert made == {name: list_present(tmp_path / "context")[name] for name in made}


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


def test_requirements_say_what_is_not_among_them(tfdoctor: Tfdoctor) -> None:
    wish = ("build", "--tf", "2.8.4", "--recipe", "pip-cuda", "--emit", "requirements")
    more = tfdoctor(*wish, "--package", "pandas>=1", "--package", "six").out.splitlines()
    added = [line for line in more if line not in tfdoctor(*wish).out.splitlines()]
    assert [line[2:].strip() for line in added[-2:]] == ["pandas>=1", "six"]
    assert all(line.startswith("#") for line in added)


def test_sbom(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    wish = (*WISH, "--package", "pandas>=2")
    text = tfdoctor(*wish, "--emit", "sbom").out
    assert text == tfdoctor(*wish, "--emit", "sbom").out
    found = json.loads(text)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    base, *packages = found["components"]
    assert (base["type"], base["name"]) == ("container", "python:3.11-slim-bookworm")
    tfdoctor(*wish, "--emit", "context", str(tmp_path))
    files = list_present(tmp_path)
    assert files["sbom.cdx.json"].decode() == text
    lines = [
        line.split()
        for name in ("tools.txt", "cuda.txt", "tensorflow.txt")
        for line in files[name].decode().splitlines()
    ]
    lines = [list(line) for line in dict.fromkeys(tuple(line) for line in lines)]
    assert len({one["bom-ref"] for one in found["components"]}) == len(lines) + 1
    assert [f"{one['name']}=={one['version']}" for one in packages] == [line[0] for line in lines]
    for one, line in zip(packages, lines, strict=True):
        sums = [each["content"] for each in one.get("hashes", ())]
        sums += [each["value"] for each in one.get("properties", ())]
        assert [f"--hash=sha256:{each}" for each in sums] == line[1:]
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version'].replace('+', '%2B')}"
    assert found["dependencies"] == [
        {"ref": "image", "dependsOn": [one["bom-ref"] for one in found["components"]]}
    ]
    loose = [one["value"] for one in found["metadata"]["properties"] if one["name"] == "tfdoctor:not-pinned"]
    assert loose == ["pandas>=2"]


# ---------------------------------------------------------------- the base and the user


def test_pin_names_the_base_by_its_digest(tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        RegistryAnswer("x", "there", DIGEST, ""),
        RegistryAnswer("x", "there", None, ""),
        RegistryAnswer("x", "unreachable", None, "the registry x does not answer: no network"),
    ]
    monkeypatch.setattr("tfdoctor.engine.ask_registry", lambda *_, **__: answers.pop(0))
    text = tfdoctor(*WISH, "--pin", "--print").out
    assert f"\nFROM python:3.11-slim-bookworm@{DIGEST}\n" in text
    assert f'org.opencontainers.image.base.digest="{DIGEST}"' in text
    assert 'org.opencontainers.image.base.name="python:3.11-slim-bookworm"' in text
    for why in ("gives no digest", "no network"):
        ended = tfdoctor(*WISH, "--pin", "--print")
        assert (ended.status, ended.out) == (3, "")
        assert why in ended.err


def test_a_base_that_was_not_looked_into_is_told(tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_none() -> None:
        raise EngineError("no container engine answers.", hint="")

    monkeypatch.setattr("tfdoctor.engine.connect", raise_none)
    ended = tfdoctor(*WISH, "--base", "debian:bookworm", "--print")
    assert ended.status == 0
    assert "Note: debian:bookworm was not looked into" in ended.err
    assert "docker pull debian:bookworm" in ended.err


@pytest.mark.parametrize("uid", ["0", "1234", "4294967294"])
def test_the_images_user(tfdoctor: Tfdoctor, uid: str) -> None:
    text = tfdoctor(*WISH, "--uid", uid, "--print").out
    assert f"\nUSER {uid}\nWORKDIR" in text
    owned = f'settle.sh "$since" /opt/tensorflow/bin/python {uid} /opt/tensorflow\n'
    assert (owned in text) is (uid != "0"), "root needs no owner: files of other layers would be copied"
