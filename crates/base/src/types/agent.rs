//! The words about agents that several crates share: their names, protocols and modes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, VariantArray};
use utoipa::ToSchema;

/// The file of this program, also in a sandbox that hides its folder. A path on disk could belong to another version later.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// The protocol of an agent. Agents on other hosts use ACP.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Display,
    EnumString,
    VariantArray,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum AgentDialect {
    /// The Agent Client Protocol.
    #[default]
    Acp,
    /// The protocol of the Claude Code CLI.
    StreamJson,
    /// The protocol of agents that were written before version 1 of ACP.
    EarlyAcp,
}

impl AgentDialect {
    /// Whether a process serves one session, for which it starts.
    pub const fn has_one_session(self) -> bool {
        matches!(self, Self::StreamJson | Self::EarlyAcp)
    }

    /// The command that speaks ACP for a program that speaks this dialect: the program itself, or this program in front of it
    /// (`acp-gateway translate`). `resume` is the session that the client will restore.
    pub fn command(
        self,
        program: PathBuf,
        args: Vec<OsString>,
        resume: Option<&str>,
        max_line_bytes: usize,
    ) -> (PathBuf, Vec<OsString>) {
        if self == Self::Acp {
            return (program, args);
        }
        let mut translation: Vec<OsString> =
            vec!["translate".into(), format!("--from={self}").into()];
        translation.extend(resume.map(|id| format!("--resume={id}").into()));
        translation.push(format!("--max-line-bytes={max_line_bytes}").into());
        translation.push("--pass-environment".into());
        translation.push("--".into());
        translation.push(program.into());
        translation.extend(args);
        (OWN_PROGRAM.into(), translation)
    }
}

/// `[a-z0-9][a-z0-9_-]{0,63}`: safe in a URL, a path and a log line.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
pub struct AgentName(Arc<str>);

#[derive(Debug, thiserror::Error)]
#[error(
    "an agent's name has 1 to 64 characters of a-z, 0-9, '_' and '-', and begins with a letter or a digit"
)]
pub struct AgentNameError;

impl AgentName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl FromStr for AgentName {
    type Err = AgentNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.as_bytes();
        let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let valid = bytes.first().is_some_and(plain)
            && bytes.len() <= 64
            && bytes.iter().all(|b| plain(b) || matches!(b, b'_' | b'-'));
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(AgentNameError)
        }
    }
}

text_form!(AgentName);

/// The provider of an agent's file or terminal methods, the most restricted first.
#[derive(Serialize, Deserialize, ToSchema, VariantArray)]
#[serde(rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolProvider {
    /// No provider: the gateway does not offer the methods to the agent.
    #[default]
    Off,
    /// A client answers each request.
    Client,
    /// The gateway serves the methods in the workspace of the session.
    Gateway,
}

/// A mode of the agent, or a value of one of its options that selects a mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModeSelection {
    /// The id of the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mode_id: Option<String>,
    /// The id of the option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub config_id: Option<String>,
    /// The value of the option. Absent for an option that is switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value: Option<String>,
}

impl ModeSelection {
    pub fn mode(id: &str) -> Self {
        Self {
            mode_id: Some(id.to_owned()),
            config_id: None,
            value: None,
        }
    }

    /// `value`: `None` for an option that is switched on.
    pub fn option(id: &str, value: Option<&str>) -> Self {
        Self {
            mode_id: None,
            config_id: Some(id.to_owned()),
            value: value.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod agent_dialect_tests {
    use super::*;

    #[test]
    fn command_of_another_protocol_runs_behind_a_translation() {
        let command = |dialect: AgentDialect, resume| {
            let (program, args) = dialect.command("/bin/a".into(), vec!["-x".into()], resume, 7);
            let args = args.iter().map(|word| word.to_str().unwrap());
            let words: Vec<&str> = std::iter::once(program.to_str().unwrap())
                .chain(args)
                .collect();
            words.join(" ")
        };
        assert_eq!(command(AgentDialect::Acp, Some("id")), "/bin/a -x");
        assert_eq!(
            command(AgentDialect::EarlyAcp, None),
            "/proc/self/exe translate --from=early-acp --max-line-bytes=7 --pass-environment -- /bin/a -x"
        );
        assert_eq!(
            command(AgentDialect::StreamJson, Some("-id")),
            "/proc/self/exe translate --from=stream-json --resume=-id --max-line-bytes=7 --pass-environment -- /bin/a -x"
        );
    }
}
