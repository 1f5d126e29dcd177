"""Probes on a Ray cluster: takes traces, gives results that one machine would have found. And times kernels on every type
of GPU that a cluster has.

    results = loka.ray.probe("s3://models/ranker.trace.safetensors", "s3://models/probes/", accelerator="H200")
    times = loka.ray.bench("/shared/ranker.trace.safetensors", "/shared/times", ["H100", "H200"])
    plan = loka.plan(results, device="H100", latencies=[times])

A probe is split into parts (`loka probe --part`), a task each. A part is a file that is written once, under a name that
hashes everything its rows depend on: tasks that are run twice, because a worker or a node died, cost time and nothing else,
and a driver that is started again makes only what is missing. Ray runs the tasks; none of it computes here.

Traces and parts must be where every node reaches them: a shared folder, or a URL where `loka` knows object stores."""

import contextlib
import json
import math
import os
import pathlib
import time
from typing import Any, Dict, Iterator, List, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple, Union, overload

from ..program.binary import LokaError
from ..program.child import Path, run, scratch_file
from ..program.options import Names, mods_option, option, repeated
from ..program.progress import Line, is_seen
from ..program.results import Results

SITES_A_TASK: Dict[str, int] = {"cuda": 200, "cpu": 8}
"""Some 25 seconds: longer than a task's own cost, shorter than one minds losing."""

MOST_IN_FLIGHT = 1000
"""Tasks that Ray is told of at once, so that the driver stays small."""

MOST_PARTS = 5000

Engine = Literal["cpu", "cuda"]


class Made(NamedTuple):
    """What a task says of its part."""

    file: str
    is_new: bool
    seconds: float
    node: str


@overload
def probe(  # type: ignore[overload-overlap]  # a text is a sequence of texts, too
    traces: Path,
    out: Path,
    *,
    kernels: Names = ...,
    sites: Names = ...,
    mods: Names = ...,
    accelerator: Optional[str] = ...,
    engine: Optional[Engine] = ...,
    parts: Optional[int] = ...,
    min_draws: Optional[int] = ...,
    max_draws: Optional[int] = ...,
    confidence: Optional[float] = ...,
    seed: Optional[int] = ...,
    sampler: Optional[Literal["copula", "gaussian"]] = ...,
    rows: Optional[int] = ...,
    num_cpus: float = ...,
    num_gpus: Optional[float] = ...,
    resources: Optional[Mapping[str, float]] = ...,
    runtime_env: Optional[Mapping[str, Any]] = ...,
    retries: int = ...,
    address: Optional[str] = ...,
    progress: Optional[bool] = ...,
) -> Results: ...


@overload
def probe(
    traces: Sequence[Path],
    out: Path,
    *,
    kernels: Names = ...,
    sites: Names = ...,
    mods: Names = ...,
    accelerator: Optional[str] = ...,
    engine: Optional[Engine] = ...,
    parts: Optional[int] = ...,
    min_draws: Optional[int] = ...,
    max_draws: Optional[int] = ...,
    confidence: Optional[float] = ...,
    seed: Optional[int] = ...,
    sampler: Optional[Literal["copula", "gaussian"]] = ...,
    rows: Optional[int] = ...,
    num_cpus: float = ...,
    num_gpus: Optional[float] = ...,
    resources: Optional[Mapping[str, float]] = ...,
    runtime_env: Optional[Mapping[str, Any]] = ...,
    retries: int = ...,
    address: Optional[str] = ...,
    progress: Optional[bool] = ...,
) -> List[Results]: ...


def probe(
    traces: Union[Path, Sequence[Path]],
    out: Path,
    *,
    kernels: Names = (),
    sites: Names = (),
    mods: Names = (),
    accelerator: Optional[str] = None,
    engine: Optional[Engine] = None,
    parts: Optional[int] = None,
    min_draws: Optional[int] = None,
    max_draws: Optional[int] = None,
    confidence: Optional[float] = None,
    seed: Optional[int] = None,
    sampler: Optional[Literal["copula", "gaussian"]] = None,
    rows: Optional[int] = None,
    num_cpus: float = 1,
    num_gpus: Optional[float] = None,
    resources: Optional[Mapping[str, float]] = None,
    runtime_env: Optional[Mapping[str, Any]] = None,
    retries: int = 20,
    address: Optional[str] = None,
    progress: Optional[bool] = None,
) -> Union[Results, List[Results]]:
    """Measures the error of every kernel at every GEMM of the traces, on as many nodes as there are. One trace gives one
    `Results`, a list of them a list.

    `out`: a folder or a URL. Parts go to `out/NAME/`, the joined results to `out/NAME.results.parquet`, NAME being the
    trace's. `accelerator`: the type of GPU, as Ray names them ("H100", "H200", "B200"): a task takes one, by the CUDA
    engine, and refuses any other device. Without it the CPU engine emulates, a thread a task. `parts`: how many tasks a trace;
    by default some 25 seconds each. `num_cpus`, `num_gpus`, `resources`, `runtime_env`: of a task, as Ray takes them.
    `retries`: of a task whose worker or node dies; one that is refused by `loka` is not tried again. `address`: the
    cluster's, where `ray.init` was not called. The others are options of `loka probe`.

    Raises LokaError with the program's line. Parts that were made stay, and are not made again. Raises ImportError where
    there is no Ray."""
    ray = _imported()
    is_one = isinstance(traces, (str, os.PathLike))
    all_traces: List[Path] = [traces] if isinstance(traces, (str, os.PathLike)) else list(traces)
    engine = engine or ("cpu" if accelerator is None and not num_gpus else "cuda")
    if accelerator is not None and engine == "cpu":
        raise LokaError(f"the CPU engine needs no accelerator: engine='cpu', accelerator={accelerator!r}")
    if num_gpus is None:
        num_gpus = 1 if engine == "cuda" else 0
    options = [
        *option("engine", engine), *option("device", _device_of(accelerator)), *option("threads", 1 if engine == "cpu" else None),
        *repeated("sites", sites), *repeated("kernels", kernels), *mods_option(mods), *option("min-draws", min_draws),
        *option("max-draws", max_draws), *option("confidence", confidence), *option("seed", seed),
        *option("sampler", sampler), *option("rows", rows),
    ]  # fmt: skip
    names = [_name_of(trace) for trace in all_traces]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LokaError(f"two traces have the name {twice}: give them folders of their own")
    counts = [parts or _num_parts(trace, engine) for trace in all_traces]
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    task = _task(ray, accelerator, num_cpus, num_gpus, resources, runtime_env, retries)
    work = (
        (at, task.remote(["probe", os.fspath(trace), *_part_of(part, of, _join(out, name)), *options]))
        for at, (trace, name, of) in enumerate(zip(all_traces, names, counts))
        for part in range(1, of + 1)
    )
    made = _gathered(ray, work, ("probing", sum(counts)), is_seen() if progress is None else progress)
    results = [
        _merged([part.file for part in made[at]], _join(out, f"{name}.results.parquet")) for at, name in enumerate(names)
    ]
    return results[0] if is_one else results


def bench(
    shapes: Path,
    out: Path,
    accelerators: Sequence[str],
    *,
    kernels: Names = (),
    gemms: Names = (),
    samples: Optional[int] = None,
    libraries: bool = False,
    parts: int = 8,
    num_cpus: float = 1,
    num_gpus: float = 1,
    resources: Optional[Mapping[str, float]] = None,
    runtime_env: Optional[Mapping[str, Any]] = None,
    retries: int = 20,
    address: Optional[str] = None,
    progress: Optional[bool] = None,
) -> Union[str, pathlib.Path]:
    """Times every kernel at the shapes (a CSV of m,k,n, or a trace) on each of these types of GPU, as Ray names them
    ("H100", "H200"). Gives one kernel database of all of them, `out/fleet.kernels.parquet`, which `loka.plan(device=...)`
    takes.

    `parts`: tasks for each type. A task takes a GPU to itself, and refuses any other device than its type. Parts go to
    `out/parts`; what is there is not timed again. The others are options of `loka bench`, and of a task as in `probe`.

    Raises LokaError with the program's line, ImportError where there is no Ray."""
    ray = _imported()
    types = [accelerators] if isinstance(accelerators, str) else list(accelerators)
    if not types:
        raise LokaError("name the types of GPU to time: accelerators=['H200']")
    twice = next((name for name in types if types.count(name) > 1), None)
    if twice is not None:
        raise LokaError(f"{twice} is named twice")
    every = [gemms] if isinstance(gemms, str) else list(gemms)
    options = [
        "bench", *option("shapes", shapes), *repeated("kernels", kernels), *option("gemms", ",".join(every) or None),
        *option("samples", samples), *option("libraries", libraries),
    ]  # fmt: skip
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    tasks = [_task(ray, name, num_cpus, num_gpus, resources, runtime_env, retries) for name in types]
    place = _join(out, "parts")
    work = (
        (at, task.remote([*options, *option("device", _device_of(name)), *_part_of(part, parts, place)]))
        for at, (name, task) in enumerate(zip(types, tasks))
        for part in range(1, parts + 1)
    )
    made = _gathered(ray, work, ("timing", parts * len(types)), is_seen() if progress is None else progress)
    files = sorted(part.file for of_type in made.values() for part in of_type)
    database = _join(out, "fleet.kernels.parquet")
    run(["merge", *files, "--out", database])
    return database if _is_url(database) else pathlib.Path(database)


def _device_of(accelerator: Optional[str]) -> Optional[str]:
    """What the driver's name of such a device has in it: that of an A100-40G is NVIDIA A100-SXM4-40GB."""
    return None if accelerator is None else accelerator.partition("-")[0]


def _task(
    ray: Any,
    accelerator: Optional[str],
    num_cpus: float,
    num_gpus: Optional[float],
    resources: Optional[Mapping[str, float]],
    runtime_env: Optional[Mapping[str, Any]],
    retries: int,
) -> Any:
    asked: Dict[str, Any] = {"num_cpus": num_cpus, "max_retries": retries}
    if num_gpus:
        asked["num_gpus"] = num_gpus
    if accelerator is not None:
        asked["accelerator_type"] = accelerator
    if resources is not None:
        asked["resources"] = dict(resources)
    if runtime_env is not None:
        asked["runtime_env"] = dict(runtime_env)
    return ray.remote(**asked)(_make)


def _part_of(part: int, of: int, out: str) -> List[str]:
    return ["--part", f"{part}/{of}", "--out", out, "--progress"]


def _imported() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ImportError("loka.ray needs Ray: pip install 'loka[ray]'") from None
    return ray


def _make(arguments: List[Path]) -> Made:
    """One task: a part, made by the program of the node that it runs on."""
    ended = run(["--json", *arguments], dies_with_parent=True)
    told = json.loads(ended.stdout)
    node = _imported().get_runtime_context().get_node_id()
    return Made(told["file"], told["made"], told["seconds"] or 0.0, node)


def _gathered(ray: Any, work: Iterator[Tuple[int, Any]], of: Tuple[str, int], shows: bool) -> Dict[int, List[Made]]:
    """What all tasks say, by the place of what they are of: a trace, a type of GPU. Nothing is started after one was refused."""
    running: Dict[Any, int] = {}
    made: Dict[int, List[Made]] = {}
    refused: List[LokaError] = []
    line = _Parts(*of) if shows else None
    try:
        while True:
            while len(running) < MOST_IN_FLIGHT and not refused:
                following = next(work, None)
                if following is None:
                    break
                running[following[1]] = following[0]
            if not running:
                break
            done, _ = ray.wait(list(running), timeout=1.0)
            for task in done:
                at = running.pop(task)
                try:
                    made.setdefault(at, []).append(ray.get(task))
                except ray.exceptions.RayTaskError as error:
                    refused.append(_refusal(error))
                except ray.exceptions.RayError as error:
                    refused.append(LokaError(f"a part was given up: {_first_line(error)}"))
            if refused:
                # What waits for a place would be refused too; what was made stays.
                _cancel(ray, running)
                break
            if line is not None:
                line.show(made)
    except BaseException:
        _cancel(ray, running)
        raise
    finally:
        if line is not None:
            line.clear()
    if refused:
        raise refused[0]
    return made


def _cancel(ray: Any, tasks: Mapping[Any, int]) -> None:
    for task in tasks:
        ray.cancel(task, force=True)
    # Looked at, or Ray tells of each as of an error that nobody saw.
    for task in tasks:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(task, timeout=10)


def _refusal(error: Any) -> LokaError:
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, LokaError) else LokaError(f"a part failed: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    return lines[-1] if lines else type(error).__name__


class _Parts(Line):
    """How far it is, on one line that rewrites itself."""

    def __init__(self, doing: str, of: int) -> None:
        super().__init__()
        self.doing = doing
        self.of = of
        self.started = time.monotonic()

    def show(self, made: Mapping[int, Sequence[Made]]) -> None:
        parts = [part for of_trace in made.values() for part in of_trace]
        new = [part for part in parts if part.is_new]
        elapsed = time.monotonic() - self.started
        left = self.of - len(parts)
        rate = len(new) / elapsed if new else 0.0
        time_left = f" · {left / rate:.0f} s left" if rate and left else ""
        there = f", {len(parts) - len(new)} were there" if len(parts) > len(new) else ""
        nodes = len({part.node for part in parts})
        on = f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else ""
        self.write(f"{self.doing}{on}: {len(parts)} of {self.of} parts{there}{time_left}")


def _merged(files: List[str], out: str) -> Results:
    """The parts by name: a folder may have those of another run, too."""
    files = sorted(files)
    run(["merge", *files, "--out", out])
    if not _is_url(out):
        return Results(out)
    here = scratch_file(".results.parquet")
    run(["merge", *files, "--out", here])
    return Results(here)


def _num_parts(trace: Path, engine: Engine) -> int:
    told = json.loads(run(["--json", "info", trace]).stdout.partition("\n")[0])
    sites: int = told["num_sites"]
    return max(1, min(MOST_PARTS, math.ceil(sites / SITES_A_TASK[engine])))


def _is_url(path: Path) -> bool:
    return "://" in os.fspath(path)


def _join(folder: Path, name: str) -> str:
    return f"{os.fspath(folder).rstrip('/')}/{name}" if _is_url(folder) else str(pathlib.Path(folder).absolute() / name)


def _name_of(trace: Path) -> str:
    name = os.fspath(trace).rstrip("/").rsplit("/", 1)[-1]
    ending = ".trace.safetensors"
    return name[: -len(ending)] if name.endswith(ending) else name


__all__ = ["Made", "bench", "probe"]
