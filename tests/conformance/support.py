"""What the tests of every target share: a plan exported by the real `loka`, and a comparison name by name."""

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
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

import torch
from torch import nn

import toy
from plans import HIGH, LOSSY, Kernels, rotated, write_plan


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


class Target:
    """The tests that every target has; the rest of a test class is a unittest.TestCase.

    `target` is what `--to` is given and `file` the name of what it writes. `choices` are what it can say without loss;
    `flags` is for a target that always loses something, `skipped` says what is not done here and why. `shared` is what the second name of a shared linear is: as
    the first (`same`), a linear that no plan has (`unplanned`), or nothing that is asked for (`none`). `unlisted` is what
    a linear is that neither plan nor list of modules has: `high` precision, something else, or an error when the file is
    applied (`raises`). `scaled` is what becomes of a subclass with a forward of its own: as a plain linear (`same`), left
    alone (`high`), `refused` or `raises`; `nested`, the same of linears inside of linears.
    """

    target = ""
    file = "exported"
    choices: Sequence[Kernels] = ()
    flags: Sequence[str] = ()
    skipped = ""
    shared = "same"
    unlisted: Any = "high"
    scaled = "same"
    nested = "same"
    dtype = torch.float32
    maxDiff = None

    def became(self, path: pathlib.Path, model: nn.Module) -> Mapping[str, Any]:
        """What each linear of the model is when the framework has applied the file to it."""
        raise NotImplementedError

    def of(self, kernels: Kernels) -> Any:
        """What it should be."""
        raise NotImplementedError

    def lost(self, kernels: Kernels) -> Any:
        """What it should be where the target cannot say it: nothing coarser."""
        raise NotImplementedError

    @classmethod
    def setUpClass(cls) -> None:
        if cls.skipped:
            print(f"{cls.target}: skipped: {cls.skipped}", file=sys.stderr)

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_every_linear_becomes_what_the_plan_says(self) -> None:
        for by in range(len(self.choices)):
            chosen = rotated(toy.PLANNED, self.choices, by)
            path = self.export(chosen, *self.flags)
            with self.subTest(by=by):
                model = toy.toy(dtype=self.dtype)
                self.assert_became(self.became(path, model), self.wanted(model, chosen, self.of))

    def test_what_is_lost_is_told_and_becomes_no_coarser(self) -> None:
        for by in range(2):
            chosen = rotated(toy.PLANNED, LOSSY, by)
            self.refused(chosen)
            path = self.export(chosen, "--allow-loss")
            with self.subTest(by=by):
                model = toy.toy(dtype=self.dtype)
                self.assert_became(self.became(path, model), self.wanted(model, chosen, self.lost))

    def test_names_that_are_words_of_a_format(self) -> None:
        for by in range(2):
            model = toy.toy(toy.ODD, dtype=self.dtype)
            chosen = rotated(toy.ODD, [HIGH, self.choices[-1]], by)
            path = self.export(chosen, *self.flags, model=model)
            with self.subTest(by=by):
                self.assert_became(self.became(path, model), self.wanted(model, chosen, self.of))

    def test_without_a_list_of_the_modules(self) -> None:
        chosen = rotated(toy.PLANNED, self.choices)
        path = self.export(chosen, *self.flags, listed=False)
        model = toy.toy(dtype=self.dtype)
        if self.unlisted == "raises":
            self.assertRaises(ValueError, self.became, path, model)
            return
        wanted = self.wanted(model, chosen, self.of)
        if self.unlisted != "high":
            wanted.update({name: self.unlisted for name in toy.UNPLANNED})
        self.assert_became(self.became(path, model), wanted)

    def test_a_linear_of_another_class(self) -> None:
        chosen = {name: self.choices[-1] for name in ("plain", "scaled")}
        model = toy.toy(chosen, dtype=self.dtype)
        model.scaled = toy.ScaledLinear(toy.WIDTH, toy.WIDTH, dtype=self.dtype)
        if self.scaled == "refused":
            self.assertIn("scaled", self.refused(chosen, *self.flags, model=model))
            return
        path = self.export(chosen, *self.flags, model=model)
        if self.scaled == "raises":
            self.assertRaises(ValueError, self.became, path, model)
            return
        wanted = self.wanted(model, chosen, self.of)
        if self.scaled == "high":
            wanted["scaled"] = self.of(HIGH)
        self.assert_became(self.became(path, model), wanted)

    def test_a_linear_inside_of_a_linear(self) -> None:
        for by in range(3):
            chosen = rotated(toy.NESTED, [HIGH, self.choices[-1], self.choices[-1]], by)
            model = toy.toy(toy.NESTED, dtype=self.dtype)
            with self.subTest(by=by):
                if self.nested == "refused":
                    self.assertIn("inside", self.refused(chosen, *self.flags, model=model))
                    continue
                path = self.export(chosen, *self.flags, model=model)
                if self.nested == "raises":
                    self.assertRaises(ValueError, self.became, path, model)
                else:
                    self.assert_became(self.became(path, model), self.wanted(model, chosen, self.of))

    def wanted(self, model: nn.Module, chosen: Mapping[str, Kernels], of: Callable[[Kernels], Any]) -> Dict[str, Any]:
        """What a plan does not have stays in high precision."""
        wanted = {name: of(chosen.get(name, HIGH)) for name in model.linear_names}
        if toy.ALIAS in wanted:
            second = {"same": {toy.ALIAS: wanted[toy.SHARED]}, "unplanned": {}}.get(self.shared)
            if second is None:
                del wanted[toy.ALIAS]
            else:
                wanted.update(second)
        return wanted

    def export(
        self, chosen: Mapping[str, Kernels], *flags: str, model: Optional[nn.Module] = None, listed: bool = True
    ) -> pathlib.Path:
        """The file that `loka` writes for a plan of these kernels and the list of a model's modules, the toy's if none is
        given."""
        done = self._run(chosen, flags, model, listed)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / self.file

    def refused(self, chosen: Mapping[str, Kernels], *flags: str, model: Optional[nn.Module] = None) -> str:
        """Why `loka` does not export it. Nothing may have been written."""
        done = self._run(chosen, flags, model)
        self.assertNotEqual(done.returncode, 0, f"exported: {done.stdout}")
        self.assertFalse((self.folder / self.file).exists(), "refused, and yet written")
        self.assertNotIn("panicked", done.stderr)
        return done.stdout + done.stderr

    def _run(
        self, chosen: Mapping[str, Kernels], flags: Sequence[str], model: Optional[nn.Module], listed: bool = True
    ) -> subprocess.CompletedProcess:
        loka = loka_binary()
        self.assertIsNotNone(loka, "the program is not built: set LOKA_BIN")
        out, modules = self.folder / self.file, self.folder / "modules.tsv"
        out.unlink(missing_ok=True)
        modules.write_text(toy.listing(model or toy.toy()), encoding="utf-8")
        plan = write_plan(self.folder / "toy.plan.json", chosen)
        command = [loka, "export", str(plan), "--to", self.target, "--out", str(out), *flags]
        command += ["--modules", str(modules)] if listed else []
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
