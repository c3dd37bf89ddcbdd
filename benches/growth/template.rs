//! A session written by the gateway. All other sessions are copies of it.

use std::path::Path;
use std::time::{Duration, Instant};

use base::types::{Ids, SessionId};
use log::limits::Limits;
use log::store::{EventStore as _, Record, RecordStore as _, SqliteStore, Table};
use serde_json::json;

use super::Outcome;
use super::gateway::{Gateway, Installation};

pub(crate) const TITLE: &str = "Growth 0000000";
const TABLES: [Table; 7] = [
    Table::Session,
    Table::SessionIndex,
    Table::Prompt,
    Table::Request,
    Table::Fold,
    Table::AgentSession,
    Table::Terminal,
];

pub(crate) struct Template {
    pub(crate) id: SessionId,
    pub(crate) records: Vec<(Table, Record)>,
    /// All its frames and their number.
    pub(crate) frames: Vec<u8>,
    pub(crate) events: u64,
    /// The time of the last activity, as in its record.
    pub(crate) last_activity_at: String,
}

/// Has a gateway create the session, with a turn and a title.
pub(crate) fn make(installation: &Installation) -> Outcome<Template> {
    let gateway = Gateway::start(installation, "")?;
    let session = gateway.send("POST", "/v1/sessions", &json!({ "agent": "fake" }))?;
    let id = session["sessionId"].as_str().ok_or("no id")?.to_owned();
    let path = format!("/v1/sessions/{id}");
    gateway.send("PATCH", &path, &json!({ "title": TITLE }))?;
    gateway.send(
        "POST",
        &format!("{path}/prompts"),
        &json!({ "prompt": "flood n=3 size=64" }),
    )?;
    let end = Instant::now() + Duration::from_secs(30);
    while gateway.get(&format!("{path}/prompts/p1"))?["status"] != "completed" {
        if Instant::now() > end {
            return Err("the turn did not end".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    gateway.send("POST", &format!("{path}/close"), &json!({}))?;
    let last_activity_at = gateway.get(&path)?["lastActivityAt"]
        .as_str()
        .ok_or("no time")?
        .to_owned();
    gateway.stop()?;

    let id: SessionId = id.parse()?;
    let store = SqliteStore::open(
        &log(&installation.folder),
        Ids::system(),
        &Limits::default(),
    )?;
    let mut records = Vec::new();
    for table in TABLES {
        let of_it = |record: &Record| record.0.windows(16).any(|part| part == id.as_bytes());
        let found = store.scan(table, b"", None, 1000)?;
        records.extend(
            found
                .into_iter()
                .filter(of_it)
                .map(|record| (table, record)),
        );
    }
    let runs = store.read(id, 0, usize::MAX)?;
    let frames = runs.iter().flat_map(|run| run.frames.to_vec()).collect();
    let events = runs.last().map_or(0, |run| run.last_seq);
    Ok(Template {
        id,
        records,
        frames,
        events,
        last_activity_at,
    })
}

pub(crate) fn log(folder: &Path) -> std::path::PathBuf {
    folder.join("data/private/log.sqlite")
}
