"""Tests that only valid image names and index addresses, which are untrusted, go into a Dockerfile."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.make_facts import COMPAT
from tfdoctor.core.errors import UsageError
from tfdoctor.images.engine import image
from tfdoctor.images.engine.image import render_context
from tfdoctor.images.write import AppFiles, UserAdditions, validate_index, validate_reference
from tfdoctor.planning import Option, Recipe, Request
from tfdoctor.planning.recipes import try_recipe
from tfdoctor.prediction.fit.models import Host

if TYPE_CHECKING:
    from tfdoctor.images.engine import ContainerEngine

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    "name",
    [
        "python",
        "python:3.12-slim-bookworm",
        "nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04",
        "tensorflow/tensorflow:1.14.0-gpu-py3",
        "nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
        "localhost:5000/a/b/c:X_y.Z-1",
        "corp.example/hub/library/python:3.12",
        f"python@{DIGEST}",
        f"python:3.12@{DIGEST}",
        "a_b/c__d/e-f.g",
        "me/tf",
    ],
)
def test_valid_image_name_is_accepted(name: str) -> None:
    assert validate_reference(name) == name


INVALID_NAMES = (
    "",
    " ",
    "python ",
    " python",
    "python\n",
    "python\nRUN id",
    "python\r\nRUN id",
    "python\\\nRUN id",
    "python\tAS x",
    "python AS x",
    "--platform=linux/arm64 python",
    "-python",
    "python:3;id",
    "python:$(id)",
    "$(id)",
    "${BASE}",
    "$BASE",
    "`id`",
    "python:3'",
    '"python"',
    "python#x",
    "python:3 # x",
    "Python",
    "NVIDIA/cuda",
    "python:",
    "python:.x",
    "python:-x",
    "python:" + "x" * 129,
    "python@sha256:" + "0" * 63,
    "python@sha256:" + "G" * 64,
    "python@md5:0",
    "a//b",
    "/a",
    "a/",
    "../a",
    "https://x.example/a",
    "user@host/a",
    "pythön",
    "python\u2028",
    "python\u202e",
    "python\x00",
    "python\x1b[31m",
    "a" * 600,
)


@pytest.mark.parametrize("name", INVALID_NAMES)
def test_invalid_image_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as error:
        validate_reference(name)
    assert error.value.hint


@pytest.mark.parametrize(
    "name", ["a" * 511 + "!", "a." * 255 + "!", "a/" * 250 + "!", "a-a_a.a/" * 60 + "!", "a__" * 170 + "!"]
)
def test_long_invalid_name_is_refused_quickly(name: str) -> None:
    start = time.process_time()
    with pytest.raises(UsageError):
        validate_reference(name)
    assert time.process_time() - start < 0.5


@given(st.text(max_size=80))
def test_accepted_name_has_safe_characters_only(text: str) -> None:
    try:
        name = validate_reference(text)
    except UsageError:
        return
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*", name)


@pytest.mark.parametrize(
    "address",
    [
        "https://mirror.example/simple/",
        "https://mirror.example:8443/a/b%20c/simple",
        "http://10.0.0.5:3141/root/simple/",
        "http://localhost:3141",
        "http://[::1]:3141/simple/",
        "https://me@mirror.example/simple",
    ],
)
def test_valid_index_address_is_accepted(address: str) -> None:
    assert validate_index(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "mirror.example/simple",
        "ftp://mirror.example/simple",
        "file:///srv/simple",
        "https://",
        "https:///simple",
        "https://mirror.example/simple\n",
        "https://mirror.example/simple\nRUN id",
        "https://mirror.example/simple --trusted-host x",
        "https://mirror.example/$(id)",
        "https://mirror.example/${X}",
        "https://mirror.example/`id`",
        "https://mirror.example/'x'",
        'https://mirror.example/"x"',
        "https://mirror.example/a\\b",
        "https://mirror.example/a?token=b",
        "https://mirror.example/a#b",
        "https://mirror.example/a;b",
        "https://mirrör.example/simple",
        "https://mirror.example/\u202e",
        "https://mirror.example/\x00",
        "https://a@b@mirror.example/simple",
        "https://[::1/simple",
        "https://[not-an-address]/simple",
        "https://mirror.example:port/simple",
        "https://" + "a" * 300 + "/simple",
        "https://mirror.example/" + "a" * 600,
    ],
)
def test_invalid_index_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError) as error:
        validate_index(address)
    assert error.value.message
    assert "a@b" not in error.value.message


@pytest.mark.parametrize(
    "address",
    [
        "https://me:secret@mirror.example/simple",
        "https://:secret@mirror.example/simple",
        "https://me:@mirror.example/simple",
    ],
)
def test_password_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(UsageError) as error:
        validate_index(address)
    assert "password" in error.value.message
    assert "secret" not in error.value.message + error.value.hint


@given(st.text(max_size=80).map(lambda text: f"https://{text}"))
def test_accepted_address_has_safe_characters_only(text: str) -> None:
    try:
        address = validate_index(text)
    except UsageError:
        return
    assert re.fullmatch(r"https?://([A-Za-z0-9._~%+-]+@)?[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~%/-]*)?", address)


def render(tensorflow: str, **additions: Any) -> str:
    """Return the Dockerfile of a release with CUDA from wheels."""
    release = COMPAT.find_release(tensorflow)
    assert release is not None
    option = try_recipe(COMPAT, release, Request(python="3.13"), Host(), Recipe.PIP_CUDA)
    assert isinstance(option, Option)
    return render_context(option, UserAdditions(**additions)).dockerfile


def test_releases_share_the_layers_of_cuda() -> None:
    """No line before the packages of TensorFlow differs, except the comment with the version."""
    shared = [render(version).partition("COPY tensorflow.txt")[0] for version in ("2.20.0", "2.21.0")]
    dates = [text.rpartition("ARG SOURCE_DATE_EPOCH=")[2].strip() for text in shared]
    first, second = (text.partition("\n")[2].rpartition("ARG SOURCE_DATE_EPOCH=")[0] for text in shared)
    assert first == second
    assert "cuda.txt" in first
    assert len(set(dates)) == 2


def test_login_and_downloads_are_mounted_where_pip_runs() -> None:
    text = render("2.21.0", index_url="https://x.example/", index_needs_login=True, caches_downloads=True)
    steps = re.split(r"\n(?=[A-Z]+ )", text)
    pip_steps = [step for step in steps if "/pip install" in step]
    assert len(pip_steps) == 3
    for step in pip_steps:
        assert step.startswith(
            "RUN --mount=type=cache,target=/var/cache/tfdoctor,sharing=locked "
            "--mount=type=secret,id=pip.conf,required=true "
        )
        assert "--no-index --find-links /var/cache/tfdoctor" in step
    assert "ARG PIP_CONFIG_FILE=/run/secrets/pip.conf\n" in text
    assert "PIP_INDEX_URL" not in text
    plain = render("2.21.0", index_url="https://x.example/")
    assert "--mount" not in plain
    assert "ARG PIP_INDEX_URL=https://x.example/\n" in plain


def test_old_pip_does_not_cache_the_wheels_of_requirements() -> None:
    """It would hold each in memory."""
    for version, python, expected in (("2.4.4", "3.6", "--no-cache-dir"), ("2.21.0", "3.13", "--cache-dir")):
        release = COMPAT.find_release(version)
        assert release is not None
        recipe = Recipe.CONDA_CUDA if version == "2.4.4" else Recipe.PIP_CUDA
        option = try_recipe(COMPAT, release, Request(python=python), Host(), recipe)
        assert isinstance(option, Option)
        additions = UserAdditions(("six",), caches_downloads=True)
        text = render_context(option, additions).dockerfile
        line = next(line for line in text.splitlines() if "--constraint" in line)
        assert f" {expected} " in line


def test_image_to_develop_in_keeps_headers_and_has_a_compiler() -> None:
    plain = render("2.21.0")
    text = render("2.21.0", has_compilers=True)
    assert "rm -rf /opt" in plain
    assert "rm -rf /opt" not in text
    compiler_step = text.index("g++ make")
    assert text.index("--requirement /usr/local/share/tfdoctor/tensorflow.txt") < compiler_step
    assert "g++" not in plain
    with_requirements = render("2.21.0", has_compilers=True, requirements=("six",))
    assert with_requirements.index("g++ make") < with_requirements.index("requirements.txt")


def test_own_code_is_the_last_layer() -> None:
    app = AppFiles({"app/train.py": b"x"}, frozenset({"app/train.py"}))
    text = render("2.21.0", app=app, entrypoint=("python", "train.py", '--name="$A"'))
    ending = 'COPY --chown=1000:1000 app/ /app/\nUSER 1000\nWORKDIR /app\nENTRYPOINT ["python", "train.py", "--name=\\"$A\\""]\n'
    assert text.endswith(ending)
    assert "CMD" not in text
    assert render("2.21.0", app=app).endswith('WORKDIR /app\nCMD ["python"]\n')


def test_certificate_is_removed_from_the_image() -> None:
    text = render("2.20.0", ca_certificate=b"x")
    last_step = text.rpartition("RUN")[2]
    assert "rm -f /usr/local/share/tfdoctor/ca.crt" in last_step
    assert last_step.index("rm -f") < last_step.index("touch"), "else the folder has the time of the removal"
    assert "ca.crt" not in render("2.20.0")


def test_added_packages_keep_the_libraries_and_headers_that_they_may_need() -> None:
    plain, extended = render("2.20.0"), render("2.20.0", requirements=("cupy-cuda12x",))
    for pattern in ("libcurand.so", "nvidia/*/include", "tensorflow/include"):
        assert pattern in plain
        assert pattern not in extended
    assert "*/lib/*.a" in extended


@pytest.mark.parametrize(
    ("free", "url", "is_short"),
    [(1 << 30, "unix:///x", True), (1 << 40, "unix:///x", False), (1 << 30, "tcp://x", False)],
)
def test_disk_without_room_is_named(
    monkeypatch: pytest.MonkeyPatch, free: int, url: str, is_short: bool
) -> None:
    release = COMPAT.find_release("2.20.0")
    assert release is not None
    option = try_recipe(COMPAT, release, Request(), Host(), Recipe.PIP_CUDA)
    assert isinstance(option, Option)
    monkeypatch.setattr(image.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    client = SimpleNamespace(info=lambda: {"DockerRootDir": "/var/lib/docker"})
    engine = cast("ContainerEngine", SimpleNamespace(url=url, name="docker", client=client))
    text = image.describe_disk_shortage(engine, option)
    assert ("/var/lib/docker has 1.1 GB free" in text) is is_short
