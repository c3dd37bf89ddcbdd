//! One conversation: its stored record, and its running turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use agent_client_protocol_schema::v1::Error;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::shutdown::lock_or_abort;

use super::record::Record;
use super::store::Store;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    record: Mutex<Record>,
    turn: Mutex<TurnSlot>,
    /// Cancelled when the session is closed or replaced.
    retired: CancellationToken,
    store: Arc<Store>,
}

/// The slot of the session's only turn.
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
        match self.store.save(&mut record) {
            Ok(()) => Ok(value),
            Err(error) => {
                Err(Error::internal_error().data(format!("could not save the session: {error}")))
            }
        }
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
        let (cancel, answered) = (CancellationToken::new(), CancellationToken::new());
        slot.running = Some((request.map(ToOwned::to_owned), cancel.clone()));
        slot.answered = Some(answered.clone());
        Some((
            Running {
                session: Arc::clone(self),
                cancel,
            },
            answered.drop_guard(),
        ))
    }

    pub(super) fn busy(&self) -> bool {
        self.slot().running.is_some()
    }

    /// Whether the running turn answers the request with this id.
    pub(super) fn answers_request(&self, request: &str) -> bool {
        self.slot()
            .running
            .as_ref()
            .is_some_and(|(id, _)| id.as_ref().is_some_and(|id| id.get() == request))
    }

    /// Waits for the end of the agent's work without a prompt.
    pub(super) async fn background_work_ended(&self) {
        let background_work = || {
            let slot = self.slot();
            let works = matches!(slot.running, Some((None, _)));
            slot.answered.clone().filter(|_| works)
        };
        while let Some(ended) = background_work() {
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

    pub(super) async fn wait_retired(&self) {
        self.retired.cancelled().await;
    }

    /// Retires the session, and waits for the answer to its turn.
    pub(super) async fn stop(&self) {
        self.retire();
        let answered = self.slot().answered.clone();
        if let Some(answered) = answered {
            answered.cancelled().await;
        }
    }

    /// Registers a part of the turn that can be cancelled until it ends.
    pub(super) fn part(&self, id: &str) -> CancellationToken {
        self.slot().parts.entry(id.to_owned()).or_default().clone()
    }

    pub(super) fn end_part(&self, id: &str) {
        self.slot().parts.remove(id);
    }

    /// Cancels a part of the turn.
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
