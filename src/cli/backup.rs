//! `backup` and `restore`: the log as one file, taken beside a gateway that runs, and put back where none does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use super::{Failure, Options, lock, output};
use crate::config::DataDir;
use crate::store::{self, CheckReport};
use crate::types::Ids;

/// Stands for stdout, or stdin.
const STDIO: &str = "-";
/// What copies are called on their way to stdout and from stdin.
const BACKUP_PART: &str = "backup";
const RESTORE_PART: &str = "restore";

#[derive(Debug, thiserror::Error)]
enum BackupError {
    #[error("there is no log in {}", .0.display())]
    NoLog(PathBuf),
    #[error("{} is there already; a backup overwrites nothing", .0.display())]
    Exists(PathBuf),
    #[error("a backup is not written to a terminal; name a file, or send it on with > FILE")]
    Terminal,
    #[error("{} cannot be written", path.display())]
    Write { path: PathBuf, source: Failure },
    #[error("{} cannot be put in the place of the log", path.display())]
    Restore { path: PathBuf, source: Failure },
}

pub(super) fn backup(file: &Path, options: &Options) -> Result<(), Failure> {
    let gateway = options.local_config()?;
    let log = gateway.data.log();
    if !log.exists() {
        return Err(BackupError::NoLog(gateway.data.path().to_owned()).into());
    }
    // A gateway that runs goes on; none starts meanwhile.
    let _lock = lock::acquire_unless_running(&gateway.data)?;
    remove_stale_parts(&gateway.data);
    if file == Path::new(STDIO) {
        if io::stdout().is_terminal() {
            return Err(BackupError::Terminal.into());
        }
        let part = gateway.data.private().join(part_name(BACKUP_PART));
        copy(&log, &part)?;
        // Without a name before it is sent: whoever takes it may go away in the middle.
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
        drop(fs::remove_file(&part));
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(file.to_owned()),
            _ => BackupError::Write { path: file.to_owned(), source: error.into() },
        }
        .into());
    }
    File::open(parent_dir(file))?.sync_all()?;
    Ok(output::write_line(&format!("{}: {}", file.display(), summary(&checked)))?)
}

pub(super) fn restore(file: &Path, options: &Options) -> Result<(), Failure> {
    let gateway = options.local_config()?;
    lock::create_layout(&gateway.data)?;
    let _lock = lock::acquire(&gateway.data)?;
    remove_stale_parts(&gateway.data);
    let log = gateway.data.log();
    let from_stdin = file == Path::new(STDIO);
    let source = if from_stdin { gateway.data.private().join(part_name(RESTORE_PART)) } else { file.to_owned() };
    if from_stdin {
        // One that was broken off may have left it, under a process id that is ours now.
        let mut options = OpenOptions::new();
        let mut part = options.write(true).create(true).truncate(true).mode(0o600).open(&source)?;
        if let Err(error) = io::copy(&mut io::stdin().lock(), &mut part) {
            drop(fs::remove_file(&source));
            return Err(error.into());
        }
    }
    let restored = store::restore(&source, &log, &Ids::system());
    if from_stdin {
        fs::remove_file(&source)?;
    }
    let restored =
        restored.map_err(|error| BackupError::Restore { path: file.to_owned(), source: error.into() })?;
    output::write_line(&format!("restored: {}", summary(&restored.checked)))?;
    if let Some(kept) = restored.previous {
        output::write_line(&format!("the log that was there is {} now", kept.display()))?;
    }
    Ok(())
}

fn copy(log: &Path, part: &Path) -> Result<CheckReport, BackupError> {
    let written = store::copy(log, part);
    written.map_err(|error| BackupError::Write { path: part.to_owned(), source: error.into() })
}

/// A name beside the final one, of this process alone.
fn part_name(name: &str) -> String {
    format!(".{name}.{}.part", std::process::id())
}

/// Removes what backups and restores left below the data folder that were broken off.
pub(super) fn remove_stale_parts(data: &DataDir) {
    for name in [BACKUP_PART, RESTORE_PART] {
        remove_stale_parts_in(&data.private(), name);
    }
}

/// Removes the parts of this name whose processes are gone. What cannot be removed is in nobody's way.
fn remove_stale_parts_in(folder: &Path, name: &str) {
    let left = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in left.filter(|entry| is_stale_part(&entry.file_name().to_string_lossy(), name)) {
        if let Err(error) = fs::remove_file(entry.path()) {
            tracing::warn!(%error, file = %entry.path().display(), "a file is left behind");
        }
    }
}

/// Whether a file is such a part, or what SQLite put beside it.
fn is_stale_part(file: &str, name: &str) -> bool {
    let part = file.strip_prefix(&format!(".{name}.")).and_then(|rest| rest.split_once(".part"));
    let Some((pid, beside)) = part else { return false };
    let gone = |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    ["", "-journal", "-wal", "-shm"].contains(&beside)
        && pid.parse().ok().and_then(rustix::process::Pid::from_raw).is_some_and(gone)
}

fn parent_dir(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives the file its name, if that is free until the last moment.
fn rename_no_replace(part: &Path, file: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, part, CWD, file, RenameFlags::NOREPLACE) {
        // A file system that cannot compare: it was free a moment ago.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => fs::rename(part, file),
        named => Ok(named?),
    }
}

fn summary(CheckReport { runs, damaged, .. }: &CheckReport) -> String {
    match damaged {
        0 => format!("{runs} runs of events, all in order"),
        _ => format!("{runs} runs of events in order, and {damaged} that were damaged before"),
    }
}
