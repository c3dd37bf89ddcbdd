//! The messages of a client, with what it names and asks for, and the option of an agent for its model.

use http::{HeaderMap, HeaderName};
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::Message;
use super::turn_encoder::HISTORY;
use crate::surface::http::{ApiError, trace_context};
use base::types::{AgentName, PromptId, SessionId};
use sessions::conversation::NewMessages;
use wire::acp::TraceContext;

/// A client sends the same key with each repetition of a request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The policy for a changed history. An agent cannot return to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HistoryPolicy {
    #[default]
    New,
    Append,
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

#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) agent: AgentName,
    /// The model that the agent should use, by the value of its option.
    pub(crate) model: Option<String>,
    pub(crate) protocol: &'static str,
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

/// The option with the category `model` among the options of a session.
#[derive(Debug)]
pub(crate) struct ModelOption {
    pub(crate) id: String,
    pub(crate) current: Option<String>,
    pub(crate) values: Vec<String>,
}

impl ModelOption {
    /// `None` if the agent has no such option.
    pub(crate) fn of(options: Option<&RawValue>) -> Option<Self> {
        let options: Vec<Value> = serde_json::from_str(options?.get()).ok()?;
        let option = options
            .into_iter()
            .find(|option| option["category"] == "model")?;
        let id = option["id"]
            .as_str()
            .or_else(|| option["configId"].as_str())?
            .to_owned();
        let current = option["currentValue"].as_str().map(ToOwned::to_owned);
        let entries = option["options"].as_array()?;
        // A group has options of its own.
        let in_group = |entry: &'_ Value| entry["options"].as_array().cloned().unwrap_or_default();
        let all = entries
            .iter()
            .flat_map(|entry| in_group(entry).into_iter().chain([entry.clone()]));
        let values = all
            .filter_map(|entry| entry["value"].as_str().map(ToOwned::to_owned))
            .collect();
        Some(Self {
            id,
            current,
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_in_groups() {
        let raw = r#"[{"id":"mode","category":"mode","options":[]},{"id":"m","category":"model","currentValue":"a",
        "options":[{"value":"a","name":"A"},{"group":"g","name":"G","options":[{"value":"b"},{"value":"c"}]}]}]"#;
        let option =
            ModelOption::of(Some(serde_json::from_str(raw).expect("JSON"))).expect("an option");
        assert_eq!(
            (option.id.as_str(), option.current.as_deref()),
            ("m", Some("a"))
        );
        assert_eq!(option.values, ["a", "b", "c"]);
        assert!(ModelOption::of(None).is_none());
    }
}
