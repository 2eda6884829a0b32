"""`tfdoctor explain`: finding the pages of a query and printing them in any terminal."""

from __future__ import annotations

import io
import re
import shlex
import sys
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from cli.planner import call_tfdoctor
from tfdoctor.cli.explain import load_documentation
from tfdoctor.cli.fix import resolve_codes
from tfdoctor.cli.startup import run
from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.explain import MEMORY_CODE, Explanation, find_entries, list_entries
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.planning import Recipe, Request, recommend
from tfdoctor.prediction.fit.models import Host, HostGpu
from tfdoctor.render.explain import make_explanation_json, render_explanation
from tfdoctor.rules.retired import RetiredRule, find_current_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

QUERIES = [rule.code for rule in load_documentation().rules] + [cause.value for cause in Cause]


def tfdoctor(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tfdoctor", *args])
    with pytest.raises(SystemExit) as end:
        run()
    assert isinstance(end.value.code, int)
    return end.value.code


def codes(entries: Sequence[Any]) -> list[str]:
    return [entry.code for entry in entries]


def test_catalogue_has_every_rule_and_cause_once() -> None:
    everything = list_entries(load_documentation())
    assert codes(everything.rules) == sorted(rule.code for rule in load_documentation().rules)
    assert [entry.cause for entry in everything.causes] == list(Cause)
    assert all(section.text for rule in everything.rules for section in rule.sections)


def test_every_cause_has_a_meaning() -> None:
    meanings = [cause.data.meaning for cause in Cause]
    for meaning in meanings:
        assert meaning.endswith(".")
        assert "  " not in meaning
    assert len(set(meanings)) == len(meanings)


def test_every_page_has_a_next_command() -> None:
    for query in QUERIES:
        for whole in (False, True):
            text = render_explanation(find_entries(query, load_documentation()), complete=whole)
            has_next_step = bool(re.search(r"^(Next: |    )\S", text, re.MULTILINE))
            assert has_next_step != ("\nNothing." in text), text
        assert ("tfdoctor lint Dockerfile" in text) == query.startswith("TFD5")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("no CUDA-capable device is detected", "TFD102"),
        ("UNKNOWN ERROR (303)", "TFD101"),
        ("could not retrieve CUDA device count", "TFD105"),
        ("error: externally-managed-environment", "TFD319"),
        ("externally-managed-environment", "TFD319"),
        ("most likely due to a circular import", "TFD701"),
    ],
)
def test_part_of_a_message_leads_to_its_page(message: str, code: str) -> None:
    explanation = find_entries(message, load_documentation())
    assert explanation.meaning
    assert code in codes(explanation.rules)


def test_number_of_a_rule_that_is_also_a_cuda_error_leads_to_both() -> None:
    explanation = find_entries("303", load_documentation())
    assert codes(explanation.rules) == ["TFD303"]
    assert "UNKNOWN ERROR (303)" in explanation.meaning
    assert not find_entries("201", load_documentation()).meaning


def test_no_quotation_is_cut_open() -> None:
    for query in [*QUERIES, "Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0"]:
        text = render_explanation(find_entries(query, load_documentation()), complete=False)
        assert text.partition("Next: ")[0].count('"') % 2 == 0, text


def test_every_known_message_has_a_page() -> None:
    for signature in load_signatures().signatures:
        for line in signature.matching_examples[:1] if signature.causes or signature.benign_code else ():
            explanation = find_entries(line, load_documentation())
            assert explanation.rules or explanation.causes, line


def test_commands_can_be_copied() -> None:
    """Continue a long command on the next line as a shell does, and break no quoted string."""
    for cause in Cause:
        explanation = find_entries(cause.value, load_documentation())
        if explanation.rules:
            continue
        text = render_explanation(explanation, width=60)
        lines = [" ".join(line.split()) for line in text.replace("\\\n", "").splitlines()]
        for entry in explanation.causes:
            for remedy in entry.remedies:
                for command in remedy.commands:
                    assert " ".join(command.split()) in lines, text


@pytest.mark.parametrize("query", ["TFD203", "tfd203", "203", " 203 "])
def test_code_finds_the_rule(query: str) -> None:
    explanation = find_entries(query, load_documentation())
    assert codes(explanation.rules) == ["TFD203"]
    assert [entry.cause for entry in explanation.causes] == [Cause.LIBS_NOT_ON_PATH]


@pytest.mark.parametrize("query", ["libs-not-on-path", "libs_not_on_path", "LIBS-NOT-ON-PATH"])
def test_name_of_a_rule_and_a_cause_gives_the_rule(query: str) -> None:
    assert codes(find_entries(query, load_documentation()).rules) == ["TFD203"]


def test_cause_lists_all_its_rules() -> None:
    explanation = find_entries("inconclusive", load_documentation())
    assert [entry.cause for entry in explanation.causes] == [Cause.INCONCLUSIVE]
    expected = [
        rule.code
        for rule in load_documentation().rules
        if Cause.INCONCLUSIVE in rule.causes and rule.causes != tuple(Cause)
    ]
    assert sorted(codes(explanation.rules) + codes(explanation.related_rules)) == sorted(expected)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Skipping registering GPU devices...", "TFD801"),
        ("Cannot dlopen some GPU libraries. Please make sure", "TFD801"),
        ("Could not find cuda drivers on your machine, GPU will not be used.", "TFD801"),
        ("libcudnn.so.8: cannot open shared object file", "TFD205"),
        ("Could not load dynamic library 'libcudart.so.11.0'", "TFD201"),
        ("ImportError: libcublas.so.9.0: cannot open shared object file: No such file", "TFD207"),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "TFD102"),
        ("Failed to initialize NVML: Driver/library version mismatch", "TFD104"),
        ("CUDA_ERROR_OUT_OF_MEMORY", "TFD804"),
        ("Unable to register cuFFT factory", "TFD820"),
        ("secure boot module signed", "TFD118"),
        ("other processes take the memory of the card", "TFD603"),
    ],
)
def test_message_finds_its_page(words: str, code: str) -> None:
    explanation = find_entries(words, load_documentation())
    found_codes = codes(explanation.rules) or [entry.cause.data.finding_code for entry in explanation.causes]
    assert found_codes[0] == code
    assert explanation.query == words


def test_query_needs_no_quotes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert tfdoctor(monkeypatch, "explain", "Skipping", "registering", "GPU", "devices") == 0
    assert "TFD801" in capsys.readouterr().out


def test_every_page_has_a_remedy() -> None:
    for cause in Cause:
        for query in (cause.value, cause.data.finding_code):
            text = render_explanation(find_entries(query, load_documentation()), width=200)
            assert text.partition("What to do\n")[2].strip(), query


@pytest.mark.parametrize(
    ("query", "near"),
    [
        ("libs-not-on-pth", "`libs-not-on-path`"),
        ("TFD20", "`TFD20"),
        ("nvml", "`nvml-missing`"),
        ("no driver", "`no-driver`"),
    ],
)
def test_unknown_query_suggests_similar_names(query: str, near: str) -> None:
    with pytest.raises(UsageError) as error:
        find_entries(query, load_documentation())
    assert near in error.value.hint
    assert query in error.value.message


@pytest.mark.parametrize("query", ["", "999", "x", "\x1b[31m", "é" * 500, "../../etc/passwd"])
def test_nonsense_is_refused(query: str) -> None:
    with pytest.raises(UsageError) as error:
        find_entries(query, load_documentation())
    assert "lists every code" in error.value.hint
    assert len(error.value.message) < 400


@cache
def list_explanations() -> tuple[Explanation, ...]:
    return (
        list_entries(load_documentation()),
        *(find_entries(query, load_documentation()) for query in QUERIES),
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("width", [20, 40, 59, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Wrap every line, except a single word of a command that is too long."""
    for explanation in list_explanations():
        text = render_explanation(explanation, width=width)
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        for line in text.splitlines():
            assert len(line) <= width or len(shlex.split(line.removesuffix("\\"))) == 1
            assert line == line.rstrip()


def test_command_prints_the_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert tfdoctor(monkeypatch, "explain") == 0
    out = capsys.readouterr().out
    for query in QUERIES:
        assert query in out
    assert "\x1b" not in out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_fits_the_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert tfdoctor(monkeypatch, "explain") == 0
    text = raw.getvalue().decode(encoding)
    assert "AVX2" in text
    assert "?" not in text


def test_unknown_query_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tfdoctor(monkeypatch, "explain", "libs-not-on-pth") == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.splitlines() == [
        "tfdoctor: no rule and no cause is called 'libs-not-on-pth'",
        captured.err.splitlines()[1],
    ]
    assert captured.err.splitlines()[1].startswith("hint: did you mean `libs-not-on-path`")


@pytest.mark.parametrize(
    ("code", "word"),
    [("TFD801", "libs-unlisted"), ("tfd804", "oom"), ("820", "harmless"), ("TFD821", "XLA_GPU")],
)
def test_codes_of_logs_are_explained(code: str, word: str) -> None:
    result = call_tfdoctor("explain", code)
    assert result.status == 0, result.err
    assert word in result.out


RETIRED_RULES = (
    RetiredRule("TFD298", "old-paths", "Old paths", "0.9.0", ("TFD299",), "It said what TFD299 says better."),
    RetiredRule(
        "TFD299", "older-paths", "Older paths", "1.0.0", ("TFD203", "TFD201"), "Two checks tell it apart."
    ),
    RetiredRule("TFD699", "solaris", "This is Solaris", "1.0.0", (), "There is no CUDA for Solaris."),
)


def test_retired_codes_lead_to_their_successors() -> None:
    assert find_current_codes("TFD203", RETIRED_RULES) == ("TFD203",)
    assert (
        find_current_codes("TFD298", RETIRED_RULES)
        == find_current_codes("TFD299", RETIRED_RULES)
        == ("TFD203", "TFD201")
    )
    assert find_current_codes("TFD699", RETIRED_RULES) == ()
    cycle = (
        replace(RETIRED_RULES[0], successors=("TFD299",)),
        replace(RETIRED_RULES[1], successors=("TFD298",)),
    )
    with pytest.raises(ValueError, match="TFD298 → TFD299 → TFD298"):
        find_current_codes("TFD298", cycle)


@pytest.mark.parametrize("query", ["TFD298", "298", "old-paths"])
def test_page_of_a_retired_code_names_its_successors(query: str) -> None:
    explanation = find_entries(query, load_documentation(), retired=RETIRED_RULES)
    assert codes(explanation.rules) == ["TFD201", "TFD203"]
    assert explanation.retired_rule is RETIRED_RULES[0]
    text = " ".join(render_explanation(explanation).split())
    assert text.startswith(
        "TFD298 old-paths was retired in 0.9.0 Old paths It said what TFD299 says better. "
    )
    assert "TFD201 and TFD203 tell it now." in text
    assert "LD_LIBRARY_PATH" in text  # and the text of those rules
    assert make_explanation_json(explanation)["rules"][0]["code"] == "TFD201"


def test_retired_code_without_successor() -> None:
    explanation = find_entries("TFD699", load_documentation(), retired=RETIRED_RULES)
    assert explanation.rules == explanation.causes == explanation.related_rules == ()
    text = " ".join(render_explanation(explanation).split())
    assert "There is no CUDA for Solaris. Nothing reports it now." in text


def test_fix_replaces_retired_codes() -> None:
    assert resolve_codes(["tfd298", "TFD203", "TFD601"], RETIRED_RULES) == ("TFD203", "TFD201", "TFD601")
    for code in ("TFD298", "TFD999"):  # not a retired code
        with pytest.raises(UsageError, match=f"there is no finding {code}"):
            resolve_codes([code])
    with pytest.raises(UsageError, match="there is no finding TFD699"):
        resolve_codes(["TFD699"], RETIRED_RULES)


def test_current_name_has_precedence_over_a_retired_one() -> None:
    same_name = (replace(RETIRED_RULES[0], name="libs-not-on-path"),)
    assert codes(find_entries("TFD203", load_documentation(), retired=same_name).rules) == ["TFD203"]
    assert find_entries("TFD203", load_documentation(), retired=same_name).retired_rule is None


@pytest.mark.parametrize("asked", ["memory", "TFD826", "why does tensorflow take all of the gpu memory"])
def test_question_about_memory_finds_the_page(asked: str) -> None:
    page = render_explanation(find_entries(asked, load_documentation()), complete=False)
    assert "takes nearly all free memory" in page
    assert "    export TF_FORCE_GPU_ALLOW_GROWTH=true\n" in page


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("AttributeError: module 'tensorflow' has no attribute 'Session'", "TFD717"),
        ("module 'tensorflow' has no attribute 'placeholder'", "TFD717"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", "TFD105"),
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "TFD102"),
    ],
)
def test_part_of_a_message_is_explained_as_diagnose_would(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], message: str, code: str
) -> None:
    tfdoctor(monkeypatch, "explain", message)
    assert code in capsys.readouterr().out


def test_memory_page_separates_growth_from_a_limit() -> None:
    """Whoever copies a block gets one of the two, and for each GPU."""
    blocks = MEMORY_CODE.split("TensorFlow 2, ")
    growth, limit = blocks[1], blocks[2].partition("TensorFlow 1")[0]
    assert "set_memory_growth" in growth
    assert "set_logical_device_configuration" not in growth
    assert limit.index("for gpu in") < limit.index("set_logical_device_configuration")
    assert "set_memory_growth" not in limit


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("RTX 3080", "tfdoctor recommend 'RTX 3080'"),
        ("is my GTX 1080 Ti supported", "tfdoctor recommend 'GTX 1080 Ti'"),
        ("T4", "tfdoctor recommend T4"),
        ("training is slow", "tfdoctor bench"),
        ("does it work with AMD", "python3 -m pip install tensorflow"),
    ],
)
def test_question_names_a_command(words: str, command: str) -> None:
    explanation = find_entries(words, load_documentation())
    assert command in [line for remedy in explanation.message_remedies for line in remedy.commands]


def test_advice_for_new_cards_is_that_of_the_planner() -> None:
    """`explain` names the release and the image that `recommend` offers for the newest cards."""
    compat = Compat.load()
    host = Host(cards=(HostGpu("RTX 5090", "12.0"),))
    explanation = find_entries("CUDA_ERROR_INVALID_PTX", load_documentation())
    texts = " ".join(remedy.text for remedy in explanation.message_remedies)
    options = recommend(compat, Request(), host).options
    assert len(options) > 1
    for option in options:
        name = option.base.image if option.recipe is Recipe.NGC and option.base is not None else ""
        assert (name or f"TensorFlow {versions.major_minor(option.tensorflow)}") in texts


def test_part_of_one_message_is_not_taken_for_a_question() -> None:
    whole = find_entries(
        "Could not find cuda drivers on your machine, GPU will not be used.", load_documentation()
    )
    assert whole.rules or whole.causes
    part = find_entries("Could not find cuda drivers", load_documentation())
    assert replace(part, query=whole.query) == whole
    assert (
        "usual reasons" in find_entries("GPU will not be used", load_documentation()).meaning
    )  # in several messages
