//! Commands that read and write files through the client.

use super::script::Command;
use super::turn::{Step, Turn};
use super::wire::string;

pub(crate) fn play(turn: &Turn, command: &Command<'_>) -> Option<Step> {
    let window = ["line", "limit"].map(|key| match command.text(key, "") {
        "" => String::new(),
        number => format!(r#","{key}":{number}"#),
    });
    Some(match command.name {
        "read" => ask(turn, command, &window.concat()),
        "write" => ask(
            turn,
            command,
            &format!(r#","content":{}"#, string(command.text("text", ""))),
        ),
        _ => return None,
    })
}

/// Sends the result: the text of the file, `written`, or the code of the error.
fn ask(turn: &Turn, command: &Command<'_>, more: &str) -> Step {
    let session = string(command.text("session", &turn.session.id));
    let path = string(command.text("path", ""));
    let method = format!("fs/{}_text_file", command.name);
    let (_, answer) = turn.wire.request(
        &method,
        format_args!(r#"{{"sessionId":{session},"path":{path}{more}}}"#),
    );
    let text = match turn.reply(&answer, false)? {
        Ok(result) => match serde_json::from_str::<serde_json::Value>(&result) {
            Ok(result) => result["content"].as_str().unwrap_or("written").to_owned(),
            Err(_) => "malformed".to_owned(),
        },
        Err(code) => format!("error {code}"),
    };
    turn.say(&format!("[{text}]"));
    Ok(())
}
