"""Questions in words."""

from __future__ import annotations

import pytest

from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.questions import QUESTIONS, find_question


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("my GPU is not detected", "tfdoctor check"),
        ("TensorFlow doesn’t see my GPU", "tfdoctor check"),
        ("why is cuda not available", "tfdoctor check"),
        ("nvidia-smi works but tensorflow does not", "tfdoctor check"),
        ("docker gpu not found", "tfdoctor check -v"),
        ("jit_compile slow", "tfdoctor bench"),
        ("two GPUs are slower than one", "tfdoctor bench"),
        ("how do I install tensorflow with gpu", "tfdoctor install --dry-run"),
        ("which cuda version do I need", "tfdoctor matrix"),
        ("no module named tensorflow", "tensorflow-missing"),
        ("ImportError: DLL load failed", "msvc-runtime-missing"),
        ("No module named 'numpy'", None),
        ("TFD203", None),
        ("weather", None),
        ("failed call to cuInit: UNKNOWN ERROR (303)", None),
    ],
)
def test_question(query: str, answer: str | None) -> None:
    question = find_question(query)
    if question is None:
        assert answer is None
    else:
        assert answer == (question.remedy.commands[0] if question.remedy is not None else question.cause)


def test_every_question_has_one_answer() -> None:
    causes = {cause.value for cause in Cause}
    assert all((question.remedy is None) == (question.cause in causes) for question in QUESTIONS)
