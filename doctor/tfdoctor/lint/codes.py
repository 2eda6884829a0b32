"""The kinds of findings of `lint`, with the texts for `explain`. Their codes are in `causes.codes`."""

from __future__ import annotations

from tfdoctor.causes.codes import LINT
from tfdoctor.findings import Severity
from tfdoctor.records import dataclass

__all__ = ["KINDS", "Kind", "find_kind", "get_severity"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding, as `explain` prints it."""

    name: str
    title: str
    summary: str
    meaning: str
    remedy: str
    severity: Severity = Severity.ERROR

    @property
    def code(self) -> str:
        return LINT[self.name]


KINDS = (
    Kind(
        "misspelt-variable",
        "Code sets an environment variable whose name is misspelt",
        "Nothing reads a variable of that name.",
        "TensorFlow, CUDA and NCCL read their variables by name and ignore all others without a message: with "
        "CUDA_VISIBLE_DEVIES the program sees every GPU.",
        "Correct the name: `tfdoctor lint --fix` does it. A variable of your own: `# noqa: TFD711`.",
    ),
    Kind(
        "misspelt-option",
        "Code misspells an option or a function of TensorFlow",
        "TensorFlow has no option or function of that name.",
        "ConfigProto and GPUOptions raise AttributeError or ValueError for a field that they do not have; so does "
        "tf.config for a function.",
        "Correct the name: `tfdoctor lint --fix` does it.",
    ),
    Kind(
        "variable-set-wrongly",
        "Code sets an environment variable in a way that has no effect",
        "The line is an error, or sets the variable for a shell that ends at once.",
        "os.environ takes square brackets and strings. os.system and `!` in a notebook start a shell of their own: "
        "what it exports is gone when it ends. So it is with a RUN of a Dockerfile.",
        'Write os.environ["NAME"] = "value"; in a notebook %env NAME=value; in a Dockerfile ENV.',
    ),
    Kind(
        "variable-set-too-late",
        "Code sets an environment variable after it was read",
        "The variable has no effect on this process any longer.",
        "TF_CPP_MIN_LOG_LEVEL and its like are read when tensorflow is imported, CUDA_VISIBLE_DEVICES and "
        "TF_FORCE_GPU_ALLOW_GROWTH at the first use of a GPU, LD_LIBRARY_PATH when the process starts.",
        "Set it at the top of the file, before the import; LD_LIBRARY_PATH before Python starts.",
    ),
    Kind(
        "configured-too-late",
        "Code configures the GPUs after they were initialized",
        "TensorFlow raises RuntimeError there.",
        "Memory growth, visible and logical devices are settings of the first use. An operation, "
        "tf.config.list_logical_devices or a MirroredStrategy before them is that first use.",
        "Move the settings to the top of the program, right behind the import.",
    ),
    Kind(
        "growth-not-on-all",
        "Code sets memory growth for some of the GPUs only",
        "On a machine with several GPUs TensorFlow refuses.",
        "Memory growth must be the same for all visible GPUs: otherwise TensorFlow raises ValueError, "
        '"Memory growth cannot differ between GPU devices".',
        'Set it in a loop: for gpu in tf.config.list_physical_devices("GPU"). Or show the program one GPU.',
    ),
    Kind(
        "removed-api",
        "Code uses names of TensorFlow that this release does not have",
        "A name of TensorFlow 1 under TensorFlow 2, or the other way round.",
        "tf.Session, tf.placeholder, tf.ConfigProto and hundreds more left the main namespace with TensorFlow 2.0, "
        "tf.contrib is gone. Where the release is not known, code is judged as for TensorFlow 2.",
        "Use tf.compat.v1 for old names, or name the release that the code is for: --tf 1.15.",
    ),
    Kind(
        "no-such-device",
        "Code names a device that does not exist",
        "The string is not the name of a device, or the machine has fewer GPUs.",
        "TensorFlow takes /GPU:0, /device:GPU:0 and /CPU:0. GPUs are counted from 0, among those that "
        "CUDA_VISIBLE_DEVICES leaves.",
        "Correct the name. For a machine with another number of GPUs: --gpus N.",
    ),
    Kind(
        "config-unused",
        "Code makes a ConfigProto or GPUOptions and gives it to no session",
        "What is set in it has no effect.",
        "The settings are those of the session that gets them: tf.Session(config=config).",
        "Give it to the session, or remove it.",
    ),
    Kind(
        "no-soft-placement",
        "Code pins to a GPU what has no kernel for GPUs",
        "TensorFlow 1 raises InvalidArgumentError when the session runs it.",
        "Strings, queues, Python functions, summaries and int32 variables run on the CPU alone. Without soft placement "
        "TensorFlow 1 refuses to put them elsewhere.",
        "Put them on the CPU, or use ConfigProto(allow_soft_placement=True).",
    ),
    Kind(
        "all-on-one-device",
        "Code puts every tower of a loop on the same GPU",
        "The name of the device does not change with the loop.",
        "Each turn builds its part on the same card, the others get nothing.",
        'Put the number into the name: tf.device(f"/GPU:{i}").',
    ),
    Kind(
        "hard-coded-devices",
        "Code writes out devices that MirroredStrategy would find",
        "The program runs on machines with the same number of GPUs only.",
        "Without arguments tf.distribute.MirroredStrategy takes all GPUs that TensorFlow sees.",
        "Leave the list out, and choose cards with CUDA_VISIBLE_DEVICES.",
        Severity.WARNING,
    ),
)
"""All kinds except cluster-address and cluster-task, which the topic `cluster` explains."""
_SEVERITIES = {kind.name: kind.severity for kind in KINDS}
_NAMES_BY_CODE_OR_NAME = {word: name for name, code in LINT.items() for word in (name, code.lower())}


def get_severity(name: str) -> Severity:
    """Return the severity of the kind of finding with this name."""
    return _SEVERITIES.get(name, Severity.ERROR)


def find_kind(word: str) -> str | None:
    """Return the name of the kind with this code ("TFD711") or name, or None if there is none."""
    return _NAMES_BY_CODE_OR_NAME.get(word.strip().lower())
