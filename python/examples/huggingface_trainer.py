"""Record a run of the Hugging Face Trainer: `RecordedTrainer(model, args, record_to="traces/", ...).train()`."""

from typing import Any, Dict, Optional

from transformers import Trainer

import loka


class RecordedTrainer(Trainer):
    """`record_options`: those of `loka.Recorder`."""

    def __init__(self, *args: Any, record_to: str, record_options: Optional[Dict[str, Any]] = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recorder = loka.Recorder(self.model, record_to, **(record_options or {}))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        with self.recorder:
            result = super().train(*args, **kwargs)
        print(self.recorder.report())
        return result

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        # Here, before the Trainer divides by gradient_accumulation_steps.
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        loss = self.recorder.loss(loss) if model.training else loss
        return (loss, outputs) if return_outputs else loss
