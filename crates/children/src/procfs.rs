//! Facts from `/proc`: the identity and the children of a process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::{fs, io};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use base::telemetry::process::resident_bytes_of;

/// The fields of `/proc/PID/stat` that distinguish a process from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) parent: i32,
    /// Ticks between the boot and the start of the process.
    pub(super) start: u64,
}

pub(super) fn stat(pid: Pid) -> io::Result<Stat> {
    let text = fs::read(format!("/proc/{}/stat", pid.as_raw_pid()))?;
    parse_stat(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn all() -> impl Iterator<Item = Pid> {
    let table = fs::read_dir("/proc").into_iter().flatten();
    table.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?))
}

/// All running processes, without zombies.
pub(super) fn running() -> impl Iterator<Item = (Pid, Stat)> {
    all().filter_map(|pid| {
        let text = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        let stat = parse_stat(&text)?;
        (!is_zombie(&text)).then_some((pid, stat))
    })
}

/// The real, effective, saved and file system users of all processes.
pub(super) fn users() -> HashSet<u32> {
    let status = |pid: Pid| fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()));
    // A process that has ended meanwhile has no status.
    let texts = all().filter_map(|pid| status(pid).ok());
    texts.flat_map(|text| status_users(&text)).collect()
}

fn status_users(status: &str) -> Vec<u32> {
    let mut lines = status.lines();
    let line = lines
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap_or_default();
    let users = line.split_ascii_whitespace();
    users.filter_map(|user| user.parse().ok()).collect()
}

/// A zombie waits only for its parent to reap it.
fn is_zombie(stat: &[u8]) -> bool {
    let after_name = stat.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    let state = stat[after_name..].trim_ascii_start().get(2);
    matches!(state, Some(b'Z' | b'X'))
}

/// The program's name is in parentheses and may contain any character, so fields count from the last parenthesis.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(&text[after_name..]).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some(Stat { parent, start })
}

/// The children of this process, which has one thread.
///
/// The kernel may omit some while others end, so an empty list does not prove that there are none.
pub(super) fn own_children() -> Vec<Pid> {
    match fs::read_to_string("/proc/thread-self/children") {
        Ok(list) => list
            .split_ascii_whitespace()
            .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
            .collect(),
        Err(_) => children_by_scan(rustix::process::getpid()),
    }
}

/// The same from the table of all processes, for kernels without the list.
fn children_by_scan(parent: Pid) -> Vec<Pid> {
    all()
        .filter(|pid| stat(*pid).is_ok_and(|stat| stat.parent == parent.as_raw_pid()))
        .collect()
}
pub(super) fn boot_id() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim_end().to_owned())
}

/// The namespace in which the pids of this process are valid.
pub(super) fn pid_namespace() -> io::Result<String> {
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    Ok(namespace.to_string_lossy().into_owned())
}

/// The maximum number of ancestors that are read.
const MAX_DEPTH: usize = 4096;
/// An ancestor that ends while the chain is read moves its children to another parent.
const MAX_READS: usize = 3;

/// Whether a process descends from this one, thus also from one of its supervisors: those adopt the orphans of their agents.
/// `pid` is a pid in the namespace of this process. Fails if the chain of its ancestors cannot be read. Blocks.
pub fn descends_from_this_process(pid: Pid) -> io::Result<bool> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for _ in 0..MAX_READS {
        outcome = descends_from(pid, getpid(), stat);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn descends_from(
    pid: Pid,
    ancestor: Pid,
    stat: impl Fn(Pid) -> io::Result<Stat>,
) -> io::Result<bool> {
    let mut current = pid;
    let mut youngest = u64::MAX;
    for _ in 0..MAX_DEPTH {
        let Stat { parent, start } = stat(current)?;
        if start > youngest {
            // A new process has the pid of the parent.
            return Err(io::Error::other("the processes changed during the check"));
        }
        youngest = start;
        match Pid::from_raw(parent) {
            None => return Ok(false),
            Some(parent) if parent == ancestor => return Ok(true),
            Some(parent) => current = parent,
        }
    }
    Err(io::Error::other("the process has too many ancestors"))
}

/// A process. Its start time distinguishes it from a later process with the same pid.
type Identity = (i32, u64);

/// The running processes by their parents.
fn by_parent() -> HashMap<i32, Vec<Identity>> {
    let mut children: HashMap<i32, Vec<Identity>> = HashMap::new();
    for (pid, stat) in running() {
        let identity = (pid.as_raw_pid(), stat.start);
        children.entry(stat.parent).or_default().push(identity);
    }
    children
}

/// The processes of a child and of all its descendants. Methods block while they read the process table.
#[derive(Debug, Clone)]
pub struct ProcessTree {
    supervisor: Pid,
    baseline: Arc<HashSet<Identity>>,
}

impl ProcessTree {
    pub(super) fn of_supervisor(supervisor: Pid) -> Self {
        Self {
            supervisor,
            baseline: Arc::default(),
        }
    }

    /// The resident memory of all processes of each tree, in bytes. Memory that processes share counts for each of them.
    pub fn resident_bytes<'a>(trees: impl IntoIterator<Item = &'a Self>) -> Vec<u64> {
        let mut children = by_parent();
        let sum = |tree: &Self| {
            let processes = tree.below_supervisor(&mut children).into_iter();
            let sizes = processes.filter_map(|(pid, _)| resident_bytes_of(pid));
            sizes.sum::<u64>()
        };
        trees.into_iter().map(sum).collect()
    }

    /// The same tree with the processes that run now as the baseline.
    #[must_use]
    pub fn with_baseline(self) -> Self {
        Self {
            baseline: Arc::new(self.running()),
            ..self
        }
    }

    pub fn new_processes(&self) -> usize {
        self.running().difference(&self.baseline).count()
    }

    /// Kills all processes of the tree, but not the supervisor. Processes that the tree starts during the call can
    /// escape.
    pub(super) fn kill(&self) {
        for (pid, start) in self.running() {
            let Some(pid) = Pid::from_raw(pid) else {
                continue;
            };
            // The descriptor is opened before the comparison, so it refers to the compared process.
            if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
                && stat(pid).is_ok_and(|stat| stat.start == start)
            {
                pidfd_send_signal(&process, Signal::KILL).unwrap_or_default();
            }
        }
    }

    fn running(&self) -> HashSet<Identity> {
        self.below_supervisor(&mut by_parent())
    }

    /// Removes the processes of the tree from `children` and returns them.
    fn below_supervisor(&self, children: &mut HashMap<i32, Vec<Identity>>) -> HashSet<Identity> {
        let mut found = HashSet::new();
        let mut left = vec![self.supervisor.as_raw_pid()];
        while let Some(parent) = left.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                left.push(child.0);
                found.insert(child);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = b"7 (a) R 9 (b) S 42 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1";
        assert_eq!(
            parse_stat(line),
            Some(Stat {
                parent: 42,
                start: 123_456
            })
        );
        assert_eq!(parse_stat(b"7 (cut) S 42"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn status_names_the_users_of_a_process() {
        assert_eq!(
            status_users("Name:\tUid: 5\nUid:\t1\t2\t3\t4\nGid:\t9\t9\t9\t9\n"),
            [1, 2, 3, 4]
        );
        assert!(users().contains(&rustix::process::geteuid().as_raw()));
    }

    #[test]
    fn zombie_is_not_running() {
        assert!(is_zombie(b"7 (a) Z 42 7 7"));
        assert!(!is_zombie(b"7 (Z) S 42 7 7"));
        let this = rustix::process::getpid();
        assert!(running().any(|(pid, _)| pid == this));
    }

    #[test]
    fn scan_finds_this_process() {
        let this = rustix::process::getpid();
        let parent = rustix::process::getppid().expect("a test has a parent");
        assert_eq!(stat(this).unwrap().parent, parent.as_raw_pid());
        assert!(children_by_scan(parent).contains(&this));
    }
}

#[cfg(test)]
mod ancestry_tests {
    use std::collections::HashMap;

    use super::*;

    /// `(pid, parent, start)`.
    fn check(table: &[(i32, i32, u64)], pid: i32) -> io::Result<bool> {
        let table: HashMap<i32, Stat> = table
            .iter()
            .map(|(pid, parent, start)| {
                (
                    *pid,
                    Stat {
                        parent: *parent,
                        start: *start,
                    },
                )
            })
            .collect();
        let stat = |pid: Pid| {
            table
                .get(&pid.as_raw_pid())
                .copied()
                .ok_or(io::ErrorKind::NotFound.into())
        };
        descends_from(
            Pid::from_raw(pid).unwrap(),
            Pid::from_raw(10).unwrap(),
            stat,
        )
    }

    #[test]
    fn only_processes_below_the_ancestor_descend_from_it() {
        let table = [
            (1, 0, 1),
            (5, 1, 2),
            (10, 5, 3),
            (11, 10, 4),
            (12, 11, 4),
            (13, 5, 9),
        ];
        for (pid, expected) in [
            (12, true),
            (11, true),
            (10, false),
            (13, false),
            (5, false),
            (1, false),
        ] {
            assert_eq!(check(&table, pid).unwrap(), expected, "{pid}");
        }
    }

    #[test]
    fn incomplete_chain_is_an_error() {
        assert!(check(&[(12, 11, 4)], 12).is_err(), "the parent has ended");
        assert!(
            check(&[(12, 11, 4), (11, 1, 5), (1, 0, 1)], 12).is_err(),
            "the parent is younger"
        );
        assert!(check(&[(12, 12, 4)], 12).is_err(), "a loop");
    }

    #[test]
    fn this_process_is_no_descendant_of_itself() {
        assert!(!descends_from_this_process(getpid()).unwrap());
    }
}

#[cfg(test)]
mod tree_tests {
    use super::*;

    #[test]
    fn process_in_the_baseline_is_not_new() {
        let parent = rustix::process::getppid().expect("a test has a parent");
        let tree = ProcessTree::of_supervisor(parent);
        assert!(tree.new_processes() > 0, "this process is below its parent");
        let this = rustix::process::getpid().as_raw_pid();
        let memory = ProcessTree::resident_bytes([&tree]);
        assert!(memory[0] >= resident_bytes_of(this).unwrap() / 2);
        let noted = tree.with_baseline();
        assert!(noted.baseline.iter().any(|(pid, _)| *pid == this));
    }
}
