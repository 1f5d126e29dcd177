"""The table of `loka probe --engine cuda`, by a straightforward PyTorch script on the same GPU: what a careful
engineer would write in an afternoon. Every site x GEMM x recipe x draw: operands sampled from the trace (Cholesky or
factor, through the recorded quantiles), the product in FP64, casts, `torch._scaled_mm`, errors in FP64.

    python3 benches/pytorch_probe.py TRACE.trace.safetensors [--draws 50] [--compile]

Prints one JSON object a line: a row for each (site, gemm, recipe), then the seconds. With --compile the casts and the
metrics go through torch.compile; its time to compile is told apart.

Left out, in its favour: confidence intervals, the loss cost, the block's error after the tail, the held-out rows.
"""

import argparse
import json
import math
import struct
import sys
import time

import torch
from safetensors import safe_open
from torch.nn.functional import ScalingType, scaled_mm

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
RECIPES = ("tf32", "bf16", "fp8-tensorwise", "fp8-tensorwise+fast", "fp8-rowwise", "fp8-rowwise+fast", "fp8-blockwise")


def manifest_of(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(json.loads(file.read(length))["__metadata__"]["loka.trace"])


class Feature:
    """One recorded distribution: draws rows of it."""

    def __init__(self, tensors, name, probs):
        get = lambda part: tensors.get_tensor(f"{name}.{part}").double().cuda() if f"{name}.{part}" in tensors.keys() else None
        self.mean, cov, factor, diag, self.quantiles = map(get, ("mean", "cov", "cov_factor", "cov_diag", "quantiles"))
        self.noise = None
        if cov is not None:
            variance = cov.diagonal()
            # Rounding may have cost the covariance its last positive eigenvalue.
            jitter = 0.0
            while True:
                root, info = torch.linalg.cholesky_ex(cov + jitter * variance.mean() * torch.eye(len(cov), device="cuda", dtype=cov.dtype))
                if info == 0:
                    break
                jitter = max(jitter * 10, 1e-12)
        else:
            root, variance, self.noise = factor, (factor**2).sum(1) + diag, diag.clamp(min=0).sqrt().float()
        self.root, self.deviation = root.float(), variance.clamp(min=1e-30).sqrt().float()
        self.scores = torch.special.ndtri(torch.tensor(probs, dtype=torch.float64)).float().cuda()
        self.mean = self.mean.float()
        if self.quantiles is not None:
            self.quantiles = self.quantiles.float()
            self.slopes = (self.quantiles[:, 1:] - self.quantiles[:, :-1]) / (self.scores[1:] - self.scores[:-1])

    def draw(self, rows):
        deviations = torch.randn(rows, self.root.shape[1], device="cuda") @ self.root.t()
        if self.noise is not None:
            deviations += torch.randn_like(deviations) * self.noise
        if self.quantiles is None:
            return self.mean + deviations
        score = deviations / self.deviation
        segment = (torch.searchsorted(self.scores, score.contiguous()) - 1).clamp(0, len(self.scores) - 2)
        feature = torch.arange(score.shape[1], device="cuda").expand_as(score)
        return self.quantiles[feature, segment] + self.slopes[feature, segment] * (score - self.scores[segment])


def cast(values, dtype, largest, dims):
    scale = (values.abs().amax(dims, keepdim=True) / largest).clamp(min=1e-12)
    return (values / scale).clamp(-largest, largest).to(dtype), scale


def blocks(values, tall):
    rows, cols = values.shape
    return values.view(rows // 128, 128, cols // 128, 128) if tall else values.view(rows, cols // 128, 128)


def run(recipe, gemm, a, b):
    """a [rows, reduced], b [cols, reduced], both FP32."""
    if recipe == "tf32":
        return a @ b.t()
    if recipe == "bf16":
        return a.bfloat16() @ b.bfloat16().t()
    fast = recipe.endswith("+fast")
    if recipe.startswith("fp8-tensorwise"):
        left, largest = (E4M3, 448.0) if gemm == "fprop" else (E5M2, 57344.0)
        qa, sa = cast(a, left, largest, (0, 1))
        qb, sb = cast(b, E4M3, 448.0, (0, 1))
        return torch._scaled_mm(qa, qb.t(), sa.view(()), sb.view(()), out_dtype=torch.bfloat16, use_fast_accum=fast)
    if recipe.startswith("fp8-rowwise"):
        qa, sa = cast(a, E4M3, 448.0, 1)
        qb, sb = cast(b, E4M3, 448.0, 1)
        return torch._scaled_mm(qa, qb.t(), sa, sb.t(), out_dtype=torch.bfloat16, use_fast_accum=fast)
    qa, sa = cast(blocks(a, False), E4M3, 448.0, 2)
    tall = gemm != "wgrad"
    qb, sb = cast(blocks(b, tall), E4M3, 448.0, (1, 3) if tall else 2)
    sa = sa.squeeze(2).t().contiguous().t()
    if tall:
        padded = -(-(b.shape[1] // 128) // 4) * 4
        scales = torch.ones(b.shape[0] // 128, padded, device="cuda")
        scales[:, : b.shape[1] // 128] = sb.view(b.shape[0] // 128, -1)
        return scaled_mm(qa.view_as(a), qb.view_as(b).t(), sa, ScalingType.BlockWise1x128, scales.t(),
                         ScalingType.BlockWise128x128, output_dtype=torch.bfloat16)
    sb = sb.squeeze(2).t().contiguous().t()
    return scaled_mm(qa.view_as(a), qb.view_as(b).t(), sa, ScalingType.BlockWise1x128, sb, ScalingType.BlockWise1x128,
                     output_dtype=torch.bfloat16)


def metrics(out, reference):
    error = out.double() - reference
    magnitude = reference.abs()
    relative = error.abs() / magnitude
    kept = relative[magnitude > 0]
    return torch.stack([kept.mean(), (error**2).sum(), (reference**2).sum(), kept.float().flatten()[::7].median().double(),
                        error.abs().max()])


def refused(recipe, reduced, cols):
    multiple = 128 if recipe == "fp8-blockwise" else 16 if recipe.startswith("fp8") else 1
    return bool(reduced % multiple or cols % multiple)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    measure, multiply = metrics, run
    if arguments.compile:
        measure, multiply = torch.compile(metrics, dynamic=True), torch.compile(run, dynamic=True)
    torch.zeros(1, device="cuda")
    start, rows = time.perf_counter(), 0
    manifest = manifest_of(arguments.trace)
    tensors = safe_open(arguments.trace, framework="pt")
    for site in manifest["sites"]:
        name, m = site["id"], site["m"]
        x, dy = (Feature(tensors, f"{name}/{part}", manifest["quantile_probs"]) for part in ("input", "grad_output"))
        weight = tensors.get_tensor(f"{name}/weight").float().cuda()
        for gemm in ("fprop", "dgrad", "wgrad"):
            sums = {}
            for _ in range(arguments.draws):
                if gemm == "wgrad":
                    a, b = dy.draw(m).t().contiguous(), x.draw(m).t().contiguous()
                else:
                    a, b = (x.draw(m), weight) if gemm == "fprop" else (dy.draw(m), weight.t().contiguous())
                reference = a.double() @ b.double().t()
                for recipe in RECIPES:
                    if refused(recipe, a.shape[1], b.shape[0]):
                        continue
                    torch.backends.cuda.matmul.allow_tf32 = recipe == "tf32"
                    try:
                        found = measure(multiply(recipe, gemm, a, b), reference)
                    except (RuntimeError, ValueError) as error:
                        sums[recipe] = str(error).splitlines()[0]
                        continue
                    if not isinstance(sums.get(recipe), str):
                        sums.setdefault(recipe, []).append(found)
            torch.backends.cuda.matmul.allow_tf32 = False
            for recipe, found in sums.items():
                rows += 1
                if isinstance(found, str):
                    print(json.dumps({"site": name, "gemm": gemm, "recipe": recipe, "reason": found}))
                    continue
                mere, errors, squares, median, largest = torch.stack(found).cpu().T.tolist()
                rel_l2 = math.sqrt(sum(errors) / sum(squares))
                print(json.dumps({"site": name, "gemm": gemm, "recipe": recipe, "draws": len(mere),
                                  "mere": sorted(mere)[len(mere) // 2], "rel_l2": rel_l2,
                                  "sqnr_db": -20 * math.log10(rel_l2), "median_rel": sum(median) / len(median),
                                  "max_abs": max(largest)}))
    torch.cuda.synchronize()
    print(json.dumps({"seconds": round(time.perf_counter() - start, 2), "rows": rows, "draws": arguments.draws,
                      "torch": torch.__version__, "device": torch.cuda.get_device_name(),
                      "compiled": arguments.compile}), file=sys.stdout)


if __name__ == "__main__":
    main()
