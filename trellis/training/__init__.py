"""Training: `Trainer`, where its batches come from, what it calls as it goes on, and what it measured."""

from trellis.data.batches import Batches
from trellis.training import callbacks
from trellis.training.callbacks import *
from trellis.training.history import History
from trellis.training.plot import plot_curves
from trellis.training.steps import NonFiniteLoss
from trellis.training.trainer import Trainer

__all__ = ["Batches", "History", "NonFiniteLoss", "Trainer", "plot_curves"]
__all__ += callbacks.__all__
