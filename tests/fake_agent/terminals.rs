//! `terminal STEPS`: commands that run through the client. STEPS is a JSON array, up to the end of the prompt.
//!
//! A step is a word, or an object of one word and its value. `create`, `output`, `wait`, `kill` and `release`
//! are the methods. Their value is merged into the params. The default `terminalId` is the last created one.
//! `begin-wait` sends the request, and `waited` receives the answers of all of them. `poll TEXT` requests the
//! output until it contains the text, and `pause MS` waits.

use std::sync::mpsc::Receiver;

use serde_json::{Map, Value};

use super::turn::{End, Step, Turn};
use super::wire::Reply;

struct Player<'a> {
    turn: &'a Turn,
    terminal: Value,
    waiting: Vec<Receiver<Reply>>,
}

/// Runs the steps. Sends the result of each step: its word, and the raw result or `error CODE`.
pub(crate) fn play(turn: &Turn, steps: &str) -> Step {
    let Ok(steps) = serde_json::from_str::<Vec<Value>>(steps) else {
        return Err(End::Error(
            -32602,
            "terminal: expected a JSON array of steps".to_owned(),
        ));
    };
    let mut player = Player {
        turn,
        terminal: Value::Null,
        waiting: Vec::new(),
    };
    steps.iter().try_for_each(|step| match step {
        Value::String(word) => player.step(word, &Value::Null),
        Value::Object(one) => one
            .iter()
            .try_for_each(|(word, value)| player.step(word, value)),
        _ => Err(End::Error(
            -32602,
            "terminal: a step is a word or an object".to_owned(),
        )),
    })
}

impl Player<'_> {
    fn step(&mut self, word: &str, value: &Value) -> Step {
        match word {
            "pause" => self.turn.pause(value.as_u64().unwrap_or(50)),
            "poll" => self.poll(value.as_str().unwrap_or_default()),
            "begin-wait" => {
                let (_, answer) = self.ask("wait", value);
                self.waiting.push(answer);
                Ok(())
            }
            "waited" => std::mem::take(&mut self.waiting)
                .iter()
                .try_for_each(|answer| {
                    let reply = self.turn.reply(answer, false)?;
                    self.say(word, &reply);
                    Ok(())
                }),
            _ => {
                let (_, answer) = self.ask(word, value);
                let reply = self.turn.reply(&answer, false)?;
                if let (true, Ok(result)) = (word == "create", &reply) {
                    let result: Value = serde_json::from_str(result).unwrap_or_default();
                    self.terminal = result["terminalId"].clone();
                }
                self.say(word, &reply);
                Ok(())
            }
        }
    }

    fn ask(&self, word: &str, value: &Value) -> (String, Receiver<Reply>) {
        let mut params = Map::new();
        params.insert("sessionId".to_owned(), self.turn.session.id.clone().into());
        if word != "create" {
            params.insert("terminalId".to_owned(), self.terminal.clone());
        }
        params.extend(value.as_object().cloned().unwrap_or_default());
        let method = if word == "wait" {
            "wait_for_exit"
        } else {
            word
        };
        self.turn
            .wire
            .request(&format!("terminal/{method}"), Value::Object(params))
    }

    fn poll(&self, text: &str) -> Step {
        loop {
            let (_, answer) = self.ask("output", &Value::Null);
            let Ok(result) = self.turn.reply(&answer, false)? else {
                return Err(End::Error(
                    -32603,
                    "the output could not be read".to_owned(),
                ));
            };
            let result: Value = serde_json::from_str(&result).unwrap_or_default();
            if result["output"]
                .as_str()
                .is_some_and(|output| output.contains(text))
            {
                return Ok(());
            }
            self.turn.pause(5)?;
        }
    }

    fn say(&self, word: &str, reply: &Reply) {
        let text = match reply {
            Ok(result) => format!("{word} {result}\n"),
            Err(code) => format!("{word} error {code}\n"),
        };
        self.turn.say(&text);
    }
}
