"""payload/stages.py with a fake TensorFlow and a fake numpy: every way in which a stage can end.

test_stages_lab.py tests what real ones compute.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from payload.test_pythons import PYTHONS
from tfdoctor.system import LiveSystem
from tfdoctor.system.payloads import MARKER, run_payload
from tfdoctor.verification.stages import PAYLOAD_STAGES, Limits, PayloadResults, parse_payload_results

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.system import CommandResult

NUMPY = """
import sys
random = sys.modules[__name__]
class Array(object):
    T = property(lambda self: self)
    def max(self):
        return sys.modules["tensorflow"].FAKE["deviation"]
    def same(self, *args):
        return self
    astype = dot = reshape = same
    __add__ = __radd__ = __iadd__ = __sub__ = __mul__ = __truediv__ = __div__ = __getitem__ = same
    def __setitem__(self, key, value):
        pass
    shape = ()
class RandomState(object):
    def __init__(self, seed):
        pass
    def uniform(self, *args):
        return Array()
    randint = uniform
def zeros(shape):
    return Array()
def abs(array):
    return array
"""
"""The fake numpy: all its arrays are equal, and the fake TensorFlow decides the deviation of a result."""

TENSORFLOW = """
import contextlib, ctypes, json, os, signal, sys, time, types
FAKE = json.loads(os.environ["FAKE"])
sys.modules.setdefault("tensorflow", sys.modules[__name__])
class InternalError(Exception):
    def __init__(self, message):
        Exception.__init__(self, message + " and the stack of the graph")
        self.message = message
def act(at):
    what = FAKE["acts"].get(at)
    if what == "raise":
        raise InternalError("Blas GEMM launch failed at " + at + "\\n [[node MatMul]]")
    if what == "raise as 2.18":
        raise InternalError(
            "Graph execution error:\\n\\n2 root error(s) found.\\n  (0) INTERNAL: CUDA error: : CUDA_ERROR_X\\n"
            "\\t [[{{node a}}]]\\n  (1) INTERNAL: CUDA_ERROR_Y\\n0 successful operations."
        )
    if what == "raise as 2.10":
        raise InternalError(
            "Graph execution error:\\n\\nDetected at node 'MatMul' defined at (most recent call last):\\n"
            + "    File \\"a.py\\", line 1\\n      x = y\\n" * 60
            + "Node: 'MatMul'\\nBlas xGEMM launch failed\\n\\t [[x]]"
        )
    if what == "unsupported":
        raise InternalError("No OpKernel was registered to support Op 'MatMul'")
    if what == "exit":
        sys.exit("I would rather not")
    if what == "hang":
        time.sleep(60)
    if what == "hang in C":  # the interpreter's lock is held all the while
        ctypes.PyDLL(None).sleep(60)
    if what == "spin":
        while True:
            pass
    if what == "abort":
        os.write(2, b"F0000 00:00:1795278263.083682 24717 cuda.cc:31] Check failed: all is lost\\n*** stack\\n")
        os.abort()
    if what == "segv":
        ctypes.string_at(0)
    if what == "ill":
        os.kill(os.getpid(), signal.SIGILL)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "noise":
        for _ in range(300):
            os.write(1, b"x" * 16384)
        print("tfdoctor-payload:" + json.dumps({"stage": "nccl", "status": "passed"}))
act("import")
__version__ = FAKE["version"]
ERA = tuple(map(int, __version__.split(".")))
import numpy
NOW = [""]
class Node(object):
    def __init__(self, *args, **kw):
        self.op = self.initializer = self
    def __mul__(self, other):
        return self
class Options(object):
    def __init__(self, **kw):
        self.__dict__.update(kw)
ConfigProto = GPUOptions = Options
class Graph(object):
    @contextlib.contextmanager
    def as_default(self):
        yield
class Session(object):
    def __init__(self, config):
        assert config.gpu_options.allow_growth is True and config.allow_soft_placement is False
    def __enter__(self):
        act("session")
        return self
    def __exit__(self, *args):
        pass
    def run(self, fetched, fed=None):
        return [numpy.Array() for _ in fetched] if isinstance(fetched, list) else numpy.Array()
@contextlib.contextmanager
def device(name):
    NOW[0] = name
    yield
def placeholder(dtype, shape):
    return Node()
Variable = identity = cast = reduce_sum = group = Node
def matmul(left, right):
    act("matmul@" + NOW[0])
    return Node()
def cast(node, dtype):
    act(dtype + "@" + NOW[0])
    return Node()
def conv2d(image, kernel, strides, padding):
    act("conv2d@" + NOW[0])
    return Node()
def gradients(ys, xs, grad_ys):
    return [Node() for _ in xs]
nn = Options(conv2d=conv2d)
float32, float16 = "float32", "float16"
if ERA >= (1, 4):
    bfloat16 = "bfloat16"
GROWN = []
def list_physical_devices(kind):
    act("list")
    return [Options(name="/physical_device:%s:%d" % (kind, n), device_type=kind) for n in range(FAKE["gpus"])]
def get_device_details(device):
    assert device in GROWN
    return {"device_name": "Quadro", "compute_capability": tuple(FAKE["capability"])}
class Wanted(list):
    def __contains__(self, one):
        return any(one.name == other.name for other in self)
GROWN = Wanted()
experimental = Options(list_physical_devices=list_physical_devices, set_memory_growth=lambda d, on: GROWN.append(d))
def list_local_devices(session_config):
    assert session_config.gpu_options.allow_growth
    return [
        Options(
            name="/device:GPU:%d" % n, device_type="GPU",
            physical_device_desc="device: %d, name: Quadro, pci bus id: 0, compute capability: %d.%d"
            % ((n,) + tuple(FAKE["capability"])),
        )
        for n in range(FAKE["gpus"])
    ] + [Options(name="/device:CPU:0", device_type="CPU", physical_device_desc="")]
for name, members in {
    "tensorflow.python": {},
    "tensorflow.python.client": {"device_lib": Options(list_local_devices=list_local_devices)},
    "tensorflow.python.ops": {"nccl_ops": Options(all_sum=lambda tensors: [act("all_sum"), tensors][1])},
}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)
if ERA >= (2, 4):
    def switch(on):
        FAKE["deviation"] = FAKE["without_tf32"]
    experimental.enable_tensor_float_32_execution = switch
    experimental.tensor_float_32_execution_enabled = lambda: True
if ERA >= (1, 14):
    config = Options(experimental=experimental)
if ERA >= (2, 3):
    experimental.get_device_details = get_device_details
if ERA >= (2, 1):
    config.list_physical_devices = list_physical_devices
if ERA >= (1, 13):
    compat = Options(v1=sys.modules[__name__])
"""


@dataclass
class StagesRun:
    """The result of a run, and the lines that it printed."""

    answer: PayloadResults
    lines: list[dict[str, Any]]
    result: CommandResult

    def select_lines(self, stage: str, *keys: str) -> list[dict[str, Any]]:
        return [
            line for line in self.lines if line.get("stage") == stage and all(key in line for key in keys)
        ]

    def statuses(self) -> dict[str, str]:
        return {stage.name: stage.status for stage in self.answer.stages}

    def detail(self, stage: str) -> str:
        stage_result = self.answer.find_stage(stage)
        assert stage_result is not None
        return stage_result.detail


class StagesRunner:
    """Runs the payload with the fakes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site"
        (self.site / "tensorflow").mkdir(parents=True)
        (self.site / "numpy.py").write_text(NUMPY)
        (self.site / "tensorflow" / "__init__.py").write_text(TENSORFLOW)
        (folder / "home").mkdir()
        (folder / "nvidia-smi").write_text("#!/bin/sh\nprintf '\\033[4mGPU0 GPU1\\033[0m\\n%s\\n' \"$*\"\n")
        (folder / "nvidia-smi").chmod(0o755)

    def __call__(
        self,
        acts: dict[str, str] | None = None,
        *,
        python: str = sys.executable,
        limit: float = 30,
        gpus: int = 2,
        timeout: float = 50,
        options: dict[str, Any] | None = None,
        **fake: Any,
    ) -> StagesRun:
        settings = {
            "version": "2.21.0",
            "capability": [8, 0],
            "deviation": 0.0,
            "without_tf32": 0.0,
            "acts": acts or {},
            "gpus": gpus,
            **fake,
        }
        limits = Limits.from_seconds(limit)
        argument = {"device": "GPU", "limits": limits.as_json(), "timed": 0, **(options or {})}
        _, result = run_payload(
            LiveSystem(cwd=str(self.folder / "home")),
            python,
            "stages",
            [json.dumps(argument)],
            timeout=timeout,
            env={
                "FAKE": json.dumps(settings),
                "PYTHONPATH": str(self.site),
                "HOME": str(self.folder / "home"),
                "PATH": f"{self.folder}:{os.environ['PATH']}",
            },
        )
        left = {path.name for path in (self.folder / "home").iterdir()} - {"numpy.py"}
        assert not left, "a file was left"
        lines = [line for line in result.stdout.splitlines() if line.startswith(MARKER)]
        return StagesRun(
            parse_payload_results(result, limits),
            [json.loads(line.removeprefix(MARKER)) for line in lines],
            result,
        )


@pytest.fixture
def stages(tmp_path: Path) -> StagesRunner:
    return StagesRunner(tmp_path)


@pytest.mark.parametrize("version", PYTHONS)
def test_every_stage_passes_on_every_python(stages: StagesRunner, version: str) -> None:
    run = stages(python=PYTHONS[version])
    assert run.statuses() == dict.fromkeys(PAYLOAD_STAGES, "passed"), run.answer.first_error
    assert run.answer.device_names == ("/physical_device:GPU:0", "/physical_device:GPU:1")
    assert run.answer.format_gpu_results() == ["GPU:0 ok", "GPU:1 ok"]
    assert run.answer.topology == "GPU0 GPU1\ntopo -m\n"
    assert not run.answer.first_error
    assert run.result.returncode == 0


@pytest.mark.parametrize("version", ["1.4.1", "1.13.2", "1.14.0", "2.0.4", "2.3.4", "2.21.0"])
def test_every_stage_passes_on_every_tensorflow(stages: StagesRunner, version: str) -> None:
    run = stages(version=version, capability=[7, 5])
    assert set(run.statuses().values()) == {"passed"}, run.answer.first_error
    prefix = "/device" if version in {"1.4.1", "1.13.2"} else "/physical_device"
    assert run.answer.device_names == (f"{prefix}:GPU:0", f"{prefix}:GPU:1")
    lines = run.select_lines("compute", "ok")
    assert [(line["gpu"], line["dtype"], line["ok"]) for line in lines] == [
        (gpu, dtype, True) for gpu in (0, 1) for dtype in ("float32", "float16")
    ]
    assert all(line["limit"] > 0 and line["gflops"] > 0 for line in lines)
    assert run.select_lines("import", "tensorflow")[0]["tensorflow"] == version


@pytest.mark.parametrize(("is_in_image", "status"), [(True, "failed"), (False, "passed")])
def test_module_of_the_working_folder_of_an_image_fails_the_import(
    stages: StagesRunner, is_in_image: bool, status: str
) -> None:
    """A program that is started there takes it. On the host, no code of that folder is run."""
    (stages.folder / "home" / "numpy.py").write_text("raise ImportError('not the real one')\n")
    run = stages(options={"stages": ["compute"], "in_cwd": is_in_image})
    assert run.statuses()["compute" if run.statuses().get("import") == "passed" else "import"] == status


def test_requested_stage_and_its_prerequisites_run(stages: StagesRunner) -> None:
    run = stages(options={"stages": ["cudnn"]})
    assert list(run.statuses()) == ["import", "visible", "cudnn"]


def test_half_precision_is_tested_if_the_gpu_supports_it(stages: StagesRunner) -> None:
    def dtypes(**fake: Any) -> list[str]:
        run = stages(gpus=1, options={"stages": ["compute"]}, **fake)
        assert run.statuses()["compute"] == "passed"
        return [line["dtype"] for line in run.select_lines("compute", "ok")]

    assert dtypes(capability=[5, 2]) == ["float32"]
    assert dtypes(capability=[9, 0]) == ["float32", "float16", "bfloat16"]
    assert dtypes(acts={"bfloat16@/device:GPU:0": "unsupported"}) == ["float32", "float16"]
    run = stages({"float16@/device:GPU:0": "unsupported"}, gpus=1)
    assert run.statuses()["compute"] == "failed"


def test_nccl_is_skipped_with_a_single_gpu(stages: StagesRunner) -> None:
    run = stages(gpus=1)
    assert run.statuses()["nccl"] == "skipped"
    assert run.detail("nccl") == "an all-reduce takes at least two GPUs; there is 1"


def test_no_listed_gpu_fails_the_visible_stage(stages: StagesRunner) -> None:
    run = stages(gpus=0)
    assert run.statuses() == {"import": "passed", "visible": "failed"}
    assert run.detail("visible") == "TensorFlow lists no GPU"


def test_tf32_is_distinguished_from_float32(stages: StagesRunner) -> None:
    run = stages(deviation=0.02, gpus=1, options={"stages": ["compute"]}, capability=[5, 0])
    lines = run.select_lines("compute", "ok")
    assert [(line["dtype"], line["ok"], line["deviation"]) for line in lines] == [
        ("tf32", True, 0.02),
        ("float32", True, 0.0),
    ]
    assert "float32 as TF32" in run.detail("compute")
    without = stages(
        deviation=0.02, version="2.3.4", gpus=1, options={"stages": ["compute"]}, capability=[5, 0]
    )
    assert [line["dtype"] for line in without.select_lines("compute", "ok")] == ["tf32"]
    wrong = stages(deviation=0.02, without_tf32=0.02, gpus=1)
    assert wrong.statuses()["compute"] == "failed"
    assert "float32: the product is off by 0.02" in wrong.detail("compute")


@pytest.mark.parametrize("deviation", [3.0, float("nan"), float("inf")])
def test_wrong_product_fails_the_compute_stage(stages: StagesRunner, deviation: float) -> None:
    run = stages(deviation=deviation)
    assert run.statuses() == {"import": "passed", "visible": "passed", "compute": "failed"}
    assert "rounding explains at most" in run.answer.first_error
    assert set(run.answer.error_by_gpu) == {0, 1}
    assert run.answer.count_correct_gpus() == 0


def test_wrong_convolution_fails_the_cudnn_stage(stages: StagesRunner) -> None:
    run = stages(deviation=1.0, options={"size": 1 << 20, "stages": ["cudnn"]})
    assert run.statuses()["cudnn"] == "failed"
    assert "the result is off by 1" in run.detail("cudnn")


def test_failing_gpu_does_not_stop_the_others(stages: StagesRunner) -> None:
    run = stages({"matmul@/device:GPU:1": "raise"}, gpus=3)
    assert run.statuses() == {"import": "passed", "visible": "passed", "compute": "failed"}
    assert run.answer.error_by_gpu == {
        0: "",
        1: "InternalError: Blas GEMM launch failed at matmul@/device:GPU:1\n [[node MatMul]]",
        2: "",
    }
    assert run.detail("compute") == (
        "1 of 3 GPUs failed: GPU:1 float32: InternalError: Blas GEMM launch failed at matmul@/device:GPU:1"
    )
    assert run.answer.first_error.startswith("InternalError: Blas GEMM launch failed")


@pytest.mark.parametrize(
    ("at", "stage"),
    [("list", "visible"), ("conv2d@/device:GPU:1", "cudnn"), ("all_sum", "nccl"), ("import", "import")],
)
def test_error_is_reported_and_ends_the_run(stages: StagesRunner, at: str, stage: str) -> None:
    run = stages({at: "raise"})
    assert list(run.statuses())[-1] == stage
    assert run.statuses()[stage] == "failed"
    assert "InternalError: Blas GEMM launch failed" in run.detail(stage)
    assert "and the stack" not in run.answer.first_error
    assert [line["status"] for line in run.select_lines(stage, "status")] == ["begin", "failed"]


def test_import_that_exits_is_reported(stages: StagesRunner) -> None:
    run = stages({"import": "exit"})
    assert run.detail("import") == "SystemExit: I would rather not"


def test_broken_numpy_is_reported(stages: StagesRunner) -> None:
    (stages.site / "numpy.py").write_text("raise ImportError('numpy.core.multiarray failed to import')")
    assert "numpy.core.multiarray failed to import" in stages().detail("import")


@pytest.mark.parametrize("how", ["hang", "hang in C"])
@pytest.mark.parametrize(
    ("at", "stage"),
    [("import", "import"), ("list", "visible"), ("matmul@/device:GPU:1", "compute"), ("all_sum", "nccl")],
)
@pytest.mark.few(3)
def test_hang_ends_at_the_deadline(stages: StagesRunner, at: str, stage: str, how: str) -> None:
    run = stages({at: how}, limit=1, options={"limits": {stage: 1}})
    assert list(run.statuses())[-1] == stage
    assert run.detail(stage).startswith("did not end within 1 s")
    assert run.answer.timed_out
    assert run.result.seconds < 20
    # While the interpreter's lock is held, no progress is reported, so nothing is said about it.
    assert ("was idle" in run.detail(stage)) is (how == "hang" and stage != "nccl")
    assert ("An all-reduce that never ends" in run.detail(stage)) is (stage == "nccl")
    if stage == "compute":
        assert "on GPU:1 (float32)" in run.detail(stage)
        assert run.answer.error_by_gpu[0] == ""
        assert run.answer.error_by_gpu[1].startswith("did not end within 1 s")


def test_busy_stage_is_not_called_idle(stages: StagesRunner) -> None:
    run = stages({"matmul@/device:GPU:0": "spin"}, limit=2, options={"limits": {"compute": 2}})
    assert "was idle" not in run.detail("compute")
    assert "Compiling PTX" in run.detail("compute")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "abort",
            "TensorFlow was ended by abort (SIGABRT) on GPU:1 (float32). cuda.cc:31] Check failed",
        ),
        ("segv", "a segmentation fault (SIGSEGV)"),
        ("ill", "lacks what TensorFlow was built for"),
        ("kill", "the memory was used up"),
    ],
)
def test_crash_during_compute_is_reported(stages: StagesRunner, how: str, said: str) -> None:
    run = stages({"matmul@/device:GPU:1": how})
    assert run.statuses() == {"import": "passed", "visible": "passed", "compute": "failed"}
    assert said in run.detail("compute")
    assert run.answer.error_by_gpu[0] == ""
    assert said in run.answer.error_by_gpu[1]
    assert not run.answer.timed_out


def test_crash_during_the_import_is_reported(stages: StagesRunner) -> None:
    run = stages({"import": "ill"})
    assert run.statuses() == {"import": "failed"}
    assert "SIGILL" in run.detail("import")


def test_output_of_tensorflow_is_kept_out_of_the_answer(stages: StagesRunner) -> None:
    run = stages({"import": "noise", "list": "noise"}, gpus=1)
    assert run.statuses()["nccl"] == "skipped"  # an answer line that TensorFlow prints is ignored
    assert len(run.result.stdout) < 20_000
    assert run.result.stderr.startswith("xxx")


def test_slow_gpu_is_reported(stages: StagesRunner) -> None:
    options = {"stages": ["compute"], "expected": {"0": 1e15, "1": {"float32": 1.0}}}
    run = stages(options=options)
    assert run.statuses()["compute"] == "passed"
    floats = [line for line in run.select_lines("compute", "ok") if line["dtype"] == "float32"]
    assert [line["slow"] for line in floats] == [True, False]
    assert "such a card should give 1000000000000000 GFLOP/s" in run.detail("compute")
    halves = [line for line in run.select_lines("compute", "ok") if line["dtype"] == "float16"]
    assert [line["expected_gflops"] for line in halves] == [None, None]


def test_nothing_is_timed_on_the_cpu(stages: StagesRunner) -> None:
    run = stages(gpus=1, options={"device": "CPU"})
    assert run.statuses()["compute"] == "passed"
    assert run.statuses()["nccl"] == "skipped"
    assert not run.select_lines("compute", "gflops")
    assert run.answer.device_names == ("/physical_device:CPU:0",)


def test_created_keras_settings_are_removed(stages: StagesRunner) -> None:
    code = (
        "import os\nfolder = os.path.join(os.path.expanduser('~'), '.keras')\n"
        "if not os.path.exists(folder):\n    os.mkdir(folder)\n"
        "open(os.path.join(folder, 'keras.json'), 'a').write('new')\n"
    )
    module = stages.site / "tensorflow" / "__init__.py"
    module.write_text(code + TENSORFLOW)
    assert stages().statuses()["import"] == "passed"  # the home folder is empty again
    module.write_text(code + "raise ImportError\n")
    assert stages().statuses()["import"] == "failed"


def test_existing_keras_settings_are_kept(stages: StagesRunner) -> None:
    module = stages.site / "tensorflow" / "__init__.py"
    module.write_text("import os\nopen(os.environ['KERAS_HOME'] + '/keras.json', 'a')\n" + TENSORFLOW)
    keras_home = stages.folder / "keras"
    keras_home.mkdir()
    (keras_home / "keras.json").write_text("{}")
    (stages.site / "sitecustomize.py").write_text(
        f"import os\nos.environ['KERAS_HOME'] = {str(keras_home)!r}\n"
    )
    assert stages().statuses()["import"] == "passed"
    assert (keras_home / "keras.json").read_text() == "{}"


def test_failing_device_creation_is_tried_once(stages: StagesRunner) -> None:
    run = stages({"session": "raise"})
    assert run.detail("compute").startswith("TensorFlow cannot make its devices: InternalError: Blas")
    assert [line["gpu"] for line in run.select_lines("compute", "ok")] == [0, 1]
    assert not run.select_lines("compute", "computing")
    assert (
        stages({"session": "raise"}, options={"stages": ["cudnn"]})
        .detail("cudnn")
        .startswith("TensorFlow cannot")
    )


@pytest.mark.parametrize(
    ("era", "said"),
    [("2.18", "INTERNAL: CUDA error: : CUDA_ERROR_X"), ("2.10", "Blas xGEMM launch failed")],
)
def test_long_error_is_shortened_and_reported_once(stages: StagesRunner, era: str, said: str) -> None:
    """The texts are from TensorFlow 2.18.1 and 2.10.1, shortened."""
    run = stages({f"matmul@/device:GPU:{gpu}": f"raise as {era}" for gpu in (0, 1)})
    assert run.detail("compute") == f"2 of 2 GPUs failed: GPU:0, GPU:1 float32: InternalError: {said}"
