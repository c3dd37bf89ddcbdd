//! `export` and `import`: move one session to another gateway.
//!
//! The file is a log with one session, compressed with gzip, whose checksum finds every damaged or missing byte. `export` reads
//! the stored log, as `backup` does. A running gateway imports, because only it appends events: the command unpacks the file into
//! the private folder and asks the gateway over its control socket.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::backup::{
    EXPORT_PART, IMPORT_PART, STDIO, parent_dir, part_name, remove_stale_parts,
    remove_stale_parts_in, rename_no_replace, report_missing,
};
use super::output::Failure;
use super::source::{local_config, open_beside_gateway};
use super::{lock, output};
use crate::app;
use crate::config::{Config, Flags};
use crate::control::{Access, ControlClient};
use base::types::{Ids, SessionId};
use events::event::{ActorKind, ExportForm, SessionExported};
use log::audit::pending_entry;
use log::store::{Batch, Disk, MAX_EXPORTED_RECORD_BYTES, RecordStore as _};
use sessions::session::{self, Imported, MAX_EXPORTED_FILE_BYTES};

/// The limit for the size of a database beyond the content of its rows.
const OVERHEAD_BYTES: u64 = 64 << 20;
const BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The id of the session
    session: SessionId,
    /// The new file, or - for stdout
    file: PathBuf,
    /// Leave out the files of the folder that the gateway created for the session
    #[arg(long)]
    no_files: bool,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The file of an export, or - for stdin
    file: PathBuf,
    /// The user that owns the session. Default: the one in the file
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error("{} already exists: an export does not overwrite a file", .0.display())]
    Exists(PathBuf),
    #[error("stdout is a terminal: name a file, or redirect the output with > FILE")]
    Terminal,
    #[error("could not write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("could not read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("{} is damaged or incomplete, or no file of an export", .0.display())]
    Damaged(PathBuf),
    #[error("{} is too large: its content has more than {max} bytes", .file.display())]
    TooLarge { file: PathBuf, max: u64 },
    #[error(
        "the import of {} needs {needed} bytes or more, and the disk has {free} free, of which `retention.min_free_disk_bytes` \
         and `retention.min_free_disk_percent` keep {kept}: free more space",
        .file.display()
    )]
    NoRoom {
        file: PathBuf,
        needed: u64,
        free: u64,
        kept: u64,
    },
    #[error("no gateway runs on the data folder {}: start it, and import again", .0.display())]
    NotRunning(PathBuf),
    #[error("could not import {}", .0.display())]
    Import(PathBuf, #[source] Failure),
}

pub(super) fn export(args: &ExportArgs, flags: &Flags) -> Result<(), Failure> {
    let file = &args.file;
    let (gateway, _lock) = open_beside_gateway(flags)?;
    let to_stdout = file == Path::new(STDIO);
    if to_stdout && io::stdout().is_terminal() {
        return Err(TransferError::Terminal.into());
    }
    if !to_stdout && file.exists() {
        return Err(TransferError::Exists(file.clone()).into());
    }
    remove_stale_parts(&gateway.data);
    let ids = Ids::system();
    let store = app::open_store(&gateway.data, &gateway.limits.log, &ids)?;
    let part = gateway.data.private().join(part_name(EXPORT_PART));
    let with_files = !args.no_files;
    let log = gateway.data.log();
    let exported = session::export(&log, &store, args.session, with_files, &part);
    let content = File::open(&part);
    // The open file remains readable.
    remove_part(&part);
    let exported = exported?;
    let content = content?;
    // The audit log has the export before anyone can read it.
    let event = SessionExported {
        session_id: args.session,
        form: ExportForm::File,
    };
    store.commit(&Batch {
        records: vec![pending_entry(&ids, ActorKind::CommandLine, event)],
        ..Batch::default()
    })?;
    if to_stdout {
        return Ok(pack(content, io::stdout().lock()).map(drop)?);
    }
    let failed = |error| TransferError::Write(file.clone(), error);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    remove_stale_parts_in(parent_dir(file), &name);
    let packed = parent_dir(file).join(part_name(&name));
    let written = create_part(&packed)
        .and_then(|part| pack(content, part))
        .and_then(|part| part.sync_all())
        .and_then(|()| rename_no_replace(&packed, file));
    if let Err(error) = written {
        remove_part(&packed);
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => TransferError::Exists(file.clone()),
            _ => failed(error),
        }
        .into());
    }
    let synced = File::open(parent_dir(file)).and_then(|folder| folder.sync_all());
    synced.map_err(failed)?;
    Ok(output::write_line(&format!(
        "{}: session {}, files: {}, events of the audit log: {}",
        file.display(),
        args.session,
        exported.files,
        exported.audit_events
    ))?)
}

pub(super) fn import(args: &ImportArgs, flags: &Flags) -> Result<(), Failure> {
    let gateway = local_config(flags)?;
    lock::check_log(&gateway.data)?;
    // The gateway must be able to read the unpacked file.
    lock::check_owner(&gateway.data)?;
    if !lock::is_held(&gateway.data)? {
        return Err(TransferError::NotRunning(gateway.data.path().to_owned()).into());
    }
    let mut control = ControlClient::connect(&gateway.data.private())?;
    control.hello(Access::OwnKey)?;
    remove_stale_parts(&gateway.data);
    let name = part_name(IMPORT_PART);
    let part = gateway.data.private().join(&name);
    let unpacked = unpack(&args.file, &part, &gateway);
    let imported = unpacked.map_err(Failure::from).and_then(|()| {
        let imported = control.import(&name, args.owner.as_deref());
        imported.map_err(|error| TransferError::Import(args.file.clone(), error.into()).into())
    });
    remove_part(&part);
    let imported: Imported = serde_json::from_value(imported?)?;
    output::write_line(&format!(
        "session {} is now session {}, files: {}",
        imported.imported_from, imported.session_id, imported.files
    ))?;
    let missing = imported.missing_folders.into_iter().map(PathBuf::from);
    report_missing(&missing.collect::<BTreeSet<_>>())
}

/// Compresses a file into `target`, and returns it.
fn pack<W: Write>(mut content: File, target: W) -> io::Result<W> {
    let mut encoder = GzEncoder::new(BufWriter::new(target), Compression::fast());
    io::copy(&mut content, &mut encoder)?;
    let target = encoder.finish()?.into_inner();
    target.map_err(io::IntoInnerError::into_error)
}

/// Unpacks the file of an export, within the limits of its size and of the disk.
fn unpack(file: &Path, part: &Path, gateway: &Config) -> Result<(), TransferError> {
    let read_failed = |error: io::Error| match error.kind() {
        // The errors of the decoder.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            TransferError::Damaged(file.to_owned())
        }
        _ => TransferError::Read(file.to_owned(), error),
    };
    let write_failed = |error| TransferError::Write(part.to_owned(), error);
    let source: Box<dyn Read> = if file == Path::new(STDIO) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(file).map_err(read_failed)?))
    };
    let limits = &gateway.limits.log;
    let max = MAX_EXPORTED_FILE_BYTES + MAX_EXPORTED_RECORD_BYTES + OVERHEAD_BYTES;
    let max = max.saturating_add(limits.max_session_log_bytes);
    let disk = Disk::of(parent_dir(part)).map_err(write_failed)?;
    let kept = disk.min_free(limits);
    let mut decoder = GzDecoder::new(source);
    let mut target = create_part(part).map_err(write_failed)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        let count = decoder.read(&mut buffer).map_err(read_failed)?;
        if count == 0 {
            return Ok(());
        }
        bytes += count as u64;
        let file = file.to_owned();
        if bytes > max {
            return Err(TransferError::TooLarge { file, max });
        }
        // The imported session needs the same space again.
        let needed = 2 * bytes;
        if needed > disk.free.saturating_sub(kept) {
            let free = disk.free;
            return Err(TransferError::NoRoom {
                file,
                needed,
                free,
                kept,
            });
        }
        target.write_all(&buffer[..count]).map_err(write_failed)?;
    }
}

fn create_part(part: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(part)
}

/// Removes a temporary file and the files that SQLite created beside it. The next command or start removes what remains.
fn remove_part(part: &Path) {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let mut path = part.as_os_str().to_owned();
        path.push(suffix);
        let _ = fs::remove_file(path);
    }
}
