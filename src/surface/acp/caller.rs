//! Handles the messages of a client.
//!
//! Prompts, cancels and answers are handled in the order in which they arrive. Other requests run beside them, because
//! they can wait for the start of a process.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::client::required_scope;
use super::connection::{AcpState, Connection, SentPrompt};
use super::message::{self, Failure, Result, is_valid_id, raw};
use super::projector::parse_request_id;
use super::session_view::{Place, SessionView};
use crate::surface::http::{AccessError, Authorized, HasKey, NewTurn, record_session};
use base::types::{RequestId, Scope, SessionId};
use events::api::{AcpRequest, CancelCause, Problem};
use sessions::session::{
    Answer, IdempotencyKey, PromptRequest, SessionError, SessionHandle, access_to_answer,
};
use wire::acp::{self, RequestKind, TraceContext, error_code, method, to_one_line};
use wire::jsonrpc::{Message, RpcError};

#[derive(Debug, Clone, derive_more::Deref)]
pub(super) struct Caller {
    #[deref]
    pub(super) app: AcpState,
    pub(super) connection: Arc<Connection>,
    pub(super) by: Authorized<HasKey>,
}

/// The methods that no stream of a session answers.
const CONNECTION_METHODS: [&str; 8] = [
    method::INITIALIZE,
    method::AUTHENTICATE,
    method::SESSION_NEW,
    method::SESSION_FORK,
    method::SESSION_LIST,
    method::SESSION_CLOSE,
    method::SESSION_DELETE,
    method::SESSION_DETACH,
];

/// The result of a request.
pub(super) type Outcome = Result<Box<RawValue>>;

impl Caller {
    pub(super) fn require(&self, scope: Scope) -> Result<()> {
        let missing = |error: AccessError| Problem::missing_scope(scope, error.to_string());
        Ok(self.by.require(scope).map_err(missing)?)
    }

    pub(super) async fn open(&self, id: &str) -> Result<SessionHandle> {
        let known: Option<SessionId> = id.parse().ok();
        let known = known.ok_or_else(|| Failure::no_such_session(id))?;
        let opened = self.open_session(&self.by, known).await;
        opened.map_err(|error| match error {
            SessionError::NoSuchSession => Failure::no_such_session(id),
            error => error.into(),
        })
    }

    /// Returns when the next message may be handled.
    pub(super) async fn handle(&self, message: Message) {
        match message {
            Message::Request { id, .. } if !is_valid_id(&id) => {
                let failure = Failure::invalid_request("the id must be a string, a number or null");
                self.respond(RawValue::NULL, None, Err(failure));
            }
            Message::Request { id, method, params } => {
                self.request(to_one_line(id), &method, to_one_line(params))
                    .await;
            }
            Message::Notification { method, params } => {
                self.notification(&method, &to_one_line(params)).await;
            }
            Message::Response { id, outcome } => self.answer(&id, outcome).await,
        }
    }

    /// `view`: the session whose stream delivers the response.
    fn respond(&self, id: &RawValue, view: Option<&SessionView>, outcome: Outcome) {
        let response = match outcome {
            Ok(result) => message::response(id, Ok(&result)),
            Err(failure) => {
                self.audit(&failure);
                message::response(id, Err(&failure))
            }
        };
        self.connection.respond(view, Place::default(), response);
    }

    /// Counts a message for the audit log if the key does not permit it.
    fn audit(&self, failure: &Failure) {
        if failure.is_forbidden {
            self.app.audit_forbidden(&self.by.author());
        }
    }

    async fn request(&self, id: Box<RawValue>, method: &str, params: Box<RawValue>) {
        let session = session_of(&params);
        if let Some(Ok(session)) = session.as_ref().map(|session| session.parse()) {
            record_session(session);
        }
        let view = session.and_then(|session| self.connection.view(&session));
        if let Err(failure) = self.check_role(method, &params) {
            return self.respond(&id, view.as_deref(), Err(failure));
        }
        if method == method::SESSION_PROMPT {
            if let Err(failure) = self.prompt(&id, &params).await {
                self.respond(&id, view.as_deref(), Err(failure));
            }
            return;
        }
        let Ok(permit) = Arc::clone(&self.connection.calls).try_acquire_owned() else {
            let detail = "too many calls of this connection are in progress";
            return self.respond(&id, None, Err(Failure::new(error_code::INTERNAL, detail)));
        };
        // The responses to these requests are on the stream of the connection.
        let view = if CONNECTION_METHODS.contains(&method) {
            None
        } else {
            view
        };
        let caller = self.clone();
        let method = method.to_owned();
        let call = async move {
            if let Some(outcome) = caller.call(&id, &method, params).await {
                caller.respond(&id, view.as_deref(), outcome);
            }
            drop(permit);
        };
        // The task may outlive the connection: a session that was created exists.
        drop(self.shutdown.spawn_isolated(call.in_current_span()));
    }

    async fn prompt(&self, id: &RawValue, params: &RawValue) -> Result<()> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            session_id: Cow<'a, str>,
            #[serde(borrow)]
            prompt: &'a RawValue,
            #[serde(borrow, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        self.require(Scope::Prompt)?;
        let params: Params<'_> = acp::parse(params).map_err(|_| {
            Failure::invalid_params("expected a sessionId and an array of content blocks")
        })?;
        let view = self.connection.view(&params.session_id);
        let session = view.and_then(|view| view.session()).ok_or_else(|| {
            let detail =
                "this connection does not follow the session: send session/load or session/resume first";
            Failure::invalid_params(detail)
        })?;
        let request = PromptRequest {
            queue: true,
            key: self.idempotency_key(id, method::SESSION_PROMPT, params.prompt),
            trace: trace_of(params.meta),
            acp_request: Some(AcpRequest {
                client: self.connection.client.name.clone(),
                id: id.to_owned(),
            }),
            tool_client: self.connection.tool_client(&self.by),
            ..PromptRequest::new(params.prompt.to_owned())
        };
        let turn = NewTurn::begin::<Failure>(&self.app, &self.by, &session, request, false);
        self.connection.remember_prompt(SentPrompt {
            id: id.to_owned(),
            session: session.id(),
            prompt: turn.await?.admitted.prompt.prompt_id,
        });
        Ok(())
    }

    /// The key of a request that a client with its own name can send again after it has reconnected. Such a client never
    /// uses a JSON-RPC id twice.
    pub(super) fn idempotency_key(
        &self,
        id: &RawValue,
        method: &str,
        body: &RawValue,
    ) -> Option<IdempotencyKey> {
        let client = &self.connection.client;
        client.keeps_name.then(|| IdempotencyKey {
            key: format!("{} {id}", client.name),
            route: format!("acp {method}"),
            body_hash: Sha256::digest(body.get()).into(),
        })
    }

    async fn notification(&self, method: &str, params: &RawValue) {
        let handled = match method {
            _ if let Err(failure) = self.check_role(method, params) => Err(failure),
            method::SESSION_CANCEL => self.cancel(params).await,
            method::CANCEL_REQUEST => self.cancel_request(params).await,
            // Other notifications of the protocol level are optional.
            _ if method.starts_with("$/") => Ok(()),
            _ => self.notify_agent(method, params).await,
        };
        if let Err(failure) = handled {
            self.audit(&failure);
            let connection = &*self.connection.id;
            tracing::debug!(
                connection,
                method,
                ?failure,
                "could not handle a notification of an ACP client"
            );
        }
    }

    /// Cancels the running turn, and the queued prompts of this connection.
    async fn cancel(&self, params: &RawValue) -> Result<()> {
        self.require(Scope::Prompt)?;
        let session = self.open(&required_session(params)?).await?;
        let own = self.connection.prompts_of(session.id());
        let snapshot = session.snapshot().await?;
        let queued = snapshot.queued.into_iter();
        let own_queued = queued.filter(|prompt| own.contains(prompt));
        // Cancel the queue first, so that none of its prompts starts.
        for prompt in own_queued.chain(snapshot.prompt_id) {
            let cancelled = session.cancel(Some(prompt), CancelCause::Person, None);
            cancelled.await?;
        }
        Ok(())
    }

    /// Cancels the prompt with the JSON-RPC id in the params. Other calls run to their end.
    async fn cancel_request(&self, params: &RawValue) -> Result<()> {
        self.require(Scope::Prompt)?;
        let request: acp::CancelRequest<'_> =
            acp::parse(params).map_err(|_| Failure::invalid_params("expected a requestId"))?;
        if let Some(sent) = self.connection.sent_prompt(request.request_id) {
            let session = sent.session.to_string();
            self.check_controller(&session)?;
            let session = self.open(&session).await?;
            let cancelled = session.cancel(Some(sent.prompt), CancelCause::Person, None);
            cancelled.await?;
        }
        Ok(())
    }

    /// Answers a request of the agent. A late answer is ignored.
    async fn answer(&self, id: &RawValue, outcome: Result<Box<RawValue>, RpcError>) {
        let Some((session, request)) = parse_request_id(id) else {
            return;
        };
        if let Err(failure) = self.answer_request(session, request, outcome).await {
            self.audit(&failure);
            let connection = &*self.connection.id;
            tracing::info!(%session, %request, connection, ?failure, "ignored an answer of an ACP client");
        }
    }

    async fn answer_request(
        &self,
        session: SessionId,
        request: RequestId,
        outcome: Result<Box<RawValue>, RpcError>,
    ) -> Result<()> {
        let id = session.to_string();
        self.check_controller(&id)?;
        let handle = self.open(&id).await?;
        let asked = handle.pending(request).await?;
        let kind = RequestKind::from_method(&asked.method);
        self.require(required_scope(kind))?;
        handle.require(access_to_answer(kind))?;
        let answer = match outcome {
            Ok(result) => Answer::Result(to_one_line(result)),
            // The client does not know the method. Another client may.
            Err(error)
                if error.code == error_code::METHOD_NOT_FOUND && asked.acp_client.is_none() =>
            {
                return Ok(());
            }
            Err(error) => Answer::Error(to_one_line(raw(&error))),
        };
        let client = Some(&*self.connection.client.name);
        let author = self.by.author();
        if let Some(view) = self.connection.view(&id) {
            view.set_answered(request);
        }
        handle.answer(&author, client, request, answer).await?;
        Ok(())
    }
}

pub(super) fn session_of(params: &RawValue) -> Option<String> {
    let id = acp::session_id_of(params).ok().flatten();
    id.map(Cow::into_owned)
}

pub(super) fn required_session(params: &RawValue) -> Result<String> {
    session_of(params).ok_or_else(|| Failure::invalid_params("expected a sessionId"))
}

pub(super) fn trace_of(meta: Option<&RawValue>) -> Option<TraceContext> {
    acp::split_meta(meta?).1
}
