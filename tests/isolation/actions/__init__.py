"""The actions of the hostile agent. Each one raises OSError if the system refuses it.

The modules register their actions in `ALL` when they are imported, in this order.
"""

from .base import ALL, Unavailable, action, needs_secret
from . import files, processes, network, kernel
from .network import bind_in_a_loop

__all__ = [
    "ALL",
    "Unavailable",
    "action",
    "bind_in_a_loop",
    "files",
    "kernel",
    "needs_secret",
    "network",
    "processes",
]
