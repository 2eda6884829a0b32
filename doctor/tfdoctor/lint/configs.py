"""ConfigProto, GPUOptions and what else takes options: their names, and whether anybody gets them."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfdoctor.lint.environ import Environ
from tfdoctor.lint.known_names import FIELDS, guess_option, relevant
from tfdoctor.lint.values import Const, Map, ModuleValue, Obj, Path, Seq, constant

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CONFIGS", "Configs"]

CONFIGS = {"ConfigProto": "config", "GPUOptions": "options"}


class Configs(Environ):
    """Options of sessions."""

    @cached_property
    def names_configs(self) -> bool:
        """Whether the text names a class of options."""
        return any(name in self.text for name in CONFIGS)

    def keywords_of(self, name: str, node: Any) -> None:
        if name not in FIELDS:
            return
        for one in node.keywords:
            meant = guess_option(name, one.arg) if one.arg else None
            if meant is not None:
                end = one.col_offset + len(one.arg)
                fix = self.make_fix(one.lineno, one.col_offset, end, one.arg, meant)
                self.tell(
                    "misspelt-option", one, f"{name} has no option {one.arg}; {meant} is meant.", fix=fix
                )

    def config_made(self, name: str, node: Any, keywords: dict[Any, Any]) -> Obj:
        data: dict[str, Any] = {"known": None not in keywords, "soft": False}
        if "allow_soft_placement" in keywords:
            soft = constant(keywords["allow_soft_placement"])
            data["soft"] = bool(soft)
            data["known"] = data["known"] and soft is not None
        return Obj(CONFIGS[name], data, node)

    def attribute(self, base: Any, node: ast.Attribute) -> Any:
        """Return an attribute of what is no module."""
        if isinstance(base, Obj) and base.kind in ("config", "options", "sub"):
            owner = {"config": "ConfigProto", "options": "GPUOptions"}.get(base.kind)
            if base.kind == "sub":
                owner = base.data
            self.option_of(owner, node)
            inner = {"gpu_options": "GPUOptions"}.get(node.attr, "")
            if node.attr in ("CopyFrom", "MergeFrom", "ParseFromString"):
                return Obj("method", (base, node.attr))
            return Obj("sub", inner, base)
        if node.attr == "gpu_options":
            return Obj("sub", "GPUOptions")
        if isinstance(base, ModuleValue):
            return base.functions.get(node.attr)
        if isinstance(base, (Map, Seq, Const)) or (
            isinstance(base, Obj) and base.kind in ("model", "instance", "strategy", "text")
        ):
            return Obj("method", (base, node.attr))
        return None

    def option_of(self, owner: str | None, node: ast.Attribute) -> None:
        meant = guess_option(owner, node.attr) if owner else None
        if meant is None:
            return
        at = (node.end_col_offset or 0) - len(node.attr.encode())
        fix = self.make_fix(node.end_lineno, at, node.end_col_offset, node.attr, meant)
        self.tell(
            "misspelt-option",
            node,
            f"{owner} has no option {node.attr}; {meant} is meant.",
            fix=fix,
            at=(node.end_lineno, at),
        )

    def check_attribute_assignment(self, base: Any, target: ast.Attribute, value: Any) -> None:
        if isinstance(base, Path):
            if (
                base.name == "os"
                and target.attr == "environ"
                and isinstance(value, Map)
                and not value.environment
            ):
                for key, _, key_node, _ in value.entries:
                    if isinstance(constant(key), str) and relevant(constant(key)):
                        self.tell(
                            "variable-set-wrongly",
                            key_node or target,
                            "A new os.environ is a dict of Python's alone: the process's environment "
                            "stays as it is. Use os.environ.update.",
                        )
                        break
            elif base.name == "os.environ":
                self.set_as_attribute(target)
            return
        if isinstance(base, Obj) and base.kind in ("config", "options", "sub"):
            owner = {"config": "ConfigProto", "options": "GPUOptions"}.get(base.kind) or base.data
            self.option_of(owner, target)
            if base.kind == "config" and target.attr == "allow_soft_placement":
                soft = constant(value)
                base.data["soft"] = bool(soft)
                base.data["known"] = base.data["known"] and soft is not None

    def check_unused_configs(self, body: Any) -> None:
        """A ConfigProto or GPUOptions that a scope makes and gives to nobody."""
        if not self.names_configs:
            return
        made: dict[str, Any] = {}
        used: set[str] = set()
        plain: list[Any] = []
        for one in _iter_scope(body):
            if (
                isinstance(one, ast.Assign)
                and len(one.targets) == 1
                and isinstance(one.targets[0], ast.Name)
                and self.is_config(one.value)
            ):
                made.setdefault(one.targets[0].id, one)
            elif isinstance(one, ast.Expr) and self.is_config(one.value):
                plain.append(one)
        if not made and not plain:
            return
        bare: set[int] = set()
        for one in _iter_nodes(body):
            if isinstance(one, ast.Attribute):
                inner: Any = one
                while isinstance(inner, ast.Attribute):
                    inner = inner.value
                if isinstance(inner, ast.Name) and (isinstance(one.ctx, ast.Store) or id(inner) in bare):
                    bare.add(id(inner))
            elif (
                isinstance(one, ast.Call)
                and isinstance(one.func, ast.Attribute)
                and one.func.attr in ("CopyFrom", "MergeFrom", "append", "extend")
            ):
                inner = one.func
                while isinstance(inner, ast.Attribute):
                    inner = inner.value
                if isinstance(inner, ast.Name):
                    bare.add(id(inner))
        for one in _iter_nodes(body):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and id(one) not in bare:
                used.add(one.id)
            elif isinstance(one, (ast.Global, ast.Nonlocal)):
                used.update(one.names)
            elif (
                isinstance(one, ast.Call)
                and isinstance(one.func, ast.Name)
                and one.func.id in ("locals", "globals", "vars")
            ):
                return
        for name, one in made.items():
            if name not in used and not self.is_loaded_elsewhere(name) and not name.isupper():
                kind = self.config_name(one.value)
                self.tell("config-unused", one, f"This {kind} is given to no session, so it has no effect.")
        for one in plain:
            self.tell(
                "config-unused",
                one,
                f"This {self.config_name(one.value)} is given to no session, so it has no effect.",
            )

    @staticmethod
    def config_name(node: Any) -> str:
        return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id

    def is_config(self, node: Any) -> bool:
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute):
            inner: Any = node.func.value
            while isinstance(inner, ast.Attribute):
                inner = inner.value
            return node.func.attr in CONFIGS and isinstance(inner, ast.Name) and inner.id in self.tf_names
        return isinstance(node.func, ast.Name) and node.func.id in CONFIGS and node.func.id in self.tf_names


def _iter_scope(body: Any) -> Iterator[Any]:
    """Yield the statements of a scope, not those of functions and classes in it."""
    todo = list(reversed(body))
    while todo:
        one = todo.pop()
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield one
        todo += [
            child for child in ast.iter_child_nodes(one) if isinstance(child, (ast.stmt, ast.ExceptHandler))
        ]


def _iter_nodes(body: Any) -> Iterator[Any]:
    for one in body:
        yield from ast.walk(one)
