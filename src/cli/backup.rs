//! `backup` and `restore`: the log as one file, taken beside a gateway that runs, and put back where none does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use super::{Failure, Options, lock, output};
use crate::store::{self, Checked};
use crate::types::Ids;

/// Stands for stdout, or stdin.
const STREAM: &str = "-";

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
    let gateway = options.beside()?;
    let log = gateway.data.log();
    if !log.exists() {
        return Err(BackupError::NoLog(gateway.data.path().to_owned()).into());
    }
    // A gateway that runs goes on; none starts meanwhile.
    let _lock = lock::beside_gateway(&gateway.data)?;
    if file == Path::new(STREAM) {
        if io::stdout().is_terminal() {
            return Err(BackupError::Terminal.into());
        }
        let part = gateway.data.private().join(part_of("backup"));
        copy(&log, &part)?;
        let sent = File::open(&part).and_then(|mut file| io::copy(&mut file, &mut io::stdout().lock()));
        fs::remove_file(&part)?;
        sent?;
        return Ok(());
    }
    if file.exists() {
        return Err(BackupError::Exists(file.to_owned()).into());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let part = folder_of(file).join(part_of(&name));
    let checked = copy(&log, &part)?;
    if let Err(error) = name_finally(&part, file) {
        drop(fs::remove_file(&part));
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(file.to_owned()),
            _ => BackupError::Write { path: file.to_owned(), source: error.into() },
        }
        .into());
    }
    File::open(folder_of(file))?.sync_all()?;
    Ok(output::line(&format!("{}: {}", file.display(), told(&checked)))?)
}

pub(super) fn restore(file: &Path, options: &Options) -> Result<(), Failure> {
    let gateway = options.beside()?;
    lock::lay_out(&gateway.data)?;
    let _lock = lock::take(&gateway.data)?;
    let log = gateway.data.log();
    let from_stdin = file == Path::new(STREAM);
    let source = if from_stdin { gateway.data.private().join(part_of("restore")) } else { file.to_owned() };
    if from_stdin {
        // One that was broken off may have left it.
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
    output::line(&format!("restored: {}", told(&restored.checked)))?;
    if let Some(kept) = restored.kept {
        output::line(&format!("the log that was there is {} now", kept.display()))?;
    }
    Ok(())
}

fn copy(log: &Path, part: &Path) -> Result<Checked, BackupError> {
    let written = store::copy(log, part);
    written.map_err(|error| BackupError::Write { path: part.to_owned(), source: error.into() })
}

/// A name beside the final one, of this process alone.
fn part_of(name: &str) -> String {
    format!(".{name}.{}.part", std::process::id())
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives the file its name, if that is free until the last moment.
fn name_finally(part: &Path, file: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, part, CWD, file, RenameFlags::NOREPLACE) {
        // A file system that cannot compare: it was free a moment ago.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => fs::rename(part, file),
        named => Ok(named?),
    }
}

fn told(Checked { runs, damaged, .. }: &Checked) -> String {
    match damaged {
        0 => format!("{runs} runs of events, all in order"),
        _ => format!("{runs} runs of events in order, and {damaged} that were damaged before"),
    }
}
