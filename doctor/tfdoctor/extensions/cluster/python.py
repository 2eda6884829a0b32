"""Find the clusters in a Python file without running the file.

A cluster is found if the file calls ClusterSpec or sets TF_CONFIG, and if the values are literals or can be evaluated
from literals.
"""

from __future__ import annotations

import ast
from typing import Any

from tfdoctor.core.python_size import MAX_TOKENS, has_many_tokens
from tfdoctor.core.records import dataclass

__all__ = ["SourceCluster", "find_clusters"]

MAX_CLUSTERS = 1000
"""The maximum number of ClusterSpec calls, and of TF_CONFIG assignments, that are checked in one file."""
MAX_STEPS = 500_000
"""The maximum number of expressions that are evaluated in a file. Other values count as unknown."""
MAX_ITEMS = 200_000
"""The maximum number of list items, or of characters in a text, that one operation may produce."""
ITEMS_PER_STEP = 16
"""The number of list items or characters that count as one evaluated expression."""
MAX_DEPTH = 40
"""The maximum depth of nested expressions, names and calls in one value."""
_CONDITIONAL_NODES = (ast.If, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.IfExp, ast.Match)
"""The classes of nodes whose contents may not run."""


class _UnknownError(Exception):
    """A value cannot be determined without running the program."""


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """A ClusterSpec with the servers that use it, or a TF_CONFIG that the program sets."""

    line: int
    """The line of the call or the assignment."""
    cluster: dict[str, Any] | None = None
    """The argument of ClusterSpec. None if unknown, or for a TF_CONFIG."""
    servers: tuple[tuple[str, int], ...] = ()
    """The servers that use this cluster, as (job, index)."""
    tf_config_text: str | None = None
    """The value of TF_CONFIG, if it is a text. None if unknown, or for a ClusterSpec."""
    tf_config_value: Any = None
    """The argument of json.dumps, if it makes the value of TF_CONFIG. None if unknown, or for a ClusterSpec."""
    note: str = ""
    """A sentence about the parts that could not be determined. Empty if everything is known."""


def find_clusters(text: str) -> list[SourceCluster]:
    """Return the clusters in a program's source.

    Raise SyntaxError, ValueError or RecursionError if `ast.parse` cannot parse the source.
    """
    if has_many_tokens(text):
        return [
            SourceCluster(1, note=f"Not checked: this file has more than {MAX_TOKENS:,} words and signs.")
        ]
    reader = _Reader(ast.parse(text))
    spec_clusters = [reader.read_spec(call) for call in reader.spec_calls[:MAX_CLUSTERS]]
    clusters = [cluster for cluster in (*spec_clusters, *reader.read_configs()) if cluster is not None]
    for name, nodes in (("ClusterSpec", reader.spec_calls), ("TF_CONFIG", reader.config_assignments)):
        if len(nodes) > MAX_CLUSTERS:
            line = nodes[MAX_CLUSTERS].lineno
            note = f"This file has more than {MAX_CLUSTERS:,} of {name}: not checked from line {line:,} on."
            clusters.append(SourceCluster(line, note=note))
    return clusters


def _get_position(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _get_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class _Reader:
    """The cluster calls and assignments of a syntax tree, and the evaluation of their values."""

    def __init__(self, tree: ast.Module) -> None:
        """Record the calls of ClusterSpec and Server and all assignments in the tree."""
        self.spec_calls: list[ast.Call] = []
        """The calls of ClusterSpec."""
        self.server_calls: dict[int | str, list[ast.Call]] = {}
        """The calls of Server by their cluster argument: the name of a variable, or else the id of the node."""
        self.step_count = 0
        """The number of expressions that were evaluated."""
        self.config_assignments: list[ast.Assign] = []
        """The assignments to `os.environ["TF_CONFIG"]`."""
        self.conditional_calls: set[int] = set()
        """The ids of the calls of Server that may not run. Two of them may start the same server."""
        self.assigned_values: dict[str, list[ast.expr]] = {}
        """The values that are assigned to each variable."""
        self.variables_by_value: dict[int, list[str]] = {}
        """The variables to which each value is assigned, by the id of the value's node."""
        stack: list[tuple[ast.AST, bool]] = [(tree, False)]
        while stack:
            node, is_conditional = stack.pop()
            is_conditional = is_conditional or isinstance(node, _CONDITIONAL_NODES)
            stack += [(child, is_conditional) for child in ast.iter_child_nodes(node)]
            targets: list[ast.expr] = []
            if isinstance(node, ast.Call):
                self.record_call(node, is_conditional=is_conditional)
            elif isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
                if any(map(self.is_tf_config, targets)):
                    self.config_assignments.append(node)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                targets, value = [node.target], node.value
            elif isinstance(node, ast.AugAssign):
                # an augmented assignment changes the value, so it is not known
                targets, value = [node.target], node  # type: ignore[assignment]
            for target in targets:
                if isinstance(target, ast.Name):
                    self.assigned_values.setdefault(target.id, []).append(value)
                    self.variables_by_value.setdefault(id(value), []).append(target.id)
        self.spec_calls.sort(key=_get_position)
        self.config_assignments.sort(key=_get_position)

    def record_call(self, call: ast.Call, *, is_conditional: bool) -> None:
        """Record a call of ClusterSpec or Server."""
        name = _get_name(call.func)
        if name == "ClusterSpec":
            self.spec_calls.append(call)
        elif name == "Server":
            cluster_arguments = (
                keyword.value for keyword in call.keywords if keyword.arg == "server_or_cluster_def"
            )
            cluster_node = call.args[0] if call.args else next(cluster_arguments, None)
            cluster_key = cluster_node.id if isinstance(cluster_node, ast.Name) else id(cluster_node)
            self.server_calls.setdefault(cluster_key, []).append(call)
            if is_conditional:
                self.conditional_calls.add(id(call))

    def evaluate(self, node: ast.AST, depth: int = 0) -> Any:
        """Evaluate an expression that consists of literals.

        The expression may contain variables with only one assignment in the whole file, additions of texts or lists,
        negative numbers, f-strings, and calls of split, int, str and dict. Raise _UnknownError for anything else, or if
        a limit is exceeded.
        """
        self.step_count += 1
        if depth > MAX_DEPTH or self.step_count > MAX_STEPS:
            raise _UnknownError
        next_depth = depth + 1
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.evaluate(item, next_depth) for item in node.elts]
        if isinstance(node, ast.Dict):
            if None in node.keys:  # the key of **mapping
                raise _UnknownError
            return {
                self.evaluate_key(key, next_depth): self.evaluate(item, next_depth)
                for key, item in zip(node.keys, node.values, strict=True)
            }
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.evaluate(node.operand, next_depth)
            if isinstance(number, int):
                return -number
        if isinstance(node, ast.Name):
            values = self.assigned_values.get(node.id, [])
            if len(values) == 1:
                return self.evaluate(values[0], next_depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.evaluate(node.left, next_depth), self.evaluate(node.right, next_depth)
            for operand_type in (str, list):
                if isinstance(left, operand_type) and isinstance(right, operand_type):
                    self.count_work(len(left) + len(right))
                    return left + right  # type: ignore[operator]
        if isinstance(node, ast.JoinedStr):
            text = ""
            for item in node.values:
                text += self.evaluate_fstring_part(item, next_depth)
                self.count_work(len(text))
            return text
        if isinstance(node, ast.Call):
            return self.evaluate_call(node, next_depth)
        raise _UnknownError

    def count_work(self, items: int) -> None:
        """Count the work on this number of items or characters. Raise _UnknownError if it exceeds a limit."""
        self.step_count += items // ITEMS_PER_STEP
        if items > MAX_ITEMS or self.step_count > MAX_STEPS:
            raise _UnknownError

    def evaluate_key(self, node: ast.AST | None, depth: int) -> Any:
        """Evaluate a dict key. Raise _UnknownError if it is neither a str nor an int."""
        value = self.evaluate(node, depth) if node is not None else None
        if not isinstance(value, (str, int)):
            raise _UnknownError
        return value

    def evaluate_fstring_part(self, node: ast.AST, depth: int) -> str:
        """Evaluate a part of an f-string. Raise _UnknownError for a format, or if the value is no str or int."""
        if isinstance(node, ast.FormattedValue):
            if node.format_spec is not None or node.conversion != -1:  # -1: no conversion such as !r
                raise _UnknownError
            node = node.value
        value = self.evaluate(node, depth)
        if not isinstance(value, (str, int)):
            raise _UnknownError
        return str(value)

    def evaluate_call(self, node: ast.Call, depth: int) -> Any:
        """Evaluate a call of split, int, str or dict. Raise _UnknownError for any other call."""
        name = _get_name(node.func)
        if name == "split" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            text, separator = self.evaluate(node.func.value, depth), self.evaluate(node.args[0], depth)
            if isinstance(text, str) and isinstance(separator, str) and separator:
                self.count_work(len(text))
                return text.split(separator)
        if name in ("int", "str") and len(node.args) == 1 and not node.keywords:
            value = self.evaluate(node.args[0], depth)
            if isinstance(value, str) and len(value) > 20:  # no index has that many digits
                raise _UnknownError
            try:
                return int(value) if name == "int" else str(value)
            except (TypeError, ValueError) as error:
                raise _UnknownError from error
        if name == "dict" and not node.args:
            return {
                keyword.arg: self.evaluate(keyword.value, depth) for keyword in node.keywords if keyword.arg
            }
        raise _UnknownError

    def read_spec(self, call: ast.Call) -> SourceCluster | None:
        """Return the cluster of a ClusterSpec call with its servers, or None if the call has no argument."""
        argument = (
            call.args[0]
            if call.args
            else next((keyword.value for keyword in call.keywords if keyword.arg == "cluster"), None)
        )
        if argument is None:
            return None
        note = ""
        cluster: Any = None
        try:
            cluster = self.evaluate(argument)
        except (_UnknownError, TypeError, RecursionError):
            cluster = self.evaluate_known_jobs(argument)
            note = "A part of this cluster is made while the program runs."
        if not isinstance(cluster, dict):
            return SourceCluster(call.lineno, note="This cluster is made while the program runs.")
        cluster = {str(job): tasks for job, tasks in cluster.items()}
        servers: list[tuple[str, int]] = []
        started_tasks: set[tuple[str, int]] = set()
        has_unknown_task = False
        server_keys: tuple[int | str, ...] = (
            id(call),
            *dict.fromkeys(self.variables_by_value.get(id(call), ())),
        )
        for server in sorted(
            (call_node for key in server_keys for call_node in self.server_calls.get(key, ())),
            key=_get_position,
        ):
            arguments = {keyword.arg: keyword.value for keyword in server.keywords}
            try:
                job = self.evaluate(server.args[1] if len(server.args) > 1 else arguments["job_name"])
                index = self.evaluate(server.args[2] if len(server.args) > 2 else arguments["task_index"])
            except (_UnknownError, KeyError, TypeError, RecursionError):
                has_unknown_task = True
                continue
            if isinstance(job, str) and isinstance(index, int):
                # of several calls of which not all can run, count only the first
                if id(server) not in self.conditional_calls or (job, index) not in started_tasks:
                    servers.append((job, index))
                    started_tasks.add((job, index))
            else:
                has_unknown_task = True
        if has_unknown_task and not note:
            note = "Which task a process is, is known only while the program runs."
        return SourceCluster(call.lineno, cluster, tuple(servers), note=note)

    def evaluate_known_jobs(self, node: ast.AST) -> dict[str, Any] | None:
        """Return the jobs of a dict literal whose tasks are known, or None if there are none."""
        if isinstance(node, ast.Name) and len(self.assigned_values.get(node.id, [])) == 1:
            node = self.assigned_values[node.id][0]
        if not isinstance(node, ast.Dict):
            return None
        jobs: dict[str, Any] = {}
        for key, value_node in zip(node.keys, node.values, strict=True):
            try:
                jobs[str(self.evaluate_key(key, 0))] = self.evaluate(value_node)
            except (_UnknownError, TypeError, RecursionError):
                continue
        return jobs or None

    def read_configs(self) -> list[SourceCluster]:
        """Return the clusters that are assigned to `os.environ["TF_CONFIG"]`."""
        clusters = []
        for node in self.config_assignments[:MAX_CLUSTERS]:
            value = node.value
            try:
                if isinstance(value, ast.Call) and _get_name(value.func) == "dumps" and value.args:
                    clusters.append(SourceCluster(node.lineno, tf_config_value=self.evaluate(value.args[0])))
                else:
                    text = self.evaluate(value)
                    if isinstance(text, str):
                        clusters.append(SourceCluster(node.lineno, tf_config_text=text))
            except (_UnknownError, TypeError, RecursionError):
                clusters.append(
                    SourceCluster(node.lineno, note="This TF_CONFIG is made while the program runs.")
                )
        return clusters

    @staticmethod
    def is_tf_config(target: ast.expr) -> bool:
        """Return whether the target of an assignment is `os.environ["TF_CONFIG"]`."""
        return (
            isinstance(target, ast.Subscript)
            and _get_name(target.value) == "environ"
            and isinstance(target.slice, ast.Constant)
            and target.slice.value == "TF_CONFIG"
        )
