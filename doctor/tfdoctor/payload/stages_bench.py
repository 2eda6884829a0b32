# Part of stages.py: times work on each device (stage bench). Results are not checked here.
#
# All graphs are built first and then run in turns, so that a temporary disturbance of the machine increases
# the spread of all times and does not shift the median of one graph. The line after each turn contains all
# times so far, and replaces the previous line. Each call fetches a number that depends on the whole result,
# so it ends when the device has finished.
import os
import re
import tempfile
import time

from stages_compute import Tf32Disabler
from stages_bench_work import DTYPES, WORKLOADS, build_session_work, iter_eager_work
from stages_devices import DeviceUnderTest, get_config_function
from stages_output import MAX_ERROR_CHARS, StageError, say, summarize_error, format_error

ROUNDS = 8
MAX_SAMPLES = 400  # samples (timed calls) for a piece of work in all rounds
MIN_SAMPLES = 12  # a precise result has at least this number of samples per two rounds
MIN_ROUNDS = 6  # for a precise result, because the machine's speed changes between rounds
# No first call starts after this share of the budget, in sessions and eagerly.
WARM_UP_SHARE, EAGER_WARM_UP_SHARE = 0.5, 0.8
MAX_RELATIVE_ERROR = 0.01  # half the width of the median's confidence interval, as a share of the median
clock = getattr(time, "perf_counter", time.time)
TICKS_PER_S = 100.0  # units of /proc/stat per second
# Lines in TensorFlow's log about compilation and about connections between devices.
RELEVANT_LOG_LINE = re.compile(
    r"PTX|ptxas|using XLA|jit-compiled|[Aa]utotun|[Pp]eer access|edge matrix|\] +\d+: +[NY]( [NY])*\s*$|\] +0( \d+)+\s*$"
)


class MachineBenchmark(object):
    """A computation without TensorFlow, whose times show the speed of the machine during the benchmark.

    It is a Fourier transform, because numpy computes it in a single thread on every machine.
    """

    POINTS = 8192

    def __init__(self):
        self.seconds, self.description = [], None
        try:
            import numpy

            self.transform, self.samples = numpy.fft.fft, numpy.linspace(-1.0, 1.0, self.POINTS)
            self.description = "numpy %s" % numpy.__version__
        except Exception:  # problems of numpy are not reported here
            pass

    def measure(self):
        """Time one transform."""
        if self.description is None:
            return
        start = clock()
        self.transform(self.samples)
        self.seconds.append(clock() - start)

    def report(self):
        """Print the median of the times so far."""
        if self.seconds:
            median = sorted(self.seconds)[len(self.seconds) // 2]
            say(stage="bench", yardstick=dict(what=self.description, seconds=float("%.6g" % median)))


class TimedWork(object):
    """A piece of work that is timed."""

    def __init__(self, facts, call):
        self.facts, self.call = facts, call
        self.initialize = None  # the function that initialises the variables, if there are any
        self.seconds, self.first_seconds, self.skip_reason, self.log_text = [], None, "", ""
        self.sample_counts = []  # for each round
        # The CPU time that other processes used and that all processors have, and the share of other processes.
        self.other_cpu_seconds, self.available_cpu_seconds, self.other_share = 0.0, 0.0, None
        self.is_quiet = self.is_smallest = False

    def report(self):
        """Print the times so far, unless `is_quiet` is set."""
        if self.is_quiet:
            return
        line = dict(self.facts, samples=[float("%.6g" % seconds) for seconds in self.seconds], first=self.first_seconds)
        line["rounds"] = self.sample_counts
        if self.other_share is not None:
            line["others"] = round(self.other_share, 3)
        if self.skip_reason:
            line["left_out"] = self.skip_reason
        if self.log_text:
            line["heard"] = self.log_text
        say(stage="bench", run=line)


class LogCapture(object):
    """A context manager that captures the relevant lines of the log, including those from C++.

    The log still reaches standard error. It goes through a file, because a pipe that nothing reads could fill up.
    """

    def __init__(self):
        self.text = ""

    def __enter__(self):
        self.stderr_copy = self.file = None
        try:
            self.file = tempfile.TemporaryFile()
            self.stderr_copy = os.dup(2)
            os.dup2(self.file.fileno(), 2)
        except (IOError, OSError):
            pass
        return self

    def __exit__(self, *_):
        if self.stderr_copy is not None:
            os.dup2(self.stderr_copy, 2)
            self.file.seek(0)
            log_bytes = self.file.read()
            try:
                os.write(self.stderr_copy, log_bytes)
            except OSError:
                pass
            os.close(self.stderr_copy)
            lines = log_bytes.decode("utf-8", "replace").splitlines()
            relevant_lines = [line for line in lines if RELEVANT_LOG_LINE.search(line)]
            self.text = "\n".join(relevant_lines)[:MAX_ERROR_CHARS]
        if self.file is not None:
            self.file.close()


def do_bench(run):
    """Time the requested work on the requested devices, and return a summary and {}."""
    request = run.request.get("bench") or {}
    budget = float(request.get("time") or 60)
    cards = select_devices(run, request.get("devices") or [])
    uses_autotune = os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1") not in ("0", "false", "False")
    say(stage="bench", devices=[dict(card.details, device=format_device_name(card)) for card in cards], uses_autotune=uses_autotune)
    pieces, errors = [], []
    v1 = run.v1
    cpu_count = max([1] + [card.index + 1 for card in cards if card.kind == "CPU"])
    config = v1.ConfigProto(
        gpu_options=v1.GPUOptions(allow_growth=True), allow_soft_placement=True, device_count={"CPU": cpu_count}
    )
    Tf32Disabler(run, True).__enter__()  # the known peak speeds of float32 are those without TF32
    split_cpu(run, cpu_count)
    for workload in request.get("workloads") or WORKLOADS:  # one graph each, because optimizing a large one is slow
        graph = v1.Graph()
        with LogCapture() as log:  # the first session creates the devices
            session = v1.Session(graph=graph, config=config)
        if log.text:
            say(stage="bench", log=log.text)
        with graph.as_default():
            make_pieces(build_session_work(run, cards, dict(request, workloads=[workload]), format_device_name), session, pieces, errors, v1)
    pieces = sort_smallest_first(pieces)
    start_time = clock()  # the import and building the graphs do not count
    start_time += warm_up(pieces, start_time, budget, WARM_UP_SHARE)
    benchmark = MachineBenchmark()
    run_rounds(pieces, start_time, budget, [0], benchmark)
    # Run MirroredStrategy and XLA only after all others were timed once, because an all-reduce by NCCL may
    # crash or hang.
    build_start = clock()
    eager_pieces = []
    with LogCapture() as log:
        make_pieces(iter_eager_work(run, cards, request, format_device_name), None, eager_pieces, errors)
    if log.text:
        say(stage="bench", log=log.text)
    start_time += clock() - build_start
    eager_pieces = sort_smallest_first(eager_pieces)
    start_time += warm_up(eager_pieces, start_time, budget, EAGER_WARM_UP_SHARE)
    pieces += eager_pieces
    for piece in pieces:
        piece.is_quiet = bool(request.get("shortly"))
    run_rounds(pieces, start_time, budget, range(1, ROUNDS), benchmark)
    for piece in pieces:
        if piece.is_quiet:
            piece.is_quiet = False
            piece.report()
    if not pieces:
        raise StageError("; ".join(sorted(set(errors)))[:300]) if errors else make_unsupported_request_error(request, cards)
    timed_count = sum(1 for piece in pieces if piece.seconds)
    if not timed_count:
        raise StageError("; ".join(sorted(set(timed_piece.skip_reason for timed_piece in pieces)))[:300])
    return "%d pieces of work were timed in %.0f s" % (timed_count, clock() - start_time), {}


def make_unsupported_request_error(request, cards):
    """Return the error for a request that matches no work. It explains which part of the request is wrong."""
    workloads, dtypes = request.get("workloads") or WORKLOADS, request.get("dtypes") or DTYPES
    reasons = []
    device_kinds = [card.kind for card in cards]
    if "allreduce" in workloads and max(device_kinds.count(kind) for kind in device_kinds) < 2:
        reasons.append("an all-reduce needs two devices of a kind, such as --devices CPU:0,CPU:1")
    if "train" in workloads and "float32" not in dtypes:
        reasons.append("training is timed in float32 alone")
    if "conv" in workloads and all(dtype == "tf32" for dtype in dtypes):
        reasons.append("convolutions are not timed in tf32")
    if "matmul" in workloads or ("conv" in workloads and len(reasons) == 0):
        names = ", ".join(format_device_name(card) for card in cards)
        reasons.append("with this TensorFlow %s has no %s" % (names, " and no ".join(dtypes)))
    error = StageError("; ".join(reasons))
    error.facts = {"wish": True}
    return error


def make_pieces(definitions, session, pieces, errors, v1=None):
    """Build each (facts, make) of `definitions` and add it to `pieces`, or its error to `errors`.

    The variables of a piece are initialised before its first call, so that work that is never called takes no
    memory.
    """
    for facts, make in definitions:
        try:
            known_ids = set(id(variable) for variable in v1.global_variables()) if v1 is not None else ()
            piece = TimedWork(facts, make(session))
            if v1 is not None:
                piece.initialize = make_initializer(v1, session, known_ids)
            pieces.append(piece)
        except Exception as error:
            errors.append(summarize_error(format_error(error)))
            say(stage="bench", run=dict(facts, samples=[], first=None, left_out=errors[-1]))


def make_initializer(v1, session, known_ids):
    """Return a function that initialises the variables whose id() is not in `known_ids`, if there are any."""
    initializers = [variable.initializer for variable in v1.global_variables() if id(variable) not in known_ids]

    def initialize():
        session.run(initializers)

    return initialize if initializers else None


def sort_smallest_first(pieces):
    """Return the pieces in the order in which they are run.

    The smallest of each family come first, so that each family is timed even if there is little time.
    """
    ranks, piece_counts = [], {}
    for piece in pieces:
        family = get_work_family(piece)
        ranks.append(piece_counts.setdefault(family, 0))
        piece.is_smallest = piece_counts[family] == 0
        piece_counts[family] += 1
    return [piece for _, piece in sorted(zip(ranks, pieces), key=lambda pair: pair[0])]


def get_work_family(piece):
    """Return the properties that a piece shares with the same work in other sizes."""
    names = ("workload", "model", "part", "dtype", "strategy", "xla")
    return tuple(piece.facts.get(name) for name in names) + tuple(piece.facts["devices"])


def split_cpu(run, count):
    """Split the CPU into logical devices for eager work.

    If TensorFlow cannot do that, MirroredStrategy reports the error later.
    """
    configure, list_devices = get_config_function(run.tf, "set_logical_device_configuration"), get_config_function(run.tf, "list_physical_devices")
    configuration_class = get_config_function(run.tf, "LogicalDeviceConfiguration")
    if count > 1 and configure is not None and configuration_class is not None:
        try:
            configure(list_devices("CPU")[0], [configuration_class() for _ in range(count)])
        except (RuntimeError, ValueError):
            pass


def warm_up(pieces, start_time, budget, share):
    """Time the first call of each piece, which optimizes the graph, compiles, and selects algorithms.

    The smallest piece of each family may start at any time within the budget, the others only within `share` of it.
    Return the seconds that the initialisation of variables took, which do not count.
    """
    too_slow, initialization_seconds = {}, 0.0
    for piece in pieces:
        limit = budget * (1.0 if piece.is_smallest else share)
        if too_slow.get(get_work_family(piece)) or clock() - start_time - initialization_seconds > limit:
            piece.skip_reason = "the time is used up"
            piece.report()
            continue
        try:
            call_start = clock()
            if piece.initialize is not None:
                piece.initialize()
            initialization_seconds += clock() - call_start
            with LogCapture() as log:
                call_start = clock()
                piece.call()
                piece.first_seconds = round(clock() - call_start, 6)
            piece.log_text = log.text
            call_start = clock()
            piece.call()
            if clock() - call_start > budget * share / 12.0:  # larger sizes would use up the budget
                too_slow[get_work_family(piece)] = True
        except Exception as error:
            piece.skip_reason = summarize_error(format_error(error))
        piece.report()
    return initialization_seconds


def run_rounds(pieces, start_time, budget, round_numbers, benchmark=None):
    """Time the pieces in turns until the budget in seconds is used up, or until all results are precise."""
    active = [piece for piece in pieces if not piece.skip_reason]
    for round_number in round_numbers:
        imprecise = [piece for piece in active if not piece.skip_reason and not is_precise(piece)]
        for position, piece in enumerate(imprecise):
            remaining = budget - (clock() - start_time)
            if remaining <= 0 and piece.seconds:
                continue
            if benchmark is not None:
                benchmark.measure()
            slot_seconds = max(remaining, 0.0) / max((ROUNDS - round_number) * len(imprecise) - position, 1)
            slot_start, load_before = clock(), read_cpu_load()
            count_before = len(piece.seconds)
            try:
                while len(piece.seconds) - count_before < MAX_SAMPLES // ROUNDS:
                    call_start = clock()
                    piece.call()
                    piece.seconds.append(clock() - call_start)
                    if clock() - slot_start > slot_seconds:
                        break
            except Exception as error:
                piece.skip_reason = summarize_error(format_error(error))
            piece.sample_counts += [0] * (round_number - len(piece.sample_counts)) + [len(piece.seconds) - count_before]
            measure_other_share(piece, load_before, read_cpu_load(), clock() - slot_start)
            piece.report()
        if benchmark is not None:
            benchmark.report()


def is_precise(piece):
    """Return whether there are enough rounds and the median's 95 % confidence interval is narrow enough."""
    seconds = piece.seconds
    count = len(seconds)
    round_count = len([sample_count for sample_count in piece.sample_counts if sample_count])
    if round_count < MIN_ROUNDS or count < MIN_SAMPLES * ROUNDS // 2:
        return False
    sorted_seconds = sorted(seconds)
    half_width = int(0.98 * count**0.5) + 1  # ranks of the interval: 1.96 * sqrt(count) / 2
    lower, upper = sorted_seconds[max(count // 2 - half_width, 0)], sorted_seconds[min(count // 2 + half_width, count - 1)]
    return (upper - lower) / 2.0 <= MAX_RELATIVE_ERROR * sorted_seconds[count // 2]


def read_cpu_load():
    """Return the CPU load of the machine and of this process; None if it is unknown.

    It is a tuple of the busy seconds of all processors, the busy seconds of this process, the number of processors,
    and the number of throttled periods.
    """
    try:
        with open("/proc/stat") as stream:
            stats = stream.read().splitlines()
    except (IOError, OSError):
        return None
    numbers = [int(field) for field in stats[0].split()[1:9]]
    busy_ticks = sum(numbers[:3]) + sum(numbers[5:8])  # without idle and I/O wait
    own_seconds = sum(os.times()[:2])  # in user code and in the kernel
    processor_count = sum(1 for line in stats[1:] if line.startswith("cpu"))
    return busy_ticks / TICKS_PER_S, own_seconds, processor_count, count_throttled()


def count_throttled():
    """Return in how many periods the CPU quota of a cgroup throttled this process; 0 if it is unknown."""
    for name in ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"):
        try:
            with open(find_own_cgroup_file(name)) as stream:
                for line in stream:
                    if line.startswith("nr_throttled "):
                        return int(line.split()[1])
        except (IOError, OSError, ValueError, IndexError):
            continue
    return 0


def find_own_cgroup_file(name):
    """Return the file `name` of the cgroup of this process if it exists there, else `name`."""
    folder, _, file_name = name.rpartition("/")
    with open("/proc/self/cgroup") as stream:
        for line in stream:
            number, kinds, path = line.rstrip("\n").split(":", 2)
            if number == "0" or "cpu" in kinds.split(","):
                own_path = folder + path.rstrip("/") + "/" + file_name
                if os.path.exists(own_path):
                    return own_path
    return name


def measure_other_share(piece, before, after, seconds):
    """Set `piece.other_share`, the share of the processors (0 to 1) that other processes used meanwhile.

    It is 1 if a CPU quota throttled this process, and remains None if the measured time is too short.
    """
    if before is None or after is None or piece.other_share == 1.0:
        return
    busy_before, own_before, _, throttled_before = before
    busy_after, own_after, processor_count, throttled_after = after
    piece.available_cpu_seconds += seconds * max(processor_count, 1)
    piece.other_cpu_seconds += (busy_after - busy_before) - (own_after - own_before)
    if throttled_after > throttled_before:
        piece.other_share = 1.0
    elif piece.available_cpu_seconds > 0.3:  # the kernel's counters are too coarse (1/100 s) for shorter times
        piece.other_share = min(max(piece.other_cpu_seconds / piece.available_cpu_seconds, 0.0), 0.99)


def select_devices(run, names):
    """Return the devices with these names, or the CPU and each GPU if `names` is empty.

    CPU:1 and higher are logical devices. Raise WrongResult if TensorFlow does not list a requested device.
    """
    gpus = {}
    if any(name.startswith("GPU") for name in names) or not names:
        for card in run.cards:
            if card.kind == "GPU":
                gpus["GPU:%d" % card.index] = card
    if not names:
        names = ["CPU:0"] + sorted(gpus, key=lambda name: gpus[name].index)
    result = []
    for name in names:
        kind, _, index = name.partition(":")
        if kind == "CPU":
            result.append(DeviceUnderTest(int(index), "CPU", "/device:CPU:%s" % index))
        elif name in gpus:
            result.append(gpus[name])
        else:
            raise StageError("TensorFlow lists no %s" % name)
    return result


def format_device_name(card):
    return "%s:%d" % (card.kind, card.index)
