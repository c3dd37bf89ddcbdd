//! The failures of an agent.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::next_step::next_step;
use super::spec::AgentSpec;
use crate::acp::{InitializeResult, sign_in};
use crate::jsonrpc::RpcError;
use crate::process::masked;
use crate::types::AgentName;

/// How a process ended, and why the gateway stopped it if it did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentExit {
    pub exit_code: Option<i32>,
    /// The name of the signal, as in `SIGKILL`.
    pub signal: Option<String>,
    pub stderr_tail: String,
    /// The gateway's reason: a line that was too long, a flood of invalid lines, or a stdin that the agent did not
    /// read.
    pub reason: Option<String>,
}

impl fmt::Display for AgentExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, &self.signal, self.exit_code) {
            (Some(reason), _, _) => write!(f, "stopped by the gateway: {reason}"),
            (None, Some(signal), _) => write!(f, "ended by signal {signal}"),
            (None, None, Some(code)) => write!(f, "exited with code {code}"),
            (None, None, None) => f.write_str("closed its stdout"),
        }
    }
}

/// Why a call to an agent, or its start, failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentFailure {
    #[error("the agent answered with an error: {0}")]
    Rpc(RpcError),
    #[error("the agent needs a sign-in: {error}. {next_step}")]
    AuthRequired {
        auth_methods: Option<Box<RawValue>>,
        error: RpcError,
        /// The next step for a person, in one sentence.
        next_step: String,
    },
    #[error("the agent does not support {method}")]
    Unsupported { method: String },
    #[error("could not start the agent: {detail}")]
    Start { detail: String },
    #[error("the agent's process ended: {0}")]
    Exited(AgentExit),
    #[error("the gateway is shutting down")]
    Draining,
    #[error("the agent did not answer {method} in time")]
    Timeout { method: String },
    /// The start timeout of the agent's entry expired.
    #[error("the agent did not answer initialize within {timeout:?} (agents.{agent}.start_timeout)")]
    StartTimeout { agent: AgentName, timeout: Duration },
}

/// Masks the secrets of the entry in an error, also in `data`.
pub fn without_secrets(error: RpcError, secrets: &[String]) -> RpcError {
    if secrets.is_empty() {
        return error;
    }
    let data = error.data.and_then(|data| masked_json(data, secrets));
    RpcError { code: error.code, message: masked(&error.message, secrets), data }
}

/// `None` if a secret cannot be masked without damage to the JSON.
fn masked_json(data: Box<RawValue>, secrets: &[String]) -> Option<Box<RawValue>> {
    // A JSON string may contain escapes, so the search needs the decoded values.
    let Ok(mut value) = serde_json::from_str::<Value>(data.get()) else {
        // For example, a lone surrogate.
        let shown = masked(data.get(), secrets);
        return if shown == data.get() { Some(data) } else { RawValue::from_string(shown).ok() };
    };
    if mask_strings(&mut value, secrets) { to_raw_value(&value).ok() } else { Some(data) }
}

/// Masks secrets in every string and member name. Returns true if there was one.
fn mask_strings(value: &mut Value, secrets: &[String]) -> bool {
    match value {
        Value::String(text) => {
            let shown = masked(text, secrets);
            let found = shown != *text;
            *text = shown;
            found
        }
        Value::Array(items) => {
            items.iter_mut().fold(false, |found, item| mask_strings(item, secrets) | found)
        }
        Value::Object(members) => {
            let mut found = false;
            for (name, mut member) in std::mem::take(members) {
                found |= mask_strings(&mut member, secrets);
                let shown = masked(&name, secrets);
                found |= shown != name;
                members.insert(shown, member);
            }
            found
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl AgentFailure {
    /// The failure for an entry that was removed from the configuration.
    pub fn removed() -> Self {
        let detail =
            "it is no longer in the gateway's configuration; its sessions can still be read".to_owned();
        Self::Start { detail }
    }

    /// Converts an error response. A missing sign-in has its own variant.
    pub fn from_rpc_error(error: RpcError, spec: &AgentSpec, initialized: &InitializeResult) -> Self {
        if sign_in::is_required(&error) {
            let next_step = next_step(spec, initialized);
            Self::AuthRequired { auth_methods: initialized.auth_methods.clone(), error, next_step }
        } else {
            Self::Rpc(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_in_every_part_of_an_error() {
        let secrets = ["hunter2-key".to_owned()];
        let error = |message: &str, data: &str| {
            let data = Some(RawValue::from_string(data.to_owned()).unwrap());
            let error = RpcError { code: -1, message: message.to_owned(), data };
            let RpcError { message, data, .. } = without_secrets(error, &secrets);
            (message, data.map(|data| data.get().to_owned()))
        };
        let masked = |data: &str| error("no", data).1;
        assert_eq!(error("bad hunter2-key", "1.10"), ("bad [secret]".to_owned(), Some("1.10".to_owned())));
        assert_eq!(masked(r#"{"a":["x hunter2-key"]}"#).unwrap(), r#"{"a":["x [secret]"]}"#);
        assert_eq!(masked(r#"{"\u0068unter2-key":1}"#).unwrap(), r#"{"[secret]":1}"#);
        assert_eq!(masked(r#"["\ud800 hunter2-key"]"#).unwrap(), r#"["\ud800 [secret]"]"#);
        assert_eq!(masked(r#"{ "n": 1.10, "s": "\ud800" }"#).unwrap(), r#"{ "n": 1.10, "s": "\ud800" }"#);
    }
}
