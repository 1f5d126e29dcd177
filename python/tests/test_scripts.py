"""What the scripts say where they can't do their work: another system than Linux, another machine than x86_64; and what two
checkouts make of one target folder."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MADE = {
    "build_wheel.sh": "a wheel",
    "build_web.sh": "the page",
    "build_sdist.sh": "a source distribution",
    "test_wheel_elsewhere.sh": "a bare system",
}


class Scripts(unittest.TestCase):
    def run_as(self, system, machine, script, *arguments):
        """With a `uname` of another machine, and nothing that could build anything."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "uname").write_text(f'#!/bin/sh\n[ "$1" = -m ] && echo {machine} || echo {system}\n')
            (folder / "cargo").write_text("#!/bin/sh\nexit 3\n")
            for name in ("uname", "cargo"):
                (folder / name).chmod(0o755)
            environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "CARGO_TARGET_DIR": str(folder / "target")}
            command = ["bash", str(ROOT / "scripts" / script), *arguments]
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    def test_another_system_is_told_before_anything_is_done(self):
        for script, made in MADE.items():
            with self.subTest(script):
                ended = self.run_as("Darwin", "arm64", script, "x")
                self.assertEqual((ended.returncode, ended.stdout), (2, ""))
                (line,) = ended.stderr.splitlines()
                self.assertTrue(line.startswith(f"{made} is made on Linux alone"), line)
                self.assertIn("this is Darwin. `cargo build --release --package loka` makes the program", line)

    def test_another_machine_is_told_that_nobody_tried(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = self.run_as("Linux", "aarch64", "build_sdist.sh", "--without-page", folder)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertTrue(ended.stderr.startswith("this is aarch64: a source distribution was made and tried on x86_64 alone\n"))

    def test_checkouts_that_share_a_target_folder_do_not_take_each_other_s_crates(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            sources = {}
            for name in ("one", "two"):
                (folder / name / "scripts").mkdir(parents=True)
                (folder / name / "scripts" / "setup.sh").write_bytes((ROOT / "scripts" / "setup.sh").read_bytes())
                sources[name] = folder / name / "lib.rs"
                sources[name].touch()
                (folder / name / "notes.md").touch()

            def is_compiled_again(name):
                for file in (folder / name).glob("*.*"):
                    os.utime(file, (1000, 1000))
                environment = {**os.environ, "CARGO_TARGET_DIR": str(folder / "target")}
                command = ["bash", "-euc", f"source '{folder}/{name}/scripts/setup.sh'"]
                subprocess.run(command, env=environment, check=True, timeout=60)
                self.assertEqual((folder / name / "notes.md").stat().st_mtime, 1000)
                return sources[name].stat().st_mtime > 1000

            found = [(name, is_compiled_again(name)) for name in ("one", "one", "two", "two", "one")]
            self.assertEqual(found, [("one", False), ("one", False), ("two", True), ("two", False), ("one", True)])


if __name__ == "__main__":
    unittest.main()
