"""What the tests of Triton kernels share: running one without a GPU."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

PYTHON = pathlib.Path(__file__).resolve().parents[1]

needs_triton = unittest.skipUnless(importlib.util.find_spec("triton"), "no Triton")


def interpreted(test: unittest.TestCase, script: str, printed: str) -> None:
    """Runs a script in Triton's interpreter, which has to print that. In a process of its own: the interpreter changes how
    Triton reads every kernel."""
    path = os.pathsep.join([str(PYTHON), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    test.assertEqual((ended.returncode, ended.stdout.strip()), (0, printed), ended.stderr)
