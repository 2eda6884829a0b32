"""The software GPU's cuDNN, called as TensorFlow calls it, beside sums made here."""

from __future__ import annotations

import ctypes
import itertools
import math
from ctypes import byref, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

import pytest

from lab.softcalls import NOISE, floats, ints, noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lab.softcalls import Gpu

pytestmark = pytest.mark.few(0)  # compiling the libraries alone takes ten seconds

OF_CUDNN = 9  # not supported


def strides(shape: Sequence[int], last: bool) -> tuple[int, ...]:
    """Of a packed tensor N, C, H, W; last: the channels change fastest."""
    _, c, h, w = shape
    return (c * h * w, 1, w * c, c) if last else (c * h * w, h * w, w, 1)


def everywhere(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*map(range, shape))


class Tensor:
    """Values by their indices, and the same in memory with a descriptor."""

    def __init__(
        self, gpu: Gpu, shape: tuple[int, int, int, int], last: bool, values: Sequence[float]
    ) -> None:
        self.shape, self._steps = shape, strides(shape, last)
        self.data = floats([0.0] * math.prod(shape))
        for at, value in zip(everywhere(shape), values, strict=True):
            self.data[self._place(at)] = value
        self.told = gpu.made("dnn", "cudnnCreateTensorDescriptor")
        assert gpu.dnn.cudnnSetTensorNdDescriptor(self.told, 0, 4, ints(*shape), ints(*self._steps)) == 0
        self._gpu = gpu

    def _place(self, at: Sequence[int]) -> int:
        return sum(a * b for a, b in zip(at, self._steps, strict=True))

    def __getitem__(self, at: tuple[int, ...]) -> float:
        return float(self.data[self._place(at)])

    def values(self) -> list[float]:
        return [self[at] for at in everywhere(self.shape)]


ONE, NONE = floats([1]), floats([0])


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
    x = Tensor(gpu, (n, c, h, w), last, noise(n * c * h * w))
    f_shape, y_shape = (k, c // groups, r, r), (n, k, rows, columns)
    f = Tensor(gpu, f_shape, last, noise(math.prod(f_shape)))
    y = Tensor(gpu, y_shape, last, [0.0] * math.prod(y_shape))
    dy = Tensor(gpu, y_shape, last, noise(math.prod(y_shape)))
    dx = Tensor(gpu, x.shape, last, [1.0] * math.prod(x.shape))
    df = Tensor(gpu, f_shape, last, [0.0] * math.prod(f_shape))
    filters = gpu.made("dnn", "cudnnCreateFilterDescriptor")
    assert gpu.dnn.cudnnSetFilterNdDescriptor(filters, 0, int(last), 4, ints(*f_shape)) == 0
    how = gpu.made("dnn", "cudnnCreateConvolutionDescriptor")
    pairs = [ints(one, one) for one in (pad, step, apart)]
    assert gpu.dnn.cudnnSetConvolutionNdDescriptor(how, 2, *pairs, turned, 0) == 0
    assert gpu.dnn.cudnnSetConvolutionGroupCount(how, groups) == 0

    wanted, slopes_x, slopes_f = ({} for _ in range(3))  # type: dict[tuple[int, ...], float]
    for at in everywhere(y_shape):
        b, o, i, j = at
        for q, u, v in everywhere(f_shape[1:]):
            tap = (u, v) if turned else (r - 1 - u, r - 1 - v)  # mode 0: a true convolution
            place = (
                b,
                o // (k // groups) * (c // groups) + q,
                i * step - pad + tap[0] * apart,
                j * step - pad + tap[1] * apart,
            )
            if not (0 <= place[2] < h and 0 <= place[3] < w):
                continue
            here = (o, q, u, v)
            wanted[at] = wanted.get(at, 0) + x[place] * f[here]
            slopes_x[place] = slopes_x.get(place, 0) + dy[at] * f[here]
            slopes_f[here] = slopes_f.get(here, 0) + dy[at] * x[place]

    handle, none = gpu.made("dnn", "cudnnCreate"), (None, c_size_t(0))
    forward = (handle, ONE, x.told, x.data, filters, f.data, how, 1, *none, NONE, y.told, y.data)
    assert gpu.dnn.cudnnConvolutionForward(*forward) == 0
    assert y.values() == pytest.approx([wanted.get(at, 0) for at in everywhere(y_shape)])
    back = (handle, ONE, filters, f.data, dy.told, dy.data, how, 1, *none, ONE, dx.told, dx.data)
    assert gpu.dnn.cudnnConvolutionBackwardData(*back) == 0  # beta is 1: added to what is there
    assert dx.values() == pytest.approx([1 + slopes_x.get(at, 0) for at in everywhere(x.shape)])
    to_filter = (handle, ONE, x.told, x.data, dy.told, dy.data, how, 1, *none, NONE, filters, df.data)
    assert gpu.dnn.cudnnConvolutionBackwardFilter(*to_filter) == 0
    assert df.values() == pytest.approx([slopes_f.get(at, 0) for at in everywhere(f_shape)])
    assert gpu.dnn.cudnnSetConvolutionGroupCount(how, 4) == 0  # 6 filters are not 4 groups
    assert gpu.dnn.cudnnConvolutionForward(*forward) != 0


class Graph:
    """Descriptors of cuDNN's graph API, by their numbers."""

    INT64, FLOAT, DOUBLE, POINTER, DESCRIPTOR = 3, 4, 5, 6, 15

    def __init__(self, gpu: Gpu) -> None:
        self._dnn, self._made = gpu.dnn, list[c_void_p]()

    def node(self, kind: int, *attributes: tuple[int, int, Sequence[Any]], finalized: int = 0) -> c_void_p:
        """A descriptor with these attributes (name, type, values)."""
        made = c_void_p()
        assert self._dnn.cudnnBackendCreateDescriptor(kind, byref(made)) == 0
        self._made.append(made)
        for name, sort, values in attributes:
            element = {3: c_int64, 4: c_float, 5: c_double, 6: c_void_p, 15: c_void_p}.get(sort, c_int)
            array = (element * len(values))(*[getattr(one, "value", one) for one in values])
            status = self._dnn.cudnnBackendSetAttribute(made, name, sort, c_int64(len(values)), array)
            assert status == 0
        assert self._dnn.cudnnBackendFinalize(made) == finalized
        return made

    def tensor(
        self, name: int, shape: Sequence[int], steps: Sequence[int], virtual: bool = False
    ) -> c_void_p:
        made = c_void_p()
        assert self._dnn.cudnnBackendCreateDescriptor(17, byref(made)) == 0
        self._made.append(made)
        for attribute, sort, array in (
            (901, 1, ints(0)),
            (902, 3, (c_int64 * len(shape))(*shape)),
            (903, 3, (c_int64 * len(steps))(*steps)),
            (906, 3, (c_int64 * 1)(name)),
            (907, 2, (ctypes.c_bool * 1)(virtual)),
        ):
            status = self._dnn.cudnnBackendSetAttribute(made, attribute, sort, c_int64(len(array)), array)
            assert status == 0
        return made

    def run(self, operations: Sequence[c_void_p], places: dict[int, Any]) -> int:
        """As TensorFlow does: a graph, what the heuristics say of it, a plan, and then its descriptors go."""
        graph = self.node(15, (801, self.DESCRIPTOR, operations))
        heuristics = self.node(4, (201, self.DESCRIPTOR, [graph]))
        config = c_void_p()
        assert self._dnn.cudnnBackendCreateDescriptor(3, byref(config)) == 0
        got = c_int64()
        status = self._dnn.cudnnBackendGetAttribute(
            heuristics, 202, 15, c_int64(1), byref(got), (c_void_p * 1)(config.value)
        )
        assert (status, got.value) == (0, 1)
        plan = self.node(5, (401, self.DESCRIPTOR, [config]))
        size = c_int64(-1)
        assert self._dnn.cudnnBackendGetAttribute(plan, 402, 3, c_int64(1), byref(got), byref(size)) == 0
        assert size.value == 0
        pack = self.node(
            16,
            (1000, self.INT64, list(places)),
            (1001, self.POINTER, [ctypes.addressof(one) for one in places.values()]),
        )
        kept = {plan.value, pack.value}
        for one in [*self._made, config]:
            if one.value not in kept:
                self._dnn.cudnnBackendDestroyDescriptor(one)
        result: int = self._dnn.cudnnBackendExecute(None, plan, pack)
        for one in (plan, pack):
            self._dnn.cudnnBackendDestroyDescriptor(one)
        self._made.clear()
        return result


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("way", [0, 1, 2])
def test_a_graph_convolves_as_descriptors_do(gpu: Gpu, last: bool, way: int) -> None:
    x_shape, f_shape, y_shape = (2, 4, 6, 5), (6, 2, 3, 3), (2, 6, 3, 3)  # two groups
    shapes = {1: f_shape, 2: x_shape, 3: y_shape}
    tensors = {i: Tensor(gpu, shape, last, noise(math.prod(shape))) for i, shape in shapes.items()}
    f, x, y = tensors[1], tensors[2], tensors[3]
    target = (y, x, f)[way]
    other = Tensor(gpu, target.shape, last, target.values())
    filters = gpu.made("dnn", "cudnnCreateFilterDescriptor")
    assert gpu.dnn.cudnnSetFilterNdDescriptor(filters, 0, int(last), 4, ints(*f_shape)) == 0
    how = gpu.made("dnn", "cudnnCreateConvolutionDescriptor")
    gpu.dnn.cudnnSetConvolutionNdDescriptor(how, 2, ints(1, 1), ints(2, 2), ints(1, 1), 1, 0)
    gpu.dnn.cudnnSetConvolutionGroupCount(how, 2)
    alpha, beta, none = floats([2]), floats([-1]), (1, None, c_size_t(0))
    handle = gpu.made("dnn", "cudnnCreate")
    if way == 0:
        wanted = (handle, alpha, x.told, x.data, filters, f.data, how, *none, beta, other.told, other.data)
        assert gpu.dnn.cudnnConvolutionForward(*wanted) == 0
    elif way == 1:
        wanted = (handle, alpha, filters, f.data, y.told, y.data, how, *none, beta, other.told, other.data)
        assert gpu.dnn.cudnnConvolutionBackwardData(*wanted) == 0
    else:
        wanted = (handle, alpha, x.told, x.data, y.told, y.data, how, *none, beta, filters, other.data)
        assert gpu.dnn.cudnnConvolutionBackwardFilter(*wanted) == 0

    g = Graph(gpu)
    start, kind = ((700, 10), (706, 12), (712, 11))[way]
    convolution = g.node(
        1,
        (101, 7, [1]),
        *((name, g.INT64, values) for name, values in ((102, [1, 1]), (103, [2, 2]), (105, [1, 1]))),
    )
    told = [g.tensor(i, one, strides(one, last)) for i, one in shapes.items()]
    operation = g.node(
        kind,
        (start, g.FLOAT, [2.0]),
        (start + 1, g.FLOAT, [-1.0]),
        (start + 2, g.DESCRIPTOR, [convolution]),
        *((start + 3 + i, g.DESCRIPTOR, [one]) for i, one in enumerate(told)),
    )
    assert g.run([operation], {i: one.data for i, one in tensors.items()}) == 0
    assert target.values() == pytest.approx(other.values())


def test_a_graph_of_a_convolution_and_what_follows(gpu: Gpu) -> None:
    shape, ones = (2, 3, 4, 4), (1, 3, 1, 1)
    x, z, b, y = (Tensor(gpu, one, True, noise(math.prod(one))) for one in (shape, shape, ones, shape))
    f = Tensor(
        gpu, (3, 3, 1, 1), True, [float(i == j) for i in range(3) for j in range(3)]
    )  # leaves x as it is
    g = Graph(gpu)
    steps = strides(shape, True)
    given = [(1, f.shape, False), (2, shape, False), (3, shape, False), (4, ones, False), (5, shape, False)]
    between = [(number, shape, True) for number in (10, 11, 12)]
    told = {i: g.tensor(i, one, strides(one, True), virtual) for i, one, virtual in given + between}
    plain = [(102, g.INT64, [1, 1]), (103, g.INT64, [1, 1]), (105, g.INT64, [0, 0])]
    convolution = g.node(1, (101, 7, [1]), *plain)
    first = g.node(
        10,
        (702, g.DESCRIPTOR, [convolution]),
        *((703 + i, g.DESCRIPTOR, [told[one]]) for i, one in enumerate((1, 2, 10))),
    )

    def pointwise(mode: int, a: int, to: int, by: int | None = None, scale: float = 1) -> c_void_p:
        what = g.node(0, (0, 14, [mode]), (3, g.DOUBLE, [0.25]))
        second = [(752, g.DESCRIPTOR, [told[by]]), (755, g.DOUBLE, [scale])] if by else []
        return g.node(
            13,
            (750, g.DESCRIPTOR, [what]),
            (751, g.DESCRIPTOR, [told[a]]),
            (753, g.DESCRIPTOR, [told[to]]),
            *second,
        )

    operations = [first, pointwise(0, 10, 11, 3, 0.5), pointwise(1, 11, 12, 4), pointwise(100, 12, 5)]
    refused = g.node(15, (801, g.DESCRIPTOR, [first, pointwise(7, 10, 5, 3)]), finalized=OF_CUDNN)
    assert refused
    places = {1: f.data, 2: x.data, 3: z.data, 4: b.data, 5: y.data}
    assert g.run(operations, places) == 0
    wanted = [max(0.25, (x[at] + 0.5 * z[at]) * b[0, at[1], 0, 0]) for at in everywhere(shape)]
    assert y.values() == pytest.approx(wanted)
    # A tensor without a place, and one of another shape, are refused
    g = Graph(gpu)
    told = {i: g.tensor(i, shape, steps) for i in (2, 3, 5)}
    assert g.run([pointwise(0, 2, 5, 3)], {2: x.data, 3: z.data}) != 0
    g = Graph(gpu)
    told = {2: g.tensor(2, shape, steps), 3: g.tensor(3, (2, 3, 4, 2), steps), 5: g.tensor(5, shape, steps)}
    assert g.run([pointwise(0, 2, 5, 3)], {2: x.data, 3: z.data, 5: y.data}) == OF_CUDNN
    assert y.values() == pytest.approx(wanted)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_pooling(gpu: Gpu, last: bool, mode: int) -> None:
    shape, window, pad, step = (2, 3, 5, 4), 3, 1, 2
    rows, columns = ((size + 2 * pad - window) // step + 1 for size in shape[2:])
    out = (2, 3, rows, columns)
    values = NOISE.sample(range(1000), math.prod(shape))  # all different, so that one is the greatest
    x = Tensor(gpu, shape, last, values)
    y, dy = Tensor(gpu, out, last, [0.0] * math.prod(out)), Tensor(gpu, out, last, noise(math.prod(out)))
    dx = Tensor(gpu, shape, last, [0.0] * math.prod(shape))
    how = gpu.made("dnn", "cudnnCreatePoolingDescriptor")
    pairs = [ints(one, one) for one in (window, pad, step)]
    assert gpu.dnn.cudnnSetPoolingNdDescriptor(how, mode, 0, 2, *pairs) == 0
    handle = gpu.made("dnn", "cudnnCreate")
    assert gpu.dnn.cudnnPoolingForward(handle, how, ONE, x.told, x.data, NONE, y.told, y.data) == 0
    back = (y.told, y.data, dy.told, dy.data, x.told, x.data, NONE, dx.told, dx.data)
    assert gpu.dnn.cudnnPoolingBackward(handle, how, ONE, *back) == 0
    wanted, slopes = [], dict.fromkeys(everywhere(shape), 0.0)
    for b, c, i, j in everywhere(out):
        places = [
            (b, c, i * step - pad + u, j * step - pad + v)
            for u, v in everywhere((window, window))
            if 0 <= i * step - pad + u < shape[2] and 0 <= j * step - pad + v < shape[3]
        ]
        if mode in (0, 3):
            most = max(places, key=lambda at: x[at])
            wanted.append(x[most])
            slopes[most] += dy[b, c, i, j]
            continue
        count = window**2 if mode == 1 else len(places)
        wanted.append(sum(x[at] for at in places) / count)
        for at in places:
            slopes[at] += dy[b, c, i, j] / count
    assert y.values() == pytest.approx(wanted)
    assert dx.values() == pytest.approx(list(slopes.values()))


def test_what_is_no_number_in_a_pool(gpu: Gpu) -> None:
    for nan, wanted in ((0, [2.0, 5.0]), (1, [math.nan, math.nan])):
        x = Tensor(gpu, (1, 1, 1, 4), False, [math.nan, 2, 5, math.nan])
        y = Tensor(gpu, (1, 1, 1, 2), False, [0, 0])
        how = gpu.made("dnn", "cudnnCreatePoolingDescriptor")
        gpu.dnn.cudnnSetPoolingNdDescriptor(how, 0, nan, 2, ints(1, 2), ints(0, 0), ints(1, 2))
        handle = gpu.made("dnn", "cudnnCreate")
        assert gpu.dnn.cudnnPoolingForward(handle, how, ONE, x.told, x.data, NONE, y.told, y.data) == 0
        assert y.values() == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize("last", [False, True])
def test_batch_normalization(gpu: Gpu, last: bool) -> None:
    shape, epsilon = (3, 2, 2, 3), 1e-3
    x = Tensor(gpu, shape, last, noise(math.prod(shape)))
    y = Tensor(gpu, shape, last, [0.0] * math.prod(shape))
    g, dx = Tensor(gpu, shape, last, noise(math.prod(shape))), Tensor(gpu, shape, last, y.values())
    told = gpu.made("dnn", "cudnnCreateTensorDescriptor")
    assert gpu.dnn.cudnnDeriveBNTensorDescriptor(told, x.told, 1) == 0
    scale, offset, means, variances = floats([2, -1]), floats([0.5, 3]), floats([1, 1]), floats([1, 1])
    saved, inverses, d_scale, d_offset = (floats([0, 0]) for _ in range(4))
    handle = gpu.made("dnn", "cudnnCreate")
    status = gpu.dnn.cudnnBatchNormalizationForwardTraining(
        handle, 1, ONE, NONE, x.told, x.data, y.told, y.data, told, scale, offset,
        c_double(0.25), means, variances, c_double(epsilon), saved, inverses,
    )  # fmt: skip
    assert status == 0
    status = gpu.dnn.cudnnBatchNormalizationBackward(
        handle, 1, ONE, NONE, ONE, NONE, x.told, x.data, g.told, g.data, dx.told, dx.data, told, scale,
        d_scale, d_offset, c_double(epsilon), saved, inverses,
    )  # fmt: skip
    assert status == 0
    for c in range(2):
        places = [at for at in everywhere(shape) if at[1] == c]
        count = len(places)
        mean = sum(x[at] for at in places) / count
        variance = sum((x[at] - mean) ** 2 for at in places) / count
        spread = math.sqrt(variance + epsilon)
        assert [y[at] for at in places] == pytest.approx(
            [(x[at] - mean) / spread * scale[c] + offset[c] for at in places], abs=1e-5
        )
        assert means[c] == pytest.approx(0.75 + 0.25 * mean)
        assert variances[c] == pytest.approx(0.75 + 0.25 * variance * count / (count - 1))
        along = sum(g[at] * (x[at] - mean) / spread for at in places)
        total = sum(g[at] for at in places)
        assert (d_scale[c], d_offset[c]) == pytest.approx((along, total), abs=1e-5)
        # the slope of a sum of g * y, by moving one value a little
        for moved in places[:3]:
            step = 1e-4

            def objective(
                by: float, at: tuple[int, ...] = moved, of: Any = tuple(places), c: int = c
            ) -> float:
                xs = {one: x[one] + (by if one == at else 0) for one in of}
                middle = sum(xs.values()) / len(xs)
                wide = math.sqrt(sum((v - middle) ** 2 for v in xs.values()) / len(xs) + epsilon)
                return sum(g[one] * (v - middle) / wide * scale[c] for one, v in xs.items())

            assert dx[moved] == pytest.approx((objective(step) - objective(-step)) / (2 * step), abs=1e-3)
    refused = Tensor(gpu, (1, 2, 1, 1), last, [0, 0])
    status = gpu.dnn.cudnnBatchNormalizationForwardInference(
        handle, 1, ONE, NONE, x.told, x.data, refused.told, refused.data, told, scale, offset, means,
        variances, c_double(epsilon),
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
    x, y = (Tensor(gpu, (1, 2, 2, 2), False, noise(8)) for _ in range(2))
    how = gpu.made("dnn", "cudnnCreateActivationDescriptor")
    gpu.dnn.cudnnSetActivationDescriptor(how, mode, 0, c_double(1.5))
    handle = gpu.made("dnn", "cudnnCreate")
    before = y.values()
    status = gpu.dnn.cudnnActivationForward(handle, how, ONE, x.told, x.data, NONE, y.told, y.data)
    assert status == (0 if of else OF_CUDNN)
    assert y.values() == pytest.approx([of(v) for v in x.values()] if of else before)
