# Answers questions about the container that it runs in: files, environment, commands. One JSON object a line in, one
# a line out; ends with its standard input. Standard library only; runs on Python 2.7 and 3.5 to 3.14. Writes nothing
# but the payloads that it is given, to a folder of its own that goes with the container.
from __future__ import print_function

import sys

# The script's own folder is on sys.path first, unless Python was told to leave it out: it must not shadow anything.
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
OUTPUT = 4 << 20
RUNNING = {}
LOCK = threading.Lock()


# Names are bytes: a container's locale, most often none, must not decide what can be asked for.
if sys.version_info[0] == 2:
    ENVIRON, cwd, UNKNOWN = os.environ, os.getcwd, "replace"
else:
    ENVIRON, cwd, UNKNOWN = os.environb, os.getcwdb, "surrogateescape"


def text(data):
    return base64.b64encode(data).decode("ascii")


def native(name):
    return name.encode("utf-8", "strict" if UNKNOWN == "replace" else UNKNOWN)


def to_text(name):
    return name.decode("utf-8", UNKNOWN)


def op_hello(request):
    uname = os.uname()
    return {
        "env": dict((to_text(k), to_text(v)) for k, v in ENVIRON.items()),
        "cwd": to_text(cwd()),
        "platform": {
            "system": uname[0],
            "machine": uname[4],
            "release": uname[2],
            "uid": str(os.geteuid()),
        },
    }


def op_read(request):
    # O_NONBLOCK: a FIFO in the place of a file must not hold anyone up.
    descriptor = os.open(native(request["path"]), os.O_RDONLY | os.O_NONBLOCK)
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
            "data": text(stream.read(request["size"])),
            "size": status.st_size,
            "device": status.st_dev,
            "inode": status.st_ino,
        }


def op_stat(request):
    path = native(request["path"])
    return {
        "exists": os.path.exists(path),
        "dir": os.path.isdir(path),
        "file": os.path.isfile(path),
        "real": to_text(os.path.realpath(path)),
    }


def op_listdir(request):
    return {"names": sorted(to_text(name) for name in os.listdir(native(request["path"])))}


def op_which(request):
    name = native(request["name"])
    if b"/" in name:
        places = [name]
    else:
        folders = ENVIRON.get(b"PATH", native(os.defpath)).split(b":")
        places = [os.path.join(folder, name) for folder in folders]
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return {"path": to_text(place)}
    return {"path": None}


def op_put(request):
    folder = tempfile.mkdtemp(prefix="tfdoctor-")
    for name, data in request["files"].items():
        with open(os.path.join(folder, os.path.basename(name)), "wb") as stream:
            stream.write(base64.b64decode(data))
    return {"folder": folder}


def op_run(request):
    env = dict(ENVIRON)
    for name in request.get("unset", []):
        env.pop(native(name), None)
    env.update((native(k), native(v)) for k, v in request.get("env", {}).items())
    began = time.time()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as nothing:
        try:
            process = subprocess.Popen(
                [native(word) for word in request["argv"]],
                stdin=nothing,
                stdout=out,
                stderr=err,
                env=env,
                preexec_fn=os.setsid,
            )
        except OSError as error:
            return {"failure": error.errno, "detail": error.strerror or "", "seconds": time.time() - began}
        with LOCK:
            RUNNING[process.pid] = process
        timed_out = False
        pause = 0.005
        while process.poll() is None:
            if time.time() - began > request["timeout"]:
                timed_out = True
                kill(process.pid)
                process.wait()
                break
            time.sleep(pause)
            pause = min(pause * 1.5, 0.1)
        with LOCK:
            RUNNING.pop(process.pid, None)
        out.seek(0)
        err.seek(0)
        return {
            "status": process.returncode,
            "timed_out": timed_out,
            "stdout": text(out.read(OUTPUT)),
            "stderr": text(err.read(OUTPUT)),
            "seconds": time.time() - began,
        }


def kill(pid):
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


def answer(request):
    number = request["id"]
    try:
        line = json.dumps(dict(OPERATIONS[request["op"]](request), id=number))
    except (IOError, OSError) as error:
        line = json.dumps({"id": number, "errno": error.errno or 5, "strerror": error.strerror or str(error)})
    except Exception as error:
        line = json.dumps({"id": number, "errno": 5, "strerror": "%s: %r" % (type(error).__name__, error)})
    with LOCK:
        sys.stdout.write(MARKER + line + "\n")
        sys.stdout.flush()


def main():
    while True:
        line = sys.stdin.readline()
        if not line:
            break
        request = json.loads(line)
        threading.Thread(target=answer, args=(request,)).start()
    for pid in list(RUNNING):
        kill(pid)


if __name__ == "__main__":
    main()
