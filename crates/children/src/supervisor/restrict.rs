//! The restrictions that a program and its descendants inherit: a filter of system calls, and Landlock rules.
//!
//! With namespaces, the init process applies the filter, and the last stage limits signals and abstract sockets.
//! Without namespaces, the last stage applies Landlock rules for files and the filter too.
//!
//! Landlock rules only add rights. Therefore parents of closed folders get no rule, and a child can change nothing in
//! them. A closed folder below an open one stays open.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use nix::libc;
use rustix::fs::{FileType, fstat};
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::error::SupervisorError;
use crate::isolation::{Confinement, shared_folders};
use crate::real_folder::{open_real_file, open_real_folder};
use base::types::{FolderError, Mechanism};

/// The first version with rules for signals and abstract sockets.
const SCOPES: ABI = ABI::V6;

/// The first version with a rule for connections to socket files.
const SOCKET_FILES: ABI = ABI::V9;

/// Terminals and message queues of all processes.
const SHARED_DEVICES: [&str; 2] = ["/dev/pts", "/dev/mqueue"];

/// The devices that a root process can open. Disks and the memory of the machine belong to root.
pub(super) const STANDARD_DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The files that create pseudo terminals.
const TERMINAL_CREATION: [&str; 2] = ["/dev/ptmx", "/dev/pts/ptmx"];

/// Folders that every process can read, and that only processes without isolation can change.
const READABLE: [&str; 2] = ["/proc", "/sys"];

/// System calls that no agent needs and that widened the rights of processes in the past: kernel keys, tracing,
/// and input and output that bypasses filters.
const DENIED: [i64; 9] = [
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// System calls that reach memory and messages of processes outside of the child. The IPC namespace contains them.
const SHARED_OBJECTS: [i64; 9] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The maximum size of a file.
const MAX_FILE_BYTES: u64 = 64 << 30;

/// Distinguishes the second system call table of `x86_64`.
const X32_BIT: i64 = 0x4000_0000;

pub(super) fn apply(confinement: &Confinement) -> Result<(), SupervisorError> {
    let has_namespaces = match confinement.mechanism {
        Mechanism::Namespaces => true,
        Mechanism::Landlock | Mechanism::Partial => false,
        Mechanism::None | Mechanism::Command => return Ok(()),
    };
    limit_resources(confinement).map_err(SupervisorError::at("resource limits"))?;
    let level = if confinement.is_partial {
        CompatLevel::BestEffort
    } else {
        CompatLevel::HardRequirement
    };
    if has_namespaces {
        // The namespaces contain signals. Abstract sockets belong to the network, which is shared.
        restrict_scopes(level).map_err(|error| SupervisorError::other("landlock", error))?;
        // The init process has the filter of system calls.
        return Ok(());
    }
    restrict_files(confinement, level)?;
    // Landlock has no rules for the other rights of root.
    drop_capabilities()?;
    filter_system_calls(confinement, false)
}

/// Limits this process and its descendants. A lower limit of the environment stays.
fn limit_resources(confinement: &Confinement) -> rustix::io::Result<()> {
    let limits = [
        (Resource::Nproc, confinement.maximum.processes),
        (Resource::Fsize, Some(MAX_FILE_BYTES)),
        (Resource::Data, confinement.maximum.data_bytes),
    ];
    for (resource, limit) in limits {
        let Some(limit) = limit else { continue };
        let maximum = getrlimit(resource).maximum;
        let maximum = Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
        let limit = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

/// Denies signals to processes, and connections to abstract sockets, outside of this process's descendants.
fn restrict_scopes(level: CompatLevel) -> Result<(), RulesetError> {
    Ruleset::default()
        .set_compatibility(level)
        .scope(Scope::from_all(SCOPES))?
        .create()?
        .restrict_self()
        .map(|_| ())
}

/// Denies access to the content of hidden and shared folders, and to their socket files if the kernel can. Also denies
/// signals and abstract sockets as [`restrict_scopes`] does: a second ruleset, without rules for files, would deny all
/// renames between folders.
fn restrict_files(confinement: &Confinement, scopes: CompatLevel) -> Result<(), SupervisorError> {
    let all = AccessFs::from_all(SOCKET_FILES);
    // A connection changes no file. Name resolution and programs connect to socket files in readable folders.
    let reads: BitFlags<AccessFs> = AccessFs::from_read(SOCKET_FILES) | AccessFs::ResolveUnix;
    let mut closed = confinement.hidden.clone();
    closed.extend(shared_folders());
    closed.extend(SHARED_DEVICES.map(PathBuf::from));
    // `/proc` and `/sys` control the kernel and other processes.
    closed.extend(READABLE.map(PathBuf::from));
    let device = reads | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate;
    let mut devices: Vec<PathBuf> = TERMINAL_CREATION.map(PathBuf::from).to_vec();
    if getuid().is_root() {
        closed.push("/dev".into());
        devices.extend(STANDARD_DEVICES.map(|name| Path::new("/dev").join(name)));
    } else if confinement.read_only {
        collect_open(Path::new("/dev"), &closed, &mut devices);
    }
    let mut open = Vec::new();
    collect_open(Path::new("/"), &closed, &mut open);
    let common = if confinement.read_only { reads } else { all };
    let mut rules = Vec::new();
    // If an agent replaces a file during the start, no rule covers the new file.
    let open = open.iter().filter_map(|path| open_real_file(path).ok());
    rules.extend(open.map(|opened| rule(opened, common)));
    let readable = confinement.readable.iter();
    let readable = readable.filter_map(|folder| open_real_folder(&folder.real).ok());
    rules.extend(readable.map(|folder| rule(folder, reads)));
    let visible = confinement.visible.iter().map(|folder| (folder, common));
    let writable = confinement.writable.iter().chain(&confinement.temporary);
    for (folder, rights) in visible.chain(writable.map(|folder| (folder, all))) {
        match open_real_folder(folder) {
            Ok(opened) => rules.push(rule(opened, rights)),
            // A terminal can start after its folder was removed.
            Err(FolderError::Missing { .. }) => {}
            Err(error) => return Err(SupervisorError::at("folders")(error)),
        }
    }
    let restrict = || {
        Ruleset::default()
            .set_compatibility(scopes)
            .scope(Scope::from_all(SCOPES))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .create()?
            .add_rules(path_beneath_rules(devices, device))?
            .add_rules(path_beneath_rules(READABLE, reads))?
            .add_rules(rules.into_iter().map(Ok::<_, RulesetError>))?
            .restrict_self()
            .map(|_| ())
    };
    restrict().map_err(|error| SupervisorError::other("landlock", error))
}

/// A rule for an open file or folder and everything below it.
fn rule(opened: OwnedFd, rights: BitFlags<AccessFs>) -> PathBeneath<OwnedFd> {
    let kind = fstat(&opened).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let is_folder = kind == Ok(FileType::Directory);
    let rights = if is_folder {
        rights
    } else {
        rights & AccessFs::from_file(SOCKET_FILES)
    };
    PathBeneath::new(opened, rights)
}

/// Collects the folders and files that contain no closed folder. Landlock rules can only add rights, so the
/// parents of closed folders get none.
fn collect_open(folder: &Path, closed: &[PathBuf], open: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // A rule for a link would open its target.
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink())) {
        let path = entry.path();
        if closed.contains(&path) {
            continue;
        }
        if closed.iter().any(|closed| closed.starts_with(&path)) {
            collect_open(&path, closed, open);
        } else {
            open.push(path);
        }
    }
}

/// Makes the denied system calls of this process and its descendants fail with `EPERM`.
pub(super) fn filter_system_calls(
    confinement: &Confinement,
    has_namespaces: bool,
) -> Result<(), SupervisorError> {
    let applied = apply_filters(confinement.child_is_root(), has_namespaces);
    applied.map_err(|error| SupervisorError::other("seccomp", error))
}

fn apply_filters(
    is_root: bool,
    has_namespaces: bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let shared: &[i64] = if has_namespaces { &[] } else { &SHARED_OBJECTS };
    let denied = DENIED.iter().chain(shared);
    let mut calls: Vec<(i64, Vec<SeccompRule>)> =
        denied.map(|number| (*number, Vec::new())).collect();
    if !has_namespaces {
        // A limit of processor time kills another process. Pid 0 is the caller.
        let foreign = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
        calls.push((libc::SYS_prlimit64, vec![SeccompRule::new(vec![foreign])?]));
    }
    if is_root {
        calls.extend(new_control_groups()?);
        // The flags of this call are in memory, where a filter cannot read them. Programs fall back to `clone`.
        apply_filter(vec![(libc::SYS_clone3, Vec::new())], libc::ENOSYS)?;
    }
    apply_filter(calls, libc::EPERM)
}

/// Namespaces of control groups. In them a process could mount its control group, whose files belong to root, and kill
/// the gateway through them.
fn new_control_groups() -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let flag = u64::from(libc::CLONE_NEWCGROUP.cast_unsigned());
    let creates = || {
        let has_flag = SeccompCmpOp::MaskedEq(flag);
        let flags = SeccompCondition::new(0, SeccompCmpArgLen::Dword, has_flag, flag)?;
        SeccompRule::new(vec![flags])
    };
    Ok(vec![
        (libc::SYS_unshare, vec![creates()?]),
        (libc::SYS_clone, vec![creates()?]),
    ])
}

fn apply_filter(
    calls: Vec<(i64, Vec<SeccompRule>)>,
    error: i32,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.into_iter().collect();
    if cfg!(target_arch = "x86_64") {
        let second_table = rules.clone().into_iter();
        rules.extend(second_table.map(|(number, rules)| (number | X32_BIT, rules)));
    }
    let denied = SeccompAction::Errno(error.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// Drops all capabilities of this process and of its descendants, also of those of root.
pub(super) fn drop_capabilities() -> Result<(), SupervisorError> {
    keep_capabilities(CapabilitySet::empty())
}

/// Drops all other capabilities of this process and of its descendants. Only descendants of root keep these.
pub(super) fn keep_capabilities(kept: CapabilitySet) -> Result<(), SupervisorError> {
    reduce_bounding_set(kept);
    clear_ambient_capability_set().map_err(SupervisorError::at("ambient capabilities"))?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(SupervisorError::at("capabilities"))
}

/// No descendant of this process can get another capability again.
pub(super) fn reduce_bounding_set(kept: CapabilitySet) {
    for capability in CapabilitySet::all().difference(kept).iter() {
        // An error has no effect: an older kernel does not know the newest capabilities, and a process without SETPCAP
        // cannot gain a capability, because of no_new_privs.
        remove_capability_from_bounding_set(capability).unwrap_or_default();
    }
}
