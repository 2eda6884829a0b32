"""Questions in words."""

from __future__ import annotations

import pytest

from tfdoctor.cli.explain import load_documentation
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.explain import find_entries
from tfdoctor.diagnosis.glossary import GLOSSARY
from tfdoctor.diagnosis.questions import QUESTIONS, find_question
from tfdoctor.diagnosis.table_questions import find_table_question


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
        ("how do I use tensorflow with gpu", "tfdoctor install --dry-run"),
        ("do I need to install the CUDA toolkit?", "tfdoctor install --dry-run"),
        ("is cudnn required", "tfdoctor install --dry-run"),
        ("does tensorflow need cuda 12", None),
        ("My notebook uses a different Python", "jupyter kernelspec list"),
        ("wrong kernel in Jupyter", "jupyter kernelspec list"),
        ("how do I install tensorflow with gpu on windows", "wsl --install"),
        ("list_physical_devices('GPU') returns []", "tfdoctor check"),
        ("tf.config.list_physical_devices('GPU') is empty", "tfdoctor check"),
        ("is tensorflow using my gpu", "tfdoctor check"),
        ("how do I know if tensorflow uses the gpu", "tfdoctor check"),
        ("why is tensorflow using cpu instead of gpu", "tfdoctor check"),
        ("How do I use only one MIG slice of an A100", "nvidia-smi -L"),
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


@pytest.mark.parametrize("form", ["{}", "what is {}?", "What does {} mean", "what is a {}", "{}s"])
def test_terms_are_answered_from_the_glossary(form: str) -> None:
    for term in GLOSSARY:
        for name in term.names:
            explanation = find_entries(form.format(name), load_documentation())
            assert explanation.meaning == term.plain_text, name
            assert "](" not in explanation.meaning


def _answer(query: str) -> tuple[str, str]:
    question = find_table_question(query, Compat.load())
    assert question is not None
    assert question.remedy is not None
    return question.meaning, question.remedy.commands[0]


def test_python_questions_are_answered_from_the_tables() -> None:
    """The expected versions are those in compat/tensorflow.json, read here independently of the answer."""
    compat = Compat.load()
    for python in ("3.6", "3.8", "3.11", "3.13"):
        minors = [
            tuple(int(part) for part in release.version.split(".")[:2])
            for release in compat.releases
            if python in release.linux_pythons and not release.is_prerelease and not release.yanked
        ]
        first, last = (".".join(map(str, pick(minors))) for pick in (min, max))
        meaning, command = _answer(f"does tensorflow support python {python}?")
        assert meaning == f"TensorFlow {first} to {last} have wheels for Python {python} on Linux."
        assert command == "tfdoctor matrix"
    meaning, _ = _answer("does tensorflow support python 3.99")
    assert meaning.startswith("No final release of TensorFlow has a wheel for Python 3.99")
    assert "candidate" not in meaning
    assert _answer("tensorflow 2.10 python 3.11 support")[0].startswith("No: TensorFlow 2.10.1 has wheels")
    assert _answer("does tensorflow 2.10 work with python 3.9")[0].startswith("Yes: TensorFlow 2.10.1")


@pytest.mark.parametrize(
    ("query", "command"),
    [
        (
            "does tensorflow have GPU support on aarch64 Grace Hopper",
            "nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
        ),
        ("tensorflow on GH200", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
        ("tensorflow gpu on jetson orin", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3-igpu"),
        ("tensorflow on arm64", "tfdoctor recommend"),
        ("jetson thor", "tfdoctor recommend"),
    ],
)
def test_arm_questions_are_answered_from_the_tables(query: str, command: str) -> None:
    meaning, answer = _answer(query)
    assert answer.endswith(command)
    assert meaning.startswith("TensorFlow's aarch64 wheels have no GPU code")


@pytest.mark.parametrize(
    "query", ["python 3.14", "tensorflow on an M2 mac arm64", "weather", "error: aarch64"]
)
def test_other_questions_are_not_answered_from_the_tables(query: str) -> None:
    assert find_table_question(query, Compat.load()) is None
