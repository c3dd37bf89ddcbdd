//! What passed through this process's pipes, line by line, for whoever checks it afterwards.
//!
//! One file a process, `<pid>.<start>` (the start as `/proc` counts it, so that the name is of one process for good). A
//! line that was read begins with `< `, one that is about to be written with `> `. Each is in the file before what
//! follows from it happens, also when the process is killed then.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

static JOURNAL: OnceLock<Mutex<Journal>> = OnceLock::new();

#[derive(Debug)]
struct Journal {
    file: File,
    /// What was written of a line that has no end yet.
    begun: Vec<u8>,
}

pub(crate) fn open(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The 22nd member; those before the 3rd may hold blanks.
    let ticks = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)).unwrap_or("0");
    let name = format!("{}.{ticks}", std::process::id());
    let file = OpenOptions::new().create(true).append(true).open(folder.join(name))?;
    drop(JOURNAL.set(Mutex::new(Journal { file, begun: Vec::new() })));
    Ok(())
}

pub(crate) fn received(line: &[u8]) {
    keep(|journal| journal.file.write_all(&[b"< ", line, b"\n"].concat()));
}

/// Bytes on their way out: any number of lines, also a part of one.
pub(crate) fn sent(pieces: &[&[u8]]) {
    keep(|journal| {
        let mut lines = Vec::new();
        for part in pieces.iter().flat_map(|piece| piece.split_inclusive(|byte| *byte == b'\n')) {
            journal.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                lines.extend_from_slice(b"> ");
                lines.append(&mut journal.begun);
            }
        }
        journal.file.write_all(&lines)
    });
}

fn keep(write: impl FnOnce(&mut Journal) -> std::io::Result<()>) {
    if let Some(journal) = JOURNAL.get() {
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut journal).expect("the test gave a folder that can be written");
    }
}
