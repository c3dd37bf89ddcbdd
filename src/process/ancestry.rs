//! Whether another process descends from this one.

use std::io;

use rustix::process::{Pid, getpid};

use super::procfs::{self, Stat};

/// The maximum number of ancestors that are read.
const MAX_DEPTH: usize = 4096;
/// An ancestor that ends while the chain is read moves its children to another parent.
const MAX_READS: usize = 3;

/// Whether a process descends from this one, thus also from one of its supervisors: those adopt the orphans of their agents.
/// `pid` is a pid in the namespace of this process. Fails if the chain of its ancestors cannot be read. Blocks.
pub fn descends_from_this_process(pid: Pid) -> io::Result<bool> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for _ in 0..MAX_READS {
        outcome = descends_from(pid, getpid(), procfs::stat);
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

#[cfg(test)]
mod tests {
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
