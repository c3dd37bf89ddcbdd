"""Exits with 0 if a service of this machine in /run accepts only some users, and the user of this process is one of
them. Such a service may start programs for an agent, so Landlock alone does not isolate agents of this user.
"""

import os
import socket
import stat
import sys


def serves_all(path):
    """Whether the rights of files let every user connect."""
    folders = [path]
    while folders[-1] != "/":
        folders.append(os.path.dirname(folders[-1]))
    modes = [os.stat(one).st_mode for one in folders]
    return modes[0] & 0o002 and all(mode & 0o001 for mode in modes[1:])


def accepts(path):
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(1)
        try:
            connected.connect(path)
        except OSError as error:
            return "type" in str(error)
    return True


for folder, _, names in os.walk("/run"):
    for path in (os.path.join(folder, name) for name in names):
        try:
            is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
            engine = path.endswith(("/docker.sock", "/podman.sock", "/containerd.sock", "/crio.sock"))
            if is_socket and (engine or not serves_all(path)) and accepts(path):
                sys.exit(0)
        except OSError:
            pass
sys.exit(1)
