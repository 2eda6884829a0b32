"""Check device names, operations that are pinned to devices, and the configuration of GPUs."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.extensions.lint.reporter import Reporter
from tfdoctor.extensions.lint.values import MultipleValues, ObjectValue, SequenceValue, get_constant

if TYPE_CHECKING:
    from tfdoctor.extensions.lint.models import LintTarget

__all__ = ["DeviceChecks", "parse_device"]

_DEVICE_TYPES = ("CPU", "GPU", "XLA_CPU", "XLA_GPU", "TPU", "TPU_SYSTEM", "COMPOSITE", "CUSTOM", "EPU", "NPU")
_DEVICE_NAME_PART = re.compile(
    r"(?i:(?P<task>(?:job:[\w.\-]+|replica:\d+|task:\d+))|(?:device:)?(?P<kind>[A-Za-z_]+)(?::(?P<index>\d+|\*))?)\Z"
)
"""A part of a device name between slashes, such as job:worker, task:0, device:GPU:0 or GPU:0."""
_CPU_OPERATIONS = frozenset(
    [
        "as_string",
        "string_join",
        "string_split",
        "string_to_number",
        "string_to_hash_bucket",
        "string_to_hash_bucket_fast",
        "substr",
        "regex_replace",
        "decode_raw",
        "decode_csv",
        "read_file",
        "write_file",
        "matching_files",
        "py_func",
        "Print",
        "FIFOQueue",
        "RandomShuffleQueue",
        "PaddingFIFOQueue",
        "PriorityQueue",
        "TextLineReader",
        "WholeFileReader",
        "TFRecordReader",
        "FixedLengthRecordReader",
        "IdentityReader",
        "encode_base64",
        "decode_base64",
        "parse_example",
        "parse_single_example",
        "setdiff1d",
        "sparse_to_indicator",
        "parse_tensor",
        "serialize_tensor",
        "numpy_function",
    ]
)
"""Operations without a GPU kernel."""
_CPU_OPERATION_PATHS = re.compile(
    r"strings\.|summary\.(?:scalar|histogram|image|audio|merge|text)|image\.(?:decode_|encode_)|io\.(?:decode_|read_file|parse_)|"
    r"train\.(?:string_input_producer|batch|shuffle_batch|slice_input_producer|range_input_producer)\Z|"
    r"nn\.(?:ctc_|in_top_k)"
)
"""Paths of operations without a GPU kernel."""
_CPU_DTYPES = ("int32", "int16", "int8", "uint8", "uint16", "bool", "string")
"""Types whose variables have no GPU kernel."""
_STEP_NAME = re.compile(
    r"(?i)_\Z|epoch|step|iter|batch|trial|repeat|run|round|layer|block|attempt|time|rep\Z|_+\Z"
)
"""Found in the names of loop variables that do not count GPUs."""
_GPU_NAME = re.compile(r"(?i)gpu|tower|device|card|replica|worker|clone")
"""Found in the names in the iterable of a loop over GPUs."""


def parse_device(text: str) -> tuple[str, int | None] | None:
    """Parse a device name such as "/job:worker/device:GPU:0". Return (type in capitals, index).

    The type is "" if the name has only a job, a replica or a task. The index is None if it is missing or "*". Return
    None instead of the pair if the text is not a device name.
    """
    device_type, index = "", None
    for part in text.strip("/").split("/") if text.strip("/") else ():
        match = _DEVICE_NAME_PART.match(part)
        if match is None:
            return None
        if match["task"]:
            continue
        if match["kind"].upper() not in _DEVICE_TYPES:
            return None
        device_type = match["kind"].upper()
        # 18 digits suffice to see that there is no such device; int() refuses very long numbers
        index = int(match["index"][:18]) if (match["index"] or "*") != "*" else None
    return device_type, index


class DeviceChecks(Reporter):
    """The checks of devices and of the placement of operations.

    A tower is a copy of the model that a loop builds for each GPU.
    """

    visible_gpu_count: int | None
    """The number of visible GPUs. None if unknown."""

    def __init__(self, target: LintTarget, text: str) -> None:
        super().__init__(target, text)
        self.growth_calls: list[tuple[Any, Any, int | None, list[str]]] = []
        """(node, GPU index or "some", cell number, lines of the cell) for each call that sets growth for one GPU."""
        self.has_growth_on_all_gpus = False
        """Whether memory growth is, or may be, set for all GPUs."""
        self.tower_loops: dict[int, tuple[frozenset[str], frozenset[int]]] = {}
        """The result of `_inspect_tower_loop` for each loop, by the id of its node."""
        self.pinned_operations: list[tuple[Any, str, int | None, list[str]]] = []
        """(node, name, cell number, lines of the cell) for each CPU operation that is pinned to a GPU."""
        self.splits_gpus = (
            re.search(r"set_(?:logical|virtual)_device_configuration|VirtualDevice|device_count", text)
            is not None
        )
        """Whether the text seems to split GPUs into logical devices, so that there are more of them."""
        self.selects_gpus = re.search(r"set_visible_devices|visible_device_list", text) is not None
        """Whether the text selects the visible GPUs."""
        self.sessions: list[bool | None] = []
        """Whether each session uses soft placement. None if unknown."""

    # ---------------------------------------------------------------- tf.device

    def enter_context(self, node: Any, value: Any) -> None:
        """Enter a context manager of a `with` statement: tf.device, or the `as_default` of a graph."""
        if isinstance(value, ObjectValue) and value.kind == "device":
            argument = node.args[0] if getattr(node, "args", None) else node
            self.check_device_names(value.data, argument)
            self.open_devices.append(value.data)
            self.check_towers(value.data, node)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "as_default"
        ):
            self.is_graph_mode = True  # operations are added to the graph and do not run yet

    def check_device_names(self, value: Any, node: Any) -> None:
        """Check all values that the argument of tf.device can have."""
        texts = value.values if isinstance(value, MultipleValues) else [get_constant(value)]
        self.count_work(8 * len(texts))
        for text in texts:
            if isinstance(text, str):
                self.check_device(text, node)

    def check_device(self, text: str, node: Any) -> None:
        """Report a text that is not a device name, or that names a GPU that does not exist."""
        device = parse_device(text)
        if device is None:
            self.report(
                "no-such-device",
                node,
                f"{text!r} is not the name of a device. Names are /GPU:0, /device:GPU:0, /CPU:0.",
            )
            return
        device_type, index = device
        is_remote = re.search(r"(?i)/?(?:job|task):", text) is not None
        gpu_count = self.target.gpu_count
        if device_type == "GPU" and index is not None and not self.splits_gpus and not is_remote:
            if (
                self.visible_gpu_count is not None
                and index >= self.visible_gpu_count
                and not self.branch_depth
            ):
                count = f"{self.visible_gpu_count} GPU{'s' if self.visible_gpu_count != 1 else ''}, counted from 0"
                self.report(
                    "no-such-device",
                    node,
                    f"{text} is not there: CUDA_VISIBLE_DEVICES leaves {count if self.visible_gpu_count else 'none'}.",
                )
            elif gpu_count is not None and index >= gpu_count:
                self.report(
                    "no-such-device",
                    node,
                    f"{text} is not there: this machine has {gpu_count} GPU{'s' if gpu_count != 1 else ''}, counted from 0.",
                )

    def check_towers(self, device: Any, node: Any) -> None:
        """Report a loop over towers that puts all of them on the same GPU."""
        text = get_constant(device)
        parsed = parse_device(text) if isinstance(text, str) else None
        if parsed is None or not self.open_loops:
            return
        device_type, _ = parsed
        if device_type != "GPU":
            return
        loop = self.open_loops[-1]
        if id(loop) not in self.tower_loops:
            self.tower_loops[id(loop)] = self._inspect_tower_loop(loop)
        loop_variables, device_call_ids = self.tower_loops[id(loop)]
        if not loop_variables or device_call_ids - {
            id(node)
        }:  # not over towers, or with several devices in the loop
            return
        if any(isinstance(child, ast.Name) and child.id in loop_variables for child in ast.walk(node)):
            return
        self.report(
            "all-on-one-device",
            node,
            f"Every turn of this loop goes to {text}; the other GPUs get nothing. Put the loop's number into the name.",
        )

    def _inspect_tower_loop(self, loop: Any) -> tuple[frozenset[str], frozenset[int]]:
        """Return (names of the loop variables, ids of the calls of `device` in it) for a loop over towers.

        Both are empty for any other loop.
        """
        loop_variables = frozenset(child.id for child in ast.walk(loop.target) if isinstance(child, ast.Name))
        if any(_STEP_NAME.search(name) for name in loop_variables) or not self._loops_over_towers(loop):
            return frozenset(), frozenset()
        calls = (child for child in ast.walk(loop) if isinstance(child, ast.Call))
        return loop_variables, frozenset(
            id(child)
            for child in calls
            if isinstance(child.func, ast.Attribute) and child.func.attr == "device"
        )

    @staticmethod
    def _loops_over_towers(loop: Any) -> bool:
        """Return whether a loop seems to iterate over GPUs.

        It does if a name in its iterable suggests that. It also does if it counts up to a number from 2 to 16, and its
        body appends to a list or opens a scope.
        """
        iterable = loop.iter
        names = " ".join(
            [child.id for child in ast.walk(iterable) if isinstance(child, ast.Name)]
            + [child.attr for child in ast.walk(iterable) if isinstance(child, ast.Attribute)]
        )
        if _GPU_NAME.search(names):
            return True
        if not (
            isinstance(iterable, ast.Call)
            and isinstance(iterable.func, ast.Name)
            and iterable.func.id in ("range", "xrange", "enumerate")
        ):
            return False
        bounds = [
            child.value
            for child in ast.walk(iterable)
            if isinstance(child, ast.Constant) and isinstance(child.value, int)
        ]
        if not bounds or not 2 <= max(bounds) <= 16:
            return False
        for child in ast.walk(loop):
            if (
                isinstance(child, ast.Call)
                and isinstance(child.func, ast.Attribute)
                and child.func.attr in ("append", "name_scope", "variable_scope")
            ):
                return True
        return False

    # ---------------------------------------------------------------- configuration

    def check_configuration(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """Report a call that configures GPUs after their first use, and record a call that sets memory growth."""
        if self.state.first_use_line:
            setting = (
                "Memory growth"
                if "growth" in name
                else "Visible devices"
                if "visible" in name
                else "Logical devices"
            )
            self.report(
                "configured-too-late",
                node,
                f"{setting} cannot be set after the GPUs were initialized "
                f"({self.state.first_use_position}): TensorFlow raises RuntimeError.",
            )
        if not name.endswith("set_memory_growth"):
            return
        device = args[0] if args else keywords.get("device")
        is_enabled = get_constant(args[1] if len(args) > 1 else keywords.get("enable"))
        if is_enabled is False:
            return
        if isinstance(device, ObjectValue) and device.kind == "gpu" and device.data is not None:
            if device.data == "each":
                self.has_growth_on_all_gpus = True
            else:
                self.growth_calls.append((node, device.data, self.cell_number, self.lines))
                if self.has_single_gpu:
                    self.has_growth_on_all_gpus = True
        else:
            self.has_growth_on_all_gpus = True  # the GPU is unknown

    def report_partial_growth(self) -> None:
        """Report memory growth that is set for some GPUs only. Call this at the end of the file."""
        indices = {index for _, index, _, _ in self.growth_calls}
        if (
            not self.growth_calls
            or self.has_growth_on_all_gpus
            or self.selects_gpus
            or self.visible_gpu_count == 1
            or self.target.gpu_count == 1
        ):
            return
        gpu_count = self.target.gpu_count or self.visible_gpu_count
        known_indices = {item for item in indices if isinstance(item, int)}
        # calls for several GPUs may cover all of them
        if len(indices) > 1 and (gpu_count is None or len(known_indices) >= gpu_count):
            return
        for node, _, cell, lines in self.growth_calls:
            self.cell_number, self.lines = cell, lines
            self.report(
                "growth-not-on-all",
                node,
                "Memory growth is set for some of the GPUs only: with several, TensorFlow "
                "raises ValueError. Set it for each in a loop.",
            )

    # ---------------------------------------------------------------- strategies

    def check_strategy(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """Report hard-coded devices, or a hard-coded number of GPUs, that a strategy would find by itself."""
        for key in ("num_gpus", "num_gpus_per_worker"):
            if isinstance(get_constant(keywords.get(key)), int):
                self.report(
                    "hard-coded-devices",
                    node,
                    "The number of GPUs is written out. Without it, the strategy takes those that are there.",
                )
                return
        if name.endswith("MultiWorkerMirroredStrategy"):
            return
        key = "compute_devices" if "CentralStorage" in name else "devices"
        devices = args[0] if args else keywords.get(key)
        if not isinstance(devices, SequenceValue):
            return
        texts = [get_constant(item) for item in devices.items]
        self.count_work(16 * len(texts))
        if not texts or not all(isinstance(item, str) for item in texts):
            return
        for text, item_node in zip(texts, devices.nodes, strict=False):
            self.check_device(text, item_node)
        parsed_devices = [parsed for parsed in map(parse_device, texts) if parsed is not None]
        if any(device_type == "GPU" for device_type, _ in parsed_devices):
            self.report(
                "hard-coded-devices",
                node,
                "The devices are written out. Without them, the strategy takes the GPUs that are there.",
            )

    def check_gpu_count(self, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """Report a hard-coded number of GPUs, as in `multi_gpu_model(model, gpus=4)`."""
        count = args[1] if len(args) > 1 else keywords.get("gpus")
        if isinstance(get_constant(count), int) or any(
            keyword.arg == "gpus"
            and isinstance(keyword.value, ast.Constant)
            and isinstance(keyword.value.value, int)
            for keyword in node.keywords
        ):
            self.report(
                "hard-coded-devices",
                node,
                "The number of GPUs is written out. tf.distribute.MirroredStrategy takes those that are there.",
            )

    # ---------------------------------------------------------------- soft placement

    def check_pinned_operation(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """Record a graph operation without a GPU kernel that is pinned to a GPU with tf.device."""
        device = get_constant(self.open_devices[-1]) if self.open_devices else None
        parsed = parse_device(device) if isinstance(device, str) else None
        if not self.is_graph_mode or parsed is None:
            return
        device_type, _ = parsed
        if device_type != "GPU":
            return
        is_cpu_only = name in _CPU_OPERATIONS or _CPU_OPERATION_PATHS.match(name) is not None
        if name in ("Variable", "get_variable", "constant", "placeholder"):
            is_cpu_only = self.has_cpu_dtype(name, node, args, keywords)
        if is_cpu_only:
            self.pinned_operations.append((node, name, self.cell_number, self.lines))

    def has_cpu_dtype(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> bool:
        """Return whether a variable, constant or placeholder has a type without a GPU kernel."""
        # the position of the dtype among the arguments; tf.Variable takes it only by keyword, hence 99
        dtype_position = {"Variable": 99, "get_variable": 2, "constant": 1, "placeholder": 0}[name]
        dtype = next(
            (keyword.value for keyword in node.keywords if keyword.arg == "dtype"),
            node.args[dtype_position] if len(node.args) > dtype_position else None,
        )
        if dtype is not None:
            type_name = (
                dtype.attr
                if isinstance(dtype, ast.Attribute)
                else dtype.value
                if isinstance(dtype, ast.Constant)
                else ""
            )
            return type_name == "string" or (
                type_name in _CPU_DTYPES and name in ("Variable", "get_variable")
            )
        value = args[0] if args else keywords.get("initial_value", keywords.get("value"))
        first_item = value.items[0] if isinstance(value, SequenceValue) and value.items else value
        content = get_constant(first_item)
        if isinstance(content, str):
            return name in ("Variable", "constant")
        return name == "Variable" and isinstance(content, int)

    def report_pinned_operations(self) -> None:
        """Report the pinned operations if no session uses soft placement. Call this at the end of the file."""
        if (
            not self.pinned_operations
            or not self.sessions
            or any(places_softly is not False for places_softly in self.sessions)
        ):
            return
        for node, name, cell, lines in self.pinned_operations:
            self.cell_number, self.lines = cell, lines
            self.report(
                "no-soft-placement",
                node,
                f"tf.{name} has no GPU kernel for this and is pinned to a GPU: TensorFlow "
                "refuses. Put it on the CPU, or use ConfigProto(allow_soft_placement=True).",
            )
