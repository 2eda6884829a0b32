"""Look up the documentation of codes and causes, for `tfdoctor explain` and docs/codes.

The documentation of a rule is the docstring of its module: a first paragraph, and a section for each of `SECTION_HEADINGS`.
"""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tfdoctor.compat import Compat
from tfdoctor.core.causes.codes import (
    HARMLESS,
    LINT_CODES,
    MEMORY,
)
from tfdoctor.core.docstrings import read_docstring
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Cause, Remedy
from tfdoctor.diagnosis.glossary import find_term
from tfdoctor.diagnosis.questions import Question, find_question
from tfdoctor.diagnosis.table_questions import find_table_question
from tfdoctor.logs.advice import list_remedies, list_specific_remedies
from tfdoctor.logs.codes import LOG_PAGES
from tfdoctor.logs.events import Log
from tfdoctor.logs.libraries import is_cudnn_library, is_gpu_library
from tfdoctor.logs.log_context import LogContext
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures
from tfdoctor.logs.verdict import choose_decision
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.base import extract_section
from tfdoctor.rules.retired import RETIRED_RULES, find_current_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdoctor.core.causes.codes import CodePage
    from tfdoctor.rules.retired import RetiredRule

SECTION_HEADINGS = ("What it means", "How it is seen", "What to do")
"""The headings of the sections in every rule's docstring, in order."""


class DocumentedRule(Protocol):
    """A rule of `check` or of `lint`."""

    @property
    def code(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def causes(self) -> tuple[Cause, ...]: ...

    @property
    def check(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it; empty lines separate the paragraphs."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """A rule and its documentation."""

    code: str
    name: str
    title: str
    causes: tuple[Cause, ...]
    summary: str
    """The first paragraph of the docstring, on one line."""
    sections: tuple[Section, ...]
    next_command: str = "tfdoctor check"
    """The command whose output shows the remedy for the user's machine."""

    @property
    def has_all_causes(self) -> bool:
        """Whether the rule can report every cause, so that it does not explain a particular one."""
        return set(self.causes) == set(Cause)


@dataclass(frozen=True, slots=True)
class CauseEntry:
    """A cause, its meaning, and the codes of the rules that can report it."""

    cause: Cause
    meaning: str
    rule_codes: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()
    """The remedies, if no page of a rule describes the cause."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The entries that match one query. `query` is None if the user asked for all entries."""

    query: str | None
    rules: tuple[RuleEntry, ...]
    causes: tuple[CauseEntry, ...]
    related_rules: tuple[RuleEntry, ...] = ()
    """Other rules that can report one of `causes`."""
    retired_rule: RetiredRule | None = None
    """The retired rule that the query names, else None. `rules` are then the rules that replace it."""
    meaning: str = ""
    """The meaning of the log message in the query, in one or two sentences; empty if the query is no message."""
    message_remedies: tuple[Remedy, ...] = ()
    """The remedies for just this message."""


def make_page_entry(page: CodePage, next_command: str) -> RuleEntry:
    """Return the entry for a finding or note that has no cause."""
    return RuleEntry(
        code=page.code,
        name=page.name,
        title=page.title,
        causes=(),
        summary=page.summary,
        sections=(Section("What it means", page.meaning), Section("What to do", page.remedy)),
        next_command=next_command,
    )


CAUSE_BY_LOG_CODE = {
    cause.data.finding_code: cause
    for cause in sorted(Cause, key=lambda cause: cause.data.finding_code)
    if cause.data.finding_code not in {rule.code for rule in ALL_RULES}
}
"""The causes that only `diagnose` reports, by code."""
MEMORY_CODE = """\
For any program, before it starts:
    export TF_FORCE_GPU_ALLOW_GROWTH=true
TensorFlow 2, memory as it is needed:
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
TensorFlow 2, a limit in MiB for each GPU instead:
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=4096)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(gpu, [limit])
TensorFlow 1 (per_process_gpu_memory_fraction=0.4 is a limit):
    options = tf.GPUOptions(allow_growth=True)
    session = tf.Session(config=tf.ConfigProto(gpu_options=options))"""
"""Code that limits the GPU memory of TensorFlow."""
PAGES_WITHOUT_CAUSE: dict[str, RuleEntry] = {
    **{page.code: make_page_entry(page, "tfdoctor diagnose train.log") for page in LOG_PAGES},
    MEMORY: RuleEntry(
        code=MEMORY,
        name="memory",
        title="Why TensorFlow takes all of a GPU's memory",
        causes=(),
        summary="TensorFlow takes the memory of every GPU at its start, unless the program limits it.",
        sections=(
            Section(
                "What it means",
                "At its first operation TensorFlow takes nearly all free memory of every GPU.",
            ),
            Section("What to do", MEMORY_CODE),
            Section(
                "How it is seen",
                "nvidia-smi shows a full GPU, whatever the model needs, until the process ends. "
                "`tfdoctor check` shows who holds memory. How much of it a program uses: "
                'tf.config.experimental.get_memory_info("GPU:0"), from TensorFlow 2.5.\n\n'
                "The variable is read by TensorFlow 1.12 and newer, set_memory_growth is there from 1.14. The limit "
                "has this name in 2.2 and newer; tf.config.experimental.set_virtual_device_configuration is there "
                "from 1.14. All of it must come before the first operation, and growth must be the same for all GPUs. "
                "Memory that grew is not given back either. Two limits in the list make two logical GPUs of one.\n\n"
                "TF_GPU_ALLOCATOR=cuda_malloc_async, from 2.5, takes memory from CUDA's own pool as it is needed, "
                "which helps where the memory is fragmented; it needs a driver for CUDA 11.2.",
            ),
        ),
    ),
}
"""The pages about findings of `diagnose` that have no cause, by code, and the page about GPU memory."""
_LINT_CODES = {
    "configured-late": LINT_CODES["configured-too-late"],
    "growth-differs": LINT_CODES["growth-not-on-all"],
}
"""The codes of `lint` findings, by the ID of the signature of the log message that the mistake causes."""
MAX_QUERY_CHARS = 4000
"""The largest number of characters of a query that are read."""
_LIBRARY_PATTERN = re.compile(r"lib[\w+-]{1,60}\.so[.\d]{0,20}")
"""The file name of a shared library."""
_COMMON_WORDS = frozenset(
    re.findall(
        r"\w+",
        "the and for not with that this are was you your from have has can cannot could gpu tensorflow error warning "
        "use why does what how get see when device devices file files failed",
    )
)
"""Words that are so common that they do not identify a page."""
MIN_QUOTED_WORDS = 4
"""From this number of words on, a query that is a part of a known message is taken for a quotation of it."""
SITUATION_PAGES: dict[str, tuple[str, str]] = {
    "tensorflow-1": ("1.14 1.15 tf1 contrib", "tfdoctor recommend --tf 1.14"),
    "rtx-50": ("blackwell 5050 5060 5070 5080 5090 sm_120", 'tfdoctor recommend "RTX 5090"'),
    "old-cards": ("kepler maxwell pascal volta k40 k80 p100 v100", "tfdoctor recommend"),
    "wsl2": ("wsl wsl2", "tfdoctor check"),
    "windows": ("windows dll", "tfdoctor matrix 2.10 --windows"),
    "upgrading": ("upgrade upgrading downgrade", "tfdoctor recommend"),
    "cluster": ("slurm srun sbatch hpc cluster apptainer singularity", "tfdoctor check"),
    "kubernetes": ("kubernetes k8s kubectl pod pods", "tfdoctor check"),
    "network": (
        "proxy certificate certificate_verify_failed ssl mirror offline",
        "tfdoctor install --dry-run",
    ),
    "conda": ("conda mamba miniconda anaconda miniforge", "tfdoctor check"),
    "notebooks": ("jupyter notebook colab ipykernel kernelspec", "tfdoctor check --python kernel.json"),
    "compose": ("docker compose devcontainer devcontainers podman", "tfdoctor check -v"),
    "two-frameworks": ("torch pytorch jax", "tfdoctor check"),
    "skipping-registering": ("skipping dlopen", "tfdoctor check"),
}
"""(keywords, first command) of each page in docs/situations, by name. The pages are not part of the package."""


@dataclass(frozen=True, slots=True)
class Documentation:
    """Everything that can be looked up, besides the causes."""

    rules: tuple[RuleEntry, ...]
    """The rules of `check` and of `lint`, by code."""
    pages: Mapping[str, RuleEntry]
    """The pages about findings that have no cause, by code."""


def choose_next_command(explanation: Explanation) -> str:
    """Return the command whose output shows the remedy for this machine, as the next step after a page.

    The result is empty if the page itself contains commands, if nothing is to be done, or if it lists all entries.
    """
    if (
        explanation.query is None
        or any(remedy.commands for entry in explanation.causes for remedy in entry.remedies)
        or (explanation.message_remedies and not explanation.rules)
        or not (explanation.rules or explanation.causes or explanation.retired_rule)
        or (len(explanation.causes) == 1 and not explanation.rules and not explanation.causes[0].remedies)
    ):
        return ""
    commands = [rule.next_command for rule in explanation.rules]
    return next((command for command in commands if command != "tfdoctor check"), "tfdoctor check")


def make_rule_entry(rule: DocumentedRule, next_command: str = "tfdoctor check") -> RuleEntry:
    """Return the entry for a rule, with the documentation from the docstring of its module."""
    text = read_docstring(sys.modules[rule.check.__module__])
    return RuleEntry(
        code=rule.code,
        name=rule.name,
        title=rule.title,
        causes=rule.causes,
        summary=" ".join(text.strip().partition("\n\n")[0].split()),
        sections=tuple(Section(heading, extract_section(text, heading)) for heading in SECTION_HEADINGS),
        next_command=next_command,
    )


def list_entries(documentation: Documentation) -> Explanation:
    """Return the entries for all rules, sorted by code, and for all causes."""
    causes = tuple(_make_cause_entry(cause, documentation.rules) for cause in Cause)
    return Explanation(query=None, rules=documentation.rules, causes=causes)


def find_entries(
    query: str, documentation: Documentation, retired: Sequence[RetiredRule] = RETIRED_RULES
) -> Explanation:
    """Return the entries for a code ("TFD203", "203"), a rule name, a cause, the words of a message, or a question.

    Case does not matter. If a rule and a cause have the same name, both are returned, with the other rules that can
    report the cause. For a retired code, the rules that replace it are returned. Raise UsageError with the most similar
    names if nothing matches.
    """
    try:
        explanation = _find_by_name(query, documentation, retired)
        return replace(explanation, meaning=_describe_error_number(query))
    except UsageError:
        if (term := find_term(query)) is not None:
            return Explanation(query, (), (), meaning=term.plain_text)
        code, meaning, remedies = _find_message(query)
        if not code and (message := _find_quoted_message(query)):
            code, meaning, remedies = _find_message(message)
        question = _find_question(query) if not code else None
        if question is not None and question.remedy is not None:
            page, _ = _find_situation(query)
            page_hint = f" docs/situations/{page}.md is about this." if page else ""
            meaning = f"{question.meaning}{page_hint}"
            return Explanation(query, (), (), meaning=meaning, message_remedies=(question.remedy,))
        code = code or (question.cause if question is not None else "") or _search_pages(query, documentation)
        if not code:
            raise
    return replace(
        _find_by_name(code, documentation, retired), query=query, meaning=meaning, message_remedies=remedies
    )


def _find_by_name(query: str, documentation: Documentation, retired: Sequence[RetiredRule]) -> Explanation:
    """Return the entries for a code, a rule name or a cause. Raise UsageError if nothing matches."""
    all_entries, pages = list_entries(documentation), documentation.pages
    word = query.strip().lower().replace("_", "-")
    code = f"TFD{word}" if re.fullmatch(r"\d{3}", word) else word.upper()
    matching_rules = tuple(entry for entry in all_entries.rules if code == entry.code or word == entry.name)
    retired_rule = next((rule for rule in retired if code == rule.code or word == rule.name), None)
    if retired_rule is not None and not matching_rules:
        successors = find_current_codes(retired_rule.code, retired)
        matching_rules = tuple(entry for entry in all_entries.rules if entry.code in successors)
    matching_rules = matching_rules or tuple(
        entry for entry in pages.values() if code == entry.code or word == entry.name
    )
    log_cause = CAUSE_BY_LOG_CODE.get(code)
    causes = tuple(
        entry for entry in all_entries.causes if word == entry.cause.value or entry.cause is log_cause
    )
    if not matching_rules and not causes and retired_rule is None:
        names = [*(entry.code for entry in all_entries.rules), *(entry.name for entry in all_entries.rules)]
        names += [
            *CAUSE_BY_LOG_CODE,
            *pages,
            *(entry.name for entry in pages.values()),
        ]
        raise _make_no_match_error(
            query, word, code, [*names, *(entry.cause.value for entry in all_entries.causes)]
        )
    if not causes:
        named_causes = {
            cause for entry in matching_rules if not entry.has_all_causes for cause in entry.causes
        }
        causes = tuple(entry for entry in all_entries.causes if entry.cause in named_causes)
    related = tuple(
        entry
        for entry in all_entries.rules
        if entry not in matching_rules and any(entry.code in cause.rule_codes for cause in causes)
    )
    # If only one rule can report the cause, its page explains the cause best.
    if not matching_rules and len(related) == 1 and log_cause is None:
        matching_rules, related = related, ()
    if not matching_rules:
        causes = tuple(replace(entry, remedies=_list_remedies(entry.cause)) for entry in causes)
    return Explanation(
        query=query, rules=matching_rules, causes=causes, related_rules=related, retired_rule=retired_rule
    )


def _list_remedies(cause: Cause) -> tuple[Remedy, ...]:
    """Return the remedies for a cause that apply to every TensorFlow release."""
    return list_remedies(LogContext(Log(), Compat.load()), cause)


# ---------------------------------------------------------------- messages


_CUDA_ERROR = re.compile(
    r"\bCUDA_ERROR_[A-Z_]{2,60}\b|UNKNOWN ERROR \(-?\d{1,6}\)|no CUDA-capable device is detected"
)
"""The name of an error that people quote without the rest of the line, which is usually that of cuInit."""
_CARD_NAME = re.compile(
    r"\b(?:(?:rtx|gtx|gt|tesla|quadro|titan|mx|jetson) ?)+(?:[a-z]{0,2}\d{2,4}|agx|orin|xp?|v)(?: (?:ti|super|orin)\b)*"
    r"|\b[abhltvpk]\d{1,3}s?\b",
    re.IGNORECASE,
)
"""The name of an NVIDIA card in a question."""
_MISSING_ATTRIBUTE = re.compile(r"module '[\w.]{1,100}' has no attribute ")
"""The message of an AttributeError without the name of the exception."""


def _scan_query(query: str) -> LogContext:
    """Return the query as a log of one line."""
    log = scan([query[:MAX_QUERY_CHARS].encode("utf-8", "replace")], load_signatures())
    return LogContext(log, Compat.load())


def _describe_error_number(query: str) -> str:
    """Return a sentence about the CUDA error with the number that is also the number of a rule; "" if there is none."""
    number = query.strip()
    if not re.fullmatch(r"\d{3}", number):
        return ""
    code, _, _ = _find_message(f"UNKNOWN ERROR ({number})")
    unknown_code, _, _ = _find_message("UNKNOWN ERROR (999999)")
    if not code or code == unknown_code:
        return ""
    return f"This is rule TFD{number}. `tfdoctor explain 'UNKNOWN ERROR ({number})'` explains CUDA's error {number}."


def _find_message(query: str) -> tuple[str, str, tuple[Remedy, ...]]:
    """Return (code, meaning, remedies) of a log line. All are empty if the query is not a known log line."""
    # A log line contains at least one of these, unlike the name of a rule or cause.
    if not any(marker in query for marker in (" ", ".so", "_", "=", "-")):
        return "", "", ()
    context = _scan_query(query)
    if not context.log.events and (error := _CUDA_ERROR.search(query)):
        code = error[0] if not error[0].startswith("no ") else f"CUDA_ERROR_NO_DEVICE: {error[0]}"
        context = _scan_query(f"failed call to cuInit: {code}: ")
    elif not context.log.events and _MISSING_ATTRIBUTE.match(query):
        context = _scan_query(f"AttributeError: {query}")
    decision = choose_decision(context)
    events = decision.evidence_events or [
        event for matches in context.log.events.values() for event in matches
    ]
    meaning = events[0].signature.meaning if events else ""
    names = [name for name in _LIBRARY_PATTERN.findall(query[:MAX_QUERY_CHARS]) if is_gpu_library(name)]
    has_cause = decision.cause is not Cause.INCONCLUSIVE
    if names and (
        not has_cause or (decision.cause is Cause.IMPORT_MISSING_CUDA_LIB and "import" not in query.lower())
    ):
        library_cause = Cause.CUDNN_MISSING if is_cudnn_library(names[0]) else Cause.LIBS_NOT_INSTALLED
        return library_cause.data.finding_code, "", ()
    if has_cause:
        remedies = list_specific_remedies(context, decision.cause)
        return decision.cause.data.finding_code, meaning, remedies
    if decision.title and context.log.has("tensorflow-attribute"):  # a program for another TensorFlow
        return LINT_CODES["removed-api"], f"{decision.title}.", ()
    signatures = [event.signature for matches in context.log.events.values() for event in matches]
    lint_signature = next((signature for signature in signatures if signature.id in _LINT_CODES), None)
    if lint_signature is not None:
        return _LINT_CODES[lint_signature.id], lint_signature.meaning, ()
    cause_signature = next((signature for signature in signatures if signature.causes), None)
    if cause_signature is not None:
        # one line does not prove a cause, so use the first of the possible causes
        cause = cause_signature.causes[0]
        return cause.data.finding_code, cause_signature.meaning, list_specific_remedies(context, cause)
    is_harmless = any(signature.benign_code is not None for signature in signatures)
    return (HARMLESS, meaning, ()) if is_harmless else ("", "", ())


def _find_quoted_message(query: str) -> str:
    """Return the known message that contains the words of the query; "" if there is not exactly one, or if they are few."""
    words = " ".join(query[:MAX_QUERY_CHARS].lower().split())
    if len(words.split()) < MIN_QUOTED_WORDS:
        return ""
    matches = [
        example
        for signature in load_signatures().signatures
        for example in signature.matching_examples
        if words in " ".join(example.lower().split())
    ]
    return matches[0] if len(matches) == 1 else ""


def _search_pages(query: str, documentation: Documentation) -> str:
    """Return the code of the page that has the most words of the query; empty if no page has enough.

    A page must contain more than half of the words. A word in its title, name or summary scores more than one in its text.
    """
    words = {
        word
        for word in re.findall(r"[a-z0-9]{3,40}", query[:MAX_QUERY_CHARS].lower())
        if word not in _COMMON_WORDS
    }
    pages = [
        (
            entry.code,
            f"{entry.title} {entry.name} {entry.summary}",
            " ".join(section.text for section in entry.sections),
        )
        for entry in (*documentation.rules, *documentation.pages.values())
    ]
    pages += [
        (code, f"{cause.data.finding_title} {cause.value}", cause.data.meaning)
        for code, cause in CAUSE_BY_LOG_CODE.items()
    ]
    scores = []
    for code, head, body in pages:
        head_words, body_words = (set(re.findall(r"[a-z0-9]{3,40}", text.lower())) for text in (head, body))
        if len(words & (head_words | body_words)) * 2 > len(words):
            scores.append((3 * len(words & head_words) + len(words & body_words), code))
    best_score, best_code = max(scores, default=(0, ""), key=lambda scored: scored[0])
    # One word is too vague, and a low score means that the words are in the text of the page only.
    return best_code if len(words) > 1 and best_score > len(words) else ""


def _make_cause_entry(cause: Cause, entries: Sequence[RuleEntry]) -> CauseEntry:
    """Return the entry for a cause, with the codes of the rules that can report it."""
    codes = tuple(entry.code for entry in entries if cause in entry.causes and not entry.has_all_causes)
    return CauseEntry(cause, cause.data.meaning, codes)


def _find_situation(query: str) -> tuple[str, str]:
    """Return the name and the first command of the first page with a keyword in the query; ("", "") if there is none."""
    words = set(re.findall(r"[\w.]{2,40}", query[:MAX_QUERY_CHARS].lower()))
    for page, (keywords, command) in SITUATION_PAGES.items():
        if words & set(keywords.split()):
            return page, command
    return "", ""


def _find_question(query: str) -> Question | None:
    """Return the question that the query asks, answered from the tables if they have the answer, else None."""
    text = query[:MAX_QUERY_CHARS]
    compat = Compat.load()
    return find_table_question(text, compat) or find_question(text) or _find_card_question(text, compat)


def _find_card_question(query: str, compat: Compat) -> Question | None:
    """Return the question what works on a card if the query names one, else None."""
    match = _CARD_NAME.search(query)
    if match is None or compat.find_gpus_by_name(match[0]) is None:
        return None
    return Question(
        "",
        "Which TensorFlow works depends on the card's compute capability and on the driver.",
        Remedy("See what works on this card.", (f"tfdoctor recommend {shlex.quote(match[0])}",)),
    )


def _make_no_match_error(query: str, word: str, code: str, candidates: Sequence[str]) -> UsageError:
    """Return the error for a query that matches nothing. Its hint has the most similar names."""
    names = list(dict.fromkeys(candidates))
    # "TFD" alone, of 3 characters, is a prefix of all codes.
    codes_with_prefix = [name for name in names if len(code) > 3 and name.startswith(code)][:4]
    similar = codes_with_prefix or difflib.get_close_matches(word, names, n=4, cutoff=0.6)
    similar += [
        name for name in difflib.get_close_matches(code, names, n=3, cutoff=0.75) if name not in similar
    ]
    if not similar and len(word) > 2:
        similar = [name for name in names if word in name][:4]
    log_hint = "`tfdoctor diagnose FILE` reads a whole log; " if " " in query.strip() else ""
    page, command = _find_situation(query)
    page_hint = f"Begin with `{command}`; docs/situations/{page}.md is about this. " if page else ""
    hint = f"{page_hint}{log_hint}`tfdoctor explain` lists every code and cause."
    if similar:
        hint = f"did you mean {_join_alternatives(similar)}? {hint}"
    short_query = query if len(query) <= 60 else query[:60] + "…"
    return UsageError(f"no rule and no cause is called {short_query!r}", hint=hint)


def _join_alternatives(names: Sequence[str]) -> str:
    """Join names: "`a`, `b` or `c`"."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
