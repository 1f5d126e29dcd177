"""What the tests of every target share: a plan exported by the real `loka`, and a comparison name by name."""

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

os.environ.setdefault("OMP_NUM_THREADS", "1")
# AMD Quark compiles a kernel when it is imported, with the environment's ninja; kept beside the packages.
os.environ["PATH"] = os.pathsep.join([f"{sys.prefix}/bin", os.environ.get("PATH", "")])
os.environ.setdefault("TORCH_EXTENSIONS_DIR", f"{sys.prefix}/extensions")
os.environ.setdefault("QUARK_LOG_LEVEL", "error")
# Nothing here may reach for a model hub.
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

sys.path.insert(0, str(HERE))

from torch import nn

import toy
from plans import HIGH, Kernels, write_plan


FRAMEWORKS = (
    "nvdlfw-inspect", "torchao", "nvidia-modelopt", "compressed-tensors", "transformers", "amd-quark",
    "ai-edge-model-explorer", "megatron-core",
)  # fmt: skip
"""The packages that plans are exported to, as requirements.txt names them."""


def loka_binary() -> Optional[str]:
    """The `loka` program: LOKA_BIN, or what cargo built last."""
    if "LOKA_BIN" in os.environ:
        return os.environ["LOKA_BIN"]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path.home() / ".cache/loka-target"))
    found = [target / kind / "loka" for kind in ("debug", "release")]
    return next((str(path) for path in found if path.exists()), None) or shutil.which("loka")


def pinned() -> Dict[str, str]:
    """Package -> version, as requirements.txt has them."""
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def installed(package: str) -> str:
    return importlib.metadata.version(package)


class Conformance(unittest.TestCase):
    """`target` is what `--to` is given, `file` the name of what it writes."""

    target = ""
    file = "exported"
    maxDiff = None

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def export(self, chosen: Mapping[str, Kernels], *flags: str, model: Optional[nn.Module] = None) -> pathlib.Path:
        """The file that `loka` writes for a plan of these kernels and a model, the toy if none is given."""
        done = self._run(chosen, flags, model)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / self.file

    def refused(self, chosen: Mapping[str, Kernels], *flags: str, model: Optional[nn.Module] = None) -> str:
        """Why `loka` does not export it. Nothing may have been written."""
        done = self._run(chosen, flags, model)
        self.assertNotEqual(done.returncode, 0, f"exported: {done.stdout}")
        self.assertFalse((self.folder / self.file).exists(), "refused, and yet written")
        self.assertNotIn("panicked", done.stderr)
        return done.stderr

    def _run(
        self, chosen: Mapping[str, Kernels], flags: Sequence[str], model: Optional[nn.Module]
    ) -> subprocess.CompletedProcess:
        loka = loka_binary()
        self.assertIsNotNone(loka, "the program is not built: set LOKA_BIN")
        out, modules = self.folder / self.file, self.folder / "modules.tsv"
        out.unlink(missing_ok=True)
        modules.write_text(toy.listing(model or toy.toy()), encoding="utf-8")
        plan = write_plan(self.folder / "toy.plan.json", chosen)
        command = [loka, "export", str(plan), "--to", self.target, "--out", str(out), "--modules", str(modules), *flags]
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60)

    def assert_became(self, became: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Every linear of the model, the ones that no plan has too."""
        self.assertEqual(sorted(became), sorted(wanted))
        wrong = [
            f"{name!r}: is {became[name]!r}, should be {wanted[name]!r}"
            for name in wanted
            if became[name] != wanted[name]
        ]
        self.assertEqual(wrong, [])


def expected(chosen: Mapping[str, Kernels], of: Callable[[Kernels], Any]) -> Dict[str, Any]:
    """What each linear of the toy must become: `of(kernels)` for a planned one; one that the plan lacks stays in high
    precision, and so does the second name of the shared one, which the plan lacks too."""
    return {name: of(chosen.get(name, HIGH)) for name in toy.all_names()}


def expected_as_one(chosen: Mapping[str, Kernels], of: Callable[[Kernels], Any]) -> Dict[str, Any]:
    """The same, of frameworks that change the module itself: the shared one is one under both its names."""
    wanted = expected(chosen, of)
    return {**wanted, toy.ALIAS: wanted[toy.SHARED]}
