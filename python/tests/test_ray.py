"""`loka.ray` on real Ray: two nodes of one machine, the CPU engine, a real trace. Nodes and drivers are killed on the way.

Ray has an environment of its own (scripts/setup.sh, `need_ray`); where there is none these tests are skipped, but the one
of what is said then."""

import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from unittest import mock

PYTHON = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PYTHON))
# Of the nodes' workers, too.
os.environ["PYTHONPATH"] = str(PYTHON)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import loka
import loka.ray

SAMPLE = PYTHON.parent / "sample-traces" / "wukong-clicks.trace.safetensors"
KERNELS = ["cublaslt/bf16", "cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise"]
OPTIONS = {"kernels": KERNELS, "max_draws": 4, "seed": 3}
HAS_RAY = importlib.util.find_spec("ray") is not None


def rows_of(path):
    """A digest of the file with its time of day made one and the same."""
    data = pathlib.Path(path).read_bytes()
    start = data.index(b'"time":"') + len(b'"time":"')
    when = data[start : data.index(b'"', start)]
    return hashlib.sha256(data.replace(when, b"0" * len(when))).hexdigest()


class Said(unittest.TestCase):
    def test_without_ray_it_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {"ray": None}):
            with self.assertRaises(ImportError) as caught:
                loka.ray.probe("x", "y")
        self.assertEqual(str(caught.exception), "loka.ray needs Ray: pip install 'loka[ray]'")

    def test_names(self):
        name = loka.ray._name_of
        self.assertEqual(name("s3://a/b.trace.safetensors"), "b")
        self.assertEqual(name(pathlib.Path("/a/run/")), "run")
        self.assertEqual(loka.ray._join("s3://a/b/", "c"), "s3://a/b/c")
        self.assertEqual(loka.ray._join("/a/b", "c"), "/a/b/c")
        self.assertEqual([loka.ray._device_of(name) for name in ("H200", "A100-40G", None)], ["H200", "A100", None])


@unittest.skipUnless(HAS_RAY, "no Ray here: scripts/setup.sh's need_ray makes an environment that has it")
class OnRay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import ray
        from ray.cluster_utils import Cluster

        cls.ray = ray
        # The head runs nothing: it is where the driver and the cluster's own state are.
        cls.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        cls.nodes = [cls.add_node() for _ in range(2)]
        ray.init(address=cls.cluster.address, log_to_driver=False)
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        one = cls.path / "one.results.parquet"
        loka.probe(SAMPLE, one, engine="cpu", progress=False, **OPTIONS)
        cls.expected = rows_of(one)

    @classmethod
    def tearDownClass(cls):
        cls.ray.shutdown()
        cls.cluster.shutdown()
        cls.folder.cleanup()

    @classmethod
    def add_node(cls):
        return cls.cluster.add_node(num_cpus=2, resources={"here": 2})

    def files(self, out):
        """The parts: a worker that was killed at its last instant leaves a draft, which is no part."""
        return {path.name: path.stat().st_mtime_ns for path in (out / "wukong-clicks").glob("part-*")}

    def test_a_probe_on_two_nodes_is_that_of_one_machine(self):
        out = self.path / "plain"
        results = loka.ray.probe(SAMPLE, out, parts=5, resources={"here": 1}, **OPTIONS)
        self.assertEqual(results.path, out / "wukong-clicks.results.parquet")
        self.assertEqual(rows_of(results.path), self.expected)
        before = self.files(out)
        self.assertEqual(len(before), 5)
        # Another run's parts beside them: both go on.
        other = loka.ray.probe([SAMPLE], out, parts=2, kernels=KERNELS, max_draws=4, seed=4)
        self.assertNotEqual(rows_of(other[0].path), self.expected)
        again = loka.ray.probe(SAMPLE, out, parts=5, resources={"here": 1}, **OPTIONS)
        self.assertEqual(rows_of(again.path), self.expected)
        self.assertEqual({name: self.files(out)[name] for name in before}, before, "nothing is made again")

    def test_a_node_that_is_killed_costs_nothing(self):
        """At random instants, from before the first part to after the last; LOKA_RAY_KILLS says how many."""
        instants = random.Random(1)
        for round_ in range(int(os.environ.get("LOKA_RAY_KILLS", "2"))):
            out = self.path / f"killed-{round_}"
            wait = instants.uniform(0, 8)
            # Not asked: a node that is preempted says nothing.
            killer = threading.Timer(wait, self.cluster.remove_node, [self.nodes.pop()], {"allow_graceful": False})
            killer.start()
            results = loka.ray.probe(SAMPLE, out, parts=14, resources={"here": 1}, **OPTIONS)
            killer.join()
            self.nodes.append(self.add_node())
            self.assertEqual(rows_of(results.path), self.expected, f"killed after {wait:.2f} s")
            self.assertEqual(len(self.files(out)), 14)

    def test_a_driver_that_is_started_again_makes_what_lacks(self):
        out = self.path / "driver"
        code = textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(PYTHON)!r})
            import loka.ray
            loka.ray.probe({str(SAMPLE)!r}, {str(out)!r}, parts=14, address={self.cluster.address!r}, **{OPTIONS!r})
        """)
        driver = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(list(out.glob("wukong-clicks/part-*"))) < 3:
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(driver.poll())
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        before = self.files(out)
        self.assertLess(len(before), 14, "it was killed before its end")
        results = loka.ray.probe(SAMPLE, out, parts=14, **OPTIONS)
        self.assertEqual(rows_of(results.path), self.expected)
        after = {name: at for name, at in self.files(out).items() if name in before}
        self.assertEqual({name: at for name, at in before.items() if name in after}, after, "what was there is not made again")

    def test_what_loka_refuses_is_its_own_line_at_once(self):
        out = self.path / "refused"
        started = time.monotonic()
        with self.assertRaises(loka.LokaError) as caught:
            loka.ray.probe(SAMPLE, out, parts=3, sites="nothing*", kernels=KERNELS)
        self.assertEqual(str(caught.exception), f"no site matches nothing*: {SAMPLE}")
        with self.assertRaises(loka.LokaError):
            loka.ray.probe([SAMPLE, SAMPLE], out)
        with self.assertRaises(loka.LokaError):
            loka.ray.probe(SAMPLE, out, engine="cpu", accelerator="H200")
        self.assertLess(time.monotonic() - started, 30)

    def test_kernels_are_timed_on_each_type_of_gpu(self):
        """Which commands run where: a stand-in for the program writes its arguments down, since no GPU is here."""
        for name in ("H100", "H200"):
            self.cluster.add_node(num_cpus=1, num_gpus=1, resources={f"accelerator_type:{name}": 1, name: 1})
        log = self.path / "commands"
        program = self.path / "loka-stand-in"
        program.write_text(textwrap.dedent(f"""\
            #!{sys.executable}
            import json, sys
            with open({str(log)!r}, "a") as file:
                file.write(json.dumps(sys.argv[1:]) + "\\n")
            if "bench" in sys.argv:
                part = sys.argv[sys.argv.index("--part") + 1].replace("/", "-")
                device = next(each for each in sys.argv if each.startswith("--device="))
                print(json.dumps({{"file": f"/parts/{{device[9:]}}-{{part}}", "made": True, "seconds": 0.1}}))
        """))
        program.chmod(0o755)
        with mock.patch.dict(os.environ, {"LOKA_BIN": str(program)}):
            found = loka.ray.bench("shapes.csv", self.path / "times", ["H100", "H200"], parts=2, gemms=["fprop", "wgrad"],
                                   kernels="cublaslt/*", runtime_env={"env_vars": {"LOKA_BIN": str(program)}})
        self.assertEqual(found, self.path / "times" / "fleet.kernels.parquet")
        *parts, merge = [json.loads(line) for line in log.read_text().splitlines()]
        place = str(self.path / "times" / "parts")
        common = ["--json", "bench", "--shapes=shapes.csv", "--kernels=cublaslt/*", "--gemms=fprop,wgrad"]
        expected = [
            [*common, f"--device={device}", "--part", f"{part}/2", "--out", place, "--progress"]
            for device in ("H100", "H200")
            for part in (1, 2)
        ]
        self.assertEqual(sorted(parts), expected)
        files = ["/parts/H100-1-2", "/parts/H100-2-2", "/parts/H200-1-2", "/parts/H200-2-2"]
        self.assertEqual(merge, ["merge", *files, "--out", str(found)])

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "a GPU is here")
    def test_a_node_without_its_gpu_says_so(self):
        self.cluster.add_node(num_cpus=1, num_gpus=1, resources={"accelerator_type:L4": 1})
        with self.assertRaises(loka.LokaError) as caught:
            loka.ray.bench(SAMPLE, self.path / "none", "L4", parts=1)
        self.assertIn("libcuda", str(caught.exception))
        with self.assertRaises(loka.LokaError):
            loka.ray.bench(SAMPLE, self.path / "none", [])
        with self.assertRaises(loka.LokaError):
            loka.ray.bench(SAMPLE, self.path / "none", ["L4", "L4"])

    def test_progress_is_told(self):
        out = self.path / "told"
        code = textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(PYTHON)!r})
            import loka.ray
            results = loka.ray.probe({str(SAMPLE)!r}, {str(out)!r}, parts=3, address={self.cluster.address!r}, progress=True,
                                     **{OPTIONS!r})
            print(results.path)
        """)
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=True)
        self.assertIn("3 of 3 parts", ended.stderr)
        self.assertEqual(ended.stdout.strip(), str(out / "wukong-clicks.results.parquet"))

    def test_no_program_outlives_its_worker(self):
        """A worker that is killed takes its `loka` along: a GPU that is given to another task is free."""
        out = self.path / "orphan"
        code = textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(PYTHON)!r})
            from loka.program.child import run
            run(["probe", {str(SAMPLE)!r}, "--part", "1/1", "--out", {str(out)!r}, "--engine", "cpu", "--min-draws", "5000",
                 "--progress"], lambda done, seconds: print(done, flush=True), dies_with_parent=True)
        """)
        worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        worker.stdout.readline()
        child, = pathlib.Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        # Readable once the program has ended. What /proc shows of one that is ending is neither alive nor a zombie for a while.
        program = os.pidfd_open(int(child))
        self.addCleanup(os.close, program)
        worker.kill()
        worker.wait()
        worker.stdout.close()
        ended, _, _ = select.select([program], [], [], 60)
        self.assertTrue(ended)


class Driver:
    """`python -m loka.ray.driver`, as LoKA starts it."""

    def __init__(self, address, **hello):
        environment = {**os.environ, "RAY_ADDRESS": address}
        self.process = subprocess.Popen([sys.executable, "-m", "loka.ray.driver"], stdin=subprocess.PIPE, env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        program = str(loka.find_binary())
        self.say({"do": "hello", "protocol": 1, "version": loka.__version__, "program": program, "accelerator": None, **hello})
        self.answer = self.hear()

    def say(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def probe(self, out, of, *options, parts=None):
        arguments = ["probe", str(SAMPLE), "--engine=cpu", "--threads=1", *options]
        self.say({"do": "probe", "arguments": arguments, "out": str(out), "parts": parts or list(range(1, of + 1)), "of": of})

    def until_ended(self):
        """The parts, and the end."""
        parts = []
        while True:
            line = self.hear()
            if line["is"] == "ended":
                return parts, line
            parts.append(line)

    def close(self):
        """How long it takes to end."""
        started = time.monotonic()
        self.process.stdin.close()
        self.process.wait(timeout=30)
        return time.monotonic() - started

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        with contextlib.suppress(OSError):
            self.process.stdin.close()


def programs(out):
    """Processes that make parts there."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(out).encode() in words and b"--part" in words:
            found.append(path)
    return found


def end(program):
    program.kill()
    program.wait()
    program.stderr.close()


def eventually(so, seconds=30):
    deadline = time.monotonic() + seconds
    while not so():
        if time.monotonic() > deadline:
            raise AssertionError("it never happens")
        time.sleep(0.05)


LONG = ("--min-draws=20000", "--kernels=cublaslt/*")
SHORT = ("--max-draws=4", "--seed=3", *(f"--kernels={kernel}" for kernel in KERNELS))


@unittest.skipUnless(HAS_RAY, "no Ray here: scripts/setup.sh's need_ray makes an environment that has it")
class AsAnEngine(unittest.TestCase):
    """The engine "cluster": the driver that LoKA starts, and `loka probe --engine cluster`. Sessions of `loka serve` on such a
    driver are in tests/tests/serve/cluster.rs."""

    @classmethod
    def setUpClass(cls):
        from ray.cluster_utils import Cluster

        # Nodes have no program of their own: they find the one that starts the driver.
        with mock.patch.dict(os.environ):
            os.environ.pop("LOKA_BIN", None)
            cls.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        cls.nodes = [cls.add_node(num_cpus=2) for _ in range(2)]
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.one = cls.path / "one.results.parquet"
        loka.probe(SAMPLE, cls.one, engine="cpu", progress=False, **OPTIONS)
        cls.expected = rows_of(cls.one)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.shutdown()
        cls.folder.cleanup()

    @classmethod
    def add_node(cls, **has):
        with mock.patch.dict(os.environ):
            os.environ.pop("LOKA_BIN", None)
            return cls.cluster.add_node(**has)

    def driver(self, address=None, **hello):
        driver = Driver(address or self.cluster.address, **hello)
        self.addCleanup(driver.kill)
        return driver

    def trace(self, name):
        """A trace of this test's own: parts lie beside it."""
        folder = self.path / name
        folder.mkdir()
        trace = folder / SAMPLE.name
        trace.write_bytes(SAMPLE.read_bytes())
        return trace

    def loka(self, trace, *options):
        """`loka probe --engine cluster`, started."""
        command = [str(loka.find_binary()), "probe", str(trace), "--out", str(trace.parent / "r.results.parquet"), "--engine",
                   "cluster", "--python", sys.executable, *(options or SHORT)]
        environment = {**os.environ, "RAY_ADDRESS": self.cluster.address}
        pipe = subprocess.PIPE
        program = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=pipe, text=True)
        self.addCleanup(end, program)
        return program

    def test_the_driver_says_what_there_is_and_makes_parts(self):
        driver, out = self.driver(), self.path / "parts"
        self.assertEqual((driver.answer["is"], driver.answer["engine"]), ("cluster", "cpu"))
        self.assertEqual((driver.answer["nodes"], driver.answer["cpus"], driver.answer["gpus"]), (3, 4, {}))
        self.assertIn("emulated", driver.answer["device"])
        driver.probe(out, 5, *SHORT, parts=[2, 4])
        parts, ended = driver.until_ended()
        self.assertEqual(sorted(part["part"] for part in parts), [2, 4])
        self.assertEqual(ended, {"is": "ended", "cancelled": False, "reason": None})
        driver.probe(out, 5, *SHORT)
        parts, _ = driver.until_ended()
        self.assertEqual({part["part"] for part in parts if not part["made"]}, {2, 4}, "what was there is not made again")
        self.assertEqual(sorted(out.glob("part-*")), sorted(pathlib.Path(part["file"]) for part in parts))
        self.assertLess(driver.close(), 15)

    def test_a_pause_keeps_what_was_not_begun(self):
        driver, out = self.driver(), self.path / "paused"
        driver.probe(out, 14, *SHORT)
        self.assertEqual(driver.hear()["is"], "part")
        driver.say({"do": "pause"})
        eventually(lambda: not programs(out))
        # One may have waited for a place.
        time.sleep(3)
        resting = len(list(out.glob("part-*")))
        self.assertLess(resting, 14)
        time.sleep(3)
        self.assertEqual((len(list(out.glob("part-*"))), programs(out)), (resting, []))
        driver.say({"do": "resume"})
        parts, ended = driver.until_ended()
        self.assertEqual((len(parts), ended["reason"]), (13, None))
        driver.close()

    def test_cancelling_ends_what_runs(self):
        driver, out = self.driver(), self.path / "cancelled"
        driver.probe(out, 14, *LONG)
        eventually(lambda: programs(out))
        driver.say({"do": "cancel"})
        self.assertEqual(driver.until_ended(), ([], {"is": "ended", "cancelled": True, "reason": None}))
        eventually(lambda: not programs(out))
        # The driver goes on.
        driver.probe(self.path / "after", 2, *SHORT)
        self.assertEqual(len(driver.until_ended()[0]), 2)
        driver.close()

    def test_nothing_outlives_whoever_started_it(self):
        for name, ends in (("closed", lambda driver: driver.close()), ("killed", lambda driver: driver.kill())):
            driver, out = self.driver(), self.path / name
            driver.probe(out, 14, *LONG)
            eventually(lambda: programs(out))
            ends(driver)
            eventually(lambda: not programs(out))
        trace = self.trace("program")
        program = self.loka(trace, *LONG)
        parts = trace.parent / "wukong-clicks.parts"
        eventually(lambda: programs(parts))
        program.kill()
        program.wait()
        eventually(lambda: not programs(parts))

    def test_what_is_refused_is_a_line_and_its_node(self):
        driver = self.driver()
        driver.probe(self.path / "refused", 3, "--sites=nothing*")
        parts, ended = driver.until_ended()
        self.assertEqual(parts, [])
        self.assertRegex(ended["reason"], rf"^part \d of 3: no site matches nothing\*: {SAMPLE} \(on .+\)$")
        driver.close()
        answer = self.driver(version="9.9.9").answer
        self.assertRegex(answer["reason"], rf"^another version of LoKA \({loka.__version__}, not 9\.9\.9\): .+ \(on .+\)$")
        answer = self.driver(accelerator="H200").answer
        self.assertRegex(answer["reason"], "^no node of the cluster has a GPU of type H200; there are: ")
        answer = self.driver(protocol=2).answer
        self.assertEqual(answer["reason"], "the driver speaks protocol 1, not 2")

    def test_tasks_take_the_gpus_that_there_are_most_of(self):
        """A stand-in for the program says what it was given, since no GPU is here."""
        nodes = [self.add_node(num_cpus=1, num_gpus=number, resources={f"accelerator_type:{name}": 1})
                 for name, number in (("L4", 1), ("H200", 2))]  # fmt: skip
        try:
            # The program of this machine has no driver: CPUs are taken, and the reason is told.
            answer = self.driver().answer
            self.assertEqual((answer["engine"], answer["accelerator"], answer["gpus"]), ("cpu", None, {"L4": 1, "H200": 2}))
            if not os.path.exists("/dev/nvidia0"):
                self.assertIn("libcuda", answer["note"])
                self.assertIn("libcuda", self.driver(accelerator="h200").answer["reason"])
            log, program = self.path / "given", self.path / "loka-with-gpus"
            program.write_text(textwrap.dedent(f"""\
                #!{sys.executable}
                import json, os, sys
                if sys.argv[1:] == ["--version"]:
                    print("loka {loka.__version__} (commit not known)")
                elif sys.argv[1:] == ["--json", "kernels"]:
                    print(json.dumps({{"engine": {{"name": "cuda", "device": "NVIDIA H200", "driver": "1", "problem": None}}}}))
                else:
                    with open({str(log)!r}, "a") as file:
                        file.write(os.environ["CUDA_VISIBLE_DEVICES"] + " " + " ".join(sys.argv[1:]) + "\\n")
                    print(json.dumps({{"file": "/parts/" + sys.argv[-3], "made": True, "seconds": 0.1}}))
            """))
            program.chmod(0o755)
            driver = self.driver(program=str(program))
            answer = driver.answer
            self.assertEqual((answer["engine"], answer["accelerator"], answer["note"]), ("cuda", "H200", None))
            self.assertEqual((answer["device"], answer["driver"]), ("NVIDIA H200", "1"))
            driver.say({"do": "probe", "arguments": ["probe", "a"], "out": "/parts", "parts": [1, 2, 3], "of": 3})
            self.assertEqual(len(driver.until_ended()[0]), 3)
            lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
            expected = [f"--json probe a --part {part}/3 --out /parts --progress" for part in (1, 2, 3)]
            self.assertEqual(sorted(given for _, given in lines), expected)
            self.assertLessEqual({device for device, _ in lines}, {"0", "1"}, "a GPU each")
            self.assertEqual(self.driver(program=str(program), accelerator="l4").answer["accelerator"], "L4")
        finally:
            for node in nodes:
                self.cluster.remove_node(node)

    def test_no_cluster_is_ever_started(self):
        started = time.monotonic()
        answer = self.driver("127.0.0.1:1").answer
        self.assertRegex(answer["reason"], r"^no Ray cluster answers at 127\.0\.0\.1:1 \(RAY_ADDRESS; .+\): start one \(ray start --head\)")
        self.assertRegex(self.driver("local").answer["reason"], "^RAY_ADDRESS=local is no cluster: start one")
        self.assertLess(time.monotonic() - started, 20)

    def test_the_program_writes_what_one_machine_writes(self):
        trace = self.trace("whole")
        program = self.loka(trace)
        _, said = program.communicate(timeout=120)
        self.assertEqual(program.returncode, 0, said)
        self.assertEqual(rows_of(trace.parent / "r.results.parquet"), self.expected)
        parts = trace.parent / "wukong-clicks.parts"
        before = {path.name: path.stat().st_mtime_ns for path in parts.glob("part-*")}
        self.assertEqual(len(before), 14)
        # Once more from Python: nothing is made again.
        with mock.patch.dict(os.environ, {"RAY_ADDRESS": self.cluster.address}):
            results = loka.probe(trace, trace.parent / "again.results.parquet", engine="cluster", progress=False, **OPTIONS)
        self.assertEqual(rows_of(results.path), self.expected)
        self.assertEqual({path.name: path.stat().st_mtime_ns for path in parts.glob("part-*")}, before)

    def test_a_node_that_dies_costs_nothing(self):
        trace = self.trace("node")
        program = self.loka(trace)
        eventually(lambda: len(list((trace.parent / "wukong-clicks.parts").glob("part-*"))) >= 2)
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)
        self.nodes.append(self.add_node(num_cpus=2))
        self.assertEqual(program.wait(timeout=120), 0)
        self.assertEqual(rows_of(trace.parent / "r.results.parquet"), self.expected)

    def test_a_folder_that_cannot_be_is_one_line(self):
        trace = self.trace("file")
        (trace.parent / "wukong-clicks.parts").write_text("")
        program = self.loka(trace)
        _, said = program.communicate(timeout=120)
        self.assertEqual(program.returncode, 2)
        self.assertEqual(said.splitlines()[-1], f"loka: a file, not a folder: {trace.parent}/wukong-clicks.parts")
        self.assertFalse((trace.parent / "r.results.parquet").exists())


if __name__ == "__main__":
    unittest.main()
