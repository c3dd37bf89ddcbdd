//! The export of a session to a file, for its move to another gateway. It reads the stored log, also beside a running gateway.

use std::path::Path;

use super::record::{self, SessionRecord, session_key};
use base::types::{Ids, SessionId};
use events::event::AuditLink;
use log::audit::Archive;
use log::store::{ExportFile, FILE_PART_BYTES, OpenError, ReadError, SqliteStore, Table};
use workspace::{EntryKind, FileError, PageLimits, Pattern, Workspace, Workspaces};

/// The tables with the records of one session. Their keys begin with its id.
const TABLES: [Table; 5] = [
    Table::Session,
    Table::Fold,
    Table::Prompt,
    Table::Request,
    Table::Terminal,
];
/// The maximum size of the files of a session.
pub const MAX_EXPORTED_FILE_BYTES: u64 = 1 << 30;
/// The maximum number of files of a session.
pub(super) const MAX_EXPORTED_FILES: u64 = 100_000;
/// The maximum number and size of events of the audit log. An import adds all of them to another audit log.
const MAX_AUDIT_EVENTS: u64 = 50_000;
const MAX_AUDIT_BYTES: u64 = 16 << 20;
const PAGE: PageLimits = PageLimits {
    max_entries: 1000,
    max_names: 10_000,
};

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("the log has no session {0}")]
    NoSession(SessionId),
    #[error("could not copy the session")]
    Copy(#[from] OpenError),
    #[error("could not decode the session")]
    Decode(#[from] serde_json::Error),
    #[error("could not read the audit log")]
    Audit(#[from] ReadError),
    #[error(
        "the audit log has more than {MAX_AUDIT_EVENTS} events or {MAX_AUDIT_BYTES} bytes about the session"
    )]
    TooManyAuditEvents,
    #[error(
        "the folder of the session has more than {MAX_EXPORTED_FILES} files: copy them yourself, and use --no-files"
    )]
    TooManyFiles,
    #[error("could not read {path:?} in the folder of the session")]
    Folder {
        path: String,
        #[source]
        source: FileError,
    },
    #[error(
        "the files in the folder of the session have more than {MAX_EXPORTED_FILE_BYTES} bytes: copy them yourself, and use \
         --no-files"
    )]
    FilesTooLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    pub files: u64,
    pub audit_events: u64,
}

/// Writes a session to a new file: its events and records from one snapshot of the log, its events of the audit log, and with
/// `with_files` the files of the folder that the gateway created for it. Blocks.
pub fn export(
    log: &Path,
    store: &SqliteStore,
    id: SessionId,
    with_files: bool,
    path: &Path,
) -> Result<Exported, ExportError> {
    let ids = Ids::system();
    let file = ExportFile::create(log, path, id, &TABLES, &ids)?;
    let stored = file.records(Table::Session)?;
    let stored = stored.iter().find(|(key, _)| *key == session_key(id));
    let (_, stored) = stored.ok_or(ExportError::NoSession(id))?;
    let record: SessionRecord = record::decode(stored)?;
    if record.unfinished {
        return Err(ExportError::NoSession(id));
    }
    let audit_events = add_audit_events(&file, store, id)?;
    let files = if with_files && record.own_folder {
        add_files(&file, Path::new(&record.cwd))?
    } else {
        0
    };
    file.finish()?;
    // A damaged session must not look like a good copy.
    ExportFile::open(path, &ids)?;
    Ok(Exported {
        files,
        audit_events,
    })
}

/// Adds the events of the audit log that name the session. Their keys are their numbers there.
fn add_audit_events(
    file: &ExportFile,
    store: &SqliteStore,
    id: SessionId,
) -> Result<u64, ExportError> {
    let mut budget = AuditBudget::default();
    Archive(store).for_each(0, |event| {
        if AuditLink::of(event).and_then(|link| link.session_id) != Some(id) {
            return Ok(());
        }
        if !budget.takes(event.raw_json()) {
            return Err(ExportError::TooManyAuditEvents);
        }
        let key = event.seq().to_be_bytes();
        Ok(file.add_record(Table::Audit, &key, event.raw_json())?)
    })?;
    Ok(budget.count)
}

/// The events of the audit log that an export contains so far.
#[derive(Debug, Default)]
pub(super) struct AuditBudget {
    pub(super) count: u64,
    bytes: u64,
}

impl AuditBudget {
    /// Adds an event. False if the export would contain too many.
    pub(super) fn takes(&mut self, event: &[u8]) -> bool {
        self.count += 1;
        self.bytes += event.len() as u64;
        self.count <= MAX_AUDIT_EVENTS && self.bytes <= MAX_AUDIT_BYTES
    }
}

/// Adds the regular files of a folder. Links, other entries, and names that are not UTF-8 are omitted.
fn add_files(file: &ExportFile, folder: &Path) -> Result<u64, ExportError> {
    let failed = |path: &str, source: FileError| ExportError::Folder {
        path: path.to_owned(),
        source,
    };
    let parent = folder.parent().unwrap_or(folder);
    let roots = Workspaces::new(parent, &[]);
    let workspace = match roots.map_err(FileError::from) {
        // The root is a real folder, and a link must not replace the folder of the session.
        Ok(roots) => roots.open(folder, &[]),
        Err(error) => Err(error),
    };
    let workspace = match workspace {
        // The operator has deleted the folder.
        Err(FileError::Missing) => return Ok(0),
        workspace => workspace.map_err(|error| failed("", error))?,
    };
    let mut count = 0;
    let mut bytes = 0;
    let mut after = None;
    loop {
        let page = workspace.find(".", &Pattern::new(""), after.as_deref(), PAGE);
        let page = page.map_err(|error| failed("", error))?;
        for entry in page.entries {
            if entry.stat.kind != EntryKind::File {
                continue;
            }
            match add_file(file, &workspace, &entry.path, &mut bytes) {
                Ok(()) if count == MAX_EXPORTED_FILES => return Err(ExportError::TooManyFiles),
                Ok(()) => count += 1,
                // An agent deletes files at any time.
                Err(ExportError::Folder {
                    source: FileError::Missing,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(count),
        }
    }
}

fn add_file(
    file: &ExportFile,
    workspace: &Workspace,
    path: &str,
    bytes: &mut u64,
) -> Result<(), ExportError> {
    let failed = |source| ExportError::Folder {
        path: path.to_owned(),
        source,
    };
    let opened = workspace.open_file(path).map_err(failed)?;
    let mut offset = 0;
    loop {
        let part = opened.read_at(offset, FILE_PART_BYTES).map_err(failed)?;
        // An empty file has one part.
        if part.is_empty() && offset > 0 {
            return Ok(());
        }
        offset += part.len() as u64;
        *bytes += part.len() as u64;
        if *bytes > MAX_EXPORTED_FILE_BYTES {
            return Err(ExportError::FilesTooLarge);
        }
        file.add_file_part(path, opened.stat.is_executable(), &part)?;
        if part.len() < FILE_PART_BYTES {
            return Ok(());
        }
    }
}
