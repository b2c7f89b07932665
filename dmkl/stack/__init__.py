"""The kernel stack and its backends."""

from dmkl.stack.backends import on_cluster, open_stack
from dmkl.stack.score import Applied
from dmkl.stack.sources import Source
from dmkl.stack.stack import KernelStack

__all__ = ["Applied", "KernelStack", "Source", "on_cluster", "open_stack"]
