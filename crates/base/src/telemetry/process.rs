//! The memory, the processor time and the open files of this process, as Linux reports them.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(super) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

pub(super) fn processor_seconds() -> f64 {
    let time = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
    time.unwrap_or_default().as_secs_f64()
}

pub(super) fn open_files() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    // Since Linux 6.2, the size of the folder is the number of its entries. A list of many thousand files takes milliseconds.
    match fs::metadata(FOLDER).ok()?.len() {
        0 => Some(fs::read_dir(FOLDER).ok()?.count() as u64),
        files => Some(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_this_process_are_read() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        assert!(processor_seconds() > 0.0);
        let _file = fs::File::open("/proc/self/status").unwrap();
        assert!(open_files().unwrap() > 3);
    }
}
