"""Runs a program beside a service with a socket outside of `/run`: `service_outside.py USER MODE PROGRAM ARGS...`.

The socket is that of Incus. It belongs to USER and has this MODE. This needs root. Other processes do not see it.
"""

import ctypes
import os
import select
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, MS_REC, MS_PRIVATE, PR_SET_PDEATHSIG, SIGKILL = 0x20000, 16384, 1 << 18, 1, 9
FOLDER = "/var/lib/incus"

assert LIBC.unshare(NEWNS) == 0
assert LIBC.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None) == 0
assert LIBC.mount(b"tmpfs", b"/var/lib", b"tmpfs", ctypes.c_ulong(0), None) == 0
os.mkdir(FOLDER)
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{FOLDER}/unix.socket")
listener.listen(8)
os.chown(f"{FOLDER}/unix.socket", int(sys.argv[1]), int(sys.argv[1]))
os.chmod(f"{FOLDER}/unix.socket", int(sys.argv[2], 8))
if os.fork() == 0:
    # The program may run as this user, which could not end a process of root.
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
    LIBC.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    for descriptor in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    while True:
        select.select([listener], [], [])
        listener.accept()[0].close()
listener.close()
os.execvp(sys.argv[3], sys.argv[3:])
