"""Shell scripts, batch jobs, Dockerfiles and YAML: which variables they set, and what a cluster in them says."""

from __future__ import annotations

import bisect
import itertools
import json
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tfdoctor.dockerfile.read.syntax import instructions
from tfdoctor.lint.clusters import bad_address, bad_task, problems_of
from tfdoctor.lint.environ import find_lone_assignment
from tfdoctor.lint.known_names import AT_IMPORT, AT_USE, guess_variable, relevant
from tfdoctor.lint.models import Fix, LintProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["dockerfile", "env_file", "shell", "yaml_text"]

_WORDS = re.compile(
    r"""\\\n|(?P<comment>(?<![^\s;&|(])\#[^\n]*)|(?P<end>\n|[;&|()]+)|(?P<word>(?:"(?:\\.|[^"\\]){0,65536}"|'[^']{0,65536}'|\\.|[^\s;&|()"'\\])+)|[^\n]""",
    re.X | re.S,
)
_SET = re.compile(r"\$?([A-Za-z_][\w\-]{3,60})=")
_GOES_ON = frozenset(
    ["then", "do", "else", "{", "env", "sudo", "nohup", "time", "exec", "command", "nice", "-i", "-E", "!"]
)
_CLOSES = {"if": "fi", "case": "esac"}
_SURE = frozenset(
    ["cd", "pushd", "mkdir", "source", ".", "export", "echo", "sleep", "rm", "module", "conda", "true", ":"]
)
"""What goes before `&&` without being a question."""
_Where = int
"""The number of the branch that a command stands in."""
_EXPORTS = frozenset(["export", "declare", "typeset", "readonly"])
_GIVES = frozenset(["-e", "--env", "-x", "--build-arg", "--set-env-vars"])
_KEYS = frozenset(
    [
        "env",
        "environment",
        "variables",
        "env_vars",
        "env_variables",
        "containerenv",
        "remoteenv",
        "environment_variables",
        "build_args",
    ]
)
_SCRIPTS = frozenset(
    ["run", "script", "command", "args", "before_script", "after_script", "setup", "entrypoint", "cmd"]
)


def _value(word: str) -> str:
    """Return a word of a shell without its quotes."""
    return re.sub(
        r""""((?:\\.|[^"\\])*)"|'([^']*)'""",
        lambda m: (m[1] or "").replace('\\"', '"') if m[2] is None else m[2],
        word,
    )


def _find_name(text: str, name: str, start: int) -> int:
    """Return where a whole name stands in a line, rather before `=` than elsewhere; -1 if it does not."""
    word = rf"(?<![\w\-]){re.escape(name)}(?![\w\-])"
    pattern = re.compile(word)
    match = re.compile(word + "=").search(text, start) or pattern.search(text, start)
    return match.start() if match is not None else -1


_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(?P<quote>[\"']?)\\?(?P<end>[A-Za-z_]\w{0,60})(?P=quote)")
_RUNS_HEREDOC = re.compile(r"\b(?:ba|z|da|k|c|tc)?sh\b|\bs(?:run|batch|sh|u|udo)\b|\bqsub\b|\benv\b")


def _find_data_lines(lines: list[str]) -> set[int]:
    """Return the numbers of the lines in here-documents that no shell runs."""
    data: set[int] = set()
    end, runs = None, False
    for number, line in enumerate(lines, 1):
        if end is not None:
            if line.lstrip("\t") == end:
                end = None
            elif not runs:
                data.add(number)
        elif (match := _HEREDOC.search(line)) is not None:
            end = match["end"]
            runs = _RUNS_HEREDOC.search(line, 0, match.start()) is not None
    return data


class _Told:
    """The findings of a text, each place once."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.data_lines: set[int] = set()
        """Lines that may be data rather than commands: --fix leaves them."""
        self.found: dict[tuple[str, int, int], LintProblem] = {}
        self.line_starts = [0, *itertools.accumulate(len(line) + 1 for line in self.lines)]
        self.tasks: set[tuple[str, int, _Where]] = set()
        self.where: _Where = 0
        """Where in the script the command stands that is looked at."""

    def tell(self, name: str, message: str, line: int, column: int, fix: Fix | None = None) -> None:
        self.found.setdefault((name, line, column), LintProblem(name, message, line, column, fix=fix))

    def find_position(self, mark: Any) -> tuple[int, int]:
        """Return line and column of a mark of YAML, from 1: YAML ends lines at U+0085, U+2028 and U+2029, too."""
        line = bisect.bisect_right(self.line_starts, mark.index)
        return line, mark.index - self.line_starts[line - 1] + 1

    def variable(self, name: str, line: int, column: int) -> bool:
        """Return whether it is misspelt."""
        meant = guess_variable(name)
        if meant is None:
            return False
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        at = _find_name(text, name, max(column - 1, 0))
        fix = Fix(line, at + 1, line, at + 1 + len(name), meant, name) if at >= 0 else None
        if line in self.data_lines:
            fix = None
        self.tell(
            "misspelt-variable",
            f"Nothing reads {name}; {meant} is meant.",
            line,
            at + 1 if at >= 0 else column,
            fix,
        )
        return True

    def config(self, value: str, line: int, column: int) -> None:
        """What TF_CONFIG is set to."""
        try:
            raw = json.loads(value)
        except (ValueError, RecursionError):
            return
        for name, message, _ in problems_of(raw):
            self.tell(name, message, line, column)
        task = raw.get("task") if isinstance(raw, dict) else None
        if (
            isinstance(task, dict)
            and isinstance(task.get("type"), str)
            and isinstance(task.get("index"), int)
        ):
            self.task(task["type"], task["index"], line, column)

    def task(self, job: str, index: int, line: int, column: int) -> None:
        """A task that starts here: twice only where both starts are of the same branch."""
        if (job, index, self.where) in self.tasks:
            self.tell("cluster-task", f"The task {job}:{index} is started twice.", line, column)
        self.tasks.add((job, index, self.where))


def shell(text: str, *, job: bool = False) -> list[LintProblem]:
    """Return a script of sh, bash, zsh or a batch job. Linear in the text; never raises."""
    told = _Told(text)
    told.data_lines = _find_data_lines(told.lines)
    _script(text, 1, told, job=job)
    return list(told.found.values())


class _Branches:
    """Which `if`, `case`, function, `&&` and `||` the commands of a script stand in, by their keywords."""

    def __init__(self) -> None:
        self.open: list[tuple[str, _Where]] = [("", 0)]
        self.groups: dict[_Where, _Where] = {}
        """Branch → that of all groups in braces directly in it."""
        self.made = 0

    def new(self) -> int:
        self.made += 1
        return self.made

    def start_other(self) -> None:
        """From here on runs what may run without what stood before."""
        self.open[-1] = (self.open[-1][0], self.new())

    def close(self, word: str) -> None:
        if self.open[-1][0] == word:
            self.open.pop()

    def locate(self, words: list[tuple[str, int, int]], before: str, after: str) -> _Where:
        """Return where a command stands; before, after: the signs between it and its neighbours."""
        ends = False
        for word, _, _ in words:
            if word in ("if", "case"):
                self.open.append((_CLOSES[word], self.new()))
            elif word in ("elif", "else"):
                self.start_other()
            elif word == "{":
                inside = self.open[-1][1]
                group = self.new() if "()" in before else self.groups.setdefault(inside, self.new())
                self.open.append(("}", group))
            elif word in ("fi", "esac", "}"):
                self.close(word)
            elif word not in ("then", "do", "!", "time"):
                ends = word in ("exit", "return", "exec")
                break
        where = self.open[-1][1]
        if "||" in before or ("&&" in before and not self.sure):
            where = self.new()
        elif ends:
            self.start_other()
        self.sure = words[0][0] in _SURE and "||" not in before and ("&&" not in before or self.sure)
        if ";;" in after or ";&" in after:
            self.start_other()
        return where

    sure = False
    """Whether the command before is one that nobody starts to find out whether it fails."""


def _commands(text: str) -> Iterator[tuple[list[tuple[str, int, int]], _Where]]:
    """Yield the words of each command, (word, line, column), and where it stands."""
    branches = _Branches()
    before = ""
    words: list[tuple[str, int, int]] = []
    line, start = 1, 0
    for match in _WORDS.finditer(text):
        if match["word"] is not None:
            words.append((match["word"], line, match.start() - start + 1))
        elif match["end"] is not None:
            if words:
                yield words, branches.locate(words, before, match["end"])
                words, before = [], ""
            elif ";;" in match["end"]:
                branches.start_other()
            before += match["end"].strip()
        piece = match[0]
        if "\n" in piece:
            line += piece.count("\n")
            start = match.start() + piece.rindex("\n") + 1
    if words:
        yield words, branches.locate(words, before, "")


def _script(text: str, first: int, told: _Told, *, job: bool = False) -> None:
    alone: list[tuple[str, int, int]] = []
    exported = set(re.findall(r"\b(?:export|declare -x|typeset -x)\s+(?:\w+=\S*\s+)*(\w+)", text))
    for words, told.where in _commands(text):
        at = 0
        setting: list[tuple[str, str, int, int]] = []
        exporting = False
        while at < len(words):
            word, line, column = words[at]
            line += first - 1
            match = _SET.match(word)
            following = words[at + 1][0] if at + 1 < len(words) else ""
            if match is not None:
                name = match[1]
                if word.startswith("$"):
                    if relevant(name):
                        told.tell(
                            "variable-set-wrongly",
                            f"${name}=… sets nothing: without the dollar sign.",
                            line,
                            column,
                        )
                    break
                setting.append((name, word[match.end() :], line, column))
            elif word in _EXPORTS or word in _GOES_ON or (exporting and word.startswith("-")):
                exporting = exporting or word in _EXPORTS
            elif following == "=" and relevant(word) and re.fullmatch(r"\w+", word):
                told.tell(
                    "variable-set-wrongly", f"The shell takes no spaces around =: {word}=VALUE.", line, column
                )
                break
            elif word == "setenv" and at + 1 < len(words):
                name, there, place = words[at + 1]
                told.variable(name, there + first - 1, place)
                break
            elif (
                word == "set"
                and _SET.match(following)
                and not text.startswith("#!/bin/csh")
                and not text.startswith("#!/bin/tcsh")
            ):
                name = _SET.match(following)[1]  # type: ignore[index]
                if relevant(name) or guess_variable(name):
                    told.tell(
                        "variable-set-wrongly",
                        f"In this shell, `set` does not set variables: export {name}=VALUE.",
                        line,
                        column,
                    )
                break
            elif exporting:
                told.variable(word, line, column)
            else:
                break
            at += 1
        rest = words[at:]
        for name, value, line, column in setting:
            if told.variable(name, line, column):
                continue
            if name == "TF_CONFIG":
                told.config(_value(value), line, column)
            elif (
                not exporting
                and not rest
                and name in (AT_IMPORT | AT_USE)
                and name not in exported
                and not job
            ):
                alone.append((name, line, column))
        _check_given(rest, first, told)
        _hosts(rest, first, told)
    _check_exports(text, alone, told)


def _check_exports(text: str, alone: list[tuple[str, int, int]], told: _Told) -> None:
    """Variables that a script sets for itself, and not for the programs that it starts."""
    if (
        not alone
        or not text.startswith("#!")
        or re.search(r"(?m)(?:^|[\s;&|])(?:python[\d.]*|torchrun|horovodrun|mpirun)\s", text) is None
        or re.search(r"set -(?:a|o allexport)|export -p", text) is not None
    ):
        return
    used = set(re.findall(r"\$\{?(\w+)", text))
    for name, line, column in alone:
        if name not in used:
            told.tell(
                "variable-set-wrongly",
                f"{name} is set for this shell alone, not for what it starts: export {name}.",
                line,
                column,
            )


def _check_given(words: list[tuple[str, int, int]], first: int, told: _Told) -> None:
    """`docker run -e NAME=VALUE`, `mpirun -x NAME=VALUE`, `srun --export=ALL,NAME=VALUE`."""
    for number, (word, line, column) in enumerate(words):
        if word in _GIVES and number + 1 < len(words):
            name, there, place = words[number + 1]
            match = _SET.match(name)
            if match is not None or re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
                told.variable(match[1] if match else name, there + first - 1, place)
        elif word.startswith(("--env=", "--export=", "-e=")):
            for part in word.partition("=")[2].split(","):
                match = _SET.match(part)
                if match is not None:
                    told.variable(match[1], line + first - 1, column)


def _hosts(words: list[tuple[str, int, int]], first: int, told: _Told) -> None:
    """`--worker_hosts=A:2222,B:2222 --job_name=worker --task_index=1`."""
    jobs: dict[str, range | None] = {}
    said: dict[str, tuple[str, int, int]] = {}
    for number, (word, line, column) in enumerate(words):
        match = re.match(
            r"--?(ps|worker|chief|master|evaluator)_hosts(?:=|\Z)|--?(job_name|task_index|task_id|task_type)(?:=|\Z)",
            word,
        )
        if match is None:
            continue
        value = _value(
            word[match.end() :] if "=" in word else words[number + 1][0] if number + 1 < len(words) else ""
        )
        if match[1]:
            members = value.split(",")
            jobs[match[1]] = None if "$" in value or not value else range(len(members))
            for one in members:
                wrong = bad_address(one) if one else None
                if wrong is not None:
                    told.tell("cluster-address", wrong, line + first - 1, column)
        else:
            said[match[2]] = value, line + first - 1, column
    job = said.get("job_name") or said.get("task_type")
    index = said.get("task_index") or said.get("task_id")
    if job is None or index is None or not index[0].isdigit() or "$" in job[0]:
        return
    wrong = bad_task(jobs, job[0], int(index[0])) if jobs else None
    if wrong is not None:
        told.tell("cluster-task", wrong, index[1], index[2])
    told.task(job[0], int(index[0]), index[1], index[2])


def dockerfile(text: str) -> list[LintProblem]:
    """Return a Dockerfile or Containerfile."""
    told = _Told(text)
    for one in instructions(text):
        body = one.body.text
        if one.word in ("ENV", "ARG"):
            found = list(
                re.finditer(
                    r"""(?:^|\s)([A-Za-z_][\w\-]*)=(?:"((?:\\.|[^"\\])*)"|'([^']*)'|((?:\\.|[^\s"'\\])*))""",
                    body,
                )
            )
            if not found and one.word == "ENV":
                found = list(re.finditer(r"^\s*([A-Za-z_]\w*)\s+()()(.*)$", body, re.S))
            for match in found:
                line = one.body.line_at(match.start(1))
                if one.word == "ENV" or "_VISIBLE_" in match[1]:
                    told.variable(match[1], line, 1)
                if match[1] == "TF_CONFIG":
                    value = next((part for part in match.groups()[1:] if part), "")
                    told.config(value.replace('\\"', '"'), line, 1)
        elif one.word == "RUN":
            stripped = re.sub(r"^(?:\s*--\w+=\S+)+", "", body)
            name = find_lone_assignment(stripped) if not one.heredocs else None
            if name is not None and (relevant(name) or guess_variable(name)):
                told.tell(
                    "variable-set-wrongly",
                    f"{name} is set for this RUN alone and gone after it. Use ENV.",
                    one.line,
                    1,
                )
            else:
                inner = _Told(body)
                _script(body, 1, inner)
                starts = [0, *accumulate(len(line) + 1 for line in inner.lines)]
                for problem in inner.found.values():
                    if problem.name == "misspelt-variable":
                        told.variable(
                            problem.message.split()[2].rstrip(";"),
                            one.body.line_at(starts[problem.line - 1] + problem.column - 1),
                            1,
                        )
    return list(told.found.values())


def env_file(text: str) -> list[LintProblem]:
    """NAME=VALUE a line."""
    told = _Told(text)
    quote = ""
    for number, line in enumerate(told.lines, 1):
        if quote:  # inside a value of several lines
            quote = "" if quote in line else quote
            continue
        match = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)", line)
        if match is not None and match[2][:1] in ("'", '"') and match[2].count(match[2][0]) == 1:
            quote = match[2][0]
        if match is not None and not told.variable(match[1], number, 1) and match[1] == "TF_CONFIG":
            told.config(_value(match[2].strip()), number, match.start(1) + 1)
    return list(told.found.values())


def yaml_text(text: str) -> list[LintProblem]:
    """Return compose, Kubernetes, workflows: wherever an environment or a script stands.

    Raises ValueError.
    """
    import yaml

    told = _Told(text)
    try:
        for root in yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            _node(root, told, set())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        msg = f"it is not YAML{where}"
        raise ValueError(msg) from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    return list(told.found.values())


def _node(root: Any, told: _Told, seen: set[int]) -> None:
    import yaml

    todo = [root]
    judged: set[int] = set()
    """Environments and scripts, by id: an alias is the node that it stands for."""
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = key.value.lower().replace("-", "_") if isinstance(key, yaml.ScalarNode) else ""
                items = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if name in _KEYS | _SCRIPTS and id(value) not in judged:
                    items = [one for one in items if id(one) not in judged]
                    judged.update(map(id, (value, *items)))
                else:
                    items = []
                if name in _KEYS:
                    _environment(items, told, listed=isinstance(value, yaml.SequenceNode))
                elif name in _SCRIPTS:
                    for one in items:
                        if isinstance(one, yaml.ScalarNode):
                            block = one.style in ("|", ">")
                            line, _ = told.find_position(one.start_mark)
                            _script(one.value, line + block, told, job=True)
                todo.append(value)


def _environment(nodes: list[Any], told: _Told, *, listed: bool) -> None:
    """Look at an environment: the entries of a list, or one mapping."""
    import yaml

    def setting(key: Any, value: Any) -> None:
        line, column = told.find_position(key.start_mark)
        name, _, held = key.value.partition("=") if value is None else (key.value, "", value.value)
        if not told.variable(name, line, column) and name == "TF_CONFIG" and isinstance(held, str):
            told.config(held, *told.find_position((value or key).start_mark))

    for node in nodes:
        if isinstance(node, yaml.ScalarNode):
            setting(node, None)
        elif isinstance(node, yaml.MappingNode):
            parts = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            _, name = parts.get("name", (None, None))
            if listed and isinstance(name, yaml.ScalarNode):
                setting(name, parts.get("value", (None, name))[1])
            elif not listed:
                for key, value in parts.values():
                    setting(key, value)
