"""Blocks that are compiled each by itself, as with FSDP2: a plan and a Recorder have more variants of their one forward than
torch.compile keeps by default, and none of them runs eagerly."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import torch
from torch import nn

import loka
from loka import variants

WIDTHS = [16 * at for at in range(1, 7)]
LIMIT = next(name for name in ("recompile_limit", "cache_size_limit") if hasattr(torch._dynamo.config, name))


def blocks():
    torch.manual_seed(0)
    pairs = zip(WIDTHS, WIDTHS[1:])
    return nn.Sequential(*(nn.Sequential(nn.Linear(k, n), nn.SiLU()) for k, n in pairs), nn.Linear(WIDTHS[-1], 1))


def compiled(model, counter):
    """Each block for itself; `counter`: a list that gets an item for each variant."""

    def backend(graph, inputs):
        counter.append(graph)
        return graph.forward

    for at, block in enumerate(model):
        model[at] = torch.compile(block, backend=backend) if isinstance(block, nn.Sequential) else block
    return model


def planned(plan):
    plan["sites"] = [{**plan["sites"][0], "site": f"{at}.0"} for at in range(len(WIDTHS) - 1)]


class Variants(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # As in a new process: other tests may have made room.
        limit = mock.patch.multiple(torch._dynamo.config, **{LIMIT: 8})
        given = mock.patch.dict(variants._given, clear=True)
        for patched in (limit, given):
            patched.start()
            self.addCleanup(patched.stop)

    def steps(self, model, count, wrap=lambda loss: loss):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(count):
            wrap(model(torch.randn(8, WIDTHS[0])).square().mean()).backward()
            optimizer.step()
            optimizer.zero_grad()

    def test_a_plan_of_many_blocks_is_compiled_in_every_one_of_them(self):
        model, graphs = blocks(), []
        loka.apply(model, ranker.forged(self.folder, planned), emulate=True, strict=False)
        compiled(model, graphs)
        self.steps(model, 4)
        # The first step, which is checked, and the others.
        self.assertEqual(len(graphs), 2 * 5)
        self.steps(model, 2)
        self.assertEqual(len(graphs), 2 * 5, "nothing is compiled any more, and nothing runs eagerly")

    def test_a_model_from_a_file_has_room_in_a_new_process_too(self):
        model, path = blocks(), ranker.forged(self.folder, planned)
        loka.apply(model, path, emulate=True, strict=False)
        setattr(torch._dynamo.config, LIMIT, 8)
        variants._given.clear()
        loka.apply(model, path, emulate=True, strict=False)
        self.assertEqual(getattr(torch._dynamo.config, LIMIT), 8 + 4 * 5)

    def test_a_model_that_is_recorded_is_compiled_in_every_one_of_them(self):
        model, graphs = blocks(), []
        with loka.Recorder(compiled(model, graphs), out=self.folder, every=2) as recorder:
            self.steps(model, 5, recorder.loss)
        self.assertGreaterEqual(getattr(torch._dynamo.config, LIMIT), 8 + 2 * 5)
        # A step that is recorded, and one that is not.
        self.assertEqual(len(graphs), 2 * 5)

    def test_limits_are_raised_and_never_lowered_or_added_up(self):
        variants.make_room(50)
        raised = getattr(torch._dynamo.config, LIMIT)
        self.assertGreaterEqual(raised, 58)
        variants.make_room(50)
        variants.make_room(1)
        self.assertEqual(getattr(torch._dynamo.config, LIMIT), raised)


if __name__ == "__main__":
    unittest.main()
