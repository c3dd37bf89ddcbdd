//! Counts allocations per event, and their bytes.
//!
//! A library that is preloaded before libc counts all allocations of the process, including those of SQLite. Two runs
//! that differ only in the number of events show the cost of one event.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Sample;
use crate::Outcome;
use crate::agent::Prompt;
use crate::load::{self, Plan};
use crate::targets::{Gateway, Running as _};

const SOURCE: &str = include_str!("allocations.c");

/// The counts of one process at its end.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counts {
    calls: f64,
    bytes: f64,
}

impl Counts {
    fn parse(text: &str) -> Outcome<Self> {
        let (calls, bytes) = text
            .trim()
            .split_once(' ')
            .ok_or("two counts are expected")?;
        Ok(Self {
            calls: calls.parse()?,
            bytes: bytes.parse()?,
        })
    }

    /// The difference to a shorter run, for each event.
    fn for_each(self, shorter: Self, events: u64) -> (f64, f64) {
        let events = events as f64;
        (
            (self.calls - shorter.calls) / events,
            (self.bytes - shorter.bytes) / events,
        )
    }
}

/// Events at full speed share commits. Single events have a commit each.
pub(super) fn measure(
    gateway: &Gateway,
    less: impl Fn(u64) -> u64,
    folder: &Path,
) -> Outcome<Sample> {
    fs::create_dir_all(folder)?;
    let library = build(folder)?;
    let counts = folder.join("counts");
    let counted = gateway.with_environment([
        ("LD_PRELOAD", library.into_os_string()),
        ("ALLOCATION_COUNTS", counts.clone().into_os_string()),
    ]);
    let mut sample = Sample::default();
    let mut run = |prompt: Prompt| -> Outcome<Counts> {
        let up = counted.up(folder)?;
        let pid = up.workers()[0];
        let (id, last) = up.create()?;
        let report = load::live(&up, &[up.followed(&id, &last)], Plan::new(1, prompt))?;
        sample = std::mem::take(&mut sample).checked(&report);
        drop(report);
        Box::new(up).stop()?;
        let path = counts.with_extension(pid.to_string());
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // The next start is on an empty folder as well.
        fs::remove_dir_all(folder.join("data"))?;
        Counts::parse(&text)
    };
    let few = less(10_000);
    let many = less(110_000);
    let shorter = run(Prompt::burst(few))?;
    let burst = run(Prompt::burst(many))?.for_each(shorter, many - few);
    let few = less(100);
    let many = less(2600);
    let shorter = run(Prompt::paced(few, 1000))?;
    let paced = run(Prompt::paced(many, 1000))?.for_each(shorter, many - few);
    fs::remove_dir_all(folder)?;
    Ok(sample.with([
        ("burst_calls", burst.0),
        ("burst_bytes", burst.1),
        ("paced_calls", paced.0),
        ("paced_bytes", paced.1),
    ]))
}

/// Compiles the library into a folder.
fn build(folder: &Path) -> Outcome<PathBuf> {
    let library = folder.join("allocations.so");
    let mut compiler = Command::new("cc")
        .args(["-x", "c", "-O2", "-shared", "-fPIC", "-", "-o"])
        .arg(&library)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cc: {error}"))?;
    let mut stdin = compiler.stdin.take().ok_or("cc has no stdin")?;
    stdin.write_all(SOURCE.as_bytes())?;
    drop(stdin);
    let status = compiler.wait()?;
    if !status.success() {
        return Err(format!("cc: {status}").into());
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Scratch;

    #[test]
    fn the_library_counts_the_allocations_of_a_program() {
        let scratch = Scratch::new(&std::env::temp_dir(), "acp-gateway-bench-allocations").unwrap();
        let library = build(scratch.path()).unwrap();
        let prefix = scratch.path().join("counts");
        let mut child = Command::new("sort")
            .env("LD_PRELOAD", &library)
            .env("ALLOCATION_COUNTS", &prefix)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(child.wait().unwrap().success());
        let counts = fs::read_to_string(prefix.with_extension(child.id().to_string())).unwrap();
        let counted = Counts::parse(&counts).unwrap();
        assert!(
            counted.calls > 10.0 && counted.bytes > counted.calls,
            "{counted:?}"
        );
    }

    #[test]
    fn the_cost_of_an_event_is_the_difference_of_two_runs() {
        let few = Counts::parse("100 1000\n").unwrap();
        let many = Counts::parse("600 3000\n").unwrap();
        assert_eq!(many.for_each(few, 1000), (0.5, 2.0));
        assert!(Counts::parse("7").is_err());
    }
}
