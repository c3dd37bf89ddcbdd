//! Policies for client input. Operators define commands, methods and servers; clients only select them by
//! name.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::settings::AgentSettings;
use base::types::text::{UnsafeCharacter, check_name};
use wire::acp::method_list::{is_listed, route_of};
use wire::acp::{RawObject, find_in_value};

/// Keys of `_meta` that ACP reserves for the trace context.
const TRACE_KEYS: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// The reason why the gateway rejects the input of a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientInputError {
    #[error("the name of the method is not valid: {0}")]
    UnsafeMethod(UnsafeCharacter),
    #[error("the agent's entry does not allow the method {method} (add it to `rpc`)")]
    NotListed { method: String },
    #[error("{method} cannot be called by name: {route}")]
    HasRoute { method: String, route: &'static str },
    #[error(
        "MCP servers cannot be set here: define them in the configuration and select them when you create a session"
    )]
    McpServers,
    #[error("the agent's entry does not allow this key of _meta (add it to `meta`)")]
    MetaKeyNotListed { key: String },
    #[error("no client can select the mode {mode}: the agent's entry denies it (`modes.deny`)")]
    ModeDenied { mode: String },
    #[error("expected an object")]
    NotAnObject { at: &'static str },
}

/// Checks that clients may call the method by name.
pub fn check_method(settings: &AgentSettings, method: &str) -> Result<(), ClientInputError> {
    check_name(method).map_err(ClientInputError::UnsafeMethod)?;
    let method_owned = || method.to_owned();
    match route_of(method) {
        Some(route) => Err(ClientInputError::HasRoute {
            method: method_owned(),
            route,
        }),
        None if is_listed(&settings.allowed_rpc_methods, method) => {
            permit_mode(settings.denied_modes.find(method))
        }
        None => Err(ClientInputError::NotListed {
            method: method_owned(),
        }),
    }
}

/// Checks that a client's params contain only the keys of `_meta` in the agent's entry, no MCP servers and no denied mode.
pub fn check_params(settings: &AgentSettings, params: &RawValue) -> Result<(), ClientInputError> {
    let params = RawObject::parse(params).ok_or(ClientInputError::NotAnObject { at: "" })?;
    let servers = params.get("mcpServers");
    if servers.is_some_and(|servers| serde_json::from_str::<[(); 0]>(servers.get()).is_err()) {
        return Err(ClientInputError::McpServers);
    }
    let meta = params.get("_meta");
    meta.map_or(Ok(()), |meta| check_meta(settings, meta))?;
    for (name, value) in params.iter() {
        // A model can have the name of a mode.
        if name != "modelId" {
            permit_mode(settings.denied_modes.find(name))?;
            permit_mode(find_in_value(&settings.denied_modes, value))?;
        }
    }
    Ok(())
}

/// Checks a client's `_meta`: its keys, and that it names no denied mode. Some agents read environment variables and
/// commands from it.
pub fn check_meta(settings: &AgentSettings, meta: &RawValue) -> Result<(), ClientInputError> {
    if meta.get() == "null" {
        return Ok(());
    }
    let object = RawObject::parse(meta).ok_or(ClientInputError::NotAnObject { at: "/_meta" })?;
    let refused = object.iter().map(|(key, _)| key).find(|key| {
        let reserved = TRACE_KEYS.contains(key);
        !reserved
            && !settings
                .allowed_meta_keys
                .iter()
                .any(|listed| listed == key)
    });
    if let Some(key) = refused {
        return Err(ClientInputError::MetaKeyNotListed {
            key: key.to_owned(),
        });
    }
    permit_mode(find_in_value(&settings.denied_modes, meta))
}

/// `denying`: the entry of `modes.deny` that was found in the input of a client.
pub fn permit_mode(denying: Option<&str>) -> Result<(), ClientInputError> {
    denying.map_or(Ok(()), |mode| {
        Err(ClientInputError::ModeDenied {
            mode: mode.to_owned(),
        })
    })
}

impl ClientInputError {
    /// Returns the location in the checked value as a JSON pointer; `None` if the whole call is rejected.
    pub fn pointer(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::UnsafeMethod(_) => Some("".into()),
            Self::NotListed { .. }
            | Self::HasRoute { .. }
            | Self::McpServers
            | Self::ModeDenied { .. } => None,
            Self::MetaKeyNotListed { key } => {
                Some(format!("/_meta/{}", key.replace('~', "~0").replace('/', "~1")).into())
            }
            Self::NotAnObject { at } => Some((*at).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn settings(methods: &[&str], meta: &[&str]) -> AgentSettings {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        AgentSettings {
            allowed_rpc_methods: list(methods),
            allowed_meta_keys: list(meta),
            ..AgentSettings::default()
        }
    }

    #[test]
    fn only_listed_methods_without_a_route_are_allowed() {
        let listed = settings(&["_vendor/*", "session/prompt", "session/*"], &[]);
        assert_eq!(check_method(&listed, "_vendor/a"), Ok(()));
        assert_eq!(check_method(&listed, "session/set_model"), Ok(()));
        assert!(matches!(
            check_method(&listed, "session/prompt"),
            Err(ClientInputError::HasRoute { .. })
        ));
        assert!(matches!(
            check_method(&listed, "$/cancel_request"),
            Err(ClientInputError::HasRoute { .. })
        ));
        assert!(matches!(
            check_method(&listed, "other"),
            Err(ClientInputError::NotListed { .. })
        ));
        let error = check_method(&listed, "_vendor/a\nb").unwrap_err();
        assert_eq!(error.pointer().as_deref(), Some(""), "{error}");
    }

    #[test]
    fn params_with_servers_or_unlisted_meta_are_rejected() {
        let meta = settings(&[], &["vendor.example/x"]);
        for passes in [
            "{}",
            r#"{"mcpServers":[ ]}"#,
            r#"{"_meta":null}"#,
            r#"{"_meta":{}}"#,
            r#"{"_meta":{"vendor.example/x":{"env":{}},"traceparent":"00-1-2-3","baggage":"a"},"x":{"mcpServers":[1]}}"#,
        ] {
            assert_eq!(check_params(&meta, raw(passes)), Ok(()), "{passes}");
        }
        for servers in [
            r#"{"mcpServers":[{}]}"#,
            r#"{"mcpServers":{}}"#,
            r#"{"mcpServers":null}"#,
        ] {
            assert_eq!(
                check_params(&meta, raw(servers)),
                Err(ClientInputError::McpServers),
                "{servers}"
            );
        }
        let gated = check_params(&meta, raw(r#"{"_meta":{"a/b":1}}"#)).unwrap_err();
        assert_eq!(gated.pointer().unwrap(), "/_meta/a~1b");
        for shape in [
            "[]",
            "1",
            "null",
            r#"{"a":1,"a":2}"#,
            r#"{"_meta":[]}"#,
            r#"{"_meta":{"a":1,"a":1}}"#,
        ] {
            assert!(
                matches!(
                    check_params(&meta, raw(shape)),
                    Err(ClientInputError::NotAnObject { .. })
                ),
                "{shape}"
            );
        }
    }

    #[test]
    fn denied_modes_are_rejected_at_any_depth() {
        let settings = settings(&["_vendor/*", "session/set_model"], &["claudeCode"]);
        let denied = |mode: &str| {
            Err(ClientInputError::ModeDenied {
                mode: mode.to_owned(),
            })
        };
        assert_eq!(check_method(&settings, "_vendor/yolo"), denied("yolo"));
        for (params, mode) in [
            (r#"{"modeId":"yolo"}"#, "yolo"),
            (
                r#"{"a":[{"b":{"c":"Bypass-Permissions"}}]}"#,
                "bypassPermissions",
            ),
            (r#"{"a":"\\","b":"y\u006flo"}"#, "yolo"),
            (r#"{"a":"\"","yolo":true}"#, "yolo"),
            (r#"{"a":{"yolo":true}}"#, "yolo"),
            (
                r#"{"args":["--dangerously-skip-permissions"]}"#,
                "dangerously-skip-permissions",
            ),
            (
                r#"{"_meta":{"claudeCode":{"options":{"extraArgs":{"permission-mode":"bypassPermissions"}}}}}"#,
                "bypassPermissions",
            ),
        ] {
            assert_eq!(
                check_params(&settings, raw(params)),
                denied(mode),
                "{params}"
            );
        }
        for params in [
            r#"{"modelId":"yolo"}"#,
            r#"{"text":"what does yolo mean?"}"#,
            r#"{"modeId":"plan","x":["auto","\ud800"]}"#,
        ] {
            assert_eq!(check_params(&settings, raw(params)), Ok(()), "{params}");
        }
    }
}
