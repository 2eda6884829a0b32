"""Lazily compiled regular expressions, lists of paths, and the removal of credentials."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time

import pytest

import tfdoctor
from tfdoctor.core import text
from tfdoctor.core.causes.steps import RemoveEntries
from tfdoctor.core.text import clean_line, make_lazy_pattern, split_path_list, strip_credentials


def record_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every pattern compiled from now on is appended."""
    patterns: list[str] = []
    real = re.compile

    def record_and_compile(pattern: str, flags: int = 0) -> re.Pattern[str]:
        patterns.append(pattern)
        return real(pattern, flags)

    monkeypatch.setattr(text.re, "compile", record_and_compile)
    return patterns


def test_pattern_is_compiled_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = record_compilations(monkeypatch)
    pattern = make_lazy_pattern("(?P<one>a)B", re.IGNORECASE)
    assert not compiled
    match = pattern.fullmatch("Ab")
    assert match is not None
    assert (match["one"], pattern.sub("x", "ab ab"), pattern.flags & re.IGNORECASE) == (
        "A",
        "x x",
        re.IGNORECASE,
    )
    assert set(compiled) == {"(?P<one>a)B"}


def test_invalid_pattern_raises_at_first_use() -> None:
    invalid = make_lazy_pattern("(")
    with pytest.raises(re.error):
        invalid.match("")


def test_all_lazy_patterns_are_valid() -> None:
    names = [
        module.name
        for module in pkgutil.walk_packages(tfdoctor.__path__, "tfdoctor.")
        if ".payload." not in module.name and not module.name.endswith("__main__")
    ]
    patterns = [
        value
        for name in names
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, text._LazyPattern)
    ]
    assert len(patterns) > 20
    assert all(isinstance(pattern.pattern, str) for pattern in patterns)


@pytest.mark.parametrize(
    ("name", "value", "entries"),
    [
        ("LD_LIBRARY_PATH", "/a:/b c;/d::", ["/a", "/b c", "/d"]),
        ("LD_PRELOAD", " /a.so /b.so:/c.so\n", ["/a.so", "/b.so", "/c.so"]),
        ("PYTHONPATH", ":/a;b:/c d", ["/a;b", "/c d"]),
        ("PYTHONPATH", "", []),
    ],
)
def test_entries_of_a_path_list(name: str, value: str, entries: list[str]) -> None:
    assert split_path_list(name, value) == entries
    step = RemoveEntries(name, tuple(entries[:1]))
    assert step.list_remaining({name: value}) == tuple(entries[1:])


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
def test_credentials_are_removed(text: str, stripped: str) -> None:
    assert strip_credentials(text) == stripped


@pytest.mark.parametrize("sign", [" ", "'", '"', "@", "/", "`", "\t"])
def test_password_with_special_characters_is_removed(sign: str) -> None:
    value = f"http://u:Zq7{sign}Wx9@h:1"
    for shown in (value, repr(value), clean_line(value), f"`{clean_line(value)}` is no address"):
        stripped = strip_credentials(shown, [value])
        assert not any(part in stripped for part in ("Zq7", "Wx9"))
        assert "h:1" in stripped


def test_removal_of_credentials_is_fast() -> None:
    began = time.process_time()
    strip_credentials("//:" * 1300)
    assert time.process_time() - began < 2
