"""Stands in for `python -m loka.ray.driver` in Rust tests: the protocol without Ray.

usage: double_driver.py BEHAVIOUR LOG

LOG gets a line for each request. For tests/tests/serve/cluster.rs it makes parts by the real program, one after the other."""

import json
import queue
import subprocess
import sys
import threading
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


def make_parts(request):
    """Parts of this machine, until it is cancelled; `dies-after-3` of them."""
    asked = queue.Queue()
    threading.Thread(target=lambda: [asked.put(json.loads(line)) for line in sys.stdin], daemon=True).start()
    waiting, paused, cancelled = list(request["parts"]), False, False
    while waiting and not cancelled:
        try:
            wish = asked.get(timeout=0.02 if paused else 0.001)
            note(wish)
            paused, cancelled = wish["do"] == "pause", wish["do"] == "cancel"
        except queue.Empty:
            pass
        if paused or cancelled:
            continue
        number = waiting.pop(0)
        place = ["--part", f"{number}/{request['of']}", "--out", request["out"]]
        ended = subprocess.run([hello["program"], "--json", *request["arguments"], *place], capture_output=True, text=True)
        if ended.returncode != 0:
            say({"is": "ended", "cancelled": False, "reason": ended.stderr.strip().removeprefix("loka: ")})
            return
        told = json.loads(ended.stdout)
        say({"is": "part", "part": number, "file": told["file"], "made": told["made"], "seconds": 0.1, "node": "here"})
        if behaviour == "dies-after-3" and len(waiting) == len(request["parts"]) - 3:
            print("the raylet died", file=sys.stderr, flush=True)
            sys.exit(3)
    say({"is": "ended", "cancelled": cancelled, "reason": None})


def of_this_machine():
    lines = subprocess.run([hello["program"], "--json", "kernels"], capture_output=True, text=True, check=True).stdout
    engines = [json.loads(line).get("engine") for line in lines.splitlines()]
    device = next(each["device"] for each in engines if isinstance(each, dict) and each["name"] == "cpu")
    return {**CLUSTER, "gpus": {}, "engine": "cpu", "accelerator": None, "device": device, "driver": ""}


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
elif behaviour in ("makes", "dies-after-3"):
    say(of_this_machine())
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
elif behaviour in ("makes", "dies-after-3"):
    make_parts(request)
    sys.exit(0)
elif behaviour == "waits":
    part(request["parts"][0])
    while read()["do"] != "cancel":
        pass
    say({"is": "ended", "cancelled": True, "reason": None})
read()
