//! One control group, as a folder of the file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::spec::ResourceLimits;

/// The file that lists the processes of a group. A write moves a process to the group.
pub(super) const PROCESSES: &str = "cgroup.procs";

/// The file of all controllers that the groups below a group have.
pub(super) const CHILD_CONTROLLERS: &str = "cgroup.subtree_control";

const KILL: &str = "cgroup.kill";
const EVENTS: &str = "cgroup.events";

/// The time between two rounds of KILL.
const KILL_ROUND: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group(PathBuf);

impl Group {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn create(&self, name: &str) -> io::Result<Self> {
        let folder = self.0.join(name);
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    pub(super) fn children(&self) -> io::Result<Vec<Self>> {
        let mut children = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                children.push(Self(entry.path()));
            }
        }
        Ok(children)
    }

    /// Writes to a file of the group. The kernel creates these files, this process does not.
    pub(super) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.0.join(file))?;
        file.write_all(value.as_bytes())
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.0.join(file))
    }

    /// The number after a word, in a file with one word and one number on each line. 0 if there is none.
    pub(super) fn number(&self, file: &str, word: &str) -> u64 {
        let text = self.read(file).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        let mut named = pairs.filter(|(name, _)| *name == word);
        let number = named.find_map(|(_, number)| number.parse().ok());
        number.unwrap_or(0)
    }

    /// The processes that are directly in the group. A process outside of this PID namespace has no pid.
    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        let text = self.read(PROCESSES)?;
        let pids = text.lines().filter_map(|line| line.parse().ok());
        Ok(pids.filter(|pid| *pid > 0).collect())
    }

    /// Opens the file through which a process moves itself to this group.
    pub(super) fn open_processes(&self) -> io::Result<OwnedFd> {
        let file = OpenOptions::new()
            .write(true)
            .open(self.0.join(PROCESSES))?;
        Ok(file.into())
    }

    /// Whether the kernel can kill a group: since Linux 5.14.
    pub(super) fn can_be_killed(&self) -> bool {
        self.0.join(KILL).exists()
    }

    /// Kills all processes of the group and of the groups below. New processes of the killed ones die too.
    pub(super) fn kill(&self) -> io::Result<()> {
        self.write(KILL, "1")
    }

    pub(super) fn has_processes(&self) -> bool {
        self.number(EVENTS, "populated") > 0
    }

    /// Kills all processes and waits for their end. Returns false if a process still exists after `limit`.
    pub(super) fn end(&self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + limit;
        let events = File::open(self.0.join(EVENTS))?;
        while self.has_processes() {
            if Instant::now() > deadline {
                return Ok(false);
            }
            self.kill()?;
            // The kernel reports a change of the file as urgent data. The next iteration detects a missed one.
            let mut watched = [PollFd::new(&events, PollFlags::PRI)];
            poll(&mut watched, Some(&KILL_ROUND)).unwrap_or(0);
        }
        Ok(true)
    }

    /// Removes the group with all groups below. They have no processes.
    pub(super) fn remove(&self) -> io::Result<()> {
        for child in self.children()? {
            child.remove()?;
        }
        fs::remove_dir(&self.0)
    }
}

pub(super) const PIDS: &str = "pids";
pub(super) const MEMORY: &str = "memory";

/// The maximum number of groups below that of a child. An agent can create them only in its own namespaces.
const MAX_DESCENDANTS: &str = "256";

/// The kernel kills a group within milliseconds, unless a process hangs in it.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The group with the limits of one child. Dropping it ends all its processes and removes it, which blocks.
#[derive(Debug)]
pub(crate) struct ChildGroup {
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
    pub(crate) fn entrance(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.entrance)
    }

    pub(crate) fn kill(&self) {
        if let Err(error) = self.group.kill() {
            tracing::warn!(group = %self.group.folder().display(), %error, "could not kill a control group");
        }
    }

    /// Ends all processes that still exist. Returns the limit of memory if the kernel killed a process because of it. Blocks.
    pub(crate) fn end(&self) -> Option<u64> {
        let folder = self.group.folder().display();
        match self.group.end(KILL_TIMEOUT) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(group = %folder, "a process of a control group survives KILL");
            }
            Err(error) => tracing::warn!(group = %folder, %error, "could not end a control group"),
        }
        let max_processes = self.limits.max_processes;
        let max_memory_bytes = self.limits.max_memory_bytes;
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
    if controllers.contains(&PIDS) {
        group.write("pids.max", &limits.max_processes.to_string())?;
    }
    if controllers.contains(&MEMORY) {
        group.write("memory.max", &limits.max_memory_bytes.to_string())?;
    }
    group.write("cgroup.max.descendants", MAX_DESCENDANTS)
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        let ended = self.group.end(KILL_TIMEOUT);
        let ended = ended.and_then(|_| self.group.remove());
        if let Err(error) = ended {
            tracing::warn!(group = %self.group.folder().display(), %error, "could not remove a control group");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_word() {
        let folder = tempfile::tempdir().unwrap();
        let group = Group::at(folder.path().to_owned());
        fs::write(
            folder.path().join("memory.events"),
            "oom 3\noom_kill 2\noom_group_kill 1\n",
        )
        .unwrap();
        assert_eq!(group.number("memory.events", "oom_kill"), 2);
        assert_eq!(group.number("memory.events", "kill"), 0);
        assert_eq!(group.number("pids.events", "max"), 0);
    }

    #[test]
    fn processes_of_other_namespaces_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(PROCESSES), "1\n0\n27\n").unwrap();
        assert_eq!(
            Group::at(folder.path().to_owned()).processes().unwrap(),
            [1, 27]
        );
    }
}

#[cfg(test)]
mod child_group_tests {
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
