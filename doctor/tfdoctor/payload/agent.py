# Answers questions about the container that it runs in: files, environment, commands. One JSON object a line in, one
# a line out; ends with its standard input. Standard library only; runs on Python 2.7 and 3.5 to 3.14. Writes nothing
# but the payloads that it is given, to a folder of its own that goes with the container.
from __future__ import print_function

import sys

if sys.path and not sys.path[0]:
    sys.path.pop(0)

import base64  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import platform  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

MARKER = "tfdoctor-payload:"
OUTPUT = 4 << 20
RUNNING = {}
LOCK = threading.Lock()


def text(data):
    return base64.b64encode(data).decode("ascii")


def op_hello(request):
    uname = platform.uname()
    return {
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "platform": {
            "system": uname[0],
            "machine": uname[4],
            "release": uname[2],
            "uid": str(os.geteuid()),
        },
    }


def op_read(request):
    with open(request["path"], "rb") as stream:
        status = os.fstat(stream.fileno())
        stream.seek(request.get("offset", 0))
        return {
            "data": text(stream.read(request["size"])),
            "size": status.st_size,
            "device": status.st_dev,
            "inode": status.st_ino,
        }


def op_stat(request):
    path = request["path"]
    return {
        "exists": os.path.exists(path),
        "dir": os.path.isdir(path),
        "file": os.path.isfile(path),
        "real": os.path.realpath(path),
    }


def op_listdir(request):
    return {"names": sorted(os.listdir(request["path"]))}


def op_which(request):
    name = request["name"]
    if "/" in name:
        places = [name]
    else:
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        places = [os.path.join(folder, name) for folder in folders]
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return {"path": place}
    return {"path": None}


def op_put(request):
    folder = tempfile.mkdtemp(prefix="tfdoctor-")
    path = os.path.join(folder, os.path.basename(request["name"]))
    with open(path, "wb") as stream:
        stream.write(base64.b64decode(request["data"]))
    return {"path": path}


def op_run(request):
    env = dict((k, v) for k, v in os.environ.items() if k not in request.get("unset", []))
    env.update(request.get("env", {}))
    if sys.version_info[0] == 2:
        env = dict((k.encode("utf-8"), v.encode("utf-8")) if not isinstance(k, str) else (k, v) for k, v in env.items())
        env = dict((str(k), v.encode("utf-8") if not isinstance(v, str) else v) for k, v in env.items())
    began = time.time()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                request["argv"],
                stdin=open(os.devnull),
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
    try:
        reply = OPERATIONS[request["op"]](request)
    except (IOError, OSError) as error:
        reply = {"errno": error.errno or 5, "strerror": error.strerror or str(error)}
    except Exception as error:
        reply = {"errno": 5, "strerror": "%s: %s" % (type(error).__name__, error)}
    reply["id"] = request["id"]
    line = MARKER + json.dumps(reply) + "\n"
    with LOCK:
        sys.stdout.write(line)
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
