"""Takes a model that trains; gives a trace of what its linear layers see (trace format v1).

    with loka.Recorder(model, out="run/", every=100, save_every=10_000):
        train()
"""

from loka.record.functional import linear
from loka.record.recorder import Recorder

__all__ = ["Recorder", "linear"]
