"""The kernel stack and its backends."""

from dmkl.stack.backends import near_fits, on_cluster, open_stack
from dmkl.stack.stack import Applied, KernelStack

__all__ = ["Applied", "KernelStack", "near_fits", "on_cluster", "open_stack"]
