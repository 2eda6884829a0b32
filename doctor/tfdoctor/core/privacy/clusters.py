"""Find the parts of a text that name the hosts of a cluster: TF_CONFIG, ClusterSpec and variables of launchers.

An address there can have any form: without a port, with a port that is no number, as a list in one string, or nested.
So in these parts every word is taken for a host unless it is a number or a word of a fixed list.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SPAN_CHARS = 20_000
"""The most characters of one part. A part whose end is missing has this many."""
_TASKS = r"(?:worker|ps|chief|evaluator|coordinator|_?(?:\w{1,30}_)?master)"
_QUOTE = r"\\{0,4}[\"']"
_START = re.compile(
    rf"\bTF_CONFIG(?:{_QUOTE})?\]?[ \t]{{0,3}}[=:,]?[ \t]{{0,3}}(?:json\.dumps\(\s{{0,20}})?"
    rf"(?:{_QUOTE}){{0,2}}\s{{0,3}}(?=[{{\[])"
    r"|\bClusterSpec[ \t]?(?=\()"
    rf"|\b_?cluster(?:_spec|_def)?(?:{_QUOTE})?\s{{0,3}}[:=]\s{{0,3}}(?:{_QUOTE})?(?=[({{\[])"
    rf"|(?:{_QUOTE}){_TASKS}{_QUOTE}\s{{0,3}}:\s{{0,20}}(?=[\[{{(\"'\\])"
    rf"|(?<![\w.]){_TASKS}[ \t]?=[ \t]?(?=[\[{{(])"
    r"|\bjob [\w-]{1,60} -> (?=\{)"
    r"|\b(?:tasks|cluster) ?(?=\{)"
    # a variable of a launcher, a scheduler or a proxy
    r"|(?<![A-Za-z0-9])(?:[A-Z][A-Z0-9_]{0,50}_)?(?:HOST(?:S|NAME|NAMES|LIST)?|NODE_?LIST|NODE_?NAME|LAUNCH_NODE_IPADDR"
    r"|(?:MASTER|RENDEZVOUS|CONTROL|TOPOLOGY|NODE|HEAD|SERVER|SCHEDULER|DASK|RAY|COORDINATOR)_*(?:IP_?)?ADDR(?:ESS)?"
    r"|COMM_ID|HNP_URI|SERVER_URI2?\d?|ENDPOINTS?)"
    rf"(?:{_QUOTE}:?[ \t]?|:[ \t])?(?:=[ \t]?)?(?<=[=: ])(?:{_QUOTE})?(?=[^\s\"'=])"
    r"|\b(?:OMPI|PMIX|PRTE)_\w{0,40}(?:uri|hnp|host|node|server|URI)\w{0,20}=[\"']?"
    r"|(?i:\b(?:https?|ftp|all|no|grpc|socks)_proxy)(?:[\"']?: ?|=)[\"']?(?=[^\s\"'])"
    r"|(?<![\w.-])(?:host|hostname|nodename|nodelist|node_?name|server_?name)=[\"']?(?=[^\s\"'=])"
    r"|(?<![\w.-])node=[\"']?(?=[\w.-]{1,253}[\s\"',)\]]|[\w.-]{1,253}\Z)"
)
"""The text before such a part."""
_BRACKET = re.compile(r"[()\[\]{}]")
_VALUE_END = re.compile(r"[\s\"'&]|;(?!tcp)|\Z")
_WORD = re.compile(r"[^\s,;:/@\"'\\|(){}\[\]=<>&%]+")
_HEX_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]+|\\?u00[0-9a-f]{2}")
_KNOWN_WORDS = frozenset(
    """
    cluster clusterspec worker ps chief evaluator master coordinator eval_session_master evaluation_master task tasks type
    index environment cloud rpc_layer grpc grpcs http https tcp ipv4 ipv6 dns job job_name task_id trial session_master
    true false null none localhost port host name key value address scheme unix json dumps loads str int tf train os environ
    tf_config cluster_spec cluster_def
    """.split()  # noqa: SIM905 - a list of words reads best as one string
)

_PREFIX_WORDS = frozenset(
    """
    stdout stderr stdin out err info warn warning error fatal critical debug trace notice i w e f d p z t v log stream msg
    message time timestamp ts level levelname severity pid tid ip jan feb mar apr may jun jul aug sep oct nov dec mon tue wed
    thu fri sat sun am pm utc gmt cet cest est edt pst pdt srun slurmstepd sbatch salloc mpirun mpiexec prterun prun orted
    hint note nvcc ptxas nvlink ld gcc conda mamba kubelet
    bash sh kernel nvrm xid pip uv apt user pod container namespace node name local_rank global_rank rank trainer loss
    accuracy acc val_loss ms eta lr x
    """.split()  # noqa: SIM905 - a list of words reads best as one string
)
_NUMBERED_WORDS = frozenset(
    """
    rank localrank local global worker task ps chief evaluator replica trainer train main std stdout stderr out err step
    epoch thread process proc pid tid i w e f d t z utc gmt default
    """.split()  # noqa: SIM905 - a list of words reads best as one string
)
"""Words that may have a number: "rank0", "worker-3", "2024-01-01T10"."""
_FILE_NAME = re.compile(r"(?:lib)?[\w+.-]{1,80}\.(?:so(?:\.[\d.]{1,20})?|py|cc|cu|c|cpp|h|dll|pyd|ipynb)")


def iter_prefix_words(text: str) -> Iterator[re.Match[str]]:
    """Yield the words of the text before a message that are no date, number, severity or other known word."""
    for match in iter_words(text):
        word = match[0].lower()
        parts = [part for part in re.split(r"[\W\d_]+", word) if part]
        if (
            word not in _PREFIX_WORDS
            and not all(part in _NUMBERED_WORDS for part in parts)
            and not _FILE_NAME.fullmatch(word)
        ):
            yield match


def find_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each part of a text that names hosts, in order."""
    position = 0
    while (match := _START.search(text, position)) is not None:
        start = match.end()
        position = max(_find_end(text, start), start + 1)
        yield start, min(position, len(text))


def _find_end(text: str, start: int) -> int:
    """Return the end of the value that begins at `start`: a bracketed or quoted value, or a word."""
    limit = min(len(text), start + MAX_SPAN_CHARS)
    if text.startswith(("(", "[", "{"), start):
        depth = 0
        for match in _BRACKET.finditer(text, start, limit):
            depth += 1 if match[0] in "([{" else -1
            if depth <= 0:
                return match.end()
        return limit
    quote = re.compile(_QUOTE).match(text, start)
    if quote is not None:
        end = text.find(quote[0], quote.end(), limit)
        return limit if end < 0 else end
    if text.startswith((" ", "\t"), start):
        start += 1
    value_end = _VALUE_END.search(text, start, limit)
    return limit if value_end is None else value_end.start()


def iter_words(text: str) -> Iterator[re.Match[str]]:
    """Yield the words of a part that may be hosts: no numbers and no words of the fixed list."""
    for match in _WORD.finditer(text):
        word = match[0]
        if (
            any(char.isalpha() for char in word) and not _HEX_NUMBER.fullmatch(word)
        ) and word.lower() not in _KNOWN_WORDS:
            yield match


def iter_hosts(text: str) -> Iterator[str]:
    """Yield the words of a part that surely are hosts, so that they are replaced in all texts."""
    for match in iter_words(text):
        following = text[match.end() : match.end() + 3].lstrip("\\")
        is_key = following[:1] in ("'", '"') and following[1:2] == ":"
        has_port = following[:1] == ":" and following[1:2].isalnum()
        if has_port or (not is_key and re.search(r"[\d.-]", match[0])):
            yield match[0]


def expand_node_list(text: str) -> Iterator[str]:
    """Yield the hosts in the value of a launcher's variable, such as "gpu[17-18,20],login1:2222"."""
    text = re.sub(r"://[^\s/@]{1,512}@", "://", text)
    for group in re.findall(r"[^\s,\[\]]*(?:\[[\d,\s-]{1,2000}\][^\s,\[\]]*)?", text):
        match = re.fullmatch(r"(.*)\[([\d,\s-]+)\](.*)", group)
        if match is None:
            yield from (word[0] for word in iter_words(group))
            continue
        for numbers in match[2].split(","):
            first, _, last = numbers.strip().partition("-")
            if first.isdigit() and len(first) <= 9 and len(last) <= 9:
                for number in range(int(first), min(int(last or first), int(first) + 500) + 1):
                    yield f"{match[1]}{number:0{len(first)}}{match[3]}"
