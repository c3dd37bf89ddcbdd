//! Sign-in to an agent: its methods, its state, and the messages (ACP, Authentication).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::initialize::InitializeResult;
use super::raw_object::{RawObject, elements};
use super::request::NameValue;
use super::to_raw;
use super::version::AcpVersion;
use crate::acp::known_agents::ApiKeyFormat;

pub const STATUS: &str = "auth/status";

/// The sign-in state of an agent, with the names of ACP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AuthState {
    #[default]
    Unknown,
    Authenticated,
    Unauthenticated,
    NotRequired,
}

impl AuthState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An element of an agent's `authMethods`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthMethod {
    /// A call of `authenticate`. ACP requires that unknown kinds of methods are treated like this one.
    Agent,
    /// The agent's own command, run in a terminal.
    Terminal(TerminalAuth),
}

/// The arguments and variables that a terminal method adds to the configured command. The `command` of the
/// method is ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TerminalAuth {
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedMethod {
    pub id: String,
    pub terminal: bool,
}

/// The reason why a method cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthMethodError {
    #[error("the agent does not have this method; use a method in its authMethods")]
    Unknown,
    #[error("the agent's description of this method is malformed: {0}")]
    Malformed(&'static str),
}

impl InitializeResult {
    /// Returns true if the agent supports signing out. In v2, every agent with a sign-in method supports it.
    pub fn can_log_out(&self) -> bool {
        self.capabilities.auth.logout
            || (self.acp_version == AcpVersion::V2 && self.has_auth_methods())
    }

    pub fn has_auth_methods(&self) -> bool {
        self.auth_methods
            .as_deref()
            .is_some_and(|methods| methods.get() != "[]")
    }

    /// The methods that are objects, with their JSON.
    fn auth_method_objects(&self) -> impl Iterator<Item = (RawObject<'_>, &RawValue)> {
        let methods = elements(self.auth_methods.as_deref()).into_iter();
        methods.filter_map(|raw| Some((RawObject::parse(raw)?, raw)))
    }

    /// Returns every method that has an id, in the agent's order.
    pub fn offered_auth_methods(&self) -> Vec<OfferedMethod> {
        let key = self.acp_version.auth_method_id_key();
        let methods = self.auth_method_objects();
        let offered = methods.filter_map(|(method, _)| {
            Some(OfferedMethod {
                id: method.text(key)?.into_owned(),
                terminal: is_terminal(&method),
            })
        });
        offered.collect()
    }

    /// The methods that a client can use with `authenticate`, as the agent sent them. A terminal method runs the agent's
    /// command, which a client does not have.
    pub fn client_auth_methods(&self) -> Box<RawValue> {
        let methods = self.auth_method_objects();
        let callable = methods.filter(|(method, _)| !is_terminal(method));
        to_raw(&callable.map(|(_, raw)| raw).collect::<Vec<_>>())
    }

    /// All methods for a client that runs terminal methods through the gateway. Those have no arguments and variables,
    /// which are for the agent's command.
    pub fn bridged_auth_methods(&self) -> Box<RawValue> {
        let bridged = self.auth_method_objects().map(|(method, raw)| {
            if !is_terminal(&method) {
                return raw.to_owned();
            }
            let kept = ["type", "id", "name", "description"].into_iter();
            let kept = kept.filter_map(|name| Some((name, method.get(name)?)));
            to_raw(&kept.collect::<BTreeMap<_, _>>())
        });
        to_raw(&bridged.collect::<Vec<_>>())
    }

    pub fn auth_method(&self, id: &str) -> Result<AuthMethod, AuthMethodError> {
        let key = self.acp_version.auth_method_id_key();
        let mut methods = self.auth_method_objects().map(|(method, _)| method);
        let method = methods.find(|method| method.text(key).is_some_and(|name| name == id));
        let method = method.ok_or(AuthMethodError::Unknown)?;
        if !is_terminal(&method) {
            return Ok(AuthMethod::Agent);
        }
        let malformed = AuthMethodError::Malformed;
        let args = method.value("args").map_or("[]", RawValue::get);
        let args = serde_json::from_str(args).ok();
        let env = method.value("env").map_or(Some(Vec::new()), parse_env);
        let terminal = TerminalAuth {
            args: args.ok_or(malformed("args is not a list of strings"))?,
            env: env.ok_or(malformed("env is not a list of variables"))?,
        };
        let variable = |(name, value): &(String, String)| {
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
        };
        let arg = |arg: &String| !arg.contains('\0');
        if !terminal.env.iter().all(variable) || !terminal.args.iter().all(arg) {
            let reason = "a value contains NUL, or a variable has an invalid name";
            return Err(malformed(reason));
        }
        Ok(AuthMethod::Terminal(terminal))
    }
}

fn is_terminal(method: &RawObject<'_>) -> bool {
    method.text("type").as_deref() == Some("terminal")
}

/// Parses environment variables. v1 uses an object, v2 a list of `{name, value}`.
fn parse_env(raw: &RawValue) -> Option<Vec<(String, String)>> {
    if raw.get().starts_with('[') {
        let pairs: Vec<NameValue> = serde_json::from_str(raw.get()).ok()?;
        let pairs = pairs.into_iter();
        return Some(pairs.map(|pair| (pair.name, pair.value)).collect());
    }
    let object = RawObject::parse(raw)?;
    let names = object.iter().map(|(name, _)| name);
    names
        .map(|name| Some((name.to_owned(), object.text(name)?.into_owned())))
        .collect()
}

pub fn authenticate(method_id: &str, meta: Option<&RawValue>) -> Box<RawValue> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        method_id: &'a str,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<&'a RawValue>,
    }
    super::to_one_line(to_raw(&Params { method_id, meta }))
}

/// The `_meta` of `authenticate` with an API key in the agent's format.
pub fn api_key_meta(format: ApiKeyFormat, key: &str) -> Box<RawValue> {
    let value = match format {
        ApiKeyFormat::String => serde_json::json!(key),
        ApiKeyFormat::Object => serde_json::json!({ "apiKey": key }),
    };
    to_raw(&serde_json::json!({ "api-key": value }))
}

/// Returns `state` from the answer to `auth/status`. The value may be any text, because later versions may
/// add states.
pub fn auth_state(status: &RawValue) -> Option<Cow<'_, str>> {
    RawObject::parse(status)?.text("state")
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1;

    use super::*;

    fn initialized(methods: &str, capabilities: &str) -> InitializeResult {
        let text = format!(
            r#"{{"protocolVersion":1,"agentCapabilities":{capabilities},"authMethods":{methods}}}"#
        );
        InitializeResult::parse(serde_json::from_str(&text).unwrap(), AcpVersion::V1).unwrap()
    }

    #[test]
    fn auth_methods_are_found_by_id_and_validated() {
        let methods = r#"[{"id":"a","name":"A"},{"id":"b","name":"B","type":"agent"},
            {"id":"c","name":"C","type":"env_var","vars":[{"name":"KEY"}]},
            {"id":"d","name":"D","type":"terminal","command":"/bin/evil","args":["login"],"env":{"A":"1"}},
            {"id":"e","name":"E","type":"terminal","env":[{"name":"A","value":"1"}],"args":null},7]"#;
        let result = initialized(methods, "{}");
        for id in ["a", "b", "c"] {
            assert_eq!(result.auth_method(id), Ok(AuthMethod::Agent), "{id}");
        }
        let env = vec![("A".to_owned(), "1".to_owned())];
        let args = vec!["login".to_owned()];
        let terminal = |args, env| Ok(AuthMethod::Terminal(TerminalAuth { args, env }));
        assert_eq!(result.auth_method("d"), terminal(args, env.clone()));
        assert_eq!(result.auth_method("e"), terminal(Vec::new(), env));
        assert_eq!(result.auth_method("f"), Err(AuthMethodError::Unknown));
        assert_eq!(
            initialized("null", "{}").auth_method("a"),
            Err(AuthMethodError::Unknown)
        );
        for odd in [
            r#""args":"login""#,
            r#""args":[1]"#,
            r#""args":["a\u0000b"]"#,
            r#""env":{"A":1}"#,
            r#""env":{"A=B":"1"}"#,
            r#""env":{"":"1"}"#,
        ] {
            let result = initialized(&format!(r#"[{{"id":"x","type":"terminal",{odd}}}]"#), "{}");
            assert!(
                matches!(result.auth_method("x"), Err(AuthMethodError::Malformed(_))),
                "{odd}"
            );
        }
    }

    #[test]
    fn api_key_meta_has_the_format_of_the_agent() {
        let text = api_key_meta(ApiKeyFormat::String, "K-12345678\"");
        assert_eq!(text.get(), r#"{"api-key":"K-12345678\""}"#);
        let object = api_key_meta(ApiKeyFormat::Object, "K-12345678");
        assert_eq!(object.get(), r#"{"api-key":{"apiKey":"K-12345678"}}"#);
    }

    #[test]
    fn logout_is_advertised_by_an_object() {
        let can =
            |methods: &str, capabilities: &str| initialized(methods, capabilities).can_log_out();
        assert!(can("[]", r#"{"auth":{"logout":{}}}"#));
        assert!(!can("[]", r#"{"auth":{"logout":true}}"#) && !can("[]", "{}"));
    }

    #[test]
    fn params_match_the_schema() {
        let meta: &RawValue = serde_json::from_str("{\"x\":\n1.10}").unwrap();
        let params = authenticate("a\"", Some(meta));
        assert_eq!(params.get(), r#"{"methodId":"a\"","_meta":{"x": 1.10}}"#);
        let typed: v1::AuthenticateRequest = serde_json::from_str(params.get()).unwrap();
        assert_eq!(typed.method_id.0.as_ref(), "a\"");
        let status: &RawValue =
            serde_json::from_str(r#"{"state":"authenticated","accounts":[]}"#).unwrap();
        assert_eq!(
            auth_state(status).unwrap(),
            AuthState::Authenticated.as_str()
        );
    }
}
