"""Python of any version → one kind of tree, the standard library's.

What Python 3 reads, `ast` reads. Everything else (Python 2, a file with an error in it) is taken apart by tree-sitter,
whose grammar knows Python 2 as well and goes on after an error; its nodes become those of `ast`.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MAX_TREE_DEPTH", "Tree", "parse"]

MAX_TREE_DEPTH = 120
"""Levels of a tree that are looked at; what is nested deeper is left out."""
_PYTHON_2 = re.compile(
    rb"^\s*(?:print\s+[^\s(=.,]|print\s*>>|exec\s+[\"'\w]|except\s+[\w.]+\s*,\s*\w+\s*:|raise\s+\w+\s*,)",
    re.M,
)
_SET_CALL = re.compile(r"\)\s*=(?!=)")


class Tree:
    """A module, which reader read it, and whether something in it is no Python at all."""

    __slots__ = ("broken", "old", "root")

    def __init__(self, root: ast.Module, *, old: bool = False, broken: int = 0) -> None:
        self.root = root
        self.old = old
        """Python 2."""
        self.broken = broken
        """The first line that no Python reads; 0: none."""


def parse(text: str) -> Tree:
    """Return the tree of a text. Never raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Tree(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _second(text)


def _second(text: str) -> Tree:
    import tree_sitter
    import tree_sitter_python

    data = text.encode("utf-8", "replace")
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))
    root = parser.parse(data).root_node
    made = _Maker(data)
    body = made.block(root.children, 0)
    old = _PYTHON_2.search(data) is not None
    return Tree(ast.Module(body=body, type_ignores=[]), old=old, broken=made.broken)


class _Maker:
    """tree-sitter's nodes → those of `ast`. What has no counterpart becomes a tuple of what is in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.broken = 0

    def text(self, node: Any) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def set_position(self, made: Any, node: Any) -> Any:
        made.lineno, made.col_offset = node.start_point[0] + 1, node.start_point[1]
        made.end_lineno, made.end_col_offset = node.end_point[0] + 1, node.end_point[1]
        return made

    # ---------------------------------------------------------------- statements

    def block(self, nodes: Iterable[Any], depth: int) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        waiting: Any = None
        for node in nodes:
            if not node.is_named or node.type == "comment":
                continue
            if waiting is not None and node.type == "expression_statement":
                value = self.several(node.named_children, node, depth)
                body.append(self.set_position(ast.Assign(targets=[waiting], value=value), node))
                body[-1].lineno, body[-1].col_offset = waiting.lineno, waiting.col_offset
                waiting = None
                continue
            waiting = None
            if node.type == "ERROR":
                waiting = self.error(node, body, depth)
            else:
                body += self.statement(node, depth + 1)
        return body or [ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)]

    def error(self, node: Any, body: list[ast.stmt], depth: int) -> Any:
        """Return what stands in a part with an error. Gives a call that something is assigned to."""
        named = [one for one in node.named_children if one.type != "comment"]
        after = self.text(node).rstrip()
        if named and named[-1].type == "call" and after.endswith("=") and _SET_CALL.search(after[-8:]):
            for one in named[:-1]:
                body += self.statement(one, depth + 1)
            return self.expr(named[-1], depth + 1)
        self.broken = self.broken or node.start_point[0] + 1
        for one in named:
            body += self.statement(one, depth + 1)
        return None

    def make_block(self, node: Any, field: str, depth: int) -> list[ast.stmt]:
        inner = node.child_by_field_name(field)
        return self.block(inner.children, depth) if inner is not None else []

    def statement(self, node: Any, depth: int) -> list[ast.stmt]:
        if depth > MAX_TREE_DEPTH:
            return []
        make = getattr(self, f"s_{node.type}", None)
        if make is not None:
            made = make(node, depth)
            return [self.set_position(one, node) if not hasattr(one, "lineno") else one for one in made]
        return [self.set_position(ast.Expr(value=self.expr(node, depth)), node)]

    def s_expression_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        named = [one for one in node.named_children if one.type != "comment"]
        if len(named) == 1 and named[0].type == "assignment":
            return self.s_assignment(named[0], depth)
        if len(named) == 1 and named[0].type == "augmented_assignment":
            one = named[0]
            target, value = one.child_by_field_name("left"), one.child_by_field_name("right")
            return [
                ast.AugAssign(target=self.store(target, depth), op=ast.Add(), value=self.expr(value, depth))
            ]
        out.append(ast.Expr(value=self.several(named, node, depth)))
        return out

    def s_assignment(self, node: Any, depth: int) -> list[ast.stmt]:
        targets = []
        value: Any = node
        while value is not None and value.type == "assignment":
            left = value.child_by_field_name("left")
            targets.append(self.store(left, depth))
            value = value.child_by_field_name("right")
        if value is None:
            return []
        return [ast.Assign(targets=targets, value=self.expr(value, depth))]

    def s_if_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        test = self.expr(node.child_by_field_name("condition"), depth)
        orelse: list[ast.stmt] = []
        for one in reversed(node.children_by_field_name("alternative")):
            if one.type == "else_clause":
                orelse = self.make_block(one, "body", depth)
            else:
                inner = ast.If(
                    test=self.expr(one.child_by_field_name("condition"), depth),
                    body=self.make_block(one, "consequence", depth),
                    orelse=orelse,
                )
                orelse = [self.set_position(inner, one)]
        return [ast.If(test=test, body=self.make_block(node, "consequence", depth), orelse=orelse)]

    def orelse(self, node: Any, depth: int) -> list[ast.stmt]:
        other = node.child_by_field_name("alternative")
        return self.make_block(other, "body", depth) if other is not None else []

    def s_for_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        target = self.store(node.child_by_field_name("left"), depth)
        over = self.expr(node.child_by_field_name("right"), depth)
        return [
            ast.For(
                target=target,
                iter=over,
                body=self.make_block(node, "body", depth),
                orelse=self.orelse(node, depth),
            )
        ]

    def s_while_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        test = self.expr(node.child_by_field_name("condition"), depth)
        return [
            ast.While(test=test, body=self.make_block(node, "body", depth), orelse=self.orelse(node, depth))
        ]

    def s_try_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        handlers, orelse, final = [], [], []
        for one in node.named_children:
            if one.type == "except_clause":
                inner = [child for child in one.named_children if child.type != "block"]
                block = next((child for child in one.named_children if child.type == "block"), None)
                kind = self.expr(inner[0], depth) if inner else None
                body = self.block(block.children, depth) if block is not None else []
                handlers.append(self.set_position(ast.ExceptHandler(type=kind, name=None, body=body), one))
            elif one.type == "else_clause":
                orelse = self.make_block(one, "body", depth)
            elif one.type == "finally_clause":
                block = next((child for child in one.named_children if child.type == "block"), None)
                final = self.block(block.children, depth) if block is not None else []
        return [
            ast.Try(
                body=self.make_block(node, "body", depth), handlers=handlers, orelse=orelse, finalbody=final
            )
        ]

    def s_with_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        items = []
        clause = next((one for one in node.named_children if one.type == "with_clause"), None)
        for item in clause.named_children if clause is not None else ():
            value = item.child_by_field_name("value") or item
            target = None
            if value.type == "as_pattern":
                alias = value.child_by_field_name("alias")
                if alias is not None and alias.named_children:
                    target = self.store(alias.named_children[0], depth)
                value = value.named_children[0]
            items.append(ast.withitem(context_expr=self.expr(value, depth), optional_vars=target))
        return [ast.With(items=items, body=self.make_block(node, "body", depth))]

    def s_function_definition(self, node: Any, depth: int) -> list[ast.stmt]:
        name = self.text(node.child_by_field_name("name"))
        args = self.parameters(node.child_by_field_name("parameters"), depth)
        body = self.make_block(node, "body", depth)
        return [ast.FunctionDef(name=name, args=args, body=body, decorator_list=[], returns=None)]

    def s_class_definition(self, node: Any, depth: int) -> list[ast.stmt]:
        name = self.text(node.child_by_field_name("name"))
        over = node.child_by_field_name("superclasses")
        bases = [self.expr(one, depth) for one in over.named_children] if over is not None else []
        body = self.make_block(node, "body", depth)
        return [ast.ClassDef(name=name, bases=bases, keywords=[], body=body, decorator_list=[])]

    def s_decorated_definition(self, node: Any, depth: int) -> list[ast.stmt]:
        inner = node.child_by_field_name("definition")
        made = self.statement(inner, depth) if inner is not None else []
        marks = [
            self.expr(one.named_children[0], depth)
            for one in node.named_children
            if one.type == "decorator" and one.named_children
        ]
        for one in made:
            if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                one.decorator_list = marks
        return made

    def parameters(self, node: Any, depth: int) -> ast.arguments:
        names, defaults = [], []
        for one in node.named_children if node is not None else ():
            inner = one.child_by_field_name("name") or (one.named_children[0] if one.named_children else one)
            if one.type == "identifier":
                names.append(self.set_position(ast.arg(arg=self.text(one)), one))
            elif "default" in one.type:
                names.append(self.set_position(ast.arg(arg=self.text(inner)), one))
                value = one.child_by_field_name("value")
                defaults.append(self.expr(value, depth))
            elif one.type == "typed_parameter":
                names.append(self.set_position(ast.arg(arg=self.text(inner)), one))
        return ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=defaults)

    def s_return_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        return [
            ast.Return(value=self.several(node.named_children, node, depth) if node.named_children else None)
        ]

    def s_raise_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        return [
            ast.Raise(exc=self.several(node.named_children, node, depth) if node.named_children else None)
        ]

    def s_print_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        args = [self.expr(one, depth) for one in node.named_children if one.type != "comment"]
        called = self.set_position(ast.Name(id="print", ctx=ast.Load()), node)
        return [ast.Expr(value=self.set_position(ast.Call(func=called, args=args, keywords=[]), node))]

    def s_import_statement(self, node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Import(names=self.names(node.children_by_field_name("name")))]

    def s_import_from_statement(self, node: Any, _depth: int) -> list[ast.stmt]:
        module = self.text(node.child_by_field_name("module_name"))
        names = self.names(node.children_by_field_name("name")) or [ast.alias(name="*")]
        level = len(module) - len(module.lstrip("."))
        return [ast.ImportFrom(module=module.lstrip(".") or None, names=names, level=level)]

    def names(self, nodes: Iterable[Any]) -> list[ast.alias]:
        out = []
        for one in nodes:
            if one.type == "aliased_import":
                name, alias = one.child_by_field_name("name"), one.child_by_field_name("alias")
                out.append(self.set_position(ast.alias(name=self.text(name), asname=self.text(alias)), one))
            else:
                out.append(self.set_position(ast.alias(name=self.text(one)), one))
        return out

    def s_future_import_statement(self, _node: Any, _depth: int) -> list[ast.stmt]:
        return []

    def s_pass_statement(self, _node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Pass()]

    def s_break_statement(self, _node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Break()]

    def s_continue_statement(self, _node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Continue()]

    def s_global_statement(self, node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Global(names=[self.text(one) for one in node.named_children])]

    # ---------------------------------------------------------------- expressions

    def store(self, node: Any, depth: int) -> Any:
        made = self.expr(node, depth)
        if isinstance(made, (ast.Name, ast.Attribute, ast.Subscript)):
            made.ctx = ast.Store()
        return made

    def several(self, nodes: Iterable[Any], node: Any, depth: int) -> Any:
        made = [self.expr(one, depth + 1) for one in nodes if one.type != "comment"]
        return made[0] if len(made) == 1 else self.set_position(ast.Tuple(elts=made, ctx=ast.Load()), node)

    def expr(self, node: Any, depth: int) -> Any:
        if node is None or depth > MAX_TREE_DEPTH:
            return ast.Constant(value=None, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
        make = getattr(self, f"e_{node.type}", None)
        made = make(node, depth + 1) if make is not None else None
        if made is None:
            parts = [self.expr(one, depth + 1) for one in node.named_children if one.type != "comment"]
            made = ast.Tuple(elts=parts, ctx=ast.Load())
        return self.set_position(made, node) if not hasattr(made, "lineno") else made

    def e_identifier(self, node: Any, _depth: int) -> Any:
        return ast.Name(id=self.text(node), ctx=ast.Load())

    def e_attribute(self, node: Any, depth: int) -> Any:
        name = node.child_by_field_name("attribute")
        return ast.Attribute(
            value=self.expr(node.child_by_field_name("object"), depth), attr=self.text(name), ctx=ast.Load()
        )

    def e_subscript(self, node: Any, depth: int) -> Any:
        inner = self.several(node.children_by_field_name("subscript"), node, depth)
        return ast.Subscript(
            value=self.expr(node.child_by_field_name("value"), depth), slice=inner, ctx=ast.Load()
        )

    def e_slice(self, _node: Any, _depth: int) -> Any:
        return ast.Slice(lower=None, upper=None, step=None)

    def e_call(self, node: Any, depth: int) -> Any:
        args, keywords = [], []
        given = node.child_by_field_name("arguments")
        for one in given.named_children if given is not None and given.type == "argument_list" else ():
            if one.type == "keyword_argument":
                name, value = one.child_by_field_name("name"), one.child_by_field_name("value")
                keywords.append(
                    self.set_position(ast.keyword(arg=self.text(name), value=self.expr(value, depth)), one)
                )
            elif one.type == "dictionary_splat":
                keywords.append(
                    self.set_position(
                        ast.keyword(arg=None, value=self.several(one.named_children, one, depth)), one
                    )
                )
            elif one.type != "comment":
                args.append(self.expr(one, depth))
        return ast.Call(
            func=self.expr(node.child_by_field_name("function"), depth), args=args, keywords=keywords
        )

    def e_parenthesized_expression(self, node: Any, depth: int) -> Any:
        return self.several(node.named_children, node, depth)

    def e_list(self, node: Any, depth: int) -> Any:
        return ast.List(
            elts=[self.expr(one, depth) for one in node.named_children if one.type != "comment"],
            ctx=ast.Load(),
        )

    def e_dictionary(self, node: Any, depth: int) -> Any:
        keys: list[Any] = []
        values = []
        for one in node.named_children:
            if one.type == "pair":
                keys.append(self.expr(one.child_by_field_name("key"), depth))
                values.append(self.expr(one.child_by_field_name("value"), depth))
            elif one.type == "dictionary_splat":
                keys.append(None)
                values.append(self.several(one.named_children, one, depth))
        return ast.Dict(keys=keys, values=values)

    def e_binary_operator(self, node: Any, depth: int) -> Any:
        sign = self.text(node.child_by_field_name("operator"))
        op = {"%": ast.Mod(), "*": ast.Mult(), "-": ast.Sub()}.get(
            sign, ast.Add() if sign == "+" else ast.BitOr()
        )
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        return ast.BinOp(left=self.expr(left, depth), op=op, right=self.expr(right, depth))

    def e_comparison_operator(self, node: Any, depth: int) -> Any:
        parts = [self.expr(one, depth) for one in node.named_children]
        return ast.Compare(left=parts[0], ops=[ast.Eq()] * (len(parts) - 1), comparators=parts[1:])

    def e_lambda(self, node: Any, depth: int) -> Any:
        args = self.parameters(node.child_by_field_name("parameters"), depth)
        return ast.Lambda(args=args, body=self.expr(node.child_by_field_name("body"), depth))

    def literal(self, node: Any) -> Any:
        text = self.text(node)
        for spelled in (text, text.rstrip("lL"), f"0o{text[1:]}", text.lstrip("uU"), text[1:]):
            try:
                return ast.Constant(value=ast.literal_eval(spelled))
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                continue
        return ast.Constant(value=None)

    def e_integer(self, node: Any, _depth: int) -> Any:
        return self.literal(node)

    def e_float(self, node: Any, _depth: int) -> Any:
        return self.literal(node)

    def e_string(self, node: Any, depth: int) -> Any:
        parts = [one for one in node.named_children if one.type == "interpolation"]
        if parts:
            return ast.JoinedStr(values=[self.expr(one, depth) for one in parts])
        return self.literal(node)

    def e_concatenated_string(self, node: Any, depth: int) -> Any:
        parts = [self.expr(one, depth) for one in node.named_children if one.type == "string"]
        if all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in parts):
            return ast.Constant(value="".join(one.value for one in parts))
        return ast.JoinedStr(values=parts)

    def e_true(self, _node: Any, _depth: int) -> Any:
        return ast.Constant(value=True)

    def e_false(self, _node: Any, _depth: int) -> Any:
        return ast.Constant(value=False)

    def e_none(self, _node: Any, _depth: int) -> Any:
        return ast.Constant(value=None)
