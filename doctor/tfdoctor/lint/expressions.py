"""Texts put together, and what a loop gives, as far as they are known."""

from __future__ import annotations

import ast
from typing import Any

from tfdoctor.lint.environ import Environ
from tfdoctor.lint.reporter import MAX_TEXT_CHARS
from tfdoctor.lint.values import Const, Many, Map, Obj, Path, Seq

__all__ = ["Expressions"]


class Expressions(Environ):
    """Values of expressions; `Walk` goes through them."""

    def e_joinedstr(self, node: ast.JoinedStr) -> Any:
        parts: list[list[str]] = [[""]]
        known = True
        for one in node.values:
            value = self.value(one.value if isinstance(one, ast.FormattedValue) else one)
            if isinstance(value, Const):
                parts.append([str(value.value)])
            elif isinstance(value, Many) and all(len(part) == 1 for part in parts):
                parts.append([str(item) for item in value.values])
            else:
                known = False
        if not known:
            return Obj("text")
        size = max(map(len, parts)) * sum(max(map(len, part)) for part in parts)
        self.spend(size)
        if size > MAX_TEXT_CHARS:
            return Obj("text")
        made = [""]
        for part in parts:
            made = [left + right for left in made for right in part]
        return Const(made[0]) if len(made) == 1 else Many(made)

    def e_binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        self.operator(left, right, node)
        if (
            isinstance(node.op, ast.BitOr)
            and isinstance(left, Path)
            and left.name == "os.environ"
            and isinstance(right, Map)
        ):
            return Map(right.entries, whole=False, environment=True)
        if isinstance(left, Obj) and left.kind == "text":
            return left
        ones = left.values if isinstance(left, Many) else [left.value] if isinstance(left, Const) else None
        if isinstance(right, Seq):
            given: Any = right.items[0] if len(right.items) == 1 else None
        else:
            given = right
        twos = (
            given.values if isinstance(given, Many) else [given.value] if isinstance(given, Const) else None
        )
        if ones is None or twos is None or len(ones) * len(twos) > 64:
            text = isinstance(node.op, (ast.Add, ast.Mod)) and any(
                isinstance(one, Const) and isinstance(one.value, str) for one in (left, right)
            )
            return Obj("text") if text else None
        made = []
        for one in ones:
            for two in twos:
                try:
                    made.append(_compute(node.op, one, two))
                except (TypeError, ValueError, OverflowError, ZeroDivisionError, KeyError):
                    return None
        if any(one is None for one in made):
            return None
        return Const(made[0]) if len(made) == 1 else Many(made)

    def item_of(self, over: Any, node: Any) -> Any:
        """Return what a loop gives: a value that stands for each, or a list of them where all are known and differ in
        kind.
        """
        if isinstance(over, Obj) and over.kind == "gpus":
            return Obj("gpu", "each" if over.data is None else over.data)
        if isinstance(over, Seq):
            self.spend(len(over.items))
            if over.items and all(isinstance(one, Const) for one in over.items):
                return Many([one.value for one in over.items])
            if over.items and all(isinstance(one, Obj) and one.kind == "gpu" for one in over.items):
                return over.items if len(over.items) <= 16 else None
            if 0 < len(over.items) <= 6 and all(
                isinstance(one, Seq) and one.items and isinstance(one.items[0], Const) for one in over.items
            ):
                return list(over.items)
            return None
        if isinstance(over, Many):
            return Many(over.values)
        if isinstance(over, Map):
            self.spend(len(over.entries))
        if isinstance(over, Map) and over.whole and all(isinstance(key, Const) for key, *_ in over.entries):
            return Many([key.value for key, *_ in over.entries])
        if isinstance(over, Obj) and over.kind == "enumerated":
            inner = self.item_of(over.data, node)
            if isinstance(inner, Many):
                return Seq([Many(list(range(len(inner.values)))), inner], [node, node])
            return Seq([None, inner], [node, node]) if not isinstance(inner, list) else None
        return None


def _compute(op: ast.operator, one: Any, two: Any) -> Any:
    small = (
        isinstance(one, (str, int))
        and isinstance(two, (str, int))
        and len(str(one)) < 500
        and len(str(two)) < 500
    )
    if isinstance(op, ast.Add) and small:
        return one + two
    if isinstance(op, ast.Mod) and isinstance(one, str) and len(one) > 500:
        return None
    if isinstance(op, ast.Mod) and isinstance(one, str) and one.count("%") <= 3 and "*" not in one:
        return (
            None if any(mark.isdigit() for mark in one.partition("%")[2][:6].split("%")[0][:2]) else one % two
        )
    if isinstance(op, ast.Mod) and small and not isinstance(one, str):
        return one % two
    return None
