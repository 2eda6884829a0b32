"""Check the variables and clusters in shell scripts, batch jobs, Dockerfiles, YAML and env files.

A word is (text, line, column), and a command is the list of its words.
"""

from __future__ import annotations

import bisect
import itertools
import json
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts.variables import (
    READ_AT_FIRST_USE,
    READ_AT_IMPORT,
    guess_variable,
    is_relevant_variable,
)
from tfdoctor.extensions.lint.clusters import (
    describe_address_fault,
    describe_task_fault,
    iter_tf_config_problems,
)
from tfdoctor.extensions.lint.environ import find_assigned_variable
from tfdoctor.extensions.lint.models import Fix, LintProblem
from tfdoctor.images.read.syntax import parse_instructions

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["lint_dockerfile", "lint_env_file", "lint_shell", "lint_yaml"]

_SHELL_TOKEN = re.compile(
    r"""\\\n|(?P<comment>(?<![^\s;&|(])\#[^\n]*)|(?P<end>\n|[;&|()]+)|(?P<word>(?:"(?:\\.|[^"\\]){0,65536}"|'[^']{0,65536}'|\\.|[^\s;&|()"'\\])+)|[^\n]""",
    re.X | re.S,
)
"""One token of a shell script: a comment, the end of a command, or a word."""
_ASSIGNMENT = re.compile(r"\$?([A-Za-z_][\w\-]{3,60})=")
"""NAME=, or by mistake $NAME=."""
_COMMAND_PREFIXES = frozenset(
    ["then", "do", "else", "{", "env", "sudo", "nohup", "time", "exec", "command", "nice", "-i", "-E", "!"]
)
"""Words that may precede the assignments or the program of a command."""
_CLOSING_KEYWORDS = {"if": "fi", "case": "esac"}
_UNCONDITIONAL_COMMANDS = frozenset(
    ["cd", "pushd", "mkdir", "source", ".", "export", "echo", "sleep", "rm", "module", "conda", "true", ":"]
)
"""Commands before `&&` whose failure is not a condition."""
_Branch = int
"""The number of a branch of a script. Commands in different branches need not run together."""
_EXPORT_COMMANDS = frozenset(["export", "declare", "typeset", "readonly"])
_VARIABLE_OPTIONS = frozenset(["-e", "--env", "-x", "--build-arg", "--set-env-vars"])
"""Options of docker, mpirun and others whose value is NAME=VALUE or NAME."""
_ENVIRONMENT_KEYS = frozenset(
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
"""YAML keys of environments, in lower case and with `_` for `-`."""
_SCRIPT_KEYS = frozenset(
    ["run", "script", "command", "args", "before_script", "after_script", "setup", "entrypoint", "cmd"]
)
"""YAML keys of scripts, in the same form."""
_DIRECTIVE = re.compile(
    r"[ \t]*#(?:(?P<slurm>SBATCH)|(?P<pbs>PBS|\$|BSUB|COBALT|[Ff]lux:|MSUB|OAR|PJM))[ \t]+(?P<options>\S.*)"
)
"""A line of a batch job with options for Slurm, PBS, Grid Engine, LSF, Cobalt or Flux."""
_DIRECTIVE_OPTION = re.compile(r"(?<!\S)(?:--export|--env|-env|-v|-x)(?:=|[ \t]+)")
"""An option of such a line whose value is a list of NAME=VALUE."""
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(?P<quote>[\"']?)\\?(?P<end>[A-Za-z_]\w{0,60})(?P=quote)")
"""The operator and the end marker of a here-document, such as <<EOF."""
_HEREDOC_RUNNER = re.compile(r"\b(?:ba|z|da|k|c|tc)?sh\b|\bs(?:run|batch|sh|u|udo)\b|\bqsub\b|\benv\b")
"""A program that runs a here-document as a script."""


def _strip_quotes(word: str) -> str:
    """Return a shell word without its quotes."""
    return re.sub(
        r""""((?:\\.|[^"\\])*)"|'([^']*)'""",
        lambda match: (match[1] or "").replace('\\"', '"') if match[2] is None else match[2],
        word,
    )


def _find_name(text: str, name: str, start: int) -> int:
    """Return the position of a name from `start` on, preferably before `=`. Return -1 if it is not found."""
    word = rf"(?<![\w\-]){re.escape(name)}(?![\w\-])"
    pattern = re.compile(word)
    match = re.compile(word + "=").search(text, start) or pattern.search(text, start)
    return match.start() if match is not None else -1


def _find_data_lines(lines: list[str]) -> set[int]:
    """Return the numbers of the lines in here-documents that are not run as scripts."""
    data_lines: set[int] = set()
    end_marker, runs_as_script = None, False
    for number, line in enumerate(lines, 1):
        if end_marker is not None:
            if line.lstrip("\t") == end_marker:
                end_marker = None
            elif not runs_as_script:
                data_lines.add(number)
        elif (match := _HEREDOC.search(line)) is not None:
            end_marker = match["end"]
            runs_as_script = _HEREDOC_RUNNER.search(line, 0, match.start()) is not None
    return data_lines


class _Findings:
    """A collector of the findings in a text: at most one for each position and kind."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.data_lines: set[int] = set()
        """The lines that may be data rather than commands, so that --fix must not change them."""
        self.problems: dict[tuple[str, int, int], LintProblem] = {}
        self.line_starts = [0, *itertools.accumulate(len(line) + 1 for line in self.lines)]
        self.tasks: set[tuple[str, int, _Branch]] = set()
        """(job, index, branch) of each cluster task that the script starts."""
        self.current_branch: _Branch = 0
        """The branch of the command that is being checked."""

    def report(self, name: str, message: str, line: int, column: int, fix: Fix | None = None) -> None:
        """Add a finding, unless there is one of this kind at this position."""
        problem = LintProblem(kind_name=name, message=message, line=line, column=column, fix=fix)
        self.problems.setdefault((name, line, column), problem)

    def find_position(self, mark: Any) -> tuple[int, int]:
        """Return (line, column) of a YAML mark, from 1.

        The line number of the mark is not used, because YAML also ends lines at U+0085, U+2028 and U+2029.
        """
        line = bisect.bisect_right(self.line_starts, mark.index)
        return line, mark.index - self.line_starts[line - 1] + 1

    def check_variable(self, name: str, line: int, column: int) -> bool:
        """Report a variable if it is misspelt. Return whether it is.

        The name is searched from `column` on, because that may be the beginning of its word or line.
        """
        suggestion = guess_variable(name)
        if suggestion is None:
            return False
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        position = _find_name(text, name, max(column - 1, 0))
        fix = None
        if position >= 0:
            column = position + 1
            if line not in self.data_lines:
                end_column = column + len(name)
                fix = Fix(
                    line=line,
                    column=column,
                    end_line=line,
                    end_column=end_column,
                    new_text=suggestion,
                    old_text=name,
                )
        message = f"Nothing reads {name}; did you mean {suggestion}?"
        self.report("misspelt-variable", message, line, column, fix)
        return True

    def check_tf_config(self, value: str, line: int, column: int) -> None:
        """Check a value of TF_CONFIG."""
        try:
            config = json.loads(value)
        except (ValueError, RecursionError):
            return
        for name, message, _ in iter_tf_config_problems(config):
            self.report(name, message, line, column)
        task = config.get("task") if isinstance(config, dict) else None
        if (
            isinstance(task, dict)
            and isinstance(task.get("type"), str)
            and isinstance(task.get("index"), int)
        ):
            self.check_task_start(task["type"], task["index"], line, column)

    def check_task_start(self, job: str, index: int, line: int, column: int) -> None:
        """Record that a cluster task starts here. Report it if it starts twice in the same branch."""
        if (job, index, self.current_branch) in self.tasks:
            self.report("cluster-task", f"The task {job}:{index} is started twice.", line, column)
        self.tasks.add((job, index, self.current_branch))


def lint_shell(text: str, *, is_batch_job: bool = False) -> list[LintProblem]:
    """Return the findings in a script for sh, bash or zsh, or in a batch job (`job`).

    This takes linear time, and no text raises an error.
    """
    findings = _Findings(text)
    findings.data_lines = _find_data_lines(findings.lines)
    _check_script(text, 1, findings, is_batch_job=is_batch_job)
    return list(findings.problems.values())


class _Branches:
    """The `if`, `case`, function, `&&` and `||` branches of a script, tracked by its keywords."""

    def __init__(self) -> None:
        self.open: list[tuple[str, _Branch]] = [("", 0)]
        """(closing keyword, branch) for each open compound command, outermost first."""
        self.groups: dict[_Branch, _Branch] = {}
        """The branch of the groups in braces in each branch, by the outer branch. All groups in it share one."""
        self.last_branch = 0
        """The number of the newest branch."""
        self.is_unconditional = False
        """Whether the previous command certainly runs and succeeds, so that a command after `&&` also runs."""

    def make_branch(self) -> int:
        """Return the number of a new branch."""
        self.last_branch += 1
        return self.last_branch

    def start_branch(self) -> None:
        """Replace the current branch by a new one, which may run without the commands before it."""
        self.open[-1] = (self.open[-1][0], self.make_branch())

    def close(self, word: str) -> None:
        """Return to the outer branch if this keyword closes the current one."""
        if self.open[-1][0] == word:
            self.open.pop()

    def find_branch(
        self, words: list[tuple[str, int, int]], operator_before: str, operator_after: str
    ) -> _Branch:
        """Return the branch of a command. `operator_before` and `operator_after` are the operators around it."""
        is_exit = False
        for word, _, _ in words:
            if word in ("if", "case"):
                self.open.append((_CLOSING_KEYWORDS[word], self.make_branch()))
            elif word in ("elif", "else"):
                self.start_branch()
            elif word == "{":
                outer = self.open[-1][1]
                group = (
                    self.make_branch()
                    if "()" in operator_before
                    else self.groups.setdefault(outer, self.make_branch())
                )
                self.open.append(("}", group))
            elif word in ("fi", "esac", "}"):
                self.close(word)
            elif word not in ("then", "do", "!", "time"):
                is_exit = word in ("exit", "return", "exec")
                break
        branch = self.open[-1][1]
        if "||" in operator_before or ("&&" in operator_before and not self.is_unconditional):
            branch = self.make_branch()
        elif is_exit:
            self.start_branch()
        self.is_unconditional = (
            words[0][0] in _UNCONDITIONAL_COMMANDS
            and "||" not in operator_before
            and ("&&" not in operator_before or self.is_unconditional)
        )
        if ";;" in operator_after or ";&" in operator_after:
            self.start_branch()
        return branch


def _iter_commands(text: str) -> Iterator[tuple[list[tuple[str, int, int]], _Branch]]:
    """Yield (command, its branch) for each command of a script."""
    branches = _Branches()
    operator = ""
    command: list[tuple[str, int, int]] = []
    line, line_start = 1, 0
    for match in _SHELL_TOKEN.finditer(text):
        if match["word"] is not None:
            command.append((match["word"], line, match.start() - line_start + 1))
        elif match["end"] is not None:
            if command:
                yield command, branches.find_branch(command, operator, match["end"])
                command, operator = [], ""
            elif ";;" in match["end"]:
                branches.start_branch()
            operator += match["end"].strip()
        token = match[0]
        if "\n" in token:
            line += token.count("\n")
            line_start = match.start() + token.rindex("\n") + 1
    if command:
        yield command, branches.find_branch(command, operator, "")


def _find_spaced_name(word: str, next_word: str) -> str | None:
    """Return the variable that NAME = VALUE or NAME= VALUE should set, or None. A name alone may precede a program."""
    match = re.fullmatch(r"([A-Za-z_]\w*)(=?)", word)
    if match is None or not is_relevant_variable(match[1]):
        return None
    is_value = (
        re.fullmatch(r"[\"']?\d[\d,]*[\"']?", next_word) is not None if match[2] else next_word[:1] == "="
    )
    return match[1] if is_value else None


def _check_script(text: str, first_line: int, findings: _Findings, *, is_batch_job: bool = False) -> None:
    """Check a script or, with `is_batch_job`, a batch job. It begins on line `first_line` of the file."""
    unexported_variables: list[tuple[str, int, int]] = []
    exported_names = set(re.findall(r"\b(?:export|declare -x|typeset -x)\s+(?:\w+=\S*\s+)*(\w+)", text))
    for command, findings.current_branch in _iter_commands(text):
        index = 0
        assignments: list[tuple[str, str, int, int]] = []
        is_export = False
        while index < len(command):
            word, line, column = command[index]
            line += first_line - 1
            match = _ASSIGNMENT.match(word)
            next_word = command[index + 1][0] if index + 1 < len(command) else ""
            spaced_name = _find_spaced_name(word, next_word)
            if spaced_name is not None:
                message = f"The shell takes no spaces around =: {spaced_name}=VALUE."
                findings.report("variable-set-wrongly", message, line, column)
                break
            if match is not None:
                name = match[1]
                if word.startswith("$"):
                    if is_relevant_variable(name):
                        findings.report(
                            "variable-set-wrongly",
                            f"${name}=… sets nothing: without the dollar sign.",
                            line,
                            column,
                        )
                    break
                assignments.append((name, word[match.end() :], line, column))
            elif (
                word in _EXPORT_COMMANDS or word in _COMMAND_PREFIXES or (is_export and word.startswith("-"))
            ):
                is_export = is_export or word in _EXPORT_COMMANDS
            elif word == "setenv" and index + 1 < len(command):
                name, name_line, name_column = command[index + 1]
                findings.check_variable(name, name_line + first_line - 1, name_column)
                break
            elif (
                word == "set"
                and _ASSIGNMENT.match(next_word)
                and not text.startswith("#!/bin/csh")  # in csh and tcsh, `set` does set variables
                and not text.startswith("#!/bin/tcsh")
            ):
                name = _ASSIGNMENT.match(next_word)[1]  # type: ignore[index]
                if is_relevant_variable(name) or guess_variable(name):
                    findings.report(
                        "variable-set-wrongly",
                        f"In this shell, `set` does not set variables: export {name}=VALUE.",
                        line,
                        column,
                    )
                break
            elif is_export:
                findings.check_variable(word, line, column)
            else:
                break
            index += 1
        arguments = command[index:]
        for name, value, line, column in assignments:
            if findings.check_variable(name, line, column):
                continue
            if name == "TF_CONFIG":
                findings.check_tf_config(_strip_quotes(value), line, column)
            elif (
                not is_export
                and not arguments
                and name in (READ_AT_IMPORT | READ_AT_FIRST_USE)
                and name not in exported_names
                and not is_batch_job
            ):
                unexported_variables.append((name, line, column))
        _check_options(arguments, first_line, findings)
        _check_hosts(arguments, first_line, findings)
    _check_exports(text, unexported_variables, findings)
    _check_directives(text, first_line, findings)


def _check_directives(text: str, first_line: int, findings: _Findings) -> None:
    """Check the variables that the directives of a batch job set, such as `#SBATCH --export=NAME=VALUE`."""
    if "#" not in text:
        return
    for number, line in enumerate(text.split("\n"), first_line):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            continue
        for option in _DIRECTIVE_OPTION.finditer(line, directive.start("options")):
            start = option.end()
            quote = line[start : start + 1]
            is_quoted = quote in ("'", '"') and quote in line[start + 1 :]
            end = line.index(quote, start + 1) if is_quoted else len(line)
            value = line[start + is_quoted : end]
            if not is_quoted:
                value = re.split(r"\s", value, maxsplit=1)[0]
            for part in re.finditer(r"(?:\A|[,:\s])([\"']?)([A-Za-z_]\w{3,60})(?=[=,:\s\"']|\Z)", value):
                findings.check_variable(part[2], number, start + is_quoted + part.start(2) + 1)


def _check_exports(text: str, unexported_variables: list[tuple[str, int, int]], findings: _Findings) -> None:
    """Report the variables that a script neither exports to the programs that it starts nor uses itself.

    `unexported_variables` contains (name, line, column) for each variable that is set without export.
    """
    # only for a script with a shebang that starts programs and does not export all variables
    if (
        not unexported_variables
        or not text.startswith("#!")
        or re.search(r"(?m)(?:^|[\s;&|])(?:python[\d.]*|torchrun|horovodrun|mpirun)\s", text) is None
        or re.search(r"set -(?:a|o allexport)|export -p", text) is not None
    ):
        return
    used_names = set(re.findall(r"\$\{?(\w+)", text))
    for name, line, column in unexported_variables:
        if name not in used_names:
            findings.report(
                "variable-set-wrongly",
                f"{name} is set for this shell alone, not for what it starts: export {name}.",
                line,
                column,
            )


def _check_options(command: list[tuple[str, int, int]], first_line: int, findings: _Findings) -> None:
    """Check the variables in options such as `docker run -e NAME=VALUE` and `srun --export=NAME=VALUE`."""
    for index, (word, line, column) in enumerate(command):
        if word in _VARIABLE_OPTIONS and index + 1 < len(command):
            name, name_line, name_column = command[index + 1]
            match = _ASSIGNMENT.match(name)
            if match is not None or re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
                findings.check_variable(match[1] if match else name, name_line + first_line - 1, name_column)
        elif word.startswith(("--env=", "--export=", "-e=")):
            for part in word.partition("=")[2].split(","):
                match = _ASSIGNMENT.match(part)
                if match is not None:
                    findings.check_variable(match[1], line + first_line - 1, column)


def _check_hosts(command: list[tuple[str, int, int]], first_line: int, findings: _Findings) -> None:
    """Check a cluster in `--worker_hosts=A:2222,B:2222 --job_name=worker --task_index=1`."""
    jobs: dict[str, range | None] = {}
    options: dict[str, tuple[str, int, int]] = {}
    for position, (word, line, column) in enumerate(command):
        match = re.match(
            r"--?(ps|worker|chief|master|evaluator)_hosts(?:=|\Z)|--?(job_name|task_index|task_id|task_type)(?:=|\Z)",
            word,
        )
        if match is None:
            continue
        value = _strip_quotes(
            word[match.end() :]
            if "=" in word
            else command[position + 1][0]
            if position + 1 < len(command)
            else ""
        )
        if match[1]:
            addresses = value.split(",")
            jobs[match[1]] = None if "$" in value or not value else range(len(addresses))
            for address in addresses:
                problem = describe_address_fault(address) if address else None
                if problem is not None:
                    findings.report("cluster-address", problem, line + first_line - 1, column)
        else:
            options[match[2]] = value, line + first_line - 1, column
    job = options.get("job_name") or options.get("task_type")
    index = options.get("task_index") or options.get("task_id")
    if job is None or index is None:
        return
    job_name, _, _ = job
    index_text, line, column = index
    if not index_text.isdecimal() or "$" in job_name:
        return
    index_text = index_text[:18]  # int() refuses very long numbers
    problem = describe_task_fault(jobs, job_name, int(index_text)) if jobs else None
    if problem is not None:
        findings.report("cluster-task", problem, line, column)
    findings.check_task_start(job_name, int(index_text), line, column)


def lint_dockerfile(text: str) -> list[LintProblem]:
    """Return the findings in the ENV, ARG and RUN instructions of a Dockerfile or Containerfile."""
    findings = _Findings(text)
    for instruction in parse_instructions(text):
        body = instruction.body.text
        if instruction.name in ("ENV", "ARG"):
            assignments = list(
                re.finditer(
                    r"""(?:^|\s)([A-Za-z_][\w\-]*)=(?:"((?:\\.|[^"\\])*)"|'([^']*)'|((?:\\.|[^\s"'\\])*))""",
                    body,
                )
            )
            if not assignments and instruction.name == "ENV":
                # `ENV NAME VALUE`; with the empty groups, the value is in a group of the same number as above
                assignments = list(re.finditer(r"^\s*([A-Za-z_]\w*)\s+()()(.*)$", body, re.S))
            for match in assignments:
                line = instruction.body.line_at(match.start(1))
                if instruction.name == "ENV" or "_VISIBLE_" in match[1]:
                    findings.check_variable(match[1], line, 1)
                if match[1] == "TF_CONFIG":
                    value = next((part for part in match.groups()[1:] if part), "")
                    findings.check_tf_config(value.replace('\\"', '"'), line, 1)
        elif instruction.name == "RUN":
            command = re.sub(r"^(?:\s*--\w+=\S+)+", "", body)
            name = find_assigned_variable(command) if not instruction.heredocs else None
            if name is not None and (is_relevant_variable(name) or guess_variable(name)):
                findings.report(
                    "variable-set-wrongly",
                    f"{name} is set for this RUN alone and gone after it. Use ENV.",
                    instruction.line,
                    1,
                )
            else:
                script = _Findings(body)
                _check_script(body, 1, script)
                line_starts = [0, *accumulate(len(line) + 1 for line in script.lines)]
                for problem in script.problems.values():
                    if problem.kind_name == "misspelt-variable":
                        findings.check_variable(
                            problem.message.split()[2].rstrip(";"),  # the message is "Nothing reads NAME; …"
                            instruction.body.line_at(line_starts[problem.line - 1] + problem.column - 1),
                            1,
                        )
    return list(findings.problems.values())


def lint_env_file(text: str) -> list[LintProblem]:
    """Return the findings in an env file, which has one NAME=VALUE on each line."""
    findings = _Findings(text)
    open_quote = ""
    for number, line in enumerate(findings.lines, 1):
        if open_quote:  # inside a value that spans lines
            open_quote = "" if open_quote in line else open_quote
            continue
        match = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)[ \t]*=[ \t]*(.*)", line)
        if match is not None and match[2][:1] in ("'", '"') and match[2].count(match[2][0]) == 1:
            open_quote = match[2][0]
        if match is not None and not findings.check_variable(match[1], number, 1) and match[1] == "TF_CONFIG":
            findings.check_tf_config(_strip_quotes(match[2].strip()), number, match.start(1) + 1)
    return list(findings.problems.values())


def lint_yaml(text: str) -> list[LintProblem]:
    """Return the findings in environments and scripts of compose files, Kubernetes objects and workflows.

    Raise ValueError if the text is not YAML or is nested too deep.
    """
    import yaml

    findings = _Findings(text)
    try:
        for root in yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            _check_yaml(root, findings, set())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f" (line {mark.line + 1})" if mark is not None else ""
        msg = f"it is not YAML{position}"
        raise ValueError(msg) from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    return list(findings.problems.values())


def _check_yaml(root: Any, findings: _Findings, visited_ids: set[int]) -> None:
    """Check all environments and scripts below a YAML node. `visited_ids` are the ids of checked nodes."""
    import yaml

    stack = [root]
    checked_ids: set[int] = set()
    # an alias is the same node as its anchor, so each environment and script is checked only once
    while stack:
        node = stack.pop()
        if node is None or id(node) in visited_ids:
            continue
        visited_ids.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            stack += node.value
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = key.value.lower().replace("-", "_") if isinstance(key, yaml.ScalarNode) else ""
                items = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if name in _ENVIRONMENT_KEYS | _SCRIPT_KEYS and id(value) not in checked_ids:
                    items = [item for item in items if id(item) not in checked_ids]
                    checked_ids.update(map(id, (value, *items)))
                else:
                    items = []
                if name in _ENVIRONMENT_KEYS:
                    _check_environment(items, findings, is_list=isinstance(value, yaml.SequenceNode))
                elif name in _SCRIPT_KEYS:
                    for item in items:
                        if isinstance(item, yaml.ScalarNode):
                            is_block = item.style in ("|", ">")  # whose text begins one line below
                            line, _ = findings.find_position(item.start_mark)
                            _check_script(item.value, line + is_block, findings, is_batch_job=True)
                stack.append(value)


def _check_environment(nodes: list[Any], findings: _Findings, *, is_list: bool) -> None:
    """Check an environment: a list of settings if `is_list`, otherwise one mapping."""
    import yaml

    def check_setting(key: Any, value: Any) -> None:
        line, column = findings.find_position(key.start_mark)
        name, _, content = key.value.partition("=") if value is None else (key.value, "", value.value)
        if (
            not findings.check_variable(name, line, column)
            and name == "TF_CONFIG"
            and isinstance(content, str)
        ):
            findings.check_tf_config(content, *findings.find_position((value or key).start_mark))

    for node in nodes:
        if isinstance(node, yaml.ScalarNode):
            check_setting(node, None)
        elif isinstance(node, yaml.MappingNode):
            parts = {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}
            _, name = parts.get("name", (None, None))
            if is_list and isinstance(name, yaml.ScalarNode):
                check_setting(name, parts.get("value", (None, name))[1])
            elif not is_list:
                for key, value in parts.values():
                    check_setting(key, value)
