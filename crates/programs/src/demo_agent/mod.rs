//! `acp-gateway demo-agent`: an ACP agent on stdio that needs no model and no network.
//!
//! It is the first agent that a new user meets, and it says that it is a demo. It uses the version of ACP that
//! its client requests. The demo agent does not know the gateway: it is an independent program in the same
//! binary, and it also works with an editor.
//!
//! Updates and requests are JSON values in the form of v1. [`client`] converts updates with [`v2`] for a client
//! of v2. The fixed scenes are data, in `scenes.json`.
//!
//! Reading order: [`connection`], [`client`], [`agent`], [`sessions`], [`turn`], [`scenes`].

mod agent;
mod client;
mod connection;
mod history;
mod options;
mod scenes;
mod sessions;
mod sign_in;
mod text;
mod turn;
mod v2;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use tokio::fs::File;
use tokio::io::BufReader;

use self::sessions::Store;
use self::sign_in::{SignIn, WORD};

/// Serves ACP on stdin and stdout until stdin ends.
pub fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error),
    };
    let folder = state_folder();
    let sign_in = SignIn::new(
        variable("ACP_DEMO_SIGN_IN").is_some_and(|value| value == "required"),
        folder.clone(),
    );
    let store = Store::new(folder);
    let served = pipes().and_then(|(stdin, stdout)| {
        runtime.block_on(connection::serve(
            BufReader::with_capacity(64 << 10, stdin),
            stdout,
            store,
            sign_in,
        ))
    });
    // The shutdown does not wait for blocked stdio, because a client may have stopped reading.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report_error(&error),
    }
}

/// Runs the sign-in in this process's terminal, for clients that start the agent for this.
pub fn sign_in() -> ExitCode {
    let word = variable(WORD).and_then(|word| word.into_string().ok());
    match sign_in::at_terminal(state_folder(), word.as_deref().unwrap_or("acp")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => report_error(&error),
    }
}

/// Stdin and stdout without the buffers of the standard library, so that a line is one write.
fn pipes() -> std::io::Result<(File, File)> {
    let open = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(|fd| File::from_std(fd.into()));
    Ok((
        open(std::io::stdin().as_fd())?,
        open(std::io::stdout().as_fd())?,
    ))
}

fn report_error(error: &std::io::Error) -> ExitCode {
    // There is no other channel for the error if stderr is closed.
    let _ = writeln!(std::io::stderr(), "demo agent: {error}");
    ExitCode::FAILURE
}

/// The directory in which sessions are stored. Without a HOME they exist only in memory.
fn state_folder() -> Option<PathBuf> {
    let folder = |name: &str| {
        let path = variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = folder("XDG_STATE_HOME").map(|state| state.join("acp-gateway-demo"));
    state.or_else(|| folder("HOME").map(|home| home.join(".acp-gateway-demo")))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the demo agent is a program of its own and has no other configuration"
)]
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
