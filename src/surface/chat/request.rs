//! The messages of a client, with what it names and asks for.

use http::{HeaderMap, HeaderName};

use super::message::Message;
use super::respond::HISTORY;
use crate::acp::TraceContext;
use crate::conversation::NewMessages;
use crate::surface::rest::{ApiError, trace_context};
use crate::types::{AgentName, PromptId, SessionId};

/// A client sends the same key with each repetition of a request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The policy for a changed history. An agent cannot return to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HistoryPolicy {
    /// A new session receives the history as text.
    #[default]
    New,
    /// The session continues with the new message.
    Append,
    /// The request fails.
    Reject,
}

impl HistoryPolicy {
    fn from_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        match headers.get(HISTORY).map(http::HeaderValue::as_bytes) {
            None | Some(b"new") => Ok(Self::New),
            Some(b"append") => Ok(Self::Append),
            Some(b"reject") => Ok(Self::Reject),
            Some(_) => Err(ApiError::invalid(
                "",
                "the header X-Acp-History must be new, append or reject",
            )),
        }
    }
}

/// Messages of a client.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) agent: AgentName,
    /// The model that the agent should use, by the value of its option.
    pub(crate) model: Option<String>,
    pub(crate) protocol: &'static str,
    /// The client's id of the conversation.
    pub(crate) conversation: Option<String>,
    /// Conversations that are found by their history belong to this person or program of the client.
    pub(crate) user: Option<String>,
    /// The session that the client names. Its turns may come from other clients, so the history is not compared.
    pub(crate) session: Option<SessionId>,
    /// The session with the last answer in the history, if the answer has an id of the gateway.
    pub(crate) answered_in: Option<SessionId>,
    /// The messages that are new in this session.
    pub(crate) new_messages: NewMessages,
    pub(crate) messages: Vec<Message>,
    /// The instructions. Those of the messages are added.
    pub(crate) system: Option<String>,
    pub(crate) policy: HistoryPolicy,
    /// The client asks for another answer if it sends the message of a turn again.
    pub(crate) asks_again: bool,
    /// The client says that it repeats a request that failed.
    pub(crate) is_retry: bool,
    /// The client's id of the request. A repeated request gets the turn that it has.
    pub(crate) id: Option<String>,
    /// The turn after which the client sends its message, if it names one.
    pub(crate) follows: Option<PromptId>,
    /// The client must answer open questions before it sends a message.
    pub(crate) answers_first: bool,
    pub(crate) trace: Option<TraceContext>,
}

impl ChatRequest {
    /// A request with these messages. The headers have the policy, the id of the request and the trace context.
    pub(crate) fn new(
        agent: AgentName,
        protocol: &'static str,
        messages: Vec<Message>,
        headers: &HeaderMap,
    ) -> Result<Self, ApiError> {
        let id = headers
            .get(IDEMPOTENCY_KEY)
            .and_then(|id| id.to_str().ok())
            .map(ToOwned::to_owned);
        Ok(Self {
            agent,
            model: None,
            protocol,
            conversation: None,
            user: None,
            session: None,
            answered_in: None,
            new_messages: NewMessages::Last,
            messages,
            system: None,
            policy: HistoryPolicy::from_headers(headers)?,
            asks_again: false,
            is_retry: false,
            id,
            follows: None,
            answers_first: false,
            trace: trace_context(headers),
        })
    }
}
