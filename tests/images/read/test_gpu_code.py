"""Python code in a RUN instruction, which has no GPU."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat
from tfdoctor.images.analysis import check_dockerfile
from tfdoctor.images.read.gpu_code import fails_without_gpu

GPUS = "tf.config.list_physical_devices('GPU')"


@pytest.mark.parametrize(
    "code",
    [
        f"import tensorflow as tf; assert {GPUS}",
        f"assert len({GPUS}) > 0, 'no GPU'",
        "import tensorflow as tf; assert tf.test.is_gpu_available()",
        "import torch\nassert torch.cuda.is_available()",
        "assert torch.cuda.device_count() >= 1",
        "assert tf.test.gpu_device_name() != ''",
        "from tensorflow.config import list_physical_devices\nassert list_physical_devices(device_type='GPU')",
        f"gpus = {GPUS}\nprint(gpus)\nassert bool(gpus)",
        f"if not {GPUS}:\n  print('none')\n  raise SystemExit(1)",
        f"import sys; sys.exit(0 if {GPUS} else 1)",
        f"exit(len({GPUS}) == 0)",
        f"assert {GPUS} and tf.test.is_built_with_cuda()",
        f"if {GPUS}:\n  pass\nelse:\n  quit('none')",
    ],
)
def test_code_that_needs_a_gpu(code: str) -> None:
    assert fails_without_gpu(code)


@pytest.mark.parametrize(
    "code",
    [
        f"import tensorflow as tf; print({GPUS})",
        f"print('GPU' if {GPUS} else 'CPU')",
        "assert tf.config.list_physical_devices()",
        "assert tf.config.list_physical_devices('CPU')",
        f"assert not {GPUS}",
        f"assert {GPUS} or tf.test.is_built_with_cuda()",
        "assert tf.test.is_built_with_cuda()  # is_gpu_available",
        f"gpus = {GPUS}\nfor gpus in ['x']: pass\nassert gpus",
        f"gpus = {GPUS}\nif not gpus:\n  print('none')\n  exit()\nassert gpus",
        f"if {GPUS}:\n  raise SystemExit(1)",
        f"sys.exit(0 if {GPUS} else 0)",
        f"def test():\n  assert {GPUS}",
        f"assert {GPUS} > 0",
        f"assert ({GPUS}",
        "(" * 5000 + "is_gpu_available()",
    ],
)
def test_code_that_runs_without_a_gpu(code: str) -> None:
    assert not fails_without_gpu(code)


@pytest.mark.parametrize(
    ("instruction", "is_reported"),
    [
        (f'RUN python -c "import tensorflow as tf; assert {GPUS}"', True),
        (f'RUN python3.11 -u -c "assert {GPUS}" && true', True),
        (f'RUN ["python", "-c", "assert {GPUS}"]', True),
        (f"RUN python - <<EOF\nassert {GPUS}\nEOF", True),
        (f"RUN python3 <<'EOF'\nimport os\nassert {GPUS}\nEOF", True),
        (f'RUN python -c "assert {GPUS}" || true', False),
        (f'RUN python -c "assert {GPUS}" || echo none', False),
        (f'RUN python -c "assert {GPUS}" || pip install tensorflow-cpu', True),
        ("RUN nvidia-smi || true", False),
        ("RUN nvidia-smi", True),
        ("RUN /usr/bin/nvidia-smi", True),
        ("RUN /usr/bin/nvidia-smi -L", False),
        (f'RUN python -c "print({GPUS})"', False),
        (f'RUN python check.py -c "assert {GPUS}"', False),
        (f"RUN cat > check.py <<EOF\nassert {GPUS}\nEOF", False),
        (f'CMD python -c "assert {GPUS}"', False),
    ],
)
def test_run_instruction_with_code(instruction: str, is_reported: bool) -> None:
    text = f"FROM tensorflow/tensorflow:2.17.0-gpu\nRUN true\n{instruction}\n"
    report = check_dockerfile(text, Compat.load())
    assert report is not None
    found = [item for item in report.findings if item.code == "TFD524"]
    assert [item.evidence[0].line for item in found] == [3] * is_reported
