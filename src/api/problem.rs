//! RFC 9457 problems, and the closed table of their codes.
//!
//! A code is what programs branch on; title and detail are for people. The same body is an HTTP answer, the
//! `problem` of `prompt.failed`, and the `problem` frame of a stream.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::types::{PromptId, RequestId};

use super::request::Resolution;

/// The table of codes: one line each, in the order of the alphabet.
macro_rules! codes {
    ($(#[doc = $meaning:literal] $name:ident = $text:literal, $status:literal, $retryable:literal, $title:literal;)*) => {
        /// What went wrong, for programs. Clients must expect codes that they do not know.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ProblemCode {
            $(#[doc = $meaning] $name,)*
        }

        impl ProblemCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// As it is spelled on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status that it stands for.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// True when the same request may succeed later as it is.
            pub const fn retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)* }
            }

            /// A few words for people, the same for every occurrence.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// What it means and what to do, for `/docs/problems`.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

codes! {
    /// The agent wants a sign-in first; `authMethods` lists its ways.
    AgentAuthRequired = "agent_auth_required", 424, false, "The agent needs a sign-in";
    /// The agent answered with a JSON-RPC error; `acp` has it whole.
    AgentError = "agent_error", 502, false, "The agent answered with an error";
    /// The agent's process ended. The session stays; the next prompt starts a new process.
    AgentExited = "agent_exited", 502, true, "The agent's process ended";
    /// The agent's process could not be started, or did not complete its handshake.
    AgentStartFailed = "agent_start_failed", 502, false, "The agent could not be started";
    /// The agent did not answer in time.
    AgentTimeout = "agent_timeout", 504, true, "The agent did not answer in time";
    /// The agent does not offer this.
    AgentUnsupported = "agent_unsupported", 501, false, "The agent does not support this";
    /// A cancelled turn did not end in time, so its process was ended. Seen in events only.
    CancelTimeout = "cancel_timeout", 504, false, "The agent ignored the cancel";
    /// A content block of the prompt is of a kind that the agent does not take (`promptCapabilities`).
    ContentUnsupported = "content_unsupported", 422, false, "The agent does not take this content";
    /// The agent crashed too often in turns of this session. Try again after `Retry-After`; other sessions are not affected.
    CrashLoop = "crash_loop", 503, true, "The agent keeps crashing in this session";
    /// The gateway shuts down. Try again after `Retry-After`.
    Draining = "draining", 503, true, "The gateway is shutting down";
    /// The key lacks a scope, the page's Origin is not allowed, or the configuration forbids it.
    Forbidden = "forbidden", 403, false, "Not allowed";
    /// The Host of the request is not one of the gateway's names (`public_url`).
    HostRefused = "host_refused", 421, false, "Not a name of this gateway";
    /// The first request with this Idempotency-Key has not been answered yet.
    IdempotencyInFlight = "idempotency_in_flight", 409, true, "The first request is still in flight";
    /// This Idempotency-Key came before with another body.
    IdempotencyMismatch = "idempotency_mismatch", 422, false, "The Idempotency-Key belongs to another body";
    /// A bug or a broken store. The log of the gateway has the request id with all details.
    Internal = "internal", 500, false, "Internal error";
    /// The gateway was restarted, or failed, while the turn ran. Seen in events only.
    Interrupted = "interrupted", 503, true, "The gateway was restarted in the turn";
    /// The body or the query is not what this route takes; `errors` points to the places.
    Invalid = "invalid", 422, false, "The request is not valid";
    /// The key that sent a queued prompt no longer allows prompts, and the gateway was restarted. Seen in events only.
    KeyRevoked = "key_revoked", 403, false, "The key of the prompt was revoked";
    /// The body is not JSON, or the request is not HTTP as it should be.
    Malformed = "malformed", 400, false, "The request is malformed";
    /// The resource exists, its method is another; `Allow` lists them.
    MethodNotAllowed = "method_not_allowed", 405, false, "Method not allowed";
    /// None of the media types in `Accept` can be given here.
    NotAcceptable = "not_acceptable", 406, false, "Not acceptable";
    /// There is no such thing, or it is not yours.
    NotFound = "not_found", 404, false, "Not found";
    /// Every process of the agent is busy and its line is full, or it failed to start too often lately.
    PoolFull = "pool_full", 503, true, "No process of the agent is free";
    /// It changed since the state that `If-Match` names.
    PreconditionFailed = "precondition_failed", 412, false, "It has changed meanwhile";
    /// A restart found a queued prompt that is older than `queued_prompt_max_age`. Send it again. Seen in events only.
    PromptExpired = "prompt_expired", 504, true, "The prompt waited too long";
    /// Too many prompts or requests wait in this session.
    QueueFull = "queue_full", 429, true, "The queue is full";
    /// The file has no bytes in the range; `Content-Range` says how many it has.
    RangeNotSatisfiable = "range_not_satisfiable", 416, false, "Range not satisfiable";
    /// Too many requests, streams or sessions for this key, or a session wrote too much. Try again after `Retry-After`.
    RateLimited = "rate_limited", 429, true, "Too many requests";
    /// Somebody answered it before, or it was withdrawn; `resolution` and `by` say how.
    RequestResolved = "request_resolved", 409, false, "The request is resolved already";
    /// The session is closed. `attach` opens it again.
    SessionClosed = "session_closed", 409, false, "The session is closed";
    /// The disk is nearly full. Reads go on, prompts do not.
    StorageFull = "storage_full", 507, false, "The storage is full";
    /// The body is larger than the limit.
    TooLarge = "too_large", 413, false, "Too large";
    /// A turn runs in this session. Wait for its end, cancel it, or send `queue: true`.
    TurnRunning = "turn_running", 409, true, "A turn is running";
    /// No key, a wrong key, or a ticket that does not hold here.
    Unauthorized = "unauthorized", 401, false, "A valid key is needed";
    /// The body must be `application/json`.
    UnsupportedMediaType = "unsupported_media_type", 415, false, "Unsupported media type";
}

/// A problem, as RFC 9457 has it, with members of ours.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Where the code is explained.
    #[serde(rename = "type")]
    #[schema(format = "uri-reference", example = "/docs/problems#not_found")]
    pub kind: String,
    pub title: String,
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    pub detail: String,
    pub code: ProblemCode,
    /// The same request may succeed later as it is.
    pub retryable: bool,
    /// The X-Request-Id of the request; absent in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub instance: Option<String>,
    /// Where the body or the query is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The agent's own JSON-RPC error, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp: Option<RpcError>,
    /// How one may sign in to the agent: its `authMethods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub auth_methods: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after_seconds: Option<u64>,
    /// The turn that runs, or that a problem is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub prompt_id: Option<PromptId>,
    /// The request that a problem is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_id: Option<RequestId>,
    /// How the request was resolved, and by whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub resolution: Option<Resolution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// Of a process that ended: its code, or null when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i32>)]
    pub exit_code: Option<Option<i32>>,
    /// Of a process that ended: the signal that ended it, or null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub signal: Option<Option<String>>,
    /// Of a process that ended: the end of what it wrote to stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub stderr_tail: Option<String>,
}

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/docs/problems#{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code,
            retryable: code.retryable(),
            instance: None,
            errors: Vec::new(),
            acp: None,
            auth_methods: None,
            retry_after_seconds: None,
            prompt_id: None,
            request_id: None,
            resolution: None,
            by: None,
            exit_code: None,
            signal: None,
            stderr_tail: None,
        }
    }

    /// `invalid`, with the place that is wrong.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let errors = vec![FieldError { pointer: pointer.into(), detail: detail.clone() }];
        Self { errors, ..Self::new(ProblemCode::Invalid, detail) }
    }

    /// `agent_exited`, with how.
    pub fn exited(exit_code: Option<i32>, signal: Option<String>, stderr_tail: String) -> Self {
        Self {
            exit_code: Some(exit_code),
            signal: Some(signal),
            stderr_tail: Some(stderr_tail),
            ..Self::new(ProblemCode::AgentExited, "the agent's process ended")
        }
    }
}

/// One place of a body or query that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// A JSON pointer into the body, or the name of a query parameter.
    pub pointer: String,
    pub detail: String,
}

/// A JSON-RPC error, as the agent sent it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub data: Option<Box<RawValue>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_matches_serde() {
        let names: Vec<&str> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(names, sorted);
        for code in ProblemCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!((400..600).contains(&code.status()), "{}", code.as_str());
            assert!(code.meaning().trim().ends_with('.'), "{}", code.as_str());
        }
    }

    #[test]
    fn null_exit_members_are_serialized() {
        let problem = Problem::exited(Some(42), None, "boom".to_owned());
        let value = serde_json::to_value(&problem).unwrap();
        assert_eq!(value["signal"], serde_json::Value::Null);
        assert_eq!(value["exitCode"], 42);
        assert!(
            serde_json::to_value(Problem::new(ProblemCode::Internal, "")).unwrap().get("signal").is_none()
        );
        let back: Problem = serde_json::from_value(value).unwrap();
        assert_eq!(back.code, ProblemCode::AgentExited);
    }
}
