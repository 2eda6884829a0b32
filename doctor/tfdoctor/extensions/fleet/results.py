"""Parse and validate one host's result, which is untrusted because it comes from another machine."""

from __future__ import annotations

import json
import math
from typing import Any

from tfdoctor.core.causes import Cause
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.fleet.models import FleetCard, HostResult, ValueKey

__all__ = ["MAX_ANSWER_BYTES", "UnusableResultError", "parse_document", "parse_result"]

MAX_ANSWER_BYTES = 4 << 20
"""The most bytes of one host's output that are accepted."""
MAX_VALUES, MAX_CARDS, MAX_CODES = 3000, 64, 100
"""The most values that are accepted, and the most GPUs and findings that are read."""
MAX_VALUE_CHARS, MAX_NAME_CHARS = 1000, 200
"""The lengths in characters to which values and names are cut."""
ENVIRONMENT_KEY = ("Python", "its environment")
"""The key for the location of the Python environment, which only this comparison uses."""
REPORTED_SEVERITIES = ("warning", "error")
"""The severities of the findings whose codes are compared."""


class UnusableResultError(Exception):
    """A host's output is invalid or contradicts itself. The message is a clause for a sentence."""


def parse_document(content: bytes) -> dict[str, Any]:
    """Return the JSON object that a host wrote.

    Raise UnusableError if the output is not a JSON object, or if it only reports an error of tfdoctor.
    """
    if len(content) > MAX_ANSWER_BYTES:
        msg = f"it wrote more than {MAX_ANSWER_BYTES >> 20} MiB"
        raise UnusableResultError(msg)
    if not content.strip():
        raise UnusableResultError("it wrote nothing")
    data = _parse_json(content)
    if data is None:
        # A shell's start-up file may print something first. The indented JSON begins with a line that is only "{".
        start = content.find(b"\n{\n")
        data = _parse_json(content[start:]) if start >= 0 else None
    if data is None:
        raise UnusableResultError("what it wrote is not JSON")
    if not isinstance(data, dict):
        raise UnusableResultError("what it wrote is JSON, but not of tfdoctor")
    error = data.get("error")
    if isinstance(error, dict) and "verdict" not in data:
        msg = f"tfdoctor could not look there: {_clean_text(error.get('message'), 200)}"
        raise UnusableResultError(msg)
    return data


def _parse_json(content: bytes) -> Any:
    """Return the parsed JSON, or None if it is invalid."""
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def parse_result(content: bytes) -> HostResult:
    """Parse a host's result. Raise UnusableError if it is invalid."""
    data = parse_document(content)
    tool = data.get("tool")
    if data.get("schema_version") != 1 or not isinstance(tool, dict) or tool.get("name") != "tfdoctor":
        raise UnusableResultError("what it wrote is JSON, but not of `tfdoctor check --json`")
    verdict = _get_dict(data, "verdict")
    usable = verdict.get("gpu_usable")
    if "gpu_usable" not in verdict or not (usable is None or isinstance(usable, bool)):
        raise UnusableResultError("its verdict says neither yes, no nor unknown")
    if not isinstance(data.get("values"), list):
        raise UnusableResultError("it has no values to compare: another tfdoctor than this one wrote it")
    values, minor_keys = _parse_values(data["values"])
    prefix = _get_text(_get_dict(data, "facts"), "python", "known", "prefix")
    if prefix:
        values[ENVIRONMENT_KEY] = _clean_text(prefix, MAX_VALUE_CHARS)
    result = HostResult(
        gpu_usable=usable,
        cause=_parse_cause(verdict.get("cause")),
        summary=_clean_text(verdict.get("summary"), 400),
        codes=_parse_codes(data.get("findings")),
        cards=_parse_cards(_get_dict(data, "facts")),
        values=values,
        minor_keys=minor_keys,
        created_at=_as_number(data.get("at")),
    )
    _check_consistency(data, result)
    return result


def _refuse_constant(_: str) -> float:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError


def _get_dict(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        msg = f"it has no {key}"
        raise UnusableResultError(msg)
    return value


def _clean_text(value: Any, limit: int) -> str:
    return clean_line(value, limit=limit) if isinstance(value, str) else ""


def _as_number(value: Any) -> float | None:
    """Return the value as a float, or None if it is not a number of reasonable size."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e12 and math.isfinite(value) else None


def _parse_cause(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return str(Cause(value).value)
    except ValueError:
        raise UnusableResultError("its verdict names a cause that does not exist") from None


def _parse_codes(findings: Any) -> tuple[str, ...]:
    if not isinstance(findings, list):
        raise UnusableResultError("it has no findings")
    codes = {
        _clean_text(finding.get("code"), 12)
        for finding in findings[:MAX_CODES]
        if isinstance(finding, dict) and finding.get("severity") in REPORTED_SEVERITIES
    }
    return tuple(sorted(filter(None, codes)))


def _parse_values(entries: list[Any]) -> tuple[dict[ValueKey, str | None], frozenset[ValueKey]]:
    """Return the comparable values, and the keys of those whose differences rarely matter."""
    if len(entries) > MAX_VALUES:
        msg = f"it has more than {MAX_VALUES} values to compare"
        raise UnusableResultError(msg)
    values: dict[ValueKey, str | None] = {}
    minor_keys = set()
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("value"), (str, type(None))):
            raise UnusableResultError("its values to compare are not as tfdoctor writes them")
        key = (_clean_text(entry.get("area"), 40), _clean_text(entry.get("name"), MAX_NAME_CHARS))
        is_unknown = isinstance(entry.get("unknown"), str)
        text = entry.get("value")
        cleaned = None if text is None else _clean_text(text, MAX_VALUE_CHARS)
        values[key] = "not known" if is_unknown else cleaned
        if entry.get("little") is True or is_unknown:
            minor_keys.add(key)
    return values, frozenset(minor_keys)


def _parse_cards(facts: dict[str, Any]) -> tuple[FleetCard, ...]:
    """Return the GPUs in the source that lists the most of them."""
    candidates = [
        _make_cards(_get_known_list(facts, "driver", "nvml", "devices")),
        _make_cards(_get_known_list(facts, "driver", "smi", "gpus")),
        _make_cards(_get_known_list(facts, "driver", "cuda_unhidden", "devices")),
        _make_cards(_get_known_list(facts, "driver", "cuda", "devices")),
        _make_cards(_get_known_list(facts, "driver", "pci", "")),
    ]
    return max(candidates, key=len)


def _get_text(facts: dict[str, Any], *path: str) -> str:
    """Return the text at a path of keys in nested objects, or "" if there is none."""
    value: Any = facts
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _get_known_list(facts: dict[str, Any], *path: str) -> list[Any]:
    """Return at most `MAX_CARDS` items of facts.A.B.known.C for the path (A, B, C), or an empty list.

    If C is empty, the known value itself is the list.
    """
    value: Any = facts
    for key in (*path[:-1], "known", *filter(None, path[-1:])):
        value = value.get(key) if isinstance(value, dict) else None
    return value[:MAX_CARDS] if isinstance(value, list) else []


def _make_cards(devices: list[Any]) -> tuple[FleetCard, ...]:
    """Return the GPUs in a list of devices. A GPU without a name is named by its PCI ID."""
    cards = []
    for device in devices:
        if isinstance(device, dict):
            model = _clean_text(device.get("name"), 80)
            if not model and device.get("device_id"):
                model = f"10de:{_clean_text(device['device_id'], 8)}"
            cards.append(FleetCard(model or "a card", _clean_text(device.get("uuid"), 60) or None))
    return tuple(cards)


def _check_consistency(data: dict[str, Any], result: HostResult) -> None:
    """Raise UnusableError if two parts of the result contradict each other."""
    prediction = _get_dict(data, "prediction")
    if result.gpu_usable is True and prediction.get("gpu_registered") is False:
        raise UnusableResultError("it contradicts itself: a GPU is used, and none will be registered")
    if result.gpu_usable is True and result.cause not in (None, Cause.HEALTHY.value):
        raise UnusableResultError("it contradicts itself: a GPU is used, and there is a cause why not")
    count = prediction.get("gpu_count")
    is_valid_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= 1024
    if not (count is None or is_valid_count):
        raise UnusableResultError("its number of GPUs is none")
    if result.gpu_usable is True and count == 0:
        raise UnusableResultError("it contradicts itself: a GPU is used, and their number is 0")
