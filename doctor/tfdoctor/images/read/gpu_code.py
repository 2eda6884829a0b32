"""Determine whether Python code fails on a machine without a GPU, such as in `docker build`."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["fails_without_gpu"]

MAX_CODE_CHARS = 20_000
"""The largest length of code that is parsed. Longer code is taken to work."""
_RESULTS: dict[str, object] = {
    "list_physical_devices": [],
    "list_logical_devices": [],
    "is_gpu_available": False,
    "gpu_device_name": "",
    "cuda.is_available": False,
    "cuda.device_count": 0,
}
"""What functions of TensorFlow and PyTorch return without a GPU, by the end of their names."""
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
_UNKNOWN = object()


def fails_without_gpu(code: str) -> bool:
    """Return whether the code certainly ends with an error if there is no GPU.

    It does if an `assert` requires one, or if it then raises an error or exits with an error. Only the statements of the
    module itself are followed, and their values as far as they depend on GPUs.
    """
    if len(code) > MAX_CODE_CHARS or not any(name in code for name in _RESULTS):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code.strip()).body
        return _fails(body, {})
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _fails(body: list[ast.stmt], values: dict[str, object]) -> bool:
    """Return whether one of the statements certainly fails. `values` are the known variables, by name."""
    for statement in body:
        result = (
            _evaluate(statement.test, values) if isinstance(statement, (ast.Assert, ast.If)) else _UNKNOWN
        )
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    values[target.id] = _evaluate(statement.value, values)
            continue
        if isinstance(statement, ast.Assert) and result is not _UNKNOWN and not result:
            return True
        if isinstance(statement, ast.If) and result is not _UNKNOWN:
            branch = statement.body if result else statement.orelse
            if _fails(branch, values):
                return True
            if any(_find_exit(item) is not None for item in branch):
                return False  # it ends here without an error
        if isinstance(statement, ast.Raise):
            return True
        if (call := _find_exit(statement)) is not None:
            status = _evaluate(call.args[0], values) if call.args else 0
            return status is not _UNKNOWN and status not in (None, 0)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                values[node.id] = _UNKNOWN
    return False


def _find_exit(statement: ast.stmt) -> ast.Call | None:
    """Return the call of a statement that only ends the program, or None."""
    node = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(node, ast.Call) and re.fullmatch(r"(?:sys\.)?exit|os\._exit|quit", ast.unparse(node.func)):
        return node
    return None


def _evaluate(node: ast.expr, values: dict[str, object]) -> object:
    """Return the value of an expression without a GPU, or _UNKNOWN."""
    result: object = _UNKNOWN
    if isinstance(node, ast.Constant):
        result = node.value
    elif isinstance(node, ast.Name):
        result = values.get(node.id, _UNKNOWN)
    elif isinstance(node, ast.Call):
        result = _evaluate_call(node, values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        operand = _evaluate(node.operand, values)
        result = operand if operand is _UNKNOWN else not operand
    elif isinstance(node, ast.BoolOp):
        results = [_evaluate(item, values) for item in node.values]
        decides = isinstance(node.op, ast.Or)  # the value that decides, whatever the others are
        known = [item for item in results if item is not _UNKNOWN]
        if any(bool(item) is decides for item in known):
            result = decides
        elif len(known) == len(results):
            result = not decides
    elif isinstance(node, ast.IfExp):
        test = _evaluate(node.test, values)
        result = test if test is _UNKNOWN else _evaluate(node.body if test else node.orelse, values)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        compare = _COMPARISONS.get(type(node.ops[0]))
        sides = _evaluate(node.left, values), _evaluate(node.comparators[0], values)
        if compare is not None and _UNKNOWN not in sides:
            try:
                result = compare(*sides)
            except TypeError:
                result = _UNKNOWN
    return result


def _evaluate_call(node: ast.Call, values: dict[str, object]) -> object:
    """Return the value of a call without a GPU, or _UNKNOWN."""
    name = ast.unparse(node.func)
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    if name in ("len", "bool") and len(arguments) == 1:
        value = _evaluate(arguments[0], values)
        if name == "len":
            return len(value) if isinstance(value, (list, str)) else _UNKNOWN
        return value if value is _UNKNOWN else bool(value)
    result = next(
        (value for suffix, value in _RESULTS.items() if f".{name}".endswith(f".{suffix}")), _UNKNOWN
    )
    if result == [] and not any(isinstance(item, ast.Constant) and item.value == "GPU" for item in arguments):
        return _UNKNOWN  # devices of another type
    return result
