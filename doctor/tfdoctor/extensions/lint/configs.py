"""Check ConfigProto, GPUOptions and other options: their names, and whether a session uses them."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts.variables import is_relevant_variable
from tfdoctor.extensions.lint.environ import EnvironChecks
from tfdoctor.extensions.lint.known_names import OPTIONS_BY_OWNER, guess_option
from tfdoctor.extensions.lint.values import (
    ClassValue,
    ConstantValue,
    DictValue,
    ObjectValue,
    QualifiedName,
    SequenceValue,
    get_constant,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KINDS_BY_OPTIONS_CLASS", "ConfigChecks"]

KINDS_BY_OPTIONS_CLASS = {"ConfigProto": "config", "GPUOptions": "options"}
"""The `ObjectValue.kind` of an instance of each options class."""


class ConfigChecks(EnvironChecks):
    """Checks of session options."""

    @cached_property
    def mentions_configs(self) -> bool:
        """Whether the text contains the name of an options class."""
        return any(name in self.text for name in KINDS_BY_OPTIONS_CLASS)

    def check_option_keywords(self, owner: str, node: Any) -> None:
        """Check the keyword arguments of a call for misspelt options."""
        if owner not in OPTIONS_BY_OWNER:
            return
        for keyword in node.keywords:
            suggestion = guess_option(owner, keyword.arg) if keyword.arg else None
            if suggestion is not None:
                end_offset = keyword.col_offset + len(keyword.arg)
                fix = self.make_fix(keyword.lineno, keyword.col_offset, end_offset, keyword.arg, suggestion)
                self.report(
                    "misspelt-option",
                    keyword,
                    f"{owner} has no option {keyword.arg}; did you mean {suggestion}?",
                    fix=fix,
                )

    def evaluate_options_call(self, name: str, node: Any, keywords: dict[Any, Any]) -> ObjectValue:
        """Return the value of a call of an options class.

        In its data, "soft" says whether soft placement is enabled, and "known" says whether that is certain.
        """
        # the key None stands for `**kwargs`, which may set any option
        data: dict[str, Any] = {"known": None not in keywords, "soft": False}
        if "allow_soft_placement" in keywords:
            soft = get_constant(keywords["allow_soft_placement"])
            data["soft"] = bool(soft)
            data["known"] = data["known"] and soft is not None
        return ObjectValue(KINDS_BY_OPTIONS_CLASS[name], data, node)

    def evaluate_attribute(self, base: Any, node: ast.Attribute) -> Any:
        """Return the value of an attribute of a value that is not a module, or None if it is unknown."""
        if isinstance(base, ObjectValue) and base.kind in ("config", "options", "sub"):
            owner = {"config": "ConfigProto", "options": "GPUOptions"}.get(base.kind)
            if base.kind == "sub":
                owner = base.data
            self.check_option(owner, node)
            member_class = {"gpu_options": "GPUOptions"}.get(node.attr, "")
            if node.attr in ("CopyFrom", "MergeFrom", "ParseFromString"):
                return ObjectValue("method", (base, node.attr))
            return ObjectValue("sub", member_class, base)
        if node.attr == "gpu_options":
            return ObjectValue("sub", "GPUOptions")
        if isinstance(base, ClassValue):
            return base.methods.get(node.attr)
        if isinstance(base, (DictValue, SequenceValue, ConstantValue)) or (
            isinstance(base, ObjectValue) and base.kind in ("model", "instance", "strategy", "text")
        ):
            return ObjectValue("method", (base, node.attr))
        return None

    def check_option(self, owner: str | None, node: ast.Attribute) -> None:
        """Report a misspelt option. `owner` is a key of `OPTIONS_BY_OWNER`, or None or "" if unknown."""
        suggestion = guess_option(owner, node.attr) if owner else None
        if suggestion is None:
            return
        offset = (node.end_col_offset or 0) - len(node.attr.encode())
        fix = self.make_fix(node.end_lineno, offset, node.end_col_offset, node.attr, suggestion)
        self.report(
            "misspelt-option",
            node,
            f"{owner} has no option {node.attr}; did you mean {suggestion}?",
            fix=fix,
            position=(node.end_lineno, offset),
        )

    def check_attribute_assignment(self, base: Any, target: ast.Attribute, value: Any) -> None:
        """Check `base.attr = value`, which can replace os.environ or set a variable or an option."""
        if isinstance(base, QualifiedName):
            if (
                base.name == "os"
                and target.attr == "environ"
                and isinstance(value, DictValue)
                and not value.is_environ_copy
            ):
                for key, _, key_node, _ in value.entries:
                    if isinstance(get_constant(key), str) and is_relevant_variable(get_constant(key)):
                        self.report(
                            "variable-set-wrongly",
                            key_node or target,
                            "A new os.environ is a dict of Python's alone: the process's environment "
                            "does not change. Use os.environ.update.",
                        )
                        break
            elif base.name == "os.environ":
                self.report_environ_attribute(target)
            return
        if isinstance(base, ObjectValue) and base.kind in ("config", "options", "sub"):
            owner = {"config": "ConfigProto", "options": "GPUOptions"}.get(base.kind) or base.data
            self.check_option(owner, target)
            if base.kind == "config" and target.attr == "allow_soft_placement":
                soft = get_constant(value)
                base.data["soft"] = bool(soft)
                base.data["known"] = base.data["known"] and soft is not None

    def check_unused_configs(self, body: Any) -> None:
        """Report each ConfigProto or GPUOptions that a scope creates and never uses.

        Setting its attributes or calling its CopyFrom, for example, does not count as a use.
        """
        if not self.mentions_configs:
            return
        assignments: dict[str, Any] = {}
        used_names: set[str] = set()
        discarded_statements: list[Any] = []
        for node in _iter_scope(body):
            if (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
                and self.is_config_call(node.value)
            ):
                assignments.setdefault(node.targets[0].id, node)
            elif isinstance(node, ast.Expr) and self.is_config_call(node.value):
                discarded_statements.append(node)
        if not assignments and not discarded_statements:
            return
        # the ids of name nodes in `config.x = …` and `config.x.append(…)`, which modify the object without using it
        modified_ids: set[int] = set()
        for node in _iter_nodes(body):
            if isinstance(node, ast.Attribute):
                root: Any = node
                while isinstance(root, ast.Attribute):
                    root = root.value
                if isinstance(root, ast.Name) and (
                    isinstance(node.ctx, ast.Store) or id(root) in modified_ids
                ):
                    modified_ids.add(id(root))
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("CopyFrom", "MergeFrom", "append", "extend")
            ):
                root = node.func
                while isinstance(root, ast.Attribute):
                    root = root.value
                if isinstance(root, ast.Name):
                    modified_ids.add(id(root))
        for node in _iter_nodes(body):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in modified_ids:
                used_names.add(node.id)
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                used_names.update(node.names)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("locals", "globals", "vars")
            ):
                return  # any name may be used
        for name, node in assignments.items():
            # a name in capitals is a constant, which another file may import
            if name not in used_names and not self.is_loaded_elsewhere(name) and not name.isupper():
                kind = self.get_config_name(node.value)
                self.report(
                    "config-unused", node, f"This {kind} is given to no session, so it has no effect."
                )
        for node in discarded_statements:
            self.report(
                "config-unused",
                node,
                f"This {self.get_config_name(node.value)} is given to no session, so it has no effect.",
            )

    @staticmethod
    def get_config_name(node: Any) -> str:
        """Return the name of the options class that a node calls."""
        return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id

    def is_config_call(self, node: Any) -> bool:
        """Return whether a node is a call of a TensorFlow options class."""
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute):
            root: Any = node.func.value
            while isinstance(root, ast.Attribute):
                root = root.value
            return (
                node.func.attr in KINDS_BY_OPTIONS_CLASS
                and isinstance(root, ast.Name)
                and root.id in self.tf_names
            )
        return (
            isinstance(node.func, ast.Name)
            and node.func.id in KINDS_BY_OPTIONS_CLASS
            and node.func.id in self.tf_names
        )


def _iter_scope(body: Any) -> Iterator[Any]:
    """Yield the statements of a scope, without those of its functions and classes."""
    stack = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield node
        stack += [
            child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.ExceptHandler))
        ]


def _iter_nodes(body: Any) -> Iterator[Any]:
    """Yield all nodes of a body."""
    for statement in body:
        yield from ast.walk(statement)
