//! Names of methods and error codes in the protocol.

pub const INITIALIZE: &str = "initialize";
pub const AUTHENTICATE: &str = "authenticate";
pub const LOGOUT: &str = "logout";
pub const AUTH_LOGIN: &str = "auth/login";
pub const AUTH_LOGOUT: &str = "auth/logout";
pub const SESSION_NEW: &str = "session/new";
pub const SESSION_LOAD: &str = "session/load";
pub const SESSION_RESUME: &str = "session/resume";
pub const SESSION_FORK: &str = "session/fork";
pub const SESSION_LIST: &str = "session/list";
pub const SESSION_CLOSE: &str = "session/close";
pub const SESSION_DELETE: &str = "session/delete";
/// A draft (agent-client-protocol, pull request 533). Only clients of the gateway use it.
pub const SESSION_ATTACH: &str = "session/attach";
/// A draft, as `session/attach`.
pub const SESSION_DETACH: &str = "session/detach";
pub const SESSION_PROMPT: &str = "session/prompt";
pub const SESSION_CANCEL: &str = "session/cancel";
pub const SESSION_SET_MODE: &str = "session/set_mode";
/// No longer in the schema. Agents that list `models` still accept it.
pub const SESSION_SET_MODEL: &str = "session/set_model";
pub const SESSION_SET_CONFIG_OPTION: &str = "session/set_config_option";
pub const SESSION_UPDATE: &str = "session/update";
pub const SESSION_REQUEST_PERMISSION: &str = "session/request_permission";
pub const TOOL_CALL_CANCEL: &str = "tool_call/cancel";
pub const TERMINAL_CANCEL: &str = "terminal/cancel";
pub const ELICITATION_CREATE: &str = "elicitation/create";
pub const ELICITATION_COMPLETE: &str = "elicitation/complete";
pub const FS_READ_TEXT_FILE: &str = "fs/read_text_file";
pub const FS_WRITE_TEXT_FILE: &str = "fs/write_text_file";
pub const TERMINAL_CREATE: &str = "terminal/create";
pub const TERMINAL_OUTPUT: &str = "terminal/output";
pub const TERMINAL_WAIT_FOR_EXIT: &str = "terminal/wait_for_exit";
pub const TERMINAL_KILL: &str = "terminal/kill";
pub const TERMINAL_RELEASE: &str = "terminal/release";
pub const CANCEL_REQUEST: &str = "$/cancel_request";

/// Codes of JSON-RPC errors with a meaning in ACP.
pub mod error_code {
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    pub const REQUEST_CANCELLED: i64 = -32800;
    pub const AUTH_REQUIRED: i64 = -32000;
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// A v2 agent supports neither the requested version nor an older one.
    pub const UNSUPPORTED_VERSION: i64 = -32022;

    /// Returns the text that the SDKs use for an error with this code.
    pub const fn name(code: i64) -> Option<&'static str> {
        Some(match code {
            PARSE => "Parse error",
            INVALID_REQUEST => "Invalid request",
            METHOD_NOT_FOUND => "Method not found",
            INVALID_PARAMS => "Invalid params",
            INTERNAL => "Internal error",
            REQUEST_CANCELLED => "Request cancelled",
            AUTH_REQUIRED => "Authentication required",
            RESOURCE_NOT_FOUND => "Resource not found",
            UNSUPPORTED_VERSION => "Unsupported protocol version",
            _ => return None,
        })
    }
}

/// Stop reasons that the gateway itself uses. An agent may send any other.
pub mod stop_reason {
    pub const END_TURN: &str = "end_turn";
    pub const CANCELLED: &str = "cancelled";
    /// v2: the work failed.
    pub const ERROR: &str = "error";

    /// The stop reason as a text of the program. `None` if ACP does not define it.
    pub fn known(reason: &str) -> Option<&'static str> {
        const ALL: [&str; 6] = [
            END_TURN,
            CANCELLED,
            ERROR,
            "max_tokens",
            "max_turn_requests",
            "refusal",
        ];
        ALL.into_iter().find(|known| *known == reason)
    }
}

/// The kinds of tools that ACP defines. An agent may send any other text.
pub mod tool_kind {
    pub const OTHER: &str = "other";
    pub const ALL: [&str; 10] = [
        "read",
        "edit",
        "delete",
        "move",
        "search",
        "execute",
        "think",
        "fetch",
        "switch_mode",
        OTHER,
    ];

    /// The kind as a text of the program.
    pub fn known(kind: &str) -> &'static str {
        let known = ALL.into_iter().find(|known| *known == kind);
        known.unwrap_or(OTHER)
    }
}
