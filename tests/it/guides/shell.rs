//! The person at the terminal: one bash in a folder of its own, and gateways that it starts.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::gateway::{KEY_RELOAD_INTERVAL, NO_CONFIG_FILE};
use crate::support::places::{gateway_program, project};
use crate::support::terminal::terminal;

const START: Duration = Duration::from_mins(1);
const RUN: Duration = Duration::from_mins(3);
/// The address and the key in the pages.
const ADDRESS: &str = "127.0.0.1:8080";
const KEY: &str = "acpg_";
const KEY_LENGTH: usize = 48;

#[expect(
    clippy::disallowed_methods,
    reason = "the test plays the person at the terminal"
)]
fn command(program: &str) -> Command {
    Command::new(program)
}

/// A bash that keeps its variables from block to block. HOME and the working folder are the same scratch folder.
pub(super) struct Shell {
    folder: TempDir,
    bash: Child,
    stdin: ChildStdin,
    blocks: usize,
}

impl Shell {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let tools = folder.path().join(".bin");
        std::fs::create_dir(&tools).expect("the folder is ours");
        // An agent of the guides sees the folder, as it is on PATH, but perhaps not the target of a link.
        let tool = tools.join("acp-gateway");
        if std::fs::hard_link(gateway_program(), &tool).is_err() {
            std::fs::copy(gateway_program(), &tool).expect("the folder is ours");
        }
        let modules = project().join("tests/agents/node_modules");
        symlink(modules, folder.path().join("node_modules")).expect("the folder is ours");
        let out = File::create(folder.path().join(".out")).expect("the folder is ours");
        let mut bash = environment(&mut command("bash"), folder.path())
            .args(["--norc", "--noprofile", "-euo", "pipefail"])
            .stdin(Stdio::piped())
            .stdout(out.try_clone().expect("a descriptor"))
            .stderr(out)
            .spawn()
            .expect("bash is there");
        let stdin = bash.stdin.take().expect("it is piped");
        Self {
            folder,
            bash,
            stdin,
            blocks: 0,
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder().join(name), text).expect("the folder is ours");
    }

    /// Runs a block and returns its output. The page's address and link key are replaced by those of the gateway.
    pub(super) fn run(
        &mut self,
        block: &str,
        gateway: Option<&RunningGateway>,
        location: &str,
    ) -> String {
        let block = gateway.map_or_else(|| block.to_owned(), |gateway| gateway.named(block));
        self.blocks += 1;
        let end = format!("@@{}@@", self.blocks);
        let before = self.printed().len();
        // The block's commands must not read the rest of the script.
        let script = format!("{{\n{block}\n}} </dev/null\nprintf '%s\\n' '{end}'\n");
        let written = self
            .stdin
            .write_all(script.as_bytes())
            .and_then(|()| self.stdin.flush());
        written.unwrap_or_else(|error| panic!("{location}: {error}: {}", self.printed()));
        let began = Instant::now();
        loop {
            let printed = self.printed();
            if let Some((text, _)) = printed[before..].split_once(&end) {
                return text.to_owned();
            }
            let ended = self.bash.try_wait().expect("the child can be asked");
            let log = gateway.map(RunningGateway::text).unwrap_or_default();
            assert!(
                ended.is_none(),
                "{location} fails:\n{block}\n{}\n{log}",
                &printed[before..]
            );
            assert!(
                began.elapsed() < RUN,
                "{location} does not end:\n{block}\n{}\n{log}",
                &printed[before..]
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn printed(&self) -> String {
        let bytes = std::fs::read(self.folder().join(".out")).expect("the file is ours");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.bash.kill());
        drop(self.bash.wait());
    }
}

fn environment<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    let tools = folder.join(".bin");
    #[expect(
        clippy::disallowed_methods,
        reason = "a test may look where the programs are"
    )]
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env_clear()
        .env("PATH", format!("{}:{path}", tools.display()))
        .env("HOME", folder)
        .env("LC_ALL", "C.UTF-8")
        // Tests may run as root.
        .env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true")
        .env(KEY_RELOAD_INTERVAL.0, KEY_RELOAD_INTERVAL.1)
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .current_dir(folder)
}

/// A gateway in a separate terminal, with its output until it accepted connections.
pub(super) struct RunningGateway {
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
    pub(super) printed: String,
    address: String,
    key: Option<String>,
}

impl RunningGateway {
    pub(super) fn start(shell: &Shell, program: &str, location: &str) -> Self {
        let (ours, theirs) = terminal();
        let mut bash = command("bash");
        environment(&mut bash, shell.folder()).env("ACP_GATEWAY_LISTEN", "127.0.0.1:0");
        // A page ends its remote agents before its gateway, which then waits for each step of their stop.
        for step in ["STDIN", "TERM", "KILL"] {
            bash.env(
                format!("ACP_GATEWAY__TESTING__STOP_{step}_TIMEOUT"),
                "100ms",
            );
        }
        let errors = theirs.try_clone().expect("a descriptor");
        let child = bash
            .args(["-euc", &format!("exec {}", program.trim())])
            .stdin(Stdio::null())
            .stdout(theirs)
            .stderr(errors)
            .spawn()
            .expect("bash is there");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let mut terminal = File::from(ours);
        let kept = Arc::clone(&shown);
        // A read from a terminal whose other side is closed fails.
        let read = move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = terminal.read(&mut bytes) {
                kept.lock()
                    .expect("no panic")
                    .extend_from_slice(&bytes[..count]);
            }
        };
        std::thread::Builder::new().spawn(read).expect("a thread");
        let mut served = Self {
            child,
            shown,
            printed: String::new(),
            address: String::new(),
            key: None,
        };
        let began = Instant::now();
        loop {
            let text = served.text();
            let link = text.lines().find(|line| line.starts_with("http://"));
            if let Some(link) = link.filter(|_| text.ends_with('\n')) {
                let (address, key) = link["http://".len()..]
                    .split_once('/')
                    .expect("a link has a path");
                address.clone_into(&mut served.address);
                served.key = key.split_once("key=").map(|(_, key)| key.trim().to_owned());
                served.printed.clone_from(&text);
                return served;
            }
            let ended = served.child.try_wait().expect("the child can be asked");
            assert!(
                ended.is_none() && began.elapsed() < START,
                "{location}: no link was printed: {text}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("no panic")).into_owned()
    }

    /// A block of a page with the address and the link key of this gateway.
    fn named(&self, block: &str) -> String {
        let block = block.replace(ADDRESS, &self.address);
        let Some(key) = &self.key else { return block };
        let mut named = String::new();
        let mut rest = &*block;
        while let Some(at) = rest.find(KEY) {
            named.push_str(&rest[..at]);
            named.push_str(key);
            rest = rest.get(at + KEY_LENGTH..).unwrap_or_default();
        }
        named + rest
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        let asked = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let began = Instant::now();
        while asked.is_ok() && began.elapsed() < START {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
