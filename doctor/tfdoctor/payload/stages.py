# What TensorFlow really does with its GPUs, in stages: import, visible, compute, cudnn, nccl (tfdoctor verify), and
# bench, which is run only where it is asked for (tfdoctor bench).
# Runs on Python 2.7 and 3.5 to 3.14 and on TensorFlow 1.4 to 2.x. The only argument is a JSON object:
#   stages    which of STAGES to run; `import` and `visible` are always run, the others need them
#   device    "GPU", or "CPU": the same computations on the CPU (a test of this test)
#   limits    {stage: seconds}: SIGALRM ends the process at a stage's deadline, also where C code hangs
#   expected  {"0": GFLOP/s} or {"0": {"float32": GFLOP/s}}: what such a card should give, where it is known
#   size      rows of the matrices that are compared
#   timed     seconds that each timed thing is repeated for
#   small     true: all is small, and nothing is timed: for GPUs that are software
#   bench     {"time", "devices", "workloads", "dtypes", "sizes"}: what is timed, and for how many seconds in all
# A line for each thing as soon as it is known, so that a crash or a hang costs only what comes after it. Nothing is
# judged here but whether a result is right.
# A Session computes on every TensorFlow: 2.x still has it, and there is one way to be right or wrong. What goes in is
# fed, never constant: constants are folded, and folding is done on the CPU.
# Its parts, stages_*.py, lie beside it wherever it is run.
import sys

# The script's own folder is on sys.path first, unless Python was told to leave it out: it must not shadow anything.
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
from stages_devices import Run, do_import, do_visible
from stages_nccl import do_nccl
from stages_output import LONGEST, MOUTH, Missing, Pulse, Wrong, say, short, measure_since, text

sys.path.pop(0)

USUAL = ("import", "visible", "compute", "cudnn", "nccl")
STAGES = USUAL + ("bench",)
WORK = {"import": do_import, "visible": do_visible, "compute": do_compute, "cudnn": do_cudnn, "nccl": do_nccl, "bench": do_bench}


def set_alarm(seconds):
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        signal.alarm(int(math.ceil(seconds)))


def work(run, stage, limit):
    """Return whether the next may be tried."""
    say(stage=stage, status="begin")
    set_alarm(limit)
    began = time.time()
    pulse = Pulse(stage, limit)
    pulse.start()
    status, raw, facts = "passed", "", {}
    try:
        detail, facts = WORK[stage](run)
    except Missing as error:
        # Only NCCL can be missing and nothing be wrong.
        status, detail = ("skipped" if stage == "nccl" else "failed"), "%s" % error
        raw = detail if status == "failed" else ""
    except Wrong as error:
        status, detail = "failed", "%s" % error
        raw, facts = getattr(error, "raw", "") or detail, getattr(error, "facts", {})
    except BaseException as error:
        status, raw = "failed", text(error)
        detail = short(raw)
    finally:
        pulse.over.set()
        set_alarm(0)
    say(stage=stage, status=status, detail=detail[:LONGEST], seconds=measure_since(began), error=raw, **facts)
    return status != "failed"


def main():
    MOUTH.keep_for_us()
    wish = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    # Whatever the user's environment says: never the whole memory of a card.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    asked = set(wish.get("stages") or USUAL) | set(USUAL[:2])
    limits = wish.get("limits") or {}
    run = Run(wish)
    for stage in STAGES:
        if stage in asked and not work(run, stage, float(limits.get(stage) or 0)):
            break
    say(end=True)
    # Past what TensorFlow and the driver do on their way out: it can crash or hang, and is not what was asked.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
