"""Message queues of other processes: the actions of the hostile agent, and the queues of the victim.

`queues.py PROGRAM ARGS...` runs a program on a machine with a mount of all message queues at `/dev/mqueue`, as most
distributions have it. Without the rights to mount, it runs the program as it is.
"""

import ctypes
import os
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
FOLDER = "/dev/mqueue"
MESSAGE_BYTES = 8192
NEWNS, MS_REC, MS_PRIVATE = 0x20000, 16384, 1 << 18


def checked(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def create(name, messages):
    """Creates a queue that only its user can open."""
    flags = os.O_CREAT | os.O_RDWR | os.O_NONBLOCK
    queue = checked(LIBC.mq_open(name.encode(), flags, ctypes.c_uint(0o600), None))
    for message in messages:
        checked(LIBC.mq_send(queue, message, ctypes.c_size_t(len(message)), ctypes.c_uint(0)))


def remove(name):
    checked(LIBC.mq_unlink(name.encode()))


def receive(queue):
    buffer = ctypes.create_string_buffer(MESSAGE_BYTES)
    length = checked(LIBC.mq_receive(queue, buffer, ctypes.c_size_t(MESSAGE_BYTES), None))
    return buffer.raw[:length]


def register(action, needs_secret):
    """Registers the actions. Each one receives another message."""

    @action("read a message of another process (mq_open)")
    def by_name(targets):
        queue = checked(LIBC.mq_open(targets["queue"].encode(), os.O_RDONLY | os.O_NONBLOCK))
        return needs_secret(receive(queue), targets)

    @action("read a message of another process (/dev/mqueue)")
    def by_mount(targets):
        queue = os.open(FOLDER + targets["queue"], os.O_RDONLY | os.O_NONBLOCK)
        return needs_secret(receive(queue), targets)

    @action("delete a message queue of another process (mq_unlink)")
    def delete(targets):
        remove(targets["deletedQueue"])

    @action("delete a message queue of another process (/dev/mqueue)")
    def delete_by_mount(targets):
        os.unlink(FOLDER + targets["otherQueue"])


def mount_queues():
    checked(LIBC.unshare(NEWNS))
    checked(LIBC.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
    os.makedirs(FOLDER, exist_ok=True)
    checked(LIBC.mount(b"mqueue", FOLDER.encode(), b"mqueue", ctypes.c_ulong(0), None))


if __name__ == "__main__":
    if os.geteuid() == 0 and not os.path.ismount(FOLDER):
        try:
            mount_queues()
        except PermissionError as error:
            print(f"no mount of message queues: {error}", file=sys.stderr)
    os.execvp(sys.argv[1], sys.argv[1:])
