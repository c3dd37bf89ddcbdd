//! The open sessions of this process with their options, and the sessions on disk.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use agent_client_protocol_schema::v1::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{BOOLEAN_OPTIONS, Client};
use super::history::History;
use base::shutdown::lock_or_abort;
use base::types::{Ids, Timestamp};

/// The working directory and related settings, replaced each time the client sets the session up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Workspace {
    pub(super) cwd: PathBuf,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) additional_directories: Vec<PathBuf>,
    /// The demo does not use the servers, and does not store them.
    #[serde(default, skip_serializing)]
    pub(super) mcp_servers: Vec<McpServer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct McpServer {
    pub(super) name: String,
}

impl Workspace {
    pub(super) fn check(&self) -> Result<(), Error> {
        if !self.cwd.is_absolute() {
            return Err(Error::invalid_params().data("cwd must be an absolute path"));
        }
        if !self
            .additional_directories
            .iter()
            .all(|path| path.is_absolute())
        {
            let detail = "additionalDirectories must be absolute paths";
            return Err(Error::invalid_params().data(detail));
        }
        Ok(())
    }
}

pub(super) const MODE: &str = "mode";

/// The options with their default values, in the form of v1.
static OPTIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("options.json"))
        .expect("the file is JSON: each test reads it")
});

/// The values that differ from the defaults, by the id of the option.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Options(BTreeMap<String, Value>);

impl Options {
    pub(super) fn selected(&self, option: &str) -> &str {
        self.value(option).as_str().unwrap_or_default()
    }

    pub(super) fn is_on(&self, option: &str) -> bool {
        self.value(option) == true
    }

    pub(super) fn selected_name(&self, option: &str) -> &str {
        let mut values = values(option).iter();
        let selected = values.find(|value| value["value"] == *self.value(option));
        selected
            .and_then(|value| value["name"].as_str())
            .unwrap_or_default()
    }

    pub(super) fn set(&mut self, option: &str, value: &Value) -> Result<(), Error> {
        let Some(known) = definition(option) else {
            return Err(Error::invalid_params().data("configId is not an option of the session"));
        };
        let valid = match known["type"].as_str() {
            Some("boolean") => value.is_boolean(),
            _ => values(option)
                .iter()
                .any(|choice| choice["value"] == *value),
        };
        if !valid {
            return Err(Error::invalid_params().data("the option has no such value"));
        }
        self.0.insert(option.to_owned(), value.clone());
        Ok(())
    }

    /// The complete list for a client. Boolean options are only for clients that support them.
    pub(super) fn list(&self, client: &Client) -> Value {
        let mut options = OPTIONS.clone();
        options.retain(|option| match option["id"].as_str() {
            Some(MODE) => client.is_v2(),
            _ => option["type"] != "boolean" || client.offers(BOOLEAN_OPTIONS),
        });
        for option in &mut options {
            let members = option.as_object_mut();
            let id = members
                .and_then(|members| members.remove("id"))
                .unwrap_or_default();
            option["currentValue"] = self.value(id.as_str().unwrap_or_default()).clone();
            option[client.version.config_option_id_key()] = id;
        }
        options.into()
    }

    pub(super) fn modes(&self) -> Value {
        let modes = values(MODE).iter().map(
            |mode| json!({ "id": mode["value"], "name": mode["name"], "description": mode["description"] }),
        );
        json!({ "currentModeId": self.value(MODE), "availableModes": modes.collect::<Vec<_>>() })
    }

    pub(super) fn update(&self, option: &str, client: &Client) -> Value {
        if option == MODE && !client.is_v2() {
            return json!({ "sessionUpdate": "current_mode_update", "currentModeId": self.value(MODE) });
        }
        json!({ "sessionUpdate": "config_option_update", "configOptions": self.list(client) })
    }

    fn value(&self, option: &str) -> &Value {
        let default = || definition(option).map_or(&Value::Null, |known| &known["currentValue"]);
        self.0.get(option).unwrap_or_else(default)
    }
}

fn definition(option: &str) -> Option<&'static Value> {
    OPTIONS.iter().find(|known| known["id"] == option)
}

fn values(option: &str) -> &'static [Value] {
    definition(option)
        .and_then(|known| known["options"].as_array())
        .map_or(&[], Vec::as_slice)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) session_id: String,
    #[serde(flatten)]
    pub(super) workspace: Workspace,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    pub(super) updated_at: Timestamp,
}

impl Entry {
    pub(super) fn info_update(&self) -> Value {
        let mut update =
            json!({ "sessionUpdate": "session_info_update", "updatedAt": self.updated_at });
        if let Some(title) = &self.title {
            update["title"] = json!(title);
        }
        update
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) entry: Entry,
    pub(super) options: Options,
    /// The `always` answers by the kind of the tool: true allows, false rejects.
    pub(super) grants: BTreeMap<String, bool>,
    pub(super) turns: u64,
    /// The last number used for a message or a tool call.
    pub(super) last_number: u64,
    pub(super) history: History,
}

impl Record {
    pub(super) fn new(session_id: String, workspace: Workspace, now: Timestamp) -> Self {
        Self {
            entry: Entry {
                session_id,
                workspace,
                title: None,
                updated_at: now,
            },
            options: Options::default(),
            grants: BTreeMap::new(),
            turns: 0,
            last_number: 0,
            history: History::default(),
        }
    }

    pub(super) fn cwd(&self) -> String {
        self.entry.workspace.cwd.to_string_lossy().into_owned()
    }

    /// Returns a number that no message and no tool call of this session used before, including earlier processes.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    record: Mutex<Record>,
    turn: Mutex<TurnSlot>,
    /// Cancelled when the session is closed or replaced.
    pub(super) retired: CancellationToken,
    store: Arc<Store>,
}

#[derive(Debug, Default)]
struct TurnSlot {
    /// The id of the request and the token that cancels the turn. The id is `None` if the agent works without a
    /// prompt.
    running: Option<(Option<Box<RawValue>>, CancellationToken)>,
    /// Cancelled after the answer to the last turn.
    answered: Option<CancellationToken>,
    /// The tool calls and terminals that can be cancelled by themselves, by id.
    parts: HashMap<String, CancellationToken>,
}

impl Session {
    pub(super) fn new(record: Record, store: Arc<Store>) -> Self {
        Self {
            id: record.entry.session_id.clone(),
            record: Mutex::new(record),
            turn: Mutex::default(),
            retired: CancellationToken::new(),
            store,
        }
    }

    /// The guard must not be held across an await.
    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        lock_or_abort(self.record.lock())
    }

    /// Changes the record and saves it under one lock, so that the last change is the stored one.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T, Error> {
        let mut record = self.record();
        let value = change(&mut record);
        let failed =
            |error| Error::internal_error().data(format!("could not save the session: {error}"));
        self.store.save(&mut record).map(|()| value).map_err(failed)
    }

    pub(super) fn set_option(&self, option: &str, value: &Value) -> Result<(), Error> {
        let mut options = self.record().options.clone();
        options.set(option, value)?;
        self.change(|record| record.options = options)
    }

    /// Begins a turn. Returns `None` if one runs. The caller drops the guard after the answer to the turn.
    pub(super) fn begin(
        self: &Arc<Self>,
        request: Option<&RawValue>,
    ) -> Option<(Running, DropGuard)> {
        let mut slot = self.slot();
        if slot.running.is_some() {
            return None;
        }
        let cancel = CancellationToken::new();
        let answered = CancellationToken::new();
        slot.running = Some((request.map(ToOwned::to_owned), cancel.clone()));
        slot.answered = Some(answered.clone());
        let session = Arc::clone(self);
        Some((Running { session, cancel }, answered.drop_guard()))
    }

    pub(super) fn busy(&self) -> bool {
        self.slot().running.is_some()
    }

    pub(super) async fn background_work_ended(&self) {
        loop {
            let ended = match &*self.slot() {
                TurnSlot {
                    running: Some((None, _)),
                    answered: Some(ended),
                    ..
                } => ended.clone(),
                _ => return,
            };
            ended.cancelled().await;
        }
    }

    pub(super) fn cancel(&self) {
        if let Some((_, turn)) = &self.slot().running {
            turn.cancel();
        }
    }

    /// Cancels the turn and retires the session, because it was closed or replaced.
    pub(super) fn retire(&self) {
        self.retired.cancel();
        self.cancel();
    }

    pub(super) async fn stop(&self) {
        self.retire();
        let answered = self.slot().answered.clone();
        if let Some(answered) = answered {
            answered.cancelled().await;
        }
    }

    pub(super) fn part(&self, id: &str) -> CancellationToken {
        self.slot().parts.entry(id.to_owned()).or_default().clone()
    }

    pub(super) fn end_part(&self, id: &str) {
        self.slot().parts.remove(id);
    }

    pub(super) fn cancel_part(&self, id: &str) -> Result<(), Error> {
        let part = self.slot().parts.remove(id);
        let unknown =
            || Error::invalid_params().data("it has ended, or cannot be cancelled by itself");
        part.map(|part| part.cancel()).ok_or_else(unknown)
    }

    fn slot(&self) -> MutexGuard<'_, TurnSlot> {
        lock_or_abort(self.turn.lock())
    }
}

/// The session's only turn, until this value is dropped.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) session: Arc<Session>,
    pub(super) cancel: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.slot().running = None;
    }
}

const MAX_OPEN_SESSIONS: usize = 256;
const PAGE_SIZE: usize = 50;

#[derive(Debug)]
pub(super) struct Sessions {
    store: Arc<Store>,
    ids: Ids,
    open: HashMap<String, Arc<Session>>,
}

impl Sessions {
    pub(super) fn new(store: Store, ids: Ids) -> Self {
        Self {
            store: Arc::new(store),
            ids,
            open: HashMap::new(),
        }
    }

    pub(super) fn create(&mut self, workspace: Workspace) -> Result<Arc<Session>, Error> {
        let id = self.ids.session().to_string();
        self.save_and_open(Record::new(id, workspace, self.ids.now()))
    }

    pub(super) fn fork(&mut self, id: &str, workspace: Workspace) -> Result<Arc<Session>, Error> {
        let mut record = self.record(id)?;
        record.entry.session_id = self.ids.session().to_string();
        record.entry.workspace = workspace;
        record.entry.updated_at = self.ids.now();
        self.save_and_open(record)
    }

    /// Opens a stored session, or opens an open one again.
    pub(super) fn reopen(&mut self, id: &str, workspace: Workspace) -> Result<Arc<Session>, Error> {
        if let Some(open) = self.open.get(id)
            && open.busy()
        {
            return Err(Error::invalid_request().data("a turn is running in this session"));
        }
        let mut record = self.record(id)?;
        record.entry.workspace = workspace;
        self.open(record)
    }

    /// Returns an open session. A session that is only on disk must be loaded or resumed first.
    pub(super) fn get(&self, id: &str) -> Result<Arc<Session>, Error> {
        let session = self.open.get(id).cloned();
        session.ok_or_else(|| Error::session_not_found(id.to_owned()))
    }

    pub(super) fn with_turn_for(&self, request: &str) -> Option<Arc<Session>> {
        let answers = |session: &&Arc<Session>| matches!(&session.slot().running, Some((Some(id), _)) if id.get() == request);
        self.open.values().find(answers).cloned()
    }

    pub(super) async fn close(&mut self, id: &str) -> Result<(), Error> {
        self.get(id)?.stop().await;
        self.open.remove(id);
        Ok(())
    }

    /// Deletes a session. A missing session is not an error.
    pub(super) async fn delete(&mut self, id: &str) -> Result<(), Error> {
        if let Some(session) = self.open.remove(id) {
            session.stop().await;
        }
        let failed =
            |error| Error::internal_error().data(format!("could not delete the session: {error}"));
        self.store.delete(id).map_err(failed)
    }

    pub(super) fn end_all(&self) {
        for session in self.open.values() {
            session.retire();
        }
    }

    /// A page of the sessions by last use, latest first, and the cursor of the next page if there is one. The
    /// cursor names the last session of a page. Therefore concurrent changes do not hide another session.
    pub(super) fn page(
        &self,
        cwd: Option<&Path>,
        cursor: Option<&str>,
    ) -> Result<(Vec<Entry>, Option<String>), Error> {
        let mut entries = self.store.list();
        entries.retain(|entry| cwd.is_none_or(|cwd| *cwd == entry.workspace.cwd));
        if let Some(cursor) = cursor {
            let (millis, id) = cursor
                .split_once('-')
                .and_then(|(millis, id)| Some((millis.parse::<i64>().ok()?, id)))
                .ok_or_else(|| Error::invalid_params().data("not a cursor of this list"))?;
            entries
                .retain(|entry| (entry.updated_at.as_millis(), &*entry.session_id) < (millis, id));
        }
        let more = entries.len() > PAGE_SIZE;
        entries.truncate(PAGE_SIZE);
        let key = |entry: &Entry| format!("{}-{}", entry.updated_at.as_millis(), entry.session_id);
        let next = if more { entries.last().map(key) } else { None };
        Ok((entries, next))
    }

    fn record(&self, id: &str) -> Result<Record, Error> {
        let here = || self.open.get(id).map(|session| session.record().clone());
        let record = self.store.load(id).or_else(here);
        record.ok_or_else(|| Error::session_not_found(id.to_owned()))
    }

    fn save_and_open(&mut self, record: Record) -> Result<Arc<Session>, Error> {
        let pruned = self.store.prune();
        pruned.map_err(|error| Error::internal_error().data(error.to_string()))?;
        let session = self.open(record)?;
        session.change(|_| ())?;
        Ok(session)
    }

    fn open(&mut self, record: Record) -> Result<Arc<Session>, Error> {
        if self.open.len() >= MAX_OPEN_SESSIONS && !self.open.contains_key(&record.entry.session_id)
        {
            return Err(Error::internal_error().data("too many open sessions: close one first"));
        }
        let session = Arc::new(Session::new(record, Arc::clone(&self.store)));
        if let Some(earlier) = self.open.insert(session.id.clone(), Arc::clone(&session)) {
            earlier.retire();
        }
        Ok(session)
    }
}

/// The maximum size of a session's file. A larger session loses its oldest turns.
const FILE_MAX: usize = 1 << 20;
/// The maximum number of sessions on disk. The oldest are deleted.
const SESSIONS_MAX: usize = 2000;

#[derive(Debug)]
pub(super) struct Store {
    folder: Option<PathBuf>,
    max: usize,
}

impl Store {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            max: SESSIONS_MAX,
        }
    }

    /// Writes a session. A history that is too large loses its oldest turns.
    pub(super) fn save(&self, record: &mut Record) -> io::Result<()> {
        let (Some(folder), Some(path)) = (&self.folder, self.path(&record.entry.session_id)) else {
            return Ok(());
        };
        let mut bytes = serde_json::to_vec(record)?;
        while bytes.len() > FILE_MAX && record.history.drop_oldest_turn() {
            bytes = serde_json::to_vec(record)?;
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
        let mut draft = NamedTempFile::new_in(folder)?;
        draft.write_all(&bytes)?;
        draft.persist(path)?;
        Ok(())
    }

    pub(super) fn load(&self, id: &str) -> Option<Record> {
        let bytes = fs::read(self.path(id)?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn delete(&self, id: &str) -> io::Result<()> {
        let Some(path) = self.path(id) else {
            return Ok(());
        };
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All sessions on disk by last use, latest first. Skips foreign files.
    pub(super) fn list(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self
            .files()
            .filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok())
            .collect();
        entries.sort_by(|a, b| (b.updated_at, &b.session_id).cmp(&(a.updated_at, &a.session_id)));
        entries
    }

    /// Deletes the oldest files to make space for a new session.
    pub(super) fn prune(&self) -> io::Result<()> {
        let dated =
            |file: fs::DirEntry| Some((file.metadata().ok()?.modified().ok()?, file.path()));
        let mut files: Vec<_> = self.files().filter_map(dated).collect();
        let surplus = (files.len() + 1).saturating_sub(self.max);
        files.sort();
        for (_, path) in files.iter().take(surplus) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = fs::DirEntry> {
        let folder = self.folder.as_ref();
        let files = folder.and_then(|folder| fs::read_dir(folder).ok());
        let is_session =
            |file: &fs::DirEntry| file.path().extension().is_some_and(|kind| kind == "json");
        files
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .filter(is_session)
    }

    /// The file of a session. Only ids in the format of this agent have one, so that no id can name another path.
    fn path(&self, id: &str) -> Option<PathBuf> {
        let id: base::types::SessionId = id.parse().ok()?;
        Some(self.folder.as_ref()?.join(format!("{id}.json")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use base::types::Ids;

    fn record(ids: &Ids) -> Record {
        let workspace = Workspace {
            cwd: "/w".into(),
            ..Workspace::default()
        };
        Record::new(ids.session().to_string(), workspace, ids.now())
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn stored_session_is_restored_and_foreign_ids_have_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(Some(folder.path().join("state")));
        let mut record = record(&Ids::system());
        record.entry.title = Some("hello".to_owned());
        record.history.prompt(&[text("hi")], "u");
        store.save(&mut record).unwrap();
        assert_eq!(store.load(&record.entry.session_id), Some(record.clone()));
        assert_eq!(store.list(), [record.entry.clone()]);
        for foreign in ["../state", "x", ""] {
            assert_eq!(store.path(foreign), None);
        }
        store.delete(&record.entry.session_id).unwrap();
        store.delete(&record.entry.session_id).unwrap();
        assert!(store.list().is_empty());
    }

    #[test]
    fn oversized_store_drops_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store {
            max: 20,
            ..Store::new(Some(folder.path().to_owned()))
        };
        let ids = Ids::system();
        let mut long = record(&ids);
        for turn in 0..20 {
            let prompt = [text(&format!("{turn} {}", "x".repeat(60 << 10)))];
            long.history.prompt(&prompt, &format!("u{turn}"));
            long.history
                .push(&json!({ "sessionUpdate": "plan", "entries": [] }));
        }
        store.save(&mut long).unwrap();
        let bytes = fs::metadata(store.path(&long.entry.session_id).unwrap())
            .unwrap()
            .len();
        assert!(
            bytes <= FILE_MAX as u64 && bytes > FILE_MAX as u64 / 2,
            "{bytes}"
        );

        for _ in 0..store.max + 2 {
            store.prune().unwrap();
            store.save(&mut record(&ids)).unwrap();
        }
        assert_eq!(store.list().len(), store.max);
        assert_eq!(
            store.load(&long.entry.session_id),
            None,
            "the oldest went first"
        );
    }
}
