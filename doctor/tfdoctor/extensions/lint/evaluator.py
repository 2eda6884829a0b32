"""Evaluate a syntax tree in the order of execution, with its branches, loops and function calls.

After two branches, only what both of them do counts as having happened. A function that the file defines is
evaluated at each call. A function that the file never calls is evaluated at the end, as if only the imports of the
file had run before it.

The methods `s_…` evaluate a statement and `e_…` an expression, named by the class of the node.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any

from tfdoctor.extensions.lint.checks import PythonChecks
from tfdoctor.extensions.lint.expressions import Expressions
from tfdoctor.extensions.lint.reporter import MAX_STEPS
from tfdoctor.extensions.lint.values import (
    ClassValue,
    ConstantValue,
    DictValue,
    ExecutionState,
    FunctionValue,
    MultipleValues,
    ObjectValue,
    QualifiedName,
    SequenceValue,
    is_same_value,
    merge_states,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.extensions.lint.models import LintTarget

__all__ = ["Evaluator"]

MAX_PATH_CHARS = 300
"""The maximum length in characters of the name of a module or member."""
MAX_CALL_DEPTH = 6
"""The maximum depth of nested calls."""
MAX_CALLS_PER_FUNCTION = 4
"""The most calls of one function that are evaluated."""
_UNBOUND = object()
"""The value of a name that is not bound."""
_BUILTINS = frozenset(vars(builtins))
_GUARD_ERRORS = ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "NameError")
"""The errors that a missing module or name raises, and a base class of them."""
_TF_MODULES = (
    "tensorflow",
    "tf_keras",
    "tf_slim",
    "tensorflow_hub",
    "tensorflow_addons",
    "tensorflow_probability",
)
_IMPORTS = (*_TF_MODULES, "keras")
"""Modules whose import loads TensorFlow."""


class Evaluator(PythonChecks, Expressions):
    """The evaluation of one file, or of all cells of a notebook in order."""

    def __init__(self, target: LintTarget, text: str) -> None:
        super().__init__(target, text)
        self.state = ExecutionState()
        self.globals: dict[str, Any] = {}
        self.scopes: list[dict[str, Any]] = [self.globals]
        self.branches: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """(scope, earlier values of the names that the branch binds) for each open branch, outermost first."""
        self.defined_functions: list[FunctionValue] = []
        """The functions that the file defines."""
        self.evaluated_function_ids: set[int] = set()
        """The ids of the nodes of functions that were evaluated."""
        self.evaluation_counts: dict[int, int] = {}
        """The number of evaluations of each function, by the id of its node."""
        self.checked_function_ids: set[int] = set()
        """The ids of the nodes of functions whose configs were checked."""
        self.running_function_ids: list[int] = []
        """The ids of the nodes of functions that are being evaluated, outermost first."""
        self.returned_values: list[Any] = []
        """The values that the current function returned."""
        self.expression_depth = 0
        """The depth of nested expressions."""

    # ---------------------------------------------------------------- files

    def evaluate_cell(self, body: Sequence[ast.stmt], number: int | None, lines: list[str]) -> None:
        """Evaluate the body of a file, or of a notebook cell with this number."""
        self.cell_number, self.lines = number, lines
        self.check_unused_configs(body)
        self.evaluate_body(body)
        self.state.is_unreachable = False

    def evaluate_uncalled(self) -> None:
        """Evaluate the functions that were never called."""
        # only the imports count as having happened before the call
        end_state = ExecutionState(
            import_line=self.state.import_line, import_position=self.state.import_position
        )
        for function in self.defined_functions:
            if id(function.node) not in self.evaluated_function_ids:
                self.state = end_state.copy()
                self.cell_number, self.lines = function.cell_number, function.lines
                self.is_uncalled = True
                self.evaluate_function(function, None)

    def evaluate_body(self, body: Sequence[ast.stmt]) -> None:
        """Evaluate statements in order."""
        for node in body:
            self.step_count += 1
            if self.state.is_unreachable or self.step_count > MAX_STEPS:
                # code after a return does not run, but functions in it may be called
                for later_node in body[body.index(node) :]:
                    if isinstance(later_node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                        self.evaluate_statement(later_node)
                return
            self.evaluate_statement(node)

    def evaluate_statement(self, node: ast.stmt) -> None:
        """Evaluate a statement."""
        handler = getattr(self, f"s_{type(node).__name__.lower()}", None)
        if handler is not None:
            handler(node)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)

    # ---------------------------------------------------------------- statements

    def s_expr(self, node: ast.Expr) -> None:
        self.evaluate(node.value)
        if (
            isinstance(node.value, ast.Compare)
            and len(node.value.ops) == 1
            and isinstance(node.value.ops[0], ast.Eq)
        ):
            self.check_comparison_statement(node.value)

    def s_import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            path = alias.name if alias.asname else name
            self.record_import(alias.name, node)
            self.bind(name, QualifiedName(path, is_certain=not self.guard_depth))
            self.check_api_name(f"{alias.name}", node, is_import=True)

    def s_importfrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            for alias in node.names:
                self.bind(alias.asname or alias.name, None)
            return
        self.record_import(module, node)
        for alias in node.names:
            self.bind(
                alias.asname or alias.name,
                QualifiedName(f"{module}.{alias.name}", is_certain=not self.guard_depth),
            )
            if alias.name != "*":
                self.check_api_name(f"{module}.{alias.name}", node, is_import=True)
            elif module == "os":
                self.bind("environ", QualifiedName("os.environ"))
                self.bind("system", QualifiedName("os.system"))

    def record_import(self, module: str, node: Any) -> None:
        """Record the first import of TensorFlow, if this module imports it."""
        package = module.partition(".")[0]
        if (
            package in _IMPORTS
            and (package != "keras" or not self.has_other_backend)
            and not self.state.import_line
        ):
            self.state.import_line, self.state.import_position = node.lineno, self.format_position(node)

    def s_assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        # In `a = b = 0` a correction of the value for one target would change the other.
        value_node = node.value if len(node.targets) == 1 else node
        for target in node.targets:
            self.assign(target, value, value_node)

    def s_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value), node.value)

    def s_augassign(self, node: ast.AugAssign) -> None:
        value = self.evaluate(node.value)
        if isinstance(node.target, ast.Name):
            base = self.look_up(node.target.id)
            if isinstance(base, QualifiedName) and base.name == "os.environ" and isinstance(value, DictValue):
                self.check_environ_entries(value, node)
                return
            self.bind(node.target.id, None)
        elif isinstance(node.target, ast.Subscript):
            self.assign(node.target, None, node.value)
        elif self.evaluate(node.target.value) is not None and isinstance(value, DictValue):
            base = self.evaluate(node.target)
            if isinstance(base, QualifiedName) and base.name == "os.environ":
                self.check_environ_entries(value, node)

    def assign(self, target: Any, value: Any, value_node: Any) -> None:
        """Assign a value to a target."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = (
                value.items
                if isinstance(value, SequenceValue) and len(value.items) == len(target.elts)
                else None
            )
            for number, element in enumerate(target.elts):
                self.assign(element, items[number] if items is not None else None, value_node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, None, value_node)
        elif isinstance(target, ast.Subscript):
            base, key = self.evaluate(target.value), self.evaluate(target.slice)
            self.check_item_assignment(base, key, target, value, value_node)
        elif isinstance(target, ast.Attribute):
            base = self.evaluate(target.value)
            self.check_attribute_assignment(base, target, value)
        elif isinstance(target, ast.Call):
            self.check_call_assignment(self.evaluate(target.func), target)

    def s_delete(self, _node: ast.Delete) -> None:
        return

    def s_if(self, node: ast.If) -> None:
        self.evaluate(node.test)
        is_version_test = self.is_version_test(node.test)
        if self.is_main_guard(node.test):  # the file is checked as the program that runs
            self.evaluate_body(node.body)
            return
        start_state = self.state.copy()
        self.guard_depth += is_version_test
        had_single_gpu = self.has_single_gpu
        self.has_single_gpu = had_single_gpu or self.is_single_gpu_test(node.test)
        self.branch_depth += 1
        has_gpus = self.is_gpu_test(node.test)
        body_values = self.evaluate_branch(node.body)
        self.has_single_gpu = had_single_gpu
        body_state, self.state = self.state, start_state.copy()
        else_values = self.evaluate_branch(node.orelse)
        self.branch_depth -= 1
        self.guard_depth -= is_version_test
        else_state = self.state
        # the code checked is meant to run on a machine with GPUs, so the body of `if gpus:` counts as executed
        self.state = (
            body_state.copy()
            if has_gpus and not node.orelse and not body_state.is_unreachable
            else merge_states(body_state, else_state)
        )
        self.state.is_unreachable = body_state.is_unreachable and else_state.is_unreachable
        self.bind_names(
            body_values
            if body_state.is_unreachable is False and else_state.is_unreachable
            else self.merge_bindings(body_values, else_values)
        )

    def evaluate_branch(
        self, *bodies: Sequence[ast.stmt], exception_name: str | None = None
    ) -> dict[str, Any]:
        """Evaluate statements that may not run. Return the values of the names that they bind.

        The names get their earlier values back. `exception_name` is the name to which an exception
        handler binds the exception.
        """
        scope = self.scopes[-1]
        self.branches.append((scope, {}))
        if exception_name is not None:
            self.bind(exception_name, None)
        for body in bodies:
            if not self.state.is_unreachable:
                self.evaluate_body(body)
        _, old_values = self.branches.pop()
        bound_values = {name: scope[name] for name in old_values}
        for name, value in old_values.items():
            if value is _UNBOUND:
                del scope[name]
            else:
                scope[name] = value
        return bound_values

    def merge_bindings(self, left_values: dict[str, Any], right_values: dict[str, Any]) -> dict[str, Any]:
        """Return the names that two branches bind, each with its certain value, its possible values, or an unknown one.

        A name that only one branch binds keeps that value if it was unbound before.
        """
        scope = self.scopes[-1]
        joined_values = {}
        for name in {**left_values, **right_values}:
            left_value = left_values.get(name, scope.get(name, _UNBOUND))
            right_value = right_values.get(name, scope.get(name, _UNBOUND))
            if left_value is _UNBOUND or right_value is _UNBOUND:
                joined_values[name] = right_value if left_value is _UNBOUND else left_value
            else:
                joined_values[name] = (
                    right_value
                    if is_same_value(left_value, right_value)
                    else self.merge_values(left_value, right_value)
                )
        return joined_values

    def bind_names(self, values: dict[str, Any]) -> None:
        """Bind names to values in this scope."""
        for name, value in values.items():
            self.bind(name, value)

    def merge_values(self, first_value: Any, second_value: Any) -> Any:
        """Return the value of a name that has one of two values, or None if it is unknown."""
        for left, right in ((first_value, second_value), (second_value, first_value)):
            if (
                isinstance(left, QualifiedName)
                and left.name.startswith("tensorflow")
                and isinstance(right, QualifiedName)
            ):
                return QualifiedName(left.name, is_certain=False)
        if isinstance(first_value, DictValue) and first_value is second_value:
            return first_value
        return None

    def s_for(self, node: Any) -> None:
        iterable = self.evaluate(node.iter)
        loop_value = self.evaluate_loop_variable(iterable, node.iter)
        if isinstance(loop_value, list):
            for value in loop_value:
                self.assign(node.target, value, node.iter)
                self.evaluate_body(node.body)
                self.state.is_unreachable = False
        else:
            self.assign(node.target, loop_value, node.iter)
            # a loop that always ends in its first turn sees only the first GPU
            ends_with_break = bool(node.body) and isinstance(node.body[-1], ast.Break)
            if ends_with_break and isinstance(loop_value, ObjectValue) and loop_value.kind == "gpu":
                self.assign(node.target, ObjectValue("gpu", 0), node.iter)
            self.open_loops.append(node)
            self.evaluate_body(node.body)
            self.open_loops.pop()
        self.state.is_unreachable = False
        self.evaluate_body(node.orelse)

    s_asyncfor = s_for

    def s_assert(self, node: ast.Assert) -> None:
        self.evaluate(node.test)
        self.has_single_gpu = self.has_single_gpu or self.is_single_gpu_test(node.test)

    def s_while(self, node: ast.While) -> None:
        self.evaluate(node.test)
        for child in ast.walk(node):  # a counter has another value in each turn
            if isinstance(child, ast.AugAssign) and isinstance(child.target, ast.Name):
                self.bind(child.target.id, None)
        self.evaluate_body(node.body)
        self.state.is_unreachable = False
        self.evaluate_body(node.orelse)

    def s_try(self, node: Any) -> None:
        is_guard = any(self._is_guard(handler) for handler in node.handlers)
        start_state = self.state.copy()
        self.guard_depth += is_guard
        bound_values = self.evaluate_branch(node.body, node.orelse)
        body_state = self.state.copy()
        for handler in node.handlers:
            self.state = start_state.copy()
            handler_values = self.evaluate_branch(handler.body, exception_name=handler.name)
            if not self.state.is_unreachable:
                bound_values |= self.merge_bindings(handler_values, bound_values)
        self.bind_names(bound_values)
        self.guard_depth -= is_guard
        self.state = body_state
        self.evaluate_body(node.finalbody)

    s_trystar = s_try

    def _is_guard(self, handler: ast.ExceptHandler) -> bool:
        """Return whether an exception handler catches an error that a missing module or name raises."""
        exceptions = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
        return any(
            exception is None or (isinstance(exception, ast.Name) and exception.id in _GUARD_ERRORS)
            for exception in exceptions
        )

    def s_with(self, node: Any) -> None:
        outer_device_count, outer_graph_mode = len(self.open_devices), self.is_graph_mode
        for item in node.items:
            value = self.evaluate(item.context_expr)
            self.enter_context(item.context_expr, value)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, item.context_expr)
        self.evaluate_body(node.body)
        del self.open_devices[outer_device_count:]
        self.is_graph_mode = outer_graph_mode

    s_asyncwith = s_with

    def s_return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.returned_values.append(self.evaluate(node.value))
        self.state.is_unreachable = True

    def s_raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self.evaluate(node.exc)
        self.state.is_unreachable = True

    def s_break(self, _node: ast.Break) -> None:
        self.state.is_unreachable = True

    s_continue = s_break

    def s_match(self, node: Any) -> None:
        self.evaluate(node.subject)
        start = self.state.copy()
        for case in node.cases:
            self.state = start.copy()
            self.evaluate_body(case.body)
        self.state = start  # it is unknown which case runs

    def s_functiondef(self, node: Any) -> None:
        for decorator in node.decorator_list:
            self.evaluate(decorator)
        for value in (*node.args.defaults, *node.args.kw_defaults):
            if value is not None:
                self.evaluate(value)
        self.bind(node.name, self.evaluate_definition(node))

    s_asyncfunctiondef = s_functiondef

    def evaluate_definition(self, node: Any, *, in_class: bool = False) -> FunctionValue:
        """Return the value of a function definition."""
        decorators = " ".join(ast.dump(decorator) for decorator in node.decorator_list)
        function = FunctionValue(
            node,
            is_method=in_class and "staticmethod" not in decorators,
            is_graph="'function'" in decorators,
            cell_number=self.cell_number,
            lines=self.lines,
        )
        self.defined_functions.append(function)
        if id(node) not in self.checked_function_ids:
            self.checked_function_ids.add(id(node))
            self.check_unused_configs(node.body)
        return function

    def s_classdef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            self.evaluate(base)
        class_value = ClassValue()
        self.scopes.append({})
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for decorator in statement.decorator_list:
                    self.evaluate(decorator)
                class_value.methods[statement.name] = self.evaluate_definition(statement, in_class=True)
            else:
                self.evaluate_statement(statement)
        self.scopes.pop()
        self.bind(node.name, class_value)

    # ---------------------------------------------------------------- names and calls

    def bind(self, name: str, value: Any) -> None:
        """Bind a name in this scope. In a branch, save its earlier value."""
        scope = self.scopes[-1]
        if self.branches and self.branches[-1][0] is scope:
            self.branches[-1][1].setdefault(name, scope.get(name, _UNBOUND))
        scope[name] = value

    def look_up(self, name: str) -> Any:
        """Return the value of a name, or None if it is unknown."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return QualifiedName(name) if name in _BUILTINS or name.startswith("__tfdoctor") else None

    def evaluate_function(
        self, function: FunctionValue, values: list[Any] | None, keywords: dict[str, Any] | None = None
    ) -> Any:
        """Evaluate a function's body. Return its value, or None unless exactly one `return` was evaluated.

        `values` are the positional arguments. None means that the function is evaluated without a call.
        """
        node = function.node
        run_count = self.evaluation_counts.get(id(node), 0)
        if (
            id(node) in self.running_function_ids
            or len(self.running_function_ids) >= MAX_CALL_DEPTH
            or self.step_count > MAX_STEPS
            or run_count >= MAX_CALLS_PER_FUNCTION
        ):
            return None
        self.evaluation_counts[id(node)] = run_count + 1
        self.evaluated_function_ids.add(id(node))
        scope: dict[str, Any] = {}
        arguments = [*getattr(node.args, "posonlyargs", []), *node.args.args]
        names = [argument.arg for argument in arguments]
        for name in [*names, *(argument.arg for argument in node.args.kwonlyargs)]:
            scope[name] = None
        if values is not None:
            defaults = node.args.defaults
            for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=False):
                scope[name] = self.evaluate(value)
            scope.update(zip(names[1:] if function.is_method else names, values, strict=False))
            scope.update({name: value for name, value in (keywords or {}).items() if name in scope})
        outer_scopes = self.scopes
        # a call also sees the names of its caller, which a nested function needs
        self.scopes = [self.globals, *([] if values is None else self.scopes[1:]), scope]
        outer_returned, self.returned_values = self.returned_values, []
        outer_position = self.cell_number, self.lines
        outer_graph_mode, outer_devices, outer_loops = self.is_graph_mode, self.open_devices, self.open_loops
        self.is_graph_mode = self.is_graph_mode or function.is_graph
        if values is None:
            self.open_devices, self.open_loops = [], []
        self.running_function_ids.append(id(node))
        self.cell_number, self.lines = function.cell_number, function.lines
        try:
            if isinstance(node, ast.Lambda):
                self.returned_values.append(self.evaluate(node.body))
            else:
                self.evaluate_body(node.body)
        finally:
            self.running_function_ids.pop()
        self.state.is_unreachable = False
        returned_values, self.returned_values = self.returned_values, outer_returned
        self.scopes = outer_scopes
        self.is_graph_mode, self.open_devices, self.open_loops = outer_graph_mode, outer_devices, outer_loops
        self.cell_number, self.lines = outer_position
        return returned_values[0] if len(returned_values) == 1 else None

    def evaluate(self, node: Any) -> Any:
        """Return the value of an expression, or None if it is unknown."""
        self.step_count += 1
        if self.step_count > MAX_STEPS or self.expression_depth > 150:  # well below Python's recursion limit
            return None
        self.expression_depth += 1
        try:
            handler = getattr(self, f"e_{type(node).__name__.lower()}", None)
            if handler is not None:
                return handler(node)
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.expr, ast.keyword)):
                    self.evaluate(child.value if isinstance(child, ast.keyword) else child)
            return None
        finally:
            self.expression_depth -= 1

    def e_constant(self, node: ast.Constant) -> Any:
        return ConstantValue(node.value)

    def e_name(self, node: ast.Name) -> Any:
        return self.look_up(node.id)

    def e_namedexpr(self, node: ast.NamedExpr) -> Any:
        value = self.evaluate(node.value)
        self.bind(node.target.id, value)
        return value

    def e_attribute(self, node: ast.Attribute) -> Any:
        base = self.evaluate(node.value)
        if isinstance(base, QualifiedName):
            if len(base.name) > MAX_PATH_CHARS:
                return None
            path = QualifiedName(f"{base.name}.{node.attr}", base.is_certain)
            if base.name.startswith("tensorflow"):
                self.check_api_name(path.name, node, is_sure=base.is_certain)
            return path
        return self.evaluate_attribute(base, node)

    def e_lambda(self, node: ast.Lambda) -> Any:
        function = FunctionValue(node, cell_number=self.cell_number, lines=self.lines)
        self.defined_functions.append(function)
        return function

    def e_ifexp(self, node: ast.IfExp) -> Any:
        self.evaluate(node.test)
        is_version_test = self.is_version_test(node.test)
        self.guard_depth += is_version_test
        body_value, else_value = self.evaluate(node.body), self.evaluate(node.orelse)
        self.guard_depth -= is_version_test
        return (
            body_value if is_same_value(body_value, else_value) else self.merge_values(body_value, else_value)
        )

    def e_boolop(self, node: ast.BoolOp) -> Any:
        is_version_test = any(self.is_version_test(operand) for operand in node.values)
        self.guard_depth += is_version_test
        for operand in node.values:
            self.evaluate(operand)
        self.guard_depth -= is_version_test

    def _evaluate_elements(self, node: Any) -> Any:
        """Return the value of a list, tuple or set. It is None if an element is starred."""
        items, nodes, is_complete = [], [], True
        for element in node.elts:
            if isinstance(element, ast.Starred):
                self.evaluate(element.value)
                is_complete = False
            else:
                items.append(self.evaluate(element))
                nodes.append(element)
        return SequenceValue(items, nodes) if is_complete else None

    e_list = e_tuple = e_set = _evaluate_elements

    def e_dict(self, node: ast.Dict) -> Any:
        result = DictValue([])
        for key, value in zip(node.keys, node.values, strict=False):
            if key is None:
                unpacked_value = self.evaluate(value)
                result.is_complete = False
                if isinstance(unpacked_value, DictValue):
                    self.count_work(len(unpacked_value.entries))
                    result.entries += unpacked_value.entries
                    result.is_environ_copy |= unpacked_value.is_environ_copy
                result.is_environ_copy |= (
                    isinstance(unpacked_value, QualifiedName) and unpacked_value.name == "os.environ"
                )
            else:
                result.entries.append((self.evaluate(key), self.evaluate(value), key, value))
        if result.is_environ_copy:
            self.check_environ_entries(result, node, in_copy=True)
        return result

    def e_subscript(self, node: ast.Subscript) -> Any:
        base = self.evaluate(node.value)
        key = None if isinstance(node.slice, ast.Slice) else self.evaluate(node.slice)
        return self.evaluate_item(base, key, node)

    def e_compare(self, node: ast.Compare) -> Any:
        for operand in (node.left, *node.comparators):
            self.evaluate(operand)

    def _evaluate_comprehension(self, node: Any) -> Any:
        """Return the value of a comprehension over a known iterable, or None if it is unknown."""
        self.scopes.append({})
        iterable: Any = None
        for item in node.generators:
            iterable = self.evaluate(item.iter)
            loop_value = self.evaluate_loop_variable(iterable, item.iter)
            self.assign(item.target, None if isinstance(loop_value, list) else loop_value, item.iter)
            for test in item.ifs:
                self.evaluate(test)
        element = self.evaluate(node.elt)
        is_simple = len(node.generators) == 1 and not node.generators[0].ifs
        self.scopes.pop()
        if is_simple and isinstance(element, MultipleValues):
            return SequenceValue(
                [ConstantValue(item) for item in element.values], [node.elt] * len(element.values)
            )
        if (
            is_simple
            and isinstance(element, ObjectValue)
            and element.kind == "gpu"
            and element.data == "each"
        ):
            return ObjectValue("gpus")
        return None

    e_listcomp = e_generatorexp = e_setcomp = _evaluate_comprehension

    def e_dictcomp(self, node: ast.DictComp) -> Any:
        self.scopes.append({})
        for generator in node.generators:
            self.assign(
                generator.target,
                self.evaluate_loop_variable(self.evaluate(generator.iter), generator.iter),
                generator.iter,
            )
        self.evaluate(node.key)
        self.evaluate(node.value)
        self.scopes.pop()
        return DictValue([], is_complete=False)

    def e_call(self, node: ast.Call) -> Any:
        func = self.evaluate(node.func)
        args = []
        for argument in node.args:
            argument_value = self.evaluate(argument.value if isinstance(argument, ast.Starred) else argument)
            args.append(None if isinstance(argument, ast.Starred) else argument_value)
        keywords = {argument.arg: self.evaluate(argument.value) for argument in node.keywords}
        named_arguments = {name: value for name, value in keywords.items() if name}  # without **kwargs
        if isinstance(func, FunctionValue) and func.node is not None:
            if func.is_graph and not self.is_graph_mode:
                self.record_gpu_use(node)
            return self.evaluate_function(func, args, named_arguments)
        if isinstance(func, ClassValue):
            initializer = func.methods.get("__init__")
            if initializer is not None:
                self.evaluate_function(initializer, args, named_arguments)
            return ObjectValue("instance", func)
        return self.evaluate_call(func, node, args, keywords)
