"""Actions on files and sockets: the private folder, other homes, workspaces and folders."""

import ctypes
import glob
import os
import socket
import sqlite3
import stat
import struct

from .base import LIBC, Unavailable, action, checked, content_of, creates, denied, lists, needs_secret, reads, syscall

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
