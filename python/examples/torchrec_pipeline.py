"""Record a run of TorchRec's pipelines (`TrainPipelineBase`, `TrainPipelineSparseDist`).

    with recorded(model, "traces/"):
        while True:
            pipeline.progress(batches)

`model` is what the pipeline is given: its forward returns (losses, output), as `DLRMTrain`'s does.
"""

import contextlib
from typing import Any, Iterator

from torch import nn

import loka


@contextlib.contextmanager
def recorded(model: nn.Module, out: str, **options: Any) -> Iterator[loka.Recorder]:
    """A hook, not a wrapper: the pipeline traces the model's forward to find what it may prefetch, and hooks are not in
    it. StopIteration of the last batch passes through."""
    recorder = loka.Recorder(model, out, **options)
    hook = model.register_forward_hook(
        lambda module, _, result: (recorder.loss(result[0]), *result[1:]) if module.training else result
    )
    try:
        with recorder:
            yield recorder
    finally:
        hook.remove()
        print(recorder.report())
