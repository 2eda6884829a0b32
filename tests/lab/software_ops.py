"""Compare operations on /GPU:0, a software GPU, with the CPU; run by a Python with TensorFlow 1.14 or newer.

usage: python software_ops.py [PATTERN]

Prints one line each; the last one counts. Exits with 1 if one differs.
"""

import os
import re
import sys
import time

import numpy as np
from software_api import NotThereError, known, tensorflow

os.environ.setdefault(
    "TF_CUDNN_USE_AUTOTUNE", "0"
)  # autotuning checks the memory around each result, which takes 15 seconds
tf = tensorflow()

NOISE = np.random.RandomState(0)
A = NOISE.randn(13, 17).astype("float32")
B = NOISE.randn(17, 9).astype("float32")
P = np.abs(A) + np.float32(0.1)
U = NOISE.rand(13, 17).astype("float32") * np.float32(0.9)
WHOLE = NOISE.randint(-40, 40, (13, 17)).astype("int32")
J = NOISE.randint(1, 9, (13, 17)).astype("int32")
V = NOISE.randn(1000).astype("float32")
S = np.sort(NOISE.randint(0, 7, 13)).astype("int32")
X = NOISE.randn(2, 8, 9, 4).astype("float32")
K = NOISE.randn(3, 3, 4, 5).astype("float32")
L = A > 0

# name: (function, arguments)
CASES = {}


def register(*values):
    """Return a function that adds an operation on these values to CASES."""

    def add(name, function):
        CASES[name] = (function, values)

    return add


one, positive, unit, two, whole = register(A), register(P), register(U), register(A, P), register(WHOLE)
for name in [
    "abs",
    "neg",
    "sign",
    "exp",
    "expm1",
    "square",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "atan",
    "floor",
    "ceil",
    "round",
    "rint",
    "sigmoid",
    "softplus",
]:
    if hasattr(tf.math, name):
        one(name, getattr(tf.math, name))
one("neg", tf.math.negative)
one("erf", tf.math.erf)
one("erfc", tf.math.erfc)
one("softsign", tf.math.softsign)
one("is_nan", tf.math.is_nan)
one("is_inf", tf.math.is_inf)
one("is_finite", tf.math.is_finite)
for name in ["log", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma", "acosh"]:
    register(P + 1)(name, known(tf.math, name))
for name in ["asin", "acos", "atanh", "erfinv", "ndtri"]:
    register(U * np.float32(0.9) + np.float32(0.05))(name, known(tf.math, name))
for name in [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "squared_difference",
    "floordiv",
    "floormod",
    "mod",
    "pow",
    "atan2",
    "xlogy",
    "xdivy",
    "xlog1py",
    "divide_no_nan",
    "multiply_no_nan",
    "truediv",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "equal",
    "not_equal",
]:
    if hasattr(tf.math, name):
        register(P, P[::-1].copy())(name, getattr(tf.math, name))
for name in ["igamma", "igammac", "zeta", "polygamma"]:
    register(P[:3] + 1, P[3:6] + 1)(name, known(tf.math, name))
for kind in ("int32", "int64", "float16", "float64", "bool", "uint8", "int8", "bfloat16"):
    register(P * 20)(
        "cast " + kind, lambda x, kind=kind: tf.cast(x, kind)
    )  # negative values are undefined as uint8
    register(WHOLE)("cast int32 " + kind, lambda x, kind=kind: tf.cast(x, kind))
for kind in ("float16", "float64", "bfloat16", "int32", "int64"):
    for name in ("add", "multiply", "maximum"):
        chosen = known(tf.math, name)
        register(P * 5, P[::-1] * 5)(
            name + " " + kind,
            lambda x, y, f=chosen, kind=kind: f(tf.cast(x, kind), tf.cast(y, kind)),
        )
    one("sum " + kind, lambda x, kind=kind: tf.reduce_sum(tf.cast(x * 4, kind), 1))
for name in ["sum", "mean", "max", "min", "prod", "std", "variance", "logsumexp", "euclidean_norm"]:
    function = known(tf.math, "reduce_" + name)
    one("reduce_" + name, function)
    for axis in (0, 1):
        one(f"reduce_{name} {axis}", lambda x, f=function, axis=axis: f(x, axis))
for name in ("all", "any"):
    chosen = known(tf.math, "reduce_" + name)
    register(L)("reduce_" + name, lambda x, f=chosen: f(x, 0))
for name in ["relu", "relu6", "elu", "selu", "leaky_relu", "softmax", "log_softmax", "gelu", "silu"]:
    one(name, known(tf.nn, name))
    chosen = known(tf.nn, name)
    one("gradient of " + name, lambda x, f=chosen: gradient(lambda y: f(y) * y, x))


def gradient(function, x):
    """Return the gradient of the sum of a function's result."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x))
    return tape.gradient(y, x)


for name in ["exp", "tanh", "sigmoid", "square", "sin", "sqrt", "log"]:
    chosen = known(tf.math, name)
    positive("gradient of " + name, lambda x, f=chosen: gradient(f, x))
for name in ("logical_and", "logical_or", "logical_xor"):
    register(L, L[::-1].copy())(name, known(tf.math, name))
register(L)("logical_not", tf.math.logical_not)
for name in ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]:
    register(np.abs(WHOLE), J)(name, known(tf.bitwise, name))
register(WHOLE, J)("int floordiv", lambda x, y: x // y)
register(WHOLE, J)("int mod", lambda x, y: x % y)
register(WHOLE)("int abs", tf.abs)
register(A, B)("matmul", tf.matmul)
register(A, A)("matmul transposed", lambda x, y: tf.matmul(x, y, transpose_b=True))
for kind in ("float64", "float16", "bfloat16", "complex64"):
    register(A, B)("matmul " + kind, lambda x, y, kind=kind: tf.matmul(tf.cast(x, kind), tf.cast(y, kind)))
register(X, X)("matmul batches", lambda x, y: tf.matmul(x, y, transpose_b=True))
register(A, B)("einsum", lambda x, y: tf.einsum("ij,jk->ki", x, y))
register(A, B)("tensordot", lambda x, y: tf.tensordot(x, y, 1))
register(A, B)("gradient of matmul", lambda x, y: gradient(lambda z: tf.matmul(z, y) ** 2, x))
register(A, V[:17])("bias_add", tf.nn.bias_add)
one("gradient of bias_add", lambda x: gradient(lambda b: tf.nn.bias_add(x, b) ** 2, tf.zeros(17)))
one("transpose", tf.transpose)
register(X)("transpose 4", lambda x: tf.transpose(x, [0, 3, 1, 2]))
one("reshape", lambda x: tf.reshape(x, [17, 13]) + 1)
one("concat 0", lambda x: tf.concat([x, x], 0))
one("concat 1", lambda x: tf.concat([x, x * 2], 1))
one("stack", lambda x: tf.stack([x, x], 1))
one("split", lambda x: tf.split(x, [5, 12], 1)[1])
one("unstack", lambda x: tf.unstack(x)[3])
one("slice", lambda x: x[2:9, 3:12])
one("strided slice", lambda x: x[1::3, ::-2])
one("pad", lambda x: tf.pad(x, [[1, 2], [3, 0]]))
one("pad reflect", lambda x: tf.pad(x, [[1, 2], [3, 0]], "REFLECT"))
one("tile", lambda x: tf.tile(x, [2, 3]))
one("reverse", lambda x: tf.reverse(x, [1]))
one("roll", lambda x: tf.roll(x, 3, 1))
one("broadcast_to", lambda x: tf.broadcast_to(x, [4, 13, 17]) + 0)
register(S)("one_hot", lambda x: tf.one_hot(x, 7))
one("gather", lambda x: tf.gather(x, [3, 1, 5]))
one("gather 1", lambda x: tf.gather(x, [3, 1, 5], axis=1))
one("gather_nd", lambda x: tf.gather_nd(x, [[1, 2], [3, 4]]))
one("scatter_nd", lambda x: tf.scatter_nd([[1], [5], [1]], x[:3], [8, 17]))
one("tensor_scatter add", lambda x: tf.tensor_scatter_nd_add(x, [[1], [5], [1]], x[:3]))
one("tensor_scatter update", lambda x: tf.tensor_scatter_nd_update(x, [[1], [5]], x[:2]))
RELEASE = tuple(map(int, tf.__version__.split(".")[:2]))
for name in ["sum", "mean", "max", "min", "prod"]:
    chosen = known(tf.math, "segment_" + name)
    register(A, S)("segment_" + name, chosen)
    if name in ("max", "min") and RELEASE < (2, 15):
        # for an empty segment, real GPUs give the type's limit and CPUs give 0: tensorflow/tensorflow#58123
        register(A, S)("segment_" + name, lambda x, s, f=chosen: tf.gather(f(x, s), np.unique(S)))
    chosen = known(tf.math, "unsorted_segment_" + name)
    register(A, S)("unsorted_segment_" + name, lambda x, s, f=chosen: f(x, s, 8))
one("argmax", lambda x: tf.argmax(x, 1))
one("argmin", lambda x: tf.argmin(x, 0))
register(V)("where", lambda x: tf.where(x > 0))
register(NOISE.randn(20000).astype("float32"))("where long", lambda x: tf.where(x > 0))
one("where 2", lambda x: tf.where(x > 0))
register(X)("where 4", lambda x: tf.where(x > 0))
one("where of three", lambda x: tf.where(x > 0, x, x * 2))
one("boolean_mask", lambda x: tf.boolean_mask(x, x > 0))
one("sort", tf.sort)
one("argsort", tf.argsort)
register(V)("top_k", lambda x: tf.math.top_k(x, 10)[0])
register(V)("top_k where", lambda x: tf.math.top_k(x, 10)[1])
register(V)("sort long", tf.sort)
register(S)("unique", lambda x: tf.unique(x)[0])
one("cumsum", lambda x: tf.cumsum(x, 1))
register(V)("cumsum long", tf.cumsum)
one("cumsum back", lambda x: tf.cumsum(x, 0, exclusive=True, reverse=True))
one("cumprod", lambda x: tf.math.cumprod(x, 1))
one("cumulative_logsumexp", known(tf.math, "cumulative_logsumexp"))
register(S)("bincount", lambda x: tf.math.bincount(x, minlength=9))
one("clip", lambda x: tf.clip_by_value(x, -0.5, 0.5))
one("clip norm", lambda x: tf.clip_by_norm(x, 2.0))
one("l2_normalize", lambda x: tf.nn.l2_normalize(x, 1))
one("l2_loss", tf.nn.l2_loss)
register(A, S)("sparse cross entropy", lambda x, s: tf.nn.sparse_softmax_cross_entropy_with_logits(s, x))
register(A, U)("cross entropy", lambda x, y: tf.nn.softmax_cross_entropy_with_logits(y, x))
register(A, U)(
    "sigmoid cross entropy", lambda x, y: tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x)
)
register(S, A)("in_top_k", lambda s, x: tf.math.in_top_k(s, x, 4))
one("diag", lambda x: tf.linalg.diag(x[0]))
one("diag_part", tf.linalg.diag_part)
one("band_part", lambda x: tf.linalg.band_part(x, 2, 3))
one("fill", lambda _: tf.fill([3, 4], 2.5))
one("range", lambda _: tf.range(3.0, 40.0, 1.5))
one("linspace", lambda _: tf.linspace(0.0, 3.0, 17))
one("zeros_like", tf.zeros_like)
one("eye", lambda _: tf.eye(5))
one("complex", lambda x: tf.complex(x, x) * tf.complex(x, -x))
one("complex abs", lambda x: tf.abs(tf.complex(x, x)))
one("complex exp", lambda x: tf.exp(tf.complex(x, x)))
one("meshgrid", lambda x: tf.meshgrid(x[0], x[1])[1])
one("random normal", lambda _: tf.random.stateless_normal([300], [1, 2]))
one("random uniform", lambda _: tf.random.stateless_uniform([300], [1, 2]))
one("random truncated", lambda _: tf.random.stateless_truncated_normal([300], [1, 2]))
one("random int", lambda _: tf.random.stateless_uniform([300], [1, 2], 0, 99, "int32"))
register(X)("space_to_depth", lambda x: tf.nn.space_to_depth(x[:, :, :8], 2))
register(X)("depth_to_space", lambda x: tf.nn.depth_to_space(x, 2))
register(X)("resize bilinear", lambda x: tf.image.resize(x, [5, 13]))
register(X)("resize nearest", lambda x: tf.image.resize(x, [5, 13], "nearest"))
register(X)("space_to_batch", lambda x: tf.space_to_batch(x[:, :, :8], [2, 2], [[0, 0], [0, 0]]))
register(X, K)("depthwise", lambda x, k: tf.nn.depthwise_conv2d(x, k[:, :, :, :2], [1, 1, 1, 1], "SAME"))
register(X, K)("conv2d", lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"))
register(X, K)("conv2d by steps", lambda x, k: tf.nn.conv2d(x, k, (2, 1), "SAME"))
register(X, K)("conv2d dilated", lambda x, k: tf.nn.conv2d(x, k, 1, "VALID", dilations=2))
register(X, K)("conv2d padded", lambda x, k: tf.nn.conv2d(x, k, 1, [[0, 0], [2, 1], [0, 2], [0, 0]]))
register(X, K)(
    "conv2d float16", lambda x, k: tf.nn.conv2d(tf.cast(x, "float16"), tf.cast(k, "float16"), 1, "SAME")
)
register(X, K)("gradient of conv2d", lambda x, k: gradient(lambda y: tf.nn.conv2d(y, k, 2, "SAME") ** 2, x))
register(K, X)(
    "gradient of conv2d's filter", lambda k, x: gradient(lambda y: tf.nn.conv2d(x, y, 2, "SAME") ** 2, k)
)
register(X, K)("conv1d", lambda x, k: tf.nn.conv1d(x[:, 0], k[0], 1, "SAME"))
register(X, K)("conv3d", lambda x, k: tf.nn.conv3d(x[:, None], k[None], [1] * 5, "SAME"))
register(X, K)(
    "conv2d transposed",
    lambda x, k: tf.nn.conv2d_transpose(x, tf.transpose(k, (0, 1, 3, 2)), (2, 16, 18, 5), 2),
)
for name in ("max_pool2d", "avg_pool2d"):
    chosen = known(tf.nn, name)
    register(X)(name, lambda x, f=chosen: f(x, 3, 2, "SAME"))
    register(X)("gradient of " + name, lambda x, f=chosen: gradient(lambda y: f(y, 3, 2, "VALID") ** 2, x))


def make_moments(training):
    """Return the moments that batch norm gets of earlier batches.

    Releases before 2.0 accept none for training.
    """
    return (None, None) if training and RELEASE < (2, 0) else (V[8:12], np.abs(V[12:16]))


for training in (True, False):
    register(X)(
        f"batch norm {training}",
        lambda x, training=training: tf.compat.v1.nn.fused_batch_norm(
            x, V[:4], V[4:8], *make_moments(training), is_training=training
        )[0],
    )
register(U)("hsv", lambda x: tf.image.rgb_to_hsv(tf.reshape(x[:12, :15], [60, 3])))
register(A, A)(
    "layer norm",
    lambda x, _: (x - tf.reduce_mean(x, 1, True)) * tf.math.rsqrt(tf.math.reduce_variance(x, 1, True) + 1e-3),
)
one("dynamic_partition", lambda x: tf.dynamic_partition(x[:, 0], tf.constant(S) % 2, 2)[1])
one("dynamic_stitch", lambda x: tf.dynamic_stitch([[0, 2], [1, 3]], [x[:2], x[2:4]]))
one("invert_permutation", lambda _: tf.math.invert_permutation([3, 0, 1, 2]))
one("nextafter", lambda x: tf.math.nextafter(x, x + 1))
one("embedding", lambda x: tf.nn.embedding_lookup(x, [1, 1, 7]))
one("gradient of gather", lambda x: gradient(lambda y: tf.convert_to_tensor(tf.gather(y, [1, 1, 7])) ** 2, x))


def compare_devices(name, function, values):
    """Return how the GPU's result differs from the CPU's; empty if they are equal."""
    results = []
    for device in ("/CPU:0", "/GPU:0"):
        with tf.device(device):
            result = function(*[tf.identity(tf.constant(value)) for value in values])
            results.append(tf.convert_to_tensor(result).numpy())
            device_name = result.device
    cpu, gpu = (array.astype("float32") if str(array.dtype) == "bfloat16" else array for array in results)
    tolerance = 2e-2 if "16" in name else 2e-4
    if cpu.shape != gpu.shape or not np.allclose(cpu, gpu, rtol=tolerance, atol=tolerance, equal_nan=True):
        return f"{gpu.ravel()[:4]} is not {cpu.ravel()[:4]}"
    return "" if "GPU" in device_name else ON_CPU


ON_CPU = "on the CPU: this release has no such operation for GPUs"


def main():
    """Run all cases that match the pattern; return 1 if one differs."""
    pattern = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    count = dict.fromkeys(("right", "WRONG", "CPU", "no", "-"), 0)
    for name, (function, values) in CASES.items():
        if not pattern.search(name):
            continue
        start = time.time()
        try:
            problem = compare_devices(name, function, values)
            outcome = "CPU" if problem == ON_CPU else "WRONG" if problem else "right"
        except NotThereError as error:
            outcome, problem = "-", f"this release has no {error}"
        except Exception as error:  # each kind of refusal is a line
            outcome, problem = "no", str(error)[:160].replace("\n", " ")
            if "OpKernel for GPU devices" in problem:  # the message of 1.14
                outcome, problem = "CPU", ON_CPU
        count[outcome] += 1
        print(f"{outcome:5} {name} {time.time() - start:.2f} s {problem}", flush=True)
    right, wrong, cpu, refused, _ = count.values()
    print(
        f"{right} right, {wrong} wrong, {refused} refused, {cpu} on the CPU alone, of {right + wrong + cpu + refused}"
        f" that {tf.__version__} has"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
