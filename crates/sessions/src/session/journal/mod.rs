//! The journal of a session: its log, its records, the fold of its events and its write quota.
//!
//! The actor appends every event here. An append assigns the sequence number, saves the changed records in the
//! same commit, and never waits. No caller predicts a sequence number: the change receives the number.
//! [`Journal::save_record`] and `Actor::save_unsent` write a record without an event.
//!
//! The event that opens or ends a prompt, a request or a terminal also changes the list of open items, in the same
//! commit. After a crash, the list therefore contains every item without an end.

mod quota;

use std::time::Duration;

use serde_json::value::to_raw_value;
use tokio::time::Instant;

use self::quota::Quota;
pub(super) use self::quota::Quotas;
use super::idempotency::Claim;
use super::metadata_index::MetadataIndex;
use super::record::{
    self, FoldRecord, OutputPosition, PromptRecord, RequestRecord, SessionRecord, Stored,
    TerminalRecord, put_open,
};
use super::validation::Origin;
use crate::limits::Limits;
use crate::transcript::SessionFold;
use agents::agent::AgentSpec;
use base::types::{Ids, PromptId, RequestId, SessionId, TerminalId, Timestamp};
use events::api::{PendingRequest, Session, SessionState};
use events::event::{EncodedEvent, Event, SessionCreated, SessionDeleted};
use log::eventlog::{Group, Records, SessionLog, Summary};
use log::store::{RecordState, Run, Table};
use wire::acp::ModePolicy;

/// The approximate number of events after which the session's record is saved within a turn. It limits the
/// events to fold after a crash.
const MAX_UNSAVED_EVENTS: usize = 10_000;

pub(super) struct Journal {
    log: SessionLog,
    ids: Ids,
    record: SessionRecord,
    /// The index entries of the record, as last written.
    stored_index: Option<Vec<u8>>,
    stored_agent_session: Option<Vec<u8>>,
    stored_metadata: MetadataIndex,
    fold: SessionFold,
    /// Whether the fold changed after its record was written.
    fold_changed: bool,
    /// Whether the agent reported work that has not ended. It is part of the session's state.
    agent_busy: bool,
    /// The number of events since the last `save`, including the event of that save.
    unsaved_events: usize,
    quota: Quota,
    /// Whether the session was deleted. Later events and records are dropped.
    erased: bool,
}

impl Journal {
    /// The journal of a session that is not stored yet.
    pub(super) fn new(log: SessionLog, ids: Ids, record: SessionRecord, quotas: &Quotas) -> Self {
        let quota = quotas.take(record.session_id);
        Self {
            log,
            ids,
            record,
            stored_index: None,
            stored_agent_session: None,
            stored_metadata: MetadataIndex::empty(),
            fold: SessionFold::default(),
            fold_changed: true,
            agent_busy: false,
            unsaved_events: 0,
            quota,
            erased: false,
        }
    }

    pub(super) fn begin_title(&mut self, origin: Origin) {
        let title = self.record.title.clone();
        match origin {
            // The agent may rename a fork, because no user chose the inherited title for it.
            Origin::Forked(_) => self.fold.agent_title = title,
            Origin::New | Origin::Adopted => self.fold.person_title = title,
        }
    }

    /// The journal of a stored session. Fold the events after the returned sequence number with [`Self::refold`].
    pub(super) fn load(
        log: SessionLog,
        ids: Ids,
        record: SessionRecord,
        folded: Option<FoldRecord>,
        quotas: &Quotas,
    ) -> (Self, u64) {
        let mut journal = Self {
            stored_index: Some(record.index_key()),
            stored_agent_session: record.agent_session_key(),
            stored_metadata: MetadataIndex::of(&record),
            ..Self::new(log, ids, record, quotas)
        };
        let mut seq = 0;
        if let Some(folded) = folded {
            journal.fold = folded.fold;
            journal.fold_changed = false;
            // The session's record may be newer. No event between the two positions has changed the fold.
            seq = folded.seq.max(journal.record.seq);
        }
        (journal, seq)
    }

    pub(super) fn refold(&mut self, runs: &[Run]) {
        for event in runs.iter().flat_map(Run::events) {
            self.fold_with(|fold| fold.event(&event));
        }
    }

    pub(super) fn session(&self) -> SessionId {
        self.record.session_id
    }

    pub(super) fn record(&self) -> &SessionRecord {
        &self.record
    }

    pub(super) fn fold(&self) -> &SessionFold {
        &self.fold
    }

    /// The modes that this entry denies, with the modes and options that the agent has reported.
    pub(super) fn mode_policy<'a>(&'a self, entry: &'a AgentSpec) -> ModePolicy<'a> {
        ModePolicy {
            denied: &entry.settings.denied_modes,
            modes: self.fold.modes.as_deref(),
            config_options: self.fold.config_options.as_deref(),
        }
    }

    pub(super) fn log(&self) -> &SessionLog {
        &self.log
    }

    pub(super) fn appended(&self) -> u64 {
        self.log.appended()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.ids.now()
    }

    pub(super) fn is_erased(&self) -> bool {
        self.erased
    }

    pub(super) fn next_prompt(&self) -> PromptId {
        PromptId::new(self.record.last_prompt + 1)
    }

    pub(super) fn next_request(&self) -> RequestId {
        RequestId::new(self.record.last_request + 1)
    }

    /// The id of the next terminal. Skips ids that clients have chosen for terminals that they run.
    pub(super) fn next_terminal(&self, is_taken: impl Fn(TerminalId) -> bool) -> TerminalId {
        let mut ids = (self.record.last_terminal + 1..u32::MAX).map(TerminalId::new);
        ids.find(|id| !is_taken(*id))
            .unwrap_or(TerminalId::new(u32::MAX))
    }

    pub(super) fn state(&self) -> SessionState {
        let record = &self.record;
        if record.is_closed() {
            SessionState::Closed
        } else if !record.open_requests.is_empty() {
            SessionState::Waiting
        } else if record.prompt_id.is_some() || !record.queued.is_empty() || self.agent_busy {
            SessionState::Running
        } else {
            SessionState::Idle
        }
    }

    pub(super) fn snapshot(&self, requests: Vec<PendingRequest>) -> Session {
        let last_event_id = self.log.id(self.log.appended());
        Session {
            state: self.state(),
            ..self.record.snapshot(&self.fold, requests, last_event_id)
        }
    }

    pub(super) fn set_agent_busy(&mut self, busy: bool) {
        self.agent_busy = busy;
    }

    /// Changes the record in memory. The next append with a change saves it.
    pub(super) fn update(&mut self, change: impl FnOnce(&mut SessionRecord)) {
        change(&mut self.record);
    }

    /// Changes the metadata of the record in memory, and its index with it.
    pub(super) fn set_metadata(&mut self, metadata: serde_json::Map<String, serde_json::Value>) {
        self.record.metadata = metadata;
        self.stored_metadata.changed();
    }

    /// Changes the fold. `change` returns whether the fold has changed.
    pub(super) fn fold_with(&mut self, change: impl FnOnce(&mut SessionFold) -> bool) {
        self.fold_changed |= change(&mut self.fold);
    }

    /// Appends an event that changes no record.
    pub(super) fn append(
        &mut self,
        prompt: Option<PromptId>,
        event: impl Into<EncodedEvent>,
    ) -> u64 {
        self.write(prompt, &event.into(), Records::default())
    }

    /// Appends an event and saves the session's records in the same commit. `change` receives the event's number.
    pub(super) fn append_with(
        &mut self,
        prompt: Option<PromptId>,
        event: impl Into<EncodedEvent>,
        change: impl FnOnce(u64, &mut Change<'_>),
    ) -> u64 {
        let seq = self.log.appended() + 1;
        let mut records = Records::default();
        let now = self.ids.now();
        change(
            seq,
            &mut Change {
                record: &mut self.record,
                records: &mut records,
                now,
            },
        );
        self.save(seq, now, &mut records);
        self.write(prompt, &event.into(), records)
    }

    /// Appends `session.created` with the records that make the session exist.
    pub(super) fn append_created(&mut self, origin: Option<Origin>, claim: Option<&Claim>) -> u64 {
        let seq = self.log.appended() + 1;
        let mut records = Records::default();
        if let Some(claim) = claim {
            claim.put(self.record.session_id, None, &mut records);
        }
        self.save(seq, self.ids.now(), &mut records);
        let session = Session {
            last_event_id: self.log.id(seq),
            ..self.snapshot(Vec::new())
        };
        let (forked_from, adopted) = match origin {
            Some(Origin::Forked(parent)) => (Some(parent), false),
            origin => (None, origin == Some(Origin::Adopted)),
        };
        let event = EncodedEvent::from(&SessionCreated {
            session: &session,
            forked_from,
            adopted,
        });
        self.write(None, &event, records)
    }

    pub(super) fn append_changed(&mut self, event: EncodedEvent) -> u64 {
        self.fold_with(|fold| fold.changed(&event.changed_members()));
        self.append_with(None, event, |_, _| {})
    }

    pub(super) fn is_save_due(&self) -> bool {
        self.unsaved_events >= MAX_UNSAVED_EVENTS
    }

    /// Appends updates of the agent together: one clock read, one lock, one queue entry. Returns their number.
    pub(super) fn append_updates<'a>(
        &mut self,
        events: impl Iterator<Item = Event<'a>> + Clone,
        now: Instant,
    ) -> usize {
        let mut count = 0;
        let mut bytes = 0;
        for event in events.clone() {
            count += 1;
            bytes += event.members.len();
        }
        if count > 0 {
            self.log.append_all(events);
            self.quota.count(count, bytes, now);
            self.unsaved_events += count;
        }
        count
    }

    /// Begins a group: everything that is appended before [`Self::end_group`] is committed together.
    pub(super) fn begin_group(&self) -> Group {
        self.log.begin_group()
    }

    /// Ends a group with the position in the output to which its events belong. Returns the last event that must be durable
    /// before the output is acknowledged.
    pub(super) fn end_group(&self, group: Group, position: OutputPosition) -> u64 {
        if !self.erased {
            let mut records = Records::default();
            position.put_at(record::session_key(self.record.session_id), &mut records);
            group.put(records);
        }
        self.appended()
    }

    /// Saves the record without an event. The position up to which it is exact stays the same.
    pub(super) fn save_record(&mut self) {
        let mut records = Records::default();
        self.record.put(self.stored_index.as_deref(), &mut records);
        self.log.put(records);
    }

    /// Erases all stored data of the session. Returns the sequence number of its last event.
    pub(super) fn erase(&mut self, by: &str) -> u64 {
        let id = self.record.session_id;
        let mut records = Records::default();
        let mut gone = |table, key| records.changed.push(RecordState::absent(table, key));
        gone(Table::Session, record::session_key(id));
        gone(Table::Fold, record::session_key(id));
        gone(Table::OutputPosition, record::session_key(id));
        gone(Table::Grant, record::session_key(id));
        gone(Table::CreatedSession, self.record.created_key());
        gone(Table::SessionIndex, self.record.index_key());
        if let Some(key) = self.stored_index.take() {
            gone(Table::SessionIndex, key);
        }
        let stored = self.stored_agent_session.take().into_iter();
        for key in stored.chain(self.record.agent_session_key()) {
            gone(Table::AgentSession, key);
        }
        for key in self.stored_metadata.take() {
            gone(Table::SessionMetadata, key);
        }
        for (table, last) in [
            (Table::Prompt, self.record.last_prompt),
            (Table::Request, self.record.last_request),
            (Table::Terminal, self.record.last_terminal),
        ] {
            (1..=last).for_each(|number| gone(table, record::numbered_key(id, number)));
        }
        put_open(id, false, &mut records);
        records.summary = self.record.is_listed().then_some(Summary::Gone);
        let seq = self.log.erase(
            &EncodedEvent::from(&SessionDeleted { by }).in_turn(None),
            records,
        );
        self.erased = true;
        seq
    }

    /// How long the session must wait before it may write again, if it exceeded its hourly quota.
    pub(super) fn quota_wait(&self, limits: &Limits, now: Instant) -> Option<Duration> {
        self.quota
            .exceeded_until(limits, now)
            .map(|until| until - now)
    }

    pub(super) fn store_quota(&mut self, quotas: &Quotas) {
        quotas.store(
            self.record.session_id,
            std::mem::replace(&mut self.quota, Quota::new()),
        );
    }

    /// Adds the session's records as of the event `seq`.
    fn save(&mut self, seq: u64, now: Timestamp, records: &mut Records) {
        self.unsaved_events = 0;
        self.record.state = self.state();
        self.record.updated_at = now;
        self.record.title = self.fold.title().map(str::to_owned);
        self.record.seq = seq;
        self.record.put(self.stored_index.as_deref(), records);
        self.record
            .put_agent_session(&mut self.stored_agent_session, records);
        self.stored_index = Some(self.record.index_key());
        self.stored_metadata.put(&self.record, records);
        // If the fold did not change, its stored record stays valid up to the position `SessionRecord::seq`.
        if std::mem::take(&mut self.fold_changed) {
            FoldRecord {
                seq,
                fold: self.fold.clone(),
            }
            .put_at(record::session_key(self.record.session_id), records);
        }
        put_open(self.record.session_id, self.record.is_open(), records);
        records.summary = self.record.is_listed().then(|| {
            let summary = self.record.summary(self.log.id(seq).epoch);
            Summary::Listed(
                to_raw_value(&summary)
                    .expect("a summary has string keys")
                    .into(),
            )
        });
    }

    fn write(&mut self, prompt: Option<PromptId>, event: &EncodedEvent, records: Records) -> u64 {
        let event = event.in_turn(prompt);
        self.quota.count(1, event.members.len(), Instant::now());
        self.unsaved_events += 1;
        self.log.append(&event, records)
    }
}

pub(super) struct Change<'a> {
    pub(super) record: &'a mut SessionRecord,
    records: &'a mut Records,
    now: Timestamp,
}

impl Change<'_> {
    fn put(&mut self, number: u32, record: &impl Stored) {
        let key = record::numbered_key(self.record.session_id, number);
        record.put_at(key, self.records);
    }

    /// Adds a prompt that waits behind another one.
    pub(super) fn queue_prompt(&mut self, prompt: &PromptRecord) {
        self.record.last_prompt = self.record.last_prompt.max(prompt.prompt_id.number());
        self.record.queued.push(prompt.prompt_id);
        self.record.last_activity_at = self.now;
        self.put_prompt(prompt);
    }

    pub(super) fn set_queue(&mut self, order: Vec<PromptId>) {
        self.record.queued = order;
        self.record.last_activity_at = self.now;
    }

    /// Makes a prompt the running one, and removes it from the queue.
    pub(super) fn run_prompt(&mut self, prompt: &PromptRecord) {
        self.record.last_prompt = self.record.last_prompt.max(prompt.prompt_id.number());
        self.record.begin_prompt(prompt.prompt_id);
        self.record.last_activity_at = self.now;
        self.put_prompt(prompt);
    }

    pub(super) fn end_prompt(&mut self, prompt: &PromptRecord) {
        self.record
            .prompt_id
            .take_if(|running| *running == prompt.prompt_id);
        self.record
            .queued
            .retain(|queued| *queued != prompt.prompt_id);
        self.record.last_activity_at = self.now;
        self.record.last_outcome = prompt.outcome();
        self.put_prompt(prompt);
    }

    pub(super) fn put_prompt(&mut self, prompt: &PromptRecord) {
        self.put(prompt.prompt_id.number(), prompt);
    }

    pub(super) fn open_request(&mut self, id: RequestId, request: &RequestRecord) {
        self.record.last_request = self.record.last_request.max(id.number());
        self.record.open_requests.push(id);
        self.record.last_activity_at = self.now;
        self.put(id.number(), request);
    }

    pub(super) fn resolve_request(&mut self, id: RequestId, request: &RequestRecord) {
        self.record.open_requests.retain(|open| *open != id);
        self.record.last_activity_at = self.now;
        self.put(id.number(), request);
    }

    pub(super) fn open_terminal(&mut self, terminal: &TerminalRecord) {
        let id = terminal.shown.terminal_id;
        self.record.last_terminal = self.record.last_terminal.max(id.number());
        self.record.open_terminals.push(id);
        self.put(terminal.shown.terminal_id.number(), terminal);
    }

    pub(super) fn close_terminal(&mut self, terminal: &TerminalRecord) {
        self.record
            .open_terminals
            .retain(|open| *open != terminal.shown.terminal_id);
        self.put(terminal.shown.terminal_id.number(), terminal);
    }

    pub(super) fn put_claim(&mut self, claim: &Claim, prompt: Option<PromptId>) {
        claim.put(self.record.session_id, prompt, self.records);
    }
}
