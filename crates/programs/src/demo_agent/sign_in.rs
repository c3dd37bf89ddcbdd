//! The optional sign-in, for clients that want to test it. The environment enables it.
//!
//! A sign-in is valid for every process with the same directory, as for agents that store a token. Nothing is
//! secret: the demo accepts every user, by `authenticate` or by a word at a terminal.

use std::fs;
use std::io::{self, BufRead, IsTerminal as _, Read as _, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};

use super::client::{Client, TERMINAL_SIGN_IN};

const BY_CALL: &str = "demo";
const BY_TERMINAL: &str = "demo-terminal";
/// The variable that contains the word for the process of the terminal method.
pub(super) const WORD: &str = "ACP_DEMO_WORD";
const MAX_TRIES: usize = 3;
const LINE_MAX: u64 = 1024;

#[derive(Debug)]
pub(super) struct SignIn {
    pub(super) required: bool,
    /// The file that marks a sign-in. Without a directory only this process remembers it.
    marker_file: Option<PathBuf>,
    here: AtomicBool,
}

impl SignIn {
    pub(super) fn new(required: bool, folder: Option<PathBuf>) -> Self {
        Self {
            required,
            marker_file: folder.map(|folder| folder.join("signed-in")),
            here: AtomicBool::new(false),
        }
    }

    /// The methods that a client can use, as `initialize` lists them.
    pub(super) fn methods(&self, client: &Client) -> Vec<Value> {
        if !self.required {
            return Vec::new();
        }
        let id = client.version.auth_method_id_key();
        let mut methods = vec![json!({
            id: BY_CALL,
            "name": "Sign in",
            "description": "Asks for nothing: the demo accepts every user",
        })];
        if client.is_v2() {
            methods[0]["type"] = json!("agent");
        }
        if client.offers(TERMINAL_SIGN_IN) {
            let list = json!([{ "name": WORD, "value": "sesame" }]);
            methods.push(json!({
                id: BY_TERMINAL,
                "type": "terminal",
                "name": "Sign in at a terminal",
                "description": "Asks for a word that it shows",
                "args": ["sign-in"],
                "env": if client.is_v2() { list } else { json!({ WORD: "sesame" }) },
            }));
        }
        methods
    }

    /// Fails unless sessions may be set up and prompted.
    pub(super) fn check(&self) -> Result<(), Error> {
        let signed_in = match &self.marker_file {
            Some(mark) => mark.exists(),
            None => self.here.load(Ordering::Relaxed),
        };
        if signed_in || !self.required {
            Ok(())
        } else {
            Err(Error::auth_required())
        }
    }

    pub(super) fn authenticate(&self, method: &str) -> Result<(), Error> {
        if !self.required || method != BY_CALL {
            return Err(Error::invalid_params().data("methodId is not a method of `authenticate`"));
        }
        self.record_sign_in().map_err(|error| failed(&error))
    }

    pub(super) fn logout(&self) -> Result<(), Error> {
        if !self.required {
            return Err(Error::method_not_found());
        }
        self.here.store(false, Ordering::Relaxed);
        match self.marker_file.as_ref().map(fs::remove_file) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(failed(&error)),
            _ => Ok(()),
        }
    }

    fn record_sign_in(&self) -> io::Result<()> {
        self.here.store(true, Ordering::Relaxed);
        let Some(mark) = &self.marker_file else {
            return Ok(());
        };
        if let Some(folder) = mark.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        fs::write(mark, "")
    }
}

fn failed(error: &io::Error) -> Error {
    Error::internal_error().data(format!("could not save the sign-in: {error}"))
}

/// Runs `demo-agent sign-in`: asks at the terminal. Returns whether the user is signed in.
pub(super) fn at_terminal(folder: Option<PathBuf>, word: &str) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut stdout = io::stdout();
    let rejected = |reason| Err(io::Error::other(reason));
    if !stdin.is_terminal() {
        return rejected("stdin is not a terminal: run the sign-in in a terminal");
    }
    if folder.is_none() {
        return rejected("HOME is not set, so the sign-in cannot be saved");
    }
    let right = ask(&mut stdin.lock(), &mut stdout, word)?;
    if right {
        SignIn::new(true, folder).record_sign_in()?;
        writeln!(stdout, "You are signed in.")?;
    }
    Ok(right)
}

fn ask(input: &mut impl BufRead, output: &mut impl Write, word: &str) -> io::Result<bool> {
    for _ in 0..MAX_TRIES {
        let prompt = format!("Type the word \"{word}\" to sign in to the demo agent: ");
        output.write_all(prompt.as_bytes())?;
        output.flush()?;
        let mut line = String::new();
        if input.by_ref().take(LINE_MAX).read_line(&mut line)? == 0 {
            return Ok(false);
        }
        if line.trim() == word {
            return Ok(true);
        }
        writeln!(output, "That is not the word.")?;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1::ErrorCode;

    use super::*;

    fn client(capabilities: &Value) -> Client {
        let mut client = Client::new(tokio::sync::mpsc::channel(1).0);
        client.initialize(&json!({ "protocolVersion": 1, "clientCapabilities": capabilities }));
        client
    }

    #[test]
    fn sign_in_is_shared_by_a_directory_until_logout() {
        let folder = tempfile::tempdir().unwrap();
        let one = SignIn::new(true, Some(folder.path().join("state")));
        let other = SignIn::new(true, Some(folder.path().join("state")));
        assert_eq!(one.check().unwrap_err().code, ErrorCode::AuthRequired);
        assert_eq!(
            one.authenticate(BY_TERMINAL).unwrap_err().code,
            ErrorCode::InvalidParams
        );
        one.authenticate(BY_CALL).unwrap();
        assert_eq!(other.check(), Ok(()));
        other.logout().unwrap();
        other.logout().unwrap();
        assert_eq!(one.check().unwrap_err().code, ErrorCode::AuthRequired);
    }

    #[test]
    fn sign_in_is_optional_by_default() {
        let sign_in = SignIn::new(false, None);
        assert_eq!(
            (sign_in.check(), sign_in.methods(&client(&json!({}))).len()),
            (Ok(()), 0)
        );
        assert_eq!(
            sign_in.authenticate(BY_CALL).unwrap_err().code,
            ErrorCode::InvalidParams
        );
        assert_eq!(
            sign_in.logout().unwrap_err().code,
            ErrorCode::MethodNotFound
        );
    }

    #[test]
    fn terminal_method_requires_client_support() {
        let sign_in = SignIn::new(true, None);
        let methods =
            |terminal: bool| sign_in.methods(&client(&json!({ "auth": { "terminal": terminal } })));
        let ids = |methods: Vec<Value>| {
            methods
                .iter()
                .map(|method| method["id"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(methods(false)), [BY_CALL]);
        assert_eq!(ids(methods(true)), [BY_CALL, BY_TERMINAL]);
    }

    #[test]
    fn sign_in_word_has_three_tries() {
        let tried = |lines: &str| ask(&mut lines.as_bytes(), &mut io::sink(), "sesame").unwrap();
        assert!(tried("sesame\n") && tried("open\n simsim \nsesame\r\n"));
        assert!(!tried("a\nb\nc\nsesame\n") && !tried("") && !tried("a\n"));
    }
}
