"""The notes of `diagnose` on a log, with the texts that `explain` prints."""

from __future__ import annotations

from tfdoctor.core.causes.codes import CodePage

__all__ = ["LOG_PAGES"]

LOG_PAGES = (
    CodePage(
        "harmless-messages",
        "Messages in a log that look bad and are harmless",
        "Lines that look alarming but decide nothing.",
        "A healthy log is full of alarming lines: no NUMA node, a factory registered twice, no TensorRT, "
        "instructions that the processor also supports.",
        "Nothing: they do not decide whether TensorFlow uses the GPU.",
    ),
    CodePage(
        "easily-misread",
        "Lines in a log that are easily taken for the opposite",
        "Lines that say less than they seem to.",
        "A line says less than it seems to: XLA_GPU devices are not registered GPUs, a library that was "
        "opened is not all of them, a card that is found need not be used.",
        "Read the verdict, which weighs the lines that decide.",
    ),
    CodePage(
        "which-tensorflow",
        "Which TensorFlow wrote a log, by the lines of its source",
        "Lines that reveal the release.",
        "A message names the file and the line of TensorFlow's source that logs it, and these change from "
        "release to release: what all of a log's lines have in common is the release that wrote it. A line "
        "that no release has comes from another build; lines without a release in common come from several "
        "TensorFlows.",
        "Nothing. Where the release is not known, put yours into the commands.",
    ),
    CodePage(
        "device-unused",
        "A GPU is there and got nothing",
        "TensorFlow lists a GPU, and the placement log puts no operation on it.",
        "TensorFlow puts operations on the first GPU unless the program says otherwise. It takes the memory"
        " of every GPU that it sees all the same.",
        "Use tf.distribute.MirroredStrategy, or tf.device for each GPU. Or show the program one GPU: "
        "CUDA_VISIBLE_DEVICES=0.",
    ),
    CodePage(
        "ran-on-cpu",
        "Operations ran on the CPU, all of them or between those on a GPU",
        "A placement log shows the CPU where one expects a GPU.",
        "Some operations have no kernel for GPUs: strings, Python functions, some types. Between operations"
        " on a GPU they cost a copy to the CPU and one back. Where TensorFlow knows no GPU, everything runs"
        " on the CPU.",
        "Keep such operations in the input pipeline, out of the training step. Where no GPU is known, "
        "tfdoctor check says why.",
    ),
    CodePage(
        "placement-not-printed",
        "A log that does not say where operations ran",
        "TensorFlow prints the placement of operations only where it is asked to.",
        "The log has no line of a placement and no refused one.",
        "Call tf.debugging.set_log_device_placement(True) before anything else, or in TensorFlow 1 give the"
        " session ConfigProto(log_device_placement=True).",
    ),
)
