"""Tests of the user's own code in an image: what is read, what is refused, and what the Dockerfile does with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfdoctor.core.errors import UsageError
from tfdoctor.images.engine import app_files
from tfdoctor.images.engine.app_files import read_app_files

if TYPE_CHECKING:
    from pathlib import Path

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with code, data that is ignored, and a repository."""
    folder = tmp_path / "project"
    for name, text in {
        "train.py": "print(1)\n",
        "run.sh": "#!/bin/sh\n",
        "model/net.py": "x = 1\n",
        ".git/config": "url = https://me:sesame@git.example\n",
        "model/__pycache__/net.pyc": "x",
        "data/large.bin": "x",
        "data/keep.csv": "x",
        ".dockerignore": "# data\ndata/*\n!data/keep.csv\n",
        ".env.example": "TOKEN=\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "run.sh").chmod(0o755)
    return folder


def test_dockerignore_decides_what_is_copied(project: Path) -> None:
    (project / "link.py").symlink_to("train.py")
    app = read_app_files(project)
    names = {".env.example", "data/keep.csv", "link.py", "model/net.py", "run.sh", "train.py"}
    assert app.contents.keys() == {f"app/{name}" for name in names}
    assert app.contents["app/link.py"] == b"print(1)\n"
    assert app.executables == {"app/run.sh"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", "x"),
        (".env.production", "x"),
        ("conf/.netrc", "x"),
        (".pypirc", "x"),
        ("id_ed25519", "x"),
        ("gcp-service-account-1.json", "{}"),
        ("credentials.json", "{}"),
        (".aws/config", "x"),
        ("server.pem", KEY),
        ("notes.txt", f"keep this\n{KEY}"),
        ("store.P12", "x"),
        ("prod.env", "x"),
        (".envrc", "x"),
        (".envs/prod", "x"),
        ("kaggle.json", "{}"),
        (".streamlit/secrets.toml", "x"),
        ("db_credentials.yaml", "x"),
        (".npmrc", "x"),
        ("key.ppk", "x"),
        ("terraform.tfstate", "{}"),
        (".bash_history", "x"),
        ("pip.ini", "[global]\nindex-url = https://alice:hunter22@pypi.example/simple\n"),
        ("settings.yaml", "db:\n  password: hunter22\n"),
        ("gh/hosts.yml", "github.com:\n  oauth_token: gho_abcdefghij\n"),
        ("config.json", '{"apiKey": "0123456789abcdef"}'),
        ("signing.txt", "-----BEGIN PGP PRIVATE KEY BLOCK-----"),
    ],
)
def test_secret_is_refused_and_can_be_ignored(project: Path, name: str, text: str) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_app_files(project)
    assert name in error.value.message
    assert ".dockerignore" in error.value.hint
    (project / ".dockerignore").write_text(name, encoding="utf-8")
    assert f"app/{name}" not in read_app_files(project).contents


@pytest.mark.parametrize(
    "name",
    [
        "environment.yml",
        "tokens.py",
        "keys.json",
        "public.pem",
        "service.json",
        "special_tokens_map.json",
        "env.py",
    ],
)
def test_ordinary_name_is_copied(project: Path, name: str) -> None:
    (project / name).write_text("-----BEGIN CERTIFICATE-----\nMIIB\n", encoding="utf-8")
    assert f"app/{name}" in read_app_files(project).contents


@pytest.mark.parametrize(
    "text",
    [
        "password: ${DB_PASSWORD}",
        'password = "<yours>"',
        '"use_auth_token": false',
        "secret: {{ vault }}",
        "https://a.example/b:c@d",
    ],
)
def test_setting_without_a_value_is_copied(project: Path, text: str) -> None:
    (project / "conf.yaml").write_text(text, encoding="utf-8")
    assert "app/conf.yaml" in read_app_files(project).contents


def test_link_out_of_the_folder_is_refused(project: Path) -> None:
    (project.parent / "outside.txt").write_text("x", encoding="utf-8")
    (project / "inside.txt").symlink_to("../outside.txt")
    with pytest.raises(UsageError, match=r"inside\.txt is a link that leads out of the folder"):
        read_app_files(project)


def test_dangling_link_is_refused(project: Path) -> None:
    (project / "gone.txt").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"gone\.txt is not a regular file"):
        read_app_files(project)


@pytest.mark.parametrize(("name", "value"), [("MAX_BYTES", 20), ("MAX_FILES", 2)])
def test_large_folder_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    monkeypatch.setattr(app_files, name, value)
    with pytest.raises(UsageError, match="has more than"):
        read_app_files(project)


def test_missing_and_empty_folders_are_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError):
            read_app_files(folder)


def test_pattern_with_many_wildcards_is_refused(project: Path) -> None:
    (project / ".dockerignore").write_text("*a*a*a*a*a*b\n", encoding="ascii")
    with pytest.raises(UsageError, match="more than 4 wildcards"):
        read_app_files(project)
