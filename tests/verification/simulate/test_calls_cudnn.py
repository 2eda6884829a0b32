"""The cuDNN of the software GPU, called as TensorFlow calls it and compared with Python's results."""

from __future__ import annotations

import ctypes
import itertools
import math
from ctypes import byref, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

import pytest

from lab.softcalls import NOISE, make_float_array, make_int_array, make_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lab.softcalls import Gpu

pytestmark = pytest.mark.few(0)  # compiling the libraries alone takes ten seconds

CUDNN_NOT_SUPPORTED = 9


def strides(shape: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Return the strides of a packed tensor N, C, H, W; with `channels_last` the channels change fastest."""
    _, c, h, w = shape
    return (c * h * w, 1, w * c, c) if channels_last else (c * h * w, h * w, w, 1)


def iterate_indices(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, shape))


class Tensor:
    """A tensor in memory with its descriptor; its values are read by their indices."""

    def __init__(
        self, gpu: Gpu, shape: tuple[int, int, int, int], channels_last: bool, values: Sequence[float]
    ) -> None:
        self.shape, self._steps = shape, strides(shape, channels_last)
        self.data = make_float_array([0.0] * math.prod(shape))
        for index, value in zip(iterate_indices(shape), values, strict=True):
            self.data[self._offset(index)] = value
        self.descriptor = gpu.create_handle("dnn", "cudnnCreateTensorDescriptor")
        assert (
            gpu.dnn.cudnnSetTensorNdDescriptor(
                self.descriptor, 0, 4, make_int_array(*shape), make_int_array(*self._steps)
            )
            == 0
        )
        self._gpu = gpu

    def _offset(self, index: Sequence[int]) -> int:
        return sum(a * b for a, b in zip(index, self._steps, strict=True))

    def __getitem__(self, index: tuple[int, ...]) -> float:
        return float(self.data[self._offset(index)])

    def values(self) -> list[float]:
        return [self[index] for index in iterate_indices(self.shape)]


ONE, ZERO = make_float_array([1]), make_float_array([0])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("groups", "pad", "step", "apart", "turned"),
    [(1, 0, 1, 1, 1), (1, 1, 2, 1, 1), (2, 1, 1, 2, 1), (1, 1, 1, 1, 0)],
)
def test_convolutions(
    gpu: Gpu, last: bool, groups: int, pad: int, step: int, apart: int, turned: int
) -> None:
    n, c, h, w, k, r = 2, 4, 6, 5, 6, 3
    rows, columns = ((size + 2 * pad - apart * (r - 1) - 1) // step + 1 for size in (h, w))
    x = Tensor(gpu, (n, c, h, w), last, make_noise(n * c * h * w))
    f_shape, y_shape = (k, c // groups, r, r), (n, k, rows, columns)
    f = Tensor(gpu, f_shape, last, make_noise(math.prod(f_shape)))
    y = Tensor(gpu, y_shape, last, [0.0] * math.prod(y_shape))
    dy = Tensor(gpu, y_shape, last, make_noise(math.prod(y_shape)))
    dx = Tensor(gpu, x.shape, last, [1.0] * math.prod(x.shape))
    df = Tensor(gpu, f_shape, last, [0.0] * math.prod(f_shape))
    filters = gpu.create_handle("dnn", "cudnnCreateFilterDescriptor")
    assert gpu.dnn.cudnnSetFilterNdDescriptor(filters, 0, int(last), 4, make_int_array(*f_shape)) == 0
    descriptor = gpu.create_handle("dnn", "cudnnCreateConvolutionDescriptor")
    pairs = [make_int_array(number, number) for number in (pad, step, apart)]
    assert gpu.dnn.cudnnSetConvolutionNdDescriptor(descriptor, 2, *pairs, turned, 0) == 0
    assert gpu.dnn.cudnnSetConvolutionGroupCount(descriptor, groups) == 0

    expected, slopes_x, slopes_f = ({} for _ in range(3))  # type: dict[tuple[int, ...], float]
    for index in iterate_indices(y_shape):
        b, o, i, j = index
        for q, u, v in iterate_indices(f_shape[1:]):
            tap = (u, v) if turned else (r - 1 - u, r - 1 - v)  # mode 0 is a true convolution
            source = (
                b,
                o // (k // groups) * (c // groups) + q,
                i * step - pad + tap[0] * apart,
                j * step - pad + tap[1] * apart,
            )
            if not (0 <= source[2] < h and 0 <= source[3] < w):
                continue
            weight = (o, q, u, v)
            expected[index] = expected.get(index, 0) + x[source] * f[weight]
            slopes_x[source] = slopes_x.get(source, 0) + dy[index] * f[weight]
            slopes_f[weight] = slopes_f.get(weight, 0) + dy[index] * x[source]

    handle, workspace = gpu.create_handle("dnn", "cudnnCreate"), (None, c_size_t(0))
    forward = (
        handle,
        ONE,
        x.descriptor,
        x.data,
        filters,
        f.data,
        descriptor,
        1,
        *workspace,
        ZERO,
        y.descriptor,
        y.data,
    )
    assert gpu.dnn.cudnnConvolutionForward(*forward) == 0
    assert y.values() == pytest.approx([expected.get(index, 0) for index in iterate_indices(y_shape)])
    backward = (
        handle,
        ONE,
        filters,
        f.data,
        dy.descriptor,
        dy.data,
        descriptor,
        1,
        *workspace,
        ONE,
        dx.descriptor,
        dx.data,
    )
    assert (
        gpu.dnn.cudnnConvolutionBackwardData(*backward) == 0
    )  # beta is 1: the result is added to the previous values
    assert dx.values() == pytest.approx([1 + slopes_x.get(index, 0) for index in iterate_indices(x.shape)])
    to_filter = (
        handle,
        ONE,
        x.descriptor,
        x.data,
        dy.descriptor,
        dy.data,
        descriptor,
        1,
        *workspace,
        ZERO,
        filters,
        df.data,
    )
    assert gpu.dnn.cudnnConvolutionBackwardFilter(*to_filter) == 0
    assert df.values() == pytest.approx([slopes_f.get(index, 0) for index in iterate_indices(f_shape)])
    assert gpu.dnn.cudnnSetConvolutionGroupCount(descriptor, 4) == 0  # 6 filters cannot form 4 groups
    assert gpu.dnn.cudnnConvolutionForward(*forward) != 0


class Graph:
    """Descriptors of cuDNN's graph API, by their numbers."""

    INT64, FLOAT, DOUBLE, POINTER, DESCRIPTOR = 3, 4, 5, 6, 15

    def __init__(self, gpu: Gpu) -> None:
        self._dnn, self._made = gpu.dnn, list[c_void_p]()

    def node(self, kind: int, *attributes: tuple[int, int, Sequence[Any]], finalized: int = 0) -> c_void_p:
        """Return a finalized descriptor with these attributes: name, type and values."""
        descriptor = c_void_p()
        assert self._dnn.cudnnBackendCreateDescriptor(kind, byref(descriptor)) == 0
        self._made.append(descriptor)
        for name, type_, values in attributes:
            element = {3: c_int64, 4: c_float, 5: c_double, 6: c_void_p, 15: c_void_p}.get(type_, c_int)
            array = (element * len(values))(*[getattr(item, "value", item) for item in values])
            status = self._dnn.cudnnBackendSetAttribute(descriptor, name, type_, c_int64(len(values)), array)
            assert status == 0
        assert self._dnn.cudnnBackendFinalize(descriptor) == finalized
        return descriptor

    def tensor(
        self, name: int, shape: Sequence[int], steps: Sequence[int], virtual: bool = False
    ) -> c_void_p:
        descriptor = c_void_p()
        assert self._dnn.cudnnBackendCreateDescriptor(17, byref(descriptor)) == 0
        self._made.append(descriptor)
        for attribute, type_, array in (
            (901, 1, make_int_array(0)),
            (902, 3, (c_int64 * len(shape))(*shape)),
            (903, 3, (c_int64 * len(steps))(*steps)),
            (906, 3, (c_int64 * 1)(name)),
            (907, 2, (ctypes.c_bool * 1)(virtual)),
        ):
            status = self._dnn.cudnnBackendSetAttribute(
                descriptor, attribute, type_, c_int64(len(array)), array
            )
            assert status == 0
        return descriptor

    def run(self, operations: Sequence[c_void_p], data_by_id: dict[int, Any]) -> int:
        """Execute a graph as TensorFlow does: build a plan, destroy the other descriptors, run it."""
        graph = self.node(15, (801, self.DESCRIPTOR, operations))
        heuristics = self.node(4, (201, self.DESCRIPTOR, [graph]))
        config = c_void_p()
        assert self._dnn.cudnnBackendCreateDescriptor(3, byref(config)) == 0
        count = c_int64()
        status = self._dnn.cudnnBackendGetAttribute(
            heuristics, 202, 15, c_int64(1), byref(count), (c_void_p * 1)(config.value)
        )
        assert (status, count.value) == (0, 1)
        plan = self.node(5, (401, self.DESCRIPTOR, [config]))
        size = c_int64(-1)
        assert self._dnn.cudnnBackendGetAttribute(plan, 402, 3, c_int64(1), byref(count), byref(size)) == 0
        assert size.value == 0
        pack = self.node(
            16,
            (1000, self.INT64, list(data_by_id)),
            (1001, self.POINTER, [ctypes.addressof(item) for item in data_by_id.values()]),
        )
        used = {plan.value, pack.value}
        for item in [*self._made, config]:
            if item.value not in used:
                self._dnn.cudnnBackendDestroyDescriptor(item)
        result: int = self._dnn.cudnnBackendExecute(None, plan, pack)
        for item in (plan, pack):
            self._dnn.cudnnBackendDestroyDescriptor(item)
        self._made.clear()
        return result


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("way", [0, 1, 2])
def test_graph_convolution_equals_the_descriptor_api(gpu: Gpu, last: bool, way: int) -> None:
    x_shape, f_shape, y_shape = (2, 4, 6, 5), (6, 2, 3, 3), (2, 6, 3, 3)  # in two groups
    shapes = {1: f_shape, 2: x_shape, 3: y_shape}
    tensors = {i: Tensor(gpu, shape, last, make_noise(math.prod(shape))) for i, shape in shapes.items()}
    f, x, y = tensors[1], tensors[2], tensors[3]
    target = (y, x, f)[way]
    other = Tensor(gpu, target.shape, last, target.values())
    filters = gpu.create_handle("dnn", "cudnnCreateFilterDescriptor")
    assert gpu.dnn.cudnnSetFilterNdDescriptor(filters, 0, int(last), 4, make_int_array(*f_shape)) == 0
    descriptor = gpu.create_handle("dnn", "cudnnCreateConvolutionDescriptor")
    gpu.dnn.cudnnSetConvolutionNdDescriptor(
        descriptor, 2, make_int_array(1, 1), make_int_array(2, 2), make_int_array(1, 1), 1, 0
    )
    gpu.dnn.cudnnSetConvolutionGroupCount(descriptor, 2)
    alpha, beta, algorithm = make_float_array([2]), make_float_array([-1]), (1, None, c_size_t(0))
    handle = gpu.create_handle("dnn", "cudnnCreate")
    if way == 0:
        arguments = (
            handle,
            alpha,
            x.descriptor,
            x.data,
            filters,
            f.data,
            descriptor,
            *algorithm,
            beta,
            other.descriptor,
            other.data,
        )
        assert gpu.dnn.cudnnConvolutionForward(*arguments) == 0
    elif way == 1:
        arguments = (
            handle,
            alpha,
            filters,
            f.data,
            y.descriptor,
            y.data,
            descriptor,
            *algorithm,
            beta,
            other.descriptor,
            other.data,
        )
        assert gpu.dnn.cudnnConvolutionBackwardData(*arguments) == 0
    else:
        arguments = (
            handle,
            alpha,
            x.descriptor,
            x.data,
            y.descriptor,
            y.data,
            descriptor,
            *algorithm,
            beta,
            filters,
            other.data,
        )
        assert gpu.dnn.cudnnConvolutionBackwardFilter(*arguments) == 0

    g = Graph(gpu)
    start, kind = ((700, 10), (706, 12), (712, 11))[way]
    convolution = g.node(
        1,
        (101, 7, [1]),
        *((name, g.INT64, values) for name, values in ((102, [1, 1]), (103, [2, 2]), (105, [1, 1]))),
    )
    nodes = [g.tensor(i, item, strides(item, last)) for i, item in shapes.items()]
    operation = g.node(
        kind,
        (start, g.FLOAT, [2.0]),
        (start + 1, g.FLOAT, [-1.0]),
        (start + 2, g.DESCRIPTOR, [convolution]),
        *((start + 3 + i, g.DESCRIPTOR, [item]) for i, item in enumerate(nodes)),
    )
    assert g.run([operation], {i: item.data for i, item in tensors.items()}) == 0
    assert target.values() == pytest.approx(other.values())


def test_graph_with_a_convolution_and_pointwise_operations(gpu: Gpu) -> None:
    shape, ones = (2, 3, 4, 4), (1, 3, 1, 1)
    x, z, b, y = (
        Tensor(gpu, item, True, make_noise(math.prod(item))) for item in (shape, shape, ones, shape)
    )
    f = Tensor(
        gpu, (3, 3, 1, 1), True, [float(i == j) for i in range(3) for j in range(3)]
    )  # the identity, which returns x
    g = Graph(gpu)
    steps = strides(shape, True)
    inputs = [(1, f.shape, False), (2, shape, False), (3, shape, False), (4, ones, False), (5, shape, False)]
    intermediate = [(number, shape, True) for number in (10, 11, 12)]
    nodes = {i: g.tensor(i, item, strides(item, True), virtual) for i, item, virtual in inputs + intermediate}
    attributes = [(102, g.INT64, [1, 1]), (103, g.INT64, [1, 1]), (105, g.INT64, [0, 0])]
    convolution = g.node(1, (101, 7, [1]), *attributes)
    first = g.node(
        10,
        (702, g.DESCRIPTOR, [convolution]),
        *((703 + i, g.DESCRIPTOR, [nodes[item]]) for i, item in enumerate((1, 2, 10))),
    )

    def pointwise(
        mode: int, source: int, target: int, operand: int | None = None, scale: float = 1
    ) -> c_void_p:
        operation = g.node(0, (0, 14, [mode]), (3, g.DOUBLE, [0.25]))
        second = [(752, g.DESCRIPTOR, [nodes[operand]]), (755, g.DOUBLE, [scale])] if operand else []
        return g.node(
            13,
            (750, g.DESCRIPTOR, [operation]),
            (751, g.DESCRIPTOR, [nodes[source]]),
            (753, g.DESCRIPTOR, [nodes[target]]),
            *second,
        )

    operations = [first, pointwise(0, 10, 11, 3, 0.5), pointwise(1, 11, 12, 4), pointwise(100, 12, 5)]
    rejected = g.node(15, (801, g.DESCRIPTOR, [first, pointwise(7, 10, 5, 3)]), finalized=CUDNN_NOT_SUPPORTED)
    assert rejected
    data_by_id = {1: f.data, 2: x.data, 3: z.data, 4: b.data, 5: y.data}
    assert g.run(operations, data_by_id) == 0
    expected = [
        max(0.25, (x[index] + 0.5 * z[index]) * b[0, index[1], 0, 0]) for index in iterate_indices(shape)
    ]
    assert y.values() == pytest.approx(expected)
    # A tensor without data and one of another shape are rejected.
    g = Graph(gpu)
    nodes = {i: g.tensor(i, shape, steps) for i in (2, 3, 5)}
    assert g.run([pointwise(0, 2, 5, 3)], {2: x.data, 3: z.data}) != 0
    g = Graph(gpu)
    nodes = {2: g.tensor(2, shape, steps), 3: g.tensor(3, (2, 3, 4, 2), steps), 5: g.tensor(5, shape, steps)}
    assert g.run([pointwise(0, 2, 5, 3)], {2: x.data, 3: z.data, 5: y.data}) == CUDNN_NOT_SUPPORTED
    assert y.values() == pytest.approx(expected)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_pooling(gpu: Gpu, last: bool, mode: int) -> None:
    shape, window, pad, step = (2, 3, 5, 4), 3, 1, 2
    rows, columns = ((size + 2 * pad - window) // step + 1 for size in shape[2:])
    out = (2, 3, rows, columns)
    values = NOISE.sample(range(1000), math.prod(shape))  # all different, so that there is one maximum
    x = Tensor(gpu, shape, last, values)
    y, dy = Tensor(gpu, out, last, [0.0] * math.prod(out)), Tensor(gpu, out, last, make_noise(math.prod(out)))
    dx = Tensor(gpu, shape, last, [0.0] * math.prod(shape))
    descriptor = gpu.create_handle("dnn", "cudnnCreatePoolingDescriptor")
    pairs = [make_int_array(number, number) for number in (window, pad, step)]
    assert gpu.dnn.cudnnSetPoolingNdDescriptor(descriptor, mode, 0, 2, *pairs) == 0
    handle = gpu.create_handle("dnn", "cudnnCreate")
    assert (
        gpu.dnn.cudnnPoolingForward(handle, descriptor, ONE, x.descriptor, x.data, ZERO, y.descriptor, y.data)
        == 0
    )
    backward = (
        y.descriptor,
        y.data,
        dy.descriptor,
        dy.data,
        x.descriptor,
        x.data,
        ZERO,
        dx.descriptor,
        dx.data,
    )
    assert gpu.dnn.cudnnPoolingBackward(handle, descriptor, ONE, *backward) == 0
    expected, slopes = [], dict.fromkeys(iterate_indices(shape), 0.0)
    for b, c, i, j in iterate_indices(out):
        window_indices = [
            (b, c, i * step - pad + u, j * step - pad + v)
            for u, v in iterate_indices((window, window))
            if 0 <= i * step - pad + u < shape[2] and 0 <= j * step - pad + v < shape[3]
        ]
        if mode in (0, 3):
            largest = max(window_indices, key=lambda index: x[index])
            expected.append(x[largest])
            slopes[largest] += dy[b, c, i, j]
            continue
        count = window**2 if mode == 1 else len(window_indices)
        expected.append(sum(x[index] for index in window_indices) / count)
        for index in window_indices:
            slopes[index] += dy[b, c, i, j] / count
    assert y.values() == pytest.approx(expected)
    assert dx.values() == pytest.approx(list(slopes.values()))


def test_pooling_of_nan(gpu: Gpu) -> None:
    for nan, expected in ((0, [2.0, 5.0]), (1, [math.nan, math.nan])):
        x = Tensor(gpu, (1, 1, 1, 4), False, [math.nan, 2, 5, math.nan])
        y = Tensor(gpu, (1, 1, 1, 2), False, [0, 0])
        descriptor = gpu.create_handle("dnn", "cudnnCreatePoolingDescriptor")
        gpu.dnn.cudnnSetPoolingNdDescriptor(
            descriptor, 0, nan, 2, make_int_array(1, 2), make_int_array(0, 0), make_int_array(1, 2)
        )
        handle = gpu.create_handle("dnn", "cudnnCreate")
        assert (
            gpu.dnn.cudnnPoolingForward(
                handle, descriptor, ONE, x.descriptor, x.data, ZERO, y.descriptor, y.data
            )
            == 0
        )
        assert y.values() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("last", [False, True])
def test_batch_normalization(gpu: Gpu, last: bool) -> None:
    shape, epsilon = (3, 2, 2, 3), 1e-3
    x = Tensor(gpu, shape, last, make_noise(math.prod(shape)))
    y = Tensor(gpu, shape, last, [0.0] * math.prod(shape))
    g, dx = Tensor(gpu, shape, last, make_noise(math.prod(shape))), Tensor(gpu, shape, last, y.values())
    bn_descriptor = gpu.create_handle("dnn", "cudnnCreateTensorDescriptor")
    assert gpu.dnn.cudnnDeriveBNTensorDescriptor(bn_descriptor, x.descriptor, 1) == 0
    scale, offset, means, variances = (
        make_float_array([2, -1]),
        make_float_array([0.5, 3]),
        make_float_array([1, 1]),
        make_float_array([1, 1]),
    )
    saved, inverses, d_scale, d_offset = (make_float_array([0, 0]) for _ in range(4))
    handle = gpu.create_handle("dnn", "cudnnCreate")
    status = gpu.dnn.cudnnBatchNormalizationForwardTraining(
        handle, 1, ONE, ZERO, x.descriptor, x.data, y.descriptor, y.data, bn_descriptor, scale, offset,
        c_double(0.25), means, variances, c_double(epsilon), saved, inverses,
    )  # fmt: skip
    assert status == 0
    status = gpu.dnn.cudnnBatchNormalizationBackward(
        handle, 1, ONE, ZERO, ONE, ZERO, x.descriptor, x.data, g.descriptor, g.data, dx.descriptor, dx.data,
        bn_descriptor, scale, d_scale, d_offset, c_double(epsilon), saved, inverses,
    )  # fmt: skip
    assert status == 0
    for c in range(2):
        channel_indices = [index for index in iterate_indices(shape) if index[1] == c]
        count = len(channel_indices)
        mean = sum(x[index] for index in channel_indices) / count
        variance = sum((x[index] - mean) ** 2 for index in channel_indices) / count
        spread = math.sqrt(variance + epsilon)
        assert [y[index] for index in channel_indices] == pytest.approx(
            [(x[index] - mean) / spread * scale[c] + offset[c] for index in channel_indices], abs=1e-5
        )
        assert means[c] == pytest.approx(0.75 + 0.25 * mean)
        assert variances[c] == pytest.approx(0.75 + 0.25 * variance * count / (count - 1))
        weighted = sum(g[index] * (x[index] - mean) / spread for index in channel_indices)
        total = sum(g[index] for index in channel_indices)
        assert (d_scale[c], d_offset[c]) == pytest.approx((weighted, total), abs=1e-5)
        # compare with the numerical derivative of sum(g * y)
        for moved in channel_indices[:3]:
            step = 1e-4

            def objective(
                delta: float,
                index: tuple[int, ...] = moved,
                positions: Any = tuple(channel_indices),
                c: int = c,
            ) -> float:
                xs = {position: x[position] + (delta if position == index else 0) for position in positions}
                mean_ = sum(xs.values()) / len(xs)
                deviation = math.sqrt(sum((v - mean_) ** 2 for v in xs.values()) / len(xs) + epsilon)
                return sum(g[position] * (v - mean_) / deviation * scale[c] for position, v in xs.items())

            assert dx[moved] == pytest.approx((objective(step) - objective(-step)) / (2 * step), abs=1e-3)
    mismatched = Tensor(gpu, (1, 2, 1, 1), last, [0, 0])
    status = gpu.dnn.cudnnBatchNormalizationForwardInference(
        handle, 1, ONE, ZERO, x.descriptor, x.data, mismatched.descriptor, mismatched.data, bn_descriptor,
        scale, offset, means, variances, c_double(epsilon),
    )  # fmt: skip
    assert status != 0


@pytest.mark.parametrize(
    ("mode", "of"),
    [
        (0, lambda v: 1 / (1 + math.exp(-v))),
        (1, lambda v: max(v, 0)),
        (2, math.tanh),
        (3, lambda v: min(max(v, 0), 1.5)),
        (4, lambda v: v if v > 0 else 1.5 * math.expm1(v)),
        (5, lambda v: v),
        (6, None),
    ],
)
def test_activations(gpu: Gpu, mode: int, of: Callable[[float], float] | None) -> None:
    x, y = (Tensor(gpu, (1, 2, 2, 2), False, make_noise(8)) for _ in range(2))
    descriptor = gpu.create_handle("dnn", "cudnnCreateActivationDescriptor")
    gpu.dnn.cudnnSetActivationDescriptor(descriptor, mode, 0, c_double(1.5))
    handle = gpu.create_handle("dnn", "cudnnCreate")
    before = y.values()
    status = gpu.dnn.cudnnActivationForward(
        handle, descriptor, ONE, x.descriptor, x.data, ZERO, y.descriptor, y.data
    )
    assert status == (0 if of else CUDNN_NOT_SUPPORTED)
    assert y.values() == pytest.approx([of(v) for v in x.values()] if of else before)
