#!/usr/bin/env python3
"""From a bare machine to the first plan of one's own model, by the guide alone: reads docs/guide/first-day.md, types its
commands one after the other into one shell, and says how long each took. At most ten, none of which it knows beforehand.

    tests/newcomer.py --wheel loka-*.whl                      # a new environment, nothing of this one's
    tests/newcomer.py --wheel loka-*.whl --model mine.py      # with a training script of one's own instead of the guide's
    tests/newcomer.py                                         # no wheel: the program of LOKA_BIN and the checkout's package

With a wheel the shell has an empty home, /usr/bin and /bin on its PATH and no variable of this one's but those by which pip
reaches its index. Without one the commands that install are named and left out. Ends with 1 where a command fails, where there
are more than ten, or where no plan came of it.
"""

import argparse
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs/guide/first-day.md"
PLAN_MADE_BY = "## Review"
"""What comes from here on is another day's."""

MOST = 10
INSTALLS = re.compile(r"^(python3 -m venv|pip install)")
REACHES_INDEX = re.compile(r"^(PIP_\w+|\w+_proxy|\w+_PROXY|SSL_CERT_\w+|REQUESTS_CA_BUNDLE)$")


def first_steps(text):
    """Files and commands of the guide up to the plan: `(name, content)` and lines, each as it stands there."""
    files, commands = [], []
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", text.split(PLAN_MADE_BY)[0], re.DOTALL | re.MULTILINE):
        if language == "python":
            files.append((code.partition("\n")[0].removeprefix("# "), code))
        elif language == "sh":
            commands += code.splitlines()
    return files, commands


class Shell:
    """One bash, as a person has one open."""

    def __init__(self, folder, environment):
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, command):
        """Its exit code, what it said, and the seconds that it took."""
        started = time.monotonic()
        self._shell.stdin.write(f'{command}\necho; echo "@@done $?"\n')
        self._shell.stdin.flush()
        said = []
        for line in self._shell.stdout:
            if line.startswith("@@done "):
                return int(line.split()[1]), said, time.monotonic() - started
            said.append(line.rstrip("\n"))
        return -1, [*said, "the shell ended"], time.monotonic() - started


def environment_of(wheel, folder):
    home = folder / "home"
    home.mkdir()
    if wheel:
        kept = {name: value for name, value in os.environ.items() if REACHES_INDEX.match(name)}
        return {**kept, "HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    binaries = folder / "bin"
    binaries.mkdir()
    program = os.environ.get("LOKA_BIN") or shutil.which("loka")
    if program is None:
        sys.exit("name the program in LOKA_BIN, or give a --wheel")
    (binaries / "loka").symlink_to(pathlib.Path(program).resolve())
    (binaries / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (binaries / "python").chmod(0o755)
    own = {"PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python"), "LOKA_BIN": program}
    return {**os.environ, **own, "HOME": str(home)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--wheel", type=pathlib.Path, help="what the guide installs")
    parser.add_argument("--model", type=pathlib.Path, help="a training script of one's own, in the place of the guide's")
    arguments = parser.parse_args()
    files, commands = first_steps(GUIDE.read_text(encoding="utf-8"))
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{len(commands)} commands to the first plan, of {GUIDE.relative_to(ROOT)}")
    if len(commands) > MOST:
        sys.exit(f"that is more than {MOST}")
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        folder = pathlib.Path(folder)
        shell = shell_in(folder, arguments, files)
        total = 0.0
        for number, command in enumerate(commands, 1):
            if not arguments.wheel and INSTALLS.match(command):
                print(f"{number:2}        -  {command}    (left out: no --wheel)")
                continue
            code, said, seconds = shell.run(command)
            total += seconds
            print(f"{number:2} {seconds:7.1f}s  {command}", flush=True)
            last = next((line for line in reversed(said) if line.strip()), "")
            print(f"             {last[:110]}", flush=True)
            if code != 0:
                print("\n".join(said[-20:]))
                sys.exit(f"it ended with {code}: {command}")
        plans = sorted(path.name for path in (folder / "work").glob("*.plan.json"))
        if not plans:
            sys.exit("no plan came of it")
        print(f"   {total:7.1f}s  to {', '.join(plans)}")


def shell_in(folder, arguments, files):
    """A shell in a folder that has what the guide has one write, and the wheel that it has one fetch."""
    work = folder / "work"
    work.mkdir()
    for name, content in files:
        (work / name).write_text(content, encoding="utf-8")
    if arguments.model:
        (script, _), *_ = files
        shutil.copy(arguments.model, work / script)
    if arguments.wheel:
        shutil.copy(arguments.wheel, work)
    return Shell(work, environment_of(arguments.wheel, folder))


if __name__ == "__main__":
    main()
