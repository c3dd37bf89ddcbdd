//! The import of a session from the file of an export: a new session with the events, records and files of the old one.
//!
//! The file is checked completely before anything changes, and the session appears with one commit. Then everything that was open
//! at the export ends as after a crash of the gateway.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use sha2::{Digest as _, Sha256};

use super::SessionDirectory;
use crate::session::context::Context;
use crate::session::error::SessionError;
use crate::session::export::{AuditBudget, MAX_EXPORTED_FILE_BYTES, MAX_EXPORTED_FILES};
use crate::session::metadata_index::MetadataIndex;
use crate::session::record::{
    self, FoldRecord, PromptRecord, RequestRecord, SessionRecord, Stored, TerminalRecord, put_open,
    session_key,
};
use agents::agent::client_input_policy::check_meta;
use base::types::{SessionId, Tenant, UserId, is_name};
use events::event::{
    ActorKind, AuditEvent, AuditEventImported, ExactJson, SessionImported, replace_session_id,
};
use log::audit::pending_entries;
use log::eventlog::{self, Records, Summary};
use log::store::{ExportFile, OpenError, SqliteStore, Table};
use workspace::{FileError, Precondition, Upload, Workspace};

/// The maximum size of an event of the audit log.
const MAX_AUDIT_EVENT_BYTES: usize = 64 << 10;
/// The maximum number of names in the path of a file. An export contains no longer paths.
const MAX_PATH_NAMES: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the file is damaged: export the session again")]
    Damaged,
    #[error("could not read the file")]
    Open(#[source] OpenError),
    #[error(
        "the session has {bytes} bytes of events, and `retention.max_session_bytes` permits {max}"
    )]
    TooLarge { bytes: u64, max: u64 },
    #[error(
        "the owner must be the name of a user (1 to 64 letters, digits, '.', '_', '-' or '@'): name another one with --owner"
    )]
    Owner,
    #[error("the file has more events of the audit log than an export")]
    TooManyAuditEvents,
    #[error(
        "the file has more than {MAX_EXPORTED_FILES} files, or one that is more than {MAX_PATH_NAMES} levels deep"
    )]
    TooManyFiles,
    #[error("could not create the folder of the session")]
    CreateFolder(#[source] std::io::Error),
    #[error("could not write {path:?} in the folder of the session")]
    Folder {
        path: String,
        #[source]
        source: FileError,
    },
    #[error(transparent)]
    Commit(#[from] eventlog::ImportError),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<OpenError> for ImportError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Damaged(_) => Self::Damaged,
            error => Self::Open(error),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Imported {
    pub session_id: SessionId,
    pub imported_from: SessionId,
    pub files: u64,
    /// The folders of the session that do not exist on this machine.
    pub missing_folders: Vec<String>,
}

/// A checked session whose folder exists. Only its commit is missing.
struct Prepared {
    file: ExportFile,
    record: SessionRecord,
    records: Records,
    imported: Imported,
}

impl SessionDirectory {
    /// Imports the session of a file, with a new id. `owner`: the name of its user, if another one than before. On failure
    /// nothing of it remains.
    pub async fn import(
        &self,
        store: Arc<SqliteStore>,
        path: PathBuf,
        owner: Option<String>,
    ) -> Result<Imported, ImportError> {
        let context = self.context();
        if context.log.storage_full() {
            return Err(SessionError::StorageFull.into());
        }
        let id = context.log.new_session_id();
        let own = context.clone();
        let prepare = move || prepare(&own, &path, id, owner.as_deref());
        let prepared = context.shutdown.spawn_blocking(prepare).await;
        let Prepared {
            file,
            record,
            records,
            imported,
        } = prepared.map_err(SessionError::from)??;
        let user = record.owner.clone();
        let summary = record.summary(context.log.epoch().of_session(id));
        let summary = to_raw_value(&summary).expect("a summary has string keys");
        let own = user.clone();
        let commit = move |time| store.import(&file, &own, &records.changed, time);
        let committed = context
            .log
            .import(&user, id, Summary::Listed(summary.into()), commit)
            .await;
        if let Err(error) = committed {
            if record.own_folder {
                let workspaces = context.workspaces.clone();
                let remove = move || workspaces.remove_directory(&id.to_string());
                if !matches!(context.shutdown.spawn_blocking(remove).await, Ok(Ok(()))) {
                    tracing::warn!(session = %id, "could not remove the folder of a session that could not be imported");
                }
            }
            return Err(error.into());
        }
        context.begin_baseline(id);
        if !self.end_open_state(&user, id).await {
            tracing::warn!(session = %id, "the session was imported, but what was open at its export could not be ended: the next start ends it");
        }
        Ok(imported)
    }

    /// Loads a session, which ends everything that is open. False if the ends are not durable.
    async fn end_open_state(&self, user: &UserId, id: SessionId) -> bool {
        let Ok(entry) = self.entries.find(user, id).await else {
            return false;
        };
        let ended = entry.log.wait_or_full(entry.log.appended()).await;
        ended.is_ok_and(|ended| ended)
    }
}

/// Checks the file, creates the folder, and builds the records. Blocks.
fn prepare(
    context: &Context,
    path: &Path,
    id: SessionId,
    owner: Option<&str>,
) -> Result<Prepared, ImportError> {
    let mut file = ExportFile::open(path, &context.ids)?;
    let from = file.session();
    let bytes = file.event_bytes()?;
    let max = context.log.max_session_bytes();
    if bytes > max {
        return Err(ImportError::TooLarge { bytes, max });
    }
    if file.file_count()? > MAX_EXPORTED_FILES {
        return Err(ImportError::TooManyFiles);
    }
    let mut record = session_record(&file, from, id)?;
    let owner = owner.unwrap_or(record.owner.name());
    if !is_name(owner) {
        return Err(ImportError::Owner);
    }
    let owner = UserId::new(&Tenant::default(), owner);
    let last_seq = file.move_to(id, &owner, &context.log.epoch())?;
    let last_seq = last_seq.ok_or(ImportError::Damaged)?;
    if record.seq > last_seq || record.unfinished {
        return Err(ImportError::Damaged);
    }
    record.begin_import(from, owner);
    let agent = context.catalogue.agent(&record.agent);
    let meta = record.meta.take();
    record.meta =
        meta.filter(|meta| agent.is_some_and(|agent| check_meta(&agent.settings, meta).is_ok()));
    let mut records = Records::default();
    put_moved(&file, from, id, &mut records, |_: &mut FoldRecord| {})?;
    put_moved(
        &file,
        from,
        id,
        &mut records,
        |prompt: &mut PromptRecord| {
            prompt.imported = true;
        },
    )?;
    put_moved(&file, from, id, &mut records, |_: &mut RequestRecord| {})?;
    put_moved(&file, from, id, &mut records, |_: &mut TerminalRecord| {})?;
    put_audit_events(context, &file, from, id, &mut records)?;
    let mut files = 0;
    let mut missing_folders = Vec::new();
    if record.own_folder {
        let name = id.to_string();
        let folder = context.workspaces.create_directory(&name);
        let folder = folder.map_err(ImportError::CreateFolder)?;
        record.cwd = folder.to_string_lossy().into_owned();
        match fill_folder(context, &record, &file, &folder) {
            Ok(count) => files = count,
            Err(error) => {
                if let Err(error) = context.workspaces.remove_directory(&name) {
                    tracing::warn!(session = %id, %error, "could not remove the folder of a session that could not be imported");
                }
                return Err(error);
            }
        }
    }
    if !record.remote_folders {
        let folders = std::iter::once(&record.cwd).chain(&record.additional_directories);
        let missing = folders.filter(|folder| !Path::new(folder).is_dir());
        missing_folders.extend(missing.cloned());
    }
    record.put(None, &mut records);
    MetadataIndex::empty().put(&record, &mut records);
    put_open(id, record.is_open(), &mut records);
    let imported = Imported {
        session_id: id,
        imported_from: from,
        files,
        missing_folders,
    };
    Ok(Prepared {
        file,
        record,
        records,
        imported,
    })
}

/// The record of the session, with its new id.
fn session_record(
    file: &ExportFile,
    from: SessionId,
    id: SessionId,
) -> Result<SessionRecord, ImportError> {
    let stored = file.records(Table::Session)?;
    let [(key, stored)] = &stored[..] else {
        return Err(ImportError::Damaged);
    };
    let mut stored = stored.to_vec();
    replace_session_id(&mut stored, from, id);
    let record: SessionRecord = record::decode(&stored).map_err(|_| ImportError::Damaged)?;
    if *key != session_key(from) || record.session_id != id {
        return Err(ImportError::Damaged);
    }
    Ok(record)
}

/// Adds the records of a table with the new id of their session, after a change.
fn put_moved<T: Stored>(
    file: &ExportFile,
    from: SessionId,
    id: SessionId,
    records: &mut Records,
    change: impl Fn(&mut T),
) -> Result<(), ImportError> {
    for (key, value) in file.records(T::TABLE)? {
        let number = key.strip_prefix(from.as_bytes());
        let number = number.ok_or(ImportError::Damaged)?;
        let mut value = value.to_vec();
        replace_session_id(&mut value, from, id);
        let moved = record::decode::<T>(&value);
        let mut moved = moved.map_err(|_| ImportError::Damaged)?;
        change(&mut moved);
        moved.put_at([id.as_bytes().as_slice(), number].concat(), records);
    }
    Ok(())
}

/// Adds one event of the import to the audit log, and each event of the previous audit log as an imported event.
fn put_audit_events(
    context: &Context,
    file: &ExportFile,
    from: SessionId,
    id: SessionId,
    records: &mut Records,
) -> Result<(), ImportError> {
    let mut budget = AuditBudget::default();
    let mut events: Vec<AuditEvent> = Vec::new();
    let mut lines = Sha256::new();
    for (_, event) in file.records(Table::Audit)? {
        if !budget.takes(&event) {
            return Err(ImportError::TooManyAuditEvents);
        }
        // The event becomes a part of one line.
        let is_line = event.starts_with(b"{") && event.iter().all(|byte| *byte >= b' ');
        if event.len() > MAX_AUDIT_EVENT_BYTES || !is_line {
            return Err(ImportError::Damaged);
        }
        let exact = serde_json::from_slice(&event).map_err(|_| ImportError::Damaged)?;
        lines.update(&event);
        lines.update("\n");
        let imported = AuditEventImported {
            session_id: id,
            event: ExactJson(exact),
        };
        events.push(imported.into());
    }
    let mut audit_hash = String::new();
    for byte in lines.finalize() {
        // Writing to a string cannot fail.
        write!(audit_hash, "{byte:02x}").ok();
    }
    let import = SessionImported {
        session_id: id,
        imported_from: from,
        audit_events: budget.count,
        audit_hash,
    };
    let events = std::iter::once(import.into()).chain(events);
    let pending = pending_entries(&context.ids, ActorKind::CommandLine, events);
    records.changed.extend(pending);
    Ok(())
}

/// Writes the files into the new folder, for the agent of the session. Returns their number.
fn fill_folder(
    context: &Context,
    record: &SessionRecord,
    file: &ExportFile,
    folder: &Path,
) -> Result<u64, ImportError> {
    let failed = |path: &str, source: FileError| ImportError::Folder {
        path: path.to_owned(),
        source,
    };
    if let Some(spec) = context.catalogue.agent(&record.agent) {
        // The start of the agent fails for the same reason, and reports it.
        let home = spec.home_of(&record.owner.tenant());
        let _ = context.workspaces.own_directory(folder, &home);
    }
    let workspace = context.workspaces.open(folder, &[]);
    let workspace = workspace.map_err(|error| failed("", error))?;
    let mut writer = FolderWriter {
        workspace,
        open: None,
        bytes: 0,
        count: 0,
    };
    file.for_each_file_part(|path, is_executable, content| {
        if path.split('/').count() > MAX_PATH_NAMES {
            return Err(ImportError::TooManyFiles);
        }
        let written = writer.write(path, is_executable, content);
        written.map_err(|error| failed(path, error))
    })?;
    let finished = writer.finish_file();
    finished.map_err(|error| failed("", error))?;
    Ok(writer.count)
}

struct FolderWriter {
    workspace: Workspace,
    /// The path of the last part, whether the file is executable, and its content so far.
    open: Option<(String, bool, Upload)>,
    bytes: u64,
    count: u64,
}

impl FolderWriter {
    fn write(&mut self, path: &str, is_executable: bool, content: &[u8]) -> Result<(), FileError> {
        self.bytes += content.len() as u64;
        if self.bytes > MAX_EXPORTED_FILE_BYTES {
            return Err(FileError::TooLarge(MAX_EXPORTED_FILE_BYTES));
        }
        if self.open.as_ref().is_none_or(|(open, ..)| open != path) {
            self.finish_file()?;
            let upload =
                self.workspace
                    .begin(path, Precondition::default(), MAX_EXPORTED_FILE_BYTES)?;
            self.open = Some((path.to_owned(), is_executable, upload));
            self.count += 1;
        }
        match &mut self.open {
            Some((.., upload)) => upload.write(content),
            None => Ok(()),
        }
    }

    fn finish_file(&mut self) -> Result<(), FileError> {
        let Some((_, is_executable, upload)) = self.open.take() else {
            return Ok(());
        };
        if is_executable {
            upload.set_executable()?;
        }
        upload.finish()?;
        Ok(())
    }
}
