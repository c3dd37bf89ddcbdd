//! One control group, as a folder of the file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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

    /// Creates the group `name` below this one.
    pub(super) fn create(&self, name: &str) -> io::Result<Self> {
        let folder = self.0.join(name);
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// The groups directly below this one.
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
        OpenOptions::new()
            .write(true)
            .open(self.0.join(file))?
            .write_all(value.as_bytes())
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.0.join(file))
    }

    /// The number after a word, in a file with one word and one number on each line. 0 if there is none.
    pub(super) fn number(&self, file: &str, word: &str) -> u64 {
        let text = self.read(file).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        let mut numbers = pairs
            .filter(|(name, _)| *name == word)
            .filter_map(|(_, number)| number.parse().ok());
        numbers.next().unwrap_or(0)
    }

    /// The processes that are directly in the group. A process outside of this PID namespace has no pid.
    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        let text = self.read(PROCESSES)?;
        Ok(text
            .lines()
            .filter_map(|line| line.parse().ok())
            .filter(|pid| *pid > 0)
            .collect())
    }

    /// Opens the file through which a process moves itself to this group.
    pub(super) fn open_processes(&self) -> io::Result<OwnedFd> {
        Ok(OpenOptions::new()
            .write(true)
            .open(self.0.join(PROCESSES))?
            .into())
    }

    /// Whether the kernel can kill a group: since Linux 5.14.
    pub(super) fn can_be_killed(&self) -> bool {
        self.0.join(KILL).exists()
    }

    /// Kills all processes of the group and of the groups below. New processes of the killed ones die too.
    pub(super) fn kill(&self) -> io::Result<()> {
        self.write(KILL, "1")
    }

    /// Whether the group or a group below has processes.
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
            poll(
                &mut [PollFd::new(&events, PollFlags::PRI)],
                Some(&KILL_ROUND),
            )
            .unwrap_or(0);
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
