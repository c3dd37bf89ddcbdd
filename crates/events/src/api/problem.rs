//! RFC 9457 problems and the table of their codes.
//!
//! Programs use the code; title and detail are for humans. The same object is the body of an HTTP error, the
//! `problem` of `prompt.failed`, and the `problem` frame of a stream.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::request::RpcError;
use crate::api::{PublicPath, Resolution};
use base::types::{LimitExceeded, PromptId, RequestId, Scope};

/// The table of codes, one line each, in alphabetical order.
macro_rules! codes {
    ($(#[doc = $meaning:literal] $name:ident = $text:literal, $status:literal, $retryable:literal, $title:literal;)*) => {
        /// A problem code for programs. Clients must expect unknown codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ProblemCode {
            $(#[doc = $meaning] $name,)*
        }

        impl ProblemCode {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the text form in JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the HTTP status of the code.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Returns true if the same request may succeed later without changes.
            pub const fn retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)* }
            }

            /// Returns a short title, the same for every occurrence.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// Returns the meaning of the code and the advice for clients, for `/docs/problems`.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }
        }
    };
}

codes! {
    /// The agent requires a sign-in. `authMethods` lists its methods.
    AgentAuthRequired = "agent_auth_required", 424, false, "The agent needs a sign-in";
    /// The connection to an agent on another host failed or was lost. The session remains, and the next prompt connects again.
    AgentDisconnected = "agent_disconnected", 502, true, "No connection to the agent";
    /// The agent answered with a JSON-RPC error. `acp` contains the complete error.
    AgentError = "agent_error", 502, false, "The agent answered with an error";
    /// The agent's process ended. The session remains, and the next prompt starts a new process.
    AgentExited = "agent_exited", 502, true, "The agent's process ended";
    /// The agent's process could not be started, or did not complete its handshake.
    AgentStartFailed = "agent_start_failed", 502, false, "The agent could not be started";
    /// The agent did not answer in time.
    AgentTimeout = "agent_timeout", 504, true, "The agent did not answer in time";
    /// The agent does not support the operation.
    AgentUnsupported = "agent_unsupported", 501, false, "The agent does not support this";
    /// The request bodies of all clients use the memory for them (`server.max_body_memory_bytes`). Retry after the time in `Retry-After`.
    BodyMemoryFull = "body_memory_full", 503, true, "The memory for request bodies is full";
    /// The task used more tokens than its `tokenBudget`, so the gateway cancelled it. Occurs only in tasks.
    BudgetExceeded = "budget_exceeded", 422, false, "The token budget is used up";
    /// A cancelled turn did not end in time, so the gateway stopped the agent's process. Occurs only in events.
    CancelTimeout = "cancel_timeout", 504, false, "The agent ignored the cancel";
    /// The prompt has a content block of a type that the agent does not support (`promptCapabilities`).
    ContentUnsupported = "content_unsupported", 422, false, "The agent does not support this content";
    /// The agent crashed too often in turns of this session. Retry after the time in `Retry-After`. Other sessions are not affected.
    CrashLoop = "crash_loop", 503, true, "The agent keeps crashing in this session";
    /// The `deadline` of the task has passed. Occurs only in tasks.
    DeadlineExceeded = "deadline_exceeded", 504, false, "The deadline of the task has passed";
    /// The gateway is shutting down. Retry after the time in `Retry-After`.
    Draining = "draining", 503, true, "The gateway is shutting down";
    /// The key lacks a scope, the `Origin` of the page is not allowed, or the configuration forbids the operation. Also: a symbolic link has replaced the folder of the session, or the folder is outside of the workspace roots.
    Forbidden = "forbidden", 403, false, "Not allowed";
    /// The messages of a chat client differ from the turns of its session, and the client asked for an error in this case (`X-Acp-History: reject`). Only the chat protocols have it.
    HistoryDiverged = "history_diverged", 409, false, "The history was changed";
    /// The first request with this `Idempotency-Key` has no response yet. Retry later.
    IdempotencyInFlight = "idempotency_in_flight", 409, true, "The first request is still in flight";
    /// An earlier request used this `Idempotency-Key` with another body.
    IdempotencyMismatch = "idempotency_mismatch", 422, false, "The Idempotency-Key belongs to another body";
    /// The gateway adds another agent. Retry at the end of this installation.
    InstallationRunning = "installation_running", 409, true, "An installation is running";
    /// A bug or a damaged store. The gateway's log contains the details under the request id.
    Internal = "internal", 500, false, "Internal error";
    /// The gateway restarted or failed during the turn. Occurs only in events.
    Interrupted = "interrupted", 503, true, "The gateway restarted during the turn";
    /// The body or the query does not match the schema of the route. `errors` lists the invalid members.
    Invalid = "invalid", 422, false, "The request is not valid";
    /// A restart found a queued prompt whose user no longer has a key with the scope `prompt`, or no longer the access to the session. Occurs only in events.
    KeyRevoked = "key_revoked", 403, false, "The key of the prompt was revoked";
    /// The access of the owner of a session cannot be changed or removed.
    LastOwner = "last_owner", 409, false, "The session needs its owner";
    /// The body is not JSON, or the HTTP request is malformed.
    Malformed = "malformed", 400, false, "The request is malformed";
    /// The member of the fleet that runs the agent is not connected, or lost the agent's process. The session remains. Send the prompt again when the member has returned.
    MemberUnavailable = "member_unavailable", 503, true, "The member of the fleet is not available";
    /// The resource exists but does not support the method. `Allow` lists the supported methods.
    MethodNotAllowed = "method_not_allowed", 405, false, "Method not allowed";
    /// The `Host` of the request is not a name of the gateway (`server.public_url`, `server.allowed_hosts`).
    MisdirectedRequest = "misdirected_request", 421, false, "Not a name of this gateway";
    /// The route supports none of the media types in `Accept`.
    NotAcceptable = "not_acceptable", 406, false, "Not acceptable";
    /// The object does not exist, or belongs to another user.
    NotFound = "not_found", 404, false, "Not found";
    /// All processes of the agent are busy and its wait queue is full, or the agent failed to start too often. Retry after the time in `Retry-After`.
    PoolFull = "pool_full", 503, true, "No process of the agent is free";
    /// The object has changed since the version in `If-Match`. `revision` is the current revision of a session.
    PreconditionFailed = "precondition_failed", 412, false, "The object has changed";
    /// A restart found a queued prompt that is older than `queued_prompt_max_age`. Send it again. Occurs only in events.
    PromptExpired = "prompt_expired", 504, true, "The prompt waited too long";
    /// The prompt, or the prompt before which it should move, is not in the queue: it has started or ended. `promptId` is this prompt.
    PromptNotQueued = "prompt_not_queued", 409, false, "The prompt is not queued";
    /// Too many prompts or requests wait in this session. Retry later.
    QueueFull = "queue_full", 429, true, "The queue is full";
    /// The file has no bytes in the range. `Content-Range` contains its size.
    RangeNotSatisfiable = "range_not_satisfiable", 416, false, "Range not satisfiable";
    /// The user has too many requests, streams or sessions, or a session exceeded its write quota. Retry after the time in `Retry-After`.
    RateLimited = "rate_limited", 429, true, "Too many requests";
    /// The registry of agents (`registry.source`) could not be loaded. `detail` has the reason.
    RegistryUnavailable = "registry_unavailable", 502, true, "The registry could not be loaded";
    /// The request was already answered or withdrawn. `resolution` and `by` contain the details.
    RequestResolved = "request_resolved", 409, false, "The request is already resolved";
    /// The session is closed. `attach` reopens it.
    SessionClosed = "session_closed", 409, false, "The session is closed";
    /// The disk is nearly full. Reads continue, and prompts are rejected.
    StorageFull = "storage_full", 507, false, "The storage is full";
    /// The body exceeds the limit.
    TooLarge = "too_large", 413, false, "Too large";
    /// A turn is running in this session. Wait for its end, cancel it, or send `queue: true`.
    TurnRunning = "turn_running", 409, true, "A turn is running";
    /// The request has no key, a wrong key, or a ticket that is not valid for this path.
    Unauthorized = "unauthorized", 401, false, "A valid key is required";
    /// The body must be `application/json`.
    UnsupportedMediaType = "unsupported_media_type", 415, false, "Unsupported media type";
}

/// A problem (RFC 9457) with additional members of the gateway.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize, ToSchema)]
#[error("{detail}")]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A reference to the documentation of the code.
    #[serde(rename = "type")]
    #[schema(format = "uri-reference", example = "/docs/problems#not_found")]
    pub kind: String,
    /// A short title, the same for every occurrence of the code.
    pub title: String,
    /// The HTTP status of the code.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// An explanation of this occurrence.
    pub detail: String,
    pub code: ProblemCode,
    /// True if the same request may succeed later without changes.
    pub retryable: bool,
    /// The path of the request and, after `#`, its `X-Request-Id`: a URI reference. The log has the details of `internal`
    /// under it. Absent in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub instance: Option<String>,
    /// The invalid members of the body or the query.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The complete JSON-RPC error of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp: Option<RpcError>,
    /// The sign-in methods of the agent (`authMethods`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub auth_methods: Option<Box<RawValue>>,
    /// The time in seconds after which a retry may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after_seconds: Option<u64>,
    /// The scope that the key lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub required_scope: Option<Scope>,
    /// The current revision of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub revision: Option<u64>,
    /// The running turn, or the turn that the problem refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub prompt_id: Option<PromptId>,
    /// The request that the problem refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_id: Option<RequestId>,
    /// The earlier resolution of the request. `by` is the user that resolved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub resolution: Option<Resolution>,
    /// The user that resolved the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// The exit code of an ended process; null if a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i32>)]
    pub exit_code: Option<Option<i32>>,
    /// The signal that ended a process; null if no signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub signal: Option<Option<String>>,
    /// The last output of an ended process to stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub stderr_tail: Option<String>,
    /// The limit of the user that the request exceeded, for headers of the response.
    #[serde(skip)]
    pub limit: Option<LimitExceeded>,
}

impl Problem {
    /// The problem of a request that a stop of the gateway prevents.
    pub fn draining() -> Self {
        let detail = "the gateway is shutting down";
        Self::transient(ProblemCode::Draining, detail, Duration::from_secs(2))
    }

    /// A problem that a retry may not have. `wait`: the suggested delay before it.
    pub fn transient(code: ProblemCode, detail: impl Into<String>, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self {
            retry_after_seconds: Some(seconds.max(1)),
            ..Self::new(code, detail)
        }
    }

    /// The problem for a client that uses the public URL of the gateway: its `type` is below the path of this URL.
    #[must_use]
    pub fn below(&self, public: Option<&PublicPath>) -> Self {
        let kind = public.map_or_else(|| self.kind.clone(), |public| public.join(&self.kind));
        Self {
            kind,
            ..self.clone()
        }
    }

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
            required_scope: None,
            revision: None,
            prompt_id: None,
            request_id: None,
            resolution: None,
            by: None,
            exit_code: None,
            signal: None,
            stderr_tail: None,
            limit: None,
        }
    }

    /// Creates the problem `invalid` with one invalid member.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let pointer = pointer.into();
        let detail = detail.into();
        // A pointer into the body begins with a slash. Everything else is the name of a parameter or a header.
        let whole = if pointer.is_empty() || pointer.starts_with('/') {
            detail.clone()
        } else {
            format!("{pointer}: {detail}")
        };
        Self {
            errors: vec![FieldError { pointer, detail }],
            ..Self::new(ProblemCode::Invalid, whole)
        }
    }

    /// The key of the request lacks a scope.
    pub fn missing_scope(scope: Scope, detail: impl Into<String>) -> Self {
        Self {
            required_scope: Some(scope),
            ..Self::new(ProblemCode::Forbidden, detail)
        }
    }

    /// An internal error. The log has the cause.
    pub fn internal() -> Self {
        Self::new(
            ProblemCode::Internal,
            "internal error; the gateway log has the details",
        )
    }

    /// The key was revoked while its request waited or streamed.
    pub fn key_ended() -> Self {
        Self::new(
            ProblemCode::Unauthorized,
            "the key of this request was revoked or has expired",
        )
    }

    /// Creates the problem that ends a stream after the user has lost the access to a session.
    pub fn access_ended() -> Self {
        Self::new(
            ProblemCode::NotFound,
            "the session was deleted, or the access to it was taken back",
        )
    }

    /// Creates the problem `agent_exited` with the exit status.
    pub fn exited(exit_code: Option<i32>, signal: Option<String>, stderr_tail: String) -> Self {
        Self {
            exit_code: Some(exit_code),
            signal: Some(signal),
            stderr_tail: Some(stderr_tail),
            ..Self::new(ProblemCode::AgentExited, "the agent's process ended")
        }
    }
}

/// An invalid member of a body or a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// A JSON pointer into the body, or the name of a query parameter.
    pub pointer: String,
    /// The reason why the member is invalid.
    pub detail: String,
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
            serde_json::to_value(Problem::new(ProblemCode::Internal, ""))
                .unwrap()
                .get("signal")
                .is_none()
        );
        let back: Problem = serde_json::from_value(value).unwrap();
        assert_eq!(back.code, ProblemCode::AgentExited);
    }
}
