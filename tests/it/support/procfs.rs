//! Reads `/proc`.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = stat.rsplit_once(") ")?.1.split(' ');
    Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
}

/// Whether a signal has stopped all threads of a process. They stop one after another.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

fn pids() -> impl Iterator<Item = u32> {
    let all = std::fs::read_dir("/proc").expect("/proc");
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// All running descendants of a process, in any session, without zombies.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in pids() {
        if let Some((state, parent)) = stat(pid)
            && !matches!(state, 'Z' | 'X')
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = VecDeque::from([of]);
    while let Some(pid) = open.pop_front() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.push(child);
            open.push_back(child);
        }
    }
    found
}

/// The processes among these that run this program.
pub(crate) fn running(pids: &[u32], program: &Path) -> usize {
    let runs =
        |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    pids.iter().filter(|pid| runs(**pid)).count()
}

/// Memory that a process holds, in KiB.
pub(crate) fn resident(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most memory that it ever held.
pub(crate) fn highest(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|text| text.strip_prefix(line))
        .expect("a process has memory");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number of KiB")
}

/// The processor time of a process and all its threads, in ticks of the system.
pub(crate) fn processor_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat
        .rsplit_once(") ")
        .expect("a name in brackets")
        .1
        .split(' ')
        .collect();
    // `utime` and `stime` are the fields 14 and 15. The state, the first one here, is field 3.
    let ticks = |field: usize| fields[field - 3].parse::<u64>().expect("a number");
    ticks(14) + ticks(15)
}

/// Bytes that a process has written, to files and pipes.
pub(crate) fn written(pid: u32) -> u64 {
    transferred(pid, "wchar: ")
}

/// Bytes that it has read, from files, pipes and sockets.
pub(crate) fn read(pid: u32) -> u64 {
    transferred(pid, "rchar: ")
}

fn transferred(pid: u32, line: &str) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("it runs, and is ours");
    let line = io
        .lines()
        .find_map(|text| text.strip_prefix(line))
        .expect("a process is accounted for");
    line.parse().expect("a number")
}

/// The connections that a server on this port of loopback has not closed.
pub(crate) fn connections(port: u16) -> usize {
    const ESTABLISHED: &str = "01";
    const CLOSE_WAIT: &str = "08";
    let local = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel has a table");
    let is_open = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(&local) && matches!(fields.nth(1), Some(ESTABLISHED | CLOSE_WAIT))
    };
    table.lines().filter(is_open).count()
}

/// The number of open descriptors of a process, for its user if it is dumpable, and for root.
pub(crate) fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it runs")
        .count()
}

/// All running processes with this home, in any session and with any parent: a gateway, its supervisors, their agents
/// and descendants. For each the pid, the start time (in ticks since boot) and the command.
pub(crate) fn at_home(home: &Path) -> Vec<(u32, u64, String)> {
    let home = format!("HOME={}", home.display());
    let home = home.trim_end_matches('/').as_bytes();
    let is_there = |pid: u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|word| word == home)
    };
    let known = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((
            pid,
            started(pid)?,
            String::from_utf8_lossy(&line).replace('\0', " "),
        ))
    };
    pids()
        .filter(|pid| is_there(*pid))
        .filter_map(known)
        .collect()
}

/// When a process started, in ticks since the machine did; none when it does not run any more.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let members: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // The 3rd and the 22nd member.
    if matches!(members.first(), Some(&("Z" | "X"))) {
        None
    } else {
        members.get(19)?.parse().ok()
    }
}

/// The processes among these whose first argument has this value.
pub(crate) fn called(pids: &[u32], argument: &str) -> usize {
    let first = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .nth(1)
            .is_some_and(|word| word == argument.as_bytes())
    };
    pids.iter().filter(|pid| first(**pid)).count()
}

/// Whether a process on this machine owns the end `port` of a connection with `peer`.
pub(crate) fn holds(port: u16, peer: u16) -> bool {
    /// Established, and closed only by the other end. The kernel owns a socket that its process has closed.
    const HELD: [&str; 2] = ["01", "08"];
    let port = format!(":{port:04X}");
    let peer = format!(":{peer:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("/proc");
    table.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&port))
            && fields.next().is_some_and(|remote| remote.ends_with(&peer))
            && fields.next().is_some_and(|state| HELD.contains(&state))
    })
}
