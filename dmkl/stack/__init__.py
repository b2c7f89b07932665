"""The kernel stack and its backends."""

from dmkl.stack.backends import on_cluster, open_stack
from dmkl.stack.stack import Applied, KernelStack

__all__ = ["Applied", "KernelStack", "on_cluster", "open_stack"]
