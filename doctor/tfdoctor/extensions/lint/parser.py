"""Parse Python of any version to an `ast` tree.

`ast` itself parses valid Python 3. Any other text (Python 2, or a file with an error) is parsed by tree-sitter,
whose grammar includes Python 2 and which continues after an error. Its nodes are converted to those of `ast`.
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
"""The most levels of a tree that are converted. Deeper nodes are dropped."""
_PYTHON_2_STATEMENT = re.compile(
    rb"^\s*(?:print\s+[^\s(=.,]|print\s*>>|exec\s+[\"'\w]|except\s+[\w.]+\s*,\s*\w+\s*:|raise\s+\w+\s*,)",
    re.M,
)
"""Statements of Python 2: print and exec without brackets, `except E, e:` and `raise E, "text"`."""
_CALL_ASSIGNMENT = re.compile(r"\)\s*=(?!=)")
"""An assignment to a call, such as `os.environ("NAME") = …`."""


class Tree:
    """The syntax tree of a module, and the Python version and errors of its text."""

    __slots__ = ("first_error_line", "is_python_2", "root")

    def __init__(self, root: ast.Module, *, is_python_2: bool = False, first_error_line: int = 0) -> None:
        self.root = root
        self.is_python_2 = is_python_2
        """Whether the text is Python 2."""
        self.first_error_line = first_error_line
        """The number of the first line that is invalid in every Python version, or 0."""


def parse(text: str) -> Tree:
    """Return the tree of a text. Invalid text raises no error: the parts that can be parsed are returned."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Tree(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _parse_with_tree_sitter(text)


def _parse_with_tree_sitter(text: str) -> Tree:
    """Return the tree of a text that `ast` cannot parse."""
    import tree_sitter
    import tree_sitter_python

    data = text.encode("utf-8", "replace")
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))
    root = parser.parse(data).root_node
    converter = _Converter(data)
    body = converter.convert_block(root.children, 0)
    is_python_2 = _PYTHON_2_STATEMENT.search(data) is not None
    module = ast.Module(body=body, type_ignores=[])
    return Tree(module, is_python_2=is_python_2, first_error_line=converter.first_error_line)


class _Converter:
    """A converter from tree-sitter nodes to `ast` nodes.

    A method `s_TYPE` converts a statement and `e_TYPE` an expression, where TYPE is the type of the tree-sitter node.
    An expression without such a method becomes a tuple of its children.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.first_error_line = 0
        """The number of the first line with an error, or 0."""

    def get_text(self, node: Any) -> str:
        """Return the source text of a tree-sitter node."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def set_position(self, result: Any, node: Any) -> Any:
        """Set the position of an `ast` node to that of a tree-sitter node, and return the `ast` node."""
        result.lineno, result.col_offset = node.start_point[0] + 1, node.start_point[1]
        result.end_lineno, result.end_col_offset = node.end_point[0] + 1, node.end_point[1]
        return result

    # ---------------------------------------------------------------- statements

    def convert_block(self, nodes: Iterable[Any], depth: int) -> list[ast.stmt]:
        """Convert the statements of a block."""
        body: list[ast.stmt] = []
        call_target: Any = None
        for node in nodes:
            if not node.is_named or node.type == "comment":
                continue
            if call_target is not None and node.type == "expression_statement":
                value = self.convert_expressions(node.named_children, node, depth)
                body.append(self.set_position(ast.Assign(targets=[call_target], value=value), node))
                body[-1].lineno, body[-1].col_offset = call_target.lineno, call_target.col_offset
                call_target = None
                continue
            call_target = None
            if node.type == "ERROR":
                call_target = self.convert_error(node, body, depth)
            else:
                body += self.convert_statement(node, depth + 1)
        return body or [ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)]

    def convert_error(self, node: Any, body: list[ast.stmt], depth: int) -> Any:
        """Convert the statements in an error node, and append them to `body`.

        If the node ends with the beginning of an assignment to a call, return that call, else None.
        """
        children = [child for child in node.named_children if child.type != "comment"]
        code = self.get_text(node).rstrip()
        if (
            children
            and children[-1].type == "call"
            and code.endswith("=")
            and _CALL_ASSIGNMENT.search(code[-8:])  # only at the end
        ):
            for child in children[:-1]:
                body += self.convert_statement(child, depth + 1)
            return self.convert_expression(children[-1], depth + 1)
        self.first_error_line = self.first_error_line or node.start_point[0] + 1
        for child in children:
            body += self.convert_statement(child, depth + 1)
        return None

    def convert_field_block(self, node: Any, field: str, depth: int) -> list[ast.stmt]:
        """Convert the block in a field of a node. Return an empty list if there is none."""
        inner = node.child_by_field_name(field)
        return self.convert_block(inner.children, depth) if inner is not None else []

    def convert_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        """Convert a statement, which can become several statements or none."""
        if depth > MAX_TREE_DEPTH:
            return []
        convert = getattr(self, f"s_{node.type}", None)
        if convert is not None:
            statements = convert(node, depth)
            return [
                self.set_position(item, node) if not hasattr(item, "lineno") else item for item in statements
            ]
        return [self.set_position(ast.Expr(value=self.convert_expression(node, depth)), node)]

    def s_expression_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        children = [assignment for assignment in node.named_children if assignment.type != "comment"]
        if len(children) == 1 and children[0].type == "assignment":
            return self.s_assignment(children[0], depth)
        if len(children) == 1 and children[0].type == "augmented_assignment":
            assignment = children[0]
            target, value = assignment.child_by_field_name("left"), assignment.child_by_field_name("right")
            return [
                ast.AugAssign(
                    target=self.convert_target(target, depth),
                    op=ast.Add(),
                    value=self.convert_expression(value, depth),
                )
            ]
        statements.append(ast.Expr(value=self.convert_expressions(children, node, depth)))
        return statements

    def s_assignment(self, node: Any, depth: int) -> list[ast.stmt]:
        targets = []
        value: Any = node
        while value is not None and value.type == "assignment":
            left = value.child_by_field_name("left")
            targets.append(self.convert_target(left, depth))
            value = value.child_by_field_name("right")
        if value is None:
            return []
        return [ast.Assign(targets=targets, value=self.convert_expression(value, depth))]

    def s_if_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        test = self.convert_expression(node.child_by_field_name("condition"), depth)
        orelse: list[ast.stmt] = []
        for clause in reversed(node.children_by_field_name("alternative")):
            if clause.type == "else_clause":
                orelse = self.convert_field_block(clause, "body", depth)
            else:
                inner = ast.If(
                    test=self.convert_expression(clause.child_by_field_name("condition"), depth),
                    body=self.convert_field_block(clause, "consequence", depth),
                    orelse=orelse,
                )
                orelse = [self.set_position(inner, clause)]
        return [ast.If(test=test, body=self.convert_field_block(node, "consequence", depth), orelse=orelse)]

    def convert_orelse(self, node: Any, depth: int) -> list[ast.stmt]:
        """Convert the `else` block of a loop. Return an empty list if there is none."""
        else_clause = node.child_by_field_name("alternative")
        return self.convert_field_block(else_clause, "body", depth) if else_clause is not None else []

    def s_for_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        target = self.convert_target(node.child_by_field_name("left"), depth)
        iterable = self.convert_expression(node.child_by_field_name("right"), depth)
        return [
            ast.For(
                target=target,
                iter=iterable,
                body=self.convert_field_block(node, "body", depth),
                orelse=self.convert_orelse(node, depth),
            )
        ]

    def s_while_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        test = self.convert_expression(node.child_by_field_name("condition"), depth)
        return [
            ast.While(
                test=test,
                body=self.convert_field_block(node, "body", depth),
                orelse=self.convert_orelse(node, depth),
            )
        ]

    def s_try_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        handlers, orelse, finalbody = [], [], []
        for clause in node.named_children:
            if clause.type == "except_clause":
                inner = [child for child in clause.named_children if child.type != "block"]
                block = next((child for child in clause.named_children if child.type == "block"), None)
                exception = self.convert_expression(inner[0], depth) if inner else None
                body = self.convert_block(block.children, depth) if block is not None else []
                handlers.append(
                    self.set_position(ast.ExceptHandler(type=exception, name=None, body=body), clause)
                )
            elif clause.type == "else_clause":
                orelse = self.convert_field_block(clause, "body", depth)
            elif clause.type == "finally_clause":
                block = next((child for child in clause.named_children if child.type == "block"), None)
                finalbody = self.convert_block(block.children, depth) if block is not None else []
        return [
            ast.Try(
                body=self.convert_field_block(node, "body", depth),
                handlers=handlers,
                orelse=orelse,
                finalbody=finalbody,
            )
        ]

    def s_with_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        items = []
        clause = next((child for child in node.named_children if child.type == "with_clause"), None)
        for item in clause.named_children if clause is not None else ():
            value = item.child_by_field_name("value") or item
            target = None
            if value.type == "as_pattern":
                alias = value.child_by_field_name("alias")
                if alias is not None and alias.named_children:
                    target = self.convert_target(alias.named_children[0], depth)
                value = value.named_children[0]
            items.append(
                ast.withitem(context_expr=self.convert_expression(value, depth), optional_vars=target)
            )
        return [ast.With(items=items, body=self.convert_field_block(node, "body", depth))]

    def s_function_definition(self, node: Any, depth: int) -> list[ast.stmt]:
        name = self.get_text(node.child_by_field_name("name"))
        args = self.convert_parameters(node.child_by_field_name("parameters"), depth)
        body = self.convert_field_block(node, "body", depth)
        return [ast.FunctionDef(name=name, args=args, body=body, decorator_list=[], returns=None)]

    def s_class_definition(self, node: Any, depth: int) -> list[ast.stmt]:
        name = self.get_text(node.child_by_field_name("name"))
        superclasses = node.child_by_field_name("superclasses")
        bases = (
            [self.convert_expression(base, depth) for base in superclasses.named_children]
            if superclasses is not None
            else []
        )
        body = self.convert_field_block(node, "body", depth)
        return [ast.ClassDef(name=name, bases=bases, keywords=[], body=body, decorator_list=[])]

    def s_decorated_definition(self, node: Any, depth: int) -> list[ast.stmt]:
        inner = node.child_by_field_name("definition")
        definitions = self.convert_statement(inner, depth) if inner is not None else []
        decorators = [
            self.convert_expression(item.named_children[0], depth)
            for item in node.named_children
            if item.type == "decorator" and item.named_children
        ]
        for item in definitions:
            if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
                item.decorator_list = decorators
        return definitions

    def convert_parameters(self, node: Any, depth: int) -> ast.arguments:
        """Convert the parameters of a function, without `*args` and `**kwargs`."""
        names, defaults = [], []
        for parameter in node.named_children if node is not None else ():
            inner = parameter.child_by_field_name("name") or (
                parameter.named_children[0] if parameter.named_children else parameter
            )
            if parameter.type == "identifier":
                names.append(self.set_position(ast.arg(arg=self.get_text(parameter)), parameter))
            elif "default" in parameter.type:
                names.append(self.set_position(ast.arg(arg=self.get_text(inner)), parameter))
                value = parameter.child_by_field_name("value")
                defaults.append(self.convert_expression(value, depth))
            elif parameter.type == "typed_parameter":
                names.append(self.set_position(ast.arg(arg=self.get_text(inner)), parameter))
        return ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=defaults)

    def s_return_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        return [
            ast.Return(
                value=self.convert_expressions(node.named_children, node, depth)
                if node.named_children
                else None
            )
        ]

    def s_raise_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        return [
            ast.Raise(
                exc=self.convert_expressions(node.named_children, node, depth)
                if node.named_children
                else None
            )
        ]

    def s_print_statement(self, node: Any, depth: int) -> list[ast.stmt]:
        args = [
            self.convert_expression(child, depth) for child in node.named_children if child.type != "comment"
        ]
        function = self.set_position(ast.Name(id="print", ctx=ast.Load()), node)
        return [ast.Expr(value=self.set_position(ast.Call(func=function, args=args, keywords=[]), node))]

    def s_import_statement(self, node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Import(names=self.convert_aliases(node.children_by_field_name("name")))]

    def s_import_from_statement(self, node: Any, _depth: int) -> list[ast.stmt]:
        module = self.get_text(node.child_by_field_name("module_name"))
        names = self.convert_aliases(node.children_by_field_name("name")) or [ast.alias(name="*")]
        level = len(module) - len(module.lstrip("."))
        return [ast.ImportFrom(module=module.lstrip(".") or None, names=names, level=level)]

    def convert_aliases(self, nodes: Iterable[Any]) -> list[ast.alias]:
        """Convert the names of an import."""
        aliases = []
        for name_node in nodes:
            if name_node.type == "aliased_import":
                name, alias = name_node.child_by_field_name("name"), name_node.child_by_field_name("alias")
                aliases.append(
                    self.set_position(
                        ast.alias(name=self.get_text(name), asname=self.get_text(alias)), name_node
                    )
                )
            else:
                aliases.append(self.set_position(ast.alias(name=self.get_text(name_node)), name_node))
        return aliases

    def s_future_import_statement(self, _node: Any, _depth: int) -> list[ast.stmt]:
        return []

    def s_pass_statement(self, _node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Pass()]

    def s_break_statement(self, _node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Break()]

    def s_continue_statement(self, _node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Continue()]

    def s_global_statement(self, node: Any, _depth: int) -> list[ast.stmt]:
        return [ast.Global(names=[self.get_text(child) for child in node.named_children])]

    # ---------------------------------------------------------------- expressions

    def convert_target(self, node: Any, depth: int) -> Any:
        """Convert the target of an assignment or loop."""
        target = self.convert_expression(node, depth)
        if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
            target.ctx = ast.Store()
        return target

    def convert_expressions(self, nodes: Iterable[Any], node: Any, depth: int) -> Any:
        """Convert a single node to its expression, or several to a tuple at the position of `node`."""
        elements = [self.convert_expression(child, depth + 1) for child in nodes if child.type != "comment"]
        return (
            elements[0]
            if len(elements) == 1
            else self.set_position(ast.Tuple(elts=elements, ctx=ast.Load()), node)
        )

    def convert_expression(self, node: Any, depth: int) -> Any:
        """Convert an expression. A node that is missing or too deep becomes the constant None."""
        if node is None or depth > MAX_TREE_DEPTH:
            return ast.Constant(value=None, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
        convert = getattr(self, f"e_{node.type}", None)
        result = convert(node, depth + 1) if convert is not None else None
        if result is None:
            parts = [
                self.convert_expression(child, depth + 1)
                for child in node.named_children
                if child.type != "comment"
            ]
            result = ast.Tuple(elts=parts, ctx=ast.Load())
        return self.set_position(result, node) if not hasattr(result, "lineno") else result

    def e_identifier(self, node: Any, _depth: int) -> Any:
        return ast.Name(id=self.get_text(node), ctx=ast.Load())

    def e_attribute(self, node: Any, depth: int) -> Any:
        name = node.child_by_field_name("attribute")
        return ast.Attribute(
            value=self.convert_expression(node.child_by_field_name("object"), depth),
            attr=self.get_text(name),
            ctx=ast.Load(),
        )

    def e_subscript(self, node: Any, depth: int) -> Any:
        inner = self.convert_expressions(node.children_by_field_name("subscript"), node, depth)
        return ast.Subscript(
            value=self.convert_expression(node.child_by_field_name("value"), depth),
            slice=inner,
            ctx=ast.Load(),
        )

    def e_slice(self, _node: Any, _depth: int) -> Any:
        """Return a slice without bounds."""
        return ast.Slice(lower=None, upper=None, step=None)

    def e_call(self, node: Any, depth: int) -> Any:
        args, keywords = [], []
        arguments = node.child_by_field_name("arguments")
        for argument in (
            arguments.named_children if arguments is not None and arguments.type == "argument_list" else ()
        ):
            if argument.type == "keyword_argument":
                name, value = argument.child_by_field_name("name"), argument.child_by_field_name("value")
                keywords.append(
                    self.set_position(
                        ast.keyword(arg=self.get_text(name), value=self.convert_expression(value, depth)),
                        argument,
                    )
                )
            elif argument.type == "dictionary_splat":
                keywords.append(
                    self.set_position(
                        ast.keyword(
                            arg=None, value=self.convert_expressions(argument.named_children, argument, depth)
                        ),
                        argument,
                    )
                )
            elif argument.type != "comment":
                args.append(self.convert_expression(argument, depth))
        return ast.Call(
            func=self.convert_expression(node.child_by_field_name("function"), depth),
            args=args,
            keywords=keywords,
        )

    def e_parenthesized_expression(self, node: Any, depth: int) -> Any:
        return self.convert_expressions(node.named_children, node, depth)

    def e_list(self, node: Any, depth: int) -> Any:
        return ast.List(
            elts=[
                self.convert_expression(child, depth)
                for child in node.named_children
                if child.type != "comment"
            ],
            ctx=ast.Load(),
        )

    def e_dictionary(self, node: Any, depth: int) -> Any:
        keys: list[Any] = []
        values = []
        for child in node.named_children:
            if child.type == "pair":
                keys.append(self.convert_expression(child.child_by_field_name("key"), depth))
                values.append(self.convert_expression(child.child_by_field_name("value"), depth))
            elif child.type == "dictionary_splat":
                keys.append(None)
                values.append(self.convert_expressions(child.named_children, child, depth))
        return ast.Dict(keys=keys, values=values)

    def e_binary_operator(self, node: Any, depth: int) -> Any:
        operator = self.get_text(node.child_by_field_name("operator"))
        op = {"%": ast.Mod(), "*": ast.Mult(), "-": ast.Sub()}.get(
            operator, ast.Add() if operator == "+" else ast.BitOr()
        )
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        return ast.BinOp(
            left=self.convert_expression(left, depth), op=op, right=self.convert_expression(right, depth)
        )

    def e_comparison_operator(self, node: Any, depth: int) -> Any:
        """Convert a comparison. Every operator becomes `==`."""
        parts = [self.convert_expression(child, depth) for child in node.named_children]
        return ast.Compare(left=parts[0], ops=[ast.Eq()] * (len(parts) - 1), comparators=parts[1:])

    def e_lambda(self, node: Any, depth: int) -> Any:
        args = self.convert_parameters(node.child_by_field_name("parameters"), depth)
        return ast.Lambda(args=args, body=self.convert_expression(node.child_by_field_name("body"), depth))

    def convert_constant(self, node: Any) -> Any:
        """Return the constant of a Python 2 or 3 literal, or the constant None if it cannot be evaluated."""
        # the other spellings are for 10L, 0777 and ur"text" in Python 2
        text = self.get_text(node)
        for spelling in (text, text.rstrip("lL"), f"0o{text[1:]}", text.lstrip("uU"), text[1:]):
            try:
                return ast.Constant(value=ast.literal_eval(spelling))
            except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                continue
        return ast.Constant(value=None)

    def e_integer(self, node: Any, _depth: int) -> Any:
        return self.convert_constant(node)

    def e_float(self, node: Any, _depth: int) -> Any:
        return self.convert_constant(node)

    def e_string(self, node: Any, depth: int) -> Any:
        parts = [part for part in node.named_children if part.type == "interpolation"]
        if parts:
            return ast.JoinedStr(values=[self.convert_expression(part, depth) for part in parts])
        return self.convert_constant(node)

    def e_concatenated_string(self, node: Any, depth: int) -> Any:
        parts = [
            self.convert_expression(part, depth) for part in node.named_children if part.type == "string"
        ]
        if all(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts):
            return ast.Constant(value="".join(part.value for part in parts))
        return ast.JoinedStr(values=parts)

    def e_true(self, _node: Any, _depth: int) -> Any:
        return ast.Constant(value=True)

    def e_false(self, _node: Any, _depth: int) -> Any:
        return ast.Constant(value=False)

    def e_none(self, _node: Any, _depth: int) -> Any:
        return ast.Constant(value=None)
