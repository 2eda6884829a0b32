"""`tfdoctor fleet` on the command line, as far as it needs no host."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
import yaml

from cli.planner import call_tfdoctor, validate
from extensions.fleet.made import answer

if TYPE_CHECKING:
    from pathlib import Path

TF_CONFIG = '{"cluster": {"worker": ["a:1", "b:1"]}}'


@pytest.fixture(autouse=True)
def ssh_on_path(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an ssh at the end of PATH: some machines have none, and no test here connects."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "ssh").write_text("#!/bin/sh\nexit 255\n", encoding="ascii")
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{folder}")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("report", "--ssh", "a"), "No such option: --ssh"),
        (("run",), "needs one of"),
        (("run", "--ssh", "a", "--ray", "b"), "needs one of"),
        (("run", "--ssh", "a", "--image", "x"), "go with --kubernetes"),
        (("run", "--ssh", "a", "--emit"), "go with --kubernetes"),
        (("run", "--kubernetes", "n", "--image", "x", "--emit", "--connect", "1"), "asks nobody"),
        (("run", "--kubernetes", "n", "--emit"), "--image"),
        (("run", "--dask", "a:1", "--pass-on=-x"), "for ssh and srun"),
        (("run", "--ssh", ","), "names no host"),
        (("run", "--ssh", "a", "--connect", "0"), "from 1 to 65535"),
        (("run", "--ssh", "a", "--connect", "65536"), "from 1 to 65535"),
        (("run", "--ssh", "a", "--connect", '{"cluster": {}}'), "--connect: "),
        (("run", "--ssh", "a", "--connect", '{"cluster": {"worker": ["' + "x" * 61_000 + ':1"]}}'), "61,0"),
        (("run", "--ssh", "a", "--timeout", "4"), "--timeout"),
    ],
)
def test_invalid_request_is_refused(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    result = call_tfdoctor("fleet", args[0], str(tmp_path), *args[1:])
    assert (result.status, result.out) == (2, "")
    assert message in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), ["on 2 hosts: a, b\n"]),
        (("--python", "/p", "--runner", "/r"), ["/p", "/r"]),
        (("--connect", "2222"), []),
        (("--connect", TF_CONFIG), []),
    ],
)
def test_dry_run_names_the_hosts(tmp_path: Path, args: tuple[str, ...], words: list[str]) -> None:
    result = call_tfdoctor("fleet", "run", str(tmp_path / "new"), "--ssh", "a,b", "--dry-run", *args)
    assert (result.status, result.err) == (0, "")
    assert [word for word in words if word not in result.out] == []
    assert not (tmp_path / "new").exists()


def test_folder_with_results_is_refused_without_resume(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    result = call_tfdoctor("fleet", "run", str(tmp_path), "--ssh", "a", "--dry-run")
    assert result.status == 2
    assert "is not empty" in result.err
    assert call_tfdoctor("fleet", "run", str(tmp_path), "--ssh", "a", "--dry-run", "--resume").status == 0


def test_hosts_can_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("one\n# a note\ntwo\n")
    result = call_tfdoctor(
        "fleet", "run", str(tmp_path / "new"), "--ssh", str(tmp_path / "hosts"), "--dry-run"
    )
    assert "one" in result.out
    assert "two" in result.out
    assert "note" not in result.out


def test_manifest_is_printed(tmp_path: Path) -> None:
    args = ("--kubernetes", "n", "--image", "x:1", "--emit", "--gpu-count", "2", "--python", "/p")
    result = call_tfdoctor("fleet", "run", str(tmp_path), *args)
    assert result.status == 0
    text = json.dumps(list(yaml.safe_load_all(result.out)))
    for word in ('"x:1"', '"nvidia.com/gpu": "2"', "--python", "/p"):
        assert word in text


@pytest.mark.parametrize(
    ("fail_on", "host", "status"),
    [
        ("error", "driver-too-old-for-libcuda", 1),
        ("never", "driver-too-old-for-libcuda", 0),
        ("error", "healthy-two-gpus", 0),
    ],
)
def test_exit_status_and_page(tmp_path: Path, fail_on: str, host: str, status: int) -> None:
    (tmp_path / "a.json").write_text(json.dumps(answer(host)))
    page = tmp_path / "page.html"
    args = ("fleet", "report", str(tmp_path), "--fail-on", fail_on, "--json", "--html", str(page))
    result = call_tfdoctor(*args)
    assert (result.status, result.err) == (status, "")
    validate(result.json, "fleet")
    assert page.read_bytes().startswith(b"<!")
    assert call_tfdoctor(*args).status == 2  # the page exists
