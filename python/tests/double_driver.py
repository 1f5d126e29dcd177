"""Stands in for `python -m loka.ray.driver` in the Rust tests of engine/cluster: the protocol without Ray.

usage: double_driver.py BEHAVIOUR LOG

LOG gets a line for each request."""

import json
import sys
import time

behaviour, log = sys.argv[1:]
CLUSTER = {
    "is": "cluster", "protocol": 1, "ray": "2.60.0", "nodes": 2, "cpus": 4.0, "gpus": {"H200": 8.0}, "engine": "cuda",
    "accelerator": "H200", "device": "NVIDIA H200", "driver": "570.1", "note": None,
}  # fmt: skip


def say(line):
    print(json.dumps(line), flush=True)


def read():
    line = sys.stdin.readline()
    if not line:
        note({"do": "end"})
        sys.exit(0)
    request = json.loads(line)
    note(request)
    return request


def note(request):
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(request) + "\n")


def part(number):
    say({"is": "part", "part": number, "file": f"/parts/{number}", "made": True, "seconds": 1.5, "node": "n"})


if behaviour == "dies-at-once":
    print("ModuleNotFoundError: No module named 'loka'", file=sys.stderr)
    sys.exit(1)
hello = read()
if behaviour == "silent":
    time.sleep(60)
elif behaviour == "refuses":
    say({"is": "refused", "reason": "no Ray cluster is here:\nstart one"})
    sys.exit(0)
elif behaviour == "version":
    say({"is": "anything", "protocol": 2})
elif behaviour == "rubbish":
    print("Autotuning 12 configurations...", flush=True)
else:
    say(CLUSTER)
request = read()
if behaviour == "fine":
    for number in request["parts"]:
        part(number)
    say({"is": "ended", "cancelled": False, "reason": None})
elif behaviour == "a-part-is-refused":
    part(request["parts"][0])
    say({"is": "ended", "cancelled": False, "reason": "part 2 of 3: the disk is full: /parts (on n)"})
elif behaviour == "dies":
    part(request["parts"][0])
    print("raylet died", file=sys.stderr, flush=True)
    sys.exit(3)
elif behaviour == "another-part":
    part(9)
elif behaviour == "prints":
    print("hello", flush=True)
elif behaviour == "waits":
    part(request["parts"][0])
    while read()["do"] != "cancel":
        pass
    say({"is": "ended", "cancelled": True, "reason": None})
read()
