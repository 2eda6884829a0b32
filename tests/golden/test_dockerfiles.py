"""Complete Dockerfiles. `pytest tests/golden --refresh` rewrites the expected files; review the changes."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import tfdoctor
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.environments.requirements import parse_packages
from tfdoctor.images.engine.building import make_context_archive
from tfdoctor.images.engine.image import render_context, with_mirror
from tfdoctor.images.write import BuildContext, UserAdditions, validate_index, validate_reference
from tfdoctor.planning import (
    BaseImage,
    Method,
    Option,
    Recipe,
    Request,
    recommend,
)
from tfdoctor.prediction.fit.models import Host

HERE = Path(__file__).parent
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def plan(tensorflow: str, recipe: Recipe, python: str | None = None, base: str | None = None) -> Option:
    request = Request(tensorflow=tensorflow, python=python, method=Method.CONTAINER, recipe=recipe, base=base)
    return recommend(Compat.load(), request, Host()).options[0]


def plan_without_python() -> Option:
    """Return the plan for a base image that has apt but no Python."""
    option = plan("2.15.1", Recipe.PIP_CUDA, "3.11", "registry.example:5000/base:12")
    assert option.base is not None
    base = BaseImage(option.base.image, "debian 12", "python3.11", ("python3.11", "python3.11-venv"))
    return dataclasses.replace(option, base=base)


CASES: dict[str, tuple[Option, UserAdditions]] = {
    "pip-cuda-2.21-py313": (plan("2.21.0", Recipe.PIP_CUDA, "3.13"), UserAdditions()),
    "pip-cuda-2.10-py310-corporate": (
        plan("2.10.1", Recipe.PIP_CUDA, "3.10"),
        UserAdditions(
            requirements=parse_packages(["pandas>=1.5,<2", "scipy"]),
            ca_certificate=CERTIFICATE,
            index_url="https://mirror.example/simple/",
        ),
    ),
    "pip-cuda-2.15-own-base": (plan_without_python(), UserAdditions()),
    "cuda-base-2.4.4": (plan("2.4.4", Recipe.CUDA_BASE), UserAdditions()),
    "cuda-base-2.17.1": (plan("2.17.1", Recipe.CUDA_BASE), UserAdditions()),
    "official-1.14-py3": (plan("1.14.0", Recipe.OFFICIAL), UserAdditions()),
    "official-1.14-py2": (plan("1.14.0", Recipe.OFFICIAL, "2.7"), UserAdditions()),
    "official-2.4.3": (plan("2.4.3", Recipe.OFFICIAL), UserAdditions()),
    "conda-cuda-1.14-py37": (plan("1.14.0", Recipe.CONDA_CUDA), UserAdditions()),
    "conda-cuda-2.4-corporate": (
        plan("2.4.4", Recipe.CONDA_CUDA),
        UserAdditions(requirements=parse_packages(["pandas<2"]), ca_certificate=CERTIFICATE),
    ),
    "ngc-1.15.5": (plan("1.15.5", Recipe.NGC), UserAdditions(requirements=parse_packages(["pandas"]))),
}
with_each_case = pytest.mark.parametrize("name", CASES)


def make_context(name: str) -> BuildContext:
    return render_context(*CASES[name])


def compare(path: Path, text: str, refresh: bool) -> None:
    if refresh:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@with_each_case
def test_dockerfile_equals_the_expected_file(name: str, refresh: bool) -> None:
    built = make_context(name)
    text = built.dockerfile.replace(f"tfdoctor {tfdoctor.__version__}.", "tfdoctor VERSION.")
    text = text.replace(f'io.tfdoctor.version="{tfdoctor.__version__}"', 'io.tfdoctor.version="VERSION"')
    compare(HERE / f"{name}.Dockerfile", text, refresh)
    compare(HERE / f"{name}.files", "".join(f"{file}\n" for file in sorted(built.files)), refresh)


def test_no_expected_file_is_stale() -> None:
    existing = {path.name for path in HERE.iterdir() if path.suffix in (".Dockerfile", ".files")}
    assert existing == {f"{name}{end}" for name in CASES for end in (".Dockerfile", ".files")}


@with_each_case
def test_copied_files_are_the_context(name: str) -> None:
    built = make_context(name)
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", built.dockerfile, re.MULTILINE)
        for source in line.split()
    }
    assert copied == set(built.files)


@with_each_case
def test_everything_is_pinned_by_hash(name: str) -> None:
    files = make_context(name).files
    for file in {"tools.txt", "cuda.txt", "tensorflow.txt", "release.txt"} & set(files):
        lines = files[file].decode().splitlines()
        assert lines
        assert all(re.fullmatch(r"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    if "constraints.txt" in files and CASES[name][0].recipe is not Recipe.NGC:
        assert f"tensorflow=={CASES[name][0].tensorflow}\n" in files["constraints.txt"].decode()


@with_each_case
def test_last_user_is_not_root(name: str) -> None:
    lines = make_context(name).dockerfile.splitlines()
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 1000"
    assert lines[-1].startswith("CMD [")
    json.loads(lines[-1].removeprefix("CMD "))


@with_each_case
def test_label_contains_the_plan(name: str) -> None:
    option, _ = CASES[name]
    match = re.search(r"io\.tfdoctor\.plan=(.+) \\$", make_context(name).dockerfile, re.MULTILINE)
    assert match is not None
    label = json.loads(shlex.split(match[1])[0])
    assert label == {
        "tensorflow": option.tensorflow,
        "python": option.python,
        "cuda": option.cuda,
        "cudnn": option.cudnn,
        "recipe": option.recipe.value,
    }


def test_minimum_driver_is_that_of_the_cuda_major() -> None:
    """Override the driver that the base image requires: the plan relies on CUDA's minor-version compatibility."""
    for name, minimum in (
        ("cuda-base-2.17.1", "12.0"),
        ("official-2.4.3", "11.0"),
        ("pip-cuda-2.21-py313", "12.0"),
    ):
        assert f'ENV NVIDIA_REQUIRE_CUDA="cuda>={minimum}"\n' in make_context(name).dockerfile
    for name in ("official-1.14-py3", "ngc-1.15.5"):
        assert "NVIDIA_REQUIRE_CUDA" not in make_context(name).dockerfile


# ---------------------------------------------------------------- hadolint


@with_each_case
def test_hadolint_reports_nothing(name: str, tmp_path: Path) -> None:
    sibling = Path(sys.executable).with_name("hadolint")
    program = str(sibling) if sibling.is_file() else shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed")
    path = tmp_path / "Dockerfile"
    path.write_text(make_context(name).dockerfile, encoding="utf-8")
    result = subprocess.run(
        [program, "--no-color", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert (result.stdout, result.returncode) == ("", 0)


# ---------------------------------------------------------------- build context


@with_each_case
def test_context_is_reproducible(name: str) -> None:
    first, second = make_context(name), make_context(name)
    backwards = dict(reversed(list(second.files.items())))
    archive = make_context_archive(first.dockerfile, first.files)
    assert archive == make_context_archive(second.dockerfile, backwards)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        members = opened.getmembers()
    assert [member.name for member in members] == sorted(["Dockerfile", *first.files])
    assert {(m.uid, m.gid, m.mtime, m.mode, m.uname) for m in members} == {(0, 0, 0, 0o644, "")}


def test_changed_file_changes_the_context() -> None:
    assert make_context_archive("FROM a\n", {"x": b"1"}) != make_context_archive("FROM a\n", {"x": b"2"})


# ---------------------------------------------------------------- values of the user


@pytest.mark.parametrize(
    "name",
    [
        "python",
        "python:3.11-slim-bookworm",
        "nvcr.io/nvidia/tensorflow:23.03-tf1-py3",
        "localhost:5000/a/b_c/d__e/f--g:T.a-g_1",
        f"debian@sha256:{'0' * 64}",
    ],
)
def test_valid_image_names(name: str) -> None:
    assert validate_reference(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Debian",
        "a b",
        "debian\nRUN id",
        "debian:12\n",
        "debian;id",
        "$(id)",
        "-v",
        "a/../b",
        "a:",
        "a@sha256:0",
        "a" * 600,
        "debian:12 AS x",
        "\u202edebian",
        "https://host/a",
    ],
)
def test_invalid_image_names(name: str) -> None:
    with pytest.raises(UsageError):
        validate_reference(name)
    with pytest.raises(UsageError):
        render_context(
            dataclasses.replace(CASES["ngc-1.15.5"][0], base=BaseImage(name, "", "python3")), UserAdditions()
        )


def test_mirror_replaces_the_base_registry() -> None:
    option = with_mirror(plan("1.14.0", Recipe.OFFICIAL), "mirror.example:5000/hub")
    assert (
        "FROM mirror.example:5000/hub/tensorflow/tensorflow:1.14.0-gpu-py3\n"
        in render_context(option, UserAdditions()).dockerfile
    )


def test_mirror_replaces_the_micromamba_registry() -> None:
    option = with_mirror(plan("1.14.0", Recipe.CONDA_CUDA), "mirror.example:5000/hub")
    assert (
        "FROM mirror.example:5000/hub/mambaorg/micromamba:1.5.8 AS cuda\n"
        in render_context(option, UserAdditions()).dockerfile
    )


@pytest.mark.parametrize(
    "index",
    [
        "https://user:sesame@mirror.example/simple/",
        "https://mirror.example/simple/\nRUN id",
        "https://mirror.example/$(id)",
        "https://mirror.example/?token=sesame",
        "ftp://mirror.example/",
        "https://user:sesame@[mirror",
        "https://user:sesame@mirror.example:port/",
        "file:///etc",
        "",
    ],
)
def test_invalid_index_is_refused(index: str) -> None:
    with pytest.raises(UsageError) as error:
        validate_index(index)
    if "@" in index:
        assert "sesame" not in error.value.message


def test_values_in_labels_are_quoted() -> None:
    option = dataclasses.replace(plan("2.15.1", Recipe.PIP_CUDA), cudnn='8"$HOME\\')
    label = next(
        line
        for line in render_context(option, UserAdditions()).dockerfile.splitlines()
        if "io.tfdoctor.plan" in line
    )
    assert label.endswith('" \\')
    assert r"\$HOME" in label
