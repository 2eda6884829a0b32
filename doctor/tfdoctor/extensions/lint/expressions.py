"""Evaluate composed texts and loop variables, as far as their values are known."""

from __future__ import annotations

import ast
from typing import Any

from tfdoctor.extensions.lint.environ import EnvironChecks
from tfdoctor.extensions.lint.reporter import MAX_TEXT_CHARS
from tfdoctor.extensions.lint.values import (
    ConstantValue,
    DictValue,
    MultipleValues,
    ObjectValue,
    QualifiedName,
    SequenceValue,
)

__all__ = ["Expressions"]

_MAX_RESULTS = 64
"""The most results of an operator that are evaluated."""
_MAX_OPERAND_CHARS = 500
"""The maximum length in characters of an operand."""


class Expressions(EnvironChecks):
    """The part of `Evaluator` that evaluates operators, f-strings and loop variables."""

    def e_joinedstr(self, node: ast.JoinedStr) -> Any:
        """Return the value of an f-string: a `ConstantValue`, or `MultipleValues` if it contains a loop variable."""
        parts: list[list[str]] = [[""]]
        is_known = True
        for part_node in node.values:
            value = self.evaluate(part_node.value if isinstance(part_node, ast.FormattedValue) else part_node)
            if isinstance(value, ConstantValue):
                parts.append([str(value.value)])
            elif isinstance(value, MultipleValues) and all(len(part) == 1 for part in parts):
                parts.append([str(item) for item in value.values])
            else:
                is_known = False
        if not is_known:
            return ObjectValue("text")
        # an upper limit of the characters of all texts: at most one part has several alternatives
        size = max(map(len, parts)) * sum(max(map(len, part)) for part in parts)
        self.count_work(size)
        if size > MAX_TEXT_CHARS:
            return ObjectValue("text")
        texts = [""]
        for part in parts:
            texts = [left + right for left in texts for right in part]
        return ConstantValue(texts[0]) if len(texts) == 1 else MultipleValues(texts)

    def e_unaryop(self, node: ast.UnaryOp) -> Any:
        """Return the value of a negative number, or None for any other operation."""
        value = self.evaluate(node.operand)
        number = value.value if isinstance(value, ConstantValue) else None
        if (
            not isinstance(number, (int, float))
            or isinstance(number, bool)
            or not isinstance(node.op, ast.USub)
        ):
            return None
        return ConstantValue(-number)

    def e_binop(self, node: ast.BinOp) -> Any:
        """Return the value of `+`, `%` or `os.environ | {…}`, or None if it is unknown."""
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        self.check_environ_union(left, right, node)
        if (
            isinstance(node.op, ast.BitOr)
            and isinstance(left, QualifiedName)
            and left.name == "os.environ"
            and isinstance(right, DictValue)
        ):
            return DictValue(right.entries, is_complete=False, is_environ_copy=True)
        if isinstance(left, ObjectValue) and left.kind == "text":
            return left
        left_values = (
            left.values
            if isinstance(left, MultipleValues)
            else [left.value]
            if isinstance(left, ConstantValue)
            else None
        )
        if isinstance(right, SequenceValue):  # `text % (value,)`
            operand: Any = right.items[0] if len(right.items) == 1 else None
        else:
            operand = right
        right_values = (
            operand.values
            if isinstance(operand, MultipleValues)
            else [operand.value]
            if isinstance(operand, ConstantValue)
            else None
        )
        if left_values is None or right_values is None or len(left_values) * len(right_values) > _MAX_RESULTS:
            is_text = isinstance(node.op, (ast.Add, ast.Mod)) and any(
                isinstance(item, ConstantValue) and isinstance(item.value, str) for item in (left, right)
            )
            return ObjectValue("text") if is_text else None
        results = []
        for item in left_values:
            for right_item in right_values:
                try:
                    results.append(_compute(node.op, item, right_item))
                except (TypeError, ValueError, OverflowError, ZeroDivisionError, KeyError):
                    return None
        if any(item is None for item in results):
            return None
        return ConstantValue(results[0]) if len(results) == 1 else MultipleValues(results)

    def evaluate_loop_variable(self, iterable: Any, node: Any) -> Any:
        """Return the value of a loop variable, which stands for all items, or None if it is unknown.

        Return a list of the values if the loop must be evaluated once for each item: for at most 16 GPUs, or at most
        6 sequences that begin with a constant.
        """
        if isinstance(iterable, ObjectValue) and iterable.kind == "gpus":
            return ObjectValue("gpu", "each" if iterable.data is None else iterable.data)
        if isinstance(iterable, SequenceValue):
            self.count_work(len(iterable.items))
            if iterable.items and all(isinstance(item, ConstantValue) for item in iterable.items):
                return MultipleValues([item.value for item in iterable.items])
            if iterable.items and all(
                isinstance(item, ObjectValue) and item.kind == "gpu" for item in iterable.items
            ):
                return iterable.items if len(iterable.items) <= 16 else None
            if 0 < len(iterable.items) <= 6 and all(
                isinstance(item, SequenceValue) and item.items and isinstance(item.items[0], ConstantValue)
                for item in iterable.items
            ):
                return list(iterable.items)
            return None
        if isinstance(iterable, MultipleValues):
            return MultipleValues(iterable.values)
        if isinstance(iterable, DictValue):
            self.count_work(len(iterable.entries))
        if (
            isinstance(iterable, DictValue)
            and iterable.is_complete
            and all(isinstance(key, ConstantValue) for key, *_ in iterable.entries)
        ):
            return MultipleValues([key.value for key, *_ in iterable.entries])
        if isinstance(iterable, ObjectValue) and iterable.kind == "enumerated":
            inner = self.evaluate_loop_variable(iterable.data, node)
            if isinstance(inner, MultipleValues):
                return SequenceValue([MultipleValues(list(range(len(inner.values)))), inner], [node, node])
            return SequenceValue([None, inner], [node, node]) if not isinstance(inner, list) else None
        return None


def _compute(op: ast.operator, left: Any, right: Any) -> Any:
    """Return the result of `+` or `%`, or None for large operands and other operators."""
    is_small = (
        isinstance(left, (str, int))
        and isinstance(right, (str, int))
        and len(str(left)) < _MAX_OPERAND_CHARS
        and len(str(right)) < _MAX_OPERAND_CHARS
    )
    if isinstance(op, ast.Add) and is_small:
        return left + right
    if isinstance(op, ast.Mod) and isinstance(left, str) and len(left) > _MAX_OPERAND_CHARS:
        return None
    if isinstance(op, ast.Mod) and isinstance(left, str) and left.count("%") <= 3 and "*" not in left:
        # a digit soon after the first % may be a width such as %999999d, which would make a huge text
        return (
            None
            if any(character.isdigit() for character in left.partition("%")[2][:6].split("%")[0][:2])
            else left % right
        )
    if isinstance(op, ast.Mod) and is_small and not isinstance(left, str):
        return left % right
    return None
