//! Lines exactly as the test specified them.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::turn::{End, Step, Turn};

/// The placeholders for the session's id and for the prompt's own id.
const SESSION: &str = "$SESSION";
const PROMPT: &str = "$PROMPT";

/// Sends each line of `text` unchanged. A request waits for its answer. `end RESULT` and `fail ERROR` answer the
/// prompt.
pub(crate) fn play(turn: &Turn, text: &str) -> Step {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
        #[serde(borrow, rename = "method")]
        _method: &'a RawValue,
    }
    for line in text.lines() {
        let line = line
            .replace(SESSION, &turn.session.id)
            .replace(PROMPT, &turn.id);
        if let Some(result) = line.strip_prefix("end ") {
            return Err(End::Result(result.to_owned()));
        }
        if let Some(error) = line.strip_prefix("fail ") {
            return Err(End::Failure(error.to_owned()));
        }
        let answer = serde_json::from_str::<Request<'_>>(&line)
            .ok()
            .map(|request| turn.wire.expect(request.id.get()));
        turn.wire.line(&line);
        if let Some(answer) = answer {
            let _ = turn.reply(&answer, false)?;
        }
    }
    Ok(())
}

/// Results by method, read from lines of a method, a blank and JSON.
#[derive(Debug, Default)]
pub(crate) struct Answers(HashMap<String, String>);

impl Answers {
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let answers = text.lines().filter_map(|line| line.split_once(' '));
        Ok(Self(
            answers
                .map(|(method, result)| (method.to_owned(), result.to_owned()))
                .collect(),
        ))
    }

    pub(crate) fn to(&self, method: &str, session: &str) -> Option<String> {
        self.0
            .get(method)
            .map(|result| result.replace(SESSION, session))
    }
}
