"""Answer questions in words, such as "my GPU is not detected", with the command to begin with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfdoctor.core.findings import Remedy

__all__ = ["Question", "find_question"]

MAX_QUESTION_CHARS = 400


@dataclass(frozen=True, slots=True)
class Question:
    """A question that people ask, and its answer."""

    pattern: str
    """A regular expression for the question in lower case."""
    meaning: str
    remedy: Remedy | None = None
    cause: str = ""
    """The cause whose page is the answer; empty if there is none."""


_NOTEBOOK = r"(?:notebooks?|jupyter(?:lab)?|ipykernel)"
_NOT_SEEN = (
    r"(?:not|n't|never|cannot|can't|doesn't|no)\b[\w ']{0,30}(?:detect|see|find|found|recogni|us(?:e|ing)|work|show|list|availab)"
    r"|list_physical_devices\b.{0,20}\b(?:is|are|returns?|gives?|prints?|shows?|=+) ?(?:an? )?(?:\[\]|empty|nothing|none)"
    r"|us(?:e|es|ing) (?:the |my )?cpu\b|no gpu\b|num gpus available:? {0,3}0|only (?:the )?cpu|runs? on (?:the )?cpu"
)
QUESTIONS = (
    Question(r"no module named '?tensorflow", "", cause="tensorflow-missing"),
    Question(r"dll load failed", "", cause="msvc-runtime-missing"),
    Question(
        r"nvidia-smi\b[\w ,]{0,20}\b(?:works?|is fine|shows?|runs?)\b[\w ,]{0,40}\btensorflow",
        "nvidia-smi needs the driver only. TensorFlow also needs CUDA and cuDNN libraries of the versions that it was built "
        "for, in places where the loader looks, and a build with GPU code.",
        Remedy("See which of these is missing, and what to type.", ("tfdoctor check",)),
    ),
    Question(
        r"(?:jit_compile|xla)\b[\w ]{0,40}\b(?:slow|long|hang)|\b(?:slow|long)\b[\w ]{0,40}\b(?:jit_compile|xla)",
        "XLA compiles a function at its first call, and again for each new shape of its inputs. That can take minutes; later "
        "calls are fast.",
        Remedy(
            "Keep the shapes equal (drop the last small batch), or leave jit_compile out. To see what the GPU gains, "
            "measure it.",
            ("tfdoctor bench",),
        ),
    ),
    Question(
        r"(?:two|multi|several|both|many) (?:gpus?|cards?)\b[\w ]{0,40}\bslow|slower (?:with|on) (?:two|several|more)",
        "Each device gets a part of the batch, and after each step the gradients are averaged.",
        Remedy("Give each device the batch that one alone has, and measure.", ("tfdoctor bench",)),
    ),
    Question(
        r"\b(?:training|fit|epoch|gpu|model)\b[\w ,]{0,40}\b(?:so |very |too )?slow|\bslow training|(?:low|0 ?%) gpu util",
        "If the GPU is used and training is slow, the input pipeline or small batches are usual reasons; TensorFlow's own "
        "profiler shows which. tfdoctor shows whether the GPU is used.",
        Remedy(
            "See which operations run on the CPU, and measure what the GPU gains.",
            ("tfdoctor run --placement python train.py", "tfdoctor bench"),
        ),
    ),
    Question(
        r"\b(?:amd|rocm|radeon|macos|macbook|apple|metal|intel arc)\b",
        "tfdoctor and the TensorFlow packages that it knows are for NVIDIA GPUs. AMD (ROCm) and Apple (Metal) have packages "
        "of their own, tensorflow-rocm and tensorflow-metal, which tfdoctor does not examine.",
        Remedy("On the CPU, TensorFlow works without any of them.", ("python3 -m pip install tensorflow",)),
    ),
    Question(
        rf"\b(?:docker|container|podman|image)\b.{{0,60}}?(?:{_NOT_SEEN})|(?:{_NOT_SEEN}).{{0,60}}?\b(?:docker|container|podman)\b",
        "A container sees a GPU only if it is started with one (`--gpus all`), and the engine needs NVIDIA's container "
        "toolkit for that.",
        Remedy(
            "Check the engine on the host, then TensorFlow in the image.",
            ("tfdoctor check -v", "tfdoctor verify IMAGE"),
        ),
    ),
    Question(
        r"\bmig\b|multi-instance gpu",
        "A process can use one MIG instance. `nvidia-smi -L` prints the names of the instances, and CUDA_VISIBLE_DEVICES "
        "chooses one. TensorFlow then sees it as its only GPU.",
        Remedy(
            "Copy the name of the instance (MIG-…) from the first command into the second, and check what TensorFlow gets.",
            ("nvidia-smi -L", "export CUDA_VISIBLE_DEVICES=MIG-UUID", "tfdoctor check"),
        ),
    ),
    Question(
        rf"\b{_NOTEBOOK}\b.{{0,60}}\b(?:python|environment|interpreter|venv|kernel)\b"
        rf"|\b(?:python|environment|interpreter|venv|kernel)\b.{{0,60}}\b{_NOTEBOOK}\b",
        "A notebook runs the Python of its kernel, which is often another one than your shell's.",
        Remedy(
            "List the kernels, then check the one that the notebook uses: DIR is its folder in the list.",
            ("jupyter kernelspec list", "tfdoctor check --python DIR/kernel.json"),
        ),
    ),
    Question(
        r"(?:which|what) (?:version of )?(?:cuda|cudnn|driver|python|tensorflow)\b.{0,40}"
        r"\b(?:need|install|use|version|work|fit|support)",
        "Each TensorFlow release was built for one CUDA and one cuDNN, needs a minimum driver, and has wheels for "
        "some Pythons.",
        Remedy(
            "See what fits together, and what fits this machine.", ("tfdoctor matrix", "tfdoctor recommend")
        ),
    ),
    Question(
        r"\A(?!.*(?:\bnot\b|n't\b|\bwhy\b|\binstall)).*\b(?:is|does|whether|if|can (?:tensorflow|keras|it))\b.{0,40}"
        r"\b(?:using|uses?|sees?|detects?|finds?|runs?|running)\b.{0,20}\bgpus?\b",
        "TensorFlow uses a GPU if it lists one (`tf.config.list_physical_devices('GPU')`) and has GPU code for the "
        "operations of the program.",
        Remedy(
            "See whether TensorFlow will use the GPU, and on which device each operation of a program runs.",
            ("tfdoctor check", "tfdoctor run --placement python train.py"),
        ),
    ),
    Question(
        r"\A(?!.*\bcuda ?\d).*\b(?:need|must|have to|should|necessary|required?)\b.{0,40}\b(?:cuda|toolkit|cudnn|nvcc)\b"
        r"|\b(?:cuda|toolkit|cudnn|nvcc) (?:is )?(?:needed|necessary|required)\b",
        "Not for TensorFlow 2.14 and newer on Linux: the CUDA libraries and cuDNN come as wheels, which the extra `and-cuda` "
        "and `tfdoctor install` install. Only the driver must be there. Older releases need CUDA of their own version.",
        Remedy(
            "See what an environment with TensorFlow and its libraries takes, and what each release needs.",
            ("tfdoctor install --dry-run", "tfdoctor matrix"),
        ),
    ),
    Question(
        r"\A(?!.*\bwsl)(?=.*\b(?:install|set ?up|use|support|work|enable|gpus?|cuda)).*\bwindows\b",
        "On native Windows, TensorFlow uses the GPU up to 2.10. Newer releases use it in WSL 2, where tfdoctor runs, too.",
        Remedy(
            "In PowerShell, install WSL 2. Then, in its shell, install tfdoctor and make an environment.",
            ("wsl --install", "tfdoctor install"),
        ),
    ),
    Question(
        r"\b(?:how (?:do|can|to)|install|set ?up)\b.{0,40}\btensorflow\b.{0,30}\b(?:gpu|cuda)",
        "A virtual environment or a container image in which TensorFlow sees the GPUs takes one command.",
        Remedy(
            "See what it would do, then make one of the two.",
            ("tfdoctor install --dry-run", "tfdoctor install", "tfdoctor build"),
        ),
    ),
    Question(
        rf"\b(?:gpus?|cuda|cards?|rtx|gtx)\b.{{0,60}}?(?:{_NOT_SEEN})|(?:{_NOT_SEEN}).{{0,60}}?\b(?:gpus?|cuda|cards?)\b|{_NOT_SEEN}\Z",
        "The usual reasons: a TensorFlow without GPU code or without its CUDA libraries, a driver that is missing or too old, "
        "a variable that hides the GPUs, or a container that was started without them.",
        Remedy("See which one it is on this machine, and what to type.", ("tfdoctor check",)),
    ),
)
"""The questions. The first that matches is answered."""


def find_question(query: str) -> Question | None:
    """Return the question that the query asks, or None."""
    text = " ".join(query[:MAX_QUESTION_CHARS].lower().replace("’", "'").split())
    if "tfd" in text or (":" in text and "dll load failed" not in text):  # a code, or a message
        return None
    return next((question for question in QUESTIONS if re.search(question.pattern, text)), None)
