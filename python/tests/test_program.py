"""The program from Python: found, started, listened to, ended; and, where it is built, from a trace to a figure."""

import contextlib
import importlib.util
import io
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import urllib.request
import warnings
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch

import loka
from loka import file_kind
from loka.program import binary, frames, opening
from loka.program.options import mods_option, option, repeated
from ranker import PLAN, Ranker
from record_support import ROOT, loka_binary

SAMPLE = ROOT / "sample-traces" / "wukong-clicks.trace.safetensors"
SMALL = {"engine": "cpu", "sites": "*fmb*", "kernels": "cublaslt/*", "min_draws": 2, "max_draws": 4}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def stand_in(self, body):
        """A program in LOKA_BIN that does what `body` says."""
        path = self.folder / "loka"
        path.write_text(f"#!{sys.executable}\nimport sys, time, os\n{textwrap.dedent(body)}", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        patched = mock.patch.dict(os.environ, {"LOKA_BIN": str(path)})
        patched.start()
        self.addCleanup(patched.stop)
        return path


class Found(Folder):
    def test_by_name_then_path_then_checkout(self):
        path = self.stand_in("")
        self.assertEqual(loka.find_binary(), path)
        with mock.patch.dict(os.environ, {"PATH": str(self.folder)}):
            del os.environ["LOKA_BIN"]
            self.assertEqual(loka.find_binary(), path)

    def test_of_a_checkout_release_comes_before_debug(self):
        target = self.folder / "target"
        for kind in ("debug", "release"):
            (target / kind).mkdir(parents=True)
            built = target / kind / "loka"
            built.write_text("")
            built.chmod(0o755)
            environment = {"PATH": "", "CARGO_TARGET_DIR": str(target)}
            with mock.patch.dict(os.environ, environment):
                os.environ.pop("LOKA_BIN", None)
                self.assertEqual(loka.find_binary(), built)

    def test_what_is_missing_is_said_with_what_to_do(self):
        with mock.patch.dict(os.environ, {"LOKA_BIN": str(self.folder / "none")}):
            with self.assertRaisesRegex(loka.LokaError, r"^LOKA_BIN names no program: .*none$"):
                loka.find_binary()
        with mock.patch.dict(os.environ, {"PATH": ""}), mock.patch.object(binary, "_CHECKOUT", self.folder):
            os.environ.pop("LOKA_BIN", None)
            with self.assertRaises(loka.LokaError) as caught:
                loka.probe(SAMPLE)
        self.assertIn("cargo build --release --package loka", str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))


class Started(Folder):
    def test_its_error_is_one_line(self):
        self.stand_in("sys.stderr.write('engine: cpu\\nloka: not a trace: x\\n'); sys.exit(2)")
        with self.assertRaises(loka.LokaError) as caught:
            loka.probe("x")
        self.assertEqual(str(caught.exception), "not a trace: x")

    def test_bad_use_and_a_death_are_one_line_too(self):
        self.stand_in("sys.stderr.write(\"error: unexpected argument '--engin'\\n\\nUsage: loka\\n\"); sys.exit(2)")
        with self.assertRaisesRegex(loka.LokaError, "^unexpected argument '--engin'$"):
            loka.probe("x")
        self.stand_in("os.kill(os.getpid(), 9)")
        with self.assertRaisesRegex(loka.LokaError, "^the loka program was ended by signal 9 and said nothing$"):
            loka.probe("x")

    def test_progress_and_warnings_are_told(self):
        self.stand_in(
            """
            for done in (0.25, 1.0):
                sys.stderr.write('{"progress":%s,"seconds":2.0}\\n' % done)
            sys.stderr.write('engine: cpu\\nwarning: top.0 cannot be used: no gradients\\n')
            """
        )
        told = []
        with self.assertWarnsRegex(UserWarning, "^top.0 cannot be used: no gradients$"):
            results = loka.probe("x", progress=told.append)
        self.assertEqual((told, results.notes), ([0.25, 1.0], ("engine: cpu",)))
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loka.probe("x", progress=True)
            loka.probe("x")
        self.assertEqual(shown.getvalue().count("probing 25 % · 6 s left"), 1)

    @unittest.skipIf(os.name == "nt", "POSIX signals")
    def test_keyboard_interrupt_ends_it(self):
        self.stand_in(
            """
            print(os.getpid(), file=open(os.path.join(os.path.dirname(__file__), "pid"), "w"), flush=True)
            time.sleep(60)
            """
        )
        pid = self.folder / "pid"

        def interrupt():
            while not (pid.exists() and pid.read_text().strip()):
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

        # What a shell starts in the background ignores Ctrl+C, and hands that on.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        threading.Thread(target=interrupt, daemon=True).start()
        with self.assertRaises(KeyboardInterrupt):
            loka.probe("x")
        with self.assertRaises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)

    def test_arguments(self):
        self.assertEqual(option("seed", 0) + option("rows", None) + option("measure", True), ["--seed=0", "--measure"])
        self.assertEqual(repeated("sites", "a*") + repeated("sites", ["-b", "c"]), ["--sites=a*", "--sites=-b", "--sites=c"])
        self.assertEqual(mods_option(("no_bias", "hard_swish")) + mods_option(()), ["--mods=no_bias,hard_swish"])

    def test_a_workbench_that_does_not_start_says_why(self):
        self.stand_in("sys.stderr.write('loka: no such file or folder: x\\n'); sys.exit(2)")
        for window in (True, False):
            with self.assertRaisesRegex(loka.LokaError, "^no such file or folder: x$"):
                loka.open("x", window=window)
        with self.assertRaisesRegex(loka.LokaError, "one trace or one folder, 2 were given"):
            loka.open("x", "y", window=False)

    def test_a_window_stays_until_it_is_closed(self):
        self.stand_in("time.sleep(60)")
        with mock.patch.object(opening, "STARTS_S", 0.1), loka.open("x", window=True) as workbench:
            self.assertTrue(workbench.is_open)
            self.assertIsNone(workbench._repr_html_())
        self.assertEqual(repr(workbench), "Workbench(in a window, closed)")


class WithoutDataFrames(unittest.TestCase):
    def test_one_line_says_what_to_install(self):
        with mock.patch.object(frames.importlib.util, "find_spec", return_value=None):
            for load in (loka.load_results, loka.load_trace):
                with self.assertRaises(ImportError) as caught:
                    load("x")
                self.assertRegex(str(caught.exception), r"^loka\.load_\w+ gives a DataFrame, and polars or pandas is not")


class Names(unittest.TestCase):
    def test_dir_is_the_public_names(self):
        names = set(dir(loka)) - {"__doc__", "__version__"}
        self.assertEqual(names, set(loka._HOME))
        for name in names:
            self.assertIsNotNone(getattr(loka, name))
        self.assertEqual(set(dir(loka)) - {"__doc__", "__version__"}, names, "also with everything loaded")

    def test_type_checkers_see_the_same_names(self):
        source = (ROOT / "python" / "loka" / "__init__.py").read_text(encoding="utf-8")
        seen = {line.split(" as ")[1].strip() for line in source.splitlines() if line.startswith("    from .")}
        self.assertEqual(seen, set(loka._HOME))

    def test_help_lists_them_and_goes_without_pytorch(self):
        self.assertEqual(set(loka.__all__), set(loka._HOME) - {"open"}, "a star import leaves Python's open alone")
        code = "import sys; sys.modules['torch'] = None; import pydoc, loka; print(pydoc.render_doc(loka))"
        without = "import importlib.util as u; find = u.find_spec; u.find_spec = lambda name: None if name == 'torch' else find(name)"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        for prefix, listed in (("", ("probe(", "apply(")), (f"{without}; ", ("probe(",))):
            source = prefix + (code if prefix else code.replace("sys.modules['torch'] = None; ", ""))
            ended = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            plain = re.sub(".\b", "", ended.stdout)
            for name in listed:
                self.assertIn(name, plain)

    def test_nothing_is_imported_before_it_is_asked_for(self):
        code = "import sys, loka; loka.find_binary, loka.probe; sys.exit('torch' in sys.modules)"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        self.assertEqual(subprocess.run([sys.executable, "-c", code], env=environment).returncode, 0)


class Shown(unittest.TestCase):
    def test_reprs_are_short_and_tables_are_html(self):
        model = Ranker()
        plan = loka.load_plan(PLAN)
        resolved = loka.apply(model, plan, emulate=True)
        changes = loka.mods.apply(Ranker(), ["no_bias"])
        for shown in (plan, resolved, changes):
            self.assertLess(len(repr(shown)), 400)
            self.assertNotIn("\n", repr(shown))
            self.assertIn("<td", shown._repr_html_())
        self.assertIn("linears run FP8 in at least one GEMM", repr(resolved))
        lines = str(plan).splitlines()
        self.assertIn("in high precision: ", lines[-1])
        self.assertEqual(len([line for line in lines if line.split("  ")[0] in {site.site for site in plan.sites}]), len(plan.sites))
        for row in resolved.rows:
            self.assertIn(row.site, resolved._repr_html_())

    def test_names_in_tables_are_text(self):
        changes = loka.mods.apply(Ranker(), ["no_bias"])
        changes.rows[0] = changes.rows[0]._replace(module="<script>alert(1)</script>")
        self.assertNotIn("<script>", changes._repr_html_())


@unittest.skipIf(loka_binary() is None, "the program is not built")
class Program(Folder):
    """With the real one."""

    def setUp(self):
        super().setUp()
        patched = mock.patch.dict(os.environ, {"LOKA_BIN": loka_binary() or ""})
        patched.start()
        self.addCleanup(patched.stop)

    def test_from_a_trace_to_a_plan_and_its_figures(self):
        told = []
        results = loka.probe(SAMPLE, self.folder / "r.results.parquet", progress=told.append, **SMALL)
        self.assertTrue(results.path.is_file())
        self.assertTrue(told and 0 <= min(told) and max(told) <= 1 and told == sorted(told), told)
        self.assertIn("cublaslt/fp8-rowwise", str(results), "printed, what became of each kernel")
        self.assertTrue(str(results).endswith(f"next: plan = loka.plan({str(results.path)!r})"))
        self.assertIn("median rel L2", results._repr_html_())
        self.assertNotIn("\n", repr(results))
        plan = loka.plan(results, self.folder / "p.plan.json", policy={"name": "mine", "metric": "rel_l2", "max_error": 0.1})
        self.assertEqual((plan.policy["name"], plan.runtime), ("mine", "launched"))
        named = {site.site: site for site in plan.sites}
        site = next(name for name in named if "fmb" in name)
        by_hand = loka.plan(results, overrides={f"{site}:fprop": "cublaslt/fp8-rowwise"}, name="by hand")
        self.assertEqual(by_hand.policy["name"], "balanced", "where none is named")
        chosen = next(choice.fprop for choice in by_hand.sites if choice.site == site)
        self.assertEqual((chosen.kernel, chosen.source), ("cublaslt/fp8-rowwise", "override"))
        for figure, has in (
            (results.heatmap(plan=by_hand), "<svg"), (results.quadrant("rel-l2"), "<svg"), (results.frontier(), "<p>No "), (results.graph(), "<svg"),
        ):  # fmt: skip
            html = figure._repr_html_()
            self.assertTrue(html.startswith('<div class="loka-figure">') and has in html, figure)
            self.assertLess(len(repr(figure)), 200)
        figure.save(self.folder / "f.html")
        self.assertTrue((self.folder / "f.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>"))

    def test_what_is_no_trace_and_no_plan(self):
        with self.assertRaisesRegex(TypeError, "expected a trace's path or its recorder, not a int"):
            loka.probe(3)  # type: ignore[arg-type]
        with self.assertRaisesRegex(loka.PlanError, "expected a plan, or the path of its file, not a Results"):
            loka.apply(Ranker(), loka.Results("r.results.parquet"))

    def test_another_kind_of_file_is_named(self):
        checkpoint, text = self.folder / "model.pt", self.folder / "notes.txt"
        torch.save({"weight": torch.zeros(2)}, checkpoint)
        text.write_text("a line\n")
        for path, kind in (
            (checkpoint, "a ZIP archive, as PyTorch checkpoints are"), (text, "a text file"), (SAMPLE, "a LoKA trace"),
        ):  # fmt: skip
            self.assertEqual(file_kind.kind_of(path), kind)
            with self.assertRaises(loka.PlanError) as caught:
                loka.load_plan(path)
            self.assertEqual(str(caught.exception), f"not a plan: it is {kind}: {path}")
            if importlib.util.find_spec("polars") is not None:
                with self.assertRaises(loka.LokaError) as refused:
                    loka.load_results(path)
                self.assertEqual(str(refused.exception), f"not a Parquet file: it is {kind}: {path}")
            # In the words of the program, which sees the same bytes.
            with self.assertRaises(loka.LokaError) as caught:
                loka.plan(path)
            self.assertEqual(str(caught.exception), f"not a Parquet file: it is {kind}: {path}")

    def test_errors_are_the_programs(self):
        with self.assertRaises(loka.LokaError) as caught:
            loka.probe(self.folder / "none.trace.safetensors")
        self.assertIn("none.trace.safetensors", str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        with self.assertRaisesRegex(loka.LokaError, "no site matches nothing"):
            loka.probe(SAMPLE, sites="nothing")

    @unittest.skipIf(importlib.util.find_spec("polars") is None, "polars is not installed")
    def test_data_frames(self):
        trace = loka.load_trace(SAMPLE)
        self.assertTrue({"site", "m", "k", "n", "tail", "quantiles", "problem"} <= set(trace.columns), trace.columns)
        results = loka.probe(SAMPLE, **SMALL)
        frame = results.frame("polars")
        self.assertEqual(set(frame["site"]), {site for site in trace["site"] if "fmb" in site})
        self.assertTrue({"gemm", "kernel", "mere_hi", "rel_l2", "loss_cost"} <= set(frame.columns))

    def test_the_workbench_is_served(self):
        try:
            workbench = loka.open(SAMPLE, window=False)
        except loka.LokaError as error:
            self.skipTest(f"this build does not serve: {error}")
        with workbench, urllib.request.urlopen(workbench.link, timeout=10) as answer:
            self.assertEqual(answer.status, 200)
            self.assertIn("Open the workbench", workbench._repr_html_())
        self.assertFalse(workbench.is_open)


if __name__ == "__main__":
    unittest.main()
