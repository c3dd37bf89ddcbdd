"""Actions on the kernel: mounts, namespaces, settings, control groups, devices and system calls."""

import ctypes
import errno
import glob
import os
import resource
import stat
import struct

from .base import LIBC, X86, Unavailable, action, checked, content_of, denied, needs_secret, syscall

NEWNS, NEWUSER, NEWPID, NEWCGROUP = 0x20000, 0x10000000, 0x20000000, 0x02000000
MS_BIND, MS_REC, MS_REMOUNT, MNT_DETACH = 4096, 16384, 32, 2


def own_folder(targets, name):
    path = os.path.join(targets["home"], name)
    os.makedirs(path, exist_ok=True)
    return path.encode()


def mount(source, target, kind, flags=0):
    return checked(LIBC.mount(source, target, kind, ctypes.c_ulong(flags), None))


def enter_namespaces(flags):
    """Nested namespaces, in which this process has all capabilities."""
    user, group = os.getuid(), os.getgid()
    checked(LIBC.unshare(NEWUSER | NEWNS | flags))
    for file, text in [("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")]:
        try:
            with open(f"/proc/self/{file}", "w") as opened:
                opened.write(text)
        except OSError:
            # The capabilities do not depend on the map.
            pass


@action("mount a file system")
def mount_directly(targets):
    # A root process without isolation must not change the mounts of other processes.
    LIBC.unshare(NEWNS)
    return mount(b"tmpfs", own_folder(targets, "mounted"), b"tmpfs")


@action("remove a mask (umount)")
def umount(targets):
    checked(LIBC.umount2(targets["data"].encode(), MNT_DETACH))


@action("change the root (pivot_root)")
def pivot_root(targets):
    LIBC.unshare(NEWNS)
    folder = own_folder(targets, "pivot")
    mount(b"tmpfs", folder, b"tmpfs")
    return syscall("pivot_root", folder, folder)


@action("change the root (chroot)")
def change_root(targets):
    os.chroot(targets["home"])


@action("remove the masks in nested namespaces")
def nested_umount(targets):
    enter_namespaces(0)
    for path in [targets["data"], targets["homes"], targets["operatorHome"], "/tmp", "/proc", "/dev/shm"]:
        for _ in range(4):
            LIBC.umount2(path.encode(), MNT_DETACH)
    return needs_secret(content_of(targets["privateFile"]), targets)


@action("uncover the private folder by a bind mount in nested namespaces")
def nested_bind(targets):
    enter_namespaces(0)
    folder = own_folder(targets, "bound")
    # Without MS_REC, the copy would lack the masks.
    mount(b"/", folder, None, MS_BIND)
    return needs_secret(content_of(folder.decode() + targets["privateFile"]), targets)


@action("make a read-only folder writable in nested namespaces")
def nested_remount(targets):
    enter_namespaces(0)
    for path in [targets["programs"], "/"]:
        LIBC.mount(None, path.encode(), None, ctypes.c_ulong(MS_REMOUNT | MS_BIND), None)
    path = os.path.join(targets["programs"], "planted-remount")
    with open(path, "w") as file:
        file.write("planted")
    return path


@action("read a private file through an overlay in nested namespaces")
def nested_overlay(targets):
    enter_namespaces(0)
    lower, upper, work, merged = (own_folder(targets, name).decode() for name in ("lo", "up", "wo", "me"))
    options = f"lowerdir={targets['data']}:{lower},upperdir={upper},workdir={work}".encode()
    checked(LIBC.mount(b"overlay", merged.encode(), b"overlay", ctypes.c_ulong(0), options))
    path = os.path.join(merged, os.path.relpath(targets["privateFile"], targets["data"]))
    return needs_secret(content_of(path), targets)


def opens_for_writing(path):
    os.close(os.open(path, os.O_WRONLY))
    return path


@action("change a setting of the kernel (/proc/sys)")
def setting(_):
    return opens_for_writing("/proc/sys/kernel/core_pattern")


@action("change a setting of the kernel in nested namespaces")
def nested_setting(targets):
    enter_namespaces(NEWPID)
    folder = own_folder(targets, "proc")
    child = os.fork()
    if child == 0:
        try:
            mount(b"proc", folder, b"proc")
            opens_for_writing(folder.decode() + "/sys/kernel/core_pattern")
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "opened" if code == 0 else denied(os.strerror(code))


@action("request a function of the kernel (/proc/sysrq-trigger)")
def sysrq(_):
    return opens_for_writing("/proc/sysrq-trigger")


@action("change a device or control group (/sys)")
def system_files(_):
    found = [*glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True), *glob.glob("/sys/kernel/mm/*/*")]
    if not found:
        denied("none is visible")
    error = None
    for path in found[:200]:
        try:
            return opens_for_writing(path)
        except OSError as refused:
            error = refused
    raise error


@action("leave the own control group (cgroup.procs of the gateway)")
def leave_group(targets):
    with open(group_of_gateway(targets) + "/cgroup.procs", "w") as file:
        file.write("0")
    return "left"


@action("kill the gateway through its control group (cgroup.kill)")
def kill_group(targets):
    return opens_for_writing(group_of_gateway(targets) + "/cgroup.kill")


@action("raise the limits of the own control group")
def raise_limits(targets):
    group_of_gateway(targets)
    return opens_for_writing(os.path.dirname(targets["ownGroup"]) + "/cgroup.max.descendants")


def group_of_gateway(targets):
    return targets.get("gatewayGroup") or denied("this machine has no control groups")


@action("change a control group of the gateway in nested namespaces")
def nested_cgroup(targets):
    enter_namespaces(NEWCGROUP)
    folder = own_folder(targets, "cgroup")
    mount(b"cgroup2", folder, b"cgroup2")
    if os.stat(folder).st_ino != targets.get("gatewayGroupInode"):
        denied("only the own group is visible")
    return opens_for_writing(folder.decode() + "/cgroup.procs")


@action("read a disk (/dev)")
def disk(_):
    for path in sorted(glob.glob("/dev/*")):
        try:
            if stat.S_ISBLK(os.stat(path).st_mode) and (content := os.read(os.open(path, os.O_RDONLY), 16)):
                return f"{path}: {len(content)} bytes"
        except OSError:
            continue
    return denied("no disk can be read")


@action("read the log of the kernel")
def kernel_log(_):
    buffer = ctypes.create_string_buffer(64)
    return checked(LIBC.klogctl(3, buffer, 64))


@action("store a key in the kernel (add_key)")
def add_key(_):
    return syscall("add_key", b"user", b"planted", b"x", 1, -2)


@action("read the session's keys in the kernel (keyctl)")
def keyctl(_):
    return syscall("keyctl", 0, -3, 1, 0, 0)


@action("load a program into the kernel (bpf)")
def bpf(_):
    # A map of one element.
    attributes = struct.pack("IIIII", 2, 4, 4, 1, 0) + bytes(44)
    return syscall("bpf", 0, attributes, len(attributes))


@action("observe the processor (perf_event_open)")
def perf(_):
    attributes = struct.pack("IIQQQQQ", 1, 112, 1, 0, 0, 0, 1 << 5 | 1 << 6) + bytes(64)
    return syscall("perf_event_open", attributes, 0, -1, -1, 0, unavailable=(errno.ENOSYS, errno.ENOENT))


@action("bypass filters of system calls (io_uring)")
def io_uring(_):
    return syscall("io_uring_setup", 4, ctypes.create_string_buffer(120))


@action("delay the kernel (userfaultfd)")
def userfault(_):
    return syscall("userfaultfd", 1)


@action("write a core file")
def core_file(targets):
    child = os.fork()
    if child == 0:
        os.chdir(targets["home"])
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            pass
        os.abort()
    return "dumped" if os.WCOREDUMP(os.waitpid(child, 0)[1]) else denied("no core file")


@action("execute a file without a name (memfd)")
def memfd(_):
    descriptor = os.memfd_create("program", 0)
    with open("/bin/true", "rb") as program:
        os.write(descriptor, program.read())
    child = os.fork()
    if child == 0:
        os.execv(f"/proc/self/fd/{descriptor}", ["program"])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "executed" if code == 0 else denied(f"exit code {code}")


@action("use the second system call table (x32)")
def second_table(_):
    if not X86:
        raise Unavailable("only x86_64 has it")
    # add_key
    arguments = (b"user", b"planted", b"x", ctypes.c_long(1), ctypes.c_long(-2))
    return checked(LIBC.syscall(ctypes.c_long(0x40000000 | 248), *arguments), errno.ENOSYS)
