"""`tfdoctor build` on the command line, without a container engine."""

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
from tfdoctor.cli.build import choose_run_user
from tfdoctor.compat import Compat
from tfdoctor.environments import precheck
from tfdoctor.environments.precheck import PrecheckResult
from tfdoctor.planning import Recipe, Request, recommend
from tfdoctor.prediction.fit.models import Host
from tfdoctor.render.build import make_build_json

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
BUILD_ANYWHERE = ("build", "--anywhere")


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tfdoctor:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.setenv(name, "unix:///nowhere/docker.sock" if name == "DOCKER_HOST" else "")
    return Tfdoctor(monkeypatch, capsys)


# ---------------------------------------------------------------- without an engine


@pytest.mark.parametrize(
    ("tf", "recipe"), [("2.21", "pip-cuda"), ("2.4.4", "cuda-base"), ("1.14", "official"), ("1.15.5", "ngc")]
)
def test_dry_run_shows_the_plan_and_the_dockerfile(tfdoctor: Tfdoctor, tf: str, recipe: str) -> None:
    result = tfdoctor(*BUILD_ANYWHERE, "--tf", tf, "--recipe", recipe, "--dry-run", "--json")
    assert (result.status, result.err) == (0, "")
    validate(result.json, "build")
    assert result.json["plan"]["recipe"] == recipe
    assert result.json["image"] is None
    assert result.json["verification"] is None
    assert result.json["dockerfile"] == tfdoctor("build", "--tf", tf, "--recipe", recipe, "--print").out
    text_result = tfdoctor(
        *BUILD_ANYWHERE, "--tf", tf, "--recipe", recipe, "--dry-run", "--tag", "mine:1", "-v"
    )
    assert text_result.status == 0
    assert "Nothing was built. This would be mine:1:" in text_result.out
    assert text_result.out.endswith(result.json["dockerfile"])
    assert is_clean(text_result.out)


def test_built_image_follows_the_schema() -> None:
    option = recommend(Compat.load(), Request("1.14", recipe=Recipe.OFFICIAL), Host()).options[0]
    image = {"id": f"sha256:{'a' * 64}", "tags": ["x:1"], "size_bytes": 12}
    answer = json.loads(json.dumps(make_build_json(option, "FROM x\n", image, None)))
    validate(answer, "build")
    answer["image"]["id"] = "a" * 12
    with pytest.raises(jsonschema.ValidationError):
        validate(answer, "build")


def test_print_writes_the_dockerfile_alone(tfdoctor: Tfdoctor) -> None:
    result = tfdoctor("build", "--tf", "2.15", "--print")
    assert result.status == 0
    assert "emit context DIR` writes them as well." in " ".join(result.err.split())
    quiet = tfdoctor("build", "--tf", "2.15", "--print", "-q")
    assert (quiet.status, quiet.out, quiet.err) == (0, result.out, "")
    assert result.out.startswith("# TensorFlow 2.15.1, ")
    assert re.search(r"^FROM \S+$", result.out, re.MULTILINE)


def test_conflict_is_reported(tfdoctor: Tfdoctor) -> None:
    request = ("build", "--tf", "1.14", "--gpu", "RTX 4090", "--driver", "530.30.02")
    result = tfdoctor(*request, "--dry-run")
    assert result.status == 1
    assert "nvcr.io/nvidia/tensorflow:23.03-tf1-py3" in result.out
    printed = tfdoctor(*request, "--print")
    assert (printed.status, printed.out) == (1, ""), "a conflict is no Dockerfile"
    assert "cannot be installed so that it uses the GPU" in printed.err
    json_result = tfdoctor(*request, "--dry-run", "--json")
    assert json_result.status == 1
    validate(json_result.json, "recommend")
    assert json_result.json["conflict"]["reasons"][0]["cause"] == "gpu-too-new"


def test_driver_alone_implies_no_gpu(tfdoctor: Tfdoctor) -> None:
    """Accept TensorFlow 1.4 with a driver alone: its CUDA 8 supports no GPU from compute capability 7.0 on."""
    assert tfdoctor("build", "--tf", "1.4", "--driver", "390", "--print").status == 0
    assert tfdoctor("build", "--tf", "1.4", "--driver", "390", "--gpu", "7.5", "--print").status == 1


def test_missing_engine_is_an_error() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *BUILD_ANYWHERE, "--tf", "2.15", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"},
    )
    assert result.returncode == 3
    validate(json.loads(result.stdout), "error")


# ---------------------------------------------------------------- values of the user


@pytest.mark.parametrize(
    "args",
    [
        ("--tf", "2.x"),
        ("--tf", "99"),
        ("--python-version", "3"),
        ("--recipe", "venv"),
        ("--tag", "A B"),
        ("--tag", "-rf"),
        ("--tag", "a:b:c"),
        ("--tag", "x\nRUN id"),
        ("--tag", "x:1; rm -rf /"),
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
        ("-r", "hostile.txt"),
        ("--package", "./here"),
        ("--package", "-r x"),
        ("--package", "a; rm -rf /"),
        ("--package", "--index-url=http://evil"),
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
        ("--platform", "linux/amd64; id"),
        ("--platform", "windows/amd64"),
        ("--gpu", "no such card"),
        ("--driver", "v550"),
        ("--emit", "helm"),
        ("--no-such-option",),
    ],
    ids=lambda args: ascii(" ".join(args))[:60],
)
def test_invalid_request_is_refused(
    tfdoctor: Tfdoctor, args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.txt").write_text('six\n--extra-index-url $(id)\n"; RUN rm -rf /\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    if __file__ in args:  # a text file without a certificate; this file contains one
        args = ("--ca-cert", str(Path(__file__).with_name("planner.py")))
    request = () if args[0] == "--tf" else ("--tf", "2.15")
    result = tfdoctor(*BUILD_ANYWHERE, *request, "--dry-run", *args)
    assert (result.status, result.out) == (2, "")
    assert result.err
    assert is_clean(result.err)
    assert "sesame" not in result.err or args[0] == "--registry"
    json_result = tfdoctor(*BUILD_ANYWHERE, *request, "--dry-run", "--json", *args)
    assert (json_result.status, json_result.err) == (2, "")
    validate(json_result.json, "error")


@pytest.mark.parametrize("form", [("--print",), ("--emit", "compose")])
def test_two_output_forms_exclude_each_other(tfdoctor: Tfdoctor, form: tuple[str, ...]) -> None:
    result = tfdoctor("build", "--tf", "2.15", "--json", *form)
    assert result.status == 2
    validate(result.json, "error")


def test_requirements_and_certificate_are_copied(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("# mine\npandas>=2 \\\n  ,<3\n", encoding="utf-8")
    (tmp_path / "ca.pem").write_text(PEM, encoding="ascii")
    arguments = (
        "build",
        "--tf",
        "2.15",
        "--print",
        "-r",
        str(tmp_path / "r.txt"),
        "--ca-cert",
        str(tmp_path / "ca.pem"),
    )
    text = tfdoctor(*arguments, "--package", "scipy").out
    assert "COPY constraints.txt requirements.txt" in text
    assert "COPY ca.crt" in text
    (tmp_path / "r.txt").write_bytes(b"\xff\xfe\x00")
    assert tfdoctor(*arguments).status == 2
    (tmp_path / "r.txt").write_text("a\n" * (3 << 20), encoding="utf-8")
    assert tfdoctor(*arguments).status == 2


@pytest.mark.parametrize("dry", [True, False])
def test_conflicting_requirements_are_found_without_an_engine(
    tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch, dry: bool
) -> None:
    calls = []

    def foresee(requirements: object, limits: list[str], python: str, **_: object) -> PrecheckResult:
        calls.append((requirements, [limit for limit in limits if limit.startswith("numpy==")], python))
        return PrecheckResult(conflict_reason="you require numpy>=2 and numpy==1.26.4")

    monkeypatch.setattr(precheck, "precheck_requirements", foresee)
    arguments = (*BUILD_ANYWHERE, "--tf", "2.15", "--python-version", "3.11", "--package", "numpy>=2")
    result = tfdoctor(*arguments, *(["--dry-run"] if dry else []))
    assert result.status == 3
    assert "numpy==1.26.4" in result.err
    assert "Nothing was built" in result.err
    assert "socket" not in result.err
    assert calls == [(("numpy>=2",), ["numpy==1.26.4"], "3.11")]


@pytest.mark.parametrize("form", [("--print",), ("--emit", "compose"), ("--emit", "sbom")])
def test_every_form_reports_conflicts_with_the_pins(
    tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    """Report a conflict with the pins in every form, without a request to the package index."""
    monkeypatch.setattr(precheck, "run_installer", lambda *_, **__: pytest.fail("the index was asked"))
    result = tfdoctor("build", "--tf", "2.15", "--package", "numpy>=2", *form)
    assert (result.status, result.out) == (3, "")
    assert "numpy==1.26.4 is what goes with it" in result.err
    assert tfdoctor("build", "--tf", "2.15", "--package", "pandas", *form).status == 0


def test_unreachable_index_is_a_note(tfdoctor: Tfdoctor, monkeypatch: pytest.MonkeyPatch) -> None:
    prediction = PrecheckResult(unknown_reason="the package index was not reached")
    monkeypatch.setattr(precheck, "precheck_requirements", lambda *_, **__: prediction)
    result = tfdoctor(*BUILD_ANYWHERE, "--tf", "2.15", "--package", "six", "--dry-run")
    assert result.status == 0
    assert "compatible with TensorFlow: the package index was not reached" in result.err


def test_private_key_is_refused(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    bundle = tmp_path / "both.pem"
    bundle.write_text(
        f"{PEM}-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n", encoding="ascii"
    )
    result = tfdoctor("build", "--tf", "2.15", "--print", "--ca-cert", str(bundle))
    assert result.status == 2
    assert "private key" in result.err


def test_proxy_password_is_not_in_the_output(tfdoctor: Tfdoctor) -> None:
    arguments = ("--tf", "2.15", "--proxy", "http://user:sesame@proxy.example:3128")
    for form in (("--dry-run", "--json"), ("--dry-run",), ("--print",), ("--emit", "compose")):
        result = tfdoctor(*BUILD_ANYWHERE, *arguments, *form)
        assert result.status == 0
        assert "sesame" not in result.out + result.err
        assert "proxy.example" not in result.out


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
def test_user_can_write_to_a_bind_mount(
    uid: int, rootless: bool, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Select a user who can write: in rootless Docker 20.10, only the container's root can write to a user's folder."""
    monkeypatch.setattr(os, "getuid", lambda: 1000, raising=False)
    assert choose_run_user(uid, rootless=rootless) == user
