# Tests TensorFlow on its GPUs in stages: import, visible, compute, cudnn, nccl (tfdoctor verify), and bench,
# which runs only on request (tfdoctor bench).
#
# Runs on Python 2.7 and 3.5 to 3.14 and on TensorFlow 1.4 to 2.x. The only argument is a JSON object:
#
#   in_cwd    whether modules of the working directory come first, as for a program that is started there
#   stages    which of STAGES to run; `import` and `visible` always run, because the others need them
#   device    "GPU", or "CPU" to run the same computations on the CPU (for testing this script)
#   limits    {stage: seconds}: SIGALRM ends the process at a stage's time limit, even if C code hangs
#   expected  {"0": GFLOP/s} or {"0": {"float32": GFLOP/s}}: the speed of a GPU of this model, if known
#   size      rows of the matrices that are compared
#   timed     seconds for which each timed call is repeated
#   small     whether to use small sizes and to time nothing, for simulated GPUs
#   bench     {"time", "devices", "workloads", "dtypes", "sizes"}: the seconds in all, and the work to time
#
# It prints a line for each result as soon as it is known, so that a crash or a hang loses only later results.
# Of each result it decides only whether it is right.
#
# Computations run in a Session, which every TensorFlow supports, so that one implementation is enough. Inputs
# are fed: with constants, TensorFlow would compute the result on the CPU (constant folding).
#
# Its parts, stages_*.py, must be in the same folder.
import sys

# Remove the script's own folder, which comes first unless Python runs in safe mode: it must not shadow
# modules.
if sys.path and not (getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)):
    sys.path.pop(0)

import json
import math
import os
import signal
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from stages_bench import do_bench
from stages_compute import do_compute, do_cudnn
from stages_devices import SharedState, do_import, do_visible
from stages_nccl import do_nccl
from stages_output import MAX_ERROR_CHARS, WRITER, MissingFeature, ProgressReporter, StageError, say, summarize_error, measure_seconds_since, format_error

sys.path.pop(0)

DEFAULT_STAGES = ("import", "visible", "compute", "cudnn", "nccl")
STAGES = DEFAULT_STAGES + ("bench",)
STAGE_FUNCTIONS = {"import": do_import, "visible": do_visible, "compute": do_compute, "cudnn": do_cudnn, "nccl": do_nccl, "bench": do_bench}


def set_alarm(seconds):
    """Make SIGALRM end the process after `seconds` seconds. 0 cancels the alarm."""
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.alarm(int(math.ceil(seconds)))


def run_stage(run, stage, limit):
    """Run a stage and print its result. Return False if it failed."""
    say(stage=stage, status="begin")
    set_alarm(limit)
    started = time.time()
    progress = ProgressReporter(stage, limit)
    progress.start()
    status, full_error, facts = "passed", "", {}
    try:
        detail, facts = STAGE_FUNCTIONS[stage](run)
    except MissingFeature as error:
        # An all-reduce is optional: there may be one GPU only, or no NCCL.
        status, detail = ("skipped" if stage == "nccl" else "failed"), "%s" % error
        full_error = detail if status == "failed" else ""
    except StageError as error:
        status, detail = "failed", "%s" % error
        full_error, facts = getattr(error, "raw", "") or detail, getattr(error, "facts", {})
    except BaseException as error:
        status, full_error = "failed", format_error(error)
        detail = summarize_error(full_error)
    finally:
        progress.stop_event.set()
        set_alarm(0)
    say(stage=stage, status=status, detail=detail[:MAX_ERROR_CHARS], seconds=measure_seconds_since(started), error=full_error, **facts)
    return status != "failed"


def main():
    WRITER.reserve_stdout()
    request = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    # Do not allocate the whole memory of a GPU, whatever the environment says.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    if request.get("in_cwd") and not (getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)):
        sys.path.insert(0, "")
    stages = set(request.get("stages") or DEFAULT_STAGES) | set(DEFAULT_STAGES[:2])
    limits = request.get("limits") or {}
    run = SharedState(request)
    for stage in STAGES:
        if stage in stages and not run_stage(run, stage, float(limits.get(stage) or 0)):
            break
    say(end=True)
    # Skip the exit handlers of TensorFlow and the driver. They can crash or hang, and are not tested here.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
