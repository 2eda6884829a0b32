"""Devices: what a string names, what is pinned where, which GPUs are configured, and when."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.lint.reporter import Telling
from tfdoctor.lint.values import Many, Obj, Seq, constant

if TYPE_CHECKING:
    from tfdoctor.lint.models import LintTarget

__all__ = ["Devices", "device_of"]

_TYPES = ("CPU", "GPU", "XLA_CPU", "XLA_GPU", "TPU", "TPU_SYSTEM", "COMPOSITE", "CUSTOM", "EPU", "NPU")
_PART = re.compile(
    r"(?i:(?P<task>(?:job:[\w.\-]+|replica:\d+|task:\d+))|(?:device:)?(?P<kind>[A-Za-z_]+)(?::(?P<index>\d+|\*))?)\Z"
)
_CPU_ONLY = frozenset(
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
"""Names of operations that have no kernel for GPUs."""
_CPU_MODULES = re.compile(
    r"strings\.|summary\.(?:scalar|histogram|image|audio|merge|text)|image\.(?:decode_|encode_)|io\.(?:decode_|read_file|parse_)|"
    r"train\.(?:string_input_producer|batch|shuffle_batch|slice_input_producer|range_input_producer)\Z|"
    r"nn\.(?:ctc_|in_top_k)"
)
_INTEGERS = ("int32", "int16", "int8", "uint8", "uint16", "bool", "string")
_STEPS = re.compile(
    r"(?i)_\Z|epoch|step|iter|batch|trial|repeat|run|round|layer|block|attempt|time|rep\Z|_+\Z"
)
_COUNTS = re.compile(r"(?i)gpu|tower|device|card|replica|worker|clone")


def device_of(text: str) -> tuple[str, int | None] | None:
    """Return (its kind in capitals, its index) of what tf.device takes; ("", None) where it names none.

    None: no device.
    """
    kind, index = "", None
    for part in text.strip("/").split("/") if text.strip("/") else ():
        match = _PART.match(part)
        if match is None:
            return None
        if match["task"]:
            continue
        if match["kind"].upper() not in _TYPES:
            return None
        kind = match["kind"].upper()
        index = int(match["index"]) if (match["index"] or "*") != "*" else None
    return kind, index


class Devices(Telling):
    """Where a program puts its work."""

    visible: int | None

    def __init__(self, asked: LintTarget, text: str) -> None:
        super().__init__(asked, text)
        self.growth: list[tuple[Any, Any, int | None, list[str]]] = []
        self.growth_on_all = False
        self.tower_loops: dict[int, tuple[frozenset[str], frozenset[int]]] = {}
        """Loop, by id → `_tower_loop` of it."""
        self.pins: list[tuple[Any, str, int | None, list[str]]] = []
        self.split = (
            re.search(r"set_(?:logical|virtual)_device_configuration|VirtualDevice|device_count", text)
            is not None
        )
        self.chosen = re.search(r"set_visible_devices|visible_device_list", text) is not None
        self.sessions: list[bool | None] = []

    # ---------------------------------------------------------------- tf.device

    def enter_context(self, node: Any, value: Any) -> None:
        """`with …:`."""
        if isinstance(value, Obj) and value.kind == "device":
            given = node.args[0] if getattr(node, "args", None) else node
            self.device_named(value.data, given)
            self.devices.append(value.data)
            self.check_towers(value.data, node)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "as_default"
        ):
            self.graph = True  # a graph of its own: nothing runs yet

    def device_named(self, value: Any, node: Any) -> None:
        texts = value.values if isinstance(value, Many) else [constant(value)]
        self.spend(8 * len(texts))
        for text in texts:
            if isinstance(text, str):
                self.check_device(text, node)

    def check_device(self, text: str, node: Any) -> None:
        found = device_of(text)
        if found is None:
            self.tell(
                "no-such-device",
                node,
                f"{text!r} is not the name of a device. Names are /GPU:0, /device:GPU:0, /CPU:0.",
            )
            return
        kind, index = found
        remote = re.search(r"(?i)/?(?:job|task):", text) is not None
        gpus = self.asked.gpus
        if kind == "GPU" and index is not None and not self.split and not remote:
            if self.visible is not None and index >= self.visible and not self.maybe:
                many = f"{self.visible} GPU{'s' if self.visible != 1 else ''}"
                self.tell(
                    "no-such-device",
                    node,
                    f"{text} is not there: CUDA_VISIBLE_DEVICES leaves {many}, counted from 0.",
                )
            elif gpus is not None and index >= gpus:
                self.tell(
                    "no-such-device",
                    node,
                    f"{text} is not there: this machine has {gpus} GPU{'s' if gpus != 1 else ''}, counted from 0.",
                )

    def check_towers(self, device: Any, node: Any) -> None:
        """A loop over towers, each of which goes to the same card."""
        text = constant(device)
        found = device_of(text) if isinstance(text, str) else None
        if found is None or found[0] != "GPU" or not self.loops:
            return
        loop = self.loops[-1]
        if id(loop) not in self.tower_loops:
            self.tower_loops[id(loop)] = self._tower_loop(loop)
        names, device_calls = self.tower_loops[id(loop)]
        if not names or device_calls - {id(node)}:
            return
        if any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node)):
            return
        self.tell(
            "all-on-one-device",
            node,
            f"Every turn of this loop goes to {text}; the other GPUs get nothing. Put the loop's number into the name.",
        )

    def _tower_loop(self, loop: Any) -> tuple[frozenset[str], frozenset[int]]:
        """Return the names that a loop over towers sets, none for any other loop, and its calls of `device`, by id."""
        names = frozenset(one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name))
        if any(_STEPS.search(name) for name in names) or not self._loops_over_towers(loop):
            return frozenset(), frozenset()
        calls = (one for one in ast.walk(loop) if isinstance(one, ast.Call))
        return names, frozenset(
            id(one) for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "device"
        )

    @staticmethod
    def _loops_over_towers(loop: Any) -> bool:
        over = loop.iter
        said = " ".join(
            [one.id for one in ast.walk(over) if isinstance(one, ast.Name)]
            + [one.attr for one in ast.walk(over) if isinstance(one, ast.Attribute)]
        )
        if _COUNTS.search(said):
            return True
        if not (
            isinstance(over, ast.Call)
            and isinstance(over.func, ast.Name)
            and over.func.id in ("range", "xrange", "enumerate")
        ):
            return False
        bounds = [
            one.value
            for one in ast.walk(over)
            if isinstance(one, ast.Constant) and isinstance(one.value, int)
        ]
        if not bounds or not 2 <= max(bounds) <= 16:
            return False
        for one in ast.walk(loop):
            if (
                isinstance(one, ast.Call)
                and isinstance(one.func, ast.Attribute)
                and one.func.attr in ("append", "name_scope", "variable_scope")
            ):
                return True
        return False

    # ---------------------------------------------------------------- what is configured

    def check_configuration(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        if self.state.used:
            what = (
                "Memory growth"
                if "growth" in name
                else "Visible devices"
                if "visible" in name
                else "Logical devices"
            )
            self.tell(
                "configured-too-late",
                node,
                f"{what} cannot be set after the GPUs were initialized "
                f"({self.state.use_place}): TensorFlow raises RuntimeError.",
            )
        if not name.endswith("set_memory_growth"):
            return
        device = args[0] if args else keywords.get("device")
        enabled = constant(args[1] if len(args) > 1 else keywords.get("enable"))
        if enabled is False:
            return
        if isinstance(device, Obj) and device.kind == "gpu" and device.data is not None:
            if device.data == "each":
                self.growth_on_all = True
            else:
                self.growth.append((node, device.data, self.cell_number, self.lines))
                if self.single:
                    self.growth_on_all = True
        else:
            self.growth_on_all = True  # which one it is, is not known

    def judge_growth(self) -> None:
        """At the end of the file: whether some were left out."""
        indices = {index for _, index, _, _ in self.growth}
        if not self.growth or self.growth_on_all or self.chosen or self.visible == 1 or self.asked.gpus == 1:
            return
        known = self.asked.gpus or self.visible
        numbers = {one for one in indices if isinstance(one, int)}
        if len(indices) > 1 and (known is None or len(numbers) >= known):
            return
        for node, _, cell, lines in self.growth:
            self.cell_number, self.lines = cell, lines
            self.tell(
                "growth-not-on-all",
                node,
                "Memory growth is set for some of the GPUs only: with several, TensorFlow "
                "raises ValueError. Set it for each in a loop.",
            )

    # ---------------------------------------------------------------- strategies

    def strategy(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        for key in ("num_gpus", "num_gpus_per_worker"):
            if isinstance(constant(keywords.get(key)), int):
                self.tell(
                    "hard-coded-devices",
                    node,
                    "The number of GPUs is written out. Without it, the strategy takes those that are there.",
                )
                return
        if name.endswith("MultiWorkerMirroredStrategy"):
            return
        key = "compute_devices" if "CentralStorage" in name else "devices"
        given = args[0] if args else keywords.get(key)
        if not isinstance(given, Seq):
            return
        texts = [constant(one) for one in given.items]
        self.spend(16 * len(texts))
        if not texts or not all(isinstance(one, str) for one in texts):
            return
        for text, at in zip(texts, given.nodes, strict=False):
            self.check_device(text, at)
        kinds = [device_of(text) for text in texts]
        if any(one is not None and one[0] == "GPU" for one in kinds):
            self.tell(
                "hard-coded-devices",
                node,
                "The devices are written out. Without them, the strategy takes the GPUs that are there.",
            )

    def check_gpu_count(self, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """multi_gpu_model(model, gpus=4)."""
        given = args[1] if len(args) > 1 else keywords.get("gpus")
        if isinstance(constant(given), int) or any(
            one.arg == "gpus" and isinstance(one.value, ast.Constant) and isinstance(one.value.value, int)
            for one in node.keywords
        ):
            self.tell(
                "hard-coded-devices",
                node,
                "The number of GPUs is written out. tf.distribute.MirroredStrategy takes those that are there.",
            )

    # ---------------------------------------------------------------- soft placement

    def check_pinned_operation(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """An operation of a graph inside `with tf.device("/gpu:0")`."""
        device = constant(self.devices[-1]) if self.devices else None
        found = device_of(device) if isinstance(device, str) else None
        if not self.graph or found is None or found[0] != "GPU":
            return
        cpu_only = name in _CPU_ONLY or _CPU_MODULES.match(name) is not None
        if name in ("Variable", "get_variable", "constant", "placeholder"):
            cpu_only = self.integers(name, node, args, keywords)
        if cpu_only:
            self.pins.append((node, name, self.cell_number, self.lines))

    def integers(self, name: str, node: Any, args: list[Any], keywords: dict[Any, Any]) -> bool:
        place = {"Variable": 99, "get_variable": 2, "constant": 1, "placeholder": 0}[name]
        given = next(
            (one.value for one in node.keywords if one.arg == "dtype"),
            node.args[place] if len(node.args) > place else None,
        )
        if given is not None:
            kind = (
                given.attr
                if isinstance(given, ast.Attribute)
                else given.value
                if isinstance(given, ast.Constant)
                else ""
            )
            return kind == "string" or (kind in _INTEGERS and name in ("Variable", "get_variable"))
        value = args[0] if args else keywords.get("initial_value", keywords.get("value"))
        first = value.items[0] if isinstance(value, Seq) and value.items else value
        held = constant(first)
        if isinstance(held, str):
            return name in ("Variable", "constant")
        return name == "Variable" and isinstance(held, int)

    def judge_pins(self) -> None:
        """At the end of the file: whether a session is made that does not place softly."""
        if not self.pins or not self.sessions or any(soft is not False for soft in self.sessions):
            return
        for node, name, cell, lines in self.pins:
            self.cell_number, self.lines = cell, lines
            self.tell(
                "no-soft-placement",
                node,
                f"tf.{name} has no GPU kernel for this and is pinned to a GPU: TensorFlow "
                "refuses. Put it on the CPU, or use ConfigProto(allow_soft_placement=True).",
            )
