"""Orders of the hostile agent that replace folders by symbolic links, for the process that starts next."""

import json
import os


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


ORDERS = {"replace": replace, "replace_below": replace_below}
