"""records.dataclass against the standard library's."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from tfdoctor import records


@records.dataclass(frozen=True, slots=True)
class Point:
    """A class with every kind of field that is used."""

    x: int
    name: str
    z: tuple[int, ...] = ()
    more: dict[str, int] = dataclasses.field(default_factory=dict)
    hidden: str = dataclasses.field(default="h", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """The same."""

    x: int
    name: str
    z: tuple[int, ...] = ()
    more: dict[str, int] = dataclasses.field(default_factory=dict)
    hidden: str = dataclasses.field(default="h", repr=False)


@records.dataclass(frozen=True, slots=True)
class Farther(Point):
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
def test_what_is_made_is_the_same(args, kwargs):
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
def test_what_is_refused_is_the_same(args, kwargs):
    for kind in (Point, Standard):
        with pytest.raises(TypeError):
            kind(*args, **kwargs)


def test_equal_hash_and_replace():
    one = Point(1, "a", (1, 2))
    assert one == Point(1, "a", (1, 2))
    assert one != Point(1, "b", (1, 2))
    assert one != Standard(1, "a", (1, 2))
    assert one != Farther(1, "a", (1, 2))
    assert dataclasses.replace(one, name="b") == Point(1, "b", (1, 2))
    assert one.more is not Point(1, "a").more
    assert {Empty(): 1}[Empty()] == 1
    with pytest.raises(TypeError):
        hash(one)  # it has a dict in it


def test_frozen():
    one = Point(1, "a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    with pytest.raises(TypeError, match="frozen"):
        records.dataclass(frozen=True, slots=False)


def test_inherited_and_copied():
    one = Farther(1, "a", far=True)
    assert repr(one) == "Farther(x=1, name='a', z=(), more={}, far=True)"
    assert [field.name for field in dataclasses.fields(one)] == ["x", "name", "z", "more", "hidden", "far"]
    for again in (copy.copy(one), copy.deepcopy(one)):
        assert again == one
    match one:
        case Point(x, name):
            assert (x, name) == (1, "a")
        case _:
            raise AssertionError


def test_fields_in_any_order_and_what_is_checked_after_them() -> None:
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
