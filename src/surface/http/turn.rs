//! The start of a turn, and the sign-in to an agent with one call, as every surface performs them.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::authorized::Authorized;
use super::state::{AppState, record_session};

use crate::stream::{Feed, Source, StreamGuard, TurnFilter};
use agents::agent::{AgentFailure, AgentSpec};
use agents::pool::ShortLease;
use base::types::{LimitExceeded, Principal, PromptId};
use log::audit::SignInRecord;
use log::eventlog::Start;
use sessions::session::{AdmittedPrompt, PromptError, PromptRequest, SessionHandle};
use wire::acp::{TraceContext, auth, with_trace};

pub(crate) struct NewTurn {
    pub(crate) admitted: AdmittedPrompt,
    /// Counts the response as a stream.
    pub(crate) guard: Option<StreamGuard>,
}

impl NewTurn {
    /// Checks the limits of the user and starts the turn. The response of a `held` request is a stream or
    /// waits for the turn.
    pub(crate) async fn begin<E: From<LimitExceeded> + From<PromptError>>(
        app: &AppState,
        by: &Principal,
        session: &SessionHandle,
        request: PromptRequest,
        held: bool,
    ) -> Result<Self, E> {
        record_session(session.id());
        // Acquire the stream before the turn starts: if that failed later, the client would have neither the
        // stream nor the id of the turn.
        let guard = held.then(|| app.streams.acquire(by, "turn")).transpose()?;
        // A repetition of a request with an idempotency key begins no turn, so the rate does not apply to it.
        let requests = Arc::clone(&app.requests);
        let principal = by.clone();
        let count = move || requests.rates.check_prompt(&principal);
        Ok(Self {
            admitted: session.prompt(by, request, count).await?,
            guard,
        })
    }
}

/// `last_seq`: the last event of the turn, if the turn has ended.
pub(crate) fn turn_feed(
    app: &AppState,
    session: SessionHandle,
    prompt: PromptId,
    first_seq: u64,
    last_seq: Option<u64>,
) -> Feed {
    let reader = session.log().reader(Start::After(first_seq - 1));
    Feed {
        turn: Some(TurnFilter { prompt, last_seq }),
        ..app.feed(Source::session(reader, session))
    }
}

/// Calls a sign-in method of the agent, which can wait for a person. `meta` was checked against the agent's entry.
pub(crate) async fn call_sign_in<S>(
    app: &AppState,
    by: &Authorized<S>,
    spec: &AgentSpec,
    mut lease: ShortLease,
    method_id: String,
    meta: Option<&RawValue>,
    trace: Option<&TraceContext>,
) -> Result<(), AgentFailure> {
    let sign_in = auth::authenticate(&method_id, meta);
    let record = SignInRecord::start(&app.audit, &by.author(), spec.name.clone(), Some(method_id));
    let login = lease.version().login_method();
    let params = with_trace(&sign_in, trace);
    let timeout = app.limits.http.sign_in_timeout;
    let called = lease.call(login, &params, timeout).await;
    record.end(called.is_ok());
    called?;
    lease.signed_in(sign_in);
    tracing::info!(agent = %spec.name, by = by.user.name(), "signed in to an agent");
    Ok(())
}
