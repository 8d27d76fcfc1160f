"""Data larger than memory: batches from files, in an order that follows from a seed, and batches read in the background."""

from trellis.data.files import Column, Files, files
from trellis.data.iterables import Prefetched, prefetch

__all__ = ["Column", "Files", "Prefetched", "files", "prefetch"]
