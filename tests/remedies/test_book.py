"""The book of remedies (compat/remedies.toml)."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest
from packaging.requirements import InvalidRequirement, Requirement

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.logs.advice import list_remedies
from tfdoctor.logs.log_context import LogContext
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.remedies.book import choose_entries, fill_placeholders, make_book_remedy

COMPAT = Compat.load()
ENTRIES = COMPAT.remedies
ENTRY = ENTRIES[0]


def make_context(*lines: str) -> LogContext:
    return LogContext(scan(["\n".join(lines).encode()], load_signatures()), COMPAT)


def test_entries_name_causes_and_signatures_that_exist() -> None:
    signatures = load_signatures().signatures_by_id
    wrong = [
        (entry.id, name)
        for entry in ENTRIES
        for name in (*entry.causes, *entry.seen, *entry.unless)
        if name not in signatures and name not in {cause.value for cause in Cause}
    ]
    assert wrong == []
    for entry in ENTRIES:
        for pattern in (*entry.seen.values(), *entry.unless.values()):
            re.compile(pattern)
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)


def test_no_placeholder_is_left() -> None:
    """Every entry is filled in for a log that shows nothing of the release or the machine."""
    left = []
    for entry in ENTRIES:
        compat = CompatWith(replace(entry, seen={}, unless={}))
        for cause in map(Cause, entry.causes):
            for remedy in list_remedies(LogContext(make_context("").log, compat), cause):
                left += [
                    (entry.id, text)
                    for text in (remedy.text, *remedy.commands)
                    if re.search(r"\{[a-z_]+\}", text)
                ]
    assert left == []


class CompatWith:  # a stand-in for Compat with one entry
    def __init__(self, *entries: object) -> None:
        self.remedies = entries

    def __getattr__(self, name: str) -> object:
        return getattr(COMPAT, name)


def test_requirements_that_pip_would_install_are_valid_and_not_forbidden() -> None:
    """`protobuf<3.21`, for example, breaks TensorFlow 2.18 and newer."""
    found, wrong = 0, []
    for entry in ENTRIES:
        for command in entry.commands:
            match = re.search(r"\bpip install (?:--\S+ )*(.+)", command)
            for word in (
                shlex.split(match[1].partition("&&")[0].partition("|")[0], comments=False) if match else ()
            ):
                if word.startswith("-") or "{" in word or word.endswith(".whl"):
                    continue
                found += 1
                try:
                    Requirement(word.strip("'"))
                except InvalidRequirement:
                    wrong.append((entry.id, word))
    assert wrong == []
    assert found > 5


@pytest.mark.parametrize(
    ("lines", "cause", "first"),
    [
        (["/nix/store/wm8l3c3ngx85bk9rhrndw6kpyq1gzh4i-python3"], Cause.NO_DRIVER, "nix-driver"),
        ([""], Cause.NO_DRIVER, None),
        (["Unknown runtime specified nvidia."], Cause.NO_NVIDIA_RUNTIME, None),
        (
            ["Unknown runtime specified nvidia.", "sudo snap install docker"],
            Cause.NO_NVIDIA_RUNTIME,
            "snap-docker",
        ),
        (["Unknown runtime specified nvidia.", "sudo snap install code"], Cause.NO_NVIDIA_RUNTIME, None),
        (["Can't find libdevice directory"], Cause.LIBDEVICE_OR_PTXAS_MISSING, "libdevice-pip"),
        (
            ["Can't find libdevice directory", "/opt/conda/envs/gpu/bin/python"],
            Cause.LIBDEVICE_OR_PTXAS_MISSING,
            "libdevice-conda",
        ),
        (
            ['The "tensorflow-gpu" package has been removed!'],
            Cause.NO_MATCHING_WHEEL,
            "tensorflow-gpu-removed",
        ),
        (
            ['The "tensorflow-gpu" package has been removed!', r"C:\Users\x\python.exe"],
            Cause.NO_MATCHING_WHEEL,
            "tensorflow-gpu-removed-windows",
        ),
    ],
)
def test_the_most_specific_entry_comes_first(lines: list[str], cause: Cause, first: str | None) -> None:
    context = make_context(*lines)
    chosen = choose_entries(
        ENTRIES, cause, lambda name: [event.text for event in context.log.list_events(name)], []
    )
    assert (chosen[0].id if chosen else None) == first


def test_entry_of_a_release_needs_the_release() -> None:
    entry = replace(ENTRY, causes=("oom",), seen={}, unless={}, versions="<2.4")
    for releases, count in (([], 0), (["2.4"], 0), (["2.3.1"], 1), (["2.3.1", "2.4"], 0)):
        assert len(choose_entries([entry], Cause.OOM, lambda _: (), releases)) == count


def test_entry_for_the_same_lines_is_left_out_if_another_is_more_specific() -> None:
    lines = {"protobuf": ["Descriptors cannot be created directly"]}
    for releases, first in (
        (["2.20.0"], "protobuf-of-another-package"),
        (["2.10.1"], "protobuf-descriptors-2-11"),
        (["2.11.0", "2.12.0"], "protobuf-descriptors"),
        ([], "protobuf-descriptors"),
    ):
        chosen = choose_entries(ENTRIES, Cause.PROTOBUF_CONFLICT, lambda name: lines.get(name, ()), releases)
        assert [entry.id for entry in chosen] == [first]


def test_command_without_its_value_is_left_out() -> None:
    entry = replace(ENTRY, text="{a}", commands=("{a} {b}", "{a}"))
    assert make_book_remedy(entry, {"a": "{b}"}).commands == ("{b}",)


def test_general_remedies_follow_only_if_the_entry_says_so() -> None:
    general = list_remedies(make_context(""), Cause.NO_DRIVER)
    context = make_context("/nix/store/wm8l3c3ngx85bk9rhrndw6kpyq1gzh4i-python3")
    assert not set(list_remedies(context, Cause.NO_DRIVER)) & set(general)
    kept = list_remedies(make_context("failed call to cuInit: CUDA_ERROR_UNKNOWN"), Cause.DRIVER_INIT_UNKNOWN)
    assert set(kept) > set(list_remedies(make_context(""), Cause.DRIVER_INIT_UNKNOWN))


def test_braces_in_a_value_stay() -> None:
    assert fill_placeholders("{a} {b} {c}", {"a": "{b}", "b": "x"}) == "{b} x {c}"
