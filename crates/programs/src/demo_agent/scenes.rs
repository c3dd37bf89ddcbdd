//! The scenes that need decisions: files and terminals of the client, a withdrawn request, the state of the session, and
//! turns that take time. Each returns the last words of its turn.

use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::client::{CAPABILITIES, READ_FILES};
use super::sessions::MODE;
use super::text::{error_text, excerpt, fenced, number, one_line, quoted, words};
use super::turn::{Step, Turn, tool_call_update};

const MAX_FILE_CHARS: usize = 4000;
const PATH_MAX: usize = 200;
const TITLE_MAX: usize = 60;
const WORD_MAX: usize = 80;
const MAX_SHOWN_CHARS: usize = 200;
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const COMMAND_TITLE_MAX: usize = 120;
/// The number of bytes of output that the client keeps.
const OUTPUT_BYTES: u64 = 64 << 10;

type Scene = Step<String>;

/// `path [first line [lines]]`.
pub(super) async fn read(turn: &mut Turn, input: &str) -> Scene {
    let words = words(input);
    let Some(name) = words.first() else {
        let said = "Which file? `/read README.md`, or `/read README.md 10 5` for five lines from the tenth.";
        return Ok(said.to_owned());
    };
    let mut params = json!({ "path": turn.path(name) });
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    if let Some(line) = number(1) {
        params["line"] = line.into();
    }
    let location = params.clone();
    if let Some(limit) = number(2) {
        params["limit"] = limit.into();
    }
    let title = format!("Read {}", excerpt(name, PATH_MAX));
    let call =
        json!({ "title": title, "kind": "read", "status": "in_progress", "locations": [location] });
    let call = turn.call(&call).await?;
    let name = quoted(name, PATH_MAX);
    match turn.request("fs/read_text_file", params).await? {
        Ok(file) => {
            let content = file["content"].as_str().unwrap_or_default();
            let letters = content.chars().count();
            let lines = content.lines().count();
            let text = fenced("", &excerpt(content, MAX_FILE_CHARS));
            turn.end_call(&call, "completed", &text).await?;
            Ok(format!(
                "{name} has {letters} characters here, and {lines} lines."
            ))
        }
        Err(error) => {
            turn.end_call(&call, "failed", &error_text(&error)).await?;
            Ok(format!("I could not read {name}."))
        }
    }
}

/// `path text`: asks for permission with a diff, if the mode requires it.
pub(super) async fn write(turn: &mut Turn, input: &str) -> Scene {
    let (name, text) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    if name.is_empty() {
        return Ok("Which file? `/write notes.txt some text`.".to_owned());
    }
    let path = turn.path(name);
    let text = format!("{}\n", text.trim_start());
    let mut diff = json!({ "type": "diff", "path": path, "newText": text });
    if turn.client.offers(READ_FILES) {
        // For the diff, an unreadable file is a new file.
        let params = json!({ "path": path });
        if let Ok(mut old) = turn.request("fs/read_text_file", params).await? {
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
    if !permission.granted {
        turn.set_status(&call, "failed").await?;
        return Ok(format!("{}, so the file was not written.", turn.denial()));
    }
    turn.set_status(&call, "in_progress").await?;
    let params = json!({ "path": path, "content": text });
    let written = turn.request("fs/write_text_file", params).await?;
    let name = quoted(name, PATH_MAX);
    if let Err(error) = written {
        turn.end_call(&call, "failed", &error_text(&error)).await?;
        return Ok(format!("I could not write {name}."));
    }
    turn.set_status(&call, "completed").await?;
    Ok(format!("I wrote {} bytes to {name}.", text.len()))
}

/// A permission request that is cancelled after a time without an answer.
pub(super) async fn withdraw(turn: &mut Turn, input: &str) -> Scene {
    let seconds = number(input, 5, 600);
    turn.say(&format!(
        "I ask, and cancel the request after {seconds} s.\n\n"
    ))
    .await?;
    let call = json!({ "title": "Think about the folder \"imaginary\"", "kind": "think" });
    let id = turn.call(&call).await?;
    let limit = Duration::from_secs(seconds.into());
    // Dropping the request cancels it at the client.
    if let Ok(answer) = tokio::time::timeout(limit, turn.ask(&id, &call)).await {
        answer?;
        turn.end_call(&id, "completed", "Answered in time.").await?;
        return Ok("You were quicker.".to_owned());
    }
    turn.end_call(&id, "failed", "The request was cancelled.")
        .await?;
    Ok("I cancelled the request.".to_owned())
}

pub(super) async fn title(turn: &mut Turn, input: &str) -> Scene {
    let title = one_line(input, TITLE_MAX);
    if title.is_empty() {
        return Ok("Which title? `/title Holiday plans`.".to_owned());
    }
    turn.change(|record| record.entry.title = Some(title.clone()))?;
    turn.act(json!({ "sessionUpdate": "session_info_update", "title": title }))
        .await?;
    Ok("I named the session so. A name that you gave it yourself counts for more.".to_owned())
}

pub(super) async fn set_option(turn: &mut Turn, option: &str, input: &str, values: &str) -> Scene {
    let value = json!(input);
    if turn.options().set(option, &value).is_err() {
        return Ok(format!("The {option} is one of: {values}."));
    }
    turn.set_option(option, &value).await?;
    let options = turn.options();
    let name = options.selected_name(option);
    Ok(format!(
        "The {option} is **{name}** now, and I notified your client."
    ))
}

pub(super) fn remember(input: &str) -> String {
    let word = one_line(input, WORD_MAX);
    if word.is_empty() {
        return "Which word? `/remember apple`.".to_owned();
    }
    let word = quoted(&word, WORD_MAX);
    format!("I remember {word} in this session. `/recall` asks for it.")
}

/// Reads the word from the history. The answer therefore shows whether the session was restored.
pub(super) fn recall(turn: &Turn) -> String {
    let record = turn.record();
    let mut words = record.history.prompts().filter_map(|prompt| {
        let word = prompt.trim().strip_prefix("/remember ")?;
        Some(one_line(word, WORD_MAX))
    });
    match words.find(|word| !word.is_empty()) {
        Some(word) => format!("The word is {}.", quoted(&word, WORD_MAX)),
        None => "This session remembers no word.".to_owned(),
    }
}

pub(super) fn about(turn: &Turn, meta: &Value) -> String {
    let record = turn.record();
    let shown = |text: &str| quoted(text, MAX_SHOWN_CHARS);
    let list = |of: Vec<String>| match &of[..] {
        [] => "none".to_owned(),
        of => of.join(", "),
    };
    let workspace = &record.entry.workspace;
    let directories = workspace.additional_directories.iter();
    let directories = directories.map(|path| shown(&path.to_string_lossy()));
    let servers = workspace.mcp_servers.iter();
    let servers = servers.map(|server| shown(&server.name));
    let mut rows = vec![
        ("speaks ACP", format!("v{}", turn.client.version.number())),
        ("its id", format!("`{}`", record.entry.session_id)),
        ("works in", shown(&record.cwd())),
        ("and in", list(directories.collect())),
        ("MCP servers", list(servers.collect())),
        ("mode", record.options.selected_name(MODE).to_owned()),
        ("turns", record.turns.to_string()),
    ];
    if let Some(trace) = meta["traceparent"].as_str() {
        rows.push(("trace", shown(trace)));
    }
    let offered = CAPABILITIES.map(|(capability, name)| {
        let offers = turn.client.offers(capability);
        (name, if offers { "yes" } else { "no" }.to_owned())
    });
    let session = table("This session", &rows);
    format!("{session}\n{}", table("Your client offers", &offered))
}

fn table(title: &str, rows: &[(&str, String)]) -> String {
    let mut table = format!("| {title} | |\n| --- | --- |\n");
    for (name, value) in rows {
        table += &format!("| {name} | {value} |\n");
    }
    table
}

pub(super) async fn run(turn: &mut Turn, input: &str) -> Scene {
    let (call, terminal) = match start(turn, input).await? {
        Ok(started) => started,
        Err(said) => return Ok(said),
    };
    let ended = match request(turn, "wait_for_exit", &terminal).await? {
        Ok(_) => finish(turn, &terminal).await?,
        failed => failed,
    };
    conclude(turn, &call, ended).await
}

pub(super) async fn timeout(turn: &mut Turn, input: &str) -> Scene {
    let (seconds, line) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    let seconds = number(seconds, 5, 600);
    let (call, terminal) = match start(turn, line).await? {
        Ok(started) => started,
        Err(said) => return Ok(said),
    };
    if still_runs(turn, &terminal, seconds).await? {
        turn.say(&format!(
            "It still runs after {seconds} s, so I kill it.\n\n"
        ))
        .await?;
        for method in ["kill", "wait_for_exit"] {
            if let Err(error) = request(turn, method, &terminal).await? {
                return conclude(turn, &call, Err(error)).await;
            }
        }
    }
    let ended = finish(turn, &terminal).await?;
    conclude(turn, &call, ended).await
}

/// Polls a command. Returns true if it has not ended within the time.
async fn still_runs(turn: &Turn, terminal: &str, seconds: u32) -> Step<bool> {
    for _ in 0..seconds * 5 {
        turn.wait(POLL_INTERVAL).await?;
        match request(turn, "output", terminal).await? {
            Ok(output) if output["exitStatus"].is_null() => {}
            // The final read of the output reports an error.
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Asks for permission if the mode requires it, and starts the command in the session's directory. Returns the
/// tool call and the terminal, or the last words of a turn that starts nothing.
async fn start(turn: &mut Turn, line: &str) -> Step<Result<(String, String), String>> {
    let words = words(line);
    let Some((command, args)) = words.split_first() else {
        let said = "Which command? `/run ls -la`, or `/timeout 2 sleep 60`.";
        return Ok(Err(said.to_owned()));
    };
    let title = format!("Run {}", excerpt(&words.join(" "), COMMAND_TITLE_MAX));
    let input = json!({ "command": command, "args": args });
    let (call, permission) = turn
        .call_if_permitted(&json!({ "title": title, "kind": "execute", "rawInput": input }))
        .await?;
    if !permission.granted {
        turn.end_call(&call, "failed", "Not run.").await?;
        let denial = turn.denial();
        return Ok(Err(format!("{denial}, so the command did not run.")));
    }
    let mut params = json!({
        "command": command,
        "env": [{ "name": "ACP_DEMO", "value": "1" }],
        "cwd": turn.record().cwd(),
        "outputByteLimit": OUTPUT_BYTES,
    });
    if !args.is_empty() {
        params["args"] = json!(args);
    }
    match turn.request("terminal/create", params).await? {
        Ok(created) => {
            let terminal = created["terminalId"].as_str();
            let terminal = terminal.unwrap_or_default().to_owned();
            turn.terminals.push(terminal.clone());
            let content = json!([{ "type": "terminal", "terminalId": terminal }]);
            let members = json!({ "status": "in_progress", "content": content });
            turn.progress(&call, members).await?;
            Ok(Ok((call, terminal)))
        }
        Err(error) => {
            turn.end_call(&call, "failed", &error_text(&error)).await?;
            Ok(Err("The command could not be started.".to_owned()))
        }
    }
}

async fn request(turn: &Turn, method: &str, terminal: &str) -> Step<Result<Value, Error>> {
    let params = json!({ "terminalId": terminal });
    turn.request(&format!("terminal/{method}"), params).await
}

/// Reads the output and the exit status, and releases the terminal.
async fn finish(turn: &mut Turn, terminal: &str) -> Step<Result<Value, Error>> {
    let output = request(turn, "output", terminal).await?;
    if output.is_err() {
        return Ok(output);
    }
    let released = request(turn, "release", terminal).await?;
    turn.terminals.retain(|open| open != terminal);
    Ok(released.and(output))
}

async fn conclude(turn: &mut Turn, call: &str, ended: Result<Value, Error>) -> Scene {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            turn.end_call(call, "failed", &error_text(&error)).await?;
            return Ok("The terminal failed.".to_owned());
        }
    };
    let exit = &ended["exitStatus"];
    let raw = json!({
        "exitCode": exit["exitCode"], "signal": exit["signal"],
        "truncated": ended["truncated"], "output": ended["output"],
    });
    let is_success = exit["exitCode"] == 0;
    let status = if is_success { "completed" } else { "failed" };
    turn.progress(call, json!({ "status": status, "rawOutput": raw }))
        .await?;
    let how = match (exit["exitCode"].as_u64(), exit["signal"].as_str()) {
        (Some(code), _) => format!("with the exit code {code}"),
        (None, Some(signal)) => format!("by the signal {signal}"),
        (None, None) => "without an exit status".to_owned(),
    };
    let cut = if ended["truncated"] == true {
        ", of which the first part is lost"
    } else {
        ""
    };
    let bytes = ended["output"].as_str().map_or(0, str::len);
    Ok(format!(
        "The command ended {how}, after {bytes} bytes of output{cut}."
    ))
}

/// Sends a tick each second. The pace does not change it.
pub(super) async fn slow(turn: &mut Turn, input: &str) -> Scene {
    let seconds = number(input, 30, 600);
    turn.say(&format!(
        "This takes {seconds} seconds. Cancel it whenever you like.\n\n"
    ))
    .await?;
    for second in 1..=seconds {
        turn.wait(Duration::from_secs(1)).await?;
        turn.say(&format!("{second} ")).await?;
    }
    Ok("\n\nDone.".to_owned())
}

pub(super) async fn correct(turn: &mut Turn) -> Scene {
    const CORRECTED: &str = "The capital of Australia is Canberra.";
    let message = turn.new_message();
    turn.say("The capital of Australia is Sydney.").await?;
    turn.pause(40).await?;
    turn.check()?;
    turn.record().history.replace(&message, CORRECTED);
    let content = json!([{ "type": "text", "text": CORRECTED }]);
    let update =
        json!({ "sessionUpdate": "agent_message", "messageId": message, "content": content });
    turn.show(update).await;
    Ok(" (I had said Sydney first.)".to_owned())
}

/// The turn ends, and later the agent works again without a prompt.
pub(super) fn start_background_work(turn: &mut Turn, input: &str) -> String {
    let seconds = number(input, 5, 600);
    turn.background_work_after = Some(Duration::from_secs(seconds.into()));
    format!("This turn ends now. In {seconds} s I work again, and nobody has to ask me.")
}

/// `tool` or `terminal`, and its duration: a part of the turn that can be cancelled by itself.
pub(super) async fn part(turn: &mut Turn, input: &str) -> Scene {
    let (kind, seconds) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    let seconds = number(seconds.trim(), 30, 600);
    turn.say(&format!(
        "One part of this turn takes {seconds} s. Cancel it, and the turn continues.\n\n"
    ))
    .await?;
    let cancelled = if kind == "terminal" {
        terminal(turn, seconds).await?
    } else {
        tool_call(turn, seconds).await?
    };
    let said = if cancelled {
        "It was cancelled, and I continue."
    } else {
        "Nobody cancelled it."
    };
    Ok(said.to_owned())
}

async fn tool_call(turn: &mut Turn, seconds: u32) -> Step<bool> {
    let call = turn
        .call(&json!({ "title": "Take some time", "status": "in_progress" }))
        .await?;
    let part = turn.session().part(&call);
    let can_cancel = json!({ "capabilities": { "cancel": {} } });
    turn.show(tool_call_update(&call, can_cancel)).await;
    let time = Duration::from_secs(seconds.into());
    let cancelled = turn.wait_for_part(&part, time).await;
    turn.session().end_part(&call);
    if cancelled? {
        turn.call_cancelled(&call).await;
        return Ok(true);
    }
    turn.show(tool_call_update(&call, json!({ "capabilities": null })))
        .await;
    turn.set_status(&call, "completed").await?;
    Ok(false)
}

async fn terminal(turn: &mut Turn, seconds: u32) -> Step<bool> {
    let terminal = turn
        .begin_display(&format!("sleep {seconds}"), true)
        .await?;
    let part = turn.session().part(&terminal);
    let cancelled = tick(turn, &terminal, &part, seconds).await;
    turn.session().end_part(&terminal);
    let cancelled = cancelled?;
    let status = if cancelled {
        json!({ "signal": "SIGTERM" })
    } else {
        json!({ "exitCode": 0 })
    };
    turn.end_display(&terminal, status).await;
    Ok(cancelled)
}

async fn tick(
    turn: &mut Turn,
    terminal: &str,
    part: &CancellationToken,
    seconds: u32,
) -> Step<bool> {
    for second in 1..=seconds {
        if turn.wait_for_part(part, Duration::from_secs(1)).await? {
            return Ok(true);
        }
        turn.grow_display(terminal, &format!("{second}\n")).await?;
    }
    Ok(false)
}
