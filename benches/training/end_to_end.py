"""Takes a `loka` binary; gives, for four rankers, what every built-in policy's plan promises and what training gets.

The way of someone who has never seen LoKA: train with a Recorder, `loka probe --measure`, `loka plan`, `loka.apply`,
train on. For each model, parameter type (FP32 under BF16 autocast, BF16) and policy: saving promised and measured,
first-step gradients against BF16's, losses paired by seed. Every stage leaves a file in the folder of `--resume`, and
what is there is not done again, so that a study can be made in pieces (`--only`, `--stages`, `--minutes`).
"""

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import verdicts

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODELS = ("wukong-2.1G", "wukong-5.6G", "dcnv2", "dlrm")
MORE_MODELS = ("dcnv2-mods",)
PARAMETERS = ("fp32", "bf16")
POLICIES = ("balanced", "paper", "rel-l2", "loss-budget")
RUNTIMES = ("launched", "graph", "inference")
STAGES = ("record", "probe", "plan", "apply", "speed", "quality")


@dataclass
class Unit:
    """One command and the file that says it is done. `needs`: files without which it cannot run; `leads`: later units rest on it,
    others may run meanwhile; `beside`: nothing in it is timed, so that others of its kind may run on the same GPU."""

    name: str
    done: Path
    command: List[str]
    needs: List[Path] = field(default_factory=list)
    stdout: Optional[Path] = None
    finished: bool = False
    beside: bool = False
    leads: bool = True

    @property
    def failed(self) -> Path:
        """Where the reason of a failure goes."""
        return self.done.with_name(self.name.split("/")[-1] + ".failed")


class Study:
    """The units of a model with one type of parameters, in order."""

    def __init__(self, args: argparse.Namespace, model: str, parameters: str) -> None:
        self.args, self.model, self.parameters = args, model, parameters
        self.here = args.resume / f"{model}-{parameters}"
        scratch = args.scratch / f"{model}-{parameters}"
        self.trace, self.state = scratch / f"{model}-rank0.trace.safetensors", scratch / "state.pt"
        self.results = self.here / f"{model}.results.parquet"
        self.probed = self.here / "probe.jsonl"

    def plan(self, policy: str) -> Path:
        return self.here / f"{policy}.plan.json"

    def spec(self, stage: str, out: Path, **more: Any) -> List[str]:
        """The command of a stage that runs in Python."""
        args = self.args
        spec = {"stage": stage, "model": self.model, "parameters": self.parameters, "out": str(out),
                "small": args.small, "cpu": args.cpu, "compile": not args.eager, "lr": args.lr, "mode": args.mode, **more}  # fmt: skip
        return [sys.executable, str(HERE / "stages.py"), json.dumps(spec)]

    def units(self) -> Iterator[Unit]:
        """Lazily: which plans there are, and which of them are alike, is known only when they are made."""
        for stage in STAGES:
            if stage in self.args.stages:
                yield from getattr(self, f"_{stage}")()

    def _record(self) -> Iterator[Unit]:
        out = self.here / "record.json"
        command = self.spec("record", out, steps=self.args.record_steps, every=self.args.every, trace=str(self.trace),
                            state=str(self.state))  # fmt: skip
        # The trace is large and stays behind on another machine: it is made anew only where a probe still wants it.
        finished = out.exists() and (self.trace.exists() or not self._wants_probe())
        yield Unit(self._name("record"), out, command, finished=finished)

    def _wants_probe(self) -> bool:
        return "probe" in self.args.stages and not self._is_probed()

    def _is_probed(self) -> bool:
        planned = all(self.plan(policy).exists() for policy in self.args.policies)
        return self.probed.exists() and (self.results.exists() or planned)

    def _probe(self) -> Iterator[Unit]:
        args = self.args
        command = [args.loka, "probe", str(self.trace), "--out", str(self.results), "--json", "--engine",
                   "cpu" if args.cpu else args.engine, "--max-draws", str(args.max_draws)]  # fmt: skip
        command += ["--min-draws", str(min(16, args.max_draws))] + ([] if args.cpu else ["--measure"])
        for kernel in args.kernels:
            command += ["--kernels", kernel]
        for runtime in [] if args.cpu else args.runtimes:
            command += ["--runtime", runtime]
        command += args.probe_arg
        yield Unit(self._name("probe"), self.probed, command, [self.trace], self.probed, self._is_probed())

    def _plan(self) -> Iterator[Unit]:
        for policy in self.args.policies:
            out = self.plan(policy)
            command = [self.args.loka, "plan", str(self.results), "--out", str(out)]
            command += ["--policy", self.args.policy_of[policy], "--runtime", self._runtime(policy)]
            command += ["--name", f"{self.model}-{self.parameters}-{policy}", *self.args.plan_arg, *self._forced()]
            yield Unit(self._name(f"plan-{policy}"), out, command, [self.results], finished=out.exists())

    def _forced(self) -> List[str]:
        """Overrides for every GEMM that the forced kernel can run and that `loka.apply` can put it under."""
        out: List[str] = []
        if self.args.force and self.probed.exists() and self.trace.exists():
            told = subprocess.run([self.args.loka, "--json", "info", str(self.trace)], capture_output=True, text=True)
            entries = [entry["site"] for entry in map(json.loads, told.stdout.splitlines()) if "site" in entry]
            # A parameter that a function reads, or a class with a forward of its own.
            apart = {entry["id"] for entry in entries if "forward" in entry}
            for line in self.probed.read_text().splitlines():
                row = json.loads(line)
                fits = row.get("kernel") == self.args.force and row["supported"] and not row["mods"]
                if fits and row["site"] not in apart:
                    out += ["--override", f"{row['site']}:{row['gemm']}={self.args.force}"]
        return out

    def _plans(self) -> Dict[str, str]:
        return {policy: str(self.plan(policy)) for policy in self.args.policies if self.plan(policy).exists()}

    def _launched(self) -> Dict[str, str]:
        """Plans to train by: gradients and losses are looked at in one runtime."""
        return {policy: plan for policy, plan in self._plans().items() if self._runtime(policy) == "launched"}

    def _runtime(self, policy: str) -> str:
        return str(self.args.runtime_of[policy])

    def _apply(self) -> Iterator[Unit]:
        out, plans = self.here / "apply.json", self._launched()
        if not plans:
            return
        told = verdicts.loaded(out)
        finished = told is not None and set(plans) <= set(told["policies"])
        yield Unit(self._name("apply"), out, self.spec("apply", out, plans=plans, state=str(self.state)),
                   finished=finished, leads=False)  # fmt: skip

    def _alone(self) -> Iterator[str]:
        """Policies whose plans have something in FP8 and are not another's over again."""
        for policy in self._plans():
            plan = verdicts.loaded(self.plan(policy))
            if plan and verdicts.fp8_gemms(plan)[0] and verdicts.twin_of(self.here, policy) == policy:
                yield policy

    def _speed(self) -> Iterator[Unit]:
        for policy in self._alone():
            out = self.here / f"speed-{policy}.json"
            command = self.spec("speed", out, plans=self._plans(), arm=policy, rounds=self.args.rounds,
                                runtime=self._runtime(policy))  # fmt: skip
            yield Unit(self._name(f"speed-{policy}"), out, command, finished=out.exists(), leads=False)

    def _quality(self) -> Iterator[Unit]:
        plans = self._launched()
        controls = ["bf16", *(["bf16-again"] if self.args.control else [])]
        alone = [policy for policy in self._alone() if policy in plans]
        parts = [policy + verdicts.PART + part for policy in alone for part in self.args.parts]
        arms = [*controls, *alone, *parts]
        for arm in arms if len(arms) > len(controls) else []:
            out = self.here / f"quality-{arm}.json"
            told = verdicts.loaded(out)
            finished = told is not None and len(told["runs"]) >= self.args.seeds
            command = self.spec("quality", out, plans=plans, arm=arm, seeds=self.args.seeds,
                                steps=self.args.quality_steps, batch=self.args.quality_batch)  # fmt: skip
            yield Unit(self._name(f"quality-{arm}"), out, command, finished=finished, beside=True, leads=False)

    def _name(self, stage: str) -> str:
        return f"{self.model}-{self.parameters}/{stage}"


class Clock:
    """How long the whole may take; None: as long as it wants."""

    def __init__(self, minutes: Optional[float]) -> None:
        self.ends = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def is_over(self) -> bool:
        """Whether it is not worth starting anything any more: a process takes this long to start."""
        return self.left is not None and self.left < 15

    @property
    def left(self) -> Optional[float]:
        return None if self.ends is None else max(0.0, self.ends - time.monotonic())


class Devices:
    """The GPUs of this host. A unit has one to itself; those of which nothing is timed share one, `places` of them."""

    def __init__(self, names: List[Optional[str]], places: int) -> None:
        self.names, self.places = names, places
        self.used = [0] * len(names)
        self.waiting, self.changed = 0, threading.Condition()

    @contextlib.contextmanager
    def lend(self, beside: bool) -> Iterator[Optional[str]]:
        """A GPU's index for CUDA_VISIBLE_DEVICES; None: whatever this process sees."""
        with self.changed:
            # What needs a GPU to itself goes first: others wait for what it makes.
            self.waiting += not beside
            index = None
            while index is None:
                index = self._free(beside)
                if index is None:
                    self.changed.wait()
            self.waiting -= not beside
            size = 1 if beside else self.places
            self.used[index] += size
        try:
            yield self.names[index]
        finally:
            with self.changed:
                self.used[index] -= size
                self.changed.notify_all()

    def _free(self, beside: bool) -> Optional[int]:
        """The emptiest that has room."""
        index = min(range(len(self.names)), key=self.used.__getitem__)
        if beside:
            return index if self.used[index] < self.places and not self.waiting else None
        return index if self.used[index] == 0 else None


def run(unit: Unit, clock: Clock, devices: Devices) -> str:
    """Runs a unit on a device that is free; gives `done`, `failed` or `stopped`, when time is up."""
    with devices.lend(unit.beside) as device:
        return run_on(unit, clock, device)


def run_on(unit: Unit, clock: Clock, device: Optional[str]) -> str:
    """The same on this device."""
    log = unit.done.with_name("commands.log")
    if clock.is_over:
        return "stopped"
    unit.done.parent.mkdir(parents=True, exist_ok=True)
    unit.failed.unlink(missing_ok=True)
    missing = [path.name for path in unit.needs if not path.exists()]
    if missing:
        unit.failed.write_text(f"{missing[0]} is not there: an earlier stage has not run, or failed")
        return "failed"
    started = time.monotonic()
    partial = unit.stdout.with_suffix(".partial") if unit.stdout else None
    with log.open("ab") as commands:
        commands.write(("$ " + " ".join(unit.command) + "\n").encode())
    if not unit.leads:
        # Why it failed is its own last line, not a neighbour's.
        log = unit.done.with_suffix(".log")
    with log.open("ab") as said, (partial.open("wb") if partial else log.open("ab")) as out:
        begin = log.stat().st_size
        child = subprocess.Popen(unit.command, stdout=out, stderr=said, cwd=HERE, env=environment(device))
        try:
            code = child.wait(clock.left)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return "stopped"
    seconds = time.monotonic() - started
    if code:
        why = last_line(log, begin) or f"exit code {code}"
        unit.failed.write_text(why)
        print(f"{unit.name}: failed after {seconds:.0f} s: {why}", file=sys.stderr, flush=True)
        return "failed"
    if partial and unit.stdout:
        os.replace(partial, unit.stdout)
    print(f"{unit.name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return "done"


def last_line(log: Path, begin: int) -> str:
    """The last line that says something: an error is one line, Python's is the last."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    return (errors or lines or [""])[-1][:300]


def environment(device: Optional[str]) -> Dict[str, str]:
    """The children's: `loka` from this checkout where none is installed, one GPU where several are named."""
    paths = [str(HERE)] + ([] if importlib.util.find_spec("loka") else [str(ROOT / "python")])
    # Of this process's folder, which is not theirs.
    inherited = [str(Path(path).resolve()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    chosen = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *inherited]), "PYTHONUNBUFFERED": "1", **chosen}


def report(args: argparse.Namespace) -> Dict[str, Any]:
    """All that is known, raw samples included."""
    rows, raw, controls, parts = [], {}, [], []
    for model in args.only:
        for parameters in args.params:
            here = args.resume / f"{model}-{parameters}"
            found = (verdicts.row_of(args.resume, model, parameters, policy) for policy in args.policies)
            rows += [row for row in found if row is not None]
            raw[here.name] = {path.stem: verdicts.loaded(path) for path in sorted(here.glob("*.json"))
                              if not path.name.endswith(".plan.json")}  # fmt: skip
            for arm, loss in verdicts.parts_of(args.resume, model, parameters).items():
                parts.append({"model": model, "parameters": parameters, "arm": arm, "loss": loss})
            control = verdicts.control_of(args.resume, model, parameters)
            if control:
                controls.append({"model": model, "parameters": parameters, **control})
    settings = verdicts.loaded(args.resume / "settings.json")
    return {"loka": version(args.loka), "settings": settings, "commands": commands_of(args), "rows": rows,
            "controls": controls, "parts": parts, "raw": raw}  # fmt: skip


def commands_of(args: argparse.Namespace) -> List[str]:
    """Every command that ran, by names instead of this machine's folders."""
    logs = sorted(args.resume.glob("*/commands.log"))
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    names = {args.scratch: "SCRATCH", args.resume: "DIR", HERE: ".", sys.executable: "python3", args.loka: "loka"}
    commands = []
    for line in lines:
        if line.startswith("$ "):
            for path, name in names.items():
                line = line.replace(str(path), name)
            commands.append(line[2:])
    return commands


def version(loka: str) -> Optional[str]:
    """What the binary calls itself; None where there is none (a report can be made without)."""
    try:
        return subprocess.run([loka, "--version"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return None


def settings_of(args: argparse.Namespace) -> Dict[str, Any]:
    """What may not differ between the pieces of a study."""
    return {"small": args.small, "cpu": args.cpu, "eager": args.eager, "record_steps": args.record_steps,
            "every": args.every, "kernels": args.kernels, "force": args.force, "lr": args.lr,
            **({"mode": args.mode} if args.mode else {})}  # fmt: skip


def same_study(args: argparse.Namespace) -> None:
    """Notes the settings in the folder; stops where it holds another study."""
    path, settings = args.resume / "settings.json", settings_of(args)
    there = verdicts.loaded(path)
    if there is None:
        args.resume.mkdir(parents=True, exist_ok=True)
        # At once: another GPU's process may be reading it.
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(settings))
        os.replace(partial, path)
    elif there != settings:
        differing = next(name for name in settings if there.get(name) != settings[name])
        raise SystemExit(f"the folder holds a study with {differing} {there.get(differing)!r},"
                         f" not {settings[differing]!r}: {args.resume}")  # fmt: skip


def show(told: Dict[str, Any]) -> None:
    """The table, and what else a reader has to know."""
    print("\n".join(verdicts.table(told["rows"])))
    for row in told["rows"]:
        if row.get("account") and not row.get("same_choices_as"):
            print(f"{row['model']} {row['parameters']} {row['policy']}: {row['account']}")
    for part in told["parts"]:
        loss = part["loss"]
        print(f"{part['model']} {part['parameters']} {part['arm']}: loss {loss['mean']:+.4f} ± {loss['error']:.4f} %,"
              f" leaps in {len(loss['leapt'])} of {len(loss['seeds'])} seeds")  # fmt: skip
    for control in told["controls"]:
        print(f"chance alone, {control['model']} {control['parameters']}: {control['mean']:+.4f} ±"
              f" {control['error']:.4f} %")  # fmt: skip
    devices = sorted({stage["device"] for stages in told["raw"].values() for stage in stages.values()
                      if stage and "device" in stage})  # fmt: skip
    print(f"measured on: {', '.join(devices) or 'nothing yet'}; {told['loka']}")


def listed(value: str) -> List[str]:
    """Comma-separated words."""
    return [part for part in value.split(",") if part]


def label(policy: str) -> str:
    """What files and rows call a policy: its name, or its file's."""
    return Path(policy).name.split(".")[0] if policy.endswith(".json") else policy


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="What plans promise and what training gets: four rankers, every built-in policy.",
        epilog="On a GPU give --loka; on a CPU --small --cpu runs the same code in minutes (plans are then emulated).",
    )
    parser.add_argument("--resume", type=Path, required=True, metavar="DIR", help="where every stage leaves its files;"
                        " what is there already is not done again")  # fmt: skip
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="traces and trained states, gigabytes that only"
                        " record, probe and apply want (default: DIR/scratch)")  # fmt: skip
    parser.add_argument("--loka", default="loka", help="the binary")
    parser.add_argument("--only", type=listed, default=list(MODELS), help=f"of {','.join([*MODELS, *MORE_MODELS])}; {','.join(MODELS)} without")
    parser.add_argument("--params", type=listed, default=list(PARAMETERS), help="fp32 (under BF16 autocast), bf16")
    parser.add_argument("--policies", type=listed, default=list(POLICIES), help="names or files, as"
                        " `loka plan` takes them")  # fmt: skip
    parser.add_argument("--runtimes", type=listed, default=["launched"], help=f"of {','.join(RUNTIMES)}: a plan of every"
                        " policy for each; graph times the step as a CUDA graph, inference a frozen model")  # fmt: skip
    parser.add_argument("--stages", type=listed, default=list(STAGES), help=f"of {','.join(STAGES)}")
    parser.add_argument("--seeds", type=int, help="of the quality stage (3)")
    parser.add_argument("--quality-steps", type=int, help="of each seed (2000)")
    parser.add_argument("--quality-batch", type=int, help="another batch for quality than the model's own for it")
    parser.add_argument("--quality-processes", type=int, help="arms that train at once on the GPU (1): their losses"
                        " are the same, and nothing of them is timed")  # fmt: skip
    parser.add_argument("--devices", type=listed, help="GPUs of this host to use side by side, as 0,1,2,3; stages that"
                        " are timed have one to themselves (default: what CUDA shows first)")  # fmt: skip
    parser.add_argument("--record-steps", type=int, help="trained before the trace is taken (300)")
    parser.add_argument("--every", type=int, default=10, help="recorded steps: one of so many")
    parser.add_argument("--rounds", type=int, help="turns of both arms in the speed stage (15)")
    parser.add_argument("--lr", type=float, help="Adam's, instead of the model's own")
    parser.add_argument("--control", action="store_true", help="quality of BF16 from parameters moved by a thousandth"
                        " too: what chance alone does")  # fmt: skip
    parser.add_argument("--parts", type=listed, default=[], help="quality of these parts of each plan too, by the first letters of"
                        " their GEMMs, as f,d,w,fd: which of them costs what")  # fmt: skip
    parser.add_argument("--kernels", type=listed, default=["cublaslt/*"], help="globs for `loka probe`")
    parser.add_argument("--engine", default="auto", help="of `loka probe`")
    parser.add_argument("--max-draws", type=int, help="of `loka probe` (16)")
    parser.add_argument("--probe-arg", action="append", default=[], help="passed to `loka probe`, as"
                        " --probe-arg=--libraries; may be given again")  # fmt: skip
    parser.add_argument("--plan-arg", action="append", default=[], help="passed to `loka plan`, as"
                        " --plan-arg=--runtime --plan-arg=graph; may be given again")  # fmt: skip
    parser.add_argument("--force", metavar="KERNEL", help="override every GEMM that it can run")
    parser.add_argument("--small", action="store_true", help="the same structures at tens of features, batch 256")
    parser.add_argument("--cpu", action="store_true", help="no GPU: plans are emulated, times mean nothing")
    parser.add_argument("--eager", action="store_true", help="do not compile (the default with --cpu)")
    parser.add_argument("--compile", action="store_true", help="compile with --cpu too")
    parser.add_argument("--mode", choices=["reduce-overhead"], help="of torch.compile, in both arms: compiled parts are"
                        " replayed as CUDA graphs, for hosts that do not keep ahead of the GPU")  # fmt: skip
    parser.add_argument("--minutes", type=float, help="stop after so long; run again to go on")
    parser.add_argument("--out", type=Path, help="the report as JSON (default: DIR/end-to-end.json)")
    parser.add_argument("--report", action="store_true", help="run nothing, only tell what is there")
    return checked(parser, parser.parse_args())


def checked(parser: argparse.ArgumentParser, args: argparse.Namespace) -> argparse.Namespace:
    """Fills in what depends on --small, and refuses what is not known."""
    small = args.small
    defaults = {"seeds": (2, 3), "quality_steps": (60, 2000), "record_steps": (40, 300), "rounds": (3, 15),
                "max_draws": (4, 16), "quality_processes": (1, 1)}  # fmt: skip
    for name, (tiny, full) in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, tiny if small else full)
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name)}, it must be at least 1")
    for part in args.parts:
        if not part or set(part) - set("fdw"):
            parser.error(f"--parts: '{part}' is no part of a plan (letters of f, d, w)")
    for name, known in (("only", MODELS + MORE_MODELS), ("params", PARAMETERS), ("stages", STAGES), ("runtimes", RUNTIMES)):
        unknown = [value for value in getattr(args, name) if value not in known]
        if unknown:
            parser.error(f"--{name}: unknown '{unknown[0]}' (one of {', '.join(known)})")
    args.eager = args.eager or (args.cpu and not args.compile)
    args.policy_of, args.runtime_of = {}, {}
    for runtime in args.runtimes:
        for policy in args.policies:
            name = label(policy) if runtime == "launched" else f"{label(policy)}@{runtime}"
            args.policy_of[name] = policy if label(policy) == policy else str(Path(policy).resolve())
            args.runtime_of[name] = runtime
    args.policies = list(args.policy_of)
    args.resume = args.resume.resolve()
    args.scratch = (args.scratch or args.resume / "scratch").resolve()
    args.out = args.out or args.resume / "end-to-end.json"
    if os.sep in args.loka:
        args.loka = str(Path(args.loka).resolve())
    return args


def main() -> None:
    args = arguments()
    if args.report and not args.resume.is_dir():
        raise SystemExit(f"no study there: {args.resume}")
    outcomes = [] if args.report else studied(args)
    told = report(args)
    args.out.write_text(json.dumps(verdicts.strict(told)))
    show(told)
    if "stopped" in outcomes:
        print("time is up: run it again to go on", file=sys.stderr)
    if "failed" in outcomes:
        print(f"{outcomes.count('failed')} stages failed: see commands.log of each model", file=sys.stderr)
        raise SystemExit(1)


def studied(args: argparse.Namespace) -> List[str]:
    """Runs what is not there yet; gives how each unit ended."""
    same_study(args)
    clock, devices = Clock(args.minutes), Devices(args.devices or [None], args.quality_processes)
    studies = [Study(args, model, parameters) for model in args.only for parameters in args.params]
    # A study leads on one device at a time; what nothing rests on goes to whatever device is free.
    with ThreadPoolExecutor(len(devices.names) * args.quality_processes) as aside:
        with ThreadPoolExecutor(len(devices.names)) as leading:
            led = [leading.submit(lead, study, clock, devices, aside) for study in studies]
            return [outcome.result() for one in led for outcome in one.result()]


def lead(study: Study, clock: Clock, devices: Devices, aside: ThreadPoolExecutor) -> List["Future[str]"]:
    """Runs a study's units in order; gives what became, or will, of each."""
    outcomes: List["Future[str]"] = []
    for unit in study.units():
        if unit.finished:
            continue
        if not unit.leads:
            outcomes.append(aside.submit(run, unit, clock, devices))
            continue
        outcome: "Future[str]" = Future()
        outcome.set_result(run(unit, clock, devices))
        outcomes.append(outcome)
        if outcome.result() == "stopped":
            break
    return outcomes


if __name__ == "__main__":
    main()
