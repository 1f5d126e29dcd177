"""Stands in for the worker in tests of the protocol: plain Python, no library, no numbers that mean anything.

    python3 double_worker.py BEHAVIOUR [STATE_FILE]

It answers as the worker does until a request other than hello, describe and release; what it does then is its
BEHAVIOUR. STATE_FILE counts its starts.
"""

import json
import os
import sys
import time

PROTOCOL = 2


def say(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def hello(behaviour):
    return {
        "protocol": PROTOCOL + 1 if behaviour == "version" else PROTOCOL,
        "python": "3.12.0",
        "torch": "2.11.0",
        "cuda": "13.0",
        "device": "a test double",
        "kernels": [
            {"kernel": "torchao/rowwise", "available": True, "reason": None, "library_version": "0.18.0"},
            {"kernel": "deepgemm/blockwise", "available": False, "reason": "DeepGEMM is not installed", "library_version": None},
        ],
    }


def misbehave(behaviour, request, starts):
    identity = request["id"]
    if behaviour == "dies":
        sys.stderr.write("loading\nSegmentation fault in libexample.so\n")
        sys.stderr.flush()
        os._exit(11)
    if behaviour == "dies-once" and starts == 1:
        os._exit(1)
    if behaviour == "half-line":
        sys.stdout.write('{"id": %d, "ok"' % identity)
        sys.stdout.flush()
        os._exit(0)
    if behaviour == "hangs":
        time.sleep(600)
    if behaviour == "rubbish":
        sys.stdout.write("Autotuning 12 configurations...\n")
        sys.stdout.flush()
        time.sleep(600)
    if behaviour == "binary":
        sys.stdout.buffer.write(b"\xff\xfe{}\n")
        sys.stdout.flush()
        time.sleep(600)
    if behaviour == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if behaviour == "other-id":
        say({"id": identity + 1, "ok": True, "result": {}})
        time.sleep(600)
    if behaviour == "other-shape":
        say({"id": identity, "ok": True, "result": {"copied": "perhaps"}})
        time.sleep(600)
    if behaviour == "refuses":
        say({"id": identity, "ok": False, "reason": "k = 100 is not a multiple of 16"})
        return
    if behaviour == "gpu-lost" and starts == 1:
        say({"id": identity, "ok": False, "reason": "AcceleratorError: illegal memory access", "fatal": True})
        os._exit(3)
    if behaviour == "chatty":
        sys.stderr.write("warning: something\n" * 100_000)
        sys.stderr.flush()
    if request["do"] == "compile":
        say({"id": identity, "ok": True, "result": {}})
        return
    if request["do"] == "sites":
        rows = [{"kernels": triple, "site_us": [3.0, 1.0, 2.0], "bf16_us": [4.0, 4.0, 4.0], "sets": 2,
                 "launch_us": 20.0, "bf16_launch_us": 8.0}
                for triple in request["triples"]]
        rows[-1] = {"kernels": request["triples"][-1], "reason": "out of memory"} if len(rows) > 1 else rows[-1]
        say({"id": identity, "ok": True, "result": {"rows": rows}})
        return
    if request["do"] == "time":
        padding = 200_000 if behaviour == "long-line" else 3
        say({"id": identity, "ok": True, "result": {
            "gemm_us": [1.0, 1.5], "latency_us": [3.25] * padding, "cached_us": [], "baseline_us": [2.0], "sets": 4, "note": "double",
        }})
        return
    with open(request["out"]["file"], "wb") as file:
        file.write(b"\x00\x3f" * (request["m"] * request["n"]))
    say({"id": identity, "ok": True, "result": {"copied": True}})


def main():
    behaviour, starts = sys.argv[1], 1
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a+") as file:
            file.write("x")
            file.seek(0)
            starts = len(file.read())
    if behaviour == "dies-at-once":
        sys.stderr.write("ModuleNotFoundError: No module named 'encodings'\n")
        os._exit(1)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "hello":
            say({"id": request["id"], "ok": True, "result": hello(behaviour)})
        elif request["do"] == "shutdown":
            say({"id": request["id"], "ok": True, "result": {}})
            return
        elif request["do"] == "release":
            say({"id": request["id"], "ok": True, "result": {"released": 2}})
        elif request["do"] == "describe":
            say({"id": request["id"], "ok": True, "result": {
                "kernel": request["kernel"], "available": True, "library_version": "0.18.0",
                "reason": None if request.get("k", 0) % 16 == 0 else "k is odd",
            }})
        else:
            misbehave(behaviour, request, starts)


main()
