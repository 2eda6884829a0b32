"""JSON-RPC messages of the Model Context Protocol, one a line.

The peer is not trusted: every line gets a response or an error, and none ends the server. Calls run in threads, so that
the client can cancel one and ask for another meanwhile.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

from tfdoctor.system.children import Children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MAX_MESSAGE_BYTES", "PROTOCOL_VERSIONS", "ProtocolError", "serve"]

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions of the protocol that are spoken, newest first."""
MAX_MESSAGE_BYTES = 32 << 20
MAX_PARALLEL_CALLS = 2
MAX_WAITING_CALLS = 32
PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL_ERROR = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)


class ProtocolError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _Connection:
    """The client's requests that still run, and the stream for responses."""

    def __init__(self, output: IO[bytes], call_tool: Callable[[Any, Children], Any]) -> None:
        self._output = output
        self._lock = threading.Lock()
        self._call_tool = call_tool
        self._running_calls: dict[str | int, Children] = {}
        self._cancelled_calls: set[Children] = set()
        self._pool = ThreadPoolExecutor(MAX_PARALLEL_CALLS, thread_name_prefix="call")
        self.is_closed = False

    def send(self, request_id: Any, response: dict[str, Any]) -> None:
        """Write a response. If the client has gone, note that and write no more."""
        message = {"jsonrpc": "2.0", "id": request_id, **response}
        data = json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
        with self._lock:
            if self.is_closed:
                return
            try:
                self._output.write(data)
                self._output.flush()
            except OSError:
                self.is_closed = True

    def start_call(self, request_id: str | int, params: Any) -> None:
        """Run a tool in a thread, and send its result unless the client cancels the request."""
        if len(self._running_calls) >= MAX_WAITING_CALLS:
            raise ProtocolError(INVALID_REQUEST, f"more than {MAX_WAITING_CALLS} calls are waiting.")
        if request_id in self._running_calls:
            raise ProtocolError(INVALID_REQUEST, "a request with this id is still running.")
        self._running_calls[request_id] = children = Children()
        self._pool.submit(self._run_call, request_id, params, children)

    def cancel_call(self, params: Any) -> None:
        """Cancel the call that a notification names, if it runs."""
        request_id = params.get("requestId") if isinstance(params, dict) else None
        children = self._running_calls.get(request_id) if isinstance(request_id, (str, int)) else None
        if children is not None:
            self._cancelled_calls.add(children)
            children.stop()

    def close(self) -> None:
        """Wait for the calls that run, so that `echo REQUEST | tfdoctor mcp` gets its response."""
        self._pool.shutdown(wait=True)

    def _run_call(self, request_id: str | int, params: Any, children: Children) -> None:
        try:
            response: dict[str, Any] = {"result": self._call_tool(params, children)}
        except ProtocolError as error:
            response = _make_error(error)
        except Exception as error:  # a defect costs one call, not the session
            response = _make_error(_describe_defect(error))
        self._running_calls.pop(request_id, None)
        if children in self._cancelled_calls:
            self._cancelled_calls.discard(children)
        else:
            self.send(request_id, response)


def _describe_defect(error: Exception) -> ProtocolError:
    return ProtocolError(INTERNAL_ERROR, f"this is a defect of tfdoctor ({type(error).__name__}: {error}).")


def _make_error(error: ProtocolError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": error.message}}


def serve(
    source: IO[bytes],
    output: IO[bytes],
    methods: dict[str, Callable[[Any], Any]],
    call_tool: Callable[[Any, Children], Any],
) -> None:
    """Answer requests until the client closes its side.

    `methods` are functions that get the parameters and return the result at once. `call_tool` serves `tools/call` and
    may take long; its `Children` are stopped if the client cancels.
    """
    connection = _Connection(output, call_tool)
    try:
        for line in _iter_lines(source):
            if connection.is_closed:
                break
            try:
                message = _parse_message(line)
            except ProtocolError as error:
                connection.send(None, _make_error(error))
                continue
            for item in message if isinstance(message, list) else [message]:
                _handle_message(item, connection, methods)
    finally:
        connection.close()


def _iter_lines(source: IO[bytes]) -> Iterator[bytes | None]:
    """Yield each line that is not empty, or None for one that is too long."""
    while line := source.readline(MAX_MESSAGE_BYTES + 1):
        if len(line) <= MAX_MESSAGE_BYTES:
            if line.strip():
                yield line
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(1 << 20)
        yield None


def _parse_message(line: bytes | None) -> Any:
    """Return the message, or a list of messages. Raise ProtocolError if it is not JSON."""
    if line is None:
        raise ProtocolError(INVALID_REQUEST, f"the message is larger than {MAX_MESSAGE_BYTES} bytes.")

    def refuse_constant(name: str) -> Any:
        raise ValueError(name)

    try:
        message = json.loads(line.decode(), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise ProtocolError(PARSE_ERROR, "the line is not JSON in UTF-8.") from None
    if message == []:
        raise ProtocolError(INVALID_REQUEST, "the batch is empty.")
    return message


def _is_request_id(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _handle_message(message: Any, connection: _Connection, methods: dict[str, Callable[[Any], Any]]) -> None:
    """Answer one request, or note a notification."""
    try:
        _process_message(message, connection, methods)
    except Exception as defect:
        error = defect if isinstance(defect, ProtocolError) else _describe_defect(defect)
        request_id = message.get("id") if isinstance(message, dict) else None
        connection.send(request_id if _is_request_id(request_id) else None, _make_error(error))


def _process_message(message: Any, connection: _Connection, methods: dict[str, Callable[[Any], Any]]) -> None:
    """Answer a valid request, and raise ProtocolError for another one. Ignore responses, which nobody asked for."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, "the message is no object with jsonrpc 2.0.")
    if "method" not in message and ("result" in message or "error" in message):
        return
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, "the method is no text.")
    if "id" not in message:
        if method == "notifications/cancelled":
            connection.cancel_call(params)
        return
    request_id = message["id"]
    if not _is_request_id(request_id):
        raise ProtocolError(INVALID_REQUEST, "the id is neither a text nor a whole number.")
    if not isinstance(params, dict):
        raise ProtocolError(INVALID_PARAMS, "the parameters are no object.")
    if method == "tools/call":
        connection.start_call(request_id, params)
    elif method in methods:
        connection.send(request_id, {"result": methods[method](params)})
    else:
        raise ProtocolError(UNKNOWN_METHOD, f"there is no method {method[:80]!r}.")
