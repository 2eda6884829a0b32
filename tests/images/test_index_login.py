"""Tests that the login of a package index is found where pip finds it, and is in nothing that is written or shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfdoctor.core.errors import UsageError
from tfdoctor.images.index_login import IndexLogin, find_index_login
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "se:s@me/%open"  # noqa: S105 - an example
NETRC = "machine other.example login x password y\nmachine pypi.example login me password se:s@me/%open\n"


def make_system(folder: Path, netrc: str = "", keyring: str = "") -> LiveSystem:
    if netrc:
        (folder / ".netrc").write_text(netrc, encoding="ascii")
    (folder / "keyring").write_text(f"#!/bin/sh\n{keyring or 'exit 1'}\n", encoding="ascii")
    (folder / "keyring").chmod(0o755)
    return LiveSystem(env={"HOME": str(folder), "PATH": f"{folder}:/usr/bin:/bin"})


@pytest.mark.parametrize("url", ["https://pypi.example/simple/", "https://me@pypi.example/simple/"])
def test_netrc_names_the_host(tmp_path: Path, url: str) -> None:
    login = find_index_login(url, make_system(tmp_path, NETRC))
    assert login == IndexLogin("https://pypi.example/simple/", "me", PASSWORD)
    assert login.url == "https://me:se%3As%40me%2F%25open@pypi.example/simple/"
    assert login.make_pip_config() == f"[global]\nindex-url = {login.url}\n".encode()
    assert PASSWORD not in repr(login)


@pytest.mark.parametrize(
    ("url", "netrc"),
    [
        ("https://pypi.example/simple/", ""),
        ("https://third.example/simple/", NETRC),
        ("https://third.example/", "default login me password x\n"),
    ],
)
def test_index_without_a_login(tmp_path: Path, url: str, netrc: str) -> None:
    assert find_index_login(url, make_system(tmp_path, netrc)) is None


def test_keyring_is_asked_for_a_user(tmp_path: Path) -> None:
    keyring = 'test "$*" = "get pypi.example:8443 you" && echo sesame'
    login = find_index_login("https://you@pypi.example:8443/simple/", make_system(tmp_path, NETRC, keyring))
    assert login == IndexLogin("https://pypi.example:8443/simple/", "you", "sesame")


@pytest.mark.parametrize(
    "netrc", ["", NETRC, "machine pypi.example login\n", "machine pypi.example sesame\n"]
)
def test_unknown_password_is_an_error_that_shows_none(tmp_path: Path, netrc: str) -> None:
    with pytest.raises(UsageError) as error:
        find_index_login("https://hf_token@pypi.example/simple/", make_system(tmp_path, netrc))
    assert "hf_token" not in error.value.message + error.value.hint
    assert "sesame" not in error.value.message + error.value.hint


def test_password_is_removed_from_output() -> None:
    login = IndexLogin("https://h/", "me", PASSWORD)
    text = f"GET {login.url} 401; {PASSWORD}; se%3As%40me/%25open"
    assert login.redact(text) == "GET https://me:****@h/ 401; ****; ****"
