//! The handle to the audit log, and the task that completes it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::chain::{Chain, ChainHead, HEAD, PENDING, decode};
use super::counted::CountedEvents;
use super::reads::{Read, Reads};
use crate::eventlog::{EventLog, ReadError, Records, SessionLog};
use crate::limits::Limits;
use crate::store::{RecordState, Table};
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{AgentName, Author, Ids, SessionId, UserId};
use events::event::{
    ActorKind, AttemptOutcome, AuditActor, AuditEntry, AuditEvent, AuditPruned, ExportForm,
    SessionExported, SessionRead, SignInEnded, SignInStarted,
};

/// The owner of the audit log. No user has this name, so its events are on no stream of sessions.
const OWNER: &str = "/audit";
/// How often pending entries move to the log.
const ADOPT_INTERVAL: Duration = Duration::from_secs(1);
/// How often old events are deleted.
const PRUNE_INTERVAL: Duration = Duration::from_mins(10);
/// The time for the last pending entries at a stop.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of pending entries in one step.
const ADOPT_STEP: usize = 256;
/// The period in which equal reads of a session are one event, in windows of counted events.
const READ_WINDOWS: u32 = 60;
/// The uncommitted bytes above which events that clients can repeat wait: the disk is full or too slow.
const MAX_UNCOMMITTED_BYTES: usize = 1 << 20;

/// The record of an entry, for the commit of the change that it describes.
pub fn pending_entry(
    ids: &Ids,
    actor: impl Into<AuditActor>,
    event: impl Into<AuditEvent>,
) -> RecordState {
    let key = [PENDING, ids.uuid().as_bytes()].concat();
    let entry = AuditEntry {
        time: ids.now(),
        actor: actor.into(),
        event: event.into(),
    };
    pending_record(key, &entry)
}

/// The records of several entries, which become events in this order.
pub fn pending_entries(
    ids: &Ids,
    actor: ActorKind,
    events: impl IntoIterator<Item = AuditEvent>,
) -> Vec<RecordState> {
    let first = [PENDING, ids.uuid().as_bytes()].concat();
    let time = ids.now();
    let numbered = (0_u32..).zip(events);
    let records = numbered.map(|(number, event)| {
        let key = [&first[..], &number.to_be_bytes()].concat();
        let actor = actor.into();
        pending_record(key, &AuditEntry { time, actor, event })
    });
    records.collect()
}

fn pending_record(key: Vec<u8>, entry: &AuditEntry) -> RecordState {
    let value = serde_json::to_vec(entry).expect("an entry serializes to JSON");
    RecordState::present(Table::Audit, key, value)
}

/// A handle to the audit log that is cheap to clone.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    log: EventLog,
    events: SessionLog,
    /// Locked from the number of an event to its append.
    chain: Mutex<Chain>,
    counted: CountedEvents,
    reads: Mutex<Reads>,
    ids: Ids,
    limits: Arc<Limits>,
}

impl Audit {
    pub async fn open(
        log: EventLog,
        counted: CountedEvents,
        ids: Ids,
        limits: Arc<Limits>,
    ) -> Result<Self, ReadError> {
        let events = log
            .session(&UserId::from_text(OWNER), SessionId::AUDIT)
            .await?;
        let head = log.get(Table::Audit, HEAD.to_vec()).await?;
        // After a manipulation of the store, the next event still names the last event that was written.
        let head = head.as_ref().and_then(ChainHead::from_record);
        let head = head.unwrap_or_default();
        if head.seq != events.appended() {
            tracing::error!(
                found = events.appended(),
                expected = head.seq,
                "the audit log does not end with its last event: run `acp-gateway audit verify`"
            );
        }
        let chain = Mutex::new(Chain::new(head, &log.epoch().of_session(SessionId::AUDIT)));
        Ok(Self(Arc::new(Inner {
            log,
            events,
            chain,
            counted,
            reads: Mutex::new(Reads::new(limits.audit_window * READ_WINDOWS)),
            ids,
            limits,
        })))
    }

    /// Appends an event. Never waits. The event is durable no later than every event that is appended to a session
    /// afterwards.
    pub fn append(&self, actor: impl Into<AuditActor>, event: impl Into<AuditEvent>) {
        let entry = AuditEntry {
            time: self.0.ids.now(),
            actor: actor.into(),
            event: event.into(),
        };
        self.append_entry(&entry, Records::default());
    }

    /// Records that a user that does not own the session opened it.
    pub fn session_read(&self, author: &Author, session: SessionId, owner: &UserId) {
        if self.is_first_read(Read::new(author, session, None)) {
            let read = SessionRead {
                session_id: session,
                owner: owner.to_string(),
            };
            self.append(author, read);
        }
    }

    /// Records the download of a transcript.
    pub fn transcript_exported(&self, author: &Author, session: SessionId, form: ExportForm) {
        if self.is_first_read(Read::new(author, session, Some(form))) {
            let exported = SessionExported {
                session_id: session,
                form,
            };
            self.append(author, exported);
        }
    }

    fn is_first_read(&self, read: Read) -> bool {
        let may_end = self.accepts_repeated();
        lock_or_abort(self.0.reads.lock()).is_first(read, may_end, Instant::now())
    }

    fn accepts_repeated(&self) -> bool {
        self.0.events.pending_bytes() <= MAX_UNCOMMITTED_BYTES
    }

    fn append_entry(&self, entry: &AuditEntry, records: Records) -> u64 {
        let mut chain = lock_or_abort(self.0.chain.lock());
        let seq = self.0.events.appended() + 1;
        chain.add(seq, entry, |event, head| {
            let records = records.put(Table::Audit, HEAD, head.to_record());
            self.0.events.append_at(entry.time, event, records)
        })
    }

    /// The counters of events that can be repeated without bound.
    pub fn counted(&self) -> &CountedEvents {
        &self.0.counted
    }

    /// The log, for readers. Only this handle appends to it.
    pub fn log(&self) -> &SessionLog {
        &self.0.events
    }

    /// Runs until the drain: moves pending and counted events to the log, and deletes old events.
    pub async fn run(self, shutdown: Shutdown) {
        let mut adopt = tokio::time::interval(ADOPT_INTERVAL);
        adopt.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut window_ends = Instant::now() + self.0.limits.audit_window;
        let mut prune_at = Instant::now();
        loop {
            tokio::select! {
                () = shutdown.drain_started() => return,
                () = self.0.counted.added() => {}
                () = tokio::time::sleep_until(window_ends) => {}
                _ = adopt.tick() => tokio::select! {
                    () = shutdown.drain_started() => return,
                    () = self.adopt_or_log() => {}
                },
            }
            let now = Instant::now();
            if now >= prune_at {
                prune_at = now + PRUNE_INTERVAL.min(self.0.limits.audit_max_age / 2);
                self.prune().await;
            }
            let ends = now >= window_ends;
            if ends {
                window_ends = now + self.0.limits.audit_window;
            }
            self.write_counted(ends);
        }
    }

    /// Appends everything that is pending. Call it before the log closes, which makes the events durable.
    pub async fn finish(&self) {
        // Records that remain are adopted at the next start.
        let _ = tokio::time::timeout(FINISH_TIMEOUT, self.adopt_or_log()).await;
        self.write_counted(true);
    }

    fn write_counted(&self, window_ends: bool) {
        if !self.accepts_repeated() {
            return;
        }
        for entry in self.0.counted.take(window_ends) {
            self.append_entry(&entry, Records::default());
        }
    }

    async fn adopt_or_log(&self) {
        if let Err(error) = self.adopt().await {
            tracing::warn!(%error, "could not read the pending events of the audit log; retrying");
        }
    }

    /// Moves the pending entries to the log. The commit that appends the event of an entry also deletes its record.
    async fn adopt(&self) -> Result<(), ReadError> {
        loop {
            let pending = PENDING.to_vec();
            let log = &self.0.log;
            let found = log.scan(Table::Audit, pending, None, ADOPT_STEP).await?;
            if found.is_empty() {
                return Ok(());
            }
            let is_last = found.len() < ADOPT_STEP;
            let mut seq = 0;
            for (key, record) in found {
                let removed = Records::default().delete(Table::Audit, key);
                if let Some(entry) = decode(&record) {
                    seq = self.append_entry(&entry, removed);
                } else {
                    tracing::error!("a pending event of the audit log could not be decoded");
                    self.0.events.put(removed);
                }
            }
            // The next scan must not find the same records. The log closes only after this task.
            if self.0.events.wait(seq).await.is_err() || is_last {
                return Ok(());
            }
        }
    }

    /// Deletes events that are too old or too many. An event names the last of them first.
    async fn prune(&self) {
        let log = &self.0.log;
        let limits = &self.0.limits;
        loop {
            match log
                .excess_of(
                    SessionId::AUDIT,
                    limits.audit_max_age,
                    limits.audit_max_bytes,
                )
                .await
            {
                Ok(None) => return,
                Ok(Some(through_seq)) => {
                    self.append(ActorKind::Gateway, AuditPruned { through_seq });
                    let durable = self.0.events.wait(self.0.events.appended()).await.is_ok();
                    if !durable || !log.prune(SessionId::AUDIT, through_seq).await {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "could not read the size of the audit log; retrying");
                    return;
                }
            }
        }
    }
}

/// A running sign-in. Its start is in the audit log. Dropping it without an outcome records that it was aborted.
#[derive(Debug)]
pub struct SignInRecord {
    audit: Audit,
    actor: AuditActor,
    agent: AgentName,
    method_id: Option<String>,
    outcome: AttemptOutcome,
}

impl SignInRecord {
    pub fn start(
        audit: &Audit,
        author: &Author,
        agent: AgentName,
        method_id: Option<String>,
    ) -> Self {
        let actor = AuditActor::from(author);
        let started = SignInStarted {
            agent: agent.clone(),
            method_id: method_id.clone(),
        };
        audit.append(actor.clone(), started);
        Self {
            audit: audit.clone(),
            actor,
            agent,
            method_id,
            outcome: AttemptOutcome::Aborted,
        }
    }

    pub fn end(mut self, succeeded: bool) {
        self.outcome = if succeeded {
            AttemptOutcome::Succeeded
        } else {
            AttemptOutcome::Failed
        };
    }
}

impl Drop for SignInRecord {
    fn drop(&mut self) {
        let ended = SignInEnded {
            agent: self.agent.clone(),
            method_id: self.method_id.take(),
            outcome: self.outcome,
        };
        self.audit.append(self.actor.clone(), ended);
    }
}
