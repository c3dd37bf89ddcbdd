//! The problem codes that each operation can return.

use crate::api::ProblemCode as C;

/// The problem codes that follow from the shape of a route.
pub(super) fn common_codes(path: &str, method: &str, body: bool, public: bool) -> Vec<C> {
    let mut codes = vec![C::MisdirectedRequest, C::Internal];
    if !public {
        codes.extend([C::Unauthorized, C::Forbidden, C::RateLimited, C::Invalid]);
    }
    if path.contains('{') {
        codes.push(C::NotFound);
    }
    if body {
        codes.extend([C::Malformed, C::TooLarge, C::UnsupportedMediaType]);
    }
    if path.starts_with("/v1/sessions") && method != "get" {
        codes.extend([C::Draining, C::PoolFull, C::StorageFull]);
    }
    codes
}

/// The problem codes of every operation that calls an agent.
const AGENT_CODES: [C; 6] = [
    C::AgentAuthRequired,
    C::AgentUnsupported,
    C::AgentError,
    C::AgentStartFailed,
    C::AgentExited,
    C::AgentTimeout,
];

/// The problem codes that are specific to one operation, by operation id.
pub(super) fn operation_codes(operation: &str) -> Vec<C> {
    let agent = || AGENT_CODES.to_vec();
    let mut codes = Vec::new();
    match operation {
        "create_session" => {
            codes = agent();
            // For a session of the agent that does not exist.
            codes.push(C::NotFound);
            codes.extend([C::IdempotencyInFlight, C::IdempotencyMismatch, C::QueueFull]);
        }
        "create_prompt" | "create_prompt_stream" => codes.extend([
            C::NotAcceptable,
            C::TurnRunning,
            C::SessionClosed,
            C::IdempotencyInFlight,
            C::IdempotencyMismatch,
            C::ContentUnsupported,
            C::QueueFull,
            C::CrashLoop,
        ]),
        "attach_session" => {
            codes = agent();
            codes.push(C::QueueFull);
        }
        "fork_session" => {
            codes = agent();
            codes.extend([C::TurnRunning, C::SessionClosed, C::QueueFull]);
            codes.extend([C::IdempotencyInFlight, C::IdempotencyMismatch]);
        }
        "set_mode" | "set_config_option" | "call_session" | "cancel_tool_call" | "cancel_agent_terminal" => {
            codes = agent();
            codes.extend([C::SessionClosed, C::QueueFull]);
        }
        "read_file" => codes.extend([C::PreconditionFailed, C::RangeNotSatisfiable]),
        "list_agent_sessions" | "call_agent" | "sign_in" | "sign_out" => {
            codes = agent();
            codes.extend([C::Draining, C::PoolFull, C::QueueFull]);
        }
        "open_terminal" => {
            codes.extend([C::Malformed, C::AgentStartFailed, C::Draining, C::PoolFull, C::QueueFull]);
        }
        "patch_session" | "write_file" | "delete_file" => codes.push(C::PreconditionFailed),
        "answer_request" | "answer_permission" | "answer_elicitation" => codes.push(C::RequestResolved),
        "session_events" | "prompt_events" | "all_events" => {
            codes.extend([C::NotAcceptable, C::NotFound, C::Draining]);
        }
        "all_events_stream" => codes.push(C::NotFound),
        // These operations ask the session actor, which may be overloaded.
        "get_session" | "list_requests" | "get_stderr" | "get_transcript_markdown" => codes.push(C::PoolFull),
        "get_transcript" => codes.extend([C::NotAcceptable, C::PoolFull]),
        "readyz" => codes.extend([C::Draining, C::StorageFull]),
        _ => {}
    }
    codes
}
