//! The processes below a supervisor, and the new ones among them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::procfs;

/// A process. Its start time distinguishes it from a later process with the same pid.
type Identity = (i32, u64);

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

    /// The same tree with the processes that run now as the baseline.
    #[must_use]
    pub fn with_baseline(self) -> Self {
        Self {
            baseline: Arc::new(self.running()),
            ..self
        }
    }

    /// The number of running processes that are not in the baseline.
    pub fn new_processes(&self) -> usize {
        self.running().difference(&self.baseline).count()
    }

    /// Kills all processes of the tree, but not the supervisor. A process that starts others meanwhile can escape.
    pub(super) fn kill(&self) {
        for (pid, start) in self.running() {
            let Some(pid) = Pid::from_raw(pid) else {
                continue;
            };
            // The descriptor is opened before the comparison, so it refers to the compared process.
            if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
                && procfs::stat(pid).is_ok_and(|stat| stat.start == start)
            {
                pidfd_send_signal(&process, Signal::KILL).unwrap_or_default();
            }
        }
    }

    fn running(&self) -> HashSet<Identity> {
        let mut children: HashMap<i32, Vec<Identity>> = HashMap::new();
        for (pid, stat) in procfs::running() {
            children
                .entry(stat.parent)
                .or_default()
                .push((pid.as_raw_pid(), stat.start));
        }
        let (mut found, mut left) = (HashSet::new(), vec![self.supervisor.as_raw_pid()]);
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
    fn process_in_the_baseline_is_not_new() {
        let parent = rustix::process::getppid().expect("a test has a parent");
        let tree = ProcessTree::of_supervisor(parent);
        assert!(tree.new_processes() > 0, "this process is below its parent");
        let this = rustix::process::getpid().as_raw_pid();
        let noted = tree.with_baseline();
        assert!(noted.baseline.iter().any(|(pid, _)| *pid == this));
    }
}
