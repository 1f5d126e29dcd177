"""FP8 codes whose rows begin at multiples of 128 bytes: the casts write there what they write into packed rows, and nothing between;
compiled code keeps the pitch."""

import pathlib
import sys
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
import torch._dynamo.testing

from loka.catalogue import Cast
from loka.kernels.scales import LINE, room, spaced
from loka.kernels.still import still
from loka.kernels.weight_codes import WeightCache
from triton_support import interpreted, needs_triton

E4M3 = torch.float8_e4m3fn


def of(x, rows, cols):
    return room(rows, cols, E4M3, x.device)[:, :cols]


class Memory(unittest.TestCase):
    def test_rows_begin_at_multiples_of_a_line(self):
        for cols, pitch in ((1, 128), (16, 128), (128, 128), (144, 256), (256, 256), (400, 512), (2048, 2048)):
            made = spaced(48, cols, E4M3, torch.device("cpu"))
            with self.subTest(cols=cols):
                self.assertEqual((tuple(made.shape), made.stride(), made.dtype), ((48, cols), (pitch, 1), E4M3))
                self.assertEqual(made.is_contiguous(), cols % LINE == 0)
        self.assertEqual(tuple(spaced(0, 400, E4M3, torch.device("cpu")).shape), (0, 400))

    def test_on_a_cpu_codes_of_weights_are_packed(self):
        cast = Cast("e4m3", "tensor", False)
        cache = WeightCache([torch.randn(48, 144)], [(cast, cast)])
        self.assertTrue(all(one.bits.is_contiguous() for one in cache.codes[0][:2]))


class Compiled(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def test_the_pitch_stays(self):
        """Of what compiled code gives, and of what it makes within; whatever the number of rows."""
        seen = []

        def run(x):
            straight, turned = of(x, *x.shape), of(x, x.shape[1], (x.shape[0] + 15) // 16 * 16)
            # As a product reads it: a copy would be contiguous.
            inner = torch.ops.loka_test.pitch(turned.t())
            return straight, turned, inner

        @torch.library.custom_op("loka_test::pitch", mutates_args=())
        def pitch(x: torch.Tensor) -> torch.Tensor:
            return torch.tensor(x.stride())

        @pitch.register_fake
        def _(x):
            return torch.empty(2, dtype=torch.int64)

        for backend in ("aot_eager", "inductor"):
            for dynamic in (False, True):
                torch._dynamo.reset()
                graphs = torch._dynamo.testing.CompileCounterWithBackend(backend)
                compiled = torch.compile(run, backend=graphs, dynamic=dynamic, fullgraph=True)
                for rows in (48, 400, 512, 1000, 1024, 96):
                    with self.subTest(backend=backend, dynamic=dynamic, rows=rows):
                        straight, turned, inner = compiled(torch.zeros(rows, 144))
                        across = (rows + 127) // 128 * 128
                        self.assertEqual((straight.stride(), turned.stride()), ((256, 1), (across, 1)))
                        self.assertEqual(inner.tolist(), [1, across])
                if dynamic:
                    seen.append(graphs.frame_count)
        # One where rows are whole lines, so that turned ones have no gaps, and one for all others.
        self.assertLessEqual(max(seen), 2)

    def test_codes_that_are_alike_have_memory_of_their_own(self):
        """PyTorch takes two equal `empty_strided` of a graph for one; then each kernel that writes there is given a copy."""
        for backend in ("aot_eager_decomp_partition", "inductor"):
            torch._dynamo.reset()
            compiled = torch.compile(lambda x: (of(x, *x.shape), of(x, *x.shape)), backend=backend, fullgraph=True)
            first, second = compiled(torch.zeros(48, 144))
            self.assertNotEqual(first.untyped_storage().data_ptr(), second.untyped_storage().data_ptr(), backend)

    def test_a_pitch_of_kept_codes_is_no_number_of_rows(self):
        """Under dynamic=True a stride that is the batch's size as well would be taken for it."""
        kept = still(spaced(48, 400, E4M3, torch.device("cpu")).zero_())
        graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(lambda x, codes: x @ codes.t().float(), backend=graphs, dynamic=True, fullgraph=True)
        for rows in (512, 96, 1000):
            self.assertEqual(tuple(compiled(torch.ones(rows, 400), kept).shape), (rows, 48))
        self.assertEqual(graphs.frame_count, 1)


class Written(unittest.TestCase):
    @needs_triton
    def test_every_cast_writes_what_it_writes_into_packed_rows(self):
        interpreted(self, CASTS, "24 casts the same")

    @needs_triton
    def test_the_launch_for_all_weights_writes_what_it_writes_into_packed_rows(self):
        interpreted(self, WEIGHTS, "24 weights the same")

    @needs_triton
    def test_a_gradient_behind_a_linear_is_what_it_is_in_packed_rows(self):
        interpreted(self, GRADIENTS, "24 layouts the same")


SHARED = '''
import torch
from loka.catalogue import Cast
from loka.kernels import triton_casts
from loka.kernels.scales import LINE, quantize, room

NOTHING = 0x55
packed = lambda rows, cols, dtype, device: torch.empty((rows, cols), dtype=dtype, device=device)
made = []

def marked(rows, cols, dtype, device):
    """Its room with a byte everywhere that no code is."""
    one = room(rows, cols, dtype, device)
    one.view(torch.uint8).fill_(NOTHING)
    made.append((one, cols))
    return one

def check_pitches():
    while made:
        one, cols = made.pop()
        assert one.is_contiguous() and one.shape[1] == (cols + LINE - 1) // LINE * LINE, (one.shape, cols)
        assert bool((one.view(torch.uint8)[:, cols:] == NOTHING).all()), "nothing is written between rows"

def same(one, other):
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))

def exact(rows, cols, seed):
    """Codes of E4M3 by a scale of 2^-3, of the whole, of each row and of each column: the interpreter cuts where a GPU rounds."""
    torch.manual_seed(seed)
    bits = torch.randint(0, 256, (rows, cols), dtype=torch.uint8)
    x = torch.where(bits & 0x7F == 0x7F, torch.zeros_like(bits), bits).view(torch.float8_e4m3fn).float()
    at = torch.arange(max(rows, cols))
    x[at % rows, at % cols] = 448.0
    return (x * 2.0**-3).bfloat16()
'''

CASTS = SHARED + textwrap.dedent("""
    plain, count = triton_casts.plain, 0

    def partials(x):
        # By torch: the interpreter does not take that kernel's loop.
        found = torch.zeros(triton_casts.PARTIALS, dtype=torch.int32)
        found[7] = x.float().abs().max().view(torch.int32)
        return found

    def casts(x, y):
        # name -> (codes straight, turned) of x and of y, each from one call.
        inverse, layouts = torch.tensor([2.0**3]), ((True, True), (True, False), (False, True))
        for straight, turn in layouts:
            most = partials(x)
            yield "tensor", triton_casts._cast(x, most, most, True, "e4m3", False, straight, turn, 16, False, plain)[:2], x
            by = triton_casts._amax_rows_cols(x, straight, turn, plain)
            yield "row", triton_casts._cast(x, *by, False, "e4m3", False, straight, turn, 16, False, plain)[:2], x
            nobody = triton_casts.told_of(None)
            yield "known", triton_casts._cast_known(x, inverse, "e4m3", straight, turn, 16, *nobody, plain)[:2], x
        pair = triton_casts._cast_pair(x, partials(x), y, partials(y), "e4m3", False, True, 16, plain)
        yield "pair", pair[:2], x
        yield "pair", pair[3:5], y
        yield "rows", (triton_casts._cast_rows(x, "e4m3", False, plain)[0], x.new_empty(0, 0)), x

    for rows, cols in ((80, 400), (33, 144)):
        x, y = exact(rows, cols, rows), exact(cols, 272, cols)
        triton_casts.room = packed
        wanted = list(casts(x, y))
        triton_casts.room = marked
        for (name, found, source), (_, expected, _) in zip(casts(x, y), wanted):
            for one, other in zip(found, expected):
                assert one.shape == other.shape and same(one, other), (name, rows, cols)
            straight, turned = found
            bits = quantize(source, Cast("e4m3", "tensor", False))[0].float()
            if straight.numel():
                assert torch.equal(straight.float(), bits), (name, rows, cols)
            if turned.numel():
                assert torch.equal(turned[:, : source.shape[0]].float(), bits.t()), (name, rows, cols)
                assert turned.shape[1] == (source.shape[0] + 15) // 16 * 16 and not turned[:, source.shape[0] :].float().any()
            count += 1
        check_pitches()
    print(count, "casts the same")
""")

WEIGHTS = SHARED + textwrap.dedent("""
    from loka.kernels.triton_weights import Launch, is_aligned
    from loka.kernels.weight_codes import WeightCache

    count = 0
    for dtype in (torch.float32, torch.bfloat16):
        for granularity in ("tensor", "row"):
            cast = Cast("e4m3", granularity, False)
            for wanted in ((cast, cast), (cast, None), (None, cast)):
                # Rows that are no multiples of 16, too.
                weights = [exact(rows, cols, rows).to(dtype) for rows, cols in ((48, 400), (24, 136))]
                apart, together = (WeightCache(weights, [wanted] * 2) for _ in range(2))
                apart.codes = [
                    codes._replace(**{
                        name: one and one._replace(bits=marked(*one.bits.shape, one.bits.dtype, one.bits.device)[:, : one.bits.shape[1]].zero_())
                        for name, one in (("for_fprop", codes.for_fprop), ("for_dgrad", codes.for_dgrad))
                    })
                    for codes in apart.codes
                ]
                for weight, codes, aligned in zip(weights, apart.codes, (True, False)):
                    assert is_aligned(weight, codes) == aligned
                for cache in (apart, together):
                    Launch(list(zip(weights, cache.codes)), cast, wanted[0] is not None, wanted[1] is not None)()
                # Against what plain operations make anew, too.
                assert apart.differing() == [], (dtype, granularity)
                for ours, theirs in zip(apart.codes, together.codes):
                    assert all(map(same, ours.tensors, theirs.tensors)), (dtype, granularity)
                    count += 1
                check_pitches()
    print(count, "weights the same")
""")

GRADIENTS = SHARED + textwrap.dedent("""
    from loka.kernels import handed, triton_gated, triton_norms, triton_tails

    def gradients(rows, cols):
        torch.manual_seed(rows)
        z, other, dh = (torch.randn(rows, cols).bfloat16() for _ in range(3))
        inverse = torch.tensor([2.0**4])
        yield from triton_tails.gradient(dh, z, None, None, inverse, 3, False, 1.0)[:2]
        rstd = torch.rand(rows) + 0.5
        yield from triton_norms.gradient(dh, z, None, None, None, None, None, rstd, inverse, 3, False, 1.0)[:2]
        both = triton_gated.gradient(dh, z, None, other, None, None, inverse, inverse, 3, 7, False, 1.0)
        yield from (*both[:2], *both[3:5])

    count = 0
    for rows, cols in ((48, 400), (144, 144), (128, 256)):
        triton_casts.room = packed
        wanted = list(gradients(rows, cols))
        triton_casts.room = marked
        for one, other in zip(gradients(rows, cols), wanted):
            assert one.shape == other.shape and same(one, other), (rows, cols, count)
            count += 1
        check_pitches()
    print(count, "layouts the same")
""")


if __name__ == "__main__":
    unittest.main()
