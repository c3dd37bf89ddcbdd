//! Sessions, and the file that stores them beyond the process.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) mode: Mutex<String>,
    pub(crate) model: Mutex<String>,
    turn: Mutex<Option<Arc<Cancel>>>,
}

impl Session {
    fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            mode: Mutex::new("ask".to_owned()),
            model: Mutex::new("small".to_owned()),
            turn: Mutex::default(),
        }
    }

    /// Begins a turn. Returns `None` while another one runs.
    pub(crate) fn begin(&self) -> Option<Arc<Cancel>> {
        let mut turn = lock(&self.turn);
        turn.is_none()
            .then(|| Arc::clone(turn.insert(Arc::default())))
    }

    pub(crate) fn end(&self) {
        *lock(&self.turn) = None;
    }

    pub(crate) fn cancel(&self) {
        if let Some(turn) = &*lock(&self.turn) {
            turn.cancel();
        }
    }

    /// `modes` and `configOptions` as members of a result.
    pub(crate) fn setup(&self) -> String {
        let mode = super::wire::string(&lock(&self.mode));
        format!(
            r#""modes":{{"currentModeId":{mode},"availableModes":[{{"id":"ask","name":"Ask"}},{{"id":"code","name":"Code"}}]}},"configOptions":{}"#,
            self.options()
        )
    }

    pub(crate) fn options(&self) -> String {
        let model = super::wire::string(&lock(&self.model));
        format!(
            r#"[{{"id":"model","name":"Model","category":"model","type":"select","currentValue":{model},"options":[{{"value":"small","name":"Small"}},{{"value":"large","name":"Large"}}]}}]"#
        )
    }
}

/// The cancellation state of a turn.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    cancelled: Mutex<bool>,
    changed: Condvar,
}

impl Cancel {
    fn cancel(&self) {
        *lock(&self.cancelled) = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *lock(&self.cancelled)
    }

    /// Waits. Returns true if the turn was cancelled.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut cancelled = lock(&self.cancelled);
        while !*cancelled {
            let Some(left) = end
                .checked_duration_since(Instant::now())
                .filter(|left| !left.is_zero())
            else {
                break;
            };
            cancelled = self
                .changed
                .wait_timeout(cancelled, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *cancelled
    }

    pub(crate) fn wait_for_ever(&self) {
        while !self.wait(Duration::from_hours(1)) {}
    }
}

/// Sessions by id, and the history of each as raw updates.
#[derive(Debug)]
pub(crate) struct Sessions {
    file: Option<PathBuf>,
    open: Mutex<HashMap<String, Arc<Session>>>,
    history: Mutex<Vec<Entry>>,
}

/// A line of the state file: a created session, an update of its history, or its deletion.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    session_id: String,
    /// The working directory of the session.
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    update: Option<Box<RawValue>>,
    #[serde(default)]
    deleted: bool,
}

impl Sessions {
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self {
            file,
            open: Mutex::default(),
            history: Mutex::default(),
        }
    }

    pub(crate) fn create(&self, id: &str, cwd: &str) -> Arc<Session> {
        let cwd = Some(cwd.to_owned());
        self.keep(Entry {
            session_id: id.to_owned(),
            cwd,
            update: None,
            deleted: false,
        });
        self.open(id)
    }

    pub(crate) fn open(&self, id: &str) -> Arc<Session> {
        let session = Arc::new(Session::new(id));
        lock(&self.open).insert(id.to_owned(), Arc::clone(&session));
        session
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Session>> {
        lock(&self.open).get(id).cloned()
    }

    pub(crate) fn close(&self, id: &str) {
        if let Some(session) = lock(&self.open).remove(id) {
            session.cancel();
        }
    }

    pub(crate) fn delete(&self, id: &str) {
        self.close(id);
        self.keep(Entry {
            session_id: id.to_owned(),
            cwd: None,
            update: None,
            deleted: true,
        });
    }

    pub(crate) fn record(&self, id: &str, update: &str) {
        if let Ok(update) = RawValue::from_string(update.to_owned()) {
            self.keep(Entry {
                session_id: id.to_owned(),
                cwd: None,
                update: Some(update),
                deleted: false,
            });
        }
    }

    /// The updates of a session. `None` if the session does not exist or was deleted.
    pub(crate) fn history(&self, id: &str) -> Option<Vec<String>> {
        let mut history = None;
        for entry in self
            .entries()
            .into_iter()
            .filter(|entry| entry.session_id == id)
        {
            if entry.deleted {
                history = None;
            } else {
                history
                    .get_or_insert_with(Vec::new)
                    .extend(entry.update.map(|raw| raw.get().to_owned()));
            }
        }
        history
    }

    /// The ids and working directories of the existing sessions.
    pub(crate) fn list(&self) -> Vec<(String, String)> {
        let made = |entry: Entry| Some((entry.session_id, entry.cwd?));
        let mut sessions: Vec<_> = self.entries().into_iter().filter_map(made).collect();
        sessions.sort();
        sessions.dedup();
        sessions.retain(|(id, _)| self.history(id).is_some());
        sessions
    }

    fn entries(&self) -> Vec<Entry> {
        let Some(file) = &self.file else {
            return lock(&self.history).clone();
        };
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    fn keep(&self, entry: Entry) {
        let Some(file) = &self.file else {
            return lock(&self.history).push(entry);
        };
        let mut line = serde_json::to_string(&entry).expect("an entry is plain data");
        line.push('\n');
        append(file, line.as_bytes());
    }
}

pub(crate) fn append(file: &std::path::Path, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .expect("the file of the test is writable");
    file.write_all(bytes)
        .expect("the file of the test is writable");
}
