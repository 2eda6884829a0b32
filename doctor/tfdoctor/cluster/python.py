"""The clusters in a Python file, read and never run: ClusterSpec and Server with values that stand in the file."""

from __future__ import annotations

import ast
from typing import Any

from tfdoctor.parse.python_size import MAX_TOKENS, has_many_tokens
from tfdoctor.records import dataclass

__all__ = ["FoundCluster", "find_clusters"]

MAX_CLUSTERS = 1000
"""Clusters of one file that are checked, and settings of TF_CONFIG."""
MAX_STEPS = 500_000
"""Expressions of one file whose values are followed; the values of others count as not known."""
MAX_ITEMS = 200_000
"""Items of a list or characters of a text that is put together."""
ITEMS_PER_STEP = 16
"""Items or characters that cost as much time as one expression."""
MAX_DEPTH = 40
"""Names and calls that are followed for one value."""


class _UnknownError(Exception):
    """A value cannot be told without running the program."""


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """A ClusterSpec with the servers that use it, or a TF_CONFIG that the program sets."""

    line: int
    cluster: dict[str, Any] | None = None
    servers: tuple[tuple[str, int], ...] = ()
    """(job, index) of each Server that is given this cluster."""
    text: str | None = None
    """TF_CONFIG as a text."""
    config: Any = None
    """TF_CONFIG before json.dumps."""
    partly: str = ""
    """What could not be told, as a sentence."""


def find_clusters(text: str) -> list[FoundCluster]:
    """Return the clusters in a program's text. Raises SyntaxError, ValueError and RecursionError as `ast.parse`."""
    if has_many_tokens(text):
        return [
            FoundCluster(1, partly=f"Not checked: this file has more than {MAX_TOKENS:,} words and signs.")
        ]
    reader = _Reader(ast.parse(text))
    found = [reader.spec(call) for call in reader.specs[:MAX_CLUSTERS]]
    clusters = [one for one in (*found, *reader.variables()) if one is not None]
    for name, nodes in (("ClusterSpec", reader.specs), ("TF_CONFIG", reader.configs)):
        if len(nodes) > MAX_CLUSTERS:
            line = nodes[MAX_CLUSTERS].lineno
            partly = f"This file has more than {MAX_CLUSTERS:,} of {name}: not checked from line {line:,} on."
            clusters.append(FoundCluster(line, partly=partly))
    return clusters


def _place(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


_BRANCHES = (ast.If, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.IfExp, ast.Match)


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self.specs: list[ast.Call] = []
        self.servers: dict[int | str, list[ast.Call]] = {}
        """Cluster, by the call's id or by its name → the calls of Server that get it."""
        self.steps = 0
        self.configs: list[ast.Assign] = []
        """`os.environ["TF_CONFIG"] = …`"""
        self.maybe: set[int] = set()
        """Servers that may not run, by id: two of them need not be two servers."""
        self.values: dict[str, list[ast.expr]] = {}
        self.names: dict[int, list[str]] = {}
        """Value, by id → the names that are given it."""
        todo: list[tuple[ast.AST, bool]] = [(tree, False)]
        while todo:
            node, maybe = todo.pop()
            maybe = maybe or isinstance(node, _BRANCHES)
            todo += [(child, maybe) for child in ast.iter_child_nodes(node)]
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
                targets, value = [node.target], node  # type: ignore[assignment] # changed: not one value
            for target in targets:
                if isinstance(target, ast.Name):
                    self.values.setdefault(target.id, []).append(value)
                    self.names.setdefault(id(value), []).append(target.id)
        self.specs.sort(key=_place)
        self.configs.sort(key=_place)

    def take_call(self, call: ast.Call, *, maybe: bool) -> None:
        name = _name(call.func)
        if name == "ClusterSpec":
            self.specs.append(call)
        elif name == "Server":
            words = (word.value for word in call.keywords if word.arg == "server_or_cluster_def")
            cluster = call.args[0] if call.args else next(words, None)
            key = cluster.id if isinstance(cluster, ast.Name) else id(cluster)
            self.servers.setdefault(key, []).append(call)
            if maybe:
                self.maybe.add(id(call))

    def value(self, node: ast.AST, depth: int = 0) -> Any:
        """Evaluate a literal, a name that gets one value in the whole file, or a text that is split or joined."""
        self.steps += 1
        if depth > MAX_DEPTH or self.steps > MAX_STEPS:
            raise _UnknownError
        deeper = depth + 1
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(one, deeper) for one in node.elts]
        if isinstance(node, ast.Dict):
            if None in node.keys:
                raise _UnknownError
            return {
                self.key(key, deeper): self.value(one, deeper)
                for key, one in zip(node.keys, node.values, strict=True)
            }
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.value(node.operand, deeper)
            if isinstance(number, int):
                return -number
        if isinstance(node, ast.Name):
            given = self.values.get(node.id, [])
            if len(given) == 1:
                return self.value(given[0], deeper)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            both = self.value(node.left, deeper), self.value(node.right, deeper)
            for kind in (str, list):
                if all(isinstance(one, kind) for one in both):
                    self.spend(len(both[0]) + len(both[1]))
                    return both[0] + both[1]
        if isinstance(node, ast.JoinedStr):
            text = ""
            for one in node.values:
                text += self.piece(one, deeper)
                self.spend(len(text))
            return text
        if isinstance(node, ast.Call):
            return self.evaluate_call(node, deeper)
        raise _UnknownError

    def spend(self, items: int) -> None:
        """Count the work on so many items or characters. Raises _UnknownError if it was too much."""
        self.steps += items // ITEMS_PER_STEP
        if items > MAX_ITEMS or self.steps > MAX_STEPS:
            raise _UnknownError

    def key(self, node: ast.AST | None, depth: int) -> Any:
        value = self.value(node, depth) if node is not None else None
        if not isinstance(value, (str, int)):
            raise _UnknownError
        return value

    def piece(self, node: ast.AST, depth: int) -> str:
        if isinstance(node, ast.FormattedValue):
            if node.format_spec is not None or node.conversion != -1:
                raise _UnknownError
            node = node.value
        value = self.value(node, depth)
        if not isinstance(value, (str, int)):
            raise _UnknownError
        return str(value)

    def evaluate_call(self, node: ast.Call, depth: int) -> Any:
        name = _name(node.func)
        if name == "split" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            whole, by = self.value(node.func.value, depth), self.value(node.args[0], depth)
            if isinstance(whole, str) and isinstance(by, str) and by:
                self.spend(len(whole))
                return whole.split(by)
        if name in ("int", "str") and len(node.args) == 1 and not node.keywords:
            value = self.value(node.args[0], depth)
            if isinstance(value, str) and len(value) > 20:
                raise _UnknownError
            try:
                return int(value) if name == "int" else str(value)
            except (TypeError, ValueError) as error:
                raise _UnknownError from error
        if name == "dict" and not node.args:
            return {word.arg: self.value(word.value, depth) for word in node.keywords if word.arg}
        raise _UnknownError

    def spec(self, call: ast.Call) -> FoundCluster | None:
        given = (
            call.args[0] if call.args else next((w.value for w in call.keywords if w.arg == "cluster"), None)
        )
        if given is None:
            return None
        partly = ""
        cluster: Any = None
        try:
            cluster = self.value(given)
        except (_UnknownError, TypeError, RecursionError):
            cluster, partly = self.parts(given), "A part of this cluster is made while the program runs."
        if not isinstance(cluster, dict):
            return FoundCluster(call.lineno, partly="This cluster is made while the program runs.")
        cluster = {str(job): tasks for job, tasks in cluster.items()}
        servers: list[tuple[str, int]] = []
        started: set[tuple[str, int]] = set()
        unknown = False
        keys: tuple[int | str, ...] = (id(call), *dict.fromkeys(self.names.get(id(call), ())))
        for server in sorted((one for key in keys for one in self.servers.get(key, ())), key=_place):
            word = {w.arg: w.value for w in server.keywords}
            try:
                job = self.value(server.args[1] if len(server.args) > 1 else word["job_name"])
                index = self.value(server.args[2] if len(server.args) > 2 else word["task_index"])
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
        """Return the jobs of a literal object whose tasks are known."""
        if isinstance(node, ast.Name) and len(self.values.get(node.id, [])) == 1:
            node = self.values[node.id][0]
        if not isinstance(node, ast.Dict):
            return None
        known: dict[str, Any] = {}
        for key, one in zip(node.keys, node.values, strict=True):
            try:
                known[str(self.key(key, 0))] = self.value(one)
            except (_UnknownError, TypeError, RecursionError):
                continue
        return known or None

    def variables(self) -> list[FoundCluster]:
        """Return the clusters of `os.environ["TF_CONFIG"] = …`."""
        found = []
        for node in self.configs[:MAX_CLUSTERS]:
            value = node.value
            try:
                if isinstance(value, ast.Call) and _name(value.func) == "dumps" and value.args:
                    found.append(FoundCluster(node.lineno, config=self.value(value.args[0])))
                else:
                    text = self.value(value)
                    if isinstance(text, str):
                        found.append(FoundCluster(node.lineno, text=text))
            except (_UnknownError, TypeError, RecursionError):
                found.append(
                    FoundCluster(node.lineno, partly="This TF_CONFIG is made while the program runs.")
                )
        return found

    @staticmethod
    def is_variable(target: ast.expr) -> bool:
        return (
            isinstance(target, ast.Subscript)
            and _name(target.value) == "environ"
            and isinstance(target.slice, ast.Constant)
            and target.slice.value == "TF_CONFIG"
        )
