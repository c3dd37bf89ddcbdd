//! A control group of the test. Each start of a gateway gets a group below it, which belongs to the user of the gateway.

use std::path::{Component, Path, PathBuf};

use rustix::process::getpid;

use super::ground::User;
use crate::support::control_groups;

/// Dropping it kills its processes and removes it.
#[derive(Debug)]
pub(super) struct DelegatedGroup {
    folder: PathBuf,
    user: User,
}

impl DelegatedGroup {
    /// `None` if the machine permits no group. Only root can delegate one.
    pub(super) fn create(user: User) -> Option<Self> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = folder_of("self")?.join(format!("test-{}-{next}", getpid().as_raw_pid()));
        std::fs::create_dir(&folder).ok()?;
        for change in ["+pids", "+memory"] {
            // This machine may have none for cgroup2.
            drop(std::fs::write(
                folder.join("cgroup.subtree_control"),
                change,
            ));
        }
        Some(Self { folder, user })
    }

    /// The groups of the starts.
    pub(super) fn starts(&self) -> Vec<PathBuf> {
        control_groups::below(&self.folder)
    }

    /// The words of a program that enters a new group.
    pub(super) fn words(&self) -> Vec<String> {
        const ENTER: &str = "mkdir \"$0/$$\" && chown -R \"$1\" \"$0/$$\" && echo 0 >\"$0/$$/cgroup.procs\" && shift && exec \"$@\"";
        let owner = self.user.id().to_string();
        ["sh", "-c", ENTER, &self.folder.to_string_lossy(), &owner]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Drop for DelegatedGroup {
    fn drop(&mut self) {
        control_groups::end(&self.folder);
    }
}

/// The group of a process in the file system.
pub(super) fn folder_of(pid: &str) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc");
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let point = mount.split(' ').nth(4).expect("a mount has a folder");
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    let below = path.strip_prefix("/").expect("an absolute path");
    let is_visible = below.components().all(|part| part != Component::ParentDir);
    is_visible.then(|| {
        if below.as_os_str().is_empty() {
            point.into()
        } else {
            Path::new(point).join(below)
        }
    })
}
