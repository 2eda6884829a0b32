"""The clusters in a Python file, read and never run: ClusterSpec and Server with values that stand in the file."""

from __future__ import annotations

import ast
from typing import Any

from tfdoctor.records import dataclass

__all__ = ["Found", "clusters_of"]

MOST = 1000
"""Clusters and servers of one file."""
DEEPEST = 40
"""Names and calls that are followed for one value."""


class _UnknownError(Exception):
    """A value cannot be told without running the program."""


@dataclass(frozen=True, slots=True)
class Found:
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


def clusters_of(text: str) -> list[Found]:
    """What a program's text says. Raises SyntaxError, ValueError and RecursionError as `ast.parse` does."""
    tree = ast.parse(text)
    reader = _Reader(tree)
    found = [reader.spec(call) for call in reader.calls("ClusterSpec")[:MOST]]
    return [one for one in (*found, *reader.variables()) if one is not None]


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _below(node: ast.AST) -> list[ast.AST]:
    """The calls in a branch."""
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        branches = (ast.If, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.IfExp, ast.Match)
        self.maybe = {
            id(inner) for node in self.nodes if isinstance(node, branches) for inner in _below(node)
        }
        """Nodes that may not run: two of them need not be two servers."""
        self.values: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                targets, value = [node.target], node.value
            elif isinstance(node, ast.AugAssign):
                targets, value = [node.target], node  # type: ignore[assignment] # changed: not one value
            for target in targets:
                if isinstance(target, ast.Name):
                    self.values.setdefault(target.id, []).append(value)

    def calls(self, name: str) -> list[ast.Call]:
        found = [node for node in self.nodes if isinstance(node, ast.Call) and _name(node.func) == name]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def value(self, node: ast.AST, depth: int = 0) -> Any:
        """A literal, a name that is given one value in the whole file, a text that is split or joined."""
        if depth > DEEPEST:
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
                if all(isinstance(one, kind) and len(one) < 100_000 for one in both):
                    return both[0] + both[1]
        if isinstance(node, ast.JoinedStr):
            return "".join(self.piece(one, deeper) for one in node.values)
        if isinstance(node, ast.Call):
            return self.called(node, deeper)
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

    def called(self, node: ast.Call, depth: int) -> Any:
        name = _name(node.func)
        if name == "split" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            whole, by = self.value(node.func.value, depth), self.value(node.args[0], depth)
            if isinstance(whole, str) and isinstance(by, str) and by:
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

    def spec(self, call: ast.Call) -> Found | None:
        given = (
            call.args[0] if call.args else next((w.value for w in call.keywords if w.arg == "cluster"), None)
        )
        if given is None:
            return None
        names = {name for name, values in self.values.items() if any(value is call for value in values)}
        partly = ""
        cluster: Any = None
        try:
            cluster = self.value(given)
        except (_UnknownError, TypeError, RecursionError):
            cluster, partly = self.parts(given), "A part of this cluster is made while the program runs."
        if not isinstance(cluster, dict):
            return Found(call.lineno, partly="This cluster is made while the program runs.")
        cluster = {str(job): tasks for job, tasks in cluster.items()}
        servers, unknown = [], False
        for server in self.calls("Server")[:MOST]:
            word = {w.arg: w.value for w in server.keywords}
            given = server.args[0] if server.args else word.get("server_or_cluster_def")
            if given is not call and not (isinstance(given, ast.Name) and given.id in names):
                continue
            try:
                job = self.value(server.args[1] if len(server.args) > 1 else word["job_name"])
                index = self.value(server.args[2] if len(server.args) > 2 else word["task_index"])
            except (_UnknownError, KeyError, TypeError, RecursionError):
                unknown = True
                continue
            if isinstance(job, str) and isinstance(index, int):
                if id(server) not in self.maybe or (job, index) not in servers:
                    servers.append((job, index))
            else:
                unknown = True
        if unknown and not partly:
            partly = "Which task a process is, is known only while the program runs."
        return Found(call.lineno, cluster, tuple(servers), partly=partly)

    def parts(self, node: ast.AST) -> dict[str, Any] | None:
        """The jobs of a literal object whose tasks are known."""
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

    def variables(self) -> list[Found]:
        """os.environ["TF_CONFIG"] = …"""
        found = []
        for node in self.nodes:
            if not isinstance(node, ast.Assign) or not any(map(self.is_variable, node.targets)):
                continue
            value = node.value
            try:
                if isinstance(value, ast.Call) and _name(value.func) == "dumps" and value.args:
                    found.append(Found(node.lineno, config=self.value(value.args[0])))
                else:
                    text = self.value(value)
                    if isinstance(text, str):
                        found.append(Found(node.lineno, text=text))
            except (_UnknownError, TypeError, RecursionError):
                found.append(Found(node.lineno, partly="This TF_CONFIG is made while the program runs."))
        return sorted(found, key=lambda one: one.line)[:MOST]

    @staticmethod
    def is_variable(target: ast.expr) -> bool:
        return (
            isinstance(target, ast.Subscript)
            and _name(target.value) == "environ"
            and isinstance(target.slice, ast.Constant)
            and target.slice.value == "TF_CONFIG"
        )
