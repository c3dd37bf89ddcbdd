//! The namespaces of an isolated child. The supervisor creates them, and the init process inside completes them.

use std::fs;

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};
use rustix::process::{
    DumpableBehavior, Signal, getgid, getuid, set_dumpable_behavior,
    set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
    set_no_new_privs,
};

use super::error::SupervisorError;
use super::mounts::Mounts;
use super::restrict;
use super::user::{self, IdMaps};
use crate::isolation::Confinement;

/// The capabilities of the init process: `SYS_ADMIN` to mount `/proc`, and `SETPCAP` to reduce the bounding set.
const INIT_CAPABILITIES: [CapabilitySet; 2] = [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP];

/// The settings and triggers of the kernel in `/proc`.
const KERNEL_SETTINGS: [&str; 6] = [
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
    "/proc/scsi",
];

/// Moves this process to its own user, mount and IPC namespaces, and its next child to a PID namespace. The child
/// keeps the ids of its user, and can mount.
pub(super) fn enter(confinement: &Confinement) -> Result<Mounts, SupervisorError> {
    let user = getuid().as_raw();
    let group = getgid().as_raw();
    let two_users = confinement.user.map(IdMaps::prepare).transpose();
    let two_users = two_users.map_err(SupervisorError::at("id maps"))?;
    let own = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC;
    unshare(own).map_err(SupervisorError::at("namespaces"))?;
    if let Some(maps) = two_users {
        maps.write().map_err(SupervisorError::at("id maps"))?;
    } else {
        // If the user may not read the executable, as in the container images, the process is not dumpable, and root owns
        // its files in `/proc`. `exec::detach` reverts this.
        set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(SupervisorError::at("dumpable"))?;
        // An unprivileged process may map a group only after it gave up `setgroups` (user_namespaces(7)).
        fs::write("/proc/self/setgroups", "deny").map_err(SupervisorError::at("setgroups"))?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))
            .map_err(SupervisorError::at("user map"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
            .map_err(SupervisorError::at("group map"))?;
    }
    set_no_new_privs(true).map_err(SupervisorError::at("no_new_privs"))?;
    let mounts = Mounts::apply(confinement)?;
    let mut sets = capabilities(None).map_err(SupervisorError::at("capabilities"))?;
    sets.inheritable = INIT_CAPABILITIES.into_iter().collect();
    set_capabilities(None, sets).map_err(SupervisorError::at("capabilities"))?;
    for capability in INIT_CAPABILITIES {
        configure_capability_in_ambient_set(capability, true)
            .map_err(SupervisorError::at("ambient capabilities"))?;
    }
    Ok(mounts)
}

/// Completes the namespaces inside: `/proc` shows only processes of the namespace. Then drops all capabilities, except
/// those that start a program as another user.
pub(super) fn complete(confinement: &Confinement) -> Result<(), SupervisorError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(SupervisorError::at("death signal"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(SupervisorError::at("/proc"))?;
    if confinement.child_is_root() {
        protect_kernel_settings().map_err(SupervisorError::at("/proc"))?;
    }
    let kept = match confinement.user {
        Some(_) => user::CAPABILITIES.into_iter().collect(),
        None => CapabilitySet::empty(),
    };
    restrict::keep_capabilities(kept)?;
    // The stages inherit it. Otherwise the program could trace the stages of its terminals before they have a filter.
    restrict::filter_system_calls(confinement, true)
}

/// Makes the parts of `/proc` read-only through which root controls the kernel. Root needs no capability for them.
fn protect_kernel_settings() -> rustix::io::Result<()> {
    for path in KERNEL_SETTINGS {
        match mount_bind(path, path) {
            Ok(()) => {}
            // This kernel lacks the feature.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        }
        let flags =
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
        mount_remount(path, MountFlags::BIND | flags, c"")?;
    }
    Ok(())
}
