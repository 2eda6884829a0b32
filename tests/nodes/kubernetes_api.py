"""The part of Kubernetes' API that `fleet run --kubernetes` uses, with nodes that are recorded machines.

A job's container command really runs, in a shell of this machine, with what its volumes hold in folders of its own.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NUMBER = "tfdoctor.dev/run-node"
POD = "x-pod"


class Cluster:
    """What there is. A node without a folder under `nodes` is "gone": its pod has no answer."""

    def __init__(self, folder: Path, nodes: Mapping[str, str]) -> None:
        self.folder, self.nodes = folder, nodes
        self.maps: dict[str, Any] = {}
        self.jobs: dict[str, Any] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.asked: list[tuple[str, str]] = []

    def start(self, name: str, body: dict[str, Any]) -> None:
        pod = body["spec"]["template"]["spec"]
        fields = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node = fields["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        self.jobs[name] = {"body": body, "node": node}
        if self.nodes[node] in ("gone", "full"):
            return
        place = self.folder / "pods" / name
        for part in ("tfdoctor", "scratch"):
            (place / part).mkdir(parents=True)
        for source in pod["volumes"][0]["projected"]["sources"]:
            for part, content in self.maps[source["configMap"]["name"]]["binaryData"].items():
                (place / "tfdoctor" / part).write_bytes(base64.b64decode(content))
        container = pod["containers"][0]
        script = container["command"][2].replace("/dev/termination-log", str(place / "ended"))
        script = re.sub(r"/(tfdoctor|scratch)/", lambda found: f"{place}/{found[1]}/", script)
        env = {"TMPDIR": str(place / "scratch"), "PATH": f"{self.folder}/nodes/{node}:{os.environ['PATH']}"}
        with (place / "log").open("wb") as log:
            words = [*container["command"][:2], script, *container["command"][3:]]
            self.running[name] = subprocess.Popen(words, env=env, stdout=log, start_new_session=True)

    def pods(self) -> list[dict[str, Any]]:
        found = []
        for name, job in self.jobs.items():
            labels = job["body"]["spec"]["template"]["metadata"]["labels"]
            found.append(
                {
                    "metadata": {"name": f"{name}-{POD}", "labels": labels},
                    "status": self.status(name, job["node"]),
                }
            )
        return found

    def status(self, name: str, node: str) -> dict[str, Any]:
        if self.nodes[node] == "gone":
            return {"phase": "Running", "reason": "NodeLost"}
        if self.nodes[node] == "full":
            why = "0/9 nodes are available: 1 Insufficient nvidia.com/gpu."
            return {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": why}],
            }
        status = self.running[name].poll()
        if status is None:
            return {"phase": "Running"}
        ended = self.folder / "pods" / name / "ended"
        message = ended.read_text(errors="replace") if ended.exists() else ""
        state = {"terminated": {"exitCode": status, "message": message}}
        one = {
            "name": "tfdoctor",
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        return {"phase": "Failed" if status else "Succeeded", "containerStatuses": [one]}

    def stop(self) -> None:
        for one in self.running.values():
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(10)


def serve(cluster: Cluster) -> ThreadingHTTPServer:
    """It answers on a port of 127.0.0.1 until `shutdown`."""

    class Answering(BaseHTTPRequestHandler):
        def answer(self, content: object, status: int = 200) -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            path = urlsplit(self.path)
            cluster.asked.append(("GET", path.path))
            if path.path == "/api/v1/nodes":
                items = [{"metadata": {"name": name}, "spec": {}} for name in cluster.nodes]
                self.answer({"kind": "NodeList", "apiVersion": "v1", "items": items})
            elif path.path.endswith("/pods"):
                self.answer({"kind": "PodList", "apiVersion": "v1", "items": cluster.pods()})
            elif path.path.endswith("/log"):
                name = path.path.split("/")[-2].removesuffix(f"-{POD}")
                most = int(parse_qs(path.query)["limitBytes"][0])
                with (cluster.folder / "pods" / name / "log").open("rb") as log:
                    self.answer(log.read(most))
            else:
                self.answer({"kind": "Status", "code": 404}, 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            cluster.asked.append(("POST", self.path))
            name = body["metadata"]["name"]
            if self.path == "/api/v1/namespaces/gpu/configmaps":
                assert sum(len(base64.b64decode(one)) for one in body["binaryData"].values()) <= 1 << 20
                cluster.maps[name] = body
            elif self.path == "/apis/batch/v1/namespaces/gpu/jobs":
                cluster.start(name, body)
            else:
                self.answer({"kind": "Status", "code": 403, "reason": "Forbidden"}, 403)
                return
            self.answer(body, 201)

        def do_DELETE(self) -> None:
            cluster.asked.append(("DELETE", urlsplit(self.path).path))
            gone = cluster.maps if "configmaps" in self.path else cluster.jobs
            gone.clear()
            if gone is cluster.jobs:
                cluster.stop()
            self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
