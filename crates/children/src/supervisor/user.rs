//! The user of the program, if it is not that of the supervisor.
//!
//! The last stage changes the user, and then sets the death signal again, because the change clears it. The
//! supervisors stay root, so an agent cannot signal or trace them. With namespaces the supervisor is root only inside,
//! and its id map contains root and the user.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};

use rustix::fs::{Access, Mode, OFlags, access, openat};
use rustix::io::Errno;
use rustix::process::{Gid, Pid, Uid, getpid, getppid};
use rustix::thread::{CapabilitySet, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::error::SupervisorError;
use super::restrict;
use super::stage::stage_command;
use crate::isolation::{Confinement, ids};

/// The capabilities of a supervisor in namespaces: it starts programs as another user, and kills them.
pub(super) const CAPABILITIES: [CapabilitySet; 4] = [
    CapabilitySet::SETUID,
    CapabilitySet::SETGID,
    CapabilitySet::SETPCAP,
    CapabilitySet::KILL,
];

/// Becomes the user of the program, without groups and capabilities. This process has one thread.
///
/// The kernel clears the death signal.
pub(super) fn become_user(confinement: &Confinement) -> Result<(), SupervisorError> {
    let Some(user) = confinement.user else {
        return Ok(());
    };
    restrict::reduce_bounding_set(CapabilitySet::empty());
    let (owner, group) = ids(user);
    set_thread_groups(&[]).map_err(SupervisorError::at("groups"))?;
    set_thread_res_gid(group, group, group).map_err(SupervisorError::at("group"))?;
    set_thread_res_uid(owner, owner, owner).map_err(SupervisorError::at("user"))?;
    restrict::drop_capabilities()?;
    for folder in &confinement.writable {
        access(folder, Access::READ_OK | Access::EXEC_OK)
            .map_err(|error| unusable(user, &folder.display(), error))?;
    }
    Ok(())
}

/// Drops the supplementary groups of this process, because members of some groups can start programs through a service.
/// If the kernel forbids it (the process is not root, or runs in a container), the groups stay and this is not an
/// error.
pub(super) fn drop_groups() -> rustix::io::Result<()> {
    match set_thread_groups(&[]) {
        Err(Errno::PERM) => Ok(()),
        dropped => dropped,
    }
}

/// Checks that the user can list and enter a folder. Requires a process of root with one thread: drops its groups,
/// switches its effective user and group for the check, and back to root.
pub(super) fn check_folder(
    user: u32,
    folder: impl AsFd,
    name: &dyn std::fmt::Display,
) -> io::Result<()> {
    let (owner, group) = ids(user);
    set_thread_groups(&[])?;
    set_thread_res_gid(None, group, None)?;
    let switched = set_thread_res_uid(None, owner, None);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = switched.and_then(|()| openat(folder, ".", flags, Mode::empty()));
    set_thread_res_uid(None, Uid::ROOT, None)?;
    set_thread_res_gid(None, Gid::ROOT, None)?;
    opened.map_err(|error| unusable(user, name, error).source)?;
    Ok(())
}

fn unusable(user: u32, folder: &dyn std::fmt::Display, error: Errno) -> SupervisorError {
    let text =
        format!("the user {user} of `isolation.run_as` cannot use the folder {folder}: {error}");
    SupervisorError::at("user")(io::Error::new(error.kind(), text))
}

/// A process outside of the new user namespace of this one. Only such a process can map the ids of two users.
#[derive(Debug)]
pub(super) struct IdMaps(Child);

impl IdMaps {
    /// Starts the process. It must be outside, so this is before the new namespace.
    pub(super) fn prepare(user: u32) -> io::Result<Self> {
        let pid = getpid().as_raw_pid().to_string();
        let mut helper = stage_command("map-ids");
        helper
            .args([pid, user.to_string()])
            // The program's output belongs to the program.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(Self(helper.spawn()?))
    }

    /// Maps root and the user to themselves in the namespace of this process.
    pub(super) fn write(self) -> io::Result<()> {
        let Self(mut helper) = self;
        if let Some(mut ready) = helper.stdin.take() {
            ready.write_all(b"0")?;
        }
        let mut text = String::new();
        if let Some(errors) = helper.stderr.take() {
            errors.take(1024).read_to_string(&mut text)?;
        }
        if helper.wait()?.success() {
            Ok(())
        } else {
            Err(io::Error::other(text))
        }
    }
}

/// Writes the maps of the supervisor with this pid, after it has created its namespace.
pub(super) fn map_ids(supervisor: Option<u32>, user: Option<u32>) -> Result<(), SupervisorError> {
    let failed = |text: &str| SupervisorError::other("id maps", text);
    let (Some(supervisor), Some(user)) = (supervisor, user) else {
        return Err(failed("no ids"));
    };
    let mut ready = [0];
    // Without this byte, the supervisor has ended or failed.
    let read = io::stdin().read_exact(&mut ready);
    read.map_err(SupervisorError::at("id maps"))?;
    if getppid() != Pid::from_raw(supervisor.cast_signed()) {
        return Err(failed("the supervisor has ended"));
    }
    for map in ["uid_map", "gid_map"] {
        let maps = format!("0 0 1\n{user} {user} 1\n");
        let written = std::fs::write(format!("/proc/{supervisor}/{map}"), maps);
        written.map_err(SupervisorError::at(map))?;
    }
    Ok(())
}
