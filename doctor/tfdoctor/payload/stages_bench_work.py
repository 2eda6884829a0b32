# Part of stages.py: the work that bench times. Data is in variables on the device, but for `copy`, which is about the way.
# A piece is facts and a function of a session that gives what is called once for each time.
from stages_compute import has_dtype, tf32_switch
from stages_output import Missing

STEPS = {
    "matmul": (64, 128, 256, 512, 1024, 2048, 4096, 8192),
    "conv": (8, 16, 32, 64, 128, 256),
    "cnn": (8, 32, 128, 512),
    "transformer": (4, 16, 64, 256),
    "copy": (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26),
    "allreduce": (1 << 12, 1 << 16, 1 << 20, 1 << 24),
}
LARGEST = {"matmul": 1024, "conv": 64, "cnn": 128, "transformer": 64, "copy": 1 << 24, "allreduce": 1 << 24}
IMAGES, CIN, COUT = 8, 32, 64
SIDE, WORDS, WIDTH = 32, 32, 64
WORKLOADS = ("matmul", "conv", "train", "copy", "allreduce")
TYPES = ("float32", "tf32", "float16", "bfloat16")


def sizes_of(kind, cards, wish):
    """Return those that are asked for; on CPUs alone none that a person would wait for."""
    if wish.get("sizes"):
        return wish["sizes"]
    only = all(card.kind == "CPU" for card in cards)
    return [size for size in STEPS[kind] if not only or size <= LARGEST[kind]]


def build(run, cards, wish, name):
    """Return (facts, make) of all pieces."""
    asked = wish.get("workloads") or WORKLOADS
    pieces = []
    types = wish.get("dtypes") or TYPES
    for dtype in types:
        for workload in asked:
            for one in WORK[workload](run, cards, wish, dtype, name):
                pieces.append(one)
    return pieces


def can(run, card, dtype, wish):
    """Return whether this TensorFlow and this device have the type.

    A CPU's half precision is slow, and timed where asked.
    """
    if dtype == "tf32":
        there = tf32_switch(run, True).switch is not None
        return there and card.kind == "GPU" and card.capability is not None and card.capability >= (8, 0)
    if card.kind == "CPU":
        asked = dtype == "float32" or dtype in (wish.get("dtypes") or ())
        return asked and (dtype != "bfloat16" or hasattr(run.tf, "bfloat16"))
    return has_dtype(run, card, dtype)


def facts(workload, dtype, size, names, strategy="one", model=None, **more):
    return dict(
        more, workload=workload, dtype=dtype, size=size, devices=names, strategy=strategy, model=model
    )


def can_train(wish):
    """Training is in float32 alone."""
    return "float32" in (wish.get("dtypes") or TYPES)


def ends_in(v1, tensor):
    """Return a number of it: what is fetched. The rest stays on the device."""
    return v1.reshape(tensor, [-1])[0]


def variable(run, shape, dtype, scale=1.0):
    """Random numbers that are made where they are kept."""
    v1 = run.v1
    start = v1.random_uniform(shape, -scale, scale, seed=3)
    return v1.Variable(v1.cast(start, getattr(run.tf, dtype)), trainable=False)


def make_fetch(session, tensor, feed=None):
    def call():
        session.run(tensor, feed)

    return call


def allow_tf32(run, call):
    """TensorFlow asks whether TF32 is allowed whenever it starts a product."""
    switch = tf32_switch(run, True).switch

    def call_with_tf32():
        switch(True)
        try:
            call()
        finally:
            switch(False)

    return call_with_tf32


def matmul(run, cards, wish, dtype, name):
    v1 = run.v1
    for size in sizes_of("matmul", cards, wish):
        for card in cards:
            if not can(run, card, dtype, wish):
                continue

            def make(session, card=card, size=size):
                kept = "float32" if dtype == "tf32" else dtype
                with v1.device(card.device):
                    left, right = (variable(run, [size, size], kept) for _ in range(2))
                    call = make_fetch(session, ends_in(v1, v1.matmul(left, right)))
                    return allow_tf32(run, call) if dtype == "tf32" else call

            yield facts("matmul", dtype, size, [name(card)], flop=2.0 * size**3), make


def conv(run, cards, wish, dtype, name):
    v1 = run.v1
    if dtype == "tf32":  # cuDNN's algorithm is chosen once, for the first of both that comes
        return
    for size in sizes_of("conv", cards, wish):
        for card in cards:
            if not can(run, card, dtype, wish):
                continue

            def make(session, card=card, size=size):
                with v1.device(card.device):
                    images = variable(run, [IMAGES, size, size, CIN], dtype)
                    kernel = variable(run, [3, 3, CIN, COUT], dtype)
                    done = v1.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="SAME")
                    return make_fetch(session, ends_in(v1, done))

            flop = 2.0 * IMAGES * size * size * CIN * COUT * 9
            yield facts("conv", dtype, size, [name(card)], flop=flop), make


def copy(run, cards, wish, dtype, name):
    """From the first device to each other one and back; with one device alone within its memory."""
    v1 = run.v1
    if dtype != (wish.get("dtypes") or TYPES)[0]:  # once, whatever the types are
        return
    pairs = [(one, other) for one in cards for other in cards if one is not other and "GPU" in one.kind + other.kind]
    pairs = pairs or [(cards[0], cards[0])]
    for size in sizes_of("copy", cards, wish):
        for one, other in pairs:

            def make(session, one=one, other=other, size=size):
                half = max(size // 8, 1)
                with v1.device(one.device):
                    if one is other:
                        whole = v1.concat([variable(run, [half], "float32") for _ in range(2)], 0)
                    else:
                        whole = variable(run, [2 * half], "float32")
                with v1.device(other.device):
                    return make_fetch(session, ends_in(v1, v1.identity(whole)))

            yield facts("copy", "float32", size, [name(one), name(other)], bytes=size), make


# ---------------------------------------------------------------- training


def weights(run, shapes):
    v1 = run.v1
    return [
        v1.Variable(v1.random_uniform(shape, -0.1, 0.1, seed=number), trainable=False)
        for number, shape in enumerate(shapes)
    ]


CNN = ([3, 3, 3, 16], [3, 3, 16, 32], [SIDE // 4 * SIDE // 4 * 32, 10])
TRANSFORMER = ([WIDTH, 3 * WIDTH], [WIDTH, WIDTH], [WIDTH, 4 * WIDTH], [4 * WIDTH, WIDTH])


def cnn(v1, images, kept):
    for kernel in kept[:2]:
        images = v1.nn.relu(v1.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="SAME"))
        images = v1.nn.max_pool(images, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    flat = v1.matmul(v1.reshape(images, [-1, CNN[2][0]]), kept[2])
    return v1.reduce_mean(v1.square(flat))


def transformer(v1, words, kept):
    flat = v1.reshape(words, [-1, WIDTH])
    parts = v1.split(v1.reshape(v1.matmul(flat, kept[0]), [-1, WORDS, 3 * WIDTH]), 3, axis=2)
    looked = v1.nn.softmax(v1.matmul(parts[0], parts[1], transpose_b=True) * WIDTH**-0.5)
    told = v1.matmul(v1.reshape(v1.matmul(looked, parts[2]), [-1, WIDTH]), kept[1]) + flat
    wide = v1.nn.relu(v1.matmul(told, kept[2]))
    return v1.reduce_mean(v1.square(v1.matmul(wide, kept[3]) + told))


MODELS = {"cnn": (cnn, CNN, [SIDE, SIDE, 3]), "transformer": (transformer, TRANSFORMER, [WORDS, WIDTH])}


def batch_of(shape, part):
    """Return numbers in the host's memory."""
    import numpy

    return numpy.random.RandomState(5).uniform(-1.0, 1.0, [part] + shape).astype("float32")


def step_of(run, model, cards, size, fed=False):
    """Return (a whole step, its gradients alone, what is fed): each device has a part of the batch, the weights are
    on the first.

    `fed`: the batch comes from the host's memory each time; otherwise it is on the devices.
    """
    v1 = run.v1
    network, shapes, shape = MODELS[model]
    part = max(size // len(cards), 1)
    with v1.device(cards[0].device):
        kept = weights(run, shapes)
    towers, feed = [], {}
    for card in cards:
        with v1.device(card.device):
            if fed:
                data = v1.placeholder(v1.float32, [part] + shape)
                feed[data] = batch_of(shape, part)
            else:
                data = variable(run, [part] + shape, "float32")
            towers.append(v1.gradients(network(v1, data, kept), kept))
    alone = []
    for card, gradients in zip(cards, towers):
        with v1.device(card.device):
            alone.append(v1.add_n([ends_in(v1, one) for one in gradients]))
    with v1.device(cards[0].device):
        return apply_mean(v1, kept, towers), v1.add_n(alone), feed


def apply_mean(v1, kept, towers):
    """Return the weights, changed by the mean of the towers' gradients.

    On the device that this is called for.
    """
    means = [v1.add_n(list(same)) / float(len(towers)) for same in zip(*towers)] if len(towers) > 1 else towers[0]
    changed = [v1.assign_sub(one, 1e-4 * mean) for one, mean in zip(kept, means)]
    return v1.add_n([ends_in(v1, one) for one in changed])


def build_average(run, model, cards):
    """Return what a step does after its gradients are there: they are variables here."""
    v1 = run.v1
    towers = []
    for card in cards:
        with v1.device(card.device):
            towers.append(weights(run, MODELS[model][1]))
    with v1.device(cards[0].device):
        return apply_mean(v1, weights(run, MODELS[model][1]), towers)


def bytes_of(model):
    """Of its gradients."""
    total = 0
    for shape in MODELS[model][1]:
        count = 4
        for side in shape:
            count *= side
        total += count
    return total


def train(run, cards, wish, dtype, name):
    """Yield steps on each device and on all of a kind; of the latter also their parts."""
    if dtype != "float32":
        return
    together = [group for group in groups(cards) if len(group) > 1]
    for model in ("cnn", "transformer"):
        for group in together:

            def share(session, group=group, model=model):
                return make_fetch(session, build_average(run, model, group))

            names = [name(card) for card in group]
            yield facts("train", dtype, bytes_of(model), names, "towers", model, part="allreduce"), share
        for size in sizes_of(model, cards, wish):
            for group in groups(cards):
                if size < len(group):
                    continue
                strategy = "one" if len(group) == 1 else "towers"
                names = [name(card) for card in group]
                made = {}

                def make(session, group=group, size=size, model=model, made=made):
                    made["step"], made["compute"], _ = step_of(run, model, group, size)
                    return make_fetch(session, made["step"])

                def build_alone(session, made=made):
                    return make_fetch(session, made["compute"])

                def build_feeding(session, group=group, size=size, model=model):
                    step, _, feed = step_of(run, model, group, size, fed=True)
                    return make_fetch(session, step, feed)

                yield facts("train", dtype, size, names, strategy, model), make
                if len(group) > 1:
                    yield facts("train", dtype, size, names, strategy, model, part="compute"), build_alone
                if len(group) > 1 or any(group[0] is other[0] for other in together):
                    yield facts("train", dtype, size, names, strategy, model, part="fed"), build_feeding


# ---------------------------------------------------------------- what runs without a session


def build_eager(run, cards, wish, name):
    """Yield training by MirroredStrategy, and what XLA compiles where that is asked for.

    TensorFlow 2.2 and newer.
    """
    asked = wish.get("workloads") or WORKLOADS
    if "train" in asked and can_train(wish):
        for one in build_mirrored(run, cards, wish, name):
            yield one
    if wish.get("xla"):
        for one in build_compiled(run, cards, wish, name):
            yield one


def build_mirrored(run, cards, wish, name):
    """Yield the same training by MirroredStrategy, with one copy of the weights a device.

    And its all-reduce alone.
    """
    strategies = {}

    def strategy_of(group):
        if not hasattr(getattr(run.tf.distribute, "MirroredStrategy", None), "run"):
            raise Missing("MirroredStrategy.run is there from TensorFlow 2.2 on")
        key = tuple(card.device for card in group)
        if key not in strategies:
            strategies[key] = run.tf.distribute.MirroredStrategy([device[1:] for device in key])
        return strategies[key]

    for model in ("cnn", "transformer"):
        for group in groups(cards):
            if len(group) < 2:
                continue
            names = [name(card) for card in group]
            told = facts("train", "float32", bytes_of(model), names, "mirrored", model, part="allreduce")

            def share(session, group=group, model=model, told=told):
                strategy = strategy_of(group)
                told["way"] = way_of(strategy)
                return build_mirrored_share(run.tf, strategy, model)

            yield told, share
            for size in sizes_of(model, cards, wish):
                if size < len(group):
                    continue
                told = facts("train", "float32", size, names, "mirrored", model)

                def make(session, group=group, size=size, model=model, told=told):
                    strategy = strategy_of(group)
                    told["way"] = way_of(strategy)
                    return build_mirrored_step(run.tf, strategy, model, max(size // len(group), 1))

                yield told, make


def way_of(strategy):
    """By what it averages: "CollectiveAllReduce, NCCL", "NcclAllReduce", "ReductionToOneDevice"...; None: not known."""
    extended = strategy.extended
    try:
        collective = not extended._use_merge_call()
    except Exception:
        collective = False
    for name in ("_collective_ops", "_cross_device_ops", "_inferred_cross_device_ops") if collective else (
        "_cross_device_ops", "_inferred_cross_device_ops"
    ):
        found = getattr(extended, name, None)
        if found is not None:
            kind = getattr(getattr(getattr(found, "_options", None), "implementation", None), "value", None)
            return ", ".join([type(found).__name__] + ([str(kind)] if kind else []))
    return None


def build_mirrored_step(tf, strategy, model, part):
    network, shapes, shape = MODELS[model]
    with strategy.scope():
        kept = [tf.Variable(tf.random.uniform(one, -0.1, 0.1)) for one in shapes]

        def replica(data):
            with tf.GradientTape() as tape:
                loss = network(tf.compat.v1, data, kept)
            apply_mirrored_change(tf, kept, tape.gradient(loss, kept))
            return loss

        data = strategy.run(tf.function(lambda: tf.random.uniform([part] + shape)))
        step = tf.function(lambda data: strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, (data,)), None))

    def call():
        step(data).numpy()

    return call


def apply_mirrored_change(tf, kept, gradients):
    means = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
    for one, mean in zip(kept, means):
        one.assign_sub(1e-4 * mean)


def build_mirrored_share(tf, strategy, model):
    """Return what a step of MirroredStrategy does after its gradients are there."""
    shapes = MODELS[model][1]
    with strategy.scope():
        kept = [tf.Variable(tf.random.uniform(one, -0.1, 0.1)) for one in shapes]

        def replica(gradients):
            apply_mirrored_change(tf, kept, gradients)
            return tf.reshape(gradients[0], [-1])[0]

        given = strategy.run(tf.function(lambda: [tf.random.uniform(one) for one in shapes]))
        step = tf.function(lambda given: strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, (given,)), None))

    def call():
        step(given).numpy()

    return call


def build_compiled(run, cards, wish, name):
    """Yield products, convolutions and steps on each device alone, by tf.function(jit_compile=True)."""
    asked = wish.get("workloads") or WORKLOADS
    if not can_train(wish):  # float32 alone
        return
    for workload in [one for one in ("matmul", "conv", "train") if one in asked]:
        for model in ("cnn", "transformer") if workload == "train" else (None,):
            for size in sizes_of(model or workload, cards, wish):
                for card in cards:

                    def make(session, card=card, size=size, workload=workload, model=model):
                        return xla_call(run.tf, card, workload, model, size)

                    yield facts(workload, "float32", size, [name(card)], "one", model, xla=True), make


def xla_call(tf, card, workload, model, size):
    """All of the result is given back, or XLA would compute no more of it than is fetched."""
    if not hasattr(tf, "function") or not tf.executing_eagerly():
        raise Missing("jit_compile is there from TensorFlow 2.1 on")
    v1 = tf.compat.v1
    with tf.device(card.device):
        if workload == "matmul":
            given = [tf.random.uniform([size, size]) for _ in range(2)]
            work = tf.matmul
        elif workload == "conv":
            given = [tf.random.uniform([IMAGES, size, size, CIN]), tf.random.uniform([3, 3, CIN, COUT])]

            def work(images, kernel):
                return v1.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="SAME")
        else:
            network, shapes, shape = MODELS[model]
            kept = [tf.Variable(tf.random.uniform(one, -0.1, 0.1)) for one in shapes]
            given = [tf.random.uniform([size] + shape)]

            def work(data):
                with tf.GradientTape() as tape:
                    loss = network(v1, data, kept)
                for one, slope in zip(kept, tape.gradient(loss, kept)):
                    one.assign_sub(1e-4 * slope)
                return loss

    def whole(*args):
        done = work(*args)
        return done, tf.reshape(done, [-1])[0]

    try:
        once = tf.function(whole, jit_compile=True)
    except (TypeError, ValueError):  # 2.1 to 2.4
        once = tf.function(whole, experimental_compile=True)

    def call():
        with tf.device(card.device):
            once(*given)[1].numpy()

    return call


def groups(cards):
    """Return each device by itself; all of a kind together."""
    kinds = {}
    for card in cards:
        kinds.setdefault(card.kind, []).append(card)
    return [[card] for card in cards] + [kinds[kind] for kind in sorted(kinds) if len(kinds[kind]) > 1]


def allreduce(run, cards, wish, dtype, name):
    v1 = run.v1
    if dtype != (wish.get("dtypes") or TYPES)[0]:
        return
    for group in groups(cards):
        if len(group) < 2:
            continue
        for size in sizes_of("allreduce", cards, wish):

            def make(session, group=group, size=size):
                kept = []
                for card in group:
                    with v1.device(card.device):
                        kept.append(variable(run, [max(size // 4, 1)], "float32"))
                with v1.device(group[0].device):
                    total = v1.add_n([v1.identity(one) for one in kept])
                ends = []
                for card in group:
                    with v1.device(card.device):
                        ends.append(ends_in(v1, v1.identity(total) * 0.5))
                with v1.device(group[0].device):
                    return make_fetch(session, v1.add_n(ends))

            yield facts("allreduce", "float32", size, [name(card) for card in group], "towers", bytes=size), make


WORK = {"matmul": matmul, "conv": conv, "train": train, "copy": copy, "allreduce": allreduce}
