//! Files of the session, which the client reads and writes for the agent.

use agent_client_protocol_schema::v1::{
    Diff, ReadTextFileRequest, ReadTextFileResponse, ToolCallContent, ToolCallLocation, ToolCallStatus,
    ToolCallUpdateFields, ToolKind, WriteTextFileRequest,
};
use serde_json::Value;

use super::super::permission::Permission;
use super::super::record::Grant;
use super::super::text::{error_text, excerpt, fenced, quoted, words};
use super::super::turn::{Step, Turn};
use super::work::{call, denied, done, failed};

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
    if !turn.offer.read {
        return turn.say("Your client did not offer to read files, so I cannot read any.").await;
    }
    let path = turn.path(name);
    let line = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    let location = ToolCallLocation::new(path.clone()).line(line(1));
    let title = format!("Read {}", excerpt(name, PATH_MAX));
    let tool = turn.call(call(&title, ToolKind::Read).locations(vec![location])).await?;
    let params =
        ReadTextFileRequest::new(turn.record().session_id.clone(), path).line(line(1)).limit(line(2));
    match turn.request::<_, ReadTextFileResponse>("fs/read_text_file", params).await? {
        Ok(file) => {
            let (letters, lines) = (file.content.chars().count(), file.content.lines().count());
            let text = fenced("", &excerpt(&file.content, MAX_SHOWN_CHARS));
            turn.progress(&tool, done(&text)).await?;
            turn.say(&format!("{} has {letters} characters here, and {lines} lines.", quoted(name, PATH_MAX)))
                .await
        }
        Err(error) => {
            turn.progress(&tool, failed(&error_text(&error))).await?;
            turn.say(&format!("I could not read {}.", quoted(name, PATH_MAX))).await
        }
    }
}

/// `path text`: asks for permission with a diff, if the mode requires it.
pub(super) async fn write(turn: &mut Turn, input: &str) -> Step {
    let (name, text) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    if name.is_empty() {
        return turn.say("Which file? `/write notes.txt some text`.").await;
    }
    if !turn.offer.write {
        return turn.say("Your client did not offer to write files, so I cannot write any.").await;
    }
    let path = turn.path(name);
    let text = format!("{}\n", text.trim_start());
    let session = turn.record().session_id.clone();
    let old = if turn.offer.read {
        let params = ReadTextFileRequest::new(session.clone(), path.clone());
        // For the diff, an unreadable file is a new file.
        turn.request::<_, ReadTextFileResponse>("fs/read_text_file", params).await?.ok()
    } else {
        None
    };
    let title = format!("Write {}", excerpt(name, PATH_MAX));
    let diff = Diff::new(path.clone(), text.clone()).old_text(old.map(|file| file.content));
    let fields = ToolCallUpdateFields::new()
        .title(title.clone())
        .kind(ToolKind::Edit)
        .content(vec![ToolCallContent::Diff(diff.clone())])
        .locations(vec![ToolCallLocation::new(path.clone())]);
    let tool = call(&title, ToolKind::Edit).status(ToolCallStatus::Pending);
    let tool = turn.call(tool.content(vec![ToolCallContent::Diff(diff)])).await?;
    if turn.permission(&tool, fields, Grant::Edit).await? == Permission::Denied {
        turn.progress(&tool, ToolCallUpdateFields::new().status(ToolCallStatus::Failed)).await?;
        return turn.say(&denied(turn.mode(), "the file was not written")).await;
    }
    turn.progress(&tool, ToolCallUpdateFields::new().status(ToolCallStatus::InProgress)).await?;
    let bytes = text.len();
    let params = WriteTextFileRequest::new(session, path, text);
    match turn.request::<_, Value>("fs/write_text_file", params).await? {
        Ok(_) => {
            turn.progress(&tool, ToolCallUpdateFields::new().status(ToolCallStatus::Completed)).await?;
            turn.say(&format!("I wrote {bytes} bytes to {}.", quoted(name, PATH_MAX))).await
        }
        Err(error) => {
            turn.progress(&tool, failed(&error_text(&error))).await?;
            turn.say(&format!("I could not write {}.", quoted(name, PATH_MAX))).await
        }
    }
}
