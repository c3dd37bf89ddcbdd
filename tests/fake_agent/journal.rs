//! A journal of all lines that this process reads and writes, for later checks.
//!
//! Each process has one file, `<pid>.<start>`. The start time is from `/proc`, so the name is unique. A line
//! that was read begins with `< `, and a line that is about to be written begins with `> `. Each line is in
//! the file before its consequences happen, also if the process is killed then.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

static JOURNAL: OnceLock<Mutex<Journal>> = OnceLock::new();

#[derive(Debug)]
struct Journal {
    file: File,
    /// The written part of a line without its end.
    begun: Vec<u8>,
}

pub(crate) fn open(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The 22nd field. The fields before the third may contain blanks.
    let ticks = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(19))
        .unwrap_or("0");
    let name = format!("{}.{ticks}", std::process::id());
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(name))?;
    let _ = JOURNAL.set(Mutex::new(Journal {
        file,
        begun: Vec::new(),
    }));
    Ok(())
}

pub(crate) fn received(line: &[u8]) {
    keep(|journal| journal.file.write_all(&[b"< ", line, b"\n"].concat()));
}

/// Records outgoing bytes: any number of lines, or a part of a line.
pub(crate) fn sent(pieces: &[&[u8]]) {
    keep(|journal| {
        let mut lines = Vec::new();
        for part in pieces
            .iter()
            .flat_map(|piece| piece.split_inclusive(|byte| *byte == b'\n'))
        {
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
        write(&mut journal).expect("the directory of the test is writable");
    }
}
