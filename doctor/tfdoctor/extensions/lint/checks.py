"""All checks of Python code: variables, options, calls and devices. `Evaluator` calls them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.extensions.lint.clusters import ClusterChecks
from tfdoctor.extensions.lint.configs import KINDS_BY_OPTIONS_CLASS, ConfigChecks
from tfdoctor.extensions.lint.devices import DeviceChecks
from tfdoctor.extensions.lint.known_names import guess_function
from tfdoctor.extensions.lint.reporter import MAX_TEXT_CHARS
from tfdoctor.extensions.lint.values import (
    ClassValue,
    ConstantValue,
    DictValue,
    MultipleValues,
    ObjectValue,
    QualifiedName,
    SequenceValue,
    get_constant,
)

if TYPE_CHECKING:
    from tfdoctor.extensions.lint.models import LintTarget

__all__ = ["PythonChecks"]

_SESSION_CLASSES = ("Session", "InteractiveSession", "train.MonitoredTrainingSession", "train.Supervisor")
_DEVICE_QUERIES = (
    "config.list_logical_devices",
    "config.experimental.list_logical_devices",
    "test.is_gpu_available",
    "test.gpu_device_name",
    "python.client.device_lib.list_local_devices",
)
_CONFIGURATION_FUNCTIONS = (
    "config.set_visible_devices",
    "config.experimental.set_visible_devices",
    "config.experimental.set_memory_growth",
    "config.set_logical_device_configuration",
    "config.experimental.set_virtual_device_configuration",
)
_STRATEGY_CLASSES = ("MirroredStrategy", "CentralStorageStrategy", "MultiWorkerMirroredStrategy")
_GPU_OPERATIONS = frozenset(
    [
        "constant",
        "Variable",
        "ones",
        "zeros",
        "ones_like",
        "zeros_like",
        "matmul",
        "add",
        "add_n",
        "multiply",
        "subtract",
        "divide",
        "range",
        "linspace",
        "fill",
        "eye",
        "cast",
        "reshape",
        "concat",
        "stack",
        "unstack",
        "split",
        "tile",
        "transpose",
        "expand_dims",
        "squeeze",
        "one_hot",
        "gather",
        "gather_nd",
        "where",
        "sqrt",
        "exp",
        "square",
        "abs",
        "pow",
        "sigmoid",
        "tanh",
        "maximum",
        "minimum",
        "argmax",
        "argmin",
        "convert_to_tensor",
        "identity",
        "einsum",
        "tensordot",
        "norm",
        "sort",
        "argsort",
        "clip_by_value",
        "equal",
        "random_normal",
        "random_uniform",
        "reduce_sum",
        "reduce_mean",
        "reduce_max",
        "reduce_min",
        "reduce_prod",
        "reduce_all",
        "reduce_any",
    ]
)
"""Operations that initialize the GPUs if they run eagerly."""
_MAX_RANGE_ITEMS = 64
"""The most values of a `range(…)` that are evaluated."""
_OPERATION_MODULES = ("math.", "linalg.", "nn.", "signal.", "image.", "strings.", "data.Dataset.")
_RANDOM_OPERATIONS = (
    "random.normal",
    "random.uniform",
    "random.truncated_normal",
    "random.shuffle",
    "random.categorical",
)
_MODEL_CALLS = re.compile(
    r"keras\.(?:models\.)?(?:Sequential|Model)\Z|keras\.models\.(?:load_model|model_from_\w+)\Z"
)
"""Calls that return a model. Its weights are created at once if the call has an input shape."""
_BUILT_MODEL_CALLS = re.compile(r"keras\.(?:applications\.(?:\w+\.)?[A-Z]\w+|models\.load_model)\Z")
"""Calls that return a model with weights."""
_MODEL_METHODS = frozenset(
    ["fit", "predict", "evaluate", "build", "train_on_batch", "predict_on_batch", "fit_generator"]
)
"""Methods that create the weights of a model."""
_VERSION_TEST = re.compile(
    r"__version__|VERSION|hasattr|version_info|Version|tf_?2|TF_?2|is_tf1|IS_TF|tf_version|executing_eagerly|TF_VERSION",
    re.I,
)
"""Names that suggest a test of the TensorFlow version: `if IS_TF2:`, `if hasattr(tf, "contrib"):`."""


class PythonChecks(ConfigChecks, DeviceChecks, ClusterChecks):
    """All checks of Python code. The subclass `Evaluator` provides the values of expressions."""

    def __init__(self, target: LintTarget, text: str) -> None:
        super().__init__(target, text)
        self.is_graph_mode = target.is_tf1 or (
            re.search(r"\bdisable_(?:v2_behavior|eager_execution)\(", text) is not None
            or (
                target.tf_version is None
                and re.search(r"\btf\.(?:Session|placeholder|InteractiveSession)\(", text) is not None
            )
        )
        if "enable_eager_execution(" in text:
            self.is_graph_mode = False
        self.has_version_test = re.search(
            r"\b(?:tf|tensorflow)\.(?:__version__|VERSION)\b", text
        ) is not None and (
            re.search(r"\bif\b[^\n]{0,200}(?:__version__|VERSION|[vV]ersion)", text) is not None
        )
        self.has_other_backend = (
            re.search(r"KERAS_BACKEND['\"]?\]?\s*[=,:]\s*['\"](?!tensorflow)", text) is not None
        )
        self.sessions: list[bool | None] = []
        """Whether each session that is created uses soft placement. None if its config is unknown."""

    # ---------------------------------------------------------------- TensorFlow names

    def find_api_name(self, value: Any) -> str | None:
        """Return the TensorFlow name of a value, without "tensorflow.", "compat.v1." and "compat.v2.".

        Return None if the value does not come from TensorFlow.
        """
        if not isinstance(value, QualifiedName) or not value.name.startswith("tensorflow."):
            return None
        name = value.name.removeprefix("tensorflow.")
        for version in ("compat.v1.", "compat.v2."):
            name = name.removeprefix(version)
        return name

    def check_api_name(self, path: str, node: Any, *, is_sure: bool = True, is_import: bool = False) -> None:
        """Report a TensorFlow name that was removed, does not exist yet or is misspelt.

        `is_sure` says whether the path is certain, and `is_import` whether an import statement names all of it.
        """
        if not path.startswith("tensorflow."):
            return
        name = path.removeprefix("tensorflow.")
        # for these modules, the tables list no removed names
        if name.startswith(("python", "core", "compat", "keras", "examples", "tools", "_api", "lite")):
            if name.startswith(("compat.v1.config.", "compat.v1.distribute.")) and not self.guard_depth:
                self.check_function_name(name.removeprefix("compat.v1."), node)
            return
        if not self.guard_depth:
            self.check_function_name(name, node)
        if (
            self.guard_depth
            or not is_sure
            or self.has_version_test
            or (self.target.tf_version is None and self.is_python_2)
        ):
            return
        names = self.api_names
        if self.target.is_tf1:
            if name in names.added_names:
                self.report(
                    "removed-api",
                    node,
                    f"tf.{name} is of TensorFlow 2; {self.release_name} has no such name.{self.suggest_replacement(name)}",
                )
            return
        if name == "contrib" or (is_import and name.startswith("contrib.")):
            self.report(
                "removed-api",
                node,
                "tf.contrib is gone from TensorFlow 2. Parts of it are packages now "
                "(tf_slim, tensorflow_addons), others are in the core.",
            )
        elif name in names.removed_names:
            hint = "" if name in names.names_without_compat_v1 else f" Its name there is tf.compat.v1.{name}."
            self.report("removed-api", node, f"tf.{name} is gone from TensorFlow 2.{hint}")

    @property
    def release_name(self) -> str:
        """The target release for messages."""
        return ".".join(map(str, self.target.tf_version)) if self.target.tf_version else "TensorFlow 1"

    def suggest_replacement(self, name: str) -> str:
        """Return a sentence with the corresponding name in TensorFlow 1, or "" if there is none."""
        if name in (
            "config.list_physical_devices",
            "config.list_logical_devices",
            "config.set_visible_devices",
        ):
            return f" TensorFlow 1.14 and 1.15 have tf.config.experimental.{name.rpartition('.')[2]}."
        return ""

    def check_function_name(self, name: str, node: Any) -> None:
        """Report a misspelt function of tf.config or tf.distribute."""
        suggestion = guess_function(name)
        if suggestion is None or not isinstance(node, ast.Attribute):
            return
        offset = node.end_col_offset - len(node.attr.encode()) if node.end_col_offset else 0
        self.report(
            "misspelt-option",
            node,
            f"TensorFlow has no tf.{name}; did you mean {suggestion}?",
            fix=self.make_fix(node.end_lineno, offset, node.end_col_offset, node.attr, suggestion),
            position=(node.end_lineno, offset),
        )

    # ---------------------------------------------------------------- conditions

    def is_version_test(self, node: Any) -> bool:
        """Return whether a condition seems to test the TensorFlow version."""
        return any(
            (isinstance(child, ast.Attribute) and _VERSION_TEST.search(child.attr) is not None)
            or (isinstance(child, ast.Name) and _VERSION_TEST.search(child.id) is not None)
            for child in ast.walk(node)
        )

    def is_single_gpu_test(self, node: Any) -> bool:
        """Return whether a condition compares something with 1, such as `len(gpus) == 1`."""
        return any(
            isinstance(child, ast.Compare)
            and any(isinstance(operand, ast.Constant) and operand.value == 1 for operand in child.comparators)
            and isinstance(child.ops[0], ast.Eq)
            for child in ast.walk(node)
        )

    def is_gpu_test(self, node: Any) -> bool:
        """Return whether a condition tests for GPUs: `gpus`, or a comparison that begins with `len(gpus)`."""
        if isinstance(node, ast.Name):
            value = self.look_up(node.id)
            return isinstance(value, ObjectValue) and value.kind == "gpus"
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Call) and node.left.args:
            return self.is_gpu_test(node.left.args[0])
        return False

    @staticmethod
    def is_main_guard(node: Any) -> bool:
        """Return whether a condition compares `__name__`, as in `if __name__ == "__main__":`."""
        return (
            isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "__name__"
        )

    # ---------------------------------------------------------------- calls

    def evaluate_call(self, func: Any, node: Any, args: list[Any], keywords: dict[Any, Any]) -> Any:
        """Check a call of a function that the file does not define, and return its value, or None if unknown.

        `keywords` maps the names of the keyword arguments to their values. The key None stands for `**kwargs`.
        """
        if isinstance(func, ObjectValue):
            return self.evaluate_method_call(func, node, args, keywords)
        if not isinstance(func, QualifiedName):
            self.check_unknown_call(node, args, keywords)
            return None
        result = self.evaluate_environ_call(func.name, node, args, keywords)
        if result is not NotImplemented:
            return result
        name = self.find_api_name(func)
        if name is None:
            keras_name = func.name if func.name.startswith(("keras.", "tf_keras.")) else None
            if keras_name is not None:
                return self.evaluate_keras_call(keras_name, node, args)
            if func.name in ("range", "xrange"):
                return self.evaluate_range(args)
            if func.name == "enumerate" and args:
                return ObjectValue("enumerated", args[0])
            if func.name in ("list", "tuple", "sorted", "str") and len(args) == 1:
                return args[0] if func.name != "str" else self.evaluate_str(args[0])
            if func.name == "len":
                return ObjectValue("count", args[0]) if args else None
            if (
                func.name == "getattr"
                and len(args) > 1
                and isinstance(args[0], QualifiedName)
                and isinstance(get_constant(args[1]), str)
            ):
                return QualifiedName(f"{args[0].name}.{get_constant(args[1])}", is_certain=False)
            if func.name == "json.dumps" and args:
                return ObjectValue("json", args[0])
            return None
        self.check_option_keywords(name, node)
        return self.evaluate_tf_call(name, node, args, keywords)

    def evaluate_tf_call(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> Any:
        """Check a call of a TensorFlow function, and return its value, or None if it is unknown."""
        if name in KINDS_BY_OPTIONS_CLASS:
            return self.evaluate_options_call(name, node, keywords)
        if name in _SESSION_CLASSES:
            config = keywords.get("config", args[2] if len(args) > 2 else None)
            has_config = "config" in keywords or len(args) > 2 or any(key is None for key in keywords)
            places_softly = (
                config.data.get("soft", False)
                if isinstance(config, ObjectValue) and config.kind == "config" and config.data["known"]
                else (None if has_config else False)
            )
            self.sessions.append(places_softly)
            self.record_gpu_use(node)
            return ObjectValue("session")
        if name in _DEVICE_QUERIES:
            self.record_gpu_use(node)
            return ObjectValue("logical") if "list_logical" in name else None
        if name in (
            "config.list_physical_devices",
            "config.experimental.list_physical_devices",
            "config.get_visible_devices",
        ):
            device_type = args[0] if args else keywords.get("device_type")
            return ObjectValue("gpus") if get_constant(device_type) == "GPU" else None
        if name in _CONFIGURATION_FUNCTIONS:
            self.check_configuration(name, node, args, keywords)
            return None
        if name.endswith(_STRATEGY_CLASSES) and name.startswith(("distribute.", "contrib.distribute.")):
            self.check_strategy(name, node, args, keywords)
            if not self.is_graph_mode:
                self.record_gpu_use(node)
            return ObjectValue("strategy")
        if name == "keras.utils.multi_gpu_model":
            self.check_gpu_count(node, args, keywords)
            return None
        if name == "train.ClusterSpec":
            return self.evaluate_cluster_spec(node, args, keywords)
        if name in ("train.Server", "distribute.Server"):
            self.check_server(node, args, keywords)
            return None
        if name == "device":
            return ObjectValue("device", args[0] if args else keywords.get("device_name"))
        if name.startswith("keras."):
            return self.evaluate_keras_call(name, node, args)
        self.check_pinned_operation(name, node, args, keywords)
        if not self.is_graph_mode and (
            name in _GPU_OPERATIONS or name.startswith(_OPERATION_MODULES) or name in _RANDOM_OPERATIONS
        ):
            self.record_gpu_use(node)
        return None

    def evaluate_keras_call(self, name: str, node: Any, args: list[Any]) -> Any:
        """Check a call of a Keras function, and return its value, or None if it is unknown."""
        if _BUILT_MODEL_CALLS.search(name) and not self.is_graph_mode:
            self.record_gpu_use(node)
            return ObjectValue("model")
        if name.endswith("multi_gpu_model"):
            self.check_gpu_count(node, args, {keyword.arg: None for keyword in node.keywords})
        if _MODEL_CALLS.search(name):
            has_input_shape = any(
                isinstance(keyword, ast.keyword)
                and keyword.arg in ("input_shape", "batch_input_shape", "input_dim")
                for keyword in ast.walk(node)
            )
            if has_input_shape and not self.is_graph_mode:
                self.record_gpu_use(node)
            return ObjectValue("model")
        return None

    def evaluate_method_call(
        self, func: ObjectValue, node: Any, args: list[Any], keywords: dict[Any, Any]
    ) -> Any:
        """Check a method call, update its object, and return the call's value, or None if it is unknown."""
        receiver, method_name = func.data if func.kind == "method" else (None, "")
        if (
            isinstance(receiver, ObjectValue)
            and receiver.kind == "model"
            and method_name in _MODEL_METHODS
            and not self.is_graph_mode
        ):
            self.record_gpu_use(node)
        if (
            isinstance(receiver, ObjectValue)
            and receiver.kind == "instance"
            and isinstance(receiver.data, ClassValue)
        ):
            method = receiver.data.methods.get(method_name)
            if method is not None:
                return self.evaluate_function(method, args, {k: v for k, v in keywords.items() if k})
        if isinstance(receiver, DictValue):
            return self.evaluate_map_method(receiver, method_name, node, args, keywords)
        if isinstance(receiver, SequenceValue) and method_name == "append" and args and node.args:
            receiver.items.append(args[0])
            receiver.nodes.append(node.args[0])
        elif isinstance(receiver, SequenceValue) and method_name in (
            "extend",
            "insert",
            "pop",
            "remove",
            "clear",
        ):
            receiver.items.clear()
            receiver.nodes.clear()
        if (
            isinstance(receiver, ConstantValue)
            and isinstance(receiver.value, str)
            and method_name == "format"
        ):
            return self.evaluate_format(receiver.value, args, keywords)
        if isinstance(receiver, ConstantValue) and isinstance(receiver.value, str) and method_name == "join":
            argument = args[0] if args else None
            if (
                isinstance(argument, SequenceValue)
                and argument.items
                and all(
                    isinstance(item, ConstantValue) and isinstance(item.value, str) for item in argument.items
                )
                and sum(len(receiver.value) + len(item.value) for item in argument.items) <= MAX_TEXT_CHARS
            ):
                self.count_work(len(argument.items))
                return ConstantValue(receiver.value.join(item.value for item in argument.items))
            return ObjectValue("text")
        if (
            isinstance(receiver, ObjectValue)
            and receiver.kind in ("config", "options")
            and method_name in ("CopyFrom", "MergeFrom", "ParseFromString")
        ):
            receiver.data["known"] = False
        if (
            isinstance(receiver, ObjectValue)
            and receiver.kind == "strategy"
            and not self.is_graph_mode
            and method_name in ("run", "experimental_distribute_dataset")
        ):
            self.record_gpu_use(node)
        return None

    def evaluate_format(self, text: str, args: list[Any], keywords: dict[Any, Any]) -> Any:
        """Return the value of `text.format(…)`, which is known only for one placeholder and one argument."""
        if len(args) != 1 or keywords or not re.fullmatch(r"[^{}]*\{0?\}[^{}]*", text):
            return ObjectValue("text")
        values = (
            args[0].values
            if isinstance(args[0], MultipleValues)
            else [args[0].value]
            if isinstance(args[0], ConstantValue)
            else None
        )
        if values is None:
            return ObjectValue("text")
        self.count_work(len(values) * len(text))
        if sum(map(len, map(str, values))) + len(values) * len(text) > MAX_TEXT_CHARS:
            return ObjectValue("text")
        texts = [text.replace("{0}", "{}").replace("{}", str(item)) for item in values]
        return ConstantValue(texts[0]) if len(texts) == 1 else MultipleValues(texts)

    @staticmethod
    def evaluate_str(value: Any) -> Any:
        """Return the value of `str(value)`."""
        if isinstance(value, ConstantValue):
            return ConstantValue(str(value.value))
        return (
            MultipleValues([str(item) for item in value.values])
            if isinstance(value, MultipleValues)
            else ObjectValue("text")
        )

    @staticmethod
    def evaluate_range(args: list[Any]) -> Any:
        """Return the values of `range(…)`, or None for too many, a step or an unknown bound."""
        bounds = [get_constant(bound) for bound in args]
        if (
            bounds
            and all(isinstance(bound, int) and not isinstance(bound, bool) for bound in bounds)
            and len(bounds) <= 2
        ):
            values = range(*bounds)
            if len(values) <= _MAX_RANGE_ITEMS:
                return MultipleValues(list(values)) if values else None
        return None
