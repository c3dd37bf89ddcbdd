//! `backup` and `restore`: copies the log to one file, also while a gateway runs, and replaces the log with a
//! backup.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use super::output::Failure;
use super::source::{local_config, open_beside_gateway};
use super::{lock, output};
use crate::app;
use crate::config::{DataDir, Flags};
use base::types::Ids;
use log::store::{self, CheckReport};
use sessions::session::relocate_folders;

pub(super) const STDIO: &str = "-";
const BACKUP_PART: &str = "backup";
const RESTORE_PART: &str = "restore";
pub(super) const EXPORT_PART: &str = "export";
pub(super) const IMPORT_PART: &str = "import";
const MAX_LISTED_FOLDERS: usize = 20;

#[derive(Debug, thiserror::Error)]
enum BackupError {
    #[error("{} already exists: a backup does not overwrite a file", .0.display())]
    Exists(PathBuf),
    #[error("stdout is a terminal: name a file, or redirect the output with > FILE")]
    Terminal,
    #[error("could not write {}", .0.display())]
    Write(PathBuf, #[source] Failure),
    #[error("could not replace the log with {}", .0.display())]
    Restore(PathBuf, #[source] Failure),
}

pub(super) fn backup(file: &Path, flags: &Flags) -> Result<(), Failure> {
    let (gateway, _lock) = open_beside_gateway(flags)?;
    let log = gateway.data.log();
    remove_stale_parts(&gateway.data);
    if file == Path::new(STDIO) {
        if io::stdout().is_terminal() {
            return Err(BackupError::Terminal.into());
        }
        let part = gateway.data.private().join(part_name(BACKUP_PART));
        copy(&log, &part)?;
        // Unlink the copy before sending it, because the reader of stdout may stop early.
        let mut whole = File::open(&part)?;
        fs::remove_file(&part)?;
        io::copy(&mut whole, &mut io::stdout().lock())?;
        return Ok(());
    }
    if file.exists() {
        return Err(BackupError::Exists(file.to_owned()).into());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    remove_stale_parts_in(parent_dir(file), &name);
    let part = parent_dir(file).join(part_name(&name));
    let checked = copy(&log, &part)?;
    if let Err(error) = rename_no_replace(&part, file) {
        let _ = fs::remove_file(&part);
        let path = file.to_owned();
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(path),
            _ => BackupError::Write(path, error.into()),
        }
        .into());
    }
    File::open(parent_dir(file))?.sync_all()?;
    Ok(output::write_line(&format!(
        "{}: {}",
        file.display(),
        summary(&checked)
    ))?)
}

pub(super) fn restore(file: &Path, flags: &Flags) -> Result<(), Failure> {
    let gateway = local_config(flags)?;
    let from_stdin = file == Path::new(STDIO);
    let failed = |error: Failure| BackupError::Restore(file.to_owned(), error);
    if !from_stdin {
        fs::metadata(file).map_err(|error| failed(error.into()))?;
    }
    lock::create_layout(&gateway.data)?;
    let _lock = lock::acquire(&gateway.data)?;
    remove_stale_parts(&gateway.data);
    let log = gateway.data.log();
    let source = if from_stdin {
        gateway.data.private().join(part_name(RESTORE_PART))
    } else {
        file.to_owned()
    };
    if from_stdin {
        // An interrupted restore with the same process id may have left this file, so truncate it.
        let mut options = OpenOptions::new();
        let mut part = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&source)?;
        if let Err(error) = io::copy(&mut io::stdin().lock(), &mut part) {
            let _ = fs::remove_file(&source);
            return Err(error.into());
        }
    }
    let restored = store::restore(&source, &log, &Ids::system());
    if from_stdin {
        fs::remove_file(&source)?;
    }
    let restored = restored.map_err(|error| failed(error.into()))?;
    output::write_line(&format!("restored: {}", summary(&restored.checked)))?;
    if let Some(kept) = restored.previous {
        output::write_line(&format!("the previous log is now {}", kept.display()))?;
    }
    let store = app::open_store(&gateway.data, &gateway.limits.log, &Ids::system())?;
    // Sessions store real paths. A root that does not exist yet has no links.
    let root = &gateway.workspaces.root;
    let root = root.canonicalize().unwrap_or_else(|_| root.clone());
    report_missing(&relocate_folders(&*store, &root)?)
}

pub(super) fn report_missing(missing: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    output::write_line(&format!(
        "missing: {} folders of sessions; copy them, or these sessions cannot continue:",
        missing.len()
    ))?;
    for folder in missing.iter().take(MAX_LISTED_FOLDERS) {
        output::write_line(&format!("  {}", folder.display()))?;
    }
    if missing.len() > MAX_LISTED_FOLDERS {
        output::write_line("  ...")?;
    }
    Ok(())
}

fn copy(log: &Path, part: &Path) -> Result<CheckReport, BackupError> {
    let written = store::copy(log, part);
    written.map_err(|error| BackupError::Write(part.to_owned(), error.into()))
}

pub(super) fn part_name(name: &str) -> String {
    format!(".{name}.{}.part", std::process::id())
}

pub(super) fn remove_stale_parts(data: &DataDir) {
    for name in [BACKUP_PART, RESTORE_PART, EXPORT_PART, IMPORT_PART] {
        remove_stale_parts_in(&data.private(), name);
    }
}

/// Removes the temporary files with this name whose processes have ended. A failure to remove one is
/// harmless.
pub(super) fn remove_stale_parts_in(folder: &Path, name: &str) {
    let left = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in left.filter(|entry| is_stale_part(&entry.file_name().to_string_lossy(), name)) {
        if let Err(error) = fs::remove_file(entry.path()) {
            tracing::warn!(%error, file = %entry.path().display(), "could not remove a temporary file of an interrupted command");
        }
    }
}

/// Whether a file is a temporary file of an ended process, or a SQLite file that belongs to one.
fn is_stale_part(file: &str, name: &str) -> bool {
    let part = file
        .strip_prefix(&format!(".{name}."))
        .and_then(|rest| rest.split_once(".part"));
    let Some((pid, beside)) = part else {
        return false;
    };
    let gone = |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    ["", "-journal", "-wal", "-shm"].contains(&beside)
        && pid
            .parse()
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .is_some_and(gone)
}

pub(super) fn parent_dir(file: &Path) -> &Path {
    file.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Renames the temporary file to its final name; fails if a file with that name exists.
pub(super) fn rename_no_replace(part: &Path, file: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, part, CWD, file, RenameFlags::NOREPLACE) {
        // The file system does not support NOREPLACE. The caller has already checked that the name is free.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => fs::rename(part, file),
        named => Ok(named?),
    }
}

fn summary(CheckReport { runs, damaged, .. }: &CheckReport) -> String {
    match damaged {
        0 => format!("{runs} runs of events, no damage"),
        _ => format!("{runs} undamaged runs of events, {damaged} runs that were already damaged"),
    }
}
