"""Runs a program on a machine that lacks features: `limited_machine.py FEATURE,FEATURE PROGRAM ARGS...`.

- `namespaces`: a filter denies new user namespaces with EPERM, as container runtimes do.
- `landlock`: a filter denies the first system call of Landlock with ENOSYS, as kernels without it do.
"""

import ctypes
import os
import platform
import struct
import sys

NEWUSER = 0x10000000
EPERM, ENOSYS = 1, 38
NUMBERS = {
    "x86_64": {"unshare": 272, "clone": 56, "clone3": 435},
    "aarch64": {"unshare": 97, "clone": 220, "clone3": 435},
}[platform.machine()]


def instruction(code, if_true, if_false, value):
    return struct.pack("HBBI", code, if_true, if_false, value)


def load(offset):
    return instruction(0x20, 0, 0, offset)


def unless_equal(value, skip):
    return instruction(0x15, 0, skip, value)


def result(value):
    return instruction(0x06, 0, 0, value)


ALLOW, ERROR = 0x7FFF0000, 0x00050000
LANDLOCK_CREATE_RULESET = 444
missing = sys.argv[1].split(",")
# A filter loads the number (offset 0), and the flags from the first argument (offset 16).
program = [load(0)]
if "landlock" in missing:
    program += [unless_equal(LANDLOCK_CREATE_RULESET, 1), result(ERROR | ENOSYS)]
if "namespaces" in missing:
    program += [unless_equal(NUMBERS["clone3"], 1), result(ERROR | ENOSYS)]
    program += [unless_equal(NUMBERS["unshare"], 1), instruction(0x05, 0, 0, 1), unless_equal(NUMBERS["clone"], 3)]
    program += [load(16), instruction(0x45, 0, 1, NEWUSER), result(ERROR | EPERM)]
program += [result(ALLOW)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
code = b"".join(program)
PR_SET_SECCOMP, MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(Program(len(program), code)), 0, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])
