# Part of stages.py: the work that bench times. A piece of work is (facts, make): `make` takes a session, or
# None for eager work, and returns the function whose calls are timed. The data is in variables on the device,
# except for copies, which test the connection.
from stages_compute import has_dtype, Tf32Disabler
from stages_output import MissingFeature

DEFAULT_SIZES = {
    "matmul": (64, 128, 256, 512, 1024, 2048, 4096, 8192),
    "conv": (8, 16, 32, 64, 128, 256),
    "cnn": (8, 32, 128, 512),
    "transformer": (4, 16, 64, 256),
    "copy": (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26),
    "allreduce": (1 << 12, 1 << 16, 1 << 20, 1 << 24),
}
MAX_CPU_SIZES = {"matmul": 1024, "conv": 64, "cnn": 128, "transformer": 64, "copy": 1 << 24, "allreduce": 1 << 24}
IMAGES, CHANNELS_IN, CHANNELS_OUT = 8, 32, 64  # of a convolution
IMAGE_SIDE, SEQUENCE_LENGTH, EMBEDDING_WIDTH = 32, 32, 64  # of the inputs in training
WORKLOADS = ("matmul", "conv", "train", "copy", "allreduce")
DTYPES = ("float32", "tf32", "float16", "bfloat16")


def choose_sizes(kind, cards, request):
    """Return the requested sizes, or the default ones. On CPUs the default omits sizes that take long."""
    if request.get("sizes"):
        return request["sizes"]
    is_cpu_only = all(card.kind == "CPU" for card in cards)
    return [size for size in DEFAULT_SIZES[kind] if not is_cpu_only or size <= MAX_CPU_SIZES[kind]]


def build_session_work(run, cards, request, format_name):
    """Return (facts, make) of all pieces of work that run in a session."""
    workloads = request.get("workloads") or WORKLOADS
    pieces = []
    dtypes = request.get("dtypes") or DTYPES
    for dtype in dtypes:
        for workload in workloads:
            for piece in WORK_FUNCTIONS[workload](run, cards, request, dtype, format_name):
                pieces.append(piece)
    return pieces


def supports_dtype(run, card, dtype, request):
    """Return whether this TensorFlow and this device support the type.

    Half precision on a CPU is slow, so it counts as supported only if it was requested.
    """
    if dtype == "tf32":
        is_supported = Tf32Disabler(run, True).set_tf32 is not None
        return is_supported and card.kind == "GPU" and card.capability is not None and card.capability >= (8, 0)
    if card.kind == "CPU":
        is_requested = dtype == "float32" or dtype in (request.get("dtypes") or ())
        return is_requested and (dtype != "bfloat16" or hasattr(run.tf, "bfloat16"))
    return has_dtype(run, card, dtype)


def describe_work(workload, dtype, size, names, strategy="one", model=None, **more):
    """Return the facts that describe a piece of work."""
    return dict(
        more, workload=workload, dtype=dtype, size=size, devices=names, strategy=strategy, model=model
    )


def can_train(request):
    """Return whether float32 is requested, because training is timed in float32 only."""
    return "float32" in (request.get("dtypes") or DTYPES)


def take_first_number(v1, tensor):
    """Return the first number of a tensor. Fetching it leaves the rest of the tensor on the device."""
    return v1.reshape(tensor, [-1])[0]


def make_variable(run, shape, dtype, scale=1.0):
    """Return a variable with random numbers that its device generates."""
    v1 = run.v1
    start = v1.random_uniform(shape, -scale, scale, seed=3)
    return v1.Variable(v1.cast(start, getattr(run.tf, dtype)), trainable=False)


def make_fetch(session, tensor, feed=None):
    """Return a function that fetches a tensor."""
    def call():
        session.run(tensor, feed)

    return call


def allow_tf32(run, call):
    """Return a function that makes a call with TF32. TensorFlow reads the setting for each product."""
    set_tf32 = Tf32Disabler(run, True).set_tf32

    def call_with_tf32():
        set_tf32(True)
        try:
            call()
        finally:
            set_tf32(False)

    return call_with_tf32


def iter_matmul_work(run, cards, request, dtype, format_name):
    """Yield matrix products on each device."""
    v1 = run.v1
    for size in choose_sizes("matmul", cards, request):
        for card in cards:
            if not supports_dtype(run, card, dtype, request):
                continue

            def make(session, card=card, size=size):
                stored_dtype = "float32" if dtype == "tf32" else dtype
                with v1.device(card.device):
                    left, right = (make_variable(run, [size, size], stored_dtype) for _ in range(2))
                    call = make_fetch(session, take_first_number(v1, v1.matmul(left, right)))
                    return allow_tf32(run, call) if dtype == "tf32" else call

            yield describe_work("matmul", dtype, size, [format_name(card)], flop=2.0 * size**3), make


def iter_convolution_work(run, cards, request, dtype, format_name):
    """Yield convolutions on each device."""
    v1 = run.v1
    if dtype == "tf32":  # cuDNN chooses one algorithm for float32 and TF32, when the first of the two runs
        return
    for size in choose_sizes("conv", cards, request):
        for card in cards:
            if not supports_dtype(run, card, dtype, request):
                continue

            def make(session, card=card, size=size):
                with v1.device(card.device):
                    images = make_variable(run, [IMAGES, size, size, CHANNELS_IN], dtype)
                    kernel = make_variable(run, [3, 3, CHANNELS_IN, CHANNELS_OUT], dtype)
                    result = v1.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="SAME")
                    return make_fetch(session, take_first_number(v1, result))

            flop = 2.0 * IMAGES * size * size * CHANNELS_IN * CHANNELS_OUT * 9
            yield describe_work("conv", dtype, size, [format_name(card)], flop=flop), make


def iter_copy_work(run, cards, request, dtype, format_name):
    """Yield copies between each two devices, or within the first one. Pairs of CPUs are omitted."""
    v1 = run.v1
    if dtype != (request.get("dtypes") or DTYPES)[0]:  # copies do not depend on the type, so they are timed once
        return
    pairs = [(source, target) for source in cards for target in cards if source is not target and "GPU" in source.kind + target.kind]
    pairs = pairs or [(cards[0], cards[0])]
    for size in choose_sizes("copy", cards, request):
        for source, target in pairs:

            def make(session, source=source, target=target, size=size):
                half = max(size // 8, 1)  # in floats of 4 bytes
                with v1.device(source.device):
                    if source is target:
                        data = v1.concat([make_variable(run, [half], "float32") for _ in range(2)], 0)
                    else:
                        data = make_variable(run, [2 * half], "float32")
                with v1.device(target.device):
                    return make_fetch(session, take_first_number(v1, v1.identity(data)))

            yield describe_work("copy", "float32", size, [format_name(source), format_name(target)], bytes=size), make


# ---------------------------------------------------------------- training


def make_weights(run, shapes):
    """Return variables of the given shapes with random numbers."""
    v1 = run.v1
    return [
        v1.Variable(v1.random_uniform(shape, -0.1, 0.1, seed=number), trainable=False)
        for number, shape in enumerate(shapes)
    ]


# The shapes of the weights.
CNN_SHAPES = ([3, 3, 3, 16], [3, 3, 16, 32], [IMAGE_SIDE // 4 * IMAGE_SIDE // 4 * 32, 10])
TRANSFORMER_SHAPES = (
    [EMBEDDING_WIDTH, 3 * EMBEDDING_WIDTH],
    [EMBEDDING_WIDTH, EMBEDDING_WIDTH],
    [EMBEDDING_WIDTH, 4 * EMBEDDING_WIDTH],
    [4 * EMBEDDING_WIDTH, EMBEDDING_WIDTH],
)


def compute_cnn_loss(v1, images, parameters):
    """Return the loss of a small convolutional network."""
    for kernel in parameters[:2]:
        images = v1.nn.relu(v1.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="SAME"))
        images = v1.nn.max_pool(images, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    flat = v1.matmul(v1.reshape(images, [-1, CNN_SHAPES[2][0]]), parameters[2])
    return v1.reduce_mean(v1.square(flat))


def compute_transformer_loss(v1, inputs, parameters):
    """Return the loss of a small transformer block."""
    flat = v1.reshape(inputs, [-1, EMBEDDING_WIDTH])
    parts = v1.split(v1.reshape(v1.matmul(flat, parameters[0]), [-1, SEQUENCE_LENGTH, 3 * EMBEDDING_WIDTH]), 3, axis=2)
    attention = v1.nn.softmax(v1.matmul(parts[0], parts[1], transpose_b=True) * EMBEDDING_WIDTH**-0.5)
    attended = v1.matmul(v1.reshape(v1.matmul(attention, parts[2]), [-1, EMBEDDING_WIDTH]), parameters[1]) + flat
    hidden = v1.nn.relu(v1.matmul(attended, parameters[2]))
    return v1.reduce_mean(v1.square(v1.matmul(hidden, parameters[3]) + attended))


# By model: the function of its loss, the shapes of its weights, and the shape of an input.
NETWORKS = {
    "cnn": (compute_cnn_loss, CNN_SHAPES, [IMAGE_SIDE, IMAGE_SIDE, 3]),
    "transformer": (compute_transformer_loss, TRANSFORMER_SHAPES, [SEQUENCE_LENGTH, EMBEDDING_WIDTH]),
}


def make_batch(input_shape, part_size):
    """Return a batch of `part_size` inputs with random numbers in the host's memory."""
    import numpy

    return numpy.random.RandomState(5).uniform(-1.0, 1.0, [part_size] + input_shape).astype("float32")


def build_step(run, model, cards, size, fed=False):
    """Return (the tensor of a whole training step, the tensor of its gradients alone, the feed).

    The weights are on the first device, and each device has a part of the batch. If `fed` is true, the batch is
    fed from the host's memory in each call; otherwise it stays on the devices.
    """
    v1 = run.v1
    compute_loss, weight_shapes, input_shape = NETWORKS[model]
    part_size = max(size // len(cards), 1)
    with v1.device(cards[0].device):
        parameters = make_weights(run, weight_shapes)
    gradients_by_device, feed = [], {}
    for card in cards:
        with v1.device(card.device):
            if fed:
                data = v1.placeholder(v1.float32, [part_size] + input_shape)
                feed[data] = make_batch(input_shape, part_size)
            else:
                data = make_variable(run, [part_size] + input_shape, "float32")
            gradients_by_device.append(v1.gradients(compute_loss(v1, data, parameters), parameters))
    gradient_ends = []
    for card, gradients in zip(cards, gradients_by_device):
        with v1.device(card.device):
            gradient_ends.append(v1.add_n([take_first_number(v1, gradient) for gradient in gradients]))
    with v1.device(cards[0].device):
        return apply_mean(v1, parameters, gradients_by_device), v1.add_n(gradient_ends), feed


def apply_mean(v1, parameters, gradients_by_device):
    """Apply the mean of all devices' gradients to the weights. Return a tensor that depends on the result.

    The mean is computed on the device of the surrounding scope.
    """
    device_count = len(gradients_by_device)
    if device_count > 1:
        means = [v1.add_n(list(gradients)) / float(device_count) for gradients in zip(*gradients_by_device)]
    else:
        means = gradients_by_device[0]
    new_weights = [v1.assign_sub(weight, 1e-4 * mean) for weight, mean in zip(parameters, means)]
    return v1.add_n([take_first_number(v1, weight) for weight in new_weights])


def build_average(run, model, cards):
    """Return the part of a training step after the gradients, with variables in place of the gradients."""
    v1 = run.v1
    gradients_by_device = []
    for card in cards:
        with v1.device(card.device):
            gradients_by_device.append(make_weights(run, NETWORKS[model][1]))
    with v1.device(cards[0].device):
        return apply_mean(v1, make_weights(run, NETWORKS[model][1]), gradients_by_device)


def count_gradient_bytes(model):
    """Return the size of a model's gradients in bytes."""
    total = 0
    for shape in NETWORKS[model][1]:
        byte_count = 4
        for dimension in shape:
            byte_count *= dimension
        total += byte_count
    return total


def iter_training_work(run, cards, request, dtype, format_name):
    """Yield training steps on each device and on all devices of a kind.

    For several devices the parts of a step are yielded, too.
    """
    if dtype != "float32":
        return
    multi_device = [group for group in group_devices(cards) if len(group) > 1]
    for model in ("cnn", "transformer"):
        for group in multi_device:

            def build_allreduce(session, group=group, model=model):
                return make_fetch(session, build_average(run, model, group))

            names = [format_name(card) for card in group]
            yield describe_work("train", dtype, count_gradient_bytes(model), names, "towers", model, part="allreduce"), build_allreduce
        for size in choose_sizes(model, cards, request):
            for group in group_devices(cards):
                if size < len(group):
                    continue
                strategy = "one" if len(group) == 1 else "towers"
                names = [format_name(card) for card in group]
                tensors = {}

                def build_whole(session, group=group, size=size, model=model, tensors=tensors):
                    tensors["step"], tensors["compute"], _ = build_step(run, model, group, size)
                    return make_fetch(session, tensors["step"])

                def build_gradients(session, tensors=tensors):
                    return make_fetch(session, tensors["compute"])

                def build_fed(session, group=group, size=size, model=model):
                    step, _, feed = build_step(run, model, group, size, fed=True)
                    return make_fetch(session, step, feed)

                yield describe_work("train", dtype, size, names, strategy, model), build_whole
                if len(group) > 1:
                    yield describe_work("train", dtype, size, names, strategy, model, part="compute"), build_gradients
                if len(group) > 1 or any(group[0] is other[0] for other in multi_device):
                    yield describe_work("train", dtype, size, names, strategy, model, part="fed"), build_fed


# ---------------------------------------------------------------- work without a session


def iter_eager_work(run, cards, request, format_name):
    """Yield training by MirroredStrategy and, on request, work compiled by XLA.

    Requires TensorFlow 2.2 or newer.
    """
    workloads = request.get("workloads") or WORKLOADS
    if "train" in workloads and can_train(request):
        for piece in iter_mirrored_work(run, cards, request, format_name):
            yield piece
    if request.get("xla"):
        for piece in iter_compiled_work(run, cards, request, format_name):
            yield piece


def iter_mirrored_work(run, cards, request, format_name):
    """Yield training by MirroredStrategy, with the weights on each device, and its all-reduce alone."""
    strategies = {}

    def get_strategy(group):
        if not hasattr(getattr(run.tf.distribute, "MirroredStrategy", None), "run"):
            raise MissingFeature("MirroredStrategy.run is there from TensorFlow 2.2 on")
        key = tuple(card.device for card in group)
        if key not in strategies:
            strategies[key] = run.tf.distribute.MirroredStrategy([device[1:] for device in key])
        return strategies[key]

    for model in ("cnn", "transformer"):
        for group in group_devices(cards):
            if len(group) < 2:
                continue
            names = [format_name(card) for card in group]
            description = describe_work("train", "float32", count_gradient_bytes(model), names, "mirrored", model, part="allreduce")

            def build_allreduce(session, group=group, model=model, description=description):
                strategy = get_strategy(group)
                description["way"] = describe_reduction(strategy)
                return build_mirrored_allreduce(run.tf, strategy, model)

            yield description, build_allreduce
            for size in choose_sizes(model, cards, request):
                if size < len(group):
                    continue
                description = describe_work("train", "float32", size, names, "mirrored", model)

                def make(session, group=group, size=size, model=model, description=description):
                    strategy = get_strategy(group)
                    description["way"] = describe_reduction(strategy)
                    return build_mirrored_step(run.tf, strategy, model, max(size // len(group), 1))

                yield description, make


def describe_reduction(strategy):
    """Return how a strategy averages, such as "CollectiveAllReduce, NCCL"; None if it is unknown."""
    extended = strategy.extended
    try:
        is_collective = not extended._use_merge_call()
    except Exception:
        is_collective = False
    for name in ("_collective_ops", "_cross_device_ops", "_inferred_cross_device_ops") if is_collective else (
        "_cross_device_ops", "_inferred_cross_device_ops"
    ):
        operations = getattr(extended, name, None)
        if operations is not None:
            kind = getattr(getattr(getattr(operations, "_options", None), "implementation", None), "value", None)
            return ", ".join([type(operations).__name__] + ([str(kind)] if kind else []))
    return None


def build_mirrored_step(tf, strategy, model, part_size):
    """Return a function that runs a training step of MirroredStrategy."""
    compute_loss, weight_shapes, input_shape = NETWORKS[model]
    with strategy.scope():
        parameters = [tf.Variable(tf.random.uniform(weight_shape, -0.1, 0.1)) for weight_shape in weight_shapes]

        def replica(data):
            with tf.GradientTape() as tape:
                loss = compute_loss(tf.compat.v1, data, parameters)
            apply_mirrored_change(tf, parameters, tape.gradient(loss, parameters))
            return loss

        data = strategy.run(tf.function(lambda: tf.random.uniform([part_size] + input_shape)))
        step = tf.function(lambda data: strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, (data,)), None))

    def call():
        step(data).numpy()

    return call


def apply_mirrored_change(tf, parameters, gradients):
    """Change the weights by the mean of the gradients of all replicas."""
    means = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
    for weight, mean in zip(parameters, means):
        weight.assign_sub(1e-4 * mean)


def build_mirrored_allreduce(tf, strategy, model):
    """Return a function that runs the part of a MirroredStrategy step after the gradients."""
    weight_shapes = NETWORKS[model][1]
    with strategy.scope():
        parameters = [tf.Variable(tf.random.uniform(weight_shape, -0.1, 0.1)) for weight_shape in weight_shapes]

        def replica(gradients):
            apply_mirrored_change(tf, parameters, gradients)
            return tf.reshape(gradients[0], [-1])[0]

        inputs = strategy.run(tf.function(lambda: [tf.random.uniform(weight_shape) for weight_shape in weight_shapes]))
        step = tf.function(lambda inputs: strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, (inputs,)), None))

    def call():
        step(inputs).numpy()

    return call


def iter_compiled_work(run, cards, request, format_name):
    """Yield products, convolutions and training steps on each device, compiled by XLA."""
    workloads = request.get("workloads") or WORKLOADS
    if not can_train(request):  # compiled work is timed in float32 only
        return
    for workload in [candidate for candidate in ("matmul", "conv", "train") if candidate in workloads]:
        for model in ("cnn", "transformer") if workload == "train" else (None,):
            for size in choose_sizes(model or workload, cards, request):
                for card in cards:

                    def make(session, card=card, size=size, workload=workload, model=model):
                        return build_compiled_call(run.tf, card, workload, model, size)

                    yield describe_work(workload, "float32", size, [format_name(card)], "one", model, xla=True), make


def build_compiled_call(tf, card, workload, model, size):
    """Return a function that runs work compiled by XLA.

    The compiled function returns the whole result, because XLA would not compute unused parts.
    """
    if not hasattr(tf, "function") or not tf.executing_eagerly():
        raise MissingFeature("jit_compile is there from TensorFlow 2.1 on")
    v1 = tf.compat.v1
    with tf.device(card.device):
        if workload == "matmul":
            inputs = [tf.random.uniform([size, size]) for _ in range(2)]
            work = tf.matmul
        elif workload == "conv":
            inputs = [tf.random.uniform([IMAGES, size, size, CHANNELS_IN]), tf.random.uniform([3, 3, CHANNELS_IN, CHANNELS_OUT])]

            def work(images, kernel):
                return v1.nn.conv2d(images, kernel, strides=[1, 1, 1, 1], padding="SAME")
        else:
            compute_loss, weight_shapes, input_shape = NETWORKS[model]
            parameters = [tf.Variable(tf.random.uniform(weight, -0.1, 0.1)) for weight in weight_shapes]
            inputs = [tf.random.uniform([size] + input_shape)]

            def work(data):
                with tf.GradientTape() as tape:
                    loss = compute_loss(v1, data, parameters)
                for weight, gradient in zip(parameters, tape.gradient(loss, parameters)):
                    weight.assign_sub(1e-4 * gradient)
                return loss

    def work_and_sample(*args):
        result = work(*args)
        return result, tf.reshape(result, [-1])[0]

    try:
        compiled = tf.function(work_and_sample, jit_compile=True)
    except (TypeError, ValueError):  # 2.1 to 2.4
        compiled = tf.function(work_and_sample, experimental_compile=True)

    def call():
        with tf.device(card.device):
            compiled(*inputs)[1].numpy()

    return call


def group_devices(cards):
    """Return each device alone, and all devices of a kind together."""
    cards_by_kind = {}
    for card in cards:
        cards_by_kind.setdefault(card.kind, []).append(card)
    groups = [cards_by_kind[kind] for kind in sorted(cards_by_kind)]
    return [[card] for card in cards] + [group for group in groups if len(group) > 1]


def iter_allreduce_work(run, cards, request, dtype, format_name):
    """Yield all-reduces over all devices of a kind."""
    v1 = run.v1
    if dtype != (request.get("dtypes") or DTYPES)[0]:
        return
    for group in group_devices(cards):
        if len(group) < 2:
            continue
        for size in choose_sizes("allreduce", cards, request):

            def make(session, group=group, size=size):
                variables = []
                for card in group:
                    with v1.device(card.device):
                        variables.append(make_variable(run, [max(size // 4, 1)], "float32"))
                with v1.device(group[0].device):
                    total = v1.add_n([v1.identity(tensor) for tensor in variables])
                first_numbers = []
                for card in group:
                    with v1.device(card.device):
                        first_numbers.append(take_first_number(v1, v1.identity(total) * 0.5))
                with v1.device(group[0].device):
                    return make_fetch(session, v1.add_n(first_numbers))

            yield describe_work("allreduce", "float32", size, [format_name(card) for card in group], "towers", bytes=size), make


WORK_FUNCTIONS = {
    "matmul": iter_matmul_work,
    "conv": iter_convolution_work,
    "train": iter_training_work,
    "copy": iter_copy_work,
    "allreduce": iter_allreduce_work,
}
