//! The commands of a prompt's text, and the commands for plain behaviour.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::turn::{End, Step, Turn};
use super::wire::{chunk, content_chunk, string, update_line};
use super::{
    client_requests, faults, files, flood, pieces, process, raw, requests, telemetry, terminals,
};

/// A command and its `key=value` arguments.
pub(crate) struct Command<'a> {
    pub(crate) name: &'a str,
    words: Vec<(&'a str, &'a str)>,
}

impl<'a> Command<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        Self {
            name,
            words: words.filter_map(|word| word.split_once('=')).collect(),
        }
    }

    pub(crate) fn text(&self, key: &str, default: &'a str) -> &'a str {
        self.words
            .iter()
            .find(|word| word.0 == key)
            .map_or(default, |word| word.1)
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str, default: T) -> T {
        self.words
            .iter()
            .find(|word| word.0 == key)
            .and_then(|word| word.1.parse().ok())
            .unwrap_or(default)
    }
}

/// The id of the session after `made` other sessions.
pub(crate) fn session_id(collide: bool, made: u32) -> String {
    if collide {
        made.to_string()
    } else {
        format!("fake-{}-{made}", std::process::id())
    }
}

/// The text of the first text block, as the original JSON string.
pub(crate) fn text(blocks: &[&RawValue]) -> String {
    #[derive(Deserialize)]
    struct Text<'a> {
        #[serde(borrow)]
        text: &'a RawValue,
    }
    let text = blocks
        .iter()
        .find_map(|block| serde_json::from_str::<Text<'_>>(block.get()).ok());
    text.map_or_else(|| "\"\"".to_owned(), |text| text.text.get().to_owned())
}

/// Runs the commands of a prompt and answers it. `next` is the id of the next session.
pub(crate) fn play(mut turn: Turn, spelled: &str, next: &str) {
    let text = serde_json::from_str::<String>(spelled);
    let end = if let Ok(text) = &text {
        commands(&mut turn, text, spelled, next)
    } else {
        // A lone surrogate is not valid text and is echoed in its original spelling.
        turn.say_raw(spelled);
        Ok(())
    };
    turn.end(
        &end.err()
            .unwrap_or_else(|| End::Stop("end_turn".to_owned())),
    );
    for command in text
        .as_deref()
        .unwrap_or_default()
        .split(';')
        .map(Command::parse)
    {
        match command.name {
            "late" => late(&turn, &command),
            "unknown-response" => turn.wire.answer(&turn.id, r#"{"stopReason":"refusal"}"#),
            _ => {}
        }
    }
}

fn commands(turn: &mut Turn, text: &str, spelled: &str, next: &str) -> Step {
    if let Some(words) = text.trim_start().strip_prefix("echo ") {
        turn.say(words);
        return Ok(());
    }
    if let Some(lines) = text.strip_prefix("raw ") {
        return raw::play(turn, lines);
    }
    if let Some(steps) = text.trim_start().strip_prefix("terminal ") {
        return terminals::play(turn, steps);
    }
    for part in text.split(';') {
        let command = Command::parse(part);
        let known = plain(turn, &command)
            .or_else(|| requests::play(turn, &command))
            .or_else(|| client_requests::play(turn, &command))
            .or_else(|| files::play(turn, &command))
            .or_else(|| faults::play(turn, &command, next))
            .or_else(|| pieces::play(turn, &command))
            .or_else(|| telemetry::play(turn, &command))
            .or_else(|| process::play(turn, &command));
        let Some(step) = known else {
            turn.say_raw(spelled);
            return Ok(());
        };
        step?;
    }
    Ok(())
}

fn plain(turn: &mut Turn, command: &Command<'_>) -> Option<Step> {
    Some(match command.name {
        "stream" | "flood" => flood::play(turn, command),
        "slow" => (0..command.number("chunks", 5)).try_for_each(|number| {
            turn.pause(command.number("ms", 100))?;
            turn.say(&format!("chunk {number} "));
            Ok(())
        }),
        "hang" => hang(turn, command.text("cancel", "yes")),
        "ignore-cancel" => loop {
            std::thread::sleep(std::time::Duration::from_millis(command.number("ms", 100)));
            turn.update(&chunk("\"still here \""));
        },
        "error" => Err(End::Error(
            command.number("code", -32603),
            command.text("message", "failed").to_owned(),
        )),
        "recall" => {
            turn.say(&turn.recall());
            Ok(())
        }
        "stop" => Err(End::Stop(command.text("reason", "refusal").to_owned())),
        // Both commands act after the answer.
        "late" => Ok(()),
        "id-last" => {
            turn.id_last = true;
            Ok(())
        }
        _ => return updates(turn, command),
    })
}

/// Sends one update of the kind.
fn updates(turn: &Turn, command: &Command<'_>) -> Option<Step> {
    match command.name {
        "title" => turn.update(&title(command.text("text", "Fake"))),
        "usage" => turn.update(&usage(command.number("used", 100))),
        "thought" => turn.update(&content_chunk("agent_thought_chunk", "\"hm\"")),
        "user" => {
            let text = format!("\"{}\"", command.text("text", "you said so"));
            turn.update(&content_chunk("user_message_chunk", &text));
        }
        "plan" => turn.update(
            r#"{"sessionUpdate":"plan","entries":[{"content":"First","priority":"high","status":"completed"},{"content":"Second","priority":"low","status":"pending"}]}"#,
        ),
        "tool" | "running-tool" => {
            turn.update(
                r#"{"sessionUpdate":"tool_call","toolCallId":"tool:1","title":"Edit","kind":"edit","status":"pending","locations":[{"path":"/w/a.txt"}]}"#,
            );
            if command.name == "tool" {
                turn.update(
                    r#"{"sessionUpdate":"tool_call_update","toolCallId":"tool:1","status":"completed","content":[{"type":"diff","path":"/w/a.txt","oldText":"a","newText":"b"}]}"#,
                );
            }
        }
        "modes" => {
            turn.update(r#"{"sessionUpdate":"current_mode_update","currentModeId":"code"}"#);
            turn.update(&format!(
                r#"{{"sessionUpdate":"config_option_update","configOptions":{}}}"#,
                turn.session.options().replace(r#""currentValue":"small""#, r#""currentValue":"large""#)
            ));
        }
        _ => return None,
    }
    Some(Ok(()))
}

fn hang(turn: &Turn, at_cancel: &str) -> Step {
    turn.cancel.wait_for_ever();
    Err(match at_cancel {
        "no" => {
            std::thread::sleep(std::time::Duration::from_hours(24));
            End::NoAnswer
        }
        "end_turn" => End::Stop("end_turn".to_owned()),
        "error" => End::Error(-32603, "failed at the cancel".to_owned()),
        _ => End::cancelled(),
    })
}

/// Sends updates after the turn.
fn late(turn: &Turn, command: &Command<'_>) {
    let kinds = [chunk("\"late\""), usage(7), title("Late")];
    for update in kinds.iter().cycle().take(command.number("n", 3)) {
        std::thread::sleep(std::time::Duration::from_millis(command.number("ms", 50)));
        turn.wire.line(update_line(&turn.session.id, update));
    }
}

fn title(text: &str) -> String {
    format!(
        r#"{{"sessionUpdate":"session_info_update","title":{}}}"#,
        string(text)
    )
}

fn usage(used: u64) -> String {
    format!(r#"{{"sessionUpdate":"usage_update","used":{used},"size":1000}}"#)
}
