//! The sign-in, and the methods that belong to no session.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::process::stderr;
use super::wire::Wire;

/// The state of the sign-in.
pub(crate) struct Auth {
    file: Option<PathBuf>,
    here: bool,
}

impl Auth {
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self { file, here: false }
    }

    pub(crate) fn is_signed_in(&self) -> bool {
        self.file.as_ref().map_or(self.here, |file| file.exists())
    }

    pub(crate) fn set(&mut self, signed_in: bool) {
        self.here = signed_in;
        match &self.file {
            Some(file) if signed_in => keep(file),
            Some(file) => {
                let _ = std::fs::remove_file(file);
            }
            None => {}
        }
    }
}

fn keep(file: &Path) {
    std::fs::write(file, "signed in").expect("the file of the test is writable");
}

#[expect(
    clippy::disallowed_methods,
    reason = "the variable of the method must be set"
)]
fn is_asked() -> bool {
    std::io::stdin().is_terminal() && std::env::var_os("SIGN_IN").is_some()
}

/// Asks on the terminal. The questions go to stderr, which is the same terminal.
pub(crate) fn terminal(file: Option<&Path>) -> ExitCode {
    if !is_asked() {
        return ExitCode::from(3);
    }
    stderr(b"the word: ");
    for line in std::io::stdin().lock().lines() {
        match line.as_deref().map(str::trim) {
            Ok("sesame") => {
                stderr(b"welcome\r\n");
                if let Some(file) = file {
                    keep(file);
                }
                return ExitCode::SUCCESS;
            }
            Ok("size") => {
                let size =
                    rustix::termios::tcgetwinsize(rustix::stdio::stdin()).expect("a terminal");
                stderr(format!("{}x{}\r\n", size.ws_col, size.ws_row).as_bytes());
            }
            Ok("flood") => loop {
                stderr(&[b'x'; 4096]);
            },
            _ => {
                stderr(b"no\r\n");
                return ExitCode::from(1);
            }
        }
    }
    ExitCode::from(4)
}

/// Vendor methods that belong to no session.
pub(crate) fn vendor(wire: &Arc<Wire>, id: &str, method: &str, params: Option<&RawValue>) {
    match method {
        "_vendor/echo" => {
            let params = params.map_or("null", RawValue::get);
            wire.answer(id, format_args!(r#"{{"params":{params},"n":1.10}}"#));
        }
        "_vendor/fail" => wire.fail(id, -32050, "no luck", Some(r#"{"why":1.10}"#.to_owned())),
        "_vendor/hang" => {}
        "_vendor/ask" => {
            let wire = Arc::clone(wire);
            let id = id.to_owned();
            // The main thread calls this function and also reads the answers.
            std::thread::Builder::new()
                .spawn(move || ask(&wire, &id))
                .expect("the machine has room for a thread");
        }
        _ => wire.fail(id, -32601, "Method not found", None),
    }
}

fn ask(wire: &Wire, id: &str) {
    let asked = [
        (
            "elicitation/create",
            r#"{"mode":"form","message":"?","requestedSchema":{"type":"object"}}"#,
        ),
        (
            "session/request_permission",
            r#"{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[]}"#,
        ),
        ("_vendor/thing", "{}"),
    ];
    let answers = asked.map(|(method, params)| {
        let (_, answer) = wire.request(method, params);
        answer.recv().map_or_else(
            |_| "null".to_owned(),
            |reply| reply.unwrap_or_else(|code| code.to_string()),
        )
    });
    wire.answer(id, format_args!("[{}]", answers.join(",")));
}
