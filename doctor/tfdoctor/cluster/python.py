"""Clusters in a Python file, found without running it: ClusterSpec and Server with values that the file contains."""

from __future__ import annotations

import ast
from typing import Any

from tfdoctor.parse.python_size import MAX_TOKENS, has_many_tokens
from tfdoctor.records import dataclass

__all__ = ["FoundCluster", "find_clusters"]

MAX_CLUSTERS = 1000
"""Most clusters, and most assignments of TF_CONFIG, that are checked in one file."""
MAX_STEPS = 500_000
"""Most expressions of one file that are evaluated; the values of others count as unknown."""
MAX_ITEMS = 200_000
"""Most items of a list, or characters of a text, that is put together."""
ITEMS_PER_STEP = 16
"""Items or characters that count as one evaluated expression."""
MAX_DEPTH = 40
"""Most nested expressions, names and calls for one value."""


class _UnknownError(Exception):
    """Error for a value that is not known without running the program."""


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """ClusterSpec with the servers that use it, or a TF_CONFIG that the program sets."""

    line: int
    cluster: dict[str, Any] | None = None
    servers: tuple[tuple[str, int], ...] = ()
    """(job, index) of each Server that gets this cluster."""
    text: str | None = None
    """Value of TF_CONFIG as JSON text; None if it is not known."""
    config: Any = None
    """Value of TF_CONFIG before json.dumps; None if it is not known."""
    partly: str = ""
    """Note about what could not be determined, as a sentence; "" if there is none."""


def find_clusters(text: str) -> list[FoundCluster]:
    """Return the clusters in a program's source.

    Raise SyntaxError, ValueError or RecursionError, as `ast.parse` does.
    """
    if has_many_tokens(text):
        return [
            FoundCluster(1, partly=f"Not checked: this file has more than {MAX_TOKENS:,} words and signs.")
        ]
    reader = _Reader(ast.parse(text))
    specs = [reader.spec(call) for call in reader.specs[:MAX_CLUSTERS]]
    clusters = [cluster for cluster in (*specs, *reader.variables()) if cluster is not None]
    for name, nodes in (("ClusterSpec", reader.specs), ("TF_CONFIG", reader.configs)):
        if len(nodes) > MAX_CLUSTERS:
            line = nodes[MAX_CLUSTERS].lineno
            partly = f"This file has more than {MAX_CLUSTERS:,} of {name}: not checked from line {line:,} on."
            clusters.append(FoundCluster(line, partly=partly))
    return clusters


def _get_position(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _get_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


_BRANCHES = (ast.If, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.IfExp, ast.Match)


class _Reader:
    """Reader of the clusters in a syntax tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.specs: list[ast.Call] = []
        self.servers: dict[int | str, list[ast.Call]] = {}
        """Calls of Server for each cluster, which is identified by its call's id or by its variable's name."""
        self.steps = 0
        self.configs: list[ast.Assign] = []
        """Assignments to `os.environ["TF_CONFIG"]`."""
        self.maybe: set[int] = set()
        """Ids of calls of Server that may not run, so that two of them need not be two servers."""
        self.values: dict[str, list[ast.expr]] = {}
        self.names: dict[int, list[str]] = {}
        """Names that are assigned each value, by the value's id."""
        stack: list[tuple[ast.AST, bool]] = [(tree, False)]
        while stack:
            node, maybe = stack.pop()
            maybe = maybe or isinstance(node, _BRANCHES)
            stack += [(child, maybe) for child in ast.iter_child_nodes(node)]
            targets: list[ast.expr] = []
            if isinstance(node, ast.Call):
                self.take_call(node, maybe=maybe)
            elif isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
                if any(map(self.is_variable, targets)):
                    self.configs.append(node)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                targets, value = [node.target], node.value
            elif isinstance(node, ast.AugAssign):
                targets, value = [node.target], node  # type: ignore[assignment] # an augmented assignment changes the value, so it is not known
            for target in targets:
                if isinstance(target, ast.Name):
                    self.values.setdefault(target.id, []).append(value)
                    self.names.setdefault(id(value), []).append(target.id)
        self.specs.sort(key=_get_position)
        self.configs.sort(key=_get_position)

    def take_call(self, call: ast.Call, *, maybe: bool) -> None:
        """Record a call of ClusterSpec or Server."""
        name = _get_name(call.func)
        if name == "ClusterSpec":
            self.specs.append(call)
        elif name == "Server":
            values = (keyword.value for keyword in call.keywords if keyword.arg == "server_or_cluster_def")
            cluster = call.args[0] if call.args else next(values, None)
            key = cluster.id if isinstance(cluster, ast.Name) else id(cluster)
            self.servers.setdefault(key, []).append(call)
            if maybe:
                self.maybe.add(id(call))

    def value(self, node: ast.AST, depth: int = 0) -> Any:
        """Evaluate a literal, a name with one value in the whole file, or a text that is split or joined.

        Raise _UnknownError for anything else.
        """
        self.steps += 1
        if depth > MAX_DEPTH or self.steps > MAX_STEPS:
            raise _UnknownError
        deeper = depth + 1
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(item, deeper) for item in node.elts]
        if isinstance(node, ast.Dict):
            if None in node.keys:
                raise _UnknownError
            return {
                self.key(key, deeper): self.value(item, deeper)
                for key, item in zip(node.keys, node.values, strict=True)
            }
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.value(node.operand, deeper)
            if isinstance(number, int):
                return -number
        if isinstance(node, ast.Name):
            values = self.values.get(node.id, [])
            if len(values) == 1:
                return self.value(values[0], deeper)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            operands = self.value(node.left, deeper), self.value(node.right, deeper)
            for kind in (str, list):
                if all(isinstance(item, kind) for item in operands):
                    self.spend(len(operands[0]) + len(operands[1]))
                    return operands[0] + operands[1]
        if isinstance(node, ast.JoinedStr):
            text = ""
            for item in node.values:
                text += self.piece(item, deeper)
                self.spend(len(text))
            return text
        if isinstance(node, ast.Call):
            return self.evaluate_call(node, deeper)
        raise _UnknownError

    def spend(self, items: int) -> None:
        """Count the work on this number of items or characters. Raise _UnknownError if the limit is exceeded."""
        self.steps += items // ITEMS_PER_STEP
        if items > MAX_ITEMS or self.steps > MAX_STEPS:
            raise _UnknownError

    def key(self, node: ast.AST | None, depth: int) -> Any:
        """Evaluate the key of a dict; only str and int are allowed."""
        value = self.value(node, depth) if node is not None else None
        if not isinstance(value, (str, int)):
            raise _UnknownError
        return value

    def piece(self, node: ast.AST, depth: int) -> str:
        """Evaluate a part of an f-string."""
        if isinstance(node, ast.FormattedValue):
            if node.format_spec is not None or node.conversion != -1:
                raise _UnknownError
            node = node.value
        value = self.value(node, depth)
        if not isinstance(value, (str, int)):
            raise _UnknownError
        return str(value)

    def evaluate_call(self, node: ast.Call, depth: int) -> Any:
        """Evaluate a call of split, int, str or dict."""
        name = _get_name(node.func)
        if name == "split" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            text, separator = self.value(node.func.value, depth), self.value(node.args[0], depth)
            if isinstance(text, str) and isinstance(separator, str) and separator:
                self.spend(len(text))
                return text.split(separator)
        if name in ("int", "str") and len(node.args) == 1 and not node.keywords:
            value = self.value(node.args[0], depth)
            if isinstance(value, str) and len(value) > 20:
                raise _UnknownError
            try:
                return int(value) if name == "int" else str(value)
            except (TypeError, ValueError) as error:
                raise _UnknownError from error
        if name == "dict" and not node.args:
            return {keyword.arg: self.value(keyword.value, depth) for keyword in node.keywords if keyword.arg}
        raise _UnknownError

    def spec(self, call: ast.Call) -> FoundCluster | None:
        """Return the cluster of a ClusterSpec call with its servers; None if it has no argument."""
        argument = (
            call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "cluster"), None)
        )
        if argument is None:
            return None
        partly = ""
        cluster: Any = None
        try:
            cluster = self.value(argument)
        except (_UnknownError, TypeError, RecursionError):
            cluster, partly = self.parts(argument), "A part of this cluster is made while the program runs."
        if not isinstance(cluster, dict):
            return FoundCluster(call.lineno, partly="This cluster is made while the program runs.")
        cluster = {str(job): tasks for job, tasks in cluster.items()}
        servers: list[tuple[str, int]] = []
        started: set[tuple[str, int]] = set()
        unknown = False
        keys: tuple[int | str, ...] = (id(call), *dict.fromkeys(self.names.get(id(call), ())))
        for server in sorted((s for key in keys for s in self.servers.get(key, ())), key=_get_position):
            arguments = {k.arg: k.value for k in server.keywords}
            try:
                job = self.value(server.args[1] if len(server.args) > 1 else arguments["job_name"])
                index = self.value(server.args[2] if len(server.args) > 2 else arguments["task_index"])
            except (_UnknownError, KeyError, TypeError, RecursionError):
                unknown = True
                continue
            if isinstance(job, str) and isinstance(index, int):
                if id(server) not in self.maybe or (job, index) not in started:
                    servers.append((job, index))
                    started.add((job, index))
            else:
                unknown = True
        if unknown and not partly:
            partly = "Which task a process is, is known only while the program runs."
        return FoundCluster(call.lineno, cluster, tuple(servers), partly=partly)

    def parts(self, node: ast.AST) -> dict[str, Any] | None:
        """Return those jobs of a dict display whose tasks are known; None if there are none."""
        if isinstance(node, ast.Name) and len(self.values.get(node.id, [])) == 1:
            node = self.values[node.id][0]
        if not isinstance(node, ast.Dict):
            return None
        jobs: dict[str, Any] = {}
        for key, value_node in zip(node.keys, node.values, strict=True):
            try:
                jobs[str(self.key(key, 0))] = self.value(value_node)
            except (_UnknownError, TypeError, RecursionError):
                continue
        return jobs or None

    def variables(self) -> list[FoundCluster]:
        """Return the clusters of assignments to `os.environ["TF_CONFIG"]`."""
        clusters = []
        for node in self.configs[:MAX_CLUSTERS]:
            value = node.value
            try:
                if isinstance(value, ast.Call) and _get_name(value.func) == "dumps" and value.args:
                    clusters.append(FoundCluster(node.lineno, config=self.value(value.args[0])))
                else:
                    text = self.value(value)
                    if isinstance(text, str):
                        clusters.append(FoundCluster(node.lineno, text=text))
            except (_UnknownError, TypeError, RecursionError):
                clusters.append(
                    FoundCluster(node.lineno, partly="This TF_CONFIG is made while the program runs.")
                )
        return clusters

    @staticmethod
    def is_variable(target: ast.expr) -> bool:
        """Return whether an assignment's target is `os.environ["TF_CONFIG"]`."""
        return (
            isinstance(target, ast.Subscript)
            and _get_name(target.value) == "environ"
            and isinstance(target.slice, ast.Constant)
            and target.slice.value == "TF_CONFIG"
        )
