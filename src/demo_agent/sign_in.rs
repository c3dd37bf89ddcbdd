//! The optional sign-in, for clients that want to test it. The environment enables it.
//!
//! A sign-in is valid for every process with the same directory, as for agents that store a token. Nothing is
//! secret: the demo accepts every user, by `authenticate` or by a word at a terminal.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, IsTerminal as _, Read as _, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_client_protocol_schema::v1::{AuthMethod, AuthMethodAgent, AuthMethodTerminal, Error};

use super::offer::Offer;

/// The method that uses `authenticate`.
const BY_CALL: &str = "demo";
/// The method that uses a terminal.
const BY_TERMINAL: &str = "demo-terminal";
/// The variable that contains the word for the process of the terminal method.
pub(super) const WORD: &str = "ACP_DEMO_WORD";
const TRIES: usize = 3;
/// The maximum number of bytes of a line at the terminal.
const LINE_MAX: u64 = 1024;

#[derive(Debug)]
pub(super) struct SignIn {
    required: bool,
    /// The file that marks a sign-in. Without a directory only this process remembers it.
    mark: Option<PathBuf>,
    here: AtomicBool,
}

impl SignIn {
    pub(super) fn new(required: bool, folder: Option<PathBuf>) -> Self {
        Self { required, mark: folder.map(|folder| folder.join("signed-in")), here: AtomicBool::new(false) }
    }

    /// Whether the sign-in is enabled.
    pub(super) fn exists(&self) -> bool {
        self.required
    }

    pub(super) fn methods(&self, offer: Offer) -> Vec<AuthMethod> {
        if !self.required {
            return Vec::new();
        }
        let call = AuthMethodAgent::new(BY_CALL, "Sign in")
            .description("Asks for nothing: the demo accepts every user".to_owned());
        let mut methods = vec![AuthMethod::Agent(call)];
        if offer.terminal_sign_in {
            let terminal = AuthMethodTerminal::new(BY_TERMINAL, "Sign in at a terminal")
                .description("Asks for a word that it shows".to_owned())
                .args(vec!["sign-in".to_owned()])
                .env(HashMap::from([(WORD.to_owned(), "sesame".to_owned())]));
            methods.push(AuthMethod::Terminal(terminal));
        }
        methods
    }

    /// Fails unless sessions may be set up and prompted.
    pub(super) fn check(&self) -> Result<(), Error> {
        let signed_in = match &self.mark {
            Some(mark) => mark.exists(),
            None => self.here.load(Ordering::Relaxed),
        };
        if signed_in || !self.required { Ok(()) } else { Err(Error::auth_required()) }
    }

    pub(super) fn authenticate(&self, method: &str) -> Result<(), Error> {
        if !self.required || method != BY_CALL {
            return Err(Error::invalid_params().data("methodId is not a method of `authenticate`"));
        }
        self.enter().map_err(|error| failed(&error))
    }

    pub(super) fn logout(&self) -> Result<(), Error> {
        if !self.required {
            return Err(Error::method_not_found());
        }
        self.here.store(false, Ordering::Relaxed);
        match self.mark.as_ref().map(fs::remove_file) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(failed(&error)),
            _ => Ok(()),
        }
    }

    fn enter(&self) -> io::Result<()> {
        self.here.store(true, Ordering::Relaxed);
        let Some(mark) = &self.mark else { return Ok(()) };
        if let Some(folder) = mark.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        fs::write(mark, "")
    }
}

fn failed(error: &io::Error) -> Error {
    Error::internal_error().data(format!("could not save the sign-in: {error}"))
}

/// Runs `demo-agent sign-in`: asks at the terminal. Success is exit code 0.
pub(super) fn at_terminal(folder: Option<PathBuf>, word: &str) -> ExitCode {
    let stdin = io::stdin();
    let mut stdout = io::stdout();
    let entered = if !stdin.is_terminal() {
        Err(io::Error::other("stdin is not a terminal: run the sign-in in a terminal"))
    } else if folder.is_none() {
        Err(io::Error::other("HOME is not set, so the sign-in cannot be saved"))
    } else {
        ask(&mut stdin.lock(), &mut stdout, word).and_then(|right| {
            if right {
                SignIn::new(true, folder).enter()?;
                writeln!(stdout, "You are signed in.")?;
            }
            Ok(right)
        })
    };
    match entered {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => super::complain(&error),
    }
}

/// Whether the user entered the word within the allowed tries.
fn ask(input: &mut impl BufRead, output: &mut impl Write, word: &str) -> io::Result<bool> {
    for _ in 0..TRIES {
        write!(output, "Type the word \"{word}\" to sign in to the demo agent: ")?;
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

    #[test]
    fn a_sign_in_is_for_all_processes_of_a_folder_until_a_logout() {
        let folder = tempfile::tempdir().unwrap();
        let one = SignIn::new(true, Some(folder.path().join("state")));
        let other = SignIn::new(true, Some(folder.path().join("state")));
        assert_eq!(one.check().unwrap_err().code, ErrorCode::AuthRequired);
        assert_eq!(one.authenticate(BY_TERMINAL).unwrap_err().code, ErrorCode::InvalidParams);
        one.authenticate(BY_CALL).unwrap();
        assert_eq!(other.check(), Ok(()));
        other.logout().unwrap();
        other.logout().unwrap();
        assert_eq!(one.check().unwrap_err().code, ErrorCode::AuthRequired);
    }

    #[test]
    fn nobody_has_to_sign_in_unless_it_was_asked_for() {
        let sign_in = SignIn::new(false, None);
        assert_eq!((sign_in.check(), sign_in.methods(Offer::default()).len()), (Ok(()), 0));
        assert_eq!(sign_in.authenticate(BY_CALL).unwrap_err().code, ErrorCode::InvalidParams);
        assert_eq!(sign_in.logout().unwrap_err().code, ErrorCode::MethodNotFound);
    }

    #[test]
    fn the_terminal_method_is_only_for_clients_that_have_one() {
        let sign_in = SignIn::new(true, None);
        let ids = |offer| -> Vec<String> {
            sign_in.methods(offer).iter().map(|method| method.id().to_string()).collect()
        };
        assert_eq!(ids(Offer::default()), [BY_CALL]);
        assert_eq!(ids(Offer { terminal_sign_in: true, ..Offer::default() }), [BY_CALL, BY_TERMINAL]);
    }

    #[test]
    fn the_word_has_to_come_within_three_tries() {
        let tried = |lines: &str| ask(&mut lines.as_bytes(), &mut io::sink(), "sesame").unwrap();
        assert!(tried("sesame\n") && tried("open\n simsim \nsesame\r\n"));
        assert!(!tried("a\nb\nc\nsesame\n") && !tried("") && !tried("a\n"));
    }
}
