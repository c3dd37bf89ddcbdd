//! The memory, the processor time and the open files of processes, as Linux reports them.

use std::fmt::Display;
use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The resident memory of this process.
pub fn resident_bytes() -> Option<u64> {
    resident_bytes_of("self")
}

/// The resident memory of the process with this id. `None` if it has ended.
pub fn resident_bytes_of(pid: impl Display) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

pub fn processor_seconds() -> f64 {
    let time = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
    time.unwrap_or_default().as_secs_f64()
}

pub fn open_files() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    // Since Linux 6.2, the size of the folder is the number of its entries. A list of many thousand files takes milliseconds.
    match fs::metadata(FOLDER).ok()?.len() {
        0 => Some(fs::read_dir(FOLDER).ok()?.count() as u64),
        files => Some(files),
    }
}

/// `None`: there is no limit.
pub fn max_open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_this_process_are_read() {
        let memory = resident_bytes().unwrap();
        assert!(memory > 1 << 20);
        assert!(resident_bytes_of(std::process::id()).unwrap() > memory / 2);
        assert_eq!(resident_bytes_of(0), None);
        assert!(processor_seconds() > 0.0);
        let _file = fs::File::open("/proc/self/status").unwrap();
        let open = open_files().unwrap();
        assert!(open > 3);
        assert!(max_open_files().is_none_or(|max| max >= open));
    }
}
