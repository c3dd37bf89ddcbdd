//! Loads a session's actor from its records and log, and closes everything that a crash left open.

use std::sync::atomic::AtomicBool;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::turn::TurnEnd;
use super::{Actor, Lifecycle};
use crate::acp::RequestKind;
use crate::api::Resolution;
use crate::event::DetachedReason;
use crate::eventlog::SessionLog;
use crate::pool::CrashBackoff;
use crate::session::agent_requests::AgentRequests;
use crate::session::attachment::{Attachment, DiscardCounter};
use crate::session::client_calls::ClientCalls;
use crate::session::client_methods::ClientMethods;
use crate::session::client_methods::terminals::Terminals;
use crate::session::context::Context;
use crate::session::entry::ActorEntry;
use crate::session::error::SessionError;
use crate::session::event_loop::EventLoop;
use crate::session::journal::Journal;
use crate::session::origin::Origin;
use crate::session::process_link::ProcessLink;
use crate::session::record::{
    self, FoldRecord, RequestRecord, SessionRecord, StoredExit, TerminalRecord,
};
use crate::session::serving_clients::ServingClients;
use crate::session::stored::{agent_spec, read_record};
use crate::session::turns::Turns;
use crate::store::Table;
use crate::types::{GrantedFolders, Principal, Scope, SessionId, SessionState, Tenant};

/// The principal on whose behalf the session leases processes.
fn owner(record: &SessionRecord) -> Principal {
    Principal {
        id: record.owner.as_str().into(),
        tenant: record.tenant(),
        scopes: Scope::ALL.into_iter().collect(),
        folders: GrantedFolders::default(),
    }
}

impl Actor {
    /// Creates the actor of a new session, and its entry.
    pub(in crate::session) fn new(
        context: &Context,
        log: SessionLog,
        record: SessionRecord,
        origin: Origin,
    ) -> (Self, ActorEntry) {
        let mut journal = Journal::new(log, context.ids.clone(), record, &context.bounds.quotas);
        journal.begin_title(origin);
        Self::with_journal(context, journal)
    }

    /// Creates an actor without a process, and its entry.
    fn with_journal(context: &Context, journal: Journal) -> (Self, ActorEntry) {
        let (sender, commands) = mpsc::channel(context.limits.max_queued_commands);
        let (ends, turn_ends) = watch::channel(0);
        let (completer, completions) = mpsc::channel(context.limits.max_queued_commands);
        let (events, terminal_events) = mpsc::channel(context.limits.max_queued_batches);
        let terminals = Terminals::new(events, context.bounds.scrollback_budget.clone());
        let now = Instant::now();
        let entry = ActorEntry {
            commands: sender,
            log: journal.log().clone(),
            turn_ends,
            stopped: CancellationToken::new(),
            visible: AtomicBool::new(true),
        };
        let event_loop = EventLoop {
            commands,
            has_handles: true,
            commits: journal.log().commits(),
            disk_space: context.log.disk_space(),
            completions,
            terminal_events,
            shutdown: context.shutdown.clone(),
        };
        let lifecycle = Lifecycle {
            last_command_at: now,
            drain_at: None,
            stopping: false,
            crashes: CrashBackoff::default(),
            discarded: DiscardCounter::default(),
        };
        let actor = Self {
            context: context.clone(),
            link: ProcessLink::new(
                agent_spec(context, journal.record()),
                owner(journal.record()),
            ),
            journal,
            attachment: Attachment::new(now),
            turns: Turns::new(ends, now),
            agent_requests: AgentRequests::default(),
            client_calls: ClientCalls::default(),
            client_methods: ClientMethods::new(completer, terminals, &context.limits),
            serving: ServingClients::default(),
            brought_servers: Vec::new(),
            event_loop,
            lifecycle,
        };
        (actor, entry)
    }

    /// Loads a session. `None` if it does not exist, or does not belong to this tenant. `restore`: queued prompts may run.
    pub(in crate::session) async fn load(
        context: &Context,
        tenant: Option<&Tenant>,
        id: SessionId,
        restore: bool,
    ) -> Result<Option<(Self, ActorEntry)>, SessionError> {
        let key = record::session_key(id);
        let Some(record) =
            read_record::<SessionRecord>(context, Table::Session, key.clone()).await?
        else {
            return Ok(None);
        };
        // Loading writes to the log, which a client of another tenant must not cause.
        if tenant.is_some_and(|tenant| *tenant != record.tenant()) {
            return Ok(None);
        }
        let log = context.log.session(&record.tenant(), id).await?;
        let folded = read_record::<FoldRecord>(context, Table::Fold, key).await?;
        let (mut journal, mut seq) = Journal::load(
            log,
            context.ids.clone(),
            record,
            folded,
            &context.bounds.quotas,
        );
        loop {
            let runs = journal
                .log()
                .read(seq, context.limits.store_page_bytes)
                .await;
            let runs = runs?;
            let Some(last) = runs.last() else { break };
            seq = last.last_seq;
            journal.refold(&runs);
        }
        let (mut actor, entry) = Self::with_journal(context, journal);
        actor.close_open_state(restore).await?;
        Ok(Some((actor, entry)))
    }

    /// Closes the turn, the requests and the process that a crash left open. Each gets exactly one end.
    /// Prompts that were not sent to the agent return to the queue.
    ///
    /// Another crash can interrupt this between any two commits. The session's record lists each open item
    /// until its end is committed, and items that have an end are skipped.
    async fn close_open_state(&mut self, restore: bool) -> Result<(), SessionError> {
        let id = self.journal.session();
        let record = self.journal.record().clone();
        if record.unfinished {
            self.erase(&record.owner);
            return Ok(());
        }
        if restore && self.expect_former_process().await? {
            return Ok(());
        }
        let failed = self.restore_queue(restore).await?;
        if record.state == SessionState::Waiting {
            for request in record.open_requests {
                let key = record::numbered_key(id, request.number());
                let stored =
                    read_record::<RequestRecord>(&self.context, Table::Request, key).await?;
                if let Some(RequestRecord {
                    pending: Some(pending),
                    resolution: None,
                    ..
                }) = stored
                {
                    // The process is gone.
                    let outcome = RequestKind::from_method(&pending.method).cancelled_reply();
                    self.append_resolved(
                        &pending.into(),
                        Resolution::Expired,
                        None,
                        &outcome,
                        None,
                    );
                }
            }
        }
        for terminal in record.open_terminals {
            let key = record::numbered_key(id, terminal.number());
            let stored = read_record::<TerminalRecord>(&self.context, Table::Terminal, key).await?;
            if let Some(mut terminal) = stored.filter(|terminal| terminal.last_seq.is_none()) {
                // The exit status is unknown.
                terminal.shown.exit_status = Some(StoredExit {
                    exit_code: None,
                    signal: None,
                });
                self.append_terminal_end(None, terminal);
            }
        }
        self.journal.update(|record| {
            record.open_requests.clear();
            record.open_terminals.clear();
        });
        for (prompt, problem) in failed {
            for queued in self.turns.remove_queued(Some(prompt)) {
                self.append_turn_end(queued.record, TurnEnd::Failed(problem.clone()));
            }
        }
        self.append_detached(DetachedReason::Exited);
        Ok(())
    }
}
