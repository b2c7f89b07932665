"""The kernel stack and its backends."""

from dmkl.stack.blocks import TaskMatrix
from dmkl.stack.score import Applied
from dmkl.stack.sources import Source
from dmkl.stack.stack import KernelStack, on_cluster, open_stack

__all__ = ["Applied", "KernelStack", "Source", "TaskMatrix", "on_cluster", "open_stack"]
