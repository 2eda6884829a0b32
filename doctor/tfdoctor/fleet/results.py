"""One host's answer, read with distrust: it comes from another machine, and may be anything."""

from __future__ import annotations

import json
import math
from typing import Any

from tfdoctor.causes import Cause
from tfdoctor.fleet.models import FleetCard, Result, Value
from tfdoctor.text import clean_line

__all__ = ["MAX_ANSWER_BYTES", "UnusableError", "document", "read_result"]

MAX_ANSWER_BYTES = 4 << 20
"""Bytes of one answer."""
MOST_VALUES, MOST_CARDS, MOST_CODES = 3000, 64, 100
LONG_VALUE, LONG_NAME = 1000, 200
ENVIRONMENT = ("Python", "its environment")
"""Where it lies: compared among hosts, and not on one machine, where another folder is another question."""
SEVERE = ("warning", "error")


class UnusableError(Exception):
    """What came is no answer of `check --json`, or contradicts itself; the reason is half a sentence."""


def document(content: bytes) -> dict[str, Any]:
    """Return the JSON object that a host wrote.

    Raises UnusableError if it is none, or tells an error of tfdoctor's.
    """
    if len(content) > MAX_ANSWER_BYTES:
        msg = f"it wrote more than {MAX_ANSWER_BYTES >> 20} MiB"
        raise UnusableError(msg)
    if not content.strip():
        raise UnusableError("it wrote nothing")
    data = _parse_json(content)
    if data is None:  # a shell's start-up file may greet before the answer
        at = content.find(b"\n{\n")
        data = _parse_json(content[at:]) if at >= 0 else None
    if data is None:
        raise UnusableError("what it wrote is no JSON")
    if not isinstance(data, dict):
        raise UnusableError("what it wrote is JSON, but not of tfdoctor")
    told = data.get("error")
    if isinstance(told, dict) and "verdict" not in data:
        msg = f"tfdoctor could not look there: {_line(told.get('message'), 200)}"
        raise UnusableError(msg)
    return data


def _parse_json(content: bytes) -> Any:
    """None where it is no JSON."""
    try:
        return json.loads(content, parse_constant=_constant)
    except (ValueError, RecursionError):
        return None


def read_result(content: bytes) -> Result:
    """Raises UnusableError."""
    data = document(content)
    tool = data.get("tool")
    if data.get("schema_version") != 1 or not isinstance(tool, dict) or tool.get("name") != "tfdoctor":
        raise UnusableError("what it wrote is JSON, but not of `tfdoctor check --json`")
    verdict = _dict(data, "verdict")
    usable = verdict.get("gpu_usable")
    if "gpu_usable" not in verdict or not (usable is None or isinstance(usable, bool)):
        raise UnusableError("its verdict says neither yes, no nor unknown")
    if not isinstance(data.get("values"), list):
        raise UnusableError("it has no values to compare: another tfdoctor than this one wrote it")
    values, little = _values(data["values"])
    prefix = _text(_dict(data, "facts"), "python", "known", "prefix")
    if prefix:
        values[ENVIRONMENT] = _line(prefix, LONG_VALUE)
    result = Result(
        usable=usable,
        cause=_cause(verdict.get("cause")),
        summary=_line(verdict.get("summary"), 400),
        codes=_codes(data.get("findings")),
        cards=_cards(_dict(data, "facts")),
        values=values,
        little=little,
        at=_number(data.get("at")),
    )
    _agree(data, result)
    return result


def _constant(_: str) -> float:
    raise ValueError


def _dict(data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key)
    if not isinstance(found, dict):
        msg = f"it has no {key}"
        raise UnusableError(msg)
    return found


def _line(value: Any, limit: int) -> str:
    return clean_line(value, limit=limit) if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and abs(value) < 1e12 and math.isfinite(value) else None


def _cause(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return str(Cause(value).value)
    except ValueError:
        raise UnusableError("its verdict names a cause that does not exist") from None


def _codes(findings: Any) -> tuple[str, ...]:
    if not isinstance(findings, list):
        raise UnusableError("it has no findings")
    codes = {
        _line(one.get("code"), 12)
        for one in findings[:MOST_CODES]
        if isinstance(one, dict) and one.get("severity") in SEVERE
    }
    return tuple(sorted(filter(None, codes)))


def _values(entries: list[Any]) -> tuple[dict[Value, str | None], frozenset[Value]]:
    if len(entries) > MOST_VALUES:
        msg = f"it has more than {MOST_VALUES} values to compare"
        raise UnusableError(msg)
    values: dict[Value, str | None] = {}
    little = set()
    for one in entries:
        if not isinstance(one, dict) or not isinstance(one.get("value"), (str, type(None))):
            raise UnusableError("its values to compare are not as tfdoctor writes them")
        key = (_line(one.get("area"), 40), _line(one.get("name"), LONG_NAME))
        unknown = isinstance(one.get("unknown"), str)
        text = one.get("value")
        known = None if text is None else _line(text, LONG_VALUE)
        values[key] = "not known" if unknown else known
        if one.get("little") is True or unknown:
            little.add(key)
    return values, frozenset(little)


def _cards(facts: dict[str, Any]) -> tuple[FleetCard, ...]:
    """Return the cards, by the tool that shows most of them."""
    found = [
        _list_cards(_list_known(facts, "driver", "nvml", "devices")),
        _list_cards(_list_known(facts, "driver", "smi", "gpus")),
        _list_cards(_list_known(facts, "driver", "cuda_unhidden", "devices")),
        _list_cards(_list_known(facts, "driver", "cuda", "devices")),
        _list_cards(_list_known(facts, "driver", "pci", "")),
    ]
    return max(found, key=len)


def _text(facts: dict[str, Any], *path: str) -> str:
    value: Any = facts
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _list_known(facts: dict[str, Any], *path: str) -> list[Any]:
    """Return the list at facts.A.B.known.C; empty if there is none."""
    value: Any = facts
    for key in (*path[:-1], "known", *filter(None, path[-1:])):
        value = value.get(key) if isinstance(value, dict) else None
    return value[:MOST_CARDS] if isinstance(value, list) else []


def _list_cards(devices: list[Any]) -> tuple[FleetCard, ...]:
    cards = []
    for one in devices:
        if isinstance(one, dict):
            model = _line(one.get("name"), 80)
            if not model and one.get("device_id"):
                model = f"10de:{_line(one['device_id'], 8)}"
            cards.append(FleetCard(model or "a card", _line(one.get("uuid"), 60) or None))
    return tuple(cards)


def _agree(data: dict[str, Any], result: Result) -> None:
    """Raises UnusableError where two parts of the answer exclude each other."""
    prediction = _dict(data, "prediction")
    if result.usable is True and prediction.get("gpu_registered") is False:
        raise UnusableError("it contradicts itself: a GPU is used, and none will be registered")
    if result.usable is True and result.cause not in (None, Cause.HEALTHY.value):
        raise UnusableError("it contradicts itself: a GPU is used, and there is a cause why not")
    count = prediction.get("gpu_count")
    whole = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= 1024
    if not (count is None or whole):
        raise UnusableError("its number of GPUs is none")
    if result.usable is True and count == 0:
        raise UnusableError("it contradicts itself: a GPU is used, and their number is 0")
