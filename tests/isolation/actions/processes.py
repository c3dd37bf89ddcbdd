"""Actions on other processes."""

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import time

from .base import LIBC, action, checked, content_of, denied, needs_secret, syscall

PROCESSES = {"the gateway": "gateway", "another agent": "sibling", "the own supervisor": "supervisor"}


def for_processes(name):
    """Registers an action for each foreign process."""

    def register(function):
        for process, member in PROCESSES.items():
            action(name.format(process))(lambda targets, member=member: function(targets[member], targets))
        return function

    return register


@for_processes("read the environment of {}")
def environment(pid, targets):
    return f"{len(content_of(f'/proc/{pid}/environ'))} bytes"


@for_processes("read the memory of {} (/proc/PID/mem)")
def memory(pid, _):
    maps = content_of(f"/proc/{pid}/maps").decode().splitlines()
    start = int(next(line for line in maps if " rw" in line).split("-")[0], 16)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        file.seek(start)
        return file.read(16)


@for_processes("read the memory of {} (process_vm_readv)")
def vm_readv(pid, _):
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("PN", ctypes.addressof(buffer), 8)
    # A wrong address fails with EFAULT only after the check of the rights.
    remote = struct.pack("PN", 8, 8)
    try:
        return syscall("process_vm_readv", pid, vector, 1, remote, 1, 0)
    except OSError as error:
        if error.errno == errno.EFAULT:
            return "only the address is wrong"
        raise


@for_processes("trace {} (ptrace)")
def trace(pid, _):
    # PTRACE_SEIZE does not stop the process. The end of this process detaches it.
    LIBC.ptrace.argtypes = [ctypes.c_long] * 4
    return checked(LIBC.ptrace(0x4206, pid, 0, 0))


@for_processes("read the descriptors of {} (/proc/PID/fd)")
def descriptors(pid, _):
    return os.readlink(f"/proc/{pid}/fd/0")


@for_processes("copy a descriptor of {} (pidfd_getfd)")
def copy_descriptor(pid, _):
    return syscall("pidfd_getfd", syscall("pidfd_open", pid, 0), 0, 0)


@for_processes("reach the files of {} (/proc/PID/root)")
def process_root(pid, _):
    return os.listdir(f"/proc/{pid}/root")[:3]


@for_processes("reach the folder of {} (/proc/PID/cwd)")
def process_folder(pid, _):
    return os.listdir(f"/proc/{pid}/cwd")[:3]


@for_processes("signal {}")
def send_signal(pid, _):
    os.kill(pid, signal.SIGURG)


@for_processes("join the mount namespace of {} (setns)")
def join(pid, _):
    return checked(LIBC.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), 0))


@for_processes("read the command line of {}")
def command_line(pid, _):
    return content_of(f"/proc/{pid}/cmdline")[:40] or denied("it is empty")


@action("write to the stdin of another agent (/proc/PID/fd)")
def write_stdin(targets):
    return os.write(os.open(f"/proc/{targets['sibling']}/fd/0", os.O_WRONLY | os.O_NONBLOCK), b"\n")


@action("join the namespaces of the init process (setns)")
def join_init(targets):
    return checked(LIBC.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0))


@action("kill another process of the same user")
def kill(targets):
    os.kill(targets["sleepers"][0], signal.SIGKILL)


@action("kill another process by an event of a descriptor (F_SETOWN)")
def kill_by_owner(targets):
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, targets["sleepers"][1])
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
    theirs.send(b"x")
    time.sleep(0.2)
    stat_line = content_of(f"/proc/{targets['sleepers'][1]}/stat").decode()
    return "killed" if ") Z" in stat_line else denied("the process runs")


@action("change the limits of another process (prlimit)")
def change_limits(targets):
    resource.prlimit(targets["pid"], resource.RLIMIT_CORE, (0, 0))


@action("change the priority of another process")
def change_priority(targets):
    os.setpriority(os.PRIO_PROCESS, targets["pid"], 1)


@action("change the processors of another process")
def change_processors(targets):
    os.sched_setaffinity(targets["pid"], os.sched_getaffinity(0))


@action("offer another process to the memory killer (oom_score_adj)")
def memory_killer(targets):
    with open(f"/proc/{targets['pid']}/oom_score_adj", "w") as file:
        file.write("500")


@action("read shared memory of another process (System V)")
def shared_memory(targets):
    LIBC.shmat.restype = ctypes.c_void_p
    address = LIBC.shmat(targets["sharedMemory"], None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        checked(-1)
    return needs_secret(ctypes.string_at(address, 64), targets)


@action("write to the terminal of another process (/dev/pts)")
def foreign_terminal(targets):
    return os.write(os.open(targets["pty"], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK), b"planted")


@action("type into the controlling terminal (TIOCSTI)")
def type_into_terminal(_):
    fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x")


@action("use inherited descriptors")
def inherited(_):
    inherited = [name for name in os.environ.get("HOSTILE_DESCRIPTORS", "").split(",") if name]
    return inherited if inherited else denied("there are none")
