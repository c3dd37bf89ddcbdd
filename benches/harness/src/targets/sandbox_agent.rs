//! sandbox-agent, which selects an agent by a name from a fixed list.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{Alone, Amounts, Places, Running, STREAM, Session, Target, absent};
use crate::{Outcome, http, rpc};

#[derive(Debug)]
pub(super) struct SandboxAgent(pub(super) Places);

impl SandboxAgent {
    fn program(&self) -> PathBuf {
        self.0
            .peers
            .join("npm/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent")
    }
}

impl Target for SandboxAgent {
    fn name(&self) -> &'static str {
        "sandbox-agent"
    }

    fn title(&self) -> String {
        "sandbox-agent 0.4.2".to_owned()
    }

    fn amounts(&self) -> Amounts {
        Amounts {
            single: 50_000,
            fan: Some(200),
            sessions: Some(500),
            idle: Some(1000),
            replay: None,
            stalled: None,
        }
    }

    fn missing(&self) -> Option<String> {
        absent(&self.program())
    }

    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>> {
        let bin = folder.join("share/sandbox-agent/bin");
        fs::create_dir_all(bin.join("agent_processes"))?;
        symlink(self.0.agent(), bin.join("codex"))?;
        symlink(self.0.agent(), bin.join("agent_processes/codex-acp"))?;
        let share = folder.join("share");
        let environment = [
            ("HOME", folder.as_os_str()),
            ("XDG_DATA_HOME", share.as_os_str()),
            ("SANDBOX_AGENT_REQUIRE_PREINSTALL", "1".as_ref()),
            ("RUST_LOG", "error".as_ref()),
        ];
        Alone::start(
            folder.join("sandbox-agent.log"),
            &environment,
            session,
            |port| {
                let program = self.program();
                let command: [&OsStr; 6] = [
                    program.as_ref(),
                    "server".as_ref(),
                    "--no-token".as_ref(),
                    "--no-telemetry".as_ref(),
                    "--port".as_ref(),
                    port.as_ref(),
                ];
                command.map(OsStr::to_owned).to_vec()
            },
        )
    }
}

fn session(address: SocketAddr, number: usize) -> Outcome<Session> {
    let path = format!("/v1/acp/s{number}");
    let post = |path: &str, body: &str| http::request("POST", address, path, &[], Some(body));
    http::expect(
        address,
        &post(&format!("{path}?agent=codex"), &rpc::initialize()),
        200,
    )?;
    http::expect(address, &post(&path, &rpc::new_session()), 200)?;
    Ok(Session {
        address,
        follow: http::request("GET", address, &path, &[STREAM.to_owned()], None),
        replay: None,
        prompt_address: address,
        prompt: Box::new(move |text| {
            http::request("POST", address, &path, &[], Some(&rpc::prompt(text)))
        }),
        turn_end: None,
        _held: Vec::new(),
    })
}
