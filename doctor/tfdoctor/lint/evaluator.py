"""A tree is gone through in the order in which the program runs: branches, loops, calls of its own functions.

Only what surely has happened counts: of two branches what both do. A function that the file calls is gone through where
it is called; one that it does not call, at the end, as if only the file's imports came before.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any

from tfdoctor.lint.checks import Checks
from tfdoctor.lint.expressions import Expressions
from tfdoctor.lint.reporter import MAX_STEPS
from tfdoctor.lint.values import (
    Const,
    Func,
    Many,
    Map,
    ModuleValue,
    Obj,
    Path,
    Seq,
    WalkState,
    is_same,
    merge_states,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.lint.models import LintTarget

__all__ = ["Walk"]

MAX_PATH_CHARS = 300
"""Characters of the name of a module or of what is in it."""
CALLS = 6
"""Calls within calls."""
MAX_CALLS_PER_FUNCTION = 4
"""Calls of a function that are gone through."""
_UNBOUND = object()
_BUILTINS = frozenset(vars(builtins))
_GUARDS = ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "NameError")
_TF = ("tensorflow", "tf_keras", "tf_slim", "tensorflow_hub", "tensorflow_addons", "tensorflow_probability")
_IMPORTS = (*_TF, "keras")


class Walk(Checks, Expressions):
    """One file, or all cells of a notebook, one after the other."""

    def __init__(self, asked: LintTarget, text: str) -> None:
        super().__init__(asked, text)
        self.state = WalkState()
        self.globals: dict[str, Any] = {}
        self.scopes: list[dict[str, Any]] = [self.globals]
        self.branches: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """Of each branch, outermost first, its scope and the values that the names which it binds had before."""
        self.functions: list[Func] = []
        self.seen: set[int] = set()
        self.runs: dict[int, int] = {}
        self.defined: set[int] = set()
        self.running: list[int] = []
        self.returned: list[Any] = []
        self.depth = 0

    # ---------------------------------------------------------------- the whole

    def cell(self, body: Sequence[ast.stmt], number: int | None, lines: list[str]) -> None:
        """A file's body, or that of a notebook's cell."""
        self.cell_number, self.lines = number, lines
        self.check_unused_configs(body)
        self.body(body)
        self.state.dead = False

    def end(self) -> None:
        """Functions that nothing called."""
        at_end = WalkState(imported=self.state.imported, import_place=self.state.import_place)
        for one in self.functions:
            if id(one.node) not in self.seen:
                self.state = at_end.copy()
                self.cell_number, self.lines = one.cell, one.lines
                self.uncalled = True
                self.run(one, None)

    def body(self, body: Sequence[ast.stmt]) -> None:
        for one in body:
            self.steps += 1
            if self.state.dead or self.steps > MAX_STEPS:
                # what comes behind a return is not run; its functions may be called
                for rest in body[body.index(one) :]:
                    if isinstance(rest, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                        self.statement(rest)
                return
            self.statement(one)

    def statement(self, node: ast.stmt) -> None:
        make = getattr(self, f"s_{type(node).__name__.lower()}", None)
        if make is not None:
            make(node)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)

    # ---------------------------------------------------------------- statements

    def s_expr(self, node: ast.Expr) -> None:
        self.value(node.value)
        if (
            isinstance(node.value, ast.Compare)
            and len(node.value.ops) == 1
            and isinstance(node.value.ops[0], ast.Eq)
        ):
            self.check_comparison(node.value)

    def s_import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            path = alias.name if alias.asname else name
            self.import_of(alias.name, node)
            self.bind(name, Path(path, sure=not self.guarded))
            self.api(f"{alias.name}", node, whole=True)

    def s_importfrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            for alias in node.names:
                self.bind(alias.asname or alias.name, None)
            return
        self.import_of(module, node)
        for alias in node.names:
            self.bind(alias.asname or alias.name, Path(f"{module}.{alias.name}", sure=not self.guarded))
            if alias.name != "*":
                self.api(f"{module}.{alias.name}", node, whole=True)
            elif module == "os":
                self.bind("environ", Path("os.environ"))
                self.bind("system", Path("os.system"))

    def import_of(self, module: str, node: Any) -> None:
        first = module.partition(".")[0]
        if first in _IMPORTS and (first != "keras" or not self.other_backend) and not self.state.imported:
            self.state.imported, self.state.import_place = node.lineno, self.place(node)

    def s_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value, node.value)

    def s_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value), node.value)

    def s_augassign(self, node: ast.AugAssign) -> None:
        value = self.value(node.value)
        if isinstance(node.target, ast.Name):
            base = self.look(node.target.id)
            if isinstance(base, Path) and base.name == "os.environ" and isinstance(value, Map):
                self.environ_map(value, node)
                return
            self.bind(node.target.id, None)
        elif isinstance(node.target, ast.Subscript):
            self.assign(node.target, None, node.value)
        elif self.value(node.target.value) is not None and isinstance(value, Map):
            base = self.value(node.target)
            if isinstance(base, Path) and base.name == "os.environ":
                self.environ_map(value, node)

    def assign(self, target: Any, value: Any, value_node: Any) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = value.items if isinstance(value, Seq) and len(value.items) == len(target.elts) else None
            for number, one in enumerate(target.elts):
                self.assign(one, items[number] if items is not None else None, value_node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, None, value_node)
        elif isinstance(target, ast.Subscript):
            base, key = self.value(target.value), self.value(target.slice)
            self.check_item_assignment(base, key, target, value, value_node)
        elif isinstance(target, ast.Attribute):
            base = self.value(target.value)
            self.check_attribute_assignment(base, target, value)
        elif isinstance(target, ast.Call):
            self.check_call_assignment(self.value(target.func), target)

    def s_delete(self, _node: ast.Delete) -> None:
        return

    def s_if(self, node: ast.If) -> None:
        self.value(node.test)
        version = self.asks_version(node.test)
        if self.is_main(node.test):
            self.body(node.body)
            return
        before = self.state.copy()
        self.guarded += version
        was, self.single = self.single, self.single or self.asks_single(node.test)
        self.maybe += 1
        sure = self.asks_gpus(node.test)
        left = self.branch(node.body)
        self.single = was
        one, self.state = self.state, before.copy()
        right = self.branch(node.orelse)
        self.maybe -= 1
        self.guarded -= version
        two = self.state
        self.state = one.copy() if sure and not node.orelse and not one.dead else merge_states(one, two)
        self.state.dead = one.dead and two.dead
        self.bind_all(left if one.dead is False and two.dead else self.join_names(left, right))

    def branch(self, *bodies: Sequence[ast.stmt], error: str | None = None) -> dict[str, Any]:
        """Go through statements that may not run; return the names that they bind, which then are as before.

        error: the name of what a handler catches.
        """
        scope = self.scopes[-1]
        self.branches.append((scope, {}))
        if error is not None:
            self.bind(error, None)
        for body in bodies:
            if not self.state.dead:
                self.body(body)
        _, before = self.branches.pop()
        bound = {name: scope[name] for name in before}
        for name, value in before.items():
            if value is _UNBOUND:
                del scope[name]
            else:
                scope[name] = value
        return bound

    def join_names(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        """Return the names that one of two branches binds, as both leave them; what differs is not known."""
        scope = self.scopes[-1]
        names = {}
        for name in {**left, **right}:
            one = left.get(name, scope.get(name, _UNBOUND))
            two = right.get(name, scope.get(name, _UNBOUND))
            if one is _UNBOUND or two is _UNBOUND:
                names[name] = two if one is _UNBOUND else one
            else:
                names[name] = two if is_same(one, two) else self.merge_values(one, two)
        return names

    def bind_all(self, names: dict[str, Any]) -> None:
        """Bind names to values in this scope."""
        for name, value in names.items():
            self.bind(name, value)

    def merge_values(self, one: Any, two: Any) -> Any:
        """Return one of two values, as much of it as holds for both."""
        for left, right in ((one, two), (two, one)):
            if isinstance(left, Path) and left.name.startswith("tensorflow") and isinstance(right, Path):
                return Path(left.name, sure=False)
        if isinstance(one, Map) and one is two:
            return one
        return None

    def s_for(self, node: Any) -> None:
        over = self.value(node.iter)
        each = self.item_of(over, node.iter)
        if isinstance(each, list):
            for value in each:
                self.assign(node.target, value, node.iter)
                self.body(node.body)
                self.state.dead = False
        else:
            self.assign(node.target, each, node.iter)
            breaks = bool(node.body) and isinstance(node.body[-1], ast.Break)
            if breaks and isinstance(each, Obj) and each.kind == "gpu":
                self.assign(node.target, Obj("gpu", 0), node.iter)
            self.loops.append(node)
            self.body(node.body)
            self.loops.pop()
        self.state.dead = False
        self.body(node.orelse)

    s_asyncfor = s_for

    def s_while(self, node: ast.While) -> None:
        self.value(node.test)
        self.body(node.body)
        self.state.dead = False
        self.body(node.orelse)

    def s_try(self, node: Any) -> None:
        guards = any(self._guards(handler) for handler in node.handlers)
        before = self.state.copy()
        self.guarded += guards
        after = self.branch(node.body, node.orelse)
        done = self.state.copy()
        for handler in node.handlers:
            self.state = before.copy()
            names = self.branch(handler.body, error=handler.name)
            if not self.state.dead:
                after |= self.join_names(names, after)
        self.bind_all(after)
        self.guarded -= guards
        self.state = done
        self.body(node.finalbody)

    s_trystar = s_try

    def _guards(self, handler: ast.ExceptHandler) -> bool:
        named = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
        return any(one is None or (isinstance(one, ast.Name) and one.id in _GUARDS) for one in named)

    def s_with(self, node: Any) -> None:
        devices, graphs = len(self.devices), self.graph
        for item in node.items:
            value = self.value(item.context_expr)
            self.enter_context(item.context_expr, value)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, item.context_expr)
        self.body(node.body)
        del self.devices[devices:]
        self.graph = graphs

    s_asyncwith = s_with

    def s_return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.returned.append(self.value(node.value))
        self.state.dead = True

    def s_raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self.value(node.exc)
        self.state.dead = True

    def s_break(self, _node: ast.Break) -> None:
        self.state.dead = True

    s_continue = s_break

    def s_match(self, node: Any) -> None:
        self.value(node.subject)
        before = self.state.copy()
        for case in node.cases:
            self.state = before.copy()
            self.body(case.body)
        self.state = before

    def s_functiondef(self, node: Any) -> None:
        for mark in node.decorator_list:
            self.value(mark)
        for value in (*node.args.defaults, *node.args.kw_defaults):
            if value is not None:
                self.value(value)
        self.bind(node.name, self.define(node))

    s_asyncfunctiondef = s_functiondef

    def define(self, node: Any, *, method: bool = False) -> Func:
        text = " ".join(ast.dump(mark) for mark in node.decorator_list)
        made = Func(
            node,
            bound=method and "staticmethod" not in text,
            graph="'function'" in text,
            cell=self.cell_number,
            lines=self.lines,
        )
        self.functions.append(made)
        if id(node) not in self.defined:
            self.defined.add(id(node))
            self.check_unused_configs(node.body)
        return made

    def s_classdef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            self.value(base)
        made = ModuleValue()
        self.scopes.append({})
        for one in node.body:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for mark in one.decorator_list:
                    self.value(mark)
                made.functions[one.name] = self.define(one, method=True)
            else:
                self.statement(one)
        self.scopes.pop()
        self.bind(node.name, made)

    # ---------------------------------------------------------------- names and calls

    def bind(self, name: str, value: Any) -> None:
        scope = self.scopes[-1]
        if self.branches and self.branches[-1][0] is scope:
            self.branches[-1][1].setdefault(name, scope.get(name, _UNBOUND))
        scope[name] = value

    def look(self, name: str) -> Any:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return Path(name) if name in _BUILTINS or name.startswith("__tfdoctor") else None

    def run(self, func: Func, values: list[Any] | None, keywords: dict[str, Any] | None = None) -> Any:
        """Return a function's body, with what it was called with."""
        node = func.node
        often = self.runs.get(id(node), 0)
        if (
            id(node) in self.running
            or len(self.running) >= CALLS
            or self.steps > MAX_STEPS
            or often >= MAX_CALLS_PER_FUNCTION
        ):
            return None
        self.runs[id(node)] = often + 1
        self.seen.add(id(node))
        scope: dict[str, Any] = {}
        arguments = [*getattr(node.args, "posonlyargs", []), *node.args.args]
        names = [one.arg for one in arguments]
        for name in [*names, *(one.arg for one in node.args.kwonlyargs)]:
            scope[name] = None
        if values is not None:
            defaults = node.args.defaults
            for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=False):
                scope[name] = self.value(value)
            scope.update(zip(names[1:] if func.bound else names, values, strict=False))
            scope.update({name: value for name, value in (keywords or {}).items() if name in scope})
        outer, self.scopes = self.scopes, [self.globals, *([] if values is None else self.scopes[1:]), scope]
        returned, self.returned = self.returned, []
        cell = self.cell_number, self.lines
        graph, devices, loops = self.graph, self.devices, self.loops
        self.graph = self.graph or func.graph
        if values is None:
            self.devices, self.loops = [], []
        self.running.append(id(node))
        self.cell_number, self.lines = func.cell, func.lines
        try:
            if isinstance(node, ast.Lambda):
                self.returned.append(self.value(node.body))
            else:
                self.body(node.body)
        finally:
            self.running.pop()
        self.state.dead = False
        found, self.returned = self.returned, returned
        self.scopes = outer
        self.graph, self.devices, self.loops = graph, devices, loops
        self.cell_number, self.lines = cell
        return found[0] if len(found) == 1 else None

    def value(self, node: Any) -> Any:
        """Return what an expression is, as far as it can be said."""
        self.steps += 1
        if self.steps > MAX_STEPS or self.depth > 150:
            return None
        self.depth += 1
        try:
            make = getattr(self, f"e_{type(node).__name__.lower()}", None)
            if make is not None:
                return make(node)
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.expr, ast.keyword)):
                    self.value(child.value if isinstance(child, ast.keyword) else child)
            return None
        finally:
            self.depth -= 1

    def e_constant(self, node: ast.Constant) -> Any:
        return Const(node.value)

    def e_name(self, node: ast.Name) -> Any:
        return self.look(node.id)

    def e_namedexpr(self, node: ast.NamedExpr) -> Any:
        value = self.value(node.value)
        self.bind(node.target.id, value)
        return value

    def e_attribute(self, node: ast.Attribute) -> Any:
        base = self.value(node.value)
        if isinstance(base, Path):
            if len(base.name) > MAX_PATH_CHARS:
                return None
            path = Path(f"{base.name}.{node.attr}", base.sure)
            if base.name.startswith("tensorflow"):
                self.api(path.name, node, sure=base.sure)
            return path
        return self.attribute(base, node)

    def e_lambda(self, node: ast.Lambda) -> Any:
        made = Func(node, cell=self.cell_number, lines=self.lines)
        self.functions.append(made)
        return made

    def e_ifexp(self, node: ast.IfExp) -> Any:
        self.value(node.test)
        version = self.asks_version(node.test)
        self.guarded += version
        one, two = self.value(node.body), self.value(node.orelse)
        self.guarded -= version
        return one if is_same(one, two) else self.merge_values(one, two)

    def e_boolop(self, node: ast.BoolOp) -> Any:
        version = any(self.asks_version(one) for one in node.values)
        self.guarded += version
        for one in node.values:
            self.value(one)
        self.guarded -= version

    def _elements(self, node: Any) -> Any:
        items, nodes, whole = [], [], True
        for one in node.elts:
            if isinstance(one, ast.Starred):
                self.value(one.value)
                whole = False
            else:
                items.append(self.value(one))
                nodes.append(one)
        return Seq(items, nodes) if whole else None

    e_list = e_tuple = e_set = _elements

    def e_dict(self, node: ast.Dict) -> Any:
        made = Map([])
        for key, value in zip(node.keys, node.values, strict=False):
            if key is None:
                inner = self.value(value)
                made.whole = False
                if isinstance(inner, Map):
                    self.spend(len(inner.entries))
                    made.entries += inner.entries
                    made.environment |= inner.environment
                made.environment |= isinstance(inner, Path) and inner.name == "os.environ"
            else:
                made.entries.append((self.value(key), self.value(value), key, value))
        if made.environment:
            self.environ_map(made, node, copy=True)
        return made

    def e_subscript(self, node: ast.Subscript) -> Any:
        base = self.value(node.value)
        key = None if isinstance(node.slice, ast.Slice) else self.value(node.slice)
        return self.item(base, key, node)

    def e_compare(self, node: ast.Compare) -> Any:
        for one in (node.left, *node.comparators):
            self.value(one)

    def _comprehension(self, node: Any) -> Any:
        self.scopes.append({})
        over: Any = None
        for one in node.generators:
            over = self.value(one.iter)
            each = self.item_of(over, one.iter)
            self.assign(one.target, None if isinstance(each, list) else each, one.iter)
            for test in one.ifs:
                self.value(test)
        made = self.value(node.elt)
        plain = len(node.generators) == 1 and not node.generators[0].ifs
        self.scopes.pop()
        if plain and isinstance(made, Many):
            return Seq([Const(one) for one in made.values], [node.elt] * len(made.values))
        if plain and isinstance(made, Obj) and made.kind == "gpu" and made.data == "each":
            return Obj("gpus")
        return None

    e_listcomp = e_generatorexp = e_setcomp = _comprehension

    def e_dictcomp(self, node: ast.DictComp) -> Any:
        self.scopes.append({})
        for one in node.generators:
            self.assign(one.target, self.item_of(self.value(one.iter), one.iter), one.iter)
        self.value(node.key)
        self.value(node.value)
        self.scopes.pop()
        return Map([], whole=False)

    def e_call(self, node: ast.Call) -> Any:
        func = self.value(node.func)
        args = []
        for one in node.args:
            inner = self.value(one.value if isinstance(one, ast.Starred) else one)
            args.append(None if isinstance(one, ast.Starred) else inner)
        keywords = {one.arg: self.value(one.value) for one in node.keywords}
        if isinstance(func, Func) and func.node is not None:
            if func.graph and not self.graph:
                self.use(node)
            return self.run(func, args, {k: v for k, v in keywords.items() if k})
        if isinstance(func, ModuleValue):
            start = func.functions.get("__init__")
            if start is not None:
                self.run(start, args, {k: v for k, v in keywords.items() if k})
            return Obj("instance", func)
        return self.evaluate_call(func, node, args, keywords)
