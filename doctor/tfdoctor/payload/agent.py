# Answers requests about the container that it runs in: files, environment, commands. It reads one JSON object
# per line from standard input, prints one response per line, and ends at the end of its input. Standard library
# only; runs on Python 2.7 and 3.5 to 3.14. It writes only the payloads that it receives, to a temporary folder
# in the container.
from __future__ import print_function

import sys

# Remove the script's own folder, which comes first unless Python runs in safe mode: it must not shadow
# modules.
if sys.path and not (getattr(sys.flags, "safe_path", 0) or getattr(sys.flags, "isolated", 0)):
    sys.path.pop(0)

import base64
import json
import os
import signal
import subprocess
import tempfile
import threading
import time

MARKER = "tfdoctor-payload:"
MAX_OUTPUT_BYTES = 4 << 20
RUNNING_PROCESSES = {}
STATE_LOCK = threading.Lock()


# Names are bytes, so that the container's locale (usually none) does not limit which files can be requested.
if sys.version_info[0] == 2:
    ENVIRON, get_cwd, DECODE_ERRORS = os.environ, os.getcwd, "replace"
else:
    ENVIRON, get_cwd, DECODE_ERRORS = os.environb, os.getcwdb, "surrogateescape"


def encode_base64(data):
    """Return bytes as a Base64 string."""
    return base64.b64encode(data).decode("ascii")


def to_bytes(name):
    """Return a path or another name as bytes, in the encoding of the file system."""
    return name.encode("utf-8", "strict" if DECODE_ERRORS == "replace" else DECODE_ERRORS)


def to_text(name):
    """Return bytes as text. This is the inverse of `to_bytes`."""
    return name.decode("utf-8", DECODE_ERRORS)


def op_hello(request):
    """Return the environment, the working directory and the platform."""
    uname = os.uname()
    return {
        "env": dict((to_text(name), to_text(value)) for name, value in ENVIRON.items()),
        "cwd": to_text(get_cwd()),
        "platform": {
            "system": uname[0],
            "machine": uname[4],
            "release": uname[2],
            "uid": str(os.geteuid()),
        },
    }


def op_read(request):
    """Return up to `size` bytes of a file from `offset`, and its total size, device and inode."""
    # O_NONBLOCK: opening a FIFO must not block.
    descriptor = os.open(to_bytes(request["path"]), os.O_RDONLY | os.O_NONBLOCK)
    try:
        stream = os.fdopen(descriptor, "rb")
    except (IOError, OSError):  # a folder
        os.close(descriptor)
        raise
    with stream:
        status = os.fstat(descriptor)
        if request.get("offset"):
            stream.seek(request["offset"])
        return {
            "data": encode_base64(stream.read(request["size"])),
            "size": status.st_size,
            "device": status.st_dev,
            "inode": status.st_ino,
        }


def op_stat(request):
    """Return whether a path exists, whether it is a folder or a file, and its resolved path."""
    path = to_bytes(request["path"])
    return {
        "exists": os.path.exists(path),
        "dir": os.path.isdir(path),
        "file": os.path.isfile(path),
        "real": to_text(os.path.realpath(path)),
    }


def op_listdir(request):
    return {"names": sorted(to_text(name) for name in os.listdir(to_bytes(request["path"])))}


def op_which(request):
    """Return the path of a command; None if it is not found."""
    name = to_bytes(request["name"])
    if b"/" in name:
        candidates = [name]
    else:
        folders = ENVIRON.get(b"PATH", to_bytes(os.defpath)).split(b":")
        candidates = [os.path.join(folder, name) for folder in folders]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return {"path": to_text(candidate)}
    return {"path": None}


def op_put(request):
    """Write files to a new temporary folder, and return the folder."""
    folder = tempfile.mkdtemp(prefix="tfdoctor-")
    for name, data in request["files"].items():
        with open(os.path.join(folder, os.path.basename(name)), "wb") as stream:
            stream.write(base64.b64decode(data))
    return {"folder": folder}


def op_run(request):
    """Run a command, at most for the given time. Return its output and status, or an errno."""
    env = dict(ENVIRON)
    for name in request.get("unset", []):
        env.pop(to_bytes(name), None)
    env.update((to_bytes(key), to_bytes(value)) for key, value in request.get("env", {}).items())
    started = time.time()
    with tempfile.TemporaryFile() as stdout_file, tempfile.TemporaryFile() as stderr_file, open(os.devnull, "rb") as null_device:
        try:
            process = subprocess.Popen(
                [to_bytes(argument) for argument in request["argv"]],
                stdin=null_device,
                stdout=stdout_file,
                stderr=stderr_file,
                env=env,
                preexec_fn=os.setsid,
            )
        except OSError as error:
            return {"failure": error.errno, "detail": error.strerror or "", "seconds": time.time() - started}
        with STATE_LOCK:
            RUNNING_PROCESSES[process.pid] = process
        timed_out = False
        pause_s = 0.005
        while process.poll() is None:
            if time.time() - started > request["timeout"]:
                timed_out = True
                kill_process_group(process.pid)
                process.wait()
                break
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.1)
        with STATE_LOCK:
            RUNNING_PROCESSES.pop(process.pid, None)
        stdout_file.seek(0)
        stderr_file.seek(0)
        return {
            "status": process.returncode,
            "timed_out": timed_out,
            "stdout": encode_base64(stdout_file.read(MAX_OUTPUT_BYTES)),
            "stderr": encode_base64(stderr_file.read(MAX_OUTPUT_BYTES)),
            "seconds": time.time() - started,
        }


def kill_process_group(pid):
    """Kill the process group of a command, if it still exists."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass


OPERATIONS = {
    "hello": op_hello,
    "read": op_read,
    "stat": op_stat,
    "listdir": op_listdir,
    "which": op_which,
    "put": op_put,
    "run": op_run,
}


def handle_request(request):
    """Handle a request and print the response. If it failed, that has `errno` (5 is EIO) and `strerror`."""
    request_id = request["id"]
    try:
        line = json.dumps(dict(OPERATIONS[request["op"]](request), id=request_id))
    except (IOError, OSError) as error:
        line = json.dumps({"id": request_id, "errno": error.errno or 5, "strerror": error.strerror or str(error)})
    except Exception as error:
        line = json.dumps({"id": request_id, "errno": 5, "strerror": "%s: %r" % (type(error).__name__, error)})
    with STATE_LOCK:
        sys.stdout.write(MARKER + line + "\n")
        sys.stdout.flush()


def main():
    while True:
        line = sys.stdin.readline()
        if not line:
            break
        request = json.loads(line)
        threading.Thread(target=handle_request, args=(request,)).start()
    for pid in list(RUNNING_PROCESSES):
        kill_process_group(pid)


if __name__ == "__main__":
    main()
