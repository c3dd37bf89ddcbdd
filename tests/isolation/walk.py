"""The order `walk` of the hostile agent: reports everything that the agent can list, read and write below some folders."""

import json
import os
import stat

# The kernel makes their content. Other tests examine it.
SKIPPED = {"/proc", "/sys"}
LIMIT = 20000


def content(path):
    try:
        with open(path, "rb") as file:
            return file.read(200).decode(errors="replace")
    except OSError:
        return None


def can_create(folder, name):
    """Creates a file, and leaves it: the test looks from outside where it appeared."""
    try:
        os.close(os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return True
    except OSError:
        return False


def can_change(path):
    """Opens a file for writing, and changes nothing."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
        return True
    except OSError:
        return False


def walk(order):
    found, waiting = {}, [(path, order["depth"]) for path in order["roots"]]
    while waiting and len(found) < LIMIT:
        path, depth = waiting.pop()
        if path in found or path in SKIPPED:
            continue
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        entry = found[path] = {"kind": "other"}
        if stat.S_ISLNK(mode):
            entry["kind"] = "link"
        elif stat.S_ISREG(mode):
            entry.update(kind="file", content=content(path), write=can_change(path))
        elif stat.S_ISDIR(mode):
            entry["kind"] = "folder"
            try:
                names = os.listdir(path)
            except OSError:
                entry["listed"] = False
                continue
            entry["listed"] = True
            if path not in order["quiet"]:
                entry["write"] = can_create(path, order["name"])
            if depth > 0:
                waiting.extend((os.path.join(path, name), depth - 1) for name in names if name != order["name"])
    path = os.path.join(order["cwd"], "walked.json")
    with open(path, "w") as file:
        json.dump(found, file)


ORDERS = {"walk": walk}
