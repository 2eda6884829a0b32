# Part of stages.py: how long work takes on each device (bench). Nothing is judged here.
# All graphs are built first and run in turns, so that whatever disturbs the machine for a while is in the spread of
# each of them and not in the middle of one. A line after each turn holds all times so far and replaces the one before.
# Each call fetches a number that the work ends in: it comes to the host when the device is done, and not before.
import os
import re
import tempfile
import time

from stages_compute import tf32_switch
from stages_bench_work import TYPES, WORKLOADS, build, build_eager
from stages_devices import Card, public_config
from stages_output import LONGEST, Wrong, say, short, text

ROUNDS = 8
MOST = 400  # times of one piece of work that are kept
FEWEST = 12  # times without which nothing is said to be precise
SPREAD = 6  # rounds without which neither is: a machine's own speed may change meanwhile
WARM, EAGER = 0.5, 0.8  # parts of the time after which no first call is begun: in sessions, and of what comes later
PRECISE = 0.01  # half the width of the interval of the median, as a part of it
TICKS = 100.0  # of /proc/stat, in a second
# Of TensorFlow's log of making the devices and of first calls: what tells of compiling, and of the ways between devices.
TELLING = re.compile(
    r"PTX|ptxas|using XLA|jit-compiled|[Aa]utotun|[Pp]eer access|edge matrix|\] +\d+: +[NY]( [NY])*\s*$|\] +0( \d+)+\s*$"
)


class Yardstick(object):
    """Work of this processor that is not TensorFlow's: how fast the machine itself is while TensorFlow is timed.

    A Fourier transform, for numpy computes it in one thread everywhere.
    """

    POINTS = 8192

    def __init__(self):
        self.seconds, self.what = [], None
        try:
            import numpy

            self.transform, self.given = numpy.fft.fft, numpy.linspace(-1.0, 1.0, self.POINTS)
            self.what = "numpy %s" % numpy.__version__
        except Exception:  # what is wrong with numpy is not told here
            pass

    def measure(self):
        if self.what is None:
            return
        start = clock()
        self.transform(self.given)
        self.seconds.append(clock() - start)

    def tell(self):
        if self.seconds:
            middle = sorted(self.seconds)[len(self.seconds) // 2]
            say(stage="bench", yardstick=dict(what=self.what, seconds=float("%.6g" % middle)))


class Piece(object):
    """One thing that is timed."""

    def __init__(self, facts, call):
        self.facts, self.call, self.ready = facts, call, None
        self.seconds, self.first, self.left_out, self.heard = [], None, "", ""
        self.rounds = []  # how many of the times are of each round
        self.busy, self.spent, self.others = 0.0, 0.0, None
        self.quiet = self.smallest = False

    def tell(self):
        if self.quiet:
            return
        line = dict(self.facts, samples=[float("%.6g" % one) for one in self.seconds], first=self.first)
        line["rounds"] = self.rounds
        if self.others is not None:
            line["others"] = round(self.others, 3)
        if self.left_out:
            line["left_out"] = self.left_out
        if self.heard:
            line["heard"] = self.heard
        say(stage="bench", run=line)


class LogCapture(object):
    """What is logged meanwhile (in C++, too), cut to the lines that tell something; it goes on to where it went before.

    A file, for a pipe could be full while nobody may read it.
    """

    def __init__(self):
        self.text = ""

    def __enter__(self):
        self.kept = self.file = None
        try:
            self.file = tempfile.TemporaryFile()
            self.kept = os.dup(2)
            os.dup2(self.file.fileno(), 2)
        except (IOError, OSError):
            pass
        return self

    def __exit__(self, *_):
        if self.kept is not None:
            os.dup2(self.kept, 2)
            self.file.seek(0)
            said = self.file.read()
            try:
                os.write(self.kept, said)
            except OSError:
                pass
            os.close(self.kept)
            rows = [row for row in said.decode("utf-8", "replace").splitlines() if TELLING.search(row)]
            self.text = "\n".join(rows)[:LONGEST]
        if self.file is not None:
            self.file.close()


def do_bench(run):
    wish = run.wish.get("bench") or {}
    budget = float(wish.get("time") or 60)
    cards = devices(run, wish.get("devices") or [])
    autotune = os.environ.get("TF_CUDNN_USE_AUTOTUNE", "1") not in ("0", "false", "False")
    say(stage="bench", devices=[dict(card.details, device=short_name(card)) for card in cards], autotune=autotune)
    pieces, refused = [], []
    v1 = run.v1
    count = max([1] + [card.index + 1 for card in cards if card.kind == "CPU"])
    config = v1.ConfigProto(
        gpu_options=v1.GPUOptions(allow_growth=True), allow_soft_placement=True, device_count={"CPU": count}
    )
    tf32_switch(run, True).__enter__()  # float32 is float32: the peaks that are known are of that
    logical_cpus(run, count)
    for workload in wish.get("workloads") or WORKLOADS:  # a graph each: optimizing a large one takes long
        graph = v1.Graph()
        with LogCapture() as log:  # the first makes the devices
            session = v1.Session(graph=graph, config=config)
        if log.text:
            say(stage="bench", log=log.text)
        with graph.as_default():
            make_pieces(build(run, cards, dict(wish, workloads=[workload]), short_name), session, pieces, refused, v1)
    pieces = sort_in_turns(pieces)
    began = clock()  # importing TensorFlow and building the graphs is not measuring
    began += warm_up(pieces, began, budget, WARM)
    yardstick = Yardstick()
    rounds(pieces, began, budget, [0], yardstick)
    # MirroredStrategy and XLA come when each of the others has some times: where its all-reduce (NCCL) crashes or
    # hangs, those are kept.
    building = clock()
    eager = []
    with LogCapture() as log:
        make_pieces(build_eager(run, cards, wish, short_name), None, eager, refused)
    if log.text:
        say(stage="bench", log=log.text)
    began += clock() - building
    eager = sort_in_turns(eager)
    began += warm_up(eager, began, budget, EAGER)
    pieces += eager
    for piece in pieces:
        piece.quiet = bool(wish.get("shortly"))
    rounds(pieces, began, budget, range(1, ROUNDS), yardstick)
    for piece in pieces:
        if piece.quiet:
            piece.quiet = False
            piece.tell()
    if not pieces:
        raise Wrong("; ".join(sorted(set(refused)))[:300]) if refused else explain_unserved(wish, cards)
    timed = sum(1 for piece in pieces if piece.seconds)
    if not timed:
        raise Wrong("; ".join(sorted(set(p.left_out for p in pieces)))[:300])
    return "%d pieces of work were timed in %.0f s" % (timed, clock() - began), {}


def explain_unserved(wish, cards):
    """Return why no work is what was wished: the wish is wrong, and TensorFlow is not."""
    asked, types = wish.get("workloads") or WORKLOADS, wish.get("dtypes") or TYPES
    why = []
    kinds = [card.kind for card in cards]
    if "allreduce" in asked and max(kinds.count(kind) for kind in kinds) < 2:
        why.append("an all-reduce needs two devices of a kind, such as --devices CPU:0,CPU:1")
    if "train" in asked and "float32" not in types:
        why.append("training is timed in float32 alone")
    if "conv" in asked and all(one == "tf32" for one in types):
        why.append("convolutions are not timed in tf32")
    if "matmul" in asked or ("conv" in asked and len(why) == 0):
        names = ", ".join(short_name(card) for card in cards)
        why.append("with this TensorFlow %s has no %s" % (names, " and no ".join(types)))
    error = Wrong("; ".join(why))
    error.facts = {"wish": True}
    return error


def make_pieces(offered, session, pieces, refused, v1=None):
    """Its variables get their numbers when it is first called: what is never called takes no memory."""
    for facts, make in offered:
        try:
            before = set(id(one) for one in v1.global_variables()) if v1 is not None else ()
            piece = Piece(facts, make(session))
            if v1 is not None:
                piece.ready = initializer(v1, session, before)
            pieces.append(piece)
        except Exception as error:
            refused.append(short(text(error)))
            say(stage="bench", run=dict(facts, samples=[], first=None, left_out=refused[-1]))


def initializer(v1, session, before):
    start = [one.initializer for one in v1.global_variables() if id(one) not in before]

    def ready():
        session.run(start)

    return ready if start else None


def sort_in_turns(pieces):
    """Return the smallest of each kind of work first: where time is short, each has some."""
    ranks, seen = [], {}
    for piece in pieces:
        key = family(piece)
        ranks.append(seen.setdefault(key, 0))
        piece.smallest = seen[key] == 0
        seen[key] += 1
    return [piece for _, piece in sorted(zip(ranks, pieces), key=lambda pair: pair[0])]


def family(piece):
    """Return what pieces of different sizes have in common."""
    names = ("workload", "model", "part", "dtype", "strategy", "xla")
    return tuple(piece.facts.get(name) for name in names) + tuple(piece.facts["devices"])


def logical_cpus(run, count):
    """The same for what runs without a session; where this TensorFlow cannot, MirroredStrategy says so itself."""
    split, lists = public_config(run.tf, "set_logical_device_configuration"), public_config(run.tf, "list_physical_devices")
    kind = public_config(run.tf, "LogicalDeviceConfiguration")
    if count > 1 and split is not None and kind is not None:
        try:
            split(lists("CPU")[0], [kind() for _ in range(count)])
        except (RuntimeError, ValueError):
            pass


def warm_up(pieces, began, budget, share):
    """Return what the first call alone does (optimizing the graph, compiling, choosing algorithms) is a time of its
    own.

    Of each kind of work the smallest has its first call in all of the time, the others in this share of it. Seconds
    come back that are not to be counted: those in which variables got their numbers.
    """
    too_slow, apart = {}, 0.0
    for piece in pieces:
        if too_slow.get(family(piece)) or clock() - began - apart > budget * (1.0 if piece.smallest else share):
            piece.left_out = "the time is used up"
            piece.tell()
            continue
        try:
            start = clock()
            if piece.ready is not None:
                piece.ready()
            apart += clock() - start
            with LogCapture() as log:
                start = clock()
                piece.call()
                piece.first = round(clock() - start, 6)
            piece.heard = log.text
            start = clock()
            piece.call()
            if clock() - start > budget * share / 12.0:
                too_slow[family(piece)] = True
        except Exception as error:
            piece.left_out = short(text(error))
        piece.tell()
    return apart


def rounds(pieces, began, budget, numbers, yardstick=None):
    live = [piece for piece in pieces if not piece.left_out]
    for number in numbers:
        open_ones = [piece for piece in live if not piece.left_out and not precise(piece)]
        for at, piece in enumerate(open_ones):
            left = budget - (clock() - began)
            if left <= 0 and piece.seconds:
                continue
            if yardstick is not None:
                yardstick.measure()
            slot = max(left, 0.0) / max((ROUNDS - number) * len(open_ones) - at, 1)
            start, before = clock(), load()
            already = len(piece.seconds)
            try:
                while len(piece.seconds) - already < MOST // ROUNDS:
                    at_first = clock()
                    piece.call()
                    piece.seconds.append(clock() - at_first)
                    if clock() - start > slot:
                        break
            except Exception as error:
                piece.left_out = short(text(error))
            piece.rounds += [0] * (number - len(piece.rounds)) + [len(piece.seconds) - already]
            measure_others(piece, before, load(), clock() - start)
            piece.tell()
        if yardstick is not None:
            yardstick.tell()


def precise(piece):
    """Return whether the middle of the median's interval of 95 % is narrow enough, and enough rounds tell that it
    stays there.
    """
    seconds = piece.seconds
    count = len(seconds)
    if len([one for one in piece.rounds if one]) < SPREAD or count < FEWEST * ROUNDS // 2:
        return False
    ordered = sorted(seconds)
    away = int(0.98 * count**0.5) + 1
    low, high = ordered[max(count // 2 - away, 0)], ordered[min(count // 2 + away, count - 1)]
    return (high - low) / 2.0 <= PRECISE * ordered[count // 2]


clock = getattr(time, "perf_counter", time.time)


def load():
    """Return (seconds that all processors worked, that this process did, how many processors, throttled periods)"""
    try:
        with open("/proc/stat") as stream:
            rows = stream.read().splitlines()
    except (IOError, OSError):
        return None
    numbers = [int(word) for word in rows[0].split()[1:9]]
    busy = sum(numbers[:3]) + sum(numbers[5:8])  # not idle, not waiting
    mine = os.times()
    return busy / TICKS, mine[0] + mine[1], sum(1 for row in rows[1:] if row.startswith("cpu")), count_throttled()


def count_throttled():
    """Return how often a quota (cgroup) stopped this group; 0 where nothing tells."""
    for name in ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"):
        try:
            with open(find_own_group(name)) as stream:
                for row in stream:
                    if row.startswith("nr_throttled "):
                        return int(row.split()[1])
        except (IOError, OSError, ValueError, IndexError):
            continue
    return 0


def find_own_group(name):
    folder, _, last = name.rpartition("/")
    with open("/proc/self/cgroup") as stream:
        for row in stream:
            number, kinds, path = row.rstrip("\n").split(":", 2)
            if number == "0" or "cpu" in kinds.split(","):
                mine = folder + path.rstrip("/") + "/" + last
                if os.path.exists(mine):
                    return mine
    return name


def measure_others(piece, before, after, seconds):
    """The part of the processors that others used while it ran, 0 to 1; 1 where a quota stopped us. None: too short."""
    if before is None or after is None or piece.others == 1.0:
        return
    piece.spent += seconds * max(after[2], 1)
    piece.busy += (after[0] - before[0]) - (after[1] - before[1])
    if after[3] > before[3]:
        piece.others = 1.0
    elif piece.spent > 0.3:  # the kernel counts in hundredths
        piece.others = min(max(piece.busy / piece.spent, 0.0), 0.99)


def devices(run, asked):
    """Return the CPU and each GPU, or those that are asked for.

    More than one CPU: parts of it (logical devices).
    """
    gpus = {}
    if any(name.startswith("GPU") for name in asked) or not asked:
        for card in run.cards:
            if card.kind == "GPU":
                gpus["GPU:%d" % card.index] = card
    if not asked:
        asked = ["CPU:0"] + sorted(gpus, key=lambda name: gpus[name].index)
    found = []
    for name in asked:
        kind, _, index = name.partition(":")
        if kind == "CPU":
            found.append(Card(int(index), "CPU", "/device:CPU:%s" % index))
        elif name in gpus:
            found.append(gpus[name])
        else:
            raise Wrong("TensorFlow lists no %s" % name)
    return found


def short_name(card):
    return "%s:%d" % (card.kind, card.index)
