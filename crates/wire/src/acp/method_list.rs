//! The methods of an agent that clients may call by name.

/// Methods that have their own routes in the gateway, with the route. Clients cannot call them by name,
/// because the gateway controls their params, their order and their effects.
const ROUTES: [(&str, &str); 20] = [
    ("initialize", "the gateway's own first message"),
    ("authenticate", "POST /v1/agents/{agent}/auth"),
    ("auth/login", "POST /v1/agents/{agent}/auth"),
    ("logout", "DELETE /v1/agents/{agent}/auth"),
    ("auth/logout", "DELETE /v1/agents/{agent}/auth"),
    ("session/new", "POST /v1/sessions"),
    ("session/load", "POST /v1/sessions with agentSessionId"),
    ("session/resume", "POST /v1/sessions with agentSessionId"),
    ("session/list", "GET /v1/agents/{agent}/sessions"),
    ("session/fork", "POST /v1/sessions/{session}/fork"),
    ("session/close", "POST /v1/sessions/{session}/close"),
    ("session/delete", "DELETE /v1/sessions/{session}"),
    ("session/prompt", "POST /v1/sessions/{session}/prompts"),
    ("session/cancel", "POST /v1/sessions/{session}/cancel"),
    ("session/set_mode", "PUT /v1/sessions/{session}/mode"),
    (
        "session/set_config_option",
        "PUT /v1/sessions/{session}/config/{option}",
    ),
    (
        "tool_call/cancel",
        "POST /v1/sessions/{session}/tool-calls/{toolCall}/cancel",
    ),
    (
        "terminal/cancel",
        "POST /v1/sessions/{session}/agent-terminals/{agentTerminal}/cancel",
    ),
    (
        "proxy/initialize",
        "the internal protocol of a chain of proxies",
    ),
    (
        "proxy/successor",
        "the internal protocol of a chain of proxies",
    ),
];

/// Returns the route of a method that clients cannot call by name; `None` if an agent's entry may list the
/// method.
pub fn route_of(method: &str) -> Option<&'static str> {
    if method.starts_with("$/") {
        return Some("the protocol's own notifications, which the gateway sends");
    }
    ROUTES
        .iter()
        .find(|(name, _)| *name == method)
        .map(|(_, route)| *route)
}

/// Returns true if the list contains the method, by its full name or by a prefix such as `_vendor/*`.
pub fn is_listed(list: &[String], method: &str) -> bool {
    list.iter().any(|listed| match listed.strip_suffix('*') {
        Some(start) => !start.is_empty() && method.len() > start.len() && method.starts_with(start),
        None => listed == method,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_exactly_and_a_star_matches_a_suffix() {
        let list = ["session/set_model", "_vendor/*"].map(str::to_owned);
        for (method, listed) in [
            ("session/set_model", true),
            ("session/set_models", false),
            ("Session/set_model", false),
            ("_vendor/a", true),
            ("_vendor/a/b", true),
            ("_vendor/", false),
            ("_vendors/a", false),
            ("other", false),
            ("", false),
        ] {
            assert_eq!(is_listed(&list, method), listed, "{method}");
        }
        assert!(
            !is_listed(&["*".to_owned()], "anything"),
            "a star alone matches no method"
        );
    }

    #[test]
    fn route_of_returns_only_methods_with_a_route() {
        assert_eq!(
            route_of("session/prompt"),
            Some("POST /v1/sessions/{session}/prompts")
        );
        assert!(route_of("$/cancel_request").is_some());
        for unrouted in [
            "session/set_model",
            "providers/list",
            "_vendor/a",
            "auth/status",
        ] {
            assert_eq!(route_of(unrouted), None, "{unrouted}");
        }
    }
}
