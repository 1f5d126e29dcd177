"""scripts/fleet: what torchrun, SLURM and Kubernetes run, as far as one machine can."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PYTHON = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PYTHON))

from record_support import loka_binary

FLEET = PYTHON.parent / "scripts" / "fleet"
SAMPLE = PYTHON.parent / "sample-traces" / "wukong-clicks.trace.safetensors"
OPTIONS = ["--engine", "cpu", "--max-draws", "2", "--kernels", "cublaslt/bf16", "--kernels", "cublaslt/fp8-rowwise"]


@unittest.skipUnless(loka_binary(), "no loka program: cargo build --package loka")
class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "loka").symlink_to(pathlib.Path(loka_binary()).resolve())
        self.environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "TRACE": str(SAMPLE),
            "OUT": str(self.folder / "parts"),
        }

    def run_in(self, *command, **variables):
        environment = {**self.environment, **{name: str(value) for name, value in variables.items()}}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    def merged(self):
        return self.run_in("loka", "merge", str(self.folder / "parts"), "--out", str(self.folder / "r.results.parquet"))

    def test_an_array_of_slurm(self):
        """By the variables that SLURM sets; SLURM itself is not here."""
        array = str(FLEET / "array.sbatch")
        for task in (3, 1):
            ended = self.run_in(array, *OPTIONS, SLURM_ARRAY_TASK_ID=task, SLURM_ARRAY_TASK_COUNT=3)
            self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("part 2 of 3 is missing", self.merged().stderr)
        # --array=2 alone: one task, of three parts.
        ended = self.run_in(array, *OPTIONS, SLURM_ARRAY_TASK_ID=2, SLURM_ARRAY_TASK_COUNT=1, PARTS=3)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertTrue(self.merged().stdout.startswith("3 parts, 14 sites, "))

    def test_an_indexed_job_of_kubernetes(self):
        """The command of the manifest, with each index; no cluster is here."""
        text = (FLEET / "indexed-job.yaml").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"completions: (\d+)", text), re.findall(r'name: PARTS\n\s+value: "(\d+)"', text))
        (command,) = re.findall(r"- (exec loka probe .*) --engine cuda\n", text)
        shell = re.findall(r'command: \["(.*)", "(.*)"\]', text)[0]
        for index in range(3):
            ended = self.run_in(*shell, " ".join([command, *OPTIONS]), JOB_COMPLETION_INDEX=index, PARTS=3)
            self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertTrue(self.merged().stdout.startswith("3 parts, 14 sites, "))

    def test_torchrun(self):
        torchrun = pathlib.Path(sys.executable).with_name("torchrun")
        if not torchrun.is_file():
            self.skipTest("no torchrun beside this Python")
        ended = self.run_in(
            str(torchrun), "--nproc-per-node", "2", "--no-python", str(FLEET / "torchrun.sh"), *OPTIONS
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertTrue(self.merged().stdout.startswith("2 parts, 14 sites, "))


if __name__ == "__main__":
    unittest.main()
