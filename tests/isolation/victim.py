"""A process of the same user outside of the gateway: the targets of `hostile.py` that need a living owner.

Prints one line of JSON about itself, and ends with its stdin.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys

import queues

LIBC = ctypes.CDLL(None, use_errno=True)
SECRET = sys.argv[1].encode()
FOLDER = sys.argv[2]


def listener(address):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(8)
    return listening


def shared_memory():
    LIBC.shmat.restype = ctypes.c_void_p
    identifier = LIBC.shmget(0, 4096, 0o1600)
    address = LIBC.shmat(identifier, None, 0)
    ctypes.memmove(address, SECRET, len(SECRET))
    return identifier


def file(path):
    with open(path, "wb") as created:
        created.write(SECRET)
    return path


name = f"acp-gateway-victim-{os.getpid()}"
sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
master, slave = os.openpty()
os.set_blocking(master, False)
sockets = [listener(f"\0{name}"), listener(f"/tmp/{name}.sock"), listener(f"{FOLDER}/socket")]
identifier = shared_memory()
names = [f"/{name}-{number}" for number in range(3)]
for queue in names:
    queues.create(queue, [SECRET, SECRET])
owned = [file(f"/tmp/{name}"), file(f"/dev/shm/{name}")]
print(
    json.dumps(
        {
            "pid": os.getpid(),
            "sleepers": [sleeper.pid for sleeper in sleepers],
            "pty": os.ttyname(slave),
            "abstractSocket": name,
            "tmpSocket": f"/tmp/{name}.sock",
            "socket": f"{FOLDER}/socket",
            "sharedMemory": identifier,
            "queue": names[0],
            "deletedQueue": names[1],
            "otherQueue": names[2],
            "tmpFile": owned[0],
            "shmFile": owned[1],
        }
    ),
    flush=True,
)
sys.stdin.read()
for sleeper in sleepers:
    sleeper.kill()
    sleeper.wait()
LIBC.shmctl(identifier, 0, None)
for queue in names:
    # An attack may have deleted it.
    LIBC.mq_unlink(queue.encode())
for path in [*owned, f"/tmp/{name}.sock", f"{FOLDER}/socket"]:
    os.unlink(path)
