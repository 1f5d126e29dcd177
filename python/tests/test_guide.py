"""The first day of the guide, as it stands there: every file written, every command run in its order, every output compared."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from record_support import loka_binary

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guide/first-day.md"
# What scripts/test_wheel.sh does in an environment of its own.
INSTALLED = re.compile(r"^(python3 -m venv|pip install)")


def shape_of(line):
    """A line of output without what differs from machine to machine: figures, digests, and which of the kernels won."""
    line = re.sub(r"sha256:[0-9a-f]+", "sha256:#", line)
    line = re.sub(r"[a-z]+/[a-z0-9]+(-[a-z]+)?(\+fast)?(?= |$)", "KERNEL", line)
    line = re.sub(r"[\d.,]*\d(e-?\d+)?", "#", line)
    return re.sub(r"\s+", " ", line).strip()


class FirstDay(unittest.TestCase):
    @unittest.skipIf(loka_binary() is None, "the program is not built")
    def test_every_command_of_the_guide(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "bin").mkdir()
            (folder / "bin/loka").symlink_to(loka_binary())
            # A symlink of an environment's Python does not find its packages.
            (folder / "bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            (folder / "bin/python").chmod(0o755)
            environment = {
                **os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python"),
                "LOKA_BIN": loka_binary(),
            }  # fmt: skip
            work = folder / "work"
            work.mkdir()
            said, commands = "", 0
            for language, code in re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
                if language == "text":
                    self.compare(code, said)
                    continue
                if language in ("python", "json"):
                    head, _, rest = code.partition("\n")
                    text = rest if language == "json" else code
                    (work / head.removeprefix("# ")).write_text(text)
                    if language == "json":
                        json.loads(text)
                    continue
                self.assertEqual(language, "sh")
                said = ""
                for line in code.splitlines():
                    commands += 1
                    if INSTALLED.match(line):
                        continue
                    done = subprocess.run(["bash", "-c", line], cwd=work, env=environment, capture_output=True, text=True, timeout=600)
                    self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
                    said += done.stdout + done.stderr
            self.assertEqual(commands, 13, "the guide says how many commands it has")

    def compare(self, wanted, said):
        """Each line of `wanted` is in `said`, in its order; a line of three dots is whatever there is."""
        left = [shape_of(line) for line in said.splitlines()]
        for line in wanted.splitlines():
            if line.strip() in ("", "…"):
                continue
            shape = shape_of(line)
            self.assertIn(shape, left, f"{line}\nis not in\n{said}")
            left = left[left.index(shape) + 1 :]


if __name__ == "__main__":
    unittest.main()
