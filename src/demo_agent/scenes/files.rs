//! Files of the session, which the client reads and writes for the agent.

use serde_json::{Value, json};

use super::super::client::READ_FILES;
use super::super::text::{error_text, excerpt, fenced, quoted, words};
use super::super::turn::{Step, Turn};

/// The maximum number of characters of a file in the answer.
const MAX_SHOWN_CHARS: usize = 4000;
/// The maximum number of characters of a path in the answer.
const PATH_MAX: usize = 200;

/// `path [first line [lines]]`.
pub(super) async fn read(turn: &mut Turn, input: &str) -> Step {
    let words = words(input);
    let Some(name) = words.first() else {
        return turn
            .say("Which file? `/read README.md`, or `/read README.md 10 5` for five lines from the tenth.")
            .await;
    };
    let path = turn.path(name);
    let (mut params, mut location) = (json!({ "path": path }), json!({ "path": path }));
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    if let Some(line) = number(1) {
        (params["line"], location["line"]) = (line.into(), line.into());
    }
    if let Some(limit) = number(2) {
        params["limit"] = limit.into();
    }
    let title = format!("Read {}", excerpt(name, PATH_MAX));
    let call =
        json!({ "title": title, "kind": "read", "status": "in_progress", "locations": [location] });
    let call = turn.call(&call).await?;
    match turn.request("fs/read_text_file", params).await? {
        Ok(file) => {
            let content = file["content"].as_str().unwrap_or_default();
            let (letters, lines) = (content.chars().count(), content.lines().count());
            let text = fenced("", &excerpt(content, MAX_SHOWN_CHARS));
            turn.end_call(&call, "completed", &text).await?;
            turn.say(&format!(
                "{} has {letters} characters here, and {lines} lines.",
                quoted(name, PATH_MAX)
            ))
            .await
        }
        Err(error) => {
            turn.end_call(&call, "failed", &error_text(&error)).await?;
            turn.say(&format!("I could not read {}.", quoted(name, PATH_MAX)))
                .await
        }
    }
}

/// `path text`: asks for permission with a diff, if the mode requires it.
pub(super) async fn write(turn: &mut Turn, input: &str) -> Step {
    let (name, text) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    if name.is_empty() {
        return turn.say("Which file? `/write notes.txt some text`.").await;
    }
    let path = turn.path(name);
    let text = format!("{}\n", text.trim_start());
    let mut diff = json!({ "type": "diff", "path": path, "newText": text });
    if turn.client.offers(READ_FILES) {
        // For the diff, an unreadable file is a new file.
        if let Ok(mut old) = turn
            .request("fs/read_text_file", json!({ "path": path }))
            .await?
        {
            diff["oldText"] = old["content"].take();
        }
    }
    let call = json!({
        "title": format!("Write {}", excerpt(name, PATH_MAX)),
        "kind": "edit",
        "content": [diff],
        "locations": [{ "path": path }],
    });
    let (call, permission) = turn.call_if_permitted(&call).await?;
    let status = |status: &str| -> Value { json!({ "status": status }) };
    if !permission.granted {
        turn.progress(&call, status("failed")).await?;
        return turn
            .say(&format!("{}, so the file was not written.", turn.denial()))
            .await;
    }
    turn.progress(&call, status("in_progress")).await?;
    match turn
        .request(
            "fs/write_text_file",
            json!({ "path": path, "content": text }),
        )
        .await?
    {
        Ok(_) => {
            turn.progress(&call, status("completed")).await?;
            turn.say(&format!(
                "I wrote {} bytes to {}.",
                text.len(),
                quoted(name, PATH_MAX)
            ))
            .await
        }
        Err(error) => {
            turn.end_call(&call, "failed", &error_text(&error)).await?;
            turn.say(&format!("I could not write {}.", quoted(name, PATH_MAX)))
                .await
        }
    }
}
