"""The registry of actions, and calls that several topics use."""

import ctypes
import errno
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
ALL = {}

X86 = platform.machine() == "x86_64"
# x86_64, and the table that the other architectures share.
NUMBERS = {
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "pivot_root": (155, 41),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "process_vm_readv": (310, 270),
    "ioprio_set": (251, 30),
}


class Unavailable(Exception):
    pass


def action(name):
    def register(function):
        ALL[name] = function
        return function

    return register


def denied(reason):
    raise PermissionError(errno.EPERM, reason)


def checked(result, *unavailable):
    """The result of a call of the C library, or the error."""
    if result < 0:
        code = ctypes.get_errno()
        if code in unavailable:
            raise Unavailable(os.strerror(code))
        raise OSError(code, os.strerror(code))
    return result


def syscall(name, *args, unavailable=(errno.ENOSYS,)):
    number = NUMBERS[name][0 if X86 else 1]
    converted = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return checked(LIBC.syscall(ctypes.c_long(number), *converted), *unavailable)


def needs_secret(content, targets):
    text = content if isinstance(content, bytes) else content.encode()
    return "read" if targets["secret"].encode() in text else denied("other content")


def content_of(path):
    with open(path, "rb") as file:
        return file.read(1 << 20)


def reads(name, member):
    """Registers the read of a file that contains the secret."""
    action(name)(lambda targets: needs_secret(content_of(targets[member]), targets))


def lists(name, member):
    def listed(targets):
        names = os.listdir(targets[member])
        return names if set(targets["listed"][member]) & set(names) else denied(f"it shows {names}")

    action(name)(listed)


def creates(name, member):
    """Registers the creation of a file. The test checks from outside whether the file exists."""

    def create(targets):
        path = os.path.join(targets[member], f"planted-{targets['gateway']}")
        with open(path, "w") as file:
            file.write("planted")
        return path

    action(name)(create)
