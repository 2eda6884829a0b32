"""The kinds of findings of `lint`, with the texts for `explain`. Their codes are in `core.causes.codes`."""

from __future__ import annotations

import re

from tfdoctor.core.causes.codes import LINT_CODES, CodePage
from tfdoctor.core.findings import Severity
from tfdoctor.core.records import dataclass

__all__ = ["LINT_PAGES", "LintPage", "find_kind_name", "get_severity"]


@dataclass(frozen=True, slots=True)
class LintPage(CodePage):
    """The documentation page of one kind of finding."""

    severity: Severity = Severity.ERROR


LINT_PAGES = (
    LintPage(
        name="misspelt-variable",
        title="Code sets an environment variable whose name is misspelt",
        summary="Nothing reads a variable of that name.",
        meaning="TensorFlow, CUDA and NCCL read their variables by name and ignore all others without a message: with "
        "CUDA_VISIBLE_DEVIES the program sees every GPU.",
        remedy="Correct the name: `tfdoctor lint --fix` does it. A variable of your own: `# noqa: TFD711`.",
    ),
    LintPage(
        name="misspelt-option",
        title="Code misspells an option or a function of TensorFlow",
        summary="TensorFlow has no option or function of that name.",
        meaning="ConfigProto and GPUOptions raise AttributeError or ValueError for a field that they do not have; so does "
        "tf.config for a function.",
        remedy="Correct the name: `tfdoctor lint --fix` does it.",
    ),
    LintPage(
        name="variable-set-wrongly",
        title="Code sets an environment variable in a way that has no effect",
        summary="The line is an error, or sets the variable for a shell that ends at once.",
        meaning="os.environ takes square brackets and strings. os.system and `!` in a notebook start a shell of their own: "
        "what it exports is gone when it ends. So it is with a RUN of a Dockerfile.",
        remedy='Write os.environ["NAME"] = "value"; in a notebook %env NAME=value; in a Dockerfile ENV.',
    ),
    LintPage(
        name="variable-set-too-late",
        title="Code sets an environment variable after it was read",
        summary="The variable has no effect on this process any longer.",
        meaning="TF_CPP_MIN_LOG_LEVEL and its like are read when tensorflow is imported, CUDA_VISIBLE_DEVICES and "
        "TF_FORCE_GPU_ALLOW_GROWTH at the first use of a GPU, LD_LIBRARY_PATH when the process starts.",
        remedy="Set it at the top of the file, before the import; LD_LIBRARY_PATH before Python starts.",
    ),
    LintPage(
        name="configured-too-late",
        title="Code configures the GPUs after they were initialized",
        summary="TensorFlow raises RuntimeError there.",
        meaning="Memory growth, visible and logical devices are settings of the first use. An operation, "
        "tf.config.list_logical_devices or a MirroredStrategy before them is that first use.",
        remedy="Move the settings to the top of the program, right behind the import.",
    ),
    LintPage(
        name="growth-not-on-all",
        title="Code sets memory growth for some of the GPUs only",
        summary="On a machine with several GPUs TensorFlow refuses.",
        meaning="Memory growth must be the same for all visible GPUs: otherwise TensorFlow raises ValueError, "
        '"Memory growth cannot differ between GPU devices".',
        remedy='Set it in a loop: for gpu in tf.config.list_physical_devices("GPU"). Or show the program one GPU.',
    ),
    LintPage(
        name="removed-api",
        title="Code uses names of TensorFlow that this release does not have",
        summary="A name of TensorFlow 1 under TensorFlow 2, or the other way round.",
        meaning="tf.Session, tf.placeholder, tf.ConfigProto and hundreds more left the main namespace with TensorFlow 2.0, "
        "tf.contrib is gone. Where the release is not known, code is judged as for TensorFlow 2.",
        remedy="Use tf.compat.v1 for old names, or name the release that the code is for: --tf 1.15.",
    ),
    LintPage(
        name="no-such-device",
        title="Code names a device that does not exist",
        summary="The string is not the name of a device, or the machine has fewer GPUs.",
        meaning="TensorFlow takes /GPU:0, /device:GPU:0 and /CPU:0. GPUs are counted from 0, among those that "
        "CUDA_VISIBLE_DEVICES leaves.",
        remedy="Correct the name. For a machine with another number of GPUs: --gpu-count N.",
    ),
    LintPage(
        name="config-unused",
        title="Code makes a ConfigProto or GPUOptions and gives it to no session",
        summary="What is set in it has no effect.",
        meaning="The settings are those of the session that gets them: tf.Session(config=config).",
        remedy="Give it to the session, or remove it.",
    ),
    LintPage(
        name="no-soft-placement",
        title="Code pins to a GPU what has no kernel for GPUs",
        summary="TensorFlow 1 raises InvalidArgumentError when the session runs it.",
        meaning="Strings, queues, Python functions, summaries and int32 variables run on the CPU alone. Without soft placement "
        "TensorFlow 1 refuses to put them elsewhere.",
        remedy="Put them on the CPU, or use ConfigProto(allow_soft_placement=True).",
    ),
    LintPage(
        name="all-on-one-device",
        title="Code puts every tower of a loop on the same GPU",
        summary="The name of the device does not change with the loop.",
        meaning="Each turn builds its part on the same card, the others get nothing.",
        remedy='Put the number into the name: tf.device(f"/GPU:{i}").',
    ),
    LintPage(
        name="hard-coded-devices",
        title="Code writes out devices that MirroredStrategy would find",
        summary="The program runs on machines with the same number of GPUs only.",
        meaning="Without arguments tf.distribute.MirroredStrategy takes all GPUs that TensorFlow sees.",
        remedy="Leave the list out, and choose cards with CUDA_VISIBLE_DEVICES.",
        severity=Severity.WARNING,
    ),
)
"""All kinds except cluster-address and cluster-task, which the topic `cluster` explains."""
_SEVERITIES = {kind.name: kind.severity for kind in LINT_PAGES}
_KIND_NAMES = {word: name for name, code in LINT_CODES.items() for word in (name, code.lower())}
"""The name of each kind, by its name and by its code in lower case."""


def get_severity(name: str) -> Severity:
    """Return the severity of the kind of finding with this name."""
    return _SEVERITIES.get(name, Severity.ERROR)


def find_kind_name(word: str) -> str | None:
    """Return the name of the kind or the rule with this code ("TFD711") or name, or None if there is none."""
    word = word.strip().lower()
    if word in _KIND_NAMES or not re.fullmatch(r"tfd\d{3}|[a-z]+(?:-[a-z0-9]+)+", word):
        return _KIND_NAMES.get(word)
    from tfdoctor.extensions.lint.rule_names import NAME_BY_CODE  # importing all rules takes long

    return NAME_BY_CODE.get(word.upper()) or (word if word in NAME_BY_CODE.values() else None)
