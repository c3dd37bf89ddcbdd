//! The failures of an agent.

use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;

use super::spec::{AgentSpec, Home};
use base::types::{AgentName, FolderError};
use children::SpawnError;
use events::api::ProblemCode;
use wire::acp::auth::OfferedMethod;
use wire::acp::known_agents::api_key_format;
use wire::acp::{InitializeResult, error_code, sign_in};
use wire::fleet::FleetError;
use wire::jsonrpc::{RpcError, plain_line};

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
    /// The limit for which the kernel killed the process.
    pub exceeded_limit: Option<Box<str>>,
    /// Whether the connection to the agent's host was lost, for `reason`. Nobody knows how the process ended.
    pub is_lost: bool,
    /// Why the connection ended, if the agent is not a child process of the gateway.
    pub disconnected: Option<Box<str>>,
}

impl fmt::Display for AgentExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (None, Some(reason)) = (&self.reason, &self.disconnected) {
            return f.write_str(reason);
        }
        match (&self.reason, &self.signal, self.exit_code) {
            (Some(reason), _, _) if self.is_lost => f.write_str(reason),
            (Some(reason), _, _) => write!(f, "stopped by the gateway: {reason}"),
            (None, Some(signal), _) => {
                write!(f, "ended by signal {signal}")?;
                self.exceeded_limit
                    .as_ref()
                    .map_or(Ok(()), |limit| write!(f, ": it exceeded {limit}"))
            }
            (None, None, Some(code)) => write!(f, "exited with code {code}"),
            (None, None, None) => f.write_str("closed its stdout"),
        }
    }
}

const OUTPUT_LABEL: &str = "; the end of its output to stderr: ";

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
    /// The agent cannot use a folder of the session. Other sessions are not affected.
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the agent's process ended: {0}")]
    Exited(AgentExit),
    #[error(transparent)]
    Member(#[from] FleetError),
    #[error("no connection to the agent: {reason}")]
    Disconnected { reason: String },
    #[error("the gateway is shutting down")]
    Draining,
    #[error("the agent did not answer {method} in time{output}")]
    Timeout {
        method: String,
        /// The agent's last text on stdout that is not JSON-RPC, as the end of the sentence.
        output: String,
    },
    #[error(
        "the agent did not answer initialize within {timeout:?} (agents.{agent}.start_timeout){output}"
    )]
    StartTimeout {
        agent: AgentName,
        timeout: Duration,
        output: String,
        stderr_tail: String,
    },
}

impl From<AgentExit> for AgentFailure {
    fn from(exit: AgentExit) -> Self {
        match exit.disconnected {
            Some(_) => Self::Disconnected {
                reason: exit.to_string(),
            },
            None => Self::Exited(exit),
        }
    }
}

impl From<SpawnError> for AgentFailure {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::Folder(error) => error.into(),
            error => Self::start(with_cause(&error)),
        }
    }
}

impl AgentExit {
    /// The cause of the end, for metrics.
    pub fn cause(&self) -> &'static str {
        if self.disconnected.is_some() {
            "disconnected"
        } else if self.is_lost {
            "lost"
        } else if self.reason.is_some() {
            "stopped"
        } else if self.exceeded_limit.is_some() {
            "limit"
        } else if self.signal.is_some() {
            "signal"
        } else {
            "exit"
        }
    }

    /// Whether a shell or `env` reported that the agent's program does not exist or cannot be executed.
    pub fn lacks_program(&self) -> bool {
        self.reason.is_none() && matches!(self.exit_code, Some(126 | 127))
    }
}

impl AgentFailure {
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Rpc(error) => match error.code {
                error_code::INVALID_PARAMS => ProblemCode::Invalid,
                error_code::METHOD_NOT_FOUND => ProblemCode::AgentUnsupported,
                _ => ProblemCode::AgentError,
            },
            Self::AuthRequired { .. } => ProblemCode::AgentAuthRequired,
            Self::Unsupported { .. } => ProblemCode::AgentUnsupported,
            Self::Start { .. } | Self::Folder(FolderError::Unusable { .. }) => {
                ProblemCode::AgentStartFailed
            }
            Self::Folder(FolderError::Missing { .. }) => ProblemCode::NotFound,
            Self::Folder(FolderError::Replaced { .. } | FolderError::OutsideRoots { .. }) => {
                ProblemCode::Forbidden
            }
            Self::Member(_) | Self::Exited(AgentExit { is_lost: true, .. }) => {
                ProblemCode::MemberUnavailable
            }
            Self::Exited(_) => ProblemCode::AgentExited,
            Self::Disconnected { .. } => ProblemCode::AgentDisconnected,
            Self::Draining => ProblemCode::Draining,
            Self::Timeout { .. } | Self::StartTimeout { .. } => ProblemCode::AgentTimeout,
        }
    }

    /// Whether a start with the same entry fails in the same way: the program is missing, or the gateway refuses to start it.
    pub fn is_fixed(&self) -> bool {
        match self {
            Self::Start { .. } => true,
            Self::Exited(exit) => exit.lacks_program(),
            _ => false,
        }
    }

    /// The last output of the process to stderr, masked. Empty if there is none.
    pub fn stderr_tail(&self) -> &str {
        match self {
            Self::Exited(AgentExit { stderr_tail, .. })
            | Self::StartTimeout { stderr_tail, .. } => stderr_tail,
            _ => "",
        }
    }

    pub fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Exited(exit) => exit.exit_code,
            _ => None,
        }
    }

    /// The error as one line, with the last output of the process to stderr. The output is masked. At most `max` bytes.
    pub fn with_output(&self, max: usize) -> String {
        let mut text = self.to_string();
        text.truncate(text.floor_char_boundary(max));
        let output = self.stderr_tail().split_whitespace();
        let output = output.collect::<Vec<_>>().join(" ");
        let left = max.saturating_sub(text.len() + OUTPUT_LABEL.len());
        let from = output.ceil_char_boundary(output.len().saturating_sub(left));
        if !output[from..].is_empty() {
            text.push_str(OUTPUT_LABEL);
            text.push_str(&output[from..]);
        }
        text
    }

    /// Whether only one session causes the failure, so that a start for another session can succeed.
    pub fn is_of_session(&self) -> bool {
        matches!(self, Self::Folder(_) | Self::Member(_))
    }

    /// The failure for an entry that was removed from the configuration.
    pub fn removed() -> Self {
        Self::start(
            "it is no longer in the gateway's configuration; its sessions can still be read",
        )
    }

    pub(super) fn start(detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::Start { detail }
    }

    /// Converts an error response. A missing sign-in has its own variant.
    pub fn from_rpc_error(
        error: RpcError,
        spec: &AgentSpec,
        initialized: &InitializeResult,
    ) -> Self {
        if !sign_in::is_required(&error) {
            return Self::Rpc(error);
        }
        Self::AuthRequired {
            auth_methods: initialized.auth_methods.clone(),
            error,
            next_step: next_step(spec, initialized),
        }
    }
}

/// An error with its cause: the operator must see that a file is not executable, for example.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// The maximum length of a method id in the text, in bytes.
const ID_BYTES: usize = 200;

/// One sentence with the possible steps: set a variable, send a call, or run a command.
pub(super) fn next_step(spec: &AgentSpec, initialized: &InitializeResult) -> String {
    let methods = initialized.offered_auth_methods();
    let mut ways: Vec<String> = variable(spec, &methods).into_iter().collect();
    ways.extend(call(spec, &methods));
    if let (Some(known), Home::User(_)) = (spec.known, &spec.home)
        && let Some(command) = known.row.login
    {
        ways.push(format!("run `{command}` as the user of the gateway"));
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
        let takes_key = methods.iter().any(takes_key);
        return takes_key.then(|| format!("set the key of its provider {entry}"));
    };
    let row = known.row;
    let has = |name: &&str| spec.has_variable(name);
    let required = row.required_settings.iter().copied();
    let missing: Vec<&str> = required.filter(|name| !has(name)).collect();
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
    let location = if known.inherits {
        "in the environment of the gateway and restart it"
    } else {
        &entry
    };
    Some(format!("set {} {location}", names.join(" and ")))
}

/// Whether a sign-in method takes the key of a provider.
fn takes_key(method: &OfferedMethod) -> bool {
    api_key_format(&method.id).is_some()
}

/// The sign-in call to suggest: a method that takes a key, otherwise a method that needs no terminal.
fn call(spec: &AgentSpec, methods: &[OfferedMethod]) -> Option<String> {
    let by_key = methods.iter().find(|method| takes_key(method));
    let by_call = methods.iter().find(|method| !method.terminal);
    let mut at_terminal = methods.iter().filter(|method| method.terminal);
    let at_terminal = if spec.settings.terminal_auth {
        at_terminal.next()
    } else {
        None
    };
    let id = by_key.or(by_call).or(at_terminal)?.id.as_str();
    let id = serde_json::Value::from(plain_line(id, ID_BYTES));
    let key = by_key.map_or("", |_| ", \"apiKey\": \"KEY\"");
    Some(format!(
        "send POST /v1/agents/{}/auth with {{\"methodId\": {id}{key}}}",
        spec.name
    ))
}

#[cfg(test)]
mod next_step_tests {
    use std::path::PathBuf;

    use super::*;
    use crate::agent::Known;
    use wire::acp::{AcpVersion, KnownAgent};

    fn sentence(command: &str, found: bool, env: &[&str], methods: &str) -> String {
        let name = "x".parse().unwrap();
        let known = KnownAgent::find(command, &[]).map(|row| Known {
            row,
            inherits: found,
        });
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
