//! The restrictions that a program and its descendants inherit: a filter of system calls, and Landlock rules.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope, path_beneath_rules,
};
use nix::libc;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::error::SupervisorError;
use crate::process::isolation::Confinement;
use crate::types::Mechanism;

/// The first version with rules for signals and abstract sockets.
const SCOPES: ABI = ABI::V6;

/// Folders for temporary files of all processes.
const SHARED_FOLDERS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

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

/// The maximum number of processes and threads of the user in this user namespace, the maximum size of a file, and the
/// maximum size of the data of one process.
const RESOURCES: [(Resource, u64); 3] =
    [(Resource::Nproc, 4096), (Resource::Fsize, 64 << 30), (Resource::Data, 32 << 30)];

/// Distinguishes the second system call table of `x86_64`.
const X32_BIT: i64 = 0x4000_0000;

/// Restricts this process.
pub(super) fn apply(confinement: &Confinement) -> Result<(), SupervisorError> {
    if matches!(confinement.mechanism, Mechanism::None | Mechanism::Command) {
        return Ok(());
    }
    limit_resources().map_err(SupervisorError::at("resource limits"))?;
    match confinement.mechanism {
        Mechanism::None | Mechanism::Command => Ok(()),
        // The namespaces contain signals. Abstract sockets belong to the network, which is shared.
        Mechanism::Namespaces => restrict_scopes(CompatLevel::BestEffort),
        Mechanism::Landlock => {
            restrict_files(confinement).and_then(|()| restrict_scopes(CompatLevel::HardRequirement))
        }
        Mechanism::Partial => {
            restrict_files(confinement).and_then(|()| restrict_scopes(CompatLevel::BestEffort))
        }
    }
    .map_err(|error| SupervisorError { step: "landlock", source: io::Error::other(error) })?;
    filter_system_calls()
        .map_err(|error| SupervisorError { step: "seccomp", source: io::Error::other(error) })
}

/// Limits this process and its descendants. A lower limit of the environment stays.
fn limit_resources() -> rustix::io::Result<()> {
    for (resource, wanted) in RESOURCES {
        let maximum = getrlimit(resource).maximum.map_or(wanted, |maximum| maximum.min(wanted));
        setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })?;
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

/// Denies access to the content of hidden and shared folders.
fn restrict_files(confinement: &Confinement) -> Result<(), RulesetError> {
    let all = AccessFs::from_all(ABI::V5);
    let reads: BitFlags<AccessFs> = AccessFs::from_read(ABI::V5);
    let closed: Vec<PathBuf> =
        confinement.hidden.iter().cloned().chain(SHARED_FOLDERS.map(PathBuf::from)).collect();
    let mut open = Vec::new();
    collect_open(Path::new("/"), &closed, &mut open);
    let devices = reads | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate;
    let (common, visible) = if confinement.read_only { (reads, reads) } else { (all, all) };
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .add_rules(path_beneath_rules(&open, common))?
        .add_rules(path_beneath_rules(["/dev", "/proc"].iter().filter(|_| confinement.read_only), devices))?
        .add_rules(path_beneath_rules(&confinement.visible, visible))?
        .add_rules(path_beneath_rules(confinement.writable.iter().chain(&confinement.temporary), all))?
        .restrict_self()
        .map(|_| ())
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

/// Makes the denied system calls fail with `EPERM`.
fn filter_system_calls() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let second_table = DENIED.map(|number| number | X32_BIT);
    let second_table = second_table.iter().filter(|_| cfg!(target_arch = "x86_64"));
    let rules = DENIED.iter().chain(second_table).map(|number| (*number, Vec::new())).collect();
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, std::env::consts::ARCH.try_into()?)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
