"""The store in this process's memory."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
