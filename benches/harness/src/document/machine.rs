//! The machine, the software and the date of a measurement. The text names no host, person or path.

use std::fs;
use std::process::Command;

/// The description as a markdown list.
pub(crate) fn describe(rounds: usize) -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .unwrap_or_default();
    let memory = memory
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<f64>().ok())
        .unwrap_or_default();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or_default();
    let kernel = rustix::system::uname();
    let kernel = kernel.release().to_string_lossy();
    // A build may have a local suffix after the number.
    let kernel = kernel.split('-').next().unwrap_or_default();
    format!(
        "- {}, rounds: {rounds}\n- {}, {cores} cores, {:.0} GiB of memory\n- {}, kernel {kernel}\n- {}",
        output_of("date", &["-u", "+%-d %B %Y"]),
        cpu.trim_start_matches([' ', '\t', ':']),
        memory / f64::from(1 << 20),
        system.trim_matches('"'),
        output_of("rustc", &["--version"]),
    )
}

/// The output of a program.
fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
