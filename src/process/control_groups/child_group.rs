//! The control group of one child: an agent, its terminals and all their descendants.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::group::Group;
use crate::types::ResourceLimits;

/// The controllers of the limits.
pub(super) const PIDS: &str = "pids";
pub(super) const MEMORY: &str = "memory";

/// The maximum number of groups below that of a child. An agent can create them only in its own namespaces.
const MAX_DESCENDANTS: &str = "256";

/// The kernel kills a group within milliseconds, unless a process hangs in it.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The group with the limits of one child. Dropping it ends all its processes and removes it, which blocks.
#[derive(Debug)]
pub(in crate::process) struct ChildGroup {
    group: Group,
    limits: ResourceLimits,
    /// Moves the process that writes to it.
    entrance: Arc<OwnedFd>,
}

impl ChildGroup {
    /// Creates the group `name` below `parent`, whose groups have these controllers.
    pub(super) fn create(
        parent: &Group,
        name: &str,
        limits: ResourceLimits,
        controllers: &[&str],
    ) -> io::Result<Self> {
        let group = parent.create(name)?;
        let entrance = set_limits(&group, limits, controllers)
            .and_then(|()| group.create("program"))
            .and_then(|program| program.open_processes());
        match entrance {
            Ok(entrance) => Ok(Self {
                group,
                limits,
                entrance: Arc::new(entrance),
            }),
            Err(error) => {
                // The error of the creation matters. A start of the gateway removes the group.
                group.remove().unwrap_or_default();
                Err(error)
            }
        }
    }

    /// The descriptor with which a stage of the supervisor enters the group.
    pub(in crate::process) fn entrance(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.entrance)
    }

    /// Kills all processes of the child, and does not wait.
    pub(in crate::process) fn kill(&self) {
        if let Err(error) = self.group.kill() {
            tracing::warn!(group = %self.group.folder().display(), %error, "could not kill a control group");
        }
    }

    /// Ends all processes that still exist. Returns the limit of memory if the kernel killed a process because of it. Blocks.
    pub(in crate::process) fn end(&self) -> Option<u64> {
        let folder = self.group.folder().display();
        match self.group.end(KILL_TIMEOUT) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(group = %folder, "a process of a control group survives KILL");
            }
            Err(error) => tracing::warn!(group = %folder, %error, "could not end a control group"),
        }
        let ResourceLimits {
            max_processes,
            max_memory_bytes,
        } = self.limits;
        if self.group.number("pids.events", "max") > 0 {
            tracing::warn!(group = %folder, max_processes, "an agent reached its maximum number of processes");
        }
        let killed = self.group.number("memory.events", "oom_kill");
        if killed == 0 {
            return None;
        }
        tracing::warn!(
            group = %folder,
            killed,
            max_memory_bytes,
            "the kernel killed processes of an agent that used more memory than `max_memory_bytes`"
        );
        Some(max_memory_bytes)
    }
}

fn set_limits(group: &Group, limits: ResourceLimits, controllers: &[&str]) -> io::Result<()> {
    let ResourceLimits {
        max_processes,
        max_memory_bytes,
    } = limits;
    if controllers.contains(&PIDS) {
        group.write("pids.max", &max_processes.to_string())?;
    }
    if controllers.contains(&MEMORY) {
        group.write("memory.max", &max_memory_bytes.to_string())?;
    }
    group.write("cgroup.max.descendants", MAX_DESCENDANTS)
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        let ended = self
            .group
            .end(KILL_TIMEOUT)
            .and_then(|_| self.group.remove());
        if let Err(error) = ended {
            tracing::warn!(group = %self.group.folder().display(), %error, "could not remove a control group");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::mem::forget;

    use super::*;

    const LIMITS: ResourceLimits = ResourceLimits {
        max_processes: 12,
        max_memory_bytes: 3_000_000,
    };

    /// A folder with the files that the kernel would create.
    fn scripted(files: &[(&str, &str)]) -> (tempfile::TempDir, Group) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let group = Group::at(folder.path().to_owned());
        (folder, group)
    }

    #[test]
    fn only_enabled_controllers_get_limits() {
        let files = [
            ("pids.max", "max"),
            ("memory.max", "max"),
            ("cgroup.max.descendants", "max"),
        ];
        let (_folder, group) = scripted(&files);
        set_limits(&group, LIMITS, &[MEMORY]).unwrap();
        assert_eq!(group.read("memory.max").unwrap(), "3000000");
        assert_eq!(group.read("pids.max").unwrap(), "max");
        set_limits(&group, LIMITS, &[PIDS, MEMORY]).unwrap();
        assert!(group.read("pids.max").unwrap().starts_with("12"));
        let (_folder, without_files) = scripted(&[]);
        assert!(
            set_limits(&without_files, LIMITS, &[MEMORY]).is_err(),
            "a limit is never omitted silently"
        );
    }

    #[test]
    fn kill_by_the_limit_of_memory_is_reported_with_the_limit() {
        for (events, reported) in [
            ("low 0\noom 1\noom_kill 1\n", Some(LIMITS.max_memory_bytes)),
            ("oom 1\noom_kill 0\n", None),
        ] {
            let (folder, group) = scripted(&[
                ("cgroup.events", "populated 0\n"),
                ("memory.events", events),
            ]);
            let entrance = Arc::new(fs::File::open(folder.path()).unwrap().into());
            let child = ChildGroup {
                group,
                limits: LIMITS,
                entrance,
            };
            assert_eq!(child.end(), reported);
            // Its drop would remove the folder, whose files a kernel would remove.
            forget(child);
        }
    }
}
