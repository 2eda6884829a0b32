"""Compare records.dataclass with the standard library's dataclass."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from tfdoctor.core import records


@records.dataclass(frozen=True, slots=True)
class Point:
    """A record with every kind of field that the package uses."""

    x: int
    name: str
    z: tuple[int, ...] = ()
    more: dict[str, int] = dataclasses.field(default_factory=dict)
    hidden: str = dataclasses.field(default="h", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """The same fields with the dataclass of the standard library."""

    x: int
    name: str
    z: tuple[int, ...] = ()
    more: dict[str, int] = dataclasses.field(default_factory=dict)
    hidden: str = dataclasses.field(default="h", repr=False)


@records.dataclass(frozen=True, slots=True)
class DerivedPoint(Point):
    far: bool = False


@records.dataclass(frozen=True, slots=True)
class Empty:
    pass


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, "a"), {}),
        ((1,), {"name": "a", "z": (2,)}),
        ((), {"name": "a", "x": 1, "more": {"b": 2}}),
        ((1, "a", (), {}, "secret"), {}),
    ],
)
def test_instances_are_the_same(args, kwargs):
    ours, theirs = Point(*args, **kwargs), Standard(*args, **kwargs)
    assert repr(ours) == repr(theirs).replace("Standard", "Point")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert Point.__match_args__ == Standard.__match_args__
    assert Point.__slots__ == Standard.__slots__
    assert not hasattr(ours, "__dict__")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1,), {}),
        ((1, "a"), {"wrong": 2}),
        ((1, "a"), {"x": 2}),
        ((1, "a", (), {}, "h", 6), {}),
    ],
)
def test_same_arguments_are_refused(args, kwargs):
    for kind in (Point, Standard):
        with pytest.raises(TypeError):
            kind(*args, **kwargs)


def test_equality_hash_and_replace():
    point = Point(1, "a", (1, 2))
    assert point == Point(1, "a", (1, 2))
    assert point != Point(1, "b", (1, 2))
    assert point != Standard(1, "a", (1, 2))
    assert point != DerivedPoint(1, "a", (1, 2))
    assert dataclasses.replace(point, name="b") == Point(1, "b", (1, 2))
    assert point.more is not Point(1, "a").more
    assert {Empty(): 1}[Empty()] == 1
    with pytest.raises(TypeError):
        hash(point)  # it contains a dict


def test_frozen_fields():
    point = Point(1, "a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(frozen=True, slots=False)


def test_inheritance_copy_and_match():
    point = DerivedPoint(1, "a", far=True)
    assert repr(point) == "DerivedPoint(x=1, name='a', z=(), more={}, far=True)"
    assert [field.name for field in dataclasses.fields(point)] == ["x", "name", "z", "more", "hidden", "far"]
    for duplicate in (copy.copy(point), copy.deepcopy(point)):
        assert duplicate == point
    match point:
        case Point(x, name):
            assert (x, name) == (1, "a")
        case _:
            raise AssertionError


def test_keyword_only_fields_and_post_init() -> None:
    @records.dataclass(frozen=True, slots=True, kw_only=True)
    class Checked:
        least: int = 0
        value: int

        def __post_init__(self) -> None:
            if self.value < self.least:
                msg = "too small"
                raise ValueError(msg)

    assert Checked(value=1) == Checked(least=0, value=1)
    with pytest.raises(ValueError, match="too small"):
        Checked(value=-1)
    with pytest.raises(TypeError):
        Checked(least=1)
