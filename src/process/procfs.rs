//! Facts from `/proc`: the identity and the children of a process.

use std::collections::HashSet;
use std::{fs, io};

use rustix::process::Pid;

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

/// All running processes, without zombies.
pub(super) fn running() -> impl Iterator<Item = (Pid, Stat)> {
    let table = fs::read_dir("/proc").into_iter().flatten();
    table.filter_map(|entry| {
        let pid = Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?)?;
        let text = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
        Some((pid, parse_stat(&text).filter(|_| !is_zombie(&text))?))
    })
}

/// The real, effective, saved and file system users of all processes.
pub(super) fn users() -> HashSet<u32> {
    let table = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = table.filter(|entry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .iter()
            .all(u8::is_ascii_digit)
    });
    // A process that has ended meanwhile has no status.
    let texts = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    texts.flat_map(|text| status_users(&text)).collect()
}

fn status_users(status: &str) -> Vec<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap_or_default();
    line.split_ascii_whitespace()
        .filter_map(|user| user.parse().ok())
        .collect()
}

/// A zombie waits only for its parent to reap it.
fn is_zombie(stat: &[u8]) -> bool {
    let after_name = stat.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    stat[after_name..]
        .trim_ascii_start()
        .get(2)
        .is_some_and(|state| matches!(state, b'Z' | b'X'))
}

/// The program's name is in parentheses and may contain any character, so fields count from the last parenthesis.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after_name..])
        .ok()?
        .split_ascii_whitespace();
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
    let Ok(table) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    table
        .filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .filter(|pid| stat(*pid).is_ok_and(|stat| stat.parent == parent.as_raw_pid()))
        .collect()
}

/// The id of the current boot.
pub(super) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim_end()
        .to_owned())
}

/// The namespace in which the pids of this process are valid.
pub(super) fn pid_namespace() -> io::Result<String> {
    Ok(fs::read_link("/proc/self/ns/pid")?
        .to_string_lossy()
        .into_owned())
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
