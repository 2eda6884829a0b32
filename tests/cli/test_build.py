"""`tfdoctor build` at the command line, up to where an engine is needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from cli.planner import Tfdoctor, is_clean, validate
from tfdoctor.cli.build import choose_user
from tfdoctor.compat import Compat
from tfdoctor.environment import precheck
from tfdoctor.environment.precheck import Foreseen
from tfdoctor.fit import Host
from tfdoctor.plan import Recipe, Request, recommend
from tfdoctor.render.build import build_json

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
HERE = ("build", "--anywhere")


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.setenv(name, "unix:///nowhere/docker.sock" if name == "DOCKER_HOST" else "")
    return Tfdoctor(monkeypatch, capsys)


# ---------------------------------------------------------------- without an engine


@pytest.mark.parametrize(
    ("tf", "recipe"), [("2.21", "pip-cuda"), ("2.4.4", "cuda-base"), ("1.14", "official"), ("1.15.5", "ngc")]
)
def test_dry_run(tfdoctor: Tfdoctor, tf: str, recipe: str) -> None:
    ended = tfdoctor(*HERE, "--tf", tf, "--recipe", recipe, "--dry-run", "--json")
    assert (ended.status, ended.err) == (0, "")
    validate(ended.json, "build")
    assert ended.json["plan"]["recipe"] == recipe
    assert ended.json["image"] is None
    assert ended.json["verification"] is None
    assert ended.json["dockerfile"] == tfdoctor("build", "--tf", tf, "--recipe", recipe, "--print").out
    told = tfdoctor(*HERE, "--tf", tf, "--recipe", recipe, "--dry-run", "--tag", "mine:1", "-v")
    assert told.status == 0
    assert "Nothing was built. This would be mine:1:" in told.out
    assert told.out.endswith(ended.json["dockerfile"])
    assert is_clean(told.out)


def test_a_built_image_has_its_schema() -> None:
    option = recommend(Compat.load(), Request("1.14", recipe=Recipe.OFFICIAL), Host()).options[0]
    image = {"id": f"sha256:{'a' * 64}", "tags": ["x:1"], "size_bytes": 12}
    answer = json.loads(json.dumps(build_json(option, "FROM x\n", image, None)))
    validate(answer, "build")
    answer["image"]["id"] = "a" * 12
    with pytest.raises(jsonschema.ValidationError):
        validate(answer, "build")


def test_print_is_a_dockerfile_alone(tfdoctor: Tfdoctor) -> None:
    ended = tfdoctor("build", "--tf", "2.15", "--print")
    assert ended.status == 0
    assert "emit context DIR` writes them, too." in " ".join(ended.err.split())
    quiet = tfdoctor("build", "--tf", "2.15", "--print", "-q")
    assert (quiet.status, quiet.out, quiet.err) == (0, ended.out, "")
    assert ended.out.startswith("# TensorFlow 2.15.1, ")
    assert re.search(r"^FROM \S+$", ended.out, re.MULTILINE)


def test_no_plan(tfdoctor: Tfdoctor) -> None:
    wish = ("build", "--tf", "1.14", "--gpu", "RTX 4090", "--driver", "530.30.02")
    ended = tfdoctor(*wish, "--dry-run")
    assert ended.status == 1
    assert "nvcr.io/nvidia/tensorflow:23.03-tf1-py3" in ended.out
    printed = tfdoctor(*wish, "--print")
    assert (printed.status, printed.out) == (1, ""), "a conflict is no Dockerfile"
    assert "No installation" in printed.err
    told = tfdoctor(*wish, "--dry-run", "--json")
    assert told.status == 1
    validate(told.json, "recommend")
    assert told.json["conflict"]["reasons"][0]["cause"] == "gpu-too-new"


def test_a_driver_alone_says_nothing_of_cards(tfdoctor: Tfdoctor) -> None:
    """TensorFlow 1.4 has CUDA 8, which knows no card from 7.0 on; nobody named one."""
    assert tfdoctor("build", "--tf", "1.4", "--driver", "390", "--print").status == 0
    assert tfdoctor("build", "--tf", "1.4", "--driver", "390", "--gpu", "7.5", "--print").status == 1


def test_no_engine() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *HERE, "--tf", "2.15", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"},
    )
    assert done.returncode == 3
    validate(json.loads(done.stdout), "error")


# ---------------------------------------------------------------- what comes from outside


@pytest.mark.parametrize(
    "args",
    [
        ("--tf", "2.x"),
        ("--tf", "99"),
        ("--python", "3"),
        ("--recipe", "venv"),
        ("--tag", "A B"),
        ("--tag", "-rf"),
        ("--tag", "a:b:c"),
        ("--tag", "x\nRUN id"),
        ("--tag", "\x1b[31mx"),
        ("--tag", f"x@sha256:{'0' * 64}"),
        ("--tag", ""),
        ("--base", "a b"),
        ("--base", "debian\nRUN id"),
        ("--base", "debian AS x"),
        ("--base", "$(id)"),
        ("--base", ""),
        ("--registry", "a b"),
        ("--registry", "host/\nRUN id"),
        ("--registry", "user:sesame@host"),
        ("-r", "/nowhere/requirements.txt"),
        ("-r", "/"),
        ("--package", "./here"),
        ("--package", "-r x"),
        ("--package", "a; rm -rf /"),
        ("--package", "tensorflow"),
        ("--package", "a\nb"),
        ("--index", "ftp://x"),
        ("--index", "https://user:sesame@mirror.example/simple/"),
        ("--index", "https://mirror.example/\nRUN id"),
        ("--ca-cert", "/nowhere/ca.pem"),
        ("--ca-cert", __file__),
        ("--proxy", "mirror"),
        ("--proxy", "http://a b"),
        ("--platform", "linux/arm64"),
        ("--platform", "windows/amd64"),
        ("--gpu", "no such card"),
        ("--driver", "v550"),
        ("--emit", "helm"),
        ("--no-such-option",),
    ],
    ids=lambda args: ascii(" ".join(args))[:60],
)
def test_a_wrong_request(tfdoctor: Tfdoctor, args: tuple[str, ...]) -> None:
    if __file__ in args:  # a text that is no certificate: its own name is in this file's first lines only
        args = ("--ca-cert", str(Path(__file__).with_name("planner.py")))
    wish = () if args[0] == "--tf" else ("--tf", "2.15")
    ended = tfdoctor(*HERE, *wish, "--dry-run", *args)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err
    assert is_clean(ended.err)
    assert "sesame" not in ended.err or args[0] == "--registry"
    told = tfdoctor(*HERE, *wish, "--dry-run", "--json", *args)
    assert (told.status, told.err) == (2, "")
    validate(told.json, "error")


@pytest.mark.parametrize("form", [("--print",), ("--emit", "compose")])
def test_two_forms_at_once(tfdoctor: Tfdoctor, form: tuple[str, ...]) -> None:
    ended = tfdoctor("build", "--tf", "2.15", "--json", *form)
    assert ended.status == 2
    validate(ended.json, "error")


def test_requirements_and_a_certificate(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("# mine\npandas>=2 \\\n  ,<3\n", encoding="utf-8")
    (tmp_path / "ca.pem").write_text(PEM, encoding="ascii")
    wish = (
        "build",
        "--tf",
        "2.15",
        "--print",
        "-r",
        str(tmp_path / "r.txt"),
        "--ca-cert",
        str(tmp_path / "ca.pem"),
    )
    text = tfdoctor(*wish, "--package", "scipy").out
    assert "COPY constraints.txt requirements.txt" in text
    assert "COPY ca.crt" in text
    (tmp_path / "r.txt").write_bytes(b"\xff\xfe\x00")
    assert tfdoctor(*wish).status == 2
    (tmp_path / "r.txt").write_text("a\n" * (3 << 20), encoding="utf-8")
    assert tfdoctor(*wish).status == 2


@pytest.mark.parametrize("dry", [True, False])
def test_what_cannot_be_had_together_is_found_before_the_engine_is_asked(
    tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch, dry: bool
) -> None:
    asked = []

    def foresee(wanted: object, limits: list[str], python: str, **_: object) -> Foreseen:
        asked.append((wanted, [one for one in limits if one.startswith("numpy==")], python))
        return Foreseen(conflict="you require numpy>=2 and numpy==1.26.4")

    monkeypatch.setattr(precheck, "foresee", foresee)
    wish = (*HERE, "--tf", "2.15", "--python", "3.11", "--package", "numpy>=2")
    ended = tfdoctor(*wish, *(["--dry-run"] if dry else []))
    assert ended.status == 3
    assert "numpy==1.26.4" in ended.err
    assert "Nothing was built" in ended.err
    assert "socket" not in ended.err
    assert asked == [(("numpy>=2",), ["numpy==1.26.4"], "3.11")]


@pytest.mark.parametrize("form", [("--print",), ("--emit", "compose"), ("--emit", "sbom")])
def test_what_is_plain_from_the_pins_is_told_by_every_form(
    tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    """None of them asks the package index."""
    monkeypatch.setattr(precheck, "run_installer", lambda *_, **__: pytest.fail("the index was asked"))
    ended = tfdoctor("build", "--tf", "2.15", "--package", "numpy>=2", *form)
    assert (ended.status, ended.out) == (3, "")
    assert "numpy==1.26.4 is what goes with it" in ended.err
    assert tfdoctor("build", "--tf", "2.15", "--package", "pandas", *form).status == 0


def test_an_index_that_is_not_reached_stops_nothing(
    tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Foreseen(unknown="the package index was not reached")
    monkeypatch.setattr(precheck, "foresee", lambda *_, **__: said)
    ended = tfdoctor(*HERE, "--tf", "2.15", "--package", "six", "--dry-run")
    assert ended.status == 0
    assert "compatible with TensorFlow: the package index was not reached" in ended.err


def test_a_private_key_is_refused(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text(f"{PEM}-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n", encoding="ascii")
    ended = tfdoctor("build", "--tf", "2.15", "--print", "--ca-cert", str(both))
    assert ended.status == 2
    assert "private key" in ended.err


def test_a_proxys_password_is_in_nothing_that_is_kept(tfdoctor: Tfdoctor) -> None:
    wish = ("--tf", "2.15", "--proxy", "http://user:sesame@proxy.example:3128")
    for form in (("--dry-run", "--json"), ("--dry-run",), ("--print",), ("--emit", "compose")):
        ended = tfdoctor(*HERE, *wish, *form)
        assert ended.status == 0
        assert "sesame" not in ended.out + ended.err
        assert "proxy.example" not in ended.out


@pytest.mark.parametrize(
    ("uid", "rootless", "user"),
    [
        (1000, False, ""),
        (1001, False, '"$(id -u):$(id -g)"'),
        (0, False, '"$(id -u):$(id -g)"'),
        (1000, True, "0:0"),
        (0, True, ""),
    ],
)
def test_a_bound_folder_can_be_written_to(
    uid: int, rootless: bool, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with a rootless Docker 20.10: only root of the container may write into a folder of who runs the engine."""
    monkeypatch.setattr(os, "getuid", lambda: 1000, raising=False)
    assert choose_user(uid, rootless=rootless) == user
