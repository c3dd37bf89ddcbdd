//! `attach sign-in`: the terminal sign-in of an agent. Editors append these words to the command of the bridge.

use std::process::ExitCode;

use clap::Subcommand;

use super::local::{AttachFailure, acp_url, authorization};

use crate::cli::lock;
use crate::cli::output::{Failure, current_thread_runtime, pipes, stop_signal};
use crate::config::DataDir;
use crate::control::{Access, ControlClient};
use base::types::AgentName;
use outgoing::Client;
use programs::attach::{SignIn, Target};

#[derive(Debug, Subcommand)]
pub(super) enum AttachCommand {
    /// Sign in to the agent in this terminal, with a method of type `terminal`
    SignIn {
        /// The id of the method
        #[arg(long, value_name = "ID")]
        method: String,
    },
}

/// The gateway of a sign-in. The key of `control` ends with it.
pub(super) struct SignInGateway {
    url: String,
    key: String,
    _control: Option<ControlClient>,
}

impl SignInGateway {
    pub(super) fn remote(url: String, key: String) -> Self {
        Self {
            url,
            key,
            _control: None,
        }
    }

    /// The running gateway of the data folder. An editor that offers the sign-in has started it.
    pub(super) fn local(data: &DataDir, own_key: Option<String>) -> Result<Self, Failure> {
        lock::check_owner(data)?;
        let mut control = ControlClient::connect(&data.private())?;
        let access = if own_key.is_some() {
            Access::OwnKey
        } else {
            Access::SignIn
        };
        let welcome = control.hello(access)?;
        let key = own_key
            .or(welcome.key.map(|key| key.0))
            .ok_or(AttachFailure::NoKey)?;
        Ok(Self {
            url: welcome.url,
            key,
            _control: Some(control),
        })
    }
}

pub(super) fn run(
    agent: Option<&AgentName>,
    method: &str,
    (http, gateway): (Client, &SignInGateway),
) -> Result<ExitCode, Failure> {
    let (base, named) = split_acp(&gateway.url);
    let agent = agent.map(ToString::to_string).or(named);
    // The check of the URL is that of the bridge.
    acp_url(base, None)?;
    let target = Target {
        url: base.parse()?,
        authorization: authorization(&gateway.key)?,
    };
    let sign_in = SignIn {
        http,
        target,
        agent,
        method: method.to_owned(),
    };
    let runtime = current_thread_runtime()?;
    let ended = runtime.block_on(async {
        let stop = stop_signal()?;
        let (input, output) = pipes()?;
        Ok::<_, Failure>(sign_in.run(std::io::stdin(), input, output, stop).await?)
    });
    // A thread can be blocked in a read of stdin.
    runtime.shutdown_background();
    ended.map(ExitCode::from)
}

fn split_acp(url: &str) -> (&str, Option<String>) {
    let url = url.trim_end_matches('/');
    if let Some(base) = url.strip_suffix("/acp") {
        return (base, None);
    }
    match url.rsplit_once("/acp/") {
        Some((base, agent)) if !agent.contains('/') => (base, Some(agent.to_owned())),
        _ => (url, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_acp_names_the_gateway_and_the_agent() {
        for (url, base, agent) in [
            ("http://h", "http://h", None),
            ("http://h/", "http://h", None),
            ("http://h/acp", "http://h", None),
            ("http://h/g/acp/fake/", "http://h/g", Some("fake")),
            ("http://h/acp/a/b", "http://h/acp/a/b", None),
        ] {
            assert_eq!(split_acp(url), (base, agent.map(str::to_owned)), "{url}");
        }
    }
}
