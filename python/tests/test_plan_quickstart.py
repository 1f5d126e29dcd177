"""The quick start of the README, run as it stands there: recorded, probed, planned and applied."""

import contextlib
import functools
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn

import loka
from ranker import PLAN, Ranker, batch
from record_support import loka_binary

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks():
    """(language, code) of each block of the section."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("## Quick start in PyTorch\n")[1].split("\n## ")[0]
    return re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)


class QuickStart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def run_with(self, shell):
        """The text that it printed."""
        model = Ranker()
        steps = range(101)
        data = [(batch(64, seed=step), (batch(64, seed=step)[:, 0] > 0).float()) for step in steps]
        space = {
            "model": model, "data": data, "criterion": nn.BCEWithLogitsLoss(),
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        }
        printed = io.StringIO()
        emulated = functools.partial(loka.apply, emulate=True)
        with contextlib.redirect_stdout(printed), mock.patch.object(loka, "apply", emulated):
            for language, code in blocks():
                if language == "python":
                    exec(code, space)
                else:
                    shell(code)
        self.assertTrue(torch.isfinite(model(data[0][0])).all())
        return printed.getvalue()

    def test_it_has_fewer_than_15_lines(self):
        lines = [line for _, code in blocks() for line in code.splitlines() if line.strip()]
        self.assertLess(len(lines), 15)
        self.assertEqual([language for language, _ in blocks()], ["sh", "python", "sh", "python"])

    def test_with_a_plan_that_has_fp8(self):
        def shell(code):
            if "plan" in code:
                traces = list(pathlib.Path("traces").glob("*.trace.safetensors"))
                self.assertEqual(len(traces), 1)
                shutil.copy(PLAN, "model.plan.json")

        self.assertIn("3 of 4 linears run FP8 in at least one GEMM", self.run_with(shell))

    @unittest.skipIf(loka_binary() is None, "the program is not built")
    def test_with_the_program_from_recording_to_plan(self):
        def shell(code):
            for line in code.splitlines():
                words = shlex.split(line)
                if words[0] == "./run":
                    command = [loka_binary(), *words[1:]]
                    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
                    self.assertEqual(done.returncode, 0, done.stderr)

        printed = self.run_with(shell)
        for site in ("bottom.0", "bottom.3", "top.0", "top.2"):
            self.assertRegex(printed, rf"(?m)^{re.escape(site)} ")
        self.assertRegex(printed, r"\d of 4 linears run FP8")


if __name__ == "__main__":
    unittest.main()
