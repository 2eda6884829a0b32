"""Check environment variables in Python: their names and values, and whether they are set too late."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts.variables import (
    READ_AT_FIRST_USE,
    READ_AT_IMPORT,
    READ_AT_START,
    guess_variable,
    is_relevant_variable,
)
from tfdoctor.extensions.lint.models import Fix
from tfdoctor.extensions.lint.reporter import Reporter
from tfdoctor.extensions.lint.values import (
    ConstantValue,
    DictValue,
    MultipleValues,
    ObjectValue,
    QualifiedName,
    SequenceValue,
    get_constant,
)

if TYPE_CHECKING:
    from tfdoctor.extensions.lint.models import LintTarget

__all__ = ["EXPORT_COMMAND", "EnvironChecks", "find_assigned_variable"]

_CHILD_START = re.compile(
    r"\bsubprocess\b|\bPopen\b|\bos\.(?:system|popen|exec[lv]\w*|spawn\w+|posix_spawn|fork)\b|\bmultiprocessing\b|\bmp\.(?:Process|Pool|spawn)|"
    r"\bProcess\(|\bProcessPoolExecutor\b|\bpexpect\b|\bcheck_call\b|\bcheck_output\b|^\s*!|^\s*%%(?:bash|sh)\b"
)
"""Code that starts another program: a function of the standard library, or a shell line of a notebook."""
EXPORT_COMMAND = re.compile(
    r"\s*(?:export|setenv|set|declare\s+-x)\s+([A-Za-z_]\w*)(?:[=\s]|$)|\s*([A-Z][A-Z0-9_]{3,60})="
)
"""The beginning of a shell command that sets a variable. The first or the second group is its name."""
_MAX_COMMAND_CHARS = 4000
"""The number of characters of a shell command that are checked."""
_SHELL_FUNCTIONS = frozenset(
    ["os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "commands.getoutput"]
)
_CHILD_FUNCTIONS = frozenset(
    f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")
)


def find_assigned_variable(command: str) -> str | None:
    """Return the first variable that a shell command sets, or None if it sets none or does anything else."""
    name = None
    for part in re.split(r"&&|\|\||;|\n|&", command[:_MAX_COMMAND_CHARS]):
        if not part.strip():
            continue
        match = EXPORT_COMMAND.match(part)
        if match is None:
            return None
        remainder = part[match.end() :].strip()
        assignments = re.fullmatch(
            r"""(?:"[^"]*"|'[^']*'|[^\s"'])*(?:\s+[A-Za-z_]\w*=(?:"[^"]*"|'[^']*'|[^\s"'])*)*""", remainder
        )
        if assignments is None:
            return None
        name = name or match[1] or match[2]
    return name


class EnvironChecks(Reporter):
    """The checks of everything that sets or reads environment variables."""

    def __init__(self, target: LintTarget, text: str) -> None:
        super().__init__(target, text)
        self.variables_set = set(
            re.findall(r"environ(?:\.setdefault\(|\[)\s*['\"](\w+)['\"]\]?\s*[=,]", text)
        )
        """The variables that the text sets."""
        self.variables_read: set[str] = set()
        """The variables that the text both sets and reads."""
        self.visible_gpu_count: int | None = None
        """The number of GPUs that the file's CUDA_VISIBLE_DEVICES makes visible. None if unknown."""

    check_tf_config: Any

    @cached_property
    def child_start_lines(self) -> list[int]:
        """The numbers of the lines that start other programs, which inherit the environment of that moment."""
        lines = enumerate(self.text.split("\n"), 1)
        return [number for number, line in lines if _CHILD_START.search(line) and "import" not in line]

    # ---------------------------------------------------------------- variables

    def check_variable(
        self, key: Any, node: Any, value: Any, value_node: Any, *, in_copy: bool = False
    ) -> None:
        """Check an assignment to an environment variable.

        `key` is the evaluated name, which may stand for several names. `in_copy` says whether the variable is set in a
        copy of the environment, such as that of a child process.
        """
        names = key.values if isinstance(key, MultipleValues) else [get_constant(key)]
        self.count_work(16 * (len(names) - 1))
        for name in names:
            if isinstance(name, str):
                self.check_named_variable(name, node, value, value_node, in_copy=in_copy)

    def check_named_variable(
        self, name: str, node: Any, value: Any, value_node: Any, *, in_copy: bool
    ) -> None:
        """Check the name, value type and time of one assignment. `in_copy` is as in `check_variable`."""
        if self.check_spelling(name, node):
            return
        if name == "TF_CONFIG":
            self.check_tf_config(value, value_node if value_node is not None else node)
        constant = get_constant(value)
        # A dict takes any value: the program may convert it before it starts a process.
        error = "starting a process with it raises TypeError" if in_copy else "Python raises TypeError"
        if (
            is_relevant_variable(name)
            and isinstance(value, ConstantValue)
            and constant is not None
            and isinstance(constant, (int, float, bool))
        ):
            self.report(
                "variable-set-wrongly",
                value_node if isinstance(value_node, (ast.Constant, ast.UnaryOp)) else node,
                f"{name} is set to {constant!r}, which is not a string: {error}.",
                fix=None if in_copy else self.make_string_fix(value_node, constant),
            )
        elif is_relevant_variable(name) and (
            (isinstance(value, ConstantValue) and constant is None)
            or isinstance(value, (SequenceValue, DictValue))
        ):
            self.report("variable-set-wrongly", node, f"{name} is not set to a string: {error}.")
        if in_copy:
            return
        if name == "CUDA_VISIBLE_DEVICES":
            self.visible_gpu_count = None
            if isinstance(constant, str) and not self.branch_depth and not self.is_uncalled:
                # CUDA stops at -1
                devices = [device for device in constant.partition("-1")[0].split(",") if device.strip()]
                self.visible_gpu_count = (
                    len(devices) if all(device.strip().isdigit() for device in devices) else None
                )
        self.check_assignment_time(name, node)

    def check_spelling(self, name: str, node: Any) -> bool:
        """Report a variable if it is misspelt. Return whether it is."""
        suggestion = guess_variable(name)
        if suggestion is None:
            return False
        fix = None
        if isinstance(node, ast.Constant) and node.value == name:
            fix = self.make_literal_fix(node, name, suggestion)
        elif isinstance(node, ast.keyword):
            fix = self.make_fix(node.lineno, node.col_offset, node.col_offset + len(name), name, suggestion)
        self.report("misspelt-variable", node, f"Nothing reads {name}; did you mean {suggestion}?", fix=fix)
        return True

    def make_literal_fix(self, node: ast.Constant, name: str, suggestion: str) -> Fix | None:
        """Return the fix for a name in a string literal, or None if it does not appear exactly once there."""
        if not node.lineno or node.lineno != node.end_lineno or not 0 < node.lineno <= len(self.lines):
            return None
        start = self.find_column(node.lineno, node.col_offset) - 1
        end = self.find_column(node.lineno, node.end_col_offset or 0) - 1
        text = self.lines[node.lineno - 1][start:end]
        if text.count(name) != 1:
            return None
        offset = node.col_offset + len(text[: text.index(name)].encode())
        return self.make_fix(node.lineno, offset, offset + len(name.encode()), name, suggestion)

    def make_string_fix(self, node: Any, constant: Any) -> Fix | None:
        """Return the fix that puts an integer into quotes, or None for any other value."""
        if not isinstance(node, (ast.Constant, ast.UnaryOp)) or isinstance(constant, (bool, float)):
            return None
        return self.make_fix(
            node.lineno, node.col_offset, node.end_col_offset, str(constant), f'"{constant}"'
        )

    def check_assignment_time(self, name: str, node: Any) -> None:
        """Report a variable that is set after it was read."""
        # a program that is started in a later line inherits the variable in time
        is_inherited = bool(self.child_start_lines) and self.child_start_lines[-1] > self.find_text_line(node)
        if name in READ_AT_START:
            if not is_inherited and not self.child_start_lines and self.mentions_tensorflow:
                self.report(
                    "variable-set-too-late",
                    node,
                    f"The loader reads {name} when a process starts: set here, it has no effect "
                    "on this one. Set it before Python starts.",
                )
            return
        if name in READ_AT_IMPORT and self.state.import_line and not is_inherited:
            self.report(
                "variable-set-too-late",
                node,
                f"{name} is set after the import of tensorflow ({self.state.import_position}). Set it before the import.",
            )
        elif name in READ_AT_FIRST_USE and self.state.first_use_line and not is_inherited:
            self.report(
                "variable-set-too-late",
                node,
                f"{name} is set after the first use of the GPUs ({self.state.first_use_position}). Set it before.",
            )

    @cached_property
    def mentions_tensorflow(self) -> bool:
        """Whether the text contains the name of TensorFlow or Keras."""
        return "tensorflow" in self.text or "keras" in self.text

    def find_text_line(self, node: Any) -> int:
        """Return the line number of a node in the text of all cells together."""
        return int(node.lineno) + self.lines_before_cell

    def check_environ_entries(self, value: DictValue, node: Any, *, in_copy: bool = False) -> None:
        """Check all entries of a dict of environment variables. `in_copy` is as in `check_variable`."""
        self.count_work(16 * len(value.entries))
        for key, item, key_node, value_node in value.entries:
            self.check_variable(
                key, key_node if key_node is not None else node, item, value_node, in_copy=in_copy
            )

    # ---------------------------------------------------------------- assignments and calls

    def check_item_assignment(self, base: Any, key: Any, target: Any, value: Any, value_node: Any) -> None:
        """Check `base[key] = value`, and update the value of `base`.

        A dict or variable that is an environment only by its name is checked without offering fixes.
        """
        if isinstance(base, QualifiedName) and base.name == "os.environ":
            self.check_variable(key, target.slice, value, value_node)
        elif isinstance(base, DictValue):
            base.entries.append((key, value, target.slice, value_node))
            if base.is_environ_copy or (
                isinstance(target.value, ast.Name) and "env" in target.value.id.lower()
            ):
                self.offers_fixes = base.is_environ_copy
                self.check_variable(key, target.slice, value, value_node, in_copy=True)
                self.offers_fixes = True
        elif isinstance(base, SequenceValue):  # its items are no longer known
            base.items.clear()
            base.nodes.clear()
        elif isinstance(target.value, ast.Name) and re.search(
            r"(?:^|_)env(?:iron)?(?:_|$)", target.value.id, re.I
        ):
            name = get_constant(key)
            if isinstance(name, str):
                self.offers_fixes = False
                self.check_spelling(name, target.slice)
                self.offers_fixes = True

    def check_call_assignment(self, func: Any, target: ast.Call) -> None:
        """Report `os.environ("X") = …`, which is a syntax error."""
        name = func.name if isinstance(func, QualifiedName) else ""
        if (
            name in ("os.environ", "os.getenv", "os.environ.get", "os.putenv", "os.environ.setdefault")
            and target.args
        ):
            fix = self.make_subscript_fix(target) if name == "os.environ" and len(target.args) == 1 else None
            self.report(
                "variable-set-wrongly",
                target,
                "A call cannot be assigned to: this is a syntax error. os.environ takes square brackets.",
                fix=fix,
            )

    def make_subscript_fix(self, call: ast.Call) -> Fix | None:
        """Return the fix that turns `f(key)` into `f[key]`, or None if it spans lines or has more brackets."""
        line = call.lineno
        if not line == call.func.end_lineno == call.end_lineno or not 0 < line <= len(self.lines):
            return None
        start = self.find_column(line, call.func.end_col_offset or 0) - 1
        end = self.find_column(line, call.end_col_offset or 0) - 1
        old_text = self.lines[line - 1][start:end]
        match = re.fullmatch(r"\s*\(([^()\[\]]+)\)", old_text)
        if match is None:
            return None
        new_text = f"[{match[1]}]"
        return Fix(
            line=line,
            column=start + 1,
            end_line=line,
            end_column=end + 1,
            new_text=new_text,
            old_text=old_text,
        )

    def report_environ_attribute(self, target: ast.Attribute) -> None:
        """Report a variable that is set as an attribute of os.environ."""
        if is_relevant_variable(target.attr) or guess_variable(target.attr):
            self.report(
                "variable-set-wrongly",
                target,
                f"An attribute of os.environ is no variable: write os.environ[{target.attr!r}].",
            )

    def check_comparison_statement(self, node: ast.Compare) -> None:
        """Report `os.environ["X"] == "0"` as a statement of its own, which was meant as an assignment."""
        if isinstance(node.left, ast.Subscript):
            base, key = self.evaluate(node.left.value), self.evaluate(node.left.slice)
            if (
                isinstance(base, QualifiedName)
                and base.name == "os.environ"
                and isinstance(get_constant(key), str)
            ):
                self.report(
                    "variable-set-wrongly",
                    node,
                    f"This compares {get_constant(key)} and sets nothing: one = sign.",
                )

    def check_environ_union(self, left: Any, right: Any, node: Any) -> None:
        """Check the new variables in `os.environ | {…}`."""
        if isinstance(left, QualifiedName) and left.name == "os.environ" and isinstance(right, DictValue):
            self.check_environ_entries(right, node, in_copy=True)

    def evaluate_item(self, base: Any, key: Any, node: Any) -> Any:
        """Return the value of `base[key]`, or None if it is unknown."""
        if isinstance(base, QualifiedName):
            if base.name == "os.environ":
                self.check_variable_read(key, node.slice)
            return None
        if isinstance(base, ObjectValue) and base.kind == "gpus":
            index = get_constant(key)
            if isinstance(node.slice, ast.Slice):
                return ObjectValue("gpus", self.evaluate_slice(node.slice))
            return ObjectValue(
                "gpu", index if isinstance(index, int) and not isinstance(index, bool) else None
            )
        if isinstance(base, SequenceValue):
            index = get_constant(key)
            if isinstance(node.slice, ast.Slice):
                low, high = (
                    self.evaluate(bound) if bound is not None else ConstantValue(None)
                    for bound in (node.slice.lower, node.slice.upper)
                )
                if (
                    isinstance(low, ConstantValue)
                    and isinstance(high, ConstantValue)
                    and node.slice.step is None
                ):
                    bounds = slice(low.value, high.value)
                    self.count_work(len(base.items))
                    try:
                        return SequenceValue(base.items[bounds], base.nodes[bounds])
                    except TypeError:
                        return None
                return None
            if isinstance(index, int) and -len(base.items) <= index < len(base.items):
                return base.items[index]
            return None
        if isinstance(base, DictValue) and isinstance(key, ConstantValue):
            self.count_work(len(base.entries))
            for entry_key, value, *_ in reversed(base.entries):
                if isinstance(entry_key, ConstantValue) and entry_key.value == key.value:
                    return value
        return None

    def evaluate_slice(self, node: ast.Slice) -> Any:
        """Return which GPUs a slice selects: None for all, 0 for the first only, else "some"."""
        lower = get_constant(self.evaluate(node.lower)) if node.lower is not None else 0
        upper = get_constant(self.evaluate(node.upper)) if node.upper is not None else None
        if node.lower is None and node.upper is None:
            return None
        return 0 if lower == 0 and upper == 1 else "some"

    def check_variable_read(self, key: Any, node: Any) -> None:
        """Check the name of a variable that is read. If the file also sets it, only record that it is read."""
        name = get_constant(key)
        if isinstance(name, str) and name in self.variables_set:
            self.variables_read.add(name)
        elif isinstance(name, str):
            self.check_spelling(name, node)

    def evaluate_map_method(
        self, base: DictValue, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]
    ) -> Any:
        """Check a call of a dict method, update the dict, and return the call's value, or None if unknown."""
        self.count_work(len(base.entries))
        if name == "update" and (args or keywords):
            base.entries += self.list_argument_entries(node, args, keywords)
            if base.is_environ_copy:
                self.check_environ_entries(
                    DictValue(self.list_argument_entries(node, args, keywords)), node, in_copy=True
                )
        elif name == "setdefault" and args:
            base.entries.append((args[0], args[1] if len(args) > 1 else None, node.args[0], node.args[-1]))
            if base.is_environ_copy:
                self.check_variable(
                    args[0], node.args[0], args[1] if len(args) > 1 else None, node.args[-1], in_copy=True
                )
        elif name == "items" and base.is_complete:
            items = [
                SequenceValue([key, value], [key_node, value_node])
                for key, value, key_node, value_node in base.entries
            ]
            return SequenceValue(items, [key_node for _, _, key_node, _ in base.entries])
        elif name == "copy":
            return DictValue(list(base.entries), base.is_complete, base.is_environ_copy)
        elif name == "keys" and base.is_complete:
            return SequenceValue(
                [key for key, *_ in base.entries], [key_node for _, _, key_node, _ in base.entries]
            )
        return None

    def list_argument_entries(
        self, node: Any, args: list[Any], keywords: dict[Any, Any]
    ) -> list[tuple[Any, Any, Any, Any]]:
        """Return the entries that the arguments of `dict` or `update` contain."""
        entries = []
        for argument in args:
            self.count_work(
                len(argument.entries)
                if isinstance(argument, DictValue)
                else len(argument.items)
                if isinstance(argument, SequenceValue)
                else 0
            )
            if isinstance(argument, DictValue):
                entries += argument.entries
            elif isinstance(argument, SequenceValue):
                entries += [
                    (pair.items[0], pair.items[1], pair.nodes[0], pair.nodes[1])
                    for pair in argument.items
                    if isinstance(pair, SequenceValue) and len(pair.items) == 2
                ]
        return entries + [
            (ConstantValue(argument.arg), keywords.get(argument.arg), argument, argument.value)
            for argument in node.keywords
            if argument.arg
        ]

    def evaluate_environ_call(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> Any:
        """Check a call that reads, sets or copies environment variables or starts a child process.

        Return the value of the call, or None if it is unknown. Return NotImplemented for any other call.
        """
        if name in ("os.environ.copy", "copy.copy", "copy.deepcopy"):
            is_environ = name == "os.environ.copy" or (
                bool(args) and isinstance(args[0], QualifiedName) and args[0].name == "os.environ"
            )
            return DictValue([], is_complete=False, is_environ_copy=True) if is_environ else None
        if name == "dict":
            base = args[0] if args else None
            result = DictValue(
                self.list_argument_entries(node, args, keywords), is_complete=None not in keywords
            )
            result.is_environ_copy = (isinstance(base, QualifiedName) and base.name == "os.environ") or (
                isinstance(base, DictValue) and base.is_environ_copy
            )
            result.is_environ_copy |= any(
                isinstance(item, QualifiedName) and item.name == "os.environ"
                for key, item in keywords.items()
                if key is None
            )
            if result.is_environ_copy:
                result.is_complete = False
                self.check_environ_entries(result, node, in_copy=True)
            return result
        if name in ("os.environ.update", "os.environ.__ior__"):
            self.check_environ_entries(DictValue(self.list_argument_entries(node, args, keywords)), node)
            return None
        if name in ("os.environ.setdefault", "os.putenv", "os.environ.__setitem__") and args:
            value = args[1] if len(args) > 1 else None
            self.check_variable(args[0], node.args[0], value, node.args[1] if len(node.args) > 1 else None)
            return None
        if name in ("os.environ.get", "os.getenv") and args:
            self.check_variable_read(args[0], node.args[0])
            return None
        if (
            name.endswith("patch.dict")
            and args
            and isinstance(args[0], QualifiedName)
            and args[0].name == "os.environ"
        ):
            self.check_environ_entries(
                DictValue(self.list_argument_entries(node, args[1:], keywords)), node, in_copy=True
            )
            return None
        if name == "__tfdoctor_env":
            self.check_variable(args[0], node, args[1], node.args[1])
            return None
        if name == "__tfdoctor_shell":
            self.check_shell_command(get_constant(args[0]), node)
            return None
        if name in _SHELL_FUNCTIONS or name in _CHILD_FUNCTIONS:
            self.check_child_process(name, node, args, keywords)
            return None
        return NotImplemented

    def check_child_process(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """Check the environment and the command of a child process."""
        env = keywords.get("env")
        if isinstance(env, DictValue) and not env.is_environ_copy:
            self.check_environ_entries(env, node, in_copy=True)
        command = args[0] if args else None
        uses_shell = name in _SHELL_FUNCTIONS or get_constant(keywords.get("shell")) is True
        if uses_shell and isinstance(get_constant(command), str):
            self.check_shell_command(get_constant(command), node)
        elif (
            isinstance(command, ObjectValue)
            and command.kind == "text"
            and uses_shell
            and isinstance(node.args[0], (ast.BinOp, ast.JoinedStr))
        ):
            text_parts = [
                part.value
                for part in ast.walk(node.args[0])
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            first_text = text_parts[0] if text_parts else ""
            if re.match(r"\s*export\s+\w+=", first_text) and not any(
                re.search(r"[;&|\n]", part) for part in text_parts
            ):
                self.check_shell_command(first_text + "x", node)  # "x" stands for the unknown value
        elif (
            isinstance(command, SequenceValue)
            and command.items
            and get_constant(command.items[0]) == "export"
        ):
            self.report(
                "variable-set-wrongly",
                node,
                "`export` is a word of the shell, no program, and it would end with it. Use os.environ.",
            )

    def check_shell_command(self, command: Any, node: Any) -> None:
        """Check a command that a child shell runs. Setting a variable there has no effect on this process."""
        if not isinstance(command, str):
            return
        command = command[:_MAX_COMMAND_CHARS]
        self.count_work(len(command))
        name = find_assigned_variable(command)
        if name is not None and (
            is_relevant_variable(name) or guess_variable(name) or name == "LD_LIBRARY_PATH"
        ):
            replacement = "%env" if self.cell_number is not None else "os.environ"
            self.report(
                "variable-set-wrongly",
                node,
                f"The shell that sets {name} ends at once, and the variable with it. Use {replacement}.",
            )
            return
        for match in re.finditer(r"(?:^|[;&|]\s*|export\s+|\s)([A-Za-z_]\w{4,59})=", command):
            self.check_spelling(match[1], node)

    def check_unknown_call(self, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """Check a call of an unknown function, such as Popen(env=…) or monkeypatch.setenv(…)."""
        env = keywords.get("env")
        if isinstance(env, DictValue):
            self.check_environ_entries(env, node, in_copy=True)
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "setenv"
            and args
            and isinstance(get_constant(args[0]), str)
        ):
            self.check_spelling(get_constant(args[0]), node.args[0])
