"""The actions of the hostile agent. Each one raises OSError if the system refuses it."""

import ctypes
import errno
import fcntl
import glob
import os
import platform
import resource
import signal
import socket
import sqlite3
import stat
import struct
import time
import urllib.error
import urllib.request

LIBC = ctypes.CDLL(None, use_errno=True)
ALL = {}

NEWNS, NEWUSER, NEWPID, NEWCGROUP = 0x20000, 0x10000000, 0x20000000, 0x02000000
MS_BIND, MS_REC, MS_REMOUNT, MNT_DETACH = 4096, 16384, 32, 2
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


# --- the private folder ---------------------------------------------------------------------------------------------

reads("read a private file", "privateFile")
lists("list the private folder", "private")
creates("create a file in the private folder", "private")


@action("write to the database")
def write_database(targets):
    try:
        connection = sqlite3.connect(targets["database"], timeout=2)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        # A lock of the gateway is no protection: the file itself can be written.
        if "unable to open" in str(error):
            denied(str(error))
    descriptor = os.open(targets["database"], os.O_RDWR)
    byte = os.pread(descriptor, 1, 0)
    return os.pwrite(descriptor, byte, 0)


@action("truncate a private file")
def truncate(targets):
    os.truncate(targets["truncated"], 1)


@action("rename a private file")
def rename(targets):
    os.rename(targets["renamed"], targets["renamed"] + ".planted")


@action("delete a private file")
def delete(targets):
    os.unlink(targets["deleted"])


@action("link a private file to the own home (hard link)")
def hard_link(targets):
    link = os.path.join(targets["home"], "hard-link")
    os.link(targets["privateFile"], link)
    return needs_secret(content_of(link), targets)


@action("read a private file through a symbolic link")
def symbolic_link(targets):
    link = os.path.join(targets["home"], "symbolic-link")
    os.symlink(targets["privateFile"], link)
    return needs_secret(content_of(link), targets)


@action("read a private file relative to the working directory")
def relative(targets):
    return needs_secret(content_of(os.path.relpath(targets["privateFile"], os.getcwd())), targets)


@action("read a private file through /proc/self/root")
def through_own_root(targets):
    return needs_secret(content_of("/proc/self/root" + targets["privateFile"]), targets)


@action("mark a private file as readable for all (chmod)")
def change_mode(targets):
    os.chmod(targets["changed"], 0o666)


@action("change the times of a private file")
def change_times(targets):
    os.utime(targets["changed"], (1, 1))


@action("read the size of a private file (stat)")
def size(targets):
    return os.stat(targets["privateFile"]).st_size


@action("watch the private folder (inotify)")
def watch(targets):
    descriptor = checked(LIBC.inotify_init1(0))
    return checked(LIBC.inotify_add_watch(descriptor, targets["private"].encode(), 0xFFF))


@action("open a file by its handle (open_by_handle_at)")
def by_handle(targets):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 120, 0) + bytes(120))
    mount = ctypes.c_int()
    path = targets["privateFile"] if os.path.exists(targets["privateFile"]) else targets["home"]
    syscall("name_to_handle_at", -100, path.encode(), handle, ctypes.byref(mount), 0)
    folder = os.open(targets["home"], os.O_RDONLY)
    return syscall("open_by_handle_at", folder, handle, os.O_RDONLY)


# --- other homes, workspaces and folders ----------------------------------------------------------------------------

reads("read a file in the home of another agent", "siblingFile")
lists("list the home of another agent", "siblingHome")
lists("list the homes of all agents", "homes")
creates("create a file in the home of another agent", "siblingHome")
reads("read a file in the workspace of another session", "workspaceFile")
lists("list the workspaces of all sessions", "workspaces")
creates("create a file in the workspace of another session", "siblingWorkspace")
reads("read a file in the home of the operator", "operatorFile")
lists("list the home of the operator", "operatorHome")
creates("create a file in the home of the operator", "operatorHome")
reads("read a file in the shared /tmp", "tmpFile")
lists("list the shared /tmp", "tmp")
creates("create a file in the shared /tmp", "tmp")
reads("read a file in the shared /dev/shm", "shmFile")
creates("create a file in the shared /dev/shm", "shm")
creates("change a program of the operator's PATH", "programs")
reads("read another folder of the same user", "elsewhereFile")
creates("create a file in another folder of the same user", "elsewhere")


def connects(name, address):
    def connect(targets):
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(address(targets))

    action(name)(connect)


connects("connect to a socket file in /tmp", lambda targets: targets["tmpSocket"])
connects("connect to a socket file in another folder", lambda targets: targets["socket"])
connects("connect to an abstract socket of another process", lambda targets: "\0" + targets["abstractSocket"])


@action("see the sockets of system services in /run")
def services(targets):
    found = [path for path in glob.glob("/run/**", recursive=True) if not path.startswith("/run/systemd/resolve")]
    found = [path for path in found if os.path.isfile(path) or stat.S_ISSOCK(os.lstat(path).st_mode)]
    if not targets["services"]:
        raise Unavailable("/run contains no files")
    return found[0] if found else denied("/run is empty")


# --- other processes ------------------------------------------------------------------------------------------------

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


# --- the gateway's API and port -------------------------------------------------------------------------------------


@action("answer a permission request without a key")
def answer_permission(targets):
    url = f"http://127.0.0.1:{targets['port']}/v1/sessions/{targets['session']}/permissions/r1"
    request = urllib.request.Request(url, b'{"optionId":"allow"}', {"Content-Type": "application/json"})
    try:
        return urllib.request.urlopen(request, timeout=5).status
    except urllib.error.HTTPError as error:
        return denied(f"status {error.code}") if error.code in (401, 403) else f"status {error.code}"


@action("bind the port of the running gateway")
def bind_port(targets):
    with socket.socket() as bound:
        listen_at(bound, ("127.0.0.1", targets["port"]))


@action("bind the port of the running gateway with IPv6")
def bind_ipv6_port(targets):
    with socket.socket(socket.AF_INET6) as bound:
        listen_at(bound, ("::1", targets["port"]))


def listen_at(bound, address):
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
    bound.bind(address)
    bound.listen()


def bind_in_a_loop(targets):
    """Answers every request at the port of the gateway, and stores the requests."""
    with open(targets["daemonFile"], "w") as file:
        file.write("runs")
    port = targets["port"]
    addresses = {
        socket.AF_INET: [("127.0.0.1", port)],
        socket.AF_INET6: [("::1", port), ("::", port)],
    }
    bound = {}
    while True:
        for family, address in [(family, one) for family, all in addresses.items() for one in all]:
            try:
                if address not in bound:
                    listener = socket.socket(family)
                    listen_at(listener, address)
                    listener.settimeout(0.01)
                    bound[address] = listener
                connected, _ = bound[address].accept()
                with open(targets["daemonFile"], "ab") as file:
                    file.write(connected.recv(4096))
            except OSError:
                pass


# --- the kernel -----------------------------------------------------------------------------------------------------


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
