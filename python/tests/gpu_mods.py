"""Proves BlockNorm's fused eager path on a GPU: forward and backward against FP64, beside plain operations for time.
Needs PyTorch with Triton and an NVIDIA GPU.

    python3 python/tests/gpu_mods.py

Prints a line a check and last `N passed, N failed`. Exit 1 when one fails, 2 without a GPU.
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

SHAPES = (((6144, 2048), 256), ((1000, 300), 300), ((33, 3, 512), 256), ((4097, 32), 32), ((17, 12288), 12288),
          ((1, 256), 256))
EPS = 2.0**-23


def reference(torch, x, grad, block, hard_swish):
    """Result and gradient in FP64, and the blocks whose gradient counts: not those with a value at a corner of hard
    swish, where the slope jumps and FP32 may take the other side."""
    x = x.detach().double().requires_grad_()
    groups = x.reshape(-1, block)
    y = (groups / (groups.square().mean(1, keepdim=True) + EPS).sqrt()).reshape(x.shape)
    away = ((y.detach().reshape(-1, block).abs() - 3).abs() > 1e-5).all(1)
    y = torch.nn.functional.hardswish(y) if hard_swish else y
    y.backward(grad.double())
    return y.detach(), x.grad, away


def cases(torch):
    """(name, x, block): every type and shape, small and huge rows, a view that is not contiguous."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape, block in SHAPES:
            x = torch.randn(shape, device="cuda", generator=generator)
            yield f"{dtype} {shape} block {block}", (x * 3).to(dtype), block
    x = torch.randn(512, 512, device="cuda", generator=generator)
    yield "rows from 1e-8 to 1e8", x * torch.logspace(-8, 8, 512, device="cuda")[:, None], 256
    yield "a transposed view", x.t(), 256


def check(torch, mods, name, x, block, hard_swish):
    """The worst error of result and gradient, in units of the type's rounding."""
    function = mods.block_norm_hard_swish if hard_swish else mods.block_norm
    given = x.detach().requires_grad_()
    generator = torch.Generator(device="cuda").manual_seed(1)
    grad = torch.randn(x.shape, device="cuda", generator=generator).to(x.dtype)
    result = function(given, block)
    fused = "BlockNormFunction" in type(result.grad_fn).__name__
    result.backward(grad)
    expected, expected_grad, away = reference(torch, x, grad, block, hard_swish)
    unit = torch.finfo(x.dtype).eps
    # A gradient is a difference of terms as large as its block's largest: its error is measured by that.
    scale = expected_grad.reshape(-1, block).abs().amax(1, keepdim=True) + torch.finfo(x.dtype).tiny
    # Hard swish near -3 is a difference too.
    floor = 0.1 if hard_swish else 1e-4
    out_error = ((result.double() - expected).abs() / (expected.abs() + floor)).max().item() / unit
    grad_errors = (given.grad.double() - expected_grad).reshape(-1, block).abs() / scale
    grad_error = grad_errors[away].max().item() / unit
    same_kind = result.dtype == x.dtype and result.shape == x.shape
    # 16-bit types are rounded once at the end; FP32 shows the few roundings inside, and what differences make of them.
    limit = 64 if x.dtype == torch.float32 else 2
    return fused and same_kind and max(out_error, grad_error) < limit, out_error, grad_error


def median_us(torch, function, rounds=30):
    for _ in range(5):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def speed(torch, mods):
    """Forward and backward of norm and activation at (6144, 2048) in BF16, in microseconds."""
    x = torch.randn(6144, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    grad = torch.randn_like(x)
    layer_norm, block_norm = torch.nn.LayerNorm(2048).cuda().bfloat16(), mods.BlockNorm(2048)
    hard_swish, swish = mods.HardSwish(), torch.nn.SiLU()
    ways = {
        "LayerNorm, SiLU": lambda: swish(layer_norm(x)),
        "BlockNorm, HardSwish": lambda: hard_swish(block_norm(x)),
        "block_norm_hard_swish": lambda: mods.block_norm_hard_swish(x, 256),
    }
    for name, way in ways.items():
        forward = median_us(torch, way)
        both = median_us(torch, lambda: torch.autograd.grad(way(), x, grad))
        print(f"     {name}: forward {forward:.0f} us, with the gradient of the input {both:.0f} us")


def huge(torch, mods):
    """The last block past 2^31 elements: offsets that wrap would write elsewhere."""
    x = torch.full((2**23 + 16, 256), 2.0, device="cuda", dtype=torch.bfloat16)
    x[-1] = torch.arange(256, device="cuda")
    result = mods.block_norm(x, 256)[-1].double()
    expected = torch.arange(256, device="cuda").double()
    expected = expected / (expected.square().mean() + EPS).sqrt()
    return ((result - expected).abs() / (expected + 1e-3)).max().item() < 2**-7


def compiled(torch, mods):
    """A compiled model has no kernel of ours in it, and gives the same."""
    module = torch.nn.Sequential(mods.BlockNorm(512), mods.HardSwish())
    x = torch.randn(64, 512, device="cuda")
    found = torch.compile(module, fullgraph=True)(x)
    return torch.allclose(found, module(x), rtol=1e-5, atol=1e-6)


def main():
    import torch

    if not torch.cuda.is_available():
        print("skipped: no CUDA device")
        return 2
    from loka import mods

    passed = failed = 0

    def tell(good, text):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        print("ok  " if good else "FAIL", text, flush=True)

    for name, x, block in cases(torch):
        for hard_swish in (False, True):
            good, out_error, grad_error = check(torch, mods, name, x, block, hard_swish)
            kind = "block norm, hard swish" if hard_swish else "block norm"
            tell(good, f"{kind}: {name}: {out_error:.2f} and {grad_error:.2f} roundings")
    tell(huge(torch, mods), "past 2^31 elements")
    tell(compiled(torch, mods), "compiled")
    speed(torch, mods)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
