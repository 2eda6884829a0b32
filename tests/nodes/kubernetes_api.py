"""The part of the Kubernetes API that `fleet run --kubernetes` uses, with recorded machines as nodes.

The container command of a job really runs, in a shell of this machine; its volumes are folders.
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
    """The state of the fake cluster.

    The pod of a node of the kind "gone" never answers; a node of the kind "full" starts no pod.
    """

    def __init__(self, folder: Path, nodes: Mapping[str, str]) -> None:
        self.folder, self.nodes = folder, nodes
        self.maps: dict[str, Any] = {}
        self.jobs: dict[str, Any] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.requests: list[tuple[str, str]] = []

    def start(self, name: str, body: dict[str, Any]) -> None:
        pod = body["spec"]["template"]["spec"]
        fields = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node = fields["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        self.jobs[name] = {"body": body, "node": node}
        if self.nodes[node] in ("gone", "full"):
            return
        folder = self.folder / "pods" / name
        for name_part in ("tfdoctor", "scratch"):
            (folder / name_part).mkdir(parents=True)
        for source in pod["volumes"][0]["projected"]["sources"]:
            for name_part, content in self.maps[source["configMap"]["name"]]["binaryData"].items():
                (folder / "tfdoctor" / name_part).write_bytes(base64.b64decode(content))
        container = pod["containers"][0]
        script = container["command"][2].replace("/dev/termination-log", str(folder / "ended"))
        script = re.sub(r"/(tfdoctor|scratch)/", lambda match: f"{folder}/{match[1]}/", script)
        env = {"TMPDIR": str(folder / "scratch"), "PATH": f"{self.folder}/nodes/{node}:{os.environ['PATH']}"}
        with (folder / "log").open("wb") as log:
            arguments = [*container["command"][:2], script, *container["command"][3:]]
            self.running[name] = subprocess.Popen(arguments, env=env, stdout=log, start_new_session=True)

    def pods(self) -> list[dict[str, Any]]:
        pods = []
        for name, job in self.jobs.items():
            labels = job["body"]["spec"]["template"]["metadata"]["labels"]
            pods.append(
                {
                    "metadata": {"name": f"{name}-{POD}", "labels": labels},
                    "status": self.status(name, job["node"]),
                }
            )
        return pods

    def status(self, name: str, node: str) -> dict[str, Any]:
        if self.nodes[node] == "gone":
            return {"phase": "Running", "reason": "NodeLost"}
        if self.nodes[node] == "full":
            message_text = "0/9 nodes are available: 1 Insufficient nvidia.com/gpu."
            return {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": message_text}],
            }
        status = self.running[name].poll()
        if status is None:
            return {"phase": "Running"}
        message_path = self.folder / "pods" / name / "ended"
        message = message_path.read_text(errors="replace") if message_path.exists() else ""
        state = {"terminated": {"exitCode": status, "message": message}}
        container = {
            "name": "tfdoctor",
            "image": "",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        return {"phase": "Failed" if status else "Succeeded", "containerStatuses": [container]}

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def serve(cluster: Cluster) -> ThreadingHTTPServer:
    """Answer the API on a port of 127.0.0.1 until `shutdown`."""

    class KubernetesHandler(BaseHTTPRequestHandler):
        def answer(self, content: object, status: int = 200) -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            path = urlsplit(self.path)
            cluster.requests.append(("GET", path.path))
            if path.path == "/api/v1/nodes":
                items = [{"metadata": {"name": name}, "spec": {}} for name in cluster.nodes]
                self.answer({"kind": "NodeList", "apiVersion": "v1", "items": items})
            elif path.path.endswith("/pods"):
                self.answer({"kind": "PodList", "apiVersion": "v1", "items": cluster.pods()})
            elif path.path.endswith("/log"):
                name = path.path.split("/")[-2].removesuffix(f"-{POD}")
                limit = int(parse_qs(path.query)["limitBytes"][0])
                with (cluster.folder / "pods" / name / "log").open("rb") as log:
                    self.answer(log.read(limit))
            else:
                self.answer({"kind": "Status", "code": 404}, 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            cluster.requests.append(("POST", self.path))
            name = body["metadata"]["name"]
            if self.path == "/api/v1/namespaces/gpu/configmaps":
                assert (
                    sum(len(base64.b64decode(encoded)) for encoded in body["binaryData"].values()) <= 1 << 20
                )
                cluster.maps[name] = body
            elif self.path == "/apis/batch/v1/namespaces/gpu/jobs":
                cluster.start(name, body)
            else:
                self.answer({"kind": "Status", "code": 403, "reason": "Forbidden"}, 403)
                return
            self.answer(body, 201)

        def do_DELETE(self) -> None:
            cluster.requests.append(("DELETE", urlsplit(self.path).path))
            objects = cluster.maps if "configmaps" in self.path else cluster.jobs
            objects.clear()
            if objects is cluster.jobs:
                cluster.stop()
            self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def log_message(self, *_: object) -> None:
            """Discard the log of the server."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), KubernetesHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
