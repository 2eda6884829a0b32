"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time

import pytest

import tfdoctor
from tfdoctor import text
from tfdoctor.causes.steps import Drop, remove_entries
from tfdoctor.text import clean_line, entries_of, lazy_pattern, strip_credentials


def compile_source(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled from now on, in order."""
    found: list[str] = []
    real = re.compile

    def noted(pattern: str, flags: int = 0) -> re.Pattern[str]:
        found.append(pattern)
        return real(pattern, flags)

    monkeypatch.setattr(text.re, "compile", noted)
    return found


def test_nothing_is_compiled_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    done = compile_source(monkeypatch)
    word = lazy_pattern("(?P<one>a)B", re.IGNORECASE)
    assert not done
    match = word.fullmatch("Ab")
    assert match is not None
    assert (match["one"], word.sub("x", "ab ab"), word.flags & re.IGNORECASE) == ("A", "x x", re.IGNORECASE)
    assert set(done) == {"(?P<one>a)B"}


def test_a_wrong_one_says_so_when_it_is_used() -> None:
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        wrong.match("")


def test_every_one_here_can_be_compiled() -> None:
    names = [
        module.name
        for module in pkgutil.walk_packages(tfdoctor.__path__, "tfdoctor.")
        if ".payload." not in module.name and not module.name.endswith("__main__")
    ]
    found = [
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, text._LazyPattern)
    ]
    assert len(found) > 20
    assert all(isinstance(one.pattern, str) for one in found)


@pytest.mark.parametrize(
    ("name", "value", "entries"),
    [
        ("LD_LIBRARY_PATH", "/a:/b c;/d::", ["/a", "/b c", "/d"]),
        ("LD_PRELOAD", " /a.so /b.so:/c.so\n", ["/a.so", "/b.so", "/c.so"]),
        ("PYTHONPATH", ":/a;b:/c d", ["/a;b", "/c d"]),
        ("PYTHONPATH", "", []),
    ],
)
def test_the_entries_of_a_list_of_paths(name: str, value: str, entries: list[str]) -> None:
    assert entries_of(name, value) == entries
    assert remove_entries(Drop(name, tuple(entries[:1])), value) == tuple(entries[1:])


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("`https://u:pw@h/simple`", "`https://h/simple`"),
        ("http://u:hunt/er@2@p:1 is no proxy", "http://p:1 is no proxy"),
        ("--proxy: '//u:pw@p:3128'", "--proxy: '//p:3128'"),
        ("--registry: u:pw@h.example/x", "--registry: h.example/x"),
        ("https://token@h/simple", "https://h/simple"),
        ("`http://u:a@hunter2@p:1`", "`http://p:1`"),
        ("h?token=hunter2&x=1", "h?token=…&x=1"),
        ("git+https://h/x.git@v1.2", "git+https://h/x.git@v1.2"),
        ("x:22.04@sha256:abc and a@b.example, numpy @ https://h/x.whl", "x:22.04@sha256:abc and a@b.example, numpy @ https://h/x.whl"),
    ],
)  # fmt: skip
def test_credentials_are_cut(text: str, stripped: str) -> None:
    assert strip_credentials(text) == stripped


@pytest.mark.parametrize("sign", [" ", "'", '"', "@", "/", "`", "\t"])
def test_a_quoted_value_has_no_password(sign: str) -> None:
    value = f"http://u:Zq7{sign}Wx9@h:1"
    for shown in (value, repr(value), clean_line(value), f"`{clean_line(value)}` is no address"):
        stripped = strip_credentials(shown, [value])
        assert not any(word in stripped for word in ("Zq7", "Wx9"))
        assert "h:1" in stripped


def test_cutting_takes_little_time() -> None:
    began = time.process_time()
    strip_credentials("//:" * 1300)
    assert time.process_time() - began < 2
