"""Orders of the hostile agent that replace folders by symbolic links, for the process that starts next."""

import ctypes
import json
import os
import time

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def replace(order):
    """Moves a folder of the session away and creates a link at its path."""
    os.rename(order["path"], order["path"] + ".moved")
    os.symlink(order["target"], order["path"])
    with open(os.path.join(order["cwd"], "replaced.json"), "w") as file:
        json.dump(os.readlink(order["path"]), file)


def replace_below(order):
    """Replaces the parent of a folder of programs, which is a mount point, and creates a link at its path."""
    parent = os.path.dirname(order["path"])
    os.rename(parent, parent + ".moved")
    os.mkdir(parent)
    os.symlink(order["target"], order["path"])
    with open(os.path.join(order["cwd"], "replaced.json"), "w") as file:
        json.dump(os.readlink(order["path"]), file)


def exchange(order):
    """Exchanges a folder and a link again and again, in a process that stays."""
    path, other = order["path"].encode(), (order["path"] + ".other").encode()
    os.symlink(order["target"], other)
    if os.fork() == 0:
        end = time.monotonic() + order["seconds"]
        while time.monotonic() < end:
            LIBC.renameat2(AT_FDCWD, path, AT_FDCWD, other, RENAME_EXCHANGE)
        os._exit(0)
    with open(os.path.join(order["cwd"], "replaced.json"), "w") as file:
        json.dump(True, file)


def move(order):
    """Moves a folder away and creates an empty one with the same folders at its path. Reports the error."""
    try:
        os.rename(order["path"], order["path"] + ".moved")
        os.makedirs(order["below"])
        error = None
    except OSError as refused:
        error = str(refused)
    with open(os.path.join(order["cwd"], "moved.json"), "w") as file:
        json.dump(error, file)


ORDERS = {"move": move, "replace": replace, "replace_below": replace_below, "exchange": exchange}
