"""Tells whether a CUDA graph is being captured: inside a capture nothing can be read, asked for or waited for."""

import torch


def is_capturing() -> bool:
    """Whether this thread's current stream is."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


__all__ = ["is_capturing"]
