//! `acp-gateway demo-agent`: a real ACP agent on stdio that needs no model and no network.
//!
//! It is the agent that a newcomer meets first, and it says that it is a demo. It owns its connection
//! ([`connection`], [`peer`], [`wire`]), its sessions ([`agent`], [`sessions`], [`store`]) and the scenes that it
//! plays ([`turn`], [`scenes`]). It speaks the version of ACP that its client asks for: the methods of each stand in
//! [`v1`] and [`v2`]; the scenes say everything in the words of v1, and [`v2`] says it in its own. It knows nothing of the gateway: it is a program of its own that shares the
//! binary, and it would work the same under an editor.

mod agent;
mod commands;
mod connection;
mod display;
mod history;
mod listing;
mod client_support;
mod options;
mod peer;
mod permission;
mod prompt;
mod scenes;
mod session;
mod sessions;
mod sign_in;
mod store;
mod terminal;
mod text;
mod turn;
mod v1;
mod v2;
mod version;
mod wire;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::fs::File;
use tokio::io::BufReader;

use sign_in::{SignIn, WORD};
use store::Store;

/// Serves ACP on stdin and stdout until stdin ends.
pub fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error),
    };
    let folder = state_folder();
    let sign_in =
        SignIn::new(variable("ACP_DEMO_SIGN_IN").is_some_and(|value| value == "required"), folder.clone());
    let store = Store::new(folder);
    let served = pipes().and_then(|(stdin, stdout)| {
        runtime.block_on(connection::serve(BufReader::with_capacity(64 << 10, stdin), stdout, store, sign_in))
    });
    // A client that no longer reads must not keep the process: nothing waits for blocked stdio.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&error),
    }
}

/// Signs in at the terminal that this process has, for clients that run the agent so.
pub fn sign_in() -> ExitCode {
    let word = variable(WORD).and_then(|word| word.into_string().ok());
    sign_in::at_terminal(state_folder(), word.as_deref().unwrap_or("acp"))
}

/// Stdin and stdout without the standard library's buffers: a line is one write.
fn pipes() -> std::io::Result<(File, File)> {
    let open = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(|fd| File::from_std(fd.into()));
    Ok((open(std::io::stdin().as_fd())?, open(std::io::stdout().as_fd())?))
}

fn report_error(error: &std::io::Error) -> ExitCode {
    // There is nobody left to tell when stderr is gone too.
    drop(writeln!(std::io::stderr(), "demo agent: {error}"));
    ExitCode::FAILURE
}

/// Where sessions outlive the process; without a home they live in memory only.
fn state_folder() -> Option<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_STATE_HOME")
        .map(|state| state.join("acp-gateway-demo"))
        .or_else(|| folder("HOME").map(|home| home.join(".acp-gateway-demo")))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the demo agent is a program of its own and has no other configuration"
)]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
