//! The open sessions of this process, and the sessions on disk.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use agent_client_protocol_schema::v1::Error;

use crate::types::Ids;

use super::record::{Entry, Record, Workspace};
use super::session::Session;
use super::store::Store;

/// The maximum number of open sessions.
const MAX_OPEN_SESSIONS: usize = 256;
/// The number of sessions on a page.
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

    /// Creates a session and stores it before it returns.
    pub(super) fn create(&mut self, workspace: Workspace) -> Result<Arc<Session>, Error> {
        let id = self.ids.session().to_string();
        self.save_and_open(Record::new(id, workspace, self.ids.now()))
    }

    /// Creates a session with the history of another one.
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
        self.open
            .get(id)
            .cloned()
            .ok_or_else(|| Error::session_not_found(id.to_owned()))
    }

    /// The session whose turn answers the request with this id.
    pub(super) fn with_turn_for(&self, request: &str) -> Option<Arc<Session>> {
        self.open
            .values()
            .find(|session| session.answers_request(request))
            .cloned()
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
        self.open.values().for_each(|session| session.retire());
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
        let next = entries.last().filter(|_| more).map(key);
        Ok((entries, next))
    }

    fn record(&self, id: &str) -> Result<Record, Error> {
        let here = || self.open.get(id).map(|session| session.record().clone());
        self.store
            .load(id)
            .or_else(here)
            .ok_or_else(|| Error::session_not_found(id.to_owned()))
    }

    /// Opens a session and stores it for the first time.
    fn save_and_open(&mut self, record: Record) -> Result<Arc<Session>, Error> {
        self.store
            .prune()
            .map_err(|error| Error::internal_error().data(error.to_string()))?;
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
