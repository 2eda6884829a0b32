"""The glossary: docs/glossary.md is written from it, and `tfdoctor explain TERM` answers from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["GLOSSARY", "Term", "find_term"]


@dataclass(frozen=True, slots=True)
class Term:
    """An entry of the glossary."""

    names: tuple[str, ...]
    text: str
    """The meaning, in Markdown. References to pages are links in parentheses, relative to docs."""

    @property
    def plain_text(self) -> str:
        """The meaning without emphasis and references to pages."""
        return re.sub(r" \(\[[^\]]*\]\([^)]*\)\)", "", self.text).replace("*", "")


GLOSSARY = (
    Term(
        ("cause",),
        "One word for the root cause of a problem, such as `libs-not-installed`. It is the same in every "
        "command and in JSON ([all causes](rules.md#causes)).",
    ),
    Term(
        ("compute capability",),
        "The generation of an NVIDIA GPU as a number: 7.5 is Turing (T4, RTX 20), 8.6 and 8.9 are Ampere "
        "and Ada (RTX 30 and 40), 9.0 is Hopper (H100), 10.0 and 12.0 are Blackwell (B200, RTX 50). "
        "Software supports a range of them.",
    ),
    Term(
        ("cubin", "PTX", "JIT"),
        "A cubin is machine code for one compute capability. PTX is an intermediate form, which the "
        "driver compiles for newer GPUs at first use (JIT). That can take minutes once.",
    ),
    Term(
        ("CUDA",),
        "NVIDIA's libraries for computing on GPUs. TensorFlow needs the *runtime* libraries (libcudart, "
        "cuBLAS, cuFFT, cuSOLVER, cuSPARSE), not the toolkit with its compiler.",
    ),
    Term(
        ("cuDNN",),
        "NVIDIA's library for neural networks. It is not part of CUDA and has its own version.",
    ),
    Term(
        ("driver",),
        "NVIDIA's kernel module together with `libcuda.so.1`. It must be at least as new as the CUDA "
        'version requires. The "CUDA Version" that `nvidia-smi` prints is the newest CUDA that the driver '
        "supports; it does not say that CUDA is installed.",
    ),
    Term(
        ("finding",),
        "One problem that a check reports, with a code such as TFD201.",
    ),
    Term(
        ("loader",),
        "The part of Linux that opens shared libraries (ld.so). It searches LD_LIBRARY_PATH, the RUNPATH "
        "of the library that asks, the cache in /etc/ld.so.cache, and the system's folders, in this "
        "order.",
    ),
    Term(
        ("MIG",),
        "Multi-Instance GPU: a data-center card such as the A100 or H100 that is divided into up to seven "
        "instances, each with its own memory and processors. A process can use one instance, whose name, "
        "which `nvidia-smi -L` prints, is the value of CUDA_VISIBLE_DEVICES.",
    ),
    Term(
        ("placement",),
        "On which device each operation of a program runs.",
    ),
    Term(
        ("recording",),
        "A file that `tfdoctor capture` writes: everything that `check` looks at on a machine, redacted.",
    ),
    Term(
        ("redacted",),
        "Names of users and hosts, addresses, tokens and passwords are replaced by placeholders ([what "
        "exactly](privacy.md)).",
    ),
    Term(
        ("registered",),
        "TensorFlow lists the GPU: `tf.config.list_physical_devices('GPU')` is not empty. Only then can "
        "it compute on it.",
    ),
    Term(
        ("stand-in driver",),
        "A small replacement of the driver's libraries that answers TensorFlow's questions like a GPU "
        "that is not there. `--simulate` uses it. It proves that libraries are found and that the "
        "versions fit, not that a real GPU computes.",
    ),
    Term(
        ("verdict",),
        "The first line of an answer: will TensorFlow use the GPU, and if not, why?",
    ),
    Term(
        ("wheel",),
        "A package file that pip installs (`.whl`). `tensorflow[and-cuda]` also installs NVIDIA's wheels, "
        "which contain the CUDA libraries.",
    ),
)
"""The terms, in alphabetical order."""

_QUESTION = re.compile(
    r"(?:what(?:'s| is| are| does)|explain|define|meaning of) (?:an? |the )?(?P<before>.{1,40}?)(?: means?| stands? for)?"
    r"|(?P<alone>.{1,40}?)"
)
"""A question for the meaning of a term, or the term alone, in lower case."""


def find_term(query: str) -> Term | None:
    """Return the term that the query asks for ("what is cuDNN?", "PTX"), or None."""
    match = _QUESTION.fullmatch(query.lower().replace("’", "'").strip(" ?!.\"'"))
    if match is None:
        return None
    word = match["before"] or match["alone"]
    return next(
        (term for term in GLOSSARY if any(word in (name.lower(), f"{name.lower()}s") for name in term.names)),
        None,
    )
