"""Training: `Trainer`, where its batches come from, what it calls as it goes on, and what it measured."""

from trellis.core.hints import naming
from trellis.data.batches import Batches
from trellis.training import callbacks
from trellis.training.callbacks import *
from trellis.training.history import History
from trellis.training.plot import plot_curves
from trellis.training.steps import NonFiniteLoss
from trellis.training.trainer import Trainer

__all__ = ["Batches", "History", "NonFiniteLoss", "Trainer", "plot_curves"]
__all__ += callbacks.__all__

for _kind in (Batches, Trainer, callbacks.Checkpoint, callbacks.EarlyStopping, callbacks.ReduceLROnPlateau):
    _kind.__init__ = naming(_kind.__init__)  # type: ignore[method-assign]
