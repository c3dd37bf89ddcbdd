//! The next step for a person when an agent needs a sign-in.

use super::spec::{AgentSpec, Home};
use crate::acp::InitializeResult;
use crate::acp::auth::OfferedMethod;
use crate::jsonrpc::plain_line;
use crate::types::known_agents::api_key_format;

/// The maximum length of a method id in the text, in bytes.
const ID_BYTES: usize = 200;

/// One sentence with the possible steps: set a variable, send a call, or run a command.
pub(super) fn next_step(spec: &AgentSpec, initialized: &InitializeResult) -> String {
    let methods = initialized.offered_auth_methods();
    let mut ways: Vec<String> = variable(spec, &methods).into_iter().collect();
    ways.extend(call(spec, &methods));
    if let (Some(known), Home::User(_)) = (spec.known, &spec.home) {
        ways.extend(
            known
                .row
                .login
                .map(|command| format!("run `{command}` as the user of the gateway")),
        );
    }
    let unknown = || "sign in to the agent as its documentation describes".to_owned();
    let last = ways.pop().unwrap_or_else(unknown);
    let sentence = if ways.is_empty() {
        last
    } else {
        format!("{}, or {last}", ways.join(", "))
    };
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

/// The variable to set or to check. `None` if nothing shows that the agent reads a key.
fn variable(spec: &AgentSpec, methods: &[OfferedMethod]) -> Option<String> {
    let entry = format!("in `env` of [agents.{}]", spec.name);
    let Some(known) = spec.known else {
        return takes_key(methods).then(|| format!("set the key of its provider {entry}"));
    };
    let row = known.row;
    let has = |name: &&str| spec.has_variable(name);
    let missing: Vec<&str> = row
        .required_settings
        .iter()
        .copied()
        .filter(|name| !has(name))
        .collect();
    let present: Vec<&str> = row.secrets.iter().copied().filter(has).collect();
    if missing.is_empty() && !present.is_empty() {
        return Some(format!(
            "check {}, which the agent receives but does not accept",
            present.join(" and ")
        ));
    }
    let suggested = &row.suggested_variables;
    let needs_key = !suggested.is_empty() && !suggested.iter().any(has);
    let key = needs_key.then(|| suggested.join(" or "));
    let names: Vec<&str> = key.as_deref().into_iter().chain(missing).collect();
    if names.is_empty() {
        return None;
    }
    let location = if known.found {
        "in the environment of the gateway and restart it"
    } else {
        &entry
    };
    Some(format!("set {} {location}", names.join(" and ")))
}

/// Whether a sign-in method takes the key of a provider.
fn takes_key(methods: &[OfferedMethod]) -> bool {
    methods
        .iter()
        .any(|method| api_key_format(&method.id).is_some())
}

/// The sign-in call to suggest: a method that takes a key, otherwise a method that needs no terminal.
fn call(spec: &AgentSpec, methods: &[OfferedMethod]) -> Option<String> {
    let by_key = methods
        .iter()
        .find(|method| api_key_format(&method.id).is_some());
    let by_call = methods.iter().find(|method| !method.terminal);
    let at_terminal = methods
        .iter()
        .find(|method| method.terminal && spec.settings.terminal_auth);
    let id = by_key.or(by_call).or(at_terminal)?.id.as_str();
    let id = serde_json::Value::from(plain_line(id, ID_BYTES));
    let key = if by_key.is_some() {
        ", \"apiKey\": \"KEY\""
    } else {
        ""
    };
    Some(format!(
        "send POST /v1/agents/{}/auth with {{\"methodId\": {id}{key}}}",
        spec.name
    ))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::acp::AcpVersion;
    use crate::agent::Known;
    use crate::types::KnownAgent;

    fn sentence(command: &str, found: bool, env: &[&str], methods: &str) -> String {
        let name = "x".parse().unwrap();
        let known = KnownAgent::find(command, &[]).map(|row| Known { row, found });
        let env = env
            .iter()
            .map(|name| ((*name).into(), "value".into()))
            .collect();
        let home = if found {
            Home::User(PathBuf::new())
        } else {
            Home::Dedicated(PathBuf::new())
        };
        let spec = AgentSpec {
            known,
            env,
            home,
            ..AgentSpec::removed(name)
        };
        let text = format!(r#"{{"protocolVersion":1,"authMethods":{methods}}}"#);
        let initialized =
            InitializeResult::parse(serde_json::from_str(&text).unwrap(), AcpVersion::V1).unwrap();
        next_step(&spec, &initialized)
    }

    #[test]
    fn next_step_lists_the_ways_of_the_agent() {
        let gemini =
            r#"[{"id":"oauth-personal","name":"Google"},{"id":"gemini-api-key","name":"Key"}]"#;
        assert_eq!(
            sentence("gemini", true, &[], gemini),
            "Set GEMINI_API_KEY in the environment of the gateway and restart it, send POST /v1/agents/x/auth with \
             {\"methodId\": \"gemini-api-key\", \"apiKey\": \"KEY\"}, or run `gemini` as the user of the gateway."
        );
        assert_eq!(
            sentence("gemini", false, &["GEMINI_API_KEY"], "[]"),
            "Check GEMINI_API_KEY, which the agent receives but does not accept."
        );
        assert_eq!(
            sentence("vibe-acp", false, &[], "[]"),
            "Set MISTRAL_API_KEY in `env` of [agents.x]."
        );
        assert_eq!(
            sentence("kimi", false, &["MOONSHOT_API_KEY"], "[]"),
            "Set KIMI_MODEL_API_KEY and KIMI_MODEL_NAME in `env` of [agents.x]."
        );
        assert_eq!(
            sentence("kimi", false, &["KIMI_MODEL_API_KEY"], "[]"),
            "Set KIMI_MODEL_NAME in `env` of [agents.x]."
        );
        assert_eq!(
            sentence(
                "kimi",
                false,
                &["KIMI_MODEL_API_KEY", "KIMI_MODEL_NAME"],
                "[]"
            ),
            "Check KIMI_MODEL_API_KEY, which the agent receives but does not accept."
        );
        assert_eq!(
            sentence("other", false, &[], r#"[{"id":"a\"b","name":"Way"}]"#),
            "Send POST /v1/agents/x/auth with {\"methodId\": \"a\\\"b\"}.",
            "nothing shows that the agent reads a key"
        );
        assert_eq!(
            sentence(
                "other",
                false,
                &[],
                r#"[{"id":"gemini-api-key","name":"Key"}]"#
            ),
            "Set the key of its provider in `env` of [agents.x], or send POST /v1/agents/x/auth with \
             {\"methodId\": \"gemini-api-key\", \"apiKey\": \"KEY\"}."
        );
        let terminal = r#"[{"id":"login","type":"terminal","name":"Shell"}]"#;
        assert_eq!(
            sentence("other", false, &[], terminal),
            "Sign in to the agent as its documentation describes.",
            "a disabled terminal method is not suggested"
        );
    }
}
