"""The other end of LoKA's engine "cluster": `python -m loka.ray.driver`. Takes requests, a JSON object a line; runs parts of a
probe as tasks of a Ray cluster; gives a line for each part that was made, and one for each that was refused.

    {"do": "hello", "protocol": 1, "version": ..., "program": ..., "accelerator": ...}
        ──► {"is": "cluster", "nodes": 2, "cpus": 8, "gpus": {"H200": 8}, "engine": "cuda", "device": ..., ...}
    {"do": "probe", "arguments": [...], "out": ..., "parts": [1, 2, 5], "of": 14}
        ──► {"is": "part", "part": 2, "file": ..., "made": true, "seconds": 24.1, "node": ...}, ...
        ──► {"is": "ended", "cancelled": false, "reason": null}
    {"do": "pause"}, {"do": "resume"}, {"do": "cancel"}: at any time

It joins a cluster that is there and starts none. No more tasks are given to Ray than have a place, and one that waits, so
that an autoscaler sees that there is more to do: a pause keeps what is left here. It ends, and its tasks with it, when its
input ends: nothing outlives the LoKA that started it."""

import collections
import contextlib
import importlib
import importlib.util
import json
import logging
import os
import pathlib
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from ..program import binary, child
from ..program.binary import LokaError, find_binary
from ..program.child import run
from ..worker.protocol import Channel, one_line

PROTOCOL = 1
"""Raised whenever a line changes its meaning."""

HOW_TO_GET_ONE = "start one (ray start --head) or name one in RAY_ADDRESS"

REACHED_WITHIN = 5.0
"""Seconds that a cluster's address has to answer in."""

LOOKED_WITHIN = 90.0
"""Seconds that a node has to say what it has: its first task starts a Python process."""

ENDS_WITHIN = 20.0
"""Seconds after the end of the input."""

RETRIES = 20
"""Of a task whose worker or node dies: preemptible machines do so often."""

COUNTED_EVERY = 2.0
"""Seconds between two looks at how many places the cluster has."""


class Refused(Exception):
    """Why there is nothing to probe on. One line."""


class Kind(NamedTuple):
    """What a task takes. `accelerator`: the type of its GPU; None: a CPU, which emulates."""

    accelerator: Optional[str]

    @property
    def engine(self) -> str:
        return "cpu" if self.accelerator is None else "cuda"

    def needs(self) -> Dict[str, Any]:
        if self.accelerator is None:
            return {"num_cpus": 1}
        return {"num_cpus": 1, "num_gpus": 1, "accelerator_type": self.accelerator}

    def needs_to_look(self) -> Dict[str, Any]:
        """Next to nothing: also where every place is taken."""
        if self.accelerator is None:
            return {"num_cpus": 0.001}
        return {"num_cpus": 0, "accelerator_type": self.accelerator}


class Resources(NamedTuple):
    """What a cluster has. `gpus`: by their type, as Ray names them."""

    nodes: int
    cpus: float
    gpus: Dict[str, float]

    def places(self, kind: Kind) -> int:
        return int(self.cpus if kind.accelerator is None else self.gpus.get(kind.accelerator, 0))


# ---- What runs on the nodes. Sent there by value: a node needs the program, and no Python package of this version. ----


def use_program(program: str, version: str) -> str:
    """The program of this node, which has to be of that version: the same file where there is one, else what the node has."""
    if "LOKA_BIN" not in os.environ and os.access(program, os.X_OK):
        os.environ["LOKA_BIN"] = program
    found = str(find_binary())
    said = subprocess.run([found, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.split()
    other = said[1] if len(said) > 1 else "no LoKA"
    if other != version:
        raise LokaError(f"another version of LoKA ({other}, not {version}): {found}")
    return socket.gethostname()


def on_this_node(error: LokaError) -> LokaError:
    return LokaError(f"{error} (on {socket.gethostname()})")


def look(program: str, version: str, engine: str) -> Dict[str, Any]:
    """The device that tasks of that kind run on."""
    # Ray hides GPUs from a task that takes none.
    hidden = os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        use_program(program, version)
        lines = [json.loads(line) for line in run(["--json", "kernels"]).stdout.splitlines()]
        engines: List[Dict[str, Any]] = [line["engine"] for line in lines if isinstance(line.get("engine"), dict)]
        found = next((each for each in engines if each["name"] == engine), None)
        if found is None:
            raise LokaError(f"its LoKA has no engine {engine}")
        if found["problem"] is not None:
            raise LokaError(found["problem"])
        return {"device": found["device"], "driver": found["driver"]}
    except LokaError as error:
        raise on_this_node(error) from None
    finally:
        if hidden is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = hidden


def make_part(program: str, version: str, arguments: List[str]) -> Tuple[Dict[str, Any], str]:
    """A part, made by the program of this node: what it says of it, and the node's name."""
    try:
        node = use_program(program, version)
        told: Dict[str, Any] = json.loads(run(["--json", *arguments], dies_with_parent=True).stdout)
        return told, node
    except LokaError as error:
        raise on_this_node(error) from None


# ---- What runs here. ----


class Requests:
    """Lines from LoKA as they come, read by a thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: "queue.Queue[Optional[Dict[str, Any]]]" = queue.Queue()
        self.ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._channel:
            with contextlib.suppress(ValueError):
                request = json.loads(line)
                if isinstance(request, dict):
                    self._waiting.put(request)
        self._waiting.put(None)
        # Whatever Ray is waited for: LoKA is gone.
        time.sleep(ENDS_WITHIN)
        os._exit(1)

    def next(self, timeout: Optional[float]) -> Optional[Dict[str, Any]]:
        """None: there is none within that time, or `ended`."""
        if self.ended:
            return None
        try:
            request = self._waiting.get(timeout=timeout) if timeout is None or timeout > 0 else self._waiting.get_nowait()
        except queue.Empty:
            return None
        self.ended = request is None
        return request


class ClusterDriver:
    """One cluster, and one probe at a time on it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.requests = Requests(channel)
        self.program = ""
        self.version = ""
        self.ray: Any = None
        self.kind = Kind(None)

    def serve(self) -> None:
        hello = self.requests.next(None)
        if hello is None:
            return
        try:
            if hello.get("protocol") != PROTOCOL:
                raise Refused(f"the driver speaks protocol {PROTOCOL}, not {hello.get('protocol')}")
            self.program, self.version = str(hello.get("program")), str(hello.get("version"))
            self.ray = connected()
            self.channel.send(self.described(hello.get("accelerator")))
        except Refused as error:
            self.channel.send({"is": "refused", "reason": one_line(error)})
            return
        while not self.requests.ended:
            request = self.requests.next(None)
            if request is not None and request.get("do") == "probe":
                self.probe(request)

    def described(self, accelerator: Optional[str]) -> Dict[str, Any]:
        has = self.resources()
        note = None
        kinds: List[Kind] = [Kind(name) for name in sorted(has.gpus, key=lambda name: (-has.gpus[name], name))]
        if accelerator is not None:
            kinds = [kind for kind in kinds if (kind.accelerator or "").partition("-")[0].lower() == accelerator.lower()]
            if not kinds:
                there = ", ".join(sorted(has.gpus)) or "none"
                raise Refused(f"no node of the cluster has a GPU of type {accelerator}; there are: {there}")
        elif has.cpus >= 1:
            kinds.append(Kind(None))
        if not kinds:
            raise Refused("no node of the cluster has a CPU or a GPU for tasks")
        for kind in kinds:
            try:
                found = self.looked(kind)
            except Refused as error:
                # Told, whether something else is taken or not.
                note = note or one_line(error)
                continue
            self.kind = kind
            return {
                "is": "cluster", "protocol": PROTOCOL, "ray": self.ray.__version__, "nodes": has.nodes, "cpus": has.cpus,
                "gpus": has.gpus, "engine": kind.engine, "accelerator": kind.accelerator, "note": note, **found,
            }  # fmt: skip
        raise Refused(note or "no node of the cluster can run LoKA")

    def resources(self) -> Resources:
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        gpus: Dict[str, float] = {}
        for node in nodes:
            for name in node:
                if name.startswith("accelerator_type:") and node.get("GPU", 0) >= 1:
                    kind = name.partition(":")[2]
                    gpus[kind] = gpus.get(kind, 0) + node["GPU"]
        return Resources(len(nodes), sum(node.get("CPU", 0) for node in nodes), gpus)

    def looked(self, kind: Kind) -> Dict[str, Any]:
        task = self.ray.remote(max_retries=3, **kind.needs_to_look())(look).remote(self.program, self.version, kind.engine)
        until = time.monotonic() + LOOKED_WITHIN
        while time.monotonic() < until:
            done, _ = self.ray.wait([task], timeout=0.2)
            if done:
                try:
                    found: Dict[str, Any] = self.ray.get(task)
                    return found
                except self.ray.exceptions.RayError as error:
                    raise Refused(self.reason(error)) from None
            request = self.requests.next(0)
            if self.requests.ended or (request is not None and request.get("do") == "cancel"):
                break
        self.ray.cancel(task, force=True)
        raise Refused("no node of the cluster took a task that takes next to nothing")

    def probe(self, request: Dict[str, Any]) -> None:
        arguments: List[str] = [str(argument) for argument in request["arguments"]]
        of, out = int(request["of"]), str(request["out"])
        waiting: Deque[int] = collections.deque(int(part) for part in request["parts"])
        task = self.ray.remote(max_retries=RETRIES, **self.kind.needs())(make_part)
        running: Dict[Any, int] = {}
        paused, reason = False, None
        places, counted = 0, 0.0
        while waiting or running:
            asked = self.requests.next(0 if running else 0.05 if paused else 0)
            if self.requests.ended or (asked is not None and asked.get("do") == "cancel"):
                self.stop(running)
                self.channel.send({"is": "ended", "cancelled": True, "reason": None})
                return
            if asked is not None and asked.get("do") in ("pause", "resume"):
                paused = asked["do"] == "pause"
            if time.monotonic() - counted > COUNTED_EVERY:
                places, counted = self.resources().places(self.kind), time.monotonic()
            while waiting and not paused and len(running) <= places:
                part = waiting.popleft()
                given = [*arguments, "--part", f"{part}/{of}", "--out", out, "--progress"]
                running[task.remote(self.program, self.version, given)] = part
            if not running:
                continue
            done, _ = self.ray.wait(list(running), timeout=0.1)
            for each in done:
                part = running.pop(each)
                try:
                    told, node = self.ray.get(each)
                except self.ray.exceptions.RayError as error:
                    reason = reason or f"part {part} of {of}: {self.reason(error)}"
                    continue
                self.channel.send(
                    {
                        "is": "part", "part": part, "file": told["file"], "made": told["made"],
                        "seconds": told["seconds"] or 0.0, "node": node,
                    }  # fmt: skip
                )
            if reason is not None:
                # What waits would be refused too; what was made stays.
                self.stop(running)
                break
        self.channel.send({"is": "ended", "cancelled": False, "reason": reason})

    def stop(self, running: Dict[Any, int]) -> None:
        for task in running:
            self.ray.cancel(task, force=True)
        # Looked at, or Ray tells of each as of an error that nobody saw.
        until = time.monotonic() + 10
        for task in running:
            with contextlib.suppress(self.ray.exceptions.RayError):
                self.ray.get(task, timeout=max(0.0, until - time.monotonic()))

    def reason(self, error: BaseException) -> str:
        """What `loka` said, or what Ray did of a worker that is gone for good."""
        cause = getattr(error, "cause", None)
        if isinstance(cause, Exception):
            return one_line(cause) or type(cause).__name__
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"given up: {one_line(lines[0])}" if lines else type(error).__name__


def connected() -> Any:
    """Ray, connected to a cluster that is there."""
    if importlib.util.find_spec("ray") is None:
        raise Refused(f"this Python has no Ray: pip install 'loka[ray]': {sys.executable}")
    named = os.environ.get("RAY_ADDRESS", "")
    if named == "local":
        raise Refused(f"RAY_ADDRESS=local is no cluster: {HOW_TO_GET_ONE}")
    address = named if named not in ("", "auto") else started_here()
    if address is not None:
        check_reached(address, named)
    ray: Any = importlib.import_module("ray")
    # The tasks' own modules go with them.
    for module in (binary, child):
        ray.cloudpickle.register_pickle_by_value(module)
    try:
        # "auto" joins a cluster of this machine, and never starts one.
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, TimeoutError):
        raise Refused(f"no Ray cluster is here: {HOW_TO_GET_ONE}") from None
    except (RuntimeError, ValueError, OSError) as error:
        raise Refused(f"the Ray cluster refuses: {one_line(' '.join(str(error).split()))}") from None
    return ray


def started_here() -> Optional[str]:
    """What `ray start` left on this machine."""
    folder = pathlib.Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    with contextlib.suppress(OSError):
        return (folder / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip() or None
    return None


def check_reached(address: str, named: str) -> None:
    """Ray waits for a minute or ends the process where nobody answers."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED_WITHIN).close()
    except OSError as error:
        where = "RAY_ADDRESS" if named not in ("", "auto") else "of `ray start`"
        said = one_line(error.strerror or error)
        raise Refused(f"no Ray cluster answers at {address} ({where}; {said}): {HOW_TO_GET_ONE}") from None


if __name__ == "__main__":
    ClusterDriver(Channel.take()).serve()
