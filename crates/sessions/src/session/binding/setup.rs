//! Acquires a process, creates or restores the session on it, and ends the attachment.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};

use super::state::{CallPurpose, LoadSignIn, LostContext, SetUp, SetupMethod};
use super::{Binding, Pending};
use crate::limits::Limits;
use crate::session::context::Context;
use crate::session::error::{InputError, ProcessError, RETRY_AFTER};
use crate::session::journal::Journal;
use crate::session::record::{SessionRecord, StoredChannel};
use crate::session::turns::Turns;
use crate::session::validation::{Origin, cannot_adopt, check_supported};
use crate::transcript::FOLDED_MEMBER_BYTES;
use crate::transcript::SessionFold;
use agents::agent::{AgentFailure, AgentSpec, Process};
use agents::pool::{AcquireError, Disposition, Lease, Priority, RequestedSession};
use base::types::PrincipalLimit::LiveSessions;
use events::api::SessionState;
use events::event::{
    AttachedBy, Context as AttachedContext, DetachedReason, EncodedEvent, LostReason,
    SessionAttached, SessionDetached,
};
use wire::acp::{self, McpServer, SessionSetup, TraceContext, auth};
use wire::jsonrpc::RpcError;

/// The number of consecutive attaches that may fail because the agent refuses to restore the session for an unknown reason. The
/// last one begins a new agent session.
const RESTORE_FAILURES: u32 = 3;
/// The longest delay before the first load of a session at an agent that must not load a new session
/// immediately.
const LOAD_DEFERRAL_MAX: Duration = Duration::from_mins(1);

impl Binding {
    /// Reserves a process if the session has none. No event is appended before this succeeds.
    pub(crate) fn reserve(
        &mut self,
        context: &Context,
        journal: &Journal,
        is_draining: bool,
    ) -> Result<(), ProcessError> {
        if self.needs_no_request() || self.pending.is_some() {
            return Ok(());
        }
        if let Some(at) = deferred_load(context, journal.record()) {
            self.wait_until(at);
            return Ok(());
        }
        if is_draining {
            return Err(ProcessError::DRAINING);
        }
        let entered = self.enter_pool_queue(context, journal.record());
        if entered.is_ok() {
            self.queued(Instant::now());
        } else {
            self.release_guard();
        }
        entered
    }

    /// Enters the pool's queue, and counts the session as live.
    fn enter_pool_queue(
        &mut self,
        context: &Context,
        record: &SessionRecord,
    ) -> Result<(), ProcessError> {
        // The pool reports an agent that was removed.
        if let Some(spec) = context.catalogue.load().agent(&record.agent) {
            check_host(spec, record)?;
        }
        // No folder of this host belongs to a session on another host.
        let folders: Vec<PathBuf> = if record.remote_folders {
            Vec::new()
        } else {
            std::iter::once(&record.cwd)
                .chain(&record.additional_directories)
                .map(PathBuf::from)
                .collect()
        };
        let has_history = record.has_history() || record.called || self.calls.imports_history();
        let session = record.agent_session_id.as_deref();
        let session = session.map(|session| RequestedSession {
            session: session.into(),
            has_history,
            in_use: self.is_in_use(),
            earlier: self
                .previous
                .as_ref()
                .map(|previous| Arc::clone(&previous.channel)),
        });
        if self.live_guard.is_none() {
            let limits = context.pool.principal_limits().effective(&self.owner);
            let live = &context.live;
            let guard = live.acquire(self.owner.user.clone(), limits.max(LiveSessions));
            let exceeded = || AcquireError::from(limits.exceeded(LiveSessions, RETRY_AFTER));
            self.live_guard = Some(guard.ok_or_else(exceeded)?);
        }
        let offered = self.offered_capabilities(record);
        let lease = context
            .pool
            .enqueue(
                &record.agent,
                &self.owner,
                offered,
                folders.clone(),
                Priority::Reclaim,
                session,
            )
            .map_err(|error| match error {
                // The agent was configured when the session was created.
                AcquireError::NoSuchAgent => ProcessError::from(AgentFailure::removed()),
                error => error.into(),
            })?;
        let workspaces = context.workspaces_of(record);
        let check = context
            .shutdown
            .spawn_blocking(move || workspaces.check_directories(&folders));
        self.pending = Some(Pending {
            lease,
            check: Some(check),
        });
        Ok(())
    }

    /// Uses the configuration of a new lease, before the session decides whether it uses the process.
    pub(crate) fn offered(&mut self, lease: &Lease) {
        self.spec = Arc::clone(&lease.process().spec);
    }

    /// Accepts a process, and returns the request that creates or restores the session on it. `None`: the process cannot be
    /// used, and the session needs another one.
    pub(crate) fn accept(
        &mut self,
        lease: Lease,
        record: &SessionRecord,
    ) -> Result<Option<SetUp>, ProcessError> {
        let died = lease.process().has_ended() && self.may_replace();
        if died || lease.process().key.client_capabilities != self.offered_capabilities(record) {
            // The process died while it was idle, or the configuration has changed during the wait. In the
            // second case the process was started with the previous client capabilities.
            lease.release(Disposition::Untouched);
            return Ok(None);
        }
        match self.setup_method(lease.process(), record) {
            Ok(method) => {
                self.hold(lease);
                let reason = if record.discards_context {
                    LostReason::Requested
                } else if record.agent_session_id.is_none() {
                    LostReason::Imported
                } else {
                    LostReason::Unsupported
                };
                Ok(Some(match method {
                    SetupMethod::Fresh => SetUp::fresh(reason, None),
                    method => SetUp::new(method),
                }))
            }
            Err(error) => {
                // The process received no request for this session.
                lease.release(Disposition::Untouched);
                Err(error)
            }
        }
    }

    /// The method that creates or restores the session on a process. Fails if the process does not suit the session.
    fn setup_method(
        &self,
        process: &Process,
        record: &SessionRecord,
    ) -> Result<SetupMethod, ProcessError> {
        check_host(&process.spec, record)?;
        let capabilities = &process.initialized.capabilities;
        let directories = &record.additional_directories;
        check_supported(
            &self.spec,
            &record.mcp_servers,
            &self.client_servers,
            directories,
            capabilities,
        )?;
        if record.discards_context && record.agent_session_id.is_some() {
            return Ok(SetupMethod::Fresh);
        }
        let untouched = !record.has_history() && !record.called;
        let agent_info = process.initialized.agent_info.as_deref();
        let imports = self.calls.imports_history();
        let has_session = record.agent_session_id.is_some();
        if !has_session && record.imported_from.is_some() {
            return Ok(SetupMethod::Fresh);
        }
        let replaces_empty = untouched && !acp::restores_empty_sessions(agent_info);
        SetupMethod::choose(imports, has_session, replaces_empty, capabilities)
            .ok_or_else(cannot_adopt)
    }

    /// Sends the request that creates or restores the session.
    pub(crate) fn set_up(
        &mut self,
        set_up: SetUp,
        record: &SessionRecord,
        trace: Option<&TraceContext>,
        limits: &Limits,
    ) {
        let method = set_up.method;
        let version = self.version();
        let servers = self.mcp_servers(record);
        let setup = session_setup(record, &servers);
        let trace = trace.or_else(|| self.calls.trace());
        let params = match (&record.agent_session_id, method) {
            (Some(id), SetupMethod::Resume) => acp::resume_session(id, setup, trace),
            (Some(id), SetupMethod::Load) => acp::replay_session(version, id, setup, trace),
            _ => acp::new_session(setup, trace),
        };
        let timeout = match method {
            SetupMethod::Load => limits.session_load_timeout,
            _ => limits.session_new_timeout,
        };
        self.call_for(
            CallPurpose::SetUp(set_up),
            method.method(version),
            &params,
            timeout,
        );
    }

    /// Sends a call of the attachment. If stdin is closed, the batches report the end of the process.
    fn call_for(
        &mut self,
        purpose: CallPurpose,
        method: &str,
        params: &RawValue,
        timeout: Duration,
    ) -> bool {
        let Some(call) = self.call(method, params) else {
            return false;
        };
        self.called(call, Instant::now() + timeout, purpose);
        true
    }

    /// The MCP servers of the session in the agent's version of ACP: those that are still configured, and those of clients.
    pub(crate) fn mcp_servers(&self, record: &SessionRecord) -> Vec<McpServer> {
        let Some(process) = self.process() else {
            return Vec::new();
        };
        let configured = record
            .mcp_servers
            .iter()
            .filter_map(|name| process.spec.mcp.get(name));
        configured
            .chain(&self.client_servers)
            .map(|server| server.clone().for_version(process.version()))
            .collect()
    }

    /// Stores the id of the agent's session from the result of `session/new`.
    pub(crate) fn adopt_agent_session(
        &self,
        context: &Context,
        journal: &mut Journal,
        result: &RawValue,
    ) -> Result<(), AgentFailure> {
        let new: acp::NewSessionResult<'_> =
            acp::parse(result).map_err(|error| AgentFailure::Start {
                detail: format!("invalid result of session/new: {error}"),
            })?;
        let agent_info = self
            .initialized()
            .and_then(|known| known.agent_info.as_deref());
        let load_not_before = acp::earliest_load(agent_info, context.ids.now());
        journal.update(|record| {
            record.agent_session_id = Some(new.session_id.into_owned());
            record.load_not_before = load_not_before;
        });
        Ok(())
    }

    /// Begins the next step of the sign-in with the key from the environment, after the agent rejected `session/load`.
    /// Returns `load_error` if the sign-in has no more steps.
    pub(crate) fn sign_in_for_load(
        &mut self,
        load_error: RpcError,
        context: &Context,
    ) -> Result<(), RpcError> {
        let Some(process) = self.process() else {
            return Ok(());
        };
        let Some(sign_in) = process.sign_in_by_variable_at_load() else {
            return Err(load_error);
        };
        let (method, params, timeout) = match self.load_sign_in() {
            LoadSignIn::NotTried => {
                // In HOME no settings of a project select a sign-in.
                let home = process.spec.home_of(&process.key.tenant);
                let home = home.to_string_lossy();
                let setup = SessionSetup {
                    cwd: &home,
                    mcp_servers: &[],
                    additional_directories: &[],
                    meta: None,
                };
                (
                    acp::method::SESSION_NEW,
                    acp::new_session(setup, None),
                    context.limits.session_new_timeout,
                )
            }
            LoadSignIn::KeyChecked => (
                self.version().login_method(),
                auth::authenticate(sign_in, None),
                context.pool.limits().call_timeout,
            ),
            LoadSignIn::SignedIn => return Err(load_error),
        };
        if self.call_for(CallPurpose::SignIn { load_error }, method, &params, timeout) {
            tracing::info!(
                method,
                "the agent loads no session without a sign-in, trying its key"
            );
        }
        Ok(())
    }

    /// Appends `session.attached`, and before it `session.created` of a new session, because the agent has the session. `None`
    /// without a process.
    pub(crate) fn attached(
        &mut self,
        context: &Context,
        journal: &mut Journal,
        turns: &mut Turns,
        method: SetupMethod,
        lost: Option<LostContext>,
        result: &RawValue,
    ) -> Option<u64> {
        let lease = self.lease.as_ref()?;
        lease.record_auth(false);
        if let Some(id) = &journal.record().agent_session_id {
            lease.record_session(id);
        }
        let initialized = Arc::clone(&lease.process().initialized);
        let isolation = lease.process().isolation();
        let channel = lease.process().channel();
        let imports = self.calls.imports_history();
        let has_turn = turns.running().is_some();
        self.enter_attached(method, imports, has_turn, &context.limits, Instant::now());
        let prompt_capabilities = initialized
            .prompt_capabilities()
            .filter(|raw| raw.get().len() <= FOLDED_MEMBER_BYTES);
        let models =
            acp::RawObject::parse(result).is_some_and(|object| object.get("models").is_some());
        journal.update(|record| {
            record.attached = true;
            record.restore_failures = 0;
            record.discards_context = false;
            record.channel = channel.map(|id| StoredChannel {
                id,
                initialize: initialized.raw.clone(),
                resent: turns.is_resent(),
            });
            record.isolation = isolation;
            record.prompt_capabilities = prompt_capabilities;
            if record.is_closed() {
                record.state = SessionState::Idle;
            }
            record.models = models;
            record.unfinished = false;
        });
        self.cancel_lost_turn(method, journal.record());
        journal.fold_with(|fold| fold.attached(result));
        let origin = self.calls.origin();
        let mut claim = self.calls.take_claim();
        // Both events of a new session are one commit, for which its client waits. The output of a channel is a group already.
        let is_new = journal.appended() == 0;
        let _group = (is_new && channel.is_none()).then(|| journal.begin_group());
        if is_new {
            journal.append_created(origin, claim.take().as_ref());
        }
        journal.update(|record| record.inherits_history |= imports);
        let lost = if journal.record().has_history() {
            lost
        } else {
            None
        };
        if let Some(LostContext { reason, detail }) = &lost {
            let reason = reason.into_str();
            tracing::warn!(
                reason,
                detail,
                "the agent lost the conversation; a new one begins"
            );
        }
        // Only the result of `session/new` contains the agent's session id, and it was parsed above.
        let result = acp::replace_session_id(result, &journal.session());
        let denied_modes = journal
            .mode_policy(&self.client_rules(context, journal.record()))
            .offered();
        let event = EncodedEvent::from(&SessionAttached {
            by: match origin {
                None | Some(Origin::New) => method.attached_by(),
                Some(Origin::Adopted) => AttachedBy::Adopt,
                Some(Origin::Forked(_)) => AttachedBy::Fork,
            },
            context: if lost.is_some() {
                AttachedContext::Lost
            } else {
                AttachedContext::Kept
            },
            reason: lost.as_ref().map(|lost| lost.reason),
            detail: lost.as_ref().and_then(|lost| lost.detail.as_deref()),
            isolation,
            protocol_version: initialized.acp_version.number(),
            agent_info: initialized.agent_info.as_deref(),
            agent_capabilities: &initialized.raw_capabilities,
            result: result.as_deref().ok(),
            denied_modes: &denied_modes,
        });
        // A prompt that was not sent before a drain is sent when `session.attached` is durable.
        turns.begin_unsent(journal);
        let seq = journal.append_with(None, event, |seq, change| {
            if let Some(claim) = &claim {
                change.put_claim(claim, None);
            }
            if let Some(record) = turns.mark_sent(seq) {
                change.put_prompt(record);
            }
        });
        if channel.is_some() {
            // A restart then knows that a prompt without a channel was not sent.
            turns.send_after(seq);
        }
        Some(seq)
    }

    /// Cancels the turn of a lost connection, which an agent on another host continues.
    fn cancel_lost_turn(&self, method: SetupMethod, record: &SessionRecord) {
        if let (true, SetupMethod::Resume | SetupMethod::Load, Some(id)) =
            (record.remote_folders, method, &record.agent_session_id)
        {
            self.notify(acp::method::SESSION_CANCEL, &acp::session_params(id, None));
        }
    }

    /// Begins the log of an imported session with the history that the agent sends. If the import fails later, the session is
    /// erased.
    pub(crate) fn begin_history(&self, journal: &mut Journal) {
        if journal.appended() == 0 {
            journal.update(|record| record.unfinished = true);
            journal.append_created(self.calls.origin(), None);
        }
    }

    /// Asks the agent to close or delete the session, so that its process can serve another session. Returns false if the
    /// agent can do neither.
    pub(crate) fn close_at_agent(
        &mut self,
        delete: bool,
        record: &SessionRecord,
        trace: Option<&TraceContext>,
        limits: &Limits,
    ) -> bool {
        let (Some(known), Some(id)) = (self.initialized(), record.agent_session_id.as_deref())
        else {
            return false;
        };
        let can = known.capabilities.session;
        let (method, closes) = if delete && can.delete {
            (acp::method::SESSION_DELETE, false)
        } else if can.close {
            (acp::method::SESSION_CLOSE, true)
        } else {
            return false;
        };
        let params = acp::session_params(id, trace);
        let timeout = limits.session_close_timeout;
        self.call_for(CallPurpose::Release { closes }, method, &params, timeout)
    }

    /// The entry with the rules for clients: the current one, also while the session has a process with a previous entry.
    /// For a removed agent: the entry of its process.
    pub(crate) fn client_rules(&self, context: &Context, record: &SessionRecord) -> Arc<AgentSpec> {
        let current = context.catalogue.agent(&record.agent);
        current.unwrap_or_else(|| Arc::clone(&self.spec))
    }
}

/// Appends the end of the attachment.
pub(crate) fn append_detached(journal: &mut Journal, turns: &mut Turns, reason: DetachedReason) {
    journal.fold_with(SessionFold::detached);
    journal.append_with(None, &SessionDetached { reason }, |_, change| {
        change.record.attached = false;
        change.record.channel = None;
        // The next process gets the prompt, also after a restart.
        if let Some(record) = turns.mark_unsent() {
            change.put_prompt(record);
        }
    });
}

/// Counts an attach that failed because the agent refused to restore the session, also across restarts. Returns whether the
/// refusal counts as final: the session would otherwise be unusable for ever.
pub(crate) fn has_failed_too_often(journal: &mut Journal) -> bool {
    journal.update(|record| record.restore_failures += 1);
    journal.save_record();
    journal.record().restore_failures >= RESTORE_FAILURES
}

/// The parameters of every new, resume or load. The agent itself never restores directories and servers.
pub(crate) fn session_setup<'a>(
    record: &'a SessionRecord,
    mcp_servers: &'a [McpServer],
) -> SessionSetup<'a> {
    SessionSetup {
        cwd: &record.cwd,
        mcp_servers,
        additional_directories: &record.additional_directories,
        meta: record.meta.as_deref(),
    }
}

/// Rejects an agent on another host than that of the session's folders: its entry has changed.
fn check_host(spec: &AgentSpec, record: &SessionRecord) -> Result<(), ProcessError> {
    if spec.endpoint.remote_folders().is_some() == record.remote_folders {
        return Ok(());
    }
    let detail =
        "the agent runs on another host than at the creation of the session: create a new session";
    Err(InputError::Forbidden(detail.to_owned()).into())
}

/// When the session may ask for a process, if the agent must not load the session yet.
fn deferred_load(context: &Context, record: &SessionRecord) -> Option<Instant> {
    let wait = record.load_not_before?.since(context.ids.now());
    // If the wall clock was set back, the wait does not become longer.
    let wait = wait.min(LOAD_DEFERRAL_MAX);
    (!wait.is_zero()).then(|| Instant::now() + wait)
}
