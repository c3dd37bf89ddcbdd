//! Processor time and memory of processes, as reported by the kernel.

use std::fs;

/// The processor time of all threads, in nanoseconds. Clock ticks would be too coarse.
pub(crate) fn cpu(pids: &[u32]) -> u64 {
    let thread = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    pids.iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok())
        .flat_map(|tasks| tasks.flatten().filter_map(move |task| thread(task.path())))
        .sum()
}

/// The resident memory in KiB.
pub(crate) fn rss(pids: &[u32]) -> f64 {
    pids.iter().filter_map(|pid| status(*pid, "VmRSS:")).sum()
}

/// The number of threads of a process.
pub(crate) fn threads(pid: u32) -> f64 {
    status(pid, "Threads:").unwrap_or_default()
}

fn status(pid: u32, key: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The running child processes of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_time_memory_and_a_thread() {
        let me = [std::process::id()];
        let before = cpu(&me);
        let mut work = 0_u64;
        while cpu(&me) == before {
            work = std::hint::black_box(work + 1);
        }
        assert!(rss(&me) > 500.0, "{}", rss(&me));
        assert!(threads(me[0]) >= 1.0);
        assert_eq!(cpu(&[u32::MAX]), 0);
    }
}
