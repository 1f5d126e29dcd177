"""Record a run of PyTorch Lightning: `Trainer(callbacks=[Record("traces/")])`."""

from typing import Any

import pytorch_lightning as lightning

import loka


class Record(lightning.Callback):
    """Attaches a Recorder for the length of `fit`, and prints what came of it. `options`: those of `loka.Recorder`."""

    def __init__(self, out: str, **options: Any) -> None:
        self.out, self.options = out, options

    def on_fit_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self.recorder = recorder = loka.Recorder(module, self.out, **self.options).attach()
        step = module.training_step

        def training_step(*args: Any, **kwargs: Any) -> Any:
            # Here, before Lightning divides by accumulate_grad_batches and a GradScaler multiplies.
            result = step(*args, **kwargs)
            if isinstance(result, dict):
                return {**result, "loss": recorder.loss(result["loss"])}
            return result if result is None else recorder.loss(result)

        module.training_step = training_step  # type: ignore[method-assign]

    def on_fit_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        del module.training_step
        self.recorder.close()
        print(self.recorder.report())

    def on_exception(self, trainer: lightning.Trainer, module: lightning.LightningModule, exception: Any) -> None:
        self.recorder.close()
